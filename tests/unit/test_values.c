/* Halves and bfloats: all of them, both ways, and everything that lies between two of them. */
#include "batch/values.h"

#include "support/random.h"
#include "support/runner.h"
#include "support/value_reference.h"

static const enum value_type types[] = {VALUE_F16, VALUE_BF16};

static uint16_t round_to(enum value_type type, double value)
{
    uint16_t bits[2]; /* room for an element of any type */

    value_store(bits, type, 0, value);
    return bits[0];
}

static void expect_rounding(enum value_type type, double value)
{
    ck_assert_msg(round_to(type, value) == reference_to_bits(value, type), "%a becomes %04x, expected %04x", value,
                  round_to(type, value), reference_to_bits(value, type));
    ck_assert_msg(round_to(type, -value) == reference_to_bits(-value, type), "%a becomes %04x, expected %04x", -value,
                  round_to(type, -value), reference_to_bits(-value, type));
}

START_TEST(known_numbers)
{
    ck_assert(double_from_half(0x3c00) == 1.0);
    ck_assert(double_from_half(0xc000) == -2.0);
    ck_assert(double_from_half(0x7bff) == 65504.0);
    ck_assert(double_from_half(0x0001) == 0x1p-24);
    ck_assert(double_from_half(0x0400) == 0x1p-14);
    ck_assert(double_from_half(0x3555) == 0x1.554p-2);
    ck_assert(double_from_bfloat(0x3f80) == 1.0);
    ck_assert(double_from_bfloat(0x4049) == 3.140625);
    ck_assert(double_from_bfloat(0x0001) == 0x1p-133);
    ck_assert_uint_eq(half_from_double(1.0 / 3.0), 0x3555);
    ck_assert_uint_eq(half_from_double(65519.999), 0x7bff);
    ck_assert_uint_eq(half_from_double(65520.0), 0x7c00);
    ck_assert_uint_eq(half_from_double(-1e300), 0xfc00);
    ck_assert_uint_eq(bfloat_from_double(3.14159), 0x4049);
    ck_assert_uint_eq(bfloat_from_double(1e39), 0x7f80);
}
END_TEST

START_TEST(every_number_of_a_type_is_what_its_bits_say_and_comes_back)
{
    const enum value_type type = types[_i];

    for (unsigned bits = 0; bits <= UINT16_MAX; bits++) {
        const uint16_t element[2] = {(uint16_t)bits};
        const double found = value_load(element, type, 0);
        const double expected = reference_from_bits(element[0], type);

        if (isnan(expected)) {
            ck_assert_msg(isnan(found), "%04x is %a, expected NaN", bits, found);
            ck_assert_msg(isnan(reference_from_bits(round_to(type, found), type)), "NaN becomes %04x", bits);
        } else {
            ck_assert_msg(found == expected && signbit(found) == signbit(expected), "%04x is %a, expected %a", bits,
                          found, expected);
            ck_assert_uint_eq(round_to(type, found), bits == 0x8000U ? 0 : bits);
        }
        ck_assert_msg(value_is_nonfinite(element, type, 0) == !isfinite(expected), "%04x", bits);
    }
}
END_TEST

START_TEST(numbers_between_two_neighbours_go_to_the_nearer_one_and_from_the_middle_to_the_even_one)
{
    const enum value_type type = types[_i];
    const unsigned infinity = type == VALUE_F16 ? 0x7c00U : 0x7f80U;

    for (unsigned bits = 0; bits < infinity; bits++) {
        const double low = reference_from_bits((uint16_t)bits, type);
        const double step = low - reference_from_bits((uint16_t)(bits > 0 ? bits - 1 : 1), type);
        const double high = bits + 1 < infinity ? reference_from_bits((uint16_t)(bits + 1), type) : low + step;
        const double middle = low + (high - low) / 2.0;
        const double near[] = {low, middle, high, low + (high - low) * 0.3, low + (high - low) * 0.7};

        for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
            expect_rounding(type, near[i]);
            expect_rounding(type, nextafter(near[i], INFINITY));
            expect_rounding(type, nextafter(near[i], -INFINITY));
        }
        ck_assert_uint_eq(round_to(type, middle), bits + bits % 2);
    }
}
END_TEST

START_TEST(a_number_is_rounded_once)
{
    /* binary32 would round both to the middle between two numbers of the type, and that to the even one */
    ck_assert_uint_eq(half_from_double(1.0 + 0x1p-11 + 0x1p-30), 0x3c01);
    ck_assert_uint_eq(half_from_double(1.0 + 0x3p-11 - 0x1p-30), 0x3c01);
    ck_assert_uint_eq(bfloat_from_double(1.0 + 0x1p-8 + 0x1p-30), 0x3f81);
    ck_assert_uint_eq(bfloat_from_double(1.0 + 0x3p-8 - 0x1p-30), 0x3f81);
}
END_TEST

START_TEST(numbers_of_all_sizes_are_rounded_as_the_reference_does)
{
    struct random random = {.state = 7};

    for (int i = 0; i < 1000000; i++) {
        const uint64_t bits = random_next(&random) & INT64_MAX;
        const double wide = ldexp(1.0 + (double)(bits >> 12) * 0x1p-52, (int)(bits & 511) - 256);

        expect_rounding(types[_i], wide);
    }
    expect_rounding(types[_i], 0.0);
    expect_rounding(types[_i], DBL_TRUE_MIN);
    expect_rounding(types[_i], DBL_MAX);
    expect_rounding(types[_i], INFINITY);
}
END_TEST

START_TEST(a_binary32_is_stored_rounded_once_and_never_as_minus_0)
{
    float stored[3];

    value_store(stored, VALUE_F32, 2, -0x1p-160);
    ck_assert(stored[2] == 0.0F && !signbit(stored[2]));
    value_store(stored, VALUE_F32, 1, 1e39);
    ck_assert(isinf(stored[1]));
    value_store(stored, VALUE_F32, 0, 0.1);
    ck_assert(stored[0] == 0.1F);
    ck_assert(value_load(stored, VALUE_F32, 0) == (double)0.1F);
    ck_assert(value_is_nonfinite(stored, VALUE_F32, 1) && !value_is_nonfinite(stored, VALUE_F32, 0));
    ck_assert_uint_eq(half_from_double(-0.0), 0);
    ck_assert_uint_eq(half_from_double(-0x1p-25), 0);
    ck_assert_uint_eq(half_from_double(-0x1.8p-25), 0x8001);
    ck_assert_uint_eq(bfloat_from_double(-0x1p-134), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("values");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, known_numbers);
    tcase_add_loop_test(tcase, every_number_of_a_type_is_what_its_bits_say_and_comes_back, 0, 2);
    tcase_add_loop_test(tcase, numbers_between_two_neighbours_go_to_the_nearer_one_and_from_the_middle_to_the_even_one,
                        0, 2);
    tcase_add_test(tcase, a_number_is_rounded_once);
    tcase_add_loop_test(tcase, numbers_of_all_sizes_are_rounded_as_the_reference_does, 0, 2);
    tcase_add_test(tcase, a_binary32_is_stored_rounded_once_and_never_as_minus_0);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
