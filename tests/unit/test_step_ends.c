/* Calls that end early, ranks that have not been told, engines that fail, closing (rules 9 and 12). */
#include "support/runner.h"
#include "support/step_lab.h"

START_TEST(a_call_that_meets_its_deadline_names_the_missing_and_keeps_its_contribution)
{
    struct lab *lab = lab_open(3);
    struct call *one = submit_until(lab, 0, 5, 1, 1, 4);
    struct call *again;

    submit(lab, 2, 5, 1, 1);
    ck_assert_int_eq(step_next_deadline(lab->machine), 4 * NS_PER_S);
    tick_at(lab, 4);
    assert_failed(one, LOSSD_PEER_WAIT_DEADLINE);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "1");
    ck_assert_str_eq(metadata(&one->error, "step"), "5");
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "1 idle");
    ck_assert_str_eq(one->error.message,
                     "the deadline of this call is over, and step 5 still waits for 1 of 3 ranks (1): 1 idle");
    submit(lab, 1, 5, 1, 1);
    assert_counters(lab, 1, 0, 0);
    again = submit(lab, 0, 5, 1, 1);
    assert_done(again, 3, 3);
    ck_assert(!again->replayed);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_at_another_step_is_missing_for_a_call_that_meets_its_deadline)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit_until(lab, 0, 5, 1, 1, 4);

    ck_assert_int_eq(announce(lab, 1, 4, 1, 1), LOSSD_OK);
    tick_at(lab, 4);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "1");
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "1 announced at_step=4");
    lab_close(lab);
}
END_TEST

START_TEST(the_same_call_again_after_its_deadline_goes_on_waiting)
{
    struct lab *lab = lab_open(2);
    struct call *again;

    submit_until(lab, 0, 5, 1, 1, 4);
    tick_at(lab, 4);
    again = submit(lab, 0, 5, 1, 1);
    submit(lab, 1, 5, 1, 1);
    assert_done(again, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(a_cancelled_call_gets_no_action_and_keeps_its_contribution)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 5, 1, 1);

    ck_assert(step_cancel(lab->machine, 0, one, 0));
    ck_assert(!step_cancel(lab->machine, 0, one, 0));
    ck_assert(!step_is_busy(lab->machine));
    assert_done(submit(lab, 1, 5, 1, 1), 2, 2);
    assert_waits(one);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_has_not_been_told_of_a_failure_is_told_by_its_next_call_for_that_step)
{
    struct lab *lab = lab_open(3);
    struct call *one = submit(lab, 0, 5, 1, 1);

    ck_assert(step_cancel(lab->machine, 0, one, 0));
    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_OK);
    refuse(lab, 2, 5);
    assert_counters(lab, 0, 1, 0);
    assert_failed(submit(lab, 0, 5, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    ck_assert_str_eq(metadata(&lab->err, "rank"), "2");
    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    /* those batches did not count; the next ones do */
    submit(lab, 0, 5, 1, 1);
    submit(lab, 1, 5, 1, 1);
    assert_done(submit(lab, 2, 5, 1, 1), 3, 3);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_went_on_is_not_told_any_more)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_OK);
    refuse(lab, 1, 5);
    one = submit(lab, 0, 6, 1, 1);
    submit(lab, 1, 6, 1, 1);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_of_a_rank_that_was_not_told_does_not_count_either)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_OK);
    refuse(lab, 1, 5);
    refuse(lab, 0, 5);
    assert_failed(submit(lab, 0, 5, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

START_TEST(what_was_announced_ahead_of_a_failed_step_is_dropped_with_it)
{
    struct lab *lab = lab_open(2);
    struct call *five;

    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(announce(lab, r, 4, 1, 1), LOSSD_OK);
    submit(lab, 0, 4, 1, 1);
    submit(lab, 1, 4, 1, 1);
    submit(lab, 0, 5, 1, 1);
    ck_assert_int_eq(announce(lab, 0, 6, 2, 2), LOSSD_OK);
    refuse(lab, 1, 5);
    ck_assert_int_eq(announce(lab, 1, 6, 2, 2), LOSSD_OK);
    /* the step can be sent again, though rank 0 had announced the one behind it */
    five = submit(lab, 0, 5, 1, 1);
    assert_waits(five);
    lab_close(lab);
}
END_TEST

START_TEST(a_pipeline_of_announcements_goes_on_over_a_failed_step)
{
    struct lab *lab = lab_open(2);
    struct call *call;

    submit(lab, 0, 5, 1, 1);
    ck_assert_int_eq(announce(lab, 0, 6, 2, 2), LOSSD_OK);
    refuse(lab, 1, 5);
    call = submit(lab, 0, 5, 1, 1);
    submit(lab, 1, 5, 1, 1);
    assert_done(call, 2, 2);
    /* rank 0 counts 6 as announced: it may announce 7, not 8, and send 6 */
    ck_assert_int_eq(announce(lab, 0, 7, 3, 3), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 8, 3, 3), LOSSD_ANNOUNCE_TOO_EARLY);
    call = submit(lab, 0, 6, 2, 2);
    assert_waits(call);
    assert_done(submit(lab, 1, 6, 2, 2), 4, 4);
    assert_done(call, 4, 4);
    assert_done(submit(lab, 1, 7, 1, 1), 4, 4);
    lab_close(lab);
}
END_TEST

START_TEST(no_step_is_done_while_a_rank_may_still_send_the_failed_one_before)
{
    struct lab *lab = lab_open(2);
    struct call *peer;

    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_OK);
    refuse(lab, 1, 5);
    /* rank 0 does not know that step 5 failed */
    ck_assert_int_eq(announce(lab, 0, 6, 2, 2), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 1, 6, 2, 2), LOSSD_OK);
    assert_counters(lab, 0, 1, 0);
    assert_failed(submit(lab, 0, 5, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    assert_counters(lab, 0, 1, 0);
    assert_waits(submit(lab, 0, 5, 1, 1));
    /* or it goes on, to the step that it had announced */
    peer = submit(lab, 0, 6, 2, 2);
    assert_done(peer, 4, 4);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_comes_while_the_attempt_without_it_runs_is_in_the_next_one)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 1, 1);
    struct call *late;

    lab->hold = true;
    tick_at(lab, 60);
    late = submit(lab, 1, 0, 1, 1);
    lab_reduce(lab);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    assert_waits(late);
    assert_done(submit(lab, 0, 0, 1, 1), 2, 2);
    assert_done(late, 2, 2);
    assert_counters(lab, 1, 1, 0);
    lab_close(lab);
}
END_TEST

