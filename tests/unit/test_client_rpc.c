/* Calls of the client against a server that says what it was told to: whose failure it is, and what is made of it. */
#include "client/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/failure.h"
#include "client/transport.h"
#include "support/http_peer.h"
#include "support/runner.h"

#define ANSWER(status, type, length, body)                                                                             \
    "HTTP/1.1 " status "\r\nContent-Type: " type "\r\nContent-Length: " #length "\r\n\r\n" body

/* {"reason": "STEP_TIMEOUT", "domain": "lossd", "metadata": {"missing_ranks": "1"}} as protobuf, in base64 */
#define INFO "CgxTVEVQX1RJTUVPVVQSBWxvc3NkGhIKDW1pc3NpbmdfcmFua3MSATE"

static enum lossd_code get_group(const char *answer, bool hang_up, struct lossd_failure *failure)
{
    struct http_peer peer = http_peer_tcp();
    struct group_facts facts;
    struct rpc *rpc = NULL;
    enum lossd_code code;

    peer.hang_up = hang_up;
    http_peer_start(&peer, answer);
    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, failure), LOSSD_CODE_OK);
    code = rpc_get_group(rpc, "g", 0, &facts, NULL, NULL, failure);
    rpc_close(rpc);
    http_peer_stop(&peer);
    return code;
}

static char *json_answer(const char *status, const char *body)
{
    char *answer = NULL;

    ck_assert_int_gt(asprintf(&answer, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                              status, strlen(body), body),
                     0);
    return answer;
}

START_TEST(an_error_brings_reason_field_metadata_and_whether_to_retry)
{
    char *answer = json_answer("504 Gateway Timeout",
                               "{\"code\": \"deadline_exceeded\", \"message\": \"rank 1 is missing\", \"details\": ["
                               "{\"type\": \"google.rpc.ErrorInfo\", \"value\": \"" INFO "\", \"debug\": {\"a\": 1}},"
                               "{\"type\": \"google.rpc.Other\", \"value\": \"\"}], \"new\": true}");
    struct lossd_failure failure;

    ck_assert_int_eq(get_group(answer, false, &failure), LOSSD_CODE_DEADLINE_EXCEEDED);
    ck_assert_str_eq(failure.reason, "STEP_TIMEOUT");
    ck_assert_str_eq(failure.message, "rank 1 is missing");
    ck_assert_str_eq(failure.field, "");
    ck_assert_int_eq(failure.retry, LOSSD_RETRY_SAME);
    ck_assert_str_eq(lossd_failure_metadata(&failure, "missing_ranks"), "1");
    free(answer);
}
END_TEST

/* {"field_violations": [{"field": "lengths", "description": "is wrong"}]} */
START_TEST(the_field_is_told_apart_from_the_message)
{
    char *answer = json_answer("400 Bad Request",
                               "{\"code\": \"invalid_argument\", \"message\": \"lengths: is wrong\", \"details\": ["
                               "{\"type\": \"google.rpc.BadRequest\", \"value\": \"ChMKB2xlbmd0aHMSCGlzIHdyb25n\"}]}");
    struct lossd_failure failure;

    ck_assert_int_eq(get_group(answer, false, &failure), LOSSD_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(failure.field, "lengths");
    ck_assert_str_eq(failure.message, "is wrong");
    ck_assert_str_eq(failure.reason, "");
    free(answer);
}
END_TEST

static const struct {
    const char *answer;
    const char *reason;
} strange_answers[] = {
    {ANSWER("200 OK", "text/html", 5, "hello"), "INTERNAL"},
    {ANSWER("404 Not Found", "text/html", 5, "hello"), "INTERNAL"},
    {ANSWER("400 Bad Request", "application/json", 2, "{}"), "INTERNAL"},
    {ANSWER("400 Bad Request", "application/json", 17, "{\"code\": \"wrong\"}"), "INTERNAL"},
    {ANSWER("200 OK", "application/proto", 3, "\xff\xff\xff"), "INTERNAL"},
    {ANSWER("200 OK", "application/proto", 0, ""), "INTERNAL"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", "CONNECTION_LOST"},
    {"this is not HTTP at all\r\n\r\n", "CONNECTION_LOST"},
    {"", "CONNECTION_LOST"},
};

START_TEST(what_no_lossd_answers_is_said_to_be_that)
{
    struct lossd_failure failure;

    ck_assert_int_ne(get_group(strange_answers[_i].answer, true, &failure), LOSSD_CODE_OK);
    ck_assert_str_eq(failure.reason, strange_answers[_i].reason);
}
END_TEST

START_TEST(nobody_there_is_a_failure_of_the_connection)
{
    struct http_peer peer = http_peer_tcp(); /* bound, but nobody listens */
    struct group_facts facts;
    struct lossd_failure failure;
    struct rpc *rpc = NULL;

    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, &failure), LOSSD_CODE_OK);
    ck_assert_int_eq(rpc_get_group(rpc, "g", 0, &facts, NULL, NULL, &failure), LOSSD_CODE_UNAVAILABLE);
    ck_assert_str_eq(failure.reason, "CANNOT_CONNECT");
    ck_assert(failure_is_of_connection(&failure));
    ck_assert(!failure_is_of_membership(&failure));
    rpc_close(rpc);
}
END_TEST

