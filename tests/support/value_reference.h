/*
 * Numbers of a 16-bit type from the definition of such formats, and rounding by looking for the nearest one: slow, and
 * nothing in common with batch/values.h but the names of the types.
 */
#ifndef TESTS_SUPPORT_VALUE_REFERENCE_H
#define TESTS_SUPPORT_VALUE_REFERENCE_H

#include "batch/values.h"

/* type is VALUE_F16 or VALUE_BF16. NaN and infinities as such. */
double reference_from_bits(uint16_t bits, enum value_type type);

/* To nearest, ties to even, infinite from half a last place beyond the greatest number on; 0 for -0. Not for NaN. */
uint16_t reference_to_bits(double value, enum value_type type);

/* An element of an array of any type. */
double reference_value(const void *values, enum value_type type, size_t index);

#endif
