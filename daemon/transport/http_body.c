/* The body of a call as it comes: within the limit of its codec and the budget, or discarded. */
#include "transport/http_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* First piece of a body's buffer; it doubles, so that an announced length alone costs nothing. */
enum { FIRST_BYTES = 64 << 10 };

/* How much of a refused body is read, in body limits, before the connection is cut. */
enum { DISCARD_LIMITS = 4 };

uint64_t call_body_limit(const struct http_call *call)
{
    const struct http_settings *settings = &call->http->settings;

    return call->head.codec == CODEC_PROTO ? settings->proto_body_bytes : settings->json_body_bytes;
}

static uint64_t discard_limit(const struct http_call *call)
{
    const struct http_settings *settings = &call->http->settings;
    const uint64_t largest = settings->proto_body_bytes > settings->json_body_bytes ? settings->proto_body_bytes
                                                                                    : settings->json_body_bytes;

    return DISCARD_LIMITS * largest;
}

bool call_is_too_long_to_discard(const struct http_call *call)
{
    return call->framing.content_length > discard_limit(call);
}

void call_release_body(struct http_call *call)
{
    free(call->body);
    budget_give(call->budget, call->body_capacity);
    call->body = NULL;
    call->body_size = 0;
    call->body_capacity = 0;
}

void call_release_memory(struct http_call *call)
{
    call_release_body(call);
    submission_finish(&call->submission);
}

enum lossd_status call_set_too_large(struct http_call *call)
{
    struct lossd_error *err = &call->submission.error;
    const uint64_t limit = call_body_limit(call);

    (void)error_set(err, LOSSD_REQUEST_TOO_LARGE, "", "the body is larger than %" PRIu64 " bytes", limit);
    error_add_metadata(err, "limit", call->head.codec == CODEC_PROTO ? "proto_body_bytes" : "json_body_bytes");
    error_add_metadata(err, "limit_bytes", "%" PRIu64, limit);
    return LOSSD_REQUEST_TOO_LARGE;
}

/* A body that never fits is the caller's fault; one that does not fit now can be sent again. */
static enum lossd_status set_no_memory(struct http_call *call, size_t bytes)
{
    struct lossd_error *err = &call->submission.error;
    const uint64_t announced = call->framing.content_length; /* 0 where unknown */
    const uint64_t wanted = announced > bytes ? announced : bytes;
    const bool never = wanted > call->http->budget->limit_bytes; /* a reader may have the main budget next time */
    const enum lossd_status status = never ? LOSSD_LIMIT_EXCEEDED : LOSSD_OVERLOADED;

    (void)error_set(err, status, "", "the body needs more memory than is left of memory_bytes");
    error_add_metadata(err, "limit", "memory_bytes");
    return status;
}

/* needed is within the length and the limit. */
static size_t next_capacity(const struct http_call *call, size_t needed)
{
    const uint64_t most = call->framing.has_content_length ? call->framing.content_length : call_body_limit(call);
    const uint64_t doubled = call->body_capacity == 0 ? FIRST_BYTES : 2 * (uint64_t)call->body_capacity;
    const uint64_t capacity = doubled > needed ? doubled : needed;

    return (size_t)(capacity < most ? capacity : most);
}

static enum lossd_status grow(struct http_call *call, size_t needed)
{
    const size_t capacity = next_capacity(call, needed);
    const size_t more = capacity - call->body_capacity;
    uint8_t *body;

    if (!budget_take(call->budget, more))
        return set_no_memory(call, capacity);
    body = realloc(call->body, capacity);
    if (body == NULL) {
        budget_give(call->budget, more);
        return error_set(&call->submission.error, LOSSD_OVERLOADED, "", "the daemon is out of memory");
    }
    call->body = body;
    call->body_capacity = capacity;
    if (capacity > FIRST_BYTES)
        atomic_store_explicit(&call->http->had_large_body, true, memory_order_relaxed);
    return LOSSD_OK;
}

static enum lossd_status append(struct http_call *call, const char *bytes, size_t size)
{
    const size_t needed = call->body_size + size;
    enum lossd_status status = LOSSD_OK;

    if (needed > call_body_limit(call))
        return call_set_too_large(call);
    if (needed > call->body_capacity)
        status = grow(call, needed);
    if (status != LOSSD_OK)
        return status;
    memcpy(call->body + call->body_size, bytes, size);
    call->body_size = needed;
    return LOSSD_OK;
}

void call_discard(struct http_call *call)
{
    call_release_memory(call);
    if (call->framing.chunked || call->framing.content_length > 0)
        connection_refuse(call->connection, raw_answer_of(&call->submission.error, call->http_status));
}

enum MHD_Result call_receive(struct http_call *call, const char *bytes, size_t size)
{
    if (call->submission.error.status == LOSSD_OK && call->page == NULL) {
        if (append(call, bytes, size) != LOSSD_OK)
            call_discard(call);
        return MHD_YES;
    }
    call->discarded_bytes += size;
    return call->discarded_bytes > discard_limit(call) ? MHD_NO : MHD_YES;
}
