#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/spinner.h"
#include "codec/message.h"
#include "lossd/v1/config.pb-c.h"
#include "transport/listener.h"
#include "transport/owned_config.h"

/* The message of the file and the structs; a message of numbers in braces takes some 20 bytes a byte. */
#define ARENA_BYTES ((size_t)2 << 30)

/* One key that is a whole number. */
struct range {
    const char *field;
    uint64_t value;
    uint64_t min;
    uint64_t max;
};

static enum lossd_status check_ranges(const struct range *ranges, size_t count, struct lossd_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return error_set(err, LOSSD_INVALID_ARGUMENT, ranges[i].field,
                             "is %" PRIu64 ", but has to be from %" PRIu64 " to %" PRIu64, ranges[i].value,
                             ranges[i].min, ranges[i].max);
    return LOSSD_OK;
}

static enum lossd_status read_limits(const Lossd__V1__Limits *limits, struct config *config, struct lossd_error *err)
{
    static const Lossd__V1__Limits defaults = LOSSD__V1__LIMITS__INIT;
    const Lossd__V1__Limits *l = limits == NULL ? &defaults : limits;
    const struct range ranges[] = {
        {"limits.json_body_bytes", l->json_body_bytes, 1, UINT64_C(1) << 30},
        {"limits.proto_body_bytes", l->proto_body_bytes, 1, INT32_MAX},
        {"limits.json_depth", l->json_depth, 1, 1000},
        {"limits.candidates", l->candidates, 1, UINT32_C(1) << 31},
        {"limits.requests", l->requests, 1, UINT32_C(1) << 31},
        {"limits.tasks", l->tasks, 1, MAX_TASKS},
        {"limits.losses", l->losses, 1, MAX_LOSSES},
        {"limits.groups", l->groups, 1, 65536},
        {"limits.ranks", l->ranks, 1, 65536},
        {"limits.connections", l->connections, 1, 1000000},
        {"limits.open_calls", l->open_calls, 1, 1000000},
        {"limits.memory_bytes", l->memory_bytes, UINT64_C(1) << 20, SIZE_MAX / 2},
        {"limits.upload_timeout_ms", l->upload_timeout_ms, 1, 86400000},
        {"limits.region_bytes", l->region_bytes, 0, UINT64_C(1) << 40},
        {"limits.regions_bytes", l->regions_bytes, 0, UINT64_C(1) << 50},
        {"limits.shared_memory_clients", l->shared_memory_clients, 1, 1000000},
    };
    enum lossd_status status = check_ranges(ranges, sizeof ranges / sizeof ranges[0], err);

    if (status != LOSSD_OK)
        return status;
    config->memory_bytes = l->memory_bytes;
    config->http.json_body_bytes = l->json_body_bytes;
    config->http.proto_body_bytes = l->proto_body_bytes;
    config->http.json_depth = l->json_depth;
    config->http.max_tasks = l->tasks;
    config->http.max_losses = l->losses;
    config->http.connections = l->connections;
    config->http.open_calls = l->open_calls;
    config->http.upload_timeout_ms = l->upload_timeout_ms;
    config->shm.region_bytes = l->region_bytes;
    config->shm.regions_bytes = l->regions_bytes;
    config->shm.clients = l->shared_memory_clients;
    config->shm.attach_timeout_ms = l->upload_timeout_ms;
    config->registry.max_groups = l->groups;
    config->registry.max_ranks = l->ranks;
    config->registry.batch_limits.max_candidates = l->candidates;
    config->registry.batch_limits.max_requests = l->requests;
    config->shm.batch_limits = config->registry.batch_limits;
    return LOSSD_OK;
}

static unsigned number_of_cores(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    return cores < 1 ? 1 : cores > 256 ? 256 : (unsigned)cores;
}

static enum lossd_status read_scalars(const Lossd__V1__DaemonConfig *message, struct config *config,
                                      struct lossd_error *err)
{
    const struct range ranges[] = {
        {"http_threads", message->http_threads, 1, 64},
        {"compute_threads", message->compute_threads, 0, 256},
        {"drain_timeout_ms", message->drain_timeout_ms, 0, 86400000},
        {"spin_us", message->spin_us, 0, SPINNER_MAX_NS / 1000},
    };
    enum lossd_status status = check_ranges(ranges, sizeof ranges / sizeof ranges[0], err);
    const int level = log_level_from_name(message->log_level);

