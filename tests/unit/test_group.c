/* Submissions on one generation: what they are answered, what poisons a step, deadlines, ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/fake_engine.h"
#include "support/registry_lab.h"
#include "support/runner.h"

START_TEST(uneven_ranks_are_answered_with_their_factors_and_the_world)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *two = lab_submit(registry, "g", 0, 5, 2);
    struct ticket *six = lab_submit(registry, "g", 1, 5, 6);
    const struct result *result = &two->submission.result;

    ck_assert_int_eq(ticket_wait(two), LOSSD_OK);
    ck_assert_int_eq(ticket_wait(six), LOSSD_OK);
    ck_assert_uint_eq(result->step, 5);
    ck_assert(!result->replayed);
    ck_assert_double_eq(result->world.candidates, 8);
    ck_assert_double_eq(result->world.requests, 2);
    ck_assert_uint_eq(result->world.ranks, 2);
    ck_assert_double_eq(result->candidate_factor, 0.5);
    ck_assert_double_eq(six->submission.result.candidate_factor, 1.5);
    ck_assert_double_eq_tol(result->loss, 0.5 * log(2), 1e-6);
    ck_assert_double_eq_tol(result->tasks[0].gradient[0], -0.125, 1e-7);
    ticket_free(two);
    ticket_free(six);
    lab_expect_counters(registry, 1, 0, 0, 1);
    lab_end(registry);
}
END_TEST

START_TEST(a_repeat_is_computed_again_and_marked)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *one = lab_submit(registry, "g", 0, 0, 2);
    struct ticket *again;

    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_OK);
    ticket_expect(one, LOSSD_OK);
    again = lab_submit(registry, "g", 0, 0, 2);
    ck_assert_int_eq(ticket_wait(again), LOSSD_OK);
    ck_assert(again->submission.result.replayed);
    ck_assert_double_eq(again->submission.result.world.candidates, 8);
    ticket_free(again);
    ticket_expect(lab_submit(registry, "g", 0, 0, 3), LOSSD_STEP_PAYLOAD_CONFLICT);
    lab_end(registry);
}
END_TEST

START_TEST(steps_end_at_2_to_the_53)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;
    struct ticket *ticket;

    lab_join(registry, "g", 0, 1);
    ticket = lab_submit(registry, "g", 0, STEP_LIMIT, 1);
    ck_assert_str_eq(lab_metadata(&ticket->submission.error, "limit"), "9007199254740992");
    ticket_expect(ticket, LOSSD_STEP_RANGE);
    ck_assert_int_eq(lab_announce(registry, "g", 0, STEP_LIMIT, 1, 1, &err), LOSSD_STEP_RANGE);
    ticket_expect(lab_submit(registry, "g", 0, STEP_LIMIT - 1, 1), LOSSD_OK);
    ticket = lab_ticket("g", 0, 0, 1);
    ticket->submission.has_step = false;
    registry_submit(registry, &ticket->submission);
    ticket_expect(ticket, LOSSD_STEP_RANGE);
    lab_end(registry);
}
END_TEST

START_TEST(bad_content_poisons_the_step_and_may_be_sent_again)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *peer = lab_submit(registry, "g", 0, 3, 1);
    struct ticket *bad = lab_ticket("g", 1, 3, 2);

    bad->logits[1] = NAN;
    registry_submit(registry, &bad->submission);
    ticket_expect(bad, LOSSD_NONFINITE_LOGITS);
    ck_assert_int_eq(ticket_wait(peer), LOSSD_STEP_REJECTED_BY_PEER);
    ck_assert_str_eq(lab_metadata(&peer->submission.error, "rank"), "1");
    ck_assert_str_eq(lab_metadata(&peer->submission.error, "peer_reason"), "NONFINITE_LOGITS");
    ticket_free(peer);
    peer = lab_submit(registry, "g", 0, 3, 1);
    ticket_expect(lab_submit(registry, "g", 1, 3, 2), LOSSD_OK);
    ticket_expect(peer, LOSSD_OK);
    lab_expect_counters(registry, 1, 1, 0, 2);
    lab_end(registry);
}
END_TEST

START_TEST(a_batch_above_a_limit_poisons_and_a_lack_of_memory_does_not)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *peer = lab_submit(registry, "g", 0, 0, 1);
    struct ticket *large = lab_ticket("g", 1, 0, 2);

    submission_finish(&large->submission);
    arena_init(&large->submission.arena, 8, NULL);
    registry_submit(registry, &large->submission);
    ck_assert_str_eq(lab_metadata(&large->submission.error, "limit"), "memory_bytes");
    ticket_expect(large, LOSSD_LIMIT_EXCEEDED);
    ck_assert(!ticket_is_done(peer));
    large = lab_submit(registry, "g", 1, 0, 65);
    ck_assert_str_eq(lab_metadata(&large->submission.error, "limit"), "candidates");
    ticket_expect(large, LOSSD_LIMIT_EXCEEDED);
    ticket_expect(peer, LOSSD_STEP_REJECTED_BY_PEER);
    lab_end(registry);
}
END_TEST

START_TEST(an_announced_step_is_answered_at_once)
{
    struct registry *registry = lab_registry_of_two();
    struct lossd_error err;

    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 1, 2, &err), LOSSD_OK);
    ck_assert_int_eq(lab_announce(registry, "g", 1, 0, 1, 6, &err), LOSSD_OK);
    lab_expect_counters(registry, 1, 0, 0, 1);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_OK);
    ticket_expect(lab_submit(registry, "g", 0, 0, 2), LOSSD_OK);
    lab_expect_counters(registry, 1, 0, 0, 1);
    lab_end(registry);
}
END_TEST

START_TEST(an_announcement_is_checked)
{
    struct registry *registry = lab_registry_of_two();
    struct lossd_error err;

    ck_assert_int_eq(lab_announce(registry, "g", 2, 0, 1, 2, &err), LOSSD_RANK_RANGE);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 9, 9, &err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(lab_metadata(&err, "limit"), "requests");
    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 8, 65, &err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(lab_metadata(&err, "limit"), "candidates");
    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 0, 1, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 8, 64, &err), LOSSD_OK);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 1, 0, 0, &err), LOSSD_OK);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 2, 0, 0, &err), LOSSD_ANNOUNCE_TOO_EARLY);
    lab_end(registry);
}
END_TEST

START_TEST(a_config_that_sums_more_than_counts_takes_no_announcements)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("space");
    struct task_config *task = (struct task_config *)config->config.tasks;
    struct lossd_error err;

    task->in_task_space_weight = 2;
    lab_join_all(registry, config, 1);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 0, 1, 2, &err), LOSSD_ANNOUNCE_NEEDS_BATCH);
    lab_end(registry);
}
END_TEST

static void count_wake(void *context)
{
    (void)atomic_fetch_add((atomic_int *)context, 1);
}

START_TEST(the_clock_ends_calls_and_says_when_it_is_due)
{
    struct registry *registry = lab_registry_of_two();
    atomic_int wakes = 0;
    struct ticket *ticket = lab_ticket("g", 0, 0, 1);
    int64_t deadline_ns = clock_now_ns() + 5 * NS_PER_S;

    registry_on_deadline(registry, count_wake, &wakes);
    ck_assert_int_eq(registry_tick(registry, clock_now_ns()), NO_DEADLINE);
    ticket->submission.deadline_ns = deadline_ns;
    registry_submit(registry, &ticket->submission);
    ck_assert_int_eq(atomic_load(&wakes), 1);
    ck_assert_int_eq(registry_tick(registry, deadline_ns - 1), deadline_ns);
    ck_assert(!ticket_is_done(ticket));
    (void)registry_tick(registry, deadline_ns);
    ck_assert_str_eq(lab_metadata(&ticket->submission.error, "missing_ranks"), "1");
    ticket_expect(ticket, LOSSD_PEER_WAIT_DEADLINE);
    /* its contribution stays, until the step times out */
    ck_assert_int_lt(registry_tick(registry, deadline_ns), clock_now_ns() + 31 * NS_PER_S);
    ck_assert_int_eq(registry_tick(registry, clock_now_ns() + 31 * NS_PER_S), NO_DEADLINE);
    lab_expect_counters(registry, 0, 1, 0, 1);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_STEP_TIMEOUT);
    lab_end(registry);
}
END_TEST

