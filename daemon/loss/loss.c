/* What loss_run writes into, and which backend it runs in. */
#include "loss/loss.h"

#include "loss/backend.h"

static bool alloc_task(const struct loss_plan *plan, const struct batch *batch, const struct task_batch *task,
                       struct arena *arena, struct task_result *result)
{
    const struct task_config *config = &plan->config->tasks[task->config_index];

    result->name = config->name;
    result->num_terms = config->num_losses;
    result->terms = arena_calloc(arena, config->num_losses, sizeof *result->terms);
    if (result->terms == NULL)
        return false;
    if (batch->skip_gradient)
        return true;
    result->has_log_scale_gradient = task->has_log_scale;
    if (task->gradient != NULL)
        return true;
    result->num_gradient = task->num_logits;
    result->gradient = arena_alloc(arena, sizeof *result->gradient * task->num_logits);
    return result->gradient != NULL;
}

enum lossd_status loss_result_alloc(const struct loss_plan *plan, const struct batch *batch, struct arena *arena,
                                    struct result *result, struct lossd_error *err)
{
    struct result made = {.num_tasks = batch->num_tasks};

    made.tasks = arena_calloc(arena, batch->num_tasks, sizeof *made.tasks);
    if (made.tasks == NULL)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "tasks", "no memory for the results of %zu tasks",
                         batch->num_tasks);
    for (size_t i = 0; i < batch->num_tasks; i++)
        if (!alloc_task(plan, batch, &batch->tasks[i], arena, &made.tasks[i])) {
            (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "", "no memory for %zu gradients", batch->tasks[i].num_logits);
            error_prefix_field(err, "tasks[%zu]", i);
            return err->status;
        }
    *result = made;
    return LOSSD_OK;
}

void loss_run(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct scales *scales,
              struct result *result)
{
    cpu_backend.run(plan, prepared, scales, result);
}
