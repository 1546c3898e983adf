/* The client's side of shared memory against a daemon that does what it is told, right or wrong. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "client_shm_lab.h"
#include "support/runner.h"

START_TEST(a_call_says_where_its_columns_lie_and_brings_its_answer_back)
{
    struct lab lab;
    const struct lossd_shm_submission *sent;

    lab_init(&lab, _i == 1);
    sent = lab.daemon.submission;
    lab.tasks[0].has_log_scale = 7;
    lab.tasks[0].log_scale = 2.5;
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.daemon.calls, 1);
    ck_assert_str_eq(lab.daemon.attach.group, "some");
    ck_assert_uint_eq(lab.daemon.attach.rank, 3);
    ck_assert_uint_eq(lab.daemon.attach.generation, 9);
    ck_assert_uint_eq(lab.daemon.attach.num_slots, NUM_SLOTS + 1);
    ck_assert_uint_eq(sent->call, LOSSD_SHM_COMPUTE);
    ck_assert_uint_eq(sent->flags, LOSSD_SHM_HAS_STEP | LOSSD_SHM_HAS_GENERATION);
    ck_assert_uint_eq(sent->step, 41);
    ck_assert_uint_eq(sent->generation, 9);
    ck_assert_uint_eq(sent->timeout_ns, 0);
    ck_assert_uint_eq(sent->num_requests, 2);
    ck_assert_uint_eq(sent->num_candidates, 4);
    ck_assert_uint_eq(sent->num_tasks, 2);
    ck_assert_float_eq(sent->gradient_scale, 8);
    ck_assert_uint_eq(sent->label_bits, 0);
    ck_assert_uint_eq(sent->lengths % 4096, lab.layout.lengths);
    ck_assert_uint_eq(sent->tasks[0].logits - sent->lengths, lab.layout.tasks[0].logits - lab.layout.lengths);
    ck_assert_uint_eq(sent->tasks[0].weights - sent->lengths, lab.layout.tasks[0].weights - lab.layout.lengths);
    ck_assert_uint_eq(sent->tasks[0].sessions, 0);
    ck_assert_uint_eq(sent->tasks[0].logits_type, LOSSD_SHM_F16);
    ck_assert_uint_eq(sent->tasks[0].gradient_type, LOSSD_SHM_F32);
    ck_assert_uint_eq(sent->tasks[0].logits_stride, 1);
    ck_assert_uint_eq(sent->tasks[0].has_log_scale, 1);
    ck_assert_double_eq(sent->tasks[0].log_scale, 2.5);
    ck_assert_double_eq(lab.result.loss, 1.5);
    ck_assert_uint_eq(lab.result.step, 41);
    ck_assert_uint_eq(lab.result.replayed, 1);
    ck_assert_uint_eq(lab.result.world.ranks, 3);
    ck_assert_double_eq(lab.task_results[1].loss, 2);
    ck_assert_double_eq(lab.task_results[1].log_scale_gradient, 0.25);
    ck_assert_double_eq(lab.terms[2].value, 2);
    ck_assert_double_eq(lab.terms[2].factor, 4);
    lab_finish(&lab);
}
END_TEST

START_TEST(an_announcement_has_a_slot_of_its_own)
{
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.transport->ops->announce(lab.transport, 6, 7, 8, soon(5000), &lab.failure), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.daemon.calls, 1);
    ck_assert_uint_eq(lab.daemon.submission->call, LOSSD_SHM_ANNOUNCE);
    ck_assert_uint_eq(lab.daemon.submission->step, 6);
    ck_assert_uint_eq(lab.daemon.submission->num_requests, 7);
    ck_assert_uint_eq(lab.daemon.submission->num_candidates, 8);
    ck_assert_uint_gt(lab.daemon.submission->timeout_ns, 0);
    ck_assert_uint_le(lab.daemon.submission->timeout_ns, 5 * NS_PER_S);
    lab_finish(&lab);
}
END_TEST

START_TEST(what_a_daemon_may_do_around_an_attach_is_no_fault)
{
    static const enum shm_fault faults[] = {SHM_BELL_FIRST, SHM_TWO_DESCRIPTORS, SHM_LARGER_HEAD};
    const int before = count_descriptors();
    struct lab lab;

    lab_init(&lab, true);
    lab.daemon.fault = faults[_i];
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    lab_finish(&lab);
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

static const struct {
    enum shm_fault fault;
    const char *reason;
} bad_attaches[] = {
    {SHM_HANGS_UP, "CONNECTION_LOST"}, {SHM_HANGS_UP_AFTER_ATTACH, "CONNECTION_LOST"},
    {SHM_REFUSES, "LIMIT_EXCEEDED"},   {SHM_OTHER_VERSION, "VERSION"},
    {SHM_OTHER_MAGIC, "INTERNAL"},     {SHM_CUT_RECORD, "INTERNAL"},
    {SHM_LONG_RECORD, "INTERNAL"},     {SHM_NO_DESCRIPTOR, "INTERNAL"},
    {SHM_UNSEALED, "INTERNAL"},        {SHM_SMALL_FILE, "INTERNAL"},
    {SHM_OTHER_TASKS, "INTERNAL"},     {SHM_OTHER_SLOTS, "INTERNAL"},
    {SHM_OTHER_DIGEST, "INTERNAL"},    {SHM_DATA_OUTSIDE, "INTERNAL"},
    {SHM_SLOTS_OUTSIDE, "INTERNAL"},   {SHM_ANSWER_OUTSIDE, "INTERNAL"},
    {SHM_UNALIGNED, "INTERNAL"},       {SHM_OFF_PAGE, "INTERNAL"},
    {SHM_LARGE_FILE, "INTERNAL"},      {SHM_HUGE_HEAD, "INTERNAL"},
    {SHM_HUGE_DATA, "INTERNAL"},
};

START_TEST(a_bad_attach_is_refused_and_a_good_one_after_it_works)
{
    const int before = count_descriptors();
    struct lab lab;

    lab_init(&lab, true);
    lab.daemon.fault = bad_attaches[_i].fault;
    ck_assert_int_ne(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_str_eq(lab.failure.reason, bad_attaches[_i].reason);
    ck_assert_ptr_null(lab.transport->block);
    lab.daemon.fault = SHM_GOOD;
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    lab_finish(&lab);
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

START_TEST(nobody_at_the_path_can_be_told_from_a_bad_daemon)
{
    struct transport *transport = shm_transport_create("/nonexistent/socket", &lab_member, NUM_SLOTS, true);
    struct lossd_failure failure;

    ck_assert_int_eq(transport->ops->attach(transport, 0, &failure), LOSSD_CODE_UNAVAILABLE);
    ck_assert_str_eq(failure.reason, "CANNOT_CONNECT");
    transport->ops->destroy(transport);
}
END_TEST

START_TEST(a_failed_call_brings_the_daemons_words)
{
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    lab.daemon.fault = SHM_FAILS_CALLS;
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_DEADLINE_EXCEEDED);
    ck_assert_str_eq(lab.failure.reason, "STEP_TIMEOUT");
    ck_assert_str_eq(lab.failure.field, "some.field");
    ck_assert_str_eq(lab.failure.message, "says the test");
    ck_assert_int_eq(lab.failure.retry, LOSSD_RETRY_SAME);
    ck_assert_str_eq(lossd_failure_metadata(&lab.failure, "missing_ranks"), "3-4");
    ck_assert_str_eq(lossd_failure_metadata(&lab.failure, "step"), "7");
    ck_assert_ptr_null(lossd_failure_metadata(&lab.failure, "3-4"));
    lab_finish(&lab);
}
END_TEST

START_TEST(a_failure_without_any_end_is_cut)
{
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    lab.daemon.fault = SHM_FAILS_WITHOUT_END;
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_UNKNOWN);
    ck_assert_uint_eq(strlen(lab.failure.reason), sizeof lab.failure.reason - 1);
    ck_assert_uint_le(strlen(lab.failure.field), sizeof lab.failure.field - 1);
    ck_assert_uint_eq(strlen(lab.failure.message), sizeof((struct lossd_shm_error *)NULL)->message);
    ck_assert_uint_eq(lab.failure.metadata_bytes, 0);
    ck_assert_int_eq(lab.failure.retry, LOSSD_RETRY_NEVER);
    lab_finish(&lab);
}
END_TEST

static const struct {
    enum shm_fault fault;
    const char *reason;
} bad_calls[] = {
    {SHM_DIES_IN_CALL, "CONNECTION_LOST"},
    {SHM_BREAKS_OFF, "LIMIT_EXCEEDED"},
    {SHM_SENDS_GARBAGE, "INTERNAL"},
    {SHM_IGNORES_CALLS, "NO_ANSWER"},
};

START_TEST(a_daemon_that_fails_in_a_call_is_left_and_attached_to_again)
{
    const int before = count_descriptors();
    struct lab lab;
    uint8_t *block;

    lab_init(&lab, _i % 2 == 1);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    block = lab.transport->block;
    block[0] = 77;
    lab.daemon.fault = bad_calls[_i].fault;
    ck_assert_int_ne(lab_compute(&lab, soon(20)), LOSSD_CODE_OK);
    ck_assert_str_eq(lab.failure.reason, bad_calls[_i].reason);
    ck_assert_int_ne(lab_compute(&lab, soon(20)), LOSSD_CODE_OK);
    ck_assert_str_eq(lab.failure.reason, "CONNECTION_LOST");
    lab.daemon.fault = SHM_GOOD;
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_ptr_eq(lab.transport->block, block);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    ck_assert_int_ge(lab.daemon.calls, 2);
    ck_assert_uint_eq(lab.daemon.first_byte, 77);
    ck_assert_int_eq(lab.daemon.connections, 2);
    lab_finish(&lab);
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

/* Pages that are mapped can be told apart from those that are not. */
START_TEST(a_child_that_is_forked_off_has_no_part_in_the_region)
{
    unsigned char is_resident;
    struct lab lab;
    pid_t child;
    int ended;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK); /* to the same place */
    ck_assert_int_eq(mincore(lab.transport->block, 1, &is_resident), 0);
    child = fork();
    if (child == 0)
        _exit(mincore(lab.transport->block, 1, &is_resident) != 0 && errno == ENOMEM ? 3 : 4);
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert(WIFEXITED(ended) && WEXITSTATUS(ended) == 3);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    lab_finish(&lab);
}
END_TEST

