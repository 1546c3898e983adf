/* Denominators, factors and what surrounds the formulas. */
#include "loss/reference.h"

#include <math.h>
#include <stdlib.h>

#include "loss/reference_internal.h"
#include "support/value_reference.h"

uint32_t *reference_lists(const struct batch *batch, const struct task_batch *task, const struct task_config *config,
                          uint32_t *num_lists)
{
    const uint32_t rows = batch->layout.num_candidates;
    uint32_t *list_of = malloc(sizeof *list_of * (rows + 1));
    uint32_t i = 0;

    *num_lists = 0;
    if (config->lists == LISTS_REQUESTS) {
        for (size_t r = 0; r < batch->num_lengths; r++)
            for (uint32_t n = 0; n < batch->lengths[r]; n++)
                list_of[i++] = (uint32_t)r;
        *num_lists = (uint32_t)batch->num_lengths;
        return list_of;
    }
    for (; i < rows; i++) {
        uint32_t earlier = 0;

        while (task->sessions[earlier] != task->sessions[i])
            earlier++;
        list_of[i] = earlier < i ? list_of[earlier] : (*num_lists)++;
    }
    return list_of;
}

static long double label_of(const struct batch *batch, const struct task_batch *task, const struct task_config *config,
                            uint32_t i)
{
    if (config->has_label_bitmask)
        return (batch->label_bits[i] & config->label_bitmask) != 0;
    return (long double)task->labels[i];
}

static long double weight_of(const struct task_batch *task, const struct task_config *config, uint32_t i)
{
    long double w = task->num_weights > 0 ? (long double)task->weights[i] : 1.0L;

    if (task->num_task_space > 0)
        w *= task->task_space[i] > 0.0F ? config->in_task_space_weight : config->out_task_space_weight;
    return w;
}

static void find_bad(struct reference_input *in)
{
    for (uint32_t i = 0; i < in->num_rows; i++)
        for (uint32_t c = 0; c < in->config->num_class; c++)
            if (!isfinite(in->z[(size_t)i * in->config->num_class + c])) {
                in->bad_row[i] = true;
                in->bad_list[in->list_of[i]] = true;
            }
}

static struct reference_input make_input(const struct group_config *config, const struct batch *batch, size_t t)
{
    const struct task_batch *task = &batch->tasks[t];
    struct reference_input in = {.config = &config->tasks[task->config_index], .batch = task};
    const size_t rows = batch->layout.num_candidates;
    const size_t k = in.config->num_class;
    double theta = 0.0;

    in.num_rows = (uint32_t)rows;
    in.list_of = reference_lists(batch, task, in.config, &in.num_lists);
    in.z = malloc(sizeof *in.z * (rows * k + 1));
    in.y = malloc(sizeof *in.y * (rows + 1));
    in.w = malloc(sizeof *in.w * (rows + 1));
    in.bad_row = calloc(rows + 1, sizeof *in.bad_row);
    in.bad_list = calloc((size_t)in.num_lists + 1, sizeof *in.bad_list);
    for (size_t v = 0; v < rows * k; v++)
        in.z[v] = (long double)reference_value(task->logits, task->logits_type,
                                               v / k * (task->logits_stride > 0 ? task->logits_stride : k) + v % k);
    for (uint32_t i = 0; i < rows; i++) {
        in.y[i] = label_of(batch, task, in.config, i);
        in.w[i] = weight_of(task, in.config, i);
    }
    if (config->on_nonfinite == ON_NONFINITE_ZERO)
        find_bad(&in);
    for (size_t l = 0; l < in.config->num_losses; l++)
        if (in.config->losses[l].kind == LOSS_LISTWISE_RANK)
            theta = -log(in.config->losses[l].listwise_rank.temperature_init);
    if (task->has_log_scale)
        theta = task->log_scale;
    in.scale = expl(fmin(theta, log(100.0)));
    in.scale_has_gradient = theta <= log(100.0);
    return in;
}

static void free_input(struct reference_input *in)
{
    free(in->list_of);
    free(in->z);
    free(in->y);
    free(in->w);
    free(in->bad_row);
    free(in->bad_list);
}

static bool is_listwise(const struct loss_config *loss)
{
    return loss->kind == LOSS_LISTWISE_RANK;
}

static double count_valid(const struct reference_input *in)
{
    uint32_t *positive = calloc((size_t)in->num_lists + 1, sizeof *positive);
    uint32_t *size = calloc((size_t)in->num_lists + 1, sizeof *size);
    double valid = 0.0;

    for (uint32_t i = 0; i < in->num_rows; i++) {
        size[in->list_of[i]]++;
        positive[in->list_of[i]] += in->y[i] != 0.0L;
    }
    for (uint32_t l = 0; l < in->num_lists; l++)
        valid += positive[l] > 0 && positive[l] < size[l];
    free(positive);
    free(size);
    return valid;
}

/* What the local mean of a term is over, and what its factor counts. */
static double denominator_of(const struct reference_input *in, const struct loss_config *loss, bool weighted,
                             bool ignoring)
{
    long double sum = 0.0L;

    if (is_listwise(loss))
        return loss->listwise_rank.denominator == DENOMINATOR_VALID ? count_valid(in) : in->num_lists;
    for (uint32_t i = 0; i < in->num_rows; i++)
        if (!ignoring || loss->kind != LOSS_SOFTMAX_CROSS_ENTROPY || in->y[i] != -100.0L)
            sum += weighted ? in->w[i] : 1.0L;
    return (double)sum;
}

