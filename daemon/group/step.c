/* What a rank sends, and what the rules make of it (1 to 5, 9 and 10 of group/step.h). */
#include "group/step.h"

#include <string.h>

#include "group/step_internal.h"

static bool has_contribution(const struct step_machine *machine, const struct slot *slot, const double *contribution)
{
    if (slot->kind == SLOT_REFUSED || !slot_is_live(slot))
        return false;
    for (uint32_t d = 0; d < machine->settings.num_denominators; d++)
        if (slot->contribution[d] != contribution[d])
            return false;
    return true;
}

static void contribute(const struct step_machine *machine, struct slot *slot, enum slot_kind kind,
                       const double *contribution, int64_t now_ns)
{
    const size_t bytes = machine->settings.num_denominators * sizeof *contribution;

    if (!slot_is_live(slot))
        slot->arrived_ns = now_ns;
    slot->kind = kind;
    if (contribution != NULL)
        memcpy(slot->contribution, contribution, bytes);
    else
        memset(slot->contribution, 0, bytes);
}

/* Rule 9. The step stays open where a later one is in: it may be sent again, and is below that one. */
static enum lossd_status tell(struct step_machine *machine, struct rank *rank, struct slot *slot, int64_t now_ns,
                              struct lossd_error *err)
{
    const uint64_t step = slot->step;

    error_copy(err, verdict_error(slot->verdict));
    rank_changing(machine, rank);
    slot_free(slot);
    if (slot == &rank->slots[0] && rank->slots[1].kind != SLOT_FREE) {
        slot->kind = SLOT_VOID;
        slot->step = step;
    }
    rank_sort(rank);
    rank_changed(machine, rank, now_ns);
    return err->status;
}

/* Rule 2: the rank is at a later step already, and has not this one open. */
static bool is_passed(struct rank *rank, uint64_t step)
{
    const struct slot *highest = rank_highest(rank);

    return highest != NULL && step < highest->step && rank_find(rank, step) == NULL;
}

/* Whether a rank may contribute this to the step at all; kept is set where that is done. */
static enum lossd_status check_order(struct step_machine *machine, uint32_t r, uint64_t step,
                                     const double *contribution, struct kept **kept, int64_t now_ns,
                                     struct lossd_error *err)
{
    struct rank *rank = &machine->ranks[r];
    struct slot *slot = rank_find(rank, step);

    if (machine->closed) {
        error_copy(err, verdict_error(machine->why_closed));
        return err->status;
    }
    if (rank->left)
        return error_set(err, LOSSD_RANK_LEFT, "rank", "has left the group");
    *kept = history_find(&machine->history, step);
    if (*kept != NULL) {
        if ((*kept)->fingerprints[r] == fingerprint(contribution, machine->settings.num_denominators))
            return LOSSD_OK;
        return error_conflict(err, step, true);
    }
    if (slot != NULL && slot->kind == SLOT_UNTOLD)
        return tell(machine, rank, slot, now_ns, err);
    if (machine->history.num_done > 0 && step < machine->history.last_step)
        return error_out_of_order(err, machine->history.last_step + 1, step);
    if (is_passed(rank, step))
        return error_out_of_order(err, rank_highest(rank)->step, step);
    if (slot != NULL && slot->in_reduce && slot->kind != SLOT_REFUSED && !has_contribution(machine, slot, contribution))
        return error_conflict(err, step, false);
    return LOSSD_OK;
}

enum lossd_status step_announce(struct step_machine *machine, uint32_t r, uint64_t step, const double *contribution,
                                int64_t now_ns, struct lossd_error *err)
{
    struct rank *rank = &machine->ranks[r];
    struct kept *kept = NULL;
    struct slot *slot;
    enum lossd_status status;

    step_heard(machine, r, now_ns);
    status = check_order(machine, r, step, contribution, &kept, now_ns, err);
    if (status != LOSSD_OK || kept != NULL)
        return status;
    slot = rank_find(rank, step);
    if (slot != NULL && has_contribution(machine, slot, contribution)) {
        slot->promised = true;
        return LOSSD_OK;
    }
    if (slot != NULL && slot->in_reduce)
        return error_conflict(err, step, false);
    if (!rank_has_room(rank, step))
        return error_too_early(err, rank, step);
    rank_changing(machine, rank);
    slot = rank_open(rank, step);
    call_supersede(machine, r, slot, step);
    contribute(machine, slot, SLOT_ANNOUNCED, contribution, now_ns);
    slot->promised = true;
    slot->refusal = LOSSD_OK;
    rank_changed(machine, rank, now_ns);
    reduce_if_complete(machine);
    return LOSSD_OK;
}

/* Rule 2: a batch, good or bad, ends what the rank has below its step. A running reduce keeps its contribution. */
static void drop_below(struct step_machine *machine, uint32_t r, uint64_t step)
{
    struct rank *rank = &machine->ranks[r];

    for (int i = 0; i < MAX_SLOTS; i++) {
        struct slot *slot = &rank->slots[i];

        if (slot->kind == SLOT_FREE || slot->step >= step)
            continue;
        call_supersede(machine, r, slot, step);
        if (!slot->in_reduce)
            slot_free(slot);
    }
    rank_sort(rank);
}

