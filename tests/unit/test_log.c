/* Lines of the log: their level, their priority for the journal, and that nothing in them makes a second one. */
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/runner.h"

static char written[4096];
static int saved;
static int ends[2];

/* Standard error goes into a pipe until what was written is asked for. */
static void set_up(void)
{
    (void)unsetenv("JOURNAL_STREAM");
    saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
}

static const char *what_was_written(void)
{
    ssize_t size;

    (void)dup2(saved, STDERR_FILENO);
    (void)close(ends[1]);
    size = read(ends[0], written, sizeof written - 1);
    ck_assert_int_ge(size, 0);
    written[size] = '\0';
    (void)close(ends[0]);
    return written;
}

START_TEST(a_line_is_its_level_and_the_text)
{
    log_line(LOG_LEVEL_WARNING, "event=full of=%d", 7);
    ck_assert_str_eq(what_was_written(), "level=warning event=full of=7\n");
}
END_TEST

START_TEST(the_journal_gets_a_priority_first)
{
    (void)setenv("JOURNAL_STREAM", "1:2", 1);
    log_line(LOG_LEVEL_ERROR, "event=down");
    ck_assert_str_eq(what_was_written(), "<3>level=error event=down\n");
}
END_TEST

START_TEST(lines_beyond_the_level_are_not_written)
{
    log_line(LOG_LEVEL_DEBUG, "event=one");
    log_set_level(LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_DEBUG, "event=two");
    log_set_level(LOG_LEVEL_ERROR);
    log_line(LOG_LEVEL_WARNING, "event=three");
    ck_assert_str_eq(what_was_written(), "level=debug event=two\n");
}
END_TEST

START_TEST(what_a_client_sent_can_not_forge_a_line)
{
    log_line(LOG_LEVEL_INFO, "group=%s", "a\nlevel=error event=\x1b[2J\x7f\r\t");
    ck_assert_str_eq(what_was_written(), "level=info group=a?level=error event=?[2J???\n");
}
END_TEST

START_TEST(a_long_line_is_cut_and_still_ends)
{
    char text[3000];

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    log_line(LOG_LEVEL_INFO, "%s", text);
    log_line(LOG_LEVEL_INFO, "next");
    ck_assert_uint_eq(strcspn(what_was_written(), "\n"), 1023);
    ck_assert_str_eq(written + 1023, "\nlevel=info next\n");
}
END_TEST

START_TEST(levels_have_names)
{
    ck_assert_int_eq(log_level_from_name("error"), LOG_LEVEL_ERROR);
    ck_assert_int_eq(log_level_from_name("warning"), LOG_LEVEL_WARNING);
    ck_assert_int_eq(log_level_from_name("info"), LOG_LEVEL_INFO);
    ck_assert_int_eq(log_level_from_name("debug"), LOG_LEVEL_DEBUG);
    ck_assert_int_eq(log_level_from_name("INFO"), -1);
    ck_assert_int_eq(log_level_from_name(""), -1);
    (void)what_was_written();
}
END_TEST

/* 10 in second 7; 10 more in second 8, whatever was refused before. */
START_TEST(a_second_has_room_for_ten_lines)
{
    struct log_quota quota = {0};
    int64_t now_ns = 7 * NS_PER_S + NS_PER_S / 2;
    int taken = 0;

    for (int second = 0; second < 2; second++) {
        for (int i = 0; i < 25; i++)
            taken += log_quota_take(&quota, now_ns + i);
        ck_assert_int_eq(taken, 10 * (second + 1));
        now_ns += NS_PER_S;
    }
    (void)what_was_written();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("lines");

    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, a_line_is_its_level_and_the_text);
    tcase_add_test(tcase, the_journal_gets_a_priority_first);
    tcase_add_test(tcase, lines_beyond_the_level_are_not_written);
    tcase_add_test(tcase, what_a_client_sent_can_not_forge_a_line);
    tcase_add_test(tcase, a_long_line_is_cut_and_still_ends);
    tcase_add_test(tcase, levels_have_names);
    tcase_add_test(tcase, a_second_has_room_for_ten_lines);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
