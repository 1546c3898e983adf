/* What is JSON of a message and what is not. */
#include "codec/json_scan.h"

#include <stdio.h>
#include <string.h>

#include "codec_support.h"
#include "support/runner.h"

#define REQUEST (&lossd__v1__compute_loss_request__descriptor)

static const char *const accepted[] = {
    "{}",
    " \t\r\n{ \t\r\n} \t\r\n",
    "{\"group\":\"a\"}",
    "{ \"group\" : \"a\" , \"rank\" : 1 }",
    "{\"group\":\"\"}",
    "{\"group\":\"a b\"}",
    "{\"group\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}",
    "{\"group\":\"\\u0041\\u00e9\\u20AC\"}",
    "{\"group\":\"\\ud83d\\ude00\"}",
    "{\"group\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}",
    "{\"group\":\"\xef\xbf\xbf\xf4\x8f\xbf\xbf\"}",
    "{\"group\":\"\x7f\"}",
    "{\"gr\\u006fup\":\"a\"}",
    "{\"group\":null}",
    "{\"rank\":0}",
    "{\"rank\":-0}",
    "{\"rank\":-0.0}",
    "{\"rank\":1.0}",
    "{\"rank\":1e3}",
    "{\"rank\":1E+3}",
    "{\"rank\":1.5e1}",
    "{\"rank\":1000e-3}",
    "{\"rank\":4294967295}",
    "{\"rank\":42949672950e-1}",
    "{\"rank\":\"7\"}",
    "{\"rank\":\"1e3\"}",
    "{\"rank\":\"\\u0037\"}",
    "{\"step\":18446744073709551615}",
    "{\"step\":\"18446744073709551615\"}",
    "{\"step\":1844674407370955161.5e1}",
    "{\"step\":0e999999999999999999999}",
    "{\"step\":100000000000000000000000e-20}",
    "{\"skipGradient\":true}",
    "{\"skip_gradient\":false}",
    "{\"gradientScale\":0}",
    "{\"gradientScale\":-0.0}",
    "{\"gradientScale\":3.4028234663852886e+38}",
    "{\"gradientScale\":3.4028235e38}",
    "{\"gradientScale\":1e-400}",
    "{\"gradientScale\":\"NaN\"}",
    "{\"gradientScale\":\"-Infinity\"}",
    "{\"gradientScale\":\"1.5\"}",
    "{\"gradient_scale\":\"1e2\"}",
    "{\"lengths\":[]}",
    "{\"lengths\":[ ]}",
    "{\"lengths\":null}",
    "{\"lengths\":[1]}",
    "{\"lengths\":[ 1 , 2 ,3\n,4]}",
    "{\"lengths\":[1,\"2\",3.0]}",
    "{\"labelBits\":[0,\"18446744073709551615\",18446744073709551615]}",
    "{\"tasks\":[]}",
    "{\"tasks\":null}",
    "{\"tasks\":[{}]}",
    "{\"tasks\":[{},{},{}]}",
    "{\"tasks\":[{\"logits\":[0.1,-1e-7,\"NaN\",\"Infinity\",\"-Infinity\",\"0.5\"]}]}",
    "{\"tasks\":[{\"sessions\":[-9223372036854775808,\"9223372036854775807\"]}]}",
    "{\"tasks\":[{\"logScale\":1.7976931348623157e308,\"taskSpace\":[1]}]}",
};

