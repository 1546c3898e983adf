/* The formulas, one function a family. */
#include <math.h>
#include <stdlib.h>

#include "loss/reference_internal.h"

long double reference_softplus(long double x)
{
    return fmaxl(x, 0.0L) + log1pl(expl(-fabsl(x)));
}

long double reference_sigmoid(long double x)
{
    return x >= 0.0L ? 1.0L / (1.0L + expl(-x)) : expl(x) / (1.0L + expl(x));
}

static void cross_entropy(const struct loss_config *loss, long double z, long double y, long double *value,
                          long double *slope)
{
    const long double s = loss->binary_cross_entropy.label_smoothing;
    const long double t = y * (1.0L - s) + s / 2.0L;

    *value = t * reference_softplus(-z) + (1.0L - t) * reference_softplus(z);
    *slope = (1.0L - t) * reference_sigmoid(z) - t * reference_sigmoid(-z);
}

static void focal(const struct loss_config *loss, long double z, long double y, long double *value, long double *slope)
{
    const long double p = reference_sigmoid(z);
    const long double q = reference_sigmoid(-z);
    const long double a = loss->binary_focal.alpha;
    const long double g = loss->binary_focal.gamma;
    const long double up = a * y * powl(q, g);
    const long double down = (1.0L - a) * (1.0L - y) * powl(p, g);
    const long double bce = y * reference_softplus(-z) + (1.0L - y) * reference_softplus(z);

    *value = (up + down) * bce;
    *slope = (up + down) * ((1.0L - y) * p - y * q);
    if (!loss->binary_focal.detach_weight)
        *slope += bce * g * (down * q - up * p);
}

/* The compiler refuses a kind without a case. */
static void row_loss(const struct loss_config *loss, long double z, long double y, long double *value,
                     long double *slope, long double *largest)
{
    *largest = 1.0L;
    switch (loss->kind) {
    case LOSS_L2:
        *value = (z - y) * (z - y);
        *slope = 2.0L * (z - y);
        *largest = fabsl(*slope);
        return;
    case LOSS_BINARY_CROSS_ENTROPY:
        cross_entropy(loss, z, y, value, slope);
        return;
    case LOSS_BINARY_FOCAL:
        focal(loss, z, y, value, slope);
        *largest = fmaxl((long double)loss->binary_focal.alpha, 1.0L - (long double)loss->binary_focal.alpha);
        return;
    case LOSS_SOFTMAX_CROSS_ENTROPY:
    case LOSS_JRC:
    case LOSS_LISTWISE_RANK:
    case NUM_LOSS_KINDS:
        break;
    }
    abort(); /* no loss of single rows */
}

void reference_pointwise(const struct reference_input *in, const struct loss_config *loss, long double unit,
                         long double *sum, long double *gradient, double *largest)
{
    for (uint32_t i = 0; i < in->num_rows; i++) {
        long double value;
        long double slope;
        long double most;

        if (in->bad_row[i])
            continue;
        row_loss(loss, in->z[i], in->y[i], &value, &slope, &most);
        *sum += in->w[i] * value;
        gradient[i] += unit * in->w[i] * slope;
        largest[i] += (double)(unit * in->w[i] * most);
    }
}

void reference_softmax(const struct reference_input *in, const struct loss_config *loss, long double unit,
                       long double *sum, long double *gradient, double *largest)
{
    const uint32_t k = in->config->num_class;
    const long double s = loss->softmax_cross_entropy.label_smoothing;

    for (uint32_t i = 0; i < in->num_rows; i++) {
        const long double *z = &in->z[(size_t)i * k];
        long double max = z[0];
        long double total = 0.0L;
        long double value = 0.0L;

        if (in->bad_row[i] || in->y[i] == -100.0L)
            continue;
        for (uint32_t c = 1; c < k; c++)
            max = fmaxl(max, z[c]);
        for (uint32_t c = 0; c < k; c++)
            total += expl(z[c] - max);
        for (uint32_t c = 0; c < k; c++) {
            const long double t = (c == (uint32_t)in->y[i] ? 1.0L - s : 0.0L) + s / k;

            value += t * (max + logl(total) - z[c]);
            gradient[(size_t)i * k + c] += unit * in->w[i] * (expl(z[c] - max) / total - t);
            largest[(size_t)i * k + c] += (double)(unit * in->w[i]);
        }
        *sum += in->w[i] * value;
    }
}

/* ln of the sum of e^x over the rows of list l whose label is y, x in the given column; -inf for none. */
static long double log_sum(const struct reference_input *in, uint32_t l, long double y, uint32_t column)
{
    long double max = -INFINITY;
    long double total = 0.0L;

    for (uint32_t i = 0; i < in->num_rows; i++)
        if (in->list_of[i] == l && in->y[i] == y)
            max = fmaxl(max, in->z[2 * i + column]);
    for (uint32_t i = 0; i < in->num_rows; i++)
        if (in->list_of[i] == l && in->y[i] == y)
            total += expl(in->z[2 * i + column] - max);
    return total > 0.0L ? max + logl(total) : -INFINITY;
}

