/*
 * Writing: json-c writes the text without its number arrays, noting where each belongs; then all is put together in one
 * buffer, the arrays printed where they stay.
 */
#include "codec/protojson.h"

#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "codec/base64.h"
#include "codec/decimal.h"
#include "codec/fields.h"
#include "codec/utf8.h"

enum { MAX_DEPTH = 256 };

/* A number array that json-c leaves out. */
struct hole {
    struct hole *next; /* in the order of the text */
    size_t offset;     /* in json-c's text */
    const ProtobufCFieldDescriptor *field;
    const char *elements;
    size_t count;
};

struct printer {
    struct hole *first;
    struct hole **last;
    int depth;
};

static struct json_object *print_message(struct printer *p, const ProtobufCMessage *message);

static bool is_wide(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_DOUBLE && type_size(type) == 8;
}

static char *print_number(char *out, ProtobufCType type, const void *value)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    double real;
    float single;

    memcpy(type_size(type) == 8 ? (void *)&wide : (void *)&narrow, value, type_size(type));
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(&single, value, sizeof single);
        return decimal_print_float(out, single);
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(&real, value, sizeof real);
        return decimal_print_double(out, real);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return decimal_print_uint64(out, narrow);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return decimal_print_uint64(out, wide);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return decimal_print_int64(out, (int64_t)wide);
    default:
        return decimal_print_int64(out, (int32_t)narrow);
    }
}

/* Integers of 64 bits are strings, as JavaScript would round them. */
static char *print_array_element(char *out, ProtobufCType type, const void *value)
{
    if (!is_wide(type))
        return print_number(out, type, value);
    *out++ = '"';
    out = print_number(out, type, value);
    *out++ = '"';
    return out;
}

/* json-c calls this where the array would be written. */
static int note_hole(struct json_object *object, struct printbuf *text, int level, int flags)
{
    struct hole *hole = json_object_get_userdata(object);

    (void)level;
    (void)flags;
    hole->offset = (size_t)printbuf_length(text);
    return 0;
}

static struct json_object *print_number_array(struct printer *p, const ProtobufCFieldDescriptor *field,
                                              const void *elements, size_t count)
{
    struct json_object *object = json_object_new_int(0);
    struct hole *hole = calloc(1, sizeof *hole);

    if (object == NULL || hole == NULL) {
        json_object_put(object);
        free(hole);
        return NULL;
    }
    *hole = (struct hole){.field = field, .elements = elements, .count = count};
    *p->last = hole;
    p->last = &hole->next;
    json_object_set_serializer(object, note_hole, hole, NULL);
    return object;
}

static struct json_object *print_one_number(ProtobufCType type, const void *value)
{
    char text[DECIMAL_MAX_TEXT];
    const size_t length = (size_t)(print_number(text, type, value) - text);

    text[length] = '\0';
    if (is_wide(type))
        return json_object_new_string_len(text, (int)length);
    if (text[0] == '"')
        return json_object_new_string_len(text + 1, (int)length - 2);
    return json_object_new_double_s(0, text);
}

static struct json_object *print_bytes(const ProtobufCBinaryData *bytes)
{
    CLEANUP_FREE char *text = bytes->len <= INT32_MAX / 2 ? malloc(base64_encoded_size(bytes->len) + 1) : NULL;

    if (text == NULL)
        return NULL;
    return json_object_new_string_len(text, (int)base64_encode(bytes->data, bytes->len, true, text));
}

static struct json_object *print_enum(const ProtobufCEnumDescriptor *descriptor, int32_t number)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);

    return value != NULL ? json_object_new_string(value->name) : json_object_new_int(number);
}

/* NULL where memory is out or the value is not one of its type. */
static struct json_object *print_value(struct printer *p, const ProtobufCFieldDescriptor *field, const void *element)
{
    const char *text;
    const ProtobufCMessage *message;
    protobuf_c_boolean truth;
    int32_t number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&message, element, sizeof message);
        return print_message(p, message);
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&text, element, sizeof text);
        return utf8_is_valid((const uint8_t *)text, strlen(text)) ? json_object_new_string(text) : NULL;
    case PROTOBUF_C_TYPE_BYTES:
        return print_bytes(element);
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(&truth, element, sizeof truth);
        return json_object_new_boolean(truth);
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(&number, element, sizeof number);
        return print_enum(field->descriptor, number);
    default:
        return print_one_number(field->type, element);
    }
}

static struct json_object *print_field(struct printer *p, const ProtobufCFieldDescriptor *field,
                                       const ProtobufCMessage *message, size_t count)
{
    struct json_object *array;

    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return print_value(p, field, field_element(message, field, 0));
    if (type_is_number(field->type))
        return print_number_array(p, field, field_element(message, field, 0), count);
    array = json_object_new_array();
    for (size_t i = 0; array != NULL && i < count; i++) {
        struct json_object *value = print_value(p, field, field_element(message, field, i));

        if (value == NULL || json_object_array_add(array, value) != 0) {
            json_object_put(value);
            json_object_put(array);
            array = NULL;
        }
    }
    return array;
}

