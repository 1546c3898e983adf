/* The Connect protocol as a client speaks it: one POST, 200 or an error in JSON. */
#include "client/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/failure.h"
#include "client/transport.h"
#include "codec/message.h"

enum { ARENA_BYTES = 1 << 20, PATIENCE_MS = 10000 };

enum lossd_code rpc_open(const char *address, const char *ca_file, struct rpc **rpc, struct lossd_failure *failure)
{
    struct rpc *made = calloc(1, sizeof *made);
    struct http_error err;
    enum http_result result;

    if (made == NULL)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out");
    arena_init(&made->arena, ARENA_BYTES, NULL);
    made->patience_ms = PATIENCE_MS;
    (void)snprintf(made->address, sizeof made->address, "%s", address);
    result = http_client_open(address, &made->http, &err);
    if (result == HTTP_OK && ca_file[0] != '\0')
        result = http_client_trust(made->http, ca_file, &err);
    if (result == HTTP_OK) {
        *rpc = made;
        return LOSSD_CODE_OK;
    }
    rpc_close(made);
    if (result == HTTP_BAD_ADDRESS)
        return failure_set(failure, OWN_BAD_ADDRESS, "address", "is \"%.200s\", %s", address, err.message);
    return failure_set(failure, OWN_OUT_OF_MEMORY, "", "%s", err.message);
}

void rpc_close(struct rpc *rpc)
{
    if (rpc == NULL)
        return;
    http_client_close(rpc->http);
    arena_finish(&rpc->arena);
    free(rpc);
}

static enum lossd_code failure_from_http(struct lossd_failure *failure, enum http_result result,
                                         const struct http_error *err, const char *address)
{
    static const enum own_reason reasons[] = {
        [HTTP_OK] = OWN_INTERNAL,
        [HTTP_BAD_ADDRESS] = OWN_BAD_ADDRESS,
        [HTTP_CANNOT_CONNECT] = OWN_CANNOT_CONNECT,
        [HTTP_TIMEOUT] = OWN_NO_ANSWER,
        [HTTP_INTERRUPTED] = OWN_INTERRUPTED,
        [HTTP_TOO_LARGE] = OWN_INTERNAL,
        [HTTP_FAILED] = OWN_CONNECTION_LOST,
    };

    return failure_set(failure, reasons[result], "", "%s: %s", address, err->message);
}

static bool is_media_type(const char *content_type, enum codec_kind kind)
{
    enum codec_kind found;

    return codec_from_media_type(content_type, strcspn(content_type, ";"), &found) && found == kind;
}

static enum lossd_code post(struct rpc *rpc, const char *method, const struct encoded *body, uint64_t timeout_ms,
                            struct http_response *response, struct lossd_failure *failure)
{
    const enum codec_kind kind = rpc->is_json ? CODEC_JSON : CODEC_PROTO;
    char path[128];
    char timeout[64];
    const char *headers[] = {"Connect-Protocol-Version: 1", timeout_ms == 0 ? NULL : timeout, NULL};
    const struct http_request request = {
        .path = path,
        .media_type = codec_media_type(kind),
        .body = body->bytes,
        .body_bytes = body->size,
        .headers = headers,
        .timeout_ms = timeout_ms == 0 ? 0 : timeout_ms + ANSWER_GRACE_MS,
        .connect_ms = rpc->patience_ms,
    };
    struct http_error err;
    enum http_result result;
    enum lossd_code code;

    (void)snprintf(path, sizeof path, "/lossd.v1.%s", method);
    (void)snprintf(timeout, sizeof timeout, "Connect-Timeout-Ms: %" PRIu64, timeout_ms);
    result = http_client_call(rpc->http, &request, response, &err);
    if (result != HTTP_OK)
        return failure_from_http(failure, result, &err, rpc->address);
    if (response->status == 200 && is_media_type(response->content_type, kind))
        return LOSSD_CODE_OK;
    code = failure_from_response(failure, response, rpc->address);
    http_response_finish(response);
    return code;
}

static enum lossd_code decode(struct rpc *rpc, const struct http_response *response,
                              const ProtobufCMessageDescriptor *output, ProtobufCMessage **answer,
                              struct lossd_failure *failure)
{
    const struct decode_limits limits = {.json_depth = 32, .ignore_unknown = true};
    struct lossd_error err;

    arena_reset(&rpc->arena);
    rpc->arena.limit_bytes = 4 * response->body_bytes + ARENA_BYTES;
    if (message_decode(rpc->is_json ? CODEC_JSON : CODEC_PROTO, output, response->body, response->body_bytes, &limits,
                       &rpc->arena, answer, &err) == LOSSD_OK)
        return LOSSD_CODE_OK;
    if (rpc->arena.is_out_of_memory)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out for an answer of %zu bytes",
                           response->body_bytes);
    return failure_set(failure, OWN_INTERNAL, err.field, "%s: the answer can't be read: %s", rpc->address, err.message);
}

enum lossd_code rpc_call(struct rpc *rpc, const char *method, const ProtobufCMessage *request,
                         const ProtobufCMessageDescriptor *output, uint64_t timeout_ms, ProtobufCMessage **answer,
                         struct lossd_failure *failure)
{
    struct http_response response = {0};
    struct encoded body = {0};
    struct lossd_error err;
    enum lossd_code code;

    if (message_encode(rpc->is_json ? CODEC_JSON : CODEC_PROTO, request, false, &body, &err) != LOSSD_OK)
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "%s", err.message);
    code = post(rpc, method, &body, timeout_ms, &response, failure);
    free(body.bytes);
    if (code == LOSSD_CODE_OK)
        code = decode(rpc, &response, output, answer, failure);
    http_response_finish(&response);
    return code;
}
