#include "lossctl/terms.h"

#include <string.h>

#include "lossctl/table.h"

static bool is_named(const char *name, const char *other)
{
    return name != NULL && other != NULL && strcmp(name, other) == 0;
}

/* Terms are in the order of the configured losses. */
static void weight_cell(struct table *table, const Lossd__V1__Group *group, const char *task, size_t term)
{
    const Lossd__V1__GroupConfig *config = group == NULL ? NULL : group->config;

    for (size_t t = 0; config != NULL && t < config->n_tasks; t++) {
        if (!is_named(config->tasks[t]->name, task) || term >= config->tasks[t]->n_losses)
            continue;
        table_cell(table, "%.8g", config->tasks[t]->weight * config->tasks[t]->losses[term]->weight);
        return;
    }
    table_cell(table, "-");
}

void terms_print(const struct rank_run *run, FILE *file)
{
    struct table table;

    table_init(&table, "llrrrrrr");
    table_row(&table, "  TASK", "TERM", "SUM", "DENOMINATOR", "LOCAL MEAN", "FACTOR", "WEIGHT", "VALUE");
    for (size_t t = 0; t < run->response->n_tasks; t++) {
        const Lossd__V1__TaskResult *task = run->response->tasks[t];

        for (size_t i = 0; i < task->n_terms; i++) {
            table_cell(&table, "  %s", task->name);
            table_cell(&table, "%s", task->terms[i]->name);
            table_cell(&table, "%.8g", task->terms[i]->sum);
            table_cell(&table, "%.8g", task->terms[i]->denominator);
            table_cell(&table, "%.8g", task->terms[i]->local_mean);
            table_cell(&table, "%.8g", task->terms[i]->factor);
            weight_cell(&table, run->group, task->name, i);
            table_cell(&table, "%.8g", task->terms[i]->value);
        }
    }
    (void)table_print_and_finish(&table, file);
}

static const Lossd__V1__LossTerm *find_term(const struct rank_run *run, const char *task, size_t term)
{
    for (size_t t = 0; t < run->response->n_tasks; t++)
        if (is_named(run->response->tasks[t]->name, task) && term < run->response->tasks[t]->n_terms)
            return run->response->tasks[t]->terms[term];
    return NULL;
}

static bool is_whole_step(const struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (!rank_runs_same_group(run, &ranks->runs[0]) || run->response->step != ranks->runs[0].response->step ||
            run->response->world == NULL || run->response->world->ranks != ranks->count)
            return false;
    }
    return ranks->count > 1;
}

static void means_cells(struct table *table, const struct rank_runs *ranks, const char *task, size_t index)
{
    double sum = 0.0;
    double denominator = 0.0;
    double means = 0.0;

    for (size_t i = 0; i < ranks->count; i++) {
        const Lossd__V1__LossTerm *term = find_term(&ranks->runs[i], task, index);

        sum += term == NULL ? 0.0 : term->sum;
        denominator += term == NULL ? 0.0 : term->denominator;
        means += term == NULL ? 0.0 : term->local_mean;
    }
    table_cell(table, "%.8g", denominator > 0.0 ? sum / denominator : 0.0);
    table_cell(table, "%.8g", means / (double)ranks->count);
}

void terms_print_means(const struct rank_runs *ranks, FILE *file)
{
    const Lossd__V1__ComputeLossResponse *first = ranks->runs[0].response;
    struct table table;

    if (!is_whole_step(ranks))
        return;
    (void)fputs("all ranks together, and what the plain mean of their local means would have been\n", file);
    table_init(&table, "llrr");
    table_row(&table, "  TASK", "TERM", "GLOBAL MEAN", "PLAIN MEAN");
    for (size_t t = 0; t < first->n_tasks; t++) {
        for (size_t i = 0; i < first->tasks[t]->n_terms; i++) {
            table_cell(&table, "  %s", first->tasks[t]->name);
            table_cell(&table, "%s", first->tasks[t]->terms[i]->name);
            means_cells(&table, ranks, first->tasks[t]->name, i);
        }
    }
    (void)table_print_and_finish(&table, file);
}
