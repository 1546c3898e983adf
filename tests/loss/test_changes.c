/*
 * Columns that another process changes after they were checked. Its own numbers may be anything, but nothing of the
 * daemon's memory, and no contribution that is not finite. Memory is exactly as large as it has to be, so that a
 * sanitizer sees each step beside it.
 */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loss/changes.h"
#include "loss/random_batch.h"
#include "loss/world.h"
#include "support/runner.h"

static const struct batch_limits no_limits = {UINT32_MAX, UINT32_MAX};

/* How often each end was reached: none may be missing. */
struct tally {
    unsigned refused_by_check;
    unsigned refused_by_prepare;
    unsigned run;
};

/* What this rank adds to the sums of all ranks is within what its lengths allow. */
static void expect_contribution(const struct loss_plan *plan, const struct prepared_batch *prepared)
{
    const struct batch *batch = prepared->batch;

    for (uint32_t d = 0; d < plan->num_denominators; d++)
        ck_assert_msg(prepared->contribution[d] >= 0.0 && prepared->contribution[d] <= DBL_MAX, "slot %u is %g", d,
                      prepared->contribution[d]);
    ck_assert(prepared->contribution[DENOMINATOR_REQUESTS] == (double)batch->num_lengths);
    ck_assert(prepared->contribution[DENOMINATOR_CANDIDATES] == (double)batch->layout.num_candidates);
    for (size_t t = 0; t < batch->num_tasks; t++) {
        const struct prepared_task *task = &prepared->tasks[t];

        ck_assert(task->num_kept >= 0.0 && task->num_kept <= (double)batch->layout.num_candidates);
        ck_assert(task->num_valid_lists >= 0.0 && task->num_valid_lists <= (double)task->lists.num_lists);
        ck_assert(task->weight_sum >= 0.0 && task->weight_sum <= DBL_MAX);
    }
}

static void expect_refused_weights(const struct lossd_error *err)
{
    unsigned task;
    int end = 0;

    ck_assert_msg(sscanf(err->field, "tasks[%u].weights%n", &task, &end) == 1 && err->field[end] == '\0', "field %s",
                  err->field);
    ck_assert_msg(strstr(err->message, "changed") != NULL, "message %s", err->message);
}

static void nothing(struct laid_out *batch, struct random *random)
{
    (void)batch;
    (void)random;
}

typedef void between(struct laid_out *batch, struct random *random);

/* Check, prepare, run, and in between what another process does. */
static void run_steps(const struct loss_plan *plan, struct laid_out *laid_out, struct random *random, between *change,
                      struct arena *arena, struct tally *tally)
{
    struct totals totals = {.num_ranks = 2};
    static struct scales scales;
    struct prepared_batch prepared;
    struct result result;
    struct lossd_error err;
    enum lossd_status status;

    if (batch_check(&laid_out->batch, plan->config, plan->rules, &no_limits, arena, &err) != LOSSD_OK) {
        tally->refused_by_check++;
        return;
    }
    change(laid_out, random);
    status = loss_prepare(plan, &laid_out->batch, arena, &prepared, &err);
    if (status != LOSSD_OK) {
        ck_assert_int_eq(status, LOSSD_WEIGHT_OUT_OF_RANGE);
        expect_refused_weights(&err);
        tally->refused_by_prepare++;
        return;
    }
    expect_contribution(plan, &prepared);
    ck_assert_int_eq(loss_result_alloc(plan, &laid_out->batch, arena, &result, &err), LOSSD_OK);
    for (uint32_t d = 0; d < plan->num_denominators; d++)
        totals.sums[d] = prepared.contribution[d] + 1.0;
    change(laid_out, random);
    rescale(plan, &prepared, &totals, &scales);
    loss_run(plan, &prepared, &scales, &result);
    tally->run++;
}

static struct layout random_layout(struct random *random)
{
    const enum value_type type = random_below(random, NUM_VALUE_TYPES);
    const uint32_t kind = random_below(random, 3);

