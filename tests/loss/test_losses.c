/* Random batches of every combination against the reference; the reference against itself by differences. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loss/compare.h"
#include "loss/random_batch.h"
#include "loss/reference.h"
#include "loss/world.h"
#include "support/runner.h"

static void run_random(uint64_t seed, const struct random_limits *limits)
{
    struct random random = {seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    struct world *world = world_create();
    struct group_config config;
    struct batch batches[3];
    struct reference_rank expected[3];
    const size_t num_ranks = 1 + random_below(&random, 3);
    char note[32];

    random_config(&random, limits, &world->arena, &config);
    for (size_t r = 0; r < num_ranks; r++)
        random_batch(&random, limits, &config, &world->arena, &batches[r]);
    (void)snprintf(note, sizeof note, "seed %d", (int)seed);
    ck_assert_msg(world_run(world, &config, batches, num_ranks) == LOSSD_OK, "%s: %s: %s", note, world->err.field,
                  world->err.message);
    reference_run(&config, batches, num_ranks, expected);
    for (size_t r = 0; r < num_ranks; r++)
        compare_rank(&world->ranks[r], &expected[r], note);
    reference_free(expected, num_ranks);
    world_destroy(world);
}

START_TEST(every_kind_of_loss_is_drawn)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 1, .max_length = 1};
    struct random random = {1};
    unsigned drawn[NUM_LOSS_KINDS] = {0};
    struct group_config config;
    struct arena arena;

    arena_init(&arena, 1 << 20, NULL);
    for (int i = 0; i < 500; i++) {
        random_config(&random, &limits, &arena, &config);
        for (size_t t = 0; t < config.num_tasks; t++)
            for (size_t l = 0; l < config.tasks[t].num_losses; l++)
                drawn[config.tasks[t].losses[l].kind]++;
    }
    for (int kind = 0; kind < NUM_LOSS_KINDS; kind++)
        ck_assert_msg(drawn[kind] >= 20, "kind %d was drawn %u times", kind, drawn[kind]);
    arena_finish(&arena);
}
END_TEST

START_TEST(small_batches_agree_with_the_reference)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 8, .max_length = 9, .max_logit = 100.0};

    for (int i = 0; i < 500; i++)
        run_random((uint64_t)(_i * 500 + i), &limits);
}
END_TEST

START_TEST(extreme_logits_agree_with_the_reference)
{
    const struct random_limits limits = {.max_tasks = 2, .max_requests = 6, .max_length = 7, .max_logit = 3e38};

    for (int i = 0; i < 400; i++)
        run_random(100000 + (uint64_t)(_i * 400 + i), &limits);
}
END_TEST

START_TEST(logits_that_are_not_finite_leave_their_unit_out_with_zero)
{
    const struct random_limits limits = {
        .max_tasks = 2, .max_requests = 6, .max_length = 7, .max_logit = 50.0, .nonfinite_rate = 0.05};

    for (int i = 0; i < 400; i++)
        run_random(200000 + (uint64_t)(_i * 400 + i), &limits);
}
END_TEST

START_TEST(lists_longer_than_a_tile_agree_with_the_reference)
{
    const struct random_limits limits = {.max_tasks = 1, .max_requests = 3, .max_length = 5000, .max_logit = 1000.0};

    for (int i = 0; i < 6; i++)
        run_random(300000 + (uint64_t)(_i * 6 + i), &limits);
}
END_TEST

START_TEST(long_lists_with_bad_logits_agree_with_the_reference)
{
    const struct random_limits limits = {
        .max_tasks = 1, .max_requests = 3, .max_length = 2500, .max_logit = 10.0, .nonfinite_rate = 1e-4};

    for (int i = 0; i < 6; i++)
        run_random(400000 + (uint64_t)(_i * 6 + i), &limits);
}
END_TEST

/* The value of one rank's loss after a logit has moved. */
static double loss_of(const struct group_config *config, struct batch *batch)
{
    struct reference_rank expected;
    double loss;

    reference_run(config, batch, 1, &expected);
    loss = expected.loss;
    reference_free(&expected, 1);
    return loss;
}

/* Whether a loss hides part of its gradient on purpose: then differences of values show another one. */
static bool value_and_gradient_differ(const struct group_config *config)
{
    for (size_t t = 0; t < config->num_tasks; t++)
        for (size_t l = 0; l < config->tasks[t].num_losses; l++)
            if (config->tasks[t].losses[l].kind == LOSS_BINARY_FOCAL &&
                config->tasks[t].losses[l].binary_focal.detach_weight)
                return true;
    return false;
}

START_TEST(gradients_are_the_differences_of_the_loss)
{
    const struct random_limits limits = {.max_tasks = 1, .max_requests = 4, .max_length = 5, .max_logit = 8.0};

    for (int i = 0; i < 60; i++) {
        struct random random = {500000 + (uint64_t)(_i * 60 + i)};
        struct arena arena;
        struct group_config config;
        struct batch batch;
        struct reference_rank expected;
        struct world *world = world_create();
        float *logits;

        arena_init(&arena, 1 << 24, NULL);
        random_config(&random, &limits, &arena, &config);
        random_batch(&random, &limits, &config, &arena, &batch);
        batch.gradient_scale = 1.0F;
        ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
        reference_run(&config, &batch, 1, &expected);
        logits = (float *)(uintptr_t)batch.tasks[0].logits;
        for (size_t v = 0; v < batch.tasks[0].num_logits && !value_and_gradient_differ(&config); v++) {
            const float z = logits[v];
            const float above = z + 0x1p-10F;
            const float below = z - 0x1p-10F;
            double slope;

            logits[v] = above;
            slope = loss_of(&config, &batch);
            logits[v] = below;
            slope = (slope - loss_of(&config, &batch)) / ((double)above - (double)below);
            logits[v] = z;
            /* third derivatives are of the order of scale^3, the scale is 100 at most */
            ck_assert_msg(fabs(slope - (double)world->ranks[0].result.tasks[0].gradient[v]) <=
                              3e-3 * expected.tasks[0].largest[v] + 1e-6,
                          "batch %d: difference at %zu is %g, gradient %g", _i * 60 + i, v, slope,
                          (double)world->ranks[0].result.tasks[0].gradient[v]);
        }
        reference_free(&expected, 1);
        arena_finish(&arena);
        world_destroy(world);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("losses");
    TCase *tcase = tcase_create("reference");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_kind_of_loss_is_drawn);
    tcase_add_loop_test(tcase, small_batches_agree_with_the_reference, 0, 6);
    tcase_add_loop_test(tcase, extreme_logits_agree_with_the_reference, 0, 3);
    tcase_add_loop_test(tcase, logits_that_are_not_finite_leave_their_unit_out_with_zero, 0, 3);
    tcase_add_loop_test(tcase, lists_longer_than_a_tile_agree_with_the_reference, 0, 4);
    tcase_add_loop_test(tcase, long_lists_with_bad_logits_agree_with_the_reference, 0, 3);
    tcase_add_loop_test(tcase, gradients_are_the_differences_of_the_loss, 0, 4);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
