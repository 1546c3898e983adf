/* Batches and results. Configurations are in convert_config.c, errors in convert_error.c. */
#include "codec/convert.h"

#include <stdio.h>

static struct task_batch task_from_message(const Lossd__V1__TaskBatch *message)
{
    return (struct task_batch){
        .name = message->name,
        .logits = message->logits,
        .num_logits = message->n_logits,
        .labels = message->labels,
        .num_labels = message->n_labels,
        .weights = message->weights,
        .num_weights = message->n_weights,
        .sessions = message->sessions,
        .num_sessions = message->n_sessions,
        .task_space = message->task_space,
        .num_task_space = message->n_task_space,
        .has_log_scale = message->has_log_scale != 0,
        .log_scale = message->log_scale,
    };
}

enum lossd_status batch_from_message(const Lossd__V1__ComputeLossRequest *message, struct arena *arena,
                                     struct batch *batch, struct lossd_error *err)
{
    struct task_batch *tasks;

    if (message->n_tasks > MAX_TASKS) {
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "tasks", "%zu tasks, expected %d at most", message->n_tasks,
                        MAX_TASKS);
        error_add_metadata(err, "limit", "tasks");
        return LOSSD_LIMIT_EXCEEDED;
    }
    tasks = arena_calloc(arena, message->n_tasks, sizeof *tasks);
    if (tasks == NULL)
        return arena_error(arena, "message", err);
    for (size_t i = 0; i < message->n_tasks; i++) {
        char field[48];

        if (message->tasks[i]->name == NULL) {
            (void)snprintf(field, sizeof field, "tasks[%zu].name", i);
            return error_set(err, LOSSD_MALFORMED_REQUEST, field, "the task has no name");
        }
        tasks[i] = task_from_message(message->tasks[i]);
    }
    *batch = (struct batch){
        .lengths = message->lengths,
        .num_lengths = message->n_lengths,
        .label_bits = message->label_bits,
        .num_label_bits = message->n_label_bits,
        .tasks = tasks,
        .num_tasks = message->n_tasks,
        .skip_gradient = message->skip_gradient != 0,
        .gradient_scale = message->gradient_scale,
    };
    return LOSSD_OK;
}

static Lossd__V1__LossTerm *term_from_result(const struct loss_term *term, struct arena *arena)
{
    Lossd__V1__LossTerm *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return NULL;
    lossd__v1__loss_term__init(message);
    message->name = (char *)(uintptr_t)term->name;
    message->has_value = message->has_local_mean = message->has_sum = 1;
    message->has_denominator = message->has_factor = 1;
    message->value = term->value;
    message->local_mean = term->local_mean;
    message->sum = term->sum;
    message->denominator = term->denominator;
    message->factor = term->factor;
    return message;
}

static Lossd__V1__TaskResult *task_from_result(const struct task_result *task, struct arena *arena)
{
    Lossd__V1__TaskResult *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return NULL;
    lossd__v1__task_result__init(message);
    message->name = (char *)(uintptr_t)task->name;
    message->has_loss = message->has_nonfinite_units = 1;
    message->loss = task->loss;
    message->nonfinite_units = task->nonfinite_units;
    message->has_log_scale_gradient = task->has_log_scale_gradient;
    message->log_scale_gradient = task->log_scale_gradient;
    message->gradient = task->gradient;
    message->n_gradient = task->num_gradient;
    message->n_terms = task->num_terms;
    message->terms = arena_calloc(arena, task->num_terms, sizeof(Lossd__V1__LossTerm *));
    for (size_t i = 0; message->terms != NULL && i < task->num_terms; i++) {
        message->terms[i] = term_from_result(&task->terms[i], arena);
        if (message->terms[i] == NULL)
            return NULL;
    }
    return message->terms == NULL ? NULL : message;
}

static Lossd__V1__Counts *counts_from_result(const struct counts *counts, struct arena *arena)
{
    Lossd__V1__Counts *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return NULL;
    lossd__v1__counts__init(message);
    message->has_requests = message->has_candidates = message->has_ranks = 1;
    message->requests = counts->requests;
    message->candidates = counts->candidates;
    message->ranks = counts->ranks;
    return message;
}

static bool fill_tasks(Lossd__V1__ComputeLossResponse *message, const struct result *result, struct arena *arena)
{
    message->tasks = arena_calloc(arena, result->num_tasks, sizeof(Lossd__V1__TaskResult *));
    if (message->tasks == NULL)
        return false;
    message->n_tasks = result->num_tasks;
    for (size_t i = 0; i < result->num_tasks; i++) {
        message->tasks[i] = task_from_result(&result->tasks[i], arena);
        if (message->tasks[i] == NULL)
            return false;
    }
    return true;
}

enum lossd_status response_from_result(const struct result *result, struct arena *arena,
                                       Lossd__V1__ComputeLossResponse **response, struct lossd_error *err)
{
    Lossd__V1__ComputeLossResponse *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return arena_error(arena, "message", err);
    lossd__v1__compute_loss_response__init(message);
    message->has_step = message->has_loss = message->has_replayed = 1;
    message->has_request_factor = message->has_candidate_factor = 1;
    message->step = result->step;
    message->loss = result->loss;
    message->request_factor = result->request_factor;
    message->candidate_factor = result->candidate_factor;
    message->replayed = result->replayed;
    message->local = counts_from_result(&result->local, arena);
    message->world = counts_from_result(&result->world, arena);
    if (message->local == NULL || message->world == NULL || !fill_tasks(message, result, arena))
        return arena_error(arena, "message", err);
    *response = message;
    return LOSSD_OK;
}
