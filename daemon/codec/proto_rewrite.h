/* A valid protobuf body, written again in the form that protobuf-c reads rightly; see proto_scan.h. Any thread. */
#ifndef CODEC_PROTO_REWRITE_H
#define CODEC_PROTO_REWRITE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "codec/wire.h"

/* Fields of one message that have been met; those past the first 512 count as never seen. */
struct proto_seen {
    uint64_t bits[8];
};

bool proto_was_seen(const struct proto_seen *seen, const ProtobufCMessageDescriptor *descriptor,
                    const ProtobufCFieldDescriptor *field);
void proto_mark_seen(struct proto_seen *seen, const ProtobufCMessageDescriptor *descriptor,
                     const ProtobufCFieldDescriptor *field);

/* Bytes of one value on the wire, 0 for varints and what has a length. */
size_t proto_fixed_size(ProtobufCType type);

/* Repeated fields of the type may be packed. */
bool proto_is_packable(ProtobufCType type);

/* The field, where the descriptor has it and the wire type can be one of it; else NULL. */
const ProtobufCFieldDescriptor *proto_known_field(const ProtobufCMessageDescriptor *descriptor,
                                                  const struct wire_field *wire);

/* Replace *body and *size by the body written anew, in the arena. The body has been checked. False: arena full. */
bool proto_rewrite(const ProtobufCMessageDescriptor *descriptor, const uint8_t **body, size_t *size,
                   struct arena *arena);

#endif
