/* Bad batches and broken promises (rules 4 and 5). */
#include "support/runner.h"
#include "support/step_lab.h"

START_TEST(a_bad_batch_fails_the_step_for_every_rank_and_names_the_culprit)
{
    struct lab *lab = lab_open(3);
    struct call *one = submit(lab, 0, 7, 1, 1);
    struct call *two = submit(lab, 2, 7, 1, 1);

    refuse(lab, 1, 7);
    assert_failed(one, LOSSD_STEP_REJECTED_BY_PEER);
    assert_failed(two, LOSSD_STEP_REJECTED_BY_PEER);
    ck_assert_str_eq(metadata(&one->error, "rank"), "1");
    ck_assert_str_eq(metadata(&one->error, "peer_reason"), "NONFINITE_LOGITS");
    ck_assert_str_eq(metadata(&one->error, "step"), "7");
    ck_assert_str_eq(one->error.message,
                     "the batch of rank 1 for step 7 was refused (NONFINITE_LOGITS), so no rank gets this step");
    assert_counters(lab, 0, 1, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_failed_step_can_be_sent_again)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    submit(lab, 0, 7, 1, 1);
    refuse(lab, 1, 7);
    one = submit(lab, 0, 7, 1, 1);
    assert_waits(one);
    assert_done(submit(lab, 1, 7, 2, 2), 3, 3);
    assert_done(one, 3, 3);
    assert_counters(lab, 1, 1, 0);
    lab_close(lab);
}
END_TEST

START_TEST(all_may_go_on_from_a_failed_step_to_a_later_one)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    submit(lab, 0, 7, 1, 1);
    refuse(lab, 1, 7);
    one = submit(lab, 0, 8, 1, 1);
    submit(lab, 1, 8, 2, 2);
    assert_done(one, 3, 3);
    assert_failed(submit(lab, 0, 7, 1, 1), LOSSD_STEP_OUT_OF_ORDER);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_that_is_replaced_before_the_reduce_does_no_harm)
{
    struct lab *lab = lab_open(2);
    struct call *good;

    refuse(lab, 1, 0);
    ck_assert_int_eq(state_of(lab, 1), RANK_REFUSED);
    good = submit(lab, 1, 0, 2, 2);
    assert_done(submit(lab, 0, 0, 1, 1), 3, 3);
    assert_done(good, 3, 3);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_ends_the_open_call_of_its_step)
{
    struct lab *lab = lab_open(2);
    struct call *call = submit(lab, 0, 0, 1, 1);

    refuse(lab, 0, 0);
    assert_failed(call, LOSSD_SUPERSEDED);
    assert_failed(submit(lab, 1, 0, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_of_a_later_step_drops_the_earlier_one)
{
    struct lab *lab = lab_open(2);
    struct call *call = submit(lab, 0, 0, 1, 1);

    refuse(lab, 0, 1);
    assert_failed(call, LOSSD_SUPERSEDED);
    assert_failed(submit(lab, 1, 1, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_of_a_done_or_passed_step_counts_for_nothing)
{
    struct lab *lab = lab_open(2);
    struct call *call;

    do_steps(lab, 2);
    call = submit(lab, 0, 5, 1, 1);
    refuse(lab, 0, 1);
    refuse(lab, 0, 4);
    assert_waits(call);
    submit(lab, 1, 5, 1, 1);
    assert_done(call, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(a_broken_promise_concerns_its_rank_alone)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    refuse(lab, 0, 0);
    ck_assert_int_eq(state_of(lab, 0), RANK_REFUSED);
    assert_done(submit(lab, 1, 0, 1, 1), 3, 7);
    ck_assert_int_eq(state_of(lab, 0), RANK_REFUSED);
    assert_done(submit(lab, 0, 0, 2, 6), 3, 7);
    ck_assert_int_eq(state_of(lab, 0), RANK_IDLE);
    assert_counters(lab, 1, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_promise_broken_after_the_reduce_shows_in_the_state_alone)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    assert_done(submit(lab, 1, 0, 1, 1), 3, 7);
    refuse(lab, 0, 0);
    ck_assert_int_eq(state_of(lab, 0), RANK_REFUSED);
    assert_done(submit(lab, 0, 0, 2, 6), 3, 7);
    lab_close(lab);
}
END_TEST

START_TEST(a_promise_ends_where_a_batch_brings_other_counts)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 0, 0, 2, 6), LOSSD_OK);
    submit(lab, 0, 0, 3, 8);
    refuse(lab, 0, 0);
    assert_failed(submit(lab, 1, 0, 1, 1), LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

START_TEST(a_bad_batch_during_the_reduce_changes_nothing)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    lab->hold = true;
    one = submit(lab, 0, 0, 1, 1);
    submit(lab, 1, 0, 1, 1);
    refuse(lab, 0, 0);
    lab_reduce(lab);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(a_good_batch_that_comes_while_its_bad_one_is_reduced_gets_the_error_of_the_attempt)
{
    struct lab *lab = lab_open(2);
    struct call *late;

    lab->hold = true;
    submit(lab, 0, 0, 1, 1);
    refuse(lab, 1, 0);
    late = submit(lab, 1, 0, 1, 1);
    assert_waits(late);
    lab_reduce(lab);
    assert_failed(late, LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_refusal");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, a_bad_batch_fails_the_step_for_every_rank_and_names_the_culprit);
    tcase_add_test(tcase, a_failed_step_can_be_sent_again);
    tcase_add_test(tcase, all_may_go_on_from_a_failed_step_to_a_later_one);
    tcase_add_test(tcase, a_bad_batch_that_is_replaced_before_the_reduce_does_no_harm);
    tcase_add_test(tcase, a_bad_batch_ends_the_open_call_of_its_step);
    tcase_add_test(tcase, a_bad_batch_of_a_later_step_drops_the_earlier_one);
    tcase_add_test(tcase, a_bad_batch_of_a_done_or_passed_step_counts_for_nothing);
    tcase_add_test(tcase, a_broken_promise_concerns_its_rank_alone);
    tcase_add_test(tcase, a_promise_broken_after_the_reduce_shows_in_the_state_alone);
    tcase_add_test(tcase, a_promise_ends_where_a_batch_brings_other_counts);
    tcase_add_test(tcase, a_bad_batch_during_the_reduce_changes_nothing);
    tcase_add_test(tcase, a_good_batch_that_comes_while_its_bad_one_is_reduced_gets_the_error_of_the_attempt);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
