/* A client of liblossd with a ring of filled batches, as a trainer has it that writes its columns in place. */
#ifndef TESTS_BENCH_CLIENT_SIDE_H
#define TESTS_BENCH_CLIENT_SIDE_H

#include <lossd/lossd.h>

#include "bench/workload.h"

struct client_side {
    struct lossd_client *client;
    size_t num_tasks;
    uint64_t next; /* step; its batch is next % NUM_BATCHES */
    struct arena arena;
    struct columns sources[NUM_BATCHES]; /* in memory of their own */
    struct columns columns[NUM_BATCHES]; /* the same numbers in the buffers of the batches, gradients, too */
};

/*
 * Open, join a group of one rank with this config, fill all batches, and see on each that the answer is that of the
 * kernel, bit by bit.
 *
 * options  borrowed for the call; num_slots and the sizes are set here.
 */
void client_side_open(struct client_side *side, const struct lossd_options *options, const char *config,
                      struct kernel *kernel, uint32_t num_candidates);

/* Leaves the group. */
void client_side_close(struct client_side *side);

/* One step, with the batch as it lies there. */
void client_side_step(struct client_side *side);

/* One step whose columns are copied into the buffers first, as those of a tensor are. */
void client_side_copy_and_step(struct client_side *side);

#endif
