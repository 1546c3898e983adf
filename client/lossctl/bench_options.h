/* What `lossctl bench` is asked to measure. */
#ifndef LOSSCTL_BENCH_OPTIONS_H
#define LOSSCTL_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lossd.h"
#include "lossctl/command.h"

enum { BENCH_MAX_SIZES = 16, BENCH_NUM_TRANSPORTS = 3, BENCH_MAX_RANKS = 64, BENCH_MAX_TASKS = 64 };

struct bench_options {
    enum lossd_transport transports[BENCH_NUM_TRANSPORTS]; /* AUTO: the best that there is */
    size_t num_transports;                                 /* 0: all that the address offers */
    uint32_t candidates[BENCH_MAX_SIZES];                  /* of each rank */
    size_t num_sizes;
    uint32_t requests;    /* of each rank; 0: as list_length says */
    uint32_t list_length; /* candidates of a request */
    uint32_t tasks;
    uint32_t ranks;
    uint64_t steps; /* to measure; 0: for so many seconds */
    double seconds;
    uint64_t warmup; /* steps before those */
    enum lossd_type type;
    bool progress; /* a line a second on standard error */
};

/* EXIT_DONE, or EXIT_USAGE with a complaint. *bench is written in any case. */
int bench_options_parse(const struct bench_arguments *arguments, struct bench_options *bench);

/* "shared-memory", "protobuf", "json"; "auto". */
const char *bench_transport_name(enum lossd_transport transport);

/* "f32", "f16", "bf16". */
const char *bench_type_name(enum lossd_type type);

/* Requests of a batch of so many candidates. */
uint32_t bench_requests(const struct bench_options *bench, uint32_t candidates);

#endif
