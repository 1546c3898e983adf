/* The batches of several ranks, one behind the other. */
#ifndef LOSSCTL_WHOLE_BATCH_H
#define LOSSCTL_WHOLE_BATCH_H

#include "lossctl/ranks.h"

/*
 * A request with the rows of all ranks in the order of the ranks, for a world of one. It lies in the arena, but for
 * the names. Its tasks are in the order of the first rank's. NULL where memory is out.
 */
Lossd__V1__ComputeLossRequest *whole_batch(const struct rank_runs *ranks, struct arena *arena);

/* The task of a request by name, NULL where it has none of this name. */
const Lossd__V1__TaskBatch *find_task(const Lossd__V1__ComputeLossRequest *request, const char *name);

/* Sum of the lengths. */
size_t num_candidates(const Lossd__V1__ComputeLossRequest *request);

#endif
