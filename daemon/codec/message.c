/* The two codecs: which functions read and write each. protobuf-c reads into the arena. */
#include "codec/message.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "codec/fields.h"
#include "codec/proto_scan.h"
#include "codec/protojson.h"
#include "codec/utf8.h"

struct codec {
    const char *name;
    const char *media_type;
    enum lossd_status (*decode)(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                                const struct decode_limits *limits, struct arena *arena, ProtobufCMessage **message,
                                struct lossd_error *err);
    enum lossd_status (*encode)(const ProtobufCMessage *message, bool pretty, struct encoded *encoded,
                                struct lossd_error *err);
};

/* protobuf-c's allocator over an arena. */
struct arena_allocator {
    ProtobufCAllocator base;
    struct arena *arena;
    bool is_full;
};

static void *allocate(void *data, size_t size)
{
    struct arena_allocator *allocator = data;
    void *memory = arena_alloc(allocator->arena, size);

    allocator->is_full |= memory == NULL;
    return memory;
}

static void forget(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

static enum lossd_status proto_decode(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                                      const struct decode_limits *limits, struct arena *arena,
                                      ProtobufCMessage **message, struct lossd_error *err)
{
    struct arena_allocator allocator = {.base = {allocate, forget, &allocator}, .arena = arena};
    static const uint8_t empty[1];
    ProtobufCMessage *made;
    const enum lossd_status status = proto_scan(descriptor, &body, &size, arena, err);

    (void)limits;
    if (status != LOSSD_OK)
        return status;
    made = protobuf_c_message_unpack(descriptor, &allocator.base, size, size == 0 ? empty : body);
    if (made != NULL) {
        *message = made;
        return LOSSD_OK;
    }
    if (!allocator.is_full)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "a required field is missing, or there are too many fields");
    return arena_error(arena, "message", err);
}

static bool strings_are_valid(const ProtobufCMessage *message);

static bool element_is_valid(const ProtobufCFieldDescriptor *field, const void *element)
{
    const void *pointer;

    if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
        return true;
    memcpy(&pointer, element, sizeof pointer);
    return field->type == PROTOBUF_C_TYPE_STRING ? utf8_is_valid(pointer, strlen(pointer)) : strings_are_valid(pointer);
}

static bool strings_are_valid(const ProtobufCMessage *message)
{
    for (unsigned f = 0; f < message->descriptor->n_fields; f++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[f];
        const size_t count = type_is_number(field->type) ? 0 : field_count(message, field);

        for (size_t i = 0; i < count; i++)
            if (!element_is_valid(field, field_element(message, field, i)))
                return false;
    }
    return true;
}

static enum lossd_status proto_encode(const ProtobufCMessage *message, bool pretty, struct encoded *encoded,
                                      struct lossd_error *err)
{
    size_t size;
    uint8_t *bytes;

    (void)pretty;
    if (!protobuf_c_message_check(message) || !strings_are_valid(message))
        return error_set(err, LOSSD_INTERNAL, "", "the answer is no valid message");
    size = protobuf_c_message_get_packed_size(message);
    bytes = malloc(size + 1);
    if (bytes == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "no memory for an answer of %zu bytes", size);
    *encoded = (struct encoded){.bytes = bytes, .size = protobuf_c_message_pack(message, bytes)};
    bytes[encoded->size] = '\0';
    return LOSSD_OK;
}

static const struct codec codecs[] = {
    [CODEC_JSON] = {"json", "application/json", protojson_decode, protojson_encode},
    [CODEC_PROTO] = {"proto", "application/proto", proto_decode, proto_encode},
};

enum { NUM_CODECS = sizeof codecs / sizeof codecs[0] };

const char *codec_media_type(enum codec_kind kind)
{
    return codecs[kind].media_type;
}

bool codec_from_media_type(const char *media_type, size_t length, enum codec_kind *kind)
{
    for (size_t i = 0; i < NUM_CODECS; i++) {
        if (strlen(codecs[i].media_type) == length && strncasecmp(codecs[i].media_type, media_type, length) == 0) {
            *kind = (enum codec_kind)i;
            return true;
        }
    }
    return false;
}

bool codec_from_name(const char *name, enum codec_kind *kind)
{
    for (size_t i = 0; i < NUM_CODECS; i++) {
        if (strcmp(codecs[i].name, name) == 0) {
            *kind = (enum codec_kind)i;
            return true;
        }
    }
    return false;
}

enum lossd_status message_decode(enum codec_kind kind, const ProtobufCMessageDescriptor *descriptor,
                                 const uint8_t *body, size_t size, const struct decode_limits *limits,
                                 struct arena *arena, ProtobufCMessage **message, struct lossd_error *err)
{
    return codecs[kind].decode(descriptor, body, size, limits, arena, message, err);
}

enum lossd_status message_encode(enum codec_kind kind, const ProtobufCMessage *message, bool pretty,
                                 struct encoded *encoded, struct lossd_error *err)
{
    return codecs[kind].encode(message, pretty, encoded, err);
}
