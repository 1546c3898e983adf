/* A step machine on one node whose time is in seconds and whose reduces the test runs, for the tests of its rules. */
#ifndef TESTS_SUPPORT_STEP_LAB_H
#define TESTS_SUPPORT_STEP_LAB_H

#include "base/clock.h"
#include "group/step.h"

/*
 * Contributions have two denominators: {requests, candidates}. The step timeout is 10 s, that of the first step 60 s.
 */
enum { MAX_LAB_CALLS = 128 };

/* A call that the tests make, and how it ended. */
struct call {
    int ends; /* how often */
    enum lossd_status status;
    bool replayed;
    uint64_t step;
    double requests;
    double candidates;
    struct lossd_error error;
};

/* A step machine on one node, whose reduces are run at once unless hold is set. */
struct lab {
    struct step_settings settings;
    struct step_machine *machine;
    struct call calls[MAX_LAB_CALLS];
    size_t num_calls;
    struct lossd_error err; /* of the last refused event */
    double *vector;
    bool hold;
    bool held; /* a reduce waits for lab_reduce */
    int64_t now_s;
};

/* A machine whose ranks have all joined, at time 0. */
struct lab *lab_open(uint32_t world_size);
void lab_close(struct lab *lab);

/* Let the reduce that was held come back. */
void lab_reduce(struct lab *lab);

/* Do what the machine asks for. */
void run_actions(struct lab *lab);

/* Events at now_s, and all that follows from them. A refusal is left in err, and in the call. */
enum lossd_status announce(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates);
/* deadline_s of the call, 0 for none */
struct call *submit_until(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates,
                          int64_t deadline_s);
struct call *submit(struct lab *lab, uint32_t rank, uint64_t step, double requests, double candidates);
void refuse(struct lab *lab, uint32_t rank, uint64_t step);
void leave(struct lab *lab, uint32_t rank);
void die(struct lab *lab, uint32_t rank);
/* The client of an open call is gone. */
void cancel(struct lab *lab, uint32_t rank, struct call *call);
void tick_at(struct lab *lab, int64_t now_s);

/* "(absent)" where there is no such key. */
const char *metadata(const struct lossd_error *err, const char *wanted);

enum rank_state state_of(const struct lab *lab, uint32_t rank);

/* The call has not ended; has been computed with these totals; has ended with this status. */
void assert_waits(const struct call *call);
void assert_done(const struct call *call, double requests, double candidates);
void assert_failed(const struct call *call, enum lossd_status status);
void assert_counters(const struct lab *lab, uint64_t done, uint64_t failed, uint64_t aborted);

/* Steps 0 .. count - 1 of a world of two are done, rank 0 with as many candidates as the step's number. */
void do_steps(struct lab *lab, uint64_t count);

#endif
