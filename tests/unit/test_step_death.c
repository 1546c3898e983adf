/* Ranks whose process is gone (rule 15): who is told, when, and what stays. */

#include "support/runner.h"
#include "support/step_lab.h"

START_TEST(whoever_waits_for_a_rank_is_told_when_it_dies)
{
    struct lab *lab = lab_open(4);
    struct call *one;
    struct call *two;

    for (uint32_t r = 0; r < 4; r++)
        submit(lab, r, 41, 1, 1);
    one = submit(lab, 0, 42, 1, 1);
    two = submit(lab, 1, 42, 1, 1);
    assert_waits(one);
    die(lab, 2);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    assert_failed(two, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "2");
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "2 dead last_step=41");
    ck_assert_str_eq(metadata(&one->error, "step"), "42");
    ck_assert_str_eq(metadata(&one->error, "table"), "(absent)");
    ck_assert_str_eq(one->error.message,
                     "step 42 can't be done without 1 of 4 ranks (2), whose process is gone: 2 dead last_step=41");
    ck_assert_int_eq(state_of(lab, 2), RANK_DEAD);
    ck_assert_int_eq(state_of(lab, 3), RANK_IDLE);
    assert_counters(lab, 1, 1, 0);
    lab_close(lab);
}
END_TEST

START_TEST(whoever_comes_after_the_death_is_told_the_same_each_for_itself)
{
    struct lab *lab = lab_open(4);
    struct call *one;

    die(lab, 1);
    die(lab, 3);
    one = submit(lab, 0, 7, 1, 1);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "1,3");
    ck_assert_str_eq(one->error.message,
                     "step 7 can't be done without 2 of 4 ranks (1,3), whose processes are gone: 1 dead; 3 dead");
    assert_failed(submit(lab, 2, 7, 1, 1), LOSSD_STEP_TIMEOUT);
    assert_failed(submit(lab, 0, 7, 1, 1), LOSSD_STEP_TIMEOUT);
    assert_counters(lab, 0, 3, 0);
    lab_close(lab);
}
END_TEST

START_TEST(ranks_that_live_and_have_not_come_are_no_part_of_it)
{
    struct lab *lab = lab_open(3);
    struct call *late;

    submit(lab, 0, 5, 1, 1);
    lab->hold = true;
    die(lab, 1);
    ck_assert_double_eq(lab->vector[2 + 2], 0);
    ck_assert_double_eq(lab->vector[2 + 3 + 0], STEP_REASON_NONE);
    ck_assert_double_eq(lab->vector[2 + 3 + 1], STEP_REASON_MISSING);
    ck_assert_double_eq(lab->vector[2 + 3 + 2], STEP_REASON_NONE);
    late = submit(lab, 2, 5, 1, 1);
    assert_waits(late);
    lab_reduce(lab);
    /* It has begun after the reduce: its own attempt ends as the first did. */
    assert_failed(late, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&late->error, "missing_ranks"), "1");
    assert_counters(lab, 0, 2, 0);
    lab_close(lab);
}
END_TEST

START_TEST(what_a_dead_rank_has_sent_counts)
{
    struct lab *lab = lab_open(3);
    struct call *one = submit(lab, 0, 5, 1, 10);
    struct call *dead = submit(lab, 1, 5, 1, 20);

    cancel(lab, 1, dead);
    die(lab, 1);
    assert_waits(one);
    ck_assert_int_eq(state_of(lab, 1), RANK_DEAD);
    assert_done(submit(lab, 2, 5, 1, 30), 3, 60);
    assert_done(one, 3, 60);
    assert_failed(submit(lab, 0, 6, 1, 10), LOSSD_STEP_TIMEOUT);
    lab_close(lab);
}
END_TEST

START_TEST(what_a_dead_rank_has_announced_counts_for_both_steps)
{
    struct lab *lab = lab_open(2);
    struct call *last;

    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 1, 6, 1, 2), LOSSD_OK);
    die(lab, 1);
    assert_done(submit(lab, 0, 5, 1, 10), 2, 11);
    assert_done(submit(lab, 0, 6, 1, 10), 2, 12);
    last = submit(lab, 0, 7, 1, 10);
    assert_failed(last, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&last->error, "missing_states"), "1 dead last_step=6");
    lab_close(lab);
}
END_TEST

