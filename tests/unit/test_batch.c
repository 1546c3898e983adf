/* The check that every batch passes: each fault of each column, with its field. */
#include "batch/batch.h"

#include <math.h>
#include <string.h>

#include "support/runner.h"

/*
 * Two requests of 2 and 1 candidates; task 0 "click" (num_class 1) and task 1 "dwell" (num_class 2, sessions).
 * The message has them the other way round.
 */
struct fixture {
    struct arena arena;
    struct lossd_error err;
    struct task_config tasks[2];
    struct group_config config;
    struct task_rules rules[2];
    struct batch_limits limits;
    uint32_t lengths[2];
    float logits[6];
    float labels[3];
    float weights[3];
    int64_t sessions[3];
    uint64_t bits[3];
    struct task_batch columns[2];
    struct batch batch;
};

static struct fixture f;

enum { CLICK = 1, DWELL = 0 }; /* places in the message */

static void set_up(void)
{
    f = (struct fixture){
        .tasks = {{.name = "click", .num_class = 1}, {.name = "dwell", .num_class = 2, .lists = LISTS_SESSIONS}},
        .rules = {{.label_rules = LABEL_UNIT_INTERVAL, .allows_weights = true}, {.allows_weights = true}},
        .limits = {10, 10},
        .lengths = {2, 1},
        .logits = {0.5F, -0.5F, 1.0F, 2.0F, 3.0F, 4.0F},
        .labels = {1.0F, 0.0F, 0.5F},
        .weights = {1.0F, 0.0F, 2.0F},
        .sessions = {7, -7, 7},
        .bits = {1, 2, 3},
    };
    f.config = (struct group_config){.tasks = f.tasks, .num_tasks = 2};
    f.columns[CLICK] = (struct task_batch){
        .name = "click", .logits = f.logits, .num_logits = 3, .labels = f.labels, .num_labels = 3};
    f.columns[DWELL] = (struct task_batch){.name = "dwell",
                                           .logits = f.logits,
                                           .num_logits = 6,
                                           .labels = f.labels,
                                           .num_labels = 3,
                                           .sessions = f.sessions,
                                           .num_sessions = 3};
    f.batch = (struct batch){
        .lengths = f.lengths, .num_lengths = 2, .tasks = f.columns, .num_tasks = 2, .gradient_scale = 1.0F};
    arena_init(&f.arena, 1 << 20, NULL);
    error_init(&f.err);
}

static void tear_down(void)
{
    arena_finish(&f.arena);
}

static enum lossd_status check(void)
{
    return batch_check(&f.batch, &f.config, f.rules, &f.limits, &f.arena, &f.err);
}

static void expect(enum lossd_status status, const char *field)
{
    ck_assert_int_eq(check(), status);
    ck_assert_int_eq(f.err.status, status);
    ck_assert_str_eq(f.err.field, field);
    ck_assert_str_ne(f.err.message, "");
}

static void expect_metadata(const char *wanted_key, const char *wanted)
{
    size_t cursor = 0;
    const char *key;
    const char *value;

    while (error_next_metadata(&f.err, &cursor, &key, &value))
        if (strcmp(key, wanted_key) == 0) {
            ck_assert_str_eq(value, wanted);
            return;
        }
    ck_abort_msg("no metadata %s", wanted_key);
}

START_TEST(a_good_batch_gets_its_layout_and_task_numbers)
{
    ck_assert_int_eq(check(), LOSSD_OK);
    ck_assert_uint_eq(f.batch.layout.num_requests, 2);
    ck_assert_uint_eq(f.batch.layout.num_candidates, 3);
    ck_assert_uint_eq(f.batch.layout.offsets[1], 2);
    ck_assert_uint_eq(f.columns[CLICK].config_index, 0);
    ck_assert_uint_eq(f.columns[DWELL].config_index, 1);
}
END_TEST

START_TEST(an_empty_batch_is_good)
{
    f.batch.lengths = NULL;
    f.batch.num_lengths = 0;
    f.columns[CLICK] = (struct task_batch){.name = "click"};
    f.columns[DWELL] = (struct task_batch){.name = "dwell"};
    ck_assert_int_eq(check(), LOSSD_OK);
}
END_TEST

START_TEST(limits_of_requests_and_candidates_are_kept)
{
    f.limits = (struct batch_limits){2, 3};
    ck_assert_int_eq(check(), LOSSD_OK);
    f.limits = (struct batch_limits){1, 3};
    expect(LOSSD_LIMIT_EXCEEDED, "lengths");
    f.limits = (struct batch_limits){2, 2};
    expect(LOSSD_LIMIT_EXCEEDED, "lengths");
}
END_TEST

START_TEST(every_task_has_to_come_exactly_once)
{
    f.columns[0].name = "clack";
    expect(LOSSD_TASK_SET_MISMATCH, "tasks[0].name");
    expect_metadata("task", "clack");
    f.columns[0].name = "click";
    expect(LOSSD_TASK_SET_MISMATCH, "tasks[1].name");
    expect_metadata("task", "click");
    f.columns[0].name = "dwell";
    f.batch.num_tasks = 1;
    expect(LOSSD_TASK_SET_MISMATCH, "tasks");
    expect_metadata("task", "click");
}
END_TEST

