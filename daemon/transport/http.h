/*
 * HTTP/1.1: receives calls, parks them while they wait for other ranks, answers them. The home of libmicrohttpd.
 *
 * Threads: each listener has http_threads of its own, which receive, decode and encode. The functions here are for the
 * main thread, which is also the clock: it ends uploads that take too long and sees when the client of a parked call
 * goes away, which the library does not look at while a connection is suspended.
 */
#ifndef TRANSPORT_HTTP_H
#define TRANSPORT_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/counters.h"
#include "base/status.h"
#include "group/registry.h"

/* Keys of the configuration; ranges are checked there. */
struct http_settings {
    uint64_t json_body_bytes;
    uint64_t proto_body_bytes;
    uint32_t json_depth;
    uint32_t max_tasks;
    uint32_t max_losses;
    uint32_t connections; /* of all listeners; some more are let in to be told so */
    uint32_t open_calls;  /* without those that only read */
    uint32_t upload_timeout_ms;
    unsigned http_threads; /* a listener */
};

struct http;

/* All parts are borrowed and have to outlive it. NULL, with err, where memory or descriptors can't be had. */
struct http *http_create(const struct http_settings *settings, struct registry *registry, struct counters *counters,
                         struct memory_budget *budget, struct lossd_error *err);

/* Serve a listening socket, TCP or Unix. The descriptor is taken over, in every case. LOSSD_INTERNAL. */
CHECK_RESULT
enum lossd_status http_listen(struct http *http, int listen_fd, struct lossd_error *err);

/* Readable when http_watch has something to do. */
int http_watch_fd(const struct http *http);

/* Cancel parked calls whose client is gone. */
void http_watch(struct http *http);

/*
 * Cut connections that are over their time, answering those that have sent a part of a call, and those whose client is
 * gone; returns when to call again. Also the life sign that /livez looks at.
 */
int64_t http_tick(struct http *http, int64_t now_ns);

/* /readyz and health say no, and answers close their connections. Calls are still taken. */
void http_drain(struct http *http);

/*
 * Take no more connections, and refuse every new call with LOSSD_SHUTTING_DOWN; one whose body has not come yet is
 * answered so and cut. Listening sockets are closed by http_destroy: who connects meanwhile is cut at the end.
 */
void http_close(struct http *http);

/* Calls between their head and the last byte of their answer. */
size_t http_open_calls(const struct http *http);

/*
 * Stop the threads and free everything. After http_close; no call may be parked any more (the library would abort):
 * close the registry and wait until http_open_calls is 0, or the process ends without this. Takes NULL.
 */
void http_destroy(struct http *http);

#endif
