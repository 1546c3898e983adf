/* Logits and gradients of every type and layout: what is computed is what binary64 gives, rounded once. */
#include <math.h>
#include <stdio.h>

#include "loss/compare.h"
#include "loss/golden_batch.h"
#include "loss/layout.h"
#include "loss/random_batch.h"
#include "support/runner.h"

static const struct layout layouts[] = {
    {VALUE_F32, VALUE_F32, .tight = true},
    {VALUE_F32, VALUE_F32},
    {VALUE_F32, VALUE_F32, .in_rows = true},
    {VALUE_F16, VALUE_F16, .tight = true},
    {VALUE_F16, VALUE_F16},
    {VALUE_F16, VALUE_F16, .in_rows = true},
    {VALUE_F16, VALUE_F32, .tight = true},
    {VALUE_F16, VALUE_F32, .in_rows = true},
    {VALUE_BF16, VALUE_BF16, .tight = true},
    {VALUE_BF16, VALUE_BF16},
    {VALUE_BF16, VALUE_BF16, .in_rows = true},
    {VALUE_BF16, VALUE_F32, .in_rows = true},
};

enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

/* Binary64 itself is off by this much of the greatest magnitude; between these two ends there is one rounding. */
static const double slack = 1e-12;

static void expect_gradients(const struct laid_out *batch, const struct group_config *config,
                             const struct reference_rank *reference, const char *note)
{
    for (size_t t = 0; t < config->num_tasks; t++)
        for (size_t v = 0; v < batch->tasks[t].num_logits; v++) {
            const enum value_type type = batch->tasks[t].gradient_type;
            const double found = laid_out_gradient(&batch->tasks[t], config->tasks[t].num_class, v);
            const double expected = reference->tasks[t].gradient[v];
            const double off = slack * fabs(reference->tasks[t].largest[v]);

            ck_assert_msg(found >= round_to_type(expected - off, type) && found <= round_to_type(expected + off, type),
                          "%s: task %zu gradient[%zu] is %.17g, expected %.17g", note, t, v, found, expected);
            ck_assert_msg(found != 0.0 || !signbit(found), "%s: task %zu gradient[%zu] is -0", note, t, v);
        }
    ck_assert_msg(laid_out_gaps_are_marked(batch, config), "%s: something else was written", note);
}

static void run_and_compare(struct world *world, const struct group_config *config, struct laid_out *batch,
                            const char *note)
{
    struct reference_rank expected;

    ck_assert_msg(world_run(world, config, &batch->batch, 1) == LOSSD_OK, "%s: %s %s", note, world->err.field,
                  world->err.message);
    for (size_t t = 0; t < config->num_tasks; t++) {
        ck_assert_ptr_null(world->ranks[0].result.tasks[t].gradient);
        ck_assert_uint_eq(world->ranks[0].result.tasks[t].num_gradient, 0);
    }
    reference_run(config, &batch->batch, 1, &expected);
    compare_rank(&world->ranks[0], &expected, note);
    expect_gradients(batch, config, &expected, note);
    reference_free(&expected, 1);
}

static void run_random(uint64_t seed, const struct random_limits *limits, const struct layout *layout)
{
    struct random random = {seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
    struct world *world = world_create();
    struct group_config config;
    struct batch batch;
    struct laid_out laid_out;
    char note[32];

    (void)snprintf(note, sizeof note, "seed %d", (int)seed);
    random_config(&random, limits, &world->arena, &config);
    random_batch(&random, limits, &config, &world->arena, &batch);
    lay_out(&laid_out, &batch, &config, layout);
    run_and_compare(world, &config, &laid_out, note);
    laid_out_finish(&laid_out);
    world_destroy(world);
}

START_TEST(random_batches_of_each_layout_agree_with_the_reference)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 8, .max_length = 9, .max_logit = 100.0};

    for (uint64_t seed = 1; seed <= 200; seed++)
        run_random(seed, &limits, &layouts[_i]);
}
END_TEST

START_TEST(logits_that_are_not_finite_leave_their_unit_out_in_each_layout)
{
    const struct random_limits limits = {
        .max_tasks = 2, .max_requests = 6, .max_length = 7, .max_logit = 6e4, .nonfinite_rate = 0.05};

    for (uint64_t seed = 1; seed <= 100; seed++)
        run_random(10000 + seed, &limits, &layouts[_i]);
}
END_TEST

