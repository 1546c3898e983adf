/* Queries of GET calls. */
#include "transport/connect.h"

#include <string.h>

#include "support/runner.h"

struct parsed {
    enum lossd_status status;
    enum codec_kind codec;
    char message[128];
    size_t size;
    char field[32];
};

static struct parsed parse(const char *query)
{
    struct parsed parsed = {0};
    struct connect_head head = {0};
    struct lossd_error err;
    struct arena arena;
    uint8_t *message;
    size_t size;

    error_init(&err);
    arena_init(&arena, 1 << 20, NULL);
    parsed.status = connect_parse_query(query, &arena, &head, &message, &size, &err);
    if (parsed.status == LOSSD_OK) {
        parsed.codec = head.codec;
        parsed.size = size;
        memcpy(parsed.message, message, size + 1);
    }
    memcpy(parsed.field, err.field, sizeof parsed.field);
    arena_finish(&arena);
    return parsed;
}

START_TEST(the_query_of_connect_es_is_understood)
{
    const struct parsed parsed = parse("connect=v1&encoding=json&message=%7B%22group%22%3A%22g%22%7D");

    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_int_eq(parsed.codec, CODEC_JSON);
    ck_assert_str_eq(parsed.message, "{\"group\":\"g\"}");
}
END_TEST

START_TEST(parameters_come_in_any_order_and_others_are_ignored)
{
    const struct parsed parsed = parse("message=%7b%7d&x&=y&messages=1&encoding=json&base64=0&connect=v1&");

    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_str_eq(parsed.message, "{}");
}
END_TEST

START_TEST(binary_messages_are_base64_with_or_without_padding)
{
    struct parsed parsed = parse("connect=v1&base64=1&encoding=proto&message=CgFn");

    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_int_eq(parsed.codec, CODEC_PROTO);
    ck_assert_uint_eq(parsed.size, 3);
    ck_assert_mem_eq(parsed.message, "\n\1g", 3);
    parsed = parse("base64=1&encoding=json&message=e30%3D");
    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_str_eq(parsed.message, "{}");
    parsed = parse("base64=1&encoding=json&message=e30");
    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_str_eq(parsed.message, "{}");
    parsed = parse("base64=1&encoding=proto&message=_-8");
    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_uint_eq(parsed.size, 2);
    ck_assert_mem_eq(parsed.message, "\xff\xef", 2);
}
END_TEST

START_TEST(an_empty_message_is_a_message)
{
    const struct parsed parsed = parse("encoding=proto&message=");

    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_uint_eq(parsed.size, 0);
}
END_TEST

START_TEST(a_plus_is_a_space)
{
    const struct parsed parsed = parse("encoding=json&message=a+b%2Bc");

    ck_assert_int_eq(parsed.status, LOSSD_OK);
    ck_assert_str_eq(parsed.message, "a b+c");
}
END_TEST

struct bad_query {
    const char *query;
    enum lossd_status status;
    const char *field;
};

static const struct bad_query bad_queries[] = {
    {NULL, LOSSD_MALFORMED_REQUEST, "encoding"},
    {"", LOSSD_MALFORMED_REQUEST, "encoding"},
    {"encoding=json", LOSSD_MALFORMED_REQUEST, "message"},
    {"message=%7B%7D", LOSSD_MALFORMED_REQUEST, "encoding"},
    {"encoding=json&message=a&message=b", LOSSD_MALFORMED_REQUEST, "message"},
    {"encoding=json&encoding=json&message=a", LOSSD_MALFORMED_REQUEST, "encoding"},
    {"encoding=json&message=%7", LOSSD_MALFORMED_REQUEST, "message"},
    {"encoding=json&message=%", LOSSD_MALFORMED_REQUEST, "message"},
    {"encoding=json&message=%zz", LOSSD_MALFORMED_REQUEST, "message"},
    {"connect=v2&encoding=json&message=%7B%7D", LOSSD_MALFORMED_REQUEST, "connect"},
    {"encoding=xml&message=a", LOSSD_NOT_SUPPORTED, "encoding"},
    {"encoding=json%00&message=a", LOSSD_NOT_SUPPORTED, "encoding"},
    {"encoding=json&compression=gzip&message=a", LOSSD_NOT_SUPPORTED, "compression"},
    {"base64=1&encoding=json&message=e", LOSSD_MALFORMED_REQUEST, "message"},
    {"base64=1&encoding=json&message=e31", LOSSD_MALFORMED_REQUEST, "message"},
    {"base64=1&encoding=json&message=%2B%2F8", LOSSD_MALFORMED_REQUEST, "message"},
    {"base64=1&encoding=json&message=====", LOSSD_MALFORMED_REQUEST, "message"},
};

START_TEST(a_bad_query_is_refused_with_the_parameter)
{
    const struct bad_query *bad = &bad_queries[_i];
    const struct parsed parsed = parse(bad->query);

    ck_assert_int_eq(parsed.status, bad->status);
    ck_assert_str_eq(parsed.field, bad->field);
}
END_TEST

START_TEST(a_full_arena_is_an_error)
{
    struct connect_head head;
    struct lossd_error err;
    struct arena arena;
    uint8_t *message;
    size_t size;

    arena_init(&arena, 4, NULL);
    ck_assert_int_eq(connect_parse_query("encoding=json&message=a", &arena, &head, &message, &size, &err),
                     LOSSD_LIMIT_EXCEEDED);
    arena_finish(&arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("get_query");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, the_query_of_connect_es_is_understood);
    tcase_add_test(tcase, parameters_come_in_any_order_and_others_are_ignored);
    tcase_add_test(tcase, binary_messages_are_base64_with_or_without_padding);
    tcase_add_test(tcase, an_empty_message_is_a_message);
    tcase_add_test(tcase, a_plus_is_a_space);
    tcase_add_loop_test(tcase, a_bad_query_is_refused_with_the_parameter, 0,
                        (int)(sizeof bad_queries / sizeof bad_queries[0]));
    tcase_add_test(tcase, a_full_arena_is_an_error);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
