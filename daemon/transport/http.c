/* Life of the HTTP side, and the callbacks of libmicrohttpd. */
#include "transport/http_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * Buffer of a connection: the longest head, and twice the piece in which a body comes. The library touches all of it
 * after each call, so an idle connection holds it: 8,000 of them took 2.0 GB with 256 KiB, 260 MB with 32 KiB, and
 * calls of 0.1 to 64 MiB were no faster with more.
 */
enum { CONNECTION_MEMORY_BYTES = 32 << 10 };

/* For health, GetGroup and ListGroups when memory_bytes is used up. */
enum { READ_RESERVE_BYTES = 16 << 20 };

/* Paths and queries reach us as they were sent. */
static size_t leave_escaped(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

static void log_library(void *context, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));

static void log_library(void *context, const char *format, va_list arguments)
{
    char text[256];

    (void)context;
    if (vsnprintf(text, sizeof text, format, arguments) > 0)
        log_line(LOG_LEVEL_DEBUG, "event=http_library text=\"%s\"", text);
}

/* The library's own limit is one for each thread; this one is for all listeners together. */
static enum MHD_Result on_accept(void *context, const struct sockaddr *address, socklen_t length)
{
    const struct http *http = context;

    (void)address;
    (void)length;
    return gauge_get(&http->counters->connections) < (int64_t)http->settings.connections + SURPLUS_CONNECTIONS ? MHD_YES
                                                                                                               : MHD_NO;
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);

        *socket_context = info == NULL ? NULL : connection_open(context, info->connect_fd);
    } else if (*socket_context != NULL) {
        connection_close(*socket_context);
    }
}

/*
 * The query is copied and ours to parse. The library would spend 64 bytes of the connection's memory on each parameter,
 * and when that is out version 0.9.75 neither answers nor closes: leave it an empty query. The text is its own buffer.
 */
static void hide_query(const char *target)
{
    char *question = strchr((char *)(uintptr_t)target, '?');

    if (question != NULL)
        question[1] = '\0';
}

/*
 * The request line is there, and with it the start of the time for the whole call. A call before it that the library
 * has not completed (0.9.75 forgets to when it refuses a head twice) is over now.
 */
static void *on_request_line(void *context, const char *target, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *connection = info == NULL ? NULL : info->socket_context;

    if (connection == NULL || target == NULL || !connection_receives(connection))
        return NULL;
    call_destroy(connection->call);
    connection->call = call_create(context, connection, target);
    hide_query(target);
    return connection->call;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *url, const char *verb,
                                  const char *version, const char *bytes, size_t *size, void **call_context)
{
    struct http_call *call = *call_context;
    const size_t received = *size;

    (void)context;
    (void)url;
    if (call == NULL)
        return MHD_NO;
    switch (call->state) {
    case CALL_HEAD:
        return call_begin(call, mhd, verb, version);
    case CALL_BODY:
        if (received == 0)
            return call_execute(call);
        *size = 0;
        return call_receive(call, bytes, received);
    case CALL_PARKED:
        return call_answer_submission(call);
    case CALL_ANSWERED:
        break;
    }
    *size = 0;
    return MHD_YES;
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **call_context,
                         enum MHD_RequestTerminationCode code)
{
    struct http_call *call = *call_context;

    (void)context;
    (void)mhd;
    (void)code;
    if (call == NULL)
        return;
    if (call->state == CALL_PARKED) /* resumed, but the client was gone before it could be answered */
        connection_unpark(call->connection);
    connection_is_idle(call->connection);
    call->connection->call = NULL;
    call_destroy(call);
    *call_context = NULL;
}

/* What the main thread says in place of the library. */
static bool make_raw_answers(struct http *http)
{
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_LIMIT_EXCEEDED, "", "the request was not complete after %" PRIu32 " ms",
                    http->settings.upload_timeout_ms);
    error_add_metadata(&why, "limit", "upload_timeout_ms");
    http->too_slow = raw_answer_of(&why, 0);
    (void)error_set(&why, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    http->shutting_down = raw_answer_of(&why, 0);
    return http->too_slow.bytes != NULL && http->shutting_down.bytes != NULL;
}

