/*
 * A daemon that went away, and comes back as another one.
 *
 * A daemon keeps nothing over a restart: neither groups nor steps. So the first of a group's ranks to come back makes
 * the group anew, the others join it, and each sends its last answered batch again, for a rank that was not answered
 * before the daemon went: all are at the same step then, or one apart, which the daemon tells them (STEP_DESYNC).
 *
 * That a daemon is another one is seen by what it says about the group: it does not know it, or knows it with a
 * generation that is not above ours, of which this rank is no member. A generation above ours is a group whose members
 * have joined anew: STALE_GENERATION, nothing is done about it.
 */
#ifndef CLIENT_RECONNECT_H
#define CLIENT_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lossd.h"

/* Waits between attempts: 10 ms, doubled up to 1 s, each times a number from [0.5, 1.5) that differs by client. */
struct backoff {
    uint64_t random;
    int64_t interval_ns;
};

/* seed: any number. */
void backoff_init(struct backoff *backoff, uint64_t seed);
/* Begin with the shortest again. */
void backoff_restart(struct backoff *backoff);
int64_t backoff_next_ns(struct backoff *backoff);

/* From when the daemon was lost until it has answered a call, or been there for a second: one that only comes and goes
 * is one outage. */
struct outage {
    struct backoff backoff;
    int64_t since_ns;  /* of this outage, or the one before */
    int64_t up_ns;     /* when the link came up last */
    unsigned attempts; /* in this outage */
    bool is_over;      /* or given up: the next attempt begins another one */
};

/* The next attempt begins another outage, with all of its time. */
void outage_end(struct outage *outage);

/*
 * Have a connection on which this rank is a member: nothing to do where there is one. Where the connection was lost,
 * or the daemon does not know this rank, look who is there, join again where it is another daemon, attach again, and
 * mark what has to be sent again; for reconnect_ms at most, and not beyond deadline_ns. CONNECTION_LOST,
 * STALE_GENERATION, CONFIG_DIGEST_MISMATCH, what JoinGroup fails with. For a daemon that answers and means what it said
 * (LINK_DOUBTFUL, and nothing has changed) client->failure stays, and its code is returned: so call this right after
 * client_lost_link. The link is UP or DOWN afterwards; no failure is kept for the next call.
 */
enum lossd_code client_connect(struct lossd_client *client, int64_t deadline_ns);

/*
 * The same with something else to try, until it is done or fails for good. LINK_UP where it is done. CANNOT_CONNECT
 * where this client has not joined.
 */
enum lossd_code client_persist(struct lossd_client *client, enum lossd_code (*attempt)(struct lossd_client *client),
                               int64_t deadline_ns);

/* A call has ended with client->failure. True where the link is lost, so that it is to be made again. */
bool client_lost_link(struct lossd_client *client);

#endif
