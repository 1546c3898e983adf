/*
 * What /metrics shows: one table of names, and the counters that the transports keep. Counters of groups are copied
 * from the groups when somebody asks.
 */
#ifndef BASE_COUNTERS_H
#define BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"

enum metric {
    METRIC_BUILD_INFO,
    METRIC_ALL_REDUCES,
    METRIC_STEPS,
    METRIC_RPC_REQUESTS,
    METRIC_PARKED_CALLS,
    METRIC_OPEN_CALLS,
    METRIC_CONNECTIONS,
    METRIC_MEMORY_BYTES,
    METRIC_SHARED_MEMORY_CLIENTS,
    METRIC_REGION_BYTES,
    NUM_METRICS,
};

struct metric_info {
    const char *name;   /* "lossd_steps_total": base units, _total for counters */
    const char *kind;   /* "counter" or "gauge" */
    const char *labels; /* "group,result"; "" for none */
    const char *help;   /* one sentence without a full stop */
};

/* Never NULL. */
const struct metric_info *metric_info(enum metric metric);

/* The HELP and TYPE lines. */
void metric_write_head(FILE *out, enum metric metric);

/*
 * One sample. The values of the labels, in the order of the table, as strings; NULL ends them. Backslash, quote and
 * line feed in them are escaped.
 */
void metric_write_sample(FILE *out, enum metric metric, uint64_t value, ...) __attribute__((sentinel));

enum { COUNTERS_METHODS = 16, COUNTERS_CODES = 17 };

/* Owned by the server; zeroed at the start. Any thread, relaxed. */
struct counters {
    atomic_uint_least64_t rpc_requests[COUNTERS_METHODS]
                                      [COUNTERS_CODES]; /* [row of the RPC table][Connect code, 0 ok] */
    atomic_int_least64_t parked_calls;
    atomic_int_least64_t open_calls;
    atomic_int_least64_t connections;
    atomic_int_least64_t shared_memory_clients;
    atomic_int_least64_t region_bytes;
};

static inline void counter_add(atomic_uint_least64_t *counter, uint64_t amount)
{
    (void)atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

/* The value before. */
static inline int64_t gauge_add(atomic_int_least64_t *gauge, int64_t amount)
{
    return atomic_fetch_add_explicit(gauge, amount, memory_order_relaxed);
}

static inline int64_t gauge_get(const atomic_int_least64_t *gauge)
{
    return atomic_load_explicit(gauge, memory_order_relaxed);
}

#endif
