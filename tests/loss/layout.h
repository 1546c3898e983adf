/* The columns of a batch laid out anew, as a transport with shared memory finds them. */
#ifndef TESTS_LOSS_LAYOUT_H
#define TESTS_LOSS_LAYOUT_H

#include "batch/batch.h"
#include "batch/group_config.h"

struct layout {
    enum value_type logits_type;
    enum value_type gradient_type;
    bool in_rows; /* one matrix [C, sum of K + 1] for all tasks; or [C, K + 1] for each */
    bool tight;   /* for each task, with nothing between the rows */
};

enum { LAID_OUT_MAX_TASKS = 3, LAID_OUT_MAX_BLOCKS = 4 + 6 * LAID_OUT_MAX_TASKS, LAID_OUT_MARK = 0xa5 };

/* Memory of its own for a column, not a byte more than it needs. */
struct block {
    void *bytes;
    size_t size;
    bool may_change; /* what another process could write to while it is read */
};

struct laid_out {
    struct layout layout;
    struct batch batch;
    struct task_batch tasks[LAID_OUT_MAX_TASKS];
    struct block blocks[LAID_OUT_MAX_BLOCKS];
    size_t num_blocks;
};

/*
 * A copy of a batch of binary32 logits: these rounded to the type, and memory for gradients, full of a mark. The tasks
 * are in the order of the config. The copy points into itself. laid_out_finish gives it back.
 */
void lay_out(struct laid_out *copy, const struct batch *batch, const struct group_config *config,
             const struct layout *layout);
void laid_out_finish(struct laid_out *copy);

/* Element v = c * K + k of a gradient as it was written. */
double laid_out_gradient(const struct task_batch *task, size_t num_class, size_t v);

/* Whether all that lies between the rows of gradients still holds the mark. */
bool laid_out_gaps_are_marked(const struct laid_out *copy, const struct group_config *config);

/* value rounded to a type, as binary64. */
double round_to_type(double value, enum value_type type);

#endif
