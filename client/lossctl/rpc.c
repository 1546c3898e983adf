/* The Connect protocol as a client speaks it: one POST, 200 or an error in JSON. */
#include "lossctl/rpc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "grpc/health/v1/health.pb-c.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"

/* The daemon answers at the deadline and names who is missing: that answer is worth waiting for. */
enum { ANSWER_GRACE_MS = 2000 };

static const ProtobufCServiceDescriptor *const services[] = {
    &lossd__v1__loss_service__descriptor,
    &lossd__v1__group_service__descriptor,
    &grpc__health__v1__health__descriptor,
};

const ProtobufCServiceDescriptor *const *rpc_services(size_t *count)
{
    *count = sizeof services / sizeof services[0];
    return services;
}

bool rpc_find(const char *name, const ProtobufCServiceDescriptor **service, const ProtobufCMethodDescriptor **method)
{
    const char *slash = strchr(name, '/');
    const size_t length = slash == NULL ? 0 : (size_t)(slash - name);

    for (size_t s = 0; slash != NULL && s < sizeof services / sizeof services[0]; s++) {
        const bool is_short = strlen(services[s]->short_name) == length &&
                              !strncmp(name, services[s]->short_name, length);
        const bool is_full = strlen(services[s]->name) == length && !strncmp(name, services[s]->name, length);

        for (unsigned m = 0; (is_short || is_full) && m < services[s]->n_methods; m++) {
            if (strcmp(services[s]->methods[m].name, slash + 1) == 0) {
                *service = services[s];
                *method = &services[s]->methods[m];
                return true;
            }
        }
    }
    return false;
}

bool rpc_open(const struct options *options, uint64_t fallback_ms, struct rpc_connection *connection,
              struct failure *failure)
{
    struct http_error err;
    enum http_result result;

    *connection = (struct rpc_connection){
        .address = options->address,
        .timeout_ms = options->timeout_ms == 0 ? fallback_ms : options->timeout_ms,
    };
    result = http_client_open(options->address, &connection->client, &err);
    return result == HTTP_OK ? true : failure_from_http(failure, result, &err, options->address);
}

void rpc_close(struct rpc_connection *connection)
{
    http_client_close(connection->client);
    connection->client = NULL;
}

static bool is_media_type(const char *content_type, enum codec_kind kind)
{
    enum codec_kind found;

    return codec_from_media_type(content_type, strcspn(content_type, ";"), &found) && found == kind;
}

bool rpc_call_bytes(const struct rpc_connection *connection, const char *method, enum codec_kind kind,
                    const uint8_t *body, size_t body_bytes, struct http_response *response, struct failure *failure)
{
    char path[256];
    char timeout[64];
    const char *headers[] = {"Connect-Protocol-Version: 1", connection->timeout_ms == 0 ? NULL : timeout, NULL};
    const struct http_request request = {
        .path = path,
        .media_type = codec_media_type(kind),
        .body = body,
        .body_bytes = body_bytes,
        .headers = headers,
        .timeout_ms = connection->timeout_ms == 0 ? 0 : connection->timeout_ms + ANSWER_GRACE_MS,
    };
    struct http_error err;
    enum http_result result;

    (void)snprintf(path, sizeof path, "/%s", method);
    (void)snprintf(timeout, sizeof timeout, "Connect-Timeout-Ms: %" PRIu64, connection->timeout_ms);
    result = http_client_call(connection->client, &request, response, &err);
    if (result != HTTP_OK)
        return failure_from_http(failure, result, &err, connection->address);
    if (response->status == 200 && is_media_type(response->content_type, kind))
        return true;
    (void)failure_from_response(failure, response, connection->address);
    http_response_finish(response);
    return false;
}

bool rpc_call(const struct rpc_connection *connection, const char *method, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *output, struct arena *arena, ProtobufCMessage **answer,
              struct failure *failure)
{
    const struct decode_limits limits = {.json_depth = 32};
    struct http_response response;
    struct encoded body = {0};
    struct lossd_error err;
    enum lossd_status status;
    bool called;

    if (message_encode(CODEC_PROTO, request, false, &body, &err) != LOSSD_OK)
        return failure_local(failure, EXIT_LOCAL, "%s: %s", method, err.message);
    called = rpc_call_bytes(connection, method, CODEC_PROTO, body.bytes, body.size, &response, failure);
    free(body.bytes);
    if (!called)
        return false;
    status = message_decode(CODEC_PROTO, output, response.body, response.body_bytes, &limits, arena, answer, &err);
    http_response_finish(&response);
    if (status == LOSSD_OK)
        return true;
    return failure_local(failure, EXIT_NOT_LOSSD, "%s: the answer can't be read: %s", method, err.message);
}

int rpc_failed(const struct options *options, struct failure *failure)
{
    const int exit_code = failure->exit_code;

    if (options->json)
        failure_print_json(failure, stderr);
    else
        failure_print(failure, NULL);
    failure_finish(failure);
    return exit_code;
}
