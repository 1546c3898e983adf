/* Groups by name, and the calls on them: announcements, submissions, the clock, views. */
#include "group/registry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "group/registry_internal.h"

/*
 * What a thread that has completed a step computes itself: batches of this many logits in all, which take most losses
 * 50 to 90 us (JRC 320), where to wake a thread of the pool takes 40 us and up. A call costs as much as some logits
 * more.
 */
enum { INLINE_VALUES = 12288, CALL_VALUES = 256 };

/* The submission goes back to the transport, with its reference to the group: the result has names of its config. */
static void end_submission(struct registry *registry, struct submission *submission)
{
    submission->done(submission);
    (void)atomic_fetch_sub(&registry->num_open, 1);
}

static void compute(void *context, struct submission *submission)
{
    submission_compute(submission);
    end_submission(context, submission);
}

struct registry *registry_create(const struct registry_settings *settings, struct lossd_error *err)
{
    struct registry *registry = calloc(1, sizeof *registry);

    if (registry != NULL)
        registry->groups = calloc(settings->max_groups, sizeof(struct group *));
    if (registry == NULL || registry->groups == NULL) {
        (void)error_set(err, LOSSD_INTERNAL, "", "out of memory");
        free(registry);
        return NULL;
    }
    registry->settings = *settings;
    (void)pthread_mutex_init(&registry->lock, NULL);
    registry->pool = compute_pool_create(settings->compute_threads, compute, registry, err);
    if (registry->pool == NULL) {
        registry_destroy(registry);
        return NULL;
    }
    return registry;
}

void registry_destroy(struct registry *registry)
{
    if (registry == NULL)
        return;
    compute_pool_destroy(registry->pool);
    for (size_t g = 0; g < registry->num_groups; g++)
        group_unref(registry->groups[g]);
    free(registry->groups);
    (void)pthread_mutex_destroy(&registry->lock);
    free(registry);
}

struct group *registry_find(const struct registry *registry, const char *name, size_t *place)
{
    size_t low = 0;
    size_t high = registry->num_groups;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (strcmp(registry->groups[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    if (low < registry->num_groups && strcmp(registry->groups[low]->name, name) == 0)
        return registry->groups[low];
    return NULL;
}

static enum lossd_status find_group(const struct registry *registry, const char *name, struct group **group,
                                    struct lossd_error *err)
{
    size_t place;

    if (name == NULL || name[0] == '\0')
        return error_set(err, LOSSD_INVALID_ARGUMENT, "group", "is absent");
    *group = registry_find(registry, name, &place);
    if (*group != NULL)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_GROUP_NOT_FOUND, "group", "there is no group \"%.*s\"", NAME_MAX_LENGTH, name);
    error_add_metadata(err, "group", "%.*s", NAME_MAX_LENGTH, name);
    return LOSSD_GROUP_NOT_FOUND;
}

enum lossd_status registry_find_rank(const struct registry *registry, const struct address *address,
                                     struct group **group, struct lossd_error *err)
{
    struct group *found = NULL;

    if (find_group(registry, address->group, &found, err) != LOSSD_OK)
        return err->status;
    if (address->has_generation && address->generation != found->generation) {
        (void)error_set(err, LOSSD_STALE_GENERATION, "generation",
                        "is %" PRIu64 ", but the group is at generation %" PRIu64 "%s%s", address->generation,
                        found->generation, found->began[0] != '\0' ? ": " : "", found->began);
        error_add_metadata(err, "generation", "%" PRIu64, found->generation);
        return LOSSD_STALE_GENERATION;
    }
    if (!address->has_rank && found->world_size > 1)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "rank", "is absent, but the group has %" PRIu32 " ranks",
                         found->world_size);
    if (address->rank >= found->world_size) {
        (void)error_set(err, LOSSD_RANK_RANGE, "rank", "is %" PRIu32 ", but the group has %" PRIu32 " ranks",
                        address->rank, found->world_size);
        error_add_metadata(err, "world_size", "%" PRIu32, found->world_size);
        return LOSSD_RANK_RANGE;
    }
    if (!found->is_declared && !found->members[address->rank].joined)
        return error_set(err, LOSSD_RANK_NOT_JOINED, "rank", "rank %" PRIu32 " has not joined generation %" PRIu64,
                         address->rank, found->generation);
    *group = found;
    return LOSSD_OK;
}

/* What a submission costs to compute, in values: its logits, and what a call costs whatever its size. */
static size_t cost_of(const struct submission *submission)
{
    size_t values = CALL_VALUES;

    for (size_t t = 0; t < submission->batch.num_tasks; t++)
        values += submission->batch.tasks[t].num_logits;
    return values;
}

/* Hands over to the pool what is too much for this thread; returns the rest, a list. */
static struct submission *push_large(struct registry *registry, struct submission *first, size_t room)
{
    struct submission *small = NULL;
    struct submission **end = &small;
    struct submission *next;

