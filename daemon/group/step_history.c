/* The last done steps: totals, and what each rank contributed to them, as a fingerprint. */
#include <stdlib.h>
#include <string.h>

#include "group/step_internal.h"

bool history_init(struct history *history, const struct step_settings *settings)
{
    const size_t num_ranks = settings->world_size;
    const size_t num_denominators = settings->num_denominators;

    history->sums = calloc(STEP_HISTORY * num_denominators, sizeof *history->sums);
    history->fingerprints = calloc(STEP_HISTORY * num_ranks, sizeof *history->fingerprints);
    history->answered = calloc(STEP_HISTORY * num_ranks, sizeof *history->answered);
    if (history->sums == NULL || history->fingerprints == NULL || history->answered == NULL)
        return false;
    for (size_t i = 0; i < STEP_HISTORY; i++) {
        history->steps[i].sums = history->sums + i * num_denominators;
        history->steps[i].fingerprints = history->fingerprints + i * num_ranks;
        history->steps[i].answered = history->answered + i * num_ranks;
    }
    return true;
}

void history_finish(struct history *history)
{
    free(history->sums);
    free(history->fingerprints);
    free(history->answered);
}

struct kept *history_find(struct history *history, uint64_t step)
{
    const uint64_t num_kept = history->num_done < STEP_HISTORY ? history->num_done : STEP_HISTORY;

    if (history->num_done == 0 || step > history->last_step)
        return NULL;
    for (uint64_t back = 1; back <= num_kept; back++) {
        struct kept *kept = &history->steps[(history->num_done - back) % STEP_HISTORY];

        if (kept->step <= step)
            return kept->step == step ? kept : NULL;
    }
    return NULL;
}

struct kept *history_add(struct history *history, const struct step_settings *settings, uint64_t step,
                         const double *sums)
{
    struct kept *kept = &history->steps[history->num_done % STEP_HISTORY];

    kept->step = step;
    memcpy(kept->sums, sums, settings->num_denominators * sizeof *sums);
    memset(kept->answered, 0, settings->world_size * sizeof *kept->answered);
    history->num_done++;
    history->last_step = step;
    return kept;
}

/* Each word is spread over all bits by multiplication and shift before the next is added (the mixer of splitmix64). */
uint64_t fingerprint(const double *contribution, uint32_t num_denominators)
{
    uint64_t hash = num_denominators;

    for (uint32_t d = 0; d < num_denominators; d++) {
        const double value = contribution[d] + 0.0; /* -0 is 0 */
        uint64_t bits;

        memcpy(&bits, &value, sizeof bits);
        hash += bits + UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
        hash ^= hash >> 31;
    }
    return hash;
}
