#include "lossctl/whole_batch.h"

#include <string.h>

struct floats {
    float *values;
    size_t count;
};

enum column { LOGITS, LABELS, WEIGHTS, TASK_SPACE };

static struct floats column_of(const Lossd__V1__TaskBatch *task, enum column column)
{
    switch (column) {
    case LOGITS:
        return (struct floats){task->logits, task->n_logits};
    case LABELS:
        return (struct floats){task->labels, task->n_labels};
    case WEIGHTS:
        return (struct floats){task->weights, task->n_weights};
    case TASK_SPACE:
    default:
        return (struct floats){task->task_space, task->n_task_space};
    }
}

const Lossd__V1__TaskBatch *find_task(const Lossd__V1__ComputeLossRequest *request, const char *name)
{
    for (size_t t = 0; t < request->n_tasks; t++)
        if (request->tasks[t]->name != NULL && strcmp(request->tasks[t]->name, name) == 0)
            return request->tasks[t];
    return NULL;
}

size_t num_candidates(const Lossd__V1__ComputeLossRequest *request)
{
    size_t sum = 0;

    for (size_t r = 0; r < request->n_lengths; r++)
        sum += request->lengths[r];
    return sum;
}

/* Absent weights are ones, as soon as one rank has some. */
static struct floats join_column(const struct rank_runs *ranks, const char *name, enum column column,
                                 struct arena *arena)
{
    struct floats joined = {0};
    size_t present = 0;
    size_t most = 0;

    for (size_t i = 0; i < ranks->count; i++) {
        const struct floats part = column_of(find_task(ranks->runs[i].request, name), column);

        present += part.count;
        most += part.count + num_candidates(ranks->runs[i].request);
    }
    if (present == 0)
        return joined;
    joined.values = arena_calloc(arena, most, sizeof *joined.values);
    for (size_t i = 0; joined.values != NULL && i < ranks->count; i++) {
        const Lossd__V1__ComputeLossRequest *request = ranks->runs[i].request;
        const struct floats part = column_of(find_task(request, name), column);

        if (part.count > 0)
            memcpy(joined.values + joined.count, part.values, part.count * sizeof *part.values);
        joined.count += part.count;
        for (size_t c = 0; column == WEIGHTS && part.count == 0 && c < num_candidates(request); c++)
            joined.values[joined.count++] = 1.0f;
    }
    return joined;
}

static Lossd__V1__TaskBatch *join_task(const struct rank_runs *ranks, const Lossd__V1__TaskBatch *first,
                                       struct arena *arena)
{
    Lossd__V1__TaskBatch *task = arena_calloc(arena, 1, sizeof *task);
    struct floats joined[TASK_SPACE + 1];

    if (task == NULL)
        return NULL;
    lossd__v1__task_batch__init(task);
    for (enum column column = LOGITS; column <= TASK_SPACE; column++)
        joined[column] = join_column(ranks, first->name, column, arena);
    task->name = first->name;
    task->logits = joined[LOGITS].values;
    task->n_logits = joined[LOGITS].count;
    task->labels = joined[LABELS].values;
    task->n_labels = joined[LABELS].count;
    task->weights = joined[WEIGHTS].values;
    task->n_weights = joined[WEIGHTS].count;
    task->task_space = joined[TASK_SPACE].values;
    task->n_task_space = joined[TASK_SPACE].count;
    task->has_log_scale = first->has_log_scale;
    task->log_scale = first->log_scale;
    return task;
}

/* Lengths and label bits. */
static bool join_layout(const struct rank_runs *ranks, struct arena *arena, Lossd__V1__ComputeLossRequest *whole)
{
    size_t num_lengths = 0;
    size_t num_bits = 0;

    for (size_t i = 0; i < ranks->count; i++) {
        num_lengths += ranks->runs[i].request->n_lengths;
        num_bits += ranks->runs[i].request->n_label_bits;
    }
    whole->lengths = arena_calloc(arena, num_lengths, sizeof *whole->lengths);
    whole->label_bits = arena_calloc(arena, num_bits, sizeof *whole->label_bits);
    if (whole->lengths == NULL || whole->label_bits == NULL)
        return false;
    for (size_t i = 0; i < ranks->count; i++) {
        const Lossd__V1__ComputeLossRequest *part = ranks->runs[i].request;

        for (size_t r = 0; r < part->n_lengths; r++)
            whole->lengths[whole->n_lengths++] = part->lengths[r];
        for (size_t c = 0; c < part->n_label_bits; c++)
            whole->label_bits[whole->n_label_bits++] = part->label_bits[c];
    }
    return true;
}

Lossd__V1__ComputeLossRequest *whole_batch(const struct rank_runs *ranks, struct arena *arena)
{
    const Lossd__V1__ComputeLossRequest *first = ranks->runs[0].request;
    Lossd__V1__ComputeLossRequest *whole = arena_calloc(arena, 1, sizeof *whole);

    if (whole == NULL)
        return NULL;
    lossd__v1__compute_loss_request__init(whole);
    whole->has_gradient_scale = first->has_gradient_scale;
    whole->gradient_scale = first->gradient_scale;
    whole->tasks = arena_calloc(arena, first->n_tasks, sizeof *whole->tasks);
    if (whole->tasks == NULL || !join_layout(ranks, arena, whole))
        return NULL;
    for (size_t t = 0; t < first->n_tasks; t++) {
        whole->tasks[t] = join_task(ranks, first->tasks[t], arena);
        if (whole->tasks[t] == NULL)
            return NULL;
    }
    whole->n_tasks = first->n_tasks;
    return whole;
}
