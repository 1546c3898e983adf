/* A call from its request line until it is answered or parked. */
#include "transport/http_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

/*
 * What one call may hold beside its body while it is decoded, when a small body may grow (empty sub-messages, one-byte
 * numbers): three times the largest body.
 */
enum { DECODED_BODIES = 3, DECODED_BASE_BYTES = 128 << 10 };

/* A target in absolute form, as proxies get it, names the host once more (RFC 9112, 3.2.2). */
static char *copy_target(const char *target)
{
    const size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    const char *rest = scheme == 0 ? target : target + scheme + strcspn(target + scheme, "/?");
    const bool has_path = scheme == 0 || rest[0] == '/';
    char *copy = malloc(strlen(rest) + 2);

    if (copy == NULL)
        return NULL;
    copy[0] = '/';
    memcpy(copy + (has_path ? 0 : 1), rest, strlen(rest) + 1);
    return copy;
}

struct http_call *call_create(struct http *http, struct http_connection *connection, const char *target)
{
    struct http_call *call = malloc(sizeof *call);
    char *question;

    if (call == NULL)
        return NULL;
    memset(call, 0, offsetof(struct http_call, submission));
    submission_init(&call->submission, RPC_ARENA_BASE_BYTES, http->budget);
    call->http = http;
    call->budget = http->budget;
    call->connection = connection;
    call->path = copy_target(target);
    if (call->path == NULL) {
        free(call);
        return NULL;
    }
    call->has_clean_target = strpbrk(call->path, " \t\v\f\r\n") == NULL;
    question = strchr(call->path, '?');
    if (question != NULL) {
        *question = '\0';
        call->query = question + 1;
    }
    return call;
}

void call_destroy(struct http_call *call)
{
    if (call == NULL)
        return;
    call_release_memory(call);
    budget_give(call->budget, call->answer_bytes);
    if (call->is_limited)
        (void)gauge_add(&call->http->limited_calls, -1);
    if (call->is_open)
        (void)gauge_add(&call->http->counters->open_calls, -1);
    free(call->path);
    free(call);
}

struct header_list {
    struct header_field fields[MAX_HEADER_FIELDS];
    size_t count;
    bool overflow;
};

static enum MHD_Result collect_field(void *context, enum MHD_ValueKind kind, const char *name, size_t name_length,
                                     const char *value, size_t value_length)
{
    struct header_list *list = context;

    (void)kind;
    if (list->count == MAX_HEADER_FIELDS) {
        list->overflow = true;
        return MHD_NO;
    }
    list->fields[list->count++] = (struct header_field){
        .name = name,
        .name_length = name_length,
        .value = value == NULL ? "" : value,
        .value_length = value == NULL ? 0 : value_length,
    };
    return MHD_YES;
}

static enum lossd_status collect_headers(struct http_call *call, const char *version, struct header_list *list,
                                         struct lossd_error *err)
{
    enum lossd_status status;

    list->count = 0;
    list->overflow = false;
    (void)MHD_get_connection_values_n(call->mhd, MHD_HEADER_KIND, collect_field, list);
    if (list->overflow)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "has more than %d headers", MAX_HEADER_FIELDS);
    if (!call->has_clean_target)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "the request line has a space in its target");
    status = connect_check_framing(list->fields, list->count, &call->framing, err);
    if (status == LOSSD_OK && !call->framing.has_host && strcmp(version, MHD_HTTP_VERSION_1_0) != 0)
        status = error_set(err, LOSSD_MALFORMED_REQUEST, "Host", "is absent");
    return status;
}

static enum lossd_status set_wrong_verb(struct http_call *call, const char *allow, struct lossd_error *err)
{
    call->http_status = MHD_HTTP_METHOD_NOT_ALLOWED;
    call->allow = allow;
    (void)error_set(err, LOSSD_NOT_SUPPORTED, "", "the path does not take this HTTP method, but %s", allow);
    error_add_metadata(err, "supported", "%s", allow);
    return LOSSD_NOT_SUPPORTED;
}

