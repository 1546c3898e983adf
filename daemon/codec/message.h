/*
 * Bytes <-> message, for both codecs of the wire, driven by protobuf-c descriptors. The generated types of
 * proto/lossd/v1 are the messages.
 *
 * Any thread; no state but what is passed.
 */
#ifndef CODEC_MESSAGE_H
#define CODEC_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum codec_kind { CODEC_JSON, CODEC_PROTO };

/* "application/json", "application/proto" */
const char *codec_media_type(enum codec_kind kind);

/* By media type without parameters, case ignored. False for others. */
bool codec_from_media_type(const char *media_type, size_t length, enum codec_kind *kind);

/* By the short name of GET queries and of file names: "json", "proto". */
bool codec_from_name(const char *name, enum codec_kind *kind);

struct decode_limits {
    uint32_t json_depth;
    bool ignore_unknown; /* JSON: skip unknown fields instead of refusing them (the conformance runner asks for it) */
};

/*
 * Decode one message. Everything of it lies in the arena; body is not written and may go. What libraries hold for the
 * time of the call counts against the arena's limit too. A limit of 4 times the body and 1 MiB more is enough for any
 * batch within the limits of the daemon, in both codecs; bodies that would take more (small objects by the million)
 * end there.
 *
 * JSON: ProtoJSON, strict RFC 8259: no duplicate keys (after folding camelCase and proto names), no bare NaN or
 * Infinity, no trailing bytes, valid UTF-8 and surrogates, depth limit, unknown fields refused. Floats are correctly
 * rounded, 1e39 is out of range; integers are exact, 1.5 is none. An empty body is refused. Members that are skipped
 * (ignore_unknown) are checked for grammar, not for duplicates.
 * Protobuf: unknown fields are dropped, packed fields accepted unpacked, sub-messages given twice are merged, strings
 * are UTF-8 without NUL, at most 100 nested messages; an empty body is the default message.
 *
 * LOSSD_MALFORMED_REQUEST with the field path ("tasks[1].logits[17]") and metadata "offset" (bytes into body) where
 * known; LOSSD_LIMIT_EXCEEDED (metadata "limit": "json_depth", or "memory_bytes" where the arena is full).
 * *message is written on success only.
 */
CHECK_RESULT
enum lossd_status message_decode(enum codec_kind kind, const ProtobufCMessageDescriptor *descriptor,
                                 const uint8_t *body, size_t size, const struct decode_limits *limits,
                                 struct arena *arena, ProtobufCMessage **message, struct lossd_error *err);

/* Encoded bytes, from malloc, for the caller to free; NUL behind the last byte, not counted. */
struct encoded {
    uint8_t *bytes;
    size_t size;
};

/*
 * Encode one message. JSON: lowerCamelCase names, present fields in the order of their numbers, 64-bit integers as
 * strings, enums by name, NaN and infinities as strings; floats with digits that read back to the same bits.
 * pretty: JSON for people, indented by two spaces; number arrays stay on one line.
 * LOSSD_INTERNAL where memory is out or the message is not valid.
 */
CHECK_RESULT
enum lossd_status message_encode(enum codec_kind kind, const ProtobufCMessage *message, bool pretty,
                                 struct encoded *encoded, struct lossd_error *err);

/*
 * The first field in which two messages of one type differ, in the order of field numbers: its path ("tasks[1].weight")
 * and both values as JSON text, cut to fit. False where they are equal.
 */
bool message_diff(const ProtobufCMessage *a, const ProtobufCMessage *b, char *path, size_t path_size, char *value_a,
                  size_t value_a_size, char *value_b, size_t value_b_size);

#endif
