/* What a config may say, and which denominators it needs. */
#include "loss/loss.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_TIMEOUT_MS = 86400000, MAX_GAMMA = 1000 };

/* Intervals that parameters lie in; bounds are given as text in the message. */
static bool in_range(double value, double low, double high)
{
    return value >= low && value <= high && isfinite(value);
}

static enum lossd_status parameter_error(struct lossd_error *err, const char *parameter, double value,
                                         const char *expected)
{
    return error_set(err, LOSSD_INVALID_CONFIG, parameter, "is %g, expected %s", value, expected);
}

/* Up to the greatest binary32, products of weights with each other and with what batches bring stay in binary64. */
static enum lossd_status check_weight(struct lossd_error *err, const char *parameter, double value)
{
    if (in_range(value, 0.0, (double)FLT_MAX))
        return LOSSD_OK;
    return parameter_error(err, parameter, value, "a value from 0 to 3.4e38");
}

/* Not below the least normal binary32 either: times the least sample weight it can still be divided by. */
static enum lossd_status check_task_space_weight(struct lossd_error *err, const char *parameter, double value)
{
    if (value == 0.0 || in_range(value, (double)FLT_MIN, (double)FLT_MAX))
        return LOSSD_OK;
    return parameter_error(err, parameter, value, "0, or a value from 1.2e-38 to 3.4e38");
}

static enum lossd_status check_focal(const struct loss_config *loss, struct lossd_error *err)
{
    const double alpha = loss->binary_focal.alpha;

    if (!in_range(loss->binary_focal.gamma, 0.0, MAX_GAMMA))
        return parameter_error(err, "gamma", loss->binary_focal.gamma, "a value from 0 to 1000");
    if (!(alpha > 0.0 && alpha < 1.0))
        return parameter_error(err, "alpha", alpha, "a value between 0 and 1");
    return LOSSD_OK;
}

/* The parameters of one loss; the field is the parameter's name. */
static enum lossd_status check_parameters(const struct loss_config *loss, struct lossd_error *err)
{
    switch (loss->kind) {
    case LOSS_BINARY_CROSS_ENTROPY: {
        const double smoothing = loss->binary_cross_entropy.label_smoothing;

        if (!(smoothing >= 0.0 && smoothing < 1.0))
            return parameter_error(err, "label_smoothing", smoothing, "a value from 0 to below 1");
        return LOSSD_OK;
    }
    case LOSS_BINARY_FOCAL:
        return check_focal(loss, err);
    case LOSS_SOFTMAX_CROSS_ENTROPY:
        if (!in_range(loss->softmax_cross_entropy.label_smoothing, 0.0, 1.0))
            return parameter_error(err, "label_smoothing", loss->softmax_cross_entropy.label_smoothing,
                                   "a value from 0 to 1");
        return LOSSD_OK;
    case LOSS_JRC:
        if (!in_range(loss->jrc.alpha, 0.0, 1.0))
            return parameter_error(err, "alpha", loss->jrc.alpha, "a value from 0 to 1");
        return LOSSD_OK;
    case LOSS_LISTWISE_RANK:
        if (!(loss->listwise_rank.temperature_init > 0.0) || !isfinite(loss->listwise_rank.temperature_init))
            return parameter_error(err, "temperature_init", loss->listwise_rank.temperature_init,
                                   "a finite value above 0");
        return LOSSD_OK;
    case LOSS_L2:
    case NUM_LOSS_KINDS:
        break;
    }
    return LOSSD_OK;
}

static enum lossd_status check_num_class(enum loss_kind kind, uint32_t num_class, struct lossd_error *err)
{
    const struct loss_kind_info *info = loss_kind_info(kind);

    if (num_class >= info->min_num_class && num_class <= info->max_num_class)
        return LOSSD_OK;
    if (info->min_num_class == info->max_num_class)
        return error_set(err, LOSSD_INVALID_CONFIG, loss_kind_name(kind), "is on a task with num_class %u, expected %u",
                         num_class, info->min_num_class);
    return error_set(err, LOSSD_INVALID_CONFIG, loss_kind_name(kind),
                     "is on a task with num_class %u, expected %u to %u", num_class, info->min_num_class,
                     info->max_num_class);
}

static enum lossd_status check_loss(const struct task_config *task, const struct loss_config *loss,
                                    struct lossd_error *err)
{
    enum lossd_status status;

    if ((unsigned)loss->kind >= NUM_LOSS_KINDS)
        return error_set(err, LOSSD_INVALID_CONFIG, "loss", "is not set, expected one of the losses");
    if (check_weight(err, "weight", loss->weight) != LOSSD_OK)
        return err->status;
    if (check_num_class(loss->kind, task->num_class, err) != LOSSD_OK)
        return err->status;
    status = check_parameters(loss, err);
    if (status != LOSSD_OK)
        error_prefix_field(err, "%s", loss_kind_name(loss->kind));
    return status;
}

