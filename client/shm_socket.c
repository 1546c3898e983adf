#include "client/shm_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/failure.h"

enum { CONNECT_TIMEOUT_S = 2 };

/* Records that are read without a look at the clock: a daemon may send them as fast as we read. */
enum { MAX_RECORDS = 64 };

union record {
    struct lossd_shm_header header;
    struct lossd_shm_attached attached;
    struct lossd_shm_refused refused;
};

enum received {
    RECEIVED_RECORD,
    RECEIVED_NOTHING,
    RECEIVED_END,
    RECEIVED_GARBAGE,
    RECEIVED_VERSION,
    RECEIVED_NO_ROOM, /* for its descriptor */
};

static enum lossd_code lost(struct lossd_failure *failure)
{
    return failure_set(failure, OWN_CONNECTION_LOST, "", "the daemon has closed the connection of shared memory");
}

static enum lossd_code no_answer(struct lossd_failure *failure)
{
    return failure_set(failure, OWN_NO_ANSWER, "", "the daemon has not answered through shared memory in time");
}

/* It would wait for ever where a daemon that hangs has a full queue; and a signal says nothing about the daemon. */
static int connect_for_a_while(int fd, const struct sockaddr_un *where)
{
    const struct timeval longest = {.tv_sec = CONNECT_TIMEOUT_S};
    int status;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
    do
        status = connect(fd, (const struct sockaddr *)where, sizeof *where);
    while (status != 0 && errno == EINTR);
    return status;
}

enum lossd_code shm_socket_connect(const char *path, int *fd, struct lossd_failure *failure)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (made < 0)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "no socket can be had: %s", strerror(errno));
    if (strlen(path) >= sizeof where.sun_path)
        return failure_set(failure, OWN_BAD_ADDRESS, "address", "is longer than a Unix socket's path can be");
    memcpy(where.sun_path, path, strlen(path) + 1);
    if (connect_for_a_while(made, &where) == 0) {
        *fd = steal_fd(&made);
        return LOSSD_CODE_OK;
    }
    if (errno == EAGAIN)
        return no_answer(failure);
    return failure_set(failure, OWN_CANNOT_CONNECT, "", "%s: %s", path, strerror(errno));
}

/* The first descriptor that came along; others are closed. */
static void take_descriptors(struct msghdr *message, int *descriptor)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
            if (*descriptor < 0)
                *descriptor = fd;
            else
                (void)close(fd);
        }
    }
}

static bool is_whole(const union record *record, size_t size, bool is_cut)
{
    static const size_t sizes[] = {
        [LOSSD_SHM_ATTACHED] = sizeof(struct lossd_shm_attached),
        [LOSSD_SHM_REFUSED] = sizeof(struct lossd_shm_refused),
        [LOSSD_SHM_BELL] = sizeof(struct lossd_shm_header),
    };
    const struct lossd_shm_header *header = &record->header;

    return !is_cut && header->type >= LOSSD_SHM_ATTACHED && header->type <= LOSSD_SHM_BELL &&
           sizes[header->type] == size && header->size_bytes == size;
}

/* One record, if there is one. descriptor: NULL, or -1 where one that comes along goes. */
static enum received receive(int fd, union record *record, int *descriptor)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = record, .iov_len = sizeof *record};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t size;

    if (descriptor != NULL) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    do
        size = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return RECEIVED_NOTHING;
    if (size <= 0)
        return RECEIVED_END;
    if (descriptor != NULL)
        take_descriptors(&message, descriptor);
    if (descriptor != NULL && *descriptor < 0 && (message.msg_flags & MSG_CTRUNC) != 0)
        return RECEIVED_NO_ROOM;
    if ((size_t)size < sizeof record->header || record->header.magic != LOSSD_SHM_MAGIC)
        return RECEIVED_GARBAGE;
    if (record->header.version != LOSSD_SHM_VERSION)
        return RECEIVED_VERSION;
    return is_whole(record, (size_t)size, (message.msg_flags & MSG_TRUNC) != 0) ? RECEIVED_RECORD : RECEIVED_GARBAGE;
}

/* What is no record that can be worked with. */
static enum lossd_code bad_record(enum received received, const union record *record, struct lossd_failure *failure)
{
    if (received == RECEIVED_VERSION)
        return failure_set(failure, OWN_VERSION, "", "the daemon speaks version %u of shared memory, this library %d",
                           record->header.version, LOSSD_SHM_VERSION);
    if (received == RECEIVED_NO_ROOM)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "this process has no descriptor left for a region");
    if (received == RECEIVED_GARBAGE)
        return failure_set(failure, OWN_INTERNAL, "", "what came through the socket of shared memory is no record");
    return lost(failure);
}

/* How long to sleep: not beyond the deadline, and not for so long that nobody would be asked. */
static struct timespec slice(int64_t deadline_ns)
{
    int64_t wait_ns = deadline_ns == NO_DEADLINE ? INTERRUPT_INTERVAL_NS : deadline_ns - clock_now_ns();