START_TEST(an_announcement_alone_waits_for_nobody)
{
    struct lab *lab = lab_open(3);

    die(lab, 2);
    ck_assert_int_eq(announce(lab, 0, 5, 1, 1), LOSSD_OK);
    assert_counters(lab, 0, 0, 0);
    /* The call of another starts the attempt, which the announcement is in. */
    assert_failed(submit(lab, 1, 5, 1, 1), LOSSD_STEP_TIMEOUT);
    ck_assert_int_eq(submit(lab, 0, 5, 1, 1)->status, LOSSD_STEP_TIMEOUT);
    assert_counters(lab, 0, 1, 0);
    /* It has been told, and may send again. */
    assert_failed(submit(lab, 0, 5, 1, 1), LOSSD_STEP_TIMEOUT);
    assert_counters(lab, 0, 2, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_lives_again_when_it_is_heard_of)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    die(lab, 1);
    step_joined(lab->machine, 1, 0);
    ck_assert_int_eq(state_of(lab, 1), RANK_IDLE);
    die(lab, 1);
    step_heard(lab->machine, 1, 0);
    ck_assert_int_eq(state_of(lab, 1), RANK_IDLE);
    one = submit(lab, 0, 3, 1, 1);
    assert_waits(one);
    die(lab, 1);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_int_eq(announce(lab, 1, 3, 1, 1), LOSSD_OK);
    ck_assert_int_eq(state_of(lab, 1), RANK_ANNOUNCED);
    die(lab, 1);
    assert_done(submit(lab, 0, 3, 1, 1), 2, 2);
    assert_done(submit(lab, 1, 3, 1, 1), 2, 2);
    ck_assert_int_eq(state_of(lab, 1), RANK_IDLE);
    die(lab, 1);
    one = submit(lab, 1, 4, 1, 1);
    ck_assert_int_eq(state_of(lab, 1), RANK_WAITING);
    assert_done(submit(lab, 0, 4, 1, 1), 2, 2);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(a_call_that_is_refused_is_a_sign_of_life_too)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 3);
    die(lab, 1);
    ck_assert_int_eq(announce(lab, 1, 2, 9, 9), LOSSD_STEP_PAYLOAD_CONFLICT);
    ck_assert_int_eq(state_of(lab, 1), RANK_IDLE);
    die(lab, 1);
    refuse(lab, 1, 1);
    ck_assert_int_eq(state_of(lab, 1), RANK_IDLE);
    lab_close(lab);
}
END_TEST

START_TEST(ranks_do_the_step_together_when_the_dead_one_is_back)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 1, 1);
    struct call *dead = submit(lab, 1, 1, 1, 1);

    assert_failed(one, LOSSD_STEP_DESYNC);
    assert_failed(dead, LOSSD_STEP_DESYNC);
    die(lab, 1);
    assert_failed(submit(lab, 0, 1, 1, 1), LOSSD_STEP_TIMEOUT);
    one = submit(lab, 1, 1, 1, 1);
    assert_waits(one);
    assert_done(submit(lab, 0, 1, 1, 1), 2, 2);
    assert_done(one, 2, 2);
    assert_counters(lab, 1, 2, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_left_stays_left)
{
    struct lab *lab = lab_open(2);

    leave(lab, 1);
    die(lab, 1);
    ck_assert_int_eq(state_of(lab, 1), RANK_LEFT);
    assert_failed(submit(lab, 0, 0, 1, 1), LOSSD_RANK_LEFT);
    lab_close(lab);
}
END_TEST

START_TEST(a_dead_rank_may_be_made_to_leave)
{
    struct lab *lab = lab_open(2);

    die(lab, 1);
    leave(lab, 1);
    ck_assert_int_eq(state_of(lab, 1), RANK_LEFT);
    assert_failed(submit(lab, 0, 0, 1, 1), LOSSD_RANK_LEFT);
    lab_close(lab);
}
END_TEST

START_TEST(a_dead_rank_at_an_earlier_step_is_missing_from_the_later_one)
{
    struct lab *lab = lab_open(3);
    struct call *one;

    submit(lab, 0, 4, 1, 1);
    submit(lab, 1, 4, 1, 1);
    submit(lab, 2, 4, 1, 1);
    cancel(lab, 2, submit(lab, 2, 5, 1, 1));
    die(lab, 2);
    one = submit(lab, 0, 6, 1, 1);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "2");
    ck_assert_str_eq(metadata(&one->error, "step"), "6");
    ck_assert_str_eq(metadata(&one->error, "table"), "0:6 2:5");
    ck_assert_str_eq(
        one->error.message,
        "step 6 can't be done without 1 of 3 ranks (2), whose process is gone: 2 dead at_step=5 last_step=4");
    lab_close(lab);
}
END_TEST

START_TEST(a_dead_rank_that_announced_two_steps_is_missing_from_the_second_until_the_first_is_done)
{
    struct lab *lab = lab_open(2);

    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_OK);
    ck_assert_int_eq(announce(lab, 1, 6, 1, 1), LOSSD_OK);
    die(lab, 1);
    assert_failed(submit(lab, 0, 6, 1, 1), LOSSD_STEP_TIMEOUT);
    lab_close(lab);
}
END_TEST

START_TEST(where_the_living_disagree_too_the_table_says_so)
{
    struct lab *lab = lab_open(3);
    struct call *one;
    struct call *two;

    cancel(lab, 2, submit(lab, 2, 5, 1, 1));
    one = submit(lab, 0, 6, 1, 1);
    two = submit(lab, 1, 5, 1, 1);
    assert_waits(one);
    die(lab, 2);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    assert_failed(two, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&two->error, "step"), "6");
    ck_assert_str_eq(metadata(&two->error, "table"), "0:6 1-2:5");
    lab_close(lab);
}
END_TEST

