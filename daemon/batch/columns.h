/* Scans over the columns of a batch, each one pass that a compiler can turn into vector code. */
#ifndef BATCH_COLUMNS_H
#define BATCH_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "batch/values.h"

/* The values of a matrix [n, K] that are NaN or infinite; the first one as row * K + column. */
struct nonfinite_values {
    size_t count;
    size_t first; /* where count > 0: within the matrix, whatever another process does to it meanwhile */
    double value; /* of the first */
};

/* stride  elements from a row to the next, >= num_columns */
struct nonfinite_values find_nonfinite_values(const void *values, enum value_type type, size_t num_rows,
                                              size_t num_columns, size_t stride);

/* Index of the first value that is NaN or infinite; count where there is none. */
size_t find_nonfinite(const float *values, size_t count);

/* The same for values that are NaN, infinite or below 0 (-0 is not). */
size_t find_negative_or_nonfinite(const float *values, size_t count);

/* Index of the first label that breaks one of the rules (of enum label_rule); count where there is none. */
size_t find_bad_label(const float *labels, size_t count, unsigned rules, uint32_t num_class);

#endif
