/* Edge cases: what is refused, what the policies for bad logits give, what decoding does. */
#include <math.h>
#include <stdlib.h>

#include "loss/golden_batch.h"
#include "loss/world.h"
#include "support/runner.h"

static struct json_object *cases;
static struct world *world;

static void set_up(void)
{
    cases = golden_open("edges");
    world = world_create();
}

static void tear_down(void)
{
    world_destroy(world);
    golden_close(cases);
}

static enum lossd_status run_edge(const char *id, enum loss_kind kind, uint32_t num_class, enum on_nonfinite policy)
{
    struct json_object *object = golden_get(golden_case(cases, id), "batch");
    const struct loss_config loss = default_loss(kind);
    struct task_config task = default_task("t", &loss, 1);
    struct group_config config = default_config(&task, 1);
    static struct golden_batch golden;

    task.num_class = num_class;
    config.on_nonfinite = policy;
    golden_batch_init(&golden, object, "t");
    if (kind == LOSS_LISTWISE_RANK) {
        golden.task.has_log_scale = true;
        golden.task.log_scale = golden_has(object, "theta") ? golden_number(object, "theta") : 0.0;
    }
    /* The columns outlive the test: every test runs in a process of its own. */
    return world_run(world, &config, &golden.batch, 1);
}

static const struct {
    const char *id;
    enum loss_kind kind;
    uint32_t num_class;
    enum lossd_status status;
    const char *field;
} refused[] = {
    {"edges/bce_pos_inf_label1", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/bce_pos_inf_label0", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/bce_neg_inf_label0", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/bce_nan", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/bce_label_2", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_LABEL_OUT_OF_RANGE, "tasks[0].labels[0]"},
    {"edges/softmax_label_minus_1", LOSS_SOFTMAX_CROSS_ENTROPY, 3, LOSSD_LABEL_OUT_OF_RANGE, "tasks[0].labels[0]"},
    {"edges/listwise_nan_logit", LOSS_LISTWISE_RANK, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/listwise_neg_inf_positive", LOSS_LISTWISE_RANK, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[0]"},
    {"edges/listwise_neg_inf_negative", LOSS_LISTWISE_RANK, 1, LOSSD_NONFINITE_LOGITS, "tasks[0].logits[1]"},
    {"edges/length_mismatch", LOSS_BINARY_CROSS_ENTROPY, 1, LOSSD_SHAPE_MISMATCH, "tasks[0].logits"},
};

START_TEST(bad_values_are_refused_with_their_place)
{
    ck_assert_int_eq(run_edge(refused[_i].id, refused[_i].kind, refused[_i].num_class, ON_NONFINITE_ERROR),
                     refused[_i].status);
    ck_assert_str_eq(world->err.field, refused[_i].field);
}
END_TEST

