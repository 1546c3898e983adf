/* Factors from totals. This rank: 2 requests, 6 candidates, 1 valid list, weights 3; all 2 ranks: 8, 8, 5, 12. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "loss/world.h"
#include "support/runner.h"

static const uint32_t lengths[] = {2, 4};
static const float logits[12] = {0.0F};
static const float uneven[] = {1.0F, 0.0F, 0.5F, -1.0F, 2.0F, 0.0F};
static const float labels[] = {1.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
static const float weights[] = {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F};
static struct world *world;
static struct loss_config loss;
static struct task_config task;
static struct group_config config;
static struct task_batch column;
static struct batch batch;
static struct totals totals;

static void set_up(void)
{
    world = world_create();
    batch = (struct batch){
        .lengths = lengths, .num_lengths = 2, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};
    totals = (struct totals){.num_ranks = 2, .sums = {8.0, 8.0}};
}

static void tear_down(void)
{
    world_destroy(world);
}

static void use(enum loss_kind kind, uint32_t num_class)
{
    loss = default_loss(kind);
    task = default_task("t", &loss, 1);
    task.num_class = num_class;
    config = default_config(&task, 1);
    column = (struct task_batch){
        .name = "t", .logits = logits, .num_logits = (size_t)6 * num_class, .labels = labels, .num_labels = 6};
}

static void use_weights(void)
{
    column.weights = weights;
    column.num_weights = 6;
    totals.sums[2] = 12.0;
}

static const struct term_scale *run(void)
{
    ck_assert_msg(world_run(world, &config, &batch, 1) == LOSSD_OK, "%s: %s", world->err.field, world->err.message);
    rescale(&world->plan, &world->ranks[0].prepared, &totals, &world->ranks[0].scales);
    return &world->ranks[0].scales.terms[0][0];
}

static void expect_scale(const struct term_scale *scale, double denominator, double factor)
{
    ck_assert_msg(scale->denominator == denominator, "denominator is %g, expected %g", scale->denominator, denominator);
    ck_assert_msg(scale->factor == factor, "factor is %g, expected %g", scale->factor, factor);
}

START_TEST(a_listwise_loss_is_scaled_by_requests)
{
    use(LOSS_LISTWISE_RANK, 1);
    expect_scale(run(), 2.0, 0.5); /* 2 of a mean of 4 */
}
END_TEST

START_TEST(losses_over_rows_are_scaled_by_candidates)
{
    totals.sums[2] = 8.0;
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    expect_scale(run(), 6.0, 1.5); /* 6 of a mean of 4 */
    use(LOSS_L2, 1);
    expect_scale(run(), 6.0, 1.5);
    use(LOSS_BINARY_FOCAL, 1);
    expect_scale(run(), 6.0, 1.5);
    use(LOSS_JRC, 2);
    expect_scale(run(), 6.0, 1.5);
    use(LOSS_SOFTMAX_CROSS_ENTROPY, 2);
    expect_scale(run(), 6.0, 1.5);
}
END_TEST

START_TEST(valid_lists_are_scaled_by_valid_lists)
{
    use(LOSS_LISTWISE_RANK, 1);
    loss.listwise_rank.denominator = DENOMINATOR_VALID;
    totals.sums[2] = 5.0;
    expect_scale(run(), 1.0, 0.4); /* 1 of a mean of 2.5 */
}
END_TEST

START_TEST(weights_are_scaled_by_weights_or_by_candidates)
{
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    use_weights();
    expect_scale(run(), 3.0, 0.5); /* 3 of a mean of 6 */
    config.weight_normalizer = WEIGHT_NORMALIZER_LOCAL;
    expect_scale(run(), 3.0, 1.5);
}
END_TEST

START_TEST(ignored_rows_scale_by_what_is_kept_or_by_all)
{
    static const float some[] = {1.0F, -100.0F, -100.0F, 0.0F, 0.0F, 1.0F};

    use(LOSS_SOFTMAX_CROSS_ENTROPY, 2);
    column.labels = some;
    totals.sums[2] = 5.0;
    expect_scale(run(), 4.0, 1.6); /* 4 of a mean of 2.5 */
    config.weight_normalizer = WEIGHT_NORMALIZER_LOCAL;
    expect_scale(run(), 4.0, 1.6);
    loss.softmax_cross_entropy.ignore_counting = IGNORE_COUNTING_ALL;
    expect_scale(run(), 4.0, 1.5);
}
END_TEST

START_TEST(a_trainer_that_sums_gets_shares_of_the_sum)
{
    use(LOSS_LISTWISE_RANK, 1);
    config.grad_reduce = GRAD_REDUCE_SUM;
    expect_scale(run(), 2.0, 0.25);
    ck_assert(world->ranks[0].scales.request_factor == 0.5); /* local / mean in every mode */
    ck_assert(world->ranks[0].scales.candidate_factor == 1.5);
}
END_TEST

