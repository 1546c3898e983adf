/*
 * The maths of one element, in binary64 and without cancellation, for host and device: what a loop, or a lane of a
 * kernel, does with one logit, and sums that lanes can merge. What is walked, and in which order, is the backend's.
 *
 * No function here has a case that overflows for finite binary32 logits: differences of logits come first, scales
 * after, and exp is only taken of what is not positive.
 */
#ifndef LOSS_ELEM_H
#define LOSS_ELEM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define LOSS_ELEM static __host__ __device__ inline
#else
#define LOSS_ELEM static inline
#endif

/*
 * e^x for x <= 0, within 1e-14 relative; exactly 1 at 0, 0 below -708; NaN for NaN. Only multiplications and additions,
 * so that a loop over it becomes vector code, which a call of exp() prevents.
 * x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor series of e^r up to r^11, summed in pairs (Estrin): a chain of
 * eleven steps would take longer than all its operations.
 */
LOSS_ELEM double elem_exp(double x)
{
    const double log2_e = 1.4426950408889634;
    const double ln2_high = 0x1.62e42feep-1; /* low bits 0: n * ln2_high is exact */
    const double ln2_low = 0x1.a39ef35793c76p-33;
    const double round = 0x1.8p52; /* adding it puts the rounded integer into the low bits */
    const double shifted = x * log2_e + round;
    const double n = shifted - round;
    const double r = (x - n * ln2_high) - n * ln2_low;
    const double r2 = r * r;
    const double r4 = r2 * r2;
    const double low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0));
    const double middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
    const double high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0));
    const double series = low + r4 * (middle + r4 * high);
    double power;
    uint64_t bits;

    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return x < -708.0 ? 0.0 : series * power;
}

/*
 * ln(1 + e) for e in [0, 1], within 1e-14 relative, also for the smallest e. NaN for NaN. Vector code, as above.
 * 2 atanh(s) with s = e / (2 + e), or for the upper half ln 2 + 2 atanh(s) with s = (e - 1) / (e + 3): |s| <= 1/5.
 * The odd series in s up to s^17, in pairs as above.
 */
LOSS_ELEM double elem_log1p(double e)
{
    const bool upper = e > 0.5;
    const double s = (upper ? e - 1.0 : e) / (upper ? e + 3.0 : e + 2.0);
    const double q = s * s;
    const double q2 = q * q;
    const double low = (1.0 + q * (1.0 / 3.0)) + q2 * (1.0 / 5.0 + q * (1.0 / 7.0));
    const double high = (1.0 / 9.0 + q * (1.0 / 11.0)) + q2 * (1.0 / 13.0 + q * (1.0 / 15.0 + q * (1.0 / 17.0)));

    return (upper ? 0.6931471805599453 : 0.0) + 2.0 * s * (low + (q2 * q2) * high);
}

/* What all losses over a logistic function share. */
struct elem_logistic {
    double minor; /* the smaller of p and 1 - p, p = 1 / (1 + e^-z) */
    double tail;  /* ln(1 + e^-|z|) = -ln of the greater one */
};

LOSS_ELEM struct elem_logistic elem_logistic(double z)
{
    const double e = elem_exp(-fabs(z));
    struct elem_logistic l;

    l.minor = e / (1.0 + e);
    l.tail = elem_log1p(e);
    return l;
}

/* p = 1 / (1 + e^-z). */
LOSS_ELEM double elem_sigmoid(double z, struct elem_logistic l)
{
    return z >= 0.0 ? 1.0 - l.minor : l.minor;
}

/* ln(1 + e^z) = -ln(1 - p); of -z, with the same l: -ln p. 0 at z = -inf. */
LOSS_ELEM double elem_softplus(double z, struct elem_logistic l)
{
    return (z >= 0.0 ? z : 0.0) + l.tail;
}

