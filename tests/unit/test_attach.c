/* Connections that speak for ranks, and what their end means for a group. */
#include "group/registry.h"

#include "support/registry_lab.h"
#include "support/runner.h"

static struct address address_of(uint32_t rank)
{
    return (struct address){.group = "g", .has_rank = true, .rank = rank};
}

static void expect_state(struct registry *registry, uint32_t rank, enum rank_state state)
{
    struct group_view view = lab_view(registry, "g");

    ck_assert_int_eq(view.ranks[rank].state, state);
    group_view_finish(&view);
}

START_TEST(an_attachment_says_what_the_group_is)
{
    struct registry *registry = lab_registry_of_two();
    const struct address address = address_of(1);
    struct attachment attachment;
    struct lossd_error err;

    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_OK);
    ck_assert_uint_eq(attachment.generation, 1);
    ck_assert_str_eq(attachment.digest, "a");
    ck_assert_uint_eq(attachment.num_tasks, 1);
    ck_assert_str_eq(attachment.tasks[0].name, "click");
    ck_assert_uint_eq(attachment.tasks[0].num_class, 1);
    ck_assert_uint_eq(attachment.tasks[0].num_losses, 1);
    lab_end(registry);
}
END_TEST

START_TEST(a_wrong_address_can_not_be_attached)
{
    struct registry *registry = lab_registry();
    struct address address = address_of(0);
    struct attachment attachment = {.token = 77};
    struct lossd_error err;

    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_GROUP_NOT_FOUND);
    lab_join(registry, "g", 0, 2);
    address.rank = 2;
    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_RANK_RANGE);
    address.rank = 1;
    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_RANK_NOT_JOINED);
    address.rank = 0;
    address.has_generation = true;
    address.generation = 9;
    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_STALE_GENERATION);
    address.has_generation = false;
    address.has_rank = false;
    ck_assert_int_eq(registry_attach(registry, &address, &attachment, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_uint_eq(attachment.token, 77);
    lab_end(registry);
}
END_TEST

START_TEST(the_end_of_a_connection_is_told_to_whoever_waits_at_once)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);
    struct ticket *ticket = lab_submit(registry, "g", 0, 0, 1);

    ck_assert(!ticket_is_done(ticket));
    lab_detach(registry, 1, token);
    ck_assert_int_eq(ticket_wait(ticket), LOSSD_STEP_TIMEOUT);
    ck_assert_str_eq(lab_metadata(&ticket->submission.error, "missing_ranks"), "1");
    ck_assert_str_eq(lab_metadata(&ticket->submission.error, "missing_states"), "1 dead");
    ticket_free(ticket);
    expect_state(registry, 1, RANK_DEAD);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_STEP_TIMEOUT);
    lab_expect_counters(registry, 0, 2, 0, 2);
    lab_end(registry);
}
END_TEST

START_TEST(a_batch_that_was_parked_when_its_connection_ended_counts)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);
    struct ticket *dead = lab_submit(registry, "g", 1, 0, 3);

    registry_cancel(registry, &dead->submission);
    ticket_expect(dead, LOSSD_CLIENT_GONE);
    lab_detach(registry, 1, token);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_OK);
    lab_expect_counters(registry, 1, 0, 0, 1);
    lab_end(registry);
}
END_TEST

START_TEST(the_newer_connection_speaks_for_the_rank)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t first = lab_attach(registry, 1);
    const uint64_t second = lab_attach(registry, 1);

    ck_assert_uint_ne(first, second);
    lab_detach(registry, 1, first);
    expect_state(registry, 1, RANK_IDLE);
    lab_detach(registry, 1, second);
    expect_state(registry, 1, RANK_DEAD);
    lab_end(registry);
}
END_TEST

START_TEST(a_rank_that_attaches_again_is_alive_and_the_same_end_counts_once)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t first = lab_attach(registry, 1);
    uint64_t second;

    lab_detach(registry, 1, first);
    expect_state(registry, 1, RANK_DEAD);
    second = lab_attach(registry, 1);
    expect_state(registry, 1, RANK_IDLE);
    lab_detach(registry, 1, first);
    expect_state(registry, 1, RANK_IDLE);
    lab_detach(registry, 1, second);
    expect_state(registry, 1, RANK_DEAD);
    lab_end(registry);
}
END_TEST

START_TEST(a_token_of_another_rank_or_none_changes_nothing)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);

    lab_detach(registry, 0, token);
    lab_detach(registry, 7, token);
    lab_detach(registry, 0, 0);
    expect_state(registry, 0, RANK_IDLE);
    expect_state(registry, 1, RANK_IDLE);
    lab_end(registry);
}
END_TEST

