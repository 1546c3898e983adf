/* The scan for values that are not finite, in each type and layout, at each place. */
#include "batch/columns.h"

#include <stdlib.h>

#include "support/runner.h"

static const struct {
    size_t num_rows;
    size_t num_columns;
    size_t stride;
} shapes[] = {{3000, 1, 1}, {700, 3, 3}, {1100, 1, 4}, {1030, 2, 5}, {1, 5, 9}};

enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

/* NaN, infinity and -infinity of a type. */
static void set_bad(void *values, enum value_type type, size_t index, size_t which)
{
    static const uint32_t bad[NUM_VALUE_TYPES][3] = {
        [VALUE_F32] = {0x7fc00001, 0x7f800000, 0xff800000},
        [VALUE_F16] = {0x7c01, 0x7c00, 0xfc00},
        [VALUE_BF16] = {0xffc1, 0x7f80, 0xff80},
    };

    if (type == VALUE_F32)
        ((uint32_t *)values)[index] = bad[type][which];
    else
        ((uint16_t *)values)[index] = (uint16_t)bad[type][which];
}

/* The least finite number: next to infinity, with all bits of the fraction. */
static void set_least(void *values, enum value_type type, size_t index)
{
    static const uint32_t least[NUM_VALUE_TYPES] = {
        [VALUE_F32] = 0xff7fffff, [VALUE_F16] = 0xfbff, [VALUE_BF16] = 0xff7f};

    if (type == VALUE_F32)
        ((uint32_t *)values)[index] = least[type];
    else
        ((uint16_t *)values)[index] = (uint16_t)least[type];
}

/* Good values in the rows and bad ones in between. */
static void fill(void *values, enum value_type type, int shape)
{
    const size_t stride = shapes[shape].stride;

    for (size_t i = 0; i < shapes[shape].num_rows * stride; i++)
        if (i % stride < shapes[shape].num_columns)
            set_least(values, type, i);
        else
            set_bad(values, type, i, i % 3);
}

static struct nonfinite_values find(const void *values, enum value_type type, int shape)
{
    return find_nonfinite_values(values, type, shapes[shape].num_rows, shapes[shape].num_columns, shapes[shape].stride);
}

START_TEST(each_bad_value_is_found_and_what_lies_between_rows_is_not)
{
    const size_t columns = shapes[_i].num_columns;
    const size_t count = shapes[_i].num_rows * columns;
    void *values = malloc(shapes[_i].num_rows * shapes[_i].stride * sizeof(float));

    for (enum value_type type = 0; type < NUM_VALUE_TYPES; type++) {
        fill(values, type, _i);
        ck_assert_uint_eq(find(values, type, _i).count, 0);
        for (size_t v = 0; v < count; v++) {
            const size_t index = v / columns * shapes[_i].stride + v % columns;
            struct nonfinite_values found;

            set_bad(values, type, index, v % 3);
            found = find(values, type, _i);
            ck_assert_msg(found.count == 1 && found.first == v && !isfinite(found.value),
                          "type %d: %zu found, the first at %zu, expected %zu", (int)type, found.count, found.first, v);
            set_least(values, type, index);
        }
    }
    free(values);
}
END_TEST

START_TEST(all_bad_values_are_counted_and_the_first_is_named)
{
    const size_t columns = shapes[_i].num_columns;
    const size_t count = shapes[_i].num_rows * columns;
    void *values = malloc(shapes[_i].num_rows * shapes[_i].stride * sizeof(float));

    for (enum value_type type = 0; type < NUM_VALUE_TYPES; type++) {
        struct nonfinite_values found;

        fill(values, type, _i);
        for (size_t v = 2; v < count; v++)
            set_bad(values, type, v / columns * shapes[_i].stride + v % columns, v % 3);
        found = find(values, type, _i);
        ck_assert_uint_eq(found.count, count - 2);
        ck_assert_uint_eq(found.first, 2);
        ck_assert(isinf(found.value) && found.value < 0.0);
    }
    free(values);
}
END_TEST

START_TEST(a_matrix_without_rows_has_no_bad_value)
{
    ck_assert_uint_eq(find_nonfinite_values(NULL, VALUE_F16, 0, 3, 4).count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("columns");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, each_bad_value_is_found_and_what_lies_between_rows_is_not, 0, NUM_SHAPES);
    tcase_add_loop_test(tcase, all_bad_values_are_counted_and_the_first_is_named, 0, NUM_SHAPES);
    tcase_add_test(tcase, a_matrix_without_rows_has_no_bad_value);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
