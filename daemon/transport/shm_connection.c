/* One trainer: the records of its socket, its submissions, its end. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/shm_internal.h"

union record {
    struct lossd_shm_header header;
    struct lossd_shm_attach attach;
};

/*
 * The trainer's end is told as EPOLLRDNORM, which is not asked for of sockets. Where its process can't be watched, the
 * end of the socket has to do.
 */
static void watch_peer(struct shm_connection *connection)
{
    struct epoll_event event = {.events = EPOLLRDNORM, .data.ptr = connection};

    connection->peer_fd = shm_peer_pidfd(connection->fd);
    if (connection->peer_fd >= 0)
        (void)epoll_ctl(connection->shm->epoll_fd, EPOLL_CTL_ADD, connection->peer_fd, &event);
}

struct shm_connection *shm_connection_open(struct shm *shm, int fd)
{
    struct shm_connection *connection = calloc(1, sizeof *connection);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = connection};

    if (connection == NULL || epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(connection);
        (void)close(fd);
        return NULL;
    }
    connection->shm = shm;
    connection->fd = fd;
    watch_peer(connection);
    connection->deadline_ns = clock_after_ms(clock_now_ns(), shm->settings.attach_timeout_ms);
    if (connection->deadline_ns < shm->next_deadline_ns)
        shm->next_deadline_ns = connection->deadline_ns;
    connection->next = shm->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    shm->connections = connection;
    shm->num_connections++;
    return connection;
}

/* Otherwise a peer that has sent more would read an error in place of our last record. */
void shm_close_socket(int fd)
{
    union record record;

    (void)shutdown(fd, SHUT_RDWR);
    while (recv(fd, &record, sizeof record, MSG_DONTWAIT) > 0)
        ;
    (void)close(fd);
}

static void destroy(struct shm_connection *connection)
{
    struct shm *shm = connection->shm;

    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        shm->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    if (shm->turn == connection)
        shm->turn = connection->next;
    shm->num_connections--;
    if (connection->session != NULL)
        (void)gauge_add(&shm->counters->shared_memory_clients, -1);
    shm_session_discard(connection->session);
    shm_session_discard(connection->retired);
    shm_close_socket(connection->fd);
    if (connection->peer_fd >= 0)
        (void)close(connection->peer_fd);
    free(connection);
}

bool shm_connection_reap(struct shm_connection *connection)
{
    if (atomic_load(&connection->calls) != SHM_CONNECTION_ENDS)
        return false;
    connection->shm->num_ending--;
    destroy(connection);
    return true;
}

/* Calls first: the death of a rank concerns those that it has not answered for. */
void shm_connection_end(struct shm_connection *connection)
{
    struct shm *shm = connection->shm;
    struct shm_session *session = connection->session;
    struct shm_session *coming = connection->coming;

    if (connection->ends)
        return;
    connection->ends = true;
    (void)atomic_fetch_or(&connection->calls, SHM_CONNECTION_ENDS);
    shm->num_ending++;
    (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, connection->peer_fd, NULL);
    (void)shutdown(connection->fd, SHUT_RDWR);
    for (uint32_t s = 0; session != NULL && s < session->layout.num_slots; s++)
        if (atomic_load_explicit(&session->slots[s].is_open, memory_order_acquire))
            registry_cancel(shm->registry, &session->slots[s].submission);
    if (coming != NULL)
        shm_detach(connection, coming);
    if (session != NULL)
        shm_detach(connection, session);
    shm_drop_coming(connection);
    (void)shm_connection_reap(connection);
}

