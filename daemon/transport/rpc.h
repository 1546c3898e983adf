/*
 * The methods of the services, one row each, between messages and the registry. Knows neither HTTP nor a codec: a
 * handler gets a decoded message and makes a response message, or a submission that will wait.
 */
#ifndef TRANSPORT_RPC_H
#define TRANSPORT_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "group/registry.h"
#include "group/submission.h"

/* Longest deadline of a call: above the longest step timeout, far below what the clock can't add. */
#define RPC_MAX_TIMEOUT_MS (UINT64_C(25) * 3600 * 1000)

/*
 * What a call may hold in its arena once every array has the length that the batch asks for, so that one that grows
 * ends at its own limit and not at everybody's budget: so much, and so many bytes for each that it came with. The
 * largest honest growth is 12: a one-byte session id becomes eight bytes and a row in its list.
 */
enum { RPC_ARENA_BASE_BYTES = 64 << 20, RPC_ARENA_BYTES_PER_BYTE = 24 };

/* What handlers work on; read only but for draining. */
struct rpc_context {
    struct registry *registry;
    uint32_t max_tasks;
    uint32_t max_losses;
    atomic_bool draining; /* health says NOT_SERVING */
};

struct rpc_method {
    const char *path; /* "/lossd.v1.LossService/ComputeLoss" */
    const ProtobufCMessageDescriptor *request;
    bool allows_get; /* no side effects */
    bool parks;      /* handle fills the submission and leaves *response alone: submit it, then rpc_finish */
    /*
     * request, *response  of the method's types; the response lies in submission->arena, where request lies too.
     * Any failure is in *err. Any thread.
     */
    enum lossd_status (*handle)(struct rpc_context *context, const ProtobufCMessage *request,
                                struct submission *submission, ProtobufCMessage **response, struct lossd_error *err);
};

/* At most COUNTERS_METHODS rows. */
extern const struct rpc_method rpc_methods[];
extern const size_t rpc_num_methods;

/* By the path as sent, byte for byte; NULL for others. */
const struct rpc_method *rpc_find(const char *path);

/* The response of a parked submission that is done: its error, or the result as a message in its arena. */
CHECK_RESULT
enum lossd_status rpc_finish(struct submission *submission, ProtobufCMessage **response, struct lossd_error *err);

/*
 * Whoever finds an arena full takes it for a limit (LOSSD_LIMIT_EXCEEDED): where the same submission may go through
 * when there is more memory its error becomes LOSSD_OVERLOADED.
 *
 * held_bytes    what the call holds of the budget beside its arena.
 * budget_bytes  the limit of the budget.
 */
void rpc_tell_shortage(struct submission *submission, size_t held_bytes, size_t budget_bytes);

#endif
