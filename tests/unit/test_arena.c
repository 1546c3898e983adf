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

enum { NUM_REQUESTS = 300 };

static size_t request_bytes(size_t i, size_t scale)
{
    return i % 17 == 3 ? i * 100 * scale : i * 37 % 900 * scale;
}

/* Takes all requests, writes over all of them, and sees that none overlaps another. */
static void take_requests(struct arena *arena, size_t scale, void **objects)
{
    for (size_t i = 0; i < NUM_REQUESTS; i++) {
        objects[i] = arena_alloc(arena, request_bytes(i, scale));
        ck_assert_ptr_nonnull(objects[i]);
        memset(objects[i], (int)(i % 251), request_bytes(i, scale));
    }
    for (size_t i = 0; i < NUM_REQUESTS; i++)
        for (size_t b = 0; b < request_bytes(i, scale); b++)
            if (((unsigned char *)objects[i])[b] != i % 251)
                ck_abort_msg("object %zu was written over", i);
}

START_TEST(the_same_requests_after_a_reset_get_the_same_memory)
{
    struct memory_budget budget = {.limit_bytes = SIZE_MAX};
    struct arena arena;
    void *first[NUM_REQUESTS];
    void *again[NUM_REQUESTS];
    size_t held;
    size_t used;

    arena_init(&arena, SIZE_MAX, &budget);
    take_requests(&arena, 1, first);
    held = atomic_load(&budget.used_bytes);
    used = arena.used_bytes;
    for (int round = 0; round < 3; round++) {
        arena_reset(&arena);
        ck_assert_uint_eq(arena.used_bytes, 0);
        ck_assert_uint_eq(atomic_load(&budget.used_bytes), held);
        take_requests(&arena, 1, again);
        ck_assert_mem_eq(again, first, sizeof first);
        ck_assert_uint_eq(arena.used_bytes, used);
        ck_assert_uint_eq(atomic_load(&budget.used_bytes), held);
    }
    arena_finish(&arena);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

START_TEST(requests_of_other_sizes_come_to_rest_too)
{
    struct memory_budget budget = {.limit_bytes = SIZE_MAX};
    struct arena arena;
    void *first[NUM_REQUESTS];
    void *again[NUM_REQUESTS];

    arena_init(&arena, SIZE_MAX, &budget);
    for (size_t scale = 1; scale <= 8; scale++) {
        size_t held;

        take_requests(&arena, scale * 5 % 8 + 1, first);
        held = atomic_load(&budget.used_bytes);
        arena_reset(&arena);
        take_requests(&arena, scale * 5 % 8 + 1, again);
        ck_assert_mem_eq(again, first, sizeof first);
        ck_assert_uint_eq(atomic_load(&budget.used_bytes), held);
        arena_reset(&arena);
    }
    arena_finish(&arena);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

START_TEST(growing_requests_do_not_pile_up)
{
    struct memory_budget budget = {.limit_bytes = SIZE_MAX};
    struct arena arena;

    arena_init(&arena, SIZE_MAX, &budget);
    for (size_t bytes = 10000; bytes < 20000; bytes += 100) {
        ck_assert_ptr_nonnull(arena_alloc(&arena, bytes));
        ck_assert_ptr_nonnull(arena_alloc(&arena, bytes));
        ck_assert_uint_le(atomic_load(&budget.used_bytes), 2 * bytes + 1000);
        arena_reset(&arena);
    }
    arena_finish(&arena);
}
END_TEST

START_TEST(kept_memory_is_given_back_before_the_budget_refuses)
{
    struct memory_budget budget = {.limit_bytes = 100000};
    struct arena arena;

    arena_init(&arena, SIZE_MAX, &budget);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(arena_alloc(&arena, 30000));
    arena_reset(&arena);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 90000));
    ck_assert_uint_eq(arena.refused_bytes, 0);
    ck_assert_ptr_null(arena_alloc(&arena, 90000));
    ck_assert_uint_ge(arena.refused_bytes, 90000);
    arena_reset(&arena);
    ck_assert_uint_eq(arena.refused_bytes, 0);
    ck_assert(arena_charge(&arena, 95000));
    arena_discharge(&arena, 95000);
    arena_finish(&arena);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

START_TEST(the_limit_holds_after_a_reset)
{
    struct arena arena;

    arena_init(&arena, 100000, NULL);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 90000));
    arena_reset(&arena);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 100));
    ck_assert_ptr_null(arena_alloc(&arena, 99950));
    arena_finish(&arena);
}
END_TEST

START_TEST(an_empty_arena_can_be_reset)
{
    struct arena arena = {.limit_bytes = 100};

    arena_reset(&arena);
    ck_assert_ptr_nonnull(arena_alloc(&arena, 10));
    arena_reset(&arena);
    arena_reset(&arena);
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
    tcase_add_test(tcase, the_same_requests_after_a_reset_get_the_same_memory);
    tcase_add_test(tcase, requests_of_other_sizes_come_to_rest_too);
    tcase_add_test(tcase, growing_requests_do_not_pile_up);
    tcase_add_test(tcase, kept_memory_is_given_back_before_the_budget_refuses);
    tcase_add_test(tcase, the_limit_holds_after_a_reset);
    tcase_add_test(tcase, an_empty_arena_can_be_reset);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
