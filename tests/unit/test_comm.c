/* The communicator of one node. */
#include "collective/comm.h"

#include "base/clock.h"
#include "support/fake_engine.h"
#include "support/runner.h"

START_TEST(one_node_has_the_local_engine_whose_sum_is_what_it_has)
{
    const struct comm_settings settings = {.nnodes = 1};
    double vector[] = {1.5, -2, 0x1p60};
    struct lossd_error err;
    struct comm *comm;

    ck_assert_int_eq(comm_open(&settings, &comm, &err), LOSSD_OK);
    ck_assert_str_eq(comm_engine_name(comm), "local");
    ck_assert(comm_is_immediate(comm));
    ck_assert_int_eq(comm_all_reduce(comm, vector, 3, NO_DEADLINE, &err), LOSSD_OK);
    ck_assert_double_eq(vector[0], 1.5);
    ck_assert_double_eq(vector[1], -2);
    ck_assert_double_eq(vector[2], 0x1p60);
    comm_close(comm);
}
END_TEST

START_TEST(several_nodes_have_no_engine)
{
    const struct comm_settings settings = {.nnodes = 2};
    struct comm *comm = NULL;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(comm_open(&settings, &comm, &err), LOSSD_NOT_SUPPORTED);
    ck_assert_str_eq(err.field, "nnodes");
    ck_assert_ptr_null(comm);
    comm_close(NULL);
}
END_TEST

START_TEST(the_failure_of_an_engine_is_passed_on)
{
    const struct comm_settings settings = {.nnodes = 1};
    double vector[] = {1};
    struct lossd_error err;
    struct comm *comm;

    ck_assert_int_eq(comm_open_engine(&fake_engine, &settings, &comm, &err), LOSSD_OK);
    fake_engine_fail_next(1);
    error_init(&err);
    ck_assert_int_eq(comm_all_reduce(comm, vector, 1, NO_DEADLINE, &err), LOSSD_INTERNAL);
    ck_assert_str_eq(err.message, "the wire is cut");
    ck_assert_int_eq(comm_all_reduce(comm, vector, 1, NO_DEADLINE, &err), LOSSD_OK);
    comm_close(comm);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm");
    TCase *tcase = tcase_create("one node");

    tcase_add_test(tcase, one_node_has_the_local_engine_whose_sum_is_what_it_has);
    tcase_add_test(tcase, several_nodes_have_no_engine);
    tcase_add_test(tcase, the_failure_of_an_engine_is_passed_on);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
