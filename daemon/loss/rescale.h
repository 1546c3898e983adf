/*
 * From sums over ranks to one factor per term: pure arithmetic, no state.
 *
 * A term's local mean S_r / N_r is multiplied by N_r * W / N where the trainer takes the mean over W ranks of what each
 * back-propagates, so that this mean is sum(S) / sum(N) exactly; by N_r / N where it takes the sum. 0/0 = 0.
 * Each term has the denominator of its own kind:
 *
 *   term                            local denominator              counts of its factor
 *   list-wise, ALL                  lists                          lists
 *   list-wise, VALID                valid lists                    valid lists
 *   BCE, focal, L2, JRC             weight sum                     weight sums; with LOCAL: candidates
 *   softmax, ignore_counting KEPT   weight sum of the kept rows    the same; with LOCAL: kept rows
 *   softmax, ignore_counting ALL    weight sum of the kept rows    candidates
 *
 * Without weights a weight sum is the number of rows.
 */
#ifndef LOSS_RESCALE_H
#define LOSS_RESCALE_H

#include <stdint.h>

#include "loss/loss.h"

/* What the all-reduce of a step gave; kept by the step machine, copied into the submission. */
struct totals {
    uint32_t num_ranks; /* W */
    double sums[MAX_DENOMINATORS];
};

/* Scale of one term. */
struct term_scale {
    double denominator; /* of the local mean */
    double factor;
    double unit; /* task weight * loss weight * factor / denominator, 0 where the denominator is 0: what a unit's
                    weight and gradient are multiplied by */
};

struct scales {
    double request_factor; /* local / mean requests; 0/0 = 0; 1 with global_average off */
    double candidate_factor;
    struct term_scale terms[MAX_TASKS][MAX_LOSSES]; /* [task in the order of the config][loss] */
};

/*
 * prepared  of this rank's batch
 * totals    of its step; with global_average off they are not read and every factor is 1
 * scales    every term of the config is written
 */
void rescale(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct totals *totals,
             struct scales *scales);

#endif
