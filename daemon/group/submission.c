/* The life of a submission that is not the group's business: its memory, and its losses once the totals are there. */
#include "group/submission.h"

#include "base/clock.h"
#include "group/group_internal.h"

void submission_init(struct submission *submission, size_t arena_limit_bytes, struct memory_budget *budget)
{
    *submission = (struct submission){.deadline_ns = NO_DEADLINE};
    arena_init(&submission->arena, arena_limit_bytes, budget);
    error_init(&submission->error);
}

void submission_finish(struct submission *submission)
{
    arena_finish(&submission->arena);
    group_unref(submission->group);
    submission->group = NULL;
}

void submission_compute(struct submission *submission)
{
    const struct loss_plan *plan = &submission->group->plan;
    struct result *result = &submission->result;
    struct scales scales;

    rescale(plan, &submission->prepared, &submission->totals, &scales);
    loss_run(plan, &submission->prepared, &scales, result);
    result->world = (struct counts){
        .requests = submission->totals.sums[DENOMINATOR_REQUESTS],
        .candidates = submission->totals.sums[DENOMINATOR_CANDIDATES],
        .ranks = submission->totals.num_ranks,
    };
}
