/*
 * The new body is never longer than the old one: a run of elements loses a tag for each but the first and gains one
 * length; joined messages have one tag and one length instead of several.
 */
#include "codec/proto_rewrite.h"

#include <string.h>

#include "codec/fields.h"

struct writer {
    struct arena *arena;
    uint8_t *out;
};

static bool write_message(struct writer *w, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                          const uint8_t *end);

bool proto_was_seen(const struct proto_seen *seen, const ProtobufCMessageDescriptor *descriptor,
                    const ProtobufCFieldDescriptor *field)
{
    const size_t index = (size_t)(field - descriptor->fields);

    return index < 512 && (seen->bits[index / 64] >> index % 64 & 1) != 0;
}

void proto_mark_seen(struct proto_seen *seen, const ProtobufCMessageDescriptor *descriptor,
                     const ProtobufCFieldDescriptor *field)
{
    const size_t index = (size_t)(field - descriptor->fields);

    if (index < 512)
        seen->bits[index / 64] |= UINT64_C(1) << index % 64;
}

size_t proto_fixed_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return 4;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return 8;
    default:
        return 0;
    }
}

bool proto_is_packable(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_STRING && type != PROTOBUF_C_TYPE_BYTES && type != PROTOBUF_C_TYPE_MESSAGE;
}

static enum wire_type single_wire_type(ProtobufCType type)
{
    if (!proto_is_packable(type))
        return WIRE_BYTES;
    switch (proto_fixed_size(type)) {
    case 4:
        return WIRE_FIXED32;
    case 8:
        return WIRE_FIXED64;
    default:
        return WIRE_VARINT;
    }
}

const ProtobufCFieldDescriptor *proto_known_field(const ProtobufCMessageDescriptor *descriptor,
                                                  const struct wire_field *wire)
{
    const ProtobufCFieldDescriptor *field = field_by_number(descriptor, wire->number);

    if (field == NULL || wire->type == single_wire_type(field->type))
        return field;
    return field->label == PROTOBUF_C_LABEL_REPEATED && wire->type == WIRE_BYTES ? field : NULL;
}

static void write_bytes(struct writer *w, const uint8_t *bytes, size_t size)
{
    memcpy(w->out, bytes, size);
    w->out += size;
}

static void write_number(struct writer *w, uint64_t value)
{
    const size_t width = wire_varint_width(value);

    wire_write_varint(w->out, value, width);
    w->out += width;
}

/* The elements of one field from first on, as long as they follow each other; *p goes behind the last. */
static void write_run(struct writer *w, const struct wire_field *first, const uint8_t **p, const uint8_t *end)
{
    struct wire_field wire;
    const uint8_t *behind = first->end;
    size_t size = (size_t)(first->end - first->value);
    size_t count = 1;

    for (const uint8_t *next = behind; next < end && wire_next(&next, end, &wire) == NULL; behind = next, count++) {
        if (wire.number != first->number || wire.type != first->type)
            break;
        size += (size_t)(wire.end - wire.value);
    }
    if (count == 1) {
        write_bytes(w, first->begin, (size_t)(first->end - first->begin));
        return;
    }
    write_number(w, (uint64_t)first->number << 3 | WIRE_BYTES);
    write_number(w, size);
    *p = first->begin;
    for (size_t i = 0; i < count; i++) {
        (void)wire_next(p, end, &wire);
        write_bytes(w, wire.value, (size_t)(wire.end - wire.value));
    }
}

/* A message of which content is all that was given, in the order given. */
static bool write_child(struct writer *w, const ProtobufCFieldDescriptor *field, const uint8_t *content, size_t size)
{
    const size_t width = wire_varint_width(size);
    uint8_t *length;

    write_number(w, (uint64_t)field->id << 3 | WIRE_BYTES);
    length = w->out;
    w->out += width;
    if (!write_message(w, field->descriptor, content, content + size))
        return false;
    wire_write_varint(length, (uint64_t)(w->out - length) - width, width);
    return true;
}

/* The part of a message that can still matter for one of its singular fields, and the field's occurrences there. */
struct occurrences {
    const uint8_t *start;
    struct wire_field last;
    size_t count;
    size_t size; /* of all values together */
};

