/* Membership: JoinGroup, LeaveGroup, GetGroup, and AnnounceCounts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/failure.h"
#include "client/rpc.h"
#include "codec/convert.h"
#include "codec/message.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"

static enum lossd_code bad_config(struct lossd_failure *failure, const struct lossd_error *err)
{
    char field[sizeof err->field + 8];

    (void)snprintf(field, sizeof field, "config%s%s", err->field[0] == '\0' || err->field[0] == '[' ? "" : ".",
                   err->field);
    return failure_set(failure, OWN_BAD_CONFIG, field, "%s", err->message);
}

enum lossd_code config_from_json(const char *json, struct arena *arena, const void **message,
                                 struct group_config *config, struct lossd_failure *failure)
{
    const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *decoded;
    struct lossd_error err;

    if (message_decode(CODEC_JSON, &lossd__v1__group_config__descriptor, (const uint8_t *)json, strlen(json), &limits,
                       arena, &decoded, &err) != LOSSD_OK ||
        config_from_message((const Lossd__V1__GroupConfig *)decoded, MAX_TASKS, MAX_LOSSES, arena, config, &err) !=
            LOSSD_OK)
        return arena->is_out_of_memory ? failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out")
                                       : bad_config(failure, &err);
    *message = decoded;
    return LOSSD_CODE_OK;
}

enum lossd_code config_to_json(const struct group_config *config, struct arena *arena, const char **json,
                               struct lossd_failure *failure)
{
    Lossd__V1__GroupConfig *message;
    struct encoded text = {0};
    struct lossd_error err;
    char *kept = NULL;

    if (config_to_message(config, arena, &message, &err) == LOSSD_OK &&
        message_encode(CODEC_JSON, &message->base, false, &text, &err) == LOSSD_OK)
        kept = arena_alloc(arena, text.size + 1);
    if (kept == NULL) {
        free(text.bytes);
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out");
    }
    memcpy(kept, text.bytes, text.size);
    kept[text.size] = '\0';
    free(text.bytes);
    *json = kept;
    return LOSSD_CODE_OK;
}

static enum lossd_code take_digest(char digest[65], const char *found, struct lossd_failure *failure)
{
    if (found == NULL || strlen(found) != 64)
        return failure_set(failure, OWN_INTERNAL, "config_digest", "is \"%.80s\", expected a SHA-256",
                           found == NULL ? "" : found);
    memcpy(digest, found, 65);
    return LOSSD_CODE_OK;
}

enum lossd_code rpc_join(struct rpc *rpc, const struct lossd_membership *me, const void *config_message,
                         struct joined *joined, struct lossd_failure *failure)
{
    Lossd__V1__JoinGroupRequest request = LOSSD__V1__JOIN_GROUP_REQUEST__INIT;
    Lossd__V1__GroupConfig *config = (Lossd__V1__GroupConfig *)config_message;
    const Lossd__V1__JoinGroupResponse *response;
    ProtobufCMessage *answer;
    enum lossd_code code;

    request.group = (char *)me->group;
    request.has_rank = true;
    request.rank = me->rank;
    request.has_world_size = true;
    request.world_size = me->world_size;
    request.has_local_world_size = me->local_world_size != 0;
    request.local_world_size = me->local_world_size;
    request.has_nnodes = me->nnodes != 0;
    request.nnodes = me->nnodes == 0 ? 1 : me->nnodes;
    request.has_node_rank = true;
    request.node_rank = me->node_rank;
    request.master_addr = me->master_addr[0] == '\0' ? NULL : (char *)me->master_addr;
    request.config = config;
    request.has_instance = true;
    request.instance = me->instance;
    code = rpc_call(rpc, "GroupService/JoinGroup", &request.base, &lossd__v1__join_group_response__descriptor,
                    rpc->patience_ms, &answer, failure);
    if (code != LOSSD_CODE_OK)
        return code;
    response = (const Lossd__V1__JoinGroupResponse *)answer;
    joined->generation = response->generation;
    return take_digest(joined->config_digest, response->config_digest, failure);
}

enum lossd_code rpc_leave(struct rpc *rpc, const char *group, uint32_t rank, uint64_t generation,
                          struct lossd_failure *failure)
{
    Lossd__V1__LeaveGroupRequest request = LOSSD__V1__LEAVE_GROUP_REQUEST__INIT;
    ProtobufCMessage *answer;

    request.group = (char *)group;
    request.has_rank = true;
    request.rank = rank;
    request.has_generation = true;
    request.generation = generation;
    return rpc_call(rpc, "GroupService/LeaveGroup", &request.base, &lossd__v1__leave_group_response__descriptor,
                    rpc->patience_ms, &answer, failure);
}

/* What sizes are computed from has to be what the daemon's own rules allow. */
static enum lossd_code check_sizes(const struct group_config *config, struct lossd_failure *failure)
{
    char field[64];

