/* Where columns lie, the names of losses, and the waits between attempts to reconnect. */
#include "client/layout.h"

#include "client/failure.h"
#include "client/reconnect.h"
#include "support/runner.h"

static const struct loss_config one_loss[1];
static const struct task_config tasks[] = {
    {.name = "plain",
     .num_class = 1,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = one_loss,
     .num_losses = 1},
    {.name = "classes",
     .num_class = 3,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = one_loss,
     .num_losses = 1},
    {.name = "bits",
     .num_class = 1,
     .has_label_bitmask = true,
     .label_bitmask = 2,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = one_loss,
     .num_losses = 1},
    {.name = "sessions",
     .num_class = 1,
     .lists = LISTS_SESSIONS,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = one_loss,
     .num_losses = 1},
    {.name = "space",
     .num_class = 1,
     .in_task_space_weight = 1,
     .out_task_space_weight = 0.5,
     .losses = one_loss,
     .num_losses = 1},
};
static const struct group_config all = {.tasks = tasks, .num_tasks = 5};
static const struct group_config plain = {.tasks = tasks, .num_tasks = 2};

static struct batch_layout plan(const struct group_config *config, struct lossd_shape shape)
{
    struct batch_layout layout;
    struct lossd_failure failure;

    ck_assert_int_eq(layout_plan(config, &shape, &layout, &failure), LOSSD_CODE_OK);
    return layout;
}

START_TEST(planes_begin_at_multiples_of_64)
{
    const struct batch_layout layout = plan(&plain, (struct lossd_shape){.requests = 3, .candidates = 20});

    /* lengths 12 bytes; logits and gradient 80 and 80, then 240 and 240; labels 80 each */
    ck_assert_uint_eq(layout.lengths, 0);
    ck_assert_uint_eq(layout.tasks[0].logits, 64);
    ck_assert_uint_eq(layout.tasks[0].gradient, 64 + 128);
    ck_assert_uint_eq(layout.tasks[1].logits, 64 + 256);
    ck_assert_uint_eq(layout.tasks[1].gradient, 64 + 256 + 256);
    ck_assert_uint_eq(layout.tasks[0].labels, 64 + 256 + 512);
    ck_assert_uint_eq(layout.tasks[1].labels, 64 + 256 + 512 + 128);
    ck_assert_uint_eq(layout.bytes, 64 + 256 + 512 + 256);
    ck_assert_uint_eq(layout.tasks[0].stride, 1);
    ck_assert_uint_eq(layout.tasks[1].stride, 3);
    ck_assert(layout.label_bits == NO_COLUMN);
}
END_TEST

START_TEST(rows_hold_the_logits_of_all_tasks)
{
    const struct batch_layout layout = plan(
        &plain, (struct lossd_shape){.requests = 1, .candidates = 20, .logits_type = LOSSD_BF16, .layout = LOSSD_ROWS});

    /* a row of 4 logits has 8 bytes, one of gradients 16 */
    ck_assert_uint_eq(layout.tasks[0].logits, 64);
    ck_assert_uint_eq(layout.tasks[1].logits, 64 + 2);
    ck_assert_uint_eq(layout.tasks[0].gradient, 64 + 192);
    ck_assert_uint_eq(layout.tasks[1].gradient, 64 + 192 + 4);
    ck_assert_uint_eq(layout.tasks[0].stride, 4);
    ck_assert_uint_eq(layout.tasks[1].stride, 4);
    ck_assert_uint_eq(layout.tasks[0].labels, 64 + 192 + 320);
}
END_TEST

START_TEST(a_task_has_the_columns_that_its_config_needs)
{
    const struct batch_layout layout = plan(&all,
                                            (struct lossd_shape){.requests = 1, .candidates = 1, .weighted_tasks = 1});

    ck_assert(layout.tasks[0].weights != NO_COLUMN);
    ck_assert(layout.tasks[1].weights == NO_COLUMN);
    ck_assert(layout.tasks[2].labels == NO_COLUMN);
    ck_assert(layout.label_bits != NO_COLUMN);
    ck_assert(layout.tasks[3].sessions != NO_COLUMN);
    ck_assert(layout.tasks[2].sessions == NO_COLUMN);
    ck_assert(layout.tasks[4].task_space != NO_COLUMN);
    ck_assert(layout.tasks[3].task_space == NO_COLUMN);
    ck_assert_uint_eq(config_num_terms(&all), 5);
}
END_TEST

