/* The layout that every task of a batch shares: B requests, C candidates. */
#ifndef BATCH_JAGGED_H
#define BATCH_JAGGED_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Request r owns the candidates offsets[r] .. offsets[r + 1] - 1. */
struct jagged {
    uint32_t num_requests;   /* B */
    uint32_t num_candidates; /* C = offsets[B] */
    const uint32_t *offsets; /* [B + 1], from 0, not falling; in the arena */
};

/*
 * Build the offsets of a layout from its lengths.
 *
 * lengths         [num_requests], borrowed for the call; may be NULL where num_requests is 0.
 * max_requests, max_candidates  the limits.
 * arena           receives 4 * (num_requests + 1) bytes.
 * jagged          written on success only.
 *
 * LOSSD_LIMIT_EXCEEDED, field "lengths", naming `requests` or `candidates` (metadata "limit"), where there are more of
 * them; the sum is taken in 64 bits, so it can't wrap. LOSSD_LIMIT_EXCEEDED where the arena is full.
 */
CHECK_RESULT
enum lossd_status jagged_from_lengths(const uint32_t *lengths, size_t num_requests, uint32_t max_requests,
                                      uint32_t max_candidates, struct arena *arena, struct jagged *jagged,
                                      struct lossd_error *err);

#endif