START_TEST(lists_longer_than_a_tile_agree_with_the_reference_in_each_layout)
{
    const struct random_limits limits = {.max_tasks = 2, .max_requests = 2, .max_length = 1500, .max_logit = 50.0};

    for (uint64_t seed = 1; seed <= 6; seed++)
        run_random(20000 + seed, &limits, &layouts[_i]);
}
END_TEST

/* The same numbers, wherever they lie: world_run's own gradients against those of a layout in binary32. */
static void expect_same_bits(const struct result *plain, const struct result *other, const struct laid_out *batch,
                             const struct group_config *config)
{
    ck_assert_mem_eq(&plain->loss, &other->loss, sizeof plain->loss);
    for (size_t t = 0; t < config->num_tasks; t++) {
        ck_assert_mem_eq(&plain->tasks[t].log_scale_gradient, &other->tasks[t].log_scale_gradient, sizeof(double));
        for (size_t l = 0; l < config->tasks[t].num_losses; l++)
            ck_assert_mem_eq(&plain->tasks[t].terms[l].sum, &other->tasks[t].terms[l].sum, sizeof(double));
        for (size_t v = 0; v < plain->tasks[t].num_gradient; v++) {
            const float found = (float)laid_out_gradient(&batch->tasks[t], config->tasks[t].num_class, v);

            ck_assert_mem_eq(&found, &plain->tasks[t].gradient[v], sizeof found);
        }
    }
}

START_TEST(planes_and_rows_give_the_same_bits)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 12, .max_length = 700, .max_logit = 40.0};

    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct random random = {seed};
        struct world *plain = world_create();
        struct world *other = world_create();
        struct group_config config;
        struct batch batch;
        struct laid_out laid_out;

        random_config(&random, &limits, &plain->arena, &config);
        random_batch(&random, &limits, &config, &plain->arena, &batch);
        lay_out(&laid_out, &batch, &config, &layouts[_i]);
        ck_assert_int_eq(world_run(plain, &config, &batch, 1), LOSSD_OK);
        ck_assert_int_eq(world_run(other, &config, &laid_out.batch, 1), LOSSD_OK);
        expect_same_bits(&plain->ranks[0].result, &other->ranks[0].result, &laid_out, &config);
        laid_out_finish(&laid_out);
        world_destroy(plain);
        world_destroy(other);
    }
}
END_TEST

static const struct {
    const char *file;
    size_t num_cases;
} files[] = {{"bce", 7}, {"focal", 6}, {"softmax_ce", 7}, {"l2", 2}, {"listwise", 30}, {"jrc", 5}};

static bool fits(const struct task_batch *task, enum value_type type)
{
    for (size_t v = 0; v < task->num_logits; v++)
        if (!isfinite(round_to_type((double)((const float *)task->logits)[v], type)))
            return false;
    return true;
}

static void run_golden(struct json_object *entry, const struct layout *layout)
{
    const struct loss_config loss = golden_loss(entry);
    struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    struct world *world = world_create();
    struct golden_batch golden;
    struct laid_out laid_out;

    golden_batch_init(&golden, golden_get(entry, "batch"), "t");
    task.num_class = (uint32_t)golden_number_or(golden_get(entry, "config"), "num_class", 1.0);
    task.lists = golden.task.num_sessions > 0 ? LISTS_SESSIONS : LISTS_REQUESTS;
    lay_out(&laid_out, &golden.batch, &config, layout);
    if (fits(&golden.task, layout->logits_type))
        run_and_compare(world, &config, &laid_out, golden_text(entry, "id"));
    else
        ck_assert_int_eq(world_run(world, &config, &laid_out.batch, 1), LOSSD_NONFINITE_LOGITS);
    laid_out_finish(&laid_out);
    golden_batch_finish(&golden);
    world_destroy(world);
}

/* Each case with its logits rounded to the type; one of them is beyond binary16. */
START_TEST(known_cases_agree_with_the_reference_in_each_layout)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct json_object *cases = golden_open(files[f].file);

        ck_assert_uint_eq(golden_count(cases), files[f].num_cases);
        for (size_t i = 0; i < golden_count(cases); i++)
            run_golden(golden_at(cases, i), &layouts[_i]);
        golden_close(cases);
    }
}
END_TEST

/* One row of binary cross entropy with logit 0 and label 0: its gradient is half of the scale. */
static uint16_t gradient_of_one_row(enum value_type type, float scale)
{
    static const uint16_t zero_logit = 0;
    static const float zero_label = 0.0F;
    static const uint32_t one = 1;
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    const struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    struct world *world = world_create();
    uint16_t gradient = 0x1234;
    struct task_batch column = {.name = "t",
                                .logits = &zero_logit,
                                .num_logits = 1,
                                .logits_type = type,
                                .gradient = &gradient,
                                .gradient_type = type,
                                .labels = &zero_label,
                                .num_labels = 1};
    struct batch batch = {.lengths = &one, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = scale};

    ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
    world_destroy(world);
    return gradient;
}

