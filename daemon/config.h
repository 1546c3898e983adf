/*
 * The configuration: a DaemonConfig message in ProtoJSON, checked once and const ever after. The settings of the parts
 * are structs of their own headers.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/status.h"
#include "group/registry.h"
#include "transport/http.h"
#include "transport/shm.h"

enum { CONFIG_MAX_FILE_BYTES = 64 << 20, CONFIG_MAX_LISTENERS = 32 };

struct declared_group {
    const char *name; /* in the arena */
    uint32_t world_size;
    struct owned_config *config; /* NULL once the registry has it */
};

struct config {
    struct arena arena;
    const char *listen[CONFIG_MAX_LISTENERS]; /* none: the sockets that systemd gave, or 127.0.0.1:7430 */
    size_t num_listen;
    bool insecure;
    enum log_level log_level;
    uint32_t drain_timeout_ms;
    size_t memory_bytes;
    struct http_settings http;
    bool shared_memory;
    struct shm_settings shm;
    struct registry_settings registry;
    struct declared_group *groups; /* [num_groups], in the arena */
    size_t num_groups;
};

/*
 * The defaults, and what the file says.
 *
 * path  NULL for the defaults alone.
 *
 * Every failure has the path of its key as field, and none names the file: LOSSD_MALFORMED_REQUEST (not JSON, or no
 * such key; with line and column),
 * LOSSD_INVALID_ARGUMENT (out of range; a file that can't be read, with the system's reason, or is no regular one),
 * LOSSD_INVALID_CONFIG (a group's config), LOSSD_LIMIT_EXCEEDED (larger than CONFIG_MAX_FILE_BYTES, more groups, tasks,
 * … than its own limits allow), LOSSD_INTERNAL (out of memory). *config needs config_finish after success only.
 */
CHECK_RESULT
enum lossd_status config_load(const char *path, struct config *config, struct lossd_error *err);

/* The same from the text of a file. */
CHECK_RESULT
enum lossd_status config_parse(const char *text, size_t size, struct config *config, struct lossd_error *err);

/*
 * Whether the addresses may be served: LOSSD_INVALID_ARGUMENT, field "listen[i]", for one that is not loopback, without
 * insecure, or is there before. After the command line has been applied. Host names and paths are looked at when they
 * are bound: a file may be checked on another machine than the one it is for.
 */
CHECK_RESULT
enum lossd_status config_check_listen(const struct config *config, struct lossd_error *err);

void config_finish(struct config *config);

#endif
