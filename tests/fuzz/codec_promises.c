#include "codec_promises.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM_BYTES = 64 << 20, FREE_BYTES = 1 << 20 };

static void require(bool promise)
{
    if (!promise)
        abort();
}

static struct encoded written(enum codec_kind kind, const ProtobufCMessage *message)
{
    struct encoded encoded;
    struct lossd_error err;

    require(message_encode(kind, message, false, &encoded, &err) == LOSSD_OK);
    return encoded;
}

/* text: what the message is as JSON. */
static void check_round_trip(enum codec_kind kind, const ProtobufCMessage *message, const struct encoded *text,
                             const struct decode_limits *limits)
{
    const struct encoded body = written(kind, message);
    ProtobufCMessage *back;
    struct lossd_error err;
    struct arena arena;
    struct encoded again;

    arena_init(&arena, ROOM_BYTES, NULL);
    require(message_decode(kind, message->descriptor, body.bytes, body.size, limits, &arena, &back, &err) == LOSSD_OK);
    again = written(CODEC_JSON, back);
    require(again.size == text->size && memcmp(again.bytes, text->bytes, text->size) == 0);
    arena_finish(&arena);
    free(again.bytes);
    free(body.bytes);
}

void check_codec_promises(enum codec_kind kind, const ProtobufCMessageDescriptor *descriptor, const uint8_t *body,
                          size_t size)
{
    const struct decode_limits limits = {.json_depth = 90, .ignore_unknown = size % 2 == 1};
    const struct decode_limits deeper = {.json_depth = 220}; /* 100 nested messages of protobuf, each in an array */
    ProtobufCMessage *message;
    enum lossd_status status;
    struct lossd_error err;
    struct arena arena;

    error_init(&err);
    arena_init(&arena, 4 * size + FREE_BYTES, NULL);
    status = message_decode(kind, descriptor, body, size, &limits, &arena, &message, &err);
    require(arena.used_bytes <= arena.limit_bytes);
    if (status == LOSSD_OK) {
        struct encoded text = written(CODEC_JSON, message);

        check_round_trip(CODEC_JSON, message, &text, &deeper);
        check_round_trip(CODEC_PROTO, message, &text, &deeper);
        free(text.bytes);
    } else {
        require(status == LOSSD_MALFORMED_REQUEST || status == LOSSD_LIMIT_EXCEEDED);
        require(err.status == status && err.message[0] != '\0');
    }
    arena_finish(&arena);
}
