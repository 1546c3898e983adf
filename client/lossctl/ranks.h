/* Several ranks played by one process: their batches from files, their calls side by side. */
#ifndef LOSSCTL_RANKS_H
#define LOSSCTL_RANKS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/arena.h"
#include "lossctl/command.h"
#include "lossctl/rpc.h"
#include "lossd/v1/loss.pb-c.h"

struct rank_run {
    const char *file;   /* borrowed */
    struct arena arena; /* holds request and response */
    uint8_t *bytes;     /* of the file */
    Lossd__V1__ComputeLossRequest *request;
    struct rpc_connection connection;
    struct http_response http;
    Lossd__V1__ComputeLossResponse *response; /* NULL until answered, or where it failed */
    struct failure failure;                   /* where response is NULL */
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

/* Takes a zeroed one too. */
void rank_runs_finish(struct rank_runs *ranks);

/*
 * Join every rank to the group of the first file, with as many ranks as there are files, and set the generation of
 * their requests. config_file holds a GroupConfig. The ranks have been checked; all have to be of one group. An exit
 * code, with a complaint.
 */
int rank_runs_join(const struct options *options, const char *config_file, struct rank_runs *ranks);

/* Send all at the same time, and wait for all. Sets response or failure of each. */
void rank_runs_send(struct rank_runs *ranks);

#endif