START_TEST(columns_of_an_empty_batch_differ_and_those_of_the_largest_do_not_wrap)
{
    const struct batch_layout empty = plan(&plain, (struct lossd_shape){.requests = 0});
    const struct batch_layout largest = plan(&plain,
                                             (struct lossd_shape){.requests = UINT32_MAX, .candidates = UINT32_MAX});

    ck_assert_uint_eq(empty.bytes, 7 * 64);
    ck_assert_uint_ne(empty.tasks[0].logits, empty.tasks[0].gradient);
    /* 4 bytes each of lengths, 2 * 4 logits and gradients, 2 labels: 11 columns of 2^32 - 1, rounded up */
    ck_assert_uint_ge(largest.bytes, UINT64_C(11) * 4 * UINT32_MAX);
}
END_TEST

/* No config that the daemon takes has such classes, but it may lie about it. */
START_TEST(columns_that_no_memory_has_room_for_are_refused)
{
    static const uint32_t classes[][2] = {{UINT32_MAX, 1}, {UINT32_MAX, UINT32_MAX}, {1U << 30, 1}, {1, 1U << 31}};
    struct task_config large[2] = {tasks[0], tasks[0]};
    const struct group_config config = {.tasks = large, .num_tasks = 2};
    const struct lossd_shape shape = {.requests = 1, .candidates = UINT32_MAX, .layout = (enum lossd_layout)(_i % 2)};
    const struct lossd_shape none = {.layout = LOSSD_ROWS};
    struct batch_layout layout = {.bytes = 77};
    struct lossd_failure failure;

    large[0].num_class = classes[_i / 2][0];
    large[1].num_class = classes[_i / 2][1];
    ck_assert_int_eq(layout_plan(&config, &shape, &layout, &failure), LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(failure.reason, "BAD_SHAPE");
    ck_assert_str_eq(failure.field, "candidates");
    if (_i < 4) /* the width of a row wraps */
        ck_assert_int_eq(layout_plan(&config, &none, &layout, &failure), LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_uint_eq(layout.bytes, 77);
}
END_TEST

START_TEST(the_largest_columns_of_all_tasks_are_below_the_bound)
{
    struct task_config many[MAX_TASKS];
    const struct group_config config = {.tasks = many, .num_tasks = MAX_TASKS};
    const struct group_config too_many = {.tasks = many, .num_tasks = MAX_TASKS + 1};
    const struct lossd_shape shape = {.requests = UINT32_MAX, .candidates = UINT32_MAX, .weighted_tasks = UINT64_MAX};
    struct batch_layout layout;
    struct lossd_failure failure;

    for (size_t t = 0; t < MAX_TASKS; t++) {
        many[t] = tasks[4];
        many[t].num_class = MAX_NUM_CLASS;
    }
    ck_assert_uint_lt(plan(&config, shape).bytes, MAX_LAYOUT_BYTES);
    ck_assert_int_ne(layout_plan(&too_many, &shape, &layout, &failure), LOSSD_CODE_OK);
}
END_TEST

START_TEST(weights_of_all_64_tasks_can_be_asked_for)
{
    struct task_config many[64];
    const struct group_config config = {.tasks = many, .num_tasks = 64};

    for (size_t t = 0; t < 64; t++)
        many[t] = tasks[0];
    ck_assert(plan(&config, (struct lossd_shape){.weighted_tasks = UINT64_MAX}).tasks[63].weights != NO_COLUMN);
}
END_TEST

/* 10, 20, 40 … 640, 1000, 1000: each within [0.5, 1.5) of it. */
START_TEST(waits_double_up_to_a_second_and_differ)
{
    static const int64_t want_ms[] = {10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
    struct backoff one;
    struct backoff other;
    int equal = 0;

    backoff_init(&one, 1234);
    backoff_init(&other, 5678);
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof want_ms / sizeof want_ms[0]; i++) {
            const int64_t wait_ns = backoff_next_ns(&one);

            ck_assert_int_ge(wait_ns, want_ms[i] * 500000);
            ck_assert_int_lt(wait_ns, want_ms[i] * 1500000);
            equal += wait_ns == backoff_next_ns(&other);
        }
        backoff_restart(&one);
        backoff_restart(&other);
    }
    ck_assert_int_lt(equal, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_layout");
    TCase *tcase = tcase_create("client_layout");

    tcase_add_test(tcase, planes_begin_at_multiples_of_64);
    tcase_add_test(tcase, rows_hold_the_logits_of_all_tasks);
    tcase_add_test(tcase, a_task_has_the_columns_that_its_config_needs);
    tcase_add_test(tcase, columns_of_an_empty_batch_differ_and_those_of_the_largest_do_not_wrap);
    tcase_add_loop_test(tcase, columns_that_no_memory_has_room_for_are_refused, 0, 8);
    tcase_add_test(tcase, the_largest_columns_of_all_tasks_are_below_the_bound);
    tcase_add_test(tcase, weights_of_all_64_tasks_can_be_asked_for);
    tcase_add_test(tcase, waits_double_up_to_a_second_and_differ);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
