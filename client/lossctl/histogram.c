#include "lossctl/histogram.h"

#include <math.h>

enum { OCTAVE_BITS = 6 };

void histogram_init(struct histogram *histogram)
{
    *histogram = (struct histogram){.min_ns = INT64_MAX};
}

/* A time of 2^k to 2^(k + 1) is told by its upper 7 bits, of which the first is always 1. */
static uint32_t bucket_of(uint64_t ns)
{
    const uint32_t bits = ns == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(ns);
    const uint32_t shift = bits > OCTAVE_BITS + 1 ? bits - (OCTAVE_BITS + 1) : 0;
    const uint32_t bucket = shift * HISTOGRAM_OCTAVE + (uint32_t)(ns >> shift);

    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static double middle_of(uint32_t bucket)
{
    const uint32_t shift = bucket < 2 * HISTOGRAM_OCTAVE ? 0 : bucket / HISTOGRAM_OCTAVE - 1;
    const uint64_t first = (uint64_t)(bucket - shift * HISTOGRAM_OCTAVE) << shift;

    return (double)first + 0.5 * (double)((UINT64_C(1) << shift) - 1);
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    histogram->counts[bucket_of((uint64_t)ns)]++;
    histogram->total++;
    histogram->sum_ns += (double)ns;
    if (ns < histogram->min_ns)
        histogram->min_ns = ns;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

void histogram_merge(struct histogram *histogram, const struct histogram *more)
{
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        histogram->counts[i] += more->counts[i];
    histogram->total += more->total;
    histogram->sum_ns += more->sum_ns;
    if (more->min_ns < histogram->min_ns)
        histogram->min_ns = more->min_ns;
    if (more->max_ns > histogram->max_ns)
        histogram->max_ns = more->max_ns;
}

double histogram_percentile_ns(const struct histogram *histogram, double share)
{
    const double wanted = fmax(1.0, ceil(share * (double)histogram->total));
    uint64_t seen = 0;
    uint32_t bucket = 0;

    if (histogram->total == 0)
        return 0.0;
    while (bucket + 1 < HISTOGRAM_BUCKETS && (double)(seen + histogram->counts[bucket]) < wanted)
        seen += histogram->counts[bucket++];
    return fmin(fmax(middle_of(bucket), (double)histogram->min_ns), (double)histogram->max_ns);
}
