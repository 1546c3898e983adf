/*
 * A collective engine, for those who write one; callers include collective/comm.h. Engines are called by one thread at
 * a time and never call back.
 */
#ifndef COLLECTIVE_ENGINE_H
#define COLLECTIVE_ENGINE_H

#include "collective/comm.h"

struct engine {
    const char *name; /* "local": the label of metrics and status */
    bool immediate;   /* all_reduce never waits */

    /* Join the other nodes; *state belongs to the engine until close. */
    enum lossd_status (*open)(const struct comm_settings *settings, void **state, struct lossd_error *err);

    /* As comm_all_reduce. */
    enum lossd_status (*all_reduce)(void *state, double *vector, size_t count, int64_t deadline_ns,
                                    struct lossd_error *err);

    /* Make an all_reduce that runs on another thread return soon, with an error. Any thread. */
    void (*abort)(void *state);

    /* Takes NULL. */
    void (*close)(void *state);
};

extern const struct engine local_engine;

/* A communicator with this engine, whatever the settings; as comm_open. engine  has to outlive *comm. */
CHECK_RESULT
enum lossd_status comm_open_engine(const struct engine *engine, const struct comm_settings *settings,
                                   struct comm **comm, struct lossd_error *err);

#endif
