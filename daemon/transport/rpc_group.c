/* GroupService. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "codec/message.h"
#include "lossd/v1/group.pb-c.h"
#include "transport/owned_config.h"
#include "transport/rpc_handlers.h"

static enum lossd_status join(struct rpc_context *context, struct join_request *join, struct join_answer *answer,
                              struct lossd_error *err)
{
    struct config_blob first_seen = {0};
    enum lossd_status status = registry_join(context->registry, join, answer, &first_seen, err);

    if (status == LOSSD_CONFIG_DIGEST_MISMATCH && first_seen.bytes != NULL && join->config != NULL)
        status = owned_config_mismatch(&join->config->blob, &first_seen, err);
    free(first_seen.bytes);
    return status;
}

static enum lossd_status join_response(const struct join_answer *answer, struct arena *arena,
                                       ProtobufCMessage **response, struct lossd_error *err)
{
    enum lossd_status status = rpc_new_message(arena, &lossd__v1__join_group_response__descriptor, response, err);
    Lossd__V1__JoinGroupResponse *message;

    if (status != LOSSD_OK)
        return status;
    message = (Lossd__V1__JoinGroupResponse *)*response;
    message->has_generation = true;
    message->generation = answer->generation;
    message->config_digest = arena_strndup(arena, answer->digest, strlen(answer->digest));
    return message->config_digest == NULL ? arena_error(arena, "answer", err) : LOSSD_OK;
}

RPC_HANDLER(rpc_join_group)
{
    const Lossd__V1__JoinGroupRequest *message = (const Lossd__V1__JoinGroupRequest *)request;
    struct join_request arguments = {
        .group = message->group,
        .has_rank = message->has_rank,
        .rank = message->rank,
        .has_world_size = message->has_world_size,
        .world_size = message->world_size,
        .has_local_world_size = message->has_local_world_size,
        .local_world_size = message->local_world_size,
        .nnodes = message->nnodes,
        .node_rank = message->node_rank,
        .has_instance = message->has_instance,
        .instance = message->instance,
    };
    struct join_answer answer;
    enum lossd_status status = LOSSD_OK;

    rpc_note_caller(submission, message->group, message->rank);
    if (message->group == NULL)
        return rpc_field_absent(err, "group");
    if (message->config != NULL) {
        status = owned_config_from_message(message->config, context->max_tasks, context->max_losses, &arguments.config,
                                           err);
        if (status != LOSSD_OK) {
            error_prefix_field(err, "config");
            return status;
        }
    }
    status = join(context, &arguments, &answer, err);
    owned_config_destroy(arguments.config);
    if (status != LOSSD_OK)
        return status;
    return join_response(&answer, &submission->arena, response, err);
}

RPC_HANDLER(rpc_leave_group)
{
    const Lossd__V1__LeaveGroupRequest *message = (const Lossd__V1__LeaveGroupRequest *)request;
    const struct address address = {
        .group = message->group,
        .has_rank = message->has_rank,
        .rank = message->rank,
        .has_generation = message->has_generation,
        .generation = message->generation,
    };
    enum lossd_status status;

    rpc_note_caller(submission, message->group, message->rank);
    if (message->group == NULL)
        return rpc_field_absent(err, "group");
    status = registry_leave(context->registry, &address, err);
    if (status != LOSSD_OK)
        return status;
    return rpc_new_message(&submission->arena, &lossd__v1__leave_group_response__descriptor, response, err);
}

static const Lossd__V1__RankState state_on_wire[] = {
    [RANK_NEVER_JOINED] = LOSSD__V1__RANK_STATE__RANK_STATE_NEVER_JOINED,
    [RANK_IDLE] = LOSSD__V1__RANK_STATE__RANK_STATE_IDLE,
    [RANK_ANNOUNCED] = LOSSD__V1__RANK_STATE__RANK_STATE_ANNOUNCED,
    [RANK_WAITING] = LOSSD__V1__RANK_STATE__RANK_STATE_WAITING,
    [RANK_REFUSED] = LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED,
    [RANK_LEFT] = LOSSD__V1__RANK_STATE__RANK_STATE_LEFT,
    [RANK_DEAD] = LOSSD__V1__RANK_STATE__RANK_STATE_DEAD,
};

static void fill_rank(Lossd__V1__RankStatus *message, uint32_t rank, const struct rank_view *view, int64_t taken_ns)
{
    lossd__v1__rank_status__init(message);
    message->has_rank = true;
    message->rank = rank;
    message->has_node_rank = true;
    message->has_state = true;
    message->state = state_on_wire[view->state];
    message->has_last_step = view->has_last_step;
    message->last_step = view->last_step;
    message->has_at_step = view->has_at_step;
    message->at_step = view->at_step;
    message->has_since_ms = true;
    message->since_ms = taken_ns > view->since_ns ? (uint64_t)((taken_ns - view->since_ns) / NS_PER_MS) : 0;
}

static enum lossd_status fill_ranks(Lossd__V1__Group *message, const struct group_view *view, struct arena *arena,
                                    struct lossd_error *err)
{
    Lossd__V1__RankStatus *ranks = arena_calloc(arena, view->world_size, sizeof *ranks);

    message->ranks = arena_calloc(arena, view->world_size, sizeof(Lossd__V1__RankStatus *));
    if (ranks == NULL || message->ranks == NULL)
        return arena_error(arena, "answer", err);
    for (uint32_t rank = 0; rank < view->world_size; rank++) {
        fill_rank(&ranks[rank], rank, &view->ranks[rank], view->taken_ns);
        message->ranks[rank] = &ranks[rank];
    }
    message->n_ranks = view->world_size;
    return LOSSD_OK;
}

/* Everything is copied: the message may outlive the view. */
static enum lossd_status group_to_message(const struct group_view *view, struct arena *arena,
                                          Lossd__V1__Group **message, struct lossd_error *err)
{
    static const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *made;
    ProtobufCMessage *config;
    Lossd__V1__Group *group;
    enum lossd_status status;

    status = message_decode(CODEC_PROTO, &lossd__v1__group_config__descriptor, view->config.bytes, view->config.size,
                            &limits, arena, &config, err);
    if (status == LOSSD_OK)
        status = rpc_new_message(arena, &lossd__v1__group__descriptor, &made, err);
    if (status != LOSSD_OK)
        return status;
    group = (Lossd__V1__Group *)made;
    group->name = arena_strndup(arena, view->name, strlen(view->name));
    group->has_generation = true;
    group->generation = view->generation;
    group->has_world_size = true;
    group->world_size = view->world_size;
    group->has_nnodes = true;
    group->nnodes = view->nnodes;
    group->config = (Lossd__V1__GroupConfig *)config;
    group->config_digest = arena_strndup(arena, view->digest, strlen(view->digest));
    group->has_steps_done = true;
    group->steps_done = view->steps.done;
    group->has_all_reduces = true;
    group->all_reduces = view->all_reduces;
    if (group->name == NULL || group->config_digest == NULL)
        return arena_error(arena, "answer", err);
    *message = group;
    return fill_ranks(group, view, arena, err);
}

