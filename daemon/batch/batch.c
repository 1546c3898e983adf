/* The check of a whole batch; the scans over columns are in columns.c. */
#include "batch/batch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "batch/columns.h"

/* What the columns of one task are checked against. */
struct task_check {
    struct task_batch *task;
    size_t index; /* in the message */
    const struct task_config *config;
    const struct task_rules *rules;
    size_t num_candidates;
    struct lossd_error *err;
};

static size_t find_task(const struct group_config *config, const char *name)
{
    size_t t = 0;

    while (t < config->num_tasks && strcmp(config->tasks[t].name, name) != 0)
        t++;
    return t;
}

static enum lossd_status task_set_error(struct lossd_error *err, const char *field, const char *task, const char *what)
{
    const enum lossd_status status = error_set(err, LOSSD_TASK_SET_MISMATCH, field, "task \"%.64s\" %s", task, what);

    error_add_metadata(err, "task", "%.64s", task);
    return status;
}

/* Each task of the config exactly once: sets config_index. */
static enum lossd_status check_task_set(struct batch *batch, const struct group_config *config, struct lossd_error *err)
{
    bool seen[MAX_TASKS] = {false};

    for (size_t i = 0; i < batch->num_tasks; i++) {
        struct task_batch *task = &batch->tasks[i];
        const size_t t = find_task(config, task->name);
        char field[64];

        (void)snprintf(field, sizeof field, "tasks[%zu].name", i);
        if (t == config->num_tasks)
            return task_set_error(err, field, task->name, "is not one of the group");
        if (seen[t])
            return task_set_error(err, field, task->name, "is there twice");
        seen[t] = true;
        task->config_index = t;
    }
    for (size_t t = 0; t < config->num_tasks; t++)
        if (!seen[t])
            return task_set_error(err, "tasks", config->tasks[t].name, "is missing");
    return LOSSD_OK;
}

static enum lossd_status column_error(const struct task_check *check, const char *column, size_t expected, size_t got,
                                      const char *why)
{
    enum lossd_status status;
    char field[64];

    (void)snprintf(field, sizeof field, "tasks[%zu].%s", check->index, column);
    status = error_set(check->err, LOSSD_SHAPE_MISMATCH, field, "has %zu values, expected %zu%s", got, expected, why);
    error_add_metadata(check->err, "task", "%s", check->config->name);
    error_add_metadata(check->err, "expected", "%zu", expected);
    error_add_metadata(check->err, "got", "%zu", got);
    return status;
}

static enum lossd_status label_count_error(struct lossd_error *err, const char *field, const char *task, size_t labels,
                                           size_t expected, const char *why)
{
    const enum lossd_status status = error_set(err, LOSSD_LABEL_COUNT_MISMATCH, field, "has %zu values, expected %zu%s",
                                               labels, expected, why);

    error_add_metadata(err, "task", "%s", task);
    error_add_metadata(err, "labels", "%zu", labels);
    error_add_metadata(err, "candidates", "%zu", expected);
    return status;
}

static enum lossd_status check_label_bits(const struct batch *batch, const struct group_config *config,
                                          struct lossd_error *err)
{
    const struct task_config *user = NULL;

    for (size_t t = 0; t < config->num_tasks && user == NULL; t++)
        if (config->tasks[t].has_label_bitmask)
            user = &config->tasks[t];
    if (user == NULL && batch->num_label_bits != 0)
        return label_count_error(err, "label_bits", "", batch->num_label_bits, 0, ": no task has a label_bitmask");
    if (user != NULL && batch->num_label_bits != batch->layout.num_candidates)
        return label_count_error(err, "label_bits", user->name, batch->num_label_bits, batch->layout.num_candidates,
                                 ", the sum of lengths");
    return LOSSD_OK;
}

static enum lossd_status check_label_count(const struct task_check *check)
{
    const bool has_bitmask = check->config->has_label_bitmask;
    const size_t expected = has_bitmask ? 0 : check->num_candidates;
    char field[64];

    if (check->task->num_labels == expected)
        return LOSSD_OK;
    (void)snprintf(field, sizeof field, "tasks[%zu].labels", check->index);
    return label_count_error(check->err, field, check->config->name, check->task->num_labels, expected,
                             has_bitmask ? ": the task has a label_bitmask" : ", the sum of lengths");
}

static enum lossd_status check_stride(const struct task_check *check, const char *column, size_t stride)
{
    char field[64];

    if (stride == 0 || stride >= check->config->num_class)
        return LOSSD_OK;
    (void)snprintf(field, sizeof field, "tasks[%zu].%s", check->index, column);
    return error_set(check->err, LOSSD_INVALID_ARGUMENT, field, "is %zu, expected num_class, %u, at least", stride,
                     check->config->num_class);
}

static enum lossd_status check_shapes(const struct task_check *check)
{
    const struct task_batch *task = check->task;
    const size_t candidates = check->num_candidates;
    const size_t logits = candidates * check->config->num_class;
    const bool sessions = check->config->lists == LISTS_SESSIONS;
    enum lossd_status status;

