/* What a client was told: its options, else the environment, else defaults. */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "client/interrupt.h"
#include "client/lossd.h"
#include "lossd_shm.h"

/* Of the slots that the daemon gives one is for announcements. */
enum { MAX_SLOTS = LOSSD_SHM_MAX_SLOTS - 1, DEFAULT_SLOTS = 2, DEFAULT_RECONNECT_MS = 30000 };

#define DEFAULT_ADDRESS "127.0.0.1:7430"

struct settings {
    char address[512];
    char ca_file[512];                                       /* "" for the system's */
    char shm_path[sizeof((struct sockaddr_un){0}.sun_path)]; /* "" where there can't be shared memory */
    enum lossd_transport transport;
    uint32_t num_slots;
    uint64_t timeout_ms; /* 0: none */
    uint64_t reconnect_ms;
    uint64_t patience_ms; /* with a daemon that says nothing though it need not wait */
    bool no_spin;
    uint32_t max_requests;
    uint32_t max_candidates;
    struct interrupt interrupt;
};

/* options may be NULL. BAD_OPTION, BAD_ENVIRONMENT, BAD_ADDRESS; the form of the address is left to rpc_open. */
enum lossd_code settings_read(const struct lossd_options *options, struct settings *settings,
                              struct lossd_failure *failure);

#endif
