/* What a batch gives: losses by task and term, gradients, counts. Memory belongs to the submission's arena. */
#ifndef BATCH_RESULT_H
#define BATCH_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* value = task weight * loss weight * factor * local_mean; local_mean = sum / denominator, 0/0 = 0. */
struct loss_term {
    const char *name; /* static, "binary_cross_entropy" */
    double value;
    double local_mean;
    double sum;
    double denominator;
    double factor;
};

struct task_result {
    const char *name;        /* of the config */
    double loss;             /* sum of the terms' values */
    struct loss_term *terms; /* [num_terms] in the order of the config */
    size_t num_terms;
    /* [num_gradient] of the shape of the logits, rows together. NULL and 0 where gradients are skipped, and where the
     * batch says where the gradient of the task goes (task_batch.gradient): then it lies there. */
    float *gradient;
    size_t num_gradient;
    bool has_log_scale_gradient;
    double log_scale_gradient;
    uint32_t nonfinite_units;
};

struct counts {
    double requests;
    double candidates;
    uint32_t ranks;
};

struct result {
    uint64_t step;
    double loss;               /* sum over the tasks */
    struct task_result *tasks; /* [num_tasks] in the order of the message */
    size_t num_tasks;
    struct counts local;
    struct counts world;
    double request_factor;
    double candidate_factor;
    bool replayed;
};

#endif
