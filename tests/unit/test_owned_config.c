/* A group's config with its canonical bytes and their digest. */
#include "transport/owned_config.h"

#include <string.h>

#include "codec/message.h"
#include "support/runner.h"

/* The status; *config is set for LOSSD_OK alone. */
static enum lossd_status make(const char *json, struct owned_config **config, struct lossd_error *err)
{
    static const struct decode_limits limits = {.json_depth = 32};
    enum lossd_status status;
    ProtobufCMessage *message;
    struct arena arena;

    error_init(err);
    *config = NULL;
    arena_init(&arena, 1 << 20, NULL);
    status = message_decode(CODEC_JSON, &lossd__v1__group_config__descriptor, (const uint8_t *)json, strlen(json),
                            &limits, &arena, &message, err);
    ck_assert_msg(status == LOSSD_OK, "%s: %s", err->field, err->message);
    status = owned_config_from_message((const Lossd__V1__GroupConfig *)message, 4, 2, config, err);
    arena_finish(&arena);
    return status;
}

#define TASK "{\"tasks\": [{\"name\": \"click\", \"losses\": [{\"binaryCrossEntropy\": {}}]}]}"
#define SAME_TASK                                                                                                      \
    "{\"globalAverage\": true, \"stepTimeoutMs\": 120000, \"tasks\": [{\"name\": \"click\", \"weight\": 1, "           \
    "\"losses\": [{\"weight\": 1.0, \"binaryCrossEntropy\": {\"labelSmoothing\": 0}}]}]}"
#define HEAVIER_TASK "{\"tasks\": [{\"name\": \"click\", \"weight\": 2.5, \"losses\": [{\"binaryCrossEntropy\": {}}]}]}"

START_TEST(what_is_left_out_and_what_is_spelt_out_has_one_digest)
{
    struct owned_config *one;
    struct owned_config *two;
    struct lossd_error err;

    ck_assert_int_eq(make(TASK, &one, &err), LOSSD_OK);
    ck_assert_int_eq(make(SAME_TASK, &two, &err), LOSSD_OK);
    ck_assert_uint_eq(strlen(one->digest), 64);
    ck_assert_str_eq(one->digest, two->digest);
    ck_assert_uint_eq(one->blob.size, two->blob.size);
    ck_assert_mem_eq(one->blob.bytes, two->blob.bytes, one->blob.size);
    ck_assert_str_eq(one->config.tasks[0].name, "click");
    ck_assert_uint_eq(one->config.first_step_timeout_ms, 600000);
    owned_config_destroy(one);
    owned_config_destroy(two);
}
END_TEST

START_TEST(a_difference_is_named_with_both_values)
{
    struct owned_config *one;
    struct owned_config *two;
    struct lossd_error err;
    const char *key;
    const char *value;
    size_t cursor = 0;

    ck_assert_int_eq(make(TASK, &one, &err), LOSSD_OK);
    ck_assert_int_eq(make(HEAVIER_TASK, &two, &err), LOSSD_OK);
    ck_assert_str_ne(one->digest, two->digest);
    ck_assert_int_eq(owned_config_mismatch(&two->blob, &one->blob, &err), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_int_eq(err.status, LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_str_eq(err.field, "config.tasks[0].weight");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "mine");
    ck_assert_str_eq(value, "2.5");
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "first_seen");
    ck_assert_ptr_nonnull(strchr(value, '1'));
    ck_assert_ptr_nonnull(strstr(err.message, "2.5"));
    owned_config_destroy(one);
    owned_config_destroy(two);
}
END_TEST

START_TEST(a_value_out_of_range_is_refused_with_its_path)
{
    struct owned_config *config;
    struct lossd_error err;

    ck_assert_int_eq(make("{\"tasks\": [{\"name\": \"click\", \"losses\": "
                          "[{\"binaryCrossEntropy\": {\"labelSmoothing\": 1.5}}]}]}",
                          &config, &err),
                     LOSSD_INVALID_CONFIG);
    ck_assert_str_eq(err.field, "tasks[0].losses[0].binary_cross_entropy.label_smoothing");
    ck_assert_ptr_null(config);
}
END_TEST

START_TEST(more_losses_than_the_limit_are_refused)
{
    struct owned_config *config;
    struct lossd_error err;

    ck_assert_int_eq(
        make("{\"tasks\": [{\"name\": \"a\", \"losses\": [{\"l2Loss\": {}}, {\"l2Loss\": {}}]}]}", &config, &err),
        LOSSD_OK);
    owned_config_destroy(config);
    ck_assert_int_eq(
        make("{\"tasks\": [{\"name\": \"a\", \"losses\": [{\"l2Loss\": {}}, {\"l2Loss\": {}}, {\"l2Loss\": {}}]}]}",
             &config, &err),
        LOSSD_LIMIT_EXCEEDED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("owned_config");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, what_is_left_out_and_what_is_spelt_out_has_one_digest);
    tcase_add_test(tcase, a_difference_is_named_with_both_values);
    tcase_add_test(tcase, a_value_out_of_range_is_refused_with_its_path);
    tcase_add_test(tcase, more_losses_than_the_limit_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
