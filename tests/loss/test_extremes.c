/* Whatever is allowed, at the ends of its range: finite logits never make a NaN, and losses stay finite. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss/random_batch.h"
#include "loss/world.h"
#include "support/runner.h"

#define PICK(random, values) ((values)[random_below(random, sizeof(values) / sizeof((values)[0]))])

enum { NUM_RANKS = 2 };

static const double weights[] = {0.0, DBL_TRUE_MIN, DBL_MIN, 1e-45, 1e-20, 1.0, 1e20, (double)FLT_MAX};
static const double space_weights[] = {0.0, (double)FLT_MIN, 1.0, (double)FLT_MAX};
static const double gammas[] = {0.0, DBL_TRUE_MIN, DBL_MIN, 1.0, 5.0, 999.0, 1e3};
static const double insides[] = {DBL_TRUE_MIN, DBL_MIN, 0.5, 1.0 - 0x1p-53}; /* of 0 to 1 */
static const double temperatures[] = {DBL_TRUE_MIN, 1e-308, 0.01, 1.0, 1e308, DBL_MAX};
static const double log_scales[] = {-DBL_MAX, -1e3, -DBL_TRUE_MIN, 0.0, 4.6, 700.0, DBL_MAX};
static const float gradient_scales[] = {-FLT_MAX, -1.0F, 0.0F, FLT_TRUE_MIN, 1.0F, FLT_MAX};
static const float sample_weights[] = {0.0F, FLT_TRUE_MIN, FLT_MIN, 1.0F, 1e20F, FLT_MAX};
static const float logits[] = {-FLT_MAX,     -746.0F, -708.0F, -88.0F, -1.0F,  -FLT_TRUE_MIN, 0.0F,
                               FLT_TRUE_MIN, 1.0F,    88.0F,   708.0F, 746.0F, 1e20F,         FLT_MAX};

static void stretch_loss(struct random *random, struct loss_config *loss)
{
    loss->weight = PICK(random, weights);
    switch (loss->kind) {
    case LOSS_BINARY_CROSS_ENTROPY:
        loss->binary_cross_entropy.label_smoothing = PICK(random, insides);
        break;
    case LOSS_BINARY_FOCAL:
        loss->binary_focal.gamma = PICK(random, gammas);
        loss->binary_focal.alpha = PICK(random, insides);
        break;
    case LOSS_SOFTMAX_CROSS_ENTROPY:
        loss->softmax_cross_entropy.label_smoothing = random_chance(random, 0.2) ? 1.0 : PICK(random, insides);
        break;
    case LOSS_JRC:
        loss->jrc.alpha = random_chance(random, 0.2) ? 1.0 : PICK(random, insides);
        break;
    case LOSS_LISTWISE_RANK:
        loss->listwise_rank.temperature_init = PICK(random, temperatures);
        break;
    case LOSS_L2:
    case NUM_LOSS_KINDS:
        break;
    }
}

/* A copy of the config with every number at some end of its range. */
static void stretch_config(struct random *random, struct arena *arena, struct group_config *config)
{
    struct task_config *tasks = arena_calloc(arena, config->num_tasks, sizeof *tasks);

    for (size_t t = 0; t < config->num_tasks; t++) {
        struct loss_config *losses = arena_calloc(arena, config->tasks[t].num_losses, sizeof *losses);
        bool listwise = false;

        tasks[t] = config->tasks[t];
        memcpy(losses, tasks[t].losses, sizeof *losses * tasks[t].num_losses);
        for (size_t l = 0; l < tasks[t].num_losses; l++) {
            stretch_loss(random, &losses[l]);
            listwise |= losses[l].kind == LOSS_LISTWISE_RANK;
        }
        tasks[t].losses = losses;
        tasks[t].weight = PICK(random, weights);
        if (!listwise && random_chance(random, 0.5)) {
            tasks[t].in_task_space_weight = PICK(random, space_weights);
            tasks[t].out_task_space_weight = PICK(random, space_weights);
        }
    }
    config->tasks = tasks;
}

/* Labels stay as they are, since each loss allows other ones. */
static void stretch_batch(struct random *random, struct arena *arena, struct batch *batch)
{
    for (size_t t = 0; t < batch->num_tasks; t++) {
        struct task_batch *task = &batch->tasks[t];
        float *z = arena_alloc(arena, sizeof *z * task->num_logits);
        float *w = arena_alloc(arena, sizeof *w * task->num_weights);

        for (size_t v = 0; v < task->num_logits; v++)
            z[v] = PICK(random, logits);
        for (size_t c = 0; c < task->num_weights; c++)
            w[c] = PICK(random, sample_weights);
        task->logits = z;
        task->weights = task->num_weights > 0 ? w : NULL;
        task->log_scale = PICK(random, log_scales);
    }
    batch->gradient_scale = PICK(random, gradient_scales);
}

static void expect_numbers(const struct result *result, uint64_t seed)
{
    ck_assert_msg(isfinite(result->loss), "seed %llu: loss %g", (unsigned long long)seed, result->loss);
    for (size_t t = 0; t < result->num_tasks; t++) {
        const struct task_result *task = &result->tasks[t];

        ck_assert_msg(!isnan(task->log_scale_gradient), "seed %llu task %zu: log_scale", (unsigned long long)seed, t);
        for (size_t v = 0; v < task->num_gradient; v++)
            ck_assert_msg(!isnan(task->gradient[v]), "seed %llu task %zu: gradient %zu of %s is NaN",
                          (unsigned long long)seed, t, v, task->terms[0].name);
    }
}

START_TEST(no_config_and_batch_within_their_ranges_make_a_nan)
{
    static const struct random_limits limits = {.max_tasks = 2, .max_requests = 6, .max_length = 5, .max_logit = 8.0};
    enum { RUNS = 20000 };

    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct random random = {seed * UINT64_C(0x9e3779b97f4a7c15)};
        struct world *world = world_create();
        struct batch batches[NUM_RANKS];
        struct group_config config;

        random_config(&random, &limits, &world->arena, &config);
        stretch_config(&random, &world->arena, &config);
        config.on_nonfinite = ON_NONFINITE_ERROR;
        for (size_t r = 0; r < NUM_RANKS; r++) {
            random_batch(&random, &limits, &config, &world->arena, &batches[r]);
            stretch_batch(&random, &world->arena, &batches[r]);
        }
        ck_assert_msg(world_run(world, &config, batches, NUM_RANKS) == LOSSD_OK, "seed %llu: %s %s",
                      (unsigned long long)seed, world->err.field, world->err.message);
        for (size_t r = 0; r < NUM_RANKS; r++)
            expect_numbers(&world->ranks[r].result, seed);
        world_destroy(world);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("extremes");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_config_and_batch_within_their_ranges_make_a_nan);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