/* What no single loss shows: a list-wise loss stands alone with its kind and takes no weights. */
static enum lossd_status check_combination(const struct task_config *task, struct lossd_error *err)
{
    size_t num_listwise = 0;

    for (size_t l = 0; l < task->num_losses; l++)
        if (loss_kind_info(task->losses[l].kind)->listwise)
            num_listwise++;
    if (num_listwise > 1)
        return error_set(err, LOSSD_INVALID_CONFIG, "losses",
                         "has %zu listwise_rank_loss, at most one fits the one log_scale of a task", num_listwise);
    if (num_listwise == 1 && task->in_task_space_weight != 1.0)
        return parameter_error(err, "in_task_space_weight", task->in_task_space_weight,
                               "1 beside a listwise_rank_loss, which takes no weights");
    if (num_listwise == 1 && task->out_task_space_weight != 1.0)
        return parameter_error(err, "out_task_space_weight", task->out_task_space_weight,
                               "1 beside a listwise_rank_loss, which takes no weights");
    return LOSSD_OK;
}

static enum lossd_status check_task_values(const struct task_config *task, struct lossd_error *err)
{
    if (!name_is_valid(task->name))
        return error_set(err, LOSSD_INVALID_CONFIG, "name", "is not 1 to %d of [A-Za-z0-9_.-]", NAME_MAX_LENGTH);
    if (task->num_class < 1 || task->num_class > MAX_NUM_CLASS)
        return error_set(err, LOSSD_INVALID_CONFIG, "num_class", "is %u, expected 1 to %d", task->num_class,
                         MAX_NUM_CLASS);
    if (check_weight(err, "weight", task->weight) != LOSSD_OK)
        return err->status;
    if (task->has_label_bitmask && task->label_bitmask == 0)
        return error_set(err, LOSSD_INVALID_CONFIG, "label_bitmask", "is 0, expected at least one bit");
    if (check_task_space_weight(err, "in_task_space_weight", task->in_task_space_weight) != LOSSD_OK ||
        check_task_space_weight(err, "out_task_space_weight", task->out_task_space_weight) != LOSSD_OK)
        return err->status;
    if (task->num_losses == 0)
        return error_set(err, LOSSD_INVALID_CONFIG, "losses", "is empty, expected 1 to %d", MAX_LOSSES);
    if (task->num_losses > MAX_LOSSES)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "losses", "has %zu entries, at most %d are allowed",
                         task->num_losses, MAX_LOSSES);
    return LOSSD_OK;
}

static enum lossd_status check_task(const struct task_config *task, struct lossd_error *err)
{
    enum lossd_status status = check_task_values(task, err);

    for (size_t l = 0; l < task->num_losses && status == LOSSD_OK; l++) {
        status = check_loss(task, &task->losses[l], err);
        if (status != LOSSD_OK)
            error_prefix_field(err, "losses[%zu]", l);
    }
    return status == LOSSD_OK ? check_combination(task, err) : status;
}

static enum lossd_status check_tasks(const struct group_config *config, struct lossd_error *err)
{
    for (size_t t = 0; t < config->num_tasks; t++) {
        const enum lossd_status status = check_task(&config->tasks[t], err);

        if (status != LOSSD_OK) {
            error_prefix_field(err, "tasks[%zu]", t);
            return status;
        }
        for (size_t other = 0; other < t; other++)
            if (strcmp(config->tasks[t].name, config->tasks[other].name) == 0) {
                (void)error_set(err, LOSSD_INVALID_CONFIG, "name", "is \"%s\", which task %zu has already",
                                config->tasks[t].name, other);
                error_prefix_field(err, "tasks[%zu]", t);
                return err->status;
            }
    }
    return LOSSD_OK;
}

static enum lossd_status check_timeout(uint32_t timeout_ms, const char *field, struct lossd_error *err)
{
    if (timeout_ms >= 1 && timeout_ms <= MAX_TIMEOUT_MS)
        return LOSSD_OK;
    return error_set(err, LOSSD_INVALID_CONFIG, field, "is %u, expected 1 to %d", timeout_ms, MAX_TIMEOUT_MS);
}

static enum lossd_status check_config(const struct group_config *config, struct lossd_error *err)
{
    enum lossd_status status = check_timeout(config->step_timeout_ms, "step_timeout_ms", err);

    if (status == LOSSD_OK)
        status = check_timeout(config->first_step_timeout_ms, "first_step_timeout_ms", err);
    if (status != LOSSD_OK)
        return status;
    if (config->num_tasks == 0)
        return error_set(err, LOSSD_INVALID_CONFIG, "tasks", "is empty, expected 1 to %d", MAX_TASKS);
    if (config->num_tasks > MAX_TASKS)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "tasks", "has %zu entries, at most %d are allowed",
                         config->num_tasks, MAX_TASKS);
    return check_tasks(config, err);
}

