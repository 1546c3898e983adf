/* Batches through shared memory, as proto/lossd_shm.h says. The block is the data of the region. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spinner.h"
#include "client/failure.h"
#include "client/shm_map.h"
#include "client/shm_socket.h"

/* Where nobody says how long to wait for an answer to an ATTACH. */
enum { ATTACH_TIMEOUT_MS = 10000 };

struct shm_transport {
    struct transport base;
    char path[sizeof((struct sockaddr_un){0}.sun_path)];
    uint32_t num_slots; /* the one behind the user's is for announcements */
    int fd;             /* -1: not connected */
    struct shm_map map;
    uint64_t sequence; /* of the last submission */
    uint32_t bell;
    struct spinner spinner;
};

static struct shm_transport *of(struct transport *transport)
{
    return (struct shm_transport *)transport;
}

static void close_socket(struct shm_transport *shm)
{
    if (shm->fd >= 0)
        (void)close(shm->fd);
    shm->fd = -1;
}

/* Batches and answers outlive the connection; the region does not. */
static void disconnect(struct shm_transport *shm)
{
    struct lossd_failure ignored;

    if (shm->fd >= 0)
        (void)shm_map_keep(&shm->map, &ignored);
    close_socket(shm);
}

/* Where things lie. */

static struct lossd_shm_control *control_of(const struct shm_transport *shm)
{
    return (struct lossd_shm_control *)(void *)shm->map.head;
}

static struct lossd_shm_submission *submission_of(const struct shm_transport *shm, uint32_t slot)
{
    return (struct lossd_shm_submission *)(void *)(shm->map.head + shm->map.at.slots_offset +
                                                   slot * shm->map.at.slot_bytes);
}

static const struct lossd_shm_answer *answer_of(const struct shm_transport *shm, uint32_t slot)
{
    return (const struct lossd_shm_answer *)(const void *)((const uint8_t *)submission_of(shm, slot) +
                                                           shm->map.at.answer_offset);
}

/* Attaching. */

/* Each MiB has a millisecond more: the daemon touches the region before it answers. */
static int64_t attach_deadline(const struct shm_transport *shm, uint64_t data_bytes)
{
    const uint64_t patience_ms = shm->base.patience_ms == 0 ? ATTACH_TIMEOUT_MS : shm->base.patience_ms;

    return clock_after_ms(clock_now_ns(), patience_ms + ANSWER_GRACE_MS + (data_bytes >> 20));
}

static enum lossd_code fetch_region(struct shm_transport *shm, uint64_t data_bytes, struct shm_map *map,
                                    struct lossd_failure *failure)
{
    const struct member *member = shm->base.member;
    struct lossd_shm_attach attach = {
        .generation = member->generation,
        .rank = member->rank,
        .num_slots = shm->num_slots,
        .data_bytes = data_bytes,
    };
    const int64_t deadline_ns = attach_deadline(shm, data_bytes);
    struct lossd_shm_attached attached;
    CLEANUP_CLOSE int region_fd = -1;
    enum lossd_code code;

    memcpy(attach.group, member->group, sizeof attach.group);
    code = shm_socket_attach(shm->fd, &attach, deadline_ns, shm->base.interrupt, &attached, &region_fd, failure);
    if (code != LOSSD_CODE_OK)
        return code;
    return shm_map_open(&attached, region_fd, member, shm->num_slots, data_bytes, map, failure);
}

/* A region of the same size takes the place of the one before; a larger one is another place. */
static enum lossd_code take_region(struct shm_transport *shm, uint64_t data_bytes, struct shm_map *map,
                                   struct lossd_failure *failure)
{
    const uint64_t kept = data_bytes < shm->base.data_bytes ? data_bytes : shm->base.data_bytes;

