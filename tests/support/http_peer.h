/* A server of a few lines, which keeps what it was sent and says what it was told to. */
#ifndef TESTS_SUPPORT_HTTP_PEER_H
#define TESTS_SUPPORT_HTTP_PEER_H

#include <pthread.h>
#include <stdbool.h>

struct http_peer {
    int listener;
    char address[128];
    const char *answer; /* to each request; NULL: none, until the client goes */
    bool hang_up;       /* after one answer */
    pthread_t thread;
    int connections;
    int requests;
    char *received; /* the last request, with NUL */
};

/* Bound to a free port of loopback; address is set, nobody listens yet. */
struct http_peer http_peer_tcp(void);

/* Serve one connection after the other on a thread; answer may be NULL. */
void http_peer_start(struct http_peer *peer, const char *answer);

/* Takes a listening one. */
void http_peer_stop(struct http_peer *peer);

#endif
