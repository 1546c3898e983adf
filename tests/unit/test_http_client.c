/* The HTTP client against a server that says what it was told to. */
#include "client/http_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/http_peer.h"
#include "support/runner.h"

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Type: text/x-test\r\nContent-Length: 5\r\n\r\nhello"

static struct http_client *open_client(const char *address)
{
    struct http_client *client = NULL;
    struct http_error err;

    ck_assert_int_eq(http_client_open(address, &client, &err), HTTP_OK);
    return client;
}

/* One POST of "ping" to address. */
static enum http_result post(const char *address, uint64_t timeout_ms, size_t max_answer_bytes,
                             struct http_response *response, struct http_error *err)
{
    const struct http_request request = {
        .path = "/a/b",
        .media_type = "text/x-ping",
        .body = (const uint8_t *)"ping",
        .body_bytes = 4,
        .timeout_ms = timeout_ms,
        .max_answer_bytes = max_answer_bytes,
    };
    struct http_client *client = open_client(address);
    const enum http_result result = http_client_call(client, &request, response, err);

    http_client_close(client);
    return result;
}

START_TEST(a_post_brings_its_headers_along_and_the_answer_back)
{
    const char *const headers[] = {"Connect-Timeout-Ms: 1500", NULL};
    const struct http_request request = {
        .path = "/lossd.v1.LossService/ComputeLoss",
        .media_type = "application/json",
        .body = (const uint8_t *)"{\"x\":1}",
        .body_bytes = 7,
        .headers = headers,
    };
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_client *client;
    struct http_error err;
    bool has_header;

    http_peer_start(&server, OK_ANSWER);
    client = open_client(server.address);
    ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_OK);
    http_client_close(client);
    has_header = strstr(server.received, "\r\nConnect-Timeout-Ms: 1500\r\n") != NULL;
    http_peer_stop(&server);
    ck_assert(has_header);
    ck_assert_int_eq(response.status, 200);
    ck_assert_str_eq(response.content_type, "text/x-test");
    ck_assert_uint_eq(response.body_bytes, 5);
    ck_assert_str_eq((const char *)response.body, "hello");
    http_response_finish(&response);
}
END_TEST

START_TEST(what_is_sent_is_one_plain_http_request)
{
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_error err;
    char received[4096];

    http_peer_start(&server, OK_ANSWER);
    ck_assert_int_eq(post(server.address, 0, 0, &response, &err), HTTP_OK);
    (void)snprintf(received, sizeof received, "%s", server.received);
    http_peer_stop(&server);
    http_response_finish(&response);
    ck_assert_int_eq(strncmp(received, "POST /a/b HTTP/1.1\r\n", 20), 0);
    ck_assert_ptr_nonnull(strstr(received, "\r\nContent-Type: text/x-ping\r\n"));
    ck_assert_ptr_nonnull(strstr(received, "\r\nContent-Length: 4\r\n"));
    ck_assert_str_eq(strstr(received, "\r\n\r\n"), "\r\n\r\nping");
}
END_TEST

START_TEST(a_large_body_is_sent_without_asking_first)
{
    const struct http_request request = {
        .path = "/", .media_type = "a/b", .body = calloc(1, 3 << 20), .body_bytes = 3 << 20};
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_client *client;
    struct http_error err;
    bool asked;

    http_peer_start(&server, OK_ANSWER);
    client = open_client(server.address);
    ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_OK);
    http_client_close(client);
    asked = strcasestr(server.received, "\r\nexpect:") != NULL;
    http_peer_stop(&server);
    http_response_finish(&response);
    free((void *)request.body);
    ck_assert(!asked);
}
END_TEST

START_TEST(without_a_media_type_it_is_a_get)
{
    const struct http_request request = {.path = "/livez"};
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_client *client;
    struct http_error err;
    char method[8];

    http_peer_start(&server, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    client = open_client(server.address);
    ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_OK);
    http_client_close(client);
    (void)snprintf(method, sizeof method, "%.5s", server.received);
    http_peer_stop(&server);
    ck_assert_str_eq(method, "GET /");
    ck_assert_int_eq(response.status, 503);
    ck_assert_str_eq(response.content_type, "");
    ck_assert_uint_eq(response.body_bytes, 0);
    ck_assert_str_eq((const char *)response.body, "");
    http_response_finish(&response);
}
END_TEST

