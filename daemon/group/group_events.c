/* What happens to a generation: events go into the step machine under the lock, what comes out is for the caller to do.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "group/group_internal.h"

static void append(struct submission **first, struct submission **last, struct submission *submission)
{
    submission->next = NULL;
    if (*first == NULL)
        *first = submission;
    else
        (*last)->next = submission;
    *last = submission;
}

void outcome_add_ended(struct outcome *outcome, struct submission *submission)
{
    append(&outcome->first_ended, &outcome->last_ended, submission);
}

/* A rank's machine, and its number there. */
struct place {
    struct step_machine *machine;
    uint32_t rank;
};

static struct place place_of(const struct group *group, uint32_t rank)
{
    if (group->num_machines == 1)
        return (struct place){group->machines[0], rank};
    return (struct place){group->machines[rank], 0};
}

static void reduce(struct group *group, struct step_machine *machine, int64_t now_ns)
{
    const struct group_config *config = &group->config->owned->config;
    struct lossd_error err;

    step_fill_vector(machine, group->vector);
    error_init(&err);
    if (group->comm != NULL &&
        comm_all_reduce(group->comm, group->vector, group->vector_size,
                        clock_after_ms(now_ns, 2 * (uint64_t)config->step_timeout_ms), &err) != LOSSD_OK)
        step_reduce_failed(machine, &err, now_ns);
    else
        step_reduced(machine, group->vector, now_ns);
}

/* Do what the machine asks for, and see when its clock is due. The lock is held. */
static void collect(struct group *group, struct step_machine *machine, int64_t now_ns, struct outcome *outcome)
{
    int64_t next_ns;

    for (;;) {
        const struct step_action action = step_next_action(machine);
        struct submission *submission = action.call;

        if (action.kind == STEP_ACTION_NONE)
            break;
        if (action.kind == STEP_ACTION_REDUCE) {
            reduce(group, machine, now_ns);
        } else if (action.kind == STEP_ACTION_FAIL) {
            error_copy(&submission->error, action.error);
            outcome_add_ended(outcome, submission);
        } else {
            submission->totals.num_ranks = action.totals->num_ranks;
            memcpy(submission->totals.sums, action.totals->sums, group->plan.num_denominators * sizeof(double));
            submission->result.step = action.step;
            submission->result.replayed = action.replayed;
            append(&outcome->first_compute, &outcome->last_compute, submission);
        }
    }
    next_ns = step_next_deadline(machine);
    if (next_ns < group->armed_ns) {
        group->armed_ns = next_ns;
        outcome->wake = true;
    }
}

static enum lossd_status check_step(uint64_t step, struct lossd_error *err)
{
    if (step < STEP_LIMIT)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_STEP_RANGE, "step", "is %" PRIu64 ", but steps are below 2^53", step);
    error_add_metadata(err, "limit", "%" PRIu64, STEP_LIMIT);
    return LOSSD_STEP_RANGE;
}

void group_joined(struct group *group, uint32_t rank, int64_t now_ns)
{
    const struct place place = place_of(group, rank);

    (void)pthread_mutex_lock(&group->lock);
    step_joined(place.machine, place.rank, now_ns);
    (void)pthread_mutex_unlock(&group->lock);
}

void group_attached(struct group *group, uint32_t rank, int64_t now_ns)
{
    const struct place place = place_of(group, rank);

    (void)pthread_mutex_lock(&group->lock);
    step_heard(place.machine, place.rank, now_ns);
    (void)pthread_mutex_unlock(&group->lock);
}

void group_died(struct group *group, uint32_t rank, int64_t now_ns, struct outcome *outcome)
{
    const struct place place = place_of(group, rank);

    (void)pthread_mutex_lock(&group->lock);
    step_died(place.machine, place.rank, now_ns);
    collect(group, place.machine, now_ns, outcome);
    (void)pthread_mutex_unlock(&group->lock);
}

