/* The errors of steps: from the table that the reduce gave, and of single calls. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "group/step_internal.h"

/* A list in a buffer that is cut at a whole entry. */
struct text {
    char *bytes;
    size_t size; /* >= 1 */
    size_t used;
    bool full;
};

static struct text text_in(char *bytes, size_t size)
{
    bytes[0] = '\0';
    return (struct text){.bytes = bytes, .size = size};
}

/* Add an entry, with the separator in front where it is not the first, or nothing. */
static void text_add(struct text *text, const char *separator, const char *entry)
{
    const char *between = text->used > 0 ? separator : "";
    const size_t length = strlen(between) + strlen(entry);

    text->full = text->full || length >= text->size - text->used;
    if (text->full)
        return;
    (void)snprintf(text->bytes + text->used, text->size - text->used, "%s%s", between, entry);
    text->used += length;
}

/* "7" or "0-3". */
static void format_range(char *range, size_t size, uint32_t first, uint32_t last)
{
    if (first == last)
        (void)snprintf(range, size, "%" PRIu32, first);
    else
        (void)snprintf(range, size, "%" PRIu32 "-%" PRIu32, first, last);
}

void step_format_ranks(const bool *flags, uint32_t count, char *bytes, size_t size)
{
    struct text text = text_in(bytes, size);
    char range[32];

    for (uint32_t first = 0; first < count; first++) {
        uint32_t last = first;

        if (!flags[first])
            continue;
        while (last + 1 < count && flags[last + 1])
            last++;
        format_range(range, sizeof range, first, last);
        text_add(&text, ",", range);
        first = last;
    }
}

static const char *const state_names[] = {
    [RANK_NEVER_JOINED] = "never_joined",
    [RANK_IDLE] = "idle",
    [RANK_ANNOUNCED] = "announced",
    [RANK_WAITING] = "waiting",
    [RANK_REFUSED] = "refused",
    [RANK_LEFT] = "left",
    [RANK_DEAD] = "dead",
};

static bool same_state(const struct rank_view *a, const struct rank_view *b)
{
    return a->state == b->state && a->has_last_step == b->has_last_step && a->last_step == b->last_step &&
           a->has_at_step == b->has_at_step && a->at_step == b->at_step;
}

static void format_state(char *entry, size_t size, const char *range, const struct rank_view *view)
{
    char at_step[40] = "";
    char last_step[40] = "";

    if (view->has_at_step)
        (void)snprintf(at_step, sizeof at_step, " at_step=%" PRIu64, view->at_step);
    if (view->has_last_step && view->state != RANK_NEVER_JOINED)
        (void)snprintf(last_step, sizeof last_step, " last_step=%" PRIu64, view->last_step);
    (void)snprintf(entry, size, "%s %s%s%s", range, state_names[view->state], at_step, last_step);
}

/* "2 idle last_step=41; 3-5 never_joined" of the flagged ranks. */
static void format_states(const struct step_machine *machine, const bool *flags, char *bytes, size_t size)
{
    const uint32_t count = machine->settings.world_size;
    struct text text = text_in(bytes, size);
    char range[32];
    char entry[160];

    for (uint32_t first = 0; first < count && !text.full; first++) {
        const struct rank_view view = step_rank_view(machine, first);
        uint32_t last = first;

        if (!flags[first])
            continue;
        while (last + 1 < count && flags[last + 1]) {
            const struct rank_view next = step_rank_view(machine, last + 1);

            if (!same_state(&view, &next))
                break;
            last++;
        }
        format_range(range, sizeof range, first, last);
        format_state(entry, sizeof entry, range, &view);
        text_add(&text, "; ", entry);
        first = last;
    }
}

/* Pairs of ranks and their step, those without one left out: "0-1:5 2:6", or "0-1 at step 5, 2 at step 6". */
static void format_table(const struct step_machine *machine, const double *vector, const char *between,
                         const char *separator, char *bytes, size_t size)
{
    const uint32_t count = machine->settings.world_size;
    struct text text = text_in(bytes, size);
    char range[32];
    char entry[80];

    for (uint32_t first = 0; first < count && !text.full; first++) {
        const uint64_t step = table_step(machine, vector, first);
        uint32_t last = first;

        if (step == 0)
            continue;
        while (last + 1 < count && table_step(machine, vector, last + 1) == step)
            last++;
        format_range(range, sizeof range, first, last);
        (void)snprintf(entry, sizeof entry, "%s%s%" PRIu64, range, between, step - 1);
        text_add(&text, separator, entry);
        first = last;
    }
}

uint64_t table_step(const struct step_machine *machine, const double *vector, uint32_t rank)
{
    const double value = vector[machine->settings.num_denominators + rank];

    return value >= 1 && value <= (double)STEP_LIMIT ? (uint64_t)value : 0;
}

