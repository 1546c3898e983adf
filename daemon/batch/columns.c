#include "batch/columns.h"

#include <float.h>
#include <stdbool.h>

#include "batch/batch.h"

/*
 * Columns are scanned in blocks without a branch; only a block that holds a bad value is looked at again. Where another
 * process changes it meanwhile, the second look may find nothing.
 */
enum { BLOCK = 1024 };

struct matrix {
    const void *values;
    enum value_type type;
    size_t num_columns;
    size_t stride;
};

static ALWAYS_INLINE uint32_t count_in_rows(const struct matrix *m, size_t begin, size_t end)
{
    uint32_t bad = 0;

    for (size_t row = begin; row < end; row++)
        for (size_t column = 0; column < m->num_columns; column++)
            bad += value_is_nonfinite(m->values, m->type, row * m->stride + column);
    return bad;
}

/* Loops of their own for the two common cases: one run of values, and one column of a matrix. */
static ALWAYS_INLINE uint32_t count_nonfinite(const void *values, enum value_type type, size_t num_columns,
                                              size_t stride, size_t begin, size_t end)
{
    if (stride == 1)
        return count_in_rows(&(struct matrix){values, type, 1, 1}, begin, end);
    if (num_columns == 1)
        return count_in_rows(&(struct matrix){values, type, 1, stride}, begin, end);
    return count_in_rows(&(struct matrix){values, type, num_columns, stride}, begin, end);
}

static uint32_t count_in_block(const struct matrix *m, size_t begin, size_t end)
{
    switch (m->type) {
    case VALUE_F16:
        return count_nonfinite(m->values, VALUE_F16, m->num_columns, m->stride, begin, end);
    case VALUE_BF16:
        return count_nonfinite(m->values, VALUE_BF16, m->num_columns, m->stride, begin, end);
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        break;
    }
    return count_nonfinite(m->values, VALUE_F32, m->num_columns, m->stride, begin, end);
}

static size_t offset_of(const struct matrix *m, size_t number)
{
    return number / m->num_columns * m->stride + number % m->num_columns;
}

struct nonfinite_values find_nonfinite_values(const void *values, enum value_type type, size_t num_rows,
                                              size_t num_columns, size_t stride)
{
    const bool is_run = stride == num_columns;
    const struct matrix m = {values, type, is_run ? 1 : num_columns, is_run ? 1 : stride};
    const size_t count = is_run ? num_rows * num_columns : num_rows;
    struct nonfinite_values found = {0};

    for (size_t begin = 0; begin < count; begin += BLOCK) {
        const size_t end = count - begin < BLOCK ? count : begin + BLOCK;
        const uint32_t bad = count_in_block(&m, begin, end);

        if (bad > 0 && found.count == 0) {
            const size_t last = end * m.num_columns - 1;

            found.first = begin * m.num_columns;
            while (found.first < last && !value_is_nonfinite(values, type, offset_of(&m, found.first)))
                found.first++;
            found.value = value_load(values, type, offset_of(&m, found.first));
        }
        found.count += bad;
    }
    return found;
}

/* First value outside [low, high], NaN included. */
static size_t find_outside(const float *values, size_t count, float low, float high)
{
    for (size_t begin = 0; begin < count; begin += BLOCK) {
        const size_t end = count - begin < BLOCK ? count : begin + BLOCK;
        uint32_t bad = 0;

        for (size_t i = begin; i < end; i++)
            bad |= !(values[i] >= low) | !(values[i] <= high);
        if (bad == 0)
            continue;
        for (size_t i = begin; i < end; i++)
            if (!(values[i] >= low && values[i] <= high))
                return i;
    }
    return count;
}

size_t find_nonfinite(const float *values, size_t count)
{
    return find_outside(values, count, -FLT_MAX, FLT_MAX);
}

size_t find_negative_or_nonfinite(const float *values, size_t count)
{
    return find_outside(values, count, 0.0F, FLT_MAX);
}

static bool label_is_class(float label, uint32_t num_class)
{
    return label == -100.0F || (label >= 0.0F && label < (float)num_class && label == truncf(label));
}

size_t find_bad_label(const float *labels, size_t count, unsigned rules, uint32_t num_class)
{
    const bool unit = (rules & (LABEL_UNIT_INTERVAL | LABEL_ZERO_OR_ONE)) != 0;
    const float low = unit || (rules & LABEL_NONNEGATIVE) ? 0.0F : -FLT_MAX;
    size_t first = find_outside(labels, count, low, unit ? 1.0F : FLT_MAX);

    if ((rules & LABEL_CLASS) != 0)
        for (size_t i = 0; i < first; i++)
            if (!label_is_class(labels[i], num_class))
                return i;
    if ((rules & LABEL_ZERO_OR_ONE) != 0)
        for (size_t i = 0; i < first; i++)
            if (labels[i] != 0.0F && labels[i] != 1.0F)
                return i;
    return first;
}
