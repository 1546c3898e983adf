/* Contributions, lists, weights and announcements: counts that can be made by hand. */
#include <stdlib.h>

#include "loss/world.h"
#include "support/runner.h"

/* 3 requests of 2, 0 and 3 candidates. */
static const uint32_t lengths[] = {2, 0, 3};
static const float logits[15] = {0.0F};
static const float labels[] = {1.0F, 0.0F, 1.0F, 1.0F, 1.0F};
static struct world *world;
static struct loss_config loss;
static struct task_config task;
static struct group_config config;
static struct task_batch column;
static struct batch batch;

static void use(enum loss_kind kind, uint32_t num_class)
{
    loss = default_loss(kind);
    task = default_task("t", &loss, 1);
    task.num_class = num_class;
    config = default_config(&task, 1);
    column = (struct task_batch){
        .name = "t", .logits = logits, .num_logits = (size_t)5 * num_class, .labels = labels, .num_labels = 5};
}

static void set_up(void)
{
    world = world_create();
    batch = (struct batch){
        .lengths = lengths, .num_lengths = 3, .tasks = &column, .num_tasks = 1, .gradient_scale = 1.0F};
}

static void tear_down(void)
{
    world_destroy(world);
}

static const struct prepared_task *run(void)
{
    ck_assert_msg(world_run(world, &config, &batch, 1) == LOSSD_OK, "%s: %s", world->err.field, world->err.message);
    return &world->ranks[0].prepared.tasks[0];
}

static void expect_contribution(uint32_t count, const double *expected)
{
    ck_assert_uint_eq(world->plan.num_denominators, count);
    for (uint32_t d = 0; d < count; d++)
        ck_assert_msg(world->ranks[0].prepared.contribution[d] == expected[d], "slot %u is %g, expected %g", d,
                      world->ranks[0].prepared.contribution[d], expected[d]);
}

START_TEST(a_listwise_loss_needs_requests_and_candidates_alone)
{
    use(LOSS_LISTWISE_RANK, 1);
    (void)run();
    expect_contribution(2, (double[]){3.0, 5.0});
    ck_assert(!world->plan.announce_needs_batch);
}
END_TEST

START_TEST(valid_lists_have_both_labels)
{
    use(LOSS_LISTWISE_RANK, 1);
    loss.listwise_rank.denominator = DENOMINATOR_VALID;
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 1.0}); /* the third has positives only */
    ck_assert(world->plan.announce_needs_batch);
    ck_assert_str_eq(world->plan.announce_field, "tasks[0].losses[0].listwise_rank_loss.denominator");
}
END_TEST

START_TEST(sessions_are_counted_by_id)
{
    static const int64_t ids[] = {9, -1, 9, INT64_MIN, -1};
    const struct prepared_task *prepared;
    static const uint32_t rows[] = {0, 2, 3, 1, 4}; /* ids 9, INT64_MIN, -1 as unsigned numbers */
    static const uint32_t offsets[] = {0, 2, 3, 5};

    use(LOSS_LISTWISE_RANK, 1);
    task.lists = LISTS_SESSIONS;
    column.sessions = ids;
    column.num_sessions = 5;
    prepared = run();
    expect_contribution(3, (double[]){3.0, 5.0, 3.0});
    ck_assert_uint_eq(prepared->lists.num_lists, 3);
    ck_assert_mem_eq(prepared->lists.rows, rows, sizeof rows);
    ck_assert_mem_eq(prepared->lists.offsets, offsets, sizeof offsets);
    ck_assert_str_eq(world->plan.announce_field, "tasks[0].lists");
}
END_TEST

START_TEST(an_empty_batch_has_no_sessions)
{
    use(LOSS_LISTWISE_RANK, 1);
    task.lists = LISTS_SESSIONS;
    column = (struct task_batch){.name = "t"};
    batch.num_lengths = 0;
    ck_assert_uint_eq(run()->lists.num_lists, 0);
    expect_contribution(3, (double[]){0.0, 0.0, 0.0});
}
END_TEST

START_TEST(weights_are_summed_for_the_group_or_stay_at_home)
{
    static const float weights[] = {0.5F, 0.0F, 2.0F, 1.0F, 0.25F};

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    column.weights = weights;
    column.num_weights = 5;
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 3.75});
    ck_assert(!world->plan.announce_needs_batch);
    config.weight_normalizer = WEIGHT_NORMALIZER_LOCAL;
    ck_assert(run()->weight_sum == 3.75);
    expect_contribution(2, (double[]){3.0, 5.0});
}
END_TEST

