/* ProtoJSON out and back: names, presence, every kind of field, numbers, memory. */
#include "codec/protojson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "codec/base64.h"
#include "codec_support.h"
#include "kinds.pb-c.h"
#include "support/runner.h"

#define REQUEST (&lossd__v1__compute_loss_request__descriptor)
#define CONFIG  (&lossd__v1__daemon_config__descriptor)
#define KINDS   (&lossd__test__kinds__descriptor)

/* Texts that come out as they went in: canonical ProtoJSON. */
static const char *const canonical[] = {
    "{}",
    "{\"anInt32\":-2147483648,\"aSint32\":2147483647,\"aSfixed32\":-1,\"aUint32\":4294967295,\"aFixed32\":0}",
    "{\"anInt64\":\"-9223372036854775808\",\"aSint64\":\"-1\",\"aSfixed64\":\"0\",\"aUint64\":\"18446744073709551615\","
    "\"aFixed64\":\"1\"}",
    "{\"aFloat\":0.1,\"aDouble\":0.1,\"aBool\":false}",
    "{\"aFloat\":\"NaN\",\"aDouble\":\"-Infinity\",\"aBool\":true}",
    "{\"aFloat\":-0.0,\"aDouble\":1.7976931348623157e+308}",
    "{\"aString\":\"\",\"someBytes\":\"\",\"anEnum\":\"KIND_ZERO\"}",
    "{\"aString\":\"a/\\\"\\\\\\n\\u0001é😀\",\"someBytes\":\"AP+/\",\"anEnum\":\"KIND_TWO\"}",
    "{\"anEnum\":7}",
    "{\"inner\":{}}",
    "{\"inner\":{\"inner\":{\"aString\":\"x\"}}}",
    "{\"floats\":[1,0.5,\"NaN\",\"Infinity\",-1.25e-30],\"doubles\":[0.1,1e+300]}",
    "{\"int32s\":[-1,0,1],\"uint64s\":[\"0\",\"18446744073709551615\"],\"sint64s\":[\"-1\"],\"bools\":[true,false]}",
    "{\"strings\":[\"\",\"a\"],\"bytesList\":[\"\",\"YQ==\"],\"enums\":[\"KIND_TWO\",\"KIND_ZERO\"],\"inners\":[{},{"
    "\"aBool\":true}]}",
    "{\"oneNumber\":0}",
    "{\"oneText\":\"\"}",
    "{\"oneInner\":{}}",
};

/* Texts that mean the same as the canonical one beside them. */
static const struct {
    const char *text;
    const char *canonical;
} equivalent[] = {
    {"{\"an_int32\":1}", "{\"anInt32\":1}"},
    {"{\"anInt32\":\"1\"}", "{\"anInt32\":1}"},
    {"{\"anInt64\":1}", "{\"anInt64\":\"1\"}"},
    {"{\"anInt64\":1e3}", "{\"anInt64\":\"1000\"}"},
    {"{\"aFloat\":\"0.5\"}", "{\"aFloat\":0.5}"},
    {"{\"aFloat\":0.10000000149011612}", "{\"aFloat\":0.1}"},
    {"{\"anEnum\":2}", "{\"anEnum\":\"KIND_TWO\"}"},
    {"{\"enums\":[0,\"KIND_TWO\",2]}", "{\"enums\":[\"KIND_ZERO\",\"KIND_TWO\",\"KIND_TWO\"]}"},
    {"{\"someBytes\":\"AP-_\"}", "{\"someBytes\":\"AP+/\"}"},
    {"{\"someBytes\":\"YQ\"}", "{\"someBytes\":\"YQ==\"}"},
    {"{\"aString\":null,\"inner\":null,\"floats\":null,\"strings\":null,\"anEnum\":null}", "{}"},
    {"{\"strings\":[],\"floats\":[],\"inners\":[]}", "{}"},
    {"{\"oneNumber\":null,\"oneText\":\"a\"}", "{\"oneText\":\"a\"}"},
    {"{\"aString\":\"\\u0061\\/\"}", "{\"aString\":\"a/\"}"},
    {"{\"aBool\":true,\"anInt32\":1}", "{\"anInt32\":1,\"aBool\":true}"},
};

