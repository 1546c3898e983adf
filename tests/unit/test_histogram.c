/* Percentiles of times that are counted by size. */
#include "lossctl/histogram.h"

#include "support/runner.h"

START_TEST(percentiles_of_small_times_are_exact)
{
    struct histogram h;

    histogram_init(&h);
    for (int64_t ns = 1; ns <= 100; ns++)
        histogram_add(&h, ns);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.5), 50.0);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.99), 99.0);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.999), 100.0);
    ck_assert_double_eq(histogram_percentile_ns(&h, 1.0), 100.0);
    ck_assert_double_eq(h.sum_ns, 5050.0);
}
END_TEST

START_TEST(percentiles_of_any_time_are_within_one_percent)
{
    for (int64_t ns = 1; ns < INT64_C(1) << 41; ns += ns / 3 + 1) {
        struct histogram h;
        double found;

        histogram_init(&h);
        histogram_add(&h, ns);
        histogram_add(&h, ns * 2 - ns / 2);
        histogram_add(&h, 1);
        histogram_add(&h, 1);
        found = histogram_percentile_ns(&h, 0.75);
        ck_assert_msg(found >= 0.99 * (double)ns && found <= 1.01 * (double)ns, "%f for %lld", found, (long long)ns);
    }
}
END_TEST

START_TEST(no_percentile_is_outside_of_what_was_counted)
{
    struct histogram h;

    histogram_init(&h);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.5), 0.0);
    histogram_add(&h, 1000001);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.0), 1000001.0);
    ck_assert_double_eq(histogram_percentile_ns(&h, 1.0), 1000001.0);
}
END_TEST

START_TEST(times_beyond_the_range_are_counted_at_its_ends)
{
    struct histogram h;

    histogram_init(&h);
    histogram_add(&h, -5);
    histogram_add(&h, INT64_MAX);
    ck_assert_uint_eq(h.total, 2);
    ck_assert_double_eq(histogram_percentile_ns(&h, 0.5), 0.0);
    ck_assert_int_eq(h.max_ns, INT64_MAX);
}
END_TEST

START_TEST(merged_histograms_hold_both)
{
    struct histogram a;
    struct histogram b;

    histogram_init(&a);
    histogram_init(&b);
    histogram_merge(&a, &b);
    ck_assert_double_eq(histogram_percentile_ns(&a, 0.5), 0.0);
    histogram_add(&a, 10);
    histogram_add(&b, 30);
    histogram_add(&b, 40);
    histogram_merge(&a, &b);
    ck_assert_uint_eq(a.total, 3);
    ck_assert_int_eq(a.min_ns, 10);
    ck_assert_int_eq(a.max_ns, 40);
    ck_assert_double_eq(histogram_percentile_ns(&a, 0.5), 30.0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tc = tcase_create("histogram");

    tcase_add_test(tc, percentiles_of_small_times_are_exact);
    tcase_add_test(tc, percentiles_of_any_time_are_within_one_percent);
    tcase_add_test(tc, no_percentile_is_outside_of_what_was_counted);
    tcase_add_test(tc, times_beyond_the_range_are_counted_at_its_ends);
    tcase_add_test(tc, merged_histograms_hold_both);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
