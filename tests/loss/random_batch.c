#include "loss/random_batch.h"

#include <math.h>

static struct loss_config random_loss(struct random *random, enum loss_kind kind, bool exact)
{
    struct loss_config loss = {.kind = kind, .weight = random_between(random, 0.1, 2.0)};

    switch (kind) {
    case LOSS_BINARY_CROSS_ENTROPY:
        loss.binary_cross_entropy.label_smoothing = random_chance(random, 0.5) ? 0.0 : random_between(random, 0.0, 0.9);
        break;
    case LOSS_BINARY_FOCAL:
        loss.binary_focal.gamma = random_chance(random, 0.2) ? 0.0 : random_between(random, 0.0, 4.0);
        loss.binary_focal.alpha = random_between(random, 0.05, 0.95);
        loss.binary_focal.detach_weight = random_chance(random, 0.5);
        break;
    case LOSS_SOFTMAX_CROSS_ENTROPY:
        loss.softmax_cross_entropy.label_smoothing = random_chance(random, 0.5) ? 0.0
                                                                                : random_between(random, 0.0, 1.0);
        loss.softmax_cross_entropy.ignore_counting = !exact && random_chance(random, 0.3);
        break;
    case LOSS_JRC:
        loss.jrc.alpha = random_between(random, 0.0, 1.0);
        break;
    case LOSS_LISTWISE_RANK:
        loss.listwise_rank.temperature_init = exp(random_between(random, -5.0, 2.0));
        loss.listwise_rank.learnable_temperature = random_chance(random, 0.7);
        loss.listwise_rank.target = random_below(random, 4);
        loss.listwise_rank.denominator = random_below(random, 2);
        break;
    case LOSS_L2:
    case NUM_LOSS_KINDS:
        break;
    }
    return loss;
}

static enum loss_kind random_kind(struct random *random, uint32_t num_class, bool allow_listwise)
{
    static const enum loss_kind single[] = {LOSS_BINARY_CROSS_ENTROPY, LOSS_BINARY_FOCAL, LOSS_L2, LOSS_LISTWISE_RANK};

    if (num_class == 1)
        return single[random_below(random, allow_listwise ? 4 : 3)];
    return num_class == 2 && random_chance(random, 0.6) ? LOSS_JRC : LOSS_SOFTMAX_CROSS_ENTROPY;
}

static void random_task(struct random *random, const struct random_limits *limits, struct arena *arena,
                        struct task_config *task)
{
    static const uint32_t classes[] = {1, 1, 1, 2, 2, 3, 17};
    const size_t num_losses = 1 + random_below(random, 3);
    struct loss_config *losses = arena_calloc(arena, num_losses, sizeof *losses);
    bool listwise = false;

    task->num_class = classes[random_below(random, 7)];
    task->weight = random_between(random, 0.2, 3.0);
    for (size_t l = 0; l < num_losses; l++) {
        losses[l] = random_loss(random, random_kind(random, task->num_class, !listwise), limits->exact);
        listwise |= losses[l].kind == LOSS_LISTWISE_RANK;
    }
    task->losses = losses;
    task->num_losses = num_losses;
    task->has_label_bitmask = random_chance(random, 0.2);
    task->label_bitmask = task->has_label_bitmask ? UINT64_C(1) << random_below(random, 64) : 0;
    task->lists = !limits->exact && random_chance(random, 0.3) ? LISTS_SESSIONS : LISTS_REQUESTS;
    task->in_task_space_weight = 1.0;
    task->out_task_space_weight = 1.0;
    if (!listwise && random_chance(random, 0.3)) {
        task->in_task_space_weight = random_between(random, 0.0, 2.0);
        task->out_task_space_weight = random_chance(random, 0.5) ? 0.0 : random_between(random, 0.0, 2.0);
    }
}

void random_config(struct random *random, const struct random_limits *limits, struct arena *arena,
                   struct group_config *config)
{
    static const char *const names[] = {"is_click", "is_like", "dwell"};
    struct task_config *tasks;

    *config = (struct group_config){.num_tasks = 1 + random_below(random, limits->max_tasks)};
    tasks = arena_calloc(arena, config->num_tasks, sizeof *tasks);
    for (size_t t = 0; t < config->num_tasks; t++) {
        random_task(random, limits, arena, &tasks[t]);
        tasks[t].name = names[t];
    }
    config->tasks = tasks;
    config->global_average = limits->exact || random_chance(random, 0.9);
    config->grad_reduce = random_below(random, 2);
    config->on_nonfinite = limits->nonfinite_rate > 0.0 ? ON_NONFINITE_ZERO : random_below(random, 3);
    config->weight_normalizer = limits->exact ? WEIGHT_NORMALIZER_GLOBAL : random_below(random, 2);
    config->step_timeout_ms = 1000;
    config->first_step_timeout_ms = 1000;
}

static float random_logit(struct random *random, const struct random_limits *limits, bool squared)
{
    if (random_chance(random, limits->nonfinite_rate))
        return random_chance(random, 0.5) ? NAN : INFINITY;
    if (random_chance(random, 0.05))
        return (float)random_between(random, -1.0, 1.0) *
               (float)(squared ? fmin(limits->max_logit, 1e6) : limits->max_logit);
    return (float)random_between(random, -8.0, 8.0);
}

