#include "client/layout.h"

#include <stdbool.h>

#include "batch/values.h"
#include "client/failure.h"
#include "lossd_shm.h"

size_t config_num_terms(const struct group_config *config)
{
    size_t count = 0;

    for (size_t t = 0; t < config->num_tasks; t++)
        count += config->tasks[t].num_losses;
    return count;
}

static enum lossd_code check(const struct group_config *config, const struct lossd_shape *shape,
                             struct lossd_failure *failure)
{
    const uint64_t known = config->num_tasks >= 64 ? UINT64_MAX : (UINT64_C(1) << config->num_tasks) - 1;

    if (config->num_tasks > MAX_TASKS)
        return failure_set(failure, OWN_BAD_SHAPE, "", "the group has %zu tasks, expected %d at most",
                           config->num_tasks, MAX_TASKS);
    if ((unsigned)shape->logits_type > LOSSD_BF16)
        return failure_set(failure, OWN_BAD_SHAPE, "logits_type", "is %d, expected F32, F16 or BF16",
                           (int)shape->logits_type);
    if (shape->gradient_type != LOSSD_F32 && shape->gradient_type != shape->logits_type)
        return failure_set(failure, OWN_BAD_SHAPE, "gradient_type", "is %d, expected F32 or the type of the logits, %d",
                           (int)shape->gradient_type, (int)shape->logits_type);
    if ((unsigned)shape->layout > LOSSD_ROWS)
        return failure_set(failure, OWN_BAD_SHAPE, "layout", "is %d, expected PLANES or ROWS", (int)shape->layout);
    if ((shape->weighted_tasks & ~known) != 0)
        return failure_set(failure, OWN_BAD_SHAPE, "weighted_tasks", "has bits beyond the %zu tasks of the group",
                           config->num_tasks);
    return LOSSD_CODE_OK;
}

/* Columns of a batch; too large ones are the same as none. */
struct plan {
    uint64_t rows;
    uint64_t end;
    bool is_too_large;
};

/* A column of so many bytes a row; every one has some, so that no two begin at the same place. */
static uint64_t add_column(struct plan *plan, uint64_t rows, uint64_t row_bytes)
{
    const uint64_t begin = plan->end;
    uint64_t bytes;

    if (__builtin_mul_overflow(rows, row_bytes, &bytes) || bytes > MAX_LAYOUT_BYTES ||
        begin > MAX_LAYOUT_BYTES - bytes) {
        plan->is_too_large = true;
        return NO_COLUMN;
    }
    plan->end += lossd_shm_round_up(bytes > 0 ? bytes : 1, LOSSD_SHM_ALIGNMENT);
    return begin;
}

static uint64_t add_if(bool is_there, struct plan *plan, uint64_t row_bytes)
{
    return is_there ? add_column(plan, plan->rows, row_bytes) : NO_COLUMN;
}

static void add_planes(const struct group_config *config, struct batch_layout *layout, struct plan *plan)
{
    const size_t logit_bytes = value_size((enum value_type)layout->shape.logits_type);
    const size_t gradient_bytes = value_size((enum value_type)layout->shape.gradient_type);

    for (size_t t = 0; t < config->num_tasks; t++) {
        const uint64_t num_class = config->tasks[t].num_class;

        layout->tasks[t].logits = add_column(plan, plan->rows, num_class * logit_bytes);
        layout->tasks[t].gradient = add_column(plan, plan->rows, num_class * gradient_bytes);
        layout->tasks[t].stride = config->tasks[t].num_class;
    }
}

static void add_rows(const struct group_config *config, struct batch_layout *layout, struct plan *plan)
{
    const size_t logit_bytes = value_size((enum value_type)layout->shape.logits_type);
    const size_t gradient_bytes = value_size((enum value_type)layout->shape.gradient_type);
    uint64_t logits;
    uint64_t gradients;
    uint64_t width = 0;

    for (size_t t = 0; t < config->num_tasks; t++)
        width += config->tasks[t].num_class;
    plan->is_too_large = plan->is_too_large || width > UINT32_MAX;
    logits = add_column(plan, plan->rows, width * logit_bytes);
    gradients = add_column(plan, plan->rows, width * gradient_bytes);
    for (size_t t = 0; t < config->num_tasks; t++) {
        layout->tasks[t].logits = logits;
        layout->tasks[t].gradient = gradients;
        layout->tasks[t].stride = (uint32_t)width;
        logits += config->tasks[t].num_class * logit_bytes;
        gradients += config->tasks[t].num_class * gradient_bytes;
    }
}

static void add_columns(const struct group_config *config, struct batch_layout *layout, struct plan *plan)
{
    const struct lossd_shape *shape = &layout->shape;
    bool has_bits = false;

    layout->lengths = add_column(plan, shape->requests, sizeof(uint32_t));
    if (shape->layout == LOSSD_ROWS)
        add_rows(config, layout, plan);
    else
        add_planes(config, layout, plan);
    for (size_t t = 0; t < config->num_tasks; t++) {
        const struct task_config *task = &config->tasks[t];
        struct task_columns *columns = &layout->tasks[t];
        const bool is_weighted = (shape->weighted_tasks >> t & 1) != 0;
        const bool has_space = task->in_task_space_weight != 1 || task->out_task_space_weight != 1;

        has_bits = has_bits || task->has_label_bitmask;
        columns->labels = add_if(!task->has_label_bitmask, plan, sizeof(float));
        columns->weights = add_if(is_weighted, plan, sizeof(float));
        columns->sessions = add_if(task->lists == LISTS_SESSIONS, plan, sizeof(int64_t));
        columns->task_space = add_if(has_space, plan, sizeof(float));
    }
    layout->label_bits = add_if(has_bits, plan, sizeof(uint64_t));
}

enum lossd_code layout_plan(const struct group_config *config, const struct lossd_shape *shape,
                            struct batch_layout *layout, struct lossd_failure *failure)
{
    const enum lossd_code code = check(config, shape, failure);
    struct plan plan = {.rows = shape->candidates};
    struct batch_layout made;

    if (code != LOSSD_CODE_OK)
        return code;
    made.shape = *shape;
    add_columns(config, &made, &plan);
    if (plan.is_too_large)
        return failure_set(failure, OWN_BAD_SHAPE, "candidates",
                           "is %u, with more columns than any memory has room for", shape->candidates);
    made.bytes = plan.end;
    *layout = made;
    return LOSSD_CODE_OK;
}
