/* What a batch adds to the denominators of its step. */
#include "loss/loss.h"

#include <float.h>

#include "loss/sessions.h"

/* The softmax label of a row that does not count; PyTorch's ignore_index. */
#define IGNORED_LABEL (-100.0F)

static bool make_lists(const struct batch *batch, const struct task_config *config, const struct task_batch *task,
                       struct arena *arena, struct task_lists *lists)
{
    if (config->lists == LISTS_SESSIONS)
        return session_lists(task->sessions, batch->layout.num_candidates, arena, lists);
    *lists = (struct task_lists){batch->layout.num_requests, batch->layout.offsets, NULL};
    return true;
}

static bool is_ignored(const struct prepared_task *prepared, bool may_ignore, size_t row)
{
    return may_ignore && row_label(prepared, row) == IGNORED_LABEL;
}

/*
 * Weights of the rows that count, from begin to before end. Halves are summed by themselves, down to a block: its own
 * 512 additions and one a level err by less than 1e-13, where a single sum of equal weights drifts with their number.
 */
static double sum_rows(const struct prepared_task *prepared, bool may_ignore, size_t begin, size_t end)
{
    enum { BLOCK = 512 };
    const size_t middle = begin + (end - begin) / 2;
    double sum = 0.0;

    if (end - begin > BLOCK)
        return sum_rows(prepared, may_ignore, begin, middle) + sum_rows(prepared, may_ignore, middle, end);
    for (size_t c = begin; c < end; c++)
        if (!is_ignored(prepared, may_ignore, c))
            sum += row_weight(prepared, c);
    return sum;
}

static void sum_weights(struct prepared_task *prepared, bool may_ignore, size_t num_candidates)
{
    size_t kept = num_candidates;

    for (size_t c = 0; c < num_candidates && may_ignore; c++)
        kept -= is_ignored(prepared, may_ignore, c);
    prepared->num_kept = (double)kept;
    prepared->weight_sum = prepared->num_kept;
    if (prepared->weights != NULL || prepared->task_space != NULL)
        prepared->weight_sum = sum_rows(prepared, may_ignore, 0, num_candidates);
}

static double count_valid_lists(const struct prepared_task *prepared)
{
    const struct task_lists *lists = &prepared->lists;
    size_t valid = 0;

    for (uint32_t l = 0; l < lists->num_lists; l++) {
        const uint32_t size = lists->offsets[l + 1] - lists->offsets[l];
        uint32_t positives = 0;

        for (uint32_t i = lists->offsets[l]; i < lists->offsets[l + 1]; i++)
            positives += row_label(prepared, lists->rows != NULL ? lists->rows[i] : i) != 0.0F;
        valid += positives > 0 && positives < size;
    }
    return (double)valid;
}

static bool prepare_task(const struct loss_plan *plan, const struct batch *batch, const struct task_batch *task,
                         struct arena *arena, struct prepared_task *prepared)
{
    const struct task_config *config = &plan->config->tasks[task->config_index];
    const struct task_rules *rules = &plan->rules[task->config_index];
    const struct task_slots *slots = &plan->slots[task->config_index];

    prepared->labels = task->labels;
    prepared->label_bits = config->has_label_bitmask ? batch->label_bits : NULL;
    prepared->label_mask = config->label_bitmask;
    prepared->weights = task->num_weights != 0 ? task->weights : NULL;
    prepared->task_space = rules->needs_task_space ? task->task_space : NULL;
    prepared->in_weight = config->in_task_space_weight;
    prepared->out_weight = config->out_task_space_weight;
    if (!make_lists(batch, config, task, arena, &prepared->lists))
        return false;
    sum_weights(prepared, (rules->label_rules & LABEL_CLASS) != 0, batch->layout.num_candidates);
    if (slots->valid_lists != DENOMINATOR_REQUESTS)
        prepared->num_valid_lists = count_valid_lists(prepared);
    return true;
}

/* Weights that were good when they were checked, and a sum that is far from the range of binary64 if they still are. */
static enum lossd_status check_weight_sum(const struct prepared_task *prepared, size_t i, struct lossd_error *err)
{
    if (prepared->weight_sum >= 0.0 && prepared->weight_sum <= DBL_MAX)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_WEIGHT_OUT_OF_RANGE, "weights",
                    "add up to %g, expected a finite sum, not negative: they changed while they were read",
                    prepared->weight_sum);
    error_prefix_field(err, "tasks[%zu]", i);
    return err->status;
}

static void contribute(const struct loss_plan *plan, const struct task_slots *slots,
                       const struct prepared_task *prepared, double *contribution)
{
    const bool global = plan->config->weight_normalizer == WEIGHT_NORMALIZER_GLOBAL;

    if (slots->weights != DENOMINATOR_CANDIDATES)
        contribution[slots->weights] = global ? prepared->weight_sum : prepared->num_kept;
    if (slots->lists != DENOMINATOR_REQUESTS)
        contribution[slots->lists] = prepared->lists.num_lists;
    if (slots->valid_lists != DENOMINATOR_REQUESTS)
        contribution[slots->valid_lists] = prepared->num_valid_lists;
}

enum lossd_status loss_prepare(const struct loss_plan *plan, const struct batch *batch, struct arena *arena,
                               struct prepared_batch *prepared, struct lossd_error *err)
{
    struct prepared_task *tasks = arena_calloc(arena, batch->num_tasks, sizeof *tasks);
    double *contribution = arena_calloc(arena, plan->num_denominators, sizeof *contribution);

    if (tasks == NULL || contribution == NULL)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "tasks", "no memory to prepare %zu tasks", batch->num_tasks);
    contribution[DENOMINATOR_REQUESTS] = batch->layout.num_requests;
    contribution[DENOMINATOR_CANDIDATES] = batch->layout.num_candidates;
    for (size_t i = 0; i < batch->num_tasks; i++) {
        const struct task_batch *task = &batch->tasks[i];
        enum lossd_status status;

        if (!prepare_task(plan, batch, task, arena, &tasks[i])) {
            (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "", "no memory to prepare %u candidates",
                            batch->layout.num_candidates);
            error_prefix_field(err, "tasks[%zu]", i);
            return err->status;
        }
        status = check_weight_sum(&tasks[i], i, err);
        if (status != LOSSD_OK)
            return status;
        contribute(plan, &plan->slots[task->config_index], &tasks[i], contribution);
    }
    *prepared = (struct prepared_batch){batch, tasks, contribution};
    return LOSSD_OK;
}

void loss_announced_contribution(const struct loss_plan *plan, uint32_t requests, uint32_t candidates,
                                 double *contribution)
{
    contribution[DENOMINATOR_REQUESTS] = requests;
    contribution[DENOMINATOR_CANDIDATES] = candidates;
    for (size_t t = 0; t < plan->config->num_tasks; t++)
        if (plan->slots[t].weights != DENOMINATOR_CANDIDATES)
            contribution[plan->slots[t].weights] = candidates;
}
