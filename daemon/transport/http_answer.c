/* Answers, and the one log line and the counters of each call. */
#include "transport/http_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/convert.h"

/*
 * Names and numbers only: what a message quotes may be data. The name of an unknown field is the client's: it stops
 * where it would end the quotes and go on as words of ours.
 */
static void log_call(struct http_call *call, const struct status_info *info)
{
    const struct submission *submission = &call->submission;
    const bool failed = info->http_status != MHD_HTTP_OK;
    const char *field = failed ? submission->error.field : "";
    const int64_t now_ns = clock_now_ns();

    if (failed && !log_quota_take(&call->http->log_quota, now_ns))
        return;
    log_line(failed ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
             "event=call method=%s code=%s reason=%s group=%s rank=%" PRIu32 " step=%" PRIu64
             " ms=%.3f trace=%s field=\"%.*s\"",
             call->method->path + 1, info->code_name, info->reason,
             name_is_valid(submission->group_name) ? submission->group_name : "-", submission->rank, submission->step,
             (double)(now_ns - call->head_ns) / (double)NS_PER_MS,
             call->traceparent[0] == '\0' ? "-" : call->traceparent, (int)strcspn(field, "\""), field);
}

static void count_call(struct http_call *call, enum lossd_status status)
{
    const struct status_info *info = status_info(status);

    if (call->method == NULL)
        return;
    counter_add(&call->http->counters->rpc_requests[call->method - rpc_methods][info->code], 1);
    log_call(call, info);
}

static void add_headers(struct http_call *call, struct MHD_Response *response, const char *content_type)
{
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (call->allow != NULL)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, call->allow);
    if (call->accept_post)
        (void)MHD_add_response_header(response, "Accept-Post", "application/json, application/proto");
    if (status_info(call->submission.error.status)->code == CONNECT_UNAVAILABLE)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (call->close_connection || atomic_load(&call->http->rpc.draining))
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
}

struct raw_answer raw_answer_of(const struct lossd_error *err, unsigned http_status)
{
    const struct status_info *info = status_info(err->status);
    const unsigned status = http_status != 0 ? http_status : info->http_status;
    struct raw_answer answer = {0};
    uint8_t *body = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&answer.bytes, &answer.size);
    bool failed;

    if (out == NULL)
        return (struct raw_answer){0};
    failed = error_to_connect_json(err, &body, &size) != LOSSD_OK;
    (void)fprintf(out, "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n%.*s",
                  status, MHD_get_reason_phrase_for(status), codec_media_type(CODEC_JSON), size,
                  info->code == CONNECT_UNAVAILABLE ? "Retry-After: 1\r\n" : "", (int)size, (const char *)body);
    failed |= ferror(out) != 0;
    free(body);
    if (fclose(out) == 0 && !failed)
        return answer;
    free(answer.bytes);
    return (struct raw_answer){0};
}

/* bytes from malloc, taken over. */
static enum MHD_Result queue(struct http_call *call, unsigned http_status, const char *content_type, void *bytes,
                             size_t size)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (response == NULL) {
        free(bytes);
        return MHD_NO;
    }
    add_headers(call, response, content_type);
    call->state = CALL_ANSWERED;
    result = connection_answers(call->connection, size) ? MHD_queue_response(call->mhd, http_status, response) : MHD_NO;
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result call_answer_error(struct http_call *call)
{
    enum lossd_status status;
    uint8_t *bytes = NULL;
    size_t size = 0;

    /* a reader may have the main budget next time */
    rpc_tell_shortage(&call->submission, call->body_capacity, call->http->budget->limit_bytes);
    status = call->submission.error.status;
    call_release_memory(call);
    if (error_to_connect_json(&call->submission.error, &bytes, &size) != LOSSD_OK)
        return MHD_NO;
    count_call(call, status);
    return queue(call, call->http_status != 0 ? call->http_status : status_info(status)->http_status,
                 codec_media_type(CODEC_JSON), bytes, size);
}

enum MHD_Result call_answer_message(struct http_call *call, const ProtobufCMessage *message)
{
    struct lossd_error *err = &call->submission.error;
    struct encoded encoded;

    if (message_encode(call->head.codec, message, false, &encoded, err) != LOSSD_OK)
        return call_answer_error(call);
    call_release_memory(call);
    if (!budget_take(call->budget, encoded.size)) {
        free(encoded.bytes);
        (void)error_set(err, LOSSD_OVERLOADED, "", "the answer needs more memory than is left of memory_bytes");
        error_add_metadata(err, "limit", "memory_bytes");
        return call_answer_error(call);
    }
    call->answer_bytes = encoded.size;
    count_call(call, LOSSD_OK);
    return queue(call, MHD_HTTP_OK, codec_media_type(call->head.codec), encoded.bytes, encoded.size);
}

enum MHD_Result call_answer_page(struct http_call *call)
{
    struct page_answer answer;

    if (!page_render(call->page, &call->http->pages, call->query, &answer))
        return MHD_NO;
    return queue(call, answer.http_status, answer.content_type, answer.text, answer.size);
}

enum MHD_Result call_answer_submission(struct http_call *call)
{
    ProtobufCMessage *response;

    connection_unpark(call->connection);
    if (rpc_finish(&call->submission, &response, &call->submission.error) != LOSSD_OK)
        return call_answer_error(call);
    return call_answer_message(call, response);
}
