/*
 * What a step costs that is like the one before: no memory from the machine, and where it is computed. This program
 * counts what is asked of malloc, calloc and realloc (linked with --wrap).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/registry_lab.h"
#include "support/runner.h"

enum { SMALL = 100, LARGE = 20000 }; /* candidates: computed by the thread that completes the step, by the pool */

static atomic_size_t num_allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    (void)atomic_fetch_add(&num_allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    (void)atomic_fetch_add(&num_allocations, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    (void)atomic_fetch_add(&num_allocations, 1);
    return __real_realloc(old, bytes);
}

/* A rank that sends the same batch each step, from the same memory. */
struct sender {
    uint32_t rank;
    struct submission submission;
    struct task_batch task;
    uint32_t length;
    float logits[LARGE];
    float labels[LARGE];
    sem_t is_done;
    pthread_t done_on;
};

static void on_done(struct submission *submission)
{
    struct sender *sender = submission->owner;

    sender->done_on = pthread_self();
    (void)sem_post(&sender->is_done);
}

static struct sender *sender_open(uint32_t rank)
{
    struct sender *sender = calloc(1, sizeof *sender);

    sender->rank = rank;
    submission_init(&sender->submission, 1 << 24, NULL);
    sender->submission.done = on_done;
    sender->submission.owner = sender;
    (void)sem_init(&sender->is_done, 0, 0);
    for (int c = 0; c < LARGE; c++) {
        sender->logits[c] = (float)(c % 17 - 8) / 3.0F;
        sender->labels[c] = c % 5 == 0 ? 1.0F : 0.0F;
    }
    return sender;
}

static void sender_close(struct sender *sender)
{
    submission_finish(&sender->submission);
    (void)sem_destroy(&sender->is_done);
    free(sender);
}

static void send_batch(struct registry *registry, struct sender *sender, uint64_t step, uint32_t candidates)
{
    struct submission *submission = &sender->submission;

    sender->length = candidates;
    sender->task = (struct task_batch){
        .name = "click",
        .logits = sender->logits,
        .num_logits = candidates,
        .labels = sender->labels,
        .num_labels = candidates,
    };
    submission->batch = (struct batch){
        .lengths = &sender->length,
        .num_lengths = 1,
        .tasks = &sender->task,
        .num_tasks = 1,
        .gradient_scale = 1,
    };
    strcpy(submission->group_name, "g");
    submission->has_rank = true;
    submission->rank = sender->rank;
    submission->has_step = true;
    submission->step = step;
    registry_submit(registry, submission);
}

/* Whether a good answer comes within 10 s. No assertion, which would allocate. */
static bool is_answered(struct sender *sender)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    return sem_timedwait(&sender->is_done, &until) == 0 && sender->submission.error.status == LOSSD_OK;
}

static struct registry *open_registry(void)
{
    struct registry_settings settings = lab_settings;
    struct registry *registry;

    settings.batch_limits.max_candidates = LARGE;
    registry = lab_registry_with(&settings);
    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    return registry;
}

static bool do_step(struct registry *registry, struct sender **senders, uint64_t step, uint32_t candidates)
{
    bool is_ok = true;

    for (int s = 0; s < 2; s++)
        send_batch(registry, senders[s], step, candidates);
    for (int s = 0; s < 2; s++) {
        is_ok = is_answered(senders[s]) && is_ok;
        submission_reset(&senders[s]->submission);
    }
    return is_ok;
}

START_TEST(a_thousand_steps_like_those_before_allocate_nothing)
{
    static const uint32_t sizes[] = {SMALL, LARGE};
    const uint32_t candidates = sizes[_i];
    struct registry *registry = open_registry();
    struct sender *senders[] = {sender_open(0), sender_open(1)};
    bool is_ok = true;
    size_t before = 0;
    size_t after;

    for (uint64_t step = 0; step < 1010; step++) {
        if (step == 10)
            before = atomic_load(&num_allocations);
        is_ok = do_step(registry, senders, step, candidates) && is_ok;
    }
    after = atomic_load(&num_allocations);
    ck_assert_uint_gt(before, 0); /* it does count */
    ck_assert_uint_eq(after, before);
    ck_assert(is_ok);
    lab_expect_counters(registry, 1010, 0, 0, 1010);
    sender_close(senders[0]);
    sender_close(senders[1]);
    lab_end(registry);
}
END_TEST