START_TEST(gradients_beyond_the_range_of_their_type_are_infinite_and_tiny_ones_0)
{
    ck_assert_uint_eq(gradient_of_one_row(VALUE_F16, 131008.0F), 0x7bff); /* 65504, the greatest */
    ck_assert_uint_eq(gradient_of_one_row(VALUE_F16, 131040.0F), 0x7c00); /* 65520 */
    ck_assert_uint_eq(gradient_of_one_row(VALUE_F16, -131040.0F), 0xfc00);
    ck_assert_uint_eq(gradient_of_one_row(VALUE_F16, 0x1p-23F), 0x0001);
    ck_assert_uint_eq(gradient_of_one_row(VALUE_F16, -0x1p-24F), 0x0000);
    ck_assert_uint_eq(gradient_of_one_row(VALUE_BF16, 2.0F), 0x3f80);
    ck_assert_uint_eq(gradient_of_one_row(VALUE_BF16, FLT_MAX), 0x7f00); /* 2^127 */
}
END_TEST

START_TEST(a_gradient_that_is_skipped_is_not_written)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 8, .max_length = 9, .max_logit = 100.0};
    struct random random = {.state = 3};
    struct world *world = world_create();
    struct group_config config;
    struct batch batch;
    struct laid_out laid_out;

    random_config(&random, &limits, &world->arena, &config);
    random_batch(&random, &limits, &config, &world->arena, &batch);
    batch.skip_gradient = true;
    lay_out(&laid_out, &batch, &config, &layouts[_i]);
    ck_assert_uint_gt(batch.tasks[0].num_logits, 0);
    ck_assert_int_eq(world_run(world, &config, &laid_out.batch, 1), LOSSD_OK);
    for (size_t b = 0; b < laid_out.num_blocks; b++)
        for (size_t t = 0; t < config.num_tasks; t++)
            if (laid_out.blocks[b].bytes == laid_out.tasks[t].gradient)
                for (size_t i = 0; i < laid_out.blocks[b].size; i++)
                    ck_assert_uint_eq(((unsigned char *)laid_out.blocks[b].bytes)[i], LAID_OUT_MARK);
    laid_out_finish(&laid_out);
    world_destroy(world);
}
END_TEST

START_TEST(an_empty_batch_needs_no_columns)
{
    const struct loss_config losses[] = {default_loss(LOSS_BINARY_CROSS_ENTROPY), default_loss(LOSS_LISTWISE_RANK)};
    const struct task_config tasks[] = {default_task("a", losses, 2), default_task("b", losses, 1)};
    const struct group_config config = default_config(tasks, 2);
    struct task_batch columns[] = {{.name = "a"}, {.name = "b"}};
    struct batch batch = {.tasks = columns, .num_tasks = 2, .gradient_scale = 1.0F};
    struct world *world = world_create();
    struct laid_out laid_out;

    lay_out(&laid_out, &batch, &config, &layouts[_i]);
    ck_assert_int_eq(world_run(world, &config, &laid_out.batch, 1), LOSSD_OK);
    ck_assert(world->ranks[0].result.loss == 0.0);
    laid_out_finish(&laid_out);
    world_destroy(world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("layouts");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, random_batches_of_each_layout_agree_with_the_reference, 0, NUM_LAYOUTS);
    tcase_add_loop_test(tcase, logits_that_are_not_finite_leave_their_unit_out_in_each_layout, 0, NUM_LAYOUTS);
    tcase_add_loop_test(tcase, lists_longer_than_a_tile_agree_with_the_reference_in_each_layout, 0, NUM_LAYOUTS);
    tcase_add_loop_test(tcase, planes_and_rows_give_the_same_bits, 0, 3); /* the layouts of binary32 */
    tcase_add_loop_test(tcase, known_cases_agree_with_the_reference_in_each_layout, 0, NUM_LAYOUTS);
    tcase_add_test(tcase, gradients_beyond_the_range_of_their_type_are_infinite_and_tiny_ones_0);
    tcase_add_loop_test(tcase, a_gradient_that_is_skipped_is_not_written, 0, NUM_LAYOUTS);
    tcase_add_loop_test(tcase, an_empty_batch_needs_no_columns, 0, NUM_LAYOUTS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