    if (status != LOSSD_OK)
        return status;
    if (level < 0)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "log_level", "is none of error, warning, info, debug");
    config->log_level = (enum log_level)level;
    config->insecure = message->insecure;
    config->http.http_threads = message->http_threads;
    config->shared_memory = message->shared_memory;
    config->shm.spin_us = message->spin_us;
    config->registry.compute_threads = message->compute_threads == 0 ? number_of_cores() : message->compute_threads;
    config->drain_timeout_ms = message->drain_timeout_ms;
    return LOSSD_OK;
}

static enum lossd_status read_listen(const Lossd__V1__DaemonConfig *message, struct config *config,
                                     struct lossd_error *err)
{
    if (message->n_listen > CONFIG_MAX_LISTENERS)
        return error_set(err, LOSSD_LIMIT_EXCEEDED, "listen", "has %zu addresses, but %d are taken", message->n_listen,
                         CONFIG_MAX_LISTENERS);
    for (size_t i = 0; i < message->n_listen; i++) {
        const enum lossd_status status = listener_check_address(message->listen[i], err);

        if (status != LOSSD_OK) {
            err->field[0] = '\0';
            error_prefix_field(err, "listen[%zu]", i);
            return status;
        }
        config->listen[i] = message->listen[i];
    }
    config->num_listen = message->n_listen;
    return LOSSD_OK;
}

static enum lossd_status read_group(const Lossd__V1__DeclaredGroup *message, const struct config *config,
                                    struct declared_group *group, struct lossd_error *err)
{
    enum lossd_status status;

    if (!name_is_valid(message->name))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "name", "is not 1 to %d of [A-Za-z0-9_.-]", NAME_MAX_LENGTH);
    for (size_t i = 0; i < config->num_groups; i++)
        if (strcmp(config->groups[i].name, message->name) == 0)
            return error_set(err, LOSSD_INVALID_ARGUMENT, "name", "is the name of groups[%zu] too", i);
    if (message->world_size < 1 || message->world_size > config->registry.max_ranks)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "world_size", "is %" PRIu32 ", but has to be from 1 to %" PRIu32,
                         message->world_size, config->registry.max_ranks);
    if (message->config == NULL)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "config", "is absent");
    group->name = message->name;
    group->world_size = message->world_size;
    status = owned_config_from_message(message->config, config->http.max_tasks, config->http.max_losses, &group->config,
                                       err);
    if (status != LOSSD_OK)
        error_prefix_field(err, "config");
    return status;
}

static enum lossd_status read_groups(const Lossd__V1__DaemonConfig *message, struct config *config,
                                     struct lossd_error *err)
{
    if (message->n_groups > config->registry.max_groups) {
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "groups", "has %zu groups, but limits.groups is %" PRIu32,
                        message->n_groups, config->registry.max_groups);
        error_add_metadata(err, "limit", "groups");
        return LOSSD_LIMIT_EXCEEDED;
    }
    config->groups = arena_calloc(&config->arena, message->n_groups, sizeof *config->groups);
    if (config->groups == NULL)
        return error_set(err, LOSSD_INTERNAL, "groups", "out of memory");
    for (size_t i = 0; i < message->n_groups; i++) {
        const enum lossd_status status = read_group(message->groups[i], config, &config->groups[i], err);

        if (status != LOSSD_OK) {
            error_prefix_field(err, "groups[%zu]", i);
            return status;
        }
        config->num_groups = i + 1;
    }
    return LOSSD_OK;
}

static enum lossd_status read_message(const Lossd__V1__DaemonConfig *message, struct config *config,
                                      struct lossd_error *err)
{
    enum lossd_status status = read_scalars(message, config, err);

    if (status == LOSSD_OK)
        status = read_limits(message->limits, config, err);
    if (status == LOSSD_OK)
        status = read_listen(message, config, err);
    if (status == LOSSD_OK)
        status = read_groups(message, config, err);
    return status;
}

/* Where in the text it is, for who has an editor: errors of JSON say how many bytes come before it. */
static void add_line_and_column(const char *text, size_t size, struct lossd_error *err)
{
    const size_t used = strlen(err->message);
    size_t cursor = 0;
    const char *key;
    const char *value;

    while (error_next_metadata(err, &cursor, &key, &value)) {
        const size_t offset = strcmp(key, "offset") == 0 ? strtoul(value, NULL, 10) : SIZE_MAX;
        size_t line = 1;
        size_t column = 1;

        if (offset > size)
            continue;
        for (size_t i = 0; i < offset; i++) {
            line += text[i] == '\n';
            column = text[i] == '\n' ? 1 : column + 1;
        }
        (void)snprintf(err->message + used, sizeof err->message - used, " (line %zu, column %zu)", line, column);
        return;
    }
}

