/* The handlers behind the table of rpc.c; their contract is that of rpc_method.handle. */
#ifndef TRANSPORT_RPC_HANDLERS_H
#define TRANSPORT_RPC_HANDLERS_H

#include "transport/rpc.h"

#define RPC_HANDLER(name)                                                                                              \
    enum lossd_status name(struct rpc_context *context, const ProtobufCMessage *request,                               \
                           struct submission *submission, ProtobufCMessage **response, struct lossd_error *err)

RPC_HANDLER(rpc_announce_counts);
RPC_HANDLER(rpc_compute_loss);
RPC_HANDLER(rpc_join_group);
RPC_HANDLER(rpc_leave_group);
RPC_HANDLER(rpc_get_group);
RPC_HANDLER(rpc_list_groups);
RPC_HANDLER(rpc_health_check);

/*
 * A message of this type in the arena, initialised. LOSSD_LIMIT_EXCEEDED (metadata "limit": "memory_bytes") where the
 * arena is full; written on success only.
 */
CHECK_RESULT
enum lossd_status rpc_new_message(struct arena *arena, const ProtobufCMessageDescriptor *descriptor,
                                  ProtobufCMessage **message, struct lossd_error *err);

/* Group and rank for the log line of the call; group may be NULL or no name at all. */
void rpc_note_caller(struct submission *submission, const char *group, uint32_t rank);

/* LOSSD_INVALID_ARGUMENT for a field that has to be there. */
enum lossd_status rpc_field_absent(struct lossd_error *err, const char *field);

#endif
