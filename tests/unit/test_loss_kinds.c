/* What a config may say: every range and combination, with the field that is named. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "loss/loss.h"
#include "support/runner.h"

static struct arena arena;
static struct lossd_error err;
static struct loss_plan plan;
static struct loss_config losses[MAX_LOSSES + 1];
static struct task_config tasks[MAX_TASKS + 1];
static struct group_config config;

static const struct loss_config good_losses[NUM_LOSS_KINDS] = {
    [LOSS_BINARY_CROSS_ENTROPY] = {.kind = LOSS_BINARY_CROSS_ENTROPY, .weight = 1.0},
    [LOSS_BINARY_FOCAL] = {.kind = LOSS_BINARY_FOCAL, .weight = 1.0, .binary_focal = {2.0, 0.5, true}},
    [LOSS_SOFTMAX_CROSS_ENTROPY] = {.kind = LOSS_SOFTMAX_CROSS_ENTROPY, .weight = 1.0},
    [LOSS_JRC] = {.kind = LOSS_JRC, .weight = 1.0, .jrc = {0.5}},
    [LOSS_L2] = {.kind = LOSS_L2, .weight = 1.0},
    [LOSS_LISTWISE_RANK] = {.kind = LOSS_LISTWISE_RANK, .weight = 1.0, .listwise_rank = {0.07, true, 0, 0}},
};

static void use(enum loss_kind kind)
{
    losses[0] = good_losses[kind];
    tasks[0].num_class = loss_kind_info(kind)->min_num_class;
    tasks[0].num_losses = 1;
}

static void set_up(void)
{
    arena_init(&arena, 1 << 20, NULL);
    error_init(&err);
    tasks[0] = (struct task_config){.name = "click",
                                    .num_class = 1,
                                    .weight = 1.0,
                                    .in_task_space_weight = 1.0,
                                    .out_task_space_weight = 1.0,
                                    .losses = losses,
                                    .num_losses = 1};
    config = (struct group_config){.tasks = tasks,
                                   .num_tasks = 1,
                                   .global_average = true,
                                   .step_timeout_ms = 1,
                                   .first_step_timeout_ms = 86400000};
    use(LOSS_BINARY_CROSS_ENTROPY);
}

static void tear_down(void)
{
    arena_finish(&arena);
}

static void expect_ok(void)
{
    ck_assert_msg(loss_plan_init(&plan, &config, &arena, &err) == LOSSD_OK, "%s: %s", err.field, err.message);
}

static void expect(enum lossd_status status, const char *field)
{
    ck_assert_int_eq(loss_plan_init(&plan, &config, &arena, &err), status);
    ck_assert_str_eq(err.field, field);
    ck_assert_str_ne(err.message, "");
}

START_TEST(every_kind_has_a_name_and_a_good_config)
{
    static const char *const names[NUM_LOSS_KINDS] = {
        "binary_cross_entropy", "binary_focal_loss", "softmax_cross_entropy", "jrc_loss", "l2_loss",
        "listwise_rank_loss"};

    for (int kind = 0; kind < NUM_LOSS_KINDS; kind++) {
        ck_assert_msg(names[kind] != NULL && good_losses[kind].weight > 0.0, "kind %d is not in this file", kind);
        ck_assert_str_eq(loss_kind_name(kind), names[kind]);
        use(kind);
        expect_ok();
    }
}
END_TEST

/* One parameter: the values at its borders that hold, and those past them that do not. */
static void expect_range(double *parameter, const char *field, const double *good, const double *bad)
{
    for (size_t i = 0; i < 2; i++) {
        *parameter = good[i];
        expect_ok();
    }
    for (size_t i = 0; i < 3; i++) {
        *parameter = bad[i];
        expect(LOSSD_INVALID_CONFIG, field);
    }
}

