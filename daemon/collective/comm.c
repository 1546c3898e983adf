/* Which engine a communicator uses, and the calls through to it. */
#include "collective/comm.h"

#include <stdlib.h>

#include "collective/engine.h"

struct comm {
    const struct engine *engine;
    void *state;
};

enum lossd_status comm_open(const struct comm_settings *settings, struct comm **comm, struct lossd_error *err)
{
    if (settings->nnodes != 1)
        return error_set(err, LOSSD_NOT_SUPPORTED, "nnodes",
                         "is %u, but this build has no engine for more than one node", settings->nnodes);
    return comm_open_engine(&local_engine, settings, comm, err);
}

enum lossd_status comm_open_engine(const struct engine *engine, const struct comm_settings *settings,
                                   struct comm **comm, struct lossd_error *err)
{
    struct comm *opened = calloc(1, sizeof *opened);
    enum lossd_status status;

    if (opened == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    opened->engine = engine;
    status = engine->open(settings, &opened->state, err);
    if (status != LOSSD_OK) {
        free(opened);
        return status;
    }
    *comm = opened;
    return LOSSD_OK;
}

const char *comm_engine_name(const struct comm *comm)
{
    return comm->engine->name;
}

bool comm_is_immediate(const struct comm *comm)
{
    return comm->engine->immediate;
}

enum lossd_status comm_all_reduce(struct comm *comm, double *vector, size_t count, int64_t deadline_ns,
                                  struct lossd_error *err)
{
    return comm->engine->all_reduce(comm->state, vector, count, deadline_ns, err);
}

void comm_close(struct comm *comm)
{
    if (comm == NULL)
        return;
    comm->engine->close(comm->state);
    free(comm);
}
