/* What a rank sends, in which order, and done steps (rules 1 to 3 and 10). */
#include "support/runner.h"
#include "support/step_lab.h"

START_TEST(a_step_is_done_when_each_rank_is_in_and_all_get_the_same_sums)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 7, 2, 6);
    struct call *two;

    assert_waits(one);
    two = submit(lab, 1, 7, 6, 3);
    assert_done(one, 8, 9);
    assert_done(two, 8, 9);
    ck_assert_uint_eq(one->step, 7);
    ck_assert(!one->replayed && !two->replayed);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_world_of_one_is_answered_at_once)
{
    struct lab *lab = lab_open(1);

    assert_done(submit(lab, 0, 0, 3, 5), 3, 5);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(steps_may_jump_and_start_anywhere)
{
    struct lab *lab = lab_open(1);

    assert_done(submit(lab, 0, STEP_LIMIT - 9, 3, 5), 3, 5);
    assert_done(submit(lab, 0, STEP_LIMIT - 1, 4, 6), 4, 6);
    lab_close(lab);
}
END_TEST

START_TEST(an_empty_rank_counts_as_there)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 0, 0);

    submit(lab, 1, 0, 2, 5);
    assert_done(one, 2, 5);
    lab_close(lab);
}
END_TEST

START_TEST(a_done_step_again_is_computed_from_kept_totals_and_marked)
{
    struct lab *lab = lab_open(2);
    struct call *again;

    submit(lab, 0, 0, 2, 6);
    submit(lab, 1, 0, 1, 1);
    again = submit(lab, 0, 0, 2, 6);
    assert_done(again, 3, 7);
    ck_assert(again->replayed);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_done_step_again_with_other_counts_is_a_conflict)
{
    struct lab *lab = lab_open(2);

    submit(lab, 0, 0, 2, 6);
    submit(lab, 1, 0, 1, 1);
    assert_failed(submit(lab, 0, 0, 2, 7), LOSSD_STEP_PAYLOAD_CONFLICT);
    ck_assert_int_eq(announce(lab, 0, 0, 6, 2), LOSSD_STEP_PAYLOAD_CONFLICT);
    ck_assert_str_eq(metadata(&lab->err, "step"), "0");
    ck_assert_str_eq(lab->err.message,
                     "step 0 is done, and the counts or weights of this batch are not those that this rank promised or "
                     "sent before; a batch with weights or with rows labelled -100 can't be announced");
    lab_close(lab);
}
END_TEST

START_TEST(the_last_64_steps_are_kept_and_no_more)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 65);
    ck_assert(!lab->calls[0].replayed && !lab->calls[1].replayed);
    assert_done(submit(lab, 0, 1, 1, 1), 2, 2);
    assert_done(submit(lab, 0, 64, 1, 64), 2, 65);
    assert_failed(submit(lab, 0, 0, 1, 0), LOSSD_STEP_OUT_OF_ORDER);
    ck_assert_str_eq(metadata(&lab->err, "expected_step"), "65");
    ck_assert_str_eq(metadata(&lab->err, "got_step"), "0");
    lab_close(lab);
}
END_TEST

START_TEST(history_is_by_step_number_where_steps_jump)
{
    struct lab *lab = lab_open(1);

    submit(lab, 0, 10, 1, 1);
    submit(lab, 0, 1000, 2, 2);
    submit(lab, 0, 1000000, 3, 3);
    assert_done(submit(lab, 0, 10, 1, 1), 1, 1);
    assert_done(submit(lab, 0, 1000, 2, 2), 2, 2);
    assert_failed(submit(lab, 0, 999, 2, 2), LOSSD_STEP_OUT_OF_ORDER);
    lab_close(lab);
}
END_TEST

/* Rules 2 and 3: order and replacement. */

START_TEST(a_later_batch_drops_the_earlier_one_and_ends_its_call)
{
    struct lab *lab = lab_open(2);
    struct call *early = submit(lab, 0, 5, 1, 1);
    struct call *late = submit(lab, 0, 6, 2, 2);

    assert_failed(early, LOSSD_SUPERSEDED);
    submit(lab, 1, 6, 3, 3);
    assert_done(late, 5, 5);
    lab_close(lab);
}
END_TEST

