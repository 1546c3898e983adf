/* A lossd of the build, as a child of the benchmark, on a Unix socket in a folder of its own. */
#ifndef TESTS_BENCH_LOCAL_DAEMON_H
#define TESTS_BENCH_LOCAL_DAEMON_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

struct local_daemon {
    pid_t pid;
    char folder[64];
    char address[96]; /* "unix:/…" */
    cpu_set_t cores;  /* of this process, before it kept to one */
};

/*
 * program        of lossd
 * config         keys of a DaemonConfig, each followed by a comma; or ""
 * on_other_core  the daemon has one core, this process another until local_daemon_stop; where there are two
 *
 * Returns when it is ready.
 */
void local_daemon_start(struct local_daemon *daemon, const char *program, const char *config, bool on_other_core);
void local_daemon_stop(struct local_daemon *daemon);

/* VmRSS, VmHWM or the like of /proc/PID/status, in bytes. */
double local_daemon_memory(const struct local_daemon *daemon, const char *key);

#endif
