/*
 * Chunks from malloc: small objects go where the cursor of the open one is, large ones get a chunk of their own. A
 * reset makes all chunks spare; they are taken again in the order in which they were taken before, so that the same
 * requests find the same chunks.
 */
#include "base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next;
    size_t size_bytes; /* of data, as taken from the budget */
    size_t used_bytes; /* cursor, from the start of the chunk */
};

enum { CHUNK_BYTES = 16384, LINE_BYTES = 64, WORD_BYTES = 16 };

bool budget_take(struct memory_budget *budget, size_t bytes)
{
    size_t used;

    if (budget == NULL)
        return true;
    used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);
    do {
        if (bytes > budget->limit_bytes || used > budget->limit_bytes - bytes)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used_bytes, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

size_t budget_room(const struct memory_budget *budget)
{
    const size_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);

    return used < budget->limit_bytes ? budget->limit_bytes - used : 0;
}

void budget_give(struct memory_budget *budget, size_t bytes)
{
    if (budget != NULL)
        (void)atomic_fetch_sub_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
}

void arena_init(struct arena *arena, size_t limit_bytes, struct memory_budget *budget)
{
    *arena = (struct arena){.limit_bytes = limit_bytes, .budget = budget};
}

/* The link behind the chunk that was taken last: spare chunks begin here. */
static struct arena_chunk **spare_link(struct arena *arena)
{
    return arena->last != NULL ? &arena->last->next : &arena->chunks;
}

static void free_spare(struct arena *arena)
{
    struct arena_chunk **link = spare_link(arena);
    struct arena_chunk *chunk = *link;

    *link = chunk->next;
    budget_give(arena->budget, chunk->size_bytes);
    free(chunk);
}

void arena_reset(struct arena *arena)
{
    arena->last = NULL;
    arena->open = NULL;
    arena->used_bytes = 0;
    arena->is_out_of_memory = false;
    arena->refused_bytes = 0;
}

void arena_finish(struct arena *arena)
{
    arena->last = NULL;
    arena->open = NULL;
    arena->used_bytes = 0;
    while (arena->chunks != NULL)
        free_spare(arena);
}

/* What lies spare is given back before anything is refused. */
static bool take_from_budget(struct arena *arena, size_t bytes)
{
    while (!budget_take(arena->budget, bytes)) {
        if (*spare_link(arena) == NULL) {
            arena->refused_bytes = bytes;
            return false;
        }
        free_spare(arena);
    }
    return true;
}

static struct arena_chunk *new_chunk(struct arena *arena, size_t size)
{
    struct arena_chunk *chunk;

    if (!take_from_budget(arena, size))
        return NULL;
    chunk = malloc(size);
    if (chunk == NULL) {
        budget_give(arena->budget, size);
        arena->is_out_of_memory = true;
        return NULL;
    }
    chunk->size_bytes = size;
    return chunk;
}

/* The first spare chunk that is large enough, or a new one, which takes the place of a spare one that is too small. */
static struct arena_chunk *spare_or_new_chunk(struct arena *arena, size_t size)
{
    struct arena_chunk **link = spare_link(arena);
    struct arena_chunk *chunk;

    while (*link != NULL && (*link)->size_bytes < size)
        link = &(*link)->next;
    chunk = *link;
    if (chunk != NULL) {
        *link = chunk->next;
        return chunk;
    }
    if (*spare_link(arena) != NULL)
        free_spare(arena);
    return new_chunk(arena, size);
}

/* A chunk that holds at least bytes at the strictest alignment; it is open from now on, or for this object alone. */
static struct arena_chunk *add_chunk(struct arena *arena, size_t bytes)
{
    const bool own = bytes > CHUNK_BYTES / 4;
    const size_t size = sizeof(struct arena_chunk) + LINE_BYTES + (own ? bytes : CHUNK_BYTES);
    struct arena_chunk *chunk = spare_or_new_chunk(arena, size);
    struct arena_chunk **link = spare_link(arena);

    if (chunk == NULL)
        return NULL;
    chunk->used_bytes = sizeof(struct arena_chunk);
    chunk->next = *link;
    *link = chunk;
    arena->last = chunk;
    if (!own || arena->open == NULL)
        arena->open = chunk;
    return chunk;
}

static void *take(struct arena_chunk *chunk, size_t bytes, size_t alignment)
{
    const uintptr_t base = (uintptr_t)chunk;
    const size_t start = (size_t)(((base + chunk->used_bytes + alignment - 1) & ~(uintptr_t)(alignment - 1)) - base);

    if (start > chunk->size_bytes || bytes > chunk->size_bytes - start)
        return NULL;
    chunk->used_bytes = start + bytes;
    return (char *)chunk + start;
}

static bool has_room(const struct arena *arena, size_t bytes)
{
    return bytes <= arena->limit_bytes && arena->used_bytes <= arena->limit_bytes - bytes;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    const size_t alignment = bytes < LINE_BYTES ? WORD_BYTES : LINE_BYTES;
    const size_t padded = bytes > SIZE_MAX - alignment ? SIZE_MAX : (bytes + alignment - 1) & ~(alignment - 1);
    struct arena_chunk *chunk = arena->open;
    void *memory = NULL;

    if (!has_room(arena, padded))
        return NULL;
    if (chunk != NULL)
        memory = take(chunk, bytes, alignment);
    if (memory == NULL) {
        chunk = add_chunk(arena, bytes);
        if (chunk == NULL)
            return NULL;
        memory = take(chunk, bytes, alignment);
    }
    arena->used_bytes += padded;
    return memory;
}

bool arena_charge(struct arena *arena, size_t bytes)
{
    if (!has_room(arena, bytes) || !take_from_budget(arena, bytes))
        return false;
    arena->used_bytes += bytes;
    return true;
}

void arena_discharge(struct arena *arena, size_t bytes)
{
    arena->used_bytes -= bytes;
    budget_give(arena->budget, bytes);
}

void *arena_calloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    memory = arena_alloc(arena, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

char *arena_strndup(struct arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? arena_alloc(arena, length + 1) : NULL;

    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

enum lossd_status arena_error(const struct arena *arena, const char *what, struct lossd_error *err)
{
    if (arena->refused_bytes > 0)
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "", "the %s needs more memory than is left of memory_bytes", what);
    else
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "", "the %s needs more than %zu bytes of memory", what,
                        arena->limit_bytes);
    error_add_metadata(err, "limit", "memory_bytes");
    return LOSSD_LIMIT_EXCEEDED;
}
