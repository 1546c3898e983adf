/*
 * Softmax cross entropy of each row over its K logits, target t_c = (1 - s) [c = y] + s / K:
 *   loss = sum_c t_c (LSE(z) - z_c),  d loss / dz_c = p_c - t_c.
 * Rows labelled -100 give neither, nor does one whose label has become no class since it was checked.
 */
#include "loss/cpu.h"

WIDE_VECTORS static double add_row(const double *logits, double *gradient, uint32_t num_class, uint32_t label,
                                   double smoothing, double scale)
{
    const uint32_t max = find_max(logits, (struct segment){0, num_class});
    const double share = smoothing / num_class;
    double exps[MAX_NUM_CLASS];
    double below = 0.0; /* sum of max - z */
    double rest = 0.0;
    double inverse;
    double loss;

    for (uint32_t c = 0; c < num_class; c++)
        exps[c] = elem_exp(logits[c] - logits[max]);
    for (uint32_t c = 0; c < num_class; c++) {
        rest += c == max ? 0.0 : exps[c];
        below += logits[max] - logits[c];
    }
    inverse = 1.0 / (1.0 + rest);
    loss = (1.0 - smoothing) * (logits[max] - logits[label]) + log1p(rest);
    if (share > 0.0)
        loss += share * below;
    for (uint32_t c = 0; c < num_class; c++) {
        const double target = share + (c == label ? 1.0 - smoothing : 0.0);

        gradient[c] += scale * elem_softmax_gradient(exps[c], target, 1.0, rest, inverse);
    }
    return loss;
}

void softmax_add(struct tile *tile, struct term_run *term)
{
    const double smoothing = term->config->softmax_cross_entropy.label_smoothing;
    const uint32_t num_class = tile->num_class;
    double losses[TILE_ROWS];

    for (uint32_t i = 0; i < tile->num_rows; i++) {
        const size_t at = (size_t)i * num_class;

        losses[i] = 0.0;
        if (tile->labels[i] >= 0.0 && tile->labels[i] < num_class)
            losses[i] = tile->weights[i] * add_row(&tile->logits[at], &tile->gradient[at], num_class,
                                                   (uint32_t)tile->labels[i], smoothing, term->unit * tile->weights[i]);
    }
    term->sum += sum_in_order(losses, tile->num_rows);
}
