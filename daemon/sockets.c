#include "sockets.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "lossd_shm.h"

/* A socket that systemd holds goes on to take connections, which nobody would answer. */
static void drop_records(struct sockets *sockets)
{
    size_t kept = 0;

    for (size_t i = 0; i < sockets->count; i++) {
        if (sockets->all[i].is_records) {
            log_line(LOG_LEVEL_WARNING, "event=shared_memory_off socket=%s is not served",
                     listener_unix_path(sockets->all[i].address));
            listener_close(&sockets->all[i]);
            continue;
        }
        sockets->all[kept++] = sockets->all[i];
    }
    sockets->count = kept;
}

/* For shared memory, beside the Unix socket at index. */
static enum lossd_status open_beside(struct sockets *sockets, size_t index, struct lossd_error *err)
{
    const char *address = sockets->all[index].address;
    const char *path = listener_unix_path(address);
    char beside[LISTENER_ADDRESS_SIZE + sizeof LOSSD_SHM_SUFFIX];
    enum lossd_status status;

    if (strlen(path) + strlen(LOSSD_SHM_SUFFIX) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        log_line(LOG_LEVEL_WARNING, "event=no_shared_memory socket=%s with %s is too long for a path", path,
                 LOSSD_SHM_SUFFIX);
        return LOSSD_OK;
    }
    (void)snprintf(beside, sizeof beside, "%s%s", address, LOSSD_SHM_SUFFIX);
    status = listener_open_records(&sockets->all[sockets->count], beside, err);
    if (status == LOSSD_OK)
        sockets->count++;
    return status;
}

static enum lossd_status open_one(struct sockets *sockets, const struct config *config, const char *address,
                                  struct lossd_error *err)
{
    const size_t index = sockets->count;
    const enum lossd_status status = listener_open(&sockets->all[index], address, config->insecure, err);

    if (status != LOSSD_OK)
        return status;
    sockets->count++;
    return config->shared_memory && sockets->all[index].owns_file ? open_beside(sockets, index, err) : LOSSD_OK;
}

enum lossd_status sockets_open(struct sockets *sockets, const struct config *config, struct lossd_error *err)
{
    enum lossd_status status = listener_inherit(sockets->all, CONFIG_MAX_LISTENERS - config->num_listen,
                                                &sockets->count, config->insecure, err);

    if (status == LOSSD_OK && !config->shared_memory)
        drop_records(sockets);
    if (status == LOSSD_OK && config->num_listen == 0 && sockets->count == 0)
        return open_one(sockets, config, "127.0.0.1:7430", err);
    for (size_t i = 0; i < config->num_listen && status == LOSSD_OK; i++)
        status = open_one(sockets, config, config->listen[i], err);
    return status;
}

void sockets_log(const struct sockets *sockets)
{
    for (size_t i = 0; i < sockets->count; i++) {
        const struct listener *listener = &sockets->all[i];

        if (listener->is_records)
            log_line(LOG_LEVEL_INFO, "event=shared_memory socket=%s", listener_unix_path(listener->address));
        else
            log_line(LOG_LEVEL_INFO, "event=listening listening on %s", listener->address);
    }
}

void sockets_close(struct sockets *sockets)
{
    for (size_t i = 0; i < sockets->count; i++)
        listener_close(&sockets->all[i]);
}