    if (config->num_tasks == 0)
        return failure_set(failure, OWN_INTERNAL, "config.tasks", "is empty, expected 1 to %d", MAX_TASKS);
    for (size_t t = 0; t < config->num_tasks; t++) {
        const struct task_config *task = &config->tasks[t];

        (void)snprintf(field, sizeof field, "config.tasks[%zu].num_class", t);
        if (task->num_class < 1 || task->num_class > MAX_NUM_CLASS)
            return failure_set(failure, OWN_INTERNAL, field, "is %u, expected 1 to %d", task->num_class, MAX_NUM_CLASS);
    }
    return LOSSD_CODE_OK;
}

/* A copy in the arena of the caller: what rpc's own arena holds is gone with the next call. */
static enum lossd_code take_config(const Lossd__V1__Group *group, struct arena *arena, struct group_config *config,
                                   struct lossd_failure *failure)
{
    struct lossd_error err;

    if (group->config == NULL)
        return failure_set(failure, OWN_INTERNAL, "config", "is absent from the group \"%.63s\"", group->name);
    if (config_from_message(group->config, MAX_TASKS, MAX_LOSSES, arena, config, &err) == LOSSD_OK)
        return check_sizes(config, failure);
    return failure_set(failure, arena->is_out_of_memory ? OWN_OUT_OF_MEMORY : OWN_INTERNAL, err.field, "%s",
                       err.message);
}

static bool has_joined(const Lossd__V1__Group *group, uint32_t rank)
{
    for (size_t i = 0; i < group->n_ranks; i++)
        if (group->ranks[i]->rank == rank)
            return group->ranks[i]->state != LOSSD__V1__RANK_STATE__RANK_STATE_NEVER_JOINED;
    return false;
}

enum lossd_code rpc_get_group(struct rpc *rpc, const char *name, uint32_t rank, struct group_facts *facts,
                              struct arena *arena, struct group_config *config, struct lossd_failure *failure)
{
    Lossd__V1__GetGroupRequest request = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    const Lossd__V1__Group *group;
    ProtobufCMessage *answer;
    enum lossd_code code;

    request.group = (char *)name;
    code = rpc_call(rpc, "GroupService/GetGroup", &request.base, &lossd__v1__get_group_response__descriptor,
                    rpc->patience_ms, &answer, failure);
    if (code != LOSSD_CODE_OK)
        return code;
    group = ((const Lossd__V1__GetGroupResponse *)answer)->group;
    if (group == NULL)
        return failure_set(failure, OWN_INTERNAL, "group", "is absent from the answer");
    facts->generation = group->generation;
    facts->has_joined = has_joined(group, rank);
    return config == NULL ? LOSSD_CODE_OK : take_config(group, arena, config, failure);
}

enum lossd_code rpc_announce(struct rpc *rpc, const char *group, uint32_t rank, uint64_t generation, uint64_t step,
                             uint32_t requests, uint32_t candidates, uint64_t timeout_ms, struct lossd_failure *failure)
{
    Lossd__V1__AnnounceCountsRequest request = LOSSD__V1__ANNOUNCE_COUNTS_REQUEST__INIT;
    ProtobufCMessage *answer;

    request.group = (char *)group;
    request.has_rank = true;
    request.rank = rank;
    request.has_generation = true;
    request.generation = generation;
    request.has_step = true;
    request.step = step;
    request.has_requests = true;
    request.requests = requests;
    request.has_candidates = true;
    request.candidates = candidates;
    return rpc_call(rpc, "LossService/AnnounceCounts", &request.base, &lossd__v1__announce_counts_response__descriptor,
                    timeout_ms, &answer, failure);
}
