/* Attempts: when a reduce starts, what goes into it, and what its verdict does to each rank (rules 6 to 10). */
#include <string.h>

#include "group/step_internal.h"

/* Which steps open calls wait for. */
struct awaited {
    bool any;
    bool differ; /* more than one */
    uint64_t step;
};

/* Looked up only where somebody may wait in vain. */
static struct awaited find_awaited(struct step_machine *machine)
{
    struct awaited awaited = {0};

    if (machine->num_dead == 0 || machine->num_waiting == 0)
        return awaited;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const struct slot *lowest = rank_lowest(&machine->ranks[r]);

        if (machine->ranks[r].left || lowest == NULL || lowest->call == NULL)
            continue;
        awaited.differ = awaited.differ || (awaited.any && lowest->step != awaited.step);
        awaited.any = true;
        awaited.step = lowest->step;
    }
    return awaited;
}

/* Rule 15: it is dead and not at a step that is waited for. */
static bool is_awaited_in_vain(struct rank *rank, const struct awaited *awaited)
{
    const struct slot *lowest = rank_lowest(rank);

    return rank->dead && !rank->left && awaited->any &&
           (lowest == NULL || awaited->differ || lowest->step != awaited->step);
}

static bool some_wait_in_vain(struct step_machine *machine)
{
    const struct awaited awaited = find_awaited(machine);

    for (uint32_t r = 0; awaited.any && r < machine->settings.world_size; r++)
        if (is_awaited_in_vain(&machine->ranks[r], &awaited))
            return true;
    return false;
}

void start_reduce(struct step_machine *machine, bool is_late)
{
    const struct awaited awaited = find_awaited(machine);

    machine->reducing = true;
    machine->reduced_step = UINT64_MAX;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        struct rank *rank = &machine->ranks[r];
        struct slot *lowest = rank_lowest(rank);

        rank->is_missing = (is_late && lowest == NULL) || is_awaited_in_vain(rank, &awaited);
        if (rank->left || lowest == NULL)
            continue;
        lowest->in_reduce = true;
        if (lowest->step < machine->reduced_step)
            machine->reduced_step = lowest->step;
    }
    action_push(machine, &(struct pending){.kind = STEP_ACTION_REDUCE, .step = machine->reduced_step});
}

/* Rule 6. */
static bool is_complete(struct step_machine *machine)
{
    if (machine->num_present + machine->num_left < machine->settings.world_size)
        return false;
    if (machine->num_at_anchor == 0)
        ranks_find_anchor(machine);
    return machine->num_at_anchor == machine->num_present || machine->num_waiting == machine->num_present;
}

void reduce_if_complete(struct step_machine *machine)
{
    if (machine->reducing || machine->num_present == 0)
        return;
    if (is_complete(machine) || some_wait_in_vain(machine))
        start_reduce(machine, false);
}

size_t step_vector_size(const struct step_settings *settings)
{
    return settings->num_denominators + 2 * (size_t)settings->world_size;
}

void step_fill_vector(const struct step_machine *machine, double *vector)
{
    const uint32_t num_denominators = machine->settings.num_denominators;
    double *steps = vector + num_denominators;
    double *reasons = steps + machine->settings.world_size;

    memset(vector, 0, step_vector_size(&machine->settings) * sizeof *vector);
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        struct rank *rank = &machine->ranks[r];
        const struct slot *slot = rank_lowest(rank);

        reasons[r] = rank->is_missing ? STEP_REASON_MISSING : STEP_REASON_NONE;
        if (slot == NULL || !slot->in_reduce) {
            reasons[r] = rank->left ? STEP_REASON_LEFT : reasons[r];
            continue;
        }
        steps[r] = (double)(slot->step + 1);
        if (slot->kind == SLOT_REFUSED)
            reasons[r] = (double)(STEP_REASON_REFUSED + (int)slot->refusal);
        for (uint32_t d = 0; d < num_denominators; d++)
            vector[d] += slot->contribution[d];
    }
}

