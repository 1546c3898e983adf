/* Reading: json-c gets the body without what json_scan cut out; its tree is then laid into the message. */
#include "codec/protojson.h"

#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "codec/base64.h"
#include "codec/fields.h"
#include "codec/json_scan.h"

struct reader {
    const struct json_scan *scan;
    bool ignore_unknown;
    struct arena *arena;
    struct lossd_error *err;
};

static enum lossd_status read_message(struct reader *r, const ProtobufCMessageDescriptor *descriptor,
                                      struct json_object *object, ProtobufCMessage **message);

static bool has_nul(struct json_object *string)
{
    return memchr(json_object_get_string(string), '\0', (size_t)json_object_get_string_len(string)) != NULL;
}

static enum lossd_status read_string(struct reader *r, struct json_object *value, char **text)
{
    const size_t length = (size_t)json_object_get_string_len(value);

    if (has_nul(value))
        return error_set(r->err, LOSSD_MALFORMED_REQUEST, "", "a string with a NUL in it");
    *text = arena_strndup(r->arena, json_object_get_string(value), length);
    return *text == NULL ? arena_error(r->arena, "message", r->err) : LOSSD_OK;
}

static enum lossd_status read_bytes(struct reader *r, struct json_object *value, ProtobufCBinaryData *bytes)
{
    const size_t length = (size_t)json_object_get_string_len(value);

    bytes->data = arena_alloc(r->arena, length / 4 * 3 + 3);
    if (bytes->data == NULL)
        return arena_error(r->arena, "message", r->err);
    if (!base64_decode(json_object_get_string(value), length, bytes->data, &bytes->len))
        return error_set(r->err, LOSSD_MALFORMED_REQUEST, "", "a string that is not base64");
    return LOSSD_OK;
}

static enum lossd_status read_enum(struct reader *r, const ProtobufCEnumDescriptor *descriptor,
                                   struct json_object *value, int32_t *number)
{
    const ProtobufCEnumValue *named;
    const double wide = json_object_get_double(value);

    if (json_object_is_type(value, json_type_string)) {
        named = protobuf_c_enum_descriptor_get_value_by_name(descriptor, json_object_get_string(value));
        if (named == NULL || has_nul(value))
            return error_set(r->err, LOSSD_MALFORMED_REQUEST, "", "\"%.64s\" is no value of %s",
                             json_object_get_string(value), descriptor->short_name);
        *number = named->value;
        return LOSSD_OK;
    }
    if (!(wide >= INT32_MIN && wide <= INT32_MAX) || (double)(int32_t)wide != wide)
        return error_set(r->err, LOSSD_MALFORMED_REQUEST, "", "%s is no value of %s", json_object_get_string(value),
                         descriptor->short_name);
    *number = (int32_t)wide;
    return LOSSD_OK;
}

/* One value that is not null, into the member of a singular field or an element of a repeated one. */
static enum lossd_status read_value(struct reader *r, const ProtobufCFieldDescriptor *field, struct json_object *value,
                                    void *element)
{
    const protobuf_c_boolean truth = json_object_get_boolean(value);

    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return read_message(r, field->descriptor, value, element);
    case PROTOBUF_C_TYPE_STRING:
        return read_string(r, value, element);
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(r, value, element);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(r, field->descriptor, value, element);
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(element, &truth, sizeof truth);
        return LOSSD_OK;
    default: /* the index of a cut */
        memcpy(element, r->scan->cuts[json_object_get_int64(value)].values, type_size(field->type));
        return LOSSD_OK;
    }
}

/* The name of no value of the enum, where unknown fields are to be skipped: it is one. */
static bool is_skipped(const struct reader *r, const ProtobufCFieldDescriptor *field, struct json_object *value)
{
    return r->ignore_unknown && field->type == PROTOBUF_C_TYPE_ENUM && json_object_is_type(value, json_type_string) &&
           protobuf_c_enum_descriptor_get_value_by_name(field->descriptor, json_object_get_string(value)) == NULL;
}

static enum lossd_status read_singular(struct reader *r, const ProtobufCFieldDescriptor *field,
                                       struct json_object *value, ProtobufCMessage *message)
{
    const uint32_t *which = field_quantifier(message, field);

    if (field_is_oneof(field) && *which != 0)
        return error_set(r->err, LOSSD_MALFORMED_REQUEST, "", "%s of the same oneof is given too",
                         field_by_number(message->descriptor, *which)->name);
    if (is_skipped(r, field, value))
        return LOSSD_OK;
    field_mark_present(message, field);
    return read_value(r, field, value, field_member(message, field));
}

static enum lossd_status read_repeated(struct reader *r, const ProtobufCFieldDescriptor *field,
                                       struct json_object *value, ProtobufCMessage *message)
{
    const size_t size = type_size(field->type);
    size_t *count = field_quantifier(message, field);
    size_t length;
    char *elements;

