/* Numbers of ProtoJSON: bare or in quotes, of any numeric field type, one or an array of them. */
#ifndef CODEC_JSON_NUMBERS_H
#define CODEC_JSON_NUMBERS_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/status.h"
#include "codec/json_cursor.h"

/*
 * Read the number at the cursor and move it behind. value: of the type, written on success only. Floats are correctly
 * rounded and take "NaN", "Infinity" and "-Infinity"; integers are exact (1e3 and 1.0 are whole).
 * LOSSD_MALFORMED_REQUEST for what is no number, out of range, or not whole.
 */
CHECK_RESULT
enum lossd_status json_read_number(struct json_cursor *c, ProtobufCType type, void *value);

/*
 * The same for an array with at least one element, the cursor behind its opening bracket: up to and including the
 * closing one. values: [capacity]. The field of the error is "[i]".
 */
CHECK_RESULT
enum lossd_status json_read_numbers(struct json_cursor *c, ProtobufCType type, void *values, size_t capacity,
                                    size_t *count);

#endif
