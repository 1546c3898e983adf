/* How long things took, counted by size, so that any number of them takes the same memory. */
#ifndef LOSSCTL_HISTOGRAM_H
#define LOSSCTL_HISTOGRAM_H

#include <stdint.h>

/* Times below 64 ns are exact; above, each power of two has 64 buckets: 1.6 % wide at most. Up to 2^42 ns (73 min). */
enum { HISTOGRAM_OCTAVE = 64, HISTOGRAM_BUCKETS = 37 * HISTOGRAM_OCTAVE };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    int64_t min_ns; /* of those counted; without meaning where total is 0 */
    int64_t max_ns;
    double sum_ns;
};

void histogram_init(struct histogram *histogram);

/* ns below 0 counts as 0, above the range as the range. */
void histogram_add(struct histogram *histogram, int64_t ns);

/* Everything of more, too. */
void histogram_merge(struct histogram *histogram, const struct histogram *more);

/*
 * The time that a share of all did not exceed: 0.5 is the median. The middle of its bucket, within 0.8 %; never below
 * the least or above the largest time. 0 where nothing was counted.
 */
double histogram_percentile_ns(const struct histogram *histogram, double share);

#endif
