/* Connect errors to failures. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "client/failure.h"
#include "client/rpc.h"
#include "codec/message.h"
#include "connect_error.pb-c.h"
#include "lossd/v1/error.pb-c.h"

#define ERROR_INFO  "google.rpc.ErrorInfo"
#define BAD_REQUEST "google.rpc.BadRequest"

/* Reasons of other versions are not in our table. */
static enum lossd_retry retry_of(const char *reason, enum lossd_code code)
{
    const enum lossd_status status = status_from_reason(reason);

    if (status != LOSSD_NUM_STATUSES)
        return (enum lossd_retry)status_info(status)->retry;
    return code == LOSSD_CODE_UNAVAILABLE || code == LOSSD_CODE_DEADLINE_EXCEEDED ? LOSSD_RETRY_SAME
                                                                                  : LOSSD_RETRY_NEVER;
}

static const ProtobufCMessage *decode(const ProtobufCBinaryData *value, const ProtobufCMessageDescriptor *type,
                                      struct arena *arena)
{
    const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *message;
    struct lossd_error ignored;

    if (message_decode(CODEC_PROTO, type, value->data, value->len, &limits, arena, &message, &ignored) != LOSSD_OK)
        return NULL;
    return message;
}

/* A pair that does not fit is left out. */
static void add_metadata(struct lossd_failure *failure, const char *key, const char *value)
{
    const size_t room = sizeof failure->metadata - failure->metadata_bytes;
    const size_t bytes = strlen(key) + strlen(value) + 2;

    if (bytes > room)
        return;
    memcpy(failure->metadata + failure->metadata_bytes, key, strlen(key) + 1);
    memcpy(failure->metadata + failure->metadata_bytes + strlen(key) + 1, value, strlen(value) + 1);
    failure->metadata_bytes += (uint32_t)bytes;
}

static void take_info(struct lossd_failure *failure, const ProtobufCBinaryData *value, struct arena *arena)
{
    const Lossd__V1__ErrorInfo *info = (const Lossd__V1__ErrorInfo *)decode(value, &lossd__v1__error_info__descriptor,
                                                                            arena);

    if (info == NULL)
        return;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", info->reason == NULL ? "" : info->reason);
    for (size_t i = 0; i < info->n_metadata; i++)
        if (info->metadata[i]->key != NULL && info->metadata[i]->value != NULL)
            add_metadata(failure, info->metadata[i]->key, info->metadata[i]->value);
}

/* The field; the message without it, as the other transports have it. */
static void take_field(struct lossd_failure *failure, const ProtobufCBinaryData *value, struct arena *arena)
{
    const Lossd__V1__BadRequest *bad = (const Lossd__V1__BadRequest *)decode(value, &lossd__v1__bad_request__descriptor,
                                                                             arena);
    const char *field;
    size_t length;

    if (bad == NULL || bad->n_field_violations == 0 || bad->field_violations[0]->field == NULL)
        return;
    field = bad->field_violations[0]->field;
    length = strlen(field);
    (void)snprintf(failure->field, sizeof failure->field, "%s", field);
    if (strncmp(failure->message, field, length) == 0 && strncmp(failure->message + length, ": ", 2) == 0)
        memmove(failure->message, failure->message + length + 2, strlen(failure->message + length + 2) + 1);
}

static bool take_error(struct lossd_failure *failure, const struct http_response *response, struct arena *arena)
{
    const struct decode_limits limits = {.json_depth = 32, .ignore_unknown = true};
    const Lossctl__ConnectError *error;
    ProtobufCMessage *message;
    struct lossd_error ignored;

    if (message_decode(CODEC_JSON, &lossctl__connect_error__descriptor, response->body, response->body_bytes, &limits,
                       arena, &message, &ignored) != LOSSD_OK)
        return false;
    error = (const Lossctl__ConnectError *)message;
    failure->code = error->code == NULL ? LOSSD_CODE_OK : (enum lossd_code)connect_code_from_name(error->code);
    if (failure->code == LOSSD_CODE_OK)
        return false;
    failure->reason[0] = '\0';
    failure->field[0] = '\0';
    failure->metadata_bytes = 0;
    (void)snprintf(failure->message, sizeof failure->message, "%s", error->message == NULL ? "" : error->message);
    for (size_t i = 0; i < error->n_details; i++) {
        const char *type = error->details[i]->type == NULL ? "" : error->details[i]->type;

        if (strcmp(type, ERROR_INFO) == 0)
            take_info(failure, &error->details[i]->value, arena);
        else if (strcmp(type, BAD_REQUEST) == 0)
            take_field(failure, &error->details[i]->value, arena);
    }
    failure->retry = retry_of(failure->reason, failure->code);
    return true;
}

enum lossd_code failure_from_response(struct lossd_failure *failure, const struct http_response *response,
                                      const char *address)
{
    struct arena arena;
    bool is_taken;

    arena_init(&arena, 4 * response->body_bytes + ((size_t)1 << 20), NULL);
    is_taken = take_error(failure, response, &arena);
    arena_finish(&arena);
    if (is_taken)
        return failure->code;
    return failure_set(failure, OWN_INTERNAL, "", "%s answered %d %s, which no lossd does", address, response->status,
                       response->content_type);
}