static void jrc_list(const struct reference_input *in, const struct loss_config *loss, uint32_t l, long double unit,
                     long double *sum, long double *gradient, double *largest)
{
    const long double a = loss->jrc.alpha;
    /* [label]: what rows of that label are ranked against, and the sum of w * sigmoid over them */
    const long double rivals[2] = {log_sum(in, l, 1.0L, 0), log_sum(in, l, 0.0L, 1)};
    long double pull[2] = {0.0L, 0.0L};
    long double weight[2] = {0.0L, 0.0L};

    for (uint32_t i = 0; i < in->num_rows; i++) {
        const int y = in->y[i] == 1.0L;
        const long double own = in->z[2 * i + (unsigned)y];
        const long double d = in->z[2 * i + 1] - in->z[2 * i];
        long double value;

        if (in->list_of[i] != l)
            continue;
        value = a * (y ? reference_softplus(-d) : reference_softplus(d));
        weight[y] += in->w[i];
        if (rivals[y] > -INFINITY) {
            value += (1.0L - a) * reference_softplus(rivals[y] - own);
            pull[y] += in->w[i] * reference_sigmoid(rivals[y] - own);
        }
        *sum += in->w[i] * value;
    }
    for (uint32_t i = 0; i < in->num_rows; i++) {
        const int y = in->y[i] == 1.0L;
        const long double *z = &in->z[2 * i];
        const long double ce = in->w[i] * (y ? -reference_sigmoid(z[0] - z[1]) : reference_sigmoid(z[1] - z[0]));
        long double g[2] = {-a * ce, a * ce};

        if (in->list_of[i] != l)
            continue;
        if (rivals[y] > -INFINITY) {
            g[y] -= (1.0L - a) * in->w[i] * reference_sigmoid(rivals[y] - z[y]);
            g[!y] += (1.0L - a) * expl(z[!y] - rivals[!y]) * pull[!y];
        }
        for (int c = 0; c < 2; c++) {
            gradient[2 * i + (unsigned)c] += unit * g[c];
            largest[2 * i + (unsigned)c] += (double)(unit * (a * in->w[i] + (1.0L - a) * fmaxl(in->w[i], weight[!y])));
        }
    }
}

void reference_jrc(const struct reference_input *in, const struct loss_config *loss, long double unit, long double *sum,
                   long double *gradient, double *largest)
{
    for (uint32_t l = 0; l < in->num_lists; l++)
        if (!in->bad_list[l])
            jrc_list(in, loss, l, unit, sum, gradient, largest);
}

/* The target of each row of list l into t; returns whether the list counts. */
static bool make_targets(const struct reference_input *in, const struct loss_config *loss, const uint32_t *rows,
                         uint32_t n, long double *t)
{
    long double total = 0.0L;
    long double max = -INFINITY;
    uint32_t positive = 0;

    for (uint32_t j = 0; j < n; j++) {
        positive += in->y[rows[j]] != 0.0L;
        max = fmaxl(max, in->y[rows[j]]);
    }
    for (uint32_t j = 0; j < n; j++) {
        const long double y = in->y[rows[j]];

        t[j] = y;
        if (loss->listwise_rank.target == TARGET_MEAN_POSITIVE)
            t[j] = y != 0.0L;
        if (loss->listwise_rank.target == TARGET_SOFTMAX)
            t[j] = expl(in->scale * (y - max));
        total += t[j];
    }
    for (uint32_t j = 0; j < n && loss->listwise_rank.target != TARGET_RAW; j++)
        t[j] = total > 0.0L ? t[j] / total : 0.0L;
    if (loss->listwise_rank.target == TARGET_MEAN_POSITIVE || loss->listwise_rank.denominator == DENOMINATOR_VALID)
        return positive > 0 && positive < n;
    return n > 0;
}

static long double listwise_list(const struct reference_input *in, const uint32_t *rows, uint32_t n,
                                 const long double *t, long double unit, long double *gradient, double *largest)
{
    const long double s = in->scale;
    long double max = -INFINITY;
    long double sum = 0.0L;
    long double mass = 0.0L;
    long double value = 0.0L;

    for (uint32_t j = 0; j < n; j++)
        max = fmaxl(max, in->z[rows[j]]);
    for (uint32_t j = 0; j < n; j++) {
        sum += expl(s * (in->z[rows[j]] - max));
        mass += t[j];
    }
    for (uint32_t j = 0; j < n; j++) {
        const long double lp = s * (in->z[rows[j]] - max) - logl(sum);

        value -= t[j] * lp;
        gradient[rows[j]] += unit * s * (mass * expl(lp) - t[j]);
        largest[rows[j]] += (double)(unit * s * fmaxl(mass, 1.0L));
    }
    return value;
}

void reference_listwise(const struct reference_input *in, const struct loss_config *loss, long double unit,
                        long double *sum, long double *gradient, double *largest)
{
    uint32_t *rows = malloc(sizeof *rows * (in->num_rows + 1));
    long double *t = malloc(sizeof *t * (in->num_rows + 1));

    for (uint32_t l = 0; l < in->num_lists; l++) {
        uint32_t n = 0;

        for (uint32_t i = 0; i < in->num_rows; i++)
            if (in->list_of[i] == l)
                rows[n++] = i;
        if (!in->bad_list[l] && make_targets(in, loss, rows, n, t))
            *sum += listwise_list(in, rows, n, t, unit, gradient, largest);
    }
    free(rows);
    free(t);
}