static const char *const refused[] = {
    "{\"aString\":\"a\\u0000b\"}",
    "{\"someBytes\":\"A\"}",
    "{\"someBytes\":\"A===\"}",
    "{\"someBytes\":\"AA=A\"}",
    "{\"someBytes\":\"AA A\"}",
    "{\"someBytes\":\"A\\u0000==\"}",
    "{\"anEnum\":\"KIND_THREE\"}",
    "{\"anEnum\":\"KIND_TWO\\u0000\"}",
    "{\"anEnum\":1.5}",
    "{\"anEnum\":2147483648}",
    "{\"anEnum\":99999999999999999999}",
    "{\"anEnum\":1e400}",
    "{\"enums\":[null]}",
    "{\"strings\":[null]}",
    "{\"inners\":[null]}",
    "{\"bools\":[1]}",
    "{\"oneNumber\":1,\"oneText\":\"a\"}",
    "{\"oneInner\":{},\"oneNumber\":0}",
    "{\"inner\":[]}",
};

START_TEST(canonical_text_comes_back_unchanged)
{
    struct fixture f;
    void *message;

    fixture_init(&f);
    message = decode_json(&f, KINDS, canonical[_i]);
    ck_assert_msg(message != NULL, "%s: %s: %s", canonical[_i], f.err.field, f.err.message);
    ck_assert_str_eq(encode_json(&f, message), canonical[_i]);
    fixture_finish(&f);
}
END_TEST

START_TEST(other_spellings_mean_the_same)
{
    struct fixture f;
    void *message;

    fixture_init(&f);
    message = decode_json(&f, KINDS, equivalent[_i].text);
    ck_assert_msg(message != NULL, "%s: %s", equivalent[_i].text, f.err.message);
    ck_assert_str_eq(encode_json(&f, message), equivalent[_i].canonical);
    fixture_finish(&f);
}
END_TEST

START_TEST(values_that_are_none_of_their_type_are_refused)
{
    struct fixture f;

    fixture_init(&f);
    ck_assert_msg(decode_json(&f, KINDS, refused[_i]) == NULL, "%s", refused[_i]);
    ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
    ck_assert_msg(f.err.field[0] != '\0', "%s", refused[_i]);
    fixture_finish(&f);
}
END_TEST

START_TEST(absent_fields_have_their_default_and_are_not_present)
{
    Lossd__V1__ComputeLossRequest *request;
    Lossd__V1__DaemonConfig *config;
    struct fixture f;

    fixture_init(&f);
    request = decode_json(&f, REQUEST, "{}");
    ck_assert(!request->has_step && !request->has_gradient_scale);
    ck_assert(request->gradient_scale == 1.0f);
    request = decode_json(&f, REQUEST, "{\"step\":0,\"rank\":0}");
    ck_assert(request->has_step && request->has_rank && request->step == 0);
    config = decode_json(&f, CONFIG, "{\"limits\":{}}");
    ck_assert_uint_eq(config->limits->json_body_bytes, 8388608);
    ck_assert_str_eq(config->log_level, "info");
    ck_assert_str_eq(encode_json(&f, config), "{\"limits\":{}}");
    fixture_finish(&f);
}
END_TEST

START_TEST(names_that_an_enum_lacks_are_skipped_with_unknown_fields)
{
    struct fixture f;

    fixture_init(&f);
    f.limits.ignore_unknown = true;
    ck_assert_str_eq(encode_json(&f, decode_json(&f, KINDS, "{\"anEnum\":\"X\",\"enums\":[\"X\",\"KIND_TWO\",\"Y\"]}")),
                     "{\"enums\":[\"KIND_TWO\"]}");
    fixture_finish(&f);
}
END_TEST

