/* Generations of groups: how they begin and end, by joining again and by leaving. */
#include "support/registry_lab.h"
#include "support/runner.h"

static bool group_exists(struct registry *registry)
{
    struct group_view view;
    struct lossd_error err;
    const bool exists = registry_view(registry, "g", &view, &err) == LOSSD_OK;

    if (exists)
        group_view_finish(&view);
    return exists;
}

START_TEST(a_member_that_joins_again_begins_a_generation_without_members)
{
    struct registry *registry = lab_registry();
    struct ticket *old;
    struct ticket *unknown;

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    old = lab_submit(registry, "g", 1, 0, 1);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 3), 2);
    ck_assert_int_eq(ticket_wait(old), LOSSD_STALE_GENERATION);
    ck_assert_str_eq(lab_metadata(&old->submission.error, "generation"), "2");
    ticket_free(old);
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_RANK_NOT_JOINED);
    unknown = lab_ticket("g", 0, 0, 1);
    unknown->submission.has_generation = true;
    unknown->submission.generation = 1;
    registry_submit(registry, &unknown->submission);
    ticket_expect(unknown, LOSSD_STALE_GENERATION);
    unknown = lab_ticket("g", 0, 0, 1);
    unknown->submission.has_generation = true;
    unknown->submission.generation = 3; /* not yet */
    registry_submit(registry, &unknown->submission);
    ticket_expect(unknown, LOSSD_STALE_GENERATION);
    lab_end(registry);
}
END_TEST

START_TEST(a_name_that_all_members_left_is_free_and_its_generation_keeps_rising)
{
    struct registry *registry = lab_registry();
    struct group_view view;
    struct lossd_error err;

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 0, 2);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 2), 3);
    lab_join(registry, "g", 1, 2);
    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_RANK_LEFT);
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    ck_assert_int_eq(registry_view(registry, "g", &view, &err), LOSSD_GROUP_NOT_FOUND);
    ck_assert_str_eq(lab_metadata(&err, "group"), "g");
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_GROUP_NOT_FOUND);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 4), 4);
    lab_end(registry);
}
END_TEST

START_TEST(a_rank_that_left_and_joins_again_begins_a_generation)
{
    struct registry *registry = lab_registry();

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 2), 2);
    lab_end(registry);
}
END_TEST

START_TEST(a_rank_that_leaves_ends_the_call_of_its_peer)
{
    struct registry *registry = lab_registry();
    struct ticket *peer;

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    peer = lab_submit(registry, "g", 0, 0, 1);
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    ck_assert_int_eq(ticket_wait(peer), LOSSD_RANK_LEFT);
    ck_assert_str_eq(lab_metadata(&peer->submission.error, "ranks"), "1");
    ticket_free(peer);
    lab_end(registry);
}
END_TEST

START_TEST(a_group_is_gone_when_its_members_left_whether_or_not_all_ranks_had_come)
{
    struct registry *registry = lab_registry();

    lab_join(registry, "g", 0, 3);
    lab_join(registry, "g", 2, 3);
    ck_assert_int_eq(lab_leave(registry, "g", 2), LOSSD_OK);
    ck_assert(group_exists(registry));
    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ck_assert(!group_exists(registry));
    lab_end(registry);
}
END_TEST

/* Its names are the config's: whoever encodes it may be slower than two peers that join again. */
START_TEST(a_result_outlives_the_generation_that_it_is_from)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("a");
    struct task_config *task = arena_alloc(&config->arena, sizeof *task);
    struct ticket *answered;

    *task = config->config.tasks[0];
    task->name = arena_strndup(&config->arena, "click", 5);
    config->config.tasks = task;
    lab_join_all(registry, config, 2);
    answered = lab_submit(registry, "g", 0, 0, 1);
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_OK);
    ck_assert_int_eq(ticket_wait(answered), LOSSD_OK);
    ck_assert_uint_eq(lab_join(registry, "g", 1, 2), 2);
    ck_assert_uint_eq(lab_join(registry, "g", 1, 2), 3);
    ck_assert_str_eq(answered->submission.result.tasks[0].name, "click");
    lab_end(registry);
    ck_assert_str_eq(answered->submission.result.tasks[0].name, "click");
    ticket_free(answered);
}
END_TEST

START_TEST(a_freed_name_that_was_younger_does_not_turn_generations_back)
{
    struct registry *registry = lab_registry();

    lab_join(registry, "young", 0, 1);
    lab_join(registry, "g", 0, 1);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 1), 2);
    ck_assert_int_eq(lab_leave(registry, "g", 0), LOSSD_OK);
    ck_assert_int_eq(lab_leave(registry, "young", 0), LOSSD_OK);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 1), 3);
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generations");
    TCase *tcase = tcase_create("generations");

    tcase_add_test(tcase, a_member_that_joins_again_begins_a_generation_without_members);
    tcase_add_test(tcase, a_name_that_all_members_left_is_free_and_its_generation_keeps_rising);
    tcase_add_test(tcase, a_rank_that_left_and_joins_again_begins_a_generation);
    tcase_add_test(tcase, a_rank_that_leaves_ends_the_call_of_its_peer);
    tcase_add_test(tcase, a_group_is_gone_when_its_members_left_whether_or_not_all_ranks_had_come);
    tcase_add_test(tcase, a_result_outlives_the_generation_that_it_is_from);
    tcase_add_test(tcase, a_freed_name_that_was_younger_does_not_turn_generations_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
