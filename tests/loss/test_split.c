/* One global batch over any number of ranks, runs and threads: the same loss, the same gradients, the same bits. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "loss/random_batch.h"
#include "loss/world.h"
#include "support/runner.h"

static const struct random_limits split_limits = {
    .max_tasks = 3, .max_requests = 24, .max_length = 12, .max_logit = 30.0, .exact = true};

/* A batch of some of the requests of another one, and where its candidates come from. */
struct part {
    struct batch batch;
    struct task_batch tasks[3];
    uint32_t lengths[24];
    size_t *source; /* [C] */
};

static void *pick(struct arena *arena, const void *column, size_t count, size_t size, const struct part *part,
                  uint32_t num_rows)
{
    char *picked = arena_alloc(arena, size * num_rows);

    if (count == 0)
        return NULL;
    for (uint32_t c = 0; c < num_rows; c++)
        memcpy(picked + size * c, (const char *)column + size * part->source[c], size);
    return picked;
}

static void fill_part(const struct group_config *config, const struct batch *whole, const uint32_t *owner,
                      uint32_t rank, struct arena *arena, struct part *part)
{
    uint32_t rows = 0;
    size_t first = 0;
    size_t total = 0;

    for (size_t r = 0; r < whole->num_lengths; r++)
        total += whole->lengths[r];
    part->source = arena_alloc(arena, sizeof *part->source * total);
    part->batch = *whole;
    part->batch.lengths = part->lengths;
    part->batch.num_lengths = 0;
    for (size_t r = 0; r < whole->num_lengths; r++) {
        if (owner[r] == rank) {
            part->lengths[part->batch.num_lengths++] = whole->lengths[r];
            for (uint32_t i = 0; i < whole->lengths[r]; i++)
                part->source[rows++] = first + i;
        }
        first += whole->lengths[r];
    }
    part->batch.tasks = part->tasks;
    if (whole->num_label_bits > 0) {
        part->batch.label_bits = pick(arena, whole->label_bits, 1, sizeof *whole->label_bits, part, rows);
        part->batch.num_label_bits = rows;
    }
    for (size_t t = 0; t < whole->num_tasks; t++) {
        const struct task_batch *from = &whole->tasks[t];
        const uint32_t k = config->tasks[t].num_class;

        part->tasks[t] = *from;
        part->tasks[t].logits = pick(arena, from->logits, 1, sizeof(float) * k, part, rows);
        part->tasks[t].num_logits = (size_t)rows * k;
        part->tasks[t].labels = pick(arena, from->labels, from->num_labels, sizeof *from->labels, part, rows);
        part->tasks[t].num_labels = from->num_labels > 0 ? rows : 0;
        part->tasks[t].weights = pick(arena, from->weights, from->num_weights, sizeof *from->weights, part, rows);
        part->tasks[t].num_weights = from->num_weights > 0 ? rows : 0;
        part->tasks[t].task_space = pick(arena, from->task_space, from->num_task_space, sizeof *from->task_space, part,
                                         rows);
        part->tasks[t].num_task_space = from->num_task_space > 0 ? rows : 0;
    }
}

/* What the trainer makes of the ranks' losses and gradients. */
static double combine(const struct group_config *config, double sum, size_t num_ranks)
{
    return config->grad_reduce == GRAD_REDUCE_MEAN ? sum / (double)num_ranks : sum;
}

static void compare_split(const struct group_config *config, const struct world *one, const struct world *split,
                          const struct part *parts, size_t num_ranks, int seed)
{
    for (size_t t = 0; t < config->num_tasks; t++) {
        const struct task_result *whole = &one->ranks[0].result.tasks[t];
        const uint32_t k = config->tasks[t].num_class;
        double loss = 0.0;
        double log_scale_gradient = 0.0;

        for (size_t r = 0; r < num_ranks; r++) {
            const struct task_result *task = &split->ranks[r].result.tasks[t];

            loss += task->loss;
            log_scale_gradient += task->log_scale_gradient;
            for (size_t v = 0; v < task->num_gradient; v++) {
                const double pooled = combine(config, (double)task->gradient[v], num_ranks);
                const double expected = (double)whole->gradient[parts[r].source[v / k] * k + v % k];

                ck_assert_msg(fabs(pooled - expected) <= 1e-6 * fabs(expected) + 1e-44,
                              "seed %d, %zu ranks: %s gradient %g, expected %g", seed, num_ranks, task->name, pooled,
                              expected);
            }
        }
        loss = combine(config, loss, num_ranks);
        ck_assert_msg(fabs(loss - whole->loss) <= 1e-12 * fabs(whole->loss),
                      "seed %d, %zu ranks: %s loss %.17g, expected %.17g", seed, num_ranks, whole->name, loss,
                      whole->loss);
        ck_assert_double_eq_tol(combine(config, log_scale_gradient, num_ranks), whole->log_scale_gradient,
                                1e-9 * (1.0 + fabs(whole->log_scale_gradient)));
    }
}

