/*
 * The steps of one generation of one group: who has contributed what to which step, when the reduce starts, who is
 * answered how. A pure state machine: events in, actions out; no socket, thread or clock. Time comes with the events.
 *
 * The rules (numbers are used in the sources and tests):
 *   1  A rank's contribution to a step is its denominators. It comes with the batch, or before it by an announcement.
 *   2  A rank contributes in rising step order, and may announce one step ahead of the batch that it still owes: it has
 *      two steps open at most. Its batch of a later step drops what it contributed to earlier unreduced ones; its open
 *      call for them ends as SUPERSEDED.
 *   3  Until the reduce of the step starts, a new contribution of a rank replaces its old one, and a new call the open
 *      one (SUPERSEDED). From then on the contribution has to be equal, else that call alone is refused.
 *   4  A bad batch that brings its own contribution contributes zeros and a reason; it was answered already and may be
 *      replaced until the reduce starts.
 *   5  An announced contribution is a promise: a bad batch then concerns its rank alone. A batch with other counts ends
 *      the promise.
 *   6  Step s is reduced when it is the lowest unreduced step of each rank. Where the lowest steps differ and every
 *      rank waits in an open call, it is reduced at once (desync); at the step timeout, counted from the first arrival
 *      of what is in now, or from the end of the attempt before where that is later, with the absent marked missing.
 *      A rank that left counts as there, with reason left.
 *   7  One reduce per attempt. Its vector: the denominators, then step + 1 of each rank, then the reason of each rank.
 *   8  All steps equal and no reason: done. Otherwise every open call is ended with an error from this table.
 *   9  A failed step is not spent. The contributions of the attempt are dropped, and what its ranks had announced
 *      ahead; batches bring their own contributions. A rank that contributed and has not been told is told by its next
 *      call for that step, whose batch then does not count, unless it has sent a batch of a later step. A rank counts
 *      for no later step before it has been told, or while a step that it announced and that was dropped is still to
 *      come: so no step is done while a rank may still send the one before. A rank that came after the reduce began
 *      is in the next attempt.
 *  10  The totals of the last 64 done steps are kept. Gradients are always computed from kept totals. Whether a repeat
 *      brings the same contribution is told by a 64-bit fingerprint per rank and step: different contributions pass as
 *      equal with a chance of 2^-64, and then only their own rank's answer is scaled by totals that it is not in.
 *  12  A call that ends early (its deadline, its client gone) leaves its contribution.
 *  15  A rank whose process is gone is dead until it is heard of again. What it has contributed stays, so that it holds
 *      up nothing that it is in. A call that waits for another step than the lowest of a dead rank waits in vain: an
 *      attempt with what is in starts at once, now or when the call comes. It marks the dead rank missing, with the
 *      step that it is at, if any; ranks that live and have not come yet have neither step nor reason in its table, and
 *      find the same when they call. An announcement alone starts nothing.
 *
 * Not thread-safe: the group's lock is held around every call.
 */
#ifndef GROUP_STEP_H
#define GROUP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "loss/rescale.h"

enum { STEP_HISTORY = 64 };

/* Steps are below 2^53, so that they survive binary64 and JavaScript. */
#define STEP_LIMIT (UINT64_C(1) << 53)

/* Why an attempt can't be done; what a rank writes into the table. 0: nothing is wrong with it. */
enum step_reason {
    STEP_REASON_NONE,
    STEP_REASON_MISSING, /* did not come, or is dead and not at the step that others wait for */
    STEP_REASON_LEFT,
    STEP_REASON_REFUSED, /* + the status of the refusal: REFUSED + LOSSD_NONFINITE_LOGITS, … */
};

/* What a rank is seen doing; for status and for errors that name the missing. */
enum rank_state {
    RANK_NEVER_JOINED,
    RANK_IDLE,
    RANK_ANNOUNCED,
    RANK_WAITING,
    RANK_REFUSED,
    RANK_LEFT,
    RANK_DEAD, /* its process is gone */
};

struct rank_view {
    enum rank_state state;
    bool has_last_step;
    uint64_t last_step; /* last done one that it was in */
    bool has_at_step;
    uint64_t at_step; /* lowest unreduced one that it has contributed to */
    int64_t since_ns; /* when it came into this state */
};

struct step_settings {
    uint32_t world_size;       /* W >= 1; this node holds all of them */
    uint32_t num_denominators; /* D */
    int64_t step_timeout_ns;
    int64_t first_step_timeout_ns; /* until the first step is done */
};

/*
 * A call that waits. The machine only keeps the pointer and gives it back in exactly one action, COMPUTE or FAIL
 * (unless submit refused it, or step_cancel took it out).
 */
typedef void step_call;

enum step_action_kind {
    STEP_ACTION_NONE,
    STEP_ACTION_REDUCE,  /* sum step_vector() over the nodes, then step_reduced() or step_reduce_failed() */
    STEP_ACTION_COMPUTE, /* answer call from totals */
    STEP_ACTION_FAIL,    /* answer call with error */
};

struct step_action {
    enum step_action_kind kind;
    step_call *call;
    uint32_t rank;
    uint64_t step;
    bool replayed;                   /* COMPUTE: this rank was answered before */
    const struct totals *totals;     /* COMPUTE: valid until the next call of step_next_action */
    const struct lossd_error *error; /* FAIL: the same */
};

struct step_machine;

