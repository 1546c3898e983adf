/* What is behind the handle of lossd.h: settings, membership, the ring of slots, the state of the connection. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/arena.h"
#include "client/options.h"
#include "client/reconnect.h"
#include "client/rpc.h"
#include "client/transport.h"

enum slot_state {
    SLOT_EMPTY,
    SLOT_FILLING, /* begun; the user writes */
    SLOT_OPEN,    /* submitted; the daemon reads */
    SLOT_DONE,    /* answered, or failed */
};

struct slot {
    struct lossd_batch batch; /* the user's */
    struct lossd_task *tasks; /* [T] */
    struct lossd_result result;
    struct lossd_task_result *task_results; /* [T] */
    struct lossd_term *terms;               /* [terms of all tasks] */
    struct batch_layout layout;
    enum slot_state state;
    struct call call;    /* of OPEN and DONE */
    bool is_sent;        /* to the daemon as it is now; OPEN alone */
    bool is_abandoned;   /* a wait for it was interrupted; OPEN alone */
    int64_t deadline_ns; /* of the call; NO_DEADLINE for none */
};

enum link_state {
    LINK_DOWN,     /* not connected, or lost: connect and see who is there */
    LINK_DOUBTFUL, /* the daemon answers, but does not know this rank as it should */
    LINK_UP,
};

struct lossd_client {
    struct settings settings;
    struct rpc *rpc;
    uint64_t instance; /* of the memberships that bring none: a join that failed half-way is then the same again */

    bool is_joined; /* what follows is there from joining on, and to be read until the next time or the end */
    struct lossd_membership me; /* with instance; config is not set */
    struct arena arena;         /* of the config; of the slots' arrays too */
    const void *config_message; /* for joining again; NULL where none was given */
    struct group_config config;
    const char *config_json; /* of config, all of it */
    struct member member;

    struct transport *transport;
    enum link_state link;
    struct outage outage;

    struct slot *slots; /* [settings.num_slots] */
    uint32_t next_slot; /* of the ring */
    struct slot *last;  /* answered last, and not begun anew since; NULL: none */
    bool owes_last;     /* the daemon is another one, which has to be sent last's batch again before anything else */
    bool repeats;       /* that is sent, and the wait for its answer was interrupted; owes_last alone */
    bool has_last_step;
    uint64_t last_step; /* answered last */
    bool counts_anew;   /* the daemon is another one, which does not count on from last_step yet */

    struct lossd_failure failure; /* of the call that runs */
};

/* Deadline of a call that begins now. */
int64_t client_deadline(const struct lossd_client *client);

/* What the user is told: code, and *failure where it is one. */
enum lossd_code client_end(const struct lossd_client *client, enum lossd_code code, struct lossd_failure *failure);

/* Everything of the membership is gone: transport, slots, config. Takes a client that has not joined. */
void client_forget(struct lossd_client *client);

/* The arrays of the slots for the config, none of them begun. OUT_OF_MEMORY. */
enum lossd_code slots_create(struct lossd_client *client);

/* Bytes of a slot for batches of the size that the settings expect and of this shape; 0 where they expect none. */
uint64_t slots_expected_bytes(const struct lossd_client *client, const struct lossd_shape *shape);

/*
 * Have no call in this slot for which a wait was interrupted: wait for its answer where the daemon still works on it.
 * Whatever that is, this succeeds, unless it is interrupted again.
 */
enum lossd_code client_settle(struct lossd_client *client, struct slot *slot);

/* What was answered last can't be sent again any more. */
void client_drop_last(struct lossd_client *client);

/*
 * Send what was answered last again, to a daemon that has begun anew; nobody waits for the answer, so that most
 * failures of it are none. client->failure otherwise: of the connection, or that the deadline is over.
 */
enum lossd_code client_repeat_last(struct lossd_client *client, int64_t deadline_ns);

#endif
