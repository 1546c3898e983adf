/* Who is in which group: declared groups, joining, new generations, leaving. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "group/registry_internal.h"

/* Checks of a join that need no group. */

static enum lossd_status check_world_size(const struct registry *registry, uint32_t world_size, struct lossd_error *err)
{
    if (world_size == 0)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "world_size", "is 0, but a group has a rank at least");
    if (world_size <= registry->settings.max_ranks)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "world_size", "is %" PRIu32 ", at most %" PRIu32 " ranks are allowed",
                    world_size, registry->settings.max_ranks);
    error_add_metadata(err, "limit", "ranks");
    return LOSSD_LIMIT_EXCEEDED;
}

static enum lossd_status check_name(const char *name, struct lossd_error *err)
{
    if (name_is_valid(name))
        return LOSSD_OK;
    return error_set(err, LOSSD_INVALID_ARGUMENT, "group", "has to be 1 to %d letters, digits, '_', '.' or '-'",
                     NAME_MAX_LENGTH);
}

static enum lossd_status check_nodes(const struct join_request *request, uint32_t world_size, struct lossd_error *err)
{
    if (request->nnodes == 0)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "nnodes", "is 0, but this node is one");
    if (request->node_rank >= request->nnodes)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "node_rank", "is %" PRIu32 ", but nnodes is %" PRIu32,
                         request->node_rank, request->nnodes);
    if (request->nnodes == 1 && request->has_local_world_size && request->local_world_size != world_size)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "local_world_size",
                         "is %" PRIu32 ", but one node holds all %" PRIu32 " ranks", request->local_world_size,
                         world_size);
    return LOSSD_OK;
}

static enum lossd_status check_rank(const struct join_request *request, uint32_t world_size, struct lossd_error *err)
{
    if (!request->has_rank && world_size > 1)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "rank", "is absent, but world_size is %" PRIu32, world_size);
    if (request->rank < world_size)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_RANK_RANGE, "rank", "is %" PRIu32 ", but world_size is %" PRIu32, request->rank,
                    world_size);
    error_add_metadata(err, "world_size", "%" PRIu32, world_size);
    return LOSSD_RANK_RANGE;
}

/* What a join that makes a generation has to bring. */
static enum lossd_status check_founder(const struct registry *registry, const struct join_request *request,
                                       struct lossd_error *err)
{
    if (!request->has_world_size)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "world_size", "is absent");
    if (request->config == NULL)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "config", "is absent");
    if (check_world_size(registry, request->world_size, err) != LOSSD_OK ||
        check_nodes(request, request->world_size, err) != LOSSD_OK)
        return err->status;
    return check_rank(request, request->world_size, err);
}

/* Checks against the group that is there. */

static enum lossd_status mismatch(struct lossd_error *err, const char *field, uint32_t mine, uint32_t first_seen)
{
    (void)error_set(err, LOSSD_CONFIG_DIGEST_MISMATCH, field, "is %" PRIu32 ", but the group was joined with %" PRIu32,
                    mine, first_seen);
    error_add_metadata(err, "mine", "%" PRIu32, mine);
    error_add_metadata(err, "first_seen", "%" PRIu32, first_seen);
    return LOSSD_CONFIG_DIGEST_MISMATCH;
}

static enum lossd_status check_config(const struct group *group, const struct join_request *request,
                                      struct config_blob *first_seen, struct lossd_error *err)
{
    const char *digest = group->config->owned->digest;

    if (request->config == NULL && group->is_declared)
        return LOSSD_OK;
    if (request->config == NULL)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "config", "is absent");
    if (strcmp(request->config->digest, digest) == 0)
        return LOSSD_OK;
    if (group_copy_config(group, first_seen, err) != LOSSD_OK)
        return err->status;
    (void)error_set(err, LOSSD_CONFIG_DIGEST_MISMATCH, "config",
                    "has the digest %.12s…, but the group was joined with %.12s…", request->config->digest, digest);
    error_add_metadata(err, "mine", "%s", request->config->digest);
    error_add_metadata(err, "first_seen", "%s", digest);
    return LOSSD_CONFIG_DIGEST_MISMATCH;
}

static enum lossd_status check_member(const struct group *group, const struct join_request *request,
                                      struct config_blob *first_seen, struct lossd_error *err)
{
    if (!request->has_world_size && !group->is_declared)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "world_size", "is absent");
    if (request->has_world_size && request->world_size != group->world_size)
        return mismatch(err, "world_size", request->world_size, group->world_size);
    if (request->nnodes != group->nnodes)
        return mismatch(err, "nnodes", request->nnodes, group->nnodes);
    if (check_nodes(request, group->world_size, err) != LOSSD_OK ||
        check_rank(request, group->world_size, err) != LOSSD_OK)
        return err->status;
    return check_config(group, request, first_seen, err);
}

