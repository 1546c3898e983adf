/* From an ATTACH to its answer, and what becomes of the regions before it. */
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/shm_internal.h"

void shm_detach(struct shm_connection *connection, const struct shm_session *session)
{
    registry_detach(connection->shm->registry, &session->address, session->attachment.token);
    log_line(LOG_LEVEL_DEBUG, "event=detached group=%s rank=%" PRIu32, session->group, session->address.rank);
}

/* How many sessions are coming that are as this one. */
static size_t *count_of(struct shm *shm, const struct shm_session *coming)
{
    return shm_session_has_region(coming) ? &shm->num_coming : &shm->num_waiting;
}

void shm_drop_coming(struct shm_connection *connection)
{
    struct shm *shm = connection->shm;

    if (connection->coming == NULL)
        return;
    (*count_of(shm, connection->coming))--;
    shm_session_discard(connection->coming);
    connection->coming = NULL;
    if (connection->deadline_ns < shm->next_deadline_ns)
        shm->next_deadline_ns = connection->deadline_ns;
}

void shm_drop_retired(struct shm_connection *connection)
{
    shm_session_discard(connection->retired);
    connection->retired = NULL;
}

/* A trainer that does not read is let go. */
static void refuse(struct shm_connection *connection, const struct lossd_error *why)
{
    if (!shm_send_refused(connection->fd, why))
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

/* The region that came is in service, in place of the one before, in which the trainer may have something to fetch. */
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
        shm_detach(connection, old);
    connection->retired = old;
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

static void refuse_coming(struct shm_connection *connection, const struct lossd_error *why)
{
    const struct shm_session *coming = connection->coming;

    keep_token(connection, coming->group, coming->address.rank, coming->attachment.generation,
               coming->attachment.token);
    shm_drop_coming(connection);
    refuse(connection, why);
}

void shm_connection_make_region(struct shm_connection *connection)
{
    struct shm *shm = connection->shm;
    struct lossd_error err;

    error_init(&err);
    if (shm_session_make_region(connection->coming, &err) != LOSSD_OK) {
        refuse_coming(connection, &err);
    } else if (shm_session_has_region(connection->coming)) {
        shm->num_waiting--;
        shm->num_coming++;
    }
}

/* A call that is answered may still hold the region that goes, for a moment. */
void shm_connection_touch(struct shm_connection *connection)
{
    struct lossd_error err;
    bool is_ready;

    error_init(&err);
    if (shm_region_touch(&connection->coming->region, &is_ready, &err) != LOSSD_OK) {
        refuse_coming(connection, &err);
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

void shm_attach(struct shm_connection *connection, const struct lossd_shm_attach *record)
{
    struct shm *shm = connection->shm;
    struct lossd_error err;
    uint64_t token = 0;

    error_init(&err);
    if (atomic_load(&shm->is_closed))
        (void)error_set(&err, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    else if (connection->coming != NULL || has_open_call(connection->session))
        (void)error_set(&err, LOSSD_MALFORMED_REQUEST, "", "an ATTACH while another, or a call, is open");
    else
        shm_drop_retired(connection);
    if (err.status == LOSSD_OK &&
        shm_session_create(connection, record, &connection->coming, &token, &err) == LOSSD_OK) {
        (*count_of(shm, connection->coming))++;
        return;
    }
    keep_token(connection, record->group, record->rank, record->generation, token);
    log_line(LOG_LEVEL_DEBUG, "event=attach_refused reason=%s", status_info(err.status)->reason);
    refuse(connection, &err);
}
