/*
 * Unary Connect calls to the daemon, and the ones that a membership needs. The answer of a call lies in the arena of
 * the rpc until the next call.
 *
 * Failures of the way: CANNOT_CONNECT, CONNECTION_LOST, NO_ANSWER, INTERRUPTED, OUT_OF_MEMORY; INTERNAL for an answer
 * that no lossd gives. All others are the daemon's.
 */
#ifndef CLIENT_RPC_H
#define CLIENT_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "batch/group_config.h"
#include "client/http_client.h"
#include "client/lossd.h"

struct rpc {
    struct http_client *http;
    char address[512];    /* for messages */
    bool is_json;         /* JSON instead of protobuf */
    uint64_t patience_ms; /* with a daemon that does not let us connect, or that has only to answer; 10 s at first */
    struct arena arena;
};

/* Reaches nobody yet. ca_file: "" for the system's. BAD_ADDRESS, OUT_OF_MEMORY. */
enum lossd_code rpc_open(const char *address, const char *ca_file, struct rpc **rpc, struct lossd_failure *failure);

/* Takes NULL. */
void rpc_close(struct rpc *rpc);

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;

/* method: "LossService/ComputeLoss". timeout_ms: told to the daemon; 0 for none. */
enum lossd_code rpc_call(struct rpc *rpc, const char *method, const struct ProtobufCMessage *request,
                         const struct ProtobufCMessageDescriptor *output, uint64_t timeout_ms,
                         struct ProtobufCMessage **answer, struct lossd_failure *failure);

/* What an answer other than 200 says. Returns its code, which is never OK. */
enum lossd_code failure_from_response(struct lossd_failure *failure, const struct http_response *response,
                                      const char *address);

/*
 * A config in JSON: as a message for rpc_join (*message), and as plain data. Both lie in the arena.
 * BAD_CONFIG, field "config.tasks[0]…".
 */
enum lossd_code config_from_json(const char *json, struct arena *arena, const void **message,
                                 struct group_config *config, struct lossd_failure *failure);

/*
 * The other way round, with all defaults: JSON in one line, in the arena. OUT_OF_MEMORY.
 */
enum lossd_code config_to_json(const struct group_config *config, struct arena *arena, const char **json,
                               struct lossd_failure *failure);

struct joined {
    uint64_t generation;
    char config_digest[65];
};

/* config_message: of config_from_json, or NULL. */
enum lossd_code rpc_join(struct rpc *rpc, const struct lossd_membership *me, const void *config_message,
                         struct joined *joined, struct lossd_failure *failure);

enum lossd_code rpc_leave(struct rpc *rpc, const char *group, uint32_t rank, uint64_t generation,
                          struct lossd_failure *failure);

struct group_facts {
    uint64_t generation;
    bool has_joined; /* this rank, at any time in this generation */
};

/* config, arena: both NULL, or where the group's config goes. */
enum lossd_code rpc_get_group(struct rpc *rpc, const char *group, uint32_t rank, struct group_facts *facts,
                              struct arena *arena, struct group_config *config, struct lossd_failure *failure);

enum lossd_code rpc_announce(struct rpc *rpc, const char *group, uint32_t rank, uint64_t generation, uint64_t step,
                             uint32_t requests, uint32_t candidates, uint64_t timeout_ms,
                             struct lossd_failure *failure);

#endif
