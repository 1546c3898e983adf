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
#include "base/heap.h"
#include "base/log.h"

/* Between calls a connection may be quiet for this long, as trainers are that write a checkpoint. */
enum { IDLE_TIMEOUT_MS = 600 * 1000 };

/* A client reads its answer at least this fast, beyond the time that an upload of nothing may take. */
enum { SLOWEST_BYTES_PER_MS = 1024 };

/* How often connections are looked at, and how long one is seen closed before it counts as gone. */
enum { TICK_MS = 500, CLOSING_TICK_MS = 20, GONE_MS = 400 };

/* The body of a refused call is read to its end for this long: clients take an early answer for a network fault. */
enum { DISCARD_TIMEOUT_MS = 5000 };

/* How long memory of large calls is kept for the next one. */
enum { QUIET_MS = 10 * 1000 };

/* A connection past the limit is there for one answer. */
enum { SURPLUS_TIMEOUT_MS = 1000 };

/* The deadline first: a state is never seen with the deadline of the one before it. */
static bool enter(struct http_connection *connection, enum connection_state state, int64_t deadline_ns)
{
    int now = atomic_load(&connection->state);

    atomic_store(&connection->deadline_ns, deadline_ns);
    while (now != CONNECTION_CUT)
        if (atomic_compare_exchange_weak(&connection->state, &now, (int)state))
            return true;
    return false;
}

static int64_t receive_deadline(const struct http_connection *connection)
{
    const uint64_t upload_ms = connection->http->settings.upload_timeout_ms;
    const bool is_short = connection->is_surplus && upload_ms > SURPLUS_TIMEOUT_MS;

    return clock_after_ms(clock_now_ns(), is_short ? SURPLUS_TIMEOUT_MS : upload_ms);
}

struct http_connection *connection_open(struct http *http, int fd)
{
    struct http_connection *connection = calloc(1, sizeof *connection);

    if (connection == NULL)
        return NULL;
    connection->http = http;
    connection->fd = fd;
    connection->is_surplus = gauge_add(&http->counters->connections, 1) >= http->settings.connections;
    atomic_init(&connection->state, CONNECTION_IDLE);
    atomic_init(&connection->deadline_ns, receive_deadline(connection));
    (void)pthread_mutex_lock(&http->lock);
    connection->next = http->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    http->connections = connection;
    (void)pthread_mutex_unlock(&http->lock);
    return connection;
}

void connection_close(struct http_connection *connection)
{
    struct http *http = connection->http;

    call_destroy(connection->call);
    (void)pthread_mutex_lock(&http->lock);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        http->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    (void)pthread_mutex_unlock(&http->lock);
    (void)gauge_add(&http->counters->connections, -1);
    free(connection->refusal.bytes);
    free(connection);
}

/* Head and body, however slowly they come. */
bool connection_receives(struct http_connection *connection)
{
    return enter(connection, CONNECTION_RECEIVES, receive_deadline(connection));
}

bool connection_works(struct http_connection *connection)
{
    return enter(connection, CONNECTION_WORKS, NO_DEADLINE);
}

bool connection_answers(struct http_connection *connection, size_t answer_bytes)
{
    const uint64_t ms = connection->http->settings.upload_timeout_ms + answer_bytes / SLOWEST_BYTES_PER_MS;

    return enter(connection, CONNECTION_ANSWERS, clock_after_ms(clock_now_ns(), ms));
}

static void set_refusal(struct http_connection *connection, struct raw_answer answer)
{
    (void)pthread_mutex_lock(&connection->http->lock);
    free(connection->refusal.bytes);
    connection->refusal = answer;
    (void)pthread_mutex_unlock(&connection->http->lock);
}

void connection_is_idle(struct http_connection *connection)
{
    if (connection->refusal.bytes != NULL)
        set_refusal(connection, (struct raw_answer){0});
    (void)enter(connection, CONNECTION_IDLE, clock_after_ms(clock_now_ns(), IDLE_TIMEOUT_MS));
}

void connection_refuse(struct http_connection *connection, struct raw_answer answer)
{
    const int64_t soon_ns = clock_after_ms(clock_now_ns(), DISCARD_TIMEOUT_MS);

    set_refusal(connection, answer);
    if (soon_ns < atomic_load(&connection->deadline_ns))
        atomic_store(&connection->deadline_ns, soon_ns);
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

/* Whether the client has closed its side, and all that it sent has been read. */
static bool is_at_end(int fd)
{
    char byte;
    const ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/*
 * Whether the client is gone for good. The library misses an end that comes together with the last bytes that it reads,
 * so it is looked for here; and once is not enough, as those bytes may be a whole call that is about to be answered.
 */
static bool is_gone(struct http_connection *connection, int64_t now_ns)
{
    if (!is_at_end(connection->fd)) {
        connection->ended_ns = 0;
        return false;
    }
    if (connection->ended_ns == 0)
        connection->ended_ns = now_ns;
    return now_ns - connection->ended_ns >= GONE_MS * NS_PER_MS;
}

/*
 * Nobody else writes to the socket of a connection that receives, and the library would not take an answer in the
 * middle of a body. A socket that is shut down is an event for the library, which cleans up on its own thread.
 */
static void cut(struct http_connection *connection, int state, const struct raw_answer *answer)
{
    if (!atomic_compare_exchange_strong(&connection->state, &state, CONNECTION_CUT))
        return;
    if (state == CONNECTION_RECEIVES && answer != NULL)
        (void)!send(connection->fd, answer->bytes, answer->size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(connection->fd, SHUT_RDWR);
}

static void look_at(struct http_connection *connection, int64_t now_ns)
{
    const struct http *http = connection->http;
    const int state = atomic_load(&connection->state);

    if (state == CONNECTION_WORKS || state == CONNECTION_CUT)
        connection->ended_ns = 0;
    else if (state == CONNECTION_RECEIVES && atomic_load(&http->closed))
        cut(connection, state, &http->shutting_down);
    else if (now_ns >= atomic_load(&connection->deadline_ns))
        cut(connection, state, connection->refusal.bytes != NULL ? &connection->refusal : &http->too_slow);
    else if (state != CONNECTION_ANSWERS && is_gone(connection, now_ns))
        cut(connection, state, NULL);
}

static void look_at_memory(struct http *http, int64_t now_ns)
{
    if (atomic_exchange_explicit(&http->had_large_body, false, memory_order_relaxed)) {
        http->quiet_ns = now_ns;
    } else if (http->quiet_ns != NO_DEADLINE && now_ns - http->quiet_ns >= QUIET_MS * NS_PER_MS) {
        heap_give_back();
        http->quiet_ns = NO_DEADLINE;
    }
}

int64_t http_tick(struct http *http, int64_t now_ns)
{
    const int64_t interval_ns = (atomic_load(&http->closed) ? CLOSING_TICK_MS : TICK_MS) * NS_PER_MS;

    atomic_store_explicit(&http->pages.loop_ns, now_ns, memory_order_relaxed);
    if (now_ns < http->next_tick_ns && http->next_tick_ns - now_ns <= interval_ns)
        return http->next_tick_ns;
    (void)pthread_mutex_lock(&http->lock);
    for (struct http_connection *c = http->connections; c != NULL; c = c->next)
        look_at(c, now_ns);
    (void)pthread_mutex_unlock(&http->lock);
    look_at_memory(http, now_ns);
    http->next_tick_ns = now_ns + interval_ns;
    return http->next_tick_ns;
}
