/* Threads that compute submissions, in the order in which they come, so that no lock or transport waits for losses. */
#ifndef GROUP_COMPUTE_POOL_H
#define GROUP_COMPUTE_POOL_H

#include "base/status.h"
#include "group/submission.h"

struct compute_pool;

/*
 * num_threads >= 1. run(context, submission) is called once for each that is pushed, on one of the threads, without
 * locks. NULL, with err, where threads or memory can't be had.
 */
struct compute_pool *compute_pool_create(unsigned num_threads, void (*run)(void *context, struct submission *),
                                         void *context, struct lossd_error *err);

/* Any thread; never waits for a computation. */
void compute_pool_push(struct compute_pool *pool, struct submission *submission);

/* Runs what was pushed, then ends the threads. Takes NULL. */
void compute_pool_destroy(struct compute_pool *pool);

#endif