static enum lossd_status parse(const char *text, size_t size, struct config *config, struct lossd_error *err)
{
    static const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *message;
    const enum lossd_status status = message_decode(CODEC_JSON, &lossd__v1__daemon_config__descriptor,
                                                    (const uint8_t *)text, size, &limits, &config->arena, &message,
                                                    err);

    if (status != LOSSD_OK) {
        add_line_and_column(text, size, err);
        return status;
    }
    return read_message((const Lossd__V1__DaemonConfig *)message, config, err);
}

enum lossd_status config_parse(const char *text, size_t size, struct config *config, struct lossd_error *err)
{
    struct config parsed = {0};
    enum lossd_status status;

    arena_init(&parsed.arena, ARENA_BYTES, NULL);
    status = parse(text, size, &parsed, err);
    if (status != LOSSD_OK) {
        config_finish(&parsed);
        return status;
    }
    *config = parsed;
    return LOSSD_OK;
}

static enum lossd_status read_error(struct lossd_error *err)
{
    return error_set(err, LOSSD_INVALID_ARGUMENT, "", "can't be read: %s", strerror(errno));
}

/* text: from malloc. A FIFO would be waited for, and a device might never end. */
static enum lossd_status read_file(const char *path, char **text, size_t *size, struct lossd_error *err)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CLEANUP_FREE char *bytes = NULL;
    size_t capacity = 0;
    size_t length = 0;
    struct stat file;
    ssize_t got;

    if (fd < 0 || fstat(fd, &file) != 0)
        return read_error(err);
    if (!S_ISREG(file.st_mode))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "", "is not a regular file");
    do {
        if (length == capacity) {
            char *more = realloc(bytes, capacity = capacity == 0 ? 65536 : 2 * capacity);

            if (more == NULL)
                return error_set(err, LOSSD_INTERNAL, "", "out of memory");
            bytes = more;
        }
        got = read(fd, bytes + length, capacity - length);
        if (got < 0)
            return read_error(err);
        length += (size_t)got;
        if (length > CONFIG_MAX_FILE_BYTES)
            return error_set(err, LOSSD_LIMIT_EXCEEDED, "", "is larger than %d bytes", CONFIG_MAX_FILE_BYTES);
    } while (got > 0);
    *text = bytes;
    bytes = NULL;
    *size = length;
    return LOSSD_OK;
}

enum lossd_status config_load(const char *path, struct config *config, struct lossd_error *err)
{
    CLEANUP_FREE char *text = NULL;
    size_t size = 0;
    enum lossd_status status;

    if (path == NULL)
        return config_parse("{}", 2, config, err);
    status = read_file(path, &text, &size, err);
    if (status != LOSSD_OK)
        return status;
    return config_parse(text, size, config, err);
}

/* Port 0 is another one each time. */
static bool is_there_before(const struct config *config, size_t index)
{
    const char *address = config->listen[index];
    const size_t length = strlen(address);

    if (length >= 2 && strcmp(address + length - 2, ":0") == 0)
        return false;
    for (size_t i = 0; i < index; i++)
        if (strcmp(config->listen[i], address) == 0)
            return true;
    return false;
}

enum lossd_status config_check_listen(const struct config *config, struct lossd_error *err)
{
    for (size_t i = 0; i < config->num_listen; i++) {
        enum lossd_status status = listener_check_place(config->listen[i], config->insecure, err);

        if (status == LOSSD_OK && is_there_before(config, i))
            status = error_set(err, LOSSD_INVALID_ARGUMENT, "listen", "`%s` is there twice", config->listen[i]);
        if (status != LOSSD_OK) {
            err->field[0] = '\0';
            error_prefix_field(err, "listen[%zu]", i);
            return status;
        }
    }
    return LOSSD_OK;
}

void config_finish(struct config *config)
{
    for (size_t i = 0; i < config->num_groups; i++)
        owned_config_destroy(config->groups[i].config);
    arena_finish(&config->arena);
    config->groups = NULL;
    config->num_groups = 0;
}
