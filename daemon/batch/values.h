/*
 * Numbers as they lie in memory that somebody else laid out: which type, and how far apart. Elements as binary64 and
 * back; plain arithmetic on bits, so that a loop over them becomes vector code on any machine.
 */
#ifndef BATCH_VALUES_H
#define BATCH_VALUES_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

enum value_type {
    VALUE_F32,  /* IEEE binary32 */
    VALUE_F16,  /* IEEE binary16 */
    VALUE_BF16, /* the upper half of a binary32 */
    NUM_VALUE_TYPES,
};

/* Bytes of an element: 4, 2, 2. */
static inline size_t value_size(enum value_type type)
{
    return type == VALUE_F32 ? 4 : 2;
}

/* A stride as it is meant, from one where 0 stands for rows that lie together. */
static inline size_t row_stride(size_t stride, size_t num_columns)
{
    return stride != 0 ? stride : num_columns;
}

/* The binary32 with these bits. */
static inline float float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exact. Below 2^-14 a half is a whole number of 2^-24; above, its exponent gets another bias. */
static inline double double_from_half(uint16_t half)
{
    const uint32_t magnitude = half & 0x7fffU;
    const uint32_t bias = magnitude >= 0x7c00U ? 224U << 23 : 112U << 23; /* infinity and NaN stay what they are */
    const float large = float_from_bits((magnitude << 13) + bias);
    const float small = (float)(int32_t)magnitude * 0x1p-24F;
    const double value = (double)(magnitude < 0x400U ? small : large);

    return (half & 0x8000U) != 0 ? -value : value;
}

/* Exact. */
static inline double double_from_bfloat(uint16_t bfloat)
{
    return (double)float_from_bits((uint32_t)bfloat << 16);
}

/*
 * One rounding of a binary64 to a 16-bit type with so many bits of fraction, least normal number (a power of 2), and
 * power of 2 beyond its range: to nearest, ties to even. Adding a power of 2 whose last place is that of the result
 * lets the machine round; the low bits of the sum then count last places. 0 for -0 and what rounds to it.
 */
static inline uint16_t narrow(double value, unsigned fraction_bits, double least, double beyond)
{
    const uint64_t fraction_mask = (UINT64_C(1) << 52) - 1;
    const double magnitude = fabs(value);
    const double cut = magnitude < beyond ? magnitude : beyond; /* NaN, too */
    const double normal = cut < least ? least : cut;
    const uint64_t nan_bit = isnan(value) ? UINT64_C(1) << (fraction_bits - 1) : 0;
    const uint64_t sign = value < -0.5 * least / (double)(1U << fraction_bits) ? 0x8000U : 0;
    uint64_t exponent;
    uint64_t least_exponent;
    uint64_t bits;
    double sum;

    memcpy(&exponent, &normal, sizeof exponent);
    memcpy(&least_exponent, &least, sizeof least_exponent);
    exponent &= ~fraction_mask;
    bits = exponent + ((uint64_t)(52 - fraction_bits) << 52);
    memcpy(&sum, &bits, sizeof sum);
    sum += cut;
    memcpy(&bits, &sum, sizeof bits);
    bits = (((exponent - least_exponent) >> 52) << fraction_bits) + (bits & fraction_mask);
    return (uint16_t)(bits | nan_bit | sign);
}

/* Magnitudes from 65520 on become infinite. */
static inline uint16_t half_from_double(double value)
{
    return narrow(value, 10, 0x1p-14, 0x1p16);
}

static inline uint16_t bfloat_from_double(double value)
{
    return narrow(value, 7, 0x1p-126, 0x1p128);
}

/* Element index of an array, exact. type is a constant where it matters: loops are written once for each. */
static ALWAYS_INLINE double value_load(const void *values, enum value_type type, size_t index)
{
    switch (type) {
    case VALUE_F16:
        return double_from_half(((const uint16_t *)values)[index]);
    case VALUE_BF16:
        return double_from_bfloat(((const uint16_t *)values)[index]);
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        break;
    }
    return (double)((const float *)values)[index];
}

/* Rounded once, to nearest even; infinite beyond the range; 0 where it would be -0. */
static ALWAYS_INLINE void value_store(void *values, enum value_type type, size_t index, double value)
{
    switch (type) {
    case VALUE_F16:
        ((uint16_t *)values)[index] = half_from_double(value);
        return;
    case VALUE_BF16:
        ((uint16_t *)values)[index] = bfloat_from_double(value);
        return;
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        break;
    }
    ((float *)values)[index] = (float)value + 0.0F;
}

/* Whether element index is NaN or infinite. */
static ALWAYS_INLINE bool value_is_nonfinite(const void *values, enum value_type type, size_t index)
{
    switch (type) {
    case VALUE_F16:
        return (((const uint16_t *)values)[index] & 0x7c00U) == 0x7c00U;
    case VALUE_BF16:
        return (((const uint16_t *)values)[index] & 0x7f80U) == 0x7f80U;
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        break;
    }
    return !(fabsf(((const float *)values)[index]) <= FLT_MAX);
}

#endif