bool group_is_dead(struct group *group)
{
    bool any_dead = false;
    bool any_alive = false;

    (void)pthread_mutex_lock(&group->lock);
    for (uint32_t r = 0; r < group->world_size && !any_alive; r++) {
        const struct place place = place_of(group, r);
        const enum rank_state state = step_rank_view(place.machine, place.rank).state;

        /* Ranks of declared groups attach without joining. */
        any_alive = state == RANK_NEVER_JOINED ? group->members[r].attachment != 0
                                               : state != RANK_DEAD && state != RANK_LEFT;
        any_dead = any_dead || state == RANK_DEAD;
    }
    (void)pthread_mutex_unlock(&group->lock);
    return any_dead && !any_alive;
}

bool group_leave(struct group *group, uint32_t rank, int64_t now_ns, struct outcome *outcome)
{
    const struct place place = place_of(group, rank);
    bool all_left = true;

    (void)pthread_mutex_lock(&group->lock);
    step_leave(place.machine, place.rank, now_ns);
    collect(group, place.machine, now_ns, outcome);
    for (uint32_t m = 0; m < group->num_machines; m++)
        all_left = all_left && step_all_left(group->machines[m]);
    (void)pthread_mutex_unlock(&group->lock);
    return all_left;
}

static enum lossd_status check_announced(const struct group *group, uint64_t step, uint32_t requests,
                                         uint32_t candidates, struct lossd_error *err)
{
    const bool too_many_requests = requests > group->limits.max_requests;

    if (check_step(step, err) != LOSSD_OK)
        return err->status;
    if (group->plan.announce_needs_batch)
        return error_set(err, LOSSD_ANNOUNCE_NEEDS_BATCH, "",
                         "the counts of a batch do not say all that is summed: the group has %s",
                         group->plan.announce_field);
    if (too_many_requests || candidates > group->limits.max_candidates) {
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, too_many_requests ? "requests" : "candidates",
                        "is %" PRIu32 ", at most %" PRIu32 " are allowed", too_many_requests ? requests : candidates,
                        too_many_requests ? group->limits.max_requests : group->limits.max_candidates);
        error_add_metadata(err, "limit", "%s", too_many_requests ? "requests" : "candidates");
        return LOSSD_LIMIT_EXCEEDED;
    }
    if (requests == 0 && candidates > 0)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "candidates", "is %" PRIu32 ", but there are no requests",
                         candidates);
    return LOSSD_OK;
}

