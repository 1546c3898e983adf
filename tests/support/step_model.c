#include "support/step_model.h"

#include <string.h>

#include "base/clock.h"

bool cell_is_live(const struct cell *cell)
{
    return cell->kind == CELL_PROMISED || cell->kind == CELL_SENT || cell->kind == CELL_BAD;
}

static bool same_values(const double *a, const double *b)
{
    return a[0] == b[0] && a[1] == b[1];
}

void cell_clear(struct cell *cell)
{
    *cell = (struct cell){.call = -1};
}

int model_lowest(const struct model *model, uint32_t rank)
{
    for (int s = 0; s < MODEL_STEPS && !model->left[rank]; s++) {
        const struct cell *cell = &model->cells[rank][s];

        if (cell->kind == CELL_UNTOLD || cell->kind == CELL_VOID)
            return -1;
        if (cell_is_live(cell))
            return s;
    }
    return -1;
}

/* What a rank has now that had nothing before arrives now. */
static void arrive(struct model *model, uint32_t rank, int lowest_before, int64_t now)
{
    const int s = model_lowest(model, rank);

    if (lowest_before < 0 && s >= 0)
        model->cells[rank][s].arrived = now;
}

void model_init(struct model *model, uint32_t world_size, uint64_t first_step)
{
    memset(model, 0, sizeof *model);
    model->world_size = world_size;
    model->first_step = first_step;
    model->last_done = -1;
    for (uint32_t r = 0; r < MODEL_RANKS; r++)
        for (int s = 0; s < MODEL_STEPS; s++)
            model->cells[r][s].call = -1;
}

struct model_call *model_end_call(struct model *model, struct cell *cell, enum lossd_status status)
{
    struct model_call *call;

    if (cell->call < 0)
        return NULL;
    call = &model->calls[cell->call];
    cell->call = -1;
    call->is_expected = true;
    call->status = status;
    call->has_missing = false;
    model->num_expected++;
    return call;
}

/* Somebody waits for another step than the one that this dead rank counts with. */
static bool is_in_vain(const struct model *model, uint32_t dead)
{
    for (uint32_t r = 0; r < model->world_size && model->dead[dead] && !model->left[dead]; r++) {
        const int s = model_lowest(model, r);

        if (s >= 0 && model->cells[r][s].call >= 0 && model_lowest(model, dead) != s)
            return true;
    }
    return false;
}

void model_start_reduce(struct model *model, bool is_late)
{
    for (uint32_t r = 0; r < model->world_size; r++)
        model->missing[r] = !model->left[r] && (is_in_vain(model, r) || (is_late && model_lowest(model, r) < 0));
    model->reducing = true;
    model->reduce_expected = true;
    for (uint32_t r = 0; r < model->world_size; r++) {
        const int s = model_lowest(model, r);

        model->in_reduce[r] = s >= 0;
        if (s >= 0)
            model->cells[r][s].is_locked = true;
    }
}

/* All are there, and agree or wait. */
static bool is_complete(const struct model *model)
{
    bool all_equal = true;
    bool all_wait = true;
    int common = -1;

    for (uint32_t r = 0; r < model->world_size; r++) {
        const int s = model_lowest(model, r);

        if (model->left[r])
            continue;
        if (s < 0)
            return false;
        all_equal = all_equal && (common < 0 || s == common);
        all_wait = all_wait && model->cells[r][s].call >= 0;
        common = s;
    }
    return common >= 0 && (all_equal || all_wait);
}

void model_reduce_if_complete(struct model *model)
{
    bool in_vain = false;

    for (uint32_t r = 0; r < model->world_size; r++)
        in_vain = in_vain || is_in_vain(model, r);
    if (model->reducing || model->closed || (!in_vain && !is_complete(model)))
        return;
    model->num_vain += !is_complete(model);
    model_start_reduce(model, false);
}

/* The rank is at a later step, and this one is not open any more. */
static bool is_passed(const struct model *model, uint32_t rank, int step)
{
    for (int s = step + 1; s < MODEL_STEPS; s++)
        if (cell_is_live(&model->cells[rank][s]) && model->cells[rank][step].kind == CELL_NONE)
            return true;
    return false;
}

/* The order of rules 2, 3, 9 and 10 for a good contribution. */
static enum lossd_status check(struct model *model, uint32_t rank, int step, const double *values)
{
    struct cell *cell = &model->cells[rank][step];
    enum lossd_status status;

    if (model->closed)
        return LOSSD_SHUTTING_DOWN;
    if (model->left[rank])
        return LOSSD_RANK_LEFT;
    if (model->done[step].is_done)
        return same_values(model->done[step].values[rank], values) ? LOSSD_OK : LOSSD_STEP_PAYLOAD_CONFLICT;
    if (cell->kind == CELL_UNTOLD) {
        status = cell->bad;
        cell_clear(cell);
        for (int s = step + 1; s < MODEL_STEPS; s++)
            if (model->cells[rank][s].kind != CELL_NONE)
                cell->kind = CELL_VOID;
        return status;
    }
    if (step < model->last_done)
        return LOSSD_STEP_OUT_OF_ORDER;
    if (is_passed(model, rank, step))
        return LOSSD_STEP_OUT_OF_ORDER;
    if (cell->is_locked && cell->kind != CELL_BAD && !same_values(cell->values, values))
        return LOSSD_STEP_PAYLOAD_CONFLICT;
    return LOSSD_OK;
}

