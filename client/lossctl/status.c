/* lossctl status [GROUP]: groups, their ranks, who waits for whom and for how long. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lossctl/command.h"
#include "lossctl/rpc.h"
#include "lossctl/table.h"
#include "lossctl/waits.h"
#include "lossd/v1/group.pb-c.h"

enum { ANSWER_BYTES = 1 << 28 };

static void print_groups(Lossd__V1__Group *const *groups, size_t count)
{
    struct table table;

    if (count == 0) {
        puts("no groups");
        return;
    }
    table_init(&table, "lrrrrrl");
    table_row(&table, "GROUP", "GENERATION", "RANKS", "NODES", "STEPS DONE", "ALL-REDUCES", "STATES");
    for (size_t g = 0; g < count; g++) {
        char states[256];

        waits_count_states(groups[g], states, sizeof states);
        table_cell(&table, "%s", groups[g]->name);
        table_cell(&table, "%" PRIu64, groups[g]->generation);
        table_cell(&table, "%" PRIu32, groups[g]->world_size);
        table_cell(&table, "%" PRIu32, groups[g]->nnodes);
        table_cell(&table, "%" PRIu64, groups[g]->steps_done);
        table_cell(&table, "%" PRIu64, groups[g]->all_reduces);
        table_cell(&table, "%s", states);
    }
    (void)table_print_and_finish(&table, stdout);
}

static void step_cell(struct table *table, protobuf_c_boolean known, uint64_t step)
{
    if (known)
        table_cell(table, "%" PRIu64, step);
    else
        table_cell(table, "-");
}

static void print_ranks(const Lossd__V1__Group *group)
{
    struct table table;

    table_init(&table, "rrlrrr");
    table_row(&table, "RANK", "NODE", "STATE", "LAST STEP", "AT STEP", "SINCE");
    for (size_t r = 0; r < group->n_ranks; r++) {
        const Lossd__V1__RankStatus *rank = group->ranks[r];

        table_cell(&table, "%" PRIu32, rank->rank);
        table_cell(&table, "%" PRIu32, rank->node_rank);
        table_cell(&table, "%s", waits_state_name(rank->state));
        step_cell(&table, rank->has_last_step, rank->last_step);
        step_cell(&table, rank->has_at_step, rank->at_step);
        table_cell(&table, "%.1f s", (double)rank->since_ms / 1e3);
    }
    (void)table_print_and_finish(&table, stdout);
}

static void show(Lossd__V1__Group *const *groups, size_t count, bool with_ranks)
{
    print_groups(groups, count);
    for (size_t g = 0; g < count; g++) {
        if (with_ranks)
            print_ranks(groups[g]);
        waits_print(groups[g], stdout);
    }
}

/* One group with its ranks, or all of them. */
static bool call_and_show(const struct rpc_connection *connection, char *name, struct arena *arena,
                          struct failure *failure)
{
    Lossd__V1__GetGroupRequest get = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    Lossd__V1__ListGroupsRequest list = LOSSD__V1__LIST_GROUPS_REQUEST__INIT;
    ProtobufCMessage *message;

    get.group = name;
    if (name == NULL) {
        const Lossd__V1__ListGroupsResponse *answer;

        if (!rpc_call(connection, "lossd.v1.GroupService/ListGroups", &list.base,
                      &lossd__v1__list_groups_response__descriptor, arena, &message, failure))
            return false;
        answer = (const Lossd__V1__ListGroupsResponse *)message;
        show(answer->groups, answer->n_groups, false);
        return true;
    }
    if (!rpc_call(connection, "lossd.v1.GroupService/GetGroup", &get.base, &lossd__v1__get_group_response__descriptor,
                  arena, &message, failure))
        return false;
    show(&((Lossd__V1__GetGroupResponse *)message)->group,
         ((Lossd__V1__GetGroupResponse *)message)->group == NULL ? 0 : 1, true);
    return true;
}

/* The daemon's own JSON. */
static bool call_and_print_json(const struct rpc_connection *connection, char *name, struct failure *failure)
{
    Lossd__V1__GetGroupRequest get = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    const char *method = name == NULL ? "lossd.v1.GroupService/ListGroups" : "lossd.v1.GroupService/GetGroup";
    struct http_response response;
    struct encoded body = {0};
    struct lossd_error err;
    bool called;

    get.group = name;
    if (message_encode(CODEC_JSON, &get.base, false, &body, &err) != LOSSD_OK)
        return failure_local(failure, EXIT_LOCAL, "%s", err.message);
    called = rpc_call_bytes(connection, method, CODEC_JSON, body.bytes, body.size, &response, failure);
    free(body.bytes);
    if (!called)
        return false;
    printf("%s\n", (const char *)response.body);
    http_response_finish(&response);
    return true;
}

int command_status(const struct options *options, int argc, char **argv)
{
    struct rpc_connection connection = {0};
    struct failure failure;
    struct arena arena;
    char *name = argc == 1 ? argv[0] : NULL;
    int exit_code = EXIT_DONE;
    bool ok;

    if (argc > 1)
        return usage("status: expected at most one GROUP");
    arena_init(&arena, ANSWER_BYTES, NULL);
    ok = rpc_open(options, 0, &connection, &failure);
    if (ok && options->json)
        ok = call_and_print_json(&connection, name, &failure);
    else if (ok)
        ok = call_and_show(&connection, name, &arena, &failure);
    if (!ok)
        exit_code = rpc_failed(options, &failure);
    arena_finish(&arena);
    rpc_close(&connection);
    return exit_code;
}
