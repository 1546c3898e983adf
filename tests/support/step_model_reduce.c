/* The naive step model: what a reduce has to hold, and what follows from its sum. */
#include <string.h>

#include "support/step_model.h"

/* The locked cell of a rank, or -1. */
static int locked(const struct model *model, uint32_t rank)
{
    for (int s = 0; s < MODEL_STEPS; s++)
        if (model->cells[rank][s].is_locked)
            return s;
    return -1;
}

void model_vector(const struct model *model, double *vector)
{
    double *steps = vector + MODEL_DENOMINATORS;
    double *reasons = steps + model->world_size;

    vector[0] = vector[1] = 0;
    for (uint32_t r = 0; r < model->world_size; r++) {
        const int s = locked(model, r);
        const struct cell *cell = s >= 0 ? &model->cells[r][s] : NULL;

        steps[r] = cell != NULL ? (double)(model->first_step + (uint64_t)s + 1) : 0;
        reasons[r] = model->missing[r] ? STEP_REASON_MISSING : STEP_REASON_NONE;
        if (cell == NULL && model->left[r])
            reasons[r] = STEP_REASON_LEFT;
        if (cell != NULL && cell->kind == CELL_BAD)
            reasons[r] = STEP_REASON_REFUSED + (int)cell->bad;
        for (int d = 0; d < MODEL_DENOMINATORS && cell != NULL; d++)
            vector[d] += cell->values[d];
    }
}

/* What the table of an attempt says; OK: done. */
static enum lossd_status verdict(const struct model *model, const double *vector)
{
    const double *steps = vector + MODEL_DENOMINATORS;
    const double *reasons = steps + model->world_size;
    bool any[4] = {false};
    bool differ = false;

    for (uint32_t r = 0; r < model->world_size; r++) {
        any[reasons[r] >= STEP_REASON_REFUSED ? STEP_REASON_REFUSED : (int)reasons[r]] = true;
        differ = differ || steps[r] != steps[0];
    }
    if (any[STEP_REASON_REFUSED])
        return LOSSD_STEP_REJECTED_BY_PEER;
    if (any[STEP_REASON_LEFT])
        return LOSSD_RANK_LEFT;
    if (any[STEP_REASON_MISSING])
        return LOSSD_STEP_TIMEOUT;
    return differ ? LOSSD_STEP_DESYNC : LOSSD_OK;
}

/* Whether a rank has sent a batch, good or bad, of a later step, or has left. */
static bool has_gone_on(const struct model *model, uint32_t rank, int step)
{
    for (int s = step + 1; s < MODEL_STEPS; s++)
        if (model->cells[rank][s].kind == CELL_SENT || model->cells[rank][s].kind == CELL_BAD)
            return true;
    return model->left[rank];
}

static void settle_done(struct model *model, uint32_t rank, int step)
{
    struct cell *cell = &model->cells[rank][step];

    memcpy(model->done[step].values[rank], cell->values, sizeof cell->values);
    cell->is_locked = false;
    if (cell->call >= 0) {
        model_expect_answer(model, rank, step, cell->call);
        cell_clear(cell);
    } else if (cell->kind == CELL_PROMISED && !has_gone_on(model, rank, step)) {
        cell->kind = CELL_OWED;
    } else {
        cell_clear(cell);
    }
}

/* Which steps of the table are awaited by one that is there and not come to by one that is missing: the lowest. */
static uint64_t missed_step(const struct model *model, const double *vector)
{
    const double *steps = vector + MODEL_DENOMINATORS;
    double missed = 0;

    for (uint32_t here = 0; here < model->world_size; here++)
        for (uint32_t away = 0; away < model->world_size; away++) {
            const bool is_missed = steps[here] != 0 && steps[model->world_size + here] != STEP_REASON_MISSING &&
                                   steps[model->world_size + away] == STEP_REASON_MISSING && steps[here] != steps[away];

            if (is_missed && (missed == 0 || steps[here] < missed))
                missed = steps[here];
        }
    return (uint64_t)missed - 1;
}

static void settle_failed(struct model *model, uint32_t rank, int step, enum lossd_status status, const double *vector)
{
    struct cell *cell = &model->cells[rank][step];
    const bool is_told = cell->call >= 0 || cell->kind == CELL_BAD || has_gone_on(model, rank, step);
    struct model_call *call = model_end_call(model, cell, status);

    if (call != NULL && status == LOSSD_STEP_TIMEOUT) {
        call->has_missing = true;
        call->missed_step = missed_step(model, vector);
        for (uint32_t r = 0; r < model->world_size; r++)
            call->missing[r] = vector[MODEL_DENOMINATORS + model->world_size + r] == STEP_REASON_MISSING;
    }
    cell_clear(cell);
    if (!is_told)
        *cell = (struct cell){.kind = CELL_UNTOLD, .bad = status, .call = -1};
    for (int s = step + 1; s < MODEL_STEPS; s++)
        if (model->cells[rank][s].kind == CELL_PROMISED)
            model->cells[rank][s] = (struct cell){.kind = CELL_VOID, .call = -1};
}

void model_reduced(struct model *model, const double *vector, enum lossd_status engine, int64_t now)
{
    enum lossd_status status;

    status = engine != LOSSD_OK ? engine : verdict(model, vector);
    model->reducing = false;
    model->counters.done += status == LOSSD_OK;
    model->counters.failed += status != LOSSD_OK && engine == LOSSD_OK;
    model->counters.aborted += engine != LOSSD_OK;
    if (status == LOSSD_OK) {
        model->last_done = (int)((uint64_t)vector[MODEL_DENOMINATORS] - 1 - model->first_step);
        model->done[model->last_done].is_done = true;
        memcpy(model->done[model->last_done].totals, vector, sizeof model->done[0].totals);
    }
    for (uint32_t r = 0; r < model->world_size; r++) {
        const int step = locked(model, r);

        if (step >= 0 && status == LOSSD_OK)
            settle_done(model, r, step);
        else if (step >= 0)
            settle_failed(model, r, step, status, vector);
        for (int s = 0; s < MODEL_STEPS; s++)
            if (cell_is_live(&model->cells[r][s]))
                model->cells[r][s].arrived = now;
    }
    model_reduce_if_complete(model);
}
