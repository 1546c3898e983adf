#include "codec_support.h"

#include <stdlib.h>
#include <string.h>

#include <check.h>

void fixture_init(struct fixture *f)
{
    arena_init(&f->arena, 64 << 20, NULL);
    error_init(&f->err);
    f->limits = (struct decode_limits){.json_depth = 32};
}

void fixture_finish(struct fixture *f)
{
    arena_finish(&f->arena);
}

static void *decode(struct fixture *f, enum codec_kind kind, const ProtobufCMessageDescriptor *descriptor,
                    const void *bytes, size_t size)
{
    uint8_t *copy = malloc(size + (size == 0));
    ProtobufCMessage *message = NULL;

    memcpy(copy, bytes, size);
    error_init(&f->err);
    if (message_decode(kind, descriptor, copy, size, &f->limits, &f->arena, &message, &f->err) != LOSSD_OK)
        message = NULL;
    free(copy);
    return message;
}

void *decode_json_bytes(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const void *text, size_t size)
{
    return decode(f, CODEC_JSON, descriptor, text, size);
}

void *decode_json(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const char *text)
{
    return decode(f, CODEC_JSON, descriptor, text, strlen(text));
}

void *decode_proto(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t size)
{
    return decode(f, CODEC_PROTO, descriptor, bytes, size);
}

const char *encode_json(struct fixture *f, const void *message)
{
    struct encoded encoded;
    const char *text;

    ck_assert_int_eq(message_encode(CODEC_JSON, message, false, &encoded, &f->err), LOSSD_OK);
    ck_assert_uint_eq(strlen((const char *)encoded.bytes), encoded.size);
    text = arena_strndup(&f->arena, (const char *)encoded.bytes, encoded.size);
    ck_assert_ptr_nonnull(text);
    free(encoded.bytes);
    return text;
}

const char *error_metadata(const struct lossd_error *err, const char *key)
{
    size_t cursor = 0;
    const char *found;
    const char *value;

    while (error_next_metadata(err, &cursor, &found, &value))
        if (strcmp(found, key) == 0)
            return value;
    return "";
}

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static size_t mutate_once(uint64_t *state, uint8_t *bytes, size_t size, size_t capacity)
{
    const size_t at = next_random(state) % (size + 1);
    const size_t from = next_random(state) % (size + 1);
    const size_t left = size - (at > from ? at : from);
    const size_t length = next_random(state) % 8 < left ? next_random(state) % 8 % (left + 1) : left;

    switch (next_random(state) % 5) {
    case 0:
        if (at < size)
            bytes[at] ^= (uint8_t)(1 << next_random(state) % 8);
        return size;
    case 1:
        if (size == capacity)
            return size;
        memmove(bytes + at + 1, bytes + at, size - at);
        bytes[at] = (uint8_t)next_random(state);
        return size + 1;
    case 2:
        if (at == size)
            return size;
        memmove(bytes + at, bytes + at + 1, size - at - 1);
        return size - 1;
    case 3:
        memmove(bytes + at, bytes + from, length);
        return size;
    default:
        return next_random(state) % 8 == 0 ? at : size;
    }
}

size_t mutate(uint64_t *state, uint8_t *bytes, size_t size, size_t capacity)
{
    for (uint64_t i = 1 + next_random(state) % 4; i > 0; i--)
        size = mutate_once(state, bytes, size, capacity);
    return size;
}