START_TEST(logits_are_candidates_times_num_class)
{
    f.columns[DWELL].num_logits = 3;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[0].logits");
    expect_metadata("task", "dwell");
    expect_metadata("expected", "6");
    expect_metadata("got", "3");
}
END_TEST

START_TEST(labels_are_one_a_candidate)
{
    f.columns[CLICK].num_labels = 2;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "tasks[1].labels");
    expect_metadata("task", "click");
    expect_metadata("labels", "2");
    expect_metadata("candidates", "3");
    f.columns[CLICK].num_labels = 0;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "tasks[1].labels");
}
END_TEST

START_TEST(a_task_with_a_bitmask_takes_label_bits_and_no_labels)
{
    f.tasks[0].has_label_bitmask = true;
    f.tasks[0].label_bitmask = 2;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "label_bits");
    expect_metadata("labels", "0");
    f.batch.label_bits = f.bits;
    f.batch.num_label_bits = 3;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "tasks[1].labels");
    f.columns[CLICK].labels = NULL;
    f.columns[CLICK].num_labels = 0;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.batch.num_label_bits = 2;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "label_bits");
}
END_TEST

START_TEST(label_bits_that_no_task_reads_are_refused)
{
    f.batch.label_bits = f.bits;
    f.batch.num_label_bits = 3;
    expect(LOSSD_LABEL_COUNT_MISMATCH, "label_bits");
}
END_TEST

START_TEST(weights_are_one_a_candidate_and_only_where_allowed)
{
    f.columns[CLICK].weights = f.weights;
    f.columns[CLICK].num_weights = 3;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[CLICK].num_weights = 2;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].weights");
    f.columns[CLICK].num_weights = 3;
    f.rules[0].allows_weights = false;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].weights");
}
END_TEST

START_TEST(weights_are_finite_and_not_negative)
{
    static const float bad[] = {-1.0F, NAN, INFINITY};

    f.columns[CLICK].weights = f.weights;
    f.columns[CLICK].num_weights = 3;
    for (size_t i = 0; i < 3; i++) {
        f.weights[2] = bad[i];
        expect(LOSSD_WEIGHT_OUT_OF_RANGE, "tasks[1].weights[2]");
    }
    f.weights[2] = -0.0F;
    ck_assert_int_eq(check(), LOSSD_OK);
}
END_TEST

START_TEST(sessions_come_exactly_where_lists_are_sessions)
{
    f.columns[DWELL].num_sessions = 2;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[0].sessions");
    f.columns[DWELL].num_sessions = 0;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[0].sessions");
    f.columns[DWELL].num_sessions = 3;
    f.columns[CLICK].sessions = f.sessions;
    f.columns[CLICK].num_sessions = 3;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].sessions");
}
END_TEST

START_TEST(task_space_comes_where_it_is_needed)
{
    f.rules[0].needs_task_space = true;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].task_space");
    f.columns[CLICK].task_space = f.weights;
    f.columns[CLICK].num_task_space = 3;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[CLICK].num_task_space = 1;
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].task_space");
    f.columns[CLICK].num_task_space = 3;
    f.weights[0] = NAN;
    expect(LOSSD_WEIGHT_OUT_OF_RANGE, "tasks[1].task_space[0]");
    f.weights[0] = -3.0F;
    f.rules[0].needs_task_space = false;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[CLICK].num_task_space = 2; /* of no effect, and checked all the same */
    expect(LOSSD_SHAPE_MISMATCH, "tasks[1].task_space");
}
END_TEST

START_TEST(labels_obey_every_rule_of_the_task)
{
    static const struct {
        unsigned rules;
        float bad;
        float good;
    } cases[] = {
        {LABEL_FINITE, NAN, -3.5F},
        {LABEL_FINITE, -INFINITY, 3e38F},
        {LABEL_UNIT_INTERVAL, 1.5F, 0.25F},
        {LABEL_UNIT_INTERVAL, -0.1F, -0.0F},
        {LABEL_UNIT_INTERVAL, NAN, 1.0F},
        {LABEL_ZERO_OR_ONE, 0.5F, 1.0F},
        {LABEL_CLASS, 2.0F, 1.0F},
        {LABEL_CLASS, -1.0F, -100.0F},
        {LABEL_CLASS, 0.5F, 0.0F},
        {LABEL_CLASS, NAN, 0.0F},
        {LABEL_CLASS | LABEL_ZERO_OR_ONE, -100.0F, 1.0F},
        {LABEL_NONNEGATIVE, -1.0F, 7.0F},
        {LABEL_NONNEGATIVE, INFINITY, 0.0F},
        {LABEL_NONNEGATIVE | LABEL_UNIT_INTERVAL, 2.0F, 0.5F},
    };

    f.labels[2] = 0.0F;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f.rules[0].label_rules = LABEL_FINITE;
        f.rules[1].label_rules = cases[i].rules;
        f.labels[1] = cases[i].good;
        ck_assert_msg(check() == LOSSD_OK, "case %zu: %s", i, f.err.message);
        f.labels[1] = cases[i].bad;
        expect(LOSSD_LABEL_OUT_OF_RANGE, "tasks[0].labels[1]");
    }
}
END_TEST

