/* Groups in which nobody waits for others: of one rank, and those that do not average. */
#include <math.h>

#include "support/registry_lab.h"
#include "support/runner.h"

static struct ticket *submit_without_step(struct registry *registry, float logit)
{
    struct ticket *ticket = lab_ticket("g", 0, 99, 1);

    ticket->submission.has_step = false;
    ticket->logits[0] = logit;
    registry_submit(registry, &ticket->submission);
    return ticket;
}

START_TEST(an_absent_step_counts_on_where_there_is_one_rank)
{
    struct registry *registry = lab_registry();
    struct ticket *ticket;

    lab_join(registry, "g", 0, 1);
    for (uint64_t step = 0; step < 3; step++) {
        ticket = submit_without_step(registry, 0.0F);
        ck_assert_int_eq(ticket_wait(ticket), LOSSD_OK);
        ck_assert_uint_eq(ticket->submission.result.step, step);
        ticket_free(ticket);
    }
    lab_join(registry, "g", 0, 2);
    ticket = submit_without_step(registry, 0.0F);
    ck_assert_str_eq(ticket->submission.error.field, "step");
    ticket_expect(ticket, LOSSD_STEP_RANGE);
    lab_end(registry);
}
END_TEST

START_TEST(a_bad_batch_without_a_step_is_that_of_the_step_it_would_have_been)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;
    struct ticket *good;

    lab_join(registry, "g", 0, 1);
    ck_assert_int_eq(lab_announce(registry, "g", 0, 4, 1, 1, &err), LOSSD_OK);
    ticket_expect(submit_without_step(registry, NAN), LOSSD_NONFINITE_LOGITS);
    good = submit_without_step(registry, 0.0F); /* keeps the promise that the bad one broke */
    ck_assert_int_eq(ticket_wait(good), LOSSD_OK);
    ck_assert_uint_eq(good->submission.result.step, 4);
    ticket_free(good);
    lab_expect_counters(registry, 1, 0, 0, 1);
    lab_end(registry);
}
END_TEST

START_TEST(without_global_average_nobody_waits_and_nothing_is_summed)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("off");
    struct ticket *ticket;
    struct group_view view;

    config->config.global_average = false;
    lab_join_all(registry, config, 2);
    ticket = lab_submit(registry, "g", 1, 7, 6);
    ck_assert_int_eq(ticket_wait(ticket), LOSSD_OK);
    ck_assert_uint_eq(ticket->submission.result.step, 7);
    ck_assert_double_eq(ticket->submission.result.candidate_factor, 1);
    ck_assert_double_eq(ticket->submission.result.world.candidates, 6);
    ck_assert_uint_eq(ticket->submission.result.world.ranks, 1);
    ck_assert_double_eq_tol(ticket->submission.result.loss, log(2), 1e-6);
    ticket_free(ticket);
    ticket_expect(lab_submit(registry, "g", 0, 3, 2), LOSSD_OK);
    ticket_expect(lab_submit(registry, "g", 0, 3, 5), LOSSD_STEP_PAYLOAD_CONFLICT);
    view = lab_view(registry, "g");
    ck_assert_str_eq(view.engine, "none");
    ck_assert_uint_eq(view.ranks[0].last_step, 3);
    ck_assert_uint_eq(view.ranks[1].last_step, 7);
    group_view_finish(&view);
    ticket = lab_ticket("g", 0, 4, 2);
    ticket->logits[0] = NAN;
    registry_submit(registry, &ticket->submission);
    ticket_expect(ticket, LOSSD_NONFINITE_LOGITS);
    lab_expect_counters(registry, 2, 0, 0, 0); /* there is no attempt that could fail */
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_alone");
    TCase *tcase = tcase_create("nobody waits");

    tcase_add_test(tcase, an_absent_step_counts_on_where_there_is_one_rank);
    tcase_add_test(tcase, a_bad_batch_without_a_step_is_that_of_the_step_it_would_have_been);
    tcase_add_test(tcase, without_global_average_nobody_waits_and_nothing_is_summed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
