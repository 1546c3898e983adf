#include "lossctl/waits.h"

#include <inttypes.h>
#include <stdbool.h>

enum { NUM_STATES = LOSSD__V1__RANK_STATE__RANK_STATE_UNREACHABLE + 1 };

static const char *const state_names[NUM_STATES] = {
    [LOSSD__V1__RANK_STATE__RANK_STATE_UNSPECIFIED] = "unknown",
    [LOSSD__V1__RANK_STATE__RANK_STATE_NEVER_JOINED] = "never joined",
    [LOSSD__V1__RANK_STATE__RANK_STATE_IDLE] = "idle",
    [LOSSD__V1__RANK_STATE__RANK_STATE_ANNOUNCED] = "announced",
    [LOSSD__V1__RANK_STATE__RANK_STATE_WAITING] = "waiting",
    [LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED] = "refused",
    [LOSSD__V1__RANK_STATE__RANK_STATE_LEFT] = "left",
    [LOSSD__V1__RANK_STATE__RANK_STATE_DEAD] = "dead",
    [LOSSD__V1__RANK_STATE__RANK_STATE_UNREACHABLE] = "unreachable",
};

const char *waits_state_name(Lossd__V1__RankState state)
{
    return state_names[(unsigned)state < NUM_STATES ? state : LOSSD__V1__RANK_STATE__RANK_STATE_UNSPECIFIED];
}

static bool is_waiting(const Lossd__V1__RankStatus *rank)
{
    return rank->state == LOSSD__V1__RANK_STATE__RANK_STATE_WAITING && rank->has_at_step;
}

void waits_count_states(const Lossd__V1__Group *group, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned state = 0; state < NUM_STATES; state++) {
        size_t count = 0;
        int length;

        for (size_t r = 0; r < group->n_ranks; r++)
            count += (unsigned)group->ranks[r]->state == state;
        if (count == 0)
            continue;
        length = snprintf(text + used, size - used, "%s%zu %s", used == 0 ? "" : ", ", count, state_names[state]);
        if (length < 0 || (size_t)length >= size - used) {
            text[used] = '\0';
            return;
        }
        used += (size_t)length;
    }
}

/* What a line is about: those who wait in a step or were refused in it, or those in a state that have not come to it.
 */
struct picked {
    uint64_t step;
    bool here; /* in the step, in this state */
    Lossd__V1__RankState state;
};

static bool is_picked(const Lossd__V1__RankStatus *rank, const struct picked *picked)
{
    const bool at_step = rank->has_at_step && rank->at_step == picked->step;

    return at_step == picked->here && rank->state == picked->state;
}

/* "0-3,7" */
static void print_picked(const Lossd__V1__Group *group, const struct picked *picked, FILE *file)
{
    const char *separator = "";

    for (size_t r = 0; r < group->n_ranks; r++) {
        const size_t first = r;

        if (!is_picked(group->ranks[r], picked))
            continue;
        while (r + 1 < group->n_ranks && is_picked(group->ranks[r + 1], picked))
            r++;
        fprintf(file, "%s%" PRIu32, separator, group->ranks[first]->rank);
        if (r > first)
            fprintf(file, "-%" PRIu32, group->ranks[r]->rank);
        separator = ",";
    }
}

static size_t count_picked(const Lossd__V1__Group *group, const struct picked *picked)
{
    size_t count = 0;

    for (size_t r = 0; r < group->n_ranks; r++)
        count += is_picked(group->ranks[r], picked);
    return count;
}

static void print_step(const Lossd__V1__Group *group, uint64_t step, FILE *file)
{
    const struct picked waiting = {step, true, LOSSD__V1__RANK_STATE__RANK_STATE_WAITING};
    const struct picked refused = {step, true, LOSSD__V1__RANK_STATE__RANK_STATE_REFUSED};
    const size_t num_refused = count_picked(group, &refused);
    const bool is_one = count_picked(group, &waiting) == 1;
    const char *separator = is_one ? " waits for " : " wait for ";
    uint64_t since_ms = 0;

    for (size_t r = 0; r < group->n_ranks; r++)
        if (is_picked(group->ranks[r], &waiting) && group->ranks[r]->since_ms > since_ms)
            since_ms = group->ranks[r]->since_ms;
    fprintf(file, "%s step %" PRIu64 ": %s ", group->name, step, is_one ? "rank" : "ranks");
    print_picked(group, &waiting, file);
    for (unsigned state = 0; state < NUM_STATES; state++) {
        const struct picked missing = {.step = step, .state = (Lossd__V1__RankState)state};

        if (count_picked(group, &missing) == 0)
            continue;
        fputs(separator, file);
        print_picked(group, &missing, file);
        fprintf(file, " (%s)", state_names[state]);
        separator = " and ";
    }
    fprintf(file, ", since %.1f s", (double)since_ms / 1e3);
    if (num_refused > 0) {
        fputs(num_refused == 1 ? "; rank " : "; ranks ", file);
        print_picked(group, &refused, file);
        fputs(" refused, may send another", file);
    }
    fputc('\n', file);
}

void waits_print(const Lossd__V1__Group *group, FILE *file)
{
    uint64_t from = 0;

    for (;;) {
        uint64_t step = UINT64_MAX;

        for (size_t r = 0; r < group->n_ranks; r++)
            if (is_waiting(group->ranks[r]) && group->ranks[r]->at_step >= from && group->ranks[r]->at_step < step)
                step = group->ranks[r]->at_step;
        if (step == UINT64_MAX)
            return;
        print_step(group, step, file);
        from = step + 1;
    }
}
