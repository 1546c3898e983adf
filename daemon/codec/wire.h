/* The protobuf wire format, field by field, without what the fields mean. Pure; any thread. */
#ifndef CODEC_WIRE_H
#define CODEC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_type {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_GROUP = 3,
    WIRE_GROUP_END = 4,
    WIRE_FIXED32 = 5,
};

/* One field as it lies in the bytes. */
struct wire_field {
    const uint8_t *begin; /* of its tag */
    const uint8_t *value; /* behind the tag and, for WIRE_BYTES, the length */
    const uint8_t *end;   /* behind the field; of a group behind its end tag */
    uint32_t number;
    enum wire_type type;
};

/*
 * Read the field at *p and move *p behind it. Returns NULL on success, else what is wrong there: a tag or varint
 * that is cut or too long, field number 0, an unknown wire type, a length past end, groups that are not balanced or
 * nested more than 100 deep.
 */
const char *wire_next(const uint8_t **p, const uint8_t *end, struct wire_field *field);

/* Behind the varint at p; NULL where it is cut or longer than 10 bytes. */
const uint8_t *wire_read_varint(const uint8_t *p, const uint8_t *end, uint64_t *value);

/* Write value in width bytes, leading zeros included where it is shorter; width from wire_varint_width or more. */
void wire_write_varint(uint8_t *out, uint64_t value, size_t width);
size_t wire_varint_width(uint64_t value);

#endif
