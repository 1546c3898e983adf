/*
 * One generation of one group: its config, step machine, communicator and members, under one lock. Transports go
 * through group/registry.h; this header is for the registry and for what status shows.
 */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "base/arena.h"
#include "base/status.h"
#include "batch/group_config.h"
#include "group/step.h"

/* A config in its canonical wire form with all defaults filled in; bytes from malloc. */
struct config_blob {
    uint8_t *bytes;
    size_t size;
};

/* A config and the memory it lies in. Made by transport/owned_config.c, taken over by the group. */
struct owned_config {
    struct arena arena;
    struct group_config config;
    struct config_blob blob;
    char digest[65]; /* SHA-256 of the blob, hexadecimal */
};

/* Frees what the config holds and the struct itself. Takes NULL. */
void owned_config_destroy(struct owned_config *config);

struct group_view {
    char name[NAME_MAX_LENGTH + 1];
    uint64_t generation;
    uint32_t world_size;
    uint32_t nnodes;
    const char *engine; /* static; "none" with global_average off */
    struct config_blob config;
    char digest[65];
    struct step_counters steps; /* with global_average off: done is the number of answered steps, the rest 0 */
    uint64_t all_reduces;
    struct rank_view *ranks; /* [world_size], from malloc; since_ns relative to taken_ns */
    int64_t taken_ns;
};

void group_view_finish(struct group_view *view);

#endif