/* From p on. Where another member of the field's oneof is given, what was given before is lost. */
static struct occurrences find_occurrences(const ProtobufCMessageDescriptor *descriptor,
                                           const ProtobufCFieldDescriptor *field, const uint8_t *p, const uint8_t *end)
{
    struct occurrences found = {.start = p};

    while (p < end) {
        struct wire_field wire;
        const ProtobufCFieldDescriptor *other;

        (void)wire_next(&p, end, &wire);
        other = proto_known_field(descriptor, &wire);
        if (other == field) {
            found.last = wire;
            found.count++;
            found.size += (size_t)(wire.end - wire.value);
        } else if (other != NULL && field_is_oneof(field) && field_is_oneof(other) &&
                   other->quantifier_offset == field->quantifier_offset) {
            found = (struct occurrences){.start = p};
        }
    }
    return found;
}

/* A singular message, joined from all its parts. */
static bool write_joined(struct writer *w, const ProtobufCMessageDescriptor *descriptor,
                         const ProtobufCFieldDescriptor *field, const struct occurrences *found, const uint8_t *end)
{
    uint8_t *content;
    uint8_t *to;

    if (found->count == 1)
        return write_child(w, field, found->last.value, found->size);
    content = arena_alloc(w->arena, found->size);
    if (content == NULL)
        return false;
    to = content;
    for (const uint8_t *p = found->start; p < end;) {
        struct wire_field wire;

        (void)wire_next(&p, end, &wire);
        if (proto_known_field(descriptor, &wire) != field)
            continue;
        memcpy(to, wire.value, (size_t)(wire.end - wire.value));
        to += wire.end - wire.value;
    }
    return write_child(w, field, content, found->size);
}

/*
 * A singular message, or a member of a oneof, met for the first time: written here as what it is in the end. It is
 * looked for once; later occurrences are left out.
 */
static bool write_final(struct writer *w, const ProtobufCMessageDescriptor *descriptor,
                        const ProtobufCFieldDescriptor *field, const uint8_t *begin, const uint8_t *end)
{
    const struct occurrences found = find_occurrences(descriptor, field, begin, end);

    if (found.count == 0)
        return true;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return write_joined(w, descriptor, field, &found, end);
    write_bytes(w, found.last.begin, (size_t)(found.last.end - found.last.begin));
    return true;
}

static bool write_field(struct writer *w, const ProtobufCFieldDescriptor *field, const struct wire_field *wire,
                        const uint8_t **p, const uint8_t *end)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_MESSAGE)
        return write_child(w, field, wire->value, (size_t)(wire->end - wire->value));
    if (field->label == PROTOBUF_C_LABEL_REPEATED && proto_is_packable(field->type) && wire->type != WIRE_BYTES)
        write_run(w, wire, p, end);
    else
        write_bytes(w, wire->begin, (size_t)(wire->end - wire->begin));
    return true;
}

static bool write_message(struct writer *w, const ProtobufCMessageDescriptor *descriptor, const uint8_t *p,
                          const uint8_t *end)
{
    struct proto_seen seen = {0};
    bool done = true;

    while (done && p < end) {
        struct wire_field wire;
        const ProtobufCFieldDescriptor *field;

        (void)wire_next(&p, end, &wire);
        field = proto_known_field(descriptor, &wire);
        if (field == NULL)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED ||
            (field->type != PROTOBUF_C_TYPE_MESSAGE && !field_is_oneof(field)))
            done = write_field(w, field, &wire, &p, end);
        else if (!proto_was_seen(&seen, descriptor, field))
            done = write_final(w, descriptor, field, wire.begin, end);
        proto_mark_seen(&seen, descriptor, field);
    }
    return done;
}

bool proto_rewrite(const ProtobufCMessageDescriptor *descriptor, const uint8_t **body, size_t *size,
                   struct arena *arena)
{
    uint8_t *const bytes = arena_alloc(arena, *size);
    struct writer writer = {.arena = arena, .out = bytes};

    if (bytes == NULL || !write_message(&writer, descriptor, *body, *body + *size))
        return false;
    *body = bytes;
    *size = (size_t)(writer.out - bytes);
    return true;
}
