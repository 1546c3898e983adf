/* The table of codecs, protobuf bodies good and bad, differences of messages. */
#include "codec/message.h"

#include <stdlib.h>
#include <string.h>

#include "codec_support.h"
#include "kinds.pb-c.h"
#include "support/runner.h"

#define REQUEST (&lossd__v1__compute_loss_request__descriptor)
#define KINDS   (&lossd__test__kinds__descriptor)

START_TEST(media_types_are_found_whatever_their_case)
{
    enum codec_kind kind = CODEC_JSON;

    ck_assert(codec_from_media_type("application/proto", 17, &kind) && kind == CODEC_PROTO);
    ck_assert(codec_from_media_type("Application/JSON; charset=utf-8", 16, &kind) && kind == CODEC_JSON);
    ck_assert(!codec_from_media_type("application/jso", 15, &kind));
    ck_assert(!codec_from_media_type("", 0, &kind));
    ck_assert(!codec_from_media_type("text/plain", 10, &kind));
    ck_assert(codec_from_name("proto", &kind) && kind == CODEC_PROTO);
    ck_assert(codec_from_name("json", &kind) && kind == CODEC_JSON);
    ck_assert(!codec_from_name("JSON", &kind));
    ck_assert_str_eq(codec_media_type(CODEC_JSON), "application/json");
    ck_assert_str_eq(codec_media_type(CODEC_PROTO), "application/proto");
}
END_TEST

/* Bytes as they stand on the wire, and what they mean. Tags: field << 3 | wire type. */
#define BYTES(text) text, sizeof text - 1

static const struct {
    const char *bytes;
    size_t size;
    const char *json;
} understood[] = {
    {BYTES(""), "{}"},
    {BYTES("\x08\x01"), "{\"anInt32\":1}"},
    {BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "{\"anInt32\":-1}"},
    {BYTES("\x08\x81\x80\x00"), "{\"anInt32\":1}"},
    {BYTES("\x08\x01\x08\x02"), "{\"anInt32\":2}"},
    {BYTES("\x5d\x00\x00\x80\x3f"), "{\"aFloat\":1}"},
    {BYTES("\x72\x02hi"), "{\"aString\":\"hi\"}"},
    {BYTES("\x80\x01\x05"), "{\"anEnum\":5}"},
    /* packed, not packed, and both in turn */
    {BYTES("\xa2\x01\x03\x01\x02\x03"), "{\"int32s\":[1,2,3]}"},
    {BYTES("\xa0\x01\x01\xa0\x01\x02\xa0\x01\x03"), "{\"int32s\":[1,2,3]}"},
    {BYTES("\xa0\x01\x01\xa2\x01\x02\x02\x03\xa0\x01\x04"), "{\"int32s\":[1,2,3,4]}"},
    {BYTES("\xa0\x01\x01\x08\x07\xa0\x01\x02"), "{\"anInt32\":7,\"int32s\":[1,2]}"},
    {BYTES("\xb2\x01\x02\x01\x02"), "{\"sint64s\":[\"-1\",\"1\"]}"},
    {BYTES("\x95\x01\x00\x00\x80\x3f\x95\x01\x00\x00\x00\x40"), "{\"floats\":[1,2]}"},
    /* unknown: number, 64 bit, bytes, group with a group in it, 32 bit; a known field with a foreign wire type */
    {BYTES("\xa0\x06\x01\x08\x01"), "{\"anInt32\":1}"},
    {BYTES("\xa1\x06zzzzzzzz\xa2\x06\x03zzz\xa5\x06zzzz\x08\x01"), "{\"anInt32\":1}"},
    {BYTES("\xa3\x06\x08\x05\xab\x06\xac\x06\x12\x01z\xa4\x06\x08\x01"), "{\"anInt32\":1}"},
    {BYTES("\x0d\x01\x00\x00\x00\x08\x01"), "{\"anInt32\":1}"},
    /* a message in several parts is one message */
    {BYTES("\x8a\x01\x02\x08\x01\x8a\x01\x03\x72\x01x"), "{\"inner\":{\"anInt32\":1,\"aString\":\"x\"}}"},
    {BYTES("\x8a\x01\x02\x08\x01\x8a\x01\x02\x08\x02"), "{\"inner\":{\"anInt32\":2}}"},
    {BYTES("\x8a\x01\x05\x8a\x01\x02\x08\x01\x8a\x01\x06\x8a\x01\x03\x72\x01x"),
     "{\"inner\":{\"inner\":{\"anInt32\":1,\"aString\":\"x\"}}}"},
    {BYTES("\x8a\x01\x04\xa2\x01\x01\x01\x8a\x01\x04\xa2\x01\x01\x02"), "{\"inner\":{\"int32s\":[1,2]}}"},
    {BYTES("\x8a\x01\x03\xa0\x01\x01\x08\x05\x8a\x01\x03\xa0\x01\x02"), "{\"anInt32\":5,\"inner\":{\"int32s\":[1,2]}}"},
    /* of a oneof the last counts; its own message is merged, unless another came between */
    {BYTES("\xe0\x01\x01\xea\x01\x01x"), "{\"oneText\":\"x\"}"},
    {BYTES("\xea\x01\x01x\xe0\x01\x01"), "{\"oneNumber\":1}"},
    {BYTES("\xf2\x01\x02\x08\x01\xf2\x01\x03\x72\x01x"), "{\"oneInner\":{\"anInt32\":1,\"aString\":\"x\"}}"},
    {BYTES("\xf2\x01\x02\x08\x01\xe0\x01\x07\xf2\x01\x03\x72\x01x"), "{\"oneInner\":{\"aString\":\"x\"}}"},
    {BYTES("\xf2\x01\x02\x08\x01\xf2\x01\x03\x72\x01x\xe0\x01\x07"), "{\"oneNumber\":7}"},
    {BYTES("\xda\x01\x00\xda\x01\x02\x68\x01"), "{\"inners\":[{},{\"aBool\":true}]}"},
};