static bool table_is_done(const struct step_machine *machine, const double *vector)
{
    const uint64_t step = table_step(machine, vector, 0);

    for (uint32_t r = 0; r < machine->settings.world_size; r++)
        if (table_reason(machine, vector, r) != STEP_REASON_NONE || table_step(machine, vector, r) != step)
            return false;
    return step != 0;
}

/* It left, or sent a batch of a later step while the reduce ran. */
static bool has_moved_on(struct rank *rank, const struct slot *slot)
{
    const struct slot *highest = rank_highest(rank);

    return rank->left || (highest != slot && highest->kind != SLOT_ANNOUNCED);
}

/* A rank's part in a step that is done: its call is answered, or it owes its batch, or there is nothing left to do. */
static void settle_done(struct step_machine *machine, uint32_t r, struct slot *slot, struct kept *kept)
{
    kept->fingerprints[r] = fingerprint(slot->contribution, machine->settings.num_denominators);
    if (slot->call != NULL) {
        machine->num_calls--;
        call_compute(machine, r, slot->call, kept);
    } else if (slot->kind == SLOT_ANNOUNCED && !has_moved_on(&machine->ranks[r], slot)) {
        slot->kind = SLOT_OWED;
        slot->in_reduce = false;
        return;
    }
    slot_free(slot);
}

/* A rank's part in an attempt that failed: its call is ended, or it is told later where it has not gone on already. */
static void settle_failed(struct step_machine *machine, uint32_t r, struct slot *slot, struct verdict *verdict)
{
    struct slot *ahead = rank_highest(&machine->ranks[r]);
    const bool moved_on = has_moved_on(&machine->ranks[r], slot);

    if (ahead != slot && ahead->kind == SLOT_ANNOUNCED) {
        ahead->kind = SLOT_VOID;
        ahead->promised = false;
        ahead->refusal = LOSSD_OK;
    }
    if (slot->call != NULL || slot->kind == SLOT_REFUSED || moved_on) {
        call_end(machine, r, slot, verdict);
        slot_free(slot);
        return;
    }
    slot->kind = SLOT_UNTOLD;
    slot->in_reduce = false;
    slot->promised = false;
    slot->refusal = LOSSD_OK;
    slot->verdict = verdict_ref(verdict);
}

/* The attempt is over; kept where it is done, verdict where not. What is in already is the start of the next one. */
static void settle(struct step_machine *machine, struct kept *kept, struct verdict *verdict, int64_t now_ns)
{
    machine->reducing = false;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        struct rank *rank = &machine->ranks[r];
        struct slot *slot = rank_lowest(rank);

        rank_changing(machine, rank);
        if (slot != NULL && slot->in_reduce) {
            if (kept != NULL)
                settle_done(machine, r, slot, kept);
            else
                settle_failed(machine, r, slot, verdict);
            rank_sort(rank);
        }
        for (int i = 0; i < MAX_SLOTS; i++)
            if (slot_is_live(&rank->slots[i]))
                rank->slots[i].arrived_ns = now_ns;
        rank_changed(machine, rank, now_ns);
    }
    machine->first_arrival_ns = now_ns;
    reduce_if_complete(machine);
}

void step_reduced(struct step_machine *machine, const double *vector, int64_t now_ns)
{
    struct verdict *verdict;

    if (table_is_done(machine, vector)) {
        machine->counters.done++;
        settle(machine, history_add(&machine->history, &machine->settings, table_step(machine, vector, 0) - 1, vector),
               NULL, now_ns);
        return;
    }
    machine->counters.failed++;
    verdict = verdict_new();
    if (verdict != NULL)
        error_from_table(machine, vector, &verdict->error);
    settle(machine, NULL, verdict, now_ns);
    verdict_unref(verdict);
}

void step_reduce_failed(struct step_machine *machine, const struct lossd_error *why, int64_t now_ns)
{
    struct verdict *verdict = verdict_new();

    machine->counters.aborted++;
    if (verdict != NULL)
        error_copy(&verdict->error, why);
    settle(machine, NULL, verdict, now_ns);
    verdict_unref(verdict);
}