bool shm_send_refused(int fd, const struct lossd_error *why)
{
    struct lossd_shm_refused record;

    memset(&record, 0, sizeof record);
    record.header = (struct lossd_shm_header){LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_REFUSED, sizeof record, 0};
    shm_fill_error(&record.error, why);
    return send(fd, &record, sizeof record, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof record;
}

void shm_connection_break_off(struct shm_connection *connection, const struct lossd_error *why)
{
    if (log_quota_take(&connection->shm->log_quota, clock_now_ns()))
        log_line(LOG_LEVEL_WARNING, "event=shared_memory_refused reason=%s field=\"%s\" %s",
                 status_info(why->status)->reason, why->field, why->message);
    (void)shm_send_refused(connection->fd, why);
    shm_connection_end(connection);
}

/* size: of the record as it came, maybe more than was read. */
static enum lossd_status check_record(const struct lossd_shm_header *header, size_t size, struct lossd_error *err)
{
    if (size < sizeof *header || header->magic != LOSSD_SHM_MAGIC)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "a record that does not begin as one");
    if (header->version != LOSSD_SHM_VERSION)
        return error_set(err, LOSSD_NOT_SUPPORTED, "version", "is %u, but only %d is spoken", header->version,
                         LOSSD_SHM_VERSION);
    if (header->size_bytes != size || header->reserved != 0)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "size_bytes", "is %" PRIu32 ", but the record has %zu bytes",
                         header->size_bytes, size);
    if ((header->type != LOSSD_SHM_ATTACH || size != sizeof(struct lossd_shm_attach)) &&
        (header->type != LOSSD_SHM_BELL || size != sizeof *header))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "type", "is %u, with %zu bytes, which no record has",
                         header->type, size);
    return LOSSD_OK;
}

/* The connection may be gone afterwards. A BELL says nothing but that somebody should look. */
static void take_record(struct shm_connection *connection, const union record *record, size_t size)
{
    struct lossd_error err;

    error_init(&err);
    if (check_record(&record->header, size, &err) != LOSSD_OK) {
        shm_connection_break_off(connection, &err);
    } else if (record->header.type == LOSSD_SHM_ATTACH) {
        shm_attach(connection, &record->attach);
    }
}

/* What a trainer has submitted before its end is taken: its peers may count on it. */
static void take_last(struct shm_connection *connection)
{
    if (shm_connection_is_served(connection) && shm_connection_serve(connection) < 0)
        return;
    shm_connection_end(connection);
}

/*
 * One record: the socket stays readable where there are more, and others have their turn. Without a control buffer: the
 * kernel drops descriptors that are sent along. MSG_TRUNC tells how long a record was that is too long.
 */
void shm_connection_receive(struct shm_connection *connection, bool has_ended)
{
    union record record;
    ssize_t size = 0;

    if (!has_ended)
        size = recv(connection->fd, &record, sizeof record, MSG_DONTWAIT | MSG_TRUNC);
    if (size > 0)
        take_record(connection, &record, (size_t)size);
    else if (size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        take_last(connection);
}

/*
 * The rest of a submission of one task, in lines that follow that of its sequence: on their way from the trainer's core
 * together, and not one after the other. Some 80 ns of a step.
 */
static void fetch_submission(const struct lossd_shm_submission *submission)
{
    __builtin_prefetch((const char *)submission + LOSSD_SHM_ALIGNMENT);
    __builtin_prefetch((const char *)submission + 2 * LOSSD_SHM_ALIGNMENT);
}

int shm_connection_serve(struct shm_connection *connection)
{
    struct shm_session *session = connection->session;
    struct lossd_error err;
    int num_taken = 0;

    session->bell = __atomic_load_n(&session->control->bell, __ATOMIC_ACQUIRE);
    for (uint32_t s = 0; s < session->layout.num_slots; s++) {
        struct shm_slot *slot = &session->slots[s];
        uint64_t sequence;

        fetch_submission(slot->shared);
        sequence = __atomic_load_n(&slot->shared->sequence, __ATOMIC_ACQUIRE);
        if (sequence == slot->sequence || sequence == 0)
            continue;
        if (atomic_load_explicit(&slot->is_open, memory_order_acquire)) {
            error_init(&err);
            (void)error_set(&err, LOSSD_MALFORMED_REQUEST, "", "slot %" PRIu32 " was submitted while its call is open",
                            s);
            shm_connection_break_off(connection, &err);
            return -1;
        }
        if (connection->retired != NULL)
            shm_drop_retired(connection);
        shm_slot_take(slot, sequence);
        num_taken++;
    }
    return num_taken;
}
