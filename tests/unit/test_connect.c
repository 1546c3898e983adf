/* Heads of calls: framing, media types, timeouts. */
#include "transport/connect.h"

#include <string.h>

#include "support/runner.h"

enum { MAX_FIELDS = 8 };

/* Name and value alternate; NULL ends. */
static size_t make_fields(struct header_field *fields, const char *const *pairs)
{
    size_t count = 0;

    for (; pairs[0] != NULL; pairs += 2)
        fields[count++] = (struct header_field){pairs[0], strlen(pairs[0]), pairs[1], strlen(pairs[1])};
    return count;
}

#define PAIRS(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static enum lossd_status check_framing(const char *const *pairs, struct framing *framing, struct lossd_error *err)
{
    struct header_field fields[MAX_FIELDS];
    const size_t count = make_fields(fields, pairs);

    error_init(err);
    return connect_check_framing(fields, count, framing, err);
}

START_TEST(a_length_or_chunks_say_where_a_body_ends)
{
    struct framing framing;
    struct lossd_error err;

    ck_assert_int_eq(check_framing(PAIRS("Host", "a", "content-length", "120"), &framing, &err), LOSSD_OK);
    ck_assert(framing.has_content_length && !framing.chunked && !framing.expects_continue && framing.has_host);
    ck_assert_uint_eq(framing.content_length, 120);
    ck_assert_int_eq(check_framing(PAIRS("TRANSFER-ENCODING", "Chunked", "Expect", "100-Continue"), &framing, &err),
                     LOSSD_OK);
    ck_assert(!framing.has_content_length && framing.chunked && framing.expects_continue && !framing.has_host);
    ck_assert_uint_eq(framing.content_length, 0);
}
END_TEST

struct bad_head {
    const char *pairs[2 * MAX_FIELDS];
    const char *field;
};

static const struct bad_head bad_heads[] = {
    {{"Content-Length", "5", "Transfer-Encoding", "chunked"}, "Content-Length"},
    {{"Content-Length", "5", "Content-Length", "5"}, "Content-Length"},
    {{"Content-Length", "5", "content-length", "6"}, "Content-Length"},
    {{"Content-Length", "5, 5"}, "Content-Length"},
    {{"Content-Length", "+5"}, "Content-Length"},
    {{"Content-Length", "-1"}, "Content-Length"},
    {{"Content-Length", ""}, "Content-Length"},
    {{"Content-Length", "99999999999999999999"}, "Content-Length"},
    {{"Transfer-Encoding", "gzip, chunked"}, "Transfer-Encoding"},
    {{"Transfer-Encoding", "identity"}, "Transfer-Encoding"},
    {{"Transfer-Encoding", "chunked", "Transfer-Encoding", "chunked"}, "Transfer-Encoding"},
    {{"Host", "a", "Host", "a"}, "Host"},
    {{"Content-Length ", "5"}, ""},
    {{"Content-Length5", "2"}, ""},
    {{"transfer-encodingchunked", "x"}, ""},
    {{"X Y", "5"}, ""},
    {{"", "5"}, ""},
    {{"X", "a\rb"}, ""},
    {{"X", "a\nb"}, ""},
};

START_TEST(what_two_servers_may_read_differently_is_refused)
{
    struct framing framing = {.content_length = 77};
    struct lossd_error err;

    ck_assert_int_eq(check_framing(bad_heads[_i].pairs, &framing, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(err.field, bad_heads[_i].field);
    ck_assert_uint_eq(framing.content_length, 77);
}
END_TEST

START_TEST(a_nul_in_a_value_is_refused)
{
    const struct header_field field = {"X", 1, "a\0b", 3};
    struct framing framing;
    struct lossd_error err;

    ck_assert_int_eq(connect_check_framing(&field, 1, &framing, &err), LOSSD_MALFORMED_REQUEST);
}
END_TEST

static enum lossd_status parse_common(const char *const *pairs, struct connect_head *head, struct lossd_error *err)
{
    struct header_field fields[MAX_FIELDS];
    const size_t count = make_fields(fields, pairs);

    error_init(err);
    return connect_parse_common(fields, count, head, err);
}

START_TEST(a_timeout_has_one_to_ten_digits)
{
    struct connect_head head = {0};
    struct lossd_error err;

    ck_assert_int_eq(parse_common(PAIRS("connect-timeout-ms", "9999999999"), &head, &err), LOSSD_OK);
    ck_assert(head.has_timeout);
    ck_assert_uint_eq(head.timeout_ms, 9999999999u);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", "0"), &head, &err), LOSSD_OK);
    ck_assert_uint_eq(head.timeout_ms, 0);
    ck_assert_int_eq(parse_common(PAIRS("X", "y"), &head, &err), LOSSD_OK);
    ck_assert(!head.has_timeout);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", "10000000000"), &head, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(err.field, "Connect-Timeout-Ms");
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", ""), &head, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", "-5"), &head, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", "1.5"), &head, &err), LOSSD_MALFORMED_REQUEST);
}
END_TEST

START_TEST(the_protocol_version_is_1_or_absent)
{
    struct connect_head head = {0};
    struct lossd_error err;

    ck_assert_int_eq(parse_common(PAIRS("Connect-Protocol-Version", "1"), &head, &err), LOSSD_OK);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Protocol-Version", "2"), &head, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Protocol-Version", "1.0"), &head, &err), LOSSD_MALFORMED_REQUEST);
}
END_TEST