static enum lossd_status route(struct http_call *call, const char *verb, struct lossd_error *err)
{
    const bool is_post = strcmp(verb, MHD_HTTP_METHOD_POST) == 0;

    call->is_get = strcmp(verb, MHD_HTTP_METHOD_GET) == 0;
    call->page = page_find(call->path);
    if (call->page != NULL) {
        if (!call->is_get && strcmp(verb, MHD_HTTP_METHOD_HEAD) != 0)
            return set_wrong_verb(call, "GET, HEAD", err);
        return LOSSD_OK;
    }
    call->method = rpc_find(call->path);
    if (call->method == NULL)
        return error_set(err, LOSSD_METHOD_NOT_FOUND, "", "there is no such path: / lists them");
    if (!is_post && !(call->is_get && call->method->allows_get))
        return set_wrong_verb(call, call->method->allows_get ? "GET, POST" : "POST", err);
    return LOSSD_OK;
}

static void keep_traceparent(struct http_call *call, const struct header_list *list)
{
    const struct header_field *field = header_find(list->fields, list->count, "traceparent");

    if (field == NULL || !traceparent_is_valid(field->value, field->value_length))
        return;
    memcpy(call->traceparent, field->value, TRACEPARENT_SIZE - 1);
    call->traceparent[TRACEPARENT_SIZE - 1] = '\0';
}

/* 415 is the status for a codec that is not spoken, and what is comes with it. */
static enum lossd_status check_codec(struct http_call *call, const struct header_list *list, struct lossd_error *err)
{
    enum lossd_status status;

    if (call->is_get) {
        if (!call->framing.chunked && call->framing.content_length == 0)
            return LOSSD_OK;
        status = error_set(err, LOSSD_NOT_SUPPORTED, "", "a GET with a body, but the message belongs in the query");
    } else {
        status = connect_parse_content_type(list->fields, list->count, &call->head, err);
    }
    if (status == LOSSD_NOT_SUPPORTED) {
        call->http_status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
        call->accept_post = true;
    }
    return status;
}

static enum lossd_status overloaded(struct lossd_error *err, const char *limit, uint32_t value, const char *what)
{
    (void)error_set(err, LOSSD_OVERLOADED, "", "%" PRIu32 " %s are open already", value, what);
    error_add_metadata(err, "limit", "%s", limit);
    return LOSSD_OVERLOADED;
}

/* Calls that only read are small and short, and show what is wrong when nothing else is taken any more. */
static void admit_reader(struct http_call *call)
{
    struct http *http = call->http;

    if (budget_room(http->budget) < http->reserve.limit_bytes)
        call->budget = call->submission.arena.budget = &http->reserve;
}

static bool take_place(struct http_call *call)
{
    struct http *http = call->http;

    call->is_limited = gauge_add(&http->limited_calls, 1) < http->settings.open_calls;
    if (!call->is_limited)
        (void)gauge_add(&http->limited_calls, -1);
    return call->is_limited;
}

static enum lossd_status admit(struct http_call *call, struct lossd_error *err)
{
    struct http *http = call->http;

    if (atomic_load(&http->closed))
        return error_set(err, LOSSD_SHUTTING_DOWN, "", "the daemon is shutting down");
    if (call->connection->is_surplus && !call->method->allows_get)
        return overloaded(err, "connections", http->settings.connections, "connections");
    if (call->method->allows_get)
        admit_reader(call);
    else if (!take_place(call))
        return overloaded(err, "open_calls", http->settings.open_calls, "calls");
    call->is_open = true;
    (void)gauge_add(&http->counters->open_calls, 1);
    return LOSSD_OK;
}

static enum lossd_status check_head(struct http_call *call, const char *verb, const struct header_list *list,
                                    struct lossd_error *err)
{
    enum lossd_status status = route(call, verb, err);

    if (status != LOSSD_OK || call->page != NULL)
        return status;
    keep_traceparent(call, list);
    status = check_codec(call, list, err);
    if (status == LOSSD_OK)
        status = connect_parse_common(list->fields, list->count, &call->head, err);
    if (status == LOSSD_OK && call->framing.content_length > call_body_limit(call))
        status = call_set_too_large(call);
    if (status == LOSSD_OK)
        status = admit(call, err);
    return status;
}