START_TEST(without_weights_every_row_weighs_1)
{
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 5.0});
}
END_TEST

START_TEST(task_space_multiplies_weights)
{
    static const float weights[] = {1.0F, 1.0F, 2.0F, 1.0F, 0.5F};
    static const float space[] = {1.0F, 0.0F, 0.5F, -1.0F, 3.0F};
    const struct prepared_task *prepared;

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    task.in_task_space_weight = 3.0;
    task.out_task_space_weight = 0.1;
    column.weights = weights;
    column.num_weights = 5;
    column.task_space = space;
    column.num_task_space = 5;
    prepared = run();
    ck_assert_double_eq_tol(prepared->weight_sum, 3.0 + 0.1 + 6.0 + 0.1 + 1.5, 1e-14);
    ck_assert(row_weight(prepared, 2) == 6.0);
    ck_assert_str_eq(world->plan.announce_field, "tasks[0].out_task_space_weight");
}
END_TEST

START_TEST(weights_of_many_rows_are_summed_to_twelve_digits)
{
    enum { NUM_ROWS = 1 << 20 }; /* a power of 2, so that the sum of equal weights is known exactly */
    float *zeros = arena_calloc(&world->arena, NUM_ROWS, sizeof *zeros);
    float *space = arena_calloc(&world->arena, NUM_ROWS, sizeof *space);
    const uint32_t length = NUM_ROWS;
    const double expected = 0.3 * NUM_ROWS;

    ck_assert_ptr_nonnull(zeros);
    ck_assert_ptr_nonnull(space);
    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    task.out_task_space_weight = 0.3; /* of every row: one sum row by row is 2e-11 off */
    column = (struct task_batch){.name = "t",
                                 .logits = zeros,
                                 .num_logits = NUM_ROWS,
                                 .labels = zeros,
                                 .num_labels = NUM_ROWS,
                                 .task_space = space,
                                 .num_task_space = NUM_ROWS};
    batch.lengths = &length;
    batch.num_lengths = 1;
    ck_assert_double_eq_tol(run()->weight_sum, expected, 1e-12 * expected);
}
END_TEST

START_TEST(ignored_rows_of_a_softmax_do_not_count)
{
    static const float classes[] = {0.0F, -100.0F, 2.0F, -100.0F, 1.0F};
    static const float weights[] = {1.0F, 8.0F, 2.0F, 8.0F, 4.0F};

    use(LOSS_SOFTMAX_CROSS_ENTROPY, 3);
    column.labels = classes;
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 3.0});
    column.weights = weights;
    column.num_weights = 5;
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 7.0});
    config.weight_normalizer = WEIGHT_NORMALIZER_LOCAL;
    (void)run();
    expect_contribution(3, (double[]){3.0, 5.0, 3.0});
    loss.softmax_cross_entropy.ignore_counting = IGNORE_COUNTING_ALL;
    ck_assert(run()->num_kept == 3.0);
    expect_contribution(2, (double[]){3.0, 5.0});
}
END_TEST

START_TEST(an_announcement_promises_what_a_batch_without_weights_brings)
{
    double promised[MAX_DENOMINATORS];

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    (void)run();
    loss_announced_contribution(&world->plan, 3, 5, promised);
    ck_assert_mem_eq(promised, world->ranks[0].prepared.contribution, 3 * sizeof *promised);
}
END_TEST

