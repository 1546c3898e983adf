/* Attempts that can't be done: ranks at different steps, missing, gone (rules 6 to 8). */
#include <stdlib.h>
#include <string.h>

#include "support/runner.h"
#include "support/step_lab.h"

START_TEST(ranks_that_wait_at_different_steps_are_told_at_once)
{
    struct lab *lab = lab_open(3);
    struct call *one = submit(lab, 0, 5, 1, 1);
    struct call *two = submit(lab, 1, 5, 1, 1);
    struct call *three = submit(lab, 2, 6, 1, 1);

    assert_failed(one, LOSSD_STEP_DESYNC);
    assert_failed(two, LOSSD_STEP_DESYNC);
    assert_failed(three, LOSSD_STEP_DESYNC);
    ck_assert_str_eq(metadata(&one->error, "table"), "0-1:5 2:6");
    ck_assert_str_eq(three->error.message, "the ranks are at different steps: 0-1 at step 5, 2 at step 6");
    assert_counters(lab, 0, 1, 0);
    lab_close(lab);
}
END_TEST

START_TEST(ranks_can_meet_again_on_either_side_of_a_desync)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    submit(lab, 0, 5, 1, 1);
    submit(lab, 1, 6, 1, 1);
    one = submit(lab, 1, 5, 1, 1);
    assert_done(submit(lab, 0, 5, 1, 1), 2, 2);
    assert_done(one, 2, 2);
    submit(lab, 0, 7, 1, 1);
    submit(lab, 1, 9, 1, 1);
    one = submit(lab, 0, 9, 1, 1);
    assert_done(submit(lab, 1, 9, 1, 1), 2, 2);
    assert_done(one, 2, 2);
    assert_counters(lab, 2, 2, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_only_announced_another_step_may_still_come)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_OK);
    one = submit(lab, 0, 6, 1, 1);
    assert_waits(one);
    submit(lab, 1, 6, 1, 1);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(at_the_step_timeout_the_missing_are_named_with_what_they_were_last_seen_doing)
{
    struct lab *lab = lab_open(4);
    struct call *one;
    struct call *two;

    for (uint32_t r = 0; r < 4; r++)
        submit(lab, r, 41, 1, 1);
    one = submit(lab, 0, 42, 1, 1);
    lab->now_s = 3;
    two = submit(lab, 3, 42, 1, 1);
    tick_at(lab, 9);
    assert_waits(one);
    tick_at(lab, 10);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    assert_failed(two, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "1-2");
    ck_assert_str_eq(metadata(&one->error, "step"), "42");
    ck_assert_str_eq(metadata(&one->error, "missing_states"), "1-2 idle last_step=41");
    ck_assert_str_eq(one->error.message, "step 42 timed out without 2 of 4 ranks (1-2): 1-2 idle last_step=41");
    assert_counters(lab, 1, 1, 0);
    lab_close(lab);
}
END_TEST

START_TEST(the_first_step_has_its_own_timeout)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 0, 1, 1);

    ck_assert_int_eq(step_next_deadline(lab->machine), 60 * NS_PER_S);
    tick_at(lab, 59);
    assert_waits(one);
    tick_at(lab, 60);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_int_eq(step_next_deadline(lab->machine), NO_DEADLINE);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_never_joined_is_missing_as_such)
{
    const struct step_settings settings = {2, 2, 10, 10};
    const double contribution[] = {1, 1};
    struct step_machine *machine = step_create(&settings, 0);
    struct call call = {0};
    double vector[6];

    ck_assert_int_eq(step_submit(machine, 0, 0, contribution, &call, NO_DEADLINE, 0, &call.error), LOSSD_OK);
    ck_assert_int_eq(step_rank_view(machine, 1).state, RANK_NEVER_JOINED);
    step_tick(machine, 10);
    ck_assert_int_eq(step_next_action(machine).kind, STEP_ACTION_REDUCE);
    step_fill_vector(machine, vector);
    ck_assert_double_eq(vector[2], 1);
    ck_assert_double_eq(vector[3], 0);
    ck_assert_double_eq(vector[4], STEP_REASON_NONE);
    ck_assert_double_eq(vector[5], STEP_REASON_MISSING);
    step_reduced(machine, vector, 10);
    ck_assert_str_eq(metadata(step_next_action(machine).error, "missing_states"), "1 never_joined");
    step_destroy(machine);
}
END_TEST

