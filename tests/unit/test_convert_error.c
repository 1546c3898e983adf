/* Errors as Connect clients read them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/convert.h"
#include "support/runner.h"

static char *connect_json(const struct lossd_error *err)
{
    uint8_t *bytes;
    size_t size;

    ck_assert_int_eq(error_to_connect_json(err, &bytes, &size), LOSSD_OK);
    ck_assert_uint_eq(strlen((char *)bytes), size);
    return (char *)bytes;
}

/* The value is the one that Google's own library makes of reason, domain and one entry. */
START_TEST(an_error_is_a_connect_error_with_its_info_first)
{
    struct lossd_error err;
    char *text;

    error_init(&err);
    (void)error_set(&err, LOSSD_STEP_OUT_OF_ORDER, "", "step 2 after step 40");
    error_add_metadata(&err, "expected_step", "41");
    text = connect_json(&err);
    ck_assert_str_eq(text,
                     "{\"code\":\"aborted\",\"message\":\"step 2 after step 40\",\"details\":[{\"type\":"
                     "\"google.rpc.ErrorInfo\",\"value\":\"ChFTVEVQX09VVF9PRl9PUkRFUhIFbG9zc2QaEwoNZXhwZWN0ZWRfc3RlcBIC"
                     "NDE\",\"debug\":{\"reason\":\"STEP_OUT_OF_ORDER\",\"domain\":\"lossd\",\"metadata\":{"
                     "\"expected_step\":\"41\"}}}]}");
    free(text);
}
END_TEST

/* As google.rpc.ErrorInfo has it: an object, whose values keep what a quote or a brace would end. */
START_TEST(metadata_is_shown_as_a_map)
{
    struct lossd_error err;
    char *text;

    error_init(&err);
    (void)error_set(&err, LOSSD_INTERNAL, "", "oops");
    text = connect_json(&err);
    ck_assert_ptr_nonnull(strstr(text, "\"debug\":{\"reason\":\"INTERNAL\",\"domain\":\"lossd\"}"));
    free(text);

    error_add_metadata(&err, "task", "cl\"}ick");
    error_add_metadata(&err, "empty", "%s", "");
    text = connect_json(&err);
    ck_assert_ptr_nonnull(strstr(text, "\"metadata\":{\"task\":\"cl\\\"}ick\",\"empty\":\"\"}"));
    free(text);
}
END_TEST

START_TEST(a_field_adds_a_bad_request_and_a_passing_state_a_delay)
{
    struct lossd_error err;
    char *text;

    error_init(&err);
    (void)error_set(&err, LOSSD_LABEL_OUT_OF_RANGE, "tasks[0].labels[3]", "found 2, expected 0 or 1");
    text = connect_json(&err);
    ck_assert_ptr_nonnull(strstr(text, "\"message\":\"tasks[0].labels[3]: found 2, expected 0 or 1\""));
    ck_assert_ptr_nonnull(strstr(text, "google.rpc.BadRequest"));
    ck_assert_ptr_nonnull(strstr(text, "{\"fieldViolations\":[{\"field\":\"tasks[0].labels[3]\",\"description\":"
                                       "\"found 2, expected 0 or 1\"}]}"));
    ck_assert_ptr_null(strstr(text, "RetryInfo"));
    free(text);

    (void)error_set(&err, LOSSD_OVERLOADED, "", "too many calls");
    text = connect_json(&err);
    ck_assert_ptr_nonnull(strstr(text,
                                 "{\"type\":\"google.rpc.RetryInfo\",\"value\":\"CgIIAQ\",\"debug\":{\"retryDelay\":"
                                 "\"1s\"}}"));
    ck_assert_ptr_null(strstr(text, "BadRequest"));
    free(text);

    (void)error_set(&err, LOSSD_PEER_WAIT_DEADLINE, "", "late");
    text = connect_json(&err);
    ck_assert_ptr_null(strstr(text, "RetryInfo"));
    free(text);
}
END_TEST

START_TEST(text_that_was_cut_or_is_not_utf8_still_makes_an_error)
{
    struct lossd_error err;
    char *text;

    error_init(&err);
    (void)error_set(&err, LOSSD_GROUP_NOT_FOUND, "\xc3", "no group \"\xff\xe2\x82\"");
    error_add_metadata(&err, "group", "\x80");
    text = connect_json(&err);
    ck_assert_ptr_nonnull(strstr(text, "\"message\":\"?: no group \\\"???\\\"\""));
    free(text);
}
END_TEST

START_TEST(metadata_as_long_as_it_gets_is_all_there)
{
    struct lossd_error *err = calloc(1, sizeof *err);
    char key[16];
    char *text;

    (void)error_set(err, LOSSD_STEP_TIMEOUT, "", "late");
    for (int i = 0; i < 1900; i++) {
        (void)snprintf(key, sizeof key, "%x", (unsigned)i);
        error_add_metadata(err, key, "v");
    }
    text = connect_json(err);
    ck_assert_ptr_nonnull(strstr(text, "\"metadata\":{\"0\":\"v\",\"1\":"));
    ck_assert_ptr_nonnull(strstr(text, ",\"76b\":\"v\"}"));
    free(text);
    free(err);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("convert_error");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, an_error_is_a_connect_error_with_its_info_first);
    tcase_add_test(tcase, metadata_is_shown_as_a_map);
    tcase_add_test(tcase, a_field_adds_a_bad_request_and_a_passing_state_a_delay);
    tcase_add_test(tcase, text_that_was_cut_or_is_not_utf8_still_makes_an_error);
    tcase_add_test(tcase, metadata_as_long_as_it_gets_is_all_there);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
