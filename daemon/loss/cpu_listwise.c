/*
 * Cross entropy of softmax(scale * z) over a list against a target t = raw / D:
 *
 *   target           raw                    D            lists that give nothing
 *   MEAN_POSITIVE    [y != 0]               sum of raw   those without a positive or without a negative
 *   RAW              y                      1
 *   PROBABILITY      y                      sum of raw   those whose labels are all 0
 *   SOFTMAX          e^(scale (y - max y))  sum of raw
 *
 * With DENOMINATOR_VALID also lists without a positive or without a negative give nothing, whatever the target.
 *
 *   loss = T ln sum e^u - sum t u,  u = scale (z - max z),  T = sum t
 *   d loss / dz = scale (T p - t),  d loss / d ln(scale) = sum (z - max z) d loss / dz  (the target held constant)
 *
 * The shift by the maximum of the list comes before the scale: the difference of two binary32 logits times 100 is far
 * from the range of binary64.
 */
#include "loss/cpu.h"

/* The exponentials and raw targets of a segment, from the maxima of its list (or of itself, while it is scanned). */
WIDE_VECTORS static void fill(struct task_run *run, const struct loss_config *loss, struct segment segment, double max,
                              double label_max)
{
    struct tile *tile = &run->tile;
    const double scale = run->scale;

    for (uint32_t i = segment.begin; i < segment.end; i++)
        tile->exps[i] = elem_exp(scale * (tile->logits[i] - max));
    switch (loss->listwise_rank.target) {
    case TARGET_MEAN_POSITIVE:
        for (uint32_t i = segment.begin; i < segment.end; i++)
            tile->targets[i] = tile->labels[i] != 0.0 ? 1.0 : 0.0;
        break;
    case TARGET_SOFTMAX:
        for (uint32_t i = segment.begin; i < segment.end; i++)
            tile->targets[i] = elem_exp(scale * (tile->labels[i] - label_max));
        break;
    case TARGET_RAW:
    case TARGET_PROBABILITY:
        for (uint32_t i = segment.begin; i < segment.end; i++)
            tile->targets[i] = tile->labels[i];
        break;
    }
}

static double target_divisor(const struct loss_config *loss, const struct listwise_list *list)
{
    return loss->listwise_rank.target == TARGET_RAW || list->mass == 0.0 ? 1.0 : list->mass;
}

/* Whether a list gives nothing, because it is empty or because of its labels. */
static bool is_mute(const struct loss_config *loss, const struct listwise_list *list)
{
    const bool one_sided = list->num_positive == 0 || list->num_positive == list->num_rows;

    if (list->num_rows == 0)
        return true;
    return one_sided &&
           (loss->listwise_rank.target == TARGET_MEAN_POSITIVE || loss->listwise_rank.denominator == DENOMINATOR_VALID);
}

struct listwise_list listwise_empty(void)
{
    return (struct listwise_list){.logits = elem_lse_empty()};
}

/* Bring what was summed under other maxima under these. */
static void move(struct listwise_list *list, double scale, double max, double label_max)
{
    if (list->num_rows == 0)
        return;
    list->dot += list->mass * scale * (list->logits.max - max);
    if (label_max != list->label_max) {
        const double shrink = elem_exp(scale * (list->label_max - label_max));

        list->mass *= shrink;
        list->dot *= shrink;
    }
    list->label_max = label_max;
}

static void merge(struct listwise_list *list, struct listwise_list part, double scale)
{
    const struct elem_lse logits = elem_lse_merge(list->logits, part.logits, scale);
    const double label_max = list->num_rows > 0 && list->label_max > part.label_max ? list->label_max : part.label_max;

    move(list, scale, logits.max, label_max);
    move(&part, scale, logits.max, label_max);
    list->logits = logits;
    list->label_max = label_max;
    list->mass += part.mass;
    list->dot += part.dot;
    list->num_rows += part.num_rows;
    list->num_positive += part.num_positive;
}

void listwise_scan(struct task_run *run, const struct loss_config *loss, struct segment segment,
                   struct listwise_list *list)
{
    const struct tile *tile = &run->tile;
    struct listwise_list part = {.num_rows = segment.end - segment.begin};
    uint32_t max;

    if (part.num_rows == 0)
        return;
    max = find_max(tile->logits, segment);
    part.logits.max = tile->logits[max];
    if (loss->listwise_rank.target == TARGET_SOFTMAX)
        part.label_max = tile->labels[find_max(tile->labels, segment)];
    fill(run, loss, segment, part.logits.max, part.label_max);
    for (uint32_t i = segment.begin; i < segment.end; i++) {
        const double u = run->scale * (tile->logits[i] - part.logits.max);

        part.logits.rest += i == max ? 0.0 : tile->exps[i];
        part.mass += tile->targets[i];
        part.dot += tile->targets[i] != 0.0 ? tile->targets[i] * u : 0.0;
        part.num_positive += tile->labels[i] != 0.0;
    }
    merge(list, part, run->scale);
}

double listwise_loss(const struct loss_config *loss, const struct listwise_list *list)
{
    const double divisor = target_divisor(loss, list);

    return is_mute(loss, list) ? 0.0 : list->mass / divisor * log1p(list->logits.rest) - list->dot / divisor;
}

WIDE_VECTORS void listwise_add(struct task_run *run, const struct term_run *term, struct segment segment,
                               const struct listwise_list *list)
{
    struct tile *tile = &run->tile;
    const double share = 1.0 / target_divisor(term->config, list);
    const double mass = list->mass * share;
    const double rest = list->logits.rest;
    const double inverse = 1.0 / (1.0 + rest);
    const double unit = term->unit * run->scale;
    double products[TILE_ROWS];

    if (is_mute(term->config, list))
        return;
    if (segment.end - segment.begin < list->num_rows)
        fill(run, term->config, segment, list->logits.max, list->label_max);
    for (uint32_t i = segment.begin; i < segment.end; i++) {
        const double gradient = unit *
                                elem_softmax_gradient(tile->exps[i], tile->targets[i] * share, mass, rest, inverse);

        tile->gradient[i] += gradient;
        products[i - segment.begin] = gradient * (tile->logits[i] - list->logits.max);
    }
    if (run->scale_is_free)
        run->log_scale_gradient += sum_in_order(products, segment.end - segment.begin);
}
