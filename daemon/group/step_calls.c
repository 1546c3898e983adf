/* Open calls, their ends and the clock (rule 12); the actions that wait to be fetched; the machine itself. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "group/step_internal.h"

void action_push(struct step_machine *machine, const struct pending *action)
{
    machine->pending[(machine->first_pending + machine->num_pending) % machine->max_pending] = *action;
    machine->num_pending++;
}

/* End the open call of a slot, if there is one. */
void call_end(struct step_machine *machine, uint32_t rank, struct slot *slot, struct verdict *verdict)
{
    const struct pending action = {
        .kind = STEP_ACTION_FAIL,
        .call = slot->call,
        .rank = rank,
        .step = slot->step,
        .verdict = verdict_ref(verdict),
    };

    if (slot->call == NULL) {
        verdict_unref(action.verdict);
        return;
    }
    slot->call = NULL;
    machine->num_calls--;
    action_push(machine, &action);
}

void call_supersede(struct step_machine *machine, uint32_t rank, struct slot *slot, uint64_t by_step)
{
    struct verdict *verdict;

    if (slot->call == NULL)
        return;
    verdict = verdict_new();
    if (verdict != NULL)
        (void)error_set(&verdict->error, LOSSD_SUPERSEDED, "",
                        "a later call of this rank, for step %" PRIu64 ", took the place of this one for step %" PRIu64,
                        by_step, slot->step);
    call_end(machine, rank, slot, verdict);
    verdict_unref(verdict);
}

void call_compute(struct step_machine *machine, uint32_t rank, step_call *call, struct kept *kept)
{
    const struct pending action = {
        .kind = STEP_ACTION_COMPUTE,
        .call = call,
        .rank = rank,
        .step = kept->step,
        .replayed = kept->answered[rank],
        .kept = kept,
    };

    kept->answered[rank] = true;
    action_push(machine, &action);
}

struct step_action step_next_action(struct step_machine *machine)
{
    const struct pending *next = &machine->pending[machine->first_pending];
    struct step_action action = {.kind = STEP_ACTION_NONE};

    if (machine->num_pending == 0)
        return action;
    verdict_unref(machine->told);
    machine->told = next->verdict;
    action = (struct step_action){
        .kind = next->kind, .call = next->call, .rank = next->rank, .step = next->step, .replayed = next->replayed};
    if (next->kind == STEP_ACTION_FAIL)
        action.error = verdict_error(next->verdict);
    if (next->kind == STEP_ACTION_COMPUTE) {
        machine->totals.num_ranks = machine->settings.world_size;
        memcpy(machine->totals.sums, next->kept->sums, machine->settings.num_denominators * sizeof(double));
        action.totals = &machine->totals;
    }
    machine->first_pending = (machine->first_pending + 1) % machine->max_pending;
    machine->num_pending--;
    return action;
}

bool step_cancel(struct step_machine *machine, uint32_t r, const step_call *call, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];

    for (int i = 0; i < MAX_SLOTS; i++) {
        if (call == NULL || rank->slots[i].call != call)
            continue;
        rank_changing(machine, rank);
        rank->slots[i].call = NULL;
        machine->num_calls--;
        rank_changed(machine, rank, now_ns);
        return true;
    }
    return false;
}

/* A moment's errors of calls whose deadline is over: those of the same step share one. */
struct expiry {
    struct verdict *verdict;
    uint64_t step;
};

static struct verdict *expiry_verdict(struct step_machine *machine, struct expiry *expiry, uint64_t step)
{
    if (expiry->verdict == NULL || expiry->step != step) {
        verdict_unref(expiry->verdict);
        expiry->verdict = verdict_new();
        expiry->step = step;
        if (expiry->verdict != NULL)
            error_peer_wait(machine, step, &expiry->verdict->error);
    }
    return expiry->verdict;
}

static void expire_calls(struct step_machine *machine, int64_t now_ns)
{
    struct expiry expiry = {0};

    machine->next_call_ns = NO_DEADLINE;
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        struct rank *rank = &machine->ranks[r];

        for (int i = 0; i < MAX_SLOTS; i++) {
            struct slot *slot = &rank->slots[i];

            if (slot->call == NULL)
                continue;
            if (slot->deadline_ns > now_ns) {
                if (slot->deadline_ns < machine->next_call_ns)
                    machine->next_call_ns = slot->deadline_ns;
                continue;
            }
            rank_changing(machine, rank);
            call_end(machine, r, slot, expiry_verdict(machine, &expiry, slot->step));
            rank_changed(machine, rank, now_ns);
        }
    }
    verdict_unref(expiry.verdict);
}

/* When the attempt that gathers times out, or a little before. */
static int64_t attempt_deadline(const struct step_machine *machine)
{
    const int64_t timeout_ns = machine->history.num_done > 0 ? machine->settings.step_timeout_ns
                                                             : machine->settings.first_step_timeout_ns;

    if (machine->reducing || machine->num_present == 0 || machine->first_arrival_ns > NO_DEADLINE - timeout_ns)
        return NO_DEADLINE;
    return machine->first_arrival_ns + timeout_ns;
}