    if (shm->map.head != NULL && data_bytes == shm->base.data_bytes)
        return shm_map_replace(&shm->map, map, failure);
    if (kept > 0)
        memcpy(map->data, shm->base.block, kept);
    shm_map_close(&shm->map);
    shm->map = *map;
    *map = (struct shm_map){.head = NULL};
    shm->base.data_bytes = data_bytes;
    shm->base.block = shm->map.data;
    return LOSSD_CODE_OK;
}

/*
 * The region of before once more: with its answer to a larger ATTACH the daemon has retired it, and drops it with the
 * next. On the same connection, for the end of that is the death of this rank.
 */
static void take_back(struct shm_transport *shm)
{
    struct shm_map map = {.head = NULL};
    struct lossd_failure ignored;

    if (shm->map.head == NULL || shm_map_keep(&shm->map, &ignored) != LOSSD_CODE_OK ||
        fetch_region(shm, shm->base.data_bytes, &map, &ignored) != LOSSD_CODE_OK ||
        shm_map_replace(&shm->map, &map, &ignored) != LOSSD_CODE_OK)
        disconnect(shm);
    shm_map_close(&map);
    shm->bell = 0;
}

static enum lossd_code attach(struct transport *transport, uint64_t data_bytes, struct lossd_failure *failure)
{
    struct shm_transport *shm = of(transport);
    struct shm_map map = {.head = NULL};
    enum lossd_code code = LOSSD_CODE_OK;

    if (shm->map.head != NULL && data_bytes == transport->data_bytes)
        disconnect(shm);
    if (shm->fd < 0)
        code = shm_socket_connect(shm->path, &shm->fd, failure);
    if (code == LOSSD_CODE_OK)
        code = fetch_region(shm, data_bytes, &map, failure);
    if (code == LOSSD_CODE_OK)
        code = take_region(shm, data_bytes, &map, failure);
    shm_map_close(&map);
    if (code != LOSSD_CODE_OK) {
        if (failure_is(failure, "OUT_OF_MEMORY"))
            take_back(shm);
        else if (code != LOSSD_CODE_RESOURCE_EXHAUSTED)
            disconnect(shm);
        return code;
    }
    shm->bell = 0;
    return LOSSD_CODE_OK;
}

/* Submitting. */

/*
 * Behind everything else that was written of the submission. Stores and loads that are all sequentially consistent do
 * what a fence between them would, and ThreadSanitizer knows them.
 */
static void ring(struct shm_transport *shm, struct lossd_shm_submission *submission)
{
    struct lossd_shm_control *control = control_of(shm);

    __atomic_store_n(&submission->sequence, ++shm->sequence, __ATOMIC_RELEASE);
    __atomic_store_n(&control->bell, ++shm->bell, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&control->daemon_sleeps, __ATOMIC_SEQ_CST) != 0)
        shm_socket_ring(shm->fd);
}

/* 0 for none; a deadline that is over still gets an answer. */
static uint64_t remaining_ns(int64_t deadline_ns)
{
    const int64_t rest_ns = deadline_ns == NO_DEADLINE ? 0 : deadline_ns - clock_now_ns();

    if (deadline_ns == NO_DEADLINE)
        return 0;
    return rest_ns > 0 ? (uint64_t)rest_ns : 1;
}

static void fill_task(struct lossd_shm_task *task, const struct call *call, size_t t, uint64_t base)
{
    const struct task_columns *columns = &call->layout->tasks[t];

    *task = (struct lossd_shm_task){
        .logits = base + columns->logits,
        .gradient = call->skip_gradient ? 0 : base + columns->gradient,
        .labels = columns->labels == NO_COLUMN ? 0 : base + columns->labels,
        .weights = columns->weights == NO_COLUMN ? 0 : base + columns->weights,
        .sessions = columns->sessions == NO_COLUMN ? 0 : base + columns->sessions,
        .task_space = columns->task_space == NO_COLUMN ? 0 : base + columns->task_space,
        .log_scale = call->tasks[t].log_scale,
        .logits_stride = columns->stride,
        .gradient_stride = columns->stride,
        .logits_type = (uint8_t)call->layout->shape.logits_type,
        .gradient_type = (uint8_t)call->layout->shape.gradient_type,
        .has_log_scale = call->tasks[t].has_log_scale != 0,
    };
}

