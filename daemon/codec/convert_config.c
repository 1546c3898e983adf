/*
 * Configurations. Each enum of the wire has 0 for "the default" and then the values of ours in the same order, the
 * default first.
 */
#include "codec/convert.h"

#include <string.h>

enum { GRAD_REDUCES = 2, ON_NONFINITES = 3, WEIGHT_NORMALIZERS = 2, LISTS = 2, COUNTINGS = 2, TARGETS = 4, MEANS = 2 };

static enum lossd_status fail_limit(const char *what, size_t found, uint32_t limit, struct lossd_error *err)
{
    (void)error_set(err, LOSSD_LIMIT_EXCEEDED, what, "%zu %s, expected %u at most", found, what, limit);
    error_add_metadata(err, "limit", "%s", what);
    return LOSSD_LIMIT_EXCEEDED;
}

/* Ours for a value of the wire, of which there are values beside 0. */
static enum lossd_status read_enum(int wire, int values, const char *field, unsigned *ours, struct lossd_error *err)
{
    if (wire < 0 || wire > values)
        return error_set(err, LOSSD_INVALID_CONFIG, field, "value %d is not known, expected 0 to %d", wire, values);
    *ours = wire == 0 ? 0 : (unsigned)wire - 1;
    return LOSSD_OK;
}

static enum lossd_status read_softmax(const Lossd__V1__SoftmaxCrossEntropy *message, struct loss_config *loss,
                                      struct lossd_error *err)
{
    unsigned counting = 0;
    const enum lossd_status status = read_enum(message->ignore_counting, COUNTINGS,
                                               "softmax_cross_entropy.ignore_counting", &counting, err);

    loss->kind = LOSS_SOFTMAX_CROSS_ENTROPY;
    loss->softmax_cross_entropy.label_smoothing = message->label_smoothing;
    loss->softmax_cross_entropy.ignore_counting = (enum ignore_counting)counting;
    return status;
}

static enum lossd_status read_listwise(const Lossd__V1__ListwiseRankLoss *message, struct loss_config *loss,
                                       struct lossd_error *err)
{
    unsigned target = 0;
    unsigned mean = 0;
    enum lossd_status status = read_enum(message->target, TARGETS, "listwise_rank_loss.target", &target, err);

    if (status == LOSSD_OK)
        status = read_enum(message->denominator, MEANS, "listwise_rank_loss.denominator", &mean, err);
    loss->kind = LOSS_LISTWISE_RANK;
    loss->listwise_rank.temperature_init = message->temperature_init;
    loss->listwise_rank.learnable_temperature = message->learnable_temperature != 0;
    loss->listwise_rank.target = (enum listwise_target)target;
    loss->listwise_rank.denominator = (enum listwise_denominator)mean;
    return status;
}

static enum lossd_status read_loss(const Lossd__V1__LossConfig *message, struct loss_config *loss,
                                   struct lossd_error *err)
{
    loss->weight = message->weight;
    switch (message->loss_case) {
    case LOSSD__V1__LOSS_CONFIG__LOSS_BINARY_CROSS_ENTROPY:
        loss->kind = LOSS_BINARY_CROSS_ENTROPY;
        loss->binary_cross_entropy.label_smoothing = message->binary_cross_entropy->label_smoothing;
        return LOSSD_OK;
    case LOSSD__V1__LOSS_CONFIG__LOSS_BINARY_FOCAL_LOSS:
        loss->kind = LOSS_BINARY_FOCAL;
        loss->binary_focal.gamma = message->binary_focal_loss->gamma;
        loss->binary_focal.alpha = message->binary_focal_loss->alpha;
        loss->binary_focal.detach_weight = message->binary_focal_loss->detach_weight != 0;
        return LOSSD_OK;
    case LOSSD__V1__LOSS_CONFIG__LOSS_SOFTMAX_CROSS_ENTROPY:
        return read_softmax(message->softmax_cross_entropy, loss, err);
    case LOSSD__V1__LOSS_CONFIG__LOSS_JRC_LOSS:
        loss->kind = LOSS_JRC;
        loss->jrc.alpha = message->jrc_loss->alpha;
        return LOSSD_OK;
    case LOSSD__V1__LOSS_CONFIG__LOSS_L2_LOSS:
        loss->kind = LOSS_L2;
        return LOSSD_OK;
    case LOSSD__V1__LOSS_CONFIG__LOSS_LISTWISE_RANK_LOSS:
        return read_listwise(message->listwise_rank_loss, loss, err);
    default:
        return error_set(err, LOSSD_INVALID_CONFIG, "loss", "no loss is set, expected exactly one");
    }
}

