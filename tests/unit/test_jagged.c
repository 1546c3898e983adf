/* Offsets from lengths, and the limits on them. */
#include "batch/jagged.h"

#include <string.h>

#include "support/runner.h"

static struct arena arena;
static struct lossd_error err;

static void set_up(void)
{
    arena_init(&arena, 1 << 20, NULL);
    error_init(&err);
}

static void tear_down(void)
{
    arena_finish(&arena);
}

START_TEST(offsets_are_the_running_sum_with_empty_requests_anywhere)
{
    const uint32_t lengths[] = {0, 2, 0, 3, 0};
    const uint32_t expected[] = {0, 0, 2, 2, 5, 5};
    struct jagged jagged;

    ck_assert_int_eq(jagged_from_lengths(lengths, 5, 5, 5, &arena, &jagged, &err), LOSSD_OK);
    ck_assert_uint_eq(jagged.num_requests, 5);
    ck_assert_uint_eq(jagged.num_candidates, 5);
    ck_assert_mem_eq(jagged.offsets, expected, sizeof expected);
}
END_TEST

START_TEST(no_requests_make_one_offset)
{
    struct jagged jagged;

    ck_assert_int_eq(jagged_from_lengths(NULL, 0, 5, 5, &arena, &jagged, &err), LOSSD_OK);
    ck_assert_uint_eq(jagged.num_requests, 0);
    ck_assert_uint_eq(jagged.num_candidates, 0);
    ck_assert_uint_eq(jagged.offsets[0], 0);
}
END_TEST

static void expect_limit(const char *name)
{
    size_t cursor = 0;
    const char *key;
    const char *value;

    ck_assert_int_eq(err.status, LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(err.field, "lengths");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "limit");
    ck_assert_str_eq(value, name);
}

START_TEST(one_more_than_a_limit_is_refused_with_its_name)
{
    const uint32_t lengths[] = {2, 4};
    struct jagged jagged = {.num_requests = 77};

    ck_assert_int_eq(jagged_from_lengths(lengths, 2, 1, 6, &arena, &jagged, &err), LOSSD_LIMIT_EXCEEDED);
    expect_limit("requests");
    ck_assert_int_eq(jagged_from_lengths(lengths, 2, 2, 5, &arena, &jagged, &err), LOSSD_LIMIT_EXCEEDED);
    expect_limit("candidates");
    ck_assert_uint_eq(jagged.num_requests, 77);
    ck_assert_int_eq(jagged_from_lengths(lengths, 2, 2, 6, &arena, &jagged, &err), LOSSD_OK);
}
END_TEST

START_TEST(a_sum_beyond_32_bits_does_not_wrap)
{
    const uint32_t lengths[] = {UINT32_MAX, 1, 2};
    struct jagged jagged;

    ck_assert_int_eq(jagged_from_lengths(lengths, 3, 3, UINT32_MAX, &arena, &jagged, &err), LOSSD_LIMIT_EXCEEDED);
    expect_limit("candidates");
    ck_assert_ptr_nonnull(strstr(err.message, "4294967298"));
}
END_TEST

START_TEST(a_full_arena_is_an_error)
{
    const uint32_t lengths[] = {1, 1};
    struct arena small;
    struct jagged jagged;

    arena_init(&small, 8, NULL);
    ck_assert_int_eq(jagged_from_lengths(lengths, 2, 2, 2, &small, &jagged, &err), LOSSD_LIMIT_EXCEEDED);
    arena_finish(&small);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jagged");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, offsets_are_the_running_sum_with_empty_requests_anywhere);
    tcase_add_test(tcase, no_requests_make_one_offset);
    tcase_add_test(tcase, one_more_than_a_limit_is_refused_with_its_name);
    tcase_add_test(tcase, a_sum_beyond_32_bits_does_not_wrap);
    tcase_add_test(tcase, a_full_arena_is_an_error);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
