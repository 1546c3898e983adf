/* Shared by the http*.c files: the server's HTTP side, a connection, and a call on it. */
#ifndef TRANSPORT_HTTP_INTERNAL_H
#define TRANSPORT_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "group/submission.h"
#include "transport/connect.h"
#include "transport/http.h"
#include "transport/pages.h"
#include "transport/rpc.h"

enum { MAX_LISTENERS = 64, MAX_HEADER_FIELDS = 128, TRACEPARENT_SIZE = 56 };

struct http_connection {
    struct http *http;
    int fd;                           /* the library's; open as long as this is in the list */
    atomic_int_least64_t deadline_ns; /* of what it does now; NO_DEADLINE while the daemon is at work */
    atomic_bool receives;             /* between a request line and the end of the body */
    struct submission *parked;        /* under the lock; NULL where no call is parked */
    struct http_connection *previous; /* under the lock */
    struct http_connection *next;
};

struct http {
    struct http_settings settings;
    struct counters *counters;
    struct memory_budget *budget;
    struct rpc_context rpc;
    struct page_context pages;
    atomic_bool closed;
    atomic_int_least64_t log_second; /* of the lines counted in log_lines */
    atomic_uint log_lines;

    struct MHD_Daemon *daemons[MAX_LISTENERS]; /* main thread only */
    size_t num_daemons;

    int watch_fd; /* epoll of the sockets of parked calls */
    pthread_mutex_t lock;
    struct http_connection *connections;
};

enum call_state {
    CALL_HEAD,   /* the request line is there */
    CALL_BODY,   /* receiving, or discarding where the call is refused */
    CALL_PARKED, /* suspended; the group owns the submission */
    CALL_ANSWERED,
};

/* One request, from its request line to the last byte of its answer. Owned by the HTTP thread of its connection. */
struct http_call {
    struct http *http;
    struct http_connection *connection;
    struct MHD_Connection *mhd;
    enum call_state state;
    char *path;        /* as sent, not decoded */
    const char *query; /* behind the question mark; NULL where there is none */
    bool is_get;
    bool is_open; /* counted in open_calls */
    bool close_connection;
    int64_t head_ns; /* when the head was complete */

    const struct page *page; /* one of these two, or a refusal */
    const struct rpc_method *method;
    struct framing framing;
    struct connect_head head;
    unsigned http_status; /* of a refusal where the table has another; 0 for the table's */
    const char *allow;    /* header Allow of a 405; NULL for none */
    bool accept_post;     /* header Accept-Post of a 415 */
    char traceparent[TRACEPARENT_SIZE];

    uint8_t *body; /* from malloc, charged to the budget */
    size_t body_size;
    size_t body_capacity;
    uint64_t discarded_bytes;
    size_t answer_bytes; /* charged to the budget */

    struct submission submission; /* its error is the call's */
};

/* http_connection.c: what the main thread watches. */
struct http_connection *connection_open(struct http *http, int fd);
void connection_close(struct http_connection *connection);
void connection_receives(struct http_connection *connection);
void connection_works(struct http_connection *connection);
void connection_answers(struct http_connection *connection, size_t answer_bytes);
void connection_is_idle(struct http_connection *connection);
void connection_park(struct http_connection *connection, struct submission *submission);
void connection_unpark(struct http_connection *connection);

/* http_call.c: from request line to handler. */
struct http_call *call_create(struct http *http, struct http_connection *connection, const char *uri);
void call_destroy(struct http_call *call);
/* The head is complete. Sets the call's error where it is refused; the body is read in any case. */
enum MHD_Result call_begin(struct http_call *call, struct MHD_Connection *mhd, const char *verb);
/* The body is complete: run the call, and answer or park it. */
enum MHD_Result call_execute(struct http_call *call);

/* http_body.c: bytes of the body. MHD_NO where the connection has to be cut. */
enum MHD_Result call_receive(struct http_call *call, const char *bytes, size_t size);
/* Whether the rest of a refused body is too much to read: it is answered at once then, and the connection closed. */
bool call_is_too_long_to_discard(const struct http_call *call);
uint64_t call_body_limit(const struct http_call *call);
enum lossd_status call_set_too_large(struct http_call *call);
/* Body and everything in the arena. */
void call_release_memory(struct http_call *call);

/* http_answer.c: one of these ends a call. */
enum MHD_Result call_answer_error(struct http_call *call);
enum MHD_Result call_answer_message(struct http_call *call, const ProtobufCMessage *message);
enum MHD_Result call_answer_page(struct http_call *call);
/* A parked call is resumed: its submission is done. */
enum MHD_Result call_answer_submission(struct http_call *call);

#endif