static enum lossd_status read_losses(const Lossd__V1__TaskConfig *message, uint32_t max_losses, struct arena *arena,
                                     struct task_config *task, struct lossd_error *err)
{
    struct loss_config *losses;

    if (message->n_losses > max_losses)
        return fail_limit("losses", message->n_losses, max_losses, err);
    losses = arena_calloc(arena, message->n_losses, sizeof *losses);
    if (losses == NULL)
        return arena_error(arena, "config", err);
    for (size_t i = 0; i < message->n_losses; i++) {
        const enum lossd_status status = read_loss(message->losses[i], &losses[i], err);

        if (status != LOSSD_OK) {
            error_prefix_field(err, "losses[%zu]", i);
            return status;
        }
    }
    task->losses = losses;
    task->num_losses = message->n_losses;
    return LOSSD_OK;
}

static enum lossd_status read_task(const Lossd__V1__TaskConfig *message, uint32_t max_losses, struct arena *arena,
                                   struct task_config *task, struct lossd_error *err)
{
    unsigned lists = 0;
    enum lossd_status status;

    if (message->name == NULL)
        return error_set(err, LOSSD_INVALID_CONFIG, "name", "the task has no name");
    status = read_enum(message->lists, LISTS, "lists", &lists, err);
    if (status != LOSSD_OK)
        return status;
    *task = (struct task_config){
        .name = arena_strndup(arena, message->name, strlen(message->name)),
        .num_class = message->num_class,
        .weight = message->weight,
        .has_label_bitmask = message->has_label_bitmask != 0,
        .label_bitmask = message->label_bitmask,
        .lists = (enum lists)lists,
        .in_task_space_weight = message->in_task_space_weight,
        .out_task_space_weight = message->out_task_space_weight,
    };
    return task->name == NULL ? arena_error(arena, "config", err) : read_losses(message, max_losses, arena, task, err);
}

static enum lossd_status read_policies(const Lossd__V1__GroupConfig *message, struct group_config *config,
                                       struct lossd_error *err)
{
    unsigned reduce = 0;
    unsigned nonfinite = 0;
    unsigned normalizer = 0;
    enum lossd_status status = read_enum(message->grad_reduce, GRAD_REDUCES, "grad_reduce", &reduce, err);

    if (status == LOSSD_OK)
        status = read_enum(message->on_nonfinite, ON_NONFINITES, "on_nonfinite", &nonfinite, err);
    if (status == LOSSD_OK)
        status = read_enum(message->weight_normalizer, WEIGHT_NORMALIZERS, "weight_normalizer", &normalizer, err);
    config->global_average = message->global_average != 0;
    config->grad_reduce = (enum grad_reduce)reduce;
    config->on_nonfinite = (enum on_nonfinite)nonfinite;
    config->weight_normalizer = (enum weight_normalizer)normalizer;
    config->step_timeout_ms = message->step_timeout_ms;
    config->first_step_timeout_ms = message->first_step_timeout_ms;
    return status;
}

enum lossd_status config_from_message(const Lossd__V1__GroupConfig *message, uint32_t max_tasks, uint32_t max_losses,
                                      struct arena *arena, struct group_config *config, struct lossd_error *err)
{
    struct group_config made = {.num_tasks = message->n_tasks};
    enum lossd_status status = read_policies(message, &made, err);
    struct task_config *tasks;

    if (status != LOSSD_OK)
        return status;
    if (message->n_tasks > max_tasks)
        return fail_limit("tasks", message->n_tasks, max_tasks, err);
    tasks = arena_calloc(arena, message->n_tasks, sizeof *tasks);
    if (tasks == NULL)
        return arena_error(arena, "config", err);
    for (size_t i = 0; i < message->n_tasks; i++) {
        status = read_task(message->tasks[i], max_losses, arena, &tasks[i], err);
        if (status != LOSSD_OK) {
            error_prefix_field(err, "tasks[%zu]", i);
            return status;
        }
    }
    made.tasks = tasks;
    *config = made;
    return LOSSD_OK;
}
