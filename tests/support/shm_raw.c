#include "support/shm_raw.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SPINS = 2000 };

static void fail(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

int raw_connect(const char *path)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof where.sun_path)
        fail("socket");
    memcpy(where.sun_path, path, strlen(path));
    if (connect(fd, (const struct sockaddr *)&where, sizeof where) != 0)
        fail("connect");
    return fd;
}

void raw_ask(int fd, const char *group, uint32_t rank, uint64_t generation, uint64_t data_bytes)
{
    struct lossd_shm_attach attach = {
        .header = {LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_ATTACH, sizeof attach, 0},
        .generation = generation,
        .rank = rank,
        .num_slots = 1,
        .data_bytes = data_bytes,
    };

    (void)snprintf(attach.group, sizeof attach.group, "%s", group);
    if (send(fd, &attach, sizeof attach, MSG_NOSIGNAL) != (ssize_t)sizeof attach)
        fail("ATTACH");
}

/* The descriptor that came along, or -1. */
static int descriptor_of(struct msghdr *message)
{
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

bool raw_attached(struct raw *raw, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&raw->layout, sizeof raw->layout};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int region_fd;

    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) < (ssize_t)sizeof raw->layout)
        return false;
    region_fd = descriptor_of(&message);
    if (raw->layout.header.type != LOSSD_SHM_ATTACHED || region_fd < 0)
        return false;
    raw->bytes = mmap(NULL, raw->layout.region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region_fd, 0);
    (void)close(region_fd);
    if (raw->bytes == MAP_FAILED)
        fail("mmap");
    raw->fd = fd;
    raw->control = (struct lossd_shm_control *)(void *)raw->bytes;
    return true;
}

void raw_close(struct raw *raw)
{
    (void)munmap(raw->bytes, raw->layout.region_bytes);
    (void)close(raw->fd);
}

struct lossd_shm_submission *raw_submission(const struct raw *raw)
{
    return (struct lossd_shm_submission *)(void *)(raw->bytes + raw->layout.slots_offset);
}

struct lossd_shm_answer *raw_answer(const struct raw *raw)
{
    return (struct lossd_shm_answer *)(void *)(raw->bytes + raw->layout.slots_offset + raw->layout.answer_offset);
}

/* The next bytes of the data block, zeroed. */
static uint64_t place(const struct raw *raw, uint64_t *cursor, uint64_t bytes)
{
    const uint64_t start = *cursor;

    *cursor += lossd_shm_round_up(bytes, LOSSD_SHM_ALIGNMENT);
    if (*cursor > raw->layout.region_bytes) {
        errno = ENOSPC;
        fail("columns");
    }
    memset(raw->bytes + start, 0, bytes);
    return start;
}

void raw_fill(const struct raw *raw, const unsigned *num_class, uint32_t num_candidates, uint32_t with_sessions)
{
    struct lossd_shm_submission *submission = raw_submission(raw);
    uint64_t cursor = raw->layout.data_offset;

    submission->call = LOSSD_SHM_COMPUTE;
    submission->flags = LOSSD_SHM_HAS_STEP;
    submission->timeout_ns = 0;
    submission->label_bits = 0;
    submission->lengths = place(raw, &cursor, sizeof(uint32_t));
    memcpy(raw->bytes + submission->lengths, &num_candidates, sizeof num_candidates);
    submission->num_requests = 1;
    submission->num_candidates = num_candidates;
    submission->gradient_scale = 1;
    submission->num_tasks = raw->layout.num_tasks;
    for (uint32_t t = 0; t < raw->layout.num_tasks; t++) {
        const uint64_t logits = (uint64_t)num_candidates * num_class[t];
        struct lossd_shm_task task = {.logits_stride = num_class[t], .gradient_stride = num_class[t]};

        task.logits = place(raw, &cursor, 4 * logits);
        task.gradient = place(raw, &cursor, 4 * logits);
        task.labels = place(raw, &cursor, 4 * (uint64_t)num_candidates);
        if ((with_sessions >> t & 1) != 0)
            task.sessions = place(raw, &cursor, 8 * (uint64_t)num_candidates);
        submission->tasks[t] = task;
    }
}

static void ring(int fd)
{
    const struct lossd_shm_header bell = {LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_BELL, sizeof bell, 0};

    (void)!send(fd, &bell, sizeof bell, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void raw_submit(const struct raw *raw, uint64_t sequence)
{
    __atomic_store_n(&raw_submission(raw)->sequence, sequence, __ATOMIC_RELEASE);
    (void)__atomic_add_fetch(&raw->control->bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&raw->control->daemon_sleeps, __ATOMIC_SEQ_CST) != 0)
        ring(raw->fd);
}

/* Sleeps a little on the socket, and rings: whoever writes all over the region has lost bells, too. */
static bool sleep_on(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char record[sizeof(struct lossd_shm_refused)];

    ring(fd);
    if (poll(&poller, 1, 1) != 1)
        return true;
    return recv(fd, record, sizeof record, MSG_DONTWAIT) == (ssize_t)sizeof(struct lossd_shm_header);
}

bool raw_wait(const struct raw *raw, uint64_t sequence, int timeout_ms)
{
    struct lossd_shm_answer *answer = raw_answer(raw);
    bool is_open = true;

    for (int ms = 0; ms < timeout_ms && is_open; ms++) {
        for (int spin = 0; spin < SPINS; spin++)
            if (__atomic_load_n(&answer->sequence, __ATOMIC_ACQUIRE) == sequence)
                return true;
        __atomic_store_n(&raw->control->client_sleeps, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&answer->sequence, __ATOMIC_SEQ_CST) != sequence)
            is_open = sleep_on(raw->fd);
        __atomic_store_n(&raw->control->client_sleeps, 0, __ATOMIC_SEQ_CST);
    }
    return false;
}
