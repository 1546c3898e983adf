/* A stable radix sort of row numbers by id, one byte a pass, least significant first. */
#include "loss/sessions.h"

#include <string.h>

enum { DIGIT_BITS = 8, NUM_DIGITS = 64 / DIGIT_BITS, RADIX = 1 << DIGIT_BITS };

static unsigned digit_of(int64_t id, unsigned digit)
{
    return (unsigned)((uint64_t)id >> (digit * DIGIT_BITS)) & (RADIX - 1);
}

/* from, sorted by one digit, into to. False where all ids have the same digit: nothing was written then. */
static bool sort_by_digit(const int64_t *ids, uint32_t count, unsigned digit, const uint32_t *from, uint32_t *to)
{
    uint32_t starts[RADIX] = {0};
    uint32_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        starts[digit_of(ids[i], digit)]++;
    if (starts[digit_of(ids[0], digit)] == count)
        return false;
    for (unsigned d = 0; d < RADIX; d++) {
        const uint32_t size = starts[d];

        starts[d] = sum;
        sum += size;
    }
    for (uint32_t i = 0; i < count; i++)
        to[starts[digit_of(ids[from[i]], digit)]++] = from[i];
    return true;
}

static bool starts_list(const int64_t *ids, const uint32_t *rows, uint32_t i)
{
    return i == 0 || ids[rows[i]] != ids[rows[i - 1]];
}

bool session_lists(const int64_t *ids, uint32_t count, struct arena *arena, struct task_lists *lists)
{
    uint32_t *rows = arena_alloc(arena, sizeof *rows * count);
    uint32_t *other = arena_alloc(arena, sizeof *other * count);
    uint32_t *offsets;
    uint32_t num_lists = 0;

    if (rows == NULL || other == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = i;
    for (unsigned digit = 0; digit < NUM_DIGITS && count > 0; digit++)
        if (sort_by_digit(ids, count, digit, rows, other)) {
            uint32_t *swap = rows;

            rows = other;
            other = swap;
        }
    for (uint32_t i = 0; i < count; i++)
        num_lists += starts_list(ids, rows, i);

    offsets = arena_alloc(arena, sizeof *offsets * ((size_t)num_lists + 1));
    if (offsets == NULL)
        return false;
    num_lists = 0;
    for (uint32_t i = 0; i < count; i++)
        if (starts_list(ids, rows, i))
            offsets[num_lists++] = i;
    offsets[num_lists] = count;
    *lists = (struct task_lists){num_lists, offsets, rows};
    return true;
}
