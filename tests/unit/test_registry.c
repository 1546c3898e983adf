/* Who is in which group: joining, declared groups, limits, views. */
#include "group/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/registry_lab.h"
#include "support/runner.h"

/* A join of rank 0 in a world of 2 to group "g", with config digest "a". */
static struct join_request request_of(uint32_t rank)
{
    return (struct join_request){
        .group = "g",
        .has_rank = true,
        .rank = rank,
        .has_world_size = true,
        .world_size = 2,
        .nnodes = 1,
        .config = lab_config("a"),
    };
}

START_TEST(the_first_to_join_makes_the_group_and_the_others_are_in_its_generation)
{
    struct registry *registry = lab_registry();
    struct group_view view;
    struct lossd_error err;

    ck_assert_uint_eq(lab_join(registry, "g", 1, 2), 1);
    ck_assert_uint_eq(lab_join(registry, "g", 0, 2), 1);
    ck_assert_int_eq(registry_view(registry, "g", &view, &err), LOSSD_OK);
    ck_assert_str_eq(view.name, "g");
    ck_assert_uint_eq(view.generation, 1);
    ck_assert_uint_eq(view.world_size, 2);
    ck_assert_str_eq(view.engine, "local");
    ck_assert_str_eq(view.digest, "a");
    ck_assert_uint_eq(view.config.size, 1);
    ck_assert_int_eq(view.ranks[1].state, RANK_IDLE);
    group_view_finish(&view);
    lab_end(registry);
}
END_TEST

START_TEST(the_same_instance_may_join_again)
{
    struct registry *registry = lab_registry();
    struct join_request request = request_of(0);
    struct join_answer answer;

    request.has_instance = true;
    request.instance = 77;
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    request.config = lab_config("a");
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    ck_assert_uint_eq(answer.generation, 1);
    request.config = lab_config("b");
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    request.config = lab_config("b");
    request.instance = 78;
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    ck_assert_uint_eq(answer.generation, 2);
    ck_assert_str_eq(answer.digest, "b");
    lab_end(registry);
}
END_TEST

