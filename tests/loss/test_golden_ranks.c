/* Known right values over several ranks, tasks and losses: factors, weights, task space. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss/golden_batch.h"
#include "loss/world.h"
#include "support/runner.h"

enum { MAX_RANKS = 3 };

/* Two tasks on the same columns, so that each has its own gradient. */
struct pair_batch {
    struct golden_batch golden;
    struct task_batch tasks[2];
};

static void pair_init(struct pair_batch *pair, struct json_object *object)
{
    golden_batch_init(&pair->golden, object, "bce");
    pair->tasks[0] = pair->golden.task;
    pair->tasks[1] = pair->golden.task;
    pair->tasks[1].name = "listwise";
    pair->tasks[1].has_log_scale = true;
    pair->golden.batch.tasks = pair->tasks;
    pair->golden.batch.num_tasks = 2;
}

static void expect_rank(const struct result *result, struct json_object *expected, const char *id)
{
    const struct task_result *bce = &result->tasks[0];
    const struct task_result *listwise = &result->tasks[1];

    expect_near(result->local.requests, golden_number(expected, "requests"), 0.0, id, "requests");
    expect_near(result->local.candidates, golden_number(expected, "candidates"), 0.0, id, "candidates");
    expect_near(result->request_factor, golden_number(expected, "request_ratio"), 1e-15, id, "request_factor");
    expect_near(result->candidate_factor, golden_number(expected, "candidate_ratio"), 1e-15, id, "candidate_factor");
    expect_near(listwise->terms[0].factor, golden_number(expected, "request_ratio"), 1e-15, id, "list-wise factor");
    expect_near(bce->terms[0].factor, golden_number(expected, "candidate_ratio"), 1e-15, id, "BCE factor");
    expect_near(bce->terms[0].local_mean, golden_number(expected, "bce_local"), 1e-6, id, "bce_local");
    expect_near(bce->terms[0].sum, golden_number(expected, "bce_sum"), 3e-6, id, "bce_sum");
    expect_near(bce->loss, golden_number(expected, "bce_rescaled"), 1e-6, id, "bce_rescaled");
    expect_near(listwise->terms[0].local_mean, golden_number(expected, "listwise_local"), 1e-6, id, "listwise_local");
    expect_near(listwise->terms[0].sum, golden_number(expected, "listwise_sum"), 3e-6, id, "listwise_sum");
    expect_near(listwise->loss, golden_number(expected, "listwise_rescaled"), 1e-6, id, "listwise_rescaled");
    expect_gradient(bce->gradient, bce->num_gradient, expected, "grad_bce_rescaled", 1.0, id);
    expect_gradient(listwise->gradient, listwise->num_gradient, expected, "grad_listwise_rescaled", 1.0, id);
    expect_near(listwise->log_scale_gradient, golden_number(expected, "grad_theta_rescaled"), 2e-6, id, "theta");
}

static void run_rescale_case(struct json_object *entry)
{
    const char *id = golden_text(entry, "id");
    struct json_object *ranks = golden_get(entry, "ranks");
    const size_t num_ranks = golden_count(ranks);
    const struct loss_config losses[2] = {default_loss(LOSS_BINARY_CROSS_ENTROPY), default_loss(LOSS_LISTWISE_RANK)};
    const struct task_config tasks[2] = {default_task("bce", &losses[0], 1), default_task("listwise", &losses[1], 1)};
    const struct group_config config = default_config(tasks, 2);
    struct pair_batch pairs[MAX_RANKS];
    struct batch batches[MAX_RANKS];
    struct world *world = world_create();
    double means[2] = {0.0, 0.0};

    ck_assert_uint_le(num_ranks, MAX_RANKS);
    for (size_t r = 0; r < num_ranks; r++) {
        pair_init(&pairs[r], golden_get(golden_at(ranks, r), "batch"));
        batches[r] = pairs[r].golden.batch;
    }
    ck_assert_msg(world_run(world, &config, batches, num_ranks) == LOSSD_OK, "%s: %s", id, world->err.message);
    for (size_t r = 0; r < num_ranks; r++) {
        const struct result *result = &world->ranks[r].result;

        if (golden_has(golden_at(ranks, r), "expected"))
            expect_rank(result, golden_get(golden_at(ranks, r), "expected"), id);
        for (size_t t = 0; t < 2; t++)
            means[t] += result->tasks[t].loss / (double)num_ranks;
        golden_batch_finish(&pairs[r].golden);
    }
    expect_near(means[0], golden_number(entry, "expected.global_bce"), 1e-6, id, "global_bce");
    expect_near(means[1], golden_number(entry, "expected.global_listwise"), 1e-6, id, "global_listwise");
    world_destroy(world);
}