/* What is no reason that this program knows is a refusal for an unknown one. */
unsigned table_reason(const struct step_machine *machine, const double *vector, uint32_t rank)
{
    const double value = vector[machine->settings.num_denominators + machine->settings.world_size + rank];

    if (value >= 0 && value < STEP_REASON_REFUSED + LOSSD_NUM_STATUSES)
        return (unsigned)value;
    return STEP_REASON_REFUSED + LOSSD_INTERNAL;
}

/* Flags of the ranks with this reason, and how many they are. */
static uint32_t flag_reason(struct step_machine *machine, const double *vector, unsigned reason)
{
    uint32_t count = 0;

    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        machine->flags[r] = table_reason(machine, vector, r) == reason;
        count += machine->flags[r];
    }
    return count;
}

/* The lowest step of the table; 0 where nobody has one. */
static uint64_t lowest_step(const struct step_machine *machine, const double *vector)
{
    uint64_t lowest = UINT64_MAX;

    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const uint64_t step = table_step(machine, vector, r);

        if (step != 0 && step - 1 < lowest)
            lowest = step - 1;
    }
    return lowest == UINT64_MAX ? 0 : lowest;
}

static bool steps_differ(const struct step_machine *machine, const double *vector)
{
    const uint64_t lowest = lowest_step(machine, vector);

    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const uint64_t step = table_step(machine, vector, r);

        if (step != 0 && step - 1 != lowest)
            return true;
    }
    return false;
}

static bool error_refused(struct step_machine *machine, const double *vector, struct lossd_error *err)
{
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const unsigned reason = table_reason(machine, vector, r);
        const uint64_t step = table_step(machine, vector, r);
        const char *name;

        if (reason < STEP_REASON_REFUSED)
            continue;
        name = status_info((enum lossd_status)(reason - STEP_REASON_REFUSED))->reason;
        error_set(err, LOSSD_STEP_REJECTED_BY_PEER, "",
                  "the batch of rank %" PRIu32 " for step %" PRIu64 " was refused (%s), so no rank gets this step", r,
                  step == 0 ? 0 : step - 1, name);
        error_add_metadata(err, "rank", "%" PRIu32, r);
        error_add_metadata(err, "peer_reason", "%s", name);
        error_add_metadata(err, "step", "%" PRIu64, step == 0 ? 0 : step - 1);
        return true;
    }
    return false;
}

static bool error_left(struct step_machine *machine, const double *vector, struct lossd_error *err)
{
    const uint32_t count = flag_reason(machine, vector, STEP_REASON_LEFT);
    const uint64_t step = lowest_step(machine, vector);
    char ranks[sizeof err->metadata - 256];

    if (count == 0)
        return false;
    step_format_ranks(machine->flags, machine->settings.world_size, ranks, 120);
    error_set(err, LOSSD_RANK_LEFT, "", "step %" PRIu64 " can't be done: %" PRIu32 " of %" PRIu32 " ranks left (%s)",
              step, count, machine->settings.world_size, ranks);
    step_format_ranks(machine->flags, machine->settings.world_size, ranks, sizeof ranks);
    error_add_metadata(err, "ranks", "%s", ranks);
    error_add_metadata(err, "step", "%" PRIu64, step);
    return true;
}

/*
 * Who is missing, in the message and in the metadata; flags say who. The states come last: they are cut to what the
 * ranges leave.
 */
static void add_missing(struct step_machine *machine, uint64_t step, struct lossd_error *err)
{
    char list[sizeof err->metadata];
    size_t room;

    step_format_ranks(machine->flags, machine->settings.world_size, list, sizeof list - 256);
    error_add_metadata(err, "missing_ranks", "%s", list);
    error_add_metadata(err, "step", "%" PRIu64, step);
    if (sizeof err->metadata - err->metadata_bytes <= sizeof "missing_states" + 16)
        return;
    room = sizeof err->metadata - err->metadata_bytes - sizeof "missing_states";
    format_states(machine, machine->flags, list, room);
    error_add_metadata(err, "missing_states", "%s", list);
}

/* The lowest step that a missing rank, as flags say, is not at: a dead one may be at another than the one awaited. */
static uint64_t missed_step(const struct step_machine *machine, const double *vector)
{
    bool any = false;
    bool differ = false;
    uint64_t at = 0; /* plus one; of the missing, where they don't differ */
    uint64_t lowest = UINT64_MAX;

    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        if (!machine->flags[r])
            continue;
        differ = differ || (any && table_step(machine, vector, r) != at);
        at = table_step(machine, vector, r);
        any = true;
    }
    for (uint32_t r = 0; r < machine->settings.world_size; r++) {
        const uint64_t step = table_step(machine, vector, r);

        if (!machine->flags[r] && step != 0 && (differ || step != at) && step - 1 < lowest)
            lowest = step - 1;
    }
    return lowest == UINT64_MAX ? lowest_step(machine, vector) : lowest;
}