static const struct {
    const char *text;
    size_t offset; /* that the error names */
} refused[] = {
    {"", 0},
    {" ", 1},
    {"null", 0},
    {"[]", 0},
    {"1", 0},
    {"\"\"", 0},
    {"{", 1},
    {"}", 0},
    {"{}}", 2},
    {"{} x", 3},
    {"{}{}", 2},
    {"\xef\xbb\xbf{}", 0},
    {"{,}", 1},
    {"{\"group\"}", 8},
    {"{\"group\":}", 9},
    {"{\"group\" \"a\"}", 9},
    {"{\"group\":\"a\",}", 13},
    {"{\"group\":\"a\" \"rank\":1}", 13},
    {"{group:\"a\"}", 1},
    {"{'group':\"a\"}", 1},
    {"{\"group\":'a'}", 9},
    {"{\"group\":\"a}", 12},
    {"{\"group\":\"a\nb\"}", 11},
    {"{\"group\":\"\x01\"}", 10},
    {"{\"group\":\"\\x\"}", 10},
    {"{\"group\":\"\\u12\"}", 10},
    {"{\"group\":\"\\u12g4\"}", 10},
    {"{\"group\":\"\\ud800\"}", 10},
    {"{\"group\":\"\\udc00\"}", 10},
    {"{\"group\":\"\\ud800\\u0041\"}", 10},
    {"{\"group\":\"\\ud800\\ud800\"}", 10},
    {"{\"group\":\"\\", 10},
    {"{\"group\":\"\xff\"}", 10},
    {"{\"group\":\"\xc0\x80\"}", 10},
    {"{\"group\":\"\xed\xa0\x80\"}", 10},
    {"{\"group\":\"\xf4\x90\x80\x80\"}", 10},
    {"{\"group\":\"\xe2\x82\"}", 10},
    {"{\"group\":\"\x80\"}", 10},
    {"{\"group\":1}", 9},
    {"{\"group\":true}", 9},
    {"{\"group\":{}}", 9},
    {"{\"group\":[]}", 9},
    {"{\"group\":nul}", 9},
    {"{\"group\":nulls}", 13},
    {"{\"group\":\"a\",\"group\":\"b\"}", 13},
    {"{\"group\":\"a\",\"gr\\u006fup\":\"b\"}", 13},
    {"{\"group\":null,\"group\":\"b\"}", 14},
    {"{\"skipGradient\":true,\"skip_gradient\":true}", 21},
    {"{\"lengths\":[1],\"lengths\":[1]}", 15},
    {"{\"skipgradient\":true}", 1},
    {"{\"SkipGradient\":true}", 1},
    {"{\"groups\":\"a\"}", 1},
    {"{\"\":1}", 1},
    {"{\"group\\u0000\":\"a\"}", 1},
    {"{\"rank\":01}", 8},
    {"{\"rank\":+1}", 8},
    {"{\"rank\":-}", 8},
    {"{\"rank\":-1}", 8},
    {"{\"rank\":.5}", 8},
    {"{\"rank\":1.}", 8},
    {"{\"rank\":1.e1}", 8},
    {"{\"rank\":1e}", 8},
    {"{\"rank\":1e+}", 8},
    {"{\"rank\":0x1}", 9},
    {"{\"rank\":1 2}", 10},
    {"{\"rank\":1.5}", 8},
    {"{\"rank\":1e-1}", 8},
    {"{\"rank\":4294967296}", 8},
    {"{\"rank\":\"\"}", 8},
    {"{\"rank\":\" 1\"}", 8},
    {"{\"rank\":\"1 \"}", 8},
    {"{\"rank\":\"a\"}", 8},
    {"{\"rank\":\"NaN\"}", 8},
    {"{\"rank\":true}", 8},
    {"{\"rank\":[1]}", 8},
    {"{\"rank\":{}}", 8},
    {"{\"step\":18446744073709551616}", 8},
    {"{\"step\":\"18446744073709551616\"}", 8},
    {"{\"step\":1e20}", 8},
    {"{\"step\":1e999999999999}", 8},
    {"{\"step\":0.00000000000000000000001}", 8},
    {"{\"skipGradient\":1}", 16},
    {"{\"skipGradient\":\"true\"}", 16},
    {"{\"skipGradient\":True}", 16},
    {"{\"skipGradient\":tru}", 16},
    {"{\"gradientScale\":1e39}", 17},
    {"{\"gradientScale\":-1e39}", 17},
    {"{\"gradientScale\":3.4028236e38}", 17},
    {"{\"gradientScale\":\"1e39\"}", 17},
    {"{\"gradientScale\":NaN}", 17},
    {"{\"gradientScale\":Infinity}", 17},
    {"{\"gradientScale\":-Infinity}", 17},
    {"{\"gradientScale\":\"nan\"}", 17},
    {"{\"gradientScale\":\"inf\"}", 17},
    {"{\"gradientScale\":\"+Infinity\"}", 17},
    {"{\"lengths\":1}", 11},
    {"{\"lengths\":{}}", 11},
    {"{\"lengths\":[1,]}", 14},
    {"{\"lengths\":[,1]}", 12},
    {"{\"lengths\":[1 2]}", 14},
    {"{\"lengths\":[1,null]}", 14},
    {"{\"lengths\":[[1]]}", 12},
    {"{\"lengths\":[1,2}", 16},
    {"{\"lengths\":[1,2", 15},
    {"{\"lengths\":[\"1]\"]}", 12},
    {"{\"lengths\":[1,\"1,2\"]}", 14},
    {"{\"tasks\":{}}", 9},
    {"{\"tasks\":[1]}", 10},
    {"{\"tasks\":[null]}", 10},
    {"{\"tasks\":[{}", 12},
    {"{\"tasks\":[{},]}", 13},
    {"{\"tasks\":[{}{}]}", 12},
    {"{\"tasks\":[{\"logits\":[0.1,0.2,x]}]}", 29},
    {"{\"tasks\":[{\"sessions\":[-9223372036854775809]}]}", 23},
    {"{\"tasks\":[{\"logScale\":1e309}]}", 22},
    {"{// comment\n}", 1},
    {"{/* comment */}", 1},
};

