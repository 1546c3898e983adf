/*
 * Message <-> what the daemon computes with. Arrays are not copied: a batch points into its message, a response into
 * its result.
 */
#ifndef CODEC_CONVERT_H
#define CODEC_CONVERT_H

#include "base/arena.h"
#include "base/status.h"
#include "batch/batch.h"
#include "batch/group_config.h"
#include "batch/result.h"
#include "lossd/v1/config.pb-c.h"
#include "lossd/v1/error.pb-c.h"
#include "lossd/v1/loss.pb-c.h"

/*
 * arena  receives the task array. LOSSD_MALFORMED_REQUEST, field "tasks[i].name", where a task has no name;
 * LOSSD_LIMIT_EXCEEDED where there are more than MAX_TASKS tasks or the arena is full.
 */
CHECK_RESULT
enum lossd_status batch_from_message(const Lossd__V1__ComputeLossRequest *message, struct arena *arena,
                                     struct batch *batch, struct lossd_error *err);

/* A response whose parts lie in the arena; arrays are the result's. Never fails but for a full arena. */
CHECK_RESULT
enum lossd_status response_from_result(const struct result *result, struct arena *arena,
                                       Lossd__V1__ComputeLossResponse **response, struct lossd_error *err);

/*
 * Fill in defaults. config  its parts lie in the arena, names point into copies there, so that message may go.
 * LOSSD_INVALID_CONFIG with the field path, where a task has no name, a loss is not set, or an enum is unknown; ranges
 * are left to loss_plan_init. LOSSD_LIMIT_EXCEEDED (metadata "limit") for more tasks or losses than allowed.
 */
CHECK_RESULT
enum lossd_status config_from_message(const Lossd__V1__GroupConfig *message, uint32_t max_tasks, uint32_t max_losses,
                                      struct arena *arena, struct group_config *config, struct lossd_error *err);

/*
 * The canonical message of a config, every field present: two configs that mean the same have the same bytes.
 * Its parts lie in the arena.
 */
CHECK_RESULT
enum lossd_status config_to_message(const struct group_config *config, struct arena *arena,
                                    Lossd__V1__GroupConfig **message, struct lossd_error *err);

/*
 * The body of a Connect error: {"code", "message", "details"}, from malloc (encoded.bytes). Details: ErrorInfo first,
 * BadRequest where there is a field, RetryInfo with the code unavailable alone. The message is the field, a colon and
 * the error's message. Values are base64 without padding; "debug" repeats them for people, as ProtoJSON.
 */
CHECK_RESULT
enum lossd_status error_to_connect_json(const struct lossd_error *error, uint8_t **bytes, size_t *size);

#endif