enum lossd_status group_announce(struct group *group, uint32_t rank, uint64_t step, uint32_t requests,
                                 uint32_t candidates, int64_t now_ns, struct outcome *outcome, struct lossd_error *err)
{
    const struct place place = place_of(group, rank);
    double contribution[MAX_DENOMINATORS];
    enum lossd_status status = check_announced(group, step, requests, candidates, err);

    if (status != LOSSD_OK)
        return status;
    loss_announced_contribution(&group->plan, requests, candidates, contribution);
    (void)pthread_mutex_lock(&group->lock);
    status = step_announce(place.machine, place.rank, step, contribution, now_ns, err);
    collect(group, place.machine, now_ns, outcome);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

/* Everything that can fail before the step is summed. */
static enum lossd_status check_batch(const struct group *group, struct submission *submission)
{
    struct lossd_error *err = &submission->error;
    enum lossd_status status = batch_check(&submission->batch, group->plan.config, group->plan.rules, &group->limits,
                                           &submission->arena, err);

    if (status == LOSSD_OK)
        status = loss_prepare(&group->plan, &submission->batch, &submission->arena, &submission->prepared, err);
    if (status == LOSSD_OK)
        status = loss_result_alloc(&group->plan, &submission->batch, &submission->arena, &submission->result, err);
    return status;
}

/* Whether memory was short, which is not the batch's fault: a batch that is too large is refused by a named limit. */
static bool lacks_memory(const struct lossd_error *err)
{
    const char *key;
    const char *value;
    size_t cursor = 0;

    if (err->status != LOSSD_LIMIT_EXCEEDED)
        return false;
    while (error_next_metadata(err, &cursor, &key, &value))
        if (strcmp(key, "limit") == 0)
            return false;
    return true;
}

/* A step that is not right concerns the caller alone, so it is looked at before the batch. */
static enum lossd_status check_given_step(const struct group *group, struct submission *submission)
{
    if (submission->has_step)
        return check_step(submission->step, &submission->error);
    if (group->world_size == 1)
        return LOSSD_OK;
    return error_set(&submission->error, LOSSD_STEP_RANGE, "step",
                     "is absent, which only a group of one rank allows; this one has %" PRIu32, group->world_size);
}

/* The lock is held. */
static enum lossd_status park(struct place place, struct submission *submission, int64_t now_ns,
                              struct outcome *outcome)
{
    const enum lossd_status status = step_submit(place.machine, place.rank, submission->step,
                                                 submission->prepared.contribution, submission, submission->deadline_ns,
                                                 now_ns, &submission->error);

    if (status == LOSSD_OK && submission->is_cancelled && step_cancel(place.machine, place.rank, submission, now_ns)) {
        (void)error_set(&submission->error, LOSSD_CLIENT_GONE, "", "the client closed its connection");
        outcome_add_ended(outcome, submission);
    }
    return status;
}

void group_submit(struct group *group, struct submission *submission, struct outcome *outcome)
{
    const struct place place = place_of(group, submission->rank);
    struct lossd_error *err = &submission->error;
    enum lossd_status status = check_given_step(group, submission);
    bool is_bad = false;
    int64_t now_ns;

    if (status == LOSSD_OK) {
        status = check_batch(group, submission);
        is_bad = status != LOSSD_OK && !lacks_memory(err);
        if (status != LOSSD_OK && !is_bad)
            error_add_metadata(err, "limit", "memory_bytes");
    }
    (void)pthread_mutex_lock(&group->lock);
    now_ns = clock_now_ns();
    if (!submission->has_step && (status == LOSSD_OK || is_bad)) {
        submission->step = step_count_on(place.machine);
        status = status == LOSSD_OK ? check_step(submission->step, err) : status;
    }
    if (status == LOSSD_OK)
        status = park(place, submission, now_ns, outcome);
    else if (is_bad)
        step_refuse(place.machine, place.rank, submission->step, status, now_ns);
    if (status != LOSSD_OK)
        outcome_add_ended(outcome, submission);
    collect(group, place.machine, now_ns, outcome);
    (void)pthread_mutex_unlock(&group->lock);
}

void group_cancel(struct group *group, struct submission *submission, int64_t now_ns, struct outcome *outcome)
{
    const struct place place = place_of(group, submission->rank);

    (void)pthread_mutex_lock(&group->lock);
    if (step_cancel(place.machine, place.rank, submission, now_ns)) {
        (void)error_set(&submission->error, LOSSD_CLIENT_GONE, "", "the client closed its connection");
        outcome_add_ended(outcome, submission);
    } else {
        submission->is_cancelled = true;
    }
    (void)pthread_mutex_unlock(&group->lock);
}

int64_t group_tick(struct group *group, int64_t now_ns, struct outcome *outcome)
{
    int64_t next_ns = NO_DEADLINE;

    (void)pthread_mutex_lock(&group->lock);
    /* Ranks that don't average wait for nobody: their machines have no deadlines. */
    if (group->comm != NULL) {
        step_tick(group->machines[0], now_ns);
        group->armed_ns = NO_DEADLINE;
        collect(group, group->machines[0], now_ns, outcome);
        next_ns = group->armed_ns;
    }
    (void)pthread_mutex_unlock(&group->lock);
    return next_ns;
}

void group_close(struct group *group, const struct lossd_error *why, int64_t now_ns, struct outcome *outcome)
{
    (void)pthread_mutex_lock(&group->lock);
    for (uint32_t m = 0; m < group->num_machines; m++) {
        step_close(group->machines[m], why, now_ns);
        collect(group, group->machines[m], now_ns, outcome);
    }
    (void)pthread_mutex_unlock(&group->lock);
}