    for (struct submission *submission = first; submission != NULL; submission = next) {
        const size_t cost = cost_of(submission);

        next = submission->next;
        if (cost > room) {
            compute_pool_push(registry->pool, submission);
            continue;
        }
        room -= cost;
        *end = submission;
        end = &submission->next;
    }
    *end = NULL;
    return small;
}

/* What takes time comes last: threads of the pool that have been woken run beside it. */
static void run_outcome(struct registry *registry, struct outcome *outcome, size_t inline_values)
{
    struct submission *small = push_large(registry, outcome->first_compute, inline_values);
    struct submission *next;

    for (struct submission *submission = outcome->first_ended; submission != NULL; submission = next) {
        next = submission->next;
        end_submission(registry, submission);
    }
    if (outcome->wake && registry->wake != NULL)
        registry->wake(registry->wake_context);
    for (struct submission *submission = small; submission != NULL; submission = next) {
        next = submission->next;
        compute(registry, submission);
    }
}

void registry_run_outcome(struct registry *registry, struct outcome *outcome)
{
    run_outcome(registry, outcome, INLINE_VALUES);
}

enum lossd_status registry_announce(struct registry *registry, const struct address *address, uint64_t step,
                                    uint32_t requests, uint32_t candidates, struct lossd_error *err)
{
    struct outcome outcome = {0};
    struct group *group;
    enum lossd_status status;

    (void)pthread_mutex_lock(&registry->lock);
    status = registry_find_rank(registry, address, &group, err);
    if (status == LOSSD_OK)
        (void)group_ref(group);
    (void)pthread_mutex_unlock(&registry->lock);
    if (status != LOSSD_OK)
        return status;
    status = group_announce(group, address->rank, step, requests, candidates, clock_now_ns(), &outcome, err);
    registry_run_outcome(registry, &outcome);
    group_unref(group);
    return status;
}

/* The lock is held. */
static enum lossd_status address_submission(const struct registry *registry, struct submission *submission)
{
    const struct address address = {
        .group = submission->group_name,
        .has_rank = submission->has_rank,
        .rank = submission->rank,
        .has_generation = submission->has_generation,
        .generation = submission->generation,
    };
    struct group *group;
    const enum lossd_status status = registry_find_rank(registry, &address, &group, &submission->error);

