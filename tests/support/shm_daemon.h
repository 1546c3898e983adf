/* The daemon's side of one shared-memory socket, on a thread, well behaved but for what it is told to do wrong. */
#ifndef TESTS_SUPPORT_SHM_DAEMON_H
#define TESTS_SUPPORT_SHM_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "lossd_shm.h"

enum shm_fault {
    SHM_GOOD,
    /* to an ATTACH */
    SHM_HANGS_UP, /* on the connection, at once */
    SHM_HANGS_UP_AFTER_ATTACH,
    SHM_REFUSES, /* LIMIT_EXCEEDED */
    SHM_OTHER_VERSION,
    SHM_OTHER_MAGIC,
    SHM_CUT_RECORD,
    SHM_LONG_RECORD,
    SHM_BELL_FIRST, /* which is no fault */
    SHM_NO_DESCRIPTOR,
    SHM_TWO_DESCRIPTORS,
    SHM_UNSEALED,
    SHM_SMALL_FILE,
    SHM_LARGE_FILE, /* a page more than was said */
    SHM_HUGE_HEAD,  /* in front of the data, of a region that is as large as was said */
    SHM_HUGE_DATA,
    SHM_OTHER_TASKS,
    SHM_OTHER_SLOTS,
    SHM_OTHER_DIGEST,
    SHM_DATA_OUTSIDE,
    SHM_SLOTS_OUTSIDE,
    SHM_ANSWER_OUTSIDE,
    SHM_UNALIGNED,
    SHM_OFF_PAGE,    /* the data */
    SHM_LARGER_HEAD, /* the data lie further behind than those of others */
    /* to a submission */
    SHM_FAILS_CALLS,       /* STEP_TIMEOUT, with metadata */
    SHM_FAILS_WITHOUT_END, /* strings without NUL, metadata of any length */
    SHM_IGNORES_CALLS,
    SHM_DIES_IN_CALL,
    SHM_ANSWERS_AND_DIES,
    SHM_BREAKS_OFF, /* REFUSED, and closed */
    SHM_SENDS_GARBAGE,
};

struct shm_daemon {
    char folder[64];
    char path[108];
    int listener;
    pthread_t thread;
    _Atomic enum shm_fault fault; /* of the next connection, or submission */
    atomic_int connections;
    atomic_int calls;                        /* read it before what follows: it is counted behind that */
    struct lossd_shm_attach attach;          /* the last one */
    struct lossd_shm_submission *submission; /* the last one, with its tasks */
    uint8_t first_byte; /* of the data block, when the last region was handed out or asked for a call */
    uint32_t num_tasks;
    uint32_t num_terms;
    const char *digest;
};

/* Listens when this returns. */
void shm_daemon_start(struct shm_daemon *daemon, uint32_t num_tasks, uint32_t num_terms, const char *digest);
void shm_daemon_stop(struct shm_daemon *daemon);

#endif
