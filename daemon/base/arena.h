/*
 * Bounded bump memory of one submission: everything that is made for it dies with it. No free of single objects.
 * An arena has one owner at a time and no lock of its own; the budget it draws from may be shared.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Bytes that all arenas of a daemon may hold together. used is only changed through the functions below. */
struct memory_budget {
    size_t limit_bytes;
    atomic_size_t used_bytes;
};

/* Take bytes from the budget, or take none and return false. budget NULL: always true. Any thread. */
bool budget_take(struct memory_budget *budget, size_t bytes);
/* What is left; others may take it. Any thread. */
size_t budget_room(const struct memory_budget *budget);
void budget_give(struct memory_budget *budget, size_t bytes);

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;   /* in the order in which they were taken, then the spare ones */
    struct arena_chunk *last;     /* the one taken last; NULL for none */
    struct arena_chunk *open;     /* where small objects go; NULL for none */
    size_t limit_bytes;           /* of this arena */
    size_t used_bytes;            /* handed out, with padding */
    bool is_out_of_memory;        /* the machine's memory was refused, not a limit */
    size_t refused_bytes;         /* what the budget last had no room for; 0 for none */
    struct memory_budget *budget; /* borrowed, may be NULL */
};

/* Makes an empty arena; allocates nothing. */
void arena_init(struct arena *arena, size_t limit_bytes, struct memory_budget *budget);

/* Gives everything back. The arena is empty and may be used again. Takes a zeroed arena too. */
void arena_finish(struct arena *arena);

/*
 * Everything handed out is gone, and the arena is empty, but keeps its memory (and its share of the budget) for what
 * comes next: the same requests in the same order then allocate nothing and take nothing more from the budget. So do
 * smaller ones, as a rule. Larger ones put new memory in the place of kept memory; kept memory is given back before
 * the budget refuses this arena anything. What was refused before is forgotten.
 */
void arena_reset(struct arena *arena);

/*
 * bytes of memory with undefined contents, aligned to 16 (to 64 from 64 bytes on), valid until arena_finish or
 * arena_reset. 0 bytes give a valid pointer.
 * NULL where the arena's limit, the budget or the machine's memory is used up: the caller returns arena_error.
 */
void *arena_alloc(struct arena *arena, size_t bytes);

/* The same for count elements of size bytes, zeroed; NULL also where the product overflows. */
void *arena_calloc(struct arena *arena, size_t count, size_t size);

/*
 * Count memory of somebody else (a library's) against limit and budget, without giving any; false where there is no
 * room. Whoever charged it discharges it before arena_finish or arena_reset.
 */
bool arena_charge(struct arena *arena, size_t bytes);
void arena_discharge(struct arena *arena, size_t bytes);

/* A copy of length bytes with a NUL behind. */
char *arena_strndup(struct arena *arena, const char *text, size_t length);

/*
 * LOSSD_LIMIT_EXCEEDED, metadata "limit" "memory_bytes": the arena has refused memory for what ("message"). Whoever
 * knows the other users of the budget may find that the same call can succeed later.
 */
enum lossd_status arena_error(const struct arena *arena, const char *what, struct lossd_error *err);

#endif