START_TEST(a_call_over_another_transport_brings_the_rank_back)
{
    struct registry *registry = lab_registry_of_two();
    struct ticket *ticket;

    lab_detach(registry, 1, lab_attach(registry, 1));
    ticket = lab_submit(registry, "g", 1, 0, 1);
    expect_state(registry, 1, RANK_WAITING);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_OK);
    ticket_expect(ticket, LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(joining_again_as_the_same_instance_keeps_the_connection_and_brings_the_rank_back)
{
    struct registry *registry = lab_registry();
    struct join_request request = {
        .group = "g",
        .has_rank = true,
        .has_world_size = true,
        .world_size = 1,
        .nnodes = 1,
        .has_instance = true,
        .instance = 5,
    };
    uint64_t token;

    request.config = lab_config("a");
    ck_assert_int_eq(lab_try_join(registry, request, NULL, NULL), LOSSD_OK);
    token = lab_attach(registry, 0);
    request.config = lab_config("a");
    ck_assert_int_eq(lab_try_join(registry, request, NULL, NULL), LOSSD_OK);
    lab_detach(registry, 0, token);
    expect_state(registry, 0, RANK_DEAD);
    request.config = lab_config("a");
    ck_assert_int_eq(lab_try_join(registry, request, NULL, NULL), LOSSD_OK);
    expect_state(registry, 0, RANK_IDLE);
    lab_end(registry);
}
END_TEST

START_TEST(a_connection_of_an_older_generation_ends_without_a_word)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);
    struct address address = address_of(1);

    ck_assert_uint_eq(lab_join(registry, "g", 0, 2), 2);
    ck_assert_uint_eq(lab_join(registry, "g", 1, 2), 2);
    address.has_generation = true;
    address.generation = 1;
    registry_detach(registry, &address, token);
    lab_detach(registry, 1, token);
    expect_state(registry, 1, RANK_IDLE);
    lab_end(registry);
}
END_TEST

START_TEST(a_rank_that_left_is_not_dead_when_its_connection_ends)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);

    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    lab_detach(registry, 1, token);
    expect_state(registry, 1, RANK_LEFT);
    lab_end(registry);
}
END_TEST

START_TEST(a_connection_may_outlive_its_group)
{
    struct registry *registry = lab_registry_of_two();
    const uint64_t token = lab_attach(registry, 1);

    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    lab_detach(registry, 1, token);
    ck_assert_uint_eq(lab_join(registry, "g", 1, 2), 2);
    lab_detach(registry, 1, token);
    expect_state(registry, 1, RANK_IDLE);
    lab_end(registry);
}
END_TEST

START_TEST(ranks_of_declared_groups_attach_without_joining)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;
    uint64_t token;

    ck_assert_int_eq(registry_declare(registry, "g", 2, lab_config("a"), &err), LOSSD_OK);
    token = lab_attach(registry, 1);
    expect_state(registry, 1, RANK_NEVER_JOINED);
    lab_detach(registry, 1, token);
    expect_state(registry, 1, RANK_DEAD);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_STEP_TIMEOUT);
    lab_end(registry);
}
END_TEST

START_TEST(without_global_average_a_death_is_seen_and_nothing_else)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("a");

    config->config.global_average = false;
    lab_join_all(registry, config, 2);
    lab_detach(registry, 1, lab_attach(registry, 1));
    expect_state(registry, 1, RANK_DEAD);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_OK);
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_OK);
    expect_state(registry, 1, RANK_IDLE);
    lab_end(registry);
}
END_TEST

START_TEST(a_submission_can_be_used_again_after_a_reset)
{
    struct registry *registry = lab_registry();
    struct ticket *ticket = lab_ticket("g", 0, 0, 2);
    struct submission *submission = &ticket->submission;
    const struct batch batch = submission->batch;

    lab_join(registry, "g", 0, 1);
    submission->has_generation = true;
    submission->generation = 9;
    submission->deadline_ns = 1;
    registry_submit(registry, submission);
    ck_assert_int_eq(ticket_wait(ticket), LOSSD_STALE_GENERATION);
    submission_reset(submission);
    ck_assert_int_eq(submission->error.status, LOSSD_OK);
    ck_assert_str_eq(submission->error.message, "");
    ck_assert_str_eq(submission->group_name, "");
    ck_assert(!submission->has_rank && !submission->has_step && !submission->has_generation);
    ck_assert_int_eq(submission->deadline_ns, INT64_MAX);
    ck_assert_ptr_null(submission->group);
    ck_assert_ptr_eq(submission->owner, ticket);
    for (uint64_t step = 0; step < 3; step++) {
        submission->group_name[0] = 'g';
        submission->group_name[1] = '\0';
        submission->batch = batch;
        registry_submit(registry, submission);
        while (atomic_load(&ticket->ends) < (int)step + 2)
            ;
        ck_assert_int_eq(submission->error.status, LOSSD_OK);
        ck_assert_uint_eq(submission->result.step, step);
        ck_assert(!submission->result.replayed);
        submission_reset(submission);
    }
    atomic_store(&ticket->ends, 1);
    ticket_free(ticket);
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attach");
    TCase *tcase = tcase_create("attachments");

    tcase_add_test(tcase, an_attachment_says_what_the_group_is);
    tcase_add_test(tcase, a_wrong_address_can_not_be_attached);
    tcase_add_test(tcase, the_end_of_a_connection_is_told_to_whoever_waits_at_once);
    tcase_add_test(tcase, a_batch_that_was_parked_when_its_connection_ended_counts);
    tcase_add_test(tcase, the_newer_connection_speaks_for_the_rank);
    tcase_add_test(tcase, a_rank_that_attaches_again_is_alive_and_the_same_end_counts_once);
    tcase_add_test(tcase, a_token_of_another_rank_or_none_changes_nothing);
    tcase_add_test(tcase, a_call_over_another_transport_brings_the_rank_back);
    tcase_add_test(tcase, joining_again_as_the_same_instance_keeps_the_connection_and_brings_the_rank_back);
    tcase_add_test(tcase, a_connection_of_an_older_generation_ends_without_a_word);
    tcase_add_test(tcase, a_rank_that_left_is_not_dead_when_its_connection_ends);
    tcase_add_test(tcase, a_connection_may_outlive_its_group);
    tcase_add_test(tcase, ranks_of_declared_groups_attach_without_joining);
    tcase_add_test(tcase, without_global_average_a_death_is_seen_and_nothing_else);
    tcase_add_test(tcase, a_submission_can_be_used_again_after_a_reset);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