static const struct {
    const char *bytes;
    size_t size;
    const char *offset;
    const char *field;
} broken[] = {
    {BYTES("\x08"), "1", ""},
    {BYTES("\x08\x80"), "1", ""},
    {BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "1", ""},
    {BYTES("\x00\x01"), "1", ""},
    {BYTES("\x0f\x01"), "1", ""},
    {BYTES("\x80\x80\x80\x80\x80\x01"), "0", ""},
    {BYTES("\xff\xff\xff\xff\x1f\x01"), "0", ""},
    {BYTES("\x5d\x00\x00\x80"), "1", ""},
    {BYTES("\x72\x03hi"), "1", ""},
    {BYTES("\x72\xff\xff\xff\xff\x0fhi"), "1", ""},
    {BYTES("\x72\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01hi"), "1", ""},
    {BYTES("\x72\x03h\x00i"), "0", "a_string"},
    {BYTES("\x72\x01\xff"), "0", "a_string"},
    {BYTES("\x08\x01\xc2\x01\x01x\xc2\x01\x01\xff"), "6", "strings[1]"},
    {BYTES("\x8a\x01\x03\x72\x01\x80"), "3", "inner.a_string"},
    {BYTES("\xda\x01\x00\xda\x01\x03\x72\x01\x80"), "6", "inners[1].a_string"},
    {BYTES("\x8a\x01\x02\x08"), "2", ""},
    {BYTES("\x8a\x01\x01\x08"), "4", "inner"},
    {BYTES("\x92\x01\x03\x00\x00\x00"), "0", "floats"},
    {BYTES("\xa2\x01\x01\x80"), "3", "int32s"},
    {BYTES("\x0c"), "1", ""},
    {BYTES("\xa3\x06\x08\x01"), "4", ""},
    {BYTES("\xa3\x06\xac\x06"), "4", ""},
};

START_TEST(what_is_on_the_wire_is_understood)
{
    struct fixture f;
    void *message;

    fixture_init(&f);
    message = decode_proto(&f, KINDS, understood[_i].bytes, understood[_i].size);
    ck_assert_msg(message != NULL, "%s: %s", understood[_i].json, f.err.message);
    ck_assert_str_eq(encode_json(&f, message), understood[_i].json);
    fixture_finish(&f);
}
END_TEST

START_TEST(broken_bodies_are_refused_with_field_and_offset)
{
    struct fixture f;

    fixture_init(&f);
    ck_assert_ptr_null(decode_proto(&f, KINDS, broken[_i].bytes, broken[_i].size));
    ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(f.err.field, broken[_i].field);
    ck_assert_str_eq(error_metadata(&f.err, "offset"), broken[_i].offset);
    fixture_finish(&f);
}
END_TEST

/* Field 17 of itself, depth times. bytes has room for 5 * depth. Returns the size. */
static size_t nest(uint8_t *bytes, int depth)
{
    size_t size = 0;

    while (depth-- > 0) {
        const uint8_t head[5] = {0x8a, 0x01, (uint8_t)(size & 0x7f) | 0x80, (uint8_t)(size >> 7 & 0x7f) | 0x80,
                                 (uint8_t)(size >> 14)};

        memmove(bytes + sizeof head, bytes, size);
        memcpy(bytes, head, sizeof head);
        size += sizeof head;
    }
    return size;
}