static void http_free(struct http *http)
{
    if (http->watch_fd >= 0)
        (void)close(http->watch_fd);
    (void)pthread_mutex_destroy(&http->lock);
    free(http->too_slow.bytes);
    free(http->shutting_down.bytes);
    free(http);
}

struct http *http_create(const struct http_settings *settings, struct registry *registry, struct counters *counters,
                         struct memory_budget *budget, struct lossd_error *err)
{
    struct http *http = calloc(1, sizeof *http);

    if (http == NULL) {
        (void)error_set(err, LOSSD_INTERNAL, "", "out of memory");
        return NULL;
    }
    http->settings = *settings;
    http->counters = counters;
    http->budget = budget;
    http->reserve.limit_bytes = READ_RESERVE_BYTES;
    http->rpc.registry = registry;
    http->rpc.max_tasks = settings->max_tasks;
    http->rpc.max_losses = settings->max_losses;
    http->pages.rpc = &http->rpc;
    http->pages.counters = counters;
    http->pages.budget = budget;
    http->pages.loop_ns = clock_now_ns();
    http->quiet_ns = NO_DEADLINE;
    (void)pthread_mutex_init(&http->lock, NULL);
    http->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (http->watch_fd < 0)
        (void)error_set(err, LOSSD_INTERNAL, "", "epoll_create1 fails: %s", strerror(errno));
    else if (!make_raw_answers(http))
        (void)error_set(err, LOSSD_INTERNAL, "", "out of memory");
    else
        return http;
    http_free(http);
    return NULL;
}

/*
 * A pool of one is no pool: the library wants the option absent then.
 *
 * Strictness of version 0.9.75 is a Host that has to be there, answered with two heads; we look ourselves. That of 1.0
 * is about bare line feeds and the like, which only the library sees.
 */
static struct MHD_Daemon *start_daemon(struct http *http, int listen_fd)
{
    const unsigned threads = http->settings.http_threads;
    const int strict = MHD_VERSION >= 0x01000000 ? 1 : 0;
    const struct MHD_OptionItem pool[] = {
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };

    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, on_accept, http,
        on_request, http, MHD_OPTION_EXTERNAL_LOGGER, log_library, http, MHD_OPTION_LISTEN_SOCKET, listen_fd,
        MHD_OPTION_CONNECTION_LIMIT, (http->settings.connections + SURPLUS_CONNECTIONS) * threads,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_STRICT_FOR_CLIENT, strict, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, pool,
        MHD_OPTION_END);
}

enum lossd_status http_listen(struct http *http, int listen_fd, struct lossd_error *err)
{
    struct MHD_Daemon *daemon = http->num_daemons == MAX_LISTENERS ? NULL : start_daemon(http, listen_fd);

    if (daemon == NULL) {
        (void)close(listen_fd);
        return error_set(err, LOSSD_INTERNAL, "listen", "the HTTP library does not start on this socket");
    }
    http->quiesced_fds[http->num_daemons] = MHD_INVALID_SOCKET;
    http->daemons[http->num_daemons++] = daemon;
    return LOSSD_OK;
}

void http_drain(struct http *http)
{
    atomic_store(&http->rpc.draining, true);
}

void http_close(struct http *http)
{
    http_drain(http);
    if (atomic_exchange(&http->closed, true))
        return;
    /* The library's threads take the sockets out of their own epoll after this, so that they are closed behind them. */
    for (size_t i = 0; i < http->num_daemons; i++)
        http->quiesced_fds[i] = MHD_quiesce_daemon(http->daemons[i]);
    (void)http_tick(http, clock_now_ns());
}

size_t http_open_calls(const struct http *http)
{
    const int64_t open = gauge_get(&http->counters->open_calls);

    return open > 0 ? (size_t)open : 0;
}

void http_destroy(struct http *http)
{
    if (http == NULL)
        return;
    for (size_t i = 0; i < http->num_daemons; i++) {
        MHD_stop_daemon(http->daemons[i]);
        if (http->quiesced_fds[i] != MHD_INVALID_SOCKET)
            (void)close(http->quiesced_fds[i]);
    }
    http_free(http);
}