START_TEST(the_timeout_runs_from_an_announcement_too)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 1);
    ck_assert_int_eq(announce(lab, 0, 1, 1, 1), LOSSD_OK);
    tick_at(lab, 10);
    assert_counters(lab, 1, 1, 0);
    /* it had no call: it is told by the next one, once */
    assert_failed(submit(lab, 0, 1, 1, 1), LOSSD_STEP_TIMEOUT);
    assert_waits(submit(lab, 0, 1, 1, 1));
    lab_close(lab);
}
END_TEST

START_TEST(the_timeout_counts_from_what_is_in_now)
{
    struct lab *lab = lab_open(3);
    struct call *late;

    for (uint32_t r = 0; r < 3; r++)
        submit(lab, r, 0, 1, 1);
    submit(lab, 0, 1, 1, 1);
    lab->now_s = 8;
    late = submit(lab, 1, 2, 1, 1);
    submit(lab, 0, 2, 1, 1);
    tick_at(lab, 10);
    assert_waits(late);
    ck_assert_int_eq(step_next_deadline(lab->machine), 18 * NS_PER_S);
    tick_at(lab, 18);
    assert_failed(late, LOSSD_STEP_TIMEOUT);
    lab_close(lab);
}
END_TEST

START_TEST(a_step_announced_ahead_starts_its_clock_when_the_one_before_is_over)
{
    struct lab *lab = lab_open(2);

    do_steps(lab, 1);
    submit(lab, 0, 1, 1, 1);
    ck_assert_int_eq(announce(lab, 0, 2, 1, 1), LOSSD_OK);
    lab->now_s = 7;
    submit(lab, 1, 1, 1, 1);
    ck_assert_int_eq(step_next_deadline(lab->machine), 17 * NS_PER_S);
    lab_close(lab);
}
END_TEST

START_TEST(a_timeout_with_nobody_missing_is_a_desync)
{
    struct lab *lab = lab_open(2);
    struct call *one;

    do_steps(lab, 1);
    ck_assert_int_eq(announce(lab, 1, 5, 1, 1), LOSSD_OK);
    one = submit(lab, 0, 6, 1, 1);
    tick_at(lab, 10);
    assert_failed(one, LOSSD_STEP_DESYNC);
    ck_assert_str_eq(metadata(&one->error, "table"), "0:6 1:5");
    lab_close(lab);
}
END_TEST

START_TEST(a_timeout_tells_of_different_steps_too)
{
    struct lab *lab = lab_open(3);
    struct call *one;

    one = submit(lab, 0, 6, 1, 1);
    submit(lab, 1, 5, 1, 1);
    tick_at(lab, 60);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(metadata(&one->error, "missing_ranks"), "2");
    ck_assert_str_eq(metadata(&one->error, "table"), "0:6 1:5");
    lab_close(lab);
}
END_TEST

/* Priorities: refused, left, missing, different steps. */

START_TEST(a_refusal_is_named_before_a_loss_and_a_missing_rank)
{
    struct lab *lab = lab_open(4);
    struct call *one = submit(lab, 0, 0, 1, 1);

    refuse(lab, 1, 0);
    leave(lab, 2);
    tick_at(lab, 60);
    assert_failed(one, LOSSD_STEP_REJECTED_BY_PEER);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_left_is_named_before_a_missing_one)
{
    struct lab *lab = lab_open(4);
    struct call *one = submit(lab, 0, 0, 1, 1);

    leave(lab, 2);
    leave(lab, 3);
    tick_at(lab, 60);
    assert_failed(one, LOSSD_RANK_LEFT);
    ck_assert_str_eq(metadata(&one->error, "ranks"), "2-3");
    lab_close(lab);
}
END_TEST

