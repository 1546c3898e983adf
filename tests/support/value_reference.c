#include "support/value_reference.h"

/* Bits of fraction, greatest exponent (all ones), and its bias. */
static unsigned fraction_bits(enum value_type type)
{
    return type == VALUE_F16 ? 10 : 7;
}

static int greatest_exponent(enum value_type type)
{
    return type == VALUE_F16 ? 31 : 255;
}

/* The number that the bits would be if no exponent stood for infinity. */
static double number_of(unsigned magnitude, enum value_type type)
{
    const int exponent = (int)(magnitude >> fraction_bits(type));
    const int fraction = (int)(magnitude & ((1U << fraction_bits(type)) - 1));
    const int bias = greatest_exponent(type) / 2;
    const int hidden = exponent == 0 ? 0 : 1 << fraction_bits(type);

    return ldexp(hidden + fraction, (exponent == 0 ? 1 : exponent) - bias - (int)fraction_bits(type));
}

double reference_from_bits(uint16_t bits, enum value_type type)
{
    const unsigned magnitude = bits & 0x7fffU;
    const unsigned infinity = (unsigned)greatest_exponent(type) << fraction_bits(type);
    const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;

    if (magnitude >= infinity)
        return magnitude == infinity ? sign * INFINITY : NAN;
    return sign * number_of(magnitude, type);
}

uint16_t reference_to_bits(double value, enum value_type type)
{
    const unsigned sign = value < 0.0 ? 0x8000U : 0;
    unsigned low = 0;
    unsigned high = (unsigned)greatest_exponent(type) << fraction_bits(type);
    double below;
    double above;

    value = fabs(value);
    if (value >= number_of(high, type))
        return (uint16_t)(high | sign);
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;

        if (number_of(middle, type) <= value)
            low = middle;
        else
            high = middle;
    }
    below = value - number_of(low, type); /* exact: neighbours differ in their last place */
    above = number_of(high, type) - value;
    if (below > above || (below == above && low % 2 == 1))
        low = high;
    return (uint16_t)(low == 0 ? 0 : low | sign);
}

double reference_value(const void *values, enum value_type type, size_t index)
{
    if (type == VALUE_F32)
        return (double)((const float *)values)[index];
    return reference_from_bits(((const uint16_t *)values)[index], type);
}
