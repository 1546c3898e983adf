/* Maths of one element against libm, and sums that lanes merge in any shape. */
#include "loss/elem.h"

#include "support/random.h"
#include "support/runner.h"

START_TEST(exp_is_right_to_fourteen_digits_over_its_range)
{
    struct random random = {1};

    for (int i = 0; i < 200000; i++) {
        const double x = random_between(&random, i % 2 == 0 ? -2.0 : -708.0, 0.0);

        ck_assert_msg(fabs(elem_exp(x) - exp(x)) <= 1e-14 * exp(x), "e^%.17g is %.17g", x, elem_exp(x));
    }
}
END_TEST

START_TEST(exp_has_its_edges)
{
    ck_assert(elem_exp(0.0) == 1.0);
    ck_assert(elem_exp(-0.0) == 1.0);
    ck_assert(elem_exp(-708.5) == 0.0);
    ck_assert(elem_exp(-1e300) == 0.0);
    ck_assert(elem_exp(-INFINITY) == 0.0);
    ck_assert(isnan(elem_exp(NAN)));
}
END_TEST

START_TEST(log1p_is_right_to_fourteen_digits_down_to_the_smallest)
{
    struct random random = {2};

    for (int i = 0; i < 200000; i++) {
        const double e = i % 2 == 0 ? random_between(&random, 0.0, 1.0) : exp(random_between(&random, -700.0, 0.0));

        ck_assert_msg(fabs(elem_log1p(e) - log1p(e)) <= 2e-14 * log1p(e), "log1p(%.17g) is %.17g", e, elem_log1p(e));
    }
    ck_assert(elem_log1p(0.0) == 0.0);
    ck_assert_double_eq_tol(elem_log1p(1.0), log(2.0), 1e-16);
    ck_assert(isnan(elem_log1p(NAN)));
}
END_TEST

START_TEST(gradients_near_their_label_keep_their_digits)
{
    const double small = exp(-40.0); /* 1 - p is far below the last digit of p */

    ck_assert_double_eq_tol(elem_bce_gradient(40.0, 1.0, elem_logistic(40.0)) / -small, 1.0, 1e-13);
    ck_assert_double_eq_tol(elem_bce_gradient(-40.0, 0.0, elem_logistic(-40.0)) / small, 1.0, 1e-13);
    ck_assert_double_eq_tol(elem_bce(40.0, 1.0, elem_logistic(40.0)) / small, 1.0, 1e-13);
    /* a list of two, 40 apart, the upper one positive */
    ck_assert_double_eq_tol(elem_softmax_gradient(1.0, 1.0, 1.0, small, 1.0 / (1.0 + small)) / -small, 1.0, 1e-13);
}
END_TEST

static const size_t sizes[] = {1, 2, 31, 32, 33, 1000};

/* 32 lanes push every 32nd element, then merge in a tree, as a warp does. */
static struct elem_lse merge_lanes(const double *x, size_t count, double scale)
{
    struct elem_lse lanes[32];

    for (size_t lane = 0; lane < 32; lane++) {
        lanes[lane] = elem_lse_empty();
        for (size_t i = lane; i < count; i += 32)
            lanes[lane] = elem_lse_push(lanes[lane], x[i], scale);
    }
    for (size_t step = 16; step > 0; step /= 2)
        for (size_t lane = 0; lane < step; lane++)
            lanes[lane] = elem_lse_merge(lanes[lane], lanes[lane + step], scale);
    return lanes[0];
}

START_TEST(lanes_merge_to_the_sum_in_one_row)
{
    struct random random = {3};
    const size_t count = sizes[_i];
    double x[1000] = {0.0};
    long double sum = 0.0L;
    double max = -INFINITY;
    struct elem_lse merged;

    for (size_t i = 0; i < count; i++) {
        x[i] = random_between(&random, -1030.0, -1000.0);
        max = fmax(max, x[i]);
    }
    for (size_t i = 0; i < count; i++)
        sum += expl(2.5L * (x[i] - max));
    merged = merge_lanes(x, count, 2.5);
    ck_assert(merged.max == max);
    ck_assert_double_eq_tol(merged.rest, (double)(sum - 1.0L), 1e-13 * (double)sum);
}
END_TEST

START_TEST(equal_elements_count_all_but_one_into_the_rest)
{
    const double x[4] = {7.0, 7.0, 7.0, 7.0};
    const struct elem_lse merged = merge_lanes(x, 4, 100.0);

    ck_assert(merged.max == 7.0);
    ck_assert(merged.rest == 3.0);
}
END_TEST

START_TEST(nothing_merges_to_nothing)
{
    const struct elem_lse nothing = merge_lanes(NULL, 0, 1.0);

    ck_assert(elem_lse_is_empty(nothing));
    ck_assert(!elem_lse_is_empty(elem_lse_push(nothing, -3e38, 1.0)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("elem");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, exp_is_right_to_fourteen_digits_over_its_range);
    tcase_add_test(tcase, exp_has_its_edges);
    tcase_add_test(tcase, log1p_is_right_to_fourteen_digits_down_to_the_smallest);
    tcase_add_test(tcase, gradients_near_their_label_keep_their_digits);
    tcase_add_loop_test(tcase, lanes_merge_to_the_sum_in_one_row, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(tcase, equal_elements_count_all_but_one_into_the_rest);
    tcase_add_test(tcase, nothing_merges_to_nothing);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
