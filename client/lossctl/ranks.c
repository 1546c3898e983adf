#include "lossctl/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lossctl/input.h"
#include "lossd/v1/group.pb-c.h"

enum { ARENA_BYTES = 1 << 30 };

static int load(const struct options *options, const char *file, struct rank_run *run)
{
    ProtobufCMessage *message;
    struct failure failure;

    run->file = file;
    arena_init(&run->arena, ARENA_BYTES, NULL);
    if (!input_message(file, &lossd__v1__compute_loss_request__descriptor, &run->arena, &message))
        return EXIT_INPUT;
    run->request = (Lossd__V1__ComputeLossRequest *)message;
    return rpc_open(options, 0, &run->connection, &failure) ? EXIT_DONE : rpc_failed(options, &failure);
}

int rank_runs_load(const struct options *options, char **files, size_t count, struct rank_runs *ranks)
{
    int exit_code = EXIT_DONE;

    *ranks = (struct rank_runs){.runs = calloc(count, sizeof *ranks->runs), .count = count};
    if (ranks->runs == NULL) {
        ranks->count = 0;
        return complain(EXIT_LOCAL, "memory is out");
    }
    for (size_t i = 0; i < count && exit_code == EXIT_DONE; i++)
        exit_code = load(options, files[i], &ranks->runs[i]);
    return exit_code;
}

bool rank_runs_same_group(const struct rank_run *a, const struct rank_run *b)
{
    return a->request->group != NULL && b->request->group != NULL && strcmp(a->request->group, b->request->group) == 0;
}

int rank_runs_check(const struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (run->request->group == NULL)
            return complain(EXIT_INPUT, "%s has no group", run->file);
        for (size_t before = 0; before < i; before++) {
            const struct rank_run *other = &ranks->runs[before];

            if (run->request->rank == other->request->rank && rank_runs_same_group(run, other))
                return complain(EXIT_INPUT, "%s and %s are both rank %" PRIu32 " of %s: each file is a rank of its own",
                                other->file, run->file, run->request->rank, run->request->group);
        }
    }
    return EXIT_DONE;
}

int rank_runs_check_whole(const struct rank_runs *ranks)
{
    const struct rank_run *first = &ranks->runs[0];

    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (!rank_runs_same_group(run, first))
            return complain(EXIT_INPUT, "%s has the group %s, but --join joins one group, that of %s: %s", run->file,
                            run->request->group, first->file, first->request->group);
        if (!run->request->has_rank && ranks->count > 1)
            return complain(EXIT_INPUT, "%s has no rank", run->file);
        if (run->request->rank >= ranks->count)
            return complain(EXIT_INPUT,
                            "%s is rank %" PRIu32 ", but --join joins as many ranks as there are files: %zu, "
                            "from 0 on",
                            run->file, run->request->rank, ranks->count);
    }
    return EXIT_DONE;
}

void rank_runs_finish(struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        struct rank_run *run = &ranks->runs[i];

        rpc_close(&run->connection);
        failure_finish(&run->failure);
        arena_finish(&run->arena);
    }
    free(ranks->runs);
    *ranks = (struct rank_runs){0};
}

static bool join(const Lossd__V1__JoinGroupRequest *request, struct rank_run *run, struct failure *failure)
{
    ProtobufCMessage *message;

    if (!rpc_call(&run->connection, "lossd.v1.GroupService/JoinGroup", &request->base,
                  &lossd__v1__join_group_response__descriptor, &run->arena, &message, failure))
        return false;
    run->request->has_generation = 1;
    run->request->generation = ((const Lossd__V1__JoinGroupResponse *)message)->generation;
    return true;
}

/* The first to join a generation opens it; the calls of all carry the number of that one. */
static int join_all(const struct options *options, Lossd__V1__GroupConfig *config, struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        Lossd__V1__JoinGroupRequest request = LOSSD__V1__JOIN_GROUP_REQUEST__INIT;
        struct failure failure;

        request.group = ranks->runs[0].request->group;
        request.has_rank = 1;
        request.rank = ranks->runs[i].request->rank;
        request.has_world_size = 1;
        request.world_size = (uint32_t)ranks->count;
        request.config = config;
        if (!join(&request, &ranks->runs[i], &failure))
            return rpc_failed(options, &failure);
    }
    for (size_t i = 0; i < ranks->count; i++)
        ranks->runs[i].request->generation = ranks->runs[ranks->count - 1].request->generation;
    return EXIT_DONE;
}

int rank_runs_join(const struct options *options, const char *config_file, struct rank_runs *ranks)
{
    ProtobufCMessage *config;
    struct arena arena;
    int exit_code = EXIT_INPUT;

    arena_init(&arena, ARENA_BYTES, NULL);
    if (input_message(config_file, &lossd__v1__group_config__descriptor, &arena, &config))
        exit_code = join_all(options, (Lossd__V1__GroupConfig *)config, ranks);
    arena_finish(&arena);
    return exit_code;
}

static void ask(struct rank_run *run)
{
    Lossd__V1__GetGroupRequest request = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    ProtobufCMessage *message;
    struct failure failure;

    request.group = run->request->group;
    if (rpc_call(&run->connection, "lossd.v1.GroupService/GetGroup", &request.base,
                 &lossd__v1__get_group_response__descriptor, &run->arena, &message, &failure))
        run->group = ((const Lossd__V1__GetGroupResponse *)message)->group;
    else
        failure_finish(&failure); /* the calls that follow say why */
}

void rank_runs_ask(struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        size_t same = 0;

        while (!rank_runs_same_group(&ranks->runs[same], &ranks->runs[i]))
            same++;
        if (same == i)
            ask(&ranks->runs[i]);
        else
            ranks->runs[i].group = ranks->runs[same].group;
    }
}

static void *send(void *context)
{
    struct rank_run *run = context;
    ProtobufCMessage *message;

    if (rpc_call(&run->connection, "lossd.v1.LossService/ComputeLoss", &run->request->base,
                 &lossd__v1__compute_loss_response__descriptor, &run->arena, &message, &run->failure))
        run->response = (Lossd__V1__ComputeLossResponse *)message;
    else if (run->on_failure != NULL)
        run->on_failure(run);
    return NULL;
}

void rank_runs_send(struct rank_runs *ranks, void (*on_failure)(const struct rank_run *run))
{
    for (size_t i = 0; i < ranks->count; i++) {
        struct rank_run *run = &ranks->runs[i];

        run->on_failure = on_failure;
        run->started = pthread_create(&run->thread, NULL, send, run) == 0;
        if (run->started)
            continue;
        (void)failure_local(&run->failure, EXIT_LOCAL, "%s: no thread to send it from", run->file);
        if (on_failure != NULL)
            on_failure(run);
    }
    for (size_t i = 0; i < ranks->count; i++)
        if (ranks->runs[i].started)
            (void)pthread_join(ranks->runs[i].thread, NULL);
}