static unsigned loss_label_rules(const struct loss_config *loss)
{
    const unsigned rules = loss_kind_info(loss->kind)->label_rules;

    if (loss->kind == LOSS_LISTWISE_RANK &&
        (loss->listwise_rank.target == TARGET_RAW || loss->listwise_rank.target == TARGET_PROBABILITY))
        return rules | LABEL_NONNEGATIVE;
    return rules;
}

static struct task_rules make_rules(const struct task_config *task)
{
    struct task_rules rules = {.allows_weights = true};

    rules.needs_task_space = task->in_task_space_weight != 1.0 || task->out_task_space_weight != 1.0;
    for (size_t l = 0; l < task->num_losses; l++) {
        const struct loss_config *loss = &task->losses[l];

        rules.label_rules |= loss_label_rules(loss);
        if (loss->kind != LOSS_LISTWISE_RANK)
            continue;
        rules.allows_weights = false;
        rules.allows_log_scale = loss->listwise_rank.learnable_temperature;
    }
    return rules;
}

/* Slots of their own for what requests and candidates do not tell; the same on every rank, since only config decides.
 */
static struct task_slots make_slots(const struct group_config *config, const struct task_config *task,
                                    bool allows_weights, uint32_t *next)
{
    struct task_slots slots = {DENOMINATOR_CANDIDATES, DENOMINATOR_REQUESTS, DENOMINATOR_REQUESTS};
    bool counts_rows = allows_weights && config->weight_normalizer == WEIGHT_NORMALIZER_GLOBAL;
    bool counts_valid = false;

    for (size_t l = 0; l < task->num_losses; l++) {
        const struct loss_config *loss = &task->losses[l];

        if (loss->kind == LOSS_SOFTMAX_CROSS_ENTROPY &&
            loss->softmax_cross_entropy.ignore_counting == IGNORE_COUNTING_KEPT)
            counts_rows = true;
        if (loss->kind == LOSS_LISTWISE_RANK && loss->listwise_rank.denominator == DENOMINATOR_VALID)
            counts_valid = true;
    }
    if (counts_rows)
        slots.weights = (*next)++;
    if (!allows_weights && task->lists == LISTS_SESSIONS)
        slots.lists = (*next)++;
    if (counts_valid)
        slots.valid_lists = (*next)++;
    return slots;
}

/* Name a field by which the counts of a batch alone do not make its contribution; "" where there is none. */
static void find_announce_field(struct loss_plan *plan, size_t t, char *buffer, size_t size)
{
    const struct task_config *task = &plan->config->tasks[t];

    buffer[0] = '\0';
    if (task->lists == LISTS_SESSIONS)
        (void)snprintf(buffer, size, "tasks[%zu].lists", t);
    if (task->in_task_space_weight != 1.0)
        (void)snprintf(buffer, size, "tasks[%zu].in_task_space_weight", t);
    if (task->out_task_space_weight != 1.0)
        (void)snprintf(buffer, size, "tasks[%zu].out_task_space_weight", t);
    for (size_t l = 0; l < task->num_losses; l++)
        if (task->losses[l].kind == LOSS_LISTWISE_RANK &&
            task->losses[l].listwise_rank.denominator == DENOMINATOR_VALID)
            (void)snprintf(buffer, size, "tasks[%zu].losses[%zu].listwise_rank_loss.denominator", t, l);
}

static enum lossd_status lay_out(struct loss_plan *plan, struct arena *arena, struct lossd_error *err)
{
    enum { FIELD_SIZE = 96 };
    const size_t num_tasks = plan->config->num_tasks;
    struct task_rules *rules = arena_calloc(arena, num_tasks, sizeof *rules);
    struct task_slots *slots = arena_calloc(arena, num_tasks, sizeof *slots);
    char *field = arena_calloc(arena, FIELD_SIZE, 1);

    if (rules == NULL || slots == NULL || field == NULL)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "tasks", "no memory for the plan of %zu tasks", num_tasks);
    plan->num_denominators = 2;
    for (size_t t = 0; t < num_tasks; t++) {
        rules[t] = make_rules(&plan->config->tasks[t]);
        slots[t] = make_slots(plan->config, &plan->config->tasks[t], rules[t].allows_weights, &plan->num_denominators);
        if (field[0] == '\0')
            find_announce_field(plan, t, field, FIELD_SIZE);
    }
    plan->rules = rules;
    plan->slots = slots;
    plan->announce_field = field;
    plan->announce_needs_batch = field[0] != '\0';
    return LOSSD_OK;
}

enum lossd_status loss_plan_init(struct loss_plan *plan, const struct group_config *config, struct arena *arena,
                                 struct lossd_error *err)
{
    struct loss_plan made = {.config = config};
    enum lossd_status status = check_config(config, err);

    if (status == LOSSD_OK)
        status = lay_out(&made, arena, err);
    if (status == LOSSD_OK)
        *plan = made;
    return status;
}
