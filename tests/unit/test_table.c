/* What lossctl shows: columns, and who waits for whom. */
#include "lossctl/table.h"

#include <stdlib.h>
#include <string.h>

#include "lossctl/waits.h"
#include "support/runner.h"

/* What a table prints, from malloc. */
static char *printed(struct table *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    ck_assert(table_print_and_finish(table, file));
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

START_TEST(columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces)
{
    struct table table;
    char *text;

    table_init(&table, "lrl");
    table_row(&table, "NAME", "N", "STATE");
    table_row(&table, "a", "1000", "x");
    table_row(&table, "longer", "7", "idle");
    text = printed(&table);
    ck_assert_str_eq(text, "NAME       N  STATE\n"
                           "a       1000  x\n"
                           "longer     7  idle\n");
    free(text);
}
END_TEST

START_TEST(a_row_that_is_not_complete_ends_its_line)
{
    struct table table;
    char *text;

    table_init(&table, "ll");
    table_cell(&table, "%s-%d", "a", 1);
    table_cell(&table, "b");
    table_cell(&table, "c");
    text = printed(&table);
    ck_assert_str_eq(text, "a-1  b\nc\n");
    free(text);
}
END_TEST

START_TEST(a_table_of_many_rows_keeps_them_all)
{
    struct table table;
    size_t lines = 0;
    char *text;

    table_init(&table, "rr");
    for (int i = 0; i < 1000; i++) {
        table_cell(&table, "%d", i);
        table_cell(&table, "%d", -i);
    }
    text = printed(&table);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    ck_assert_uint_eq(lines, 1000);
    ck_assert_ptr_nonnull(strstr(text, "\n999  -999\n"));
    free(text);
}
END_TEST

START_TEST(an_empty_table_prints_nothing)
{
    struct table table;
    char *text;

    table_init(&table, "l");
    text = printed(&table);
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

enum { NUM_RANKS = 6 };

/* Ranks 0, 1 and 3 wait in step 7, 2 is idle, 4 and 5 have never joined. */
struct group_of_six {
    Lossd__V1__Group group;
    Lossd__V1__RankStatus ranks[NUM_RANKS];
    Lossd__V1__RankStatus *pointers[NUM_RANKS];
};

static void set_rank(struct group_of_six *six, uint32_t rank, Lossd__V1__RankState state, int64_t at_step,
                     uint64_t since_ms)
{
    Lossd__V1__RankStatus *status = &six->ranks[rank];

    lossd__v1__rank_status__init(status);
    status->has_rank = 1;
    status->rank = rank;
    status->has_state = 1;
    status->state = state;
    status->has_at_step = at_step >= 0;
    status->at_step = at_step >= 0 ? (uint64_t)at_step : 0;
    status->has_since_ms = 1;
    status->since_ms = since_ms;
    six->pointers[rank] = status;
}

static void make_six(struct group_of_six *six)
{
    lossd__v1__group__init(&six->group);
    six->group.name = (char *)"ranking";
    six->group.n_ranks = NUM_RANKS;
    six->group.ranks = six->pointers;
    set_rank(six, 0, LOSSD__V1__RANK_STATE__RANK_STATE_WAITING, 7, 3200);
    set_rank(six, 1, LOSSD__V1__RANK_STATE__RANK_STATE_WAITING, 7, 100);
    set_rank(six, 2, LOSSD__V1__RANK_STATE__RANK_STATE_IDLE, -1, 90000);
    set_rank(six, 3, LOSSD__V1__RANK_STATE__RANK_STATE_WAITING, 7, 1700);
    set_rank(six, 4, LOSSD__V1__RANK_STATE__RANK_STATE_NEVER_JOINED, -1, 90000);
    set_rank(six, 5, LOSSD__V1__RANK_STATE__RANK_STATE_NEVER_JOINED, -1, 90000);
}

static char *waits_of(const struct group_of_six *six)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    waits_print(&six->group, file);
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

START_TEST(who_waits_for_whom_is_one_line_a_step)
{
    struct group_of_six six;
    char *text;

    make_six(&six);
    text = waits_of(&six);
    ck_assert_str_eq(text, "ranking step 7: ranks 0-1,3 wait for 4-5 (never joined) and 2 (idle), since 3.2 s\n");
    free(text);
}
END_TEST

START_TEST(ranks_that_were_refused_in_the_step_are_named_behind)
{
    struct group_of_six six;
    char *text;

    make_six(&six);
    set_rank(&six, 1, LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED, 7, 100);
    text = waits_of(&six);
    ck_assert_str_eq(text, "ranking step 7: ranks 0,3 wait for 4-5 (never joined) and 2 (idle), since 3.2 s; "
                           "rank 1 refused, may send another\n");
    free(text);
    set_rank(&six, 2, LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED, 7, 100);
    set_rank(&six, 5, LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED, 6, 100);
    text = waits_of(&six);
    ck_assert_str_eq(text, "ranking step 7: ranks 0,3 wait for 4 (never joined) and 5 (refused), since 3.2 s; "
                           "ranks 1-2 refused, may send another\n");
    free(text);
}
END_TEST

START_TEST(ranks_at_different_steps_wait_for_each_other)
{
    struct group_of_six six;
    char *text;

    make_six(&six);
    six.group.n_ranks = 2;
    set_rank(&six, 1, LOSSD__V1__RANK_STATE__RANK_STATE_WAITING, 9, 100);
    text = waits_of(&six);
    ck_assert_str_eq(text, "ranking step 7: rank 0 waits for 1 (waiting), since 3.2 s\n"
                           "ranking step 9: rank 1 waits for 0 (waiting), since 0.1 s\n");
    free(text);
}
END_TEST

START_TEST(nobody_waits_where_all_are_idle)
{
    struct group_of_six six;
    char *text;

    make_six(&six);
    for (uint32_t rank = 0; rank < NUM_RANKS; rank++)
        set_rank(&six, rank, LOSSD__V1__RANK_STATE__RANK_STATE_IDLE, -1, 5);
    text = waits_of(&six);
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

START_TEST(states_are_counted_and_cut_at_a_whole_entry)
{
    struct group_of_six six;
    char text[64];

    make_six(&six);
    waits_count_states(&six.group, text, sizeof text);
    ck_assert_str_eq(text, "2 never joined, 1 idle, 3 waiting");
    waits_count_states(&six.group, text, sizeof "2 never joined, 1 idl");
    ck_assert_str_eq(text, "2 never joined");
    ck_assert_str_eq(waits_state_name((Lossd__V1__RankState)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces);
    tcase_add_test(tcase, a_row_that_is_not_complete_ends_its_line);
    tcase_add_test(tcase, a_table_of_many_rows_keeps_them_all);
    tcase_add_test(tcase, an_empty_table_prints_nothing);
    tcase_add_test(tcase, who_waits_for_whom_is_one_line_a_step);
    tcase_add_test(tcase, ranks_that_were_refused_in_the_step_are_named_behind);
    tcase_add_test(tcase, ranks_at_different_steps_wait_for_each_other);
    tcase_add_test(tcase, nobody_waits_where_all_are_idle);
    tcase_add_test(tcase, states_are_counted_and_cut_at_a_whole_entry);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