static enum lossd_code get_config(const char *config_json, struct group_config *config, struct arena *arena,
                                  struct lossd_failure *failure)
{
    struct http_peer peer = http_peer_tcp();
    struct group_facts facts;
    struct rpc *rpc = NULL;
    enum lossd_code code;
    char *body = NULL;
    char *answer;

    ck_assert_int_gt(asprintf(&body, "{\"group\": {\"name\": \"g\", \"config\": %s}}", config_json), 0);
    answer = json_answer("200 OK", body);
    http_peer_start(&peer, answer);
    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, failure), LOSSD_CODE_OK);
    rpc->is_json = true;
    code = rpc_get_group(rpc, "g", 0, &facts, arena, config, failure);
    rpc_close(rpc);
    http_peer_stop(&peer);
    free(answer);
    free(body);
    return code;
}

#define TASK(num_class) "{\"name\": \"a\", \"numClass\": " num_class ", \"losses\": [{\"l2Loss\": {}}]}"

static const struct {
    const char *config;
    const char *field; /* NULL: it is good */
} sized_configs[] = {
    {"{\"tasks\": [" TASK("4096") "]}", NULL},
    {"{\"tasks\": [" TASK("1") ", " TASK("4097") "]}", "config.tasks[1].num_class"},
    {"{\"tasks\": [" TASK("4294967295") "]}", "config.tasks[0].num_class"},
    {"{\"tasks\": [" TASK("0") "]}", "config.tasks[0].num_class"},
    {"{\"tasks\": []}", "config.tasks"},
};

START_TEST(a_config_of_the_daemon_has_sizes_that_configs_can_have)
{
    struct lossd_failure failure;
    struct group_config config;
    struct arena arena;

    arena_init(&arena, 1 << 20, NULL);
    if (sized_configs[_i].field == NULL) {
        ck_assert_int_eq(get_config(sized_configs[_i].config, &config, &arena, &failure), LOSSD_CODE_OK);
        ck_assert_uint_eq(config.tasks[0].num_class, 4096);
    } else {
        ck_assert_int_eq(get_config(sized_configs[_i].config, &config, &arena, &failure), LOSSD_CODE_INTERNAL);
        ck_assert_str_eq(failure.field, sized_configs[_i].field);
    }
    arena_finish(&arena);
}
END_TEST

/* The daemon is told the deadline, and has a second more to say what is missing. */
START_TEST(a_daemon_that_says_nothing_is_left_a_second_after_the_deadline)
{
    static const struct loss_config losses[1];
    static const struct task_config task = {.name = "a", .num_class = 1, .losses = losses, .num_losses = 1};
    static const struct group_config config = {.tasks = &task, .num_tasks = 1};
    const struct member member = {.group = "g", .config = &config, .num_terms = 1};
    struct http_peer peer = http_peer_tcp();
    const int64_t begin_ns = clock_now_ns();
    struct transport *transport;
    struct lossd_failure failure;
    struct rpc *rpc = NULL;

    http_peer_start(&peer, NULL);
    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, &failure), LOSSD_CODE_OK);
    transport = rpc_transport_create(rpc, &member);
    ck_assert_int_eq(transport->ops->announce(transport, 1, 2, 3, clock_after_ms(begin_ns, 200), &failure),
                     LOSSD_CODE_DEADLINE_EXCEEDED);
    ck_assert_str_eq(failure.reason, "NO_ANSWER");
    ck_assert_int_gt(clock_now_ns() - begin_ns, 1100 * NS_PER_MS);
    ck_assert_int_lt(clock_now_ns() - begin_ns, 5000 * NS_PER_MS);
    transport->ops->destroy(transport);
    rpc_close(rpc);
    http_peer_stop(&peer);
}
END_TEST

