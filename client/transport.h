/*
 * The way of batches to the daemon and of answers back. One transport holds the memory that the columns of all slots
 * lie in, its block: the daemon's own where memory is shared. A transport never tries again: it says that the
 * connection is lost (failure_is_of_connection), and reconnect.c does the rest. A wait may end as INTERRUPTED: a call
 * then stays open, and receive may be called again.
 *
 * One thread at a time.
 */
#ifndef CLIENT_TRANSPORT_H
#define CLIENT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/interrupt.h"
#include "client/layout.h"
#include "client/lossd.h"

/* Who this process is for the daemon; the same object for the life of a membership, the generation changes. */
struct member {
    char group[64];
    uint32_t rank;
    uint64_t generation;
    char config_digest[65];
    const struct group_config *config;
    size_t num_terms; /* losses of all tasks */
};

/* One ComputeLoss from one slot: what is sent, and again where it has to be. */
struct call {
    uint32_t slot; /* its columns lie at block + slot * slot_bytes */
    const struct batch_layout *layout;
    const struct lossd_task *tasks; /* [T]; has_log_scale and log_scale are read */
    bool has_step;
    uint64_t step;
    uint32_t requests;
    uint32_t candidates;
    float gradient_scale;
    bool skip_gradient;
};

/* Where an answer goes: arrays of the slot, [T] and [terms], names filled in already. */
struct answer {
    struct lossd_result *result;
    struct lossd_task_result *tasks;
    struct lossd_term *terms;
};

struct transport;

struct transport_ops {
    enum lossd_transport kind;

    /*
     * Connect where that is needed, and have a block of data_bytes, a multiple of slot_bytes. Its first bytes are those
     * of the block before; with the same size it stays at its address. No call is open, or the connection was lost.
     * The block is as it was where this fails.
     */
    enum lossd_code (*attach)(struct transport *transport, uint64_t data_bytes, struct lossd_failure *failure);

    /* AnnounceCounts. Deadlines are monotonic; NO_DEADLINE for none. */
    enum lossd_code (*announce)(struct transport *transport, uint64_t step, uint32_t requests, uint32_t candidates,
                                int64_t deadline_ns, struct lossd_failure *failure);

    /* Begin a call, of which the daemon is told its deadline. Nothing can go wrong yet: receive says so. */
    void (*send)(struct transport *transport, const struct call *call, int64_t deadline_ns);

    /*
     * Wait for its answer, until ANSWER_GRACE_MS after the deadline. The same call and deadline as send had. Gradients
     * then lie in the block. answer NULL: drop it.
     */
    enum lossd_code (*receive)(struct transport *transport, const struct call *call, const struct answer *answer,
                               int64_t deadline_ns, struct lossd_failure *failure);

    /* The block goes, too. */
    void (*destroy)(struct transport *transport);
};

struct transport {
    const struct transport_ops *ops;
    const struct member *member;
    uint8_t *block;
    uint64_t data_bytes;         /* of the block */
    uint64_t slot_bytes;         /* set by whoever lays out the slots */
    struct interrupt *interrupt; /* set by whoever makes it; NULL: nobody is asked */
    uint64_t patience_ms;        /* the same: with a daemon that has only to answer; 0: 10 s */
};

/* The daemon ends a call at its deadline, and says more about it than we could: that answer is worth waiting for. */
enum { ANSWER_GRACE_MS = 1000 };

struct rpc;

/* HTTP, in the codec of rpc; rpc and member are borrowed. NULL where memory is out. */
struct transport *rpc_transport_create(struct rpc *rpc, const struct member *member);

/* Shared memory. path: of the SEQPACKET socket, borrowed. num_slots: without the one for announcements. */
struct transport *shm_transport_create(const char *path, const struct member *member, uint32_t num_slots, bool no_spin);

#endif