    if (type_is_number(field->type)) {
        const struct json_cut *cut = &r->scan->cuts[json_object_get_int64(value)];

        *count = cut->count;
        memcpy(field_member(message, field), &cut->values, sizeof cut->values);
        return LOSSD_OK;
    }
    length = json_object_array_length(value);
    elements = arena_calloc(r->arena, length, size);
    if (elements == NULL)
        return arena_error(r->arena, "message", r->err);
    for (size_t i = 0; i < length; i++) {
        struct json_object *element = json_object_array_get_idx(value, i);
        const enum lossd_status status = is_skipped(r, field, element)
                                             ? LOSSD_OK
                                             : read_value(r, field, element, elements + *count * size);

        if (status != LOSSD_OK) {
            error_prefix_field(r->err, "[%zu]", i);
            return status;
        }
        *count += !is_skipped(r, field, element);
    }
    memcpy(field_member(message, field), &elements, sizeof elements);
    return LOSSD_OK;
}

static enum lossd_status read_message(struct reader *r, const ProtobufCMessageDescriptor *descriptor,
                                      struct json_object *object, ProtobufCMessage **message)
{
    ProtobufCMessage *made = arena_calloc(r->arena, 1, descriptor->sizeof_message);
    const ProtobufCFieldDescriptor *missing;

    if (made == NULL)
        return arena_error(r->arena, "message", r->err);
    protobuf_c_message_init(descriptor, made);
    json_object_object_foreach(object, key, value)
    {
        const ProtobufCFieldDescriptor *field = field_by_key(descriptor, key, strlen(key));
        enum lossd_status status;

        if (field == NULL || value == NULL)
            continue;
        status = field->label == PROTOBUF_C_LABEL_REPEATED ? read_repeated(r, field, value, made)
                                                           : read_singular(r, field, value, made);
        if (status != LOSSD_OK) {
            error_prefix_field(r->err, "%s", field->name);
            return status;
        }
    }
    missing = field_first_missing(made);
    if (missing != NULL)
        return error_set(r->err, LOSSD_MALFORMED_REQUEST, missing->name, "the field is required");
    *message = made;
    return LOSSD_OK;
}

/*
 * Feed json-c a part of the text, which may be longer than its int says. *object is set where that completes it. False
 * where json-c refuses: it would go on behind the fault, with a tree that does not fit the cuts.
 */
static bool feed(struct json_tokener *tokener, const char *text, size_t length, struct json_object **object)
{
    while (length > 0 && *object == NULL) {
        const int part = length < INT_MAX ? (int)length : INT_MAX;

        *object = json_tokener_parse_ex(tokener, text, part);
        if (*object == NULL && json_tokener_get_error(tokener) != json_tokener_continue)
            return false;
        text += part;
        length -= (size_t)part;
    }
    return true;
}

static struct json_object *parse_tree(const uint8_t *body, size_t size, const struct json_scan *scan, int depth)
{
    struct json_tokener *tokener = json_tokener_new_ex(depth);
    struct json_object *object = NULL;
    const char *text = (const char *)body;
    size_t at = 0;
    bool fed = true;

    if (tokener == NULL)
        return NULL;
    for (size_t i = 0; i < scan->num_cuts && fed; i++) {
        const struct json_cut *cut = &scan->cuts[i];
        char stand_in[24] = "\"\":null";

        if (cut->values != NULL)
            (void)snprintf(stand_in, sizeof stand_in, "%zu", i);
        fed = feed(tokener, text + at, cut->begin - at, &object) && feed(tokener, stand_in, strlen(stand_in), &object);
        at = cut->end;
    }
    if (fed)
        (void)feed(tokener, text + at, size - at, &object);
    json_tokener_free(tokener);
    return object;
}

enum lossd_status protojson_decode(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                                   const struct decode_limits *limits, struct arena *arena, ProtobufCMessage **message,
                                   struct lossd_error *err)
{
    struct json_scan scan;
    struct reader reader = {.scan = &scan, .ignore_unknown = limits->ignore_unknown, .arena = arena, .err = err};
    enum lossd_status status = json_scan(descriptor, body, size, limits, arena, &scan, err);
    struct json_object *object;

    if (status != LOSSD_OK)
        return status;
    if (!arena_charge(arena, scan.tree_bytes))
        return arena_error(arena, "message", err);
    object = parse_tree(body, size, &scan, JSON_TREE_DEPTH);
    status = object == NULL ? error_set(err, LOSSD_INTERNAL, "", "json-c refuses what has been checked")
                            : read_message(&reader, descriptor, object, message);
    json_object_put(object);
    arena_discharge(arena, scan.tree_bytes);
    return status;
}
