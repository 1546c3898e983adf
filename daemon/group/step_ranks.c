/*
 * What each rank has in, and the counts over ranks that tell without a look at all of them whether a step is complete.
 */

#include "group/step_internal.h"

bool slot_is_live(const struct slot *slot)
{
    return slot->kind == SLOT_ANNOUNCED || slot->kind == SLOT_BATCH || slot->kind == SLOT_REFUSED;
}

void slot_free(struct slot *slot)
{
    double *contribution = slot->contribution;

    verdict_unref(slot->verdict);
    *slot = (struct slot){.contribution = contribution};
}

struct slot *rank_find(struct rank *rank, uint64_t step)
{
    for (int i = 0; i < MAX_SLOTS; i++)
        if (rank->slots[i].kind != SLOT_FREE && rank->slots[i].step == step)
            return &rank->slots[i];
    return NULL;
}

struct slot *rank_lowest(struct rank *rank)
{
    for (int i = 0; i < MAX_SLOTS; i++) {
        struct slot *slot = &rank->slots[i];

        if (slot->kind != SLOT_OWED)
            return slot_is_live(slot) ? slot : NULL;
    }
    return NULL;
}

struct slot *rank_highest(struct rank *rank)
{
    for (int i = MAX_SLOTS - 1; i >= 0; i--)
        if (slot_is_live(&rank->slots[i]))
            return &rank->slots[i];
    return NULL;
}

void rank_sort(struct rank *rank)
{
    const struct slot first = rank->slots[0];
    const struct slot *second = &rank->slots[1];

    if (second->kind == SLOT_FREE || (first.kind != SLOT_FREE && first.step < second->step))
        return;
    rank->slots[0] = *second;
    rank->slots[1] = first;
}

/* Untold of a later step than the one that the rank is at. */
static bool is_out_of_date(const struct slot *slot, uint64_t step)
{
    return slot->kind == SLOT_UNTOLD && slot->step > step;
}

bool rank_has_room(const struct rank *rank, uint64_t step)
{
    for (int i = 0; i < MAX_SLOTS; i++)
        if (rank->slots[i].kind == SLOT_FREE || rank->slots[i].step == step || is_out_of_date(&rank->slots[i], step))
            return true;
    return false;
}

struct slot *rank_open(struct rank *rank, uint64_t step)
{
    struct slot *slot = rank_find(rank, step);

    if (slot != NULL)
        return slot;
    for (int i = 0; i < MAX_SLOTS; i++)
        if (is_out_of_date(&rank->slots[i], step))
            slot_free(&rank->slots[i]);
    rank_sort(rank);
    /* A batch goes first: what was announced behind it makes room, and can be announced again. */
    if (rank->slots[MAX_SLOTS - 1].kind != SLOT_FREE)
        slot_free(&rank->slots[MAX_SLOTS - 1]);
    rank->slots[MAX_SLOTS - 1].kind = SLOT_VOID;
    rank->slots[MAX_SLOTS - 1].step = step;
    rank_sort(rank);
    return rank_find(rank, step);
}

static enum rank_state rank_state_now(const struct rank *rank)
{
    if (rank->left)
        return RANK_LEFT;
    if (rank->dead)
        return RANK_DEAD;
    for (int i = 0; i < MAX_SLOTS; i++)
        if (rank->slots[i].call != NULL)
            return RANK_WAITING;
    for (int i = 0; i < MAX_SLOTS; i++) {
        if (rank->slots[i].refusal != LOSSD_OK)
            return RANK_REFUSED;
        if (slot_is_live(&rank->slots[i]) || rank->slots[i].kind == SLOT_OWED)
            return RANK_ANNOUNCED;
    }
    return rank->joined ? RANK_IDLE : RANK_NEVER_JOINED;
}

void rank_changing(struct step_machine *machine, struct rank *rank)
{
    const struct slot *lowest = rank_lowest(rank);

    rank->was_present = lowest != NULL;
    if (rank->left) {
        machine->num_left--;
        return;
    }
    machine->num_dead -= rank->dead;
    if (lowest == NULL)
        return;
    machine->num_present--;
    machine->num_waiting -= lowest->call != NULL;
    machine->num_at_anchor -= lowest->step == machine->anchor;
}

static void count_present(struct step_machine *machine, const struct slot *lowest)
{
    if (machine->num_present == 0) {
        machine->anchor = lowest->step;
        machine->first_arrival_ns = lowest->arrived_ns;
    }
    machine->num_present++;
    machine->num_waiting += lowest->call != NULL;
    machine->num_at_anchor += lowest->step == machine->anchor;
    if (lowest->arrived_ns < machine->first_arrival_ns)
        machine->first_arrival_ns = lowest->arrived_ns;
}

void rank_changed(struct step_machine *machine, struct rank *rank, int64_t now_ns)
{
    struct slot *lowest = rank_lowest(rank);
    enum rank_state state;

    rank->joined = rank->joined || rank_highest(rank) != NULL;
    if (rank->left)
        machine->num_left++;
    else
        machine->num_dead += rank->dead;
    if (!rank->left && lowest != NULL) {
        /* What was announced behind an open step arrives when the rank goes on to it. */
        if (!rank->was_present)
            lowest->arrived_ns = now_ns;
        count_present(machine, lowest);
    }
    state = rank_state_now(rank);
    if (state != rank->state) {
        rank->state = state;
        rank->since_ns = now_ns;
    }
}

void ranks_find_anchor(struct step_machine *machine)
{
    machine->num_at_anchor = 0;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const struct slot *lowest = rank_lowest(&machine->ranks[r]);

        if (machine->ranks[r].left || lowest == NULL)
            continue;
        if (machine->num_at_anchor == 0)
            machine->anchor = lowest->step;
        machine->num_at_anchor += lowest->step == machine->anchor;
    }
}

void ranks_find_first_arrival(struct step_machine *machine)
{
    machine->first_arrival_ns = NO_DEADLINE;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const struct slot *lowest = rank_lowest(&machine->ranks[r]);

        if (!machine->ranks[r].left && lowest != NULL && lowest->arrived_ns < machine->first_arrival_ns)
            machine->first_arrival_ns = lowest->arrived_ns;
    }
}

struct rank_view step_rank_view(const struct step_machine *machine, uint32_t rank)
{
    const struct rank *seen = &machine->ranks[rank];
    struct rank_view view = {
        .state = seen->state,
        .since_ns = seen->since_ns,
        .has_last_step = machine->history.num_done > 0,
        .last_step = machine->history.num_done > 0 ? machine->history.last_step : 0,
    };

    for (int i = 0; i < MAX_SLOTS && !view.has_at_step; i++) {
        view.has_at_step = slot_is_live(&seen->slots[i]) && !seen->left;
        view.at_step = view.has_at_step ? seen->slots[i].step : 0;
    }
    return view;
}