START_TEST(logits_have_to_be_finite_with_the_policy_error_alone)
{
    f.logits[1] = NAN;
    f.logits[5] = -INFINITY;
    expect(LOSSD_NONFINITE_LOGITS, "tasks[0].logits[1]");
    expect_metadata("task", "dwell");
    expect_metadata("count", "2");
    expect_metadata("first_index", "1");
    f.config.on_nonfinite = ON_NONFINITE_ZERO;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.config.on_nonfinite = ON_NONFINITE_PROPAGATE;
    ck_assert_int_eq(check(), LOSSD_OK);
}
END_TEST

START_TEST(rows_may_lie_apart_and_not_in_each_other)
{
    /* dwell has 2 classes: (0.5, -0.5), (1, 2) and (3, 4) are rows of 2; of 3 with the last one NaN it is not read */
    static const uint16_t halves[] = {0x3800, 0xb800, 0x7e00, 0x3c00, 0x4000, 0x7e00, 0x4200, 0x4400};

    f.columns[DWELL].logits = halves;
    f.columns[DWELL].logits_type = VALUE_F16;
    f.columns[DWELL].logits_stride = 3;
    f.columns[DWELL].gradient_stride = 2;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[DWELL].logits_stride = 0;
    expect(LOSSD_NONFINITE_LOGITS, "tasks[0].logits[2]");
    f.columns[DWELL].logits_stride = 1;
    expect(LOSSD_INVALID_ARGUMENT, "tasks[0].logits_stride");
    f.columns[DWELL].logits_stride = 3;
    f.columns[DWELL].gradient_stride = 1;
    expect(LOSSD_INVALID_ARGUMENT, "tasks[0].gradient_stride");
}
END_TEST

START_TEST(a_bad_value_is_found_in_any_block_of_a_long_column)
{
    static float logits[5000];
    static float labels[5000];
    const uint32_t length = 5000;

    f.config.num_tasks = 1;
    f.batch.tasks = &f.columns[CLICK];
    f.batch.num_tasks = 1;
    f.batch.lengths = &length;
    f.batch.num_lengths = 1;
    f.limits.max_candidates = 5000;
    f.columns[CLICK].logits = logits;
    f.columns[CLICK].num_logits = 5000;
    f.columns[CLICK].labels = labels;
    f.columns[CLICK].num_labels = 5000;
    ck_assert_int_eq(check(), LOSSD_OK);
    logits[1023] = INFINITY;
    logits[4999] = NAN;
    expect(LOSSD_NONFINITE_LOGITS, "tasks[0].logits[1023]");
    expect_metadata("count", "2");
    logits[1023] = 0.0F;
    expect(LOSSD_NONFINITE_LOGITS, "tasks[0].logits[4999]");
    labels[1024] = 2.0F;
    expect(LOSSD_LABEL_OUT_OF_RANGE, "tasks[0].labels[1024]");
}
END_TEST

START_TEST(scales_have_to_be_finite_and_log_scale_wanted)
{
    f.batch.gradient_scale = NAN;
    expect(LOSSD_INVALID_ARGUMENT, "gradient_scale");
    f.batch.gradient_scale = -2.0F;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[CLICK].has_log_scale = true;
    expect(LOSSD_INVALID_ARGUMENT, "tasks[1].log_scale");
    f.rules[0].allows_log_scale = true;
    ck_assert_int_eq(check(), LOSSD_OK);
    f.columns[CLICK].log_scale = INFINITY;
    expect(LOSSD_INVALID_ARGUMENT, "tasks[1].log_scale");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_good_batch_gets_its_layout_and_task_numbers);
    tcase_add_test(tcase, an_empty_batch_is_good);
    tcase_add_test(tcase, limits_of_requests_and_candidates_are_kept);
    tcase_add_test(tcase, every_task_has_to_come_exactly_once);
    tcase_add_test(tcase, logits_are_candidates_times_num_class);
    tcase_add_test(tcase, labels_are_one_a_candidate);
    tcase_add_test(tcase, a_task_with_a_bitmask_takes_label_bits_and_no_labels);
    tcase_add_test(tcase, label_bits_that_no_task_reads_are_refused);
    tcase_add_test(tcase, weights_are_one_a_candidate_and_only_where_allowed);
    tcase_add_test(tcase, weights_are_finite_and_not_negative);
    tcase_add_test(tcase, sessions_come_exactly_where_lists_are_sessions);
    tcase_add_test(tcase, task_space_comes_where_it_is_needed);
    tcase_add_test(tcase, labels_obey_every_rule_of_the_task);
    tcase_add_test(tcase, logits_have_to_be_finite_with_the_policy_error_alone);
    tcase_add_test(tcase, rows_may_lie_apart_and_not_in_each_other);
    tcase_add_test(tcase, a_bad_value_is_found_in_any_block_of_a_long_column);
    tcase_add_test(tcase, scales_have_to_be_finite_and_log_scale_wanted);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
