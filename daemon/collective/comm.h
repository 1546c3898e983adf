/* The one all-reduce of a step, as callers see it: a sum over nodes, in place. */
#ifndef COLLECTIVE_COMM_H
#define COLLECTIVE_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct comm_settings {
    uint32_t nnodes;    /* >= 1 */
    uint32_t node_rank; /* < nnodes */
};

struct comm; /* one communicator: one engine, one generation of one group */

/*
 * Open a communicator with the engine that fits: "local" where nnodes is 1. LOSSD_NOT_SUPPORTED, field "nnodes", where
 * no engine of this build does. *comm is written on success only.
 */
CHECK_RESULT
enum lossd_status comm_open(const struct comm_settings *settings, struct comm **comm, struct lossd_error *err);

/* "local", … */
const char *comm_engine_name(const struct comm *comm);

/* True where all_reduce never waits, so that it may be called under a lock. */
bool comm_is_immediate(const struct comm *comm);

/*
 * vector  [count] binary64, replaced by the sum over all nodes; undefined after an error.
 * One call at a time. Returns by deadline_ns (monotonic).
 */
CHECK_RESULT
enum lossd_status comm_all_reduce(struct comm *comm, double *vector, size_t count, int64_t deadline_ns,
                                  struct lossd_error *err);

/* Takes NULL. */
void comm_close(struct comm *comm);

#endif