START_TEST(messages_nested_too_deep_are_refused)
{
    uint8_t bytes[5 * 100];
    struct fixture f;

    fixture_init(&f);
    ck_assert_ptr_nonnull(decode_proto(&f, KINDS, bytes, nest(bytes, 99)));
    ck_assert_ptr_null(decode_proto(&f, KINDS, bytes, nest(bytes, 100)));
    ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
    fixture_finish(&f);
}
END_TEST

static const char sample[] =
    "{\"anInt32\":-1,\"aFixed64\":\"7\",\"aFloat\":0.1,\"aString\":\"a\",\"someBytes\":\"AP+/"
    "\",\"anEnum\":\"KIND_TWO\","
    "\"inner\":{\"inner\":{\"aString\":\"x\"}},\"floats\":[1,0.5,\"NaN\",-1.25e-30],\"int32s\":[-1,0,1],"
    "\"uint64s\":[\"0\",\"18446744073709551615\"],\"sint64s\":[\"-3\",\"4\"],\"strings\":[\"\",\"a\"],"
    "\"inners\":[{},{\"aBool\":true}],\"oneInner\":{}}";

START_TEST(both_codecs_carry_the_same)
{
    struct encoded encoded;
    struct fixture f;
    void *message;

    fixture_init(&f);
    message = decode_json(&f, KINDS, sample);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message_encode(CODEC_PROTO, message, false, &encoded, &f.err), LOSSD_OK);
    message = decode_proto(&f, KINDS, encoded.bytes, encoded.size);
    free(encoded.bytes);
    ck_assert_ptr_nonnull(message);
    ck_assert_str_eq(encode_json(&f, message), sample);
    fixture_finish(&f);
}
END_TEST

START_TEST(ten_thousand_mutations_are_accepted_or_refused_and_no_more)
{
    struct encoded seed;
    struct fixture f;
    uint64_t state = 777;
    int taken = 0;

    fixture_init(&f);
    ck_assert_int_eq(message_encode(CODEC_PROTO, decode_json(&f, KINDS, sample), false, &seed, &f.err), LOSSD_OK);
    fixture_finish(&f);
    for (int i = 0; i < 10000; i++) {
        uint8_t bytes[512];
        size_t size;
        void *message;

        fixture_init(&f);
        memcpy(bytes, seed.bytes, seed.size);
        size = mutate(&state, bytes, seed.size, seed.size + 8);
        message = decode_proto(&f, KINDS, bytes, size);
        if (message != NULL) {
            ck_assert_ptr_nonnull(decode_json(&f, KINDS, encode_json(&f, message)));
            taken++;
        } else {
            ck_assert_int_eq(f.err.status, LOSSD_MALFORMED_REQUEST);
        }
        fixture_finish(&f);
    }
    free(seed.bytes);
    ck_assert_int_gt(taken, 100);
    ck_assert_int_lt(taken, 9900);
}
END_TEST

/* Unknown fields are dropped, unpacked numbers packed: neither needs more than the body again. */
START_TEST(unknown_fields_and_unpacked_numbers_cost_no_more_than_their_bytes)
{
    enum { BODY = 2 << 20 };
    uint8_t *const body = malloc(BODY);
    Lossd__V1__ComputeLossRequest *request;
    struct fixture f;

    fixture_init(&f);
    f.arena.limit_bytes = 3 * BODY + 4096;
    for (size_t i = 0; i < BODY; i += 2)
        memcpy(body + i, "\x78\x01", 2);
    ck_assert_ptr_nonnull(decode_proto(&f, REQUEST, body, BODY));
    for (size_t i = 0; i < BODY; i += 2)
        memcpy(body + i, "\x28\x07", 2);
    fixture_finish(&f);
    request = decode_proto(&f, REQUEST, body, BODY);
    ck_assert_ptr_nonnull(request);
    ck_assert_uint_eq(request->n_lengths, BODY / 2);
    ck_assert_uint_eq(request->lengths[BODY / 2 - 1], 7);
    fixture_finish(&f);
    free(body);
}
END_TEST

START_TEST(empty_messages_by_the_million_end_at_the_limit)
{
    enum { BODY = 2 << 20 };
    uint8_t *const body = malloc(BODY);
    struct memory_budget budget = {.limit_bytes = 5 * BODY};
    struct fixture f;

    fixture_init(&f);
    f.arena.budget = &budget;
    f.arena.limit_bytes = 4 * BODY;
    for (size_t i = 0; i < BODY; i += 2)
        memcpy(body + i, "\x3a\x00", 2);
    ck_assert_ptr_null(decode_proto(&f, REQUEST, body, BODY));
    ck_assert_int_eq(f.err.status, LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "memory_bytes");
    fixture_finish(&f);
    free(body);
}
END_TEST