/* Of the sockets of this process that one whose peer is the listener's. */
START_TEST(a_program_that_is_started_gets_no_connection)
{
    int found = 0;
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    for (int fd = 0; fd < 64; fd++) {
        struct sockaddr_un peer = {.sun_path = ""};
        socklen_t length = sizeof peer;

        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0 || strcmp(peer.sun_path, lab.daemon.path) != 0)
            continue;
        found++;
        ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    }
    ck_assert_int_eq(found, 1);
    lab_finish(&lab);
}
END_TEST

START_TEST(an_answer_counts_though_the_daemon_is_gone)
{
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    lab.daemon.fault = SHM_ANSWERS_AND_DIES;
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    lab_finish(&lab);
}
END_TEST

START_TEST(a_larger_block_keeps_what_was_in_the_one_before)
{
    struct lab lab;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    memset(lab.transport->block, 5, NUM_SLOTS * SLOT_BYTES);
    ck_assert_int_eq(lab.transport->ops->attach(lab.transport, 10 * SLOT_BYTES, &lab.failure), LOSSD_CODE_OK);
    ck_assert_uint_eq(lab.transport->data_bytes, 10 * SLOT_BYTES);
    ck_assert_uint_eq(lab.transport->block[NUM_SLOTS * SLOT_BYTES - 1], 5);
    ck_assert_uint_eq(lab.transport->block[NUM_SLOTS * SLOT_BYTES], 0);
    ck_assert_int_eq(lab.daemon.connections, 1);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    lab.daemon.fault = SHM_REFUSES;
    ck_assert_int_eq(lab.transport->ops->attach(lab.transport, 20 * SLOT_BYTES, &lab.failure),
                     LOSSD_CODE_RESOURCE_EXHAUSTED);
    lab.daemon.fault = SHM_GOOD;
    ck_assert_uint_eq(lab.transport->data_bytes, 10 * SLOT_BYTES);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.daemon.connections, 1);
    lab_finish(&lab);
}
END_TEST

