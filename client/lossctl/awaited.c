#include "lossctl/awaited.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lossd/v1/group.pb-c.h"

enum { ANSWER_BYTES = 64 << 20 };

static bool same_group(const Lossd__V1__ComputeLossRequest *a, const Lossd__V1__ComputeLossRequest *b)
{
    return a->group != NULL && b->group != NULL && strcmp(a->group, b->group) == 0;
}

static bool is_sent(const struct rank_runs *ranks, const Lossd__V1__ComputeLossRequest *like, uint32_t rank)
{
    for (size_t i = 0; i < ranks->count; i++)
        if (same_group(ranks->runs[i].request, like) && ranks->runs[i].request->rank == rank)
            return true;
    return false;
}

static bool is_awaited(const struct rank_runs *ranks, const Lossd__V1__ComputeLossRequest *like,
                       const Lossd__V1__RankStatus *rank)
{
    const bool is_there = (rank->has_at_step && rank->at_step >= like->step) ||
                          (rank->has_last_step && rank->last_step >= like->step);

    return !is_there && !is_sent(ranks, like, rank->rank);
}

/* "1,3-5" */
static void print_group(const struct rank_runs *ranks, const Lossd__V1__ComputeLossRequest *like,
                        const Lossd__V1__Group *group)
{
    size_t count = 0;

    for (size_t r = 0; r < group->n_ranks; r++) {
        const size_t first = r;

        if (!is_awaited(ranks, like, group->ranks[r]))
            continue;
        while (r + 1 < group->n_ranks && is_awaited(ranks, like, group->ranks[r + 1]))
            r++;
        if (count++ == 0)
            fprintf(stderr,
                    "lossctl: %s has %" PRIu32 " ranks; step %" PRIu64 " waits for other ranks too: ", group->name,
                    group->world_size, like->step);
        else
            fputc(',', stderr);
        fprintf(stderr, "%" PRIu32, group->ranks[first]->rank);
        if (r > first)
            fprintf(stderr, "-%" PRIu32, group->ranks[r]->rank);
    }
    if (count > 0)
        fputc('\n', stderr);
}

static void ask_and_print(const struct rank_runs *ranks, const struct rank_run *run)
{
    Lossd__V1__GetGroupRequest request = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    struct http_response http = {0};
    struct failure failure;
    ProtobufCMessage *message;
    struct arena arena;

    request.group = run->request->group;
    arena_init(&arena, ANSWER_BYTES, NULL);
    if (rpc_call(&run->connection, "lossd.v1.GroupService/GetGroup", &request.base,
                 &lossd__v1__get_group_response__descriptor, &arena, &http, &message, &failure)) {
        const Lossd__V1__Group *group = ((const Lossd__V1__GetGroupResponse *)message)->group;

        if (group != NULL && group->config != NULL && group->config->global_average)
            print_group(ranks, run->request, group);
    } else {
        failure_finish(&failure);
    }
    arena_finish(&arena);
    http_response_finish(&http);
}

void awaited_print(const struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        bool is_first = true;

        for (size_t before = 0; before < i && is_first; before++)
            is_first = !same_group(ranks->runs[before].request, ranks->runs[i].request);
        if (is_first && ranks->runs[i].request->has_step)
            ask_and_print(ranks, &ranks->runs[i]);
    }
}