static const struct {
    const char *a;
    const char *b;
    const char *path; /* NULL: equal */
    const char *value_a;
    const char *value_b;
} differences[] = {
    {"{}", "{}", NULL, NULL, NULL},
    {"{\"anInt32\":1}", "{\"anInt32\":1}", NULL, NULL, NULL},
    {"{\"anInt32\":1}", "{\"anInt32\":2}", "an_int32", "1", "2"},
    {"{\"anInt32\":0}", "{}", "an_int32", "0", "null"},
    {"{\"aString\":\"a\"}", "{\"aString\":\"b\"}", "a_string", "\"a\"", "\"b\""},
    {"{\"someBytes\":\"YQ==\"}", "{\"someBytes\":\"\"}", "some_bytes", "\"YQ==\"", "\"\""},
    {"{\"anEnum\":\"KIND_TWO\"}", "{\"anEnum\":7}", "an_enum", "\"KIND_TWO\"", "7"},
    {"{\"inner\":{\"aBool\":true}}", "{\"inner\":{\"aBool\":false}}", "inner.a_bool", "true", "false"},
    {"{\"inner\":{}}", "{}", "inner", "{}", "null"},
    {"{\"floats\":[1,2]}", "{\"floats\":[1,3]}", "floats[1]", "2", "3"},
    {"{\"floats\":[1,2]}", "{\"floats\":[1]}", "floats[1]", "2", "null"},
    {"{\"inners\":[{},{\"anInt64\":\"1\"}]}", "{\"inners\":[{},{\"anInt64\":\"2\"}]}", "inners[1].an_int64", "\"1\"",
     "\"2\""},
    {"{\"inners\":[{}]}", "{\"inners\":[{},{\"floats\":[1]}]}", "inners[1]", "null", "{\"floats\":[1]}"},
    {"{\"oneNumber\":1}", "{\"oneText\":\"x\"}", "one_number", "1", "null"},
    {"{\"anInt32\":1,\"aBool\":true}", "{\"aBool\":false,\"anInt32\":1}", "a_bool", "true", "false"},
};

START_TEST(the_first_difference_is_named)
{
    char path[64];
    char a[64];
    char b[64];
    struct fixture f;
    bool differ;

    fixture_init(&f);
    differ = message_diff(decode_json(&f, KINDS, differences[_i].a), decode_json(&f, KINDS, differences[_i].b), path,
                          sizeof path, a, sizeof a, b, sizeof b);
    ck_assert_int_eq(differ, differences[_i].path != NULL);
    if (differ) {
        ck_assert_str_eq(path, differences[_i].path);
        ck_assert_str_eq(a, differences[_i].value_a);
        ck_assert_str_eq(b, differences[_i].value_b);
    }
    fixture_finish(&f);
}
END_TEST

START_TEST(a_difference_that_is_too_long_is_cut)
{
    char path[8];
    char a[6];
    char b[1];
    struct fixture f;

    fixture_init(&f);
    ck_assert(message_diff(decode_json(&f, KINDS, "{\"inners\":[{\"aString\":\"abcdefgh\"}]}"),
                           decode_json(&f, KINDS, "{\"inners\":[{\"aString\":\"x\"}]}"), path, sizeof path, a, sizeof a,
                           b, sizeof b));
    ck_assert_str_eq(path, "inners[");
    ck_assert_str_eq(a, "\"abcd");
    ck_assert_str_eq(b, "");
    fixture_finish(&f);
}
END_TEST

#define ADD_TABLE(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof table[0]))

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, media_types_are_found_whatever_their_case);
    ADD_TABLE(tcase, what_is_on_the_wire_is_understood, understood);
    ADD_TABLE(tcase, broken_bodies_are_refused_with_field_and_offset, broken);
    tcase_add_test(tcase, messages_nested_too_deep_are_refused);
    tcase_add_test(tcase, both_codecs_carry_the_same);
    tcase_add_test(tcase, ten_thousand_mutations_are_accepted_or_refused_and_no_more);
    tcase_add_test(tcase, unknown_fields_and_unpacked_numbers_cost_no_more_than_their_bytes);
    tcase_add_test(tcase, empty_messages_by_the_million_end_at_the_limit);
    ADD_TABLE(tcase, the_first_difference_is_named, differences);
    tcase_add_test(tcase, a_difference_that_is_too_long_is_cut);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
