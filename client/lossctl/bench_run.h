/* One row of `lossctl bench`: a group of its own, its ranks as threads, and how long their steps took. */
#ifndef LOSSCTL_BENCH_RUN_H
#define LOSSCTL_BENCH_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "lossctl/bench_options.h"
#include "lossctl/histogram.h"

struct bench_row {
    enum lossd_transport transport; /* as used: never AUTO */
    uint32_t candidates;            /* of a rank */
    uint32_t requests;
    uint64_t steps;           /* measured */
    double seconds;           /* that they took, together */
    struct histogram latency; /* of each step of each rank, from the begin of the batch to its answer */
    bool interrupted;         /* SIGINT or SIGTERM came: fewer steps than were asked for */
};

/*
 * Join, warm up, measure, leave. Signals of bench_block_signals end it early, a second one the process.
 *
 * options  address, timeout_ms.
 * row      written on success only.
 * failure  written otherwise: of the rank that is to blame, as far as can be seen.
 */
bool bench_run(const struct options *options, const struct bench_options *bench, enum lossd_transport transport,
               uint32_t candidates, struct bench_row *row, struct lossd_failure *failure);

/* SIGINT and SIGTERM wait for bench_run from now on. */
void bench_block_signals(void);

#endif
