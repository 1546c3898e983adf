/* torchrun's variables, and lossd's own. */
#include <stdlib.h>
#include <string.h>

#include "client/failure.h"
#include "client/options.h"
#include "support/runner.h"

static const char *const names[] = {"RANK",       "WORLD_SIZE",       "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
                                    "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",      "TORCHELASTIC_RUN_ID",
                                    "LOSSD_ADDR", "LOSSD_CA_FILE",    "LOSSD_TIMEOUT_MS", "LOSSD_SHM_SOCKET"};

static void clear(void)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static struct lossd_membership read_membership(void)
{
    struct lossd_membership me;
    struct lossd_failure failure;

    ck_assert_int_eq(lossd_membership_from_environment(&me, &failure), LOSSD_CODE_OK);
    return me;
}

START_TEST(without_torchrun_there_is_one_rank)
{
    const struct lossd_membership me = read_membership();

    ck_assert_str_eq(me.group, "default");
    ck_assert_uint_eq(me.rank, 0);
    ck_assert_uint_eq(me.world_size, 1);
    ck_assert_uint_eq(me.local_world_size, 1);
    ck_assert_uint_eq(me.nnodes, 1);
    ck_assert_uint_eq(me.node_rank, 0);
    ck_assert_str_eq(me.master_addr, "");
    ck_assert_uint_eq(me.instance, 0);
    ck_assert_ptr_null(me.config);
}
END_TEST

