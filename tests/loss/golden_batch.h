/* A batch of one task, and its loss, from a golden case. */
#ifndef TESTS_LOSS_GOLDEN_BATCH_H
#define TESTS_LOSS_GOLDEN_BATCH_H

#include "batch/batch.h"
#include "support/golden.h"

struct golden_batch {
    struct batch batch;
    struct task_batch task;
    uint32_t one_length; /* where a case has no lengths: one request */
};

/*
 * object has logits, labels and maybe lengths, sample_weights, indicator, session_index. A batch points into itself:
 * it must not be copied. golden_batch_finish frees the columns.
 */
void golden_batch_init(struct golden_batch *golden, struct json_object *object, const char *task_name);
void golden_batch_finish(struct golden_batch *golden);

/* The loss of a case of one loss, with its config; a number of the config, where it is there. */
struct loss_config golden_loss(struct json_object *entry);
double golden_number_or(struct json_object *config, const char *name, double otherwise);

/* Fails the Check test where found is off by more than tolerance. */
void expect_near(double found, double expected, double tolerance, const char *id, const char *what);

/* The same for a gradient against the array at path; relative to the greatest of them. */
void expect_gradient(const float *found, size_t count, struct json_object *object, const char *path, double scale,
                     const char *id);

#endif
