/* Scans over the columns of a batch, each one pass that a compiler can turn into vector code. */
#ifndef BATCH_COLUMNS_H
#define BATCH_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* How many of the values are NaN or infinite. */
size_t count_nonfinite(const float *values, size_t count);

/* Index of the first value that is NaN or infinite; count where there is none. */
size_t find_nonfinite(const float *values, size_t count);

/* The same for values that are NaN, infinite or below 0 (-0 is not). */
size_t find_negative_or_nonfinite(const float *values, size_t count);

/* Index of the first label that breaks one of the rules (of enum label_rule); count where there is none. */
size_t find_bad_label(const float *labels, size_t count, unsigned rules, uint32_t num_class);

#endif