/* Engine failures, closing, the rest. */

START_TEST(an_engine_that_fails_ends_every_call_and_the_step_can_be_sent_again)
{
    struct lab *lab = lab_open(2);
    struct call *one;
    struct call *two;
    struct lossd_error why;

    lab->hold = true;
    one = submit(lab, 0, 0, 1, 1);
    two = submit(lab, 1, 0, 1, 1);
    error_init(&why);
    (void)error_set(&why, LOSSD_INTERNAL, "", "the wire is cut");
    step_reduce_failed(lab->machine, &why, 0);
    run_actions(lab);
    assert_failed(one, LOSSD_INTERNAL);
    ck_assert_str_eq(two->error.message, "the wire is cut");
    assert_counters(lab, 0, 0, 1);
    lab->hold = false;
    one = submit(lab, 0, 0, 1, 1);
    assert_done(submit(lab, 1, 0, 1, 1), 2, 2);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(closing_ends_open_calls_and_refuses_later_ones)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 1, 1);
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_STALE_GENERATION, "generation", "is 1, the group is at 2");
    step_close(lab->machine, &why, 0);
    run_actions(lab);
    assert_failed(one, LOSSD_STALE_GENERATION);
    ck_assert_int_eq(announce(lab, 0, 1, 1, 1), LOSSD_STALE_GENERATION);
    assert_failed(submit(lab, 1, 1, 1, 1), LOSSD_STALE_GENERATION);
    ck_assert(!step_is_busy(lab->machine));
    ck_assert_int_eq(step_next_deadline(lab->machine), NO_DEADLINE);
    lab_close(lab);
}
END_TEST

START_TEST(a_reduce_that_comes_back_after_closing_is_counted_and_answers_nobody)
{
    struct lab *lab = lab_open(2);
    struct call *one;
    struct lossd_error why;

    lab->hold = true;
    one = submit(lab, 0, 0, 1, 1);
    submit(lab, 1, 0, 1, 1);
    error_init(&why);
    (void)error_set(&why, LOSSD_SHUTTING_DOWN, "", "the daemon stops");
    step_close(lab->machine, &why, 0);
    run_actions(lab);
    assert_failed(one, LOSSD_SHUTTING_DOWN);
    ck_assert(step_is_busy(lab->machine));
    lab_reduce(lab);
    ck_assert(!step_is_busy(lab->machine));
    assert_counters(lab, 1, 0, 0);
    ck_assert_int_eq(one->ends, 1);
    lab_close(lab);
}
END_TEST