/*
 * Why a join of this rank begins the next generation, as the end of a sentence that begins with the rank: it was a
 * member, and can't be shown to be the same process; or those who were members will not come back. NULL where it
 * doesn't.
 */
static const char *why_next(struct group *group, const struct join_request *request)
{
    const struct member *member = request->rank < group->world_size ? &group->members[request->rank] : NULL;

    if (member != NULL && member->left)
        return "joined again after it had left";
    if (member != NULL && member->joined && (!request->has_instance || !member->has_instance))
        return "joined again";
    if (member != NULL && member->joined)
        return member->instance != request->instance ? "joined again from another process" : NULL;
    return group_is_dead(group) ? "joined when the processes of all members were dead" : NULL;
}

/* Generations. The lock is held in all of these. */

static enum lossd_status create(const struct registry *registry, const struct group_settings *wanted,
                                struct shared_config *config, struct group **group, struct lossd_error *err)
{
    struct group_settings settings = *wanted;

    settings.limits = registry->settings.batch_limits;
    settings.engine = registry->settings.engine;
    return group_create(&settings, config, clock_now_ns(), group, err);
}

/* A new group, or the next generation of old, with the config of the request, which is taken over. */
static enum lossd_status found(const struct registry *registry, struct join_request *request, const struct group *old,
                               struct group **group, struct lossd_error *err)
{
    const struct group_settings settings = {
        .name = request->group,
        .generation = 1 + (old != NULL ? old->generation : registry->freed_generation),
        .world_size = request->world_size,
        .nnodes = request->nnodes,
        .node_rank = request->node_rank,
    };
    struct shared_config *config;
    enum lossd_status status = check_founder(registry, request, err);

    if (status != LOSSD_OK)
        return status;
    config = shared_config_create(request->config);
    if (config == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    status = create(registry, &settings, config, group, err);
    if (status == LOSSD_OK)
        request->config = NULL;
    else
        config->owned = NULL;
    shared_config_unref(config);
    return status;
}

/* The next generation of a declared group: the same but for its members. */
static enum lossd_status renew(const struct registry *registry, const struct group *old, struct group **group,
                               struct lossd_error *err)
{
    const struct group_settings settings = {
        .name = old->name,
        .generation = old->generation + 1,
        .world_size = old->world_size,
        .nnodes = old->nnodes,
        .is_declared = true,
    };

    return create(registry, &settings, old->config, group, err);
}

static enum lossd_status check_room(const struct registry *registry, struct lossd_error *err)
{
    if (registry->num_groups < registry->settings.max_groups)
        return LOSSD_OK;
    (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "group", "there are %zu groups already, which is the limit",
                    registry->num_groups);
    error_add_metadata(err, "limit", "groups");
    return LOSSD_LIMIT_EXCEEDED;
}

/* There is room. */
static void insert(struct registry *registry, struct group *group, size_t place)
{
    memmove(&registry->groups[place + 1], &registry->groups[place],
            (registry->num_groups - place) * sizeof(struct group *));
    registry->groups[place] = group;
    registry->num_groups++;
}

/* next, whose began is set, takes the place of a generation, whose calls end as stale. */
static void replace(struct registry *registry, size_t place, struct group *next, struct outcome *outcome)
{
    struct group *old = registry->groups[place];
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_STALE_GENERATION, "generation", "%s: the group is at generation %" PRIu64, next->began,
                    next->generation);
    error_add_metadata(&why, "generation", "%" PRIu64, next->generation);
    group_close(old, &why, clock_now_ns(), outcome);
    registry->groups[place] = next;
    group_unref(old);
}

static void free_name(struct registry *registry, size_t place, struct outcome *outcome)
{
    struct group *group = registry->groups[place];
    struct lossd_error why;

    error_init(&why);
    (void)error_set(&why, LOSSD_GROUP_NOT_FOUND, "group", "all members of group \"%s\" have left", group->name);
    error_add_metadata(&why, "group", "%s", group->name);
    group_close(group, &why, clock_now_ns(), outcome);
    if (group->generation > registry->freed_generation)
        registry->freed_generation = group->generation;
    registry->num_groups--;
    memmove(&registry->groups[place], &registry->groups[place + 1],
            (registry->num_groups - place) * sizeof(struct group *));
    group_unref(group);
}

static void add_member(struct group *group, const struct join_request *request)
{
    struct member *member = &group->members[request->rank];

    if (!member->joined)
        group->num_members++;
    *member = (struct member){
        .joined = true,
        .has_instance = request->has_instance,
        .instance = request->instance,
        .attachment = member->attachment,
    };
    group_joined(group, request->rank, clock_now_ns());
}

