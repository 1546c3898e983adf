/* Memory of a submission: alignment, limits, the shared budget. */
#include "base/arena.h"

#include <string.h>

#include "support/runner.h"

START_TEST(small_objects_are_aligned_to_16_and_large_ones_to_64)
{
    struct arena arena;

    arena_init(&arena, 1 << 20, NULL);
    ck_assert_uint_eq((uintptr_t)arena_alloc(&arena, 3) % 16, 0);
    ck_assert_uint_eq((uintptr_t)arena_alloc(&arena, 64) % 64, 0);
    ck_assert_uint_eq((uintptr_t)arena_alloc(&arena, 100000) % 64, 0);
    ck_assert_uint_eq((uintptr_t)arena_alloc(&arena, 1) % 16, 0);
    arena_finish(&arena);
}
END_TEST

START_TEST(objects_do_not_overlap)
{
    struct arena arena;
    unsigned char *objects[200];

    arena_init(&arena, 1 << 24, NULL);
    for (size_t i = 0; i < 200; i++) {
        objects[i] = arena_alloc(&arena, 1 + i * 97 % 9000);
        ck_assert_ptr_nonnull(objects[i]);
        memset(objects[i], (int)i, 1 + i * 97 % 9000);
    }
    for (size_t i = 0; i < 200; i++) {
        ck_assert_uint_eq(objects[i][0], i);
        ck_assert_uint_eq(objects[i][i * 97 % 9000], i);
    }
    arena_finish(&arena);
}
END_TEST

START_TEST(the_limit_can_be_reached_and_not_passed)
{
    struct arena arena;

    arena_init(&arena, 1024, NULL);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 640));
    ck_assert_ptr_null(arena_alloc(&arena, 385));
    ck_assert_ptr_nonnull(arena_alloc(&arena, 384));
    ck_assert_ptr_null(arena_alloc(&arena, 1));
    arena_finish(&arena);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 1024));
    arena_finish(&arena);
}
END_TEST

START_TEST(padding_counts_against_the_limit)
{
    struct arena arena;

    arena_init(&arena, 64, NULL);
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_nonnull(arena_alloc(&arena, 1));
    ck_assert_ptr_null(arena_alloc(&arena, 1));
    arena_finish(&arena);
}
END_TEST

START_TEST(foreign_memory_counts_against_limit_and_budget_until_it_is_discharged)
{
    struct memory_budget budget = {.limit_bytes = 1000};
    struct arena arena;

    arena_init(&arena, 800, &budget);
    ck_assert(!arena_charge(&arena, 801));
    ck_assert(arena_charge(&arena, 800));
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 800);
    ck_assert_ptr_null(arena_alloc(&arena, 1));
    ck_assert_uint_eq(arena.refused_bytes, 0);
    arena_discharge(&arena, 800);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
    arena_finish(&arena);
}
END_TEST

START_TEST(the_budget_is_shared_and_given_back)
{
    struct memory_budget budget = {.limit_bytes = 100000};
    struct arena one;
    struct arena two;

    arena_init(&one, SIZE_MAX, &budget);
    arena_init(&two, SIZE_MAX, &budget);
    ck_assert_ptr_nonnull(arena_alloc(&one, 60000));
    ck_assert_ptr_null(arena_alloc(&two, 60000));
    ck_assert_uint_ge(two.refused_bytes, 60000);
    ck_assert_uint_eq(one.refused_bytes, 0);
    arena_finish(&one);
    ck_assert_ptr_nonnull(arena_alloc(&two, 60000));
    ck_assert_uint_le(budget_room(&budget), 40000);
    arena_finish(&two);
    ck_assert(!two.is_out_of_memory);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
    ck_assert_uint_eq(budget_room(&budget), 100000);
}
END_TEST

START_TEST(a_product_that_overflows_gives_no_memory)
{
    struct arena arena;

    arena_init(&arena, SIZE_MAX, NULL);
    ck_assert_ptr_null(arena_calloc(&arena, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(arena_strndup(&arena, "", SIZE_MAX));
    ck_assert_str_eq(arena_strndup(&arena, "abc", 2), "ab");
    arena_finish(&arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, small_objects_are_aligned_to_16_and_large_ones_to_64);
    tcase_add_test(tcase, objects_do_not_overlap);
    tcase_add_test(tcase, the_limit_can_be_reached_and_not_passed);
    tcase_add_test(tcase, padding_counts_against_the_limit);
    tcase_add_test(tcase, foreign_memory_counts_against_limit_and_budget_until_it_is_discharged);
    tcase_add_test(tcase, the_budget_is_shared_and_given_back);
    tcase_add_test(tcase, a_product_that_overflows_gives_no_memory);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