    if (wait_ns > INTERRUPT_INTERVAL_NS)
        wait_ns = INTERRUPT_INTERVAL_NS;
    return (struct timespec){.tv_nsec = wait_ns > 0 ? wait_ns : 0};
}

/* What there is to read says nothing of the time: whoever reads has to look at the clock himself. */
static bool is_over(int64_t deadline_ns)
{
    return deadline_ns != NO_DEADLINE && clock_now_ns() >= deadline_ns;
}

/* Until there is something to read. */
static enum lossd_code wait_readable(int fd, int64_t deadline_ns, struct interrupt *interrupt,
                                     struct lossd_failure *failure)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    for (;;) {
        const struct timespec wait = slice(deadline_ns);
        int found;

        if (interrupt_asks(interrupt))
            return failure_set(failure, OWN_INTERRUPTED, "", "the wait was interrupted");
        found = ppoll(&readable, 1, &wait, NULL);
        if (found > 0)
            return LOSSD_CODE_OK;
        if (found == 0 && wait.tv_nsec == 0)
            return no_answer(failure);
        if (found < 0 && errno != EINTR)
            return lost(failure);
        if (found < 0 && interrupt != NULL)
            interrupt->next_ns = 0;
    }
}

static bool send_record(int fd, const void *record, size_t size)
{
    ssize_t sent;

    do
        sent = send(fd, record, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)size;
}

static struct lossd_shm_header header_of(enum lossd_shm_type type, size_t size)
{
    return (struct lossd_shm_header){
        .magic = LOSSD_SHM_MAGIC,
        .version = LOSSD_SHM_VERSION,
        .type = (uint16_t)type,
        .size_bytes = (uint32_t)size,
    };
}

/* The answer to an ATTACH; bells of earlier calls may come before it. */
static enum lossd_code await_attached(int fd, int64_t deadline_ns, struct interrupt *interrupt,
                                      struct lossd_shm_attached *attached, int *descriptor,
                                      struct lossd_failure *failure)
{
    union record record;
    enum received received;
    enum lossd_code code;

    for (;;) {
        code = wait_readable(fd, deadline_ns, interrupt, failure);
        if (code != LOSSD_CODE_OK)
            return code;
        received = receive(fd, &record, descriptor);
        if (received == RECEIVED_NOTHING || (received == RECEIVED_RECORD && record.header.type == LOSSD_SHM_BELL)) {
            if (is_over(deadline_ns))
                return no_answer(failure);
            continue;
        }
        if (received != RECEIVED_RECORD)
            return bad_record(received, &record, failure);
        if (record.header.type == LOSSD_SHM_REFUSED)
            return failure_from_shm(failure, &record.refused.error);
        if (*descriptor < 0)
            return failure_set(failure, OWN_INTERNAL, "", "no region came along with ATTACHED");
        *attached = record.attached;
        return LOSSD_CODE_OK;
    }
}

enum lossd_code shm_socket_attach(int fd, struct lossd_shm_attach *attach, int64_t deadline_ns,
                                  struct interrupt *interrupt, struct lossd_shm_attached *attached, int *region_fd,
                                  struct lossd_failure *failure)
{
    CLEANUP_CLOSE int descriptor = -1;
    enum lossd_code code;

    attach->header = header_of(LOSSD_SHM_ATTACH, sizeof *attach);
    /* A daemon that has closed the connection already may have said why. */
    if (!send_record(fd, attach, sizeof *attach) && errno != EPIPE && errno != ECONNRESET)
        return lost(failure);
    code = await_attached(fd, deadline_ns, interrupt, attached, &descriptor, failure);
    if (code == LOSSD_CODE_OK)
        *region_fd = steal_fd(&descriptor);
    return code;
}

void shm_socket_ring(int fd)
{
    const struct lossd_shm_header bell = header_of(LOSSD_SHM_BELL, sizeof bell);

    (void)send_record(fd, &bell, sizeof bell);
}

/* All that is there, but not for ever: bells that nobody waited for may have gathered. */
enum lossd_code shm_socket_sleep(int fd, int64_t deadline_ns, struct interrupt *interrupt,
                                 struct lossd_failure *failure)
{
    union record record;
    enum lossd_code code = wait_readable(fd, deadline_ns, interrupt, failure);

    if (code != LOSSD_CODE_OK)
        return code;
    for (int i = 0; i < MAX_RECORDS; i++) {
        const enum received received = receive(fd, &record, NULL);

        if (received == RECEIVED_NOTHING)
            break;
        if (received != RECEIVED_RECORD)
            return bad_record(received, &record, failure);
        if (record.header.type == LOSSD_SHM_REFUSED)
            return failure_from_shm(failure, &record.refused.error);
        if (record.header.type != LOSSD_SHM_BELL)
            return bad_record(RECEIVED_GARBAGE, &record, failure);
    }
    return is_over(deadline_ns) ? no_answer(failure) : LOSSD_CODE_OK;
}