/* softplus(z) - z t = -t ln p - (1 - t) ln(1 - p). z = +inf, t = 0: +inf; z = +inf, t = 1: NaN. */
LOSS_ELEM double elem_bce(double z, double t, struct elem_logistic l)
{
    return (z >= 0.0 ? 1.0 - t : -t) * z + l.tail;
}

/* d elem_bce / dz = p - t, from the smaller of p and 1 - p: no digit is lost where p is near t = 1. */
LOSS_ELEM double elem_bce_gradient(double z, double t, struct elem_logistic l)
{
    return z >= 0.0 ? (1.0 - t) - l.minor : l.minor - t;
}

/* Loss and gradient of one row. */
struct elem_pair {
    double loss;
    double gradient;
};

/*
 * Focal loss f * elem_bce with f = alpha y (1-p)^gamma + (1-alpha) (1-y) p^gamma (Lin et al., 2017, section 3).
 * follow 0: f is a constant for the gradient; 1: its derivative -alpha y gamma p (1-p)^gamma +
 * (1-alpha) (1-y) gamma (1-p) p^gamma counts too.
 */
LOSS_ELEM struct elem_pair elem_focal(double z, double y, double gamma, double alpha, double follow)
{
    const struct elem_logistic l = elem_logistic(z);
    const double p = elem_sigmoid(z, l);
    const double bce = elem_bce(z, y, l);
    /* a power is the exp of a product: (1 - p)^gamma and p^gamma */
    const double positive = alpha * y * elem_exp(-gamma * elem_softplus(z, l));
    const double negative = (1.0 - alpha) * (1.0 - y) * elem_exp(-gamma * elem_softplus(-z, l));
    const double not_p = z >= 0.0 ? l.minor : 1.0 - l.minor;
    const double slope = follow * gamma * (negative * not_p - positive * p); /* df/dz */
    struct elem_pair out;

    out.loss = (positive + negative) * bce;
    out.gradient = (positive + negative) * elem_bce_gradient(z, y, l);
    /* not 0 times infinity: p saturates, or f is held constant */
    out.gradient += slope == 0.0 ? 0.0 : slope * bce;
    return out;
}

/*
 * ln of a sum of exponentials: ln sum e^(scale x) = scale max + ln(1 + rest), rest being the sum of
 * e^(scale (x - max)) without one element that is the maximum. Of nothing: max -inf, rest -1 (the sum is 0).
 * Everything that is merged has the same scale >= 0.
 */
struct elem_lse {
    double max;
    double rest;
};

LOSS_ELEM struct elem_lse elem_lse_empty(void)
{
    struct elem_lse s;

    s.max = -INFINITY;
    s.rest = -1.0;
    return s;
}

LOSS_ELEM bool elem_lse_is_empty(struct elem_lse s)
{
    return s.max == -INFINITY && s.rest < 0.0;
}

LOSS_ELEM struct elem_lse elem_lse_merge(struct elem_lse a, struct elem_lse b, double scale)
{
    if (elem_lse_is_empty(b))
        return a;
    if (elem_lse_is_empty(a))
        return b;
    if (a.max >= b.max) {
        a.rest += (1.0 + b.rest) * elem_exp(scale * (b.max - a.max));
        return a;
    }
    b.rest += (1.0 + a.rest) * elem_exp(scale * (a.max - b.max));
    return b;
}

LOSS_ELEM struct elem_lse elem_lse_push(struct elem_lse s, double x, double scale)
{
    struct elem_lse one;

    one.max = x;
    one.rest = 0.0;
    return elem_lse_merge(s, one, scale);
}

/*
 * mass * p - t, p = e / (1 + rest), of cross entropy against a target t whose sum is mass: exact to the last digits
 * where p is near t = mass = 1 (then e = 1, and mass * e - t is 0 exactly). inverse = 1 / (1 + rest), once a list.
 */
LOSS_ELEM double elem_softmax_gradient(double e, double t, double mass, double rest, double inverse)
{
    return ((mass * e - t) - t * rest) * inverse;
}

#endif
