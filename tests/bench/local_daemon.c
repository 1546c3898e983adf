#include "bench/local_daemon.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/workload.h"

static void write_config(const struct local_daemon *daemon, const char *config, char path[96])
{
    FILE *file;

    (void)snprintf(path, 96, "%s/config.json", daemon->folder);
    file = fopen(path, "w");
    if (file == NULL ||
        fprintf(file, "{%s\"listen\":[\"%s\"],\"log_level\":\"error\"}\n", config, daemon->address) < 0 ||
        fclose(file) != 0)
        bench_die("the daemon's configuration", "can't be written");
}

/* Once its socket takes a connection; the one for shared memory is there before. */
static void wait_until_ready(const struct local_daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon->address + strlen("unix:"));
    for (int tries = 0; tries < 1000; tries++) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int refused = connect(fd, (const struct sockaddr *)&address, sizeof address);

        (void)close(fd);
        if (refused == 0)
            return;
        if (waitpid(daemon->pid, NULL, WNOHANG) != 0)
            bench_die("the daemon", "ended at its start");
        (void)usleep(10000);
    }
    bench_die("the daemon", "does not answer");
}

/* One of those that this process could run on at first; all where there are not so many. */
static void take_core(const cpu_set_t *cores, int number)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; core++)
        if (CPU_ISSET(core, cores) && number-- == 0)
            CPU_SET(core, &one);
    if (CPU_COUNT(&one) == 1)
        (void)sched_setaffinity(0, sizeof one, &one);
}

void local_daemon_start(struct local_daemon *daemon, const char *program, const char *config, bool on_other_core)
{
    char path[96];

    (void)snprintf(daemon->folder, sizeof daemon->folder, "/tmp/lossd-bench-XXXXXX");
    if (mkdtemp(daemon->folder) == NULL)
        bench_die("a folder in /tmp", "can't be made");
    (void)snprintf(daemon->address, sizeof daemon->address, "unix:%s/s", daemon->folder);
    write_config(daemon, config, path);
    if (sched_getaffinity(0, sizeof daemon->cores, &daemon->cores) != 0)
        bench_die("sched_getaffinity", "fails");
    daemon->pid = fork();
    if (daemon->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a benchmark that ends half-way leaves no daemon */
        if (on_other_core)
            take_core(&daemon->cores, 1);
        execl(program, program, "--config", path, (char *)NULL);
        _exit(127);
    }
    if (daemon->pid < 0)
        bench_die("the daemon", "no process for it");
    if (on_other_core)
        take_core(&daemon->cores, 0);
    wait_until_ready(daemon);
}

void local_daemon_stop(struct local_daemon *daemon)
{
    char path[96];

    (void)kill(daemon->pid, SIGTERM);
    (void)waitpid(daemon->pid, NULL, 0);
    (void)sched_setaffinity(0, sizeof daemon->cores, &daemon->cores);
    (void)snprintf(path, sizeof path, "%s/config.json", daemon->folder);
    (void)unlink(path);
    (void)rmdir(daemon->folder);
}

double local_daemon_memory(const struct local_daemon *daemon, const char *key)
{
    char path[64];
    char line[256];
    double kilobytes = 0.0;
    FILE *file;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    file = fopen(path, "r");
    if (file == NULL)
        bench_die(path, "can't be read");
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
            kilobytes = strtod(line + strlen(key) + 1, NULL);
    (void)fclose(file);
    return kilobytes * 1024.0;
}