/*
 * A refused call is answered when its body has been read to the end: clients in the middle of an upload take an early
 * answer and a closed connection for a network fault. Unless they wait for leave to send it, or it is very long.
 */
enum MHD_Result call_begin(struct http_call *call, struct MHD_Connection *mhd, const char *verb, const char *version)
{
    struct lossd_error *err = &call->submission.error;
    struct header_list list;

    call->mhd = mhd;
    call->state = CALL_BODY;
    call->head_ns = clock_now_ns();
    call->close_connection = call->connection->is_surplus;
    if (collect_headers(call, version, &list, err) != LOSSD_OK) {
        call->close_connection = true;
        return call_answer_error(call);
    }
    if (check_head(call, verb, &list, err) == LOSSD_OK)
        return MHD_YES;
    if (!call->framing.expects_continue && !call_is_too_long_to_discard(call)) {
        call_discard(call);
        return MHD_YES;
    }
    call->close_connection = true;
    return call_answer_error(call);
}

static void set_deadline(struct http_call *call)
{
    const uint64_t ms = call->head.timeout_ms < RPC_MAX_TIMEOUT_MS ? call->head.timeout_ms : RPC_MAX_TIMEOUT_MS;

    call->submission.deadline_ns = call->head.has_timeout ? clock_after_ms(call->head_ns, ms) : NO_DEADLINE;
}

static enum lossd_status decode(struct http_call *call, ProtobufCMessage **message, struct lossd_error *err)
{
    const struct decode_limits limits = {.json_depth = call->http->settings.json_depth};
    struct arena *arena = &call->submission.arena;
    uint8_t *bytes = call->body;
    size_t size = call->body_size;
    enum lossd_status status;

    if (call->is_get) {
        status = connect_parse_query(call->query, arena, &call->head, &bytes, &size, err);
        if (status != LOSSD_OK) {
            if (status == LOSSD_NOT_SUPPORTED && strcmp(err->field, "encoding") == 0)
                call->http_status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
            return status;
        }
    }
    arena->limit_bytes = DECODED_BODIES * call_body_limit(call) + DECODED_BASE_BYTES;
    status = message_decode(call->head.codec, call->method->request, bytes == NULL ? (const uint8_t *)"" : bytes, size,
                            &limits, arena, message, err);
    arena->limit_bytes = RPC_ARENA_BASE_BYTES + RPC_ARENA_BYTES_PER_BYTE * size;
    return status;
}

/* On any thread, maybe before the call that submitted has returned. */
static void on_done(struct submission *submission)
{
    struct http_call *call = submission->owner;

    MHD_resume_connection(call->mhd);
}

/* Nobody but the main thread may look at the call between registry_submit and its resumption. */
static void park(struct http_call *call)
{
    call->submission.done = on_done;
    call->submission.owner = call;
    call->state = CALL_PARKED;
    MHD_suspend_connection(call->mhd);
    connection_park(call->connection, &call->submission);
    registry_submit(call->http->rpc.registry, &call->submission);
}

enum MHD_Result call_execute(struct http_call *call)
{
    struct submission *submission = &call->submission;
    struct lossd_error *err = &submission->error;
    ProtobufCMessage *request;
    ProtobufCMessage *response = NULL;

    if (!connection_works(call->connection))
        return MHD_NO;
    if (err->status != LOSSD_OK)
        return call_answer_error(call);
    if (call->page != NULL)
        return call_answer_page(call);
    set_deadline(call);
    if (decode(call, &request, err) != LOSSD_OK)
        return call_answer_error(call);
    call_release_body(call); /* the message has all of it: what waits should not hold both */
    if (call->method->handle(&call->http->rpc, request, submission, &response, err) != LOSSD_OK)
        return call_answer_error(call);
    if (!call->method->parks)
        return call_answer_message(call, response);
    park(call);
    return MHD_YES;
}
