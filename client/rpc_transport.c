/* Batches over HTTP: a call is one POST, made when its answer is waited for. The block is plain memory. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/failure.h"
#include "client/rpc.h"
#include "client/rpc_batch.h"
#include "lossd_shm.h"

struct rpc_transport {
    struct transport base;
    struct rpc *rpc; /* borrowed */
    struct rpc_batch batch;
};

static struct rpc_transport *of(struct transport *transport)
{
    return (struct rpc_transport *)transport;
}

/* HTTP connects by itself. */
static enum lossd_code attach(struct transport *transport, uint64_t data_bytes, struct lossd_failure *failure)
{
    const uint64_t kept = data_bytes < transport->data_bytes ? data_bytes : transport->data_bytes;
    uint8_t *block;

    if (data_bytes == transport->data_bytes)
        return LOSSD_CODE_OK;
    block = aligned_alloc(LOSSD_SHM_ALIGNMENT, data_bytes);
    if (block == NULL)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out for batches of %llu bytes",
                           (unsigned long long)data_bytes);
    if (kept > 0)
        memcpy(block, transport->block, kept);
    memset(block + kept, 0, data_bytes - kept);
    free(transport->block);
    transport->block = block;
    transport->data_bytes = data_bytes;
    return LOSSD_CODE_OK;
}

/* 0 for none; where it is over, the daemon still says how things stand. */
static uint64_t remaining_ms(int64_t deadline_ns)
{
    const int64_t remaining_ns = deadline_ns == NO_DEADLINE ? 0 : deadline_ns - clock_now_ns();

    if (deadline_ns == NO_DEADLINE)
        return 0;
    return remaining_ns < NS_PER_MS ? 1 : (uint64_t)(remaining_ns / NS_PER_MS);
}

static enum lossd_code announce(struct transport *transport, uint64_t step, uint32_t requests, uint32_t candidates,
                                int64_t deadline_ns, struct lossd_failure *failure)
{
    const struct member *member = transport->member;

    return rpc_announce(of(transport)->rpc, member->group, member->rank, member->generation, step, requests, candidates,
                        remaining_ms(deadline_ns), failure);
}

static void send_nothing_yet(struct transport *transport, const struct call *call, int64_t deadline_ns)
{
    (void)transport;
    (void)call;
    (void)deadline_ns;
}

static enum lossd_code receive(struct transport *transport, const struct call *call, const struct answer *answer,
                               int64_t deadline_ns, struct lossd_failure *failure)
{
    struct rpc_batch *batch = &of(transport)->batch;
    enum lossd_code code = rpc_batch_fill(batch, transport, call, failure);
    ProtobufCMessage *response;

    if (code == LOSSD_CODE_OK)
        code = rpc_call(of(transport)->rpc, "LossService/ComputeLoss", &batch->request.base,
                        &lossd__v1__compute_loss_response__descriptor, remaining_ms(deadline_ns), &response, failure);
    if (code != LOSSD_CODE_OK || answer == NULL)
        return code;
    return rpc_batch_take((const Lossd__V1__ComputeLossResponse *)response, transport, call, answer, failure);
}

static void destroy(struct transport *transport)
{
    rpc_batch_finish(&of(transport)->batch);
    free(transport->block);
    free(transport);
}

static const struct transport_ops protobuf_ops = {
    LOSSD_TRANSPORT_HTTP_PROTOBUF, attach, announce, send_nothing_yet, receive, destroy,
};

static const struct transport_ops json_ops = {
    LOSSD_TRANSPORT_HTTP_JSON, attach, announce, send_nothing_yet, receive, destroy,
};

struct transport *rpc_transport_create(struct rpc *rpc, const struct member *member)
{
    struct rpc_transport *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->base.ops = rpc->is_json ? &json_ops : &protobuf_ops;
    made->base.member = member;
    made->rpc = rpc;
    return &made->base;
}
