/*
 * What went wrong: the status that a function returns, the details that travel beside it by value, and the one table
 * that gives each status its reason, Connect code, HTTP status and whether the same call can help.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum lossd_status {
    LOSSD_OK,
    LOSSD_MALFORMED_REQUEST,
    LOSSD_INVALID_ARGUMENT, /* a value out of its range, where no row below is nearer */
    LOSSD_SHAPE_MISMATCH,
    LOSSD_LABEL_COUNT_MISMATCH,
    LOSSD_LABEL_OUT_OF_RANGE,
    LOSSD_WEIGHT_OUT_OF_RANGE,
    LOSSD_TASK_SET_MISMATCH,
    LOSSD_NONFINITE_LOGITS,
    LOSSD_INVALID_CONFIG,
    LOSSD_RANK_RANGE,
    LOSSD_STEP_RANGE,
    LOSSD_GROUP_NOT_FOUND,
    LOSSD_SERVICE_NOT_FOUND,
    LOSSD_CONFIG_DIGEST_MISMATCH,
    LOSSD_STALE_GENERATION,
    LOSSD_RANK_NOT_JOINED,
    LOSSD_ANNOUNCE_NEEDS_BATCH,
    LOSSD_ANNOUNCE_TOO_EARLY,
    LOSSD_STEP_OUT_OF_ORDER,
    LOSSD_STEP_PAYLOAD_CONFLICT,
    LOSSD_STEP_DESYNC,
    LOSSD_STEP_REJECTED_BY_PEER,
    LOSSD_RANK_LEFT,
    LOSSD_SUPERSEDED,
    LOSSD_PEER_WAIT_DEADLINE,
    LOSSD_STEP_TIMEOUT,
    LOSSD_CLIENT_GONE,
    LOSSD_REQUEST_TOO_LARGE,
    LOSSD_LIMIT_EXCEEDED,
    LOSSD_OVERLOADED,
    LOSSD_SHUTTING_DOWN,
    LOSSD_NOT_SUPPORTED,
    LOSSD_METHOD_NOT_FOUND,
    LOSSD_INTERNAL,
    LOSSD_NUM_STATUSES,
};

/* Codes of the Connect protocol, numbered as gRPC numbers them. */
enum connect_code {
    CONNECT_CANCELED = 1,
    CONNECT_UNKNOWN = 2,
    CONNECT_INVALID_ARGUMENT = 3,
    CONNECT_DEADLINE_EXCEEDED = 4,
    CONNECT_NOT_FOUND = 5,
    CONNECT_ALREADY_EXISTS = 6,
    CONNECT_PERMISSION_DENIED = 7,
    CONNECT_RESOURCE_EXHAUSTED = 8,
    CONNECT_FAILED_PRECONDITION = 9,
    CONNECT_ABORTED = 10,
    CONNECT_OUT_OF_RANGE = 11,
    CONNECT_UNIMPLEMENTED = 12,
    CONNECT_INTERNAL = 13,
    CONNECT_UNAVAILABLE = 14,
    CONNECT_DATA_LOSS = 15,
    CONNECT_UNAUTHENTICATED = 16,
};

enum retry {
    RETRY_NEVER,  /* the same call fails again */
    RETRY_SAME,   /* the same call can succeed */
    RETRY_HIGHER, /* join again, or go on to another step */
    RETRY_FIX,    /* something outside the call has to change first */
};

/* One row of the table. All strings are static. */
struct status_info {
    const char *reason; /* "SHAPE_MISMATCH" */
    enum connect_code code;
    const char *code_name; /* "invalid_argument" */
    unsigned http_status;
    enum retry retry;
};

/* Any status, LOSSD_OK included (reason "OK", code 0, HTTP 200). Never NULL. */
const struct status_info *status_info(enum lossd_status status);

/* The row whose reason is this, or LOSSD_NUM_STATUSES. */
enum lossd_status status_from_reason(const char *reason);

/* "invalid_argument" for 3; NULL where there is no such code. */
const char *connect_code_name(enum connect_code code);

/* 3, of enum connect_code, for "invalid_argument"; 0 where there is no such name. */
int connect_code_from_name(const char *name);

/*
 * An error, by value: made on one thread, read on another, on the wire as it is. Success leaves it alone.
 * metadata holds key and value strings, each ended by NUL, alternating.
 */
struct lossd_error {
    enum lossd_status status; /* same as returned */
    char field[160];          /* "tasks[1].labels[17]", or "" */
    char message[320];        /* one sentence without a full stop: what was found, what was expected */
    size_t metadata_bytes;
    char metadata[12288]; /* holds the ranges of 4,096 absent ranks */
};

/* An empty error. The arrays need no more than their first byte. */
void error_init(struct lossd_error *err);

/*
 * Fill *err and return status, so that callers can write `return error_set(…)`. Drops earlier metadata.
 * field: a path as in the wire's names, or "". Text that is too long is cut.
 */
enum lossd_status error_set(struct lossd_error *err, enum lossd_status status, const char *field, const char *format,
                            ...) PRINTF_LIKE(4, 5);

/* Put "outer." (or "outer" before a "[") in front of err->field: callers know where their part stands. */
void error_prefix_field(struct lossd_error *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Add a key and a value. A pair that does not fit is left out. */
void error_add_metadata(struct lossd_error *err, const char *key, const char *format, ...) PRINTF_LIKE(3, 4);

/* *to = *from, but only the bytes in use: an error is 12 KiB that are mostly empty. */
void error_copy(struct lossd_error *to, const struct lossd_error *from);

/*
 * Walk the pairs: *cursor starts at 0; false at the end. The strings belong to err.
 */
bool error_next_metadata(const struct lossd_error *err, size_t *cursor, const char **key, const char **value);

#endif