/* Leaving. */

START_TEST(a_rank_that_leaves_ends_the_step_of_the_others)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 3, 1, 1);

    leave(lab, 1);
    assert_failed(one, LOSSD_RANK_LEFT);
    ck_assert_str_eq(metadata(&one->error, "ranks"), "1");
    ck_assert_str_eq(one->error.message, "step 3 can't be done: 1 of 2 ranks left (1)");
    ck_assert_int_eq(state_of(lab, 1), RANK_LEFT);
    assert_failed(submit(lab, 0, 4, 1, 1), LOSSD_RANK_LEFT);
    assert_counters(lab, 0, 2, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_leaves_ends_its_own_call_and_can_not_come_back)
{
    struct lab *lab = lab_open(2);
    struct call *one = submit(lab, 0, 3, 1, 1);

    leave(lab, 0);
    assert_failed(one, LOSSD_RANK_LEFT);
    assert_failed(submit(lab, 0, 4, 1, 1), LOSSD_RANK_LEFT);
    ck_assert_int_eq(announce(lab, 0, 4, 1, 1), LOSSD_RANK_LEFT);
    ck_assert(!step_all_left(lab->machine));
    leave(lab, 1);
    ck_assert(step_all_left(lab->machine));
    assert_counters(lab, 0, 0, 0);
    lab_close(lab);
}
END_TEST

START_TEST(a_rank_that_leaves_during_the_reduce_is_still_in_it)
{
    struct lab *lab = lab_open(2);
    struct call *one;
    struct call *two;

    lab->hold = true;
    one = submit(lab, 0, 0, 1, 1);
    two = submit(lab, 1, 0, 1, 1);
    leave(lab, 1);
    assert_failed(two, LOSSD_RANK_LEFT);
    lab_reduce(lab);
    assert_done(one, 2, 2);
    lab_close(lab);
}
END_TEST

START_TEST(the_vector_holds_denominators_then_steps_then_reasons)
{
    struct lab *lab = lab_open(3);

    lab->hold = true;
    submit(lab, 0, 0, 2, 6);
    leave(lab, 2);
    refuse(lab, 1, 0);
    ck_assert(lab->held);
    ck_assert_uint_eq(step_vector_size(&lab->settings), 8);
    ck_assert_double_eq(lab->vector[0], 2);
    ck_assert_double_eq(lab->vector[1], 6);
    ck_assert_double_eq(lab->vector[2], 1);
    ck_assert_double_eq(lab->vector[3], 1);
    ck_assert_double_eq(lab->vector[4], 0);
    ck_assert_double_eq(lab->vector[5], STEP_REASON_NONE);
    ck_assert_double_eq(lab->vector[6], STEP_REASON_REFUSED + LOSSD_NONFINITE_LOGITS);
    ck_assert_double_eq(lab->vector[7], STEP_REASON_LEFT);
    lab_reduce(lab);
    lab_close(lab);
}
END_TEST

