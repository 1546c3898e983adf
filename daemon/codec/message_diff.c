/* Where two messages differ, for people who have to make them agree. */
#include <stdio.h>
#include <string.h>

#include "codec/fields.h"
#include "codec/message.h"
#include "codec/protojson.h"

struct text {
    char *at;
    size_t size;
};

struct diff {
    struct text path;
    size_t path_length;
    struct text a;
    struct text b;
};

static bool messages_differ(struct diff *diff, const ProtobufCMessage *a, const ProtobufCMessage *b);

/* Lengthen the path. Returns its old length, for cutting it back. */
static size_t path_push(struct diff *diff, const char *text)
{
    const size_t before = diff->path_length;
    const size_t room = diff->path.size > before ? diff->path.size - before : 0;

    if (room > 0) {
        (void)snprintf(diff->path.at + before, room, "%s%s", before > 0 && text[0] != '[' ? "." : "", text);
        diff->path_length = before + strlen(diff->path.at + before);
    }
    return before;
}

static void path_pop(struct diff *diff, size_t length)
{
    diff->path_length = length;
    if (length < diff->path.size)
        diff->path.at[length] = '\0';
}

static void print_side(const struct text *text, const ProtobufCFieldDescriptor *field, const void *element)
{
    if (element == NULL)
        (void)snprintf(text->at, text->size, "null");
    else
        protojson_print_element(field, element, text->at, text->size);
}

static bool elements_are_equal(const ProtobufCFieldDescriptor *field, const void *a, const void *b)
{
    const ProtobufCBinaryData *bytes_a = a;
    const ProtobufCBinaryData *bytes_b = b;
    const char *text_a;
    const char *text_b;

    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return bytes_a->len == bytes_b->len &&
               (bytes_a->len == 0 || memcmp(bytes_a->data, bytes_b->data, bytes_a->len) == 0);
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return memcmp(a, b, type_size(field->type)) == 0;
    memcpy(&text_a, a, sizeof text_a);
    memcpy(&text_b, b, sizeof text_b);
    return strcmp(text_a, text_b) == 0;
}

/* Elements of which one may be absent (NULL). */
static bool elements_differ(struct diff *diff, const ProtobufCFieldDescriptor *field, const void *a, const void *b)
{
    const ProtobufCMessage *message_a;
    const ProtobufCMessage *message_b;

    if (a != NULL && b != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE) {
        memcpy(&message_a, a, sizeof message_a);
        memcpy(&message_b, b, sizeof message_b);
        return messages_differ(diff, message_a, message_b);
    }
    if (a != NULL && b != NULL && elements_are_equal(field, a, b))
        return false;
    print_side(&diff->a, field, a);
    print_side(&diff->b, field, b);
    return true;
}

static bool fields_differ(struct diff *diff, const ProtobufCFieldDescriptor *field, const ProtobufCMessage *a,
                          const ProtobufCMessage *b)
{
    const size_t count_a = field_count(a, field);
    const size_t count_b = field_count(b, field);
    const size_t start = path_push(diff, field->name);

    for (size_t i = 0; i < count_a || i < count_b; i++) {
        const size_t name_end = diff->path_length;
        char index[24];

        (void)snprintf(index, sizeof index, "[%zu]", i);
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            (void)path_push(diff, index);
        if (elements_differ(diff, field, i < count_a ? field_element(a, field, i) : NULL,
                            i < count_b ? field_element(b, field, i) : NULL))
            return true;
        path_pop(diff, name_end);
    }
    path_pop(diff, start);
    return false;
}

static bool messages_differ(struct diff *diff, const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    for (unsigned i = 0; i < a->descriptor->n_fields; i++)
        if (fields_differ(diff, &a->descriptor->fields[i], a, b))
            return true;
    return false;
}

bool message_diff(const ProtobufCMessage *a, const ProtobufCMessage *b, char *path, size_t path_size, char *value_a,
                  size_t value_a_size, char *value_b, size_t value_b_size)
{
    struct diff diff = {
        .path = {path, path_size},
        .a = {value_a, value_a_size},
        .b = {value_b, value_b_size},
    };

    if (path_size > 0)
        path[0] = '\0';
    return messages_differ(&diff, a, b);
}