START_TEST(each_rank_gets_the_factor_of_its_own_denominators)
{
    struct json_object *cases = golden_open("rescale");
    size_t run = 0;

    for (size_t i = 0; i < golden_count(cases); i++)
        if (golden_has(golden_at(cases, i), "ranks")) {
            run_rescale_case(golden_at(cases, i));
            run++;
        }
    ck_assert_uint_eq(run, 6);
    golden_close(cases);
}
END_TEST

/* The mean counts of a rank, from lengths that make a golden pair of requests and candidates. */
static void run_counts_case(struct json_object *entry)
{
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    const struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    const float zeros[64] = {0.0F};
    size_t num_lengths;
    uint32_t *lengths = golden_lengths(entry, "lengths", &num_lengths);
    const uint32_t peer[5] = {6, 6, 6, 6, 6}; /* 5 requests, 30 candidates */
    const size_t num_ranks = golden_has(entry, "peer") ? 2 : 1;
    struct task_batch columns[2] = {{.name = "t", .logits = zeros, .labels = zeros},
                                    {.name = "t", .logits = zeros, .labels = zeros}};
    struct batch batches[2] = {{.lengths = lengths, .num_lengths = num_lengths}, {.lengths = peer, .num_lengths = 5}};
    struct world *world = world_create();

    for (size_t r = 0; r < num_ranks; r++) {
        for (size_t i = 0; i < batches[r].num_lengths; i++)
            columns[r].num_logits += batches[r].lengths[i];
        columns[r].num_labels = columns[r].num_logits;
        batches[r].tasks = &columns[r];
        batches[r].num_tasks = 1;
        batches[r].gradient_scale = 1.0F;
    }
    ck_assert_int_eq(world_run(world, &config, batches, num_ranks), LOSSD_OK);
    for (size_t d = 0; d < 2; d++)
        expect_near(world->totals.sums[d] / (double)num_ranks,
                    golden_number(golden_at(golden_get(entry, "expected"), d), ""), 0.0, golden_text(entry, "id"),
                    "mean count");
    free(lengths);
    world_destroy(world);
}

START_TEST(counts_are_averaged_over_ranks)
{
    struct json_object *cases = golden_open("rescale");

    run_counts_case(golden_case(cases, "rescale/avg_counts_single"));
    run_counts_case(golden_case(cases, "rescale/avg_counts_empty"));
    run_counts_case(golden_case(cases, "rescale/avg_counts_peer"));
    golden_close(cases);
}
END_TEST

START_TEST(equal_counts_give_a_factor_of_exactly_1)
{
    struct json_object *cases = golden_open("rescale");
    struct json_object *pairs = golden_get(golden_case(cases, "rescale/float32_avg_is_not_exact"),
                                           "expected.not_exactly_one");
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    const struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    const uint32_t one = 1;
    const float zero = 0.0F;
    struct task_batch column = {.name = "t", .logits = &zero, .num_logits = 1, .labels = &zero, .num_labels = 1};
    struct batch batch = {.lengths = &one, .num_lengths = 1, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};
    struct world *world = world_create();

    ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
    ck_assert_uint_gt(golden_count(pairs), 20);
    for (size_t i = 0; i < golden_count(pairs); i++) {
        const double ranks = golden_number(golden_at(golden_at(pairs, i), 0), "");
        const double rows = golden_number(golden_at(golden_at(pairs, i), 1), "");
        struct totals totals = {.num_ranks = (uint32_t)ranks};

        for (uint32_t d = 0; d < world->plan.num_denominators; d++) {
            totals.sums[d] = ranks * rows;
            world->ranks[0].prepared.contribution[d] = rows;
        }
        rescale(&world->plan, &world->ranks[0].prepared, &totals, &world->ranks[0].scales);
        ck_assert(world->ranks[0].scales.candidate_factor == 1.0);
        ck_assert(world->ranks[0].scales.terms[0][0].factor == 1.0);
    }
    world_destroy(world);
    golden_close(cases);
}
END_TEST

