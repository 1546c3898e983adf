/*
 * Reading. A binary64 estimate of the number is off by a few units in its last place at most, so rounding it to
 * binary32 is right unless it lies within that distance of the middle of two floats: then, and in the ranges where
 * floats have fewer bits, strtof decides. For binary64 the estimate is used where it is exact by construction.
 */
#include "codec/decimal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/powers.h"

enum {
    MAX_EXACT_POWER = 22,   /* of ten, in binary64 */
    MAX_EXPONENT = 1 << 30, /* far past any number, far from overflow */
    SLOW_DIGITS = 800,      /* the middle of two binary64 has at most 767 significant digits */
    ALWAYS_FIT = 19,        /* digits in 64 bits */
    EXPONENT_TEXT = 32,     /* characters, with the e and a NUL */
    CANONICAL_TEXT = SLOW_DIGITS + 1 + EXPONENT_TEXT,
};

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Value of eight digits, the first in the lowest byte: pairs, then fours, then eights. */
static inline uint32_t eight_digits_value(uint64_t digits)
{
    digits = digits * 10 + (digits >> 8);
    digits = ((digits & UINT64_C(0x000000ff000000ff)) * (100 + (UINT64_C(1000000) << 32)) +
              ((digits >> 16) & UINT64_C(0x000000ff000000ff)) * (1 + (UINT64_C(10000) << 32))) >>
             32;
    return (uint32_t)digits;
}

/*
 * Push the digits at text, eight at most, to the right of *value without a branch on how many there are: those behind
 * them are shifted out. Returns their number.
 */
static inline size_t push_up_to_eight(const uint8_t *text, uint64_t *value)
{
    static const uint32_t power[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    uint64_t chunk;
    uint64_t others;
    size_t count;

    memcpy(&chunk, text, sizeof chunk);
    chunk ^= UINT64_C(0x3030303030303030);
    /* The high bit of each byte past 9, right up to and including the first. */
    others = ((chunk + UINT64_C(0x7676767676767676)) | chunk) & UINT64_C(0x8080808080808080);
    count = others == 0 ? 8 : (size_t)__builtin_ctzll(others) / 8;
    chunk = chunk << (32 - 4 * count) << (32 - 4 * count); /* in two halves, as 64 at once is not defined */
    *value = *value * power[count] + eight_digits_value(chunk);
    return count;
}

/* All digits at p, to the right of *value, which wraps where they are too many. */
static inline const uint8_t *push_digits(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    while (end - p >= 8) {
        const size_t count = push_up_to_eight(p, value);

        p += count;
        if (count < 8)
            return p;
    }
    while (p < end && is_digit(*p))
        *value = *value * 10 + (uint64_t)(*p++ - '0');
    return p;
}

/* Behind the e. NULL where there is no digit. */
static const uint8_t *parse_exponent(const uint8_t *p, const uint8_t *end, int64_t *exponent)
{
    const bool negative = p < end && *p == '-';
    int64_t value = 0;

    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end || !is_digit(*p))
        return NULL;
    for (; p < end && is_digit(*p); p++)
        if (value < MAX_EXPONENT)
            value = value * 10 + (*p - '0');
    *exponent += negative ? -value : value;
    return p;
}

/* Read the digits again where they may not fit: as many as do. */
static void keep_leading_digits(struct decimal *decimal)
{
    bool full = false;

    decimal->digits = 0;
    for (size_t i = decimal->negative; i < decimal->length && (decimal->text[i] | 0x20) != 'e'; i++) {
        const unsigned digit = (unsigned)decimal->text[i] - '0';

        if (decimal->text[i] == '.')
            continue;
        full = full || decimal->digits > (UINT64_MAX - digit) / 10;
        if (!full) {
            decimal->digits = decimal->digits * 10 + digit;
            continue;
        }
        decimal->rounded |= digit != 0;
        decimal->exponent++;
    }
}

const uint8_t *decimal_parse(const uint8_t *text, const uint8_t *end, struct decimal *decimal)
{
    const bool negative = text < end && *text == '-';
    const uint8_t *const whole = text + negative;
    const uint8_t *p = whole;
    uint64_t digits = 0;
    int64_t exponent = 0;
    size_t num_digits;

    while (p < end && is_digit(*p))
        digits = digits * 10 + (uint64_t)(*p++ - '0');
    if (p == whole || (p - whole > 1 && *whole == '0'))
        return NULL;
    if (p < end && *p == '.') {
        const uint8_t *const fraction = p + 1;

        p = push_digits(fraction, end, &digits);
        if (p == fraction)
            return NULL;
        exponent = fraction - p;
    }
    num_digits = (size_t)(p - whole);
    if (p < end && (*p == 'e' || *p == 'E')) {
        p = parse_exponent(p + 1, end, &exponent);
        if (p == NULL)
            return NULL;
    }
    *decimal = (struct decimal){
        .text = text,
        .length = (size_t)(p - text),
        .num_digits = num_digits,
        .digits = digits,
        .exponent = exponent,
        .scale = exponent,
        .negative = negative,
    };
    if (num_digits > ALWAYS_FIT)
        keep_leading_digits(decimal);
    return p;
}