/* Of the flagged. */
static bool all_dead(const struct step_machine *machine)
{
    for (uint32_t r = 0; r < machine->settings.world_size; r++)
        if (machine->flags[r] && machine->ranks[r].state != RANK_DEAD)
            return false;
    return true;
}

static bool error_missing(struct step_machine *machine, const double *vector, struct lossd_error *err)
{
    const uint32_t count = flag_reason(machine, vector, STEP_REASON_MISSING);
    const uint64_t step = missed_step(machine, vector);
    const uint32_t world_size = machine->settings.world_size;
    char ranks[80];
    char text[160];

    if (count == 0)
        return false;
    step_format_ranks(machine->flags, world_size, ranks, sizeof ranks);
    format_states(machine, machine->flags, text, sizeof text);
    if (all_dead(machine))
        error_set(err, LOSSD_STEP_TIMEOUT, "",
                  "step %" PRIu64 " can't be done without %" PRIu32 " of %" PRIu32 " ranks (%s), whose %s gone: %s",
                  step, count, world_size, ranks, count == 1 ? "process is" : "processes are", text);
    else
        error_set(err, LOSSD_STEP_TIMEOUT, "",
                  "step %" PRIu64 " timed out without %" PRIu32 " of %" PRIu32 " ranks (%s): %s", step, count,
                  world_size, ranks, text);
    if (steps_differ(machine, vector)) {
        format_table(machine, vector, ":", " ", text, sizeof text);
        error_add_metadata(err, "table", "%s", text);
    }
    add_missing(machine, step, err);
    return true;
}

static void error_desync(struct step_machine *machine, const double *vector, struct lossd_error *err)
{
    char text[sizeof err->metadata - 256];

    format_table(machine, vector, " at step ", ", ", text, 240);
    error_set(err, LOSSD_STEP_DESYNC, "", "the ranks are at different steps: %s", text);
    format_table(machine, vector, ":", " ", text, sizeof text);
    error_add_metadata(err, "table", "%s", text);
}

void error_from_table(struct step_machine *machine, const double *vector, struct lossd_error *err)
{
    if (!error_refused(machine, vector, err) && !error_left(machine, vector, err) &&
        !error_missing(machine, vector, err))
        error_desync(machine, vector, err);
}

void error_peer_wait(struct step_machine *machine, uint64_t step, struct lossd_error *err)
{
    const uint32_t world_size = machine->settings.world_size;
    uint32_t count = 0;
    char ranks[80];
    char states[160];

    for (uint32_t r = 0; r < world_size; r++) {
        const struct slot *slot = rank_find(&machine->ranks[r], step);

        machine->flags[r] = machine->ranks[r].left || slot == NULL || !slot_is_live(slot);
        count += machine->flags[r];
    }
    step_format_ranks(machine->flags, world_size, ranks, sizeof ranks);
    format_states(machine, machine->flags, states, sizeof states);
    error_set(err, LOSSD_PEER_WAIT_DEADLINE, "",
              "the deadline of this call is over, and step %" PRIu64 " still waits for %" PRIu32 " of %" PRIu32
              " ranks (%s): %s",
              step, count, world_size, ranks, states);
    add_missing(machine, step, err);
}

enum lossd_status error_out_of_order(struct lossd_error *err, uint64_t expected, uint64_t got)
{
    (void)error_set(err, LOSSD_STEP_OUT_OF_ORDER, "step",
                    "is %" PRIu64 ", but steps rise: %" PRIu64 " or later is next", got, expected);
    error_add_metadata(err, "expected_step", "%" PRIu64, expected);
    error_add_metadata(err, "got_step", "%" PRIu64, got);
    return LOSSD_STEP_OUT_OF_ORDER;
}

enum lossd_status error_conflict(struct lossd_error *err, uint64_t step, bool is_done)
{
    (void)error_set(err, LOSSD_STEP_PAYLOAD_CONFLICT, "",
                    "step %" PRIu64
                    " %s, and the counts or weights of this batch are not those that this rank promised "
                    "or sent before; a batch with weights or with rows labelled -100 can't be announced",
                    step, is_done ? "is done" : "is being summed");
    error_add_metadata(err, "step", "%" PRIu64, step);
    return LOSSD_STEP_PAYLOAD_CONFLICT;
}

enum lossd_status error_too_early(struct lossd_error *err, const struct rank *rank, uint64_t step)
{
    (void)error_set(err, LOSSD_ANNOUNCE_TOO_EARLY, "step",
                    "is %" PRIu64 ", but this rank has steps %" PRIu64 " and %" PRIu64 " open; one may be announced "
                    "ahead of the batch that is owed",
                    step, rank->slots[0].step, rank->slots[1].step);
    error_add_metadata(err, "step", "%" PRIu64, step);
    return LOSSD_ANNOUNCE_TOO_EARLY;
}