START_TEST(propagate_gives_what_ieee_arithmetic_gives)
{
    static const char *const ids[] = {"edges/bce_pos_inf_label1", "edges/bce_pos_inf_label0",
                                      "edges/bce_neg_inf_label0", "edges/bce_nan"};
    struct json_object *entry = golden_case(cases, ids[_i]);
    const struct task_result *result;
    size_t count;
    double *losses = golden_numbers(entry, "parity.per_candidate", &count);
    double *gradients = golden_numbers(entry, "parity.grad_per_candidate", &count);
    double sum = 0.0;

    ck_assert_int_eq(run_edge(ids[_i], LOSS_BINARY_CROSS_ENTROPY, 1, ON_NONFINITE_PROPAGATE), LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    for (size_t c = 0; c < count; c++) {
        sum += losses[c];
        expect_near((double)result->gradient[c], gradients[c] / (double)count, 0.0, ids[_i], "gradient");
    }
    expect_near(result->terms[0].sum, sum, 0.0, ids[_i], "sum");
    ck_assert_uint_eq(result->nonfinite_units, 0);
    free(losses);
    free(gradients);
}
END_TEST

/* One list of two rows; logits [2, num_class]. */
static const struct task_result *run_two_rows(const struct loss_config *loss, uint32_t num_class, const float *logits,
                                              const float *labels)
{
    static const uint32_t length = 2;
    struct task_config task = default_task("t", loss, 1);
    struct group_config config = default_config(&task, 1);
    struct task_batch column = {
        .name = "t", .logits = logits, .num_logits = (size_t)2 * num_class, .labels = labels, .num_labels = 2};
    struct batch batch = {
        .lengths = &length, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};

    task.num_class = num_class;
    config.on_nonfinite = ON_NONFINITE_PROPAGATE;
    ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
    return &world->ranks[0].result.tasks[0];
}

START_TEST(an_infinite_logit_keeps_the_gradient_of_a_focal_loss_with_its_weight_held)
{
    static const float logits[] = {INFINITY, -INFINITY};
    static const float labels[] = {0.0F, 0.0F};
    const struct loss_config loss = default_loss(LOSS_BINARY_FOCAL);
    const struct task_result *result = run_two_rows(&loss, 1, logits, labels);

    ck_assert(result->gradient[0] == 0.25F); /* (1 - alpha) p^gamma p / 2 rows, p = 1 */
    ck_assert(result->gradient[1] == 0.0F);  /* p = 0 */
}
END_TEST

START_TEST(a_nan_anywhere_in_a_row_of_a_softmax_is_seen_in_that_row_alone)
{
    float logits[] = {1.0F, 3.0F, 2.0F, 0.0F, 0.0F, 0.0F};
    static const float labels[] = {1.0F, 1.0F};
    const struct loss_config loss = default_loss(LOSS_SOFTMAX_CROSS_ENTROPY);
    const struct task_result *result;

    logits[_i] = NAN;
    result = run_two_rows(&loss, 3, logits, labels);
    ck_assert(isnan(result->loss));
    for (size_t c = 0; c < 3; c++) {
        ck_assert(isnan(result->gradient[c]));
        ck_assert(!isnan(result->gradient[3 + c]));
    }
}
END_TEST

START_TEST(rivals_at_minus_infinity_cost_nothing_in_jrc)
{
    /* The negative's a is -inf, so its positive is infinitely far ahead; b of the negative is 1 above its rival. */
    static const float logits[] = {0.0F, 0.0F, 1.0F, -INFINITY};
    static const float labels[] = {1.0F, 0.0F};
    struct loss_config loss = default_loss(LOSS_JRC);

    loss.jrc.alpha = 0.0;
    ck_assert_double_eq_tol(run_two_rows(&loss, 2, logits, labels)->terms[0].sum, log1p(exp(-1.0)), 1e-14);
}
END_TEST

START_TEST(zero_leaves_a_row_out_that_still_counts)
{
    const struct task_result *result;

    ck_assert_int_eq(run_edge("edges/bce_pos_inf_label1", LOSS_BINARY_CROSS_ENTROPY, 1, ON_NONFINITE_ZERO), LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    expect_near(result->terms[0].sum, log(2.0), 1e-12, "zero", "sum"); /* the second row: z = 0 */
    ck_assert(result->terms[0].denominator == 2.0);
    ck_assert(result->gradient[0] == 0.0F);
    expect_near((double)result->gradient[1], 0.25, 1e-8, "zero", "gradient");
    ck_assert_uint_eq(result->nonfinite_units, 1);
}
END_TEST

START_TEST(zero_leaves_a_list_out_of_the_temperature_too)
{
    struct json_object *entry = golden_case(cases, "edges/listwise_nan_logit");
    struct json_object *expected = golden_get(entry, "strict.zero_policy");
    const struct task_result *result;

    ck_assert_int_eq(run_edge("edges/listwise_nan_logit", LOSS_LISTWISE_RANK, 1, ON_NONFINITE_ZERO), LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    expect_near(result->loss, golden_number(expected, "loss"), 1e-12, "zero", "loss");
    expect_near(result->log_scale_gradient, golden_number(expected, "grad_theta"), 1e-12, "zero", "theta");
    expect_gradient(result->gradient, 6, expected, "grad", 0.1, "zero");
    ck_assert(result->terms[0].denominator == 2.0);
    ck_assert_uint_eq(result->nonfinite_units, 1);
}
END_TEST

START_TEST(a_negative_at_minus_infinity_propagates_to_its_limit)
{
    struct json_object *entry = golden_case(cases, "edges/listwise_neg_inf_negative");
    const struct task_result *result;

    ck_assert_int_eq(run_edge("edges/listwise_neg_inf_negative", LOSS_LISTWISE_RANK, 1, ON_NONFINITE_PROPAGATE),
                     LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    expect_near(result->loss, golden_number(entry, "strict.allow_neg_inf.loss"), 1e-12, "limit", "loss");
    ck_assert(result->gradient[1] == 0.0F);
}
END_TEST

START_TEST(the_greatest_logits_do_not_overflow)
{
    const struct task_result *result;

    ck_assert_int_eq(run_edge("edges/listwise_scaled_overflow", LOSS_LISTWISE_RANK, 1, ON_NONFINITE_ERROR), LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    ck_assert(result->loss == 0.0);
    ck_assert(result->log_scale_gradient == 0.0);
    for (size_t v = 0; v < 3; v++)
        ck_assert(result->gradient[v] == 0.0F && !signbit(result->gradient[v]));
}
END_TEST

START_TEST(a_batch_of_ignored_rows_gives_0)
{
    const struct task_result *result;

    ck_assert_int_eq(run_edge("edges/softmax_all_ignored", LOSS_SOFTMAX_CROSS_ENTROPY, 2, ON_NONFINITE_ERROR),
                     LOSSD_OK);
    result = &world->ranks[0].result.tasks[0];
    ck_assert(result->loss == 0.0);
    ck_assert(result->terms[0].denominator == 0.0);
    ck_assert(result->gradient[0] == 0.0F && result->gradient[1] == 0.0F);
}
END_TEST

START_TEST(a_classification_label_is_not_truncated)
{
    struct json_object *entry = golden_case(cases, "edges/int_truncation");
    const struct loss_config loss = default_loss(LOSS_SOFTMAX_CROSS_ENTROPY);
    struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    const float logits[8] = {0.0F};
    const uint32_t length = 4;
    struct task_batch column = {.name = "t", .logits = logits, .num_logits = 8};
    struct batch batch = {
        .lengths = &length, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};

    task.num_class = 2;
    column.labels = golden_floats(entry, "batch.raw", &column.num_labels);
    ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_LABEL_OUT_OF_RANGE);
    ck_assert_str_eq(world->err.field, "tasks[0].labels[0]");
    free((void *)(uintptr_t)column.labels);
}
END_TEST

static void run_bitmask(const char *id)
{
    struct json_object *entry = golden_case(cases, id);
    const struct loss_config loss = default_loss(LOSS_L2);
    struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    float logits[16] = {0.0F};
    uint64_t bits[16];
    size_t count;
    size_t num_labels;
    int64_t *raw = golden_ids(entry, "batch.raw", &count);
    double *labels = golden_numbers(entry, "strict.labels", &num_labels);
    const uint32_t length = (uint32_t)count;
    struct task_batch column = {.name = "t", .logits = logits, .num_logits = count};
    struct batch batch = {.lengths = &length,
                          .num_lengths = 1,
                          .label_bits = bits,
                          .num_label_bits = count,
                          .tasks = &column,
                          .num_tasks = 1,
                          .gradient_scale = 1.0F};

    task.has_label_bitmask = true;
    task.label_bitmask = (uint64_t)golden_number(entry, "batch.task_bitmask");
    ck_assert_uint_eq(count, num_labels);
    for (size_t c = 0; c < count; c++)
        bits[c] = (uint64_t)raw[c];
    ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
    for (size_t c = 0; c < count; c++)
        ck_assert_msg((double)row_label(&world->ranks[0].prepared.tasks[0], c) == labels[c], "%s: label %zu", id, c);
    free(raw);
    free(labels);
}

START_TEST(label_bits_are_tested_as_unsigned_numbers)
{
    run_bitmask("edges/bitmask");
    run_bitmask("edges/bitmask_sign_bit");
}
END_TEST

START_TEST(every_case_of_the_file_is_one_of_the_above)
{
    /* 10 refused, and all_ignored, overflow, truncation and 2 bitmasks; a negative length can't be sent as uint32 */
    ck_assert_uint_eq(golden_count(cases), sizeof refused / sizeof *refused + 5 + 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("edges");
    TCase *tcase = tcase_create("edges");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, bad_values_are_refused_with_their_place, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(tcase, propagate_gives_what_ieee_arithmetic_gives, 0, 4);
    tcase_add_test(tcase, an_infinite_logit_keeps_the_gradient_of_a_focal_loss_with_its_weight_held);
    tcase_add_loop_test(tcase, a_nan_anywhere_in_a_row_of_a_softmax_is_seen_in_that_row_alone, 0, 3);
    tcase_add_test(tcase, rivals_at_minus_infinity_cost_nothing_in_jrc);
    tcase_add_test(tcase, zero_leaves_a_row_out_that_still_counts);
    tcase_add_test(tcase, zero_leaves_a_list_out_of_the_temperature_too);
    tcase_add_test(tcase, a_negative_at_minus_infinity_propagates_to_its_limit);
    tcase_add_test(tcase, the_greatest_logits_do_not_overflow);
    tcase_add_test(tcase, a_batch_of_ignored_rows_gives_0);
    tcase_add_test(tcase, a_classification_label_is_not_truncated);
    tcase_add_test(tcase, label_bits_are_tested_as_unsigned_numbers);
    tcase_add_test(tcase, every_case_of_the_file_is_one_of_the_above);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