/* How many other steps the rank has open, those that are told too late to matter left out. */
static int num_open(const struct model *model, uint32_t rank, int step)
{
    int count = 0;

    for (int s = 0; s < MODEL_STEPS; s++)
        count += s != step && model->cells[rank][s].kind != CELL_NONE &&
                 !(s > step && model->cells[rank][s].kind == CELL_UNTOLD);
    return count;
}

static void contribute(struct model *model, uint32_t rank, int step, enum cell_kind kind, const double *values,
                       int64_t now)
{
    static const double nothing[MODEL_DENOMINATORS];
    struct cell *cell = &model->cells[rank][step];

    for (int s = step + 1; s < MODEL_STEPS; s++)
        if (model->cells[rank][s].kind == CELL_UNTOLD)
            cell_clear(&model->cells[rank][s]);
    if (!cell_is_live(cell))
        cell->arrived = now;
    cell->kind = kind;
    memcpy(cell->values, values != NULL ? values : nothing, sizeof cell->values);
    model->seen[rank] = true;
}

enum lossd_status model_announce(struct model *model, uint32_t rank, int step, const double *values, int64_t now)
{
    struct cell *cell = &model->cells[rank][step];
    const int before = model_lowest(model, rank);
    const enum lossd_status status = check(model, rank, step, values);

    model_heard(model, rank);
    if (status != LOSSD_OK || model->done[step].is_done)
        return status;
    if ((cell->kind == CELL_PROMISED || cell->kind == CELL_SENT) && same_values(cell->values, values)) {
        cell->is_promise = true;
        return LOSSD_OK;
    }
    if (cell->is_locked)
        return LOSSD_STEP_PAYLOAD_CONFLICT;
    if (cell->kind == CELL_NONE && num_open(model, rank, step) >= 2)
        return LOSSD_ANNOUNCE_TOO_EARLY;
    (void)model_end_call(model, cell, LOSSD_SUPERSEDED);
    contribute(model, rank, step, CELL_PROMISED, values, now);
    cell->is_promise = true;
    cell->is_broken = false;
    arrive(model, rank, before, now);
    model_reduce_if_complete(model);
    return LOSSD_OK;
}

/* A batch, good or bad, is there for a step: what is below goes, and where three steps would be open, the last one. */
static void go_on(struct model *model, uint32_t rank, int step)
{
    for (int s = 0; s < step; s++) {
        (void)model_end_call(model, &model->cells[rank][s], LOSSD_SUPERSEDED);
        if (!model->cells[rank][s].is_locked)
            cell_clear(&model->cells[rank][s]);
    }
    (void)model_end_call(model, &model->cells[rank][step], LOSSD_SUPERSEDED);
    for (int s = MODEL_STEPS - 1; s > step && num_open(model, rank, step) >= 2; s--)
        cell_clear(&model->cells[rank][s]);
}

void model_expect_answer(struct model *model, uint32_t rank, int step, int call)
{
    struct model_call *answered = &model->calls[call];

    answered->is_expected = true;
    answered->status = LOSSD_OK;
    answered->replayed = model->done[step].answered[rank];
    model->done[step].answered[rank] = true;
    model->num_expected++;
}

enum lossd_status model_submit(struct model *model, uint32_t rank, int step, const double *values, int call,
                               int64_t deadline, int64_t now)
{
    struct cell *cell = &model->cells[rank][step];
    const int before = model_lowest(model, rank);
    const enum lossd_status status = check(model, rank, step, values);

    model_heard(model, rank);
    if (status != LOSSD_OK)
        return status;
    if (model->done[step].is_done) {
        model_expect_answer(model, rank, step, call);
        for (int s = 0; s <= step; s++)
            if (model->cells[rank][s].kind == CELL_OWED)
                cell_clear(&model->cells[rank][s]);
        return LOSSD_OK;
    }
    go_on(model, rank, step);
    if (cell->kind != CELL_BAD || !cell->is_locked) {
        cell->is_promise = cell->is_promise && cell_is_live(cell) && cell->kind != CELL_BAD &&
                           same_values(cell->values, values);
        cell->is_broken = false;
        contribute(model, rank, step, CELL_SENT, values, now);
    }
    cell->call = call;
    model->calls[call].deadline = deadline;
    arrive(model, rank, before, now);
    model_reduce_if_complete(model);
    return LOSSD_OK;
}

void model_refuse(struct model *model, uint32_t rank, int step, enum lossd_status status, int64_t now)
{
    struct cell *cell = &model->cells[rank][step];
    const bool is_promise = cell_is_live(cell) && cell->is_promise;
    const int before = model_lowest(model, rank);

    model_heard(model, rank);
    if (model->closed || model->left[rank])
        return;
    if ((cell->kind == CELL_OWED || (is_promise && cell->is_locked)) && cell->call < 0)
        cell->is_broken = true;
    if (step <= model->last_done || is_passed(model, rank, step) || cell->is_locked || cell->kind == CELL_UNTOLD)
        return;
    go_on(model, rank, step);
    if (is_promise) {
        cell->kind = CELL_PROMISED;
        cell->is_broken = true;
    } else {
        contribute(model, rank, step, CELL_BAD, NULL, now);
        cell->bad = status;
    }
    arrive(model, rank, before, now);
    model_reduce_if_complete(model);
}