START_TEST(pretty_text_is_indented_and_keeps_number_arrays_on_a_line)
{
    struct encoded encoded;
    struct fixture f;
    void *message;

    fixture_init(&f);
    message = decode_json(&f, REQUEST, "{\"group\":\"g\",\"lengths\":[1,2],\"tasks\":[{\"logits\":[0.5,1]}]}");
    ck_assert_int_eq(message_encode(CODEC_JSON, message, true, &encoded, &f.err), LOSSD_OK);
    ck_assert_str_eq((const char *)encoded.bytes,
                     "{\n  \"group\": \"g\",\n  \"lengths\": [1, 2],\n  \"tasks\": [\n    {\n"
                     "      \"logits\": [0.5, 1]\n    }\n  ]\n}");
    free(encoded.bytes);
    fixture_finish(&f);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_not_written)
{
    static char bad[] = "\xff";
    Lossd__V1__ComputeLossRequest request = LOSSD__V1__COMPUTE_LOSS_REQUEST__INIT;
    struct encoded encoded;
    struct fixture f;

    fixture_init(&f);
    request.group = bad;
    ck_assert_int_eq(message_encode(CODEC_JSON, &request.base, false, &encoded, &f.err), LOSSD_INTERNAL);
    ck_assert_int_eq(message_encode(CODEC_PROTO, &request.base, false, &encoded, &f.err), LOSSD_INTERNAL);
    fixture_finish(&f);
}
END_TEST

/* RFC 4648, section 10. */
START_TEST(base64_agrees_with_its_rfc)
{
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < 7; i++) {
        const uint8_t *bytes = (const uint8_t *)vectors[i][0];
        uint8_t back[16];
        char text[16];
        size_t size;

        ck_assert_uint_eq(base64_encode(bytes, i, true, text), strlen(vectors[i][1]));
        ck_assert_str_eq(text, vectors[i][1]);
        ck_assert(base64_decode(text, strlen(text), back, &size));
        ck_assert_uint_eq(size, i);
        ck_assert_mem_eq(back, bytes, i);
    }
}
END_TEST

START_TEST(ten_thousand_mutations_are_accepted_or_refused_and_no_more)
{
    static const char seed[] =
        "{\"anInt32\":-1,\"aString\":\"a\\u00e9\\ud83d\\ude00\xc3\xa9\",\"someBytes\":\"AP+/\",\"anEnum\":\"KIND_TWO\","
        "\"inner\":{\"inner\":{\"aString\":\"x\"}},\"floats\":[1,0.5,\"NaN\",-1.25e-30],\"int32s\":[-1,0,1],"
        "\"uint64s\":[\"0\",\"18446744073709551615\"],\"strings\":[\"\",\"a\"],\"inners\":[{},{\"aBool\":true}],"
        "\"enums\":[\"KIND_TWO\",0],\"oneInner\":{}}";
    uint64_t state = 20240607;
    int taken = 0;

    for (int i = 0; i < 10000; i++) {
        uint8_t text[sizeof seed + 8];
        struct fixture f;
        size_t size;
        void *message;

        fixture_init(&f);
        f.limits.ignore_unknown = i % 2 == 1;
        memcpy(text, seed, sizeof seed - 1);
        size = mutate(&state, text, sizeof seed - 1, sizeof text);
        message = decode_json_bytes(&f, KINDS, text, size);
        if (message != NULL) {
            ck_assert_str_eq(encode_json(&f, decode_json(&f, KINDS, encode_json(&f, message))),
                             encode_json(&f, message));
            taken++;
        } else {
            ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
        }
        fixture_finish(&f);
    }
    ck_assert_int_gt(taken, 100);
    ck_assert_int_lt(taken, 9000);
}
END_TEST

/* Bodies that json-c alone would blow up to up to 264 times their size. */
static const struct {
    const char *open;
    const char *element;
    const char *close;
} bombs[] = {
    {"{\"tasks\":[", "{},", "{}]}"},
    {"{\"tasks\":[", "{\"name\":\"\"},", "{}]}"},
    {"{\"tasks\":[{\"logits\":[", "0,", "0]}]}"},
    {"{\"labelBits\":[", "0,", "0]}"},
    {"{\"labelBits\":[", "\"0\",", "0]}"},
    {"{\"lengths\":[", "0.1e1,", "0]}"},
    {"{\"tasks\":[{\"logits\":[", "8.5e-40,", "0]}]}"},
    {"{\"tasks\":[{\"logits\":[", "16777217,", "0]}]}"},
    {"{\"tasks\":[{\"logits\":[0.", "1", "]}]}"},
    {"{\"group\":\"", "a", "\"}"},
    {"{\"group\":\"", "\\n", "\"}"},
    {"{\"group\":\"", "\\u00e9", "\"}"},
    {"{\"x\":[", "[],", "[]]}"},
    {"{", "\"a\":0,", "\"b\":0}"},
    {"{\"x\":", "[", ""},
    {"{\"tasks\":[", "{\"logits\":[", ""},
};