START_TEST(a_client_keeps_its_connection_between_calls)
{
    const struct http_request request = {.path = "/"};
    struct http_peer server = http_peer_tcp();
    struct http_client *client;
    struct http_error err;

    http_peer_start(&server, OK_ANSWER);
    client = open_client(server.address);
    for (int i = 0; i < 3; i++) {
        struct http_response response = {0};

        ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_OK);
        http_response_finish(&response);
    }
    http_client_close(client);
    http_peer_stop(&server);
    ck_assert_int_eq(server.requests, 3);
    ck_assert_int_eq(server.connections, 1);
}
END_TEST

/* Of the sockets of this process that one whose peer is the listener. */
START_TEST(a_program_that_is_started_gets_no_connection)
{
    struct http_peer server = http_peer_tcp();
    const struct http_request request = {.path = "/"};
    struct http_response response = {0};
    struct http_client *client;
    struct http_error err;
    char address[128];
    int found = 0;

    http_peer_start(&server, OK_ANSWER);
    client = open_client(server.address);
    ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_OK);
    for (int fd = 0; fd < 64; fd++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;

        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0 || peer.sin_family != AF_INET)
            continue;
        (void)snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(peer.sin_port));
        if (strcmp(address, server.address) != 0)
            continue;
        found++;
        ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    }
    ck_assert_int_eq(found, 1);
    http_client_close(client);
    http_response_finish(&response);
    http_peer_stop(&server);
}
END_TEST

START_TEST(every_form_of_address_reaches_the_server)
{
    struct http_peer server = http_peer_tcp();
    char with_scheme[160];
    char with_slash[160];

    (void)snprintf(with_scheme, sizeof with_scheme, "http://%s", server.address);
    (void)snprintf(with_slash, sizeof with_slash, "http://%s/", server.address);
    http_peer_start(&server, OK_ANSWER);
    const char *const forms[] = {server.address, with_scheme, with_slash};
    for (size_t i = 0; i < 3; i++) {
        struct http_response response = {0};
        struct http_error err;

        ck_assert_int_eq(post(forms[i], 0, 0, &response, &err), HTTP_OK);
        ck_assert_int_eq(strncmp(server.received, "POST /a/b ", 10), 0);
        http_response_finish(&response);
    }
    http_peer_stop(&server);
}
END_TEST

START_TEST(a_unix_socket_is_reached_by_its_path)
{
    struct http_peer server = {.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/lossd-test-XXXXXX";
    char with_slashes[128];
    struct http_response response = {0};
    struct http_error err;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(where.sun_path, sizeof where.sun_path, "%s/socket", folder);
    (void)snprintf(server.address, sizeof server.address, "unix:%s/socket", folder);
    (void)snprintf(with_slashes, sizeof with_slashes, "unix://%s/socket", folder);
    ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&where, sizeof where), 0);
    http_peer_start(&server, OK_ANSWER);
    ck_assert_int_eq(post(server.address, 0, 0, &response, &err), HTTP_OK);
    http_response_finish(&response);
    ck_assert_int_eq(post(with_slashes, 0, 0, &response, &err), HTTP_OK);
    ck_assert_str_eq((const char *)response.body, "hello");
    http_response_finish(&response);
    http_peer_stop(&server);
    (void)unlink(where.sun_path);
    (void)rmdir(folder);
}
END_TEST

