/*
 * HTTP/1.1 calls to one server, over TCP, TLS or a Unix socket: the home of libcurl.
 *
 * A client keeps its connection between calls. One thread at a time uses it; several clients may run side by side.
 * No proxy, no redirect, no cookie: the server that was named answers, or nobody.
 */
#ifndef CLIENT_HTTP_CLIENT_H
#define CLIENT_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "client/interrupt.h"

enum http_result {
    HTTP_OK,
    HTTP_BAD_ADDRESS,    /* not one of the forms below */
    HTTP_CANNOT_CONNECT, /* nobody listens there, or the name is not known */
    HTTP_TIMEOUT,        /* no complete answer in time */
    HTTP_INTERRUPTED,    /* by the user */
    HTTP_TOO_LARGE,      /* the answer is larger than wanted */
    HTTP_FAILED,         /* broken off, TLS trouble, not HTTP, memory is out */
};

/* One sentence without a full stop; written where a function fails. */
struct http_error {
    char message[256];
};

struct http_client;

/*
 * Nothing is connected yet. Never fails for a server that is away.
 *
 * address  host:port, http://host:port, https://host:port, unix:/path, unix:///path. A port is needed but for http and
 *          https. IPv6 in brackets. Borrowed for the call.
 * client   written on success; for http_client_close.
 *
 * HTTP_BAD_ADDRESS, HTTP_FAILED where memory is out.
 */
CHECK_RESULT
enum http_result http_client_open(const char *address, struct http_client **client, struct http_error *err);

/*
 * Certificates of authorities, in PEM, in place of the system's. It is read when a server is called. HTTP_FAILED where
 * memory is out.
 */
CHECK_RESULT
enum http_result http_client_trust(struct http_client *client, const char *ca_file, struct http_error *err);

/* Ask this one while a call waits, and between its parts; borrowed as long as the client lives. */
void http_client_ask(struct http_client *client, struct interrupt *interrupt);

/* Takes NULL. */
void http_client_close(struct http_client *client);

struct http_request {
    const char *path;       /* "/lossd.v1.LossService/ComputeLoss" */
    const char *media_type; /* of the body; NULL makes it a GET without one */
    const uint8_t *body;    /* [body_bytes], borrowed */
    size_t body_bytes;
    const char *const *headers; /* "Name: value" strings, ended by NULL; or NULL */
    uint64_t timeout_ms;        /* for the whole call; 0 for none */
    uint64_t connect_ms;        /* for connecting alone; 0 for 10 s */
    size_t max_answer_bytes;    /* 0 for HTTP_DEFAULT_ANSWER_BYTES */
};

#define HTTP_DEFAULT_ANSWER_BYTES ((size_t)1 << 30)

struct http_response {
    int status;         /* 200 */
    char *content_type; /* "" where there is none */
    uint8_t *body;      /* [body_bytes], NUL behind the last */
    size_t body_bytes;
};

/*
 * One call and its answer, whatever the status. response is written on success; for http_response_finish.
 * HTTP_CANNOT_CONNECT, HTTP_TIMEOUT, HTTP_INTERRUPTED, HTTP_TOO_LARGE, HTTP_FAILED: the connection is closed then.
 */
CHECK_RESULT
enum http_result http_client_call(struct http_client *client, const struct http_request *request,
                                  struct http_response *response, struct http_error *err);

/* Takes a zeroed one too. */
void http_response_finish(struct http_response *response);

#endif
