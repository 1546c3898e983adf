/* Connections that speak for ranks: their end is the rank's. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "group/registry_internal.h"

/* The names are copied, for the group may be gone when they are read. */
static void describe(const struct group *group, uint64_t token, struct attachment *attachment)
{
    const struct group_config *config = &group->config->owned->config;

    attachment->generation = group->generation;
    attachment->token = token;
    memcpy(attachment->digest, group->config->owned->digest, sizeof attachment->digest);
    attachment->num_tasks = (uint32_t)config->num_tasks;
    for (size_t t = 0; t < config->num_tasks; t++) {
        struct attached_task *task = &attachment->tasks[t];

        (void)snprintf(task->name, sizeof task->name, "%s", config->tasks[t].name);
        task->num_class = config->tasks[t].num_class;
        task->num_losses = (uint32_t)config->tasks[t].num_losses;
    }
}

enum lossd_status registry_attach(struct registry *registry, const struct address *address,
                                  struct attachment *attachment, struct lossd_error *err)
{
    struct group *group;
    enum lossd_status status;

    (void)pthread_mutex_lock(&registry->lock);
    status = registry_find_rank(registry, address, &group, err);
    if (status == LOSSD_OK) {
        const uint64_t token = ++registry->num_attachments;

        group->members[address->rank].attachment = token;
        group_attached(group, address->rank, clock_now_ns());
        describe(group, token, attachment);
    }
    (void)pthread_mutex_unlock(&registry->lock);
    return status;
}

/* The rank that has this attachment. Tokens are of one generation, whatever its name. NULL where there is none. */
static struct member *find_attached(const struct registry *registry, const struct address *address, uint64_t token,
                                    struct group **group)
{
    size_t place;

    *group = registry_find(registry, address->group, &place);
    if (token == 0 || *group == NULL || address->rank >= (*group)->world_size ||
        (*group)->members[address->rank].attachment != token)
        return NULL;
    return &(*group)->members[address->rank];
}

void registry_detach(struct registry *registry, const struct address *address, uint64_t token)
{
    struct outcome outcome = {0};
    struct member *member;
    struct group *group;

    (void)pthread_mutex_lock(&registry->lock);
    member = find_attached(registry, address, token, &group);
    if (member != NULL) {
        member->attachment = 0;
        group_died(group, address->rank, clock_now_ns(), &outcome);
    }
    (void)pthread_mutex_unlock(&registry->lock);
    registry_run_outcome(registry, &outcome);
}
