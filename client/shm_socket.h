/*
 * The SEQPACKET socket of shared memory as a trainer speaks it: attach, ring, sleep. Failures of the way:
 * CANNOT_CONNECT, CONNECTION_LOST, NO_ANSWER, INTERRUPTED, VERSION, OUT_OF_MEMORY (or descriptors are out); INTERNAL
 * for records that no lossd sends. All others are the daemon's, which says REFUSED.
 */
#ifndef CLIENT_SHM_SOCKET_H
#define CLIENT_SHM_SOCKET_H

#include <stdint.h>

#include "client/interrupt.h"
#include "client/lossd.h"
#include "lossd_shm.h"

/* *fd, close-on-exec, is written on success. */
enum lossd_code shm_socket_connect(const char *path, int *fd, struct lossd_failure *failure);

/*
 * Send an ATTACH (its header is filled in here) and wait for the answer until deadline_ns (monotonic). Where the daemon
 * refuses, the connection goes on. *region_fd is the caller's.
 */
enum lossd_code shm_socket_attach(int fd, struct lossd_shm_attach *attach, int64_t deadline_ns,
                                  struct interrupt *interrupt, struct lossd_shm_attached *attached, int *region_fd,
                                  struct lossd_failure *failure);

/* Wake the daemon. Never waits: a socket that is full or broken tells the daemon as much, or the next shm_socket_sleep.
 */
void shm_socket_ring(int fd);

/*
 * Sleep until the daemon rings, at most until deadline_ns; may wake up for nothing. NO_ANSWER, INTERRUPTED,
 * CONNECTION_LOST, and what the daemon closes the connection for.
 */
enum lossd_code shm_socket_sleep(int fd, int64_t deadline_ns, struct interrupt *interrupt,
                                 struct lossd_failure *failure);

#endif
