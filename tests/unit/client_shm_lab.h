/* The client's side of shared memory at a daemon that does what it is told. */
#ifndef TESTS_UNIT_CLIENT_SHM_LAB_H
#define TESTS_UNIT_CLIENT_SHM_LAB_H

#include <stdbool.h>

#include "client/failure.h"
#include "client/transport.h"
#include "support/shm_daemon.h"

enum { SLOT_BYTES = 4096, NUM_SLOTS = 2 };

/* Two tasks, three losses. */
extern const struct member lab_member;

struct lab {
    struct shm_daemon daemon;
    struct transport *transport;
    struct lossd_failure failure;
    struct batch_layout layout;
    struct lossd_task tasks[2];
    struct lossd_result result;
    struct lossd_task_result task_results[2];
    struct lossd_term terms[3];
};

void lab_init(struct lab *lab, bool no_spin);
void lab_finish(struct lab *lab);

enum lossd_code lab_attach(struct lab *lab);

/* A batch of slot 1, begun and waited for. */
enum lossd_code lab_compute(struct lab *lab, int64_t deadline_ns);

int64_t soon(uint64_t ms);

/* Of this process. */
int count_descriptors(void);

#endif
