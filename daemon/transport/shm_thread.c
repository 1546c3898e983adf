/* The thread: what it looks at, in which order, and how it waits. */
#include <errno.h>
#include <inttypes.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/shm_internal.h"

enum {
    LOOK_MS = 1,           /* sockets are looked at this often while there are submissions */
    ACCEPTS_PER_LOOK = 64, /* of one listener */
    ACCEPT_AGAIN_MS = 100, /* after descriptors were out */
    EVENTS_PER_LOOK = 64,
};

/* Sockets. */

static void watch_listeners(struct shm *shm)
{
    for (size_t i = 0; i < shm->num_listeners; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &shm->listen_fds[i]};

        if (shm->listen_fds[i] >= 0)
            (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, shm->listen_fds[i], &event);
    }
    shm->accept_again_ns = 0;
}

static void leave_listeners(struct shm *shm, int64_t now_ns)
{
    for (size_t i = 0; i < shm->num_listeners; i++)
        if (shm->listen_fds[i] >= 0)
            (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, shm->listen_fds[i], NULL);
    shm->accept_again_ns = clock_after_ms(now_ns, ACCEPT_AGAIN_MS);
}

void shm_close_listeners(struct shm *shm)
{
    for (size_t i = 0; i < shm->num_listeners; i++) {
        if (shm->listen_fds[i] >= 0)
            (void)close(shm->listen_fds[i]);
        shm->listen_fds[i] = -1;
    }
}

static void turn_away(struct shm *shm, int fd)
{
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_LIMIT_EXCEEDED, "", "%" PRIu32 " trainers are connected already",
                    shm->settings.clients);
    error_add_metadata(&why, "limit", "shared_memory_clients");
    (void)shm_send_refused(fd, &why);
    shm_close_socket(fd);
}

static void accept_some(struct shm *shm, int listen_fd, int64_t now_ns)
{
    for (int i = 0; i < ACCEPTS_PER_LOOK; i++) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                leave_listeners(shm, now_ns);
            return;
        }
        if (shm->num_connections >= shm->settings.clients)
            turn_away(shm, fd);
        else
            (void)shm_connection_open(shm, fd);
    }
}

static bool is_listener(const struct shm *shm, const void *watched)
{
    return (const int *)watched >= shm->listen_fds && (const int *)watched < shm->listen_fds + SHM_MAX_LISTENERS;
}

static void take_event(struct shm *shm, const struct epoll_event *event, int64_t now_ns)
{
    uint64_t wakes;

    if (event->data.ptr == &shm->wake_fd)
        (void)!read(shm->wake_fd, &wakes, sizeof wakes);
    else if (is_listener(shm, event->data.ptr))
        accept_some(shm, *(const int *)event->data.ptr, now_ns);
    else
        shm_connection_receive(event->data.ptr,
                               (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLRDNORM)) != 0);
}

/* Socket and process of a connection may both have something to say, and it may be gone after the first. */
static bool is_taken(const struct epoll_event *events, int index)
{
    for (int i = 0; i < index; i++)
        if (events[i].data.ptr == events[index].data.ptr)
            return true;
    return false;
}

static void break_off_slow(struct shm_connection *connection)
{
    const uint32_t ms = connection->shm->settings.attach_timeout_ms;
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_LIMIT_EXCEEDED, "", "there was no ATTACH within %" PRIu32 " ms", ms);
    error_add_metadata(&why, "limit", "upload_timeout_ms");
    shm_connection_break_off(connection, &why);
}

static bool waits_for_room(const struct shm_connection *connection)
{
    return connection->coming != NULL && !shm_session_has_region(connection->coming);
}

/* Connections that end, those that wait for room, and those that do not attach. */
static void sweep(struct shm *shm, int64_t now_ns)
{
    struct shm_connection *next;

    shm->next_deadline_ns = NO_DEADLINE;
    for (struct shm_connection *c = shm->connections; c != NULL; c = next) {
        next = c->next;
        if (c->ends)
            (void)shm_connection_reap(c);
        else if (waits_for_room(c))
            shm_connection_make_region(c);
        else if (c->coming != NULL)
            continue;
        else if (now_ns >= c->deadline_ns)
            break_off_slow(c);
        else if (c->deadline_ns < shm->next_deadline_ns)
            shm->next_deadline_ns = c->deadline_ns;
    }
}