START_TEST(a_compressed_body_is_refused_with_what_is_supported)
{
    struct connect_head head = {0};
    struct lossd_error err;
    const char *key;
    const char *value;
    size_t cursor = 0;

    ck_assert_int_eq(parse_common(PAIRS("Content-Encoding", "Identity"), &head, &err), LOSSD_OK);
    ck_assert_int_eq(parse_common(PAIRS("Content-Encoding", "gzip"), &head, &err), LOSSD_NOT_SUPPORTED);
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "supported");
    ck_assert_str_eq(value, "identity");
}
END_TEST

START_TEST(a_header_that_decides_is_there_once)
{
    struct header_field fields[MAX_FIELDS];
    struct connect_head head = {0};
    struct lossd_error err;
    size_t count = make_fields(fields, PAIRS("Content-Type", "application/json", "X", "y", "content-type", "a/b"));

    ck_assert_int_eq(connect_parse_content_type(fields, count, &head, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(err.field, "Content-Type");
    ck_assert_int_eq(parse_common(PAIRS("Connect-Timeout-Ms", "1", "connect-timeout-ms", "1"), &head, &err),
                     LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(err.field, "Connect-Timeout-Ms");
    ck_assert_int_eq(
        parse_common(PAIRS("Content-Encoding", "identity", "X", "y", "Content-Encoding", "gzip"), &head, &err),
        LOSSD_MALFORMED_REQUEST);
    ck_assert_int_eq(parse_common(PAIRS("Connect-Protocol-Version", "1", "Connect-Protocol-Version", "1"), &head, &err),
                     LOSSD_MALFORMED_REQUEST);
}
END_TEST

struct media_type {
    const char *type;
    enum lossd_status status;
    enum codec_kind codec;
};

static const struct media_type media_types[] = {
    {"application/json", LOSSD_OK, CODEC_JSON},
    {"application/json; charset=utf-8", LOSSD_OK, CODEC_JSON},
    {"Application/JSON ;charset=utf-8", LOSSD_OK, CODEC_JSON},
    {"application/proto", LOSSD_OK, CODEC_PROTO},
    {"application/connect+json", LOSSD_NOT_SUPPORTED, CODEC_JSON},
    {"application/grpc", LOSSD_NOT_SUPPORTED, CODEC_JSON},
    {"application/jsonx", LOSSD_NOT_SUPPORTED, CODEC_JSON},
    {"", LOSSD_NOT_SUPPORTED, CODEC_JSON},
};

START_TEST(the_media_type_chooses_the_codec)
{
    const struct media_type *wanted = &media_types[_i];
    const struct header_field field = {"content-type", 12, wanted->type, strlen(wanted->type)};
    struct connect_head head = {0};
    struct lossd_error err;

    ck_assert_int_eq(connect_parse_content_type(&field, 1, &head, &err), wanted->status);
    if (wanted->status == LOSSD_OK)
        ck_assert_int_eq(head.codec, wanted->codec);
    else
        ck_assert_str_eq(err.field, "Content-Type");
}
END_TEST

START_TEST(a_call_without_a_media_type_is_refused)
{
    struct connect_head head = {0};
    struct lossd_error err;

    ck_assert_int_eq(connect_parse_content_type(NULL, 0, &head, &err), LOSSD_NOT_SUPPORTED);
}
END_TEST

START_TEST(trace_contexts_are_checked_by_the_letter)
{
    static const char good[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    static const char *const bad[] = {
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "",
    };

    ck_assert(traceparent_is_valid(good, strlen(good)));
    ck_assert(traceparent_is_valid("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", 57));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!traceparent_is_valid(bad[i], strlen(bad[i])), "%s", bad[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connect");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_length_or_chunks_say_where_a_body_ends);
    tcase_add_loop_test(tcase, what_two_servers_may_read_differently_is_refused, 0,
                        (int)(sizeof bad_heads / sizeof bad_heads[0]));
    tcase_add_test(tcase, a_nul_in_a_value_is_refused);
    tcase_add_test(tcase, a_timeout_has_one_to_ten_digits);
    tcase_add_test(tcase, the_protocol_version_is_1_or_absent);
    tcase_add_test(tcase, a_compressed_body_is_refused_with_what_is_supported);
    tcase_add_test(tcase, a_header_that_decides_is_there_once);
    tcase_add_loop_test(tcase, the_media_type_chooses_the_codec, 0, (int)(sizeof media_types / sizeof media_types[0]));
    tcase_add_test(tcase, a_call_without_a_media_type_is_refused);
    tcase_add_test(tcase, trace_contexts_are_checked_by_the_letter);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
