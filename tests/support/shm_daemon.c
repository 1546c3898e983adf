#include "support/shm_daemon.h"

#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct peer {
    struct shm_daemon *daemon;
    int fd;
    uint8_t *region;
    size_t region_bytes; /* as it is mapped */
    uint8_t *retired;    /* the one before; NULL for none */
    size_t retired_bytes;
    struct lossd_shm_attached at;
    bool is_served; /* the region is one that can be worked with */
    uint64_t sequences[LOSSD_SHM_MAX_SLOTS];
};

static struct lossd_shm_header header_of(uint16_t type, size_t size)
{
    return (struct lossd_shm_header){LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, type, (uint32_t)size, 0};
}

static struct lossd_shm_attached layout_of(const struct shm_daemon *daemon)
{
    const enum shm_fault fault = daemon->fault;
    struct lossd_shm_attached at = {
        .header = header_of(LOSSD_SHM_ATTACHED, sizeof at),
        .slots_offset = 128,
        .slot_bytes = lossd_shm_slot_bytes(daemon->num_tasks, daemon->num_terms),
        .answer_offset = lossd_shm_answer_offset(daemon->num_tasks),
        .num_slots = daemon->attach.num_slots,
        .num_tasks = daemon->num_tasks + (fault == SHM_OTHER_TASKS),
        .num_terms = daemon->num_terms,
    };

    at.data_offset = lossd_shm_round_up(at.slots_offset + at.num_slots * at.slot_bytes, 4096) +
                     (fault == SHM_LARGER_HEAD ? 4096 : 0);
    if (fault == SHM_OFF_PAGE)
        at.data_offset += LOSSD_SHM_ALIGNMENT;
    if (fault == SHM_HUGE_HEAD)
        at.data_offset += UINT64_C(16) << 20;
    at.region_bytes = (fault == SHM_HUGE_DATA ? UINT64_C(16) << 20 : 0) +
                      lossd_shm_round_up(at.data_offset + daemon->attach.data_bytes, 4096);
    (void)snprintf(at.config_digest, sizeof at.config_digest, "%s",
                   fault == SHM_OTHER_DIGEST ? "other" : daemon->digest);
    at.num_slots += fault == SHM_OTHER_SLOTS;
    if (fault == SHM_DATA_OUTSIDE)
        at.data_offset = at.region_bytes + 64;
    if (fault == SHM_SLOTS_OUTSIDE)
        at.slot_bytes = UINT64_MAX - 63;
    if (fault == SHM_ANSWER_OUTSIDE)
        at.answer_offset = at.slot_bytes - 64;
    if (fault == SHM_UNALIGNED)
        at.answer_offset += 4;
    return at;
}

/* Whoever has it mapped reads zeros. */
static void take_away(uint8_t **region, size_t bytes)
{
    if (*region == NULL)
        return;
    ck_assert_int_eq(madvise(*region, bytes, MADV_REMOVE), 0);
    munmap(*region, bytes);
    *region = NULL;
}

static int make_region(struct peer *peer, size_t bytes)
{
    const enum shm_fault fault = peer->daemon->fault;
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_eq(ftruncate(fd, (off_t)(fault == SHM_SMALL_FILE ? 4096 : bytes + (fault == SHM_LARGE_FILE) * 4096U)),
                     0);
    if (fault != SHM_UNSEALED)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    peer->retired = peer->region;
    peer->retired_bytes = peer->region_bytes;
    peer->region_bytes = bytes;
    peer->region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(peer->region, MAP_FAILED);
    return fd;
}

static void send_record(int fd, const void *record, size_t size, const int *descriptors, size_t count)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {(void *)(uintptr_t)record, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.align), descriptors, count * sizeof(int));
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void fill_error(struct lossd_shm_error *error, const char *reason, const char *code, uint32_t retry)
{
    static const char metadata[] = "missing_ranks\0003-4\0step\0007";

    (void)snprintf(error->reason, sizeof error->reason, "%s", reason);
    (void)snprintf(error->code, sizeof error->code, "%s", code);
    (void)snprintf(error->field, sizeof error->field, "some.field");
    (void)snprintf(error->message, sizeof error->message, "says the test");
    error->retry = retry;
    error->metadata_bytes = sizeof metadata;
    memcpy(error->metadata, metadata, sizeof metadata);
}