START_TEST(a_rank_of_several_nodes_is_what_torchrun_says)
{
    struct lossd_membership me;

    setenv("RANK", "5", 1);
    setenv("WORLD_SIZE", "8", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("GROUP_RANK", "1", 1);
    setenv("MASTER_ADDR", "node-0", 1);
    setenv("TORCHELASTIC_RUN_ID", "job 7/a.b_c", 1);
    me = read_membership();
    ck_assert_str_eq(me.group, "job-7-a.b_c");
    ck_assert_uint_eq(me.rank, 5);
    ck_assert_uint_eq(me.world_size, 8);
    ck_assert_uint_eq(me.local_world_size, 4);
    ck_assert_uint_eq(me.nnodes, 2);
    ck_assert_uint_eq(me.node_rank, 1);
    ck_assert_str_eq(me.master_addr, "node-0:7430");
    setenv("GROUP_WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "fe80::1", 1);
    me = read_membership();
    ck_assert_uint_eq(me.nnodes, 3);
    ck_assert_str_eq(me.master_addr, "[fe80::1]:7430");
}
END_TEST

START_TEST(a_long_run_id_is_cut_and_an_empty_one_is_none)
{
    char id[100];
    struct lossd_membership me;

    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    setenv("TORCHELASTIC_RUN_ID", id, 1);
    me = read_membership();
    ck_assert_uint_eq(strlen(me.group), 63);
    setenv("TORCHELASTIC_RUN_ID", "", 1);
    me = read_membership();
    ck_assert_str_eq(me.group, "default");
}
END_TEST

static const struct {
    const char *set[6]; /* names and values */
    const char *field;
} bad_environments[] = {
    {{"RANK", "0"}, "WORLD_SIZE"},
    {{"WORLD_SIZE", "2"}, "RANK"},
    {{"RANK", "2", "WORLD_SIZE", "2"}, "RANK"},
    {{"RANK", "-1", "WORLD_SIZE", "2"}, "RANK"},
    {{"RANK", "", "WORLD_SIZE", "2"}, "RANK"},
    {{"RANK", "0", "WORLD_SIZE", "two"}, "WORLD_SIZE"},
    {{"RANK", "0", "WORLD_SIZE", "4294967296"}, "WORLD_SIZE"},
    {{"RANK", "0", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "0"}, "LOCAL_WORLD_SIZE"},
    {{"RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "2"}, "LOCAL_RANK"},
    {{"RANK", "0", "WORLD_SIZE", "2", "GROUP_RANK", "1"}, "GROUP_RANK"},
};

START_TEST(a_bad_variable_is_named)
{
    struct lossd_membership me = {.rank = 77};
    struct lossd_failure failure;

    for (size_t i = 0; i + 1 < 6 && bad_environments[_i].set[i] != NULL; i += 2)
        setenv(bad_environments[_i].set[i], bad_environments[_i].set[i + 1], 1);
    ck_assert_int_eq(lossd_membership_from_environment(&me, &failure), LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(failure.reason, "BAD_ENVIRONMENT");
    ck_assert_str_eq(failure.field, bad_environments[_i].field);
    ck_assert_uint_eq(me.rank, 77);
    ck_assert_int_eq(lossd_membership_from_environment(&me, NULL), LOSSD_CODE_INVALID_ARGUMENT);
}
END_TEST

static struct settings read_settings(const struct lossd_options *options)
{
    struct settings settings;
    struct lossd_failure failure;

    ck_assert_int_eq(settings_read(options, &settings, &failure), LOSSD_CODE_OK);
    return settings;
}

START_TEST(one_try_has_a_second_where_nothing_is_to_be_tried_again)
{
    static const struct {
        uint64_t timeout_ms;
        uint64_t reconnect_ms;
        uint64_t patience_ms;
    } cases[] = {{0, 0, 10000}, {0, 1, 1000}, {0, 999, 1000}, {0, 4000, 4000}, {300, 1, 300}, {4000, 2000, 2000}};
    const struct lossd_options options = {.timeout_ms = cases[_i].timeout_ms, .reconnect_ms = cases[_i].reconnect_ms};

    ck_assert_uint_eq(read_settings(&options).patience_ms, cases[_i].patience_ms);
}
END_TEST

START_TEST(options_come_before_the_environment_and_that_before_defaults)
{
    struct settings settings = read_settings(NULL);

    ck_assert_str_eq(settings.address, "127.0.0.1:7430");
    ck_assert_str_eq(settings.shm_path, "");
    ck_assert_uint_eq(settings.num_slots, 2);
    ck_assert_uint_eq(settings.timeout_ms, 0);
    ck_assert_uint_eq(settings.reconnect_ms, 30000);
    setenv("LOSSD_ADDR", "unix:/run/a.sock", 1);
    setenv("LOSSD_TIMEOUT_MS", "1500", 1);
    setenv("LOSSD_CA_FILE", "/etc/ca.pem", 1);
    settings = read_settings(NULL);
    ck_assert_str_eq(settings.address, "unix:/run/a.sock");
    ck_assert_str_eq(settings.shm_path, "/run/a.sock.shm");
    ck_assert_str_eq(settings.ca_file, "/etc/ca.pem");
    ck_assert_uint_eq(settings.timeout_ms, 1500);
    settings = read_settings(&(struct lossd_options){.address = "unix:///b", .timeout_ms = 7, .num_slots = 15});
    ck_assert_str_eq(settings.shm_path, "/b.shm");
    ck_assert_uint_eq(settings.timeout_ms, 7);
    ck_assert_uint_eq(settings.num_slots, 15);
    setenv("LOSSD_SHM_SOCKET", "/elsewhere", 1);
    settings = read_settings(NULL);
    ck_assert_str_eq(settings.shm_path, "/elsewhere");
    settings = read_settings(&(struct lossd_options){.address = "localhost:1"});
    ck_assert_str_eq(settings.shm_path, "");
    settings = read_settings(
        &(struct lossd_options){.address = "localhost:1", .transport = LOSSD_TRANSPORT_SHARED_MEMORY});
    ck_assert_str_eq(settings.shm_path, "/elsewhere");
}
END_TEST

/* A path that has no room for the suffix is one over which only HTTP goes. */
START_TEST(a_long_path_has_no_shared_memory)
{
    char address[128] = "unix:/";
    struct settings settings;
    struct lossd_failure failure;

    memset(address + 6, 'p', 102);
    settings = read_settings(&(struct lossd_options){.address = address});
    ck_assert_uint_eq(strlen(settings.shm_path), 107);
    memset(address + 6, 'p', 103);
    settings = read_settings(&(struct lossd_options){.address = address});
    ck_assert_str_eq(settings.shm_path, "");
    ck_assert_int_eq(
        settings_read(&(struct lossd_options){.address = address, .transport = LOSSD_TRANSPORT_SHARED_MEMORY},
                      &settings, &failure),
        LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(failure.reason, "BAD_ADDRESS");
}
END_TEST

/* A program that was built with an older header knows fewer members. */
START_TEST(members_behind_the_callers_version_are_not_read)
{
    const struct lossd_options options = {
        .struct_bytes = offsetof(struct lossd_options, timeout_ms), .num_slots = 5, .timeout_ms = 9, .max_requests = 9};
    const struct settings settings = read_settings(&options);

    ck_assert_uint_eq(settings.num_slots, 5);
    ck_assert_uint_eq(settings.timeout_ms, 0);
    ck_assert_uint_eq(settings.max_requests, 0);
}
END_TEST

START_TEST(options_out_of_their_range_are_named)
{
    static const struct {
        struct lossd_options options;
        const char *field;
    } cases[] = {
        {{.struct_bytes = sizeof(struct lossd_options) + 8}, "struct_bytes"},
        {{.num_slots = 16}, "num_slots"},
        {{.transport = (enum lossd_transport)4}, "transport"},
    };
    struct settings settings;
    struct lossd_failure failure;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(settings_read(&cases[i].options, &settings, &failure), LOSSD_CODE_INVALID_ARGUMENT);
        ck_assert_str_eq(failure.reason, "BAD_OPTION");
        ck_assert_str_eq(failure.field, cases[i].field);
    }
    setenv("LOSSD_TIMEOUT_MS", "1s", 1);
    ck_assert_int_eq(settings_read(NULL, &settings, &failure), LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(failure.reason, "BAD_ENVIRONMENT");
    ck_assert_str_eq(failure.field, "LOSSD_TIMEOUT_MS");
}
END_TEST

START_TEST(an_address_of_no_form_opens_no_client)
{
    static const char *const addresses[] = {"nonsense", "unix:relative", "http://", "host:0", ":7430"};
    struct lossd_client *client = NULL;
    struct lossd_failure failure;

    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        const struct lossd_options options = {.address = addresses[i]};

        ck_assert_int_eq(lossd_client_open(&options, &client, &failure), LOSSD_CODE_INVALID_ARGUMENT);
        ck_assert_str_eq(failure.reason, "BAD_ADDRESS");
        ck_assert_ptr_null(client);
    }
    lossd_client_close(client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_environment");
    TCase *tcase = tcase_create("client_environment");

    tcase_add_checked_fixture(tcase, clear, NULL);
    tcase_add_test(tcase, without_torchrun_there_is_one_rank);
    tcase_add_test(tcase, a_rank_of_several_nodes_is_what_torchrun_says);
    tcase_add_test(tcase, a_long_run_id_is_cut_and_an_empty_one_is_none);
    tcase_add_loop_test(tcase, a_bad_variable_is_named, 0, sizeof bad_environments / sizeof bad_environments[0]);
    tcase_add_loop_test(tcase, one_try_has_a_second_where_nothing_is_to_be_tried_again, 0, 6);
    tcase_add_test(tcase, options_come_before_the_environment_and_that_before_defaults);
    tcase_add_test(tcase, a_long_path_has_no_shared_memory);
    tcase_add_test(tcase, members_behind_the_callers_version_are_not_read);
    tcase_add_test(tcase, options_out_of_their_range_are_named);
    tcase_add_test(tcase, an_address_of_no_form_opens_no_client);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
