/* A generation and the config that it has: made, seen, freed. */
#include "group/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "group/group_internal.h"

/* Room for the rules and slots of the largest config, many times over. */
enum { PLAN_LIMIT_BYTES = 1 << 20 };

/* Configs. */

void owned_config_destroy(struct owned_config *config)
{
    if (config == NULL)
        return;
    arena_finish(&config->arena);
    free(config->blob.bytes);
    free(config);
}

struct shared_config *shared_config_create(struct owned_config *owned)
{
    struct shared_config *config = calloc(1, sizeof *config);

    if (config == NULL)
        return NULL;
    atomic_init(&config->references, 1);
    config->owned = owned;
    return config;
}

struct shared_config *shared_config_ref(struct shared_config *config)
{
    (void)atomic_fetch_add(&config->references, 1);
    return config;
}

void shared_config_unref(struct shared_config *config)
{
    if (config == NULL || atomic_fetch_sub(&config->references, 1) != 1)
        return;
    owned_config_destroy(config->owned);
    free(config);
}

/* Making and freeing. */

static bool create_machines(struct group *group, int64_t now_ns)
{
    const struct group_config *config = &group->config->owned->config;
    const struct step_settings settings = {
        .world_size = config->global_average ? group->world_size : 1,
        .num_denominators = group->plan.num_denominators,
        .step_timeout_ns = config->step_timeout_ms * NS_PER_MS,
        .first_step_timeout_ns = config->first_step_timeout_ms * NS_PER_MS,
    };

    group->num_machines = config->global_average ? 1 : group->world_size;
    group->machines = calloc(group->num_machines, sizeof *group->machines);
    group->members = calloc(group->world_size, sizeof *group->members);
    group->vector_size = step_vector_size(&settings);
    group->vector = calloc(group->vector_size, sizeof *group->vector);
    if (group->machines == NULL || group->members == NULL || group->vector == NULL)
        return false;
    for (uint32_t m = 0; m < group->num_machines; m++) {
        group->machines[m] = step_create(&settings, now_ns);
        if (group->machines[m] == NULL)
            return false;
    }
    return true;
}

static enum lossd_status open_comm(struct group *group, const struct group_settings *settings, struct lossd_error *err)
{
    const struct comm_settings comm = {.nnodes = settings->nnodes, .node_rank = settings->node_rank};

    if (settings->engine != NULL)
        return comm_open_engine(settings->engine, &comm, &group->comm, err);
    return comm_open(&comm, &group->comm, err);
}

static enum lossd_status group_set_up(struct group *group, const struct group_settings *settings, int64_t now_ns,
                                      struct lossd_error *err)
{
    const struct group_config *config = &group->config->owned->config;
    enum lossd_status status = loss_plan_init(&group->plan, config, &group->arena, err);

    if (status != LOSSD_OK) {
        error_prefix_field(err, "config");
        return status;
    }
    status = open_comm(group, settings, err);
    if (status != LOSSD_OK)
        return status;
    /* Events run the reduce under the lock, which is right only where that can't wait. */
    if (!comm_is_immediate(group->comm))
        return error_set(err, LOSSD_NOT_SUPPORTED, "nnodes", "engine %s waits, which this build can't do",
                         comm_engine_name(group->comm));
    if (!config->global_average) { /* opened to see that nnodes is possible */
        comm_close(group->comm);
        group->comm = NULL;
    }
    if (!create_machines(group, now_ns))
        return error_set(err, LOSSD_INTERNAL, "", "out of memory for a group of %" PRIu32 " ranks", group->world_size);
    return LOSSD_OK;
}

enum lossd_status group_create(const struct group_settings *settings, struct shared_config *config, int64_t now_ns,
                               struct group **group, struct lossd_error *err)
{
    struct group *made = calloc(1, sizeof *made);
    enum lossd_status status;

    if (made == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    (void)snprintf(made->name, sizeof made->name, "%s", settings->name);
    made->generation = settings->generation;
    made->world_size = settings->world_size;
    made->nnodes = settings->nnodes;
    made->is_declared = settings->is_declared;
    made->limits = settings->limits;
    made->config = shared_config_ref(config);
    made->armed_ns = NO_DEADLINE;
    arena_init(&made->arena, PLAN_LIMIT_BYTES, NULL);
    atomic_init(&made->references, 1);
    (void)pthread_mutex_init(&made->lock, NULL);
    status = group_set_up(made, settings, now_ns, err);
    if (status != LOSSD_OK) {
        group_unref(made);
        return status;
    }
    *group = made;
    return LOSSD_OK;
}

struct group *group_ref(struct group *group)
{
    (void)atomic_fetch_add(&group->references, 1);
    return group;
}

void group_unref(struct group *group)
{
    if (group == NULL || atomic_fetch_sub(&group->references, 1) != 1)
        return;
    for (uint32_t m = 0; group->machines != NULL && m < group->num_machines; m++)
        step_destroy(group->machines[m]);
    free(group->machines);
    free(group->members);
    free(group->vector);
    comm_close(group->comm);
    arena_finish(&group->arena);
    shared_config_unref(group->config);
    (void)pthread_mutex_destroy(&group->lock);
    free(group);
}

/* Views. */

static bool copy_blob(const struct config_blob *from, struct config_blob *to)
{
    *to = (struct config_blob){.bytes = malloc(from->size > 0 ? from->size : 1), .size = from->size};
    if (to->bytes == NULL)
        return false;
    if (from->size > 0)
        memcpy(to->bytes, from->bytes, from->size);
    return true;
}

enum lossd_status group_copy_config(const struct group *group, struct config_blob *blob, struct lossd_error *err)
{
    if (copy_blob(&group->config->owned->blob, blob))
        return LOSSD_OK;
    return error_set(err, LOSSD_INTERNAL, "", "out of memory");
}

/* The lock is held. */
static void view_steps(const struct group *group, struct group_view *view)
{
    for (uint32_t m = 0; m < group->num_machines; m++) {
        const struct step_counters counters = step_counters(group->machines[m]);

        view->steps.done += counters.done;
        view->steps.failed += counters.failed;
        view->steps.aborted += counters.aborted;
    }
    if (group->comm == NULL)
        view->steps.failed = view->steps.aborted = 0;
    else
        view->all_reduces = view->steps.done + view->steps.failed + view->steps.aborted;
    for (uint32_t r = 0; r < group->world_size; r++)
        view->ranks[r] = group->num_machines == 1 ? step_rank_view(group->machines[0], r)
                                                  : step_rank_view(group->machines[r], 0);
}

enum lossd_status group_fill_view(struct group *group, struct group_view *view, struct lossd_error *err)
{
    struct group_view filled = {
        .generation = group->generation,
        .world_size = group->world_size,
        .nnodes = group->nnodes,
        .engine = group->comm != NULL ? comm_engine_name(group->comm) : "none",
        .ranks = calloc(group->world_size, sizeof *filled.ranks),
        .taken_ns = clock_now_ns(),
    };

    (void)snprintf(filled.name, sizeof filled.name, "%s", group->name);
    memcpy(filled.digest, group->config->owned->digest, sizeof filled.digest);
    if (filled.ranks == NULL || !copy_blob(&group->config->owned->blob, &filled.config)) {
        free(filled.ranks);
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    }
    (void)pthread_mutex_lock(&group->lock);
    view_steps(group, &filled);
    (void)pthread_mutex_unlock(&group->lock);
    *view = filled;
    return LOSSD_OK;
}

void group_view_finish(struct group_view *view)
{
    free(view->config.bytes);
    free(view->ranks);
    *view = (struct group_view){0};
}