START_TEST(members_have_to_agree)
{
    struct registry *registry = lab_registry();
    struct join_request request;
    struct config_blob first_seen = {0};
    struct join_answer answer;
    struct lossd_error err;

    lab_join(registry, "g", 0, 2);
    request = request_of(1);
    request.world_size = 3;
    ck_assert_int_eq(lab_try_join(registry, request, NULL, &err), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_str_eq(err.field, "world_size");
    ck_assert_str_eq(lab_metadata(&err, "mine"), "3");
    ck_assert_str_eq(lab_metadata(&err, "first_seen"), "2");
    request = request_of(1);
    request.nnodes = 2;
    ck_assert_int_eq(lab_try_join(registry, request, NULL, &err), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_str_eq(err.field, "nnodes");
    request = request_of(1);
    owned_config_destroy(request.config);
    request.config = lab_config("other");
    error_init(&err);
    ck_assert_int_eq(registry_join(registry, &request, &answer, &first_seen, &err), LOSSD_CONFIG_DIGEST_MISMATCH);
    ck_assert_str_eq(err.field, "config");
    ck_assert_uint_eq(first_seen.size, 1);
    ck_assert_mem_eq(first_seen.bytes, "a", 1);
    ck_assert_ptr_nonnull(request.config);
    owned_config_destroy(request.config);
    free(first_seen.bytes);
    lab_end(registry);
}
END_TEST

START_TEST(a_join_that_makes_no_sense_is_refused_with_its_field)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;
    struct join_request request;

#define REFUSED(change, wanted_status, wanted_field)                                                                   \
    request = request_of(0);                                                                                           \
    change;                                                                                                            \
    ck_assert_int_eq(lab_try_join(registry, request, NULL, &err), wanted_status);                                      \
    ck_assert_str_eq(err.field, wanted_field)

    REFUSED(request.group = "", LOSSD_INVALID_ARGUMENT, "group");
    REFUSED(request.group = "a b", LOSSD_INVALID_ARGUMENT, "group");
    REFUSED(request.has_world_size = false, LOSSD_INVALID_ARGUMENT, "world_size");
    REFUSED(request.world_size = 0, LOSSD_INVALID_ARGUMENT, "world_size");
    REFUSED(request.world_size = 9, LOSSD_LIMIT_EXCEEDED, "world_size");
    REFUSED(request.rank = 2, LOSSD_RANK_RANGE, "rank");
    REFUSED(request.nnodes = 0, LOSSD_INVALID_ARGUMENT, "nnodes");
    REFUSED(request.nnodes = 2, LOSSD_NOT_SUPPORTED, "nnodes");
    REFUSED((request.nnodes = 2, request.has_local_world_size = true, request.local_world_size = 1),
            LOSSD_NOT_SUPPORTED, "nnodes");
    REFUSED(request.node_rank = 1, LOSSD_INVALID_ARGUMENT, "node_rank");
    REFUSED((request.has_local_world_size = true, request.local_world_size = 1), LOSSD_INVALID_ARGUMENT,
            "local_world_size");
    REFUSED((owned_config_destroy(request.config), request.config = NULL), LOSSD_INVALID_ARGUMENT, "config");
    REFUSED(request.config->config.num_tasks = 0, LOSSD_INVALID_CONFIG, "config.tasks");
#undef REFUSED
    ck_assert_uint_eq(lab_join(registry, "g", 0, 8), 1);
    lab_end(registry);
}
END_TEST

START_TEST(groups_are_limited_and_a_freed_one_makes_room)
{
    struct registry *registry = lab_registry();
    struct join_request request = request_of(0);
    struct lossd_error err;

    lab_join(registry, "one", 0, 1);
    lab_join(registry, "two", 0, 1);
    lab_join(registry, "three", 0, 1);
    lab_join(registry, "four", 0, 1);
    ck_assert_int_eq(lab_try_join(registry, request, NULL, &err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_str_eq(lab_metadata(&err, "limit"), "groups");
    ck_assert_int_eq(lab_leave(registry, "two", 0), LOSSD_OK);
    request.config = lab_config("a");
    ck_assert_int_eq(lab_try_join(registry, request, NULL, &err), LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(ranks_of_a_declared_group_need_not_join)
{
    struct registry *registry = lab_registry();
    struct lossd_error err;
    struct ticket *one;

    ck_assert_int_eq(registry_declare(registry, "d", 2, lab_config("a"), &err), LOSSD_OK);
    one = lab_submit(registry, "d", 0, 0, 1);
    ticket_expect(lab_submit(registry, "d", 1, 0, 1), LOSSD_OK);
    ticket_expect(one, LOSSD_OK);
    ck_assert_int_eq(lab_leave(registry, "d", 0), LOSSD_OK);
    ticket_expect(lab_submit(registry, "d", 1, 1, 1), LOSSD_RANK_LEFT);
    /* when all have left it begins anew */
    ck_assert_int_eq(lab_leave(registry, "d", 1), LOSSD_OK);
    one = lab_submit(registry, "d", 0, 0, 1);
    ticket_expect(lab_submit(registry, "d", 1, 0, 1), LOSSD_OK);
    ticket_expect(one, LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(a_declared_group_keeps_its_config_and_world_over_generations)
{
    struct registry *registry = lab_registry();
    struct join_request request = {.group = "d", .has_rank = true, .rank = 1, .nnodes = 1};
    struct join_answer answer;
    struct lossd_error err;

    ck_assert_int_eq(registry_declare(registry, "d", 2, lab_config("a"), &err), LOSSD_OK);
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    ck_assert_uint_eq(answer.generation, 1);
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_OK);
    ck_assert_uint_eq(answer.generation, 2);
    ck_assert_str_eq(answer.digest, "a");
    request.config = lab_config("b");
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    request.config = NULL;
    request.has_world_size = true;
    request.world_size = 3;
    ck_assert_int_eq(lab_try_join(registry, request, &answer, NULL), LOSSD_CONFIG_DIGEST_MISMATCH);
    lab_end(registry);
}
END_TEST

START_TEST(a_declaration_that_makes_no_sense_is_refused)
{
    struct registry *registry = lab_registry();
    struct owned_config *config = lab_config("a");
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(registry_declare(registry, "a b", 2, config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "name");
    ck_assert_int_eq(registry_declare(registry, "d", 0, config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(registry_declare(registry, "d", 9, config, &err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_int_eq(registry_declare(registry, "d", 2, config, &err), LOSSD_OK);
    config = lab_config("a");
    ck_assert_int_eq(registry_declare(registry, "d", 2, config, &err), LOSSD_INVALID_ARGUMENT);
    owned_config_destroy(config);
    lab_end(registry);
}
END_TEST

START_TEST(joins_are_refused_when_draining_and_steps_go_on)
{
    struct registry *registry = lab_registry();

    lab_join(registry, "g", 0, 1);
    registry_drain(registry);
    ck_assert_int_eq(lab_try_join(registry, request_of(0), NULL, NULL), LOSSD_SHUTTING_DOWN);
    ticket_expect(lab_submit(registry, "g", 0, 0, 1), LOSSD_OK);
    lab_end(registry);
}
END_TEST

START_TEST(all_groups_are_seen_by_name)
{
    struct registry *registry = lab_registry();
    struct group_view *views;
    struct lossd_error err;
    size_t count;

    lab_join(registry, "b", 0, 1);
    lab_join(registry, "c", 0, 1);
    lab_join(registry, "a", 0, 1);
    ck_assert_int_eq(registry_view_all(registry, &views, &count, &err), LOSSD_OK);
    ck_assert_uint_eq(count, 3);
    for (size_t v = 0; v < count; v++) {
        ck_assert_int_eq(views[v].name[0], "abc"[v]);
        group_view_finish(&views[v]);
    }
    free(views);
    lab_end(registry);
}
END_TEST

START_TEST(a_wrong_address_concerns_the_caller_alone)
{
    struct registry *registry = lab_registry();
    struct ticket *ticket = lab_ticket("g", 0, 0, 1);
    struct ticket *waiting;

    lab_join(registry, "g", 0, 2);
    lab_join(registry, "g", 1, 2);
    waiting = lab_submit(registry, "g", 0, 0, 1);
    ticket->submission.has_rank = false;
    registry_submit(registry, &ticket->submission);
    ck_assert_str_eq(ticket->submission.error.field, "rank");
    ticket_expect(ticket, LOSSD_INVALID_ARGUMENT);
    ticket_expect(lab_submit(registry, "other", 0, 0, 1), LOSSD_GROUP_NOT_FOUND);
    ticket_expect(lab_submit(registry, "", 0, 0, 1), LOSSD_INVALID_ARGUMENT);
    ticket = lab_submit(registry, "g", 2, 0, 1);
    ck_assert_str_eq(lab_metadata(&ticket->submission.error, "world_size"), "2");
    ticket_expect(ticket, LOSSD_RANK_RANGE);
    ck_assert(!ticket_is_done(waiting));
    ticket_expect(lab_submit(registry, "g", 1, 0, 1), LOSSD_OK);
    ticket_expect(waiting, LOSSD_OK);
    lab_end(registry);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("registry");
    TCase *tcase = tcase_create("members");

    tcase_add_test(tcase, the_first_to_join_makes_the_group_and_the_others_are_in_its_generation);
    tcase_add_test(tcase, the_same_instance_may_join_again);
    tcase_add_test(tcase, members_have_to_agree);
    tcase_add_test(tcase, a_join_that_makes_no_sense_is_refused_with_its_field);
    tcase_add_test(tcase, groups_are_limited_and_a_freed_one_makes_room);
    tcase_add_test(tcase, ranks_of_a_declared_group_need_not_join);
    tcase_add_test(tcase, a_declared_group_keeps_its_config_and_world_over_generations);
    tcase_add_test(tcase, a_declaration_that_makes_no_sense_is_refused);
    tcase_add_test(tcase, joins_are_refused_when_draining_and_steps_go_on);
    tcase_add_test(tcase, all_groups_are_seen_by_name);
    tcase_add_test(tcase, a_wrong_address_concerns_the_caller_alone);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
