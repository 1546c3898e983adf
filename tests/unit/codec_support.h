/* What the tests of the codecs share: an arena, an error, and one call to decode or encode. */
#ifndef TESTS_UNIT_CODEC_SUPPORT_H
#define TESTS_UNIT_CODEC_SUPPORT_H

#include "codec/message.h"
#include "lossd/v1/config.pb-c.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"

struct fixture {
    struct arena arena;
    struct lossd_error err;
    struct decode_limits limits;
};

/* 64 MiB, depth 32, unknown fields refused. */
void fixture_init(struct fixture *f);
void fixture_finish(struct fixture *f);

/* The body as JSON text, or NULL with f->err set. The body is copied to the end of a heap block of its exact size. */
void *decode_json_bytes(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const void *text, size_t size);
void *decode_json(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const char *text);
void *decode_proto(struct fixture *f, const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t size);

/* JSON text in the arena. Fails the test where it can't be written. */
const char *encode_json(struct fixture *f, const void *message);

/* The value of a key of the error's metadata, or "". */
const char *error_metadata(const struct lossd_error *err, const char *key);

/* A repeatable sequence, xorshift64. */
uint64_t next_random(uint64_t *state);

/* Change a body at a few random places: flip, insert, remove, copy, cut. Returns the new size, at most capacity. */
size_t mutate(uint64_t *state, uint8_t *bytes, size_t size, size_t capacity);

#endif
