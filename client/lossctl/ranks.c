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
    if (!input_message(file, &lossd__v1__compute_loss_request__descriptor, &run->arena, &run->bytes, &message))
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

int rank_runs_check(const struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (run->request->group == NULL)
            return complain(EXIT_INPUT, "%s has no group", run->file);
        for (size_t before = 0; before < i; before++) {
            const struct rank_run *other = &ranks->runs[before];

            if (run->request->rank == other->request->rank && strcmp(run->request->group, other->request->group) == 0)
                return complain(EXIT_INPUT, "%s and %s are both rank %" PRIu32 " of %s: each file is a rank of its own",
                                other->file, run->file, run->request->rank, run->request->group);
        }
    }
    return EXIT_DONE;
}

void rank_runs_finish(struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        struct rank_run *run = &ranks->runs[i];

        rpc_close(&run->connection);
        http_response_finish(&run->http);
        failure_finish(&run->failure);
        arena_finish(&run->arena);
        free(run->bytes);
    }
    free(ranks->runs);
    *ranks = (struct rank_runs){0};
}

static bool join(const Lossd__V1__JoinGroupRequest *request, struct rank_run *run, struct failure *failure)
{
    struct http_response response = {0};
    ProtobufCMessage *message;
    bool joined;

    joined = rpc_call(&run->connection, "lossd.v1.GroupService/JoinGroup", &request->base,
                      &lossd__v1__join_group_response__descriptor, &run->arena, &response, &message, failure);
    if (joined) {
        run->request->has_generation = 1;
        run->request->generation = ((const Lossd__V1__JoinGroupResponse *)message)->generation;
    }
    http_response_finish(&response);
    return joined;
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
    uint8_t *bytes = NULL;
    int exit_code = EXIT_INPUT;

    for (size_t i = 1; i < ranks->count; i++)
        if (strcmp(ranks->runs[i].request->group, ranks->runs[0].request->group) != 0)
            return complain(EXIT_INPUT, "%s has the group %s, but --join joins one group, that of %s: %s",
                            ranks->runs[i].file, ranks->runs[i].request->group, ranks->runs[0].file,
                            ranks->runs[0].request->group);
    arena_init(&arena, ARENA_BYTES, NULL);
    if (input_message(config_file, &lossd__v1__group_config__descriptor, &arena, &bytes, &config))
        exit_code = join_all(options, (Lossd__V1__GroupConfig *)config, ranks);
    arena_finish(&arena);
    free(bytes);
    return exit_code;
}

static void *send(void *context)
{
    struct rank_run *run = context;
    ProtobufCMessage *message;

    if (rpc_call(&run->connection, "lossd.v1.LossService/ComputeLoss", &run->request->base,
                 &lossd__v1__compute_loss_response__descriptor, &run->arena, &run->http, &message, &run->failure))
        run->response = (Lossd__V1__ComputeLossResponse *)message;
    return NULL;
}

void rank_runs_send(struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        struct rank_run *run = &ranks->runs[i];

        run->started = pthread_create(&run->thread, NULL, send, run) == 0;
        if (!run->started)
            (void)failure_local(&run->failure, EXIT_LOCAL, "%s: no thread to send it from", run->file);
    }
    for (size_t i = 0; i < ranks->count; i++)
        if (ranks->runs[i].started)
            (void)pthread_join(ranks->runs[i].thread, NULL);
}
