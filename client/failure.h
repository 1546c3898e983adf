/* Failures as lossd.h has them, from whoever says what went wrong: this library, the daemon, its shared memory. */
#ifndef CLIENT_FAILURE_H
#define CLIENT_FAILURE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"
#include "client/lossd.h"
#include "lossd_shm.h"

/* The library's own reasons; lossd.h says what they mean. */
enum own_reason {
    OWN_BAD_ADDRESS,
    OWN_BAD_ENVIRONMENT,
    OWN_BAD_OPTION,
    OWN_BAD_CONFIG,
    OWN_BAD_SHAPE,
    OWN_BAD_CALL,
    OWN_CANNOT_CONNECT,
    OWN_CONNECTION_LOST,
    OWN_NO_ANSWER,
    OWN_INTERRUPTED,
    OWN_VERSION,
    OWN_OUT_OF_MEMORY,
    OWN_INTERNAL,
    NUM_OWN_REASONS,
};

/* Fill *failure and return its code. Drops earlier metadata. field: a path, or "". Text that is too long is cut. */
enum lossd_code failure_set(struct lossd_failure *failure, enum own_reason reason, const char *field,
                            const char *format, ...) PRINTF_LIKE(4, 5);

/* Of the daemon's code. */
enum lossd_code failure_from_error(struct lossd_failure *failure, const struct lossd_error *error);

/* Of a daemon that doesn't hold its memory still or has other bounds than ours: everything is cut and checked. */
enum lossd_code failure_from_shm(struct lossd_failure *failure, const struct lossd_shm_error *error);

/* *to = *from, but only the bytes in use. to may be NULL. */
void failure_copy(struct lossd_failure *to, const struct lossd_failure *from);

bool failure_is(const struct lossd_failure *failure, const char *reason);

/* The daemon was not reached, went away, or is about to: the same call is worth another try. */
bool failure_is_of_connection(const struct lossd_failure *failure);

/* INTERRUPTED: nothing is wrong, but somebody doesn't want to wait. */
bool failure_is_interruption(const struct lossd_failure *failure);

/* The daemon does not know this rank as it should: somebody has joined anew, or the daemon has. */
bool failure_is_of_membership(const struct lossd_failure *failure);

#endif
