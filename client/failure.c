/* The table of the library's own reasons, and copies of failures. */
#include "client/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum lossd_code code;
    enum lossd_retry retry;
} own_reasons[NUM_OWN_REASONS] = {
    [OWN_BAD_ADDRESS] = {"BAD_ADDRESS", LOSSD_CODE_INVALID_ARGUMENT, LOSSD_RETRY_NEVER},
    [OWN_BAD_ENVIRONMENT] = {"BAD_ENVIRONMENT", LOSSD_CODE_INVALID_ARGUMENT, LOSSD_RETRY_NEVER},
    [OWN_BAD_OPTION] = {"BAD_OPTION", LOSSD_CODE_INVALID_ARGUMENT, LOSSD_RETRY_NEVER},
    [OWN_BAD_CONFIG] = {"BAD_CONFIG", LOSSD_CODE_INVALID_ARGUMENT, LOSSD_RETRY_NEVER},
    [OWN_BAD_SHAPE] = {"BAD_SHAPE", LOSSD_CODE_INVALID_ARGUMENT, LOSSD_RETRY_NEVER},
    [OWN_BAD_CALL] = {"BAD_CALL", LOSSD_CODE_FAILED_PRECONDITION, LOSSD_RETRY_NEVER},
    [OWN_CANNOT_CONNECT] = {"CANNOT_CONNECT", LOSSD_CODE_UNAVAILABLE, LOSSD_RETRY_SAME},
    [OWN_CONNECTION_LOST] = {"CONNECTION_LOST", LOSSD_CODE_UNAVAILABLE, LOSSD_RETRY_SAME},
    [OWN_NO_ANSWER] = {"NO_ANSWER", LOSSD_CODE_DEADLINE_EXCEEDED, LOSSD_RETRY_SAME},
    [OWN_INTERRUPTED] = {"INTERRUPTED", LOSSD_CODE_CANCELED, LOSSD_RETRY_SAME},
    [OWN_VERSION] = {"VERSION", LOSSD_CODE_UNIMPLEMENTED, LOSSD_RETRY_FIX},
    [OWN_OUT_OF_MEMORY] = {"OUT_OF_MEMORY", LOSSD_CODE_RESOURCE_EXHAUSTED, LOSSD_RETRY_FIX},
    [OWN_INTERNAL] = {"INTERNAL", LOSSD_CODE_INTERNAL, LOSSD_RETRY_HIGHER},
};

enum lossd_code failure_set(struct lossd_failure *failure, enum own_reason reason, const char *field,
                            const char *format, ...)
{
    va_list arguments;

    failure->code = own_reasons[reason].code;
    failure->retry = own_reasons[reason].retry;
    failure->metadata_bytes = 0;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", own_reasons[reason].name);
    (void)snprintf(failure->field, sizeof failure->field, "%s", field);
    va_start(arguments, format);
    (void)vsnprintf(failure->message, sizeof failure->message, format, arguments);
    va_end(arguments);
    return failure->code;
}

enum lossd_code failure_from_error(struct lossd_failure *failure, const struct lossd_error *error)
{
    const struct status_info *info = status_info(error->status);

    failure->code = (enum lossd_code)info->code;
    failure->retry = (enum lossd_retry)info->retry;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", info->reason);
    (void)snprintf(failure->field, sizeof failure->field, "%s", error->field);
    (void)snprintf(failure->message, sizeof failure->message, "%s", error->message);
    failure->metadata_bytes = (uint32_t)error->metadata_bytes;
    memcpy(failure->metadata, error->metadata, error->metadata_bytes);
    return failure->code;
}

static void take_text(char *to, size_t to_size, const char *from, size_t from_size)
{
    const size_t length = strnlen(from, from_size < to_size ? from_size : to_size - 1);

    memcpy(to, from, length);
    to[length < to_size ? length : to_size - 1] = '\0';
}

/* Whole pairs alone: the last byte has to end the last of them. */
static uint32_t take_metadata(char *to, size_t to_size, const struct lossd_shm_error *error)
{
    const uint32_t bytes = error->metadata_bytes;

    if (bytes == 0 || bytes > to_size || bytes > sizeof error->metadata)
        return 0;
    memcpy(to, error->metadata, bytes);
    return to[bytes - 1] == '\0' ? bytes : 0;
}

enum lossd_code failure_from_shm(struct lossd_failure *failure, const struct lossd_shm_error *error)
{
    char code[sizeof error->code + 1];

    take_text(code, sizeof code, error->code, sizeof error->code);
    take_text(failure->reason, sizeof failure->reason, error->reason, sizeof error->reason);
    take_text(failure->field, sizeof failure->field, error->field, sizeof error->field);
    take_text(failure->message, sizeof failure->message, error->message, sizeof error->message);
    failure->metadata_bytes = take_metadata(failure->metadata, sizeof failure->metadata, error);
    failure->code = (enum lossd_code)connect_code_from_name(code);
    if (failure->code == LOSSD_CODE_OK)
        failure->code = LOSSD_CODE_UNKNOWN;
    failure->retry = error->retry <= LOSSD_SHM_RETRY_FIX ? (enum lossd_retry)error->retry : LOSSD_RETRY_NEVER;
    return failure->code;
}

void failure_copy(struct lossd_failure *to, const struct lossd_failure *from)
{
    if (to == NULL)
        return;
    memcpy(to, from, offsetof(struct lossd_failure, metadata));
    memcpy(to->metadata, from->metadata, from->metadata_bytes);
}

bool failure_is(const struct lossd_failure *failure, const char *reason)
{
    return strcmp(failure->reason, reason) == 0;
}

bool failure_is_of_connection(const struct lossd_failure *failure)
{
    return failure->code == LOSSD_CODE_UNAVAILABLE;
}

bool failure_is_interruption(const struct lossd_failure *failure)
{
    return failure->code == LOSSD_CODE_CANCELED && failure_is(failure, own_reasons[OWN_INTERRUPTED].name);
}

bool failure_is_of_membership(const struct lossd_failure *failure)
{
    return failure_is(failure, "GROUP_NOT_FOUND") || failure_is(failure, "RANK_NOT_JOINED") ||
           failure_is(failure, "STALE_GENERATION");
}

/* Pairs end within metadata_bytes, or the walk stops. */
const char *lossd_failure_metadata(const struct lossd_failure *failure, const char *key)
{
    const char *text = failure->metadata;
    const char *const end = failure->metadata + failure->metadata_bytes;

    while (text < end) {
        const char *value = memchr(text, '\0', (size_t)(end - text));
        const char *next = value == NULL ? NULL : memchr(value + 1, '\0', (size_t)(end - value - 1));

        if (next == NULL)
            return NULL;
        if (strcmp(text, key) == 0)
            return value + 1;
        text = next + 1;
    }
    return NULL;
}
