/* Listening sockets: addresses, exposure, stale files. */
#include "transport/listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/runner.h"

static const char *const good_addresses[] = {"127.0.0.1:7430", "localhost:0", "[::1]:65535", ":1", "unix:/run/x.sock"};
static const char *const bad_addresses[] = {"7430",     "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:1x",
                                            "::1:7430", "[::1]",     "[::1:7430",  "unix:",           "unix:x.sock",
                                            "",         "a:-1",      "a: 1",       "http://a:b"};

START_TEST(addresses_are_host_and_port_or_a_path)
{
    struct lossd_error err;

    error_init(&err);
    for (size_t i = 0; i < sizeof good_addresses / sizeof good_addresses[0]; i++)
        ck_assert_msg(listener_check_address(good_addresses[i], &err) == LOSSD_OK, "%s", good_addresses[i]);
    for (size_t i = 0; i < sizeof bad_addresses / sizeof bad_addresses[0]; i++)
        ck_assert_msg(listener_check_address(bad_addresses[i], &err) == LOSSD_INVALID_ARGUMENT, "%s", bad_addresses[i]);
}
END_TEST

START_TEST(port_0_is_replaced_by_the_real_one)
{
    struct listener listener;
    struct listener second;
    struct lossd_error err;
    int port;

    error_init(&err);
    ck_assert_int_eq(listener_open(&listener, "127.0.0.1:0", false, &err), LOSSD_OK);
    ck_assert_int_eq(sscanf(listener.address, "127.0.0.1:%d", &port), 1);
    ck_assert_int_gt(port, 0);
    ck_assert_int_eq(listener_open(&second, listener.address, false, &err), LOSSD_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "Address already in use"));
    listener_close(&listener);
}
END_TEST

START_TEST(only_loopback_is_open_without_leave)
{
    struct listener listener;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(listener_open(&listener, "0.0.0.0:0", false, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "--insecure"));
    ck_assert_int_eq(listener_open(&listener, ":0", false, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(listener_open(&listener, "0.0.0.0:0", true, &err), LOSSD_OK);
    listener_close(&listener);
}
END_TEST

static void make_path(char path[64])
{
    (void)snprintf(path, 64, "unix:/tmp/lossd-test-%d.sock", (int)getpid());
}

START_TEST(a_unix_socket_is_for_owner_and_group_and_goes_away)
{
    struct listener listener;
    struct lossd_error err;
    struct stat file;
    char address[64];

    make_path(address);
    error_init(&err);
    ck_assert_int_eq(listener_open(&listener, address, false, &err), LOSSD_OK);
    ck_assert_str_eq(listener.address, address);
    ck_assert_int_eq(stat(address + 5, &file), 0);
    ck_assert_uint_eq(file.st_mode & 07777, 0660);
    listener_close(&listener);
    ck_assert_int_ne(stat(address + 5, &file), 0);
}
END_TEST

START_TEST(a_live_socket_is_left_alone_and_a_stale_one_replaced)
{
    struct listener first;
    struct listener second;
    struct lossd_error err;
    char address[64];

    make_path(address);
    error_init(&err);
    ck_assert_int_eq(listener_open(&first, address, false, &err), LOSSD_OK);
    ck_assert_int_eq(listener_open(&second, address, false, &err), LOSSD_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "in use"));
    (void)close(first.fd); /* as when the daemon is killed: the file stays */
    ck_assert_int_eq(listener_open(&second, address, false, &err), LOSSD_OK);
    listener_close(&second);
}
END_TEST

START_TEST(a_socket_of_records_is_one_like_the_others)
{
    struct listener listener;
    struct listener second;
    struct lossd_error err;
    struct stat file;
    char address[64];
    int type = 0;
    socklen_t length = sizeof type;

    make_path(address);
    error_init(&err);
    ck_assert_int_eq(listener_open_records(&listener, address, &err), LOSSD_OK);
    ck_assert_str_eq(listener.address, address);
    ck_assert(listener.is_records);
    ck_assert_int_eq(getsockopt(listener.fd, SOL_SOCKET, SO_TYPE, &type, &length), 0);
    ck_assert_int_eq(type, SOCK_SEQPACKET);
    ck_assert_int_eq(stat(address + 5, &file), 0);
    ck_assert_uint_eq(file.st_mode & 07777, 0660);
    ck_assert_int_eq(listener_open_records(&second, address, &err), LOSSD_INTERNAL); /* it is alive */
    ck_assert_int_eq(listener_open(&second, address, false, &err), LOSSD_INTERNAL);
    (void)close(listener.fd);
    ck_assert_int_eq(listener_open_records(&second, address, &err), LOSSD_OK); /* and now it is not */
    listener_close(&second);
    ck_assert_int_ne(stat(address + 5, &file), 0);
}
END_TEST

START_TEST(a_stream_socket_is_none_of_records)
{
    struct listener listener;
    struct lossd_error err;
    char address[64];

    make_path(address);
    error_init(&err);
    ck_assert_int_eq(listener_open(&listener, address, false, &err), LOSSD_OK);
    ck_assert(!listener.is_records);
    listener_close(&listener);
    ck_assert_int_eq(listener_open_records(&listener, "127.0.0.1:0", &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(listener_open_records(&listener, "unix:relative", &err), LOSSD_INVALID_ARGUMENT);
}
END_TEST

START_TEST(the_socket_of_another_daemon_is_not_removed)
{
    struct listener first;
    struct listener second;
    struct lossd_error err;
    char address[64];

    make_path(address);
    error_init(&err);
    ck_assert_int_eq(listener_open(&first, address, false, &err), LOSSD_OK);
    ck_assert_int_eq(unlink(address + 5), 0);
    ck_assert_int_eq(listener_open(&second, address, false, &err), LOSSD_OK);
    listener_close(&first);
    ck_assert_int_eq(access(address + 5, F_OK), 0);
    listener_close(&second);
    ck_assert_int_ne(access(address + 5, F_OK), 0);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_left_alone)
{
    struct listener listener;
    struct lossd_error err;
    char address[64];
    FILE *file;

    make_path(address);
    error_init(&err);
    file = fopen(address + 5, "w");
    (void)fclose(file);
    ck_assert_int_eq(listener_open(&listener, address, false, &err), LOSSD_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "not a socket"));
    ck_assert_int_eq(access(address + 5, F_OK), 0);
    (void)unlink(address + 5);
}
END_TEST

START_TEST(a_place_is_checked_without_a_look_at_the_machine)
{
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(listener_check_place("unix:/no/such/folder/s", false, &err), LOSSD_OK);
    ck_assert_int_eq(listener_check_place("0.0.0.0:1", false, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(listener_check_place("0.0.0.0:1", true, &err), LOSSD_OK);
}
END_TEST

START_TEST(a_unix_socket_without_its_folder_is_refused_with_the_folder)
{
    struct listener listener;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(listener_open(&listener, "unix:/no/such/folder/s", false, &err), LOSSD_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "/no/such/folder: No such file"));
    ck_assert_int_eq(listener_open(&listener, "unix:/dev/null/s", false, &err), LOSSD_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.message, "/dev/null is not a folder"));
}
END_TEST

/* As systemd does it: descriptor 3 is a bound socket of this type. */
static enum lossd_status inherit(int family, int type, struct listener *listener, size_t *count)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    const int fd = socket(family, type, 0);
    struct lossd_error err;
    char address[64];
    char pid[16];

    error_init(&err);
    make_path(address);
    (void)snprintf(local.sun_path, sizeof local.sun_path, "%s", address + 5);
    (void)unlink(local.sun_path);
    if (family == AF_UNIX) {
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&local, sizeof local), 0);
        ck_assert_int_eq(listen(fd, 1), 0);
    }
    ck_assert_int_eq(dup2(fd, 3), 3);
    if (fd != 3)
        (void)close(fd);
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)setenv("LISTEN_PID", pid, 1);
    return listener_inherit(listener, 1, count, false, &err);
}