static void run_split(int seed, size_t num_ranks)
{
    struct random random = {(uint64_t)seed * UINT64_C(0x9E3779B97F4A7C15) + num_ranks};
    struct world *one = world_create();
    struct world *split = world_create();
    struct group_config config;
    struct batch whole;
    struct part parts[5];
    struct batch batches[5];
    uint32_t owner[24];

    random_config(&random, &split_limits, &one->arena, &config);
    config.on_nonfinite = ON_NONFINITE_ERROR;
    random_batch(&random, &split_limits, &config, &one->arena, &whole);
    for (size_t r = 0; r < 24; r++)
        owner[r] = random_below(&random, (uint32_t)num_ranks);
    ck_assert_int_eq(world_run(one, &config, &whole, 1), LOSSD_OK);
    for (size_t r = 0; r < num_ranks; r++) {
        fill_part(&config, &whole, owner, (uint32_t)r, &one->arena, &parts[r]);
        batches[r] = parts[r].batch;
    }
    ck_assert_msg(world_run(split, &config, batches, num_ranks) == LOSSD_OK, "seed %d: %s %s", seed, split->err.field,
                  split->err.message);
    compare_split(&config, one, split, parts, num_ranks, seed);
    world_destroy(split);
    world_destroy(one);
}

START_TEST(a_split_over_ranks_changes_neither_loss_nor_gradient)
{
    static const size_t num_ranks[] = {1, 2, 3, 5};

    for (int seed = 1; seed <= 300; seed++)
        run_split(seed, num_ranks[_i]);
}
END_TEST

enum { NUM_THREADS = 4 };

struct job {
    const struct world *world;
    bool failed;
    struct result result;
    struct arena arena;
};

static void *run_job(void *argument)
{
    struct job *job = argument;
    const struct world_rank *rank = &job->world->ranks[0];
    struct lossd_error err;

    arena_init(&job->arena, (size_t)1 << 28, NULL);
    job->failed = loss_result_alloc(&job->world->plan, rank->batch, &job->arena, &job->result, &err) != LOSSD_OK;
    if (!job->failed)
        loss_run(&job->world->plan, &rank->prepared, &rank->scales, &job->result);
    return NULL;
}

static void expect_same_bits(const struct result *a, const struct result *b)
{
    ck_assert_mem_eq(&a->loss, &b->loss, sizeof a->loss);
    for (size_t t = 0; t < a->num_tasks; t++) {
        const struct task_result *x = &a->tasks[t];
        const struct task_result *y = &b->tasks[t];

        ck_assert_mem_eq(&x->log_scale_gradient, &y->log_scale_gradient, sizeof x->log_scale_gradient);
        ck_assert_mem_eq(x->gradient, y->gradient, sizeof *x->gradient * x->num_gradient);
        for (size_t l = 0; l < x->num_terms; l++)
            ck_assert_mem_eq(&x->terms[l].sum, &y->terms[l].sum, sizeof x->terms[l].sum);
    }
}

START_TEST(threads_that_run_the_same_batch_get_the_same_bits)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 40, .max_length = 60, .max_logit = 50.0};

    for (int seed = 1; seed <= 20; seed++) {
        struct random random = {(uint64_t)seed + 77};
        struct world *world = world_create();
        struct group_config config;
        struct batch batch;
        struct job jobs[NUM_THREADS];
        pthread_t threads[NUM_THREADS];

        random_config(&random, &limits, &world->arena, &config);
        random_batch(&random, &limits, &config, &world->arena, &batch);
        ck_assert_int_eq(world_run(world, &config, &batch, 1), LOSSD_OK);
        for (int i = 0; i < NUM_THREADS; i++) {
            jobs[i] = (struct job){.world = world};
            ck_assert_int_eq(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
        }
        for (int i = 0; i < NUM_THREADS; i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
            ck_assert(!jobs[i].failed);
            expect_same_bits(&jobs[i].result, &world->ranks[0].result);
            arena_finish(&jobs[i].arena);
        }
        world_destroy(world);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("split");
    TCase *tcase = tcase_create("ranks");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_split_over_ranks_changes_neither_loss_nor_gradient, 0, 4);
    tcase_add_test(tcase, threads_that_run_the_same_batch_get_the_same_bits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
