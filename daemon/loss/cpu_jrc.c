/*
 * Joint ranking and calibration over the lists of a task (Sheng et al., 2023), column 0 = b, column 1 = a:
 *   y = 1: GE = softplus(A - a), A = ln sum e^a over the negatives of the list
 *   y = 0: GE = softplus(B - b), B = ln sum e^b over its positives
 *   loss = alpha CE + (1 - alpha) GE, CE = softplus(b - a) for y = 1, softplus(a - b) for y = 0
 * A row without rivals has GE = 0. Each row is pulled by its rivals on their channel:
 *   y = 1: d/da = -w u,  u = sigmoid(A - a);  d/db = e^(b - B) * sum of w u over the negatives
 * and the other way round for y = 0, so a list costs O(rows).
 */
#include "loss/cpu.h"

/* A row as seen from its own side: the channel it is ranked on, and the one that it is a rival on. */
struct side {
    uint32_t own;
    uint32_t other;
    const struct elem_lse *rivals; /* sum over the rivals, on the own channel */
    double rivals_tail;            /* ln(1 + rest) of it */
    const struct elem_lse *peers;  /* sum over the rows with the same label, on the other channel */
    double pull;                   /* of the rivals, on the other channel */
};

static struct side side_of(const struct jrc_list *list, bool positive)
{
    if (positive)
        return (struct side){1, 0, &list->negatives, list->negative_tail, &list->positives, list->negative_pull};
    return (struct side){0, 1, &list->positives, list->positive_tail, &list->negatives, list->positive_pull};
}

/* The sum that rows of one label make as rivals: label 0 on column 1, label 1 on column 0. */
static struct elem_lse scan_rivals(const struct tile *tile, struct segment segment, bool positive)
{
    const uint32_t column = positive ? 0 : 1;
    struct elem_lse sum = elem_lse_empty();

    for (uint32_t i = segment.begin; i < segment.end; i++)
        if ((tile->labels[i] == 1.0) == positive)
            sum = elem_lse_push(sum, tile->logits[2 * i + column], 1.0);
    return sum;
}

struct jrc_list jrc_empty(void)
{
    return (struct jrc_list){.negatives = elem_lse_empty(), .positives = elem_lse_empty()};
}

void jrc_scan(const struct tile *tile, struct segment segment, struct jrc_list *list)
{
    list->negatives = elem_lse_merge(list->negatives, scan_rivals(tile, segment, false), 1.0);
    list->positives = elem_lse_merge(list->positives, scan_rivals(tile, segment, true), 1.0);
    list->negative_tail = log1p(list->negatives.rest);
    list->positive_tail = log1p(list->positives.rest);
}

/* How far the rivals of a row are above it. */
static double lead(const struct side *side, double own)
{
    return (side->rivals->max - own) + side->rivals_tail;
}

void jrc_pull(const struct tile *tile, struct segment segment, struct jrc_list *list)
{
    for (uint32_t i = segment.begin; i < segment.end; i++) {
        const bool positive = tile->labels[i] == 1.0;
        const struct side side = side_of(list, positive);
        double d;
        double pull;

        if (elem_lse_is_empty(*side.rivals))
            continue;
        d = lead(&side, tile->logits[2 * i + side.own]);
        pull = tile->weights[i] * elem_sigmoid(d, elem_logistic(d));
        *(positive ? &list->positive_pull : &list->negative_pull) += pull;
    }
}

static double add_row(struct tile *tile, uint32_t i, double alpha, double unit, const struct jrc_list *list)
{
    const bool positive = tile->labels[i] == 1.0;
    const struct side side = side_of(list, positive);
    const double *z = &tile->logits[2 * i];
    double *gradient = &tile->gradient[2 * i];
    const double weight = tile->weights[i];
    const double margin = z[1] - z[0];
    const struct elem_logistic ce = elem_logistic(margin);
    const double ce_gradient = unit * alpha * weight * elem_bce_gradient(margin, tile->labels[i], ce);
    double loss = alpha * elem_softplus(positive ? -margin : margin, ce);

    gradient[1] += ce_gradient;
    gradient[0] -= ce_gradient;
    if (!elem_lse_is_empty(*side.rivals)) {
        const double d = lead(&side, z[side.own]);
        const struct elem_logistic ge = elem_logistic(d);
        const double share = elem_exp(z[side.other] - side.peers->max) / (1.0 + side.peers->rest);

        loss += (1.0 - alpha) * elem_softplus(d, ge);
        gradient[side.own] -= unit * (1.0 - alpha) * weight * elem_sigmoid(d, ge);
        gradient[side.other] += unit * (1.0 - alpha) * share * side.pull;
    }
    return weight * loss;
}

void jrc_add(struct tile *tile, struct term_run *term, struct segment segment, const struct jrc_list *list)
{
    double sum = 0.0;

    for (uint32_t i = segment.begin; i < segment.end; i++)
        sum += add_row(tile, i, term->config->jrc.alpha, term->unit, list);
    term->sum += sum;
}