void step_tick(struct step_machine *machine, int64_t now_ns)
{
    if (now_ns >= attempt_deadline(machine)) {
        ranks_find_first_arrival(machine);
        if (now_ns >= attempt_deadline(machine)) {
            /* Its verdict ends the calls; their own deadlines are looked at again when it does not come at once. */
            start_reduce(machine, true);
            return;
        }
    }
    if (now_ns >= machine->next_call_ns)
        expire_calls(machine, now_ns);
}

int64_t step_next_deadline(const struct step_machine *machine)
{
    const int64_t attempt_ns = attempt_deadline(machine);
    const int64_t call_ns = machine->num_calls > 0 ? machine->next_call_ns : NO_DEADLINE;

    return attempt_ns < call_ns ? attempt_ns : call_ns;
}

void step_close(struct step_machine *machine, const struct lossd_error *why, int64_t now_ns)
{
    if (machine->closed)
        return;
    machine->why_closed = verdict_new();
    if (machine->why_closed != NULL)
        error_copy(&machine->why_closed->error, why);
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        struct rank *rank = &machine->ranks[r];

        rank_changing(machine, rank);
        for (int i = 0; i < MAX_SLOTS; i++) {
            call_end(machine, r, &rank->slots[i], machine->why_closed);
            slot_free(&rank->slots[i]);
        }
        rank_changed(machine, rank, now_ns);
    }
    machine->closed = true;
}

bool step_is_busy(const struct step_machine *machine)
{
    return machine->num_calls > 0 || machine->reducing;
}

void step_joined(struct step_machine *machine, uint32_t r, int64_t now_ns)
{
    struct rank *rank = &machine->ranks[r];

    step_heard(machine, r, now_ns);
    rank_changing(machine, rank);
    rank->joined = true;
    rank_changed(machine, rank, now_ns);
}

bool step_all_left(const struct step_machine *machine)
{
    return machine->num_left == machine->settings.world_size;
}

uint64_t step_count_on(const struct step_machine *machine)
{
    const struct rank *rank = &machine->ranks[0];
    uint64_t next = machine->history.num_done > 0 ? machine->history.last_step + 1 : 0;

    for (int i = 0; i < MAX_SLOTS; i++) {
        const struct slot *slot = &rank->slots[i];

        if (slot->kind == SLOT_BATCH || slot->kind == SLOT_REFUSED)
            next = slot->step + 1;
        else if (slot->kind != SLOT_FREE)
            return slot->step;
    }
    return next;
}

struct step_counters step_counters(const struct step_machine *machine)
{
    return machine->counters;
}

struct step_machine *step_create(const struct step_settings *settings, int64_t now_ns)
{
    struct step_machine *machine = calloc(1, sizeof *machine);
    const size_t num_ranks = settings->world_size;

    if (machine == NULL)
        return NULL;
    machine->settings = *settings;
    machine->next_call_ns = NO_DEADLINE;
    /* One event can end both calls of each rank, answer one more and start a reduce. */
    machine->max_pending = MAX_SLOTS * num_ranks + 2;
    machine->pending = calloc(machine->max_pending, sizeof *machine->pending);
    machine->ranks = calloc(num_ranks, sizeof *machine->ranks);
    machine->contributions = calloc(num_ranks * MAX_SLOTS * settings->num_denominators, sizeof(double));
    machine->flags = calloc(num_ranks, sizeof *machine->flags);
    if (!history_init(&machine->history, settings) || machine->pending == NULL || machine->ranks == NULL ||
        machine->contributions == NULL || machine->flags == NULL) {
        step_destroy(machine);
        return NULL;
    }
    for (size_t r = 0; r < num_ranks; r++) {
        machine->ranks[r].since_ns = now_ns;
        for (size_t i = 0; i < MAX_SLOTS; i++)
            machine->ranks[r].slots[i].contribution = machine->contributions +
                                                      (r * MAX_SLOTS + i) * settings->num_denominators;
    }
    return machine;
}

void step_destroy(struct step_machine *machine)
{
    if (machine == NULL)
        return;
    for (size_t r = 0; machine->ranks != NULL && r < machine->settings.world_size; r++)
        for (size_t i = 0; i < MAX_SLOTS; i++)
            verdict_unref(machine->ranks[r].slots[i].verdict);
    for (size_t i = 0; i < machine->num_pending; i++)
        verdict_unref(machine->pending[(machine->first_pending + i) % machine->max_pending].verdict);
    verdict_unref(machine->told);
    verdict_unref(machine->why_closed);
    history_finish(&machine->history);
    free(machine->pending);
    free(machine->ranks);
    free(machine->contributions);
    free(machine->flags);
    free(machine);
}
