/*
 * ProtoJSON <-> any protobuf-c message, driven by its descriptor: the wire, the configuration file, errors. json-c
 * reads and writes everything but numbers, which are read by json_scan and written by decimal.
 *
 * Any thread.
 */
#ifndef CODEC_PROTOJSON_H
#define CODEC_PROTOJSON_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/status.h"
#include "codec/message.h"

/* message_decode for JSON. While json-c holds memory the arena is charged for it. */
CHECK_RESULT
enum lossd_status protojson_decode(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                                   const struct decode_limits *limits, struct arena *arena, ProtobufCMessage **message,
                                   struct lossd_error *err);

/* message_encode for JSON. */
CHECK_RESULT
enum lossd_status protojson_encode(const ProtobufCMessage *message, bool pretty, struct encoded *encoded,
                                   struct lossd_error *err);

/* One element of a field (field_element) as JSON text, cut to fit; "?" where it can't be written. */
void protojson_print_element(const ProtobufCFieldDescriptor *field, const void *element, char *text, size_t size);

/* What a Connect error says beside its code. The message has the bytes of the type, but is not the type itself. */
struct error_detail {
    const char *type; /* full name, without a host */
    const ProtobufCMessage *message;
    const char *map;      /* JSON name of a field whose key and value entries are a map of strings; NULL: none */
    const char *duration; /* JSON name of a field that is a google.protobuf.Duration of whole seconds; NULL: none */
};

/*
 * {"code", "message", "details": [{"type", "value", "debug"}]}; values are base64 without padding, debug is the
 * ProtoJSON of the type.
 */
CHECK_RESULT
enum lossd_status protojson_encode_error(const char *code, const char *text, const struct error_detail *details,
                                         size_t num_details, struct encoded *encoded, struct lossd_error *err);

#endif
