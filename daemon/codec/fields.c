#include "codec/fields.h"

#include <string.h>

size_t field_json_name(const ProtobufCFieldDescriptor *field, char name[JSON_NAME_SIZE])
{
    size_t length = 0;
    bool capital = false;

    for (const char *c = field->name; *c != '\0' && length < JSON_NAME_SIZE - 1; c++) {
        if (*c == '_') {
            capital = true;
            continue;
        }
        name[length++] = (char)(capital && *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        capital = false;
    }
    name[length] = '\0';
    return length;
}

const ProtobufCFieldDescriptor *field_by_key(const ProtobufCMessageDescriptor *descriptor, const char *key,
                                             size_t length)
{
    char name[JSON_NAME_SIZE];

    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

        /* Both names begin alike, but for one in front of which there is an underscore. */
        if ((length == 0 || key[0] != field->name[0]) && field->name[0] != '_')
            continue;
        if (strlen(field->name) == length && memcmp(field->name, key, length) == 0)
            return field;
        if (field_json_name(field, name) == length && memcmp(name, key, length) == 0)
            return field;
    }
    return NULL;
}

const ProtobufCFieldDescriptor *field_by_number(const ProtobufCMessageDescriptor *descriptor, uint32_t number)
{
    return protobuf_c_message_descriptor_get_field(descriptor, number);
}

bool type_is_number(ProtobufCType type)
{
    return type != PROTOBUF_C_TYPE_BOOL && type != PROTOBUF_C_TYPE_ENUM && type != PROTOBUF_C_TYPE_STRING &&
           type != PROTOBUF_C_TYPE_BYTES && type != PROTOBUF_C_TYPE_MESSAGE;
}

size_t type_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

bool field_is_oneof(const ProtobufCFieldDescriptor *field)
{
    return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
}

void *field_member(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (char *)message + field->offset;
}

void *field_quantifier(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (char *)message + field->quantifier_offset;
}

static bool pointer_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *pointer;

    memcpy(&pointer, field_member(message, field), sizeof pointer);
    return pointer != NULL && pointer != field->default_value;
}

/* Singular fields of proto3 have no presence: they are there where they differ from zero. */
static bool implicit_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    static const char zero[8];
    const void *member = field_member(message, field);
    const char *text;

    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return ((const ProtobufCBinaryData *)member)->len > 0;
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return memcmp(member, zero, type_size(field->type)) != 0;
    memcpy(&text, member, sizeof text);
    return text != NULL && text[0] != '\0';
}

static bool singular_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const bool is_pointer = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;

    if (field_is_oneof(field) && *(const uint32_t *)field_quantifier(message, field) != field->id)
        return false;
    if (field_is_oneof(field) || field->label == PROTOBUF_C_LABEL_REQUIRED)
        return !is_pointer || pointer_is_set(message, field);
    if (field->label == PROTOBUF_C_LABEL_NONE)
        return implicit_is_set(message, field);
    return is_pointer ? pointer_is_set(message, field)
                      : *(const protobuf_c_boolean *)field_quantifier(message, field) != 0;
}

size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)field_quantifier(message, field);
    return singular_is_set(message, field) ? 1 : 0;
}

const void *field_element(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, size_t i)
{
    const char *array = field_member(message, field);

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        memcpy(&array, field_member(message, field), sizeof array);
    return array + i * type_size(field->type);
}

void field_mark_present(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    if (field_is_oneof(field))
        *(uint32_t *)field_quantifier(message, field) = field->id;
    else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
             field->type != PROTOBUF_C_TYPE_MESSAGE)
        *(protobuf_c_boolean *)field_quantifier(message, field) = 1;
}

const ProtobufCFieldDescriptor *field_first_missing(const ProtobufCMessage *message)
{
    /* protobuf-c has no presence for required scalars: those that hold pointers can be told. */
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

        if (field->label == PROTOBUF_C_LABEL_REQUIRED && !singular_is_set(message, field))
            return field;
    }
    return NULL;
}
