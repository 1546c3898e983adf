#include "codec/protojson.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "codec/base64.h"

/* Takes value. */
static bool add(struct json_object *object, const char *key, struct json_object *value)
{
    if (value != NULL && json_object_object_add(object, key, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

static struct json_object *detail_value(const ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    CLEANUP_FREE uint8_t *bytes = malloc(size + 1);
    CLEANUP_FREE char *text = malloc(base64_encoded_size(size) + 1);

    if (bytes == NULL || text == NULL)
        return NULL;
    (void)protobuf_c_message_pack(message, bytes);
    return json_object_new_string_len(text, (int)base64_encode(bytes, size, false, text));
}

/* [{"key": K, "value": V}, ...] becomes {K: V, ...}. */
static bool fold_map(struct json_object *debug, const char *field)
{
    struct json_object *entries = json_object_object_get(debug, field);
    struct json_object *map = entries != NULL ? json_object_new_object() : NULL;
    bool done = map != NULL;

    if (entries == NULL)
        return true;
    for (size_t i = 0; done && i < json_object_array_length(entries); i++) {
        struct json_object *entry = json_object_array_get_idx(entries, i);
        const char *key = json_object_get_string(json_object_object_get(entry, "key"));
        struct json_object *value = json_object_get(json_object_object_get(entry, "value"));

        done = add(map, key, value);
    }
    if (done)
        return add(debug, field, map);
    json_object_put(map);
    return false;
}

/* {"seconds": "1"} becomes "1s". */
static bool fold_duration(struct json_object *debug, const char *field)
{
    struct json_object *seconds = json_object_object_get(json_object_object_get(debug, field), "seconds");
    char text[32];

    (void)snprintf(text, sizeof text, "%ss", seconds != NULL ? json_object_get_string(seconds) : "0");
    return add(debug, field, json_object_new_string(text));
}

static struct json_object *detail_debug(const struct error_detail *detail)
{
    struct encoded encoded = {0};
    struct json_object *debug = NULL;
    struct lossd_error err;

    if (protojson_encode(detail->message, false, &encoded, &err) == LOSSD_OK)
        debug = json_tokener_parse((const char *)encoded.bytes);
    free(encoded.bytes);
    if (debug != NULL && (detail->map == NULL || fold_map(debug, detail->map)) &&
        (detail->duration == NULL || fold_duration(debug, detail->duration)))
        return debug;
    json_object_put(debug);
    return NULL;
}

static struct json_object *detail_object(const struct error_detail *detail)
{
    struct json_object *object = json_object_new_object();

    if (object != NULL && add(object, "type", json_object_new_string(detail->type)) &&
        add(object, "value", detail_value(detail->message)) && add(object, "debug", detail_debug(detail)))
        return object;
    json_object_put(object);
    return NULL;
}

static struct json_object *error_object(const char *code, const char *text, const struct error_detail *details,
                                        size_t num_details)
{
    struct json_object *object = json_object_new_object();
    struct json_object *array = json_object_new_array();
    bool done = object != NULL && array != NULL && add(object, "code", json_object_new_string(code)) &&
                add(object, "message", json_object_new_string(text));

    for (size_t i = 0; done && i < num_details; i++) {
        struct json_object *detail = detail_object(&details[i]);

        done = detail != NULL && json_object_array_add(array, detail) == 0;
        if (!done)
            json_object_put(detail);
    }
    if (done && json_object_object_add(object, "details", array) == 0)
        return object;
    json_object_put(array);
    json_object_put(object);
    return NULL;
}

enum lossd_status protojson_encode_error(const char *code, const char *text, const struct error_detail *details,
                                         size_t num_details, struct encoded *encoded, struct lossd_error *err)
{
    struct json_object *object = error_object(code, text, details, num_details);
    const char *written = object == NULL ? NULL
                                         : json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN |
                                                                                      JSON_C_TO_STRING_NOSLASHESCAPE);
    char *copy = written == NULL ? NULL : strdup(written);

    json_object_put(object);
    if (copy == NULL)
        return error_set(err, LOSSD_INTERNAL, "", "no memory for an error");
    *encoded = (struct encoded){.bytes = (uint8_t *)copy, .size = strlen(copy)};
    return LOSSD_OK;
}
