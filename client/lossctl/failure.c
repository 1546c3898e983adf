/* Connect errors to exit codes and to a line for people. */
#include "lossctl/failure.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "codec/message.h"
#include "connect_error.pb-c.h"
#include "lossctl/command.h"
#include "lossd/v1/error.pb-c.h"

#define ERROR_INFO "google.rpc.ErrorInfo"

static int exit_code_of(enum connect_code code)
{
    return EXIT_PER_GRPC_CODE * (int)code;
}

static void set_code(struct failure *failure, enum connect_code code)
{
    failure->exit_code = exit_code_of(code);
    (void)snprintf(failure->code, sizeof failure->code, "%s", connect_code_name(code));
}

static void clear(struct failure *failure)
{
    failure->exit_code = EXIT_LOCAL;
    failure->code[0] = '\0';
    failure->reason[0] = '\0';
    failure->body = NULL;
    error_init(&failure->details);
}

bool failure_local(struct failure *failure, int exit_code, const char *format, ...)
{
    va_list arguments;

    clear(failure);
    failure->exit_code = exit_code;
    va_start(arguments, format);
    (void)vsnprintf(failure->details.message, sizeof failure->details.message, format, arguments);
    va_end(arguments);
    return false;
}

bool failure_from_http(struct failure *failure, enum http_result result, const struct http_error *err,
                       const char *address)
{
    const int exit_code = result == HTTP_BAD_ADDRESS ? EXIT_USAGE : EXIT_NOT_LOSSD;

    (void)failure_local(failure, exit_code, "%s: %s", address, err->message);
    if (result == HTTP_CANNOT_CONNECT)
        set_code(failure, CONNECT_UNAVAILABLE);
    if (result == HTTP_TIMEOUT)
        set_code(failure, CONNECT_DEADLINE_EXCEEDED);
    return false;
}

static void take_error_info(struct failure *failure, const ProtobufCBinaryData *value, struct arena *arena)
{
    const struct decode_limits limits = {.json_depth = 32};
    const Lossd__V1__ErrorInfo *info;
    ProtobufCMessage *message;
    struct lossd_error ignored;

    if (message_decode(CODEC_PROTO, &lossd__v1__error_info__descriptor, value->data, value->len, &limits, arena,
                       &message, &ignored) != LOSSD_OK)
        return;
    info = (const Lossd__V1__ErrorInfo *)message;
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", info->reason == NULL ? "" : info->reason);
    for (size_t i = 0; i < info->n_metadata; i++)
        if (info->metadata[i]->key != NULL && info->metadata[i]->value != NULL)
            error_add_metadata(&failure->details, info->metadata[i]->key, "%s", info->metadata[i]->value);
}

/* False where the body is no Connect error. */
static bool take_connect_error(struct failure *failure, const struct http_response *response, struct arena *arena)
{
    const struct decode_limits limits = {.json_depth = 32, .ignore_unknown = true};
    const Lossctl__ConnectError *error;
    ProtobufCMessage *message;
    struct lossd_error ignored;
    int code;

    if (message_decode(CODEC_JSON, &lossctl__connect_error__descriptor, response->body, response->body_bytes, &limits,
                       arena, &message, &ignored) != LOSSD_OK)
        return false;
    error = (const Lossctl__ConnectError *)message;
    code = error->code == NULL ? 0 : connect_code_from_name(error->code);
    if (code == 0)
        return false;
    (void)failure_local(failure, 0, "%s", error->message == NULL ? "" : error->message);
    set_code(failure, (enum connect_code)code);
    for (size_t i = 0; i < error->n_details; i++)
        if (error->details[i]->type != NULL && strcmp(error->details[i]->type, ERROR_INFO) == 0)
            take_error_info(failure, &error->details[i]->value, arena);
    failure->body = strdup((const char *)response->body);
    return true;
}

bool failure_from_response(struct failure *failure, const struct http_response *response, const char *address)
{
    struct arena arena;
    bool taken;

    arena_init(&arena, (size_t)1 << 20, NULL);
    taken = take_connect_error(failure, response, &arena);
    arena_finish(&arena);
    if (!taken)
        return failure_local(failure, EXIT_NOT_LOSSD, "%s answered %d %s, which no lossd does", address,
                             response->status, response->content_type);
    return false;
}

/* What the library says of this side, or of who is no lossd, by the code of the other commands; 0: it is as answered.
 */
static int exit_code_of_own(const char *reason)
{
    static const struct {
        const char *reason;
        int exit_code;
    } own[] = {
        {"BAD_ADDRESS", EXIT_USAGE},  {"BAD_OPTION", EXIT_USAGE}, {"BAD_ENVIRONMENT", EXIT_USAGE},
        {"BAD_CONFIG", EXIT_USAGE},   {"BAD_SHAPE", EXIT_USAGE},  {"OUT_OF_MEMORY", EXIT_LOCAL},
        {"INTERNAL", EXIT_NOT_LOSSD},
    };

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i].reason, reason) == 0)
            return own[i].exit_code;
    return 0;
}

