/*
 * Numbers as decimal text: the JSON grammar read exactly, floats written with digits that read back to the same bits.
 * Nothing here depends on the locale. Pure; any thread.
 */
#ifndef CODEC_DECIMAL_H
#define CODEC_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number as it was written: digits * 10^exponent, and what did not fit there. */
struct decimal {
    const uint8_t *text; /* of the whole number, borrowed */
    size_t length;
    size_t num_digits; /* written ones, before and behind the point */
    uint64_t digits;   /* leading ones, as many as fit */
    int64_t exponent;  /* of the last of digits */
    int64_t scale;     /* of the last digit of the text */
    bool negative;
    bool rounded; /* a digit that did not fit was not 0 */
};

/*
 * Read one number of RFC 8259 at text. Returns its end, or NULL where there is none: no digit, a leading zero, a point
 * or exponent without digits. What follows the number is not looked at, except that it is not a digit.
 */
const uint8_t *decimal_parse(const uint8_t *text, const uint8_t *end, struct decimal *decimal);

/* The nearest binary32 or binary64, ties to even. False where that is infinite. */
bool decimal_to_float(const struct decimal *decimal, float *value);
bool decimal_to_double(const struct decimal *decimal, double *value);

/*
 * The binary32 numbers at *text, room at most, as long as each is followed by a comma, or a comma and a space, and
 * something more. Moves *text behind them and returns their number; what comes next may be a number, too.
 */
size_t decimal_read_floats(const uint8_t **text, const uint8_t *end, float *values, size_t room);

/* The whole number, however it was written (1e3, 1.0). False where it has a fraction or is out of range. */
bool decimal_to_int64(const struct decimal *decimal, int64_t min, int64_t max, int64_t *value);
bool decimal_to_uint64(const struct decimal *decimal, uint64_t max, uint64_t *value);

/* Room that any of these needs, and the longest of a float; they write no NUL and return the end. */
enum { DECIMAL_MAX_TEXT = 32, DECIMAL_FLOAT_TEXT = 17 };

/*
 * At most 9 significant digits, as few as cheaply seen to give the same bits; "NaN", "Infinity" and "-Infinity" in
 * quotes, as ProtoJSON writes them.
 */
char *decimal_print_float(char *out, float value);

/*
 * An array of them with a separator of 1 or 2 characters between. out has room for DECIMAL_FLOATS_BOUND(count); what is
 * behind the returned end may be written too.
 */
#define DECIMAL_FLOATS_BOUND(count) ((count) * (DECIMAL_FLOAT_TEXT + 2) + DECIMAL_MAX_TEXT)
char *decimal_print_floats(char *out, const float *values, size_t count, const char *separator);

/* One binary64, with at most 17 digits. */
char *decimal_print_double(char *out, double value);

char *decimal_print_uint64(char *out, uint64_t value);
char *decimal_print_int64(char *out, int64_t value);

#endif
