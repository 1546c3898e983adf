/* A trainer on shared memory, from the system's calls alone, for programs that misbehave. Failures end the program. */
#ifndef TESTS_SUPPORT_SHM_RAW_H
#define TESTS_SUPPORT_SHM_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "lossd_shm.h"

struct raw {
    int fd;
    unsigned char *bytes;
    struct lossd_shm_attached layout;
    struct lossd_shm_control *control;
};

/* A connected socket; waits while the daemon's backlog is full. */
int raw_connect(const char *path);

/* Send an ATTACH with one slot. */
void raw_ask(int fd, const char *group, uint32_t rank, uint64_t generation, uint64_t data_bytes);

/* Take ATTACHED and map the region. False where the daemon has refused or closed. */
bool raw_attached(struct raw *raw, int fd);

/* Unmap and close. */
void raw_close(struct raw *raw);

struct lossd_shm_submission *raw_submission(const struct raw *raw);
struct lossd_shm_answer *raw_answer(const struct raw *raw);

/*
 * Lay out C candidates in one request for tasks with these numbers of classes: columns of zeros. with_sessions: bits of
 * the tasks that have sessions. The step is the caller's to set.
 */
void raw_fill(const struct raw *raw, const unsigned *num_class, uint32_t num_candidates, uint32_t with_sessions);

/* Hand the slot over; sequence rises. */
void raw_submit(const struct raw *raw, uint64_t sequence);

/* Until the answer is there; false where the daemon has closed the connection, or after some timeout_ms. */
bool raw_wait(const struct raw *raw, uint64_t sequence, int timeout_ms);

#endif
