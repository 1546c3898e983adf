/*
 * Writing. A float x is scaled by a power of ten to nine digits before the point, in binary64, where that is off by a
 * millionth of the last digit at most. Any decimal nearer to x than half the distance to the next float reads back to
 * x; nine digits always are, seven or eight often.
 */
#include "codec/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/powers.h"

enum { FLOAT_DIGITS = 9, MIN_POSITIONAL = -5, MAX_POSITIONAL = 15 };

/* Nine digits as characters, kept in registers: a load of what small stores have just written would wait for them. */
struct digits {
    char first;
    uint64_t tail; /* the other eight, the second of all in the lowest byte */
};

/* Halves of eight digits, then of four, then of two, all at once; divisions are multiplications in each lane. */
static inline struct digits split_digits(uint32_t nine)
{
    const uint32_t eight = nine % 100000000;
    uint64_t lanes = eight / 10000 | (uint64_t)(eight % 10000) << 32;
    uint64_t high = ((lanes * 10486) >> 20) & UINT64_C(0x0000007f0000007f);

    lanes = high | (lanes - 100 * high) << 16;
    high = ((lanes * 103) >> 10) & UINT64_C(0x000f000f000f000f);
    lanes = high | (lanes - 10 * high) << 8;
    return (struct digits){.first = (char)('0' + nine / 100000000), .tail = lanes | UINT64_C(0x3030303030303030)};
}

static inline uint32_t choose(bool first, uint32_t a, uint32_t b)
{
    const uint32_t mask = 0 - (uint32_t)first;

    return (a & mask) | (b & ~mask);
}

/*
 * The nine digits of a positive float, those that are not needed 0, and the exponent of the first. No branch depends
 * on the digits: they are as good as random.
 */
static inline uint32_t float_digits(double value, int *exponent)
{
    enum { BIAS = 1023, FRACTION = 52, LOWEST = -126, PRECISION = 24 };
    uint64_t bits;
    int binary;
    double scaled;
    double half_gap;
    uint32_t nine;
    uint32_t eight;
    uint32_t seven;

    memcpy(&bits, &value, sizeof bits);
    binary = (int)(bits >> FRACTION) - BIAS;
    *exponent = (binary * 78913) >> 18; /* floor(binary * log10(2)): right or one too low */
    *exponent += value >= power_of_ten(*exponent + 1);
    /* Below a power of two the next float is half as far. */
    binary = (binary < LOWEST ? LOWEST : binary) - PRECISION - ((bits << 12) == 0);
    bits = (uint64_t)(binary + BIAS) << FRACTION;
    memcpy(&half_gap, &bits, sizeof half_gap);
    half_gap *= 0.999 * power_of_ten(FLOAT_DIGITS - 1 - *exponent);
    scaled = value * power_of_ten(FLOAT_DIGITS - 1 - *exponent);

    nine = (uint32_t)(scaled + 0.5);
    eight = (nine + 5) / 10 * 10;
    seven = (nine + 50) / 100 * 100;
    nine = choose(fabs((double)eight - scaled) < half_gap, eight, nine);
    return choose(fabs((double)seven - scaled) < half_gap, seven, nine);
}

static char *print_scientific(char *out, struct digits digits, int count, int exponent)
{
    const int magnitude = exponent < 0 ? -exponent : exponent;

    *out++ = digits.first;
    if (count > 1) {
        *out = '.';
        memcpy(out + 1, &digits.tail, sizeof digits.tail);
        out += count;
    }
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    *out++ = (char)('0' + magnitude / 10);
    *out++ = (char)('0' + magnitude % 10);
    return out;
}

/*
 * count digits, the first worth 10^exponent; zeros follow them. Eight are written at a time: what goes past the
 * returned end does not matter. Signs of exponents are as good as random, too, so both cases are one: zeros in front
 * that the digits may overwrite, and a point that goes where it does no harm where there is none.
 */
static inline char *print_digits(char *out, struct digits digits, int count, int exponent)
{
    enum { NOWHERE = 18 };
    const int below_one = -(exponent < 0); /* all bits, or none */
    const int zeros = (1 - exponent) & below_one;
    const int whole = exponent & ~below_one;
    const int has_point = (count > exponent + 1) & ~below_one;
    const int point = NOWHERE + (-has_point & (whole + 1 - NOWHERE));
    uint64_t fraction;

    if (exponent < MIN_POSITIONAL || exponent > MAX_POSITIONAL)
        return print_scientific(out, digits, count, exponent);
    memcpy(out, "0.000000", 8);
    out[zeros] = digits.first;
    memcpy(out + zeros + 1, &digits.tail, sizeof digits.tail);
    if (exponent + 1 > FLOAT_DIGITS)
        memcpy(out + FLOAT_DIGITS, "0000000", 7);
    fraction = digits.tail >> (8 * whole % 64);
    out[point] = '.';
    memcpy(out + point + 1, &fraction, sizeof fraction);
    return out + (exponent + 1 > count ? exponent + 1 : zeros + count + has_point);
}

static char *print_text(char *out, const char *text)
{
    const size_t length = strlen(text);

    memcpy(out, text, length);
    return out + length;
}

static char *print_nonfinite(char *out, double value)
{
    if (isnan(value))
        return print_text(out, "\"NaN\"");
    return print_text(out, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
}

/* Digits up to the last that is not 0; at least one. */
static inline int significant(struct digits digits)
{
    const uint64_t tail = digits.tail ^ UINT64_C(0x3030303030303030);

    return tail == 0 ? 1 : FLOAT_DIGITS - __builtin_clzll(tail) / 8;
}

static inline char *print_float(char *out, float value)
{
    struct digits digits;
    uint32_t nine;
    int exponent;

    if (!isfinite(value))
        return print_nonfinite(out, (double)value);
    if (value == 0)
        return print_text(out, signbit(value) ? "-0.0" : "0");
    *out = '-';
    out += signbit(value) != 0;
    nine = float_digits((double)fabsf(value), &exponent);
    if (nine == 1000000000) {
        nine = 100000000;
        exponent++;
    }
    digits = split_digits(nine);
    return print_digits(out, digits, significant(digits), exponent);
}

char *decimal_print_float(char *out, float value)
{
    return print_float(out, value);
}

char *decimal_print_floats(char *out, const float *values, size_t count, const char *separator)
{
    const size_t length = strlen(separator);

    for (size_t i = 0; i < count; i++) {
        out = print_float(out, values[i]);
        memcpy(out, separator, 2);
        out += length;
    }
    return count == 0 ? out : out - length;
}

char *decimal_print_double(char *out, double value)
{
    char text[DECIMAL_MAX_TEXT];

    if (!isfinite(value))
        return print_nonfinite(out, value);
    if (value == 0)
        return print_text(out, signbit(value) ? "-0.0" : "0");
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return print_text(out, text);
}

char *decimal_print_uint64(char *out, uint64_t value)
{
    char digits[20];
    size_t start = sizeof digits;

    do {
        digits[--start] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    memcpy(out, digits + start, sizeof digits - start);
    return out + (sizeof digits - start);
}

char *decimal_print_int64(char *out, int64_t value)
{
    if (value >= 0)
        return decimal_print_uint64(out, (uint64_t)value);
    *out++ = '-';
    return decimal_print_uint64(out, 0 - (uint64_t)value);
}