START_TEST(a_dead_rank_that_has_not_been_told_of_a_failed_step_is_missing_and_is_told_when_it_is_back)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 1);
    ck_assert_int_eq(announce(lab, 1, 1, 1, 1), LOSSD_OK);
    tick_at(lab, 10);
    assert_counters(lab, 1, 1, 0);
    die(lab, 1);
    assert_failed(submit(lab, 0, 1, 1, 1), LOSSD_STEP_TIMEOUT);
    assert_counters(lab, 1, 2, 0);
    ck_assert_int_eq(submit(lab, 1, 1, 1, 1)->status, LOSSD_STEP_TIMEOUT);
    assert_waits(submit(lab, 1, 1, 1, 1));
    assert_done(submit(lab, 0, 1, 1, 1), 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(with_all_ranks_dead_nothing_happens_but_by_the_clock)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 1);
    cancel(lab, 0, submit(lab, 0, 1, 1, 1));
    die(lab, 0);
    die(lab, 1);
    assert_counters(lab, 1, 0, 0);
    tick_at(lab, 10);
    assert_counters(lab, 1, 1, 0);
    ck_assert_int_eq(state_of(lab, 0), RANK_DEAD);
    ck_assert_int_eq(state_of(lab, 1), RANK_DEAD);
    lab_close(lab);
}
END_TEST

START_TEST(a_world_of_one_waits_for_nobody_dead_or_not)
{
    struct lab *lab = lab_open(1);

    ck_assert_int_eq(announce(lab, 0, 3, 1, 1), LOSSD_OK);
    die(lab, 0);
    ck_assert_int_eq(state_of(lab, 0), RANK_DEAD);
    assert_done(submit(lab, 0, 3, 1, 1), 1, 1);
    die(lab, 0);
    assert_done(submit(lab, 0, 4, 1, 1), 1, 1);
    assert_counters(lab, 2, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_death_does_not_disturb_a_running_reduce)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 1, 1);
    struct call *two;

    lab->hold = true;
    two = submit(lab, 1, 0, 1, 1);
    cancel(lab, 1, two);
    die(lab, 1);
    lab_reduce(lab);
    assert_done(one, 2, 2);
    assert_failed(submit(lab, 0, 1, 1, 1), LOSSD_STEP_TIMEOUT);
    lab_close(lab);
}
END_TEST

START_TEST(at_the_step_timeout_the_dead_are_told_from_those_that_did_not_come)
{
    struct lab *lab = lab_open(3);
    struct call *one;

    one = submit(lab, 0, 0, 1, 1);
    cancel(lab, 0, one);
    die(lab, 2);
    lab->now_s = 59;
    assert_counters(lab, 0, 0, 0);
    tick_at(lab, 60);
    assert_counters(lab, 0, 1, 0);
    one = submit(lab, 0, 0, 1, 1);
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "1 idle; 2 dead");
    ck_assert_str_eq(one->error.message, "step 0 timed out without 2 of 3 ranks (1-2): 1 idle; 2 dead");
    lab_close(lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_death");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, whoever_waits_for_a_rank_is_told_when_it_dies);
    tcase_add_test(tcase, whoever_comes_after_the_death_is_told_the_same_each_for_itself);
    tcase_add_test(tcase, ranks_that_live_and_have_not_come_are_no_part_of_it);
    tcase_add_test(tcase, what_a_dead_rank_has_sent_counts);
    tcase_add_test(tcase, what_a_dead_rank_has_announced_counts_for_both_steps);
    tcase_add_test(tcase, an_announcement_alone_waits_for_nobody);
    tcase_add_test(tcase, a_rank_lives_again_when_it_is_heard_of);
    tcase_add_test(tcase, a_call_that_is_refused_is_a_sign_of_life_too);
    tcase_add_test(tcase, ranks_do_the_step_together_when_the_dead_one_is_back);
    tcase_add_test(tcase, a_rank_that_left_stays_left);
    tcase_add_test(tcase, a_dead_rank_may_be_made_to_leave);
    tcase_add_test(tcase, a_dead_rank_at_an_earlier_step_is_missing_from_the_later_one);
    tcase_add_test(tcase, a_dead_rank_that_announced_two_steps_is_missing_from_the_second_until_the_first_is_done);
    tcase_add_test(tcase, where_the_living_disagree_too_the_table_says_so);
    tcase_add_test(tcase, a_dead_rank_that_has_not_been_told_of_a_failed_step_is_missing_and_is_told_when_it_is_back);
    tcase_add_test(tcase, with_all_ranks_dead_nothing_happens_but_by_the_clock);
    tcase_add_test(tcase, a_world_of_one_waits_for_nobody_dead_or_not);
    tcase_add_test(tcase, a_death_does_not_disturb_a_running_reduce);
    tcase_add_test(tcase, at_the_step_timeout_the_dead_are_told_from_those_that_did_not_come);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