START_TEST(texts_of_the_grammar_are_accepted)
{
    struct fixture f;

    fixture_init(&f);
    ck_assert_msg(decode_json(&f, REQUEST, accepted[_i]) != NULL, "%s: %s: %s", accepted[_i], f.err.field,
                  f.err.message);
    fixture_finish(&f);
}
END_TEST

START_TEST(other_texts_are_refused_with_the_offset)
{
    const char *text = refused[_i].text;
    struct fixture f;
    char offset[24];

    fixture_init(&f);
    ck_assert_msg(decode_json(&f, REQUEST, text) == NULL, "%s", text);
    ck_assert_msg(f.err.status == LOSSD_MALFORMED_REQUEST, "%s: %s", text, f.err.message);
    (void)snprintf(offset, sizeof offset, "%zu", refused[_i].offset);
    ck_assert_msg(strcmp(error_metadata(&f.err, "offset"), offset) == 0, "%s: %s at %s, not %s", text, f.err.message,
                  error_metadata(&f.err, "offset"), offset);
    fixture_finish(&f);
}
END_TEST

START_TEST(every_prefix_of_a_message_is_refused)
{
    static const char text[] =
        "{\"group\":\"\\u00e9\\ud83d\\ude00\",\"step\":\"41\",\"lengths\":[1,\"2\"],\"skipGradient\":true,"
        "\"tasks\":[{\"name\":\"\xc3\xa9\",\"logits\":[0.25,-1e-7,\"NaN\"],\"logScale\":null}]}";
    struct fixture f;

    fixture_init(&f);
    ck_assert_ptr_nonnull(decode_json(&f, REQUEST, text));
    for (size_t size = 0; size < sizeof text - 1; size++) {
        ck_assert_ptr_null(decode_json_bytes(&f, REQUEST, text, size));
        ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
    }
    fixture_finish(&f);
}
END_TEST

START_TEST(errors_name_the_field)
{
    static const struct {
        const char *text;
        const char *field;
    } cases[] = {
        {"{\"tasks\":[{},{\"logits\":[1,2,x]}]}", "tasks[1].logits[2]"},
        {"{\"tasks\":[{\"logScale\":\"x\"}]}", "tasks[0].log_scale"},
        {"{\"tasks\":[{\"nam\":1}]}", "tasks[0].nam"},
        {"{\"rank\":-1}", "rank"},
        {"{\"tasks\":[{}],\"tasks\":[]}", "tasks"},
        {"{\"tasks\":[{\"labels\":[1,1e39]}]}", "tasks[0].labels[1]"},
    };
    struct fixture f;

    fixture_init(&f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_ptr_null(decode_json(&f, REQUEST, cases[i].text));
        ck_assert_str_eq(f.err.field, cases[i].field);
    }
    fixture_finish(&f);
}
END_TEST