START_TEST(parameters_stay_in_their_ranges)
{
    use(LOSS_BINARY_CROSS_ENTROPY);
    expect_range(&losses[0].binary_cross_entropy.label_smoothing,
                 "tasks[0].losses[0].binary_cross_entropy.label_smoothing", (double[]){0.0, 0.99},
                 (double[]){-0.1, 1.0, NAN});
    use(LOSS_BINARY_FOCAL);
    expect_range(&losses[0].binary_focal.gamma, "tasks[0].losses[0].binary_focal_loss.gamma", (double[]){0.0, 1000.0},
                 (double[]){-0.1, 1000.1, NAN});
    use(LOSS_BINARY_FOCAL);
    expect_range(&losses[0].binary_focal.alpha, "tasks[0].losses[0].binary_focal_loss.alpha", (double[]){0.01, 0.99},
                 (double[]){0.0, 1.0, NAN});
    use(LOSS_SOFTMAX_CROSS_ENTROPY);
    expect_range(&losses[0].softmax_cross_entropy.label_smoothing,
                 "tasks[0].losses[0].softmax_cross_entropy.label_smoothing", (double[]){0.0, 1.0},
                 (double[]){-0.1, 1.1, NAN});
    use(LOSS_JRC);
    expect_range(&losses[0].jrc.alpha, "tasks[0].losses[0].jrc_loss.alpha", (double[]){0.0, 1.0},
                 (double[]){-0.1, 1.1, NAN});
    use(LOSS_LISTWISE_RANK);
    expect_range(&losses[0].listwise_rank.temperature_init, "tasks[0].losses[0].listwise_rank_loss.temperature_init",
                 (double[]){1e-9, 1e9}, (double[]){0.0, INFINITY, NAN});
}
END_TEST

START_TEST(weights_are_not_negative_and_no_more_than_a_binary32_holds)
{
    static const double good[] = {0.0, (double)FLT_MAX};
    static const double bad[] = {-1.0, 3.41e38, NAN};

    expect_range(&losses[0].weight, "tasks[0].losses[0].weight", good, bad);
    use(LOSS_BINARY_CROSS_ENTROPY);
    expect_range(&tasks[0].weight, "tasks[0].weight", good, bad);
    tasks[0].weight = 1.0;
    expect_range(&tasks[0].in_task_space_weight, "tasks[0].in_task_space_weight", good, bad);
    tasks[0].in_task_space_weight = 1.0;
    expect_range(&tasks[0].out_task_space_weight, "tasks[0].out_task_space_weight", good, bad);
}
END_TEST

/* Sums of weights are divided by: 1 / 1e-310 is infinite. */
START_TEST(task_space_weights_other_than_0_are_no_less_than_a_normal_binary32)
{
    static const double good[] = {(double)FLT_MIN, 1e-37};
    static const double bad[] = {1e-38, DBL_MIN, DBL_TRUE_MIN};

    expect_range(&tasks[0].in_task_space_weight, "tasks[0].in_task_space_weight", good, bad);
    tasks[0].in_task_space_weight = 1.0;
    expect_range(&tasks[0].out_task_space_weight, "tasks[0].out_task_space_weight", good, bad);
}
END_TEST

START_TEST(one_possible_num_class_is_not_called_a_range)
{
    tasks[0].num_class = 3;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].binary_cross_entropy");
    ck_assert_str_eq(err.message, "is on a task with num_class 3, expected 1");
    use(LOSS_JRC);
    tasks[0].num_class = 3;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].jrc_loss");
    ck_assert_str_eq(err.message, "is on a task with num_class 3, expected 2");
    use(LOSS_SOFTMAX_CROSS_ENTROPY);
    tasks[0].num_class = 1;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].softmax_cross_entropy");
    ck_assert_str_eq(err.message, "is on a task with num_class 1, expected 2 to 4096");
}
END_TEST

START_TEST(num_class_has_to_suit_each_loss)
{
    tasks[0].num_class = 0;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].num_class");
    tasks[0].num_class = MAX_NUM_CLASS + 1;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].num_class");
    tasks[0].num_class = 2;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].binary_cross_entropy");
    use(LOSS_SOFTMAX_CROSS_ENTROPY);
    tasks[0].num_class = 1;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].softmax_cross_entropy");
    tasks[0].num_class = MAX_NUM_CLASS;
    expect_ok();
    use(LOSS_JRC);
    tasks[0].num_class = 3;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].jrc_loss");
}
END_TEST

START_TEST(names_timeouts_and_counts_are_checked)
{
    tasks[0].name = "a b";
    expect(LOSSD_INVALID_CONFIG, "tasks[0].name");
    tasks[0].name = "click";
    config.step_timeout_ms = 0;
    expect(LOSSD_INVALID_CONFIG, "step_timeout_ms");
    config.step_timeout_ms = 1;
    config.first_step_timeout_ms = 86400001;
    expect(LOSSD_INVALID_CONFIG, "first_step_timeout_ms");
    config.first_step_timeout_ms = 1;
    config.num_tasks = 0;
    expect(LOSSD_INVALID_CONFIG, "tasks");
    config.num_tasks = 1;
    tasks[0].num_losses = 0;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses");
    tasks[0].num_losses = MAX_LOSSES + 1;
    expect(LOSSD_LIMIT_EXCEEDED, "tasks[0].losses");
    tasks[0].num_losses = 1;
    losses[0].kind = NUM_LOSS_KINDS;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses[0].loss");
    use(LOSS_L2);
    tasks[0].has_label_bitmask = true;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].label_bitmask");
}
END_TEST

