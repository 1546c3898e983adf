/*
 * A generation as the registry drives it. Every event takes the group's lock, runs the step machine, and hands what it
 * leaves to be done in an outcome: the caller computes and answers when no lock is held.
 */
#ifndef GROUP_GROUP_INTERNAL_H
#define GROUP_GROUP_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "collective/comm.h"
#include "collective/engine.h"
#include "group/group.h"
#include "group/submission.h"

/* Submissions that an event has set free, in order; and whether the clock has to look earlier than it meant to. */
struct outcome {
    struct submission *first_compute;
    struct submission *last_compute;
    struct submission *first_ended; /* error is set */
    struct submission *last_ended;
    bool wake;
};

void outcome_add_ended(struct outcome *outcome, struct submission *submission);

/* A config that the generations of a declared group share. */
struct shared_config {
    atomic_uint references;
    struct owned_config *owned;
};

/* Takes over owned; NULL where memory is out, then it is the caller's still. */
struct shared_config *shared_config_create(struct owned_config *owned);
struct shared_config *shared_config_ref(struct shared_config *config);
void shared_config_unref(struct shared_config *config);

struct member {
    bool joined;
    bool left;
    bool has_instance;
    uint64_t instance;
    uint64_t attachment; /* token of the connection whose end is the rank's; 0 for none */
};

struct group_settings {
    const char *name; /* valid */
    uint64_t generation;
    uint32_t world_size; /* >= 1 */
    uint32_t nnodes;
    uint32_t node_rank;
    bool is_declared;
    struct batch_limits limits;
    const struct engine *engine; /* NULL: the one that fits */
};

struct group {
    char name[NAME_MAX_LENGTH + 1];
    uint64_t generation;
    uint32_t world_size; /* W */
    uint32_t nnodes;
    bool is_declared; /* its ranks need not join */
    struct batch_limits limits;
    struct shared_config *config;
    struct arena arena; /* of the plan */
    struct loss_plan plan;
    atomic_uint references;

    /* Under the registry's lock. */
    char began[96];         /* what ended the generation before this one; "" where there was none */
    struct member *members; /* [W] */
    uint32_t num_members;   /* joined and not left */

    /* Under this lock, which is taken after the registry's where both are. */
    pthread_mutex_t lock;
    struct step_machine **machines; /* one; with global_average off one of world size 1 for each rank */
    uint32_t num_machines;
    struct comm *comm; /* NULL with global_average off */
    double *vector;    /* [vector_size] of a reduce */
    size_t vector_size;
    int64_t armed_ns; /* when group_tick is called next at the latest */
};

/*
 * A generation without members, with one reference. config is referenced on success.
 * LOSSD_INVALID_CONFIG (field "config…"), LOSSD_NOT_SUPPORTED (nnodes), LOSSD_LIMIT_EXCEEDED, LOSSD_INTERNAL.
 */
CHECK_RESULT
enum lossd_status group_create(const struct group_settings *settings, struct shared_config *config, int64_t now_ns,
                               struct group **group, struct lossd_error *err);

struct group *group_ref(struct group *group);

/* The last one frees it. Takes NULL. */
void group_unref(struct group *group);

void group_joined(struct group *group, uint32_t rank, int64_t now_ns);

/* A connection speaks for the rank; that connection is gone. */
void group_attached(struct group *group, uint32_t rank, int64_t now_ns);
void group_died(struct group *group, uint32_t rank, int64_t now_ns, struct outcome *outcome);

/*
 * Whether no rank can be one of a trainer that runs: each is dead, has left or never came, and one at least is dead.
 * Only connections die; a member that has none lives, as far as can be known. The registry's lock is held.
 */
bool group_is_dead(struct group *group);

/* True where all ranks have left. */
bool group_leave(struct group *group, uint32_t rank, int64_t now_ns, struct outcome *outcome);

CHECK_RESULT
enum lossd_status group_announce(struct group *group, uint32_t rank, uint64_t step, uint32_t requests,
                                 uint32_t candidates, int64_t now_ns, struct outcome *outcome, struct lossd_error *err);

/* Check, count and park, or answer in outcome. submission->rank is right. */
void group_submit(struct group *group, struct submission *submission, struct outcome *outcome);

/* End a parked submission as LOSSD_CLIENT_GONE; one that is on its way to be parked ends so then. */
void group_cancel(struct group *group, struct submission *submission, int64_t now_ns, struct outcome *outcome);

/* Returns when to call again at the latest. */
int64_t group_tick(struct group *group, int64_t now_ns, struct outcome *outcome);

/* All calls end with this error, and so do later ones. */
void group_close(struct group *group, const struct lossd_error *why, int64_t now_ns, struct outcome *outcome);

/* LOSSD_INTERNAL where memory is out. blob's bytes are the caller's, from malloc. */
CHECK_RESULT
enum lossd_status group_copy_config(const struct group *group, struct config_blob *blob, struct lossd_error *err);

/* The same; the view is the caller's until group_view_finish. */
CHECK_RESULT
enum lossd_status group_fill_view(struct group *group, struct group_view *view, struct lossd_error *err);

/* rescale and run the losses of a submission whose totals are there; no lock. */
void submission_compute(struct submission *submission);

#endif