static double factor_count(const struct group_config *config, const struct reference_input *in,
                           const struct loss_config *loss)
{
    const bool global = config->weight_normalizer == WEIGHT_NORMALIZER_GLOBAL;

    if (loss->kind == LOSS_SOFTMAX_CROSS_ENTROPY && loss->softmax_cross_entropy.ignore_counting == IGNORE_COUNTING_ALL)
        return denominator_of(in, loss, false, false);
    return denominator_of(in, loss, global, true);
}

/* local / mean over ranks, or local / sum. */
static double factor_of(const struct group_config *config, const struct batch *batches, size_t num_ranks, size_t rank,
                        size_t config_index, size_t l)
{
    double total = 0.0;
    double own = 0.0;

    if (!config->global_average)
        return 1.0;
    for (size_t r = 0; r < num_ranks; r++)
        for (size_t t = 0; t < batches[r].num_tasks; t++)
            if (batches[r].tasks[t].config_index == config_index) {
                struct reference_input in = make_input(config, &batches[r], t);
                const double count = factor_count(config, &in, &config->tasks[config_index].losses[l]);

                total += count;
                own = r == rank ? count : own;
                free_input(&in);
            }
    if (total == 0.0)
        return 0.0;
    return own * (config->grad_reduce == GRAD_REDUCE_MEAN ? (double)num_ranks : 1.0) / total;
}

static reference_loss *function_of(enum loss_kind kind)
{
    switch (kind) {
    case LOSS_SOFTMAX_CROSS_ENTROPY:
        return reference_softmax;
    case LOSS_JRC:
        return reference_jrc;
    case LOSS_LISTWISE_RANK:
        return reference_listwise;
    case LOSS_BINARY_CROSS_ENTROPY:
    case LOSS_BINARY_FOCAL:
    case LOSS_L2:
    case NUM_LOSS_KINDS:
        break;
    }
    return reference_pointwise;
}

static uint32_t count_bad(const struct reference_input *in, const struct loss_config *loss)
{
    const bool lists = is_listwise(loss) || loss->kind == LOSS_JRC;
    uint32_t bad = 0;

    for (uint32_t u = 0; u < (lists ? in->num_lists : in->num_rows); u++)
        bad += lists ? in->bad_list[u] : in->bad_row[u];
    return bad;
}

/* d/d theta = sum z dL/dz, about the maximum of each list. */
static void theta_gradient(const struct reference_input *in, const long double *own, struct reference_task *out)
{
    for (uint32_t l = 0; l < in->num_lists; l++) {
        long double max = -INFINITY;

        for (uint32_t i = 0; i < in->num_rows; i++)
            if (in->list_of[i] == l)
                max = fmaxl(max, in->z[i]);
        for (uint32_t i = 0; i < in->num_rows && !in->bad_list[l]; i++)
            if (in->list_of[i] == l && in->scale_has_gradient) {
                out->log_scale_gradient += (double)(own[i] * (in->z[i] - max));
                out->log_scale_largest += fabs((double)(own[i] * (in->z[i] - max)));
            }
    }
}

static void run_term(const struct reference_input *in, size_t l, double factor, double gradient_scale,
                     struct reference_task *out)
{
    const struct loss_config *loss = &in->config->losses[l];
    const size_t values = (size_t)in->num_rows * in->config->num_class;
    long double *own = calloc(values + 1, sizeof *own);
    struct reference_term *term = &out->terms[l];
    const double unit = in->config->weight * loss->weight * factor;
    long double sum = 0.0L;
    double most = 0.0;

    term->denominator = denominator_of(in, loss, true, true);
    term->factor = factor;
    function_of(loss->kind)(in, loss, term->denominator > 0.0 ? unit * gradient_scale / term->denominator : 0.0L, &sum,
                            own, out->largest);
    for (size_t v = 0; v < values; v++)
        out->gradient[v] += (double)own[v];
    if (is_listwise(loss))
        theta_gradient(in, own, out);
    for (uint32_t i = 0; i < in->num_rows; i++)
        most = fmax(most, (double)in->w[i]);
    term->sum = (double)sum;
    term->local_mean = term->denominator > 0.0 ? (double)sum / term->denominator : 0.0;
    term->value = unit * term->local_mean;
    term->units = fmax(term->denominator, most);
    out->nonfinite_units += count_bad(in, loss);
    free(own);
}

void reference_run(const struct group_config *config, const struct batch *batches, size_t num_ranks,
                   struct reference_rank *ranks)
{
    for (size_t r = 0; r < num_ranks; r++) {
        ranks[r] = (struct reference_rank){.num_tasks = batches[r].num_tasks};
        ranks[r].tasks = calloc(ranks[r].num_tasks + 1, sizeof *ranks[r].tasks);
        for (size_t t = 0; t < ranks[r].num_tasks; t++) {
            struct reference_input in = make_input(config, &batches[r], t);
            struct reference_task *out = &ranks[r].tasks[t];
            const size_t values = (size_t)in.num_rows * in.config->num_class + 1;

            out->gradient = calloc(values, sizeof *out->gradient);
            out->largest = calloc(values, sizeof *out->largest);
            for (size_t l = 0; l < in.config->num_losses; l++) {
                const double factor = factor_of(config, batches, num_ranks, r, batches[r].tasks[t].config_index, l);

                run_term(&in, l, factor, (double)batches[r].gradient_scale, out);
                ranks[r].loss += out->terms[l].value;
            }
            free_input(&in);
        }
    }
}

void reference_free(struct reference_rank *ranks, size_t num_ranks)
{
    for (size_t r = 0; r < num_ranks; r++) {
        for (size_t t = 0; t < ranks[r].num_tasks; t++) {
            free(ranks[r].tasks[t].gradient);
            free(ranks[r].tasks[t].largest);
        }
        free(ranks[r].tasks);
    }
}
