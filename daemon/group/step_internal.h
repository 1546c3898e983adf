/*
 * The parts of the step machine among themselves; others include group/step.h.
 *
 * step.c          what a rank sends: rules 1 to 5
 * step_attempt.c  reduces and their verdicts: rules 6 to 9, 15
 * step_calls.c    open calls, their deadlines, the queue of actions: rule 12
 * step_history.c  kept totals: rule 10
 * step_ranks.c    what each rank has in, and counts over ranks
 * step_error.c    the errors
 * step_verdict.c  who shares them
 */
#ifndef GROUP_STEP_INTERNAL_H
#define GROUP_STEP_INTERNAL_H

#include "base/clock.h"
#include "group/step.h"

/*
 * What a rank has to do with a step. The first three are its unreduced contribution (live). The last two are open: the
 * rank may still send the step, so that it counts for no later one before it does, or goes on to a batch of a later
 * one.
 */
enum slot_kind {
    SLOT_FREE,
    SLOT_ANNOUNCED, /* live: the promise is in, a good batch is not */
    SLOT_BATCH,     /* live: the batch was good; its call is open, or has ended early */
    SLOT_REFUSED,   /* live: zeros and a reason */
    SLOT_OWED,      /* done from a promise; the batch is still to come */
    SLOT_UNTOLD,    /* open: failed, and the rank does not know yet */
    SLOT_VOID, /* open: announced ahead of a step that failed, and dropped with it; or told, and a later one is in */
};

struct slot {
    enum slot_kind kind;
    bool promised;             /* the contribution was announced */
    bool in_reduce;            /* of the attempt whose reduce runs: may not change any more */
    enum lossd_status refusal; /* of the last batch, where that was bad */
    uint64_t step;
    int64_t arrived_ns;
    double *contribution;    /* [D] */
    step_call *call;         /* open, or NULL */
    int64_t deadline_ns;     /* of the call */
    struct verdict *verdict; /* UNTOLD: what to tell */
};

enum { MAX_SLOTS = 2 };

struct rank {
    struct slot slots[MAX_SLOTS]; /* used ones first, by rising step */
    bool joined;
    bool left;
    bool dead;        /* rule 15 */
    bool is_missing;  /* in the attempt whose reduce runs */
    bool was_present; /* between rank_changing and rank_changed */
    enum rank_state state;
    int64_t since_ns;
};

/* An error that several calls and ranks share. NULL stands for the one that there was no memory for. */
struct verdict {
    size_t references;
    struct lossd_error error;
};

struct verdict *verdict_new(void);
struct verdict *verdict_ref(struct verdict *verdict); /* takes NULL */
void verdict_unref(struct verdict *verdict);          /* takes NULL */
const struct lossd_error *verdict_error(const struct verdict *verdict);

/* A done step. */
struct kept {
    uint64_t step;
    double *sums;           /* [D] */
    uint64_t *fingerprints; /* [W] of each rank's contribution */
    bool *answered;         /* [W] */
};

struct history {
    struct kept steps[STEP_HISTORY]; /* a ring: the n-th done step is in n % STEP_HISTORY */
    uint64_t num_done;
    uint64_t last_step; /* of the last done one, where num_done > 0 */
    double *sums;
    uint64_t *fingerprints;
    bool *answered;
};

/* An action that was not fetched yet. */
struct pending {
    enum step_action_kind kind;
    step_call *call;
    uint32_t rank;
    uint64_t step;
    bool replayed;
    const struct kept *kept;
    struct verdict *verdict;
};

struct step_machine {
    struct step_settings settings;
    struct rank *ranks;    /* [W] */
    double *contributions; /* [W, MAX_SLOTS, D] */

    /* Kept up to date by rank_changing and rank_changed. "Lowest" is rank_lowest. */
    uint32_t num_left;
    uint32_t num_dead;        /* and not left */
    uint32_t num_present;     /* ranks that are not left and have a lowest one */
    uint32_t num_waiting;     /* of them: the lowest has an open call */
    uint64_t anchor;          /* some step, */
    uint32_t num_at_anchor;   /* and how many have it as their lowest: the same as num_present where all steps agree */
    int64_t first_arrival_ns; /* not later than the first arrival of a lowest one */
    int64_t next_call_ns;     /* not later than the first deadline of an open call */
    size_t num_calls;         /* open ones */

