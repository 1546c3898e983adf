#include "transport/rpc.h"

#include <stdio.h>
#include <string.h>

#include "base/counters.h"
#include "grpc/health/v1/health.pb-c.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"
#include "transport/rpc_handlers.h"

const struct rpc_method rpc_methods[] = {
    {"/lossd.v1.LossService/AnnounceCounts", &lossd__v1__announce_counts_request__descriptor, false, false,
     rpc_announce_counts},
    {"/lossd.v1.LossService/ComputeLoss", &lossd__v1__compute_loss_request__descriptor, false, true, rpc_compute_loss},
    {"/lossd.v1.GroupService/JoinGroup", &lossd__v1__join_group_request__descriptor, false, false, rpc_join_group},
    {"/lossd.v1.GroupService/LeaveGroup", &lossd__v1__leave_group_request__descriptor, false, false, rpc_leave_group},
    {"/lossd.v1.GroupService/GetGroup", &lossd__v1__get_group_request__descriptor, true, false, rpc_get_group},
    {"/lossd.v1.GroupService/ListGroups", &lossd__v1__list_groups_request__descriptor, true, false, rpc_list_groups},
    {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor, true, false,
     rpc_health_check},
};
const size_t rpc_num_methods = sizeof rpc_methods / sizeof rpc_methods[0];

_Static_assert(sizeof rpc_methods / sizeof rpc_methods[0] <= COUNTERS_METHODS, "each method has its counters");

const struct rpc_method *rpc_find(const char *path)
{
    for (size_t i = 0; i < rpc_num_methods; i++)
        if (strcmp(rpc_methods[i].path, path) == 0)
            return &rpc_methods[i];
    return NULL;
}

void rpc_note_caller(struct submission *submission, const char *group, uint32_t rank)
{
    if (group != NULL && name_is_valid(group))
        (void)snprintf(submission->group_name, sizeof submission->group_name, "%s", group);
    submission->rank = rank;
}

enum lossd_status rpc_field_absent(struct lossd_error *err, const char *field)
{
    return error_set(err, LOSSD_INVALID_ARGUMENT, field, "is absent");
}

enum lossd_status rpc_new_message(struct arena *arena, const ProtobufCMessageDescriptor *descriptor,
                                  ProtobufCMessage **message, struct lossd_error *err)
{
    ProtobufCMessage *made = arena_alloc(arena, descriptor->sizeof_message);

    if (made == NULL)
        return arena_error(arena, "answer", err);
    protobuf_c_message_init(descriptor, made);
    *message = made;
    return LOSSD_OK;
}

/* Whether the call would fit into the budget if no other held a part of it. */
static bool fits_alone(const struct arena *arena, size_t held_bytes, size_t budget_bytes)
{
    const size_t held = held_bytes + arena->used_bytes;

    return held <= budget_bytes && arena->refused_bytes <= budget_bytes - held;
}

void rpc_tell_shortage(struct submission *submission, size_t held_bytes, size_t budget_bytes)
{
    const struct arena *arena = &submission->arena;
    struct lossd_error *err = &submission->error;

    if (err->status != LOSSD_LIMIT_EXCEEDED)
        return;
    if (arena->is_out_of_memory) {
        (void)error_set(err, LOSSD_OVERLOADED, "", "the daemon is out of memory");
    } else if (arena->refused_bytes > 0 && fits_alone(arena, held_bytes, budget_bytes)) {
        (void)error_set(err, LOSSD_OVERLOADED, "", "the call needs more memory than is left of memory_bytes");
        error_add_metadata(err, "limit", "memory_bytes");
    }
}

RPC_HANDLER(rpc_health_check)
{
    const Grpc__Health__V1__HealthCheckRequest *check = (const Grpc__Health__V1__HealthCheckRequest *)request;
    const char *service = check->service == NULL ? "" : check->service;
    Grpc__Health__V1__HealthCheckResponse *answer;
    enum lossd_status status;

    if (strcmp(service, "") != 0 && strcmp(service, "lossd.v1.LossService") != 0 &&
        strcmp(service, "lossd.v1.GroupService") != 0)
        return error_set(err, LOSSD_SERVICE_NOT_FOUND, "service", "names no service of this daemon");
    status = rpc_new_message(&submission->arena, &grpc__health__v1__health_check_response__descriptor, response, err);
    if (status != LOSSD_OK)
        return status;
    answer = (Grpc__Health__V1__HealthCheckResponse *)*response;
    answer->has_status = true;
    answer->status = atomic_load(&context->draining)
                         ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
                         : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    return LOSSD_OK;
}