START_TEST(a_client_that_is_gone_leaves_its_contribution)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *gone = lab_submit(registry, "g", 0, 0, 2);

    registry_cancel(registry, &gone->submission);
    ck_assert(ticket_is_done(gone));
    registry_cancel(registry, &gone->submission);
    ticket_expect(gone, LOSSD_CLIENT_GONE);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_OK);
    ticket_expect(lab_submit(registry, "g", 0, 0, 2), LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(a_client_that_is_gone_before_its_call_is_parked_does_not_wait)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *gone = lab_ticket("g", 0, 0, 2);

    registry_cancel(registry, &gone->submission);
    registry_submit(registry, &gone->submission);
    ticket_expect(gone, LOSSD_CLIENT_GONE);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(closing_ends_open_calls_and_refuses_new_ones)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *open = lab_submit(registry, "g", 0, 0, 2);
    struct lossd_error err;

    ck_assert_uint_eq(registry_open_submissions(registry), 1);
    registry_close(registry);
    ticket_expect(open, LOSSD_SHUTTING_DOWN);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_SHUTTING_DOWN);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 1, 1, 1, &err), LOSSD_SHUTTING_DOWN);
    lab_end(registry);
}
END_TEST

START_TEST(an_engine_is_called_once_an_attempt_and_its_failure_ends_the_calls)
{
    struct registry_settings settings = lab_settings;
    struct registry *registry;
    struct ticket *one;

    settings.engine = &fake_engine;
    registry = lab_registry_with(&settings);
    lab_join_all(registry, lab_config("a"), 2);
    fake_engine_fail_next(1);
    one = lab_submit(registry, "g", 0, 0, 2);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_INTERNAL);
    ck_assert_int_eq(ticket_wait(one), LOSSD_INTERNAL);
    ck_assert_str_eq(one->submission.error.message, "the wire is cut");
    ticket_free(one);
    one = lab_submit(registry, "g", 0, 0, 2);
    ticket_expect(lab_submit(registry, "g", 1, 0, 6), LOSSD_OK);
    ticket_expect(one, LOSSD_OK);
    ck_assert_uint_eq(fake_engine_calls(), 2);
    lab_expect_counters(registry, 1, 0, 1, 2);
    lab_end(registry);
}
END_TEST