static struct json_object *print_fields(struct printer *p, const ProtobufCMessage *message)
{
    struct json_object *object = json_object_new_object();

    for (unsigned i = 0; object != NULL && i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const size_t count = field_count(message, field);
        struct json_object *value;
        char name[JSON_NAME_SIZE];

        if (count == 0)
            continue;
        (void)field_json_name(field, name);
        value = print_field(p, field, message, count);
        if (value == NULL || json_object_object_add(object, name, value) != 0) {
            json_object_put(value);
            json_object_put(object);
            object = NULL;
        }
    }
    return object;
}

static struct json_object *print_message(struct printer *p, const ProtobufCMessage *message)
{
    struct json_object *object;

    if (message == NULL || p->depth == MAX_DEPTH)
        return NULL;
    p->depth++;
    object = print_fields(p, message);
    p->depth--;
    return object;
}

static char *fill_hole(char *out, const struct hole *hole, bool pretty)
{
    const ProtobufCType type = hole->field->type;
    const char *const separator = pretty ? ", " : ",";
    const size_t size = type_size(type);

    *out++ = '[';
    if (type == PROTOBUF_C_TYPE_FLOAT)
        out = decimal_print_floats(out, (const float *)(const void *)hole->elements, hole->count, separator);
    for (size_t i = 0; type != PROTOBUF_C_TYPE_FLOAT && i < hole->count; i++) {
        if (i > 0)
            out = stpcpy(out, separator);
        out = print_array_element(out, type, hole->elements + i * size);
    }
    *out++ = ']';
    return out;
}

/* Bytes that all holes may take, with brackets, and quotes and separators of two characters. */
static size_t holes_bound(const struct printer *p)
{
    size_t bound = 0;

    for (const struct hole *hole = p->first; hole != NULL; hole = hole->next) {
        const bool is_float = hole->field->type == PROTOBUF_C_TYPE_FLOAT;

        bound += 2 + (is_float ? DECIMAL_FLOATS_BOUND(hole->count) : hole->count * (DECIMAL_MAX_TEXT + 2));
    }
    return bound;
}

/*
 * The block keeps its size: what is behind the text has not been touched, and malloc can use a block again for the next
 * answer of that size instead of asking the kernel for fresh pages.
 */
static enum lossd_status fill_holes(const struct printer *p, const char *text, size_t length, bool pretty,
                                    struct encoded *encoded, struct lossd_error *err)
{
    char *const bytes = malloc(length + holes_bound(p) + 1);
    char *out = bytes;
    size_t at = 0;

    if (bytes == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "no memory for an answer");
    for (const struct hole *hole = p->first; hole != NULL; hole = hole->next) {
        memcpy(out, text + at, hole->offset - at);
        out = fill_hole(out + (hole->offset - at), hole, pretty);
        at = hole->offset;
    }
    memcpy(out, text + at, length - at);
    out += length - at;
    *out = '\0';
    *encoded = (struct encoded){.bytes = (uint8_t *)bytes, .size = (size_t)(out - bytes)};
    return LOSSD_OK;
}

/* Takes the tree and the holes. */
static enum lossd_status finish(struct printer *p, struct json_object *tree, bool pretty, struct encoded *encoded,
                                struct lossd_error *err)
{
    const int flags = JSON_C_TO_STRING_NOSLASHESCAPE |
                      (pretty ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED : JSON_C_TO_STRING_PLAIN);
    size_t length = 0;
    const char *text = tree != NULL ? json_object_to_json_string_length(tree, flags, &length) : NULL;
    const enum lossd_status status = text != NULL
                                         ? fill_holes(p, text, length, pretty, encoded, err)
                                         : error_set(err, LOSSD_INTERNAL, "",
                                                     "no memory for an answer, or text in it that is not UTF-8");

    json_object_put(tree);
    while (p->first != NULL) {
        struct hole *hole = p->first;

        p->first = hole->next;
        free(hole);
    }
    return status;
}

enum lossd_status protojson_encode(const ProtobufCMessage *message, bool pretty, struct encoded *encoded,
                                   struct lossd_error *err)
{
    struct printer printer = {.last = &printer.first};

    return finish(&printer, print_message(&printer, message), pretty, encoded, err);
}

void protojson_print_element(const ProtobufCFieldDescriptor *field, const void *element, char *text, size_t size)
{
    struct printer printer = {.last = &printer.first};
    struct encoded encoded;
    struct lossd_error err;

    if (finish(&printer, print_value(&printer, field, element), false, &encoded, &err) != LOSSD_OK) {
        (void)snprintf(text, size, "?");
        return;
    }
    (void)snprintf(text, size, "%s", (const char *)encoded.bytes);
    free(encoded.bytes);
}
