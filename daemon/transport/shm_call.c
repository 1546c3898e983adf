/* The call of a slot, from its submission to its answer. */
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/rpc_handlers.h"
#include "transport/shm_internal.h"

/* Of results, ahead of their computation: what is more than that is written later in any case. */
enum { MOST_FETCHED_BYTES = 512 };

static struct shm *shm_of(const struct shm_slot *slot)
{
    return slot->session->connection->shm;
}

/* Names and numbers only, as over HTTP: what a message quotes may be data. */
static void log_failure(const struct shm_slot *slot, size_t method)
{
    const struct submission *submission = &slot->submission;
    const struct status_info *info = status_info(submission->error.status);
    const int64_t now_ns = clock_now_ns();

    if (!log_quota_take(&shm_of(slot)->log_quota, now_ns))
        return;
    log_line(LOG_LEVEL_INFO,
             "event=call transport=shm method=%s code=%s reason=%s group=%s rank=%" PRIu32 " step=%" PRIu64
             " ms=%.3f field=\"%s\"",
             rpc_methods[method].path + 1, info->code_name, info->reason, slot->session->group, submission->rank,
             submission->step, (double)(now_ns - slot->taken_ns) / (double)NS_PER_MS, submission->error.field);
}

static void count_call(const struct shm_slot *slot)
{
    struct shm *shm = shm_of(slot);
    const size_t method = slot->call == LOSSD_SHM_ANNOUNCE ? shm->announce_method : shm->compute_method;
    const enum lossd_status status = slot->submission.error.status;

    counter_add(&shm->counters->rpc_requests[method][status_info(status)->code], 1);
    if (status != LOSSD_OK)
        log_failure(slot, method);
}