/* Batches in use have addresses that a region of another form has not. */
/* As a daemon of another version may make it. Columns are found by what the submission says, in either. */
START_TEST(buffers_stay_where_they_are_when_a_daemon_lays_its_region_out_otherwise)
{
    struct lab lab;
    uint8_t *block;
    uint64_t before;

    lab_init(&lab, true);
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.daemon.calls, 1);
    before = lab.daemon.submission->lengths;
    block = lab.transport->block;
    block[0] = 3;
    block[NUM_SLOTS * SLOT_BYTES - 1] = 4;
    lab.daemon.fault = SHM_LARGER_HEAD;
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_ptr_eq(lab.transport->block, block);
    ck_assert_uint_eq(block[0], 3);
    ck_assert_uint_eq(block[NUM_SLOTS * SLOT_BYTES - 1], 4);
    block[0] = 5;
    ck_assert_int_eq(lab_compute(&lab, NO_DEADLINE), LOSSD_CODE_OK);
    ck_assert_int_eq(lab.daemon.calls, 2);
    ck_assert_uint_eq(lab.daemon.submission->lengths, before + 4096);
    ck_assert_uint_eq(lab.daemon.first_byte, 5);
    lab.daemon.fault = SHM_GOOD;
    ck_assert_int_eq(lab_attach(&lab), LOSSD_CODE_OK);
    ck_assert_uint_eq(block[0], 5);
    lab_finish(&lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_shm");
    TCase *tcase = tcase_create("client_shm");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, a_call_says_where_its_columns_lie_and_brings_its_answer_back, 0, 2);
    tcase_add_test(tcase, an_announcement_has_a_slot_of_its_own);
    tcase_add_loop_test(tcase, what_a_daemon_may_do_around_an_attach_is_no_fault, 0, 3);
    tcase_add_loop_test(tcase, a_bad_attach_is_refused_and_a_good_one_after_it_works, 0,
                        sizeof bad_attaches / sizeof bad_attaches[0]);
    tcase_add_test(tcase, nobody_at_the_path_can_be_told_from_a_bad_daemon);
    tcase_add_test(tcase, a_failed_call_brings_the_daemons_words);
    tcase_add_test(tcase, a_failure_without_any_end_is_cut);
    tcase_add_loop_test(tcase, a_daemon_that_fails_in_a_call_is_left_and_attached_to_again, 0,
                        sizeof bad_calls / sizeof bad_calls[0]);
    tcase_add_test(tcase, a_child_that_is_forked_off_has_no_part_in_the_region);
    tcase_add_test(tcase, a_program_that_is_started_gets_no_connection);
    tcase_add_test(tcase, an_answer_counts_though_the_daemon_is_gone);
    tcase_add_test(tcase, a_larger_block_keeps_what_was_in_the_one_before);
    tcase_add_test(tcase, buffers_stay_where_they_are_when_a_daemon_lays_its_region_out_otherwise);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
