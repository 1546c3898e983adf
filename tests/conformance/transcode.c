#include "transcode.h"

#include <stdio.h>

enum { ROOM_BYTES = 256 << 20, DEPTH = 200 };

enum transcoded transcode(const ProtobufCMessageDescriptor *descriptor, enum codec_kind from, enum codec_kind to,
                          bool ignore_unknown, const uint8_t *body, size_t size, struct encoded *out,
                          struct lossd_error *err)
{
    const struct decode_limits limits = {.json_depth = DEPTH, .ignore_unknown = ignore_unknown};
    enum transcoded result = PARSE_ERROR;
    ProtobufCMessage *message;
    struct arena arena;

    arena_init(&arena, ROOM_BYTES, NULL);
    if (message_decode(from, descriptor, body, size, &limits, &arena, &message, err) == LOSSD_OK)
        result = message_encode(to, message, false, out, err) == LOSSD_OK ? TRANSCODED : SERIALIZE_ERROR;
    arena_finish(&arena);
    return result;
}

bool read_exactly(void *bytes, size_t size)
{
    return fread(bytes, 1, size, stdin) == size;
}

bool read_length(uint32_t *length)
{
    uint8_t bytes[4];

    if (!read_exactly(bytes, sizeof bytes))
        return false;
    *length = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return true;
}

void write_length(size_t length)
{
    for (int shift = 0; shift < 32; shift += 8)
        (void)putchar((int)(length >> shift & 0xff));
}
