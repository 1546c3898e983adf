/*
 * A batch in the block as a ComputeLossRequest, and the response back into the block. Columns of binary32 rows that
 * lie together are sent from where they are; others are gathered and converted first, exactly. Gradients come as
 * binary32 and are rounded to their type.
 */
#ifndef CLIENT_RPC_BATCH_H
#define CLIENT_RPC_BATCH_H

#include "client/transport.h"
#include "lossd/v1/loss.pb-c.h"

struct rpc_batch {
    Lossd__V1__ComputeLossRequest request;
    Lossd__V1__TaskBatch tasks[MAX_TASKS];
    Lossd__V1__TaskBatch *task_pointers[MAX_TASKS];
    float *gathered; /* logits that do not lie as they are sent; kept between calls */
    size_t gathered_capacity;
};

/* Fill batch->request for a call. It points into the block and the member. OUT_OF_MEMORY. */
enum lossd_code rpc_batch_fill(struct rpc_batch *batch, const struct transport *transport, const struct call *call,
                               struct lossd_failure *failure);

/* Gradients into the block, all else into *answer. INTERNAL where it is no answer to this call. */
enum lossd_code rpc_batch_take(const Lossd__V1__ComputeLossResponse *response, const struct transport *transport,
                               const struct call *call, const struct answer *answer, struct lossd_failure *failure);

/* Takes a zeroed one, too. */
void rpc_batch_finish(struct rpc_batch *batch);

#endif
