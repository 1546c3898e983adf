/* Why a Unix socket can't be reached, as it is and through the HTTP client. */
#include "client/unix_failure.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/http_client.h"
#include "support/runner.h"

static void expect_cannot_connect(const char *path, const char *why)
{
    const struct http_request request = {.path = "/readyz"};
    struct http_response response = {0};
    struct http_client *client = NULL;
    struct http_error err = {""};
    char address[128];

    (void)snprintf(address, sizeof address, "unix:%s", path);
    ck_assert_int_eq(http_client_open(address, &client, &err), HTTP_OK);
    ck_assert_int_eq(http_client_call(client, &request, &response, &err), HTTP_CANNOT_CONNECT);
    http_client_close(client);
    ck_assert_str_eq(err.message, why);
}

START_TEST(what_the_system_says_of_a_unix_socket_is_told)
{
    char folder[] = "/tmp/lossd-test-XXXXXX";
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    char file[64];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(where.sun_path, sizeof where.sun_path, "%s/s", folder);
    (void)snprintf(file, sizeof file, "%s/file", folder);
    expect_cannot_connect(where.sun_path, "No such file or directory");
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&where, sizeof where), 0);
    expect_cannot_connect(where.sun_path, "Connection refused: nobody listens there");
    close(open(file, O_CREAT | O_WRONLY, 0600));
    expect_cannot_connect(file, "Not a socket");
    (void)unlink(where.sun_path);
    close(fd);
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&where, sizeof where), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    expect_cannot_connect(where.sun_path, "Not a stream socket: the one of shared memory, maybe");
    ck_assert_int_eq(chmod(where.sun_path, 0), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    ck_assert(strcmp(unix_failure(where.sun_path), "Permission denied") == 0);
    (void)seteuid(getuid());
    close(fd);
    (void)unlink(where.sun_path);
    (void)unlink(file);
    (void)rmdir(folder);
}
END_TEST

START_TEST(a_path_that_fits_no_address_is_said_to_be_too_long)
{
    char path[200] = "";

    memset(path, 'a', sizeof path - 1);
    path[0] = '/';
    ck_assert_str_eq(unix_failure(path), "File name too long");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unix_failure");
    TCase *tcase = tcase_create("unix_failure");

    tcase_add_test(tcase, what_the_system_says_of_a_unix_socket_is_told);
    tcase_add_test(tcase, a_path_that_fits_no_address_is_said_to_be_too_long);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
