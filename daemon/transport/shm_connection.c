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

static void detach(struct shm_connection *connection, const struct shm_session *session)
{
    registry_detach(connection->shm->registry, &session->address, session->attachment.token);
    log_line(LOG_LEVEL_DEBUG, "event=detached group=%s rank=%" PRIu32, session->group, session->address.rank);
}

static void drop_coming(struct shm_connection *connection)
{
    if (connection->coming != NULL)
        connection->shm->num_coming--;
    shm_session_discard(connection->coming);
    connection->coming = NULL;
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
        detach(connection, coming);
    if (session != NULL)
        detach(connection, session);
    drop_coming(connection);
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

/* A trainer that does not read is let go. */
static void refuse(struct shm_connection *connection, const struct lossd_error *why)
{
    if (!shm_send_refused(connection->fd, why))
        shm_connection_end(connection);
}

void shm_connection_break_off(struct shm_connection *connection, const struct lossd_error *why)
{
    if (log_quota_take(&connection->shm->log_quota, clock_now_ns()))
        log_line(LOG_LEVEL_WARNING, "event=shared_memory_refused reason=%s field=\"%s\" %s",
                 status_info(why->status)->reason, why->field, why->message);
    (void)shm_send_refused(connection->fd, why);
    shm_connection_end(connection);
}

/* With the descriptor of the region. */
static bool send_attached(const struct shm_connection *connection, const struct shm_session *session)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)&session->layout, .iov_len = sizeof session->layout};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &session->region.fd, sizeof(int));
    return sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof session->layout;
}

static bool speaks_for(const struct shm_session *session, const char *group, uint32_t rank)
{
    return session != NULL && session->address.rank == rank && strcmp(session->group, group) == 0;
}

/* The region that came is in service, in place of the one before. */
static void finish_attach(struct shm_connection *connection)
{
    struct shm *shm = connection->shm;
    struct shm_session *old = connection->session;
    struct shm_session *session = connection->coming;

    connection->coming = NULL;
    shm->num_coming--;
    connection->session = session;
    connection->deadline_ns = NO_DEADLINE;
    if (old == NULL)
        (void)gauge_add(&shm->counters->shared_memory_clients, 1);
    else if (!speaks_for(old, session->group, session->address.rank))
        detach(connection, old);
    shm_session_discard(old);
    log_line(LOG_LEVEL_DEBUG, "event=attached group=%s rank=%" PRIu32 " region_bytes=%" PRIu64, session->group,
             session->address.rank, session->region.size);
    if (send_attached(connection, session))
        shm_region_close_fd(&session->region);
    else
        shm_connection_end(connection);
}

/* Another connection that speaks for the rank in this generation; of several, the one that attached last. */
static struct shm_session *find_speaker(const struct shm *shm, const char *group, uint32_t rank, uint64_t generation)
{
    struct shm_session *found = NULL;

    for (const struct shm_connection *c = shm->connections; c != NULL; c = c->next)
        if (!c->ends && speaks_for(c->session, group, rank) && c->session->attachment.generation == generation &&
            (found == NULL || c->session->attachment.token > found->attachment.token))
            found = c->session;
    return found;
}

/*
 * A rank whose region can't be had will call over HTTP: it is attached for the registry and not detached, which would
 * be its death. Where this connection, or else another one, speaks for it already, that goes on to do so.
 */
static void keep_token(struct shm_connection *connection, const char *group, uint32_t rank, uint64_t generation,
                       uint64_t token)
{
    struct shm_session *session = connection->session;

    if (token == 0)
        return;
    if (!speaks_for(session, group, rank))
        session = find_speaker(connection->shm, group, rank, generation);
    if (session != NULL)
        session->attachment.token = token;
}

/* A call that is answered may still hold the region that goes, for a moment. */
void shm_connection_touch(struct shm_connection *connection)
{
    struct shm_session *coming = connection->coming;
    struct lossd_error err;
    bool is_ready;

    error_init(&err);
    if (shm_region_touch(&coming->region, &is_ready, &err) != LOSSD_OK) {
        keep_token(connection, coming->group, coming->address.rank, coming->attachment.generation,
                   coming->attachment.token);
        drop_coming(connection);
        refuse(connection, &err);
    } else if (is_ready && atomic_load(&connection->calls) == 0) {
        finish_attach(connection);
    }
}

static bool has_open_call(const struct shm_session *session)
{
    for (uint32_t s = 0; session != NULL && s < session->layout.num_slots; s++)
        if (atomic_load_explicit(&session->slots[s].is_open, memory_order_acquire))
            return true;
    return false;
}

/* The connection may be gone afterwards. */
static void attach(struct shm_connection *connection, const struct lossd_shm_attach *record)
{
    struct shm *shm = connection->shm;
    struct lossd_error err;
    uint64_t token = 0;

    error_init(&err);
    if (atomic_load(&shm->is_closed))
        (void)error_set(&err, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    else if (connection->coming != NULL || has_open_call(connection->session))
        (void)error_set(&err, LOSSD_MALFORMED_REQUEST, "", "an ATTACH while another, or a call, is open");
    else if (shm_session_create(connection, record, &connection->coming, &token, &err) == LOSSD_OK)
        shm->num_coming++;
    if (err.status == LOSSD_OK)
        return;
    keep_token(connection, record->group, record->rank, record->generation, token);
    log_line(LOG_LEVEL_DEBUG, "event=attach_refused reason=%s", status_info(err.status)->reason);
    refuse(connection, &err);
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
        attach(connection, &record->attach);
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
        size = recv(connection->fd, &record, sizeof record, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
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
        shm_slot_take(slot, sequence);
        num_taken++;
    }
    return num_taken;
}
