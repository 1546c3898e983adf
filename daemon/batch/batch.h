/*
 * What is computed on, whoever sent it: the layout and the columns of one rank's batch of one step, and the check that
 * every batch passes before it counts.
 *
 * Letters in shapes: B requests, C candidates, K = num_class of the task, T tasks.
 */
#ifndef BATCH_BATCH_H
#define BATCH_BATCH_H

#include "base/arena.h"
#include "base/status.h"
#include "batch/group_config.h"
#include "batch/jagged.h"
#include "batch/values.h"

/*
 * The columns of one task as they came. Arrays are borrowed from whoever decoded them and live as long as the batch;
 * NULL with count 0 where absent. A count is what was sent: batch_check compares it with the layout.
 *
 * Values may change under our hands, where another process shares their memory: whoever reads them makes no step that
 * a changed value could lead astray (an index, a size, a sum of other ranks). Only lengths and sessions stay as they
 * are; transports that share memory copy these.
 */
struct task_batch {
    const char *name;
    const void *logits; /* [C, K] row-major, of logits_type */
    size_t num_logits;  /* C * K, whatever the stride */
    enum value_type logits_type;
    size_t logits_stride; /* elements from a row to the next, >= K; 0: K */
    void *gradient;       /* where the gradient is to be written, of gradient_type; NULL: binary32 rows in the arena */
    enum value_type gradient_type;
    size_t gradient_stride; /* as logits_stride */
    const float *labels;    /* [C]; none where the task has a label_bitmask */
    size_t num_labels;
    const float *weights; /* [C]; none: all 1 */
    size_t num_weights;
    const int64_t *sessions; /* [C], exactly where the task's lists are sessions */
    size_t num_sessions;
    const float *task_space; /* [C] indicator, in the task's space where > 0 */
    size_t num_task_space;
    bool has_log_scale;
    double log_scale;
    size_t config_index; /* of this task in group_config.tasks; set by batch_check */
};

struct batch {
    const uint32_t *lengths; /* [num_lengths] as sent */
    size_t num_lengths;
    struct jagged layout;       /* set by batch_check */
    const uint64_t *label_bits; /* [C], or none */
    size_t num_label_bits;
    struct task_batch *tasks; /* [num_tasks] in the order of the message */
    size_t num_tasks;
    bool skip_gradient;
    float gradient_scale;
};

/* What labels of a task may be; a set, since each loss of the task adds its own rule. */
enum label_rule {
    LABEL_FINITE = 0,
    LABEL_UNIT_INTERVAL = 1, /* [0, 1] */
    LABEL_ZERO_OR_ONE = 2,
    LABEL_CLASS = 4,       /* an integer in [0, K) or -100 */
    LABEL_NONNEGATIVE = 8, /* y >= 0: list-wise targets that are distributions */
};

/* What the losses of a task ask of its batch; made by loss_plan_init, one a task, in the order of the config. */
struct task_rules {
    unsigned label_rules;  /* of enum label_rule */
    bool allows_weights;   /* no list-wise loss */
    bool needs_task_space; /* in or out weight is not 1 */
    bool allows_log_scale; /* a list-wise loss with learnable_temperature */
};

struct batch_limits {
    uint32_t max_requests;
    uint32_t max_candidates;
};

/*
 * Check a batch completely against the group's config and set layout and each task's config_index.
 *
 * rules  [config->num_tasks]
 * arena  receives the offsets
 *
 * The first fault that is found is reported, with the field path of the message:
 *   LOSSD_LIMIT_EXCEEDED        lengths: too many requests or candidates (metadata "limit")
 *   LOSSD_TASK_SET_MISMATCH     tasks[i].name unknown or repeated; tasks: one is missing (metadata "task")
 *   LOSSD_SHAPE_MISMATCH        a column whose count is not what the layout says (metadata "task", "expected", "got");
 *                               sessions or task_space that the config needs and that are not there; sessions without
 *                               LISTS_SESSIONS, weights beside a list-wise loss. task_space that nothing needs is
 *                               checked and has no effect
 *   LOSSD_LABEL_COUNT_MISMATCH  the same for labels and label_bits (metadata "task", "labels", "candidates"): labels of
 *                               a task with a label_bitmask, label_bits where no task has one
 *   LOSSD_LABEL_OUT_OF_RANGE    tasks[i].labels[c]
 *   LOSSD_WEIGHT_OUT_OF_RANGE   tasks[i].weights[c] not finite or negative; task_space[c] not finite
 *   LOSSD_NONFINITE_LOGITS      tasks[i].logits[j], with ON_NONFINITE_ERROR only (metadata "task", "count",
 *                               "first_index"); j = c * K + k, whatever the stride
 *   LOSSD_INVALID_ARGUMENT      gradient_scale or tasks[i].log_scale not finite; log_scale where the task has no
 *                               list-wise loss with a learned temperature; tasks[i].logits_stride, gradient_stride
 *                               below num_class
 * What values it finds says nothing about those that are read later, where another process may change them.
 * Any thread; reads only what it is given.
 */
CHECK_RESULT
enum lossd_status batch_check(struct batch *batch, const struct group_config *config, const struct task_rules *rules,
                              const struct batch_limits *limits, struct arena *arena, struct lossd_error *err);

#endif