/* A label that all losses of the task take. */
static float random_label(struct random *random, const struct task_config *task)
{
    bool binary = false;
    bool unit = false;
    bool classes = false;
    bool listwise = false;

    for (size_t l = 0; l < task->num_losses; l++) {
        binary |= task->losses[l].kind == LOSS_JRC;
        unit |= task->losses[l].kind == LOSS_BINARY_CROSS_ENTROPY || task->losses[l].kind == LOSS_BINARY_FOCAL;
        classes |= task->losses[l].kind == LOSS_SOFTMAX_CROSS_ENTROPY;
        listwise |= task->losses[l].kind == LOSS_LISTWISE_RANK;
    }
    if (binary || (unit && random_chance(random, 0.8)))
        return random_chance(random, 0.3) ? 1.0F : 0.0F;
    if (unit)
        return (float)random_between(random, 0.0, 1.0);
    if (classes)
        return random_chance(random, 0.1) ? -100.0F : (float)random_below(random, task->num_class);
    if (listwise)
        return random_chance(random, 0.5) ? 0.0F : (float)random_between(random, 0.0, 4.0);
    return (float)random_between(random, -5.0, 5.0);
}

static bool has_kind(const struct task_config *task, enum loss_kind kind)
{
    for (size_t l = 0; l < task->num_losses; l++)
        if (task->losses[l].kind == kind)
            return true;
    return false;
}

static bool may_send_log_scale(const struct task_config *task)
{
    for (size_t l = 0; l < task->num_losses; l++)
        if (task->losses[l].kind == LOSS_LISTWISE_RANK && task->losses[l].listwise_rank.learnable_temperature)
            return true;
    return false;
}

static float *random_column(struct random *random, struct arena *arena, uint32_t count, double zeros, double high)
{
    float *column = arena_alloc(arena, sizeof *column * count);

    for (uint32_t c = 0; c < count; c++)
        column[c] = random_chance(random, zeros) ? 0.0F : (float)random_between(random, 0.0, high);
    return column;
}

static void random_task_batch(struct random *random, const struct random_limits *limits,
                              const struct task_config *config, struct arena *arena, uint32_t count,
                              struct task_batch *task)
{
    float *logits = arena_alloc(arena, sizeof *logits * count * config->num_class);
    float *labels = arena_alloc(arena, sizeof *labels * count);
    int64_t *sessions = arena_alloc(arena, sizeof *sessions * count);

    *task = (struct task_batch){
        .name = config->name, .logits = logits, .num_logits = (size_t)count * config->num_class};
    for (size_t v = 0; v < task->num_logits; v++)
        logits[v] = random_logit(random, limits, has_kind(config, LOSS_L2));
    for (uint32_t c = 0; c < count; c++) {
        labels[c] = random_label(random, config);
        sessions[c] = (int64_t)random_below(random, 1 + count / 4) * INT64_C(-1000000007);
    }
    if (!config->has_label_bitmask) {
        task->labels = labels;
        task->num_labels = count;
    }
    if (config->lists == LISTS_SESSIONS) {
        task->sessions = sessions;
        task->num_sessions = count;
    }
    if (!has_kind(config, LOSS_LISTWISE_RANK) && random_chance(random, 0.4)) {
        task->weights = random_column(random, arena, count, 0.2, 3.0);
        task->num_weights = count;
    }
    if (config->in_task_space_weight != 1.0 || config->out_task_space_weight != 1.0) {
        task->task_space = random_column(random, arena, count, 0.5, 1.0);
        task->num_task_space = count;
    }
    if (may_send_log_scale(config)) {
        task->has_log_scale = random_chance(random, 0.7);
        task->log_scale = random_between(random, -1.0, 5.5);
    }
}

void random_batch(struct random *random, const struct random_limits *limits, const struct group_config *config,
                  struct arena *arena, struct batch *batch)
{
    const uint32_t requests = random_below(random, limits->max_requests + 1);
    uint32_t *lengths = arena_alloc(arena, sizeof *lengths * requests);
    uint64_t *bits;
    uint32_t count = 0;
    bool uses_bits = false;

    for (uint32_t r = 0; r < requests; r++) {
        lengths[r] = random_chance(random, 0.15) ? 0 : 1 + random_below(random, limits->max_length);
        count += lengths[r];
    }
    bits = arena_alloc(arena, sizeof *bits * count);
    for (uint32_t c = 0; c < count; c++)
        bits[c] = random_next(random) & random_next(random);
    *batch = (struct batch){.lengths = lengths, .num_lengths = requests, .num_tasks = config->num_tasks};
    batch->tasks = arena_calloc(arena, config->num_tasks, sizeof *batch->tasks);
    for (size_t t = 0; t < config->num_tasks; t++) {
        random_task_batch(random, limits, &config->tasks[t], arena, count, &batch->tasks[t]);
        uses_bits |= config->tasks[t].has_label_bitmask;
    }
    batch->gradient_scale = random_chance(random, 0.5) ? 1.0F : (float)random_between(random, -3.0, 3.0);
    if (uses_bits) {
        batch->label_bits = bits;
        batch->num_label_bits = count;
    }
}
