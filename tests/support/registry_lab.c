#include "support/registry_lab.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

const struct registry_settings lab_settings = {
    .max_groups = 4,
    .max_ranks = 8,
    .batch_limits = {.max_requests = 8, .max_candidates = 64},
    .compute_threads = 2,
};

struct registry *lab_registry_with(const struct registry_settings *settings)
{
    struct lossd_error err;
    struct registry *registry;

    error_init(&err);
    registry = registry_create(settings, &err);
    ck_assert_msg(registry != NULL, "%s", err.message);
    return registry;
}

struct registry *lab_registry(void)
{
    return lab_registry_with(&lab_settings);
}

void lab_end(struct registry *registry)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    registry_close(registry);
    while (registry_open_submissions(registry) > 0)
        (void)nanosleep(&pause, NULL);
    registry_destroy(registry);
}

struct owned_config *lab_config(const char *digest)
{
    struct owned_config *owned = calloc(1, sizeof *owned);
    struct task_config *task;
    struct loss_config *loss;

    arena_init(&owned->arena, 1 << 16, NULL);
    task = arena_calloc(&owned->arena, 1, sizeof *task);
    loss = arena_calloc(&owned->arena, 1, sizeof *loss);
    *loss = (struct loss_config){.kind = LOSS_BINARY_CROSS_ENTROPY, .weight = 1};
    *task = (struct task_config){
        .name = "click",
        .num_class = 1,
        .weight = 1,
        .in_task_space_weight = 1,
        .out_task_space_weight = 1,
        .losses = loss,
        .num_losses = 1,
    };
    owned->config = (struct group_config){
        .tasks = task,
        .num_tasks = 1,
        .global_average = true,
        .step_timeout_ms = 30000,
        .first_step_timeout_ms = 30000,
    };
    (void)snprintf(owned->digest, sizeof owned->digest, "%s", digest);
    owned->blob = (struct config_blob){.bytes = (uint8_t *)strdup(digest), .size = strlen(digest)};
    return owned;
}

enum lossd_status lab_try_join(struct registry *registry, struct join_request request, struct join_answer *answer,
                               struct lossd_error *err)
{
    struct config_blob first_seen = {0};
    struct lossd_error ignored;
    struct join_answer unread;
    enum lossd_status status;

    error_init(err != NULL ? err : &ignored);
    status = registry_join(registry, &request, answer != NULL ? answer : &unread, &first_seen,
                           err != NULL ? err : &ignored);
    owned_config_destroy(request.config);
    free(first_seen.bytes);
    return status;
}

uint64_t lab_join(struct registry *registry, const char *group, uint32_t rank, uint32_t world_size)
{
    const struct join_request request = {
        .group = group,
        .has_rank = true,
        .rank = rank,
        .has_world_size = true,
        .world_size = world_size,
        .nnodes = 1,
        .config = lab_config("a"),
    };
    struct join_answer answer;

    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    return answer.generation;
}

struct registry *lab_registry_of_two(void)
{
    struct registry *registry = lab_registry();

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    return registry;
}

static void on_done(struct submission *submission)
{
    struct ticket *ticket = submission->owner;

    (void)atomic_fetch_add(&ticket->ends, 1);
    (void)sem_post(&ticket->is_done);
}

void lab_join_all(struct registry *registry, struct owned_config *config, uint32_t world_size)
{
    for (uint32_t r = 0; r < world_size; r++) {
        struct join_request request = {
            .group = "g",
            .has_rank = true,
            .rank = r,
            .has_world_size = true,
            .world_size = world_size,
            .nnodes = 1,
            .config = r == 0 ? config : lab_config(config->digest),
        };

        ck_assert_int_eq(lab_try_join(registry, request, NULL, NULL), LOSSD_OK);
    }
}

enum lossd_status lab_leave(struct registry *registry, const char *group, uint32_t rank)
{
    const struct address address = {.group = group, .has_rank = true, .rank = rank};
    struct lossd_error err;

    error_init(&err);
    return registry_leave(registry, &address, &err);
}

