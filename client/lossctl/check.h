/*
 * compute --check: the same rows once more, as one batch of one rank, in a group of its own that is left afterwards.
 *
 * A trainer that takes the mean over W ranks applies 1/W of each rank's gradient to its rows; where ranks are averaged
 * right, this is the gradient that one rank with the whole batch gets for the same row, and the mean of the losses is
 * its loss. (GRAD_REDUCE_SUM: without the 1/W, and the sum of the losses.)
 */
#ifndef LOSSCTL_CHECK_H
#define LOSSCTL_CHECK_H

#include "lossctl/command.h"
#include "lossctl/ranks.h"

/*
 * Whether the batches can be put behind each other: gradients wanted, the same tasks, scales and columns everywhere
 * (weights may be absent), no sessions, whose ids match within a rank's batch only. EXIT_INPUT with a complaint.
 */
int check_possible(const struct rank_runs *ranks);

/* All ranks were answered. Prints what was compared; EXIT_CHECK where it differs, other exit codes where calls fail. */
int check_against_whole(const struct options *options, const struct rank_runs *ranks);

#endif