START_TEST(a_step_with_an_announcement_allocates_nothing)
{
    struct registry *registry = open_registry();
    struct sender *senders[] = {sender_open(0), sender_open(1)};
    struct lossd_error err;
    bool is_ok = true;
    size_t before = 0;
    size_t after;

    for (uint64_t step = 0; step < 1010; step++) {
        if (step == 10)
            before = atomic_load(&num_allocations);
        is_ok = lab_announce(registry, "g", 1, step, 1, SMALL, &err) == LOSSD_OK && is_ok;
        is_ok = do_step(registry, senders, step, SMALL) && is_ok;
    }
    after = atomic_load(&num_allocations);
    ck_assert_uint_eq(after, before);
    ck_assert(is_ok);
    sender_close(senders[0]);
    sender_close(senders[1]);
    lab_end(registry);
}
END_TEST

START_TEST(small_batches_are_answered_by_the_thread_that_completes_the_step)
{
    struct registry *registry = open_registry();
    struct sender *senders[] = {sender_open(0), sender_open(1)};

    send_batch(registry, senders[0], 0, SMALL);
    ck_assert_int_ne(sem_trywait(&senders[0]->is_done), 0);
    send_batch(registry, senders[1], 0, SMALL);
    for (int s = 0; s < 2; s++) {
        ck_assert_int_eq(sem_trywait(&senders[s]->is_done), 0); /* before registry_submit returned */
        ck_assert(pthread_equal(senders[s]->done_on, pthread_self()));
        sender_close(senders[s]);
    }
    lab_end(registry);
}
END_TEST

START_TEST(a_large_batch_is_computed_elsewhere_and_a_small_one_beside_it_here)
{
    struct registry *registry = open_registry();
    struct sender *senders[] = {sender_open(0), sender_open(1)};

    send_batch(registry, senders[0], 0, LARGE);
    send_batch(registry, senders[1], 0, SMALL);
    ck_assert_int_eq(sem_trywait(&senders[1]->is_done), 0);
    ck_assert(is_answered(senders[0]));
    ck_assert(!pthread_equal(senders[0]->done_on, pthread_self()));
    ck_assert(pthread_equal(senders[1]->done_on, pthread_self()));
    sender_close(senders[0]);
    sender_close(senders[1]);
    lab_end(registry);
}
END_TEST

/* Each of the two fits alone, not both. */
START_TEST(the_same_batch_gets_the_same_bits_on_either_thread)
{
    const uint32_t candidates = 8000;
    struct registry *registry = open_registry();
    struct sender *senders[] = {sender_open(0), sender_open(1)};
    const struct task_result *here;
    const struct task_result *there;

    send_batch(registry, senders[0], 0, candidates);
    send_batch(registry, senders[1], 0, candidates);
    ck_assert(is_answered(senders[0]));
    ck_assert(is_answered(senders[1]));
    ck_assert(pthread_equal(senders[0]->done_on, pthread_self()));
    ck_assert(!pthread_equal(senders[1]->done_on, pthread_self()));
    here = senders[0]->submission.result.tasks;
    there = senders[1]->submission.result.tasks;
    ck_assert_mem_eq(&here->loss, &there->loss, sizeof here->loss);
    ck_assert_mem_eq(here->gradient, there->gradient, candidates * sizeof(float));
    sender_close(senders[0]);
    sender_close(senders[1]);
    lab_end(registry);
}
END_TEST

START_TEST(an_announcement_that_completes_a_step_answers_who_waits)
{
    struct registry *registry = open_registry();
    struct sender *sender = sender_open(0);
    struct lossd_error err;

    send_batch(registry, sender, 0, SMALL);
    ck_assert_int_eq(lab_announce(registry, "g", 1, 0, 1, 5, &err), LOSSD_OK);
    ck_assert_int_eq(sem_trywait(&sender->is_done), 0);
    ck_assert_double_eq(sender->submission.result.world.candidates, SMALL + 5);
    sender_close(sender);
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steady");
    TCase *tcase = tcase_create("steps");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_thousand_steps_like_those_before_allocate_nothing, 0, 2);
    tcase_add_test(tcase, a_step_with_an_announcement_allocates_nothing);
    tcase_add_test(tcase, small_batches_are_answered_by_the_thread_that_completes_the_step);
    tcase_add_test(tcase, a_large_batch_is_computed_elsewhere_and_a_small_one_beside_it_here);
    tcase_add_test(tcase, the_same_batch_gets_the_same_bits_on_either_thread);
    tcase_add_test(tcase, an_announcement_that_completes_a_step_answers_who_waits);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
