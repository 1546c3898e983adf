/* Which process is at the other end of a socket, on a new Linux and on an old one. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/runner.h"
#include "transport/shm_internal.h"

enum { PEER_PIDFD = 77 };

static bool is_old;

/* In place of that of the C library. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    if (is_old && level == SOL_SOCKET && name == PEER_PIDFD) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return (int)syscall(SYS_getsockopt, fd, level, name, value, size);
}

/* An abstract socket of this process, and a child that has connected there and sleeps. */
static pid_t connect_child(int *fd)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    pid_t child;

    (void)snprintf(where.sun_path + 1, sizeof where.sun_path - 1, "lossd-test-peer-%d", (int)getpid());
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&where, sizeof where), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    child = fork();
    if (child == 0) {
        if (connect(socket(AF_UNIX, SOCK_SEQPACKET, 0), (const struct sockaddr *)&where, sizeof where) == 0)
            (void)pause();
        _exit(1);
    }
    *fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(*fd, 0);
    (void)close(listener);
    return child;
}

static void end_child(pid_t child)
{
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static bool has_ended(int pidfd)
{
    struct pollfd process = {.fd = pidfd, .events = POLLRDNORM};

    return poll(&process, 1, 0) == 1;
}

START_TEST(the_end_of_the_process_that_has_connected_is_seen)
{
    pid_t child;
    int pidfd;
    int fd;

    is_old = _i == 1;
    child = connect_child(&fd);
    pidfd = shm_peer_pidfd(fd);
    ck_assert_int_ge(pidfd, 0);
    ck_assert(!has_ended(pidfd));
    end_child(child);
    ck_assert(has_ended(pidfd));
    (void)close(pidfd);
    (void)close(fd);
}
END_TEST

START_TEST(an_id_that_may_be_somebody_elses_by_now_is_not_taken)
{
    int ends[2];
    int pidfd;

    is_old = true;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pidfd = shm_peer_pidfd(ends[0]);
    ck_assert_int_ge(pidfd, 0);
    (void)close(pidfd);
    (void)close(ends[1]);
    ck_assert_int_eq(shm_peer_pidfd(ends[0]), -1);
    (void)close(ends[0]);
}
END_TEST

START_TEST(what_is_no_socket_of_a_process_has_none)
{
    int ends[2];

    is_old = _i == 1;
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(shm_peer_pidfd(ends[0]), -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shm_peer");
    TCase *tcase = tcase_create("shm_peer");

    tcase_add_loop_test(tcase, the_end_of_the_process_that_has_connected_is_seen, 0, 2);
    tcase_add_test(tcase, an_id_that_may_be_somebody_elses_by_now_is_not_taken);
    tcase_add_loop_test(tcase, what_is_no_socket_of_a_process_has_none, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
