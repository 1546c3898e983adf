/*
 * A place in JSON text, the checks that move it on, and errors that say where it stood. What the values mean is left to
 * json_scan and json_numbers.
 */
#ifndef CODEC_JSON_CURSOR_H
#define CODEC_JSON_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "codec/json_text.h"

struct json_cursor {
    const uint8_t *body; /* what offsets count from */
    const uint8_t *p;
    const uint8_t *end;
    uint32_t depth; /* objects and arrays that are open */
    uint32_t max_depth;
    struct lossd_error *err;
};

/* LOSSD_MALFORMED_REQUEST with the offset of at, without a field: callers put it in front. */
enum lossd_status json_fail(struct json_cursor *c, const uint8_t *at, const char *format, ...) PRINTF_LIKE(3, 4);

/* The same at the cursor: "expected …, found …". */
enum lossd_status json_fail_expected(struct json_cursor *c, const char *expected);

void json_space(struct json_cursor *c);
bool json_next_is(const struct json_cursor *c, char byte);

/* Behind an opening bracket. LOSSD_LIMIT_EXCEEDED ("json_depth") past max_depth. */
CHECK_RESULT
enum lossd_status json_enter(struct json_cursor *c);

/* Behind the closing bracket of what was just entered, if that comes next. */
bool json_leave_if_empty(struct json_cursor *c, char bracket);

/* Behind an element or member: *more and to the next one at a comma, out at the bracket, an error at anything else. */
CHECK_RESULT
enum lossd_status json_next_or_leave(struct json_cursor *c, char bracket, bool *more);

/* Behind true, false or null. */
CHECK_RESULT
enum lossd_status json_literal(struct json_cursor *c, const char *word);

CHECK_RESULT
enum lossd_status json_string_at(struct json_cursor *c, struct json_string *string);

CHECK_RESULT
enum lossd_status json_bare_number(struct json_cursor *c);

/* Behind a value of any kind: a member that is skipped. */
CHECK_RESULT
enum lossd_status json_skip_value(struct json_cursor *c);

#endif
