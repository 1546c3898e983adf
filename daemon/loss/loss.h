/*
 * The losses as callers see them: what a config may say, what a batch adds to the denominators of a step, and one run
 * over a batch that writes losses and gradients already rescaled.
 *
 * A call order: loss_plan_init once for a group; then for each batch batch_check, loss_prepare (the contribution),
 * and, when the totals of the step are there, rescale and loss_run.
 */
#ifndef LOSS_LOSS_H
#define LOSS_LOSS_H

#include "base/arena.h"
#include "base/status.h"
#include "batch/batch.h"
#include "batch/group_config.h"
#include "batch/result.h"

/* One row per loss kind; the table is in loss_kinds.c. */
struct loss_kind_info {
    const char *name;     /* "binary_cross_entropy": TorchEasyRec's, also the name of the term */
    unsigned label_rules; /* of enum label_rule */
    bool listwise;        /* averaged over lists, not candidates */
    uint32_t min_num_class;
    uint32_t max_num_class;
};

const struct loss_kind_info *loss_kind_info(enum loss_kind kind);

/*
 * The denominators that a step sums over its ranks: requests, candidates, and those that the tasks of the config need.
 * Slot numbers index contributions and totals; they depend on the config alone.
 */
enum { DENOMINATOR_REQUESTS = 0, DENOMINATOR_CANDIDATES = 1, MAX_DENOMINATORS = 2 + 3 * MAX_TASKS };

/* Slots of a task; a denominator without a slot of its own has that of the requests or candidates. */
struct task_slots {
    uint32_t weights;     /* sum of weights of rows that count (kept, in or out of task space), or candidates */
    uint32_t lists;       /* lists, or requests */
    uint32_t valid_lists; /* lists with a positive and a negative; only set where the config asks for it */
};

/* All that is known before the first batch. Read only after loss_plan_init, so any number of threads may share it. */
struct loss_plan {
    const struct group_config *config; /* borrowed */
    struct task_rules *rules;          /* [num_tasks], in the arena */
    struct task_slots *slots;          /* [num_tasks], in the arena */
    uint32_t num_denominators;         /* D, 2 to MAX_DENOMINATORS */
    bool announce_needs_batch;         /* some denominator can't be told from counts */
    const char *announce_field;        /* which field of the config asks for that; "" otherwise */
};

/*
 * Check a config and lay out its denominators.
 *
 * config  borrowed: has to outlive the plan.
 * arena   receives rules and slots.
 *
 * LOSSD_INVALID_CONFIG with the field path ("tasks[0].losses[1].binary_focal_loss.gamma"): a name, range or combination
 * that proto/lossd/v1/config.proto rules out. LOSSD_LIMIT_EXCEEDED: too many tasks or losses, or the arena is full.
 */
CHECK_RESULT
enum lossd_status loss_plan_init(struct loss_plan *plan, const struct group_config *config, struct arena *arena,
                                 struct lossd_error *err);

/*
 * A list of a task as the kernels walk it: list l holds the candidates rows[offsets[l]] .. rows[offsets[l + 1] - 1],
 * or offsets[l] .. offsets[l + 1] - 1 themselves where rows is NULL (lists are requests).
 */
struct task_lists {
    uint32_t num_lists;
    const uint32_t *offsets; /* [num_lists + 1] */
    const uint32_t *rows;    /* [C] a permutation, in each list rising; or NULL */
};

/* What loss_prepare makes of one task: its labels as numbers, its weights, its lists. In the arena, or borrowed. */
struct prepared_task {
    const float *labels;  /* [C]; decoded from label_bits where the task has a bitmask */
    const float *weights; /* [C] sample weight times task-space weight; NULL: all 1 */
    struct task_lists lists;
    double num_kept;   /* rows that count: C, less the softmax rows labelled -100 */
    double weight_sum; /* over the rows that count; num_kept where weights is NULL */
    double num_valid_lists;
};

struct prepared_batch {
    const struct batch *batch;
    struct prepared_task *tasks; /* [num_tasks] in the order of the message */
    double *contribution;        /* [D], by slot */
};

/*
 * Everything about a checked batch that does not need the totals: session lists, weights, this rank's contribution.
 *
 * batch  has passed batch_check; borrowed, has to outlive *prepared.
 * arena  receives the arrays.
 *
 * Only LOSSD_LIMIT_EXCEEDED, where the arena is full. Any thread.
 */
CHECK_RESULT
enum lossd_status loss_prepare(const struct loss_plan *plan, const struct batch *batch, struct arena *arena,
                               struct prepared_batch *prepared, struct lossd_error *err);

/*
 * The contribution that an announcement promises: all rows kept, all weights 1.
 * contribution  [D]
 * The caller has seen that plan->announce_needs_batch is false.
 */
void loss_announced_contribution(const struct loss_plan *plan, uint32_t requests, uint32_t candidates,
                                 double *contribution);

struct scales; /* rescale.h */

/*
 * Allocate what loss_run will write: tasks, terms and, unless the batch skips them, gradients.
 * LOSSD_LIMIT_EXCEEDED where the arena is full. Apart from loss_run, so that a step that is already summed can't fail
 * for want of memory.
 */
CHECK_RESULT
enum lossd_status loss_result_alloc(const struct loss_plan *plan, const struct batch *batch, struct arena *arena,
                                    struct result *result, struct lossd_error *err);

/*
 * All losses and gradients of a batch in one pass, on this thread.
 *
 * scales  of rescale(), for this batch.
 * result  from loss_result_alloc; tasks, losses, gradients and term values are written, step, world and replayed are
 *         left to the caller.
 * arena   scratch memory from loss_prepare's arena has been taken already: this function allocates nothing.
 *
 * Formulas: header of elem.h and of cpu.c. Same input, same bits, whatever the thread or the number of tasks.
 * Every gradient is rounded to binary32 once; -0 is never written. No error: whatever can fail has failed before.
 */
void loss_run(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct scales *scales,
              struct result *result);

#endif
