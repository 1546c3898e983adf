/*
 * Owns every long-lived object; order of start and stop; signals and the clock.
 *
 * Start: listeners, compute pool and groups, HTTP threads, shared memory, READY=1. Stop, on SIGTERM or SIGINT: not
 * ready any more and no joins; steps go on until none is open or the drain timeout is over (a second signal ends the
 * wait); the rest, requests that have not come to their end among them, is answered with SHUTTING_DOWN; threads end.
 */
#ifndef SERVER_H
#define SERVER_H

#include "base/status.h"
#include "config.h"

struct server;

/*
 * config  borrowed; its groups are taken over.
 * Blocks SIGTERM, SIGINT and SIGHUP for all threads, which reach server_run, and ignores SIGPIPE.
 * LOSSD_INVALID_ARGUMENT for what the configuration has to change; LOSSD_INTERNAL with the system's reason, a port that
 * is taken among them. *server is written on success only.
 */
CHECK_RESULT
enum lossd_status server_start(struct config *config, struct server **server, struct lossd_error *err);

/*
 * Serve until a signal, then drain. True where every call was answered and server_destroy may be called; false where
 * a client had not read its answer after 2 s: then the process has to end without it.
 */
bool server_run(struct server *server);

/* After server_run said true. Takes NULL. */
void server_destroy(struct server *server);

#endif
