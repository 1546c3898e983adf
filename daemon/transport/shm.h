/*
 * Shared memory with the trainers of this node: proto/lossd_shm.h says what goes over the socket and where it lies.
 *
 * One thread serves all trainers. It looks for submissions in their regions, and at its sockets once a millisecond; for
 * some microseconds after the last one it spins, and then sleeps until somebody rings. The functions here are for the
 * main thread.
 */
#ifndef TRANSPORT_SHM_H
#define TRANSPORT_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/counters.h"
#include "base/status.h"
#include "group/registry.h"

/* Keys of the configuration; ranges are checked there. */
struct shm_settings {
    uint32_t spin_us;           /* 0: never spin */
    uint64_t region_bytes;      /* the largest data block of a trainer */
    uint64_t regions_bytes;     /* all regions together, control blocks included */
    uint32_t clients;           /* connections */
    uint32_t attach_timeout_ms; /* of a connection that does not attach */
    struct batch_limits batch_limits;
};

struct shm;

/*
 * All parts are borrowed and have to outlive it. budget is for what is copied of a submission, and for what is computed
 * on it. NULL, with err, where memory or descriptors can't be had.
 */
struct shm *shm_create(const struct shm_settings *settings, struct registry *registry, struct counters *counters,
                       struct memory_budget *budget, struct lossd_error *err);

/*
 * Serve a listening SOCK_SEQPACKET socket; before shm_start. The descriptor is taken over, in every case.
 * LOSSD_INTERNAL.
 */
CHECK_RESULT
enum lossd_status shm_listen(struct shm *shm, int listen_fd, struct lossd_error *err);

/* Start the thread. LOSSD_INTERNAL. */
CHECK_RESULT
enum lossd_status shm_start(struct shm *shm, struct lossd_error *err);

/* Readable when shm_watch has something to do. */
int shm_watch_fd(const struct shm *shm);

/*
 * Free what the thread has no use for any more: large regions take tens of milliseconds, in which trainers would wait.
 */
void shm_watch(struct shm *shm);

/*
 * Take no more connections, and refuse ATTACH and every new submission with LOSSD_SHUTTING_DOWN. Open calls end when
 * the registry ends them.
 */
void shm_close(struct shm *shm);

/* Submissions that are taken and not answered. */
size_t shm_open_calls(const struct shm *shm);

/*
 * Stop the thread and let all trainers go; what they have submitted up to now is answered. After shm_close, and when no
 * submission of the registry is open. Takes NULL.
 */
void shm_destroy(struct shm *shm);

#endif
