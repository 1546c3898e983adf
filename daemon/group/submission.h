/*
 * One ComputeLoss in flight. A submission has one owner at a time: the transport that makes it, the group while it is
 * parked, a compute thread, the transport again when done() has been called. Hand-over is under the group's lock.
 */
#ifndef GROUP_SUBMISSION_H
#define GROUP_SUBMISSION_H

#include "base/arena.h"
#include "base/status.h"
#include "batch/batch.h"
#include "batch/result.h"
#include "loss/loss.h"
#include "loss/rescale.h"

struct group;

struct submission {
    /* Set by the transport. */
    struct arena arena; /* everything below that is a pointer lives here */
    char group_name[NAME_MAX_LENGTH + 1];
    uint32_t rank;
    bool has_rank;
    bool has_step;
    uint64_t step;
    bool has_generation;
    uint64_t generation;
    struct batch batch;
    int64_t deadline_ns; /* of the call; NO_DEADLINE for none */

    /*
     * Called exactly once for every submission that registry_submit took, with error.status set: LOSSD_OK and result,
     * or an error. On any thread, without locks held; the submission is the transport's again. Must not block.
     */
    void (*done)(struct submission *submission);
    void *owner; /* the transport's */

    struct lossd_error error;
    struct result result; /* until submission_finish: its strings are those of the group's config */

    /* Set by the group. */
    struct group *group; /* referenced from registry_submit to submission_finish; written under the registry's lock */
    bool is_cancelled;   /* the client went before the submission was parked */
    struct prepared_batch prepared;
    struct totals totals;
    struct submission *next; /* in the compute queue */
};

/*
 * Empty, but for no deadline, with an empty arena; done and owner are the caller's to set. Takes any memory, and writes
 * no more of it than has to be: errors and totals are kilobytes.
 */
void submission_init(struct submission *submission, size_t arena_limit_bytes, struct memory_budget *budget);

/*
 * As submission_finish, but the memory of the arena stays, for the next call of the same transport; all else is as
 * after submission_init, but for done and owner.
 */
void submission_reset(struct submission *submission);

/*
 * Drops the arena and the group, which dies here if it is an old generation: result and batch are gone, error stays.
 * When the result has been encoded; once for each registry_submit at least. May be called again.
 */
void submission_finish(struct submission *submission);

#endif
