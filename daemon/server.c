#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/notify.h"
#include "sockets.h"
#include "transport/http.h"
#include "transport/shm.h"

/* How long clients may take to read their answers once every call has been ended. */
enum { ANSWER_GRACE_MS = 2000 };

enum phase {
    SERVING,
    DRAINING, /* steps go on */
    CLOSING,  /* every call has been ended; answers are on their way */
};

struct server {
    const struct config *config;
    struct memory_budget budget;
    struct counters counters;
    struct registry *registry;
    struct http *http;
    struct shm *shm; /* NULL where there is no socket for it */
    struct sockets sockets;
    int epoll_fd;
    int signal_fd;
    int wake_fd; /* eventfd: a deadline of a group is nearer than we know */
    enum phase phase;
    int64_t phase_end_ns;
    int64_t watchdog_interval_ns; /* 0 for none */
    int64_t next_watchdog_ns;
};

static enum lossd_status system_error(struct lossd_error *err, const char *what)
{
    return error_set(err, LOSSD_INTERNAL, "", "%s fails: %s", what, strerror(errno));
}

/*
 * A connection is a descriptor, and one of shared memory two; the default soft limit of 1024 is below the default limit
 * of connections.
 */
static void raise_descriptor_limit(const struct config *config)
{
    const rlim_t wanted = (rlim_t)config->http.connections +
                          (config->shared_memory ? 2 * (rlim_t)config->shm.clients : 0) + 256;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
        log_line(LOG_LEVEL_WARNING, "event=few_descriptors limit=%" PRIu64 " wanted=%" PRIu64, (uint64_t)limit.rlim_cur,
                 (uint64_t)wanted);
}

static bool watch(const struct server *server, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static enum lossd_status open_events(struct server *server, struct lossd_error *err)
{
    sigset_t signals;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a region above the limit on files is refused to its trainer */
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0)
        return system_error(err, "pthread_sigmask");
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll_fd < 0 || server->signal_fd < 0 || server->wake_fd < 0 || !watch(server, server->signal_fd) ||
        !watch(server, server->wake_fd))
        return system_error(err, "epoll");
    return LOSSD_OK;
}