START_TEST(an_inherited_socket_is_told_by_its_type)
{
    struct listener listener;
    char address[64];
    size_t count;

    make_path(address);
    ck_assert_int_eq(inherit(AF_UNIX, SOCK_STREAM, &listener, &count), LOSSD_OK);
    ck_assert(!listener.is_records);
    listener_close(&listener);
    ck_assert_int_eq(inherit(AF_UNIX, SOCK_SEQPACKET, &listener, &count), LOSSD_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert(listener.is_records);
    ck_assert_str_eq(listener.address, address);
    listener_close(&listener);
    ck_assert_int_eq(access(address + 5, F_OK), 0); /* systemd's, not ours */
    (void)unlink(address + 5);
    ck_assert_int_eq(inherit(AF_INET, SOCK_DGRAM, &listener, &count), LOSSD_INTERNAL);
    ck_assert_uint_eq(count, 0);
}
END_TEST

START_TEST(descriptors_for_another_process_are_not_taken)
{
    struct listener listeners[2];
    struct lossd_error err;
    size_t count = 7;

    error_init(&err);
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)setenv("LISTEN_PID", "1", 1);
    ck_assert_int_eq(listener_inherit(listeners, 2, &count, false, &err), LOSSD_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_ptr_null(getenv("LISTEN_FDS"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listener");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, addresses_are_host_and_port_or_a_path);
    tcase_add_test(tcase, port_0_is_replaced_by_the_real_one);
    tcase_add_test(tcase, only_loopback_is_open_without_leave);
    tcase_add_test(tcase, a_unix_socket_is_for_owner_and_group_and_goes_away);
    tcase_add_test(tcase, a_live_socket_is_left_alone_and_a_stale_one_replaced);
    tcase_add_test(tcase, a_socket_of_records_is_one_like_the_others);
    tcase_add_test(tcase, a_stream_socket_is_none_of_records);
    tcase_add_test(tcase, the_socket_of_another_daemon_is_not_removed);
    tcase_add_test(tcase, a_file_that_is_no_socket_is_left_alone);
    tcase_add_test(tcase, a_place_is_checked_without_a_look_at_the_machine);
    tcase_add_test(tcase, a_unix_socket_without_its_folder_is_refused_with_the_folder);
    tcase_add_test(tcase, an_inherited_socket_is_told_by_its_type);
    tcase_add_test(tcase, descriptors_for_another_process_are_not_taken);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
