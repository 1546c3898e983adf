/* Shared by the http*.c files: the server's HTTP side, a connection, and a call on it. */
#ifndef TRANSPORT_HTTP_INTERNAL_H
#define TRANSPORT_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "group/submission.h"
#include "transport/connect.h"
#include "transport/http.h"
#include "transport/pages.h"
#include "transport/rpc.h"

enum { MAX_LISTENERS = 64, MAX_HEADER_FIELDS = 128, TRACEPARENT_SIZE = 56 };

/* Connections past limits.connections that are let in, to be told why their calls are refused. */
enum { SURPLUS_CONNECTIONS = 64 };

/* The HTTP thread of a connection moves it on; only CUT is the main thread's, and final. */
enum connection_state {
    CONNECTION_IDLE,     /* before a request line */
    CONNECTION_RECEIVES, /* between a request line and the end of the body */
    CONNECTION_WORKS,    /* the daemon is at work, or the call is parked */
    CONNECTION_ANSWERS,
    CONNECTION_CUT, /* shut down; the library has not closed it yet */
};

/* A complete answer, head and all, for a connection whose call the library can't answer any more. */
struct raw_answer {
    char *bytes; /* from malloc; NULL for none */
    size_t size;
};

struct http_connection {
    struct http *http;
    int fd;                           /* the library's; open as long as this is in the list */
    bool is_surplus;                  /* past limits.connections: its calls are refused */
    atomic_int state;                 /* enum connection_state */
    atomic_int_least64_t deadline_ns; /* of that state; NO_DEADLINE while the daemon is at work */
    struct http_call *call;           /* at hand; the HTTP thread's */
    int64_t ended_ns;                 /* since when the client is seen gone, or 0; the main thread's */
    struct raw_answer refusal;        /* under the lock: of the call whose body is discarded */
    struct submission *parked;        /* under the lock; NULL where no call is parked */
    struct http_connection *previous; /* under the lock */
    struct http_connection *next;
};

struct http {
    struct http_settings settings;
    struct counters *counters;
    struct memory_budget *budget;
    struct memory_budget reserve; /* for calls that only read, when the budget is short */
    struct rpc_context rpc;
    struct page_context pages;
    atomic_bool closed;
    atomic_int_least64_t limited_calls; /* of open_calls: those that limits.open_calls is about */
    struct log_quota log_quota;         /* of failed calls */

    struct MHD_Daemon *daemons[MAX_LISTENERS]; /* main thread only */
    MHD_socket quiesced_fds[MAX_LISTENERS];    /* taken from them by http_close */
    size_t num_daemons;

    int watch_fd; /* epoll of the sockets of parked calls */
    pthread_mutex_t lock;
    struct http_connection *connections;
    int64_t next_tick_ns;
    atomic_bool had_large_body; /* since the last tick */
    int64_t quiet_ns; /* since when none came; NO_DEADLINE once freed memory was given back. The main thread's */
    struct raw_answer too_slow;      /* upload_timeout_ms is over */
    struct raw_answer shutting_down; /* the drain is over */
};

enum call_state {
    CALL_HEAD,   /* the request line is there */
    CALL_BODY,   /* receiving, or discarding where the call is refused */
    CALL_PARKED, /* suspended; the group owns the submission */
    CALL_ANSWERED,
};

/*
 * One request, from its request line to the last byte of its answer. Owned by its connection, on that one's HTTP
 * thread: the library does not say of every request that it is over.
 */
struct http_call {
    struct http *http;
    struct memory_budget *budget; /* what it is charged to */
    struct http_connection *connection;
    struct MHD_Connection *mhd;
    enum call_state state;
    char *path;            /* as sent, not decoded */
    const char *query;     /* behind the question mark; NULL where there is none */
    bool has_clean_target; /* no space in it */
    bool is_get;
    bool is_limited; /* counted in limited_calls */
    bool is_open;    /* counted in open_calls */
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

/* http_connection.c: what the main thread watches. NULL where memory is out. */
struct http_connection *connection_open(struct http *http, int fd);
void connection_close(struct http_connection *connection);
/* False where the connection is cut: maybe its client has been answered, so that nothing may be written any more. */
CHECK_RESULT
bool connection_receives(struct http_connection *connection);
CHECK_RESULT
bool connection_works(struct http_connection *connection);
CHECK_RESULT
bool connection_answers(struct http_connection *connection, size_t answer_bytes);
void connection_is_idle(struct http_connection *connection);
/* The body is discarded; where it does not come to its end soon, this is the answer. Takes over the bytes. */
void connection_refuse(struct http_connection *connection, struct raw_answer answer);
void connection_park(struct http_connection *connection, struct submission *submission);
void connection_unpark(struct http_connection *connection);

/* http_call.c: from request line to handler. */
struct http_call *call_create(struct http *http, struct http_connection *connection, const char *target);
/* Takes NULL. */
void call_destroy(struct http_call *call);
/* The head is complete. Sets the call's error where it is refused; the body is read in any case. */
enum MHD_Result call_begin(struct http_call *call, struct MHD_Connection *mhd, const char *verb, const char *version);
/* The body is complete: run the call, and answer or park it. */
enum MHD_Result call_execute(struct http_call *call);

/* http_body.c: bytes of the body. MHD_NO where the connection has to be cut. */
enum MHD_Result call_receive(struct http_call *call, const char *bytes, size_t size);
/* Whether the rest of a refused body is too much to read: it is answered at once then, and the connection closed. */
bool call_is_too_long_to_discard(const struct http_call *call);
uint64_t call_body_limit(const struct http_call *call);
enum lossd_status call_set_too_large(struct http_call *call);
/* The call has an error: drop what it holds, and be ready to answer in the middle of its body. */
void call_discard(struct http_call *call);
void call_release_body(struct http_call *call);
/* Body and everything in the arena. */
void call_release_memory(struct http_call *call);

/* http_answer.c. bytes is NULL where memory is out. http_status 0: that of the error. */
struct raw_answer raw_answer_of(const struct lossd_error *err, unsigned http_status);
/* One of these ends a call. */
enum MHD_Result call_answer_error(struct http_call *call);
enum MHD_Result call_answer_message(struct http_call *call, const ProtobufCMessage *message);
enum MHD_Result call_answer_page(struct http_call *call);
/* A parked call is resumed: its submission is done. */
enum MHD_Result call_answer_submission(struct http_call *call);

#endif
