/*
 * shm_victims SOCKET GROUP GENERATION GENERATION-ALONE TIMES
 *
 * TIMES processes, one after the other, that are killed in the middle of something: while they connect, attach, get a
 * large region, fill columns, wait for a peer, are computed, or have their answer. GROUP is of two ranks, of which only
 * rank 0 is here; GROUP-alone is of one, without average. Both have one task of one logit.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/shm_raw.h"

enum phase { CONNECTING, ATTACHING, TOUCHING, FILLING, WAITING, COMPUTING, ANSWERED, NUM_PHASES };

enum { SMALL_BYTES = 1 << 16, LARGE_BYTES = 16 << 20, LARGE_CANDIDATES = 200000 };

struct victim {
    const char *path;
    char group[64];
    uint64_t generation;
    enum phase phase;
    uint64_t step;
    int told; /* pipe: a byte when the phase begins */
};

static void tell(const struct victim *victim)
{
    (void)!write(victim->told, "", 1);
}

/* As far as the phase. */
static void live(const struct victim *victim)
{
    static const unsigned num_class[] = {1};
    const bool is_large = victim->phase == TOUCHING || victim->phase == COMPUTING;
    struct raw raw;
    int fd;

    if (victim->phase == CONNECTING)
        tell(victim);
    fd = raw_connect(victim->path);
    if (victim->phase == ATTACHING)
        tell(victim);
    raw_ask(fd, victim->group, 0, victim->generation, is_large ? LARGE_BYTES : SMALL_BYTES);
    if (victim->phase == TOUCHING)
        tell(victim);
    if (!raw_attached(&raw, fd))
        exit(EXIT_FAILURE);
    if (victim->phase == FILLING)
        tell(victim);
    raw_submission(&raw)->step = victim->step;
    raw_fill(&raw, num_class, is_large ? LARGE_CANDIDATES : 3, 0);
    raw_submit(&raw, 1);
    if (victim->phase == WAITING || victim->phase == COMPUTING)
        tell(victim);
    if (raw_wait(&raw, 1, 20000) && victim->phase == ANSWERED)
        tell(victim);
    (void)pause();
}

static bool kill_one(struct victim *victim)
{
    int pipe_fds[2];
    char byte;
    pid_t child;
    int status;
    bool has_told;

    if (pipe(pipe_fds) != 0)
        return false;
    child = fork();
    if (child == 0) {
        (void)close(pipe_fds[0]);
        victim->told = pipe_fds[1];
        live(victim);
        _exit(EXIT_FAILURE);
    }
    (void)close(pipe_fds[1]);
    has_told = child > 0 && read(pipe_fds[0], &byte, 1) == 1;
    (void)close(pipe_fds[0]);
    (void)nanosleep(&(struct timespec){.tv_nsec = rand() % 1500000}, NULL);
    (void)kill(child, SIGKILL);
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && has_told;
}

int main(int argc, char **argv)
{
    const int times = argc == 6 ? atoi(argv[5]) : 0;

    for (int i = 0; i < times; i++) {
        const enum phase phase = (enum phase)(i % NUM_PHASES);
        const bool is_alone = phase == COMPUTING || phase == ANSWERED;
        struct victim victim = {.path = argv[1], .phase = phase, .step = (uint64_t)i};

        (void)snprintf(victim.group, sizeof victim.group, is_alone ? "%s-alone" : "%s", argv[2]);
        victim.generation = strtoull(argv[is_alone ? 4 : 3], NULL, 10);
        if (!kill_one(&victim)) {
            (void)fprintf(stderr, "victim %d did not come to phase %d\n", i, (int)phase);
            return EXIT_FAILURE;
        }
    }
    (void)printf("%d\n", times);
    return times > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
