/* lossctl call SERVICE/METHOD [-d JSON|@FILE|@-]: the user's JSON as it is, the answer as it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lossctl/command.h"
#include "lossctl/input.h"
#include "lossctl/rpc.h"

/* People get it indented; programs get the daemon's bytes. */
static void print_answer(const struct options *options, const ProtobufCMethodDescriptor *method,
                         const struct http_response *response)
{
    const struct decode_limits limits = {.json_depth = 32, .ignore_unknown = true};
    const struct encoded as_it_came = {response->body, response->body_bytes};
    struct encoded pretty = {0};
    const struct encoded *shown = &as_it_came;
    ProtobufCMessage *message;
    struct lossd_error err;
    struct arena arena;

    arena_init(&arena, (size_t)1 << 30, NULL);
    if (method != NULL && !options->json && isatty(STDOUT_FILENO) &&
        message_decode(CODEC_JSON, method->output, response->body, response->body_bytes, &limits, &arena, &message,
                       &err) == LOSSD_OK &&
        message_encode(CODEC_JSON, message, true, &pretty, &err) == LOSSD_OK)
        shown = &pretty;
    (void)fwrite(shown->bytes, 1, shown->size, stdout);
    (void)fputc('\n', stdout);
    free(pretty.bytes);
    arena_finish(&arena);
}

static int send(const struct options *options, const char *name, const ProtobufCMethodDescriptor *method,
                const uint8_t *body, size_t body_bytes)
{
    struct rpc_connection connection = {0};
    struct http_response response = {0};
    struct failure failure;
    int exit_code = EXIT_DONE;

    if (rpc_open(options, 0, &connection, &failure) &&
        rpc_call_bytes(&connection, name, CODEC_JSON, body, body_bytes, &response, &failure))
        print_answer(options, method, &response);
    else
        exit_code = rpc_failed(options, &failure);
    http_response_finish(&response);
    rpc_close(&connection);
    return exit_code;
}

int command_call(const struct options *options, int argc, char **argv)
{
    const char *data = options->data == NULL ? "{}" : options->data;
    const ProtobufCServiceDescriptor *service = NULL;
    const ProtobufCMethodDescriptor *method = NULL;
    uint8_t *body = NULL;
    char name[200];
    size_t size = 0;
    int exit_code;

    if (argc != 1)
        return usage("call: expected one SERVICE/METHOD");
    if (rpc_find(argv[0], &service, &method))
        (void)snprintf(name, sizeof name, "%s/%s", service->name, method->name);
    else if (strchr(argv[0], '/') == NULL || strchr(argv[0], '.') == NULL || strlen(argv[0]) >= sizeof name)
        return usage("%s: no such method; lossctl schema --text lists them", argv[0]);
    else
        strcpy(name, argv[0]); /* perhaps a newer daemon knows it */
    if (data[0] != '@')
        return send(options, name, method, (const uint8_t *)data, strlen(data));
    if (!input_read(data + 1, &body, &size))
        return EXIT_INPUT;
    exit_code = send(options, name, method, body, size);
    free(body);
    return exit_code;
}
