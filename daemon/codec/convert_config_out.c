/* The canonical message of a config: every field present, in memory of the arena. */
#include <string.h>

#include "codec/convert.h"

/* Of the wire for ours: 0 there is "the default". */
static int wire_enum(unsigned ours)
{
    return (int)ours + 1;
}

static bool write_bce(const struct loss_config *loss, struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__BinaryCrossEntropy *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__binary_cross_entropy__init(inner);
    inner->has_label_smoothing = 1;
    inner->label_smoothing = loss->binary_cross_entropy.label_smoothing;
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_BINARY_CROSS_ENTROPY;
    message->binary_cross_entropy = inner;
    return true;
}

static bool write_focal(const struct loss_config *loss, struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__BinaryFocalLoss *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__binary_focal_loss__init(inner);
    inner->has_gamma = inner->has_alpha = inner->has_detach_weight = 1;
    inner->gamma = loss->binary_focal.gamma;
    inner->alpha = loss->binary_focal.alpha;
    inner->detach_weight = loss->binary_focal.detach_weight;
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_BINARY_FOCAL_LOSS;
    message->binary_focal_loss = inner;
    return true;
}

static bool write_softmax(const struct loss_config *loss, struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__SoftmaxCrossEntropy *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__softmax_cross_entropy__init(inner);
    inner->has_label_smoothing = inner->has_ignore_counting = 1;
    inner->label_smoothing = loss->softmax_cross_entropy.label_smoothing;
    inner->ignore_counting = (Lossd__V1__IgnoreCounting)wire_enum(loss->softmax_cross_entropy.ignore_counting);
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_SOFTMAX_CROSS_ENTROPY;
    message->softmax_cross_entropy = inner;
    return true;
}

static bool write_jrc(const struct loss_config *loss, struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__JrcLoss *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__jrc_loss__init(inner);
    inner->has_alpha = 1;
    inner->alpha = loss->jrc.alpha;
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_JRC_LOSS;
    message->jrc_loss = inner;
    return true;
}

static bool write_l2(struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__L2Loss *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__l2_loss__init(inner);
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_L2_LOSS;
    message->l2_loss = inner;
    return true;
}

static bool write_listwise(const struct loss_config *loss, struct arena *arena, Lossd__V1__LossConfig *message)
{
    Lossd__V1__ListwiseRankLoss *inner = arena_alloc(arena, sizeof *inner);

    if (inner == NULL)
        return false;
    lossd__v1__listwise_rank_loss__init(inner);
    inner->has_temperature_init = inner->has_learnable_temperature = inner->has_target = inner->has_denominator = 1;
    inner->temperature_init = loss->listwise_rank.temperature_init;
    inner->learnable_temperature = loss->listwise_rank.learnable_temperature;
    inner->target = (Lossd__V1__ListwiseRankLoss__Target)wire_enum(loss->listwise_rank.target);
    inner->denominator = (Lossd__V1__ListwiseRankLoss__Denominator)wire_enum(loss->listwise_rank.denominator);
    message->loss_case = LOSSD__V1__LOSS_CONFIG__LOSS_LISTWISE_RANK_LOSS;
    message->listwise_rank_loss = inner;
    return true;
}

static Lossd__V1__LossConfig *write_loss(const struct loss_config *loss, struct arena *arena)
{
    Lossd__V1__LossConfig *message = arena_alloc(arena, sizeof *message);
    bool done = false;

    if (message == NULL)
        return NULL;
    lossd__v1__loss_config__init(message);
    message->has_weight = 1;
    message->weight = loss->weight;
    switch (loss->kind) {
    case LOSS_BINARY_CROSS_ENTROPY:
        done = write_bce(loss, arena, message);
        break;
    case LOSS_BINARY_FOCAL:
        done = write_focal(loss, arena, message);
        break;
    case LOSS_SOFTMAX_CROSS_ENTROPY:
        done = write_softmax(loss, arena, message);
        break;
    case LOSS_JRC:
        done = write_jrc(loss, arena, message);
        break;
    case LOSS_L2:
        done = write_l2(arena, message);
        break;
    case LOSS_LISTWISE_RANK:
        done = write_listwise(loss, arena, message);
        break;
    case NUM_LOSS_KINDS:
        break;
    }
    return done ? message : NULL;
}

static Lossd__V1__TaskConfig *write_task(const struct task_config *task, struct arena *arena)
{
    Lossd__V1__TaskConfig *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return NULL;
    lossd__v1__task_config__init(message);
    message->name = arena_strndup(arena, task->name, strlen(task->name));
    message->has_num_class = message->has_weight = message->has_lists = 1;
    message->has_in_task_space_weight = message->has_out_task_space_weight = 1;
    message->num_class = task->num_class;
    message->weight = task->weight;
    message->lists = (Lossd__V1__Lists)wire_enum(task->lists);
    message->has_label_bitmask = task->has_label_bitmask;
    message->label_bitmask = task->label_bitmask;
    message->in_task_space_weight = task->in_task_space_weight;
    message->out_task_space_weight = task->out_task_space_weight;
    message->n_losses = task->num_losses;
    message->losses = arena_calloc(arena, task->num_losses, sizeof(Lossd__V1__LossConfig *));
    for (size_t i = 0; message->losses != NULL && i < task->num_losses; i++) {
        message->losses[i] = write_loss(&task->losses[i], arena);
        if (message->losses[i] == NULL)
            return NULL;
    }
    return message->name == NULL || message->losses == NULL ? NULL : message;
}

static Lossd__V1__GroupConfig *write_group(const struct group_config *config, struct arena *arena)
{
    Lossd__V1__GroupConfig *message = arena_alloc(arena, sizeof *message);

    if (message == NULL)
        return NULL;
    lossd__v1__group_config__init(message);
    message->has_global_average = message->has_grad_reduce = message->has_on_nonfinite = 1;
    message->has_weight_normalizer = message->has_step_timeout_ms = message->has_first_step_timeout_ms = 1;
    message->global_average = config->global_average;
    message->grad_reduce = (Lossd__V1__GradReduce)wire_enum(config->grad_reduce);
    message->on_nonfinite = (Lossd__V1__OnNonfinite)wire_enum(config->on_nonfinite);
    message->weight_normalizer = (Lossd__V1__WeightNormalizer)wire_enum(config->weight_normalizer);
    message->step_timeout_ms = config->step_timeout_ms;
    message->first_step_timeout_ms = config->first_step_timeout_ms;
    message->n_tasks = config->num_tasks;
    message->tasks = arena_calloc(arena, config->num_tasks, sizeof(Lossd__V1__TaskConfig *));
    for (size_t i = 0; message->tasks != NULL && i < config->num_tasks; i++) {
        message->tasks[i] = write_task(&config->tasks[i], arena);
        if (message->tasks[i] == NULL)
            return NULL;
    }
    return message->tasks == NULL ? NULL : message;
}

enum lossd_status config_to_message(const struct group_config *config, struct arena *arena,
                                    Lossd__V1__GroupConfig **message, struct lossd_error *err)
{
    Lossd__V1__GroupConfig *const made = write_group(config, arena);

    if (made == NULL)
        return arena_error(arena, "config", err);
    *message = made;
    return LOSSD_OK;
}
