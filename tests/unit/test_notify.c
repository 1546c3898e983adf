/* Datagrams to the service manager. */
#include "base/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/runner.h"

START_TEST(nobody_listens_without_a_socket)
{
    (void)unsetenv("NOTIFY_SOCKET");
    ck_assert(!notify_send("READY=1"));
    (void)setenv("NOTIFY_SOCKET", "relative/path", 1);
    ck_assert(!notify_send("READY=1"));
    (void)setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
    ck_assert(!notify_send("READY=1"));
}
END_TEST

START_TEST(the_manager_gets_one_datagram)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char name[64];
    char got[64] = "";
    int length;

    length = snprintf(name, sizeof name, "@lossd-test-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)length - 1);
    ck_assert_int_eq(
        bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)), 0);
    (void)setenv("NOTIFY_SOCKET", name, 1);
    ck_assert(notify_send("READY=1\nSTATUS=%s", "serving"));
    ck_assert_int_eq(recv(fd, got, sizeof got - 1, MSG_DONTWAIT), 22);
    ck_assert_str_eq(got, "READY=1\nSTATUS=serving");
    (void)close(fd);
}
END_TEST

START_TEST(the_watchdog_is_fed_at_half_its_time)
{
    char pid[32];

    (void)setenv("WATCHDOG_USEC", "30000000", 1);
    (void)unsetenv("WATCHDOG_PID");
    ck_assert_int_eq(notify_watchdog_interval_ns(), INT64_C(15000000000));
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    (void)setenv("WATCHDOG_PID", pid, 1);
    ck_assert_int_eq(notify_watchdog_interval_ns(), INT64_C(15000000000));
}
END_TEST

START_TEST(the_watchdog_of_another_process_is_left_alone)
{
    (void)setenv("WATCHDOG_USEC", "30000000", 1);
    (void)setenv("WATCHDOG_PID", "1", 1);
    ck_assert_int_eq(notify_watchdog_interval_ns(), 0);
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    ck_assert_int_eq(notify_watchdog_interval_ns(), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("notify");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, nobody_listens_without_a_socket);
    tcase_add_test(tcase, the_manager_gets_one_datagram);
    tcase_add_test(tcase, the_watchdog_is_fed_at_half_its_time);
    tcase_add_test(tcase, the_watchdog_of_another_process_is_left_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