/* The group that the request becomes a member of; made where it has to be. */
static enum lossd_status find_or_make(struct registry *registry, struct join_request *request,
                                      struct config_blob *first_seen, struct group **group, struct outcome *outcome,
                                      struct lossd_error *err)
{
    size_t place;
    struct group *old = registry_find(registry, request->group, &place);
    const char *why = old != NULL ? why_next(old, request) : NULL;
    enum lossd_status status = LOSSD_OK;

    if (old != NULL && (why == NULL || old->is_declared))
        status = check_member(old, request, first_seen, err);
    if (status != LOSSD_OK)
        return status;
    *group = old;
    if (old != NULL && why == NULL)
        return LOSSD_OK;
    if (old == NULL)
        status = check_room(registry, err);
    if (status == LOSSD_OK && old != NULL && old->is_declared)
        status = renew(registry, old, group, err);
    else if (status == LOSSD_OK)
        status = found(registry, request, old, group, err);
    if (status != LOSSD_OK)
        return status;
    if (old == NULL) {
        insert(registry, *group, place);
        return LOSSD_OK;
    }
    (void)snprintf((*group)->began, sizeof(*group)->began, "rank %" PRIu32 " %s", request->rank, why);
    replace(registry, place, *group, outcome);
    return LOSSD_OK;
}

enum lossd_status registry_join(struct registry *registry, struct join_request *request, struct join_answer *answer,
                                struct config_blob *first_seen, struct lossd_error *err)
{
    struct outcome outcome = {0};
    struct group *group;
    enum lossd_status status = check_name(request->group, err);

    if (status != LOSSD_OK)
        return status;
    (void)pthread_mutex_lock(&registry->lock);
    if (registry->is_draining)
        status = error_set(err, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    else
        status = find_or_make(registry, request, first_seen, &group, &outcome, err);
    if (status == LOSSD_OK) {
        add_member(group, request);
        answer->generation = group->generation;
        memcpy(answer->digest, group->config->owned->digest, sizeof answer->digest);
    }
    (void)pthread_mutex_unlock(&registry->lock);
    registry_run_outcome(registry, &outcome);
    return status;
}

/* The lock is held. */
static enum lossd_status declare(struct registry *registry, const struct group_settings *settings,
                                 struct shared_config *config, struct lossd_error *err)
{
    struct group *group;
    size_t place;
    enum lossd_status status;

    if (registry_find(registry, settings->name, &place) != NULL)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "name", "\"%s\" is declared twice", settings->name);
    status = check_room(registry, err);
    if (status == LOSSD_OK)
        status = create(registry, settings, config, &group, err);
    if (status == LOSSD_OK)
        insert(registry, group, place);
    return status;
}

enum lossd_status registry_declare(struct registry *registry, const char *name, uint32_t world_size,
                                   struct owned_config *config, struct lossd_error *err)
{
    const struct group_settings settings = {
        .name = name,
        .generation = 1,
        .world_size = world_size,
        .nnodes = 1,
        .is_declared = true,
    };
    struct shared_config *shared;
    enum lossd_status status = check_world_size(registry, world_size, err);

    if (status != LOSSD_OK)
        return status;
    if (!name_is_valid(name))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "name", "has to be 1 to %d letters, digits, '_', '.' or '-'",
                         NAME_MAX_LENGTH);
    shared = shared_config_create(config);
    if (shared == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    (void)pthread_mutex_lock(&registry->lock);
    status = declare(registry, &settings, shared, err);
    (void)pthread_mutex_unlock(&registry->lock);
    if (status != LOSSD_OK)
        shared->owned = NULL;
    shared_config_unref(shared);
    return status;
}

/* The lock is held. A member that leaves again has left already. */
static void remove_member(struct registry *registry, struct group *group, uint32_t rank, struct outcome *outcome)
{
    struct member *member = &group->members[rank];
    struct group *next;
    struct lossd_error err;
    size_t place;
    bool all_left;

    if (member->joined && !member->left)
        group->num_members--;
    member->left = true;
    all_left = group_leave(group, rank, clock_now_ns(), outcome);
    (void)registry_find(registry, group->name, &place);
    if (!group->is_declared && group->num_members == 0) {
        free_name(registry, place, outcome);
    } else if (group->is_declared && all_left && renew(registry, group, &next, &err) == LOSSD_OK) {
        (void)snprintf(next->began, sizeof next->began, "all ranks have left");
        replace(registry, place, next, outcome);
    }
}

enum lossd_status registry_leave(struct registry *registry, const struct address *address, struct lossd_error *err)
{
    struct outcome outcome = {0};
    struct group *group;
    enum lossd_status status;

    (void)pthread_mutex_lock(&registry->lock);
    status = registry_find_rank(registry, address, &group, err);
    if (status == LOSSD_OK)
        remove_member(registry, group, address->rank, &outcome);
    (void)pthread_mutex_unlock(&registry->lock);
    registry_run_outcome(registry, &outcome);
    return status;
}