    if (registry->is_closed)
        return error_set(&submission->error, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    if (status != LOSSD_OK)
        return status;
    submission->group = group_ref(group);
    return LOSSD_OK;
}

void registry_submit(struct registry *registry, struct submission *submission)
{
    struct outcome outcome = {0};
    struct group *group = NULL;

    (void)atomic_fetch_add(&registry->num_open, 1);
    error_init(&submission->error);
    if (!submission->has_rank)
        submission->rank = 0;
    (void)pthread_mutex_lock(&registry->lock);
    if (address_submission(registry, submission) == LOSSD_OK)
        group = group_ref(submission->group); /* for this call; the submission may be gone before it returns */
    (void)pthread_mutex_unlock(&registry->lock);
    if (group != NULL)
        group_submit(group, submission, &outcome);
    else
        outcome_add_ended(&outcome, submission);
    registry_run_outcome(registry, &outcome);
    group_unref(group);
}

void registry_cancel(struct registry *registry, struct submission *submission)
{
    struct outcome outcome = {0};
    struct group *group;

    (void)pthread_mutex_lock(&registry->lock);
    group = submission->group;
    if (group != NULL)
        (void)group_ref(group);
    else
        submission->is_cancelled = true;
    (void)pthread_mutex_unlock(&registry->lock);
    if (group == NULL)
        return;
    group_cancel(group, submission, clock_now_ns(), &outcome);
    registry_run_outcome(registry, &outcome);
    group_unref(group);
}

int64_t registry_tick(struct registry *registry, int64_t now_ns)
{
    struct outcome outcome = {0};
    int64_t next_ns = NO_DEADLINE;

    (void)pthread_mutex_lock(&registry->lock);
    for (size_t g = 0; g < registry->num_groups; g++) {
        const int64_t group_next_ns = group_tick(registry->groups[g], now_ns, &outcome);

        next_ns = group_next_ns < next_ns ? group_next_ns : next_ns;
    }
    (void)pthread_mutex_unlock(&registry->lock);
    outcome.wake = false; /* the answer says it */
    run_outcome(registry, &outcome, 0);
    return next_ns;
}

void registry_on_deadline(struct registry *registry, void (*wake)(void *context), void *context)
{
    registry->wake = wake;
    registry->wake_context = context;
}

enum lossd_status registry_view(struct registry *registry, const char *name, struct group_view *view,
                                struct lossd_error *err)
{
    struct group *group = NULL;
    enum lossd_status status;

    (void)pthread_mutex_lock(&registry->lock);
    status = find_group(registry, name, &group, err);
    if (status == LOSSD_OK)
        (void)group_ref(group);
    (void)pthread_mutex_unlock(&registry->lock);
    if (status != LOSSD_OK)
        return status;
    status = group_fill_view(group, view, err);
    group_unref(group);
    return status;
}

enum lossd_status registry_view_all(struct registry *registry, struct group_view **views, size_t *count,
                                    struct lossd_error *err)
{
    struct group_view *made;
    enum lossd_status status = LOSSD_OK;
    size_t filled = 0;

    (void)pthread_mutex_lock(&registry->lock);
    made = calloc(registry->num_groups + 1, sizeof *made);
    if (made == NULL)
        status = error_set(err, LOSSD_INTERNAL, "", "out of memory");
    while (status == LOSSD_OK && filled < registry->num_groups) {
        status = group_fill_view(registry->groups[filled], &made[filled], err);
        filled += status == LOSSD_OK;
    }
    (void)pthread_mutex_unlock(&registry->lock);
    if (status == LOSSD_OK) {
        *views = made;
        *count = filled;
        return LOSSD_OK;
    }
    for (size_t v = 0; v < filled; v++)
        group_view_finish(&made[v]);
    free(made);
    return status;
}

void registry_drain(struct registry *registry)
{
    (void)pthread_mutex_lock(&registry->lock);
    registry->is_draining = true;
    (void)pthread_mutex_unlock(&registry->lock);
}

void registry_close(struct registry *registry)
{
    struct outcome outcome = {0};
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    (void)pthread_mutex_lock(&registry->lock);
    registry->is_draining = true;
    registry->is_closed = true;
    for (size_t g = 0; g < registry->num_groups; g++)
        group_close(registry->groups[g], &why, clock_now_ns(), &outcome);
    (void)pthread_mutex_unlock(&registry->lock);
    registry_run_outcome(registry, &outcome);
}

size_t registry_open_submissions(struct registry *registry)
{
    return atomic_load(&registry->num_open);
}
