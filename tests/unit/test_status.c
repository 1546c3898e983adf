/* The error table and the error that travels by value. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include "support/runner.h"

START_TEST(every_status_has_a_row_that_agrees_with_its_code)
{
    for (int status = 1; status < LOSSD_NUM_STATUSES; status++) {
        const struct status_info *info = status_info((enum lossd_status)status);

        ck_assert_ptr_nonnull(info->reason);
        ck_assert_uint_le(strlen(info->reason), 63);
        ck_assert_str_eq(info->code_name, connect_code_name(info->code));
        ck_assert_int_eq(connect_code_from_name(info->code_name), info->code);
        ck_assert_uint_ge(info->http_status, 400);
        ck_assert_int_eq(status_from_reason(info->reason), status);
    }
    ck_assert_int_eq(status_from_reason("NO_SUCH_REASON"), LOSSD_NUM_STATUSES);
    ck_assert_int_eq(connect_code_from_name("no_such_code"), 0);
}
END_TEST

START_TEST(fields_are_prefixed_from_the_inside_out)
{
    struct lossd_error err;

    ck_assert_int_eq(error_set(&err, LOSSD_SHAPE_MISMATCH, "[3]", "found %d", 7), LOSSD_SHAPE_MISMATCH);
    error_prefix_field(&err, "labels");
    error_prefix_field(&err, "tasks[%d]", 1);
    ck_assert_str_eq(err.field, "tasks[1].labels[3]");
    ck_assert_str_eq(err.message, "found 7");
}
END_TEST

/* "x…x.labels", cut where the field ends, at each length of the prefix. */
START_TEST(a_field_that_is_too_long_is_cut)
{
    for (int length = 1; length < 300; length++) {
        struct lossd_error err;
        char want[400];

        (void)error_set(&err, LOSSD_SHAPE_MISMATCH, "labels", "found 7");
        error_prefix_field(&err, "%*s", length, "x");
        (void)snprintf(want, sizeof want, "%*s.labels", length, "x");
        want[sizeof err.field - 1] = '\0';
        ck_assert_uint_lt(strnlen(err.field, sizeof err.field), sizeof err.field);
        ck_assert_str_eq(err.field, want);
        ck_assert_str_eq(err.message, "found 7");
    }
}
END_TEST

START_TEST(a_copy_has_all_that_is_in_use_and_leaves_the_rest_alone)
{
    struct lossd_error from;
    struct lossd_error to;
    size_t cursor = 0;
    const char *key;
    const char *value;

    memset(&from, 'f', sizeof from);
    memset(&to, 't', sizeof to);
    (void)error_set(&from, LOSSD_STEP_TIMEOUT, "step", "rank %d is missing", 3);
    error_add_metadata(&from, "missing_ranks", "3");
    error_copy(&to, &from);
    ck_assert_int_eq(to.status, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(to.field, "step");
    ck_assert_str_eq(to.message, "rank 3 is missing");
    ck_assert(error_next_metadata(&to, &cursor, &key, &value));
    ck_assert_str_eq(key, "missing_ranks");
    ck_assert_str_eq(value, "3");
    ck_assert(!error_next_metadata(&to, &cursor, &key, &value));
    ck_assert_int_eq(to.metadata[to.metadata_bytes], 't');
    ck_assert_int_eq(to.message[sizeof to.message - 1], 't');
}
END_TEST

START_TEST(metadata_comes_back_in_order_and_never_runs_over)
{
    struct lossd_error err;
    char big[8000];
    size_t cursor = 0;
    const char *key;
    const char *value;

    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    (void)error_set(&err, LOSSD_INTERNAL, "", "none");
    error_add_metadata(&err, "first", "%d", 1);
    error_add_metadata(&err, "big", "%s", big);
    error_add_metadata(&err, "too_big", "%s", big);
    error_add_metadata(&err, "last", "z");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "first");
    ck_assert_str_eq(value, "1");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "big");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "last");
    ck_assert(!error_next_metadata(&err, &cursor, &key, &value));
}
END_TEST

START_TEST(a_pair_whose_key_does_not_fit_is_left_out)
{
    struct lossd_error err;
    size_t full;

    (void)error_set(&err, LOSSD_INTERNAL, "", "none");
    error_add_metadata(&err, "k", "%0*d", (int)sizeof err.metadata - 6, 0); /* 3 bytes are left */
    full = err.metadata_bytes;
    ck_assert_uint_eq(full, sizeof err.metadata - 3);
    error_add_metadata(&err, "key", "%s", "");
    error_add_metadata(&err, "longer_key", "%s", "");
    error_add_metadata(&err, "l", "%s", "z");
    ck_assert_uint_eq(err.metadata_bytes, full);
    error_add_metadata(&err, "l", "%s", "");
    ck_assert_uint_eq(err.metadata_bytes, sizeof err.metadata);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, every_status_has_a_row_that_agrees_with_its_code);
    tcase_add_test(tcase, fields_are_prefixed_from_the_inside_out);
    tcase_add_test(tcase, a_field_that_is_too_long_is_cut);
    tcase_add_test(tcase, a_copy_has_all_that_is_in_use_and_leaves_the_rest_alone);
    tcase_add_test(tcase, metadata_comes_back_in_order_and_never_runs_over);
    tcase_add_test(tcase, a_pair_whose_key_does_not_fit_is_left_out);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