static void send_refused(int fd)
{
    struct lossd_shm_refused refused;

    memset(&refused, 0, sizeof refused);
    refused.header = header_of(LOSSD_SHM_REFUSED, sizeof refused);
    fill_error(&refused.error, "LIMIT_EXCEEDED", "resource_exhausted", LOSSD_SHM_RETRY_FIX);
    send_record(fd, &refused, sizeof refused, NULL, 0);
}

static void send_bell(int fd)
{
    const struct lossd_shm_header bell = header_of(LOSSD_SHM_BELL, sizeof bell);

    send_record(fd, &bell, sizeof bell, NULL, 0);
}

static bool is_served(enum shm_fault fault)
{
    return fault == SHM_GOOD || fault >= SHM_LARGER_HEAD || fault == SHM_BELL_FIRST || fault == SHM_TWO_DESCRIPTORS;
}

/* False where the connection ends. */
static bool answer_attach(struct peer *peer)
{
    struct {
        struct lossd_shm_attached at;
        char more[16];
    } record = {.at = layout_of(peer->daemon)};
    const enum shm_fault fault = peer->daemon->fault;
    size_t size = sizeof record.at;
    int fds[2];

    if (fault == SHM_HANGS_UP_AFTER_ATTACH)
        return false;
    if (fault == SHM_REFUSES) {
        send_refused(peer->fd);
        return true;
    }
    if (fault == SHM_BELL_FIRST)
        send_bell(peer->fd);
    fds[0] = fds[1] = make_region(peer, fault == SHM_DATA_OUTSIDE ? 8192 : record.at.region_bytes);
    peer->at = record.at;
    peer->is_served = is_served(fault);
    memset(peer->sequences, 0, sizeof peer->sequences);
    record.at.header.version = (uint16_t)(LOSSD_SHM_VERSION + (fault == SHM_OTHER_VERSION));
    record.at.header.magic += fault == SHM_OTHER_MAGIC;
    if (fault == SHM_CUT_RECORD)
        size -= 8;
    if (fault == SHM_LONG_RECORD)
        size += 8;
    send_record(peer->fd, &record, size, fds, fault == SHM_NO_DESCRIPTOR ? 0 : fault == SHM_TWO_DESCRIPTORS ? 2 : 1);
    close(fds[0]);
    return true;
}

static void write_answer(struct peer *peer, uint32_t slot)
{
    uint8_t *start = peer->region + peer->at.slots_offset + slot * peer->at.slot_bytes;
    const struct lossd_shm_submission *submission = (const void *)start;
    struct lossd_shm_answer *answer = (void *)(start + peer->at.answer_offset);
    struct lossd_shm_task_answer *tasks = (void *)(answer + 1);
    struct lossd_shm_term *terms = (void *)(tasks + peer->daemon->num_tasks);
    const enum shm_fault fault = peer->daemon->fault;

    answer->failed = fault == SHM_FAILS_CALLS || fault == SHM_FAILS_WITHOUT_END;
    fill_error(&answer->error, "STEP_TIMEOUT", "deadline_exceeded", LOSSD_SHM_RETRY_SAME);
    if (fault == SHM_FAILS_WITHOUT_END)
        memset(&answer->error, 'x', sizeof answer->error);
    answer->step = submission->step;
    answer->loss = 1.5;
    answer->world_ranks = 3;
    answer->flags = LOSSD_SHM_REPLAYED;
    for (uint32_t t = 0; t < peer->daemon->num_tasks; t++)
        tasks[t] = (struct lossd_shm_task_answer){
            .loss = t + 1, .log_scale_gradient = 0.25, .has_log_scale_gradient = 1};
    for (uint32_t i = 0; i < peer->daemon->num_terms; i++)
        terms[i] = (struct lossd_shm_term){i, 1, 2, 3, 4};
    __atomic_store_n(&answer->sequence, submission->sequence, __ATOMIC_SEQ_CST);
}

static size_t submission_bytes(const struct shm_daemon *daemon)
{
    return sizeof *daemon->submission + daemon->num_tasks * sizeof daemon->submission->tasks[0];
}

