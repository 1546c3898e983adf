/* Short waits: found early, found late, not found, and given up for a while. */
#include "base/spinner.h"

#include <limits.h>

#include "base/clock.h"
#include "support/runner.h"

/* Says yes from the nth look on. */
struct looks {
    unsigned made;
    unsigned ready_at;
};

static bool look(void *context)
{
    struct looks *looks = context;

    return ++looks->made >= looks->ready_at;
}

static bool wait_until(struct spinner *spinner, struct looks *looks, unsigned ready_at)
{
    *looks = (struct looks){.ready_at = ready_at};
    return spinner_wait(spinner, look, looks);
}

START_TEST(what_is_there_is_found_at_the_first_look)
{
    struct spinner spinner;
    struct looks looks;

    spinner_init(&spinner, 0);
    ck_assert(wait_until(&spinner, &looks, 1));
    ck_assert_uint_eq(looks.made, 1);
}
END_TEST

START_TEST(what_comes_while_it_spins_is_found)
{
    struct spinner spinner;
    struct looks looks;

    spinner_init(&spinner, 20000);
    ck_assert(wait_until(&spinner, &looks, 5));
    ck_assert_uint_eq(looks.made, 5);
}
END_TEST

START_TEST(without_a_time_it_looks_once)
{
    struct spinner spinner;
    struct looks looks;

    spinner_init(&spinner, 0);
    ck_assert(!wait_until(&spinner, &looks, 2));
    ck_assert_uint_eq(looks.made, 1);
}
END_TEST

START_TEST(a_spin_ends_after_its_time_and_the_time_has_an_end)
{
    struct spinner spinner;
    struct looks looks;
    int64_t start_ns;

    spinner_init(&spinner, UINT32_MAX);
    ck_assert_int_eq(spinner.max_ns, SPINNER_MAX_NS);
    start_ns = clock_now_ns();
    ck_assert(!wait_until(&spinner, &looks, UINT_MAX));
    ck_assert_int_ge(clock_now_ns() - start_ns, SPINNER_MAX_NS);
    ck_assert_uint_gt(looks.made, 10);
}
END_TEST

START_TEST(two_spins_in_vain_make_the_next_15_waits_sleep_at_once)
{
    struct spinner spinner;
    struct looks looks;

    spinner_init(&spinner, 1000);
    for (int spins = 0; spins < 2; spins++) {
        ck_assert(!wait_until(&spinner, &looks, UINT_MAX));
        ck_assert_uint_gt(looks.made, 1);
    }
    for (int sleeps = 0; sleeps < 15; sleeps++) {
        ck_assert(!wait_until(&spinner, &looks, 2));
        ck_assert_uint_eq(looks.made, 1);
    }
    ck_assert(!wait_until(&spinner, &looks, UINT_MAX)); /* the 16th tries again, once */
    ck_assert_uint_gt(looks.made, 1);
    ck_assert(!wait_until(&spinner, &looks, 2));
    ck_assert_uint_eq(looks.made, 1);
}
END_TEST

START_TEST(a_spin_that_finds_something_forgives_the_one_before)
{
    struct spinner spinner;
    struct looks looks;

    spinner_init(&spinner, 1000);
    for (int rounds = 0; rounds < 4; rounds++) {
        ck_assert(!wait_until(&spinner, &looks, UINT_MAX));
        ck_assert(wait_until(&spinner, &looks, 2));
        ck_assert_uint_eq(looks.made, 2);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spinner");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, what_is_there_is_found_at_the_first_look);
    tcase_add_test(tcase, what_comes_while_it_spins_is_found);
    tcase_add_test(tcase, without_a_time_it_looks_once);
    tcase_add_test(tcase, a_spin_ends_after_its_time_and_the_time_has_an_end);
    tcase_add_test(tcase, two_spins_in_vain_make_the_next_15_waits_sleep_at_once);
    tcase_add_test(tcase, a_spin_that_finds_something_forgives_the_one_before);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