    if (task->num_logits != logits)
        return column_error(check, "logits", logits, task->num_logits, ", the sum of lengths times num_class");
    status = check_stride(check, "logits_stride", task->logits_stride);
    if (status == LOSSD_OK)
        status = check_stride(check, "gradient_stride", task->gradient_stride);
    if (status == LOSSD_OK)
        status = check_label_count(check);
    if (status != LOSSD_OK)
        return status;
    if (task->num_weights != 0 && !check->rules->allows_weights)
        return column_error(check, "weights", 0, task->num_weights, ": the task has a listwise_rank_loss");
    if (task->num_weights != 0 && task->num_weights != candidates)
        return column_error(check, "weights", candidates, task->num_weights, ", the sum of lengths");
    if (task->num_sessions != (sessions ? candidates : 0))
        return column_error(check, "sessions", sessions ? candidates : 0, task->num_sessions,
                            sessions ? ": the task has LISTS_SESSIONS" : ": the task has LISTS_REQUESTS");
    if (task->num_task_space != candidates && (task->num_task_space != 0 || check->rules->needs_task_space))
        return column_error(check, "task_space", candidates, task->num_task_space, ", the sum of lengths");
    return LOSSD_OK;
}

static const char *label_range(unsigned rules)
{
    if (rules & LABEL_CLASS)
        return (rules & LABEL_ZERO_OR_ONE) ? "0 or 1" : "an integer in [0, num_class) or -100";
    if (rules & LABEL_ZERO_OR_ONE)
        return "0 or 1";
    if (rules & LABEL_UNIT_INTERVAL)
        return "a value in [0, 1]";
    return (rules & LABEL_NONNEGATIVE) ? "a finite value, not negative" : "a finite value";
}

static enum lossd_status value_error(const struct task_check *check, enum lossd_status code, const char *column,
                                     size_t index, double value, const char *expected)
{
    enum lossd_status status;
    char field[80];

    (void)snprintf(field, sizeof field, "tasks[%zu].%s[%zu]", check->index, column, index);
    status = error_set(check->err, code, field, "is %.9g, expected %s", value, expected);
    error_add_metadata(check->err, "task", "%s", check->config->name);
    return status;
}

static enum lossd_status check_values(const struct task_check *check)
{
    const struct task_batch *task = check->task;
    size_t bad = find_bad_label(task->labels, task->num_labels, check->rules->label_rules, check->config->num_class);

    if (bad < task->num_labels)
        return value_error(check, LOSSD_LABEL_OUT_OF_RANGE, "labels", bad, (double)task->labels[bad],
                           label_range(check->rules->label_rules));
    bad = find_negative_or_nonfinite(task->weights, task->num_weights);
    if (bad < task->num_weights)
        return value_error(check, LOSSD_WEIGHT_OUT_OF_RANGE, "weights", bad, (double)task->weights[bad],
                           "a finite value, not negative");
    bad = find_nonfinite(task->task_space, task->num_task_space);
    if (bad < task->num_task_space)
        return value_error(check, LOSSD_WEIGHT_OUT_OF_RANGE, "task_space", bad, (double)task->task_space[bad],
                           "a finite value");
    return LOSSD_OK;
}

static enum lossd_status check_log_scale(const struct task_check *check)
{
    char field[64];

    if (!check->task->has_log_scale)
        return LOSSD_OK;
    (void)snprintf(field, sizeof field, "tasks[%zu].log_scale", check->index);
    if (!check->rules->allows_log_scale)
        return error_set(check->err, LOSSD_INVALID_ARGUMENT, field,
                         "is there, but the task has no listwise_rank_loss with learnable_temperature");
    if (!isfinite(check->task->log_scale))
        return error_set(check->err, LOSSD_INVALID_ARGUMENT, field, "is %g, expected a finite value",
                         check->task->log_scale);
    return LOSSD_OK;
}

static enum lossd_status check_logits(const struct task_check *check)
{
    const struct task_batch *task = check->task;
    const size_t num_class = check->config->num_class;
    const struct nonfinite_values found = find_nonfinite_values(task->logits, task->logits_type, check->num_candidates,
                                                                num_class, row_stride(task->logits_stride, num_class));
    enum lossd_status status;

    if (found.count == 0)
        return LOSSD_OK;
    status = value_error(check, LOSSD_NONFINITE_LOGITS, "logits", found.first, found.value, "a finite value");
    error_add_metadata(check->err, "count", "%zu", found.count);
    error_add_metadata(check->err, "first_index", "%zu", found.first);
    return status;
}

static enum lossd_status check_task(const struct task_check *check, enum on_nonfinite on_nonfinite)
{
    enum lossd_status status = check_shapes(check);

    if (status == LOSSD_OK)
        status = check_log_scale(check);
    if (status == LOSSD_OK)
        status = check_values(check);
    if (status == LOSSD_OK && on_nonfinite == ON_NONFINITE_ERROR)
        status = check_logits(check);
    return status;
}

enum lossd_status batch_check(struct batch *batch, const struct group_config *config, const struct task_rules *rules,
                              const struct batch_limits *limits, struct arena *arena, struct lossd_error *err)
{
    enum lossd_status status = jagged_from_lengths(batch->lengths, batch->num_lengths, limits->max_requests,
                                                   limits->max_candidates, arena, &batch->layout, err);

    if (status != LOSSD_OK)
        return status;
    if (!isfinite(batch->gradient_scale))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "gradient_scale", "is %g, expected a finite value",
                         (double)batch->gradient_scale);
    status = check_task_set(batch, config, err);
    if (status == LOSSD_OK)
        status = check_label_bits(batch, config, err);
    for (size_t i = 0; i < batch->num_tasks && status == LOSSD_OK; i++) {
        const size_t t = batch->tasks[i].config_index;
        const struct task_check check = {
            &batch->tasks[i], i, &config->tasks[t], &rules[t], batch->layout.num_candidates, err};

        status = check_task(&check, config->on_nonfinite);
    }
    return status;
}