START_TEST(a_step_below_one_that_the_rank_is_at_is_out_of_order)
{
    struct lab *lab = lab_open(2);

    submit(lab, 0, 6, 2, 2);
    assert_failed(submit(lab, 0, 5, 1, 1), LOSSD_STEP_OUT_OF_ORDER);
    ck_assert_str_eq(metadata(&lab->err, "expected_step"), "6");
    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_STEP_OUT_OF_ORDER);
    lab_close(lab);
}
END_TEST

START_TEST(a_second_batch_before_the_reduce_replaces_the_first)
{
    struct lab *lab = lab_open(2);
    struct call *first = submit(lab, 0, 0, 2, 6);
    struct call *second = submit(lab, 0, 0, 3, 7);

    assert_failed(first, LOSSD_SUPERSEDED);
    submit(lab, 1, 0, 1, 1);
    assert_done(second, 4, 8);
    lab_close(lab);
}
END_TEST

START_TEST(a_repeat_during_the_reduce_joins_it_when_equal_and_conflicts_when_not)
{
    struct lab *lab = lab_open(2);
    struct call *first;
    struct call *second;

    lab->hold = true;
    first = submit(lab, 0, 0, 2, 6);
    submit(lab, 1, 0, 1, 1);
    assert_failed(submit(lab, 0, 0, 2, 5), LOSSD_STEP_PAYLOAD_CONFLICT);
    assert_waits(first);
    second = submit(lab, 0, 0, 2, 6);
    assert_failed(first, LOSSD_SUPERSEDED);
    lab_reduce(lab);
    assert_done(second, 3, 7);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_goes_on_during_the_reduce_stays_in_it)
{
    struct lab *lab = lab_open(2);
    struct call *first;
    struct call *next;
    struct call *peer;

    lab->hold = true;
    first = submit(lab, 0, 0, 2, 6);
    peer = submit(lab, 1, 0, 1, 1);
    next = submit(lab, 0, 1, 4, 4);
    assert_failed(first, LOSSD_SUPERSEDED);
    lab_reduce(lab);
    assert_done(peer, 3, 7);
    assert_waits(next);
    submit(lab, 1, 1, 5, 5);
    assert_done(next, 9, 9);
    lab_close(lab);
}
END_TEST

/* Announcements. */

START_TEST(an_announced_step_is_reduced_before_its_batches_come)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    ck_assert_int_eq(state_of(lab, 0), RANK_ANNOUNCED);
    ck_assert_int_eq(announce(lab, 1, 0, 1, 1), LOSSD_OK);
    assert_counters(lab, 1, 0, 0);
    ck_assert_int_eq(state_of(lab, 0), RANK_ANNOUNCED);
    assert_done(submit(lab, 0, 0, 2, 6), 3, 7);
    ck_assert_int_eq(state_of(lab, 0), RANK_IDLE);
    assert_done(submit(lab, 1, 0, 1, 1), 3, 7);
    lab_close(lab);
}
END_TEST

START_TEST(an_equal_announcement_again_is_a_success)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    submit(lab, 1, 0, 1, 1);
    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    assert_done(submit(lab, 0, 0, 2, 6), 3, 7);
    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_batch_with_other_counts_replaces_the_promise_before_the_reduce)
{
    struct lab *lab = lab_open(2);
    struct call *call;

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    call = submit(lab, 0, 0, 3, 8);
    submit(lab, 1, 0, 1, 1);
    assert_done(call, 4, 9);
    lab_close(lab);
}
END_TEST

START_TEST(a_batch_with_other_counts_than_announced_is_refused_alone_after_the_reduce)
{
    struct lab *lab = lab_open(2);
    struct call *peer;

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    peer = submit(lab, 1, 0, 1, 1);
    assert_done(peer, 3, 7);
    assert_failed(submit(lab, 0, 0, 3, 8), LOSSD_STEP_PAYLOAD_CONFLICT);
    assert_done(submit(lab, 0, 0, 2, 6), 3, 7);
    lab_close(lab);
}
END_TEST

