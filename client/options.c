#include "client/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/failure.h"

enum { LEAST_PATIENCE_MS = 1000, LONGEST_PATIENCE_MS = 10000 };

static const char *first_set(const char *option, const char *variable, const char *fallback)
{
    const char *value = option != NULL ? option : getenv(variable);

    return value != NULL && value[0] != '\0' ? value : fallback;
}

/* Options of the caller's version: fields that it does not know yet are 0. */
static enum lossd_code take_options(const struct lossd_options *given, struct lossd_options *options,
                                    struct lossd_failure *failure)
{
    size_t size = sizeof *options;

    *options = (struct lossd_options){0};
    if (given == NULL)
        return LOSSD_CODE_OK;
    if (given->struct_bytes > size)
        return failure_set(failure, OWN_BAD_OPTION, "struct_bytes", "is %zu, but this version knows %zu bytes",
                           given->struct_bytes, size);
    if (given->struct_bytes != 0)
        size = given->struct_bytes;
    memcpy(options, given, size);
    return LOSSD_CODE_OK;
}

static enum lossd_code check_options(const struct lossd_options *options, struct lossd_failure *failure)
{
    if ((unsigned)options->transport > LOSSD_TRANSPORT_HTTP_JSON)
        return failure_set(failure, OWN_BAD_OPTION, "transport", "is %d, expected 0 to %d", (int)options->transport,
                           LOSSD_TRANSPORT_HTTP_JSON);
    if (options->num_slots > MAX_SLOTS)
        return failure_set(failure, OWN_BAD_OPTION, "num_slots", "is %u, expected %d at most", options->num_slots,
                           MAX_SLOTS);
    return LOSSD_CODE_OK;
}

static enum lossd_code read_timeout(uint64_t option, uint64_t *timeout_ms, struct lossd_failure *failure)
{
    const char *text = option != 0 ? NULL : getenv("LOSSD_TIMEOUT_MS");
    unsigned long long value;
    char *end;

    *timeout_ms = option;
    if (text == NULL || text[0] == '\0')
        return LOSSD_CODE_OK;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return failure_set(failure, OWN_BAD_ENVIRONMENT, "LOSSD_TIMEOUT_MS",
                           "is \"%.64s\", expected a number of milliseconds", text);
    *timeout_ms = value;
    return LOSSD_CODE_OK;
}

/* Beside the address where that is a Unix socket; another place may be named for it. */
static enum lossd_code find_shm(struct settings *settings, struct lossd_failure *failure)
{
    const bool is_unix = strncmp(settings->address, "unix:", 5) == 0;
    const char *path = is_unix ? settings->address + 5 : "";
    const char *named = getenv("LOSSD_SHM_SOCKET");
    int length = 0;

    if (strncmp(path, "//", 2) == 0)
        path += 2;
    if (named != NULL && named[0] != '\0' && (is_unix || settings->transport == LOSSD_TRANSPORT_SHARED_MEMORY))
        length = snprintf(settings->shm_path, sizeof settings->shm_path, "%s", named);
    else if (is_unix)
        length = snprintf(settings->shm_path, sizeof settings->shm_path, "%s" LOSSD_SHM_SUFFIX, path);
    if (length < 0 || (size_t)length >= sizeof settings->shm_path)
        settings->shm_path[0] = '\0';
    if (settings->transport != LOSSD_TRANSPORT_SHARED_MEMORY || settings->shm_path[0] != '\0')
        return LOSSD_CODE_OK;
    return failure_set(failure, OWN_BAD_ADDRESS, "address",
                       "is \"%.200s\", but shared memory needs unix:/path, of %zu characters at most",
                       settings->address, sizeof settings->shm_path - sizeof LOSSD_SHM_SUFFIX);
}

static enum lossd_code take_strings(const struct lossd_options *options, struct settings *settings,
                                    struct lossd_failure *failure)
{
    const char *address = first_set(options->address, "LOSSD_ADDR", DEFAULT_ADDRESS);
    const char *ca_file = first_set(options->ca_file, "LOSSD_CA_FILE", "");

    if (strlen(address) >= sizeof settings->address)
        return failure_set(failure, OWN_BAD_ADDRESS, "address", "has %zu characters, expected fewer than %zu",
                           strlen(address), sizeof settings->address);
    if (strlen(ca_file) >= sizeof settings->ca_file)
        return failure_set(failure, OWN_BAD_OPTION, "ca_file", "has %zu characters, expected fewer than %zu",
                           strlen(ca_file), sizeof settings->ca_file);
    (void)snprintf(settings->address, sizeof settings->address, "%s", address);
    (void)snprintf(settings->ca_file, sizeof settings->ca_file, "%s", ca_file);
    return LOSSD_CODE_OK;
}

static uint64_t patience_ms(const struct settings *settings)
{
    uint64_t patience_ms = LONGEST_PATIENCE_MS;

    /* Who does not want to try again still wants one try that a busy machine can answer. */
    if (settings->reconnect_ms < patience_ms)
        patience_ms = settings->reconnect_ms < LEAST_PATIENCE_MS ? LEAST_PATIENCE_MS : settings->reconnect_ms;
    if (settings->timeout_ms != 0 && settings->timeout_ms < patience_ms)
        patience_ms = settings->timeout_ms;
    return patience_ms;
}

enum lossd_code settings_read(const struct lossd_options *given, struct settings *settings,
                              struct lossd_failure *failure)
{
    struct lossd_options options;
    enum lossd_code code = take_options(given, &options, failure);

    *settings = (struct settings){0};
    if (code == LOSSD_CODE_OK)
        code = check_options(&options, failure);
    if (code == LOSSD_CODE_OK)
        code = take_strings(&options, settings, failure);
    if (code == LOSSD_CODE_OK)
        code = read_timeout(options.timeout_ms, &settings->timeout_ms, failure);
    if (code != LOSSD_CODE_OK)
        return code;
    settings->transport = options.transport;
    settings->num_slots = options.num_slots == 0 ? DEFAULT_SLOTS : options.num_slots;
    settings->reconnect_ms = options.reconnect_ms == 0 ? DEFAULT_RECONNECT_MS : options.reconnect_ms;
    settings->patience_ms = patience_ms(settings);
    settings->no_spin = options.no_spin != 0;
    settings->max_requests = options.max_requests;
    settings->max_candidates = options.max_candidates;
    settings->interrupt = (struct interrupt){options.interrupted, options.interrupt_context};
    return find_shm(settings, failure);
}
