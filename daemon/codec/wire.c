#include "codec/wire.h"

enum { MAX_VARINT = 10, MAX_GROUPS = 100 };

const uint8_t *wire_read_varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < MAX_VARINT && p < end; i++) {
        *value |= (uint64_t)(*p & 0x7f) << (7 * i);
        if ((*p++ & 0x80) == 0)
            return p;
    }
    return NULL;
}

size_t wire_varint_width(uint64_t value)
{
    size_t width = 1;

    for (; value >= 0x80; value >>= 7)
        width++;
    return width;
}

void wire_write_varint(uint8_t *out, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++, value >>= 7)
        out[i] = (uint8_t)((value & 0x7f) | (i + 1 < width ? 0x80 : 0));
}

/* A tag is a varint of 32 bits, in 5 bytes at most. */
static const char *read_tag(const uint8_t **p, const uint8_t *end, struct wire_field *field)
{
    const uint8_t *const begin = *p;
    uint64_t tag;

    *p = wire_read_varint(begin, end, &tag);
    if (*p == NULL || *p - begin > 5 || tag > UINT32_MAX) {
        *p = begin;
        return "a tag that is cut or too long";
    }
    field->begin = begin;
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum wire_type)(tag & 7);
    return field->number == 0 ? "field number 0" : NULL;
}

/* The value of anything but a group. */
static const char *read_value(const uint8_t **p, const uint8_t *end, struct wire_field *field)
{
    uint64_t length = 0;
    const uint8_t *behind;

    field->value = *p;
    switch (field->type) {
    case WIRE_VARINT:
        behind = wire_read_varint(*p, end, &length);
        if (behind == NULL)
            return "a varint that is cut or too long";
        *p = behind;
        return NULL;
    case WIRE_BYTES:
        behind = wire_read_varint(*p, end, &length);
        if (behind == NULL || behind - *p > 5)
            return "a length that is cut or too long";
        field->value = behind;
        break;
    case WIRE_FIXED64:
        length = 8;
        break;
    case WIRE_FIXED32:
        length = 4;
        break;
    default:
        return "a wire type that protobuf does not have";
    }
    if (length > (uint64_t)(end - field->value))
        return "a length past the end";
    *p = field->value + length;
    return NULL;
}

/* Behind the end tag of the group whose start tag was just read. */
static const char *skip_group(const uint8_t **p, const uint8_t *end, uint32_t number)
{
    uint32_t open[MAX_GROUPS] = {number};
    unsigned depth = 1;

    while (depth > 0) {
        struct wire_field inner;
        const char *fault = read_tag(p, end, &inner);

        if (fault != NULL)
            return *p == end ? "a group without an end" : fault;
        if (inner.type == WIRE_GROUP_END) {
            if (inner.number != open[--depth])
                return "the end of another group";
        } else if (inner.type == WIRE_GROUP) {
            if (depth == MAX_GROUPS)
                return "more than 100 nested groups";
            open[depth++] = inner.number;
        } else {
            fault = read_value(p, end, &inner);
            if (fault != NULL)
                return fault;
        }
    }
    return NULL;
}

const char *wire_next(const uint8_t **p, const uint8_t *end, struct wire_field *field)
{
    const char *fault = read_tag(p, end, field);

    if (fault == NULL) {
        field->value = *p;
        if (field->type == WIRE_GROUP_END)
            fault = "the end of a group that was not begun";
        else if (field->type == WIRE_GROUP)
            fault = skip_group(p, end, field->number);
        else
            fault = read_value(p, end, field);
    }
    field->end = *p;
    return fault;
}
