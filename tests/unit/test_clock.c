/* Deadlines: monotonic, and never past the last one. */
#include "base/clock.h"

#include "support/runner.h"

START_TEST(a_deadline_is_so_many_milliseconds_away)
{
    ck_assert_int_eq(clock_after_ms(5, 0), 5);
    ck_assert_int_eq(clock_after_ms(5, 3), 3000005);
}
END_TEST

START_TEST(a_deadline_that_would_overflow_never_comes)
{
    const uint64_t most = (uint64_t)INT64_MAX / 1000000;

    ck_assert_int_eq(clock_after_ms(0, most), (int64_t)most * NS_PER_MS);
    ck_assert_int_eq(clock_after_ms(0, most + 1), NO_DEADLINE);
    ck_assert_int_eq(clock_after_ms(NS_PER_MS, most), NO_DEADLINE);
    ck_assert_int_eq(clock_after_ms(1, UINT64_MAX), NO_DEADLINE);
}
END_TEST

START_TEST(time_does_not_go_back)
{
    int64_t last_ns = 0;

    for (int i = 0; i < 1000; i++) {
        const int64_t now_ns = clock_now_ns();

        ck_assert_int_ge(now_ns, last_ns);
        last_ns = now_ns;
    }
    ck_assert_int_gt(last_ns, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_deadline_is_so_many_milliseconds_away);
    tcase_add_test(tcase, a_deadline_that_would_overflow_never_comes);
    tcase_add_test(tcase, time_does_not_go_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
