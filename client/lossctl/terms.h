/* The terms of losses as tables. */
#ifndef LOSSCTL_TERMS_H
#define LOSSCTL_TERMS_H

#include <stdio.h>

#include "lossctl/ranks.h"

/*
 * The terms of an answered rank, so that each line multiplies out: SUM / DENOMINATOR = LOCAL MEAN, and LOCAL MEAN x
 * FACTOR x WEIGHT = VALUE. WEIGHT is that of the task times that of the loss, "-" where the group is not known.
 */
void terms_print(const struct rank_run *run, FILE *file);

/*
 * Each term's mean over the whole batch (sums over denominators of all ranks) beside the mean of the ranks' local
 * means, which a trainer would take that knows no other ranks. All ranks were answered; nothing where they are not all
 * ranks of one step of one group, or it has one rank.
 */
void terms_print_means(const struct rank_runs *ranks, FILE *file);

#endif