START_TEST(a_full_arena_is_an_error_of_prepare_and_of_alloc)
{
    struct arena none;
    struct prepared_batch prepared;
    struct result result;

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    (void)run();
    arena_init(&none, 1, NULL);
    ck_assert_int_eq(loss_prepare(&world->plan, &batch, &none, &prepared, &world->err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_int_eq(loss_result_alloc(&world->plan, &batch, &none, &result, &world->err), LOSSD_LIMIT_EXCEEDED);
    arena_finish(&none);
}
END_TEST

START_TEST(labels_as_bits_are_read_through_the_mask)
{
    static const uint64_t bits[] = {4, 3, 7, 0, UINT64_MAX};
    const struct prepared_task *prepared;

    use(LOSS_LISTWISE_RANK, 1);
    loss.listwise_rank.denominator = DENOMINATOR_VALID;
    task.has_label_bitmask = true;
    task.label_bitmask = 4;
    column.labels = NULL;
    column.num_labels = 0;
    batch.label_bits = bits;
    batch.num_label_bits = 5;
    prepared = run();
    for (size_t c = 0; c < 5; c++)
        ck_assert(row_label(prepared, c) == (c == 1 || c == 3 ? 0.0F : 1.0F));
    expect_contribution(3, (double[]){3.0, 5.0, 2.0}); /* 1 0 and 1 0 1 */
}
END_TEST

/* Bytes of the arena that check, prepare and alloc take for a batch of one list. */
static size_t bytes_of_a_step(uint32_t num_rows, bool sessions)
{
    float *values = calloc(num_rows, sizeof *values);
    float *gradient = calloc(num_rows, sizeof *gradient);
    uint64_t *bits = calloc(num_rows, sizeof *bits);
    int64_t *ids = calloc(num_rows, sizeof *ids);
    size_t used;

    use(LOSS_BINARY_CROSS_ENTROPY, 1);
    task.has_label_bitmask = true;
    task.label_bitmask = 1;
    task.lists = sessions ? LISTS_SESSIONS : LISTS_REQUESTS;
    column = (struct task_batch){.name = "t",
                                 .logits = values,
                                 .num_logits = num_rows,
                                 .gradient = gradient,
                                 .weights = values,
                                 .num_weights = num_rows,
                                 .sessions = ids,
                                 .num_sessions = sessions ? num_rows : 0};
    batch.lengths = &num_rows;
    batch.num_lengths = 1;
    batch.label_bits = bits;
    batch.num_label_bits = num_rows;
    arena_reset(&world->arena);
    (void)run();
    used = world->arena.used_bytes;
    free(values);
    free(gradient);
    free(bits);
    free(ids);
    return used;
}

START_TEST(nothing_but_the_lists_of_sessions_grows_with_the_batch)
{
    ck_assert_uint_eq(bytes_of_a_step(100000, false), bytes_of_a_step(1000, false));
    /* two permutations of 4 bytes a row */
    ck_assert_uint_eq(bytes_of_a_step(101600, true) - bytes_of_a_step(1600, true), 800000);
}
END_TEST

START_TEST(the_log_scale_has_a_gradient_where_it_was_sent)
{
    use(LOSS_LISTWISE_RANK, 1);
    (void)run();
    ck_assert(!world->ranks[0].result.tasks[0].has_log_scale_gradient);
    column.has_log_scale = true;
    (void)run();
    ck_assert(world->ranks[0].result.tasks[0].has_log_scale_gradient);
}
END_TEST

START_TEST(skip_gradient_leaves_both_gradients_out)
{
    use(LOSS_LISTWISE_RANK, 1);
    column.has_log_scale = true;
    (void)run();
    ck_assert(world->ranks[0].result.tasks[0].has_log_scale_gradient);
    ck_assert_uint_eq(world->ranks[0].result.tasks[0].num_gradient, 5);
    batch.skip_gradient = true;
    (void)run();
    ck_assert(!world->ranks[0].result.tasks[0].has_log_scale_gradient);
    ck_assert_ptr_null(world->ranks[0].result.tasks[0].gradient);
    ck_assert_uint_eq(world->ranks[0].result.tasks[0].num_gradient, 0);
    ck_assert(world->ranks[0].result.loss > 0.0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prepare");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_listwise_loss_needs_requests_and_candidates_alone);
    tcase_add_test(tcase, valid_lists_have_both_labels);
    tcase_add_test(tcase, sessions_are_counted_by_id);
    tcase_add_test(tcase, an_empty_batch_has_no_sessions);
    tcase_add_test(tcase, weights_are_summed_for_the_group_or_stay_at_home);
    tcase_add_test(tcase, without_weights_every_row_weighs_1);
    tcase_add_test(tcase, task_space_multiplies_weights);
    tcase_add_test(tcase, weights_of_many_rows_are_summed_to_twelve_digits);
    tcase_add_test(tcase, ignored_rows_of_a_softmax_do_not_count);
    tcase_add_test(tcase, an_announcement_promises_what_a_batch_without_weights_brings);
    tcase_add_test(tcase, a_full_arena_is_an_error_of_prepare_and_of_alloc);
    tcase_add_test(tcase, labels_as_bits_are_read_through_the_mask);
    tcase_add_test(tcase, nothing_but_the_lists_of_sessions_grows_with_the_batch);
    tcase_add_test(tcase, the_log_scale_has_a_gradient_where_it_was_sent);
    tcase_add_test(tcase, skip_gradient_leaves_both_gradients_out);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
