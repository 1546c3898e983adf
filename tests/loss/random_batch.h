/* Random configs and batches: every loss and parameter, weights, sessions, empty and long lists, extreme logits. */
#ifndef TESTS_LOSS_RANDOM_BATCH_H
#define TESTS_LOSS_RANDOM_BATCH_H

#include "batch/batch.h"
#include "support/random.h"

struct random_limits {
    uint32_t max_tasks;
    uint32_t max_requests;
    uint32_t max_length;   /* of one list */
    double max_logit;      /* most are within 8; a few up to this */
    bool exact;            /* only what does not depend on how the batch is split over ranks */
    double nonfinite_rate; /* of logits */
};

/* Everything lies in the arena. */
void random_config(struct random *random, const struct random_limits *limits, struct arena *arena,
                   struct group_config *config);
void random_batch(struct random *random, const struct random_limits *limits, const struct group_config *config,
                  struct arena *arena, struct batch *batch);

#endif