/* False where the connection ends. */
static bool answer_call(struct peer *peer, uint32_t slot)
{
    const struct lossd_shm_submission *submission = (const void *)(peer->region + peer->at.slots_offset +
                                                                   slot * peer->at.slot_bytes);
    struct lossd_shm_control *control = (void *)peer->region;
    const enum shm_fault fault = peer->daemon->fault;

    memcpy(peer->daemon->submission, submission, submission_bytes(peer->daemon));
    if (peer->at.region_bytes > peer->at.data_offset)
        peer->daemon->first_byte = peer->region[peer->at.data_offset];
    peer->daemon->calls++;
    if (fault == SHM_BREAKS_OFF)
        send_refused(peer->fd);
    if (fault == SHM_SENDS_GARBAGE)
        send_record(peer->fd, "garbage garbage garbage", 20, NULL, 0);
    if (fault == SHM_DIES_IN_CALL || fault == SHM_BREAKS_OFF)
        return false;
    if (fault == SHM_IGNORES_CALLS || fault == SHM_SENDS_GARBAGE)
        return true;
    write_answer(peer, slot);
    if (fault == SHM_ANSWERS_AND_DIES)
        return false;
    if (__atomic_load_n(&control->client_sleeps, __ATOMIC_SEQ_CST) != 0)
        send_bell(peer->fd);
    return true;
}

/* Submissions that are there; false where the connection ends. */
static bool look(struct peer *peer)
{
    for (uint32_t slot = 0; slot < peer->daemon->attach.num_slots; slot++) {
        const struct lossd_shm_submission *submission = (const void *)(peer->region + peer->at.slots_offset +
                                                                       slot * peer->at.slot_bytes);
        const uint64_t sequence = __atomic_load_n(&submission->sequence, __ATOMIC_ACQUIRE);

        if (sequence == peer->sequences[slot])
            continue;
        peer->sequences[slot] = sequence;
        take_away(&peer->retired, peer->retired_bytes);
        if (!answer_call(peer, slot))
            return false;
    }
    return true;
}

static void serve(struct peer *peer)
{
    union {
        struct lossd_shm_header header;
        struct lossd_shm_attach attach;
    } record;

    for (;;) {
        const ssize_t size = recv(peer->fd, &record, sizeof record, 0);

        if (size <= 0) {
            take_away(&peer->region, peer->region_bytes);
            return;
        }
        if (record.header.type == LOSSD_SHM_ATTACH) {
            peer->daemon->attach = record.attach;
            take_away(&peer->retired, peer->retired_bytes);
            if (!answer_attach(peer))
                return;
        }
        if (peer->is_served) {
            __atomic_store_n(&((struct lossd_shm_control *)(void *)peer->region)->daemon_sleeps, 1, __ATOMIC_SEQ_CST);
            if (!look(peer))
                return;
        }
    }
}

static void *run(void *context)
{
    struct shm_daemon *daemon = context;

    for (;;) {
        struct peer peer = {.daemon = daemon, .fd = accept(daemon->listener, NULL, NULL)};

        if (peer.fd < 0)
            return NULL;
        daemon->connections++;
        if (daemon->fault != SHM_HANGS_UP)
            serve(&peer);
        close(peer.fd);
        take_away(&peer.retired, peer.retired_bytes);
        if (peer.region != NULL)
            munmap(peer.region, peer.region_bytes);
    }
}

void shm_daemon_start(struct shm_daemon *daemon, uint32_t num_tasks, uint32_t num_terms, const char *digest)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};

    *daemon = (struct shm_daemon){.num_tasks = num_tasks, .num_terms = num_terms, .digest = digest};
    daemon->submission = calloc(1, submission_bytes(daemon));
    (void)snprintf(daemon->folder, sizeof daemon->folder, "/tmp/lossd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->folder));
    (void)snprintf(daemon->path, sizeof daemon->path, "%s/socket", daemon->folder);
    (void)snprintf(where.sun_path, sizeof where.sun_path, "%s", daemon->path);
    daemon->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(daemon->listener, (struct sockaddr *)&where, sizeof where), 0);
    ck_assert_int_eq(listen(daemon->listener, 8), 0);
    ck_assert_int_eq(pthread_create(&daemon->thread, NULL, run, daemon), 0);
}

void shm_daemon_stop(struct shm_daemon *daemon)
{
    (void)shutdown(daemon->listener, SHUT_RDWR);
    pthread_join(daemon->thread, NULL);
    close(daemon->listener);
    (void)unlink(daemon->path);
    (void)rmdir(daemon->folder);
    free(daemon->submission);
}
