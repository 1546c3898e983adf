/* The table of errors, and the functions that fill one. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[] = {
    [CONNECT_CANCELED] = "canceled",
    [CONNECT_UNKNOWN] = "unknown",
    [CONNECT_INVALID_ARGUMENT] = "invalid_argument",
    [CONNECT_DEADLINE_EXCEEDED] = "deadline_exceeded",
    [CONNECT_NOT_FOUND] = "not_found",
    [CONNECT_ALREADY_EXISTS] = "already_exists",
    [CONNECT_PERMISSION_DENIED] = "permission_denied",
    [CONNECT_RESOURCE_EXHAUSTED] = "resource_exhausted",
    [CONNECT_FAILED_PRECONDITION] = "failed_precondition",
    [CONNECT_ABORTED] = "aborted",
    [CONNECT_OUT_OF_RANGE] = "out_of_range",
    [CONNECT_UNIMPLEMENTED] = "unimplemented",
    [CONNECT_INTERNAL] = "internal",
    [CONNECT_UNAVAILABLE] = "unavailable",
    [CONNECT_DATA_LOSS] = "data_loss",
    [CONNECT_UNAUTHENTICATED] = "unauthenticated",
};

static const struct status_info table[LOSSD_NUM_STATUSES] = {
    [LOSSD_OK] = {"OK", 0, "ok", 200, RETRY_NEVER},
#define ROW(status, code, name, http, retry) [LOSSD_##status] = {#status, CONNECT_##code, name, http, RETRY_##retry}
    ROW(MALFORMED_REQUEST, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(INVALID_ARGUMENT, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(SHAPE_MISMATCH, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(LABEL_COUNT_MISMATCH, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(LABEL_OUT_OF_RANGE, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(WEIGHT_OUT_OF_RANGE, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(TASK_SET_MISMATCH, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(NONFINITE_LOGITS, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(INVALID_CONFIG, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(RANK_RANGE, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(STEP_RANGE, INVALID_ARGUMENT, "invalid_argument", 400, NEVER),
    ROW(GROUP_NOT_FOUND, NOT_FOUND, "not_found", 404, FIX),
    ROW(SERVICE_NOT_FOUND, NOT_FOUND, "not_found", 404, FIX),
    ROW(CONFIG_DIGEST_MISMATCH, FAILED_PRECONDITION, "failed_precondition", 400, FIX),
    ROW(STALE_GENERATION, FAILED_PRECONDITION, "failed_precondition", 400, HIGHER),
    ROW(RANK_NOT_JOINED, FAILED_PRECONDITION, "failed_precondition", 400, HIGHER),
    ROW(ANNOUNCE_NEEDS_BATCH, FAILED_PRECONDITION, "failed_precondition", 400, NEVER),
    ROW(ANNOUNCE_TOO_EARLY, FAILED_PRECONDITION, "failed_precondition", 400, HIGHER),
    ROW(STEP_OUT_OF_ORDER, ABORTED, "aborted", 409, HIGHER),
    ROW(STEP_PAYLOAD_CONFLICT, ALREADY_EXISTS, "already_exists", 409, NEVER),
    ROW(STEP_DESYNC, ABORTED, "aborted", 409, HIGHER),
    ROW(STEP_REJECTED_BY_PEER, ABORTED, "aborted", 409, HIGHER),
    ROW(RANK_LEFT, ABORTED, "aborted", 409, HIGHER),
    ROW(SUPERSEDED, ABORTED, "aborted", 409, HIGHER),
    ROW(PEER_WAIT_DEADLINE, DEADLINE_EXCEEDED, "deadline_exceeded", 504, SAME),
    ROW(STEP_TIMEOUT, DEADLINE_EXCEEDED, "deadline_exceeded", 504, SAME),
    ROW(CLIENT_GONE, CANCELED, "canceled", 499, SAME),
    ROW(REQUEST_TOO_LARGE, RESOURCE_EXHAUSTED, "resource_exhausted", 429, NEVER),
    ROW(LIMIT_EXCEEDED, RESOURCE_EXHAUSTED, "resource_exhausted", 429, FIX),
    ROW(OVERLOADED, UNAVAILABLE, "unavailable", 503, SAME),
    ROW(SHUTTING_DOWN, UNAVAILABLE, "unavailable", 503, SAME),
    ROW(NOT_SUPPORTED, UNIMPLEMENTED, "unimplemented", 501, NEVER),
    ROW(METHOD_NOT_FOUND, UNIMPLEMENTED, "unimplemented", 404, NEVER),
    ROW(INTERNAL, INTERNAL, "internal", 500, HIGHER),
#undef ROW
};

const struct status_info *status_info(enum lossd_status status)
{
    return &table[(unsigned)status < LOSSD_NUM_STATUSES ? status : LOSSD_INTERNAL];
}

enum lossd_status status_from_reason(const char *reason)
{
    for (int status = 0; status < LOSSD_NUM_STATUSES; status++)
        if (strcmp(table[status].reason, reason) == 0)
            return (enum lossd_status)status;
    return LOSSD_NUM_STATUSES;
}

const char *connect_code_name(enum connect_code code)
{
    if (code < CONNECT_CANCELED || code > CONNECT_UNAUTHENTICATED)
        return NULL;
    return code_names[code];
}

int connect_code_from_name(const char *name)
{
    for (int code = CONNECT_CANCELED; code <= CONNECT_UNAUTHENTICATED; code++)
        if (strcmp(code_names[code], name) == 0)
            return code;
    return 0;
}

void error_init(struct lossd_error *err)
{
    err->status = LOSSD_OK;
    err->field[0] = '\0';
    err->message[0] = '\0';
    err->metadata_bytes = 0;
}

enum lossd_status error_set(struct lossd_error *err, enum lossd_status status, const char *field, const char *format,
                            ...)
{
    va_list arguments;

    err->status = status;
    (void)snprintf(err->field, sizeof err->field, "%s", field);
    va_start(arguments, format);
    (void)vsnprintf(err->message, sizeof err->message, format, arguments);
    va_end(arguments);
    err->metadata_bytes = 0;
    return status;
}

void error_prefix_field(struct lossd_error *err, const char *format, ...)
{
    char inner[sizeof err->field];
    va_list arguments;
    int length;

    memcpy(inner, err->field, sizeof inner);
    va_start(arguments, format);
    length = vsnprintf(err->field, sizeof err->field, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length + 1 >= sizeof err->field)
        return;
    if (inner[0] != '\0' && inner[0] != '[')
        err->field[length++] = '.';
    (void)snprintf(err->field + length, sizeof err->field - (size_t)length, "%s", inner);
}

void error_add_metadata(struct lossd_error *err, const char *key, const char *format, ...)
{
    const size_t key_bytes = strlen(key) + 1;
    const size_t room = sizeof err->metadata - err->metadata_bytes;
    va_list arguments;
    int length;

    if (key_bytes >= room)
        return;
    va_start(arguments, format);
    length = vsnprintf(err->metadata + err->metadata_bytes + key_bytes, room - key_bytes, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= room - key_bytes)
        return;
    memcpy(err->metadata + err->metadata_bytes, key, key_bytes);
    err->metadata_bytes += key_bytes + (size_t)length + 1;
}

void error_copy(struct lossd_error *to, const struct lossd_error *from)
{
    to->status = from->status;
    memcpy(to->field, from->field, strlen(from->field) + 1);
    memcpy(to->message, from->message, strlen(from->message) + 1);
    to->metadata_bytes = from->metadata_bytes;
    memcpy(to->metadata, from->metadata, from->metadata_bytes);
}

bool error_next_metadata(const struct lossd_error *err, size_t *cursor, const char **key, const char **value)
{
    if (*cursor >= err->metadata_bytes)
        return false;
    *key = err->metadata + *cursor;
    *value = *key + strlen(*key) + 1;
    *cursor = (size_t)(*value + strlen(*value) + 1 - err->metadata);
    return true;
}