static void run_weights(const char *id, enum weight_normalizer normalizer, double out_weight, const char *global,
                        const char *local_mean)
{
    struct json_object *cases = golden_open("weights");
    struct json_object *entry = golden_case(cases, id);
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    struct task_config task = default_task("t", &loss, 1);
    struct group_config config = default_config(&task, 1);
    struct golden_batch golden[2];
    struct batch batches[2];
    struct world *world = world_create();
    double mean = 0.0;

    task.out_task_space_weight = out_weight;
    config.weight_normalizer = normalizer;
    for (size_t r = 0; r < 2; r++) {
        golden_batch_init(&golden[r], golden_at(golden_get(entry, "ranks"), r), "t");
        batches[r] = golden[r].batch;
        batches[r].lengths = &golden[r].one_length;
        batches[r].tasks = &golden[r].task;
    }
    ck_assert_msg(world_run(world, &config, batches, 2) == LOSSD_OK, "%s: %s", id, world->err.message);
    for (size_t r = 0; r < 2; r++) {
        const struct task_result *result = &world->ranks[r].result.tasks[0];
        const double factor = golden_number(golden_at(golden_get(entry, "expected.exact_factor_on_local_mean"), r), "");

        expect_near(result->terms[0].local_mean, golden_number(golden_at(golden_get(entry, local_mean), r), ""), 1e-6,
                    id, "local_mean");
        expect_near(result->terms[0].factor, normalizer == WEIGHT_NORMALIZER_GLOBAL ? factor : 1.0, 1e-15, id,
                    "factor");
        if (normalizer == WEIGHT_NORMALIZER_GLOBAL && golden_has(entry, "expected.exact_grad"))
            expect_gradient(result->gradient, 4, golden_at(golden_get(entry, "expected.exact_grad"), r), "", 1.0, id);
        mean += result->loss / 2.0;
        golden_batch_finish(&golden[r]);
    }
    expect_near(mean, golden_number(entry, global), 1e-6, id, global);
    world_destroy(world);
    golden_close(cases);
}

START_TEST(weights_are_normalised_over_all_ranks_or_over_each)
{
    run_weights("weights/two_ranks_exact_vs_local", WEIGHT_NORMALIZER_GLOBAL, 1.0,
                "expected.exact_global_weighted_mean", "expected.local_weighted_mean");
    run_weights("weights/two_ranks_exact_vs_local", WEIGHT_NORMALIZER_LOCAL, 1.0,
                "expected.parity_with_candidate_factor", "expected.local_weighted_mean");
    run_weights("weights/task_space_two_ranks", WEIGHT_NORMALIZER_GLOBAL, 0.0, "expected.exact", "expected.local");
    run_weights("weights/task_space_two_ranks", WEIGHT_NORMALIZER_LOCAL, 0.0, "expected.parity_mean_over_ranks",
                "expected.local");
}
END_TEST

START_TEST(weights_of_0_give_0_and_negative_ones_are_refused)
{
    struct json_object *cases = golden_open("weights");
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    const struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    static const char *const refused[] = {"weights/zero_mean_mixed_sign", "weights/negative_mean_flips_sign"};
    struct json_object *zero = golden_case(cases, "weights/all_zero");
    struct golden_batch golden;
    struct world *world = world_create();

    golden_batch_init(&golden, golden_get(zero, "batch"), "t");
    ck_assert_int_eq(world_run(world, &config, &golden.batch, 1), LOSSD_OK);
    ck_assert(world->ranks[0].result.loss == golden_number(zero, "expected.loss"));
    expect_gradient(world->ranks[0].result.tasks[0].gradient, 2, zero, "expected.grad", 0.0, "weights/all_zero");
    golden_batch_finish(&golden);
    for (size_t i = 0; i < 2; i++) {
        golden_batch_init(&golden, golden_get(golden_case(cases, refused[i]), "batch"), "t");
        ck_assert_int_eq(world_run(world, &config, &golden.batch, 1), LOSSD_WEIGHT_OUT_OF_RANGE);
        ck_assert_str_eq(world->err.field, "tasks[0].weights[1]");
        golden_batch_finish(&golden);
    }
    world_destroy(world);
    golden_close(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("golden_ranks");
    TCase *tcase = tcase_create("ranks");

    tcase_add_test(tcase, each_rank_gets_the_factor_of_its_own_denominators);
    tcase_add_test(tcase, counts_are_averaged_over_ranks);
    tcase_add_test(tcase, equal_counts_give_a_factor_of_exactly_1);
    tcase_add_test(tcase, weights_are_normalised_over_all_ranks_or_over_each);
    tcase_add_test(tcase, weights_of_0_give_0_and_negative_ones_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