    return (struct layout){type, random_chance(random, 0.5) ? type : VALUE_F32, .in_rows = kind == 0,
                           .tight = kind == 1};
}

static void run_random(uint64_t seed, const struct random_limits *limits, between *change, struct tally *tally)
{
    struct random random = {seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    struct world *world = world_create();
    struct group_config config;
    struct batch batch;
    struct laid_out laid_out;
    const struct layout layout = random_layout(&random);

    random_config(&random, limits, &world->arena, &config);
    config.on_nonfinite = random_below(&random, 3);
    random_batch(&random, limits, &config, &world->arena, &batch);
    ck_assert_int_eq(loss_plan_init(&world->plan, &config, &world->arena, &world->err), LOSSD_OK);
    lay_out(&laid_out, &batch, &config, &layout);
    run_steps(&world->plan, &laid_out, &random, change, &world->arena, tally);
    laid_out_finish(&laid_out);
    world_destroy(world);
}

static const struct random_limits small = {.max_tasks = 3, .max_requests = 8, .max_length = 9, .max_logit = 100.0};
static const struct random_limits long_lists = {
    .max_tasks = 2, .max_requests = 3, .max_length = 1500, .max_logit = 10.0};

START_TEST(columns_that_change_between_the_phases_steer_nothing)
{
    struct tally tally = {0};

    for (int i = 0; i < 2000; i++)
        run_random((uint64_t)(_i * 2000 + i), &small, change_columns, &tally);
    for (int i = 0; i < 60; i++)
        run_random(1000000 + (uint64_t)(_i * 60 + i), &long_lists, change_columns, &tally);
    ck_assert_uint_eq(tally.refused_by_check, 0);
    ck_assert_uint_ge(tally.refused_by_prepare, 50);
    ck_assert_uint_ge(tally.run, 500);
}
END_TEST

START_TEST(without_changes_nothing_is_refused)
{
    struct tally tally = {0};

    for (int i = 0; i < 300; i++)
        run_random((uint64_t)i, &small, nothing, &tally);
    ck_assert_uint_eq(tally.run, 300);
}
END_TEST

/* A batch with one task, whose weights or labels are changed after the check. */
static enum lossd_status prepare_changed(enum loss_kind kind, uint32_t num_class, float *weights, float changed,
                                         float *labels, float label, struct world *world)
{
    static const float logits[9] = {0.0F};
    static const uint32_t length = 3;
    const struct loss_config loss = default_loss(kind);
    struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    struct task_batch column = {.name = "t",
                                .logits = logits,
                                .num_logits = (size_t)3 * num_class,
                                .labels = labels,
                                .num_labels = 3,
                                .weights = weights,
                                .num_weights = weights != NULL ? 3 : 0};
    struct batch batch = {
        .lengths = &length, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};
    struct prepared_batch *prepared = &world->ranks[0].prepared;
    struct scales scales;
    struct totals totals = {.num_ranks = 1, .sums = {1.0, 3.0, 3.0}};
    enum lossd_status status;

    task.num_class = num_class;
    ck_assert_int_eq(loss_plan_init(&world->plan, &config, &world->arena, &world->err), LOSSD_OK);
    ck_assert_int_eq(batch_check(&batch, &config, world->plan.rules, &no_limits, &world->arena, &world->err), LOSSD_OK);
    ck_assert_int_eq(loss_result_alloc(&world->plan, &batch, &world->arena, &world->ranks[0].result, &world->err),
                     LOSSD_OK);
    if (weights != NULL)
        weights[1] = changed;
    status = loss_prepare(&world->plan, &batch, &world->arena, prepared, &world->err);
    labels[1] = label;
    if (status == LOSSD_OK) {
        rescale(&world->plan, prepared, &totals, &scales);
        loss_run(&world->plan, prepared, &scales, &world->ranks[0].result);
    }
    return status;
}

static const float bad_sums[] = {NAN, INFINITY, -2.5F, -INFINITY};

START_TEST(a_sum_of_weights_that_can_not_be_is_refused_with_its_field)
{
    struct world *world = world_create();
    float weights[] = {1.0F, 1.0F, 1.0F};
    float labels[] = {0.0F, 1.0F, 0.0F};

    ck_assert_int_eq(prepare_changed(LOSS_BINARY_CROSS_ENTROPY, 1, weights, bad_sums[_i], labels, 1.0F, world),
                     LOSSD_WEIGHT_OUT_OF_RANGE);
    ck_assert_str_eq(world->err.field, "tasks[0].weights");
    expect_refused_weights(&world->err);
    world_destroy(world);
}
END_TEST

START_TEST(a_sum_of_weights_that_can_be_counts_as_it_was_read)
{
    struct world *world = world_create();
    float weights[] = {1.0F, 1.0F, 1.0F};
    float labels[] = {0.0F, 1.0F, 0.0F};

    ck_assert_int_eq(prepare_changed(LOSS_BINARY_CROSS_ENTROPY, 1, weights, 0.5F, labels, 1.0F, world), LOSSD_OK);
    ck_assert(world->ranks[0].prepared.contribution[2] == 2.5);
    world_destroy(world);
}
END_TEST

/* K = 3 with equal logits: each row that counts loses ln 3, one that has become no class gives nothing. */
static const float no_classes[] = {3.0F, 4096.0F, 4294967296.0F, FLT_MAX, INFINITY, NAN, -1.0F, -100.0F, -FLT_MAX};

START_TEST(a_label_that_became_no_class_gives_nothing)
{
    struct world *world = world_create();
    float labels[] = {0.0F, 1.0F, 2.0F};
    const struct task_result *result = &world->ranks[0].result.tasks[0];

    ck_assert_int_eq(prepare_changed(LOSS_SOFTMAX_CROSS_ENTROPY, 3, NULL, 0.0F, labels, no_classes[_i], world),
                     LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    ck_assert_double_eq_tol(result->terms[0].sum, 2.0 * log(3.0), 1e-12);
    for (size_t v = 3; v < 6; v++)
        ck_assert(result->gradient[v] == 0.0F);
    ck_assert(result->gradient[0] < 0.0F && result->gradient[8] < 0.0F);
    world_destroy(world);
}
END_TEST

/* The other process as a thread: all the time, at any moment. */
struct changer {
    struct laid_out *batch;
    atomic_bool stop;
    atomic_uint rounds;
};

static void *change_all_the_time(void *argument)
{
    struct changer *changer = argument;
    struct random random = {.state = 99};

    while (!atomic_load(&changer->stop)) {
        change_columns(changer->batch, &random);
        changer->rounds++;
    }
    return NULL;
}

/* Good values again, so that the check lets some through while the other thread is at work. */
static void restore(struct laid_out *laid_out, const struct laid_out *good)
{
    for (size_t b = 0; b < laid_out->num_blocks; b++)
        if (laid_out->blocks[b].may_change)
            memcpy(laid_out->blocks[b].bytes, good->blocks[b].bytes, good->blocks[b].size);
}

START_TEST(a_thread_that_changes_columns_all_the_time_steers_nothing)
{
    enum { BATCHES = 12, RUNS = 60, ROUNDS = 20 };
    struct tally tally = {0};

    for (uint64_t seed = 1; seed <= BATCHES; seed++) {
        struct random random = {seed * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)_i};
        struct world *world = world_create();
        struct group_config config;
        struct batch batch;
        struct laid_out good;
        struct laid_out changing;
        struct changer changer = {.batch = &changing};
        const struct layout layout = random_layout(&random);
        pthread_t thread;

        random_config(&random, _i == 0 ? &small : &long_lists, &world->arena, &config);
        config.on_nonfinite = random_below(&random, 3);
        random_batch(&random, _i == 0 ? &small : &long_lists, &config, &world->arena, &batch);
        ck_assert_int_eq(loss_plan_init(&world->plan, &config, &world->arena, &world->err), LOSSD_OK);
        lay_out(&good, &batch, &config, &layout);
        lay_out(&changing, &batch, &config, &layout);
        ck_assert_int_eq(pthread_create(&thread, NULL, change_all_the_time, &changer), 0);
        for (int run = 0; run < RUNS || atomic_load(&changer.rounds) < ROUNDS; run++) {
            struct arena arena;

            arena_init(&arena, SIZE_MAX, NULL);
            restore(&changing, &good);
            run_steps(&world->plan, &changing, &random, nothing, &arena, &tally);
            arena_finish(&arena);
        }
        atomic_store(&changer.stop, true);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        laid_out_finish(&changing);
        laid_out_finish(&good);
        world_destroy(world);
    }
    ck_assert_uint_gt(tally.run, 10);
}
END_TEST

/* One logit that is NaN every other moment. */
struct blinker {
    volatile float *logit;
    atomic_bool stop;
};

static void *blink(void *argument)
{
    struct blinker *blinker = argument;

    while (!atomic_load(&blinker->stop)) {
        *blinker->logit = NAN;
        *blinker->logit = 0.0F;
    }
    return NULL;
}

START_TEST(a_bad_logit_that_is_gone_at_the_second_look_is_named_within_the_column)
{
    enum { NUM_ROWS = 3000, RUNS = 20000, TIMES = 100 };
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    const struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    const uint32_t length = NUM_ROWS;
    float *logits = calloc(NUM_ROWS, sizeof *logits);
    float *labels = calloc(NUM_ROWS, sizeof *labels);
    struct task_batch column = {
        .name = "t", .logits = logits, .num_logits = NUM_ROWS, .labels = labels, .num_labels = NUM_ROWS};
    struct batch batch = {
        .lengths = &length, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};
    struct blinker blinker = {.logit = &logits[NUM_ROWS - 1]};
    struct world *world = world_create();
    int refused = 0;
    pthread_t thread;

    ck_assert_int_eq(loss_plan_init(&world->plan, &config, &world->arena, &world->err), LOSSD_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, blink, &blinker), 0);
    for (int run = 0; run < RUNS || refused < TIMES || run - refused < TIMES; run++) {
        struct lossd_error err;
        struct arena arena;
        unsigned index;

        arena_init(&arena, 1 << 20, NULL);
        if (batch_check(&batch, &config, world->plan.rules, &no_limits, &arena, &err) != LOSSD_OK) {
            ck_assert_int_eq(err.status, LOSSD_NONFINITE_LOGITS);
            ck_assert_int_eq(sscanf(err.field, "tasks[0].logits[%u]", &index), 1);
            ck_assert_uint_lt(index, NUM_ROWS);
            refused++;
        }
        arena_finish(&arena);
    }
    atomic_store(&blinker.stop, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    free(logits);
    free(labels);
    world_destroy(world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("changes");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, columns_that_change_between_the_phases_steer_nothing, 0, 4);
    tcase_add_test(tcase, without_changes_nothing_is_refused);
    tcase_add_loop_test(tcase, a_sum_of_weights_that_can_not_be_is_refused_with_its_field, 0,
                        sizeof bad_sums / sizeof *bad_sums);
    tcase_add_test(tcase, a_sum_of_weights_that_can_be_counts_as_it_was_read);
    tcase_add_loop_test(tcase, a_label_that_became_no_class_gives_nothing, 0, sizeof no_classes / sizeof *no_classes);
    if (getenv("LOSSD_TEST_THREAD_SANITIZED") == NULL) {
        tcase_add_loop_test(tcase, a_thread_that_changes_columns_all_the_time_steers_nothing, 0, 2);
        tcase_add_test(tcase, a_bad_logit_that_is_gone_at_the_second_look_is_named_within_the_column);
    }
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
