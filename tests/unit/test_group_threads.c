/* Groups under many threads: meant to be run under ThreadSanitizer too. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "support/random.h"
#include "support/registry_lab.h"
#include "support/runner.h"

enum { NUM_RANKS = 4, NUM_STEPS = 300, NUM_CALLS = 300 };

struct scene {
    struct registry *registry;
    atomic_bool is_over;
    atomic_uint num_ended;
    atomic_uint num_ok;
    atomic_uint num_left;
};

struct actor {
    struct scene *scene;
    uint32_t rank;
    pthread_t thread;
};

static void start(struct actor *actor, struct scene *scene, uint32_t rank, void *(*run)(void *))
{
    actor->scene = scene;
    actor->rank = rank;
    ck_assert_int_eq(pthread_create(&actor->thread, NULL, run, actor), 0);
}

static void finish(const struct actor *actor)
{
    ck_assert_int_eq(pthread_join(actor->thread, NULL), 0);
}

static void pause_a_little(void)
{
    const struct timespec pause = {.tv_nsec = 200000};

    (void)nanosleep(&pause, NULL);
}

/* The daemon's clock, and somebody who looks at the status page all the time. */
static void *watch(void *argument)
{
    struct scene *scene = ((struct actor *)argument)->scene;

    while (!atomic_load(&scene->is_over)) {
        struct group_view *views;
        struct lossd_error err;
        size_t count;

        (void)registry_tick(scene->registry, clock_now_ns());
        ck_assert_int_eq(registry_view_all(scene->registry, &views, &count, &err), LOSSD_OK);
        for (size_t v = 0; v < count; v++)
            group_view_finish(&views[v]);
        free(views);
        pause_a_little();
    }
    return NULL;
}

static uint32_t candidates_of(uint32_t rank, uint64_t step)
{
    return (uint32_t)((rank * 7 + step) % 5);
}

static double world_of(uint64_t step)
{
    double sum = 0;

    for (uint32_t r = 0; r < NUM_RANKS; r++)
        sum += candidates_of(r, step);
    return sum;
}

/* A trainer: announces every third step ahead, sends every step, checks what it gets. */
static void *train(void *argument)
{
    const struct actor *actor = argument;
    struct registry *registry = actor->scene->registry;
    const struct address address = {.group = "g", .has_rank = true, .rank = actor->rank};
    struct lossd_error err;

    for (uint64_t step = 0; step < NUM_STEPS; step++) {
        struct ticket *ticket;

        if (step % 3 == 0)
            ck_assert_int_eq(registry_announce(registry, &address, step, 1, candidates_of(actor->rank, step), &err),
                             LOSSD_OK);
        ticket = lab_submit(registry, "g", actor->rank, step, candidates_of(actor->rank, step));
        ck_assert_int_eq(ticket_wait(ticket), LOSSD_OK);
        ck_assert_uint_eq(ticket->submission.result.step, step);
        ck_assert_double_eq(ticket->submission.result.world.candidates, world_of(step));
        ck_assert_double_eq(ticket->submission.result.world.requests, NUM_RANKS);
        ck_assert(!ticket->submission.result.replayed);
        ticket_free(ticket);
    }
    return NULL;
}

START_TEST(ranks_on_threads_get_the_same_world_at_each_step)
{
    struct scene scene = {.registry = lab_registry()};
    struct actor trainers[NUM_RANKS];
    struct actor watcher;
    struct group_view view;
    struct lossd_error err;

    for (uint32_t r = 0; r < NUM_RANKS; r++)
        lab_join(scene.registry, "g", r, NUM_RANKS);
    start(&watcher, &scene, 0, watch);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        start(&trainers[r], &scene, r, train);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        finish(&trainers[r]);
    atomic_store(&scene.is_over, true);
    finish(&watcher);
    ck_assert_int_eq(registry_view(scene.registry, "g", &view, &err), LOSSD_OK);
    ck_assert_uint_eq(view.all_reduces, NUM_STEPS);
    ck_assert_uint_eq(view.steps.done, NUM_STEPS);
    group_view_finish(&view);
    lab_end(scene.registry);
}
END_TEST