int failure_from_client(struct failure *failure, const struct lossd_failure *from)
{
    const char *end = from->metadata + from->metadata_bytes;
    const char *value;
    const int own_code = exit_code_of_own(from->reason);

    (void)failure_local(failure, own_code, "%s%s%s", from->field, from->field[0] == '\0' ? "" : ": ", from->message);
    if (own_code != 0)
        return own_code;
    set_code(failure, (enum connect_code)from->code);
    (void)snprintf(failure->reason, sizeof failure->reason, "%s", from->reason);
    for (const char *key = from->metadata; key < end; key = value + strlen(value) + 1) {
        value = key + strlen(key) + 1;
        error_add_metadata(&failure->details, key, "%s", value);
    }
    return failure->exit_code;
}

/* What to do about it, by reason where there is something to say, else by whether the same call can help. */
static const char *hint_for(const struct failure *failure)
{
    static const struct {
        const char *reason;
        const char *hint;
    } hints[] = {
        {"CANNOT_CONNECT", "is the daemon running there? --addr or LOSSD_ADDR names it"},
        {"GROUP_NOT_FOUND", "lossctl status lists the groups; GroupService/JoinGroup makes one"},
        {"RANK_NOT_JOINED", "every rank joins first: GroupService/JoinGroup, or compute --join"},
        {"STALE_GENERATION", "somebody joined anew: join again, and send the generation of that answer"},
        {"CONFIG_DIGEST_MISMATCH", "make the config of all ranks the same; metadata has both values"},
        {"PEER_WAIT_DEADLINE", "lossctl status GROUP shows who waits for whom; the same call again goes on waiting"},
        {"STEP_TIMEOUT", "lossctl status GROUP shows who waits for whom; the step may be sent again by all ranks"},
        {"STEP_REJECTED_BY_PEER", "another rank sent a bad batch: its own answer says what is wrong with it"},
        {"STEP_DESYNC", "the ranks are at different steps: go on with one that is above all of them"},
        {"STEP_OUT_OF_ORDER", "steps rise: send a later one, or join again to start anew"},
        {"METHOD_NOT_FOUND", "lossctl schema --text lists the methods"},
    };
    enum lossd_status status;

    if (failure->exit_code == exit_code_of(CONNECT_UNAVAILABLE) && failure->reason[0] == '\0')
        return "is the daemon running there? --addr or LOSSD_ADDR names it";
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strcmp(hints[i].reason, failure->reason) == 0)
            return hints[i].hint;
    status = status_from_reason(failure->reason);
    if (status == LOSSD_NUM_STATUSES)
        return NULL;
    switch (status_info(status)->retry) {
    case RETRY_SAME:
        return "the same call can succeed later";
    case RETRY_HIGHER:
        return "join the group again, or go on with a later step";
    case RETRY_FIX:
        return "something outside this call has to change first";
    case RETRY_NEVER:
    default:
        return "the same call will fail again: what it sends has to change";
    }
}

void failure_print(const struct failure *failure, const char *who)
{
    const char *hint = hint_for(failure);
    const char *separator = " (";
    size_t cursor = 0;
    const char *key;
    const char *value;

    fprintf(stderr, "lossctl: %s%s", who == NULL ? "" : who, who == NULL ? "" : ": ");
    if (failure->code[0] != '\0')
        fprintf(stderr, "%s%s%s: ", failure->code, failure->reason[0] == '\0' ? "" : " ", failure->reason);
    fputs(failure->details.message, stderr);
    while (error_next_metadata(&failure->details, &cursor, &key, &value)) {
        fprintf(stderr, "%s%s=%s", separator, key, value);
        separator = ", ";
    }
    fprintf(stderr, "%s\n", cursor == 0 ? "" : ")");
    if (hint != NULL)
        fprintf(stderr, "hint: %s\n", hint);
}

void failure_print_json(const struct failure *failure, FILE *file)
{
    Lossctl__ConnectError error = LOSSCTL__CONNECT_ERROR__INIT;
    struct encoded json = {0};
    struct lossd_error ignored;

    if (failure->body != NULL) {
        fprintf(file, "%s\n", failure->body);
        return;
    }
    error.code = (char *)(failure->code[0] == '\0' ? "unknown" : failure->code);
    error.message = (char *)failure->details.message;
    if (message_encode(CODEC_JSON, &error.base, false, &json, &ignored) == LOSSD_OK)
        fprintf(file, "%s\n", (const char *)json.bytes);
    free(json.bytes);
}

void failure_finish(struct failure *failure)
{
    free(failure->body);
    failure->body = NULL;
}
