/* What went wrong with a call, on this side or in the daemon's words, and how it is told. */
#ifndef LOSSCTL_FAILURE_H
#define LOSSCTL_FAILURE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "client/lossd.h"
#include "client/http_client.h"

struct failure {
    int exit_code;
    char code[24];              /* "invalid_argument"; "" for what never left this side */
    char reason[64];            /* "SHAPE_MISMATCH", or "" */
    char *body;                 /* the daemon's Connect error as it came, from malloc; or NULL */
    struct lossd_error details; /* message and metadata; status and field are not set */
};

/* The functions below that fill a failure take any memory and don't look at what is in it. */

/* A failure of this side: no code, no reason. Returns false, so that callers can return it. */
bool failure_local(struct failure *failure, int exit_code, const char *format, ...) PRINTF_LIKE(3, 4);

/* A call that got no answer: unavailable or deadline_exceeded, as other Connect clients say. Returns false. */
bool failure_from_http(struct failure *failure, enum http_result result, const struct http_error *err,
                       const char *address);

/*
 * An answer other than 200: a Connect error, or with EXIT_NOT_LOSSD what some other server may say. Returns false.
 */
bool failure_from_response(struct failure *failure, const struct http_response *response, const char *address);

/* What liblossd says: of this side, of a call that got no answer, or of one that did. Returns the exit code. */
int failure_from_client(struct failure *failure, const struct lossd_failure *from);

/*
 * On standard error: code, reason, message and metadata in one line, a hint in the next.
 * who  goes in front ("rank 0"), or NULL.
 */
void failure_print(const struct failure *failure, const char *who);

/* As a Connect error in JSON, one line, on file: the daemon's own where it is from there. */
void failure_print_json(const struct failure *failure, FILE *file);

/* Takes a zeroed one too. */
void failure_finish(struct failure *failure);

#endif
