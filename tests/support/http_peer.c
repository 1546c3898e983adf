#include "support/http_peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVED_BYTES = 4 << 20 };

/* Bytes of the body that the head announces. */
static size_t body_bytes(const char *head)
{
    const char *length = strcasestr(head, "\r\ncontent-length:");

    return length == NULL ? 0 : strtoul(length + 17, NULL, 10);
}

/* True when a whole request is in received. */
static bool receive_request(struct http_peer *peer, int fd)
{
    size_t used = 0;

    for (;;) {
        const char *end;
        const ssize_t got = read(fd, peer->received + used, RECEIVED_BYTES - used - 1);

        if (got <= 0)
            return false;
        used += (size_t)got;
        peer->received[used] = '\0';
        end = strstr(peer->received, "\r\n\r\n");
        if (end != NULL && used >= (size_t)(end + 4 - peer->received) + body_bytes(peer->received))
            return true;
    }
}

static void serve_connection(struct http_peer *peer, int fd)
{
    while (receive_request(peer, fd)) {
        peer->requests++;
        if (peer->answer == NULL)
            continue;
        (void)!write(fd, peer->answer, strlen(peer->answer));
        if (peer->hang_up)
            return;
    }
}

static void *serve(void *context)
{
    struct http_peer *peer = context;

    for (;;) {
        const int fd = accept(peer->listener, NULL, NULL);

        if (fd < 0)
            return NULL;
        peer->connections++;
        serve_connection(peer, fd);
        close(fd);
    }
}

void http_peer_start(struct http_peer *peer, const char *answer)
{
    ck_assert_int_eq(listen(peer->listener, 8), 0);
    peer->answer = answer;
    peer->received = calloc(1, RECEIVED_BYTES);
    ck_assert_int_eq(pthread_create(&peer->thread, NULL, serve, peer), 0);
}

void http_peer_stop(struct http_peer *peer)
{
    (void)shutdown(peer->listener, SHUT_RDWR);
    pthread_join(peer->thread, NULL);
    close(peer->listener);
    free(peer->received);
}

struct http_peer http_peer_tcp(void)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct http_peer peer = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    socklen_t length = sizeof where;

    ck_assert_int_eq(bind(peer.listener, (struct sockaddr *)&where, sizeof where), 0);
    ck_assert_int_eq(getsockname(peer.listener, (struct sockaddr *)&where, &length), 0);
    (void)snprintf(peer.address, sizeof peer.address, "127.0.0.1:%d", ntohs(where.sin_port));
    return peer;
}
