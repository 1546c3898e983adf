/* What names are made of. */
#include "batch/group_config.h"

#include <string.h>

#include "support/runner.h"

START_TEST(letters_digits_and_three_signs_make_a_name)
{
    ck_assert(name_is_valid("a"));
    ck_assert(name_is_valid("is_click-2.B"));
}
END_TEST

START_TEST(anything_else_does_not)
{
    static const char *const bad[] = {"", " ", "a b", "a/b", "a:b", "\xc3\xa4", "a\n", "a@", "[", "`", "{"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!name_is_valid(bad[i]), "\"%s\" was taken for a name", bad[i]);
    ck_assert(!name_is_valid(NULL));
}
END_TEST

START_TEST(a_name_has_63_bytes_at_most)
{
    char name[NAME_MAX_LENGTH + 2];

    memset(name, 'a', sizeof name);
    name[NAME_MAX_LENGTH] = '\0';
    ck_assert(name_is_valid(name));
    name[NAME_MAX_LENGTH] = 'a';
    name[NAME_MAX_LENGTH + 1] = '\0';
    ck_assert(!name_is_valid(name));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("group_config");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, letters_digits_and_three_signs_make_a_name);
    tcase_add_test(tcase, anything_else_does_not);
    tcase_add_test(tcase, a_name_has_63_bytes_at_most);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
