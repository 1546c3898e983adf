/* One rank of `lossctl bench`: a client with filled batches, and a thread that makes steps with them. */
#ifndef LOSSCTL_BENCH_RANK_H
#define LOSSCTL_BENCH_RANK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lossctl/bench_options.h"
#include "lossctl/histogram.h"

/* What the ranks of a row share. */
struct bench_shared {
    const struct bench_options *bench;
    uint64_t bytes_per_step;
    atomic_uint_least64_t end_step; /* the first that is not made any more */
    atomic_uint_least64_t steps;    /* measured so far by rank 0; for the display */
    atomic_bool stop;               /* a signal came */
    atomic_int running;             /* threads */
    int64_t begin_ns;               /* of the first step that is measured; rank 0's */
    int64_t end_ns;                 /* of the last one */
};

struct bench_rank {
    struct bench_shared *shared;
    uint32_t rank;
    struct lossd_client *client; /* NULL where it could not be opened */
    bool joined;
    struct lossd_shape shape;
    struct histogram latency;
    bool failed;
    struct lossd_failure failure;
    pthread_t thread;
};

/*
 * Open the client, join, fill the batches: as many as a client can have, or as fit. Waits for no other rank.
 * shape and rank have been set. False where it failed: failed and failure say so.
 */
bool bench_rank_open(struct bench_rank *rank, const struct options *options, enum lossd_transport transport,
                     const struct lossd_membership *membership);

/* Leave the group, where it is joined. */
void bench_rank_leave(struct bench_rank *rank);

/*
 * For a thread: make steps up to end_step; context is the rank. One that can't go on leaves at once: the step of the
 * others ends with that.
 */
void *bench_rank_run(void *context);

#endif
