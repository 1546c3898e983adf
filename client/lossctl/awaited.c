#include "lossctl/awaited.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_sent(const struct rank_runs *ranks, const struct rank_run *like, uint32_t rank)
{
    for (size_t i = 0; i < ranks->count; i++)
        if (rank_runs_same_group(&ranks->runs[i], like) && ranks->runs[i].request->rank == rank)
            return true;
    return false;
}

static bool is_awaited(const struct rank_runs *ranks, const struct rank_run *like, const Lossd__V1__RankStatus *rank)
{
    const bool is_there = (rank->has_at_step && rank->at_step >= like->request->step) ||
                          (rank->has_last_step && rank->last_step >= like->request->step);

    return !is_there && !is_sent(ranks, like, rank->rank);
}

/* "1,3-5" */
static void print_group(const struct rank_runs *ranks, const struct rank_run *like)
{
    const Lossd__V1__Group *group = like->group;
    size_t count = 0;

    for (size_t r = 0; r < group->n_ranks; r++) {
        const size_t first = r;

        if (!is_awaited(ranks, like, group->ranks[r]))
            continue;
        while (r + 1 < group->n_ranks && is_awaited(ranks, like, group->ranks[r + 1]))
            r++;
        if (count++ == 0)
            fprintf(stderr,
                    "lossctl: %s has %" PRIu32 " ranks; step %" PRIu64 " waits for other ranks too: ", group->name,
                    group->world_size, like->request->step);
        else
            fputc(',', stderr);
        fprintf(stderr, "%" PRIu32, group->ranks[first]->rank);
        if (r > first)
            fprintf(stderr, "-%" PRIu32, group->ranks[r]->rank);
    }
    if (count > 0)
        fputc('\n', stderr);
}

void awaited_print(const struct rank_runs *ranks)
{
    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];
        bool is_first = true;

        for (size_t before = 0; before < i && is_first; before++)
            is_first = !rank_runs_same_group(&ranks->runs[before], run);
        if (is_first && run->request->has_step && run->group != NULL && run->group->config != NULL &&
            run->group->config->global_average)
            print_group(ranks, run);
    }
}
