/* Every socket that the daemon listens on: those of systemd, those of the configuration, and those of shared memory. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <stddef.h>

#include "base/status.h"
#include "config.h"
#include "transport/listener.h"

struct sockets {
    struct listener all[2 * CONFIG_MAX_LISTENERS]; /* [count]; is_records: for shared memory */
    size_t count;
};

/*
 * Take what systemd gave, open what the configuration says, and beside each Unix socket of our making one of records,
 * where shared memory is not off and its path is not too long, of which a line warns. *sockets is zeroed before; after
 * a failure, too, it needs sockets_close. Fails as listener_open.
 */
CHECK_RESULT
enum lossd_status sockets_open(struct sockets *sockets, const struct config *config, struct lossd_error *err);

/* A line each. */
void sockets_log(const struct sockets *sockets);

/* Remove their files, and close those that were not handed on. May be called again. */
void sockets_close(struct sockets *sockets);

#endif
