/*
 * A region that the daemon has made, in our address space: nothing that it says about it is taken on trust. Its data
 * are mapped by themselves: they stay at their address when another daemon makes another head in front of them.
 */
#ifndef CLIENT_SHM_MAP_H
#define CLIENT_SHM_MAP_H

#include <stdint.h>

#include "client/lossd.h"
#include "client/transport.h"
#include "lossd_shm.h"

struct shm_map {
    uint8_t *head;       /* the region up to its data; NULL: no map */
    uint8_t *data;       /* [data_bytes]; NULL where that is 0 */
    uint64_t data_bytes; /* as asked for */
    struct lossd_shm_attached at;
};

/*
 * Check what ATTACHED says against what was asked for and what the descriptor is, and map it, with all its pages, but
 * not for children that are forked off. region_fd is borrowed. INTERNAL, OUT_OF_MEMORY; *map is written on success.
 */
enum lossd_code shm_map_open(const struct lossd_shm_attached *attached, int region_fd, const struct member *member,
                             uint32_t num_slots, uint64_t data_bytes, struct shm_map *map,
                             struct lossd_failure *failure);

/*
 * Put a map in the place of another one that has as many data, at whose address its own then are, with the same
 * contents. INTERNAL where the system refuses: both are as they were.
 */
enum lossd_code shm_map_replace(struct shm_map *old, struct shm_map *map, struct lossd_failure *failure);

/*
 * Put copies that are our own in the place of its parts, at the same addresses: before the daemon takes the pages of
 * the region away, as it does at the end of the connection. INTERNAL where the system refuses: then they may become
 * zeros.
 */
enum lossd_code shm_map_keep(struct shm_map *map, struct lossd_failure *failure);

/* Takes an empty one, too. */
void shm_map_close(struct shm_map *map);

#endif