/*
 * The number again as digits and exponent without a point, short and of the same rounding: past SLOW_DIGITS only
 * whether something follows can matter, which one more digit says.
 */
static void canonical_text(const struct decimal *decimal, char text[CANONICAL_TEXT])
{
    size_t length = 0;
    size_t dropped = 0;
    bool sticky = false;

    if (decimal->negative)
        text[length++] = '-';
    for (size_t i = decimal->negative; i < decimal->length && (decimal->text[i] | 0x20) != 'e'; i++) {
        const char c = (char)decimal->text[i];

        if (c == '.' || (c == '0' && length == decimal->negative))
            continue;
        if (length < SLOW_DIGITS) {
            text[length++] = c;
            continue;
        }
        dropped++;
        sticky |= c != '0';
    }
    if (sticky) {
        text[length++] = '1';
        dropped--;
    }
    if (length == decimal->negative)
        text[length++] = '0';
    (void)snprintf(text + length, EXPONENT_TEXT, "e%lld", (long long)(decimal->scale + (int64_t)dropped));
}

static bool float_by_strtof(const struct decimal *decimal, float *value)
{
    char text[CANONICAL_TEXT];

    canonical_text(decimal, text);
    *value = strtof(text, NULL);
    return !isinf(*value);
}

bool decimal_to_float(const struct decimal *decimal, float *value)
{
    enum { DROPPED_BITS = 29, SAFE_DISTANCE = 8 };
    const uint64_t half = UINT64_C(1) << (DROPPED_BITS - 1);
    const uint64_t dropped = (UINT64_C(1) << DROPPED_BITS) - 1;
    double close;
    float magnitude;
    uint64_t bits;
    uint32_t narrow;

    if (decimal->exponent < -MAX_POWER || decimal->exponent > MAX_POWER)
        return float_by_strtof(decimal, value);
    close = (double)decimal->digits * power_of_ten(decimal->exponent);
    memcpy(&bits, &close, sizeof bits);
    /* One branch, not two: whether a number is 0 can be as good as random. */
    if (((close < (double)FLT_MIN) & (close > 0)) || close >= (double)FLT_MAX ||
        (bits & dropped) - (half - SAFE_DISTANCE) <= 2 * SAFE_DISTANCE)
        return float_by_strtof(decimal, value);
    magnitude = (float)close;
    memcpy(&narrow, &magnitude, sizeof narrow);
    narrow |= (uint32_t)decimal->negative << 31;
    memcpy(value, &narrow, sizeof *value);
    return true;
}

size_t decimal_read_floats(const uint8_t **text, const uint8_t *end, float *values, size_t room)
{
    const uint8_t *p = *text;
    size_t count = 0;

    while (count < room) {
        struct decimal decimal;
        const uint8_t *const behind = decimal_parse(p, end, &decimal);

        if (behind == NULL || end - behind < 2 || *behind != ',' || !decimal_to_float(&decimal, &values[count]))
            break;
        p = behind[1] == ' ' ? behind + 2 : behind + 1;
        count++;
    }
    *text = p;
    return count;
}

bool decimal_to_double(const struct decimal *decimal, double *value)
{
    const int64_t exponent = decimal->exponent;
    char text[CANONICAL_TEXT];

    if (decimal->digits <= UINT64_C(1) << 53 && exponent >= -MAX_EXACT_POWER && exponent <= MAX_EXACT_POWER) {
        const double digits = (double)decimal->digits;
        const double power = power_of_ten(exponent < 0 ? -exponent : exponent);

        *value = copysign(exponent < 0 ? digits / power : digits * power, decimal->negative ? -1.0 : 1.0);
        return true;
    }
    canonical_text(decimal, text);
    *value = strtod(text, NULL);
    return !isinf(*value);
}

/* |number|, where it is whole and fits. At most 20 rounds: then it has overflown or has no more factor of ten. */
static bool whole_magnitude(const struct decimal *decimal, uint64_t *magnitude)
{
    uint64_t digits = decimal->digits;

    if (decimal->rounded)
        return false;
    if (digits != 0) {
        for (int64_t e = decimal->exponent; e > 0; e--)
            if (__builtin_mul_overflow(digits, 10, &digits))
                return false;
        for (int64_t e = decimal->exponent; e < 0; e++, digits /= 10)
            if (digits % 10 != 0)
                return false;
    }
    *magnitude = digits;
    return true;
}

bool decimal_to_uint64(const struct decimal *decimal, uint64_t max, uint64_t *value)
{
    uint64_t magnitude;

    if (!whole_magnitude(decimal, &magnitude) || magnitude > max || (decimal->negative && magnitude != 0))
        return false;
    *value = magnitude;
    return true;
}

bool decimal_to_int64(const struct decimal *decimal, int64_t min, int64_t max, int64_t *value)
{
    uint64_t magnitude;

    if (!whole_magnitude(decimal, &magnitude))
        return false;
    if (magnitude > (decimal->negative ? (uint64_t) - (min + 1) + 1 : (uint64_t)max))
        return false;
    *value = decimal->negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}
