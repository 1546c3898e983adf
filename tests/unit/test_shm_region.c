/* Regions: sealed, touched, counted, and gone when they are finished. */
#include "transport/shm_region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/runner.h"

static void create(struct shm_region *region, uint64_t size, struct memory_budget *budget)
{
    struct lossd_error err;

    error_init(&err);
    ck_assert_msg(shm_region_create(region, size, budget, &err) == LOSSD_OK, "%s", err.message);
}

static void touch_all(struct shm_region *region)
{
    struct lossd_error err;
    bool is_ready = false;

    error_init(&err);
    while (!is_ready)
        ck_assert_int_eq(shm_region_touch(region, &is_ready, &err), LOSSD_OK);
}

START_TEST(a_region_is_whole_pages_of_zeros)
{
    const uint64_t page = shm_region_page_bytes();
    struct shm_region region;
    struct stat file;

    create(&region, 3 * page + 1, NULL);
    ck_assert_uint_eq(region.size, 4 * page);
    ck_assert_int_eq(fstat(region.fd, &file), 0);
    ck_assert_uint_eq((uint64_t)file.st_size, 4 * page);
    for (uint64_t i = 0; i < region.size; i++)
        ck_assert_uint_eq(region.bytes[i], 0);
    shm_region_finish(&region);
    ck_assert_ptr_null(region.bytes);
}
END_TEST

START_TEST(who_has_the_descriptor_writes_into_the_same_bytes)
{
    struct shm_region region;
    unsigned char *theirs;

    create(&region, 5000, NULL);
    theirs = mmap(NULL, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
    ck_assert_ptr_ne(theirs, MAP_FAILED);
    theirs[4999] = 17;
    ck_assert_uint_eq(region.bytes[4999], 17);
    region.bytes[7] = 19;
    shm_region_finish(&region);
    ck_assert_uint_eq(theirs[7], 19); /* what is mapped stays */
    (void)munmap(theirs, 8192);
}
END_TEST

START_TEST(its_size_and_its_seals_can_not_be_changed)
{
    struct shm_region region;

    create(&region, 8192, NULL);
    ck_assert_int_eq(ftruncate(region.fd, 4096), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(region.fd, 16384), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(errno, EPERM);
    shm_region_finish(&region);
}
END_TEST

START_TEST(a_hole_reads_as_zeros)
{
    struct shm_region region;

    create(&region, 8192, NULL);
    touch_all(&region);
    memset(region.bytes, 3, 8192);
    ck_assert_int_eq(fallocate(region.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    ck_assert_uint_eq(region.bytes[100], 0);
    ck_assert_uint_eq(region.bytes[4096], 3);
    shm_region_finish(&region);
}
END_TEST

START_TEST(an_empty_one_holds_no_memory_whoever_has_it)
{
    const uint64_t size = (33 << 20) + 8192; /* more than is emptied at once */
    struct shm_region region;
    struct stat file;
    unsigned char *theirs;
    int fd;

    create(&region, size, NULL);
    touch_all(&region);
    fd = dup(region.fd);
    theirs = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(theirs, MAP_FAILED);
    theirs[size - 1] = 17;
    ck_assert_int_eq(fstat(fd, &file), 0);
    ck_assert_uint_eq((uint64_t)file.st_blocks * 512, size);
    shm_region_close_fd(&region);
    shm_region_empty(&region);
    ck_assert_int_eq(fstat(fd, &file), 0);
    ck_assert_uint_eq((uint64_t)file.st_blocks, 0);
    shm_region_finish(&region);
    shm_region_empty(&region);
    ck_assert_uint_eq(theirs[size - 1], 0);
    (void)munmap(theirs, size);
    (void)close(fd);
}
END_TEST

static bool is_resident(unsigned char *page)
{
    unsigned char vector = 0;

    ck_assert_int_eq(mincore(page, 1, &vector), 0);
    return (vector & 1) != 0;
}

START_TEST(it_is_touched_a_piece_at_a_time)
{
    const uint64_t pieces = 3;
    const uint64_t size = pieces * SHM_REGION_PIECE_BYTES - 4096;
    struct shm_region region;
    struct lossd_error err;
    bool is_ready = false;

    error_init(&err);
    create(&region, size, NULL);
    ck_assert(!is_resident(region.bytes));
    for (uint64_t piece = 1; piece <= pieces; piece++) {
        ck_assert(!is_ready);
        ck_assert_int_eq(shm_region_touch(&region, &is_ready, &err), LOSSD_OK);
        ck_assert(is_resident(region.bytes + (piece - 1) * SHM_REGION_PIECE_BYTES));
    }
    ck_assert(is_ready);
    ck_assert(is_resident(region.bytes + size - 1 - (size - 1) % 4096));
    ck_assert_uint_eq(region.touched, size);
    shm_region_finish(&region);
}
END_TEST

START_TEST(all_regions_together_stay_within_the_budget)
{
    struct memory_budget budget = {.limit_bytes = 12288};
    struct shm_region first;
    struct shm_region second;
    struct lossd_error err;
    size_t cursor = 0;
    const char *key;
    const char *value;

    error_init(&err);
    create(&first, 8000, &budget);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 8192);
    ck_assert_int_eq(shm_region_create(&second, 4097, &budget, &err), LOSSD_LIMIT_EXCEEDED);
    ck_assert(error_next_metadata(&err, &cursor, &key, &value));
    ck_assert_str_eq(key, "limit");
    ck_assert_str_eq(value, "regions_bytes");
    create(&second, 4096, &budget);
    shm_region_finish(&first);
    shm_region_finish(&second);
    shm_region_finish(&second);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

START_TEST(what_the_system_refuses_takes_nothing_of_the_budget)
{
    struct memory_budget budget = {.limit_bytes = SIZE_MAX / 2};
    struct shm_region region;
    struct lossd_error err;

    error_init(&err);
    ck_assert_int_eq(shm_region_create(&region, UINT64_C(1) << 60, &budget, &err), LOSSD_OVERLOADED);
    ck_assert_uint_eq(atomic_load(&budget.used_bytes), 0);
}
END_TEST

START_TEST(a_region_that_never_was_can_be_finished)
{
    struct shm_region region = {0};

    shm_region_finish(&region);
    shm_region_finish(&region);
    ck_assert_ptr_null(region.bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shm_region");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_region_is_whole_pages_of_zeros);
    tcase_add_test(tcase, who_has_the_descriptor_writes_into_the_same_bytes);
    tcase_add_test(tcase, its_size_and_its_seals_can_not_be_changed);
    tcase_add_test(tcase, a_hole_reads_as_zeros);
    tcase_add_test(tcase, an_empty_one_holds_no_memory_whoever_has_it);
    tcase_add_test(tcase, it_is_touched_a_piece_at_a_time);
    tcase_add_test(tcase, all_regions_together_stay_within_the_budget);
    tcase_add_test(tcase, what_the_system_refuses_takes_nothing_of_the_budget);
    tcase_add_test(tcase, a_region_that_never_was_can_be_finished);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