/*
 * NULL where memory is out. All memory but that of errors is taken here, O(W * D) and 64 times D doubles and W
 * fingerprints; pages are touched as steps come.
 */
struct step_machine *step_create(const struct step_settings *settings, int64_t now_ns);

/* Takes NULL. No call may be open: end them first (step_close). */
void step_destroy(struct step_machine *machine);

/* A rank has become a member: idle instead of never joined. */
void step_joined(struct step_machine *machine, uint32_t rank, int64_t now_ns);

/*
 * Rule 1, early. contribution [D]. Refused at once with
 *   LOSSD_STEP_OUT_OF_ORDER   the step is below an unreduced one that the rank has contributed to, or below the last
 *                             done one and not kept (metadata "expected_step", "got_step")
 *   LOSSD_ANNOUNCE_TOO_EARLY  the rank already has two steps open
 *   LOSSD_STEP_PAYLOAD_CONFLICT  the reduce has started, or is done, with another contribution
 *   the error of a failed step that the rank has not been told (rule 9)
 *   LOSSD_RANK_LEFT           the rank has left
 * LOSSD_OK for a repeated equal announcement, of done steps too. May leave actions.
 */
CHECK_RESULT
enum lossd_status step_announce(struct step_machine *machine, uint32_t rank, uint64_t step, const double *contribution,
                                int64_t now_ns, struct lossd_error *err);

/*
 * A checked batch. contribution [D]; call is parked until an action gives it back. Refused at once, with the call not
 * taken, as step_announce (but for TOO_EARLY). May leave actions, also for this call: a kept step is answered at once.
 * deadline_ns  of the call, NO_DEADLINE for none: it then ends with LOSSD_PEER_WAIT_DEADLINE.
 */
CHECK_RESULT
enum lossd_status step_submit(struct step_machine *machine, uint32_t rank, uint64_t step, const double *contribution,
                              step_call *call, int64_t deadline_ns, int64_t now_ns, struct lossd_error *err);

/*
 * A batch that was refused with this status (rule 4, or 5 where the rank had announced the step). The caller answers it
 * itself. Until the reduce starts, an open call of the rank for the same step ends as SUPERSEDED. Counts for nothing
 * where the step is done, out of order, in a running reduce, or failed and the rank has not been told. May leave
 * actions.
 */
void step_refuse(struct step_machine *machine, uint32_t rank, uint64_t step, enum lossd_status status, int64_t now_ns);

/* The rank leaves: its open calls end with LOSSD_RANK_LEFT, its unreduced contributions go. May leave actions. */
void step_leave(struct step_machine *machine, uint32_t rank, int64_t now_ns);

/*
 * The rank's process is gone (rule 15), which nothing but a departure outlasts. Its open calls are not ended here: they
 * are for whoever knows that their client is gone. May leave actions.
 */
void step_died(struct step_machine *machine, uint32_t rank, int64_t now_ns);

/* It is not, or is back. So say step_joined, step_announce, step_submit, step_refuse and step_leave too. */
void step_heard(struct step_machine *machine, uint32_t rank, int64_t now_ns);

/* All ranks have left. */
bool step_all_left(const struct step_machine *machine);

/* The client of a call is gone. True where the call was open: it gets no action any more and is the caller's again. */
bool step_cancel(struct step_machine *machine, uint32_t rank, const step_call *call, int64_t now_ns);

/* Time has passed: ends calls, starts the reduce of a step whose timeout is over. May leave actions. */
void step_tick(struct step_machine *machine, int64_t now_ns);

/* When step_tick may have something to do; NO_DEADLINE for never. It may turn out to have nothing to do yet. */
int64_t step_next_deadline(const struct step_machine *machine);

/* Every open call ends with this error; later announcements and batches are refused with it (a new generation, a stop).
 */
void step_close(struct step_machine *machine, const struct lossd_error *why, int64_t now_ns);

/* Whether a call is open or a reduce is on its way. */
bool step_is_busy(const struct step_machine *machine);

/* The next thing to do, oldest first; kind NONE where nothing is left. Drain after every event. */
struct step_action step_next_action(struct step_machine *machine);

/* Length of the vector: D + 2 W. */
size_t step_vector_size(const struct step_settings *settings);

/* REDUCE: this node's part, [step_vector_size], written by the machine. */
void step_fill_vector(const struct step_machine *machine, double *vector);

/* The summed vector. May leave actions. */
void step_reduced(struct step_machine *machine, const double *vector, int64_t now_ns);

/* The engine failed: an attempt that failed with this error. */
void step_reduce_failed(struct step_machine *machine, const struct lossd_error *why, int64_t now_ns);

/*
 * Step that an absent step number stands for, world size 1 only: the lowest announced one whose batch is owed, else the
 * one after the last that was done or is being reduced, or 0.
 */
uint64_t step_count_on(const struct step_machine *machine);

/* For status. */
struct step_counters {
    uint64_t done;
    uint64_t failed;
    uint64_t aborted;
};
struct step_counters step_counters(const struct step_machine *machine); /* all_reduces = done + failed + aborted */
struct rank_view step_rank_view(const struct step_machine *machine, uint32_t rank);

/*
 * Compressed list of ranks: "0-3,7". flags [count], true where the rank is in it. Written NUL-terminated and cut at a
 * whole entry where size does not suffice.
 */
void step_format_ranks(const bool *flags, uint32_t count, char *text, size_t size);

#endif
