/*
 * Memory that lossd shares with one trainer: made, sealed, mapped and touched by lossd, known to the trainer by a
 * descriptor. Its size can't change any more, so that no access of ours can end in SIGBUS; holes that a trainer punches
 * read as zeros. The home of memfd.
 *
 * Any thread, one at a time.
 */
#ifndef TRANSPORT_SHM_REGION_H
#define TRANSPORT_SHM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Bytes that one call of shm_region_touch makes ready: some 0.5 ms for memory that is new to the machine. */
enum { SHM_REGION_PIECE_BYTES = 512 << 10 };

struct shm_region {
    unsigned char *bytes; /* [size]; NULL: no region */
    uint64_t size;        /* a multiple of the page */
    uint64_t touched;     /* bytes from the start that have their pages */
    int fd;               /* for the trainer; -1 once it is closed */
    struct memory_budget *budget;
};

/* The unit of sizes and of what can be protected. */
uint64_t shm_region_page_bytes(void);

/*
 * Make a region of zeros, of size bytes (rounded up to pages), sealed and mapped; nothing is touched yet.
 *
 * budget  of all regions together; borrowed, may be NULL. Given back by shm_region_finish.
 * region  written on success only.
 *
 * LOSSD_LIMIT_EXCEEDED (metadata "limit" "regions_bytes") where the budget has no room; LOSSD_OVERLOADED where the
 * system refuses memory or descriptors.
 */
CHECK_RESULT
enum lossd_status shm_region_create(struct shm_region *region, uint64_t size, struct memory_budget *budget,
                                    struct lossd_error *err);

/*
 * Give the next piece its pages, before the trainer has the descriptor. *is_ready: all of it has them.
 * LOSSD_OVERLOADED where the system is out of memory.
 */
CHECK_RESULT
enum lossd_status shm_region_touch(struct shm_region *region, bool *is_ready, struct lossd_error *err);

/* The trainer has the descriptor: ours is not needed any more. */
void shm_region_close_fd(struct shm_region *region);

/*
 * Take its pages away from everybody: who still has the descriptor or a mapping reads zeros there, and pages that it
 * touches afterwards are its own. Takes a zeroed region, and one that is finished.
 */
void shm_region_empty(struct shm_region *region);

/*
 * Unmap, close, give the budget back. The trainer keeps what it has mapped, with the pages that are there. Takes a
 * zeroed region, and one that is finished.
 */
void shm_region_finish(struct shm_region *region);

#endif
