/* Numbers as text, to the last bit. */
#include "codec/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec_support.h"
#include "support/runner.h"

static float read_float(const char *text)
{
    struct decimal decimal;
    float value = NAN;
    const uint8_t *const end = (const uint8_t *)text + strlen(text);

    if (decimal_parse((const uint8_t *)text, end, &decimal) != end)
        ck_abort_msg("%s is not read", text);
    (void)decimal_to_float(&decimal, &value);
    return value;
}

/* 16777217 lies between the floats 16777216 and 16777218: ties go to even, and anything more goes up. */
START_TEST(the_middle_of_two_floats_is_decided_by_the_last_digit)
{
    char text[2000];

    ck_assert(read_float("16777217") == 16777216.0f);
    ck_assert(read_float("16777217.0000000000000000000001") == 16777218.0f);
    ck_assert(read_float("16777216.9999999999999999999999") == 16777216.0f);
    ck_assert(read_float("16777219") == 16777220.0f);
    ck_assert(read_float("0.16777217e8") == 16777216.0f);
    (void)snprintf(text, sizeof text, "16777217.%01500d1", 0);
    ck_assert(read_float(text) == 16777218.0f);
    ck_assert(read_float("7.006492321624085354618e-46") == 0.0f); /* just below half of the least float, 2^-150 */
    ck_assert(read_float("7.006492321624085354619e-46") == 0x1p-149f);
}
END_TEST

START_TEST(a_zero_keeps_its_sign_whatever_its_exponent)
{
    static const char *const texts[] = {"-0", "-0.0", "-0e99", "-0.000e-99", "-0e1000000000000"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const uint8_t *const text = (const uint8_t *)texts[i];
        struct decimal decimal;
        float single = NAN;
        double wide = NAN;

        ck_assert_ptr_nonnull(decimal_parse(text, text + strlen(texts[i]), &decimal));
        ck_assert_msg(decimal_to_float(&decimal, &single) && single == 0 && signbit(single), "%s", texts[i]);
        ck_assert_msg(decimal_to_double(&decimal, &wide) && wide == 0 && signbit(wide), "%s", texts[i]);
    }
}
END_TEST

START_TEST(every_random_float_is_read_from_its_text_to_the_same_bits)
{
    uint64_t state = 88172645463325252;
    static const int digits[] = {9, 17, 31, 60};

    for (int i = 0; i < 1000000; i++) {
        const uint32_t bits = (uint32_t)(next_random(&state) >> 32);
        char text[128];
        float value;
        float back;

        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        (void)snprintf(text, sizeof text, "%.*g", digits[i % 4], (double)value);
        back = read_float(text);
        if (memcmp(&value, &back, sizeof value) != 0)
            ck_abort_msg("%s", text);
    }
}
END_TEST

START_TEST(random_numbers_are_rounded_as_the_c_library_does)
{
    uint64_t state = 2463534242;

    for (int i = 0; i < 300000; i++) {
        char text[64];
        int length = 0;
        struct decimal decimal;
        double wide = NAN;

        text[length++] = (char)('1' + next_random(&state) % 9);
        text[length++] = '.';
        for (uint64_t n = 1 + next_random(&state) % 25; n > 0; n--)
            text[length++] = (char)('0' + next_random(&state) % 10);
        length += snprintf(text + length, 16, "e%d", (int)(next_random(&state) % 90) - 52);
        if (isfinite(strtof(text, NULL)))
            ck_assert_msg(read_float(text) == strtof(text, NULL), "%s", text);
        ck_assert_ptr_nonnull(decimal_parse((uint8_t *)text, (uint8_t *)text + length, &decimal));
        ck_assert(decimal_to_double(&decimal, &wide));
        ck_assert_msg(wide == strtod(text, NULL), "%s", text);
    }
}
END_TEST

static void check_float_text(float value)
{
    char text[DECIMAL_MAX_TEXT];
    char *const end = decimal_print_float(text, value);
    struct decimal decimal;
    float back;

    *end = '\0';
    if (decimal_parse((uint8_t *)text, (uint8_t *)end, &decimal) != (uint8_t *)end ||
        !decimal_to_float(&decimal, &back) || memcmp(&back, &value, sizeof back) != 0 || strtof(text, NULL) != value)
        ck_abort_msg("%a is written as %s", (double)value, text);
}

