#include "client/transport.h"

struct transport *shm_transport_create(const char *path, const struct member *member, uint32_t num_slots, bool no_spin)
{
    (void)path;
    (void)member;
    (void)num_slots;
    (void)no_spin;
    return NULL;
}
