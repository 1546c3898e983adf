#include "codec/proto_scan.h"

#include <string.h>

#include "codec/fields.h"
#include "codec/proto_rewrite.h"
#include "codec/utf8.h"
#include "codec/wire.h"

/*
 * Sub-messages may need 2 bytes of memory for each of the body, and a MiB beside: an empty one takes two bytes of a
 * body and more than a hundred of memory, and honest bodies are numbers.
 */
enum { MAX_DEPTH = 100, MESSAGE_FACTOR = 2, MESSAGE_BASE_BYTES = 1 << 20 };

struct scanner {
    const uint8_t *body;
    struct lossd_error *err;
    unsigned depth;
    size_t message_limit_bytes;
    size_t message_bytes; /* of those, what sub-messages may still need */
    bool rewrite;         /* something is there that protobuf-c does not get right */
};

static enum lossd_status scan_message(struct scanner *s, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                                      const uint8_t *end);

static enum lossd_status fail(struct scanner *s, const uint8_t *at, const char *what)
{
    (void)error_set(s->err, LOSSD_MALFORMED_REQUEST, "", "%s", what);
    error_add_metadata(s->err, "offset", "%zu", (size_t)(at - s->body));
    return LOSSD_MALFORMED_REQUEST;
}

/* Elements of a packed array fill it exactly. */
static enum lossd_status scan_packed(struct scanner *s, ProtobufCType type, const struct wire_field *wire)
{
    const size_t length = (size_t)(wire->end - wire->value);
    const size_t fixed = proto_fixed_size(type);

    if (fixed != 0)
        return length % fixed == 0 ? LOSSD_OK : fail(s, wire->begin, "packed numbers that are cut");
    for (const uint8_t *p = wire->value; p < wire->end;) {
        uint64_t value;
        const uint8_t *const behind = wire_read_varint(p, wire->end, &value);

        if (behind == NULL)
            return fail(s, p, "a packed number that is cut or too long");
        p = behind;
    }
    return LOSSD_OK;
}

static enum lossd_status scan_string(struct scanner *s, const struct wire_field *wire)
{
    const size_t length = (size_t)(wire->end - wire->value);

    if (memchr(wire->value, '\0', length) != NULL)
        return fail(s, wire->begin, "a string with a NUL in it");
    return utf8_is_valid(wire->value, length) ? LOSSD_OK : fail(s, wire->begin, "a string that is not UTF-8");
}

static enum lossd_status scan_sub_message(struct scanner *s, const ProtobufCMessageDescriptor *descriptor,
                                          const struct wire_field *wire)
{
    if (descriptor->sizeof_message > s->message_bytes) {
        (void)error_set(s->err, LOSSD_LIMIT_EXCEEDED, "", "its messages need more than %zu bytes of memory",
                        s->message_limit_bytes);
        error_add_metadata(s->err, "limit", "memory_bytes");
        return LOSSD_LIMIT_EXCEEDED;
    }
    s->message_bytes -= descriptor->sizeof_message;
    return scan_message(s, descriptor, wire->value, wire->end);
}

static enum lossd_status scan_field(struct scanner *s, const ProtobufCFieldDescriptor *field,
                                    const struct wire_field *wire)
{
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return scan_string(s, wire);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return scan_sub_message(s, field->descriptor, wire);
    if (field->type != PROTOBUF_C_TYPE_BYTES && wire->type == WIRE_BYTES)
        return scan_packed(s, field->type, wire);
    return LOSSD_OK;
}

/* Things that the rewriting mends: an array element by itself behind another, a message given before. */
static bool needs_mending(const ProtobufCFieldDescriptor *field, const struct wire_field *wire, uint32_t previous,
                          const struct proto_seen *seen, const ProtobufCMessageDescriptor *descriptor)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return proto_is_packable(field->type) && wire->type != WIRE_BYTES && previous == wire->number;
    return field->type == PROTOBUF_C_TYPE_MESSAGE && proto_was_seen(seen, descriptor, field);
}

static enum lossd_status scan_message(struct scanner *s, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                                      const uint8_t *end)
{
    struct proto_seen seen = {0};
    uint32_t previous = 0;
    size_t index = 0;

    if (s->depth++ == MAX_DEPTH)
        return fail(s, p, "more than 100 nested messages");
    while (p < end) {
        struct wire_field wire;
        const char *const fault = wire_next(&p, end, &wire);
        const ProtobufCFieldDescriptor *field;
        enum lossd_status status;

        if (fault != NULL)
            return fail(s, p, fault);
        field = proto_known_field(descriptor, &wire);
        if (field == NULL) {
            s->rewrite = true;
            continue;
        }
        index = wire.number == previous ? index + 1 : 0;
        s->rewrite |= needs_mending(field, &wire, previous, &seen, descriptor);
        proto_mark_seen(&seen, descriptor, field);
        previous = wire.number;
        status = scan_field(s, field, &wire);
        if (status == LOSSD_OK)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED && !proto_is_packable(field->type))
            error_prefix_field(s->err, "[%zu]", index);
        error_prefix_field(s->err, "%s", field->name);
        return status;
    }
    s->depth--;
    return LOSSD_OK;
}

enum lossd_status proto_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t **body, size_t *size,
                             struct arena *arena, struct lossd_error *err)
{
    const size_t message_bytes = MESSAGE_BASE_BYTES + MESSAGE_FACTOR * *size;
    struct scanner scanner = {
        .body = *body, .err = err, .message_limit_bytes = message_bytes, .message_bytes = message_bytes};
    const enum lossd_status status = *size == 0 ? LOSSD_OK : scan_message(&scanner, descriptor, *body, *body + *size);

    if (status != LOSSD_OK || !scanner.rewrite)
        return status;
    if (proto_rewrite(descriptor, body, size, arena))
        return LOSSD_OK;
    return arena_error(arena, "message", err);
}
