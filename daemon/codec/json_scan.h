/*
 * One strict pass over ProtoJSON text before json-c sees it: the grammar of RFC 8259, UTF-8, depth, the shape that the
 * descriptor gives each value, no key twice. All numbers of numeric fields are read here, exactly, arrays of them
 * straight into memory of the field's type; json-c gets the text with those parts cut out.
 *
 * Left to the mapper: enums, base64, and which fields have to be there.
 */
#ifndef CODEC_JSON_SCAN_H
#define CODEC_JSON_SCAN_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"
#include "codec/message.h"

/* More nesting than json_scan ever lets through. */
enum { JSON_TREE_DEPTH = 256 };

/*
 * A part of the body that json-c does not see. In its place stands, for the values of a numeric field, the index of
 * this cut (a bare number, which the scan lets through nowhere else for such a field); for a member that is skipped, a
 * member of name "" and value null.
 */
struct json_cut {
    size_t begin; /* bytes into the body */
    size_t end;
    void *values; /* [count] of the field's type, in the arena; NULL: a skipped member */
    size_t count; /* 1 for singular fields */
};

struct json_scan {
    struct json_cut *cuts; /* [num_cuts] in the order of the body, in the arena */
    size_t num_cuts;
    size_t tree_bytes; /* at least what json-c takes for the rest, its tokener included */
};

/*
 * descriptor  of the message that the body is. Fields of its messages: at most 512 each.
 * scan        written on success only.
 *
 * LOSSD_MALFORMED_REQUEST with field path and metadata "offset"; LOSSD_LIMIT_EXCEEDED, metadata "limit": "json_depth"
 * past limits->json_depth nested objects and arrays (never more than 220), "memory_bytes" where the arena is full.
 */
CHECK_RESULT
enum lossd_status json_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                            const struct decode_limits *limits, struct arena *arena, struct json_scan *scan,
                            struct lossd_error *err);

#endif