static void send_call(struct transport *transport, const struct call *call, int64_t deadline_ns)
{
    struct shm_transport *shm = of(transport);
    struct lossd_shm_submission *submission = submission_of(shm, call->slot);
    const uint64_t base = shm->map.at.data_offset + call->slot * transport->slot_bytes;

    submission->call = LOSSD_SHM_COMPUTE;
    submission->flags = LOSSD_SHM_HAS_GENERATION | (call->has_step ? LOSSD_SHM_HAS_STEP : 0) |
                        (call->skip_gradient ? LOSSD_SHM_SKIP_GRADIENT : 0);
    submission->step = call->has_step ? call->step : 0;
    submission->generation = transport->member->generation;
    submission->timeout_ns = remaining_ns(deadline_ns);
    submission->lengths = base + call->layout->lengths;
    submission->label_bits = call->layout->label_bits == NO_COLUMN ? 0 : base + call->layout->label_bits;
    submission->num_requests = call->requests;
    submission->num_candidates = call->candidates;
    submission->gradient_scale = call->gradient_scale;
    submission->num_tasks = (uint32_t)transport->member->config->num_tasks;
    for (size_t t = 0; t < transport->member->config->num_tasks; t++)
        fill_task(&submission->tasks[t], call, t, base);
    ring(shm, submission);
}

/* Waiting. */

struct awaited {
    const struct lossd_shm_answer *answer;
    uint64_t sequence;
};

static bool is_answered(void *context)
{
    const struct awaited *awaited = context;

    return __atomic_load_n(&awaited->answer->sequence, __ATOMIC_SEQ_CST) == awaited->sequence;
}

static bool has_answer(const struct shm_transport *shm, uint32_t slot)
{
    struct awaited awaited = {.answer = answer_of(shm, slot), .sequence = submission_of(shm, slot)->sequence};

    return is_answered(&awaited);
}

/* An answer that is there counts, whatever has become of the daemon since. */
static enum lossd_code sleep_until_answered(struct shm_transport *shm, struct awaited *awaited, int64_t end_ns,
                                            struct lossd_failure *failure)
{
    uint32_t *sleeps = &control_of(shm)->client_sleeps;
    enum lossd_code code = LOSSD_CODE_OK;

    while (code == LOSSD_CODE_OK) {
        __atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
        if (is_answered(awaited))
            break;
        code = shm_socket_sleep(shm->fd, end_ns, shm->base.interrupt, failure);
    }
    __atomic_store_n(sleeps, 0, __ATOMIC_RELAXED);
    if (code != LOSSD_CODE_OK && failure_is_interruption(failure))
        return code;
    if (code != LOSSD_CODE_OK)
        disconnect(shm);
    return is_answered(awaited) ? LOSSD_CODE_OK : code;
}

static enum lossd_code await_answer(struct shm_transport *shm, uint32_t slot, int64_t deadline_ns,
                                    struct lossd_failure *failure)
{
    struct awaited awaited = {.answer = answer_of(shm, slot), .sequence = submission_of(shm, slot)->sequence};
    const int64_t end_ns = deadline_ns == NO_DEADLINE ? NO_DEADLINE : deadline_ns + ANSWER_GRACE_MS * NS_PER_MS;
    enum lossd_code code = LOSSD_CODE_OK;

    if (!spinner_wait(&shm->spinner, is_answered, &awaited)) {
        if (shm->fd < 0)
            return failure_set(failure, OWN_CONNECTION_LOST, "", "the connection of shared memory is closed");
        code = sleep_until_answered(shm, &awaited, end_ns, failure);
    }
    if (code == LOSSD_CODE_OK && awaited.answer->failed != 0)
        return failure_from_shm(failure, &awaited.answer->error);
    return code;
}

