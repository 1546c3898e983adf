/* Groups whose members are all dead: what was left of a run that was killed is not what the next one meets. */
#include "group/registry.h"

#include "support/registry_lab.h"
#include "support/runner.h"

static void die(struct registry *registry, uint32_t rank)
{
    lab_detach(registry, rank, lab_attach(registry, rank));
}

static enum lossd_status try_join(struct registry *registry, uint32_t rank, uint32_t world_size, const char *digest,
                                  uint64_t instance, struct join_answer *answer)
{
    const struct join_request request = {
        .group = "g",
        .has_rank = true,
        .rank = rank,
        .has_world_size = true,
        .world_size = world_size,
        .nnodes = 1,
        .config = lab_config(digest),
        .has_instance = true,
        .instance = instance,
    };

    return lab_try_join(registry, request, answer, NULL);
}

/* The generation. */
static uint64_t join_as(struct registry *registry, uint32_t rank, uint32_t world_size, const char *digest,
                        uint64_t instance)
{
    struct join_answer answer;

    ck_assert_int_eq(try_join(registry, rank, world_size, digest, instance, &answer), LOSSD_OK);
    ck_assert_str_eq(answer.digest, digest);
    return answer.generation;
}

START_TEST(a_rank_that_was_no_member_begins_a_generation_where_all_members_are_dead)
{
    struct registry *registry = lab_registry();
    struct ticket *dead;
    struct ticket *late;
    uint64_t token;

    ck_assert_uint_eq(join_as(registry, 0, 2, "a", 5), 1);
    token = lab_attach(registry, 0);
    dead = lab_submit(registry, "g", 0, 0, 3);
    lab_detach(registry, 0, token); /* its call is still open: over another transport, it may be */
    ck_assert_uint_eq(join_as(registry, 1, 2, "a", 6), 2);
    ck_assert_int_eq(ticket_wait(dead), LOSSD_STALE_GENERATION);
    ck_assert_str_eq(dead->submission.error.message,
                     "rank 1 joined when the processes of all members were dead: the group is at generation 2");
    ck_assert_str_eq(lab_metadata(&dead->submission.error, "generation"), "2");
    ticket_free(dead);
    ck_assert_uint_eq(join_as(registry, 0, 2, "a", 7), 2);
    late = lab_submit(registry, "g", 1, 0, 1);
    ck_assert(!ticket_is_done(late));
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_OK);
    ticket_expect(late, LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(the_first_after_the_dead_brings_config_and_world_size)
{
    struct registry *registry = lab_registry();

    join_as(registry, 0, 2, "a", 5);
    die(registry, 0);
    ck_assert_uint_eq(join_as(registry, 2, 3, "b", 6), 2);
    ck_assert_int_eq(try_join(registry, 1, 3, "a", 7, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_uint_eq(join_as(registry, 1, 3, "b", 7), 2);
    lab_end(registry);
}
END_TEST

START_TEST(those_who_left_are_as_gone_as_the_dead)
{
    struct registry *registry = lab_registry();

    join_as(registry, 0, 3, "a", 5);
    join_as(registry, 1, 3, "a", 6);
    die(registry, 0);
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    ck_assert_uint_eq(join_as(registry, 2, 3, "a", 7), 2);
    lab_end(registry);
}
END_TEST

START_TEST(one_member_that_lives_or_may_keeps_the_generation)
{
    struct registry *registry = lab_registry();

    join_as(registry, 0, 4, "a", 5);
    join_as(registry, 1, 4, "a", 6); /* never attached: nobody knows */
    die(registry, 0);
    ck_assert_int_eq(try_join(registry, 2, 4, "b", 7, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_uint_eq(join_as(registry, 2, 4, "a", 7), 1);
    die(registry, 1);
    die(registry, 2);
    (void)lab_attach(registry, 1); /* is back */
    ck_assert_uint_eq(join_as(registry, 3, 4, "a", 8), 1);
    lab_end(registry);
}
END_TEST

START_TEST(a_dead_rank_that_is_heard_of_over_another_transport_lives)
{
    struct registry *registry = lab_registry();
    struct ticket *ticket;

    join_as(registry, 0, 2, "a", 5);
    die(registry, 0);
    ticket = lab_submit(registry, "g", 0, 0, 1);
    ck_assert_uint_eq(join_as(registry, 1, 2, "a", 6), 1);
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_OK);
    ticket_expect(ticket, LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(the_same_instances_come_back_though_all_were_seen_dead)
{
    struct registry *registry = lab_registry();
    struct ticket *ticket;

    join_as(registry, 0, 2, "a", 5);
    join_as(registry, 1, 2, "a", 6);
    die(registry, 0);
    die(registry, 1);
    ck_assert_uint_eq(join_as(registry, 1, 2, "a", 6), 1);
    ck_assert_uint_eq(join_as(registry, 0, 2, "a", 5), 1);
    die(registry, 0);
    die(registry, 1);
    (void)lab_attach(registry, 0);
    (void)lab_attach(registry, 1);
    ticket = lab_submit(registry, "g", 0, 0, 1);
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_OK);
    ticket_expect(ticket, LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(a_declared_group_keeps_its_config_and_size)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;

    ck_assert_int_eq(registry_declare(registry, "g", 3, lab_config("a"), &err), LOSSD_OK);
    die(registry, 0);
    ck_assert_int_eq(try_join(registry, 1, 3, "b", 6, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_int_eq(try_join(registry, 1, 2, "a", 6, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_uint_eq(join_as(registry, 1, 3, "a", 6), 2);
    die(registry, 1);
    (void)lab_attach(registry, 2); /* joins never, and lives */
    ck_assert_uint_eq(join_as(registry, 0, 3, "a", 7), 2);
    lab_end(registry);
}
END_TEST

START_TEST(without_global_average_the_dead_are_told_from_the_living_too)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("a");
    struct join_request request = {
        .group = "g",
        .has_rank = true,
        .has_world_size = true,
        .world_size = 3,
        .nnodes = 1,
        .config = config,
    };

    config->config.global_average = false;
    ck_assert_int_eq(lab_try_join(registry, request, NULL, NULL), LOSSD_OK);
    ck_assert_uint_eq(join_as(registry, 1, 3, "a", 6), 1);
    die(registry, 0);
    (void)lab_attach(registry, 1);
    ck_assert_uint_eq(join_as(registry, 1, 3, "a", 6), 1);
    die(registry, 1);
    ck_assert_uint_eq(join_as(registry, 2, 3, "a", 7), 2);
    lab_end(registry);
}
END_TEST

/* The call of generation 1 comes when it is over. */
static void expect_why(struct registry *registry, uint32_t rank, const char *message)
{
    struct ticket *late = lab_ticket("g", rank, 0, 1);

    late->submission.has_generation = true;
    late->submission.generation = 1;
    registry_submit(registry, &late->submission);
    ck_assert_int_eq(ticket_wait(late), LOSSD_STALE_GENERATION);
    ck_assert_str_eq(late->submission.error.message, message);
    ck_assert_str_eq(lab_metadata(&late->submission.error, "generation"), "2");
    ticket_free(late);
}

START_TEST(who_ended_a_generation_is_told)
{
    struct registry *registry = lab_registry();
    struct ticket *open;

    join_as(registry, 0, 2, "a", 5);
    join_as(registry, 1, 2, "a", 6);
    open = lab_submit(registry, "g", 1, 0, 1);
    join_as(registry, 0, 2, "a", 7);
    ck_assert_int_eq(ticket_wait(open), LOSSD_STALE_GENERATION);
    ck_assert_str_eq(open->submission.error.message,
                     "rank 0 joined again from another process: the group is at generation 2");
    ticket_free(open);
    expect_why(registry, 1, "is 1, but the group is at generation 2: rank 0 joined again from another process");
    lab_end(registry);

    registry = lab_registry();
    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 0, 2);
    expect_why(registry, 0, "is 1, but the group is at generation 2: rank 0 joined again");
    lab_end(registry);

    registry = lab_registry();
    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    ck_assert_int_eq(lab_leave(registry, "g", 1), LOSSD_OK);
    lab_join(registry, "g", 1, 2);
    expect_why(registry, 0, "is 1, but the group is at generation 2: rank 1 joined again after it had left");
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dead groups");
    TCase *tcase = tcase_create("dead groups");

    tcase_add_test(tcase, a_rank_that_was_no_member_begins_a_generation_where_all_members_are_dead);
    tcase_add_test(tcase, the_first_after_the_dead_brings_config_and_world_size);
    tcase_add_test(tcase, those_who_left_are_as_gone_as_the_dead);
    tcase_add_test(tcase, one_member_that_lives_or_may_keeps_the_generation);
    tcase_add_test(tcase, a_dead_rank_that_is_heard_of_over_another_transport_lives);
    tcase_add_test(tcase, the_same_instances_come_back_though_all_were_seen_dead);
    tcase_add_test(tcase, a_declared_group_keeps_its_config_and_size);
    tcase_add_test(tcase, without_global_average_the_dead_are_told_from_the_living_too);
    tcase_add_test(tcase, who_ended_a_generation_is_told);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
