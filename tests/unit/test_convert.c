/* Messages into batches and configurations and back. */
#include "codec/convert.h"

#include <string.h>

#include "codec_support.h"
#include "support/runner.h"

#define REQUEST (&lossd__v1__compute_loss_request__descriptor)
#define GROUP   (&lossd__v1__group_config__descriptor)

START_TEST(a_batch_points_into_its_message)
{
    Lossd__V1__ComputeLossRequest *request;
    struct fixture f;
    struct batch batch;

    fixture_init(&f);
    request = decode_json(&f, REQUEST,
                          "{\"lengths\":[2,1],\"labelBits\":[\"1\",\"2\",\"3\"],\"skipGradient\":true,"
                          "\"tasks\":[{\"name\":\"a\",\"logits\":[1,2,3],\"labels\":[0,1,0],\"logScale\":0.5},"
                          "{\"name\":\"b\",\"weights\":[1],\"sessions\":[7],\"taskSpace\":[1,1]}]}");
    ck_assert_int_eq(batch_from_message(request, &f.arena, &batch, &f.err), LOSSD_OK);
    ck_assert_ptr_eq(batch.lengths, request->lengths);
    ck_assert_uint_eq(batch.num_lengths, 2);
    ck_assert_uint_eq(batch.num_label_bits, 3);
    ck_assert_uint_eq(batch.label_bits[2], 3);
    ck_assert(batch.skip_gradient);
    ck_assert(batch.gradient_scale == 1.0f);
    ck_assert_uint_eq(batch.num_tasks, 2);
    ck_assert_str_eq(batch.tasks[0].name, "a");
    ck_assert_ptr_eq(batch.tasks[0].logits, request->tasks[0]->logits);
    ck_assert_uint_eq(batch.tasks[0].num_labels, 3);
    ck_assert(batch.tasks[0].has_log_scale && batch.tasks[0].log_scale == 0.5);
    ck_assert(!batch.tasks[1].has_log_scale);
    ck_assert_ptr_null(batch.tasks[1].logits);
    ck_assert_uint_eq(batch.tasks[1].num_weights, 1);
    ck_assert_int_eq(batch.tasks[1].sessions[0], 7);
    ck_assert_uint_eq(batch.tasks[1].num_task_space, 2);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_task_without_a_name_is_refused)
{
    struct fixture f;
    struct batch batch;

    fixture_init(&f);
    ck_assert_int_eq(
        batch_from_message(decode_json(&f, REQUEST, "{\"tasks\":[{\"name\":\"a\"},{}]}"), &f.arena, &batch, &f.err),
        LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(f.err.field, "tasks[1].name");
    fixture_finish(&f);
}
END_TEST

START_TEST(sixty_four_tasks_are_taken_and_one_more_is_refused)
{
    char text[4096] = "{\"tasks\":[";
    struct fixture f;
    struct batch batch;

    fixture_init(&f);
    for (int i = 0; i < MAX_TASKS; i++)
        strcat(text, i == 0 ? "{\"name\":\"a\"}" : ",{\"name\":\"a\"}");
    strcat(text, "]}");
    ck_assert_int_eq(batch_from_message(decode_json(&f, REQUEST, text), &f.arena, &batch, &f.err), LOSSD_OK);
    strcpy(text + strlen(text) - 2, ",{}]}");
    ck_assert_int_eq(batch_from_message(decode_json(&f, REQUEST, text), &f.arena, &batch, &f.err),
                     LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "tasks");
    fixture_finish(&f);
}
END_TEST

START_TEST(a_result_is_written_with_its_zeros)
{
    float gradient[] = {0.25f, -0.5f};
    struct loss_term term = {"binary_cross_entropy", 1, 2, 3, 4, 5};
    struct task_result tasks[] = {
        {.name = "a", .loss = 0.5, .terms = &term, .num_terms = 1, .gradient = gradient, .num_gradient = 2},
        {.name = "b", .has_log_scale_gradient = true, .log_scale_gradient = -1},
    };
    const struct result result = {
        .step = 0,
        .loss = 0.5,
        .tasks = tasks,
        .num_tasks = 2,
        .local = {1, 2, 1},
        .world = {3, 4, 2},
        .request_factor = 0.5,
        .candidate_factor = 1,
    };
    Lossd__V1__ComputeLossResponse *response;
    struct fixture f;

    fixture_init(&f);
    ck_assert_int_eq(response_from_result(&result, &f.arena, &response, &f.err), LOSSD_OK);
    ck_assert_ptr_eq(response->tasks[0]->gradient, gradient);
    ck_assert_str_eq(
        encode_json(&f, response),
        "{\"step\":\"0\",\"loss\":0.5,\"tasks\":[{\"name\":\"a\",\"loss\":0.5,\"terms\":[{\"name\":"
        "\"binary_cross_entropy\",\"value\":1,\"localMean\":2,\"sum\":3,\"denominator\":4,\"factor\":5}],"
        "\"gradient\":[0.25,-0.5],\"nonfiniteUnits\":0},{\"name\":\"b\",\"loss\":0,\"logScaleGradient\":-1,"
        "\"nonfiniteUnits\":0}],\"local\":{\"requests\":1,\"candidates\":2,\"ranks\":1},"
        "\"world\":{\"requests\":3,\"candidates\":4,\"ranks\":2},\"requestFactor\":0.5,\"candidateFactor\":1,"
        "\"replayed\":false}");
    fixture_finish(&f);
}
END_TEST

static const char full_config[] =
    "{\"tasks\":[{\"name\":\"a\",\"numClass\":3,\"weight\":2,\"labelBitmask\":\"4\",\"lists\":\"LISTS_SESSIONS\","
    "\"inTaskSpaceWeight\":0.5,\"outTaskSpaceWeight\":0.25,\"losses\":["
    "{\"weight\":0.1,\"binaryCrossEntropy\":{\"labelSmoothing\":0.2}},"
    "{\"weight\":1,\"binaryFocalLoss\":{\"gamma\":3,\"alpha\":0.75,\"detachWeight\":false}},"
    "{\"weight\":1,\"softmaxCrossEntropy\":{\"labelSmoothing\":0.3,\"ignoreCounting\":\"IGNORE_COUNTING_ALL\"}},"
    "{\"weight\":1,\"jrcLoss\":{\"alpha\":0.6}},{\"weight\":1,\"l2Loss\":{}},"
    "{\"weight\":1,\"listwiseRankLoss\":{\"temperatureInit\":0.5,\"learnableTemperature\":false,"
    "\"target\":\"TARGET_SOFTMAX\",\"denominator\":\"DENOMINATOR_VALID\"}}]}],\"globalAverage\":false,"
    "\"gradReduce\":\"GRAD_REDUCE_SUM\",\"onNonfinite\":\"ON_NONFINITE_PROPAGATE\","
    "\"weightNormalizer\":\"WEIGHT_NORMALIZER_LOCAL\",\"stepTimeoutMs\":5,\"firstStepTimeoutMs\":6}";

static enum lossd_status read_config(struct fixture *f, const char *text, struct group_config *config)
{
    Lossd__V1__GroupConfig *message = decode_json(f, GROUP, text);

    ck_assert_msg(message != NULL, "%s: %s", f->err.field, f->err.message);
    return config_from_message(message, MAX_TASKS, MAX_LOSSES, &f->arena, config, &f->err);
}

static const char *canonical(struct fixture *f, const char *text)
{
    Lossd__V1__GroupConfig *message;
    struct group_config config;

    ck_assert_int_eq(read_config(f, text, &config), LOSSD_OK);
    ck_assert_int_eq(config_to_message(&config, &f->arena, &message, &f->err), LOSSD_OK);
    return encode_json(f, message);
}

START_TEST(a_full_config_comes_back_unchanged)
{
    struct fixture f;
    struct group_config config;

    fixture_init(&f);
    ck_assert_str_eq(canonical(&f, full_config), full_config);
    ck_assert_int_eq(read_config(&f, full_config, &config), LOSSD_OK);
    ck_assert(!config.global_average && config.grad_reduce == GRAD_REDUCE_SUM);
    ck_assert_int_eq(config.tasks[0].losses[5].kind, LOSS_LISTWISE_RANK);
    ck_assert_int_eq(config.tasks[0].losses[5].listwise_rank.target, TARGET_SOFTMAX);
    ck_assert_uint_eq(config.tasks[0].label_bitmask, 4);
    fixture_finish(&f);
}
END_TEST

START_TEST(defaults_are_filled_in_and_unspecified_means_the_default)
{
    static const char absent[] =
        "{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"softmaxCrossEntropy\":{}},{\"listwiseRankLoss\":{}},"
        "{\"binaryFocalLoss\":{}},{\"jrcLoss\":{}},{\"binaryCrossEntropy\":{}}]}]}";
    static const char unspecified[] =
        "{\"gradReduce\":0,\"onNonfinite\":0,\"weightNormalizer\":0,\"tasks\":[{\"name\":\"a\",\"lists\":0,\"losses\":["
        "{\"softmaxCrossEntropy\":{\"ignoreCounting\":0}},{\"listwiseRankLoss\":{\"target\":0,\"denominator\":0}},"
        "{\"binaryFocalLoss\":{}},{\"jrcLoss\":{}},{\"binaryCrossEntropy\":{}}]}]}";
    static const char filled[] =
        "{\"tasks\":[{\"name\":\"a\",\"numClass\":1,\"weight\":1,\"lists\":\"LISTS_REQUESTS\",\"inTaskSpaceWeight\":1,"
        "\"outTaskSpaceWeight\":1,\"losses\":[{\"weight\":1,\"softmaxCrossEntropy\":{\"labelSmoothing\":0,"
        "\"ignoreCounting\":\"IGNORE_COUNTING_KEPT\"}},{\"weight\":1,\"listwiseRankLoss\":{\"temperatureInit\":0.07,"
        "\"learnableTemperature\":true,\"target\":\"TARGET_MEAN_POSITIVE\",\"denominator\":\"DENOMINATOR_ALL\"}},"
        "{\"weight\":1,\"binaryFocalLoss\":{\"gamma\":2,\"alpha\":0.5,\"detachWeight\":true}},"
        "{\"weight\":1,\"jrcLoss\":{\"alpha\":0.5}},{\"weight\":1,\"binaryCrossEntropy\":{\"labelSmoothing\":0}}]}],"
        "\"globalAverage\":true,\"gradReduce\":\"GRAD_REDUCE_MEAN\",\"onNonfinite\":\"ON_NONFINITE_ERROR\","
        "\"weightNormalizer\":\"WEIGHT_NORMALIZER_GLOBAL\",\"stepTimeoutMs\":120000,\"firstStepTimeoutMs\":600000}";
    struct fixture f;

    fixture_init(&f);
    ck_assert_str_eq(canonical(&f, absent), filled);
    ck_assert_str_eq(canonical(&f, unspecified), filled);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *text;
    enum lossd_status status;
    const char *field;
} bad_configs[] = {
    {"{\"tasks\":[{\"name\":\"a\"},{}]}", LOSSD_INVALID_CONFIG, "tasks[1].name"},
    {"{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"l2Loss\":{}},{}]}]}", LOSSD_INVALID_CONFIG, "tasks[0].losses[1].loss"},
    {"{\"gradReduce\":3}", LOSSD_INVALID_CONFIG, "grad_reduce"},
    {"{\"onNonfinite\":-1}", LOSSD_INVALID_CONFIG, "on_nonfinite"},
    {"{\"weightNormalizer\":3}", LOSSD_INVALID_CONFIG, "weight_normalizer"},
    {"{\"tasks\":[{\"name\":\"a\",\"lists\":3}]}", LOSSD_INVALID_CONFIG, "tasks[0].lists"},
    {"{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"listwiseRankLoss\":{\"target\":5}}]}]}", LOSSD_INVALID_CONFIG,
     "tasks[0].losses[0].listwise_rank_loss.target"},
    {"{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"listwiseRankLoss\":{\"denominator\":3}}]}]}", LOSSD_INVALID_CONFIG,
     "tasks[0].losses[0].listwise_rank_loss.denominator"},
    {"{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"softmaxCrossEntropy\":{\"ignoreCounting\":3}}]}]}",
     LOSSD_INVALID_CONFIG, "tasks[0].losses[0].softmax_cross_entropy.ignore_counting"},
};

START_TEST(what_the_config_lacks_is_named)
{
    struct fixture f;
    struct group_config config;

    fixture_init(&f);
    ck_assert_int_eq(read_config(&f, bad_configs[_i].text, &config), bad_configs[_i].status);
    ck_assert_str_eq(f.err.field, bad_configs[_i].field);
    fixture_finish(&f);
}
END_TEST

START_TEST(tasks_and_losses_are_counted_against_their_limits)
{
    static const char text[] =
        "{\"tasks\":[{\"name\":\"a\",\"losses\":[{\"l2Loss\":{}},{\"l2Loss\":{}}]},{\"name\":\"b\"}]}";
    Lossd__V1__GroupConfig *message;
    struct group_config config;
    struct fixture f;

    fixture_init(&f);
    message = decode_json(&f, GROUP, text);
    ck_assert_int_eq(config_from_message(message, 2, 2, &f.arena, &config, &f.err), LOSSD_OK);
    ck_assert_int_eq(config_from_message(message, 1, 2, &f.arena, &config, &f.err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "tasks");
    ck_assert_str_eq(f.err.field, "tasks");
    ck_assert_int_eq(config_from_message(message, 2, 1, &f.arena, &config, &f.err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(error_metadata(&f.err, "limit"), "losses");
    ck_assert_str_eq(f.err.field, "tasks[0].losses");
    fixture_finish(&f);
}
END_TEST

START_TEST(a_full_arena_is_an_error_at_every_size)
{
    struct fixture f;
    size_t limit = 0;
    enum lossd_status status = LOSSD_LIMIT_EXCEEDED;

    fixture_init(&f);
    while (status != LOSSD_OK) {
        Lossd__V1__GroupConfig *message = decode_json(&f, GROUP, full_config);
        Lossd__V1__GroupConfig *canonical_message;
        struct group_config config;
        struct arena arena;

        arena_init(&arena, limit, NULL);
        status = config_from_message(message, MAX_TASKS, MAX_LOSSES, &arena, &config, &f.err);
        if (status == LOSSD_OK)
            status = config_to_message(&config, &arena, &canonical_message, &f.err);
        if (status != LOSSD_OK)
            ck_assert_str_eq(error_metadata(&f.err, "limit"), "memory_bytes");
        arena_finish(&arena);
        limit += 16;
    }
    ck_assert_uint_gt(limit, 1000);
    fixture_finish(&f);
}
END_TEST

/* The schema's names of the losses are those of the oneof, in whose order the kinds are. */
START_TEST(losses_are_called_as_in_the_schema)
{
    const ProtobufCMessageDescriptor *schema = &lossd__v1__loss_config__descriptor;

    for (int kind = 0; kind < NUM_LOSS_KINDS; kind++) {
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
            schema, loss_kind_name((enum loss_kind)kind));

        ck_assert_ptr_nonnull(field);
        ck_assert_uint_eq(field->id, (unsigned)kind + 2);
    }
}
END_TEST

#define ADD_TABLE(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof table / sizeof table[0]))

int main(void)
{
    Suite *suite = suite_create("convert");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_batch_points_into_its_message);
    tcase_add_test(tcase, a_task_without_a_name_is_refused);
    tcase_add_test(tcase, sixty_four_tasks_are_taken_and_one_more_is_refused);
    tcase_add_test(tcase, a_result_is_written_with_its_zeros);
    tcase_add_test(tcase, a_full_config_comes_back_unchanged);
    tcase_add_test(tcase, defaults_are_filled_in_and_unspecified_means_the_default);
    ADD_TABLE(tcase, what_the_config_lacks_is_named, bad_configs);
    tcase_add_test(tcase, tasks_and_losses_are_counted_against_their_limits);
    tcase_add_test(tcase, a_full_arena_is_an_error_at_every_size);
    tcase_add_test(tcase, losses_are_called_as_in_the_schema);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