START_TEST(unit_holds_both_weights_and_the_denominator_once)
{
    use(LOSS_LISTWISE_RANK, 1);
    task.weight = 3.0;
    loss.weight = 0.5;
    ck_assert(run()->unit == 3.0 * 0.5 * 0.5 / 2.0);
}
END_TEST

START_TEST(without_global_average_every_factor_is_1)
{
    use(LOSS_LISTWISE_RANK, 1);
    config.global_average = false;
    config.grad_reduce = GRAD_REDUCE_SUM;
    expect_scale(run(), 2.0, 1.0);
    ck_assert(world->ranks[0].scales.request_factor == 1.0);
    ck_assert(world->ranks[0].scales.candidate_factor == 1.0);
    column = (struct task_batch){.name = "t"};
    batch.num_lengths = 0;
    expect_scale(run(), 0.0, 1.0);
    ck_assert(world->ranks[0].scales.candidate_factor == 1.0);
    ck_assert(world->ranks[0].scales.terms[0][0].unit == 0.0);
}
END_TEST

START_TEST(weights_stay_local_without_global_average)
{
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    config.global_average = false;
    use_weights();
    expect_scale(run(), 3.0, 1.0);
}
END_TEST

START_TEST(nothing_over_nothing_is_0)
{
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    column = (struct task_batch){.name = "t"};
    batch.num_lengths = 0;
    totals = (struct totals){.num_ranks = 2};
    expect_scale(run(), 0.0, 0.0);
    ck_assert(world->ranks[0].scales.request_factor == 0.0);
    ck_assert(world->ranks[0].scales.terms[0][0].unit == 0.0);
}
END_TEST

START_TEST(the_greatest_weights_and_scales_give_no_nan)
{
    static const float greatest[] = {FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX};
    static const float space[] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
    const struct task_result *result;

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    loss.weight = task.weight = task.in_task_space_weight = (double)FLT_MAX;
    batch.gradient_scale = FLT_MAX;
    column.weights = greatest;
    column.num_weights = 6;
    column.task_space = space;
    column.num_task_space = 6;
    (void)run();
    result = &world->ranks[0].result.tasks[0];
    /* every logit 0, so that every loss is ln 2 and every gradient half a weight: far above binary32 */
    ck_assert_double_eq_tol(result->terms[0].local_mean, log(2.0), 1e-14);
    ck_assert_double_eq_tol(result->loss / (double)FLT_MAX / (double)FLT_MAX, log(2.0), 1e-14);
    ck_assert(result->gradient[0] == -INFINITY && result->gradient[1] == INFINITY);
    column = (struct task_batch){.name = "t"};
    batch.num_lengths = 0;
    (void)run();
    ck_assert(world->ranks[0].result.loss == 0.0);
}
END_TEST

START_TEST(gradient_scale_multiplies_gradients_and_not_losses)
{
    double loss_before;
    double log_scale_before;
    float before;

    use(LOSS_LISTWISE_RANK, 1);
    column.logits = uneven;
    column.has_log_scale = true;
    column.log_scale = 1.0;
    (void)run();
    loss_before = world->ranks[0].result.loss;
    before = world->ranks[0].result.tasks[0].gradient[0];
    log_scale_before = world->ranks[0].result.tasks[0].log_scale_gradient;
    ck_assert(before != 0.0F);
    ck_assert(log_scale_before != 0.0);
    batch.gradient_scale = 4.0F;
    (void)run();
    ck_assert(world->ranks[0].result.loss == loss_before);
    ck_assert(world->ranks[0].result.tasks[0].gradient[0] == 4.0F * before);
    ck_assert(world->ranks[0].result.tasks[0].log_scale_gradient == 4.0 * log_scale_before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rescale");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_listwise_loss_is_scaled_by_requests);
    tcase_add_test(tcase, losses_over_rows_are_scaled_by_candidates);
    tcase_add_test(tcase, valid_lists_are_scaled_by_valid_lists);
    tcase_add_test(tcase, weights_are_scaled_by_weights_or_by_candidates);
    tcase_add_test(tcase, ignored_rows_scale_by_what_is_kept_or_by_all);
    tcase_add_test(tcase, a_trainer_that_sums_gets_shares_of_the_sum);
    tcase_add_test(tcase, unit_holds_both_weights_and_the_denominator_once);
    tcase_add_test(tcase, without_global_average_every_factor_is_1);
    tcase_add_test(tcase, weights_stay_local_without_global_average);
    tcase_add_test(tcase, nothing_over_nothing_is_0);
    tcase_add_test(tcase, the_greatest_weights_and_scales_give_no_nan);
    tcase_add_test(tcase, gradient_scale_multiplies_gradients_and_not_losses);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
