/* Binary cross entropy, focal and L2 loss: each row by itself. Loops without branches, so that they become vector code.
 */
#include "loss/cpu.h"

double sum_in_order(const double *values, size_t count)
{
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    size_t i = 0;

    for (; i + 4 <= count; i += 4)
        for (size_t lane = 0; lane < 4; lane++)
            lanes[lane] += values[i + lane];
    for (; i < count; i++)
        lanes[0] += values[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

WIDE_VECTORS void binary_cross_entropy_add(struct tile *tile, struct term_run *term)
{
    const double smoothing = term->config->binary_cross_entropy.label_smoothing;
    const double unit = term->unit;
    double losses[TILE_ROWS];

    for (uint32_t i = 0; i < tile->num_rows; i++) {
        const double z = tile->logits[i];
        const double t = tile->labels[i] * (1.0 - smoothing) + 0.5 * smoothing;
        const struct elem_logistic l = elem_logistic(z);

        losses[i] = tile->weights[i] * elem_bce(z, t, l);
        tile->gradient[i] += unit * tile->weights[i] * elem_bce_gradient(z, t, l);
    }
    term->sum += sum_in_order(losses, tile->num_rows);
}

WIDE_VECTORS void binary_focal_add(struct tile *tile, struct term_run *term)
{
    const double gamma = term->config->binary_focal.gamma;
    const double alpha = term->config->binary_focal.alpha;
    const double follow = term->config->binary_focal.detach_weight ? 0.0 : 1.0;
    const double unit = term->unit;
    double losses[TILE_ROWS];

    for (uint32_t i = 0; i < tile->num_rows; i++) {
        const struct elem_pair pair = elem_focal(tile->logits[i], tile->labels[i], gamma, alpha, follow);

        losses[i] = tile->weights[i] * pair.loss;
        tile->gradient[i] += unit * tile->weights[i] * pair.gradient;
    }
    term->sum += sum_in_order(losses, tile->num_rows);
}

WIDE_VECTORS void l2_add(struct tile *tile, struct term_run *term)
{
    const double unit = term->unit;
    double losses[TILE_ROWS];

    for (uint32_t i = 0; i < tile->num_rows; i++) {
        const double difference = tile->logits[i] - tile->labels[i];

        losses[i] = tile->weights[i] * difference * difference;
        tile->gradient[i] += unit * tile->weights[i] * 2.0 * difference;
    }
    term->sum += sum_in_order(losses, tile->num_rows);
}