START_TEST(ranks_are_listed_as_ranges_and_cut_at_a_whole_entry)
{
    const bool flags[] = {true, true, true, true, false, false, false, true, false, true};
    char text[32];

    step_format_ranks(flags, 10, text, sizeof text);
    ck_assert_str_eq(text, "0-3,7,9");
    step_format_ranks(flags, 10, text, 6);
    ck_assert_str_eq(text, "0-3,7");
    step_format_ranks(flags, 10, text, 5);
    ck_assert_str_eq(text, "0-3");
    step_format_ranks(flags, 10, text, 3);
    ck_assert_str_eq(text, "");
    step_format_ranks(flags, 0, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(every_other_of_4096_ranks_missing_is_told_in_full)
{
    struct step_settings settings = {4096, 2, 10, 10};
    const double contribution[] = {1, 1};
    struct step_machine *machine = step_create(&settings, 0);
    double *vector = calloc(step_vector_size(&settings), sizeof *vector);
    struct call *call = calloc(1, sizeof *call);
    const struct lossd_error *error;

    for (uint32_t r = 0; r < 4096; r += 2)
        ck_assert_int_eq(step_submit(machine, r, 0, contribution, call, NO_DEADLINE, 0, &call->error), LOSSD_OK);
    step_tick(machine, 10);
    ck_assert_int_eq(step_next_action(machine).kind, STEP_ACTION_REDUCE);
    step_fill_vector(machine, vector);
    ck_assert_double_eq(vector[0], 2048);
    step_reduced(machine, vector, 10);
    error = step_next_action(machine).error;
    ck_assert_int_eq(strncmp(metadata(error, "missing_ranks"), "1,3,5,7,", 8), 0);
    ck_assert_str_eq(metadata(error, "missing_ranks") + strlen(metadata(error, "missing_ranks")) - 10, ",4093,4095");
    ck_assert_int_eq(strncmp(metadata(error, "missing_states"), "1 never_joined; 3 never_joined; ", 32), 0);
    step_destroy(machine);
    free(vector);
    free(call);
}
END_TEST

START_TEST(half_of_4096_ranks_dead_at_once_are_told_in_full)
{
    enum { WORLD = 4096 };
    struct lab *lab = lab_open(WORLD);
    struct call *one;

    for (uint32_t r = 1; r < WORLD; r += 2)
        die(lab, r);
    one = submit(lab, 0, 0, 1, 1);
    assert_failed(one, LOSSD_STEP_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(metadata(&one->error, "missing_ranks"), "4093,4095"));
    lab_close(lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_attempt");
    TCase *tcase = tcase_create("rules");

    tcase_add_test(tcase, ranks_that_wait_at_different_steps_are_told_at_once);
    tcase_add_test(tcase, ranks_can_meet_again_on_either_side_of_a_desync);
    tcase_add_test(tcase, a_rank_that_only_announced_another_step_may_still_come);
    tcase_add_test(tcase, at_the_step_timeout_the_missing_are_named_with_what_they_were_last_seen_doing);
    tcase_add_test(tcase, the_first_step_has_its_own_timeout);
    tcase_add_test(tcase, a_rank_that_never_joined_is_missing_as_such);
    tcase_add_test(tcase, the_timeout_runs_from_an_announcement_too);
    tcase_add_test(tcase, the_timeout_counts_from_what_is_in_now);
    tcase_add_test(tcase, a_step_announced_ahead_starts_its_clock_when_the_one_before_is_over);
    tcase_add_test(tcase, a_timeout_with_nobody_missing_is_a_desync);
    tcase_add_test(tcase, a_timeout_tells_of_different_steps_too);
    tcase_add_test(tcase, a_refusal_is_named_before_a_loss_and_a_missing_rank);
    tcase_add_test(tcase, a_rank_that_left_is_named_before_a_missing_one);
    tcase_add_test(tcase, a_rank_that_leaves_ends_the_step_of_the_others);
    tcase_add_test(tcase, a_rank_that_leaves_ends_its_own_call_and_can_not_come_back);
    tcase_add_test(tcase, a_rank_that_leaves_during_the_reduce_is_still_in_it);
    tcase_add_test(tcase, the_vector_holds_denominators_then_steps_then_reasons);
    tcase_add_test(tcase, ranks_are_listed_as_ranges_and_cut_at_a_whole_entry);
    tcase_add_test(tcase, every_other_of_4096_ranks_missing_is_told_in_full);
    tcase_add_test(tcase, half_of_4096_ranks_dead_at_once_are_told_in_full);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
