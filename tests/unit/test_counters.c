/* Prometheus text of the metrics. */
#include "base/counters.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "support/runner.h"

START_TEST(a_sample_without_labels_has_no_braces)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    metric_write_sample(out, METRIC_PARKED_CALLS, 7, NULL);
    (void)fclose(out);
    ck_assert_str_eq(text, "lossd_parked_calls 7\n");
    free(text);
}
END_TEST

START_TEST(labels_take_their_values_in_order)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    metric_write_sample(out, METRIC_ALL_REDUCES, 18446744073709551615u, "ranking", "local", NULL);
    (void)fclose(out);
    ck_assert_str_eq(text, "lossd_all_reduces_total{group=\"ranking\",engine=\"local\"} 18446744073709551615\n");
    free(text);
}
END_TEST

START_TEST(quotes_backslashes_and_line_feeds_in_values_are_escaped)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    metric_write_sample(out, METRIC_BUILD_INFO, 1, "a\"b\\c\nd", NULL);
    (void)fclose(out);
    ck_assert_str_eq(text, "lossd_build_info{version=\"a\\\"b\\\\c\\nd\"} 1\n");
    free(text);
}
END_TEST

START_TEST(a_head_says_help_and_type)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    metric_write_head(out, METRIC_STEPS);
    (void)fclose(out);
    ck_assert_str_eq(text, "# HELP lossd_steps_total Attempts at a step by how they ended.\n"
                           "# TYPE lossd_steps_total counter\n");
    free(text);
}
END_TEST

START_TEST(every_metric_is_named_by_the_rules)
{
    for (int m = 0; m < NUM_METRICS; m++) {
        const struct metric_info *info = metric_info((enum metric)m);
        const size_t length = strlen(info->name);

        ck_assert_msg(strncmp(info->name, "lossd_", 6) == 0, "%s", info->name);
        for (size_t i = 0; i < length; i++)
            ck_assert_msg(islower((unsigned char)info->name[i]) || info->name[i] == '_', "%s", info->name);
        ck_assert_msg((strcmp(info->kind, "counter") == 0) ==
                          (length > 6 && strcmp(info->name + length - 6, "_total") == 0),
                      "%s", info->name);
        ck_assert_uint_gt(strlen(info->help), 0);
        for (int other = 0; other < m; other++)
            ck_assert_str_ne(info->name, metric_info((enum metric)other)->name);
    }
}
END_TEST

START_TEST(counters_and_gauges_add_up)
{
    static struct counters counters;

    counter_add(&counters.rpc_requests[1][3], 2);
    counter_add(&counters.rpc_requests[1][3], 3);
    ck_assert_uint_eq(atomic_load(&counters.rpc_requests[1][3]), 5);
    ck_assert_int_eq(gauge_add(&counters.open_calls, 4), 0);
    ck_assert_int_eq(gauge_add(&counters.open_calls, -1), 4);
    ck_assert_int_eq(gauge_get(&counters.open_calls), 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("counters");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_sample_without_labels_has_no_braces);
    tcase_add_test(tcase, labels_take_their_values_in_order);
    tcase_add_test(tcase, quotes_backslashes_and_line_feeds_in_values_are_escaped);
    tcase_add_test(tcase, a_head_says_help_and_type);
    tcase_add_test(tcase, every_metric_is_named_by_the_rules);
    tcase_add_test(tcase, counters_and_gauges_add_up);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