START_TEST(one_step_may_be_announced_ahead_of_the_batch_that_is_owed_and_no_more)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 1, 1), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 1, 2, 2), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 2, 3, 3), LOSSD_ANNOUNCE_TOO_EARLY);
    submit(lab, 1, 0, 1, 1);
    /* step 0 is done, its batch still owed */
    ck_assert_int_eq(announce(lab, 0, 2, 3, 3), LOSSD_ANNOUNCE_TOO_EARLY);
    assert_done(submit(lab, 0, 0, 1, 1), 2, 2);
    ck_assert_int_eq(announce(lab, 0, 2, 3, 3), LOSSD_OK);
    lab_close(lab);
}
END_TEST

START_TEST(a_step_announced_ahead_is_done_when_the_others_come)
{
    struct lab *lab = lab_open(2);
    struct call *zero = submit(lab, 0, 0, 1, 1);
    struct call *one;

    ck_assert_int_eq(announce(lab, 0, 1, 2, 2), LOSSD_OK);
    submit(lab, 1, 0, 1, 1);
    assert_done(zero, 2, 2);
    one = submit(lab, 1, 1, 5, 5);
    assert_done(one, 7, 7);
    assert_done(submit(lab, 0, 1, 2, 2), 7, 7);
    lab_close(lab);
}
END_TEST

START_TEST(a_new_announcement_with_other_counts_ends_the_call_that_it_replaces)
{
    struct lab *lab = lab_open(2);
    struct call *call = submit(lab, 0, 0, 1, 1);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 2), LOSSD_OK);
    assert_failed(call, LOSSD_SUPERSEDED);
    submit(lab, 1, 0, 1, 1);
    assert_done(submit(lab, 0, 0, 2, 2), 3, 3);
    lab_close(lab);
}
END_TEST

START_TEST(a_batch_that_never_comes_is_no_ones_trouble)
{
    struct lab *lab = lab_open(2);
    struct call *next;

    ck_assert_int_eq(announce(lab, 0, 0, 1, 1), LOSSD_OK);
    submit(lab, 1, 0, 1, 1);
    next = submit(lab, 0, 1, 2, 2);
    submit(lab, 1, 1, 2, 2);
    assert_done(next, 4, 4);
    ck_assert_int_eq(announce(lab, 0, 2, 1, 1), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 0, 3, 1, 1), LOSSD_OK);
    lab_close(lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, a_step_is_done_when_each_rank_is_in_and_all_get_the_same_sums);
    tcase_add_test(tcase, a_world_of_one_is_answered_at_once);
    tcase_add_test(tcase, steps_may_jump_and_start_anywhere);
    tcase_add_test(tcase, an_empty_rank_counts_as_there);
    tcase_add_test(tcase, a_done_step_again_is_computed_from_kept_totals_and_marked);
    tcase_add_test(tcase, a_done_step_again_with_other_counts_is_a_conflict);
    tcase_add_test(tcase, the_last_64_steps_are_kept_and_no_more);
    tcase_add_test(tcase, history_is_by_step_number_where_steps_jump);
    tcase_add_test(tcase, a_later_batch_drops_the_earlier_one_and_ends_its_call);
    tcase_add_test(tcase, a_step_below_one_that_the_rank_is_at_is_out_of_order);
    tcase_add_test(tcase, a_second_batch_before_the_reduce_replaces_the_first);
    tcase_add_test(tcase, a_repeat_during_the_reduce_joins_it_when_equal_and_conflicts_when_not);
    tcase_add_test(tcase, a_rank_that_goes_on_during_the_reduce_stays_in_it);
    tcase_add_test(tcase, an_announced_step_is_reduced_before_its_batches_come);
    tcase_add_test(tcase, an_equal_announcement_again_is_a_success);
    tcase_add_test(tcase, a_batch_with_other_counts_replaces_the_promise_before_the_reduce);
    tcase_add_test(tcase, a_batch_with_other_counts_than_announced_is_refused_alone_after_the_reduce);
    tcase_add_test(tcase, one_step_may_be_announced_ahead_of_the_batch_that_is_owed_and_no_more);
    tcase_add_test(tcase, a_step_announced_ahead_is_done_when_the_others_come);
    tcase_add_test(tcase, a_new_announcement_with_other_counts_ends_the_call_that_it_replaces);
    tcase_add_test(tcase, a_batch_that_never_comes_is_no_ones_trouble);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