/* Joins, attaches, sends, dies, goes away and leaves as it likes; every call has a short deadline. */
static void *misbehave(void *argument)
{
    const struct actor *actor = argument;
    struct scene *scene = actor->scene;
    const struct address address = {.group = "g", .has_rank = true, .rank = actor->rank};
    struct random random = {.state = actor->rank + 1};
    struct attachment attachment = {0};
    struct lossd_error err;

    for (uint64_t call = 0; call < NUM_CALLS; call++) {
        struct ticket *ticket = lab_ticket("g", actor->rank, call / 2, candidates_of(actor->rank, call));

        if (random_chance(&random, 0.02) && registry_leave(scene->registry, &address, &err) == LOSSD_OK)
            (void)atomic_fetch_add(&scene->num_left, 1);
        if (call == 0 || random_chance(&random, 0.02))
            lab_join(scene->registry, "g", actor->rank, NUM_RANKS);
        if (random_chance(&random, 0.1) && registry_attach(scene->registry, &address, &attachment, &err) != LOSSD_OK)
            attachment.token = 0;
        if (random_chance(&random, 0.1))
            registry_detach(scene->registry, &address, attachment.token);
        ticket->submission.deadline_ns = clock_now_ns() + 2 * NS_PER_MS;
        registry_submit(scene->registry, &ticket->submission);
        if (random_chance(&random, 0.2))
            registry_cancel(scene->registry, &ticket->submission);
        (void)atomic_fetch_add(&scene->num_ok, ticket_wait(ticket) == LOSSD_OK);
        (void)atomic_fetch_add(&scene->num_ended, 1);
        ticket_free(ticket);
    }
    return NULL;
}

START_TEST(every_call_ends_once_whatever_clients_do_at_the_same_time)
{
    struct scene scene = {.registry = lab_registry()};
    struct actor clients[NUM_RANKS];
    struct actor watcher;

    start(&watcher, &scene, 0, watch);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        start(&clients[r], &scene, r, misbehave);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        finish(&clients[r]);
    atomic_store(&scene.is_over, true);
    finish(&watcher);
    ck_assert_uint_eq(atomic_load(&scene.num_ended), NUM_RANKS * NUM_CALLS);
    lab_end(scene.registry);
}
END_TEST

/* Sends steps until it is refused because the registry is closed. */
static void *train_until_closed(void *argument)
{
    const struct actor *actor = argument;
    enum lossd_status status = LOSSD_OK;

    for (uint64_t step = 0; status == LOSSD_OK; step++) {
        struct ticket *ticket = lab_submit(actor->scene->registry, "g", actor->rank, step, 3);

        status = ticket_wait(ticket);
        (void)atomic_fetch_add(&actor->scene->num_ok, status == LOSSD_OK);
        ticket_free(ticket);
    }
    ck_assert_int_eq(status, LOSSD_SHUTTING_DOWN);
    return NULL;
}

START_TEST(closing_under_load_answers_every_call)
{
    struct scene scene = {.registry = lab_registry()};
    struct actor trainers[NUM_RANKS];

    for (uint32_t r = 0; r < NUM_RANKS; r++)
        lab_join(scene.registry, "g", r, NUM_RANKS);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        start(&trainers[r], &scene, r, train_until_closed);
    while (atomic_load(&scene.num_ok) < 100)
        pause_a_little();
    registry_close(scene.registry);
    for (uint32_t r = 0; r < NUM_RANKS; r++)
        finish(&trainers[r]);
    lab_end(scene.registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_threads");
    TCase *tcase = tcase_create("threads");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, ranks_on_threads_get_the_same_world_at_each_step);
    tcase_add_test(tcase, every_call_ends_once_whatever_clients_do_at_the_same_time);
    tcase_add_test(tcase, closing_under_load_answers_every_call);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