START_TEST(random_floats_survive_being_written)
{
    uint64_t state = 1234567 + (uint64_t)_i;

    for (int i = 0; i < 1000000; i++) {
        const uint32_t bits = (uint32_t)(next_random(&state) >> 32);
        float value;

        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            check_float_text(value);
    }
}
END_TEST

START_TEST(floats_at_the_edges_survive_being_written)
{
    for (int exponent = -149; exponent < 128; exponent++) {
        check_float_text(ldexpf(1.0f, exponent));
        check_float_text(nextafterf(ldexpf(1.0f, exponent), INFINITY));
        check_float_text(nextafterf(ldexpf(1.0f, exponent), -INFINITY));
    }
    for (int power = -45; power < 39; power++) {
        const float value = (float)pow(10, power);

        check_float_text(value);
        check_float_text(-nextafterf(value, INFINITY));
        check_float_text(nextafterf(value, 0.0f));
    }
    check_float_text(0.0f);
    check_float_text(-0.0f);
}
END_TEST

START_TEST(floats_are_written_with_few_digits)
{
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {1.0f, "1"},
        {-2.5f, "-2.5"},
        {0.1f, "0.1"},
        {1.0f / 3, "0.33333334"},
        {16777216.0f, "16777216"},
        {1e10f, "10000000000"},
        {1e20f, "1e+20"},
        {0.0001f, "0.0001"},
        {1e-6f, "1e-06"},
        {3.4028235e38f, "3.4028235e+38"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[DECIMAL_MAX_TEXT];

        *decimal_print_float(text, cases[i].value) = '\0';
        ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

/* 17 characters each, the most there are, in a block of just the size that is asked for. */
START_TEST(an_array_of_the_longest_floats_fits_its_bound)
{
    static const float values[] = {-1234568000000000.0f, -1234568000000000.0f, -1234568000000000.0f};
    char *const text = malloc(DECIMAL_FLOATS_BOUND(3));

    ck_assert_ptr_nonnull(text);
    *decimal_print_floats(text, values, 3, ", ") = '\0';
    ck_assert_str_eq(text, "-1234568000000000, -1234568000000000, -1234568000000000");
    free(text);
}
END_TEST

START_TEST(an_array_is_read_as_long_as_commas_follow)
{
    static const char text[] = "1,-2.5, 3e1,\n4, 5";
    const uint8_t *p = (const uint8_t *)text;
    const uint8_t *const end = p + strlen(text);
    float values[5] = {0};

    ck_assert_uint_eq(decimal_read_floats(&p, end, values, 2), 2);
    ck_assert_str_eq((const char *)p, "3e1,\n4, 5");
    ck_assert_uint_eq(decimal_read_floats(&p, end, values + 2, 3), 1);
    ck_assert_str_eq((const char *)p, "\n4, 5");
    p++;
    ck_assert_uint_eq(decimal_read_floats(&p, end, values + 3, 2), 1);
    ck_assert_str_eq((const char *)p, "5");
    ck_assert_uint_eq(decimal_read_floats(&p, end, values + 4, 1), 0);
    ck_assert(values[0] == 1 && values[1] == -2.5f && values[2] == 30 && values[3] == 4);
}
END_TEST

START_TEST(random_doubles_and_integers_survive_being_written)
{
    uint64_t state = 99;

    for (int i = 0; i < 200000; i++) {
        const uint64_t bits = next_random(&state);
        char text[DECIMAL_MAX_TEXT];
        double value;

        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            *decimal_print_double(text, value) = '\0';
            ck_assert(strtod(text, NULL) == value);
        }
        *decimal_print_int64(text, (int64_t)bits) = '\0';
        ck_assert_int_eq(strtoll(text, NULL, 10), (int64_t)bits);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decimal");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, the_middle_of_two_floats_is_decided_by_the_last_digit);
    tcase_add_test(tcase, a_zero_keeps_its_sign_whatever_its_exponent);
    tcase_add_test(tcase, every_random_float_is_read_from_its_text_to_the_same_bits);
    tcase_add_test(tcase, random_numbers_are_rounded_as_the_c_library_does);
    tcase_add_loop_test(tcase, random_floats_survive_being_written, 0, 3);
    tcase_add_test(tcase, floats_at_the_edges_survive_being_written);
    tcase_add_test(tcase, floats_are_written_with_few_digits);
    tcase_add_test(tcase, an_array_of_the_longest_floats_fits_its_bound);
    tcase_add_test(tcase, an_array_is_read_as_long_as_commas_follow);
    tcase_add_test(tcase, random_doubles_and_integers_survive_being_written);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
