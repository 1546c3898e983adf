/* The configuration file: defaults, ranges, and the paths of what is wrong. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/runner.h"

static enum lossd_status parse(const char *text, struct config *config, struct lossd_error *err)
{
    error_init(err);
    return config_parse(text, strlen(text), config, err);
}

START_TEST(without_a_file_there_are_the_defaults)
{
    struct config config;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(config_load(NULL, &config, &err), LOSSD_OK);
    ck_assert_uint_eq(config.num_listen, 0);
    ck_assert(!config.insecure);
    ck_assert_int_eq(config.log_level, LOG_LEVEL_INFO);
    ck_assert_uint_eq(config.drain_timeout_ms, 10000);
    ck_assert_uint_eq(config.memory_bytes, 4294967296u);
    ck_assert_uint_eq(config.http.json_body_bytes, 8388608);
    ck_assert_uint_eq(config.http.proto_body_bytes, 268435456);
    ck_assert_uint_eq(config.http.json_depth, 32);
    ck_assert_uint_eq(config.http.max_tasks, 64);
    ck_assert_uint_eq(config.http.max_losses, 16);
    ck_assert_uint_eq(config.http.connections, 4096);
    ck_assert_uint_eq(config.http.open_calls, 8192);
    ck_assert_uint_eq(config.http.upload_timeout_ms, 30000);
    ck_assert_uint_eq(config.http.http_threads, 2);
    ck_assert(config.shared_memory);
    ck_assert_uint_eq(config.shm.spin_us, 20);
    ck_assert_uint_eq(config.shm.region_bytes, 1073741824);
    ck_assert_uint_eq(config.shm.regions_bytes, 4294967296u);
    ck_assert_uint_eq(config.shm.clients, 1024);
    ck_assert_uint_eq(config.shm.attach_timeout_ms, 30000);
    ck_assert_uint_eq(config.shm.batch_limits.max_candidates, 16777216);
    ck_assert_uint_eq(config.shm.batch_limits.max_requests, 4194304);
    ck_assert_uint_eq(config.registry.max_groups, 64);
    ck_assert_uint_eq(config.registry.max_ranks, 4096);
    ck_assert_uint_eq(config.registry.batch_limits.max_candidates, 16777216);
    ck_assert_uint_eq(config.registry.batch_limits.max_requests, 4194304);
    ck_assert_uint_ge(config.registry.compute_threads, 1);
    ck_assert_uint_eq(config.num_groups, 0);
    config_finish(&config);
}
END_TEST

START_TEST(every_key_of_the_top_is_read)
{
    struct config config;
    struct lossd_error err;
    const enum lossd_status status = parse(
        "{\"listen\": [\"127.0.0.1:0\", \"unix:/run/lossd/lossd.sock\"], \"insecure\": true, "
        "\"logLevel\": \"debug\", \"httpThreads\": 3, \"computeThreads\": 5, \"drainTimeoutMs\": 7, "
        "\"sharedMemory\": false, \"spinUs\": 0, \"limits\": {\"jsonBodyBytes\": \"100\", \"ranks\": 9, "
        "\"uploadTimeoutMs\": 11, \"regionBytes\": 13, \"regionsBytes\": 17, \"sharedMemoryClients\": 19}}",
        &config, &err);

    ck_assert_msg(status == LOSSD_OK, "%s: %s", err.field, err.message);
    ck_assert_uint_eq(config.num_listen, 2);
    ck_assert_str_eq(config.listen[0], "127.0.0.1:0");
    ck_assert_str_eq(config.listen[1], "unix:/run/lossd/lossd.sock");
    ck_assert(config.insecure);
    ck_assert_int_eq(config.log_level, LOG_LEVEL_DEBUG);
    ck_assert_uint_eq(config.http.http_threads, 3);
    ck_assert_uint_eq(config.registry.compute_threads, 5);
    ck_assert_uint_eq(config.drain_timeout_ms, 7);
    ck_assert_uint_eq(config.http.json_body_bytes, 100);
    ck_assert_uint_eq(config.registry.max_ranks, 9);
    ck_assert_uint_eq(config.http.upload_timeout_ms, 11);
    ck_assert_uint_eq(config.http.json_depth, 32);
    ck_assert(!config.shared_memory);
    ck_assert_uint_eq(config.shm.spin_us, 0);
    ck_assert_uint_eq(config.shm.attach_timeout_ms, 11);
    ck_assert_uint_eq(config.shm.region_bytes, 13);
    ck_assert_uint_eq(config.shm.regions_bytes, 17);
    ck_assert_uint_eq(config.shm.clients, 19);
    config_finish(&config);
}
END_TEST

#define CONFIG "\"config\": {\"tasks\": [{\"name\": \"click\", \"losses\": [{\"binaryCrossEntropy\": {}}]}]}"

START_TEST(declared_groups_are_ready_for_the_registry)
{
    struct config config;
    struct lossd_error err;

    ck_assert_int_eq(parse("{\"groups\": [{\"name\": \"one\", " CONFIG "}, "
                           "{\"name\": \"two\", \"worldSize\": 3, " CONFIG "}]}",
                           &config, &err),
                     LOSSD_OK);
    ck_assert_uint_eq(config.num_groups, 2);
    ck_assert_str_eq(config.groups[0].name, "one");
    ck_assert_uint_eq(config.groups[0].world_size, 1);
    ck_assert_str_eq(config.groups[1].name, "two");
    ck_assert_uint_eq(config.groups[1].world_size, 3);
    ck_assert_str_eq(config.groups[0].config->digest, config.groups[1].config->digest);
    config_finish(&config);
}
END_TEST

struct bad_config {
    const char *text;
    enum lossd_status status;
    const char *field;
};

static const struct bad_config bad_configs[] = {
    {"{\"limits\": {\"jsonDepth\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.json_depth"},
    {"{\"limits\": {\"jsonDepth\": 1001}}", LOSSD_INVALID_ARGUMENT, "limits.json_depth"},
    {"{\"limits\": {\"jsonBodyBytes\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.json_body_bytes"},
    {"{\"limits\": {\"jsonBodyBytes\": \"1073741825\"}}", LOSSD_INVALID_ARGUMENT, "limits.json_body_bytes"},
    {"{\"limits\": {\"protoBodyBytes\": \"2147483648\"}}", LOSSD_INVALID_ARGUMENT, "limits.proto_body_bytes"},
    {"{\"limits\": {\"candidates\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.candidates"},
    {"{\"limits\": {\"requests\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.requests"},
    {"{\"limits\": {\"tasks\": 65}}", LOSSD_INVALID_ARGUMENT, "limits.tasks"},
    {"{\"limits\": {\"losses\": 17}}", LOSSD_INVALID_ARGUMENT, "limits.losses"},
    {"{\"limits\": {\"groups\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.groups"},
    {"{\"limits\": {\"ranks\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.ranks"},
    {"{\"limits\": {\"connections\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.connections"},
    {"{\"limits\": {\"openCalls\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.open_calls"},
    {"{\"limits\": {\"memoryBytes\": 1048575}}", LOSSD_INVALID_ARGUMENT, "limits.memory_bytes"},
    {"{\"limits\": {\"uploadTimeoutMs\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.upload_timeout_ms"},
    {"{\"limits\": {\"regionBytes\": \"1099511627777\"}}", LOSSD_INVALID_ARGUMENT, "limits.region_bytes"},
    {"{\"limits\": {\"regionsBytes\": \"1125899906842625\"}}", LOSSD_INVALID_ARGUMENT, "limits.regions_bytes"},
    {"{\"limits\": {\"sharedMemoryClients\": 0}}", LOSSD_INVALID_ARGUMENT, "limits.shared_memory_clients"},
    {"{\"spinUs\": 21}", LOSSD_INVALID_ARGUMENT, "spin_us"},
    {"{\"httpThreads\": 0}", LOSSD_INVALID_ARGUMENT, "http_threads"},
    {"{\"httpThreads\": 65}", LOSSD_INVALID_ARGUMENT, "http_threads"},
    {"{\"computeThreads\": 257}", LOSSD_INVALID_ARGUMENT, "compute_threads"},
    {"{\"drainTimeoutMs\": 86400001}", LOSSD_INVALID_ARGUMENT, "drain_timeout_ms"},
    {"{\"logLevel\": \"loud\"}", LOSSD_INVALID_ARGUMENT, "log_level"},
    {"{\"listen\": [\"127.0.0.1:1\", \"7430\"]}", LOSSD_INVALID_ARGUMENT, "listen[1]"},
    {"{\"listen\": [\"unix:relative\"]}", LOSSD_INVALID_ARGUMENT, "listen[0]"},
    {"{\"listen\": [\"127.0.0.1:65536\"]}", LOSSD_INVALID_ARGUMENT, "listen[0]"},
    {"{\"groups\": [{\"name\": \"a b\", " CONFIG "}]}", LOSSD_INVALID_ARGUMENT, "groups[0].name"},
    {"{\"groups\": [{" CONFIG "}]}", LOSSD_INVALID_ARGUMENT, "groups[0].name"},
    {"{\"groups\": [{\"name\": \"a\", " CONFIG "}, {\"name\": \"a\", " CONFIG "}]}", LOSSD_INVALID_ARGUMENT,
     "groups[1].name"},
    {"{\"groups\": [{\"name\": \"a\"}]}", LOSSD_INVALID_ARGUMENT, "groups[0].config"},
    {"{\"groups\": [{\"name\": \"a\", \"worldSize\": 0, " CONFIG "}]}", LOSSD_INVALID_ARGUMENT, "groups[0].world_size"},
    {"{\"limits\": {\"ranks\": 2}, \"groups\": [{\"name\": \"a\", \"worldSize\": 3, " CONFIG "}]}",
     LOSSD_INVALID_ARGUMENT, "groups[0].world_size"},
    {"{\"limits\": {\"groups\": 1}, \"groups\": [{\"name\": \"a\", " CONFIG "}, {\"name\": \"b\", " CONFIG "}]}",
     LOSSD_LIMIT_EXCEEDED, "groups"},
    {"{\"groups\": [{\"name\": \"a\", \"config\": {\"tasks\": [{\"name\": \"x\", \"losses\": [{\"l2Loss\": {}}]}, "
     "{\"name\": \"y\", \"numClass\": 2, \"losses\": [{\"jrcLoss\": {\"alpha\": 2}}]}]}}]}",
     LOSSD_INVALID_CONFIG, "groups[0].config.tasks[1].losses[0].jrc_loss.alpha"},
    {"{\"no_such_key\": 1}", LOSSD_MALFORMED_REQUEST, "no_such_key"},
    {"", LOSSD_MALFORMED_REQUEST, ""},
};

START_TEST(what_is_wrong_is_refused_with_its_path)
{
    const struct bad_config *bad = &bad_configs[_i];
    struct config config;
    struct lossd_error err;

    ck_assert_int_eq(parse(bad->text, &config, &err), bad->status);
    ck_assert_str_eq(err.field, bad->field);
    ck_assert_uint_gt(strlen(err.message), 0);
}
END_TEST

START_TEST(a_file_is_read_whole)
{
    char path[] = "/tmp/lossd-test-config-XXXXXX";
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    struct config config;
    struct lossd_error err;

    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 100000; i++)
        (void)fputs("  ", file);
    (void)fputs("{\"httpThreads\": 6}", file);
    (void)fclose(file);
    error_init(&err);
    ck_assert_int_eq(config_load(path, &config, &err), LOSSD_OK);
    ck_assert_uint_eq(config.http.http_threads, 6);
    config_finish(&config);
    (void)unlink(path);
}
END_TEST

START_TEST(a_file_that_is_too_large_or_absent_is_refused)
{
    char path[] = "/tmp/lossd-test-config-XXXXXX";
    const int fd = mkstemp(path);
    struct config config;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(ftruncate(fd, CONFIG_MAX_FILE_BYTES + 1), 0);
    ck_assert_int_eq(config_load(path, &config, &err), LOSSD_LIMIT_EXCEEDED);
    (void)close(fd);
    (void)unlink(path);
    ck_assert_int_eq(config_load(path, &config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_str_eq(err.message, "can't be read: No such file or directory");
}
END_TEST

START_TEST(what_is_no_json_or_no_key_has_a_line_and_a_column)
{
    struct config config;
    struct lossd_error err;

    ck_assert_int_eq(parse("{\"insecure\": maybe}", &config, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_msg(strstr(err.message, " (line 1, column 14)") != NULL, "%s", err.message);
    ck_assert_int_eq(parse("{\n  \"listen\": [],\n  \"lisen\": 3}", &config, &err), LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(err.field, "lisen");
    ck_assert_msg(strstr(err.message, " (line 3, column 3)") != NULL, "%s", err.message);
    ck_assert_int_eq(parse("{\"httpThreads\": 0}", &config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_ptr_null(strstr(err.message, "line"));
}
END_TEST

START_TEST(an_address_for_other_machines_needs_leave)
{
    struct config config;
    struct lossd_error err;

    ck_assert_int_eq(
        parse("{\"listen\": [\"[::1]:0\", \"localhost:0\", \"unix:/run/a\", \"0.0.0.0:0\"]}", &config, &err), LOSSD_OK);
    ck_assert_int_eq(config_check_listen(&config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "listen[3]");
    config.insecure = true;
    ck_assert_int_eq(config_check_listen(&config, &err), LOSSD_OK);
    config_finish(&config);
}
END_TEST

START_TEST(an_address_is_there_once_but_for_port_0)
{
    struct config config;
    struct lossd_error err;

    ck_assert_int_eq(parse("{\"listen\": [\"[::1]:0\", \"[::1]:0\", \"127.0.0.1:10\", \"127.0.0.1:1\", "
                           "\"127.0.0.1:10\"]}",
                           &config, &err),
                     LOSSD_OK);
    ck_assert_int_eq(config_check_listen(&config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "listen[4]");
    config.num_listen = 4;
    ck_assert_int_eq(config_check_listen(&config, &err), LOSSD_OK);
    config_finish(&config);
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_and_not_waited_for)
{
    char folder[] = "/tmp/lossd-test-config-XXXXXX";
    char path[sizeof folder + 2];
    struct config config;
    struct lossd_error err;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/f", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    error_init(&err);
    ck_assert_int_eq(config_load(path, &config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "not a regular file"));
    ck_assert_int_eq(config_load(folder, &config, &err), LOSSD_INVALID_ARGUMENT);
    ck_assert_int_eq(config_load("/dev/zero", &config, &err), LOSSD_INVALID_ARGUMENT);
    (void)unlink(path);
    (void)rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, without_a_file_there_are_the_defaults);
    tcase_add_test(tcase, every_key_of_the_top_is_read);
    tcase_add_test(tcase, declared_groups_are_ready_for_the_registry);
    tcase_add_loop_test(tcase, what_is_wrong_is_refused_with_its_path, 0,
                        (int)(sizeof bad_configs / sizeof bad_configs[0]));
    tcase_add_test(tcase, an_address_for_other_machines_needs_leave);
    tcase_add_test(tcase, an_address_is_there_once_but_for_port_0);
    tcase_add_test(tcase, what_is_no_regular_file_is_refused_and_not_waited_for);
    tcase_add_test(tcase, a_file_is_read_whole);
    tcase_add_test(tcase, a_file_that_is_too_large_or_absent_is_refused);
    tcase_add_test(tcase, what_is_no_json_or_no_key_has_a_line_and_a_column);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
