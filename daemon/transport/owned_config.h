/*
 * A group's config from the message of the wire or the file: defaults filled in, checked, with its canonical bytes and
 * their digest. The destructor is owned_config_destroy of group/group.h.
 */
#ifndef TRANSPORT_OWNED_CONFIG_H
#define TRANSPORT_OWNED_CONFIG_H

#include "base/status.h"
#include "group/group.h"
#include "lossd/v1/config.pb-c.h"

/*
 * message     borrowed for the call.
 * max_tasks, max_losses  the limits.
 * config      written on success only; the caller's until a group takes it over.
 *
 * LOSSD_INVALID_CONFIG with the path inside the config ("tasks[0].losses[1].jrc_loss.alpha"), LOSSD_LIMIT_EXCEEDED
 * (metadata "limit"), LOSSD_INTERNAL where memory is out.
 */
CHECK_RESULT
enum lossd_status owned_config_from_message(const Lossd__V1__GroupConfig *message, uint32_t max_tasks,
                                            uint32_t max_losses, struct owned_config **config, struct lossd_error *err);

/*
 * Two canonical configs that should be equal and are not: LOSSD_CONFIG_DIGEST_MISMATCH, field "config.<path>" of the
 * first field that differs, both values in the message and as metadata "mine" and "first_seen".
 */
enum lossd_status owned_config_mismatch(const struct config_blob *mine, const struct config_blob *first_seen,
                                        struct lossd_error *err);

#endif