START_TEST(the_daemon_is_told_what_is_left_until_the_deadline)
{
    static const struct group_config config;
    const struct member member = {.group = "g", .config = &config};
    struct http_peer peer = http_peer_tcp();
    const int64_t deadline_ns = _i == 0 ? clock_after_ms(clock_now_ns(), 60000) : NO_DEADLINE;
    const char *header;
    struct transport *transport;
    struct lossd_failure failure;
    struct rpc *rpc = NULL;

    http_peer_start(&peer, ANSWER("200 OK", "application/proto", 0, ""));
    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, &failure), LOSSD_CODE_OK);
    transport = rpc_transport_create(rpc, &member);
    ck_assert_int_eq(transport->ops->announce(transport, 1, 2, 3, deadline_ns, &failure), LOSSD_CODE_OK);
    header = strstr(peer.received, "\r\nConnect-Timeout-Ms: ");
    ck_assert_int_eq(header == NULL, _i == 1);
    if (header != NULL) {
        ck_assert_int_le(strtol(header + 22, NULL, 10), 60000);
        ck_assert_int_gt(strtol(header + 22, NULL, 10), 50000);
    }
    transport->ops->destroy(transport);
    rpc_close(rpc);
    http_peer_stop(&peer);
}
END_TEST

/* ComputeLossResponse of no tasks, where one was sent. */
START_TEST(an_answer_of_another_shape_is_no_answer)
{
    static const struct loss_config losses[1];
    static const struct task_config task = {.name = "a",
                                            .num_class = 1,
                                            .in_task_space_weight = 1,
                                            .out_task_space_weight = 1,
                                            .losses = losses,
                                            .num_losses = 1};
    static const struct group_config config = {.tasks = &task, .num_tasks = 1};
    const struct member member = {.group = "g", .config = &config, .num_terms = 1};
    const struct lossd_shape shape = {.requests = 0};
    struct http_peer peer = http_peer_tcp();
    struct batch_layout layout;
    struct lossd_task column = {.name = "a"};
    const struct call call = {.layout = &layout, .tasks = &column, .gradient_scale = 1};
    struct lossd_result result;
    struct lossd_task_result task_result;
    struct lossd_term term;
    const struct answer answer = {&result, &task_result, &term};
    struct transport *transport;
    struct lossd_failure failure;
    struct rpc *rpc = NULL;

    http_peer_start(&peer, ANSWER("200 OK", "application/json", 14, "{\"step\": \"7\"} "));
    ck_assert_int_eq(rpc_open(peer.address, "", &rpc, &failure), LOSSD_CODE_OK);
    rpc->is_json = true;
    transport = rpc_transport_create(rpc, &member);
    transport->slot_bytes = 4096;
    ck_assert_int_eq(layout_plan(&config, &shape, &layout, &failure), LOSSD_CODE_OK);
    ck_assert_int_eq(transport->ops->attach(transport, 4096, &failure), LOSSD_CODE_OK);
    ck_assert_int_eq(transport->ops->receive(transport, &call, &answer, NO_DEADLINE, &failure), LOSSD_CODE_INTERNAL);
    ck_assert_str_eq(failure.reason, "INTERNAL");
    ck_assert_int_eq(transport->ops->receive(transport, &call, NULL, NO_DEADLINE, &failure), LOSSD_CODE_OK);
    transport->ops->destroy(transport);
    rpc_close(rpc);
    http_peer_stop(&peer);
}
END_TEST

START_TEST(metadata_that_is_not_in_pairs_ends_early)
{
    struct lossd_failure failure = {.metadata_bytes = 8, .metadata = "a\0b\0c\0d"};

    ck_assert_str_eq(lossd_failure_metadata(&failure, "a"), "b");
    ck_assert_str_eq(lossd_failure_metadata(&failure, "c"), "d");
    ck_assert_ptr_null(lossd_failure_metadata(&failure, "b"));
    failure.metadata_bytes = 7;
    ck_assert_ptr_null(lossd_failure_metadata(&failure, "c"));
    failure.metadata_bytes = 0;
    ck_assert_ptr_null(lossd_failure_metadata(&failure, "a"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_rpc");
    TCase *tcase = tcase_create("client_rpc");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, an_error_brings_reason_field_metadata_and_whether_to_retry);
    tcase_add_test(tcase, the_field_is_told_apart_from_the_message);
    tcase_add_loop_test(tcase, what_no_lossd_answers_is_said_to_be_that, 0,
                        sizeof strange_answers / sizeof strange_answers[0]);
    tcase_add_test(tcase, nobody_there_is_a_failure_of_the_connection);
    tcase_add_loop_test(tcase, a_config_of_the_daemon_has_sizes_that_configs_can_have, 0,
                        sizeof sized_configs / sizeof sized_configs[0]);
    tcase_add_test(tcase, a_daemon_that_says_nothing_is_left_a_second_after_the_deadline);
    tcase_add_loop_test(tcase, the_daemon_is_told_what_is_left_until_the_deadline, 0, 2);
    tcase_add_test(tcase, an_answer_of_another_shape_is_no_answer);
    tcase_add_test(tcase, metadata_that_is_not_in_pairs_ends_early);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
