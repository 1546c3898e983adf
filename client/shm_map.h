/* A region that the daemon has made, in our address space: nothing that it says about it is taken on trust. */
#ifndef CLIENT_SHM_MAP_H
#define CLIENT_SHM_MAP_H

#include <stdint.h>

#include "client/lossd.h"
#include "client/transport.h"
#include "lossd_shm.h"

struct shm_map {
    uint8_t *bytes; /* NULL: none */
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
 * Put a map in the place of another one that is as large and laid out the same, at whose addresses it then is, with the
 * data of the other. INTERNAL where they differ, or the system refuses.
 */
enum lossd_code shm_map_replace(struct shm_map *old, struct shm_map *map, struct lossd_failure *failure);

/* Takes an empty one, too. */
void shm_map_close(struct shm_map *map);

#endif
