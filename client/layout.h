/*
 * Where the columns of a batch lie in the buffers of a slot, the same for every transport: from the config of the
 * group and the shape alone. Each column begins at a multiple of LOSSD_SHM_ALIGNMENT, but with LOSSD_ROWS the tasks
 * share the columns of logits and of gradients.
 */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "batch/group_config.h"
#include "client/lossd.h"

#define NO_COLUMN UINT64_MAX

/* Of a batch: those of all slots, and a quarter more, are below 2^63. */
#define MAX_LAYOUT_BYTES (UINT64_C(1) << 58)

/* Bytes from the start of the slot's buffers, or NO_COLUMN. */
struct task_columns {
    uint64_t logits;
    uint64_t gradient;
    uint64_t labels;
    uint64_t weights;
    uint64_t sessions;
    uint64_t task_space;
    uint32_t stride; /* elements from a row of logits or gradients to the next */
};

struct batch_layout {
    struct lossd_shape shape;
    uint64_t bytes; /* of all columns, padding included */
    uint64_t lengths;
    uint64_t label_bits;
    struct task_columns tasks[MAX_TASKS]; /* [T] in the order of the config */
};

/*
 * BAD_SHAPE: a type or layout that there is not, gradients of a type that is neither F32 nor that of the logits,
 * weights of a task that there is not, more than MAX_LAYOUT_BYTES or MAX_TASKS. *layout is written on success only.
 */
enum lossd_code layout_plan(const struct group_config *config, const struct lossd_shape *shape,
                            struct batch_layout *layout, struct lossd_failure *failure);

/* The losses of all tasks. */
size_t config_num_terms(const struct group_config *config);

#endif
