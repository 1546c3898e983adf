#include "batch/columns.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "batch/batch.h"

/* Columns are scanned in blocks without a branch; only a block that holds a bad value is looked at again. */
enum { BLOCK = 1024 };

size_t count_nonfinite(const float *values, size_t count)
{
    size_t total = 0;

    for (size_t begin = 0; begin < count; begin += BLOCK) {
        const size_t end = count - begin < BLOCK ? count : begin + BLOCK;
        uint32_t bad = 0;

        for (size_t i = begin; i < end; i++)
            bad += !(fabsf(values[i]) <= FLT_MAX);
        total += bad;
    }
    return total;
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