START_TEST(addresses_that_are_none_are_refused_with_the_forms_that_are)
{
    static const char *const bad[] = {
        "",
        "localhost",
        "localhost:",
        "localhost:x",
        "localhost:0",
        "localhost:65536",
        ":7430",
        "unix:",
        "unix:relative",
        "unix://",
        "1:2:3",
        "host:80/path",
        "ftp://host:1",
        "user@host:1",
        "http://",
        "https:///",
        "http://:7430",
        "http://host:65536",
        "http://ho st",
    };
    struct http_client *client = NULL;
    struct http_error err;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(http_client_open(bad[i], &client, &err) == HTTP_BAD_ADDRESS, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(err.message, "unix:/path"));
        ck_assert_ptr_null(client);
    }
}
END_TEST

START_TEST(a_port_where_nobody_listens_cannot_be_connected_to)
{
    struct http_peer server = http_peer_tcp(); /* bound, never listening: the port stays ours, and is refused */
    struct http_response response = {0};
    struct http_error err = {""};

    ck_assert_int_eq(post(server.address, 0, 0, &response, &err), HTTP_CANNOT_CONNECT);
    ck_assert_str_ne(err.message, "");
    ck_assert_int_eq(post("unix:/nowhere/lossd.sock", 0, 0, &response, &err), HTTP_CANNOT_CONNECT);
    close(server.listener);
}
END_TEST

START_TEST(a_server_that_does_not_answer_ends_as_timeout)
{
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_error err = {""};

    http_peer_start(&server, NULL);
    ck_assert_int_eq(post(server.address, 100, 0, &response, &err), HTTP_TIMEOUT);
    http_peer_stop(&server);
    ck_assert_str_ne(err.message, "");
    ck_assert_ptr_null(response.body);
}
END_TEST

START_TEST(an_answer_at_the_limit_is_taken_and_one_past_it_is_not)
{
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_error err;

    http_peer_start(&server, OK_ANSWER);
    ck_assert_int_eq(post(server.address, 0, 5, &response, &err), HTTP_OK);
    http_response_finish(&response);
    ck_assert_int_eq(post(server.address, 0, 4, &response, &err), HTTP_TOO_LARGE);
    http_peer_stop(&server);
}
END_TEST

START_TEST(an_answer_that_breaks_off_is_a_failure)
{
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_error err;

    server.hang_up = true;
    http_peer_start(&server, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    ck_assert_int_eq(post(server.address, 0, 0, &response, &err), HTTP_FAILED);
    http_peer_stop(&server);
}
END_TEST

START_TEST(a_redirect_is_an_answer_and_a_proxy_is_not_asked)
{
    struct http_peer server = http_peer_tcp();
    struct http_response response = {0};
    struct http_error err;

    ck_assert_int_eq(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    http_peer_start(&server, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
    ck_assert_int_eq(post(server.address, 0, 0, &response, &err), HTTP_OK);
    http_peer_stop(&server);
    ck_assert_int_eq(response.status, 302);
    ck_assert_int_eq(server.requests, 1);
    http_response_finish(&response);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_client");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_post_brings_its_headers_along_and_the_answer_back);
    tcase_add_test(tcase, what_is_sent_is_one_plain_http_request);
    tcase_add_test(tcase, a_large_body_is_sent_without_asking_first);
    tcase_add_test(tcase, without_a_media_type_it_is_a_get);
    tcase_add_test(tcase, a_client_keeps_its_connection_between_calls);
    tcase_add_test(tcase, a_program_that_is_started_gets_no_connection);
    tcase_add_test(tcase, every_form_of_address_reaches_the_server);
    tcase_add_test(tcase, a_unix_socket_is_reached_by_its_path);
    tcase_add_test(tcase, addresses_that_are_none_are_refused_with_the_forms_that_are);
    tcase_add_test(tcase, a_port_where_nobody_listens_cannot_be_connected_to);
    tcase_add_test(tcase, a_server_that_does_not_answer_ends_as_timeout);
    tcase_add_test(tcase, an_answer_at_the_limit_is_taken_and_one_past_it_is_not);
    tcase_add_test(tcase, an_answer_that_breaks_off_is_a_failure);
    tcase_add_test(tcase, a_redirect_is_an_answer_and_a_proxy_is_not_asked);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
