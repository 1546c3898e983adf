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

/*
 * Halves of eight digits, then of four, then of two, all at once. Divisions are multiplications in each lane; the rest
 * goes to the lane above: lanes - n * high there and high here is one multiplication, too.
 */
static inline struct digits split_digits(uint32_t nine)
{
    const uint32_t first = nine / 100000000;
    const uint32_t five = nine / 10000;
    uint64_t lanes = (five - first * 10000) | (uint64_t)(nine - five * 10000) << 32;
    uint64_t high;

    high = ((lanes * 10486) >> 20) & UINT64_C(0x0000007f0000007f);
    lanes = (lanes << 16) - high * ((UINT64_C(100) << 16) - 1);
    high = ((lanes * 103) >> 10) & UINT64_C(0x000f000f000f000f);
    lanes = (lanes << 8) - high * ((UINT64_C(10) << 8) - 1);
    return (struct digits){.first = (char)('0' + first), .tail = lanes | UINT64_C(0x3030303030303030)};
}

static inline double magnitude_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* floor(log10(value)) of a positive float. */
static inline int64_t decimal_exponent(double value)
{
    enum { BIAS = 1023, FRACTION = 52 };
    uint64_t bits;
    int64_t exponent;

    memcpy(&bits, &value, sizeof bits);
    exponent = (((int64_t)(bits >> FRACTION) - BIAS) * 78913) >> 18; /* of its power of two: right or one too low */
    return exponent + (value >= power_of_ten(exponent + 1));
}

/*
 * The nine digits of a positive float, those that are not needed 0, and the exponent of the first. No branch depends
 * on the digits: they are as good as random.
 */
static inline uint32_t float_digits(uint32_t bits, int64_t *exponent)
{
    const double value = magnitude_of(bits);
    const double gap = value - magnitude_of(bits - 1); /* to the float below; never more than to the one above */
    const int64_t first = decimal_exponent(value);
    const double power = power_of_ten(FLOAT_DIGITS - 1 - first);
    const double scaled = value * power;
    const double near = gap * (0.4995 * power); /* not quite half of it */
    uint32_t nine = (uint32_t)(scaled + 0.5);
    const uint32_t eight = (nine + 5) / 10 * 10;
    const uint32_t seven = (nine + 50) / 100 * 100;

    *exponent = first;
    nine = fabs((double)eight - scaled) < near ? eight : nine;
    return fabs((double)seven - scaled) < near ? seven : nine;
}

static char *print_scientific(char *out, struct digits digits, int64_t count, int64_t exponent)
{
    const int64_t magnitude = exponent < 0 ? -exponent : exponent;

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
 * returned end does not matter. Signs of exponents are as good as random, too, so both cases are one: zeros and a point
 * in front that the digits may overwrite, then the point and, again, those behind it, where they are already if the
 * number is below one.
 */
static inline char *print_digits(char *out, struct digits digits, int64_t count, int64_t exponent)
{
    const int64_t below_one = -(int64_t)(exponent < 0); /* all bits, or none */
    const int64_t whole = exponent & ~below_one;
    const int64_t zeros = whole - exponent;
    const uint64_t fraction = digits.tail >> (8 * whole % 64);

    if (exponent < MIN_POSITIONAL || exponent > MAX_POSITIONAL)
        return print_scientific(out, digits, count, exponent);
    memcpy(out, "0.000000", 8);
    memcpy(out + FLOAT_DIGITS, "0000000", 7);
    out[zeros - below_one] = digits.first;
    memcpy(out + zeros - below_one + 1, &digits.tail, sizeof digits.tail);
    out[whole + 1] = '.';
    memcpy(out + whole + zeros + 2, &fraction, sizeof fraction);
    return out + (count > exponent + 1 ? zeros + count + 1 : exponent + 1);
}

static char *print_text(char *out, const char *text)
{
    const size_t length = strlen(text);

    memcpy(out, text, length);
    return out + length;
}

/* Zero, or what is not finite. */
static char *print_special(char *out, double value)
{
    if (value == 0)
        return print_text(out, signbit(value) ? "-0.0" : "0");
    if (isnan(value))
        return print_text(out, "\"NaN\"");
    return print_text(out, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
}

/* Digits up to the last that is not 0; at least one. The highest bit of tail, counted from 1, or 0, tells where. */
static inline int64_t significant(struct digits digits)
{
    const uint64_t tail = digits.tail ^ UINT64_C(0x3030303030303030);
    const uint64_t highest = (uint64_t)__builtin_clzll(2 * tail | 1) ^ 63;

    return (int64_t)(1 + (highest + 7) / 8);
}

static inline char *print_float(char *out, float value)
{
    const uint32_t sign = UINT32_C(1) << 31;
    const uint32_t infinity = UINT32_C(0xff) << 23;
    struct digits digits;
    uint32_t bits;
    uint32_t nine;
    int64_t exponent;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & ~sign) - 1 >= infinity - 1)
        return print_special(out, (double)value);
    *out = '-';
    out += bits >> 31;
    nine = float_digits(bits & ~sign, &exponent);
    if (nine == 1000000000) {
        nine = 100000000;
        exponent++;
    }
    digits = split_digits(nine);
    return print_digits(out, digits, significant(digits), exponent);
}

char *decimal_print_floats(char *out, const float *values, size_t count, const char *separator)
{
    const size_t length = strlen(separator);
    char two[2];

    memcpy(two, separator, sizeof two);
    for (size_t i = 0; i < count; i++) {
        out = print_float(out, values[i]);
        memcpy(out, two, sizeof two);
        out += length;
    }
    return count == 0 ? out : out - length;
}

char *decimal_print_float(char *out, float value)
{
    return decimal_print_floats(out, &value, 1, ", ");
}

char *decimal_print_double(char *out, double value)
{
    char text[DECIMAL_MAX_TEXT];

    if (value == 0 || !isfinite(value))
        return print_special(out, value);
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
