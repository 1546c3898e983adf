#include "transport/owned_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "codec/convert.h"
#include "codec/message.h"
#include "loss/loss.h"

/* 64 tasks of 16 losses are a few hundred kilobytes, as structs and as a message. */
enum { CONFIG_ARENA_BYTES = 8 << 20 };

/* The canonical bytes and their digest. The message needs memory only until it is encoded. */
static enum lossd_status seal(struct owned_config *owned, struct lossd_error *err)
{
    Lossd__V1__GroupConfig *canonical;
    struct encoded encoded = {0};
    struct arena scratch;
    enum lossd_status status;

    arena_init(&scratch, CONFIG_ARENA_BYTES, NULL);
    status = config_to_message(&owned->config, &scratch, &canonical, err);
    if (status == LOSSD_OK)
        status = message_encode(CODEC_PROTO, &canonical->base, false, &encoded, err);
    arena_finish(&scratch);
    if (status != LOSSD_OK)
        return status;
    owned->blob = (struct config_blob){.bytes = encoded.bytes, .size = encoded.size};
    if (!digest_sha256_hex(encoded.bytes, encoded.size, owned->digest))
        return error_set(err, LOSSD_INTERNAL, "", "no SHA-256 of the config could be made");
    return LOSSD_OK;
}

static enum lossd_status fill(struct owned_config *owned, const Lossd__V1__GroupConfig *message, uint32_t max_tasks,
                              uint32_t max_losses, struct lossd_error *err)
{
    struct arena scratch;
    struct loss_plan plan;
    enum lossd_status status;

    status = config_from_message(message, max_tasks, max_losses, &owned->arena, &owned->config, err);
    if (status != LOSSD_OK)
        return status;
    arena_init(&scratch, CONFIG_ARENA_BYTES, NULL);
    status = loss_plan_init(&plan, &owned->config, &scratch, err);
    arena_finish(&scratch);
    if (status != LOSSD_OK)
        return status;
    return seal(owned, err);
}

enum lossd_status owned_config_from_message(const Lossd__V1__GroupConfig *message, uint32_t max_tasks,
                                            uint32_t max_losses, struct owned_config **config, struct lossd_error *err)
{
    struct owned_config *owned = calloc(1, sizeof *owned);
    enum lossd_status status;

    if (owned == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "out of memory");
    arena_init(&owned->arena, CONFIG_ARENA_BYTES, NULL);
    status = fill(owned, message, max_tasks, max_losses, err);
    if (status != LOSSD_OK) {
        owned_config_destroy(owned);
        return status;
    }
    *config = owned;
    return LOSSD_OK;
}

static enum lossd_status decode(const struct config_blob *blob, struct arena *arena, ProtobufCMessage **message,
                                struct lossd_error *err)
{
    return message_decode(CODEC_PROTO, &lossd__v1__group_config__descriptor, blob->bytes, blob->size,
                          &(struct decode_limits){.json_depth = 32}, arena, message, err);
}

enum lossd_status owned_config_mismatch(const struct config_blob *mine, const struct config_blob *first_seen,
                                        struct lossd_error *err)
{
    ProtobufCMessage *messages[2];
    struct arena arena;
    char path[128] = "";
    char values[2][64] = {"", ""};
    bool found;

    arena_init(&arena, 2 * CONFIG_ARENA_BYTES, NULL);
    found = decode(mine, &arena, &messages[0], err) == LOSSD_OK &&
            decode(first_seen, &arena, &messages[1], err) == LOSSD_OK &&
            message_diff(messages[0], messages[1], path, sizeof path, values[0], sizeof values[0], values[1],
                         sizeof values[1]);
    arena_finish(&arena);
    if (!found)
        return error_set(err, LOSSD_CONFIG_DIGEST_MISMATCH, "config", "differs from the config of the group");
    (void)error_set(err, LOSSD_CONFIG_DIGEST_MISMATCH, path, "is %s here, but %s in the config of the group", values[0],
                    values[1]);
    error_prefix_field(err, "config");
    error_add_metadata(err, "mine", "%s", values[0]);
    error_add_metadata(err, "first_seen", "%s", values[1]);
    return LOSSD_CONFIG_DIGEST_MISMATCH;
}