RPC_HANDLER(rpc_get_group)
{
    const Lossd__V1__GetGroupRequest *message = (const Lossd__V1__GetGroupRequest *)request;
    Lossd__V1__GetGroupResponse *answer;
    struct group_view view;
    enum lossd_status status;

    rpc_note_caller(submission, message->group, 0);
    if (message->group == NULL)
        return rpc_field_absent(err, "group");
    status = rpc_new_message(&submission->arena, &lossd__v1__get_group_response__descriptor, response, err);
    if (status != LOSSD_OK)
        return status;
    status = registry_view(context->registry, message->group, &view, err);
    if (status != LOSSD_OK)
        return status;
    answer = (Lossd__V1__GetGroupResponse *)*response;
    status = group_to_message(&view, &submission->arena, &answer->group, err);
    group_view_finish(&view);
    return status;
}

static enum lossd_status groups_to_message(const struct group_view *views, size_t count, struct arena *arena,
                                           Lossd__V1__ListGroupsResponse *answer, struct lossd_error *err)
{
    answer->groups = arena_calloc(arena, count, sizeof(Lossd__V1__Group *));
    if (answer->groups == NULL)
        return arena_error(arena, "answer", err);
    for (size_t i = 0; i < count; i++) {
        const enum lossd_status status = group_to_message(&views[i], arena, &answer->groups[i], err);

        if (status != LOSSD_OK)
            return status;
    }
    answer->n_groups = count;
    return LOSSD_OK;
}

RPC_HANDLER(rpc_list_groups)
{
    struct group_view *views;
    size_t count;
    enum lossd_status status;

    (void)request;
    status = rpc_new_message(&submission->arena, &lossd__v1__list_groups_response__descriptor, response, err);
    if (status != LOSSD_OK)
        return status;
    status = registry_view_all(context->registry, &views, &count, err);
    if (status != LOSSD_OK)
        return status;
    status = groups_to_message(views, count, &submission->arena, (Lossd__V1__ListGroupsResponse *)*response, err);
    for (size_t i = 0; i < count; i++)
        group_view_finish(&views[i]);
    free(views);
    return status;
}
