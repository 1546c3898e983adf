/*
 * The parts of the registry among themselves: registry.c has calls, registry_members.c joining and leaving,
 * registry_attach.c connections that speak for ranks.
 */
#ifndef GROUP_REGISTRY_INTERNAL_H
#define GROUP_REGISTRY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "group/compute_pool.h"
#include "group/group_internal.h"
#include "group/registry.h"

struct registry {
    struct registry_settings settings;
    struct compute_pool *pool;
    atomic_size_t num_open; /* submissions */
    void (*wake)(void *context);
    void *wake_context;

    pthread_mutex_t lock;
    struct group **groups; /* [max_groups], the first num_groups used, by name: the current generation of each */
    size_t num_groups;
    uint64_t freed_generation; /* highest of the groups that are gone */
    uint64_t num_attachments;  /* so far: the last one's token */
    bool is_draining;
    bool is_closed;
};

/* The group of that name, or NULL; *place is its place, or the place for one of that name. The lock is held. */
struct group *registry_find(const struct registry *registry, const char *name, size_t *place);

/* The group and rank that a call is for; not referenced. The lock is held. Fails as registry_leave. */
CHECK_RESULT
enum lossd_status registry_find_rank(const struct registry *registry, const struct address *address,
                                     struct group **group, struct lossd_error *err);

/*
 * Answer, compute and wake as an event left it: small batches on this thread, the others in the pool. No lock may be
 * held.
 */
void registry_run_outcome(struct registry *registry, struct outcome *outcome);

#endif
