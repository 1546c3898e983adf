#include "base/heap.h"

#include <malloc.h>

enum { KEPT_BLOCK_BYTES = 32 << 20, KEPT_BYTES = 64 << 20 };

/*
 * Left to itself the library learns to keep twice the largest block that was freed; a call frees more. One arena for
 * all threads: they allocate little but large, and malloc_trim does not give back what lies at the end of others.
 */
void heap_keep_freed(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    (void)mallopt(M_ARENA_MAX, 1);
}

void heap_give_back(void)
{
    (void)malloc_trim(0);
}