START_TEST(tasks_are_64_at_most_and_have_different_names)
{
    char names[MAX_TASKS + 1][8];

    for (size_t t = 0; t <= MAX_TASKS; t++) {
        tasks[t] = tasks[0];
        (void)snprintf(names[t], sizeof names[t], "t%zu", t);
        tasks[t].name = names[t];
    }
    config.num_tasks = MAX_TASKS;
    expect_ok();
    config.num_tasks = MAX_TASKS + 1;
    expect(LOSSD_LIMIT_EXCEEDED, "tasks");
    config.num_tasks = 3;
    tasks[2].name = "t0";
    expect(LOSSD_INVALID_CONFIG, "tasks[2].name");
}
END_TEST

START_TEST(sixteen_losses_fit_a_task_but_one_listwise_alone)
{
    for (size_t l = 0; l < MAX_LOSSES; l++)
        losses[l] = good_losses[LOSS_L2];
    tasks[0].num_losses = MAX_LOSSES;
    expect_ok();
    losses[3] = good_losses[LOSS_LISTWISE_RANK];
    expect_ok();
    losses[4] = good_losses[LOSS_LISTWISE_RANK];
    expect(LOSSD_INVALID_CONFIG, "tasks[0].losses");
}
END_TEST

START_TEST(task_space_weights_do_not_go_with_a_listwise_loss)
{
    use(LOSS_LISTWISE_RANK);
    tasks[0].in_task_space_weight = 2.0;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].in_task_space_weight");
    tasks[0].in_task_space_weight = 1.0;
    tasks[0].out_task_space_weight = 0.0;
    expect(LOSSD_INVALID_CONFIG, "tasks[0].out_task_space_weight");
}
END_TEST

START_TEST(rules_of_a_task_are_those_of_all_its_losses)
{
    losses[1] = good_losses[LOSS_LISTWISE_RANK];
    tasks[0].num_losses = 2;
    expect_ok();
    ck_assert_uint_eq(plan.rules[0].label_rules, LABEL_UNIT_INTERVAL);
    ck_assert(!plan.rules[0].allows_weights);
    ck_assert(plan.rules[0].allows_log_scale);
    losses[1].listwise_rank.target = TARGET_RAW;
    losses[1].listwise_rank.learnable_temperature = false;
    expect_ok();
    ck_assert_uint_eq(plan.rules[0].label_rules, LABEL_UNIT_INTERVAL | LABEL_NONNEGATIVE);
    ck_assert(!plan.rules[0].allows_log_scale);
    tasks[0].num_class = 2;
    losses[0] = good_losses[LOSS_SOFTMAX_CROSS_ENTROPY];
    losses[1] = good_losses[LOSS_JRC];
    expect_ok();
    ck_assert_uint_eq(plan.rules[0].label_rules, LABEL_CLASS | LABEL_ZERO_OR_ONE);
    ck_assert(plan.rules[0].allows_weights);
    ck_assert(!plan.rules[0].needs_task_space);
    tasks[0].out_task_space_weight = 0.5;
    expect_ok();
    ck_assert(plan.rules[0].needs_task_space);
}
END_TEST

START_TEST(a_full_arena_is_an_error)
{
    struct arena small;

    arena_init(&small, 16, NULL);
    ck_assert_int_eq(loss_plan_init(&plan, &config, &small, &err), LOSSD_LIMIT_EXCEEDED);
    arena_finish(&small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss_kinds");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, every_kind_has_a_name_and_a_good_config);
    tcase_add_test(tcase, parameters_stay_in_their_ranges);
    tcase_add_test(tcase, weights_are_not_negative_and_no_more_than_a_binary32_holds);
    tcase_add_test(tcase, task_space_weights_other_than_0_are_no_less_than_a_normal_binary32);
    tcase_add_test(tcase, num_class_has_to_suit_each_loss);
    tcase_add_test(tcase, one_possible_num_class_is_not_called_a_range);
    tcase_add_test(tcase, names_timeouts_and_counts_are_checked);
    tcase_add_test(tcase, tasks_are_64_at_most_and_have_different_names);
    tcase_add_test(tcase, sixteen_losses_fit_a_task_but_one_listwise_alone);
    tcase_add_test(tcase, task_space_weights_do_not_go_with_a_listwise_loss);
    tcase_add_test(tcase, rules_of_a_task_are_those_of_all_its_losses);
    tcase_add_test(tcase, a_full_arena_is_an_error);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
