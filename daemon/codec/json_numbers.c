#include "codec/json_numbers.h"

#include <math.h>
#include <string.h>

#include "codec/decimal.h"
#include "codec/fields.h"
#include "codec/json_text.h"

static bool is_floating(ProtobufCType type)
{
    return type == PROTOBUF_C_TYPE_FLOAT || type == PROTOBUF_C_TYPE_DOUBLE;
}

static const char *type_name(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return "a float";
    case PROTOBUF_C_TYPE_DOUBLE:
        return "a double";
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return "a uint32";
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return "a uint64";
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return "an int64";
    default:
        return "an int32";
    }
}

static enum lossd_status fail(struct json_cursor *c, const uint8_t *at, const char *found, ProtobufCType expected)
{
    return json_fail(c, at, "expected a number for %s, found %s", type_name(expected), found);
}

static bool store_signed(const struct decimal *decimal, bool wide, void *value)
{
    int64_t whole;
    int32_t narrow;

    if (!decimal_to_int64(decimal, wide ? INT64_MIN : INT32_MIN, wide ? INT64_MAX : INT32_MAX, &whole))
        return false;
    narrow = (int32_t)whole;
    memcpy(value, wide ? (const void *)&whole : (const void *)&narrow, wide ? sizeof whole : sizeof narrow);
    return true;
}

static bool store_unsigned(const struct decimal *decimal, bool wide, void *value)
{
    uint64_t whole;
    uint32_t narrow;

    if (!decimal_to_uint64(decimal, wide ? UINT64_MAX : UINT32_MAX, &whole))
        return false;
    narrow = (uint32_t)whole;
    memcpy(value, wide ? (const void *)&whole : (const void *)&narrow, wide ? sizeof whole : sizeof narrow);
    return true;
}

static bool store(const struct decimal *decimal, ProtobufCType type, void *value)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return decimal_to_float(decimal, value);
    case PROTOBUF_C_TYPE_DOUBLE:
        return decimal_to_double(decimal, value);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return store_unsigned(decimal, type_size(type) == 8, value);
    default:
        return store_signed(decimal, type_size(type) == 8, value);
    }
}

static bool store_nonfinite(const char *text, size_t length, ProtobufCType type, void *value)
{
    static const struct {
        const char *name;
        float value;
    } names[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const double wide = (double)names[i].value;

        if (strlen(names[i].name) != length || memcmp(names[i].name, text, length) != 0)
            continue;
        memcpy(value, type == PROTOBUF_C_TYPE_FLOAT ? (const void *)&names[i].value : (const void *)&wide,
               type_size(type));
        return true;
    }
    return false;
}

static enum lossd_status read_quoted(struct json_cursor *c, ProtobufCType type, void *value)
{
    struct json_string string;
    const uint8_t *fault;
    const uint8_t *const behind = json_parse_string(c->p, c->end, &string, &fault);
    const uint8_t *number;
    const uint8_t *number_end;
    struct decimal decimal;
    char text[64];
    size_t length;

    if (behind == NULL)
        return fail(c, fault, "a string that JSON does not have", type);
    number = string.text;
    number_end = number + string.length;
    if (string.has_escapes) {
        if (!json_unescape(&string, text, sizeof text, &length))
            return fail(c, c->p, "a string that is no number", type);
        number = (const uint8_t *)text;
        number_end = number + length;
    }
    if (is_floating(type) && store_nonfinite((const char *)number, (size_t)(number_end - number), type, value)) {
        c->p = behind;
        return LOSSD_OK;
    }
    if (decimal_parse(number, number_end, &decimal) != number_end)
        return fail(c, c->p, "a string that is no number", type);
    if (!store(&decimal, type, value))
        return fail(c, c->p, is_floating(type) ? "a number out of range" : "a number out of range or not whole", type);
    c->p = behind;
    return LOSSD_OK;
}

enum lossd_status json_read_number(struct json_cursor *c, ProtobufCType type, void *value)
{
    struct decimal decimal;
    const uint8_t *behind;

    if (c->p < c->end && *c->p == '"')
        return read_quoted(c, type, value);
    behind = decimal_parse(c->p, c->end, &decimal);
    if (behind == NULL) {
        if (c->p < c->end && (*c->p == '-' || (*c->p >= '0' && *c->p <= '9')))
            return fail(c, c->p, "a number that JSON does not have", type);
        return fail(c, c->p, json_kind_name(c->p, c->end), type);
    }
    if (!store(&decimal, type, value))
        return fail(c, c->p, is_floating(type) ? "a number out of range" : "a number out of range or not whole", type);
    c->p = behind;
    return LOSSD_OK;
}

static enum lossd_status read_element(struct json_cursor *c, ProtobufCType type, void *value, bool *more)
{
    enum lossd_status status;

    c->p = json_skip_space(c->p, c->end);
    status = json_read_number(c, type, value);
    if (status != LOSSD_OK)
        return status;
    c->p = json_skip_space(c->p, c->end);
    *more = c->p < c->end && *c->p == ',';
    if (!*more && (c->p == c->end || *c->p != ']'))
        return json_fail(c, c->p, "expected a comma or ], found %s", json_kind_name(c->p, c->end));
    c->p++;
    return LOSSD_OK;
}

enum lossd_status json_read_numbers(struct json_cursor *c, ProtobufCType type, void *values, size_t capacity,
                                    size_t *count)
{
    const size_t size = type_size(type);
    enum lossd_status status = LOSSD_OK;
    bool more = true;
    size_t i = 0;

    while (more && status == LOSSD_OK) {
        if (type == PROTOBUF_C_TYPE_FLOAT) /* all that is uncommon is left to read_element */
            i += decimal_read_floats(&c->p, c->end, (float *)values + i, capacity - i);
        if (i == capacity)
            return fail(c, c->p, "a bracket or comma in a string", type);
        status = read_element(c, type, (char *)values + i * size, &more);
        if (status == LOSSD_OK)
            i++;
    }
    if (status != LOSSD_OK)
        error_prefix_field(c->err, "[%zu]", i);
    *count = i;
    return status;
}
