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

/*
 * Slots of a task; a denominator without a slot of its own has that of the requests or candidates.
 * A row counts unless softmax ignores it (label -100). With WEIGHT_NORMALIZER_GLOBAL slot weights holds the sum of
 * weights (times task space) of the rows that count; with LOCAL, where weights stay at home, the number of these rows.
 */
struct task_slots {
    uint32_t weights;     /* or candidates, where no row can be ignored and no weight can be global */
    uint32_t lists;       /* sessions of a task with a list-wise loss, or requests */
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
 *
 * Combinations: losses of one task share its logits and labels, so their num_class has to agree, and labels have to
 * satisfy all of them: binary cross entropy, focal, L2 and list-wise (num_class 1) go together, softmax and JRC do
 * where num_class is 2 (no label -100 then), softmax alone where it is above. Any loss may come more than once, with
 * other parameters, but for the list-wise one: a task has one log_scale. Beside a list-wise loss the task space
 * weights have to be 1.
 */
CHECK_RESULT
enum lossd_status loss_plan_init(struct loss_plan *plan, const struct group_config *config, struct arena *arena,
                                 struct lossd_error *err);

/*
 * The lists of a task as the kernels walk them: list l holds the candidates rows[offsets[l]] .. rows[offsets[l + 1] -
 * 1], or offsets[l] .. offsets[l + 1] - 1 themselves where rows is NULL (lists are requests).
 */
struct task_lists {
    uint32_t num_lists;
    const uint32_t *offsets; /* [num_lists + 1] */
    const uint32_t *rows;    /* [C] a permutation, in each list rising; or NULL. Sessions come in the order of ids */
};

/*
 * What loss_prepare makes of one task: where its labels and weights are, its lists, its sums. Columns are borrowed from
 * the batch. The weight of a row is its sample weight times its task-space weight, row_weight().
 */
struct prepared_task {
    const float *labels;        /* [C]; NULL where they are bits, row_label() */
    const uint64_t *label_bits; /* [C] of the batch; NULL where they are numbers */
    uint64_t label_mask;
    const float *weights;    /* [C] sample weights as sent; NULL: all 1 */
    const float *task_space; /* [C] as sent; NULL where it makes no difference */
    double in_weight;        /* of rows with task_space > 0 */
    double out_weight;       /* of the others */
    struct task_lists lists;
    double num_kept;        /* rows that count: C, less the softmax rows labelled -100 */
    double weight_sum;      /* over the rows that count, finite, >= 0; num_kept where there are no weights */
    double num_valid_lists; /* counted only where the config asks for it */
};

static inline float row_label(const struct prepared_task *task, size_t row)
{
    if (task->label_bits == NULL)
        return task->labels[row];
    return (task->label_bits[row] & task->label_mask) != 0 ? 1.0F : 0.0F;
}

/* Binary64, so that sums of weights are those of the products, not of rounded ones. */
static inline double row_weight(const struct prepared_task *task, size_t row)
{
    const double weight = task->weights != NULL ? (double)task->weights[row] : 1.0;

    if (task->task_space == NULL)
        return weight;
    return weight * (task->task_space[row] > 0.0F ? task->in_weight : task->out_weight);
}

struct prepared_batch {
    const struct batch *batch;
    struct prepared_task *tasks; /* [num_tasks] in the order of the message */
    double *contribution;        /* [D], by slot */
};

/*
 * Everything about a checked batch that does not need the totals: session lists, weights, this rank's contribution.
 *
 * batch  has passed batch_check; borrowed, has to outlive *prepared.
 * arena  receives sizeof(struct prepared_task) bytes a task, 8 * D bytes, and 8 * C + 4 * (lists + 1) bytes for each
 *        task with LISTS_SESSIONS. Nothing else of a step grows with the batch but its offsets (jagged.h) and those
 *        gradients that loss_result_alloc makes room for.
 *
 * LOSSD_LIMIT_EXCEEDED where the arena is full. LOSSD_WEIGHT_OUT_OF_RANGE, field "tasks[i].weights": the sum of weights
 * is negative or not finite, which is so only where another process has changed the columns since they were checked.
 * Whatever it changes: a contribution is finite and not negative, rows and lists that count are no more than there are.
 * Any thread.
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
 * Allocate what loss_run will write: tasks, terms and, unless the batch skips them or has memory of its own for them,
 * gradients.
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
 * result  from loss_result_alloc; tasks, losses, gradients, term values, local and the two factors are written; step,
 *         world and replayed are left to the caller.
 *
 * Formulas: elem.h and the cpu_*.c files. Same input, same bits, whatever the thread or the number of tasks; nothing is
 * allocated, about 120 KiB of stack are used. Every gradient is rounded once, to its type, all losses of the task
 * together: beyond its range it is infinite, which scaled losses are watched for; -0 is never written. Finite logits
 * make no NaN, whatever the config and the weights. No error: whatever can fail has failed before.
 *
 * Where another process changes columns while this runs, numbers of this rank's result may be any, NaN too; nothing is
 * read or written outside of the batch and the result.
 *
 * ON_NONFINITE_ZERO: a unit is a row for binary cross entropy, focal, L2 and softmax, a list for JRC and list-wise. A
 * unit with a NaN or infinite logit adds nothing to sum, gradients and log_scale_gradient and still counts in the
 * denominator. nonfinite_units of a task counts such units of each of its losses: a bad row of a task with binary
 * cross entropy and a list-wise loss makes 2 (the row, its list).
 *
 * The empty batch gives losses 0 and empty gradients.
 */
void loss_run(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct scales *scales,
              struct result *result);

#endif
