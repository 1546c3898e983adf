/* The socket of shared memory, on which the other end says what no daemon would, or too much of it. */
#include "client/shm_socket.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/runner.h"

static int64_t soon(uint64_t ms)
{
    return clock_after_ms(clock_now_ns(), ms);
}

/* As one that has too many trainers: it does not wait for the ATTACH. */
START_TEST(what_a_daemon_has_said_before_it_closed_is_read)
{
    static struct lossd_shm_refused refused = {
        .header = {LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_REFUSED, sizeof refused, 0},
        .error = {.reason = "LIMIT_EXCEEDED", .code = "resource_exhausted"},
    };
    struct lossd_shm_attach attach = {.num_slots = 1};
    struct lossd_shm_attached attached;
    struct lossd_failure failure;
    int region_fd;
    int ends[2];

    for (int has_said = 0; has_said < 2; has_said++) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        if (has_said)
            ck_assert_int_eq(send(ends[1], &refused, sizeof refused, 0), (int)sizeof refused);
        (void)close(ends[1]);
        ck_assert_int_ne(shm_socket_attach(ends[0], &attach, NO_DEADLINE, NULL, &attached, &region_fd, &failure),
                         LOSSD_CODE_OK);
        ck_assert_str_eq(failure.reason, has_said ? "LIMIT_EXCEEDED" : "CONNECTION_LOST");
        (void)close(ends[0]);
    }
}
END_TEST

/* As fast as they are read, until the other end is closed. */
static void *ring_all_the_time(void *context)
{
    static const struct lossd_shm_header bell = {LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_BELL, sizeof bell, 0};
    const int *fd = context;

    while (send(*fd, &bell, sizeof bell, MSG_NOSIGNAL) > 0)
        ;
    return NULL;
}

static uint32_t ask_three_times(void *context)
{
    return ++*(int *)context >= 3;
}

static enum lossd_code sleep_for_bells(int fd, int64_t deadline_ns, struct interrupt *interrupt,
                                       struct lossd_failure *failure)
{
    enum lossd_code code;

    do
        code = shm_socket_sleep(fd, deadline_ns, interrupt, failure);
    while (code == LOSSD_CODE_OK);
    return code;
}

START_TEST(a_flood_of_bells_hides_neither_the_clock_nor_who_has_enough_of_waiting)
{
    struct lossd_shm_attach attach = {.num_slots = 1};
    struct lossd_shm_attached attached;
    struct lossd_failure failure;
    int asked = 0;
    struct interrupt interrupt = {.interrupted = ask_three_times, .context = &asked};
    pthread_t thread;
    int region_fd;
    int ends[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, ring_all_the_time, &ends[1]), 0);
    ck_assert_int_eq(shm_socket_attach(ends[0], &attach, soon(50), NULL, &attached, &region_fd, &failure),
                     LOSSD_CODE_DEADLINE_EXCEEDED);
    ck_assert_int_eq(sleep_for_bells(ends[0], soon(50), NULL, &failure), LOSSD_CODE_DEADLINE_EXCEEDED);
    ck_assert_str_eq(failure.reason, "NO_ANSWER");
    ck_assert_int_eq(sleep_for_bells(ends[0], NO_DEADLINE, &interrupt, &failure), LOSSD_CODE_CANCELED);
    asked = 0;
    ck_assert_int_eq(shm_socket_attach(ends[0], &attach, NO_DEADLINE, &interrupt, &attached, &region_fd, &failure),
                     LOSSD_CODE_CANCELED);
    ck_assert_int_eq(asked, 3);
    (void)close(ends[0]);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    (void)close(ends[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_shm_socket");
    TCase *tcase = tcase_create("client_shm_socket");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, what_a_daemon_has_said_before_it_closed_is_read);
    tcase_add_test(tcase, a_flood_of_bells_hides_neither_the_clock_nor_who_has_enough_of_waiting);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