/* depth counts objects and arrays: {"tasks":[{"logits":[]}]} has four. */
START_TEST(the_depth_limit_can_be_reached_and_not_passed)
{
    struct fixture f;

    fixture_init(&f);
    f.limits.json_depth = 4;
    ck_assert_ptr_nonnull(decode_json(&f, REQUEST, "{\"tasks\":[{\"logits\":[1]}]}"));
    f.limits.json_depth = 3;
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"tasks\":[{\"logits\":[1]}]}"));
    ck_assert_int_eq(f.err.status, LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "json_depth");
    fixture_finish(&f);
}
END_TEST

START_TEST(unknown_members_are_skipped_where_that_is_asked_for)
{
    static const char text[] =
        "{\"x\":{\"a\":[1,{\"b\":\"]}\"}],\"c\":null},\"group\":\"g\",\"group\\u0000\":\"h\",\"y\":[],"
        "\"rank\":3,\"z\":1e999}";
    Lossd__V1__ComputeLossRequest *request;
    struct fixture f;

    fixture_init(&f);
    f.limits.ignore_unknown = true;
    request = decode_json(&f, REQUEST, text);
    ck_assert_ptr_nonnull(request);
    ck_assert_str_eq(request->group, "g");
    ck_assert_uint_eq(request->rank, 3);
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"x\":[1,]}"));
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"x\":{\"a\" 1}}"));
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"x\":\"\\ud800\"}"));
    f.limits.json_depth = 3;
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"x\":[[[]]]}"));
    ck_assert_int_eq(f.err.status, LOSSD_LIMIT_EXCEEDED);
    fixture_finish(&f);
}
END_TEST

/* {"tasks":[{"logits":[0, 1000 times]} 3 times, {"logits":[0, count times]}],"lengths":[]} */
static size_t write_lists(char *text, size_t count)
{
    char *p = stpcpy(text, "{\"tasks\":[");

    for (int list = 0; list < 4; list++) {
        p = stpcpy(p, list == 0 ? "{\"logits\":[0" : ",{\"logits\":[0");
        for (size_t i = 1; i < (list < 3 ? 1000 : count); i++)
            p = stpcpy(p, ",0");
        p = stpcpy(p, "]}");
    }
    return (size_t)(stpcpy(p, "],\"lengths\":[]}") - text);
}

/* The budget holds one chunk of the arena, which ends somewhere in the last arrays: also right before the empty one. */
START_TEST(a_scan_that_runs_out_of_memory_anywhere_is_an_error)
{
    const struct decode_limits limits = {.json_depth = 32};
    size_t outcomes[2] = {0};
    char text[9000];

    for (size_t count = 1; count <= 1000; count++) {
        const size_t size = write_lists(text, count);
        struct memory_budget budget = {.limit_bytes = 20000};
        struct json_scan scan;
        struct lossd_error err;
        struct arena arena;
        enum lossd_status status;

        arena_init(&arena, 1 << 20, &budget);
        status = json_scan(REQUEST, (const uint8_t *)text, size, &limits, &arena, &scan, &err);
        ck_assert(status == LOSSD_OK || status == LOSSD_LIMIT_EXCEEDED);
        for (size_t i = 0; status == LOSSD_OK && i < scan.num_cuts; i++)
            ck_assert_ptr_nonnull(scan.cuts[i].values);
        outcomes[status != LOSSD_OK]++;
        arena_finish(&arena);
    }
    ck_assert(outcomes[0] > 0 && outcomes[1] > 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_scan");
    TCase *tcase = tcase_create("all");

    tcase_add_loop_test(tcase, texts_of_the_grammar_are_accepted, 0, (int)(sizeof accepted / sizeof accepted[0]));
    tcase_add_loop_test(tcase, other_texts_are_refused_with_the_offset, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tcase, every_prefix_of_a_message_is_refused);
    tcase_add_test(tcase, errors_name_the_field);
    tcase_add_test(tcase, the_depth_limit_can_be_reached_and_not_passed);
    tcase_add_test(tcase, unknown_members_are_skipped_where_that_is_asked_for);
    tcase_add_test(tcase, a_scan_that_runs_out_of_memory_anywhere_is_an_error);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
