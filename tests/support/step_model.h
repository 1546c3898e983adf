/*
 * What the step machine should do, told naively: a table of every rank and step, looked through as a whole at every
 * event. No slots, no counts, no queue: it shares nothing with the machine but the rules.
 */
#ifndef TESTS_SUPPORT_STEP_MODEL_H
#define TESTS_SUPPORT_STEP_MODEL_H

#include "group/step.h"

enum { MODEL_RANKS = 6, MODEL_STEPS = 16, MODEL_CALLS = 96, MODEL_DENOMINATORS = 2 };

enum cell_kind {
    CELL_NONE,
    CELL_PROMISED,
    CELL_SENT,
    CELL_BAD,
    CELL_OWED,   /* done, batch still to come */
    CELL_UNTOLD, /* failed, rank does not know */
    CELL_VOID,   /* announced ahead of a failed step */
};

struct cell {
    enum cell_kind kind;
    bool is_promise;
    bool is_broken; /* a bad batch came after the promise */
    bool is_locked; /* its reduce runs */
    double values[MODEL_DENOMINATORS];
    enum lossd_status bad; /* BAD: why; UNTOLD: what to tell */
    int64_t arrived;
    int call; /* open, or -1 */
};

struct model_call {
    uint32_t rank;
    uint64_t step;
    int64_t deadline;
    bool is_expected; /* has to end now, so: */
    enum lossd_status status;
    bool replayed;
    bool has_missing; /* missing is what the error has to name */
    bool missing[MODEL_RANKS];
    uint64_t missed_step; /* what it has to say that they are missing from */
    int ends;             /* how often it did */
};

struct model_done {
    bool is_done;
    double totals[MODEL_DENOMINATORS];
    double values[MODEL_RANKS][MODEL_DENOMINATORS];
    bool answered[MODEL_RANKS];
};

struct model {
    uint32_t world_size;
    uint64_t first_step; /* of the table: cell s is step first_step + s */
    int64_t timeout;
    int64_t first_timeout;
    struct cell cells[MODEL_RANKS][MODEL_STEPS];
    bool left[MODEL_RANKS];
    bool dead[MODEL_RANKS];
    bool seen[MODEL_RANKS];
    struct model_done done[MODEL_STEPS];
    int last_done; /* cell, or -1 */
    bool reducing;
    bool closed;
    bool reduce_expected; /* a REDUCE has to come now */
    bool in_reduce[MODEL_RANKS];
    bool missing[MODEL_RANKS]; /* what its reduce says */
    int num_vain;              /* attempts that only the dead have started */
    struct step_counters counters;
    struct model_call calls[MODEL_CALLS];
    int num_calls;
    int num_expected; /* ends that have to come now */
};

void model_init(struct model *model, uint32_t world_size, uint64_t first_step);

/* The events. Steps are cells. Each says what step_* has to return, and marks the calls that have to end. */
enum lossd_status model_announce(struct model *model, uint32_t rank, int step, const double *values, int64_t now);
enum lossd_status model_submit(struct model *model, uint32_t rank, int step, const double *values, int call,
                               int64_t deadline, int64_t now);
void model_refuse(struct model *model, uint32_t rank, int step, enum lossd_status status, int64_t now);
void model_leave(struct model *model, uint32_t rank);
void model_died(struct model *model, uint32_t rank);
void model_heard(struct model *model, uint32_t rank);
void model_joined(struct model *model, uint32_t rank);
bool model_cancel(struct model *model, int call);
void model_tick(struct model *model, int64_t now);
void model_close(struct model *model, enum lossd_status status);

/* The vector that a reduce has to have, and what its sum does; engine: of one that failed, or OK. */
void model_vector(const struct model *model, double *vector);
void model_reduced(struct model *model, const double *vector, enum lossd_status engine, int64_t now);

/* When something has to happen by the clock, exactly. */
int64_t model_deadline(const struct model *model);
enum rank_state model_state(const struct model *model, uint32_t rank);

/* Among the parts of the model. A call that has to end, or NULL where none is open; one that has to be computed. */
bool cell_is_live(const struct cell *cell);
void cell_clear(struct cell *cell);
struct model_call *model_end_call(struct model *model, struct cell *cell, enum lossd_status status);
void model_expect_answer(struct model *model, uint32_t rank, int step, int call);

/* Lowest live cell of a rank that is there, if no earlier step is open for it, or -1. */
int model_lowest(const struct model *model, uint32_t rank);

void model_reduce_if_complete(struct model *model);

/* With whoever is there; is_late: the others are missing, otherwise only the dead. */
void model_start_reduce(struct model *model, bool is_late);

#endif
