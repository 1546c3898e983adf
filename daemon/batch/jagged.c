#include "batch/jagged.h"

#include <inttypes.h>

static enum lossd_status limit_error(struct lossd_error *err, const char *limit, uint64_t found, uint32_t most)
{
    const enum lossd_status status = error_set(err, LOSSD_LIMIT_EXCEEDED, "lengths",
                                               "%" PRIu64 " %s, at most %" PRIu32 " are allowed", found, limit, most);

    error_add_metadata(err, "limit", "%s", limit);
    return status;
}

enum lossd_status jagged_from_lengths(const uint32_t *lengths, size_t num_requests, uint32_t max_requests,
                                      uint32_t max_candidates, struct arena *arena, struct jagged *jagged,
                                      struct lossd_error *err)
{
    uint64_t sum = 0;
    uint32_t *offsets;

    if (num_requests > max_requests)
        return limit_error(err, "requests", num_requests, max_requests);
    for (size_t r = 0; r < num_requests; r++)
        sum += lengths[r];
    if (sum > max_candidates)
        return limit_error(err, "candidates", sum, max_candidates);

    offsets = arena_alloc(arena, sizeof *offsets * (num_requests + 1));
    if (offsets == NULL)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "lengths", "no memory for the offsets of %zu requests",
                         num_requests);
    offsets[0] = 0;
    for (size_t r = 0; r < num_requests; r++)
        offsets[r + 1] = offsets[r] + lengths[r];
    *jagged = (struct jagged){(uint32_t)num_requests, (uint32_t)sum, offsets};
    return LOSSD_OK;
}
