/* The naive step model: ranks that leave or die, calls that end early, the clock, states. */
#include "base/clock.h"
#include "support/step_model.h"

void model_leave(struct model *model, uint32_t rank)
{
    if (model->closed || model->left[rank])
        return;
    for (int s = 0; s < MODEL_STEPS; s++) {
        (void)model_end_call(model, &model->cells[rank][s], LOSSD_RANK_LEFT);
        if (!model->cells[rank][s].is_locked)
            cell_clear(&model->cells[rank][s]);
    }
    model->left[rank] = true;
    model_reduce_if_complete(model);
}

void model_died(struct model *model, uint32_t rank)
{
    model->dead[rank] = true;
    model_reduce_if_complete(model);
}

void model_heard(struct model *model, uint32_t rank)
{
    model->dead[rank] = false;
}

void model_joined(struct model *model, uint32_t rank)
{
    model->dead[rank] = false;
    model->seen[rank] = true;
}

bool model_cancel(struct model *model, int call)
{
    for (int s = 0; s < MODEL_STEPS; s++) {
        struct cell *cell = &model->cells[model->calls[call].rank][s];

        if (cell->call != call)
            continue;
        cell->call = -1;
        return true;
    }
    return false;
}

static int64_t attempt_deadline(const struct model *model)
{
    int64_t first = NO_DEADLINE;

    for (uint32_t r = 0; r < model->world_size; r++) {
        const int s = model_lowest(model, r);

        if (s >= 0 && model->cells[r][s].arrived < first)
            first = model->cells[r][s].arrived;
    }
    if (model->reducing || first == NO_DEADLINE)
        return NO_DEADLINE;
    return first + (model->last_done >= 0 ? model->timeout : model->first_timeout);
}

int64_t model_deadline(const struct model *model)
{
    int64_t next = attempt_deadline(model);

    for (uint32_t r = 0; r < model->world_size; r++)
        for (int s = 0; s < MODEL_STEPS; s++) {
            const int call = model->cells[r][s].call;

            if (call >= 0 && model->calls[call].deadline < next)
                next = model->calls[call].deadline;
        }
    return next;
}

void model_tick(struct model *model, int64_t now)
{
    if (now >= attempt_deadline(model)) {
        model_start_reduce(model, true);
        return;
    }
    for (uint32_t r = 0; r < model->world_size; r++)
        for (int s = 0; s < MODEL_STEPS; s++) {
            struct cell *cell = &model->cells[r][s];
            struct model_call *call;

            if (cell->call < 0 || model->calls[cell->call].deadline > now)
                continue;
            call = model_end_call(model, cell, LOSSD_PEER_WAIT_DEADLINE);
            call->has_missing = true;
            call->missed_step = model->first_step + (uint64_t)s;
            for (uint32_t peer = 0; peer < model->world_size; peer++)
                call->missing[peer] = model->left[peer] || !cell_is_live(&model->cells[peer][s]);
        }
}

void model_close(struct model *model, enum lossd_status status)
{
    for (uint32_t r = 0; r < model->world_size; r++)
        for (int s = 0; s < MODEL_STEPS; s++) {
            (void)model_end_call(model, &model->cells[r][s], status);
            cell_clear(&model->cells[r][s]);
        }
    model->closed = true;
}

enum rank_state model_state(const struct model *model, uint32_t rank)
{
    enum rank_state state = model->seen[rank] ? RANK_IDLE : RANK_NEVER_JOINED;

    if (model->left[rank])
        return RANK_LEFT;
    if (model->dead[rank])
        return RANK_DEAD;
    for (int s = MODEL_STEPS - 1; s >= 0; s--) {
        const struct cell *cell = &model->cells[rank][s];

        if (cell->call >= 0)
            return RANK_WAITING;
        if (cell->kind == CELL_PROMISED || cell->kind == CELL_SENT || cell->kind == CELL_OWED)
            state = cell->is_broken ? RANK_REFUSED : RANK_ANNOUNCED;
        if (cell->kind == CELL_BAD || cell->is_broken)
            state = RANK_REFUSED;
    }
    return state;
}