static void take_answer(const struct shm_transport *shm, uint32_t slot, const struct answer *to)
{
    const struct lossd_shm_answer *answer = answer_of(shm, slot);
    const struct lossd_shm_task_answer *tasks = (const struct lossd_shm_task_answer *)(answer + 1);
    const struct lossd_shm_term *terms = (const struct lossd_shm_term *)(tasks + shm->map.at.num_tasks);
    struct lossd_result *result = to->result;

    result->step = answer->step;
    result->loss = answer->loss;
    result->local = (struct lossd_counts){answer->local_requests, answer->local_candidates, 1};
    result->world = (struct lossd_counts){answer->world_requests, answer->world_candidates, answer->world_ranks};
    result->request_factor = answer->request_factor;
    result->candidate_factor = answer->candidate_factor;
    result->replayed = (answer->flags & LOSSD_SHM_REPLAYED) != 0;
    for (uint32_t t = 0; t < shm->map.at.num_tasks; t++) {
        to->tasks[t].loss = tasks[t].loss;
        to->tasks[t].nonfinite_units = tasks[t].nonfinite_units;
        to->tasks[t].has_log_scale_gradient = tasks[t].has_log_scale_gradient != 0;
        to->tasks[t].log_scale_gradient = tasks[t].log_scale_gradient;
    }
    for (uint32_t i = 0; i < shm->map.at.num_terms; i++) {
        to->terms[i].value = terms[i].value;
        to->terms[i].local_mean = terms[i].local_mean;
        to->terms[i].sum = terms[i].sum;
        to->terms[i].denominator = terms[i].denominator;
        to->terms[i].factor = terms[i].factor;
    }
}

static enum lossd_code receive(struct transport *transport, const struct call *call, const struct answer *answer,
                               int64_t deadline_ns, struct lossd_failure *failure)
{
    const enum lossd_code code = await_answer(of(transport), call->slot, deadline_ns, failure);

    if (code == LOSSD_CODE_OK && answer != NULL)
        take_answer(of(transport), call->slot, answer);
    return code;
}

static enum lossd_code announce(struct transport *transport, uint64_t step, uint32_t requests, uint32_t candidates,
                                int64_t deadline_ns, struct lossd_failure *failure)
{
    struct shm_transport *shm = of(transport);
    const uint32_t slot = shm->num_slots - 1;
    struct lossd_shm_submission *submission = submission_of(shm, slot);
    enum lossd_code code;

    /* The wait for an earlier one was interrupted. */
    if (!has_answer(shm, slot)) {
        code = await_answer(shm, slot, deadline_ns, failure);
        if (!has_answer(shm, slot))
            return code;
    }
    submission->call = LOSSD_SHM_ANNOUNCE;
    submission->flags = LOSSD_SHM_HAS_GENERATION | LOSSD_SHM_HAS_STEP;
    submission->step = step;
    submission->generation = transport->member->generation;
    submission->timeout_ns = remaining_ns(deadline_ns);
    submission->num_requests = requests;
    submission->num_candidates = candidates;
    ring(shm, submission);
    return await_answer(shm, slot, deadline_ns, failure);
}

static void destroy(struct transport *transport)
{
    struct shm_transport *shm = of(transport);

    close_socket(shm);
    shm_map_close(&shm->map);
    free(shm);
}

static const struct transport_ops ops = {
    LOSSD_TRANSPORT_SHARED_MEMORY, attach, announce, send_call, receive, destroy,
};

struct transport *shm_transport_create(const char *path, const struct member *member, uint32_t num_slots, bool no_spin)
{
    struct shm_transport *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->base.ops = &ops;
    made->base.member = member;
    made->num_slots = num_slots + 1;
    made->fd = -1;
    spinner_init(&made->spinner, no_spin ? 0 : SPINNER_MAX_NS);
    (void)snprintf(made->path, sizeof made->path, "%s", path);
    return &made->base;
}
