/* Several ranks played by one process: their batches from files, their calls side by side. */
#ifndef LOSSCTL_RANKS_H
#define LOSSCTL_RANKS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/arena.h"
#include "lossctl/command.h"
#include "lossctl/rpc.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"

struct rank_run {
    const char *file;   /* borrowed */
    struct arena arena; /* holds request, group and response */
    Lossd__V1__ComputeLossRequest *request;
    struct rpc_connection connection;
    const Lossd__V1__Group *group;                  /* as it was before the step; NULL where the daemon did not say */
    Lossd__V1__ComputeLossResponse *response;       /* NULL until answered, or where it failed */
    struct failure failure;                         /* where response is NULL */
    void (*on_failure)(const struct rank_run *run); /* or NULL */
    pthread_t thread;
    bool started;
};

struct rank_runs {
    struct rank_run *runs; /* [count] */
    size_t count;
};

/*
 * Read one ComputeLossRequest from each file, and open a connection for each. An exit code, with a complaint where it
 * is not EXIT_DONE; rank_runs_finish in any case.
 */
int rank_runs_load(const struct options *options, char **files, size_t count, struct rank_runs *ranks);

/*
 * What would make the ranks wait for each other in vain: a file without a group, two that are the same rank of one. An
 * exit code, with a complaint.
 */
int rank_runs_check(const struct rank_runs *ranks);

/*
 * The same for rank_runs_join: the files have to be the ranks 0 to count - 1 of one group, each with its rank. Ranks
 * have been checked by rank_runs_check.
 */
int rank_runs_check_whole(const struct rank_runs *ranks);

/* Whether both are of the same group. */
bool rank_runs_same_group(const struct rank_run *a, const struct rank_run *b);

/* Takes a zeroed one too. */
void rank_runs_finish(struct rank_runs *ranks);

/*
 * Join every rank to the group of the first file, with as many ranks as there are files, and set the generation of
 * their requests. config_file holds a GroupConfig. rank_runs_check_whole has been called. An exit code, with a
 * complaint.
 */
int rank_runs_join(const struct options *options, const char *config_file, struct rank_runs *ranks);

/* Ask the daemon for the group of each, once a group. Sets group. */
void rank_runs_ask(struct rank_runs *ranks);

/*
 * Send all at the same time, and wait for all. Sets response or failure of each.
 *
 * on_failure  called for each that fails, as soon as it does, from a thread of its own; or NULL.
 */
void rank_runs_send(struct rank_runs *ranks, void (*on_failure)(const struct rank_run *run));

#endif
