/* What came of a command of client_shell.c, as lines of JSON on standard output. */
#ifndef TESTS_SUPPORT_CLIENT_SHELL_H
#define TESTS_SUPPORT_CLIENT_SHELL_H

#include <stddef.h>
#include <stdint.h>

#include <lossd/lossd.h>

#include "support/random.h"

enum { MAX_BATCHES = 16 };

struct shell {
    struct lossd_client *client;
    struct lossd_batch *batches[MAX_BATCHES]; /* as begun last, counted from 0 */
    struct lossd_shape shapes[MAX_BATCHES];
    size_t num_batches;
    size_t current;
    uint32_t rank;
    uint32_t patience; /* how often it is asked until it has enough of waiting; 0: never */
    uint32_t asked;
    struct random random;
    const struct lossd_result *result; /* the last one */
};

/* {"code": 0}, or the failure. */
void say(enum lossd_code code, const struct lossd_failure *why);

/* Losses, terms, gradients of the current batch. */
void say_result(const struct shell *shell, const struct lossd_result *result);

/* What the current batch was filled with. */
void say_columns(const struct shell *shell);

#endif