START_TEST(an_absent_step_counts_on_from_the_last_done_or_stands_for_the_owed_one)
{
    struct lab *lab = lab_open(1);

    ck_assert_uint_eq(step_count_on(lab->machine), 0);
    submit(lab, 0, 0, 1, 1);
    ck_assert_uint_eq(step_count_on(lab->machine), 1);
    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 6, 1, 1), LOSSD_OK);
    ck_assert_uint_eq(step_count_on(lab->machine), 5);
    assert_done(submit(lab, 0, 5, 1, 1), 1, 1);
    ck_assert_uint_eq(step_count_on(lab->machine), 6);
    refuse(lab, 0, 7);
    submit(lab, 0, 6, 1, 1);
    /* a failed step is not spent */
    ck_assert_uint_eq(step_count_on(lab->machine), 7);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_whose_call_ended_early_is_seen_with_its_counts_in)
{
    struct lab *lab = lab_open(2);
    struct rank_view view;

    submit_until(lab, 0, 3, 1, 1, 2);
    tick_at(lab, 2);
    view = step_rank_view(lab->machine, 0);
    ck_assert_int_eq(view.state, RANK_ANNOUNCED);
    ck_assert_uint_eq(view.at_step, 3);
    lab_close(lab);
}
END_TEST

START_TEST(a_view_shows_the_state_the_steps_and_since_when)
{
    struct lab *lab = lab_open(2);
    struct rank_view view;

    do_steps(lab, 3);
    lab->now_s = 4;
    submit(lab, 0, 3, 1, 1);
    lab->now_s = 5;
    ck_assert_int_eq(announce(lab, 0, 4, 1, 1), LOSSD_OK);
    view = step_rank_view(lab->machine, 0);
    ck_assert_int_eq(view.state, RANK_WAITING);
    ck_assert(view.has_last_step && view.has_at_step);
    ck_assert_uint_eq(view.last_step, 2);
    ck_assert_uint_eq(view.at_step, 3);
    ck_assert_int_eq(view.since_ns, 4 * NS_PER_S);
    view = step_rank_view(lab->machine, 1);
    ck_assert_int_eq(view.state, RANK_IDLE);
    ck_assert(!view.has_at_step);
    lab_close(lab);
}
END_TEST

START_TEST(a_call_whose_own_deadline_ends_during_the_reduce_says_who_is_dead)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    lab->hold = true;
    die(lab, 1);
    one = submit_until(lab, 0, 0, 1, 1, 5);
    tick_at(lab, 5);
    assert_failed(one, LOSSD_PEER_WAIT_DEADLINE);
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "1 dead");
    lab_reduce(lab);
    lab_close(lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_ends");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, a_call_that_meets_its_deadline_names_the_missing_and_keeps_its_contribution);
    tcase_add_test(tcase, a_rank_at_another_step_is_missing_for_a_call_that_meets_its_deadline);
    tcase_add_test(tcase, the_same_call_again_after_its_deadline_goes_on_waiting);
    tcase_add_test(tcase, a_cancelled_call_gets_no_action_and_keeps_its_contribution);
    tcase_add_test(tcase, a_rank_that_has_not_been_told_of_a_failure_is_told_by_its_next_call_for_that_step);
    tcase_add_test(tcase, a_rank_that_went_on_is_not_told_any_more);
    tcase_add_test(tcase, a_bad_batch_of_a_rank_that_was_not_told_does_not_count_either);
    tcase_add_test(tcase, what_was_announced_ahead_of_a_failed_step_is_dropped_with_it);
    tcase_add_test(tcase, a_pipeline_of_announcements_goes_on_over_a_failed_step);
    tcase_add_test(tcase, no_step_is_done_while_a_rank_may_still_send_the_failed_one_before);
    tcase_add_test(tcase, a_rank_that_comes_while_the_attempt_without_it_runs_is_in_the_next_one);
    tcase_add_test(tcase, an_engine_that_fails_ends_every_call_and_the_step_can_be_sent_again);
    tcase_add_test(tcase, closing_ends_open_calls_and_refuses_later_ones);
    tcase_add_test(tcase, a_reduce_that_comes_back_after_closing_is_counted_and_answers_nobody);
    tcase_add_test(tcase, an_absent_step_counts_on_from_the_last_done_or_stands_for_the_owed_one);
    tcase_add_test(tcase, a_rank_whose_call_ended_early_is_seen_with_its_counts_in);
    tcase_add_test(tcase, a_view_shows_the_state_the_steps_and_since_when);
    tcase_add_test(tcase, a_call_whose_own_deadline_ends_during_the_reduce_says_who_is_dead);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
