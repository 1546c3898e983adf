#include "support/step_lab.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct lab *lab_open(uint32_t world_size)
{
    struct lab *lab = calloc(1, sizeof *lab);

    lab->settings = (struct step_settings){
        .world_size = world_size,
        .num_denominators = 2,
        .step_timeout_ns = 10 * NS_PER_S,
        .first_step_timeout_ns = 60 * NS_PER_S,
    };
    lab->machine = step_create(&lab->settings, 0);
    lab->vector = calloc(step_vector_size(&lab->settings), sizeof(double));
    error_init(&lab->err);
    ck_assert_ptr_nonnull(lab->machine);
    for (uint32_t r = 0; r < world_size; r++)
        step_joined(lab->machine, r, 0);
    return lab;
}

void lab_close(struct lab *lab)
{
    step_destroy(lab->machine);
    free(lab->vector);
    free(lab);
}

static void end_call(struct call *call, const struct step_action *action)
{
    call->ends++;
    call->step = action->step;
    if (action->kind == STEP_ACTION_FAIL) {
        call->error = *action->error;
        call->status = action->error->status;
        return;
    }
    call->status = LOSSD_OK;
    call->replayed = action->replayed;
    call->requests = action->totals->sums[0];
    call->candidates = action->totals->sums[1];
}

void run_actions(struct lab *lab)
{
    for (;;) {
        const struct step_action action = step_next_action(lab->machine);

        if (action.kind == STEP_ACTION_NONE)
            return;
        if (action.kind != STEP_ACTION_REDUCE) {
            end_call(action.call, &action);
            continue;
        }
        step_fill_vector(lab->machine, lab->vector);
        lab->held = lab->hold;
        if (!lab->hold)
            step_reduced(lab->machine, lab->vector, lab->now_s * NS_PER_S);
    }
}

void lab_reduce(struct lab *lab)
{
    ck_assert(lab->held);
    lab->held = false;
    lab->hold = false;
    step_reduced(lab->machine, lab->vector, lab->now_s * NS_PER_S);
    run_actions(lab);
}

enum lossd_status announce(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates)
{
    const double contribution[] = {requests, candidates};
    const enum lossd_status status = step_announce(lab->machine, rank, step, contribution, lab->now_s * NS_PER_S,
                                                   &lab->err);

    run_actions(lab);
    return status;
}

struct call *submit_until(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates,
                          int64_t deadline_s)
{
    const double contribution[] = {requests, candidates};
    struct call *call = &lab->calls[lab->num_calls++];
    const int64_t deadline_ns = deadline_s == 0 ? NO_DEADLINE : deadline_s * NS_PER_S;
    enum lossd_status status;

    ck_assert_uint_lt(lab->num_calls, MAX_LAB_CALLS);
    status = step_submit(lab->machine, rank, step, contribution, call, deadline_ns, lab->now_s * NS_PER_S,
                         &call->error);
    if (status != LOSSD_OK) {
        ck_assert_int_eq(status, call->error.status);
        call->status = status;
        call->ends++;
        lab->err = call->error;
    }
    run_actions(lab);
    return call;
}

struct call *submit(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates)
{
    return submit_until(lab, rank, step, requests, candidates, 0);
}

void refuse(struct lab *lab, uint32_t rank, uint64_t step)
{
    step_refuse(lab->machine, rank, step, LOSSD_NONFINITE_LOGITS, lab->now_s * NS_PER_S);
    run_actions(lab);
}

void leave(struct lab *lab, uint32_t rank)
{
    step_leave(lab->machine, rank, lab->now_s * NS_PER_S);
    run_actions(lab);
}

void die(struct lab *lab, uint32_t rank)
{
    step_died(lab->machine, rank, lab->now_s * NS_PER_S);
    run_actions(lab);
}

void cancel(struct lab *lab, uint32_t rank, struct call *call)
{
    ck_assert(step_cancel(lab->machine, rank, call, lab->now_s * NS_PER_S));
    run_actions(lab);
}

void tick_at(struct lab *lab, int64_t now_s)
{
    lab->now_s = now_s;
    step_tick(lab->machine, now_s * NS_PER_S);
    run_actions(lab);
}

const char *metadata(const struct lossd_error *err, const char *wanted)
{
    const char *key;
    const char *value;
    size_t cursor = 0;

    while (error_next_metadata(err, &cursor, &key, &value))
        if (strcmp(key, wanted) == 0)
            return value;
    return "(absent)";
}

enum rank_state state_of(const struct lab *lab, uint32_t rank)
{
    return step_rank_view(lab->machine, rank).state;
}

void assert_waits(const struct call *call)
{
    ck_assert_int_eq(call->ends, 0);
}

void assert_done(const struct call *call, double requests, double candidates)
{
    ck_assert_int_eq(call->ends, 1);
    ck_assert_int_eq(call->status, LOSSD_OK);
    ck_assert_double_eq(call->requests, requests);
    ck_assert_double_eq(call->candidates, candidates);
}

void assert_failed(const struct call *call, enum lossd_status status)
{
    ck_assert_int_eq(call->ends, 1);
    ck_assert_int_eq(call->status, status);
}

void assert_counters(const struct lab *lab, uint64_t done, uint64_t failed, uint64_t aborted)
{
    const struct step_counters counters = step_counters(lab->machine);

    ck_assert_uint_eq(counters.done, done);
    ck_assert_uint_eq(counters.failed, failed);
    ck_assert_uint_eq(counters.aborted, aborted);
}

void do_steps(struct lab *lab, uint64_t count)
{
    for (uint64_t step = 0; step < count; step++) {
        lab->num_calls = 0;
        memset(lab->calls, 0, 2 * sizeof lab->calls[0]);
        submit(lab, 0, step, 1, (double)step);
        submit(lab, 1, step, 1, 1);
    }
}
