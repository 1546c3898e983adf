#include "loss/rescale.h"

/* 0/0 = 0. */
static double ratio(double numerator, double denominator)
{
    return denominator > 0.0 ? numerator / denominator : 0.0;
}

static double local_denominator(const struct prepared_task *prepared, const struct loss_config *loss)
{
    if (!loss_kind_info(loss->kind)->listwise)
        return prepared->weight_sum;
    return loss->listwise_rank.denominator == DENOMINATOR_VALID ? prepared->num_valid_lists : prepared->lists.num_lists;
}

/* The last column of the header's table. */
static uint32_t factor_slot(const struct loss_plan *plan, size_t t, const struct loss_config *loss)
{
    const struct task_slots *slots = &plan->slots[t];

    if (loss_kind_info(loss->kind)->listwise)
        return loss->listwise_rank.denominator == DENOMINATOR_VALID ? slots->valid_lists : slots->lists;
    if (loss->kind == LOSS_SOFTMAX_CROSS_ENTROPY)
        return loss->softmax_cross_entropy.ignore_counting == IGNORE_COUNTING_ALL ? DENOMINATOR_CANDIDATES
                                                                                  : slots->weights;
    return plan->config->weight_normalizer == WEIGHT_NORMALIZER_LOCAL ? DENOMINATOR_CANDIDATES : slots->weights;
}

/* Local count * multiple / the sum of all ranks; 1 where each rank averages alone. */
static double factor_of(const struct loss_plan *plan, const struct prepared_batch *prepared,
                        const struct totals *totals, uint32_t slot, uint32_t multiple)
{
    if (!plan->config->global_average)
        return 1.0;
    return ratio(prepared->contribution[slot] * multiple, totals->sums[slot]);
}

static struct term_scale scale_term(const struct loss_plan *plan, const struct prepared_batch *prepared, size_t i,
                                    const struct loss_config *loss, const struct totals *totals)
{
    const size_t t = prepared->batch->tasks[i].config_index;
    const struct task_config *task = &plan->config->tasks[t];
    const uint32_t multiple = plan->config->grad_reduce == GRAD_REDUCE_SUM ? 1 : totals->num_ranks;
    struct term_scale scale;

    scale.denominator = local_denominator(&prepared->tasks[i], loss);
    scale.factor = factor_of(plan, prepared, totals, factor_slot(plan, t, loss), multiple);
    scale.unit = ratio(task->weight * loss->weight * scale.factor, scale.denominator);
    return scale;
}

void rescale(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct totals *totals,
             struct scales *scales)
{
    /* local / mean count, whatever the trainer does with gradients */
    scales->request_factor = factor_of(plan, prepared, totals, DENOMINATOR_REQUESTS, totals->num_ranks);
    scales->candidate_factor = factor_of(plan, prepared, totals, DENOMINATOR_CANDIDATES, totals->num_ranks);
    for (size_t i = 0; i < prepared->batch->num_tasks; i++) {
        const size_t t = prepared->batch->tasks[i].config_index;
        const struct task_config *task = &plan->config->tasks[t];

        for (size_t l = 0; l < task->num_losses; l++)
            scales->terms[t][l] = scale_term(plan, prepared, i, &task->losses[l], totals);
    }
}