static void wake(void *context)
{
    const struct server *server = context;

    (void)!write(server->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static enum lossd_status start_registry(struct server *server, struct config *config, struct lossd_error *err)
{
    server->registry = registry_create(&config->registry, err);
    if (server->registry == NULL)
        return err->status;
    registry_on_deadline(server->registry, wake, server);
    for (size_t i = 0; i < config->num_groups; i++) {
        struct declared_group *group = &config->groups[i];
        const enum lossd_status status = registry_declare(server->registry, group->name, group->world_size,
                                                          group->config, err);

        if (status != LOSSD_OK) {
            error_prefix_field(err, "groups[%zu]", i);
            return status;
        }
        group->config = NULL;
    }
    return LOSSD_OK;
}

static enum lossd_status start_http(struct server *server, struct lossd_error *err)
{
    server->http = http_create(&server->config->http, server->registry, &server->counters, &server->budget, err);
    if (server->http == NULL)
        return err->status;
    if (!watch(server, http_watch_fd(server->http)))
        return system_error(err, "epoll");
    for (size_t i = 0; i < server->sockets.count; i++) {
        struct listener *listener = &server->sockets.all[i];

        if (!listener->is_records && http_listen(server->http, steal_fd(&listener->fd), err) != LOSSD_OK)
            return err->status;
    }
    return LOSSD_OK;
}

static enum lossd_status create_shm(struct server *server, struct lossd_error *err)
{
    if (server->shm != NULL)
        return LOSSD_OK;
    server->shm = shm_create(&server->config->shm, server->registry, &server->counters, &server->budget, err);
    return server->shm == NULL ? err->status : LOSSD_OK;
}

static enum lossd_status start_shm(struct server *server, struct lossd_error *err)
{
    for (size_t i = 0; i < server->sockets.count; i++) {
        struct listener *listener = &server->sockets.all[i];

        if (listener->is_records &&
            (create_shm(server, err) != LOSSD_OK || shm_listen(server->shm, steal_fd(&listener->fd), err) != LOSSD_OK))
            return err->status;
    }
    if (server->shm == NULL)
        return LOSSD_OK;
    return watch(server, shm_watch_fd(server->shm)) ? shm_start(server->shm, err) : system_error(err, "epoll");
}

static enum lossd_status start(struct server *server, struct config *config, struct lossd_error *err)
{
    enum lossd_status status = open_events(server, err);

    raise_descriptor_limit(config);
    if (status == LOSSD_OK)
        status = sockets_open(&server->sockets, config, err);
    if (status == LOSSD_OK)
        status = start_registry(server, config, err);
    if (status == LOSSD_OK)
        status = start_http(server, err);
    if (status == LOSSD_OK)
        status = start_shm(server, err);
    return status;
}

/* Files go before the sockets are closed: who starts now finds no stale one. */
static void close_transports(struct server *server)
{
    sockets_close(&server->sockets);
    if (server->http != NULL)
        http_close(server->http);
    if (server->shm != NULL)
        shm_close(server->shm);
}

enum lossd_status server_start(struct config *config, struct server **server, struct lossd_error *err)
{
    struct server *started = calloc(1, sizeof *started);
    enum lossd_status status;

    if (started == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    started->config = config;
    started->budget.limit_bytes = config->memory_bytes;
    started->epoll_fd = started->signal_fd = started->wake_fd = -1;
    started->watchdog_interval_ns = notify_watchdog_interval_ns();
    status = start(started, config, err);
    if (status != LOSSD_OK) {
        close_transports(started);
        server_destroy(started);
        return status;
    }
    sockets_log(&started->sockets);
    *server = started;
    return LOSSD_OK;
}

static void enter_phase(struct server *server, enum phase phase, int64_t now_ns)
{
    server->phase = phase;
    if (phase == DRAINING) {
        log_line(LOG_LEVEL_INFO, "event=draining timeout_ms=%" PRIu32, server->config->drain_timeout_ms);
        (void)notify_send("STOPPING=1\nSTATUS=draining");
        http_drain(server->http);
        registry_drain(server->registry);
        server->phase_end_ns = clock_after_ms(now_ns, server->config->drain_timeout_ms);
    } else {
        close_transports(server);
        registry_close(server->registry);
        server->phase_end_ns = clock_after_ms(now_ns, ANSWER_GRACE_MS);
    }
}

static void take_signals(struct server *server, int64_t now_ns)
{
    struct signalfd_siginfo info;

    while (read(server->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP || server->phase == CLOSING)
            continue;
        enter_phase(server, server->phase == SERVING ? DRAINING : CLOSING, now_ns);
    }
}

static void take_events(struct server *server, const struct epoll_event *events, int count, int64_t now_ns)
{
    uint64_t wakes;

    for (int i = 0; i < count; i++) {
        if (events[i].data.fd == server->signal_fd)
            take_signals(server, now_ns);
        else if (server->shm != NULL && events[i].data.fd == shm_watch_fd(server->shm))
            shm_watch(server->shm);
        else if (events[i].data.fd == server->wake_fd)
            (void)!read(server->wake_fd, &wakes, sizeof wakes);
        else
            http_watch(server->http);
    }
}

static bool is_idle(const struct server *server)
{
    return registry_open_submissions(server->registry) == 0 && http_open_calls(server->http) == 0 &&
           (server->shm == NULL || shm_open_calls(server->shm) == 0);
}

/* Run every clock; returns when the next one is due. */
static int64_t tick(struct server *server, int64_t now_ns)
{
    int64_t next_ns = registry_tick(server->registry, now_ns);
    const int64_t http_ns = http_tick(server->http, now_ns);

    if (http_ns < next_ns)
        next_ns = http_ns;
    if (server->watchdog_interval_ns > 0 && now_ns >= server->next_watchdog_ns) {
        (void)notify_send("WATCHDOG=1");
        server->next_watchdog_ns = now_ns + server->watchdog_interval_ns;
    }
    if (server->watchdog_interval_ns > 0 && server->next_watchdog_ns < next_ns)
        next_ns = server->next_watchdog_ns;
    /* Answers that leave wake nobody up here. */
    if (server->phase != SERVING && now_ns + 20 * NS_PER_MS < next_ns)
        next_ns = now_ns + 20 * NS_PER_MS;
    return next_ns;
}

/* Rounded up: a clock that is asked too early is asked again. */
static int wait_ms(int64_t now_ns, int64_t until_ns)
{
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

bool server_run(struct server *server)
{
    struct epoll_event events[8];

    (void)notify_send("READY=1\nSTATUS=serving");
    for (;;) {
        int64_t now_ns = clock_now_ns();
        const int64_t next_ns = tick(server, now_ns);
        const int count = epoll_wait(server->epoll_fd, events, 8, wait_ms(clock_now_ns(), next_ns));

        now_ns = clock_now_ns();
        take_events(server, events, count, now_ns);
        if (server->phase == DRAINING && (is_idle(server) || now_ns >= server->phase_end_ns))
            enter_phase(server, CLOSING, now_ns);
        if (server->phase == CLOSING && is_idle(server))
            return true;
        if (server->phase == CLOSING && now_ns >= server->phase_end_ns)
            return false;
    }
}

void server_destroy(struct server *server)
{
    if (server == NULL)
        return;
    sockets_close(&server->sockets);
    shm_destroy(server->shm);
    http_destroy(server->http);
    registry_destroy(server->registry);
    cleanup_close(&server->epoll_fd);
    cleanup_close(&server->signal_fd);
    cleanup_close(&server->wake_fd);
    free(server);
}
