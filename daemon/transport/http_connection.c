/*
 * What the main thread has to know of connections: how long each may take for what it does, and whose call is parked.
 *
 * A connection is in the list from accept until just before the library closes its socket, so that under the lock a
 * descriptor of the list is the right one.
 */
#include "transport/http_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"

/* Between calls a connection may be quiet for this long, as trainers are that write a checkpoint. */
enum { IDLE_TIMEOUT_MS = 600 * 1000 };

/* A client reads its answer at least this fast, beyond the time that an upload of nothing may take. */
enum { SLOWEST_BYTES_PER_MS = 1024 };

static void set_deadline(struct http_connection *connection, uint64_t timeout_ms)
{
    atomic_store_explicit(&connection->deadline_ns, clock_after_ms(clock_now_ns(), timeout_ms), memory_order_relaxed);
}

struct http_connection *connection_open(struct http *http, int fd)
{
    struct http_connection *connection = calloc(1, sizeof *connection);

    if (connection == NULL)
        return NULL;
    connection->http = http;
    connection->fd = fd;
    set_deadline(connection, http->settings.upload_timeout_ms);
    (void)pthread_mutex_lock(&http->lock);
    connection->next = http->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    http->connections = connection;
    (void)pthread_mutex_unlock(&http->lock);
    (void)gauge_add(&http->counters->connections, 1);
    return connection;
}

void connection_close(struct http_connection *connection)
{
    struct http *http = connection->http;

    (void)pthread_mutex_lock(&http->lock);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        http->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    (void)pthread_mutex_unlock(&http->lock);
    (void)gauge_add(&http->counters->connections, -1);
    free(connection);
}

/* Head and body, however slowly they come. */
void connection_receives(struct http_connection *connection)
{
    set_deadline(connection, connection->http->settings.upload_timeout_ms);
    atomic_store_explicit(&connection->receives, true, memory_order_relaxed);
}

void connection_works(struct http_connection *connection)
{
    atomic_store_explicit(&connection->receives, false, memory_order_relaxed);
    atomic_store_explicit(&connection->deadline_ns, NO_DEADLINE, memory_order_relaxed);
}

void connection_answers(struct http_connection *connection, size_t answer_bytes)
{
    atomic_store_explicit(&connection->receives, false, memory_order_relaxed);
    set_deadline(connection, connection->http->settings.upload_timeout_ms + answer_bytes / SLOWEST_BYTES_PER_MS);
}

void connection_is_idle(struct http_connection *connection)
{
    atomic_store_explicit(&connection->receives, false, memory_order_relaxed);
    set_deadline(connection, IDLE_TIMEOUT_MS);
}

/* One event is enough: after it the call is answered or about to be. */
void connection_park(struct http_connection *connection, struct submission *submission)
{
    struct http *http = connection->http;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.fd = connection->fd};

    (void)gauge_add(&http->counters->parked_calls, 1);
    (void)pthread_mutex_lock(&http->lock);
    connection->parked = submission;
    if (epoll_ctl(http->watch_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        log_line(LOG_LEVEL_WARNING, "event=watch_failed errno=%d", errno);
    (void)pthread_mutex_unlock(&http->lock);
}

void connection_unpark(struct http_connection *connection)
{
    struct http *http = connection->http;

    (void)pthread_mutex_lock(&http->lock);
    connection->parked = NULL;
    (void)epoll_ctl(http->watch_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    (void)pthread_mutex_unlock(&http->lock);
    (void)gauge_add(&http->counters->parked_calls, -1);
}

int http_watch_fd(const struct http *http)
{
    return http->watch_fd;
}

/* The event may be older than the call that is parked on this descriptor now: look again. */
static bool is_hung_up(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLRDHUP};

    return poll(&poller, 1, 0) == 1 && (poller.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void http_watch(struct http *http)
{
    struct epoll_event events[64];
    const int count = epoll_wait(http->watch_fd, events, 64, 0);

    (void)pthread_mutex_lock(&http->lock);
    for (int i = 0; i < count; i++)
        for (struct http_connection *c = http->connections; c != NULL; c = c->next)
            if (c->fd == events[i].data.fd && c->parked != NULL && is_hung_up(c->fd))
                registry_cancel(http->rpc.registry, c->parked);
    (void)pthread_mutex_unlock(&http->lock);
}

/*
 * Over its time, or its client is gone: the library misses an end that comes together with the last bytes of an
 * unfinished body, which then stays in memory.
 */
static bool is_over(struct http_connection *connection, int64_t now_ns)
{
    if (now_ns >= atomic_load_explicit(&connection->deadline_ns, memory_order_relaxed))
        return true;
    return atomic_load_explicit(&connection->receives, memory_order_relaxed) && is_hung_up(connection->fd);
}

/* A socket that is shut down is an event for the library, which cleans up on its own thread. */
int64_t http_tick(struct http *http, int64_t now_ns)
{
    atomic_store_explicit(&http->pages.loop_ns, now_ns, memory_order_relaxed);
    (void)pthread_mutex_lock(&http->lock);
    for (struct http_connection *c = http->connections; c != NULL; c = c->next) {
        if (!is_over(c, now_ns))
            continue;
        connection_works(c);
        (void)shutdown(c->fd, SHUT_RDWR);
    }
    (void)pthread_mutex_unlock(&http->lock);
    return now_ns + NS_PER_S;
}
