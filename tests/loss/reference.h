/*
 * Losses and gradients of all ranks of a step, straight from the formulas, in long double: slow, plain, and written
 * without a look at the daemon's own maths. It shares nothing with it but the structs of configs and batches.
 */
#ifndef TESTS_LOSS_REFERENCE_H
#define TESTS_LOSS_REFERENCE_H

#include "batch/batch.h"
#include "batch/group_config.h"

struct reference_term {
    double sum;
    double denominator;
    double local_mean;
    double factor;
    double value;
    double units; /* rows or lists times their greatest weight: what an absolute error is measured by */
};

struct reference_task {
    struct reference_term terms[MAX_LOSSES];
    double *gradient; /* [C, K] of calloc, before any rounding; gradient_scale included */
    double *largest;  /* [C, K] the greatest magnitude that the losses could give there */
    double log_scale_gradient;
    double log_scale_largest; /* sum of |g (z - max z)| */
    uint32_t nonfinite_units;
};

struct reference_rank {
    struct reference_task *tasks; /* in the order of the batch */
    size_t num_tasks;
    double loss;
};

/*
 * batches  [num_ranks] have passed batch_check.
 * ranks    [num_ranks] filled; reference_free gives it back.
 */
void reference_run(const struct group_config *config, const struct batch *batches, size_t num_ranks,
                   struct reference_rank *ranks);
void reference_free(struct reference_rank *ranks, size_t num_ranks);

/* The list of each row of a task, numbered from 0; *num_lists counts empty ones too. Of malloc, [C]. */
uint32_t *reference_lists(const struct batch *batch, const struct task_batch *task, const struct task_config *config,
                          uint32_t *num_lists);

#endif