START_TEST(an_engine_has_twice_the_step_timeout)
{
    const int64_t before_ns = clock_now_ns();
    struct registry_settings settings = lab_settings;
    struct registry *registry;

    settings.engine = &fake_engine;
    registry = lab_registry_with(&settings);
    lab_join(registry, "g", 0, 1);
    ticket_expect(lab_submit(registry, "g", 0, 0, 2), LOSSD_OK);
    ck_assert_int_ge(fake_engine_deadline_ns(), before_ns + 60 * NS_PER_S); /* the step's is 30 s */
    ck_assert_int_le(fake_engine_deadline_ns(), clock_now_ns() + 60 * NS_PER_S);
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("submissions");

    tcase_add_test(tcase, uneven_ranks_are_answered_with_their_factors_and_the_world);
    tcase_add_test(tcase, a_repeat_is_computed_again_and_marked);
    tcase_add_test(tcase, steps_end_at_2_to_the_53);
    tcase_add_test(tcase, bad_content_poisons_the_step_and_may_be_sent_again);
    tcase_add_test(tcase, a_batch_above_a_limit_poisons_and_a_lack_of_memory_does_not);
    tcase_add_test(tcase, an_announced_step_is_answered_at_once);
    tcase_add_test(tcase, an_announcement_is_checked);
    tcase_add_test(tcase, a_config_that_sums_more_than_counts_takes_no_announcements);
    tcase_add_test(tcase, the_clock_ends_calls_and_says_when_it_is_due);
    tcase_add_test(tcase, a_client_that_is_gone_leaves_its_contribution);
    tcase_add_test(tcase, a_client_that_is_gone_before_its_call_is_parked_does_not_wait);
    tcase_add_test(tcase, closing_ends_open_calls_and_refuses_new_ones);
    tcase_add_test(tcase, an_engine_is_called_once_an_attempt_and_its_failure_ends_the_calls);
    tcase_add_test(tcase, an_engine_has_twice_the_step_timeout);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