    bool reducing;
    uint64_t reduced_step; /* lowest of the attempt whose reduce runs */
    struct history history;
    struct step_counters counters;
    bool closed;
    struct verdict *why_closed;

    struct pending *pending; /* ring [max_pending] */
    size_t max_pending;
    size_t first_pending;
    size_t num_pending;
    struct verdict *told; /* of the action that was fetched last */
    struct totals totals; /* of the same */

    bool *flags; /* [W] scratch of the errors */
};

/* step_calls.c */

void action_push(struct step_machine *machine, const struct pending *action);

/* End the open call of a slot, where there is one, with a share of the verdict. */
void call_end(struct step_machine *machine, uint32_t rank, struct slot *slot, struct verdict *verdict);

/* The same because of a later call of the rank, for by_step. */
void call_supersede(struct step_machine *machine, uint32_t rank, struct slot *slot, uint64_t by_step);

/* Answer a call, which is not counted as open any more, from kept totals. */
void call_compute(struct step_machine *machine, uint32_t rank, step_call *call, struct kept *kept);

/* step_attempt.c */

/*
 * Start the reduce where each rank is there and they agree, or all of them wait and don't (rule 6), or some wait in
 * vain (rule 15).
 */
void reduce_if_complete(struct step_machine *machine);

/* Start it with whoever is there. None may be running. is_late: all others are missing; otherwise only the dead. */
void start_reduce(struct step_machine *machine, bool is_late);

/* step_ranks.c */

bool slot_is_live(const struct slot *slot);
void slot_free(struct slot *slot);

/* The slot of a step; NULL for none. */
struct slot *rank_find(struct rank *rank, uint64_t step);

/* The live slot that a rank counts with: its lowest, unless an earlier step is open. NULL where it counts with none. */
struct slot *rank_lowest(struct rank *rank);

/* The highest live one, whatever is open below it. */
struct slot *rank_highest(struct rank *rank);

/* Free slots to the end. */
void rank_sort(struct rank *rank);

/* Whether rank_open would find room without dropping what the rank still counts on. */
bool rank_has_room(const struct rank *rank, uint64_t step);

/* The slot of a step, made where it isn't there; what is untold of later steps is dropped, it is out of date. */
struct slot *rank_open(struct rank *rank, uint64_t step);

/* Around each change of a rank's slots: keeps the counts of the machine and the state of the rank. */
void rank_changing(struct step_machine *machine, struct rank *rank);
void rank_changed(struct step_machine *machine, struct rank *rank, int64_t now_ns);

/* O(W): give the anchor to the step of some present rank. */
void ranks_find_anchor(struct step_machine *machine);

/* O(W): the first arrival of a lowest one, exactly. */
void ranks_find_first_arrival(struct step_machine *machine);

/* step_history.c */

bool history_init(struct history *history, const struct step_settings *settings);
void history_finish(struct history *history);

/* NULL where the step is not done, or not kept any more. */
struct kept *history_find(struct history *history, uint64_t step);

/* Keep the totals of a step above all others. Fingerprints are the caller's to fill. */
struct kept *history_add(struct history *history, const struct step_settings *settings, uint64_t step,
                         const double *sums);

uint64_t fingerprint(const double *contribution, uint32_t num_denominators);

/* step_error.c */

/* Step plus one of a rank in a summed vector, 0 for none, and its reason. */
uint64_t table_step(const struct step_machine *machine, const double *vector, uint32_t rank);
unsigned table_reason(const struct step_machine *machine, const double *vector, uint32_t rank);

/* The verdict on an attempt that can't be done. */
void error_from_table(struct step_machine *machine, const double *vector, struct lossd_error *err);

/* For a call whose own deadline is over while the step waits. */
void error_peer_wait(struct step_machine *machine, uint64_t step, struct lossd_error *err);

enum lossd_status error_out_of_order(struct lossd_error *err, uint64_t expected, uint64_t got);
enum lossd_status error_conflict(struct lossd_error *err, uint64_t step, bool is_done);
enum lossd_status error_too_early(struct lossd_error *err, const struct rank *rank, uint64_t step);

#endif