static void look(struct shm *shm, int timeout_ms)
{
    struct epoll_event events[EVENTS_PER_LOOK];
    const int count = epoll_wait(shm->epoll_fd, events, EVENTS_PER_LOOK, timeout_ms);
    const int64_t now_ns = clock_now_ns();

    for (int i = 0; i < count; i++)
        if (!is_taken(events, i))
            take_event(shm, &events[i], now_ns);
    if (shm->num_ending > 0 || shm->num_waiting > 0 || now_ns >= shm->next_deadline_ns)
        sweep(shm, now_ns);
    if (atomic_load(&shm->is_closed))
        shm_close_listeners(shm);
    else if (shm->accept_again_ns != 0 && now_ns >= shm->accept_again_ns)
        watch_listeners(shm);
    shm->next_look_ns = clock_after_ms(now_ns, LOOK_MS);
}

/* Regions. */

static bool rings(void *context)
{
    const struct shm *shm = context;

    for (const struct shm_connection *c = shm->connections; c != NULL; c = c->next)
        if (shm_connection_is_served(c) && shm_session_rings(c->session))
            return true;
    return false;
}

/* Whether a call was taken. */
static bool serve(struct shm *shm)
{
    bool has_taken = false;
    struct shm_connection *next;

    for (struct shm_connection *c = shm->connections; c != NULL; c = next) {
        next = c->next;
        if (shm_connection_is_served(c) && shm_session_rings(c->session))
            has_taken |= shm_connection_serve(c) > 0;
    }
    return has_taken;
}

/* A piece of one region, of another connection each time. */
static void touch(struct shm *shm)
{
    struct shm_connection *c = shm->turn == NULL ? shm->connections : shm->turn;

    while (c != NULL && (c->coming == NULL || waits_for_room(c)))
        c = c->next;
    shm->turn = c == NULL ? NULL : c->next;
    if (c != NULL)
        shm_connection_touch(c);
}

static void set_sleeps(const struct shm *shm, uint32_t sleeps)
{
    for (const struct shm_connection *c = shm->connections; c != NULL; c = c->next)
        if (c->session != NULL)
            __atomic_store_n(&c->session->control->daemon_sleeps, sleeps, __ATOMIC_SEQ_CST);
}

/* Until when; rounded up. -1 for ever. */
static int sleep_ms(const struct shm *shm)
{
    const int64_t again_ns = shm->accept_again_ns == 0 ? NO_DEADLINE : shm->accept_again_ns;
    const int64_t until_ns = again_ns < shm->next_deadline_ns ? again_ns : shm->next_deadline_ns;
    const int64_t now_ns = clock_now_ns();

    if (until_ns == NO_DEADLINE)
        return -1;
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void sleep_until_rung(struct shm *shm)
{
    set_sleeps(shm, 1);
    if (!rings(shm))
        look(shm, sleep_ms(shm));
    set_sleeps(shm, 0);
}

static void finish(struct shm *shm)
{
    struct shm_connection *next;

    (void)serve(shm);
    for (struct shm_connection *c = shm->connections; c != NULL; c = next) {
        next = c->next;
        if (c->ends)
            (void)shm_connection_reap(c);
        else
            shm_connection_end(c);
    }
}

void *shm_run(void *context)
{
    struct shm *shm = context;

    watch_listeners(shm);
    while (!atomic_load_explicit(&shm->stops, memory_order_relaxed)) {
        const bool has_taken = serve(shm);

        if (shm->num_coming > 0)
            touch(shm);
        if (clock_now_ns() >= shm->next_look_ns)
            look(shm, 0);
        if (!has_taken && shm->num_coming == 0 && !spinner_wait(&shm->spinner, rings, shm))
            sleep_until_rung(shm);
    }
    finish(shm);
    return NULL;
}