static long peak_kib(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* 4 times the body beside the body itself, and 1 MiB for what any process needs. */
START_TEST(no_body_takes_more_than_four_times_its_size)
{
    enum { BODY = 6 << 20 };
    const size_t step = strlen(bombs[_i].element);
    struct lossd_error *err = calloc(1, sizeof *err);
    const struct decode_limits limits = {.json_depth = 32, .ignore_unknown = true};
    char *const body = malloc(BODY + 64);
    size_t size = strlen(strcpy(body, bombs[_i].open));
    ProtobufCMessage *message;
    struct arena arena;
    long before;

    for (; size + step < BODY; size += step)
        memcpy(body + size, bombs[_i].element, step);
    size += strlen(strcpy(body + size, bombs[_i].close));
    arena_init(&arena, 4 * size + (1 << 20), NULL);
    before = peak_kib();
    (void)!message_decode(CODEC_JSON, REQUEST, (uint8_t *)body, size, &limits, &arena, &message, err);
    ck_assert_msg(err->status == LOSSD_OK || err->status == LOSSD_LIMIT_EXCEEDED ||
                      err->status == LOSSD_MALFORMED_REQUEST,
                  "%s", err->message);
    if (getenv("LOSSD_TEST_SANITIZED") == NULL)
        ck_assert_msg(peak_kib() - before <= (long)(4 * size >> 10) + 1024, "%ld KiB more for %zu KiB of %s",
                      peak_kib() - before, size >> 10, bombs[_i].element);
    arena_finish(&arena);
    free(body);
    free(err);
}
END_TEST

START_TEST(a_full_arena_is_an_error_with_the_name_of_the_limit)
{
    struct fixture f;

    fixture_init(&f);
    f.arena.limit_bytes = 3000;
    ck_assert_ptr_null(decode_json(&f, REQUEST, "{\"group\":\"a\"}"));
    ck_assert_int_eq(f.err.status, LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "memory_bytes");
    fixture_finish(&f);
}
END_TEST

START_TEST(what_json_c_held_is_given_back_to_the_budget)
{
    struct memory_budget budget = {.limit_bytes = 1 << 20};
    struct fixture f;
    size_t used;

    fixture_init(&f);
    f.arena.budget = &budget;
    ck_assert_ptr_nonnull(decode_json(&f, REQUEST, "{\"group\":\"a\",\"tasks\":[{},{},{}]}"));
    used = f.arena.used_bytes;
    ck_assert_uint_lt(used, 2000);
    fixture_finish(&f);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

#define ADD_TABLE(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof table[0]))

int main(void)
{
    Suite *suite = suite_create("protojson");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 120);
    ADD_TABLE(tcase, canonical_text_comes_back_unchanged, canonical);
    ADD_TABLE(tcase, other_spellings_mean_the_same, equivalent);
    ADD_TABLE(tcase, values_that_are_none_of_their_type_are_refused, refused);
    tcase_add_test(tcase, absent_fields_have_their_default_and_are_not_present);
    tcase_add_test(tcase, names_that_an_enum_lacks_are_skipped_with_unknown_fields);
    tcase_add_test(tcase, pretty_text_is_indented_and_keeps_number_arrays_on_a_line);
    tcase_add_test(tcase, text_that_is_not_utf8_is_not_written);
    tcase_add_test(tcase, base64_agrees_with_its_rfc);
    tcase_add_test(tcase, ten_thousand_mutations_are_accepted_or_refused_and_no_more);
    ADD_TABLE(tcase, no_body_takes_more_than_four_times_its_size, bombs);
    tcase_add_test(tcase, a_full_arena_is_an_error_with_the_name_of_the_limit);
    tcase_add_test(tcase, what_json_c_held_is_given_back_to_the_budget);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
