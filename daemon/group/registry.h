/*
 * Groups by name, and the entry to them for transports. A `struct group` is one generation: its config and world size
 * never change; joining anew makes another one under the same name.
 *
 * Every function may be called on any thread. One that completes a step computes small batches of it, of any rank,
 * before it returns: some 100 us and 200 KiB of stack. registry_tick never does: the thread that keeps the time has to
 * be on time.
 */
#ifndef GROUP_REGISTRY_H
#define GROUP_REGISTRY_H

#include "base/arena.h"
#include "group/group.h"
#include "group/submission.h"

struct registry;
struct engine; /* collective/engine.h */

struct registry_settings {
    uint32_t max_groups;
    uint32_t max_ranks;
    struct batch_limits batch_limits;
    unsigned compute_threads;    /* >= 1 */
    const struct engine *engine; /* of all groups; NULL: the one that fits each */
};

/* Starts the compute pool. NULL, with err, where threads or memory can't be had. */
struct registry *registry_create(const struct registry_settings *settings, struct lossd_error *err);

/* Stops the pool. Every submission has to be done: call registry_close and wait for the answers first. Takes NULL. */
void registry_destroy(struct registry *registry);

/*
 * A group of the configuration file: exists without members, its ranks need not join, and its name is never freed.
 * config is taken over on success. LOSSD_INVALID_ARGUMENT (name, world_size), LOSSD_INVALID_CONFIG (config…),
 * LOSSD_LIMIT_EXCEEDED.
 */
CHECK_RESULT
enum lossd_status registry_declare(struct registry *registry, const char *name, uint32_t world_size,
                                   struct owned_config *config, struct lossd_error *err);

struct join_request {
    const char *group;
    bool has_rank; /* absent: 0, in a world of one */
    uint32_t rank;
    bool has_world_size;
    uint32_t world_size;
    bool has_local_world_size;
    uint32_t local_world_size;
    uint32_t nnodes;
    uint32_t node_rank;
    struct owned_config *config; /* NULL where absent: declared groups only */
    bool has_instance;
    uint64_t instance;
};

struct join_answer {
    uint64_t generation;
    char digest[65];
};

/*
 * Become a member. request->config is taken over (and set to NULL) where it becomes the group's; otherwise it stays the
 * caller's.
 *
 * LOSSD_INVALID_ARGUMENT  group, world_size, local_world_size, nnodes, node_rank, config: absent or out of range;
 *                         rank: absent where the world is larger than 1
 * LOSSD_RANK_RANGE        rank >= world_size (metadata "world_size")
 * LOSSD_LIMIT_EXCEEDED    groups, ranks (metadata "limit")
 * LOSSD_NOT_SUPPORTED     nnodes: no engine for several nodes
 * LOSSD_CONFIG_DIGEST_MISMATCH  world_size, nnodes, or "config" where the digests differ (metadata "mine",
 *                         "first_seen"); then *first_seen is a copy of the group's serialized config, for the caller to
 *                         find the field and to free
 * LOSSD_INVALID_CONFIG    config…: of the first member, as loss_plan_init
 * LOSSD_SHUTTING_DOWN
 *
 * A rank that was a member, and brings no instance or another one, or had left, begins the next generation: its config
 * and world size count then (a declared group keeps its own), and open calls of the old one end as stale.
 * So does any rank that was no member where all who came are dead (RANK_DEAD), or dead and left: what they have sent is
 * of a run that is over. Where one member lives, or never had a connection whose end could be seen, it does not; and
 * the same instance comes back into its generation even when all members are seen dead.
 */
CHECK_RESULT
enum lossd_status registry_join(struct registry *registry, struct join_request *request, struct join_answer *answer,
                                struct config_blob *first_seen, struct lossd_error *err);

/* A call's address: which group and rank it is for. */
struct address {
    const char *group;
    bool has_rank; /* absent: 0, in a world of one */
    uint32_t rank;
    bool has_generation;
    uint64_t generation;
};

/* What a transport with a connection for each rank has to know about its rank's group. */
struct attached_task {
    char name[NAME_MAX_LENGTH + 1];
    uint32_t num_class;
    uint32_t num_losses;
};

struct attachment {
    uint64_t generation;
    char digest[65];
    uint32_t num_tasks;
    struct attached_task tasks[MAX_TASKS]; /* [num_tasks] in the order of the config */
    uint64_t token;                        /* of this attachment, for registry_detach */
};

