/* LossService. */
#include <stdio.h>
#include <string.h>

#include "codec/convert.h"
#include "lossd/v1/loss.pb-c.h"
#include "transport/rpc_handlers.h"

RPC_HANDLER(rpc_announce_counts)
{
    const Lossd__V1__AnnounceCountsRequest *message = (const Lossd__V1__AnnounceCountsRequest *)request;
    const struct address address = {
        .group = message->group,
        .has_rank = message->has_rank,
        .rank = message->rank,
        .has_generation = message->has_generation,
        .generation = message->generation,
    };
    enum lossd_status status;

    rpc_note_caller(submission, message->group, message->rank);
    submission->step = message->step;
    if (message->group == NULL)
        return rpc_field_absent(err, "group");
    if (!message->has_rank)
        return rpc_field_absent(err, "rank");
    if (!message->has_step)
        return rpc_field_absent(err, "step");
    if (!message->has_requests)
        return rpc_field_absent(err, "requests");
    if (!message->has_candidates)
        return rpc_field_absent(err, "candidates");
    status = registry_announce(context->registry, &address, message->step, message->requests, message->candidates, err);
    if (status != LOSSD_OK)
        return status;
    return rpc_new_message(&submission->arena, &lossd__v1__announce_counts_response__descriptor, response, err);
}

RPC_HANDLER(rpc_compute_loss)
{
    const Lossd__V1__ComputeLossRequest *message = (const Lossd__V1__ComputeLossRequest *)request;

    (void)context;
    (void)response;
    if (message->group == NULL)
        return rpc_field_absent(err, "group");
    if (strlen(message->group) >= sizeof submission->group_name) {
        (void)error_set(err, LOSSD_GROUP_NOT_FOUND, "group", "is longer than the name of any group");
        error_add_metadata(err, "group", "%.*s", NAME_MAX_LENGTH, message->group);
        return LOSSD_GROUP_NOT_FOUND;
    }
    (void)snprintf(submission->group_name, sizeof submission->group_name, "%s", message->group);
    submission->has_rank = message->has_rank;
    submission->rank = message->rank;
    submission->has_step = message->has_step;
    submission->step = message->step;
    submission->has_generation = message->has_generation;
    submission->generation = message->generation;
    return batch_from_message(message, &submission->arena, &submission->batch, err);
}

enum lossd_status rpc_finish(struct submission *submission, ProtobufCMessage **response, struct lossd_error *err)
{
    Lossd__V1__ComputeLossResponse *answer;
    enum lossd_status status;

    if (submission->error.status != LOSSD_OK) {
        if (err != &submission->error)
            error_copy(err, &submission->error);
        return submission->error.status;
    }
    status = response_from_result(&submission->result, &submission->arena, &answer, err);
    if (status == LOSSD_OK)
        *response = &answer->base;
    return status;
}