/* Rule 10: a done step is answered at once; the rank does not owe its batch, or those before it, any more. */
static void answer_kept(struct step_machine *machine, uint32_t r, struct kept *kept, step_call *call, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];

    call_compute(machine, r, call, kept);
    rank_changing(machine, rank);
    for (int i = 0; i < MAX_SLOTS; i++)
        if (rank->slots[i].kind == SLOT_OWED && rank->slots[i].step <= kept->step)
            slot_free(&rank->slots[i]);
    rank_sort(rank);
    rank_changed(machine, rank, now_ns);
}

static void park(struct step_machine *machine, struct slot *slot, step_call *call, int64_t deadline_ns)
{
    slot->call = call;
    slot->deadline_ns = deadline_ns;
    machine->num_calls++;
    if (deadline_ns < machine->next_call_ns)
        machine->next_call_ns = deadline_ns;
}

enum lossd_status step_submit(struct step_machine *machine, uint32_t r, uint64_t step, const double *contribution,
                              step_call *call, int64_t deadline_ns, int64_t now_ns, struct lossd_error *err)
{
    struct rank *rank = &machine->ranks[r];
    struct kept *kept = NULL;
    struct slot *slot;
    enum lossd_status status;

    step_heard(machine, r, now_ns);
    status = check_order(machine, r, step, contribution, &kept, now_ns, err);
    if (status != LOSSD_OK)
        return status;
    if (kept != NULL) {
        answer_kept(machine, r, kept, call, now_ns);
        return LOSSD_OK;
    }
    rank_changing(machine, rank);
    drop_below(machine, r, step);
    slot = rank_open(rank, step);
    call_supersede(machine, r, slot, step);
    /* A refused batch of a running reduce can't be replaced: the call waits for the error of the attempt. */
    if (!slot->in_reduce || slot->kind != SLOT_REFUSED) {
        slot->promised = slot->promised && has_contribution(machine, slot, contribution);
        slot->refusal = LOSSD_OK;
        contribute(machine, slot, SLOT_BATCH, contribution, now_ns);
    }
    park(machine, slot, call, deadline_ns);
    rank_changed(machine, rank, now_ns);
    reduce_if_complete(machine);
    return LOSSD_OK;
}

/* Whether a bad batch changes what is in: not where rule 3, 9 or 10 would have refused, told or answered a good one. */
static bool refusal_counts(const struct step_machine *machine, struct rank *rank, uint64_t step)
{
    const struct slot *slot = rank_find(rank, step);

    if (machine->closed || rank->left || (machine->history.num_done > 0 && step <= machine->history.last_step))
        return false;
    if (is_passed(rank, step))
        return false;
    return slot == NULL || (slot->kind != SLOT_UNTOLD && !slot->in_reduce);
}

void step_refuse(struct step_machine *machine, uint32_t r, uint64_t step, enum lossd_status status, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];
    struct slot *slot = rank_find(rank, step);
    const bool counts = refusal_counts(machine, rank, step);
    const bool is_promised = slot != NULL && (slot->kind == SLOT_OWED || (slot_is_live(slot) && slot->promised));

    step_heard(machine, r, now_ns);
    if (!counts && (!is_promised || slot->call != NULL))
        return;
    rank_changing(machine, rank);
    if (counts) {
        drop_below(machine, r, step);
        slot = rank_open(rank, step);
        call_supersede(machine, r, slot, step);
        if (is_promised)
            slot->kind = SLOT_ANNOUNCED;
        else
            contribute(machine, slot, SLOT_REFUSED, NULL, now_ns);
    }
    slot->refusal = status;
    rank_changed(machine, rank, now_ns);
    reduce_if_complete(machine);
}

static void set_dead(struct step_machine *machine, uint32_t r, bool dead, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];

    if (rank->left || rank->dead == dead)
        return;
    rank_changing(machine, rank);
    rank->dead = dead;
    rank_changed(machine, rank, now_ns);
}

void step_died(struct step_machine *machine, uint32_t r, int64_t now_ns)
{
    set_dead(machine, r, true, now_ns);
    reduce_if_complete(machine);
}

void step_heard(struct step_machine *machine, uint32_t r, int64_t now_ns)
{
    set_dead(machine, r, false, now_ns);
}

void step_leave(struct step_machine *machine, uint32_t r, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];
    struct verdict *verdict;

    if (machine->closed || rank->left)
        return;
    verdict = verdict_new();
    if (verdict != NULL)
        (void)error_set(&verdict->error, LOSSD_RANK_LEFT, "", "this rank left the group while its call waited");
    step_heard(machine, r, now_ns);
    rank_changing(machine, rank);
    for (int i = 0; i < MAX_SLOTS; i++) {
        call_end(machine, r, &rank->slots[i], verdict);
        if (!rank->slots[i].in_reduce)
            slot_free(&rank->slots[i]);
    }
    rank->left = true;
    rank_sort(rank);
    rank_changed(machine, rank, now_ns);
    verdict_unref(verdict);
    reduce_if_complete(machine);
}
