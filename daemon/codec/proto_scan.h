/*
 * One pass over a protobuf body before protobuf-c sees it. protobuf-c takes strings with NUL or of invalid UTF-8,
 * replaces members of a oneof where it should merge them, keeps unknown fields at 30 times their size and unpacked
 * arrays at 7 times, and has no limit of depth. So the pass checks the first, and where it meets one of the others it
 * writes the body anew without it.
 */
#ifndef CODEC_PROTO_SCAN_H
#define CODEC_PROTO_SCAN_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"

/*
 * body, *size  in: the body; out: what protobuf-c is to read, the body itself or a shorter one in the arena. There,
 *              unknown fields are left out, known ones with a wire type that is not theirs too; adjacent elements of a
 *              repeated number are packed; a singular message that is given several times is given once, its parts
 *              joined, which is what merging means.
 *
 * LOSSD_MALFORMED_REQUEST with field path and metadata "offset" into the body: broken encoding; a string that is not
 * UTF-8 or holds NUL; packed numbers that do not fill their length; more than 100 nested messages.
 * LOSSD_LIMIT_EXCEEDED ("memory_bytes") where the arena is full, or where sub-messages would need far more memory than
 * the body has bytes: then before anything is allocated.
 */
CHECK_RESULT
enum lossd_status proto_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t **body, size_t *size,
                             struct arena *arena, struct lossd_error *err);

#endif