/* Full buffers need no bell: whoever has not read them wakes up anyway. */
static void ring(int fd)
{
    static const struct lossd_shm_header bell = {
        .magic = LOSSD_SHM_MAGIC,
        .version = LOSSD_SHM_VERSION,
        .type = LOSSD_SHM_BELL,
        .size_bytes = sizeof bell,
    };

    (void)!send(fd, &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * The slot is free before the trainer sees the answer, for it may fill it again at once; and the connection is held
 * until the very end, for it may be gone after that. What is written for the trainer is written without anything atomic
 * in between, which would wait for the lines of the answer while the trainer looks for them.
 */
static void answer(struct shm_slot *slot)
{
    struct shm_connection *connection = slot->session->connection;
    struct shm *shm = connection->shm;
    struct lossd_shm_control *control = slot->session->control;
    struct lossd_shm_answer *shared = slot->answer;
    const uint64_t sequence = slot->sequence;

    count_call(slot);
    (void)gauge_add(&shm->counters->open_calls, -1);
    (void)atomic_fetch_sub(&shm->open_calls, 1);
    shm_fill_answer(shared, &slot->session->layout, slot->call == LOSSD_SHM_COMPUTE, &slot->submission);
    atomic_store_explicit(&slot->is_open, false, memory_order_release);
    __atomic_store_n(&shared->sequence, sequence, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&control->client_sleeps, __ATOMIC_SEQ_CST) != 0)
        ring(connection->fd);
    if (atomic_fetch_sub(&connection->calls, 1) == (SHM_CONNECTION_ENDS | 1))
        shm_wake(shm);
}

static void on_done(struct submission *submission)
{
    struct shm_slot *slot = submission->owner;

    (void)gauge_add(&shm_of(slot)->counters->parked_calls, -1);
    rpc_tell_shortage(submission, 0, shm_of(slot)->budget->limit_bytes);
    answer(slot);
}

static void open_call(struct shm_slot *slot, uint64_t sequence)
{
    struct shm *shm = shm_of(slot);

    submission_reset(&slot->submission);
    slot->sequence = sequence;
    slot->call = 0;
    slot->taken_ns = clock_now_ns();
    (void)atomic_fetch_add(&slot->session->connection->calls, 1);
    (void)atomic_fetch_add(&shm->open_calls, 1);
    (void)gauge_add(&shm->counters->open_calls, 1);
    atomic_store_explicit(&slot->is_open, true, memory_order_relaxed);
}

/* A call that names no generation means that of its connection, whose config its columns are laid out for. */
static void fill_address(const struct shm_slot *slot, const struct lossd_shm_submission *copy,
                         struct submission *submission)
{
    const struct shm_session *session = slot->session;
    const bool has_generation = (copy->flags & LOSSD_SHM_HAS_GENERATION) != 0;

    memcpy(submission->group_name, session->group, sizeof submission->group_name);
    submission->has_rank = true;
    submission->rank = session->address.rank;
    submission->has_step = (copy->flags & LOSSD_SHM_HAS_STEP) != 0;
    submission->step = copy->step;
    submission->has_generation = true;
    submission->generation = has_generation ? copy->generation : session->attachment.generation;
}

static enum lossd_status announce(struct shm_slot *slot, const struct lossd_shm_submission *copy,
                                  struct lossd_error *err)
{
    struct address address = slot->session->address;

    if (!slot->submission.has_step)
        return rpc_field_absent(err, "step");
    address.has_generation = true;
    address.generation = slot->submission.generation;
    return registry_announce(shm_of(slot)->registry, &address, copy->step, copy->num_requests, copy->num_candidates,
                             err);
}

static enum lossd_status read_compute(struct shm_slot *slot, const struct lossd_shm_submission *copy,
                                      struct lossd_error *err)
{
    static const uint64_t longest_ns = RPC_MAX_TIMEOUT_MS * NS_PER_MS;
    const struct shm_session *session = slot->session;
    struct submission *submission = &slot->submission;
    const struct shm_space space = {
        .bytes = session->region.bytes,
        .size = session->region.size,
        .data_offset = session->layout.data_offset,
        .attachment = &session->attachment,
        .limits = shm_of(slot)->settings.batch_limits,
    };

    if (copy->timeout_ns > 0)
        submission->deadline_ns = slot->taken_ns +
                                  (int64_t)(copy->timeout_ns < longest_ns ? copy->timeout_ns : longest_ns);
    return shm_read_batch(&space, copy, &submission->arena, &submission->batch, err);
}

/* LOSSD_OK with call COMPUTE: the batch is to be submitted. Everything else is the answer. */
static enum lossd_status read_call(struct shm_slot *slot, struct lossd_error *err)
{
    const struct shm_session *session = slot->session;
    struct submission *submission = &slot->submission;
    const struct lossd_shm_submission *copy;

    if (atomic_load(&shm_of(slot)->is_closed))
        return error_set(err, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    copy = shm_copy_submission(slot->shared, session->attachment.num_tasks, &submission->arena);
    if (copy == NULL)
        return arena_error(&submission->arena, "submission", err);
    slot->call = copy->call;
    fill_address(slot, copy, submission);
    if (shm_check_head(copy, &session->attachment, err) != LOSSD_OK)
        return err->status;
    return copy->call == LOSSD_SHM_ANNOUNCE ? announce(slot, copy, err) : read_compute(slot, copy, err);
}

/*
 * The lines of an answer that the trainer does not look at meanwhile come to this core while the batch is computed; not
 * when they are written and the trainer waits for them. Some 100 ns of a step.
 */
static void fetch_answer(const struct shm_slot *slot)
{
    const struct lossd_shm_attached *layout = &slot->session->layout;
    const char *answer = (const char *)slot->answer;
    const size_t end = sizeof *slot->answer + layout->num_tasks * sizeof(struct lossd_shm_task_answer) +
                       layout->num_terms * sizeof(struct lossd_shm_term);

    __builtin_prefetch(answer + LOSSD_SHM_ALIGNMENT, 1);
    for (size_t at = sizeof *slot->answer; at < end && at < sizeof *slot->answer + MOST_FETCHED_BYTES;
         at += LOSSD_SHM_ALIGNMENT)
        __builtin_prefetch(answer + at, 1);
}

void shm_slot_take(struct shm_slot *slot, uint64_t sequence)
{
    struct submission *submission = &slot->submission;
    struct shm *shm = shm_of(slot);

    open_call(slot, sequence);
    if (read_call(slot, &submission->error) == LOSSD_OK && slot->call == LOSSD_SHM_COMPUTE) {
        submission->done = on_done;
        submission->owner = slot;
        (void)gauge_add(&shm->counters->parked_calls, 1);
        fetch_answer(slot);
        registry_submit(shm->registry, submission);
        return;
    }
    rpc_tell_shortage(submission, 0, shm->budget->limit_bytes);
    answer(slot);
}