/*
 * A connection speaks for this rank from now on, and its end will be the rank's: as long as it lives the rank is not
 * dead. A later attachment of the same rank takes its place. Fails as registry_leave; *attachment is written on
 * success.
 */
CHECK_RESULT
enum lossd_status registry_attach(struct registry *registry, const struct address *address,
                                  struct attachment *attachment, struct lossd_error *err);

/*
 * The connection of an attachment has ended. Where it is still the rank's last attachment, in the generation that it
 * was made in, and the rank has not left, the rank is dead (RANK_DEAD), until it attaches, joins or calls again. What
 * it has contributed stays; its open calls are the transport's to cancel, before this. Ranks that wait for a step that
 * a dead rank has not contributed to, now or later, are answered at once, as at the step timeout, with the dead as the
 * missing.
 */
void registry_detach(struct registry *registry, const struct address *address, uint64_t token);

/*
 * Leave for good; to leave twice is a success. The name is free when no member is left, whether or not all ranks had
 * come; a declared group begins a new generation when all its ranks have left.
 *
 * LOSSD_INVALID_ARGUMENT (group absent), LOSSD_GROUP_NOT_FOUND (metadata "group"), LOSSD_STALE_GENERATION (metadata
 * "generation"), LOSSD_RANK_RANGE (metadata "world_size"), LOSSD_RANK_NOT_JOINED. All calls below can fail with these.
 */
CHECK_RESULT
enum lossd_status registry_leave(struct registry *registry, const struct address *address, struct lossd_error *err);

/*
 * As step_announce, and LOSSD_STEP_RANGE (metadata "limit"), LOSSD_ANNOUNCE_NEEDS_BATCH, LOSSD_LIMIT_EXCEEDED,
 * LOSSD_INVALID_ARGUMENT (candidates without requests).
 */
CHECK_RESULT
enum lossd_status registry_announce(struct registry *registry, const struct address *address, uint64_t step,
                                    uint32_t requests, uint32_t candidates, struct lossd_error *err);

/*
 * Check, count and park a batch; done() is called when there is an answer, maybe before this returns.
 * A transport that parks connections has to do so before this call.
 *
 * Ends as step_submit says, or with an error of the address (LOSSD_INVALID_ARGUMENT, field "rank", where it is absent
 * and the world larger than 1), of the step (LOSSD_STEP_RANGE) or of the batch (as batch_check). The last, where group,
 * rank and step are right, poisons the step for its peers; a lack of memory (LOSSD_LIMIT_EXCEEDED, metadata "limit"
 * "memory_bytes") does not.
 */
void registry_submit(struct registry *registry, struct submission *submission);

/*
 * The client of a submission is gone. Where the submission waits, done() is called with LOSSD_CLIENT_GONE before this
 * returns; where registry_submit has not parked it yet, it ends so instead of being parked. Its contribution counts in
 * both cases. Where it is being computed or done, nothing happens.
 * The caller makes sure that the submission is not finished meanwhile.
 */
void registry_cancel(struct registry *registry, struct submission *submission);

/* Run the clocks of all groups; returns when to call again at the latest (monotonic, NO_DEADLINE for no need). */
int64_t registry_tick(struct registry *registry, int64_t now_ns);

/*
 * Called when the answer of registry_tick may have become earlier; any thread, must not block or call back (write to an
 * eventfd). Set once, before the first submission.
 */
void registry_on_deadline(struct registry *registry, void (*wake)(void *context), void *context);

/* A copy of what a group is and does; owned by the caller until group_view_finish. */
CHECK_RESULT
enum lossd_status registry_view(struct registry *registry, const char *name, struct group_view *view,
                                struct lossd_error *err);

/* All groups by name: *views [*count], from malloc. LOSSD_INTERNAL where memory is out. */
CHECK_RESULT
enum lossd_status registry_view_all(struct registry *registry, struct group_view **views, size_t *count,
                                    struct lossd_error *err);

/* Refuse joins from now on (LOSSD_SHUTTING_DOWN); steps go on. */
void registry_drain(struct registry *registry);

/* End every open call with LOSSD_SHUTTING_DOWN and refuse new ones. */
void registry_close(struct registry *registry);

/* Open submissions, parked and computing. 0 after registry_close and a while. */
size_t registry_open_submissions(struct registry *registry);

#endif