uint64_t lab_attach(struct registry *registry, uint32_t rank)
{
    const struct address address = {.group = "g", .has_rank = true, .rank = rank};
    struct attachment attachment;
    struct lossd_error err;

    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_OK);
    return attachment.token;
}

void lab_detach(struct registry *registry, uint32_t rank, uint64_t token)
{
    const struct address address = {.group = "g", .has_rank = true, .rank = rank};

    registry_detach(registry, &address, token);
}

enum lossd_status lab_announce(struct registry *registry, const char *group, uint32_t rank, uint64_t step,
                               uint32_t requests, uint32_t candidates, struct lossd_error *err)
{
    const struct address address = {.group = group, .has_rank = true, .rank = rank};

    error_init(err);
    return registry_announce(registry, &address, step, requests, candidates, err);
}

struct group_view lab_view(struct registry *registry, const char *group)
{
    struct group_view view;
    struct lossd_error err;

    ck_assert_int_eq(registry_view(registry, group, &view, &err), LOSSD_OK);
    return view;
}

void lab_expect_counters(struct registry *registry, uint64_t done, uint64_t failed, uint64_t aborted,
                         uint64_t all_reduces)
{
    struct group_view view = lab_view(registry, "g");

    ck_assert_uint_eq(view.steps.done, done);
    ck_assert_uint_eq(view.steps.failed, failed);
    ck_assert_uint_eq(view.steps.aborted, aborted);
    ck_assert_uint_eq(view.all_reduces, all_reduces);
    group_view_finish(&view);
}

struct ticket *lab_ticket(const char *group, uint32_t rank, uint64_t step, uint32_t candidates)
{
    struct ticket *ticket = calloc(1, sizeof *ticket);
    struct submission *submission = &ticket->submission;

    submission_init(submission, 1 << 20, NULL);
    (void)sem_init(&ticket->is_done, 0, 0);
    for (int c = 0; c < 64; c++)
        ticket->labels[c] = 1;
    ticket->length = candidates;
    ticket->task = (struct task_batch){
        .name = "click",
        .logits = ticket->logits,
        .num_logits = candidates,
        .labels = ticket->labels,
        .num_labels = candidates,
    };
    submission->batch = (struct batch){
        .lengths = &ticket->length,
        .num_lengths = 1,
        .tasks = &ticket->task,
        .num_tasks = 1,
        .gradient_scale = 1,
    };
    (void)snprintf(submission->group_name, sizeof submission->group_name, "%s", group);
    submission->has_rank = true;
    submission->rank = rank;
    submission->has_step = true;
    submission->step = step;
    submission->done = on_done;
    submission->owner = ticket;
    return ticket;
}

struct ticket *lab_submit(struct registry *registry, const char *group, uint32_t rank, uint64_t step,
                          uint32_t candidates)
{
    struct ticket *ticket = lab_ticket(group, rank, step, candidates);

    registry_submit(registry, &ticket->submission);
    return ticket;
}

enum lossd_status ticket_wait(struct ticket *ticket)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    ck_assert_msg(sem_timedwait(&ticket->is_done, &until) == 0, "no answer within 10 s");
    (void)sem_post(&ticket->is_done);
    return ticket->submission.error.status;
}

bool ticket_is_done(struct ticket *ticket)
{
    return atomic_load(&ticket->ends) > 0;
}

void ticket_free(struct ticket *ticket)
{
    ck_assert_int_eq(atomic_load(&ticket->ends), 1);
    submission_finish(&ticket->submission);
    (void)sem_destroy(&ticket->is_done);
    free(ticket);
}

void ticket_expect(struct ticket *ticket, enum lossd_status status)
{
    const enum lossd_status got = ticket_wait(ticket);

    ck_assert_msg(got == status, "%s instead of %s: %s", status_info(got)->reason, status_info(status)->reason,
                  ticket->submission.error.message);
    ticket_free(ticket);
}

const char *lab_metadata(const struct lossd_error *err, const char *wanted)
{
    const char *key;
    const char *value;
    size_t cursor = 0;

    while (error_next_metadata(err, &cursor, &key, &value))
        if (strcmp(key, wanted) == 0)
            return value;
    return "(absent)";
}
