/* Unary Connect calls to the daemon, and the methods that this program knows. */
#ifndef LOSSCTL_RPC_H
#define LOSSCTL_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "client/http_client.h"
#include "codec/message.h"
#include "lossctl/command.h"
#include "lossctl/failure.h"

/* The services of the schema. *count is set to their number. */
const ProtobufCServiceDescriptor *const *rpc_services(size_t *count);

/*
 * name  "LossService/ComputeLoss" or "lossd.v1.LossService/ComputeLoss".
 * service, method  written where there is one. False for others.
 */
bool rpc_find(const char *name, const ProtobufCServiceDescriptor **service, const ProtobufCMethodDescriptor **method);

struct rpc_connection {
    const char *address; /* borrowed */
    struct http_client *client;
    uint64_t timeout_ms; /* told to the daemon, which answers in time; 0 for none */
};

/* timeout_ms: the options' own, or fallback_ms where none was given. On failure nothing is open. */
bool rpc_open(const struct options *options, uint64_t fallback_ms, struct rpc_connection *connection,
              struct failure *failure);

/* Takes a zeroed one too. */
void rpc_close(struct rpc_connection *connection);

/*
 * One call, bytes in and bytes out. method: "lossd.v1.LossService/ComputeLoss". response, for http_response_finish, is
 * written on success; failure, for failure_finish, otherwise.
 */
bool rpc_call_bytes(const struct rpc_connection *connection, const char *method, enum codec_kind kind,
                    const uint8_t *body, size_t body_bytes, struct http_response *response, struct failure *failure);

/* One call, message in and message out, in protobuf. The answer lies in the arena. */
bool rpc_call(const struct rpc_connection *connection, const char *method, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *output, struct arena *arena, ProtobufCMessage **answer,
              struct failure *failure);

/* Print the failure as the options want it, and return its exit code. Finishes it. */
int rpc_failed(const struct options *options, struct failure *failure);

#endif
