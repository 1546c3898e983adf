/* The life of a submission that is not the group's business: its memory, and its losses once the totals are there. */
#include "group/submission.h"

#include "base/clock.h"
#include "group/group_internal.h"

/* All but the arena, done and owner. An error and totals are kilobytes that nobody reads before they are written. */
static void clear(struct submission *submission)
{
    submission->group_name[0] = '\0';
    submission->rank = 0;
    submission->has_rank = false;
    submission->has_step = false;
    submission->step = 0;
    submission->has_generation = false;
    submission->generation = 0;
    submission->batch = (struct batch){0};
    submission->deadline_ns = NO_DEADLINE;
    error_init(&submission->error);
    submission->result = (struct result){0};
    submission->group = NULL;
    submission->is_cancelled = false;
    submission->prepared = (struct prepared_batch){0};
    submission->totals.num_ranks = 0;
    submission->next = NULL;
}

void submission_init(struct submission *submission, size_t arena_limit_bytes, struct memory_budget *budget)
{
    arena_init(&submission->arena, arena_limit_bytes, budget);
    submission->done = NULL;
    submission->owner = NULL;
    clear(submission);
}

void submission_reset(struct submission *submission)
{
    arena_reset(&submission->arena);
    group_unref(submission->group);
    clear(submission);
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
