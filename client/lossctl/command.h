/* What main and the commands share: options, exit codes, the way to complain. */
#ifndef LOSSCTL_COMMAND_H
#define LOSSCTL_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/*
 * 0, and below 8 what went wrong on this side; from 8 on eight times the gRPC number of the answer's code, as buf curl
 * does. help.txt explains them to users.
 */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_USAGE = 1,
    EXIT_INPUT = 2,     /* a file that can't be read, or is not what it should be */
    EXIT_NOT_LOSSD = 3, /* the answer is none of a lossd */
    EXIT_CHECK = 4,     /* compute --check: the numbers differ */
    EXIT_OUTPUT = 5,    /* standard output can't be written */
    EXIT_LOCAL = 6,     /* memory or threads are out */
    EXIT_PER_GRPC_CODE = 8,
    EXIT_INTERRUPTED = 130, /* bench: ended by a signal */
};

/* health has its own, those of grpc_health_probe. */
enum health_exit_code {
    HEALTH_SERVING = 0,
    HEALTH_USAGE = 1,
    HEALTH_CANNOT_CONNECT = 2,
    HEALTH_CALL_FAILED = 3,
    HEALTH_NOT_SERVING = 4,
};

/* Options of bench as they were given; NULL where absent. */
enum { BENCH_MAX_TRANSPORT_ARGUMENTS = 16 };
struct bench_arguments {
    const char *transports[BENCH_MAX_TRANSPORT_ARGUMENTS];
    size_t num_transports;
    const char *candidates;
    const char *requests;
    const char *list_length;
    const char *tasks;
    const char *ranks;
    const char *steps;
    const char *seconds;
    const char *warmup;
    const char *dtype;
    bool progress;
};

struct options {
    const char *address;
    bool json;
    uint64_t timeout_ms; /* 0: none was given */
    const char *data;    /* call -d; NULL where absent */
    const char *join;    /* compute --join; NULL where absent */
    bool check;          /* compute --check */
    bool text;           /* schema --text */
    struct bench_arguments bench;
};

/* argv[0] .. argv[argc - 1] are what follows the command's name. Each returns an exit code. */
int command_call(const struct options *options, int argc, char **argv);
int command_compute(const struct options *options, int argc, char **argv);
int command_status(const struct options *options, int argc, char **argv);
int command_health(const struct options *options, int argc, char **argv);
int command_bench(const struct options *options, int argc, char **argv);
int command_schema(const struct options *options, int argc, char **argv);

/* "lossctl: TEXT" and where to find help, on standard error; returns EXIT_USAGE. */
int usage(const char *format, ...) PRINTF_LIKE(1, 2);

/* "lossctl: TEXT" on standard error; returns code. */
int complain(int code, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
