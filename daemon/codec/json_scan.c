/* Recursive descent along the descriptor. Errors pick up the path of the field on their way out. */
#include "codec/json_scan.h"

#include <string.h>

#include "codec/fields.h"
#include "codec/json_cursor.h"
#include "codec/json_numbers.h"

/*
 * What json-c takes from malloc on 64-bit machines, rounded up: an object with its first hash table, a member with its
 * key, a member of a table that has grown, an array, an element while the array grows, a leaf. A string is held twice
 * while it is read.
 */
enum {
    OBJECT_BYTES = 832,
    MEMBER_BYTES = 48,
    GROWN_MEMBER_BYTES = 200,
    SMALL_OBJECT = 10,
    ARRAY_BYTES = 416,
    ELEMENT_BYTES = 24,
    LEAF_BYTES = 64,
    STRING_FACTOR = 3,
    TOKENER_BYTES = 4096,
    HARD_DEPTH = 220,
    MAX_FIELDS = 512,
    COMMA_BLOCK = 64, /* bytes; fewer than 256 */
};

struct scanner {
    struct json_cursor c;
    const struct decode_limits *limits;
    struct arena *arena;
    struct json_scan out;
    size_t cut_capacity;
};

static enum lossd_status scan_object(struct scanner *s, const ProtobufCMessageDescriptor *descriptor);

static enum lossd_status scan_text(struct scanner *s)
{
    struct json_string string;
    const enum lossd_status status = json_string_at(&s->c, &string);

    if (status == LOSSD_OK)
        s->out.tree_bytes += LEAF_BYTES + STRING_FACTOR * string.length;
    return status;
}

/* The cut [begin, p) of the body. */
static enum lossd_status add_cut(struct scanner *s, const uint8_t *begin, void *values, size_t count)
{
    if (s->out.num_cuts == s->cut_capacity) {
        const size_t capacity = s->cut_capacity == 0 ? 16 : 2 * s->cut_capacity;
        struct json_cut *cuts = arena_calloc(s->arena, capacity, sizeof *cuts);

        if (cuts == NULL)
            return arena_error(s->arena, "message", s->c.err);
        if (s->out.num_cuts > 0)
            memcpy(cuts, s->out.cuts, s->out.num_cuts * sizeof *cuts);
        s->out.cuts = cuts;
        s->cut_capacity = capacity;
    }
    s->out.cuts[s->out.num_cuts++] = (struct json_cut){
        .begin = (size_t)(begin - s->c.body),
        .end = (size_t)(s->c.p - s->c.body),
        .values = values,
        .count = count,
    };
    s->out.tree_bytes += LEAF_BYTES;
    return LOSSD_OK;
}

static enum lossd_status scan_one_number(struct scanner *s, ProtobufCType type)
{
    const uint8_t *const begin = s->c.p;
    void *value = arena_calloc(s->arena, 1, 16);
    enum lossd_status status;

    if (value == NULL)
        return arena_error(s->arena, "message", s->c.err);
    status = json_read_number(&s->c, type, value);
    return status == LOSSD_OK ? add_cut(s, begin, value, 1) : status;
}

/* Commas of a block whose size compilers know: they count many at once. */
static size_t count_commas(const uint8_t block[COMMA_BLOCK])
{
    uint8_t commas = 0;

    for (size_t i = 0; i < COMMA_BLOCK; i++)
        commas = (uint8_t)(commas + (block[i] == ','));
    return commas;
}

/*
 * Elements of a number array, by the commas up to its end: neither commas nor brackets can be in its elements. 0 where
 * it has no end.
 */
static size_t count_elements(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *const bracket = memchr(p, ']', (size_t)(end - p));
    size_t commas = 0;

    if (bracket == NULL)
        return 0;
    for (; bracket - p >= COMMA_BLOCK; p += COMMA_BLOCK)
        commas += count_commas(p);
    for (; p < bracket; p++)
        commas += *p == ',';
    return commas + 1;
}

static enum lossd_status scan_number_array(struct scanner *s, ProtobufCType type)
{
    const uint8_t *const begin = s->c.p;
    const size_t size = type_size(type);
    const size_t capacity = count_elements(begin, s->c.end);
    enum lossd_status status = json_enter(&s->c);
    size_t count = 0;
    char *values;

    if (status != LOSSD_OK)
        return status;
    if (capacity == 0)
        return json_fail(&s->c, s->c.end, "the array has no end");
    if (json_leave_if_empty(&s->c, ']')) {
        values = arena_alloc(s->arena, 0);
        return values == NULL ? arena_error(s->arena, "message", s->c.err) : add_cut(s, begin, values, 0);
    }
    values = capacity <= SIZE_MAX / size ? arena_alloc(s->arena, capacity * size) : NULL;
    if (values == NULL)
        return arena_error(s->arena, "message", s->c.err);
    status = json_read_numbers(&s->c, type, values, capacity, &count);
    s->c.depth--;
    return status == LOSSD_OK ? add_cut(s, begin, values, count) : status;
}

/* One value of a field's type: the singular field, or an element of the repeated one. */
static enum lossd_status scan_value(struct scanner *s, const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        return json_next_is(&s->c, '{') ? scan_object(s, field->descriptor) : json_fail_expected(&s->c, "an object");
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return scan_text(s);
    case PROTOBUF_C_TYPE_BOOL:
        return json_next_is(&s->c, 't')   ? json_literal(&s->c, "true")
               : json_next_is(&s->c, 'f') ? json_literal(&s->c, "false")
                                          : json_fail_expected(&s->c, "true or false");
    case PROTOBUF_C_TYPE_ENUM:
        s->out.tree_bytes += LEAF_BYTES;
        return json_next_is(&s->c, '"') ? scan_text(s) : json_bare_number(&s->c);
    default:
        return scan_one_number(s, field->type);
    }
}

static enum lossd_status scan_array(struct scanner *s, const ProtobufCFieldDescriptor *field)
{
    enum lossd_status status = json_enter(&s->c);
    bool more = status == LOSSD_OK && !json_leave_if_empty(&s->c, ']');

    s->out.tree_bytes += ARRAY_BYTES;
    for (size_t i = 0; status == LOSSD_OK && more; i++) {
        s->out.tree_bytes += ELEMENT_BYTES;
        status = scan_value(s, field);
        if (status == LOSSD_OK)
            status = json_next_or_leave(&s->c, ']', &more);
        if (status != LOSSD_OK)
            error_prefix_field(s->c.err, "[%zu]", i);
    }
    return status;
}

static enum lossd_status scan_field(struct scanner *s, const ProtobufCFieldDescriptor *field)
{
    if (json_next_is(&s->c, 'n'))
        return json_literal(&s->c, "null");
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
        return scan_value(s, field);
    if (!json_next_is(&s->c, '['))
        return json_fail_expected(&s->c, "an array");
    return type_is_number(field->type) ? scan_number_array(s, field->type) : scan_array(s, field);
}

/* The field that the key at p names, NULL for none; p goes to the value. */
static enum lossd_status scan_key(struct scanner *s, const ProtobufCMessageDescriptor *descriptor,
                                  const ProtobufCFieldDescriptor **field)
{
    const uint8_t *const begin = s->c.p;
    struct json_string key;
    char name[JSON_NAME_SIZE];
    size_t length;
    bool known;
    enum lossd_status status;

    if (!json_next_is(&s->c, '"'))
        return json_fail_expected(&s->c, "a name in quotes");
    status = json_string_at(&s->c, &key);
    if (status != LOSSD_OK)
        return status;
    known = json_unescape(&key, name, sizeof name - 1, &length);
    *field = known ? field_by_key(descriptor, name, length) : NULL;
    if (*field == NULL && !s->limits->ignore_unknown) {
        status = json_fail(&s->c, begin, "%s has no such field", descriptor->short_name);
        error_prefix_field(s->c.err, "%.*s", known ? (int)length : 0, name);
        return status;
    }
    s->out.tree_bytes += MEMBER_BYTES + key.length;
    json_space(&s->c);
    if (!json_next_is(&s->c, ':'))
        return json_fail(&s->c, s->c.p, "expected a colon");
    s->c.p++;
    json_space(&s->c);
    return LOSSD_OK;
}

static enum lossd_status scan_member(struct scanner *s, const ProtobufCMessageDescriptor *descriptor,
                                     uint64_t seen[MAX_FIELDS / 64])
{
    const uint8_t *const begin = s->c.p;
    const ProtobufCFieldDescriptor *field = NULL;
    enum lossd_status status = scan_key(s, descriptor, &field);
    size_t index;

    if (status != LOSSD_OK)
        return status;
    if (field == NULL) {
        status = json_skip_value(&s->c);
        return status == LOSSD_OK ? add_cut(s, begin, NULL, 0) : status;
    }
    index = (size_t)(field - descriptor->fields);
    if ((seen[index / 64] >> index % 64 & 1) != 0)
        status = json_fail(&s->c, begin, "the field is given twice");
    else
        status = scan_field(s, field);
    seen[index / 64] |= UINT64_C(1) << index % 64;
    if (status != LOSSD_OK)
        error_prefix_field(s->c.err, "%s", field->name);
    return status;
}

static enum lossd_status scan_object(struct scanner *s, const ProtobufCMessageDescriptor *descriptor)
{
    uint64_t seen[MAX_FIELDS / 64] = {0};
    enum lossd_status status = json_enter(&s->c);
    bool more = status == LOSSD_OK && !json_leave_if_empty(&s->c, '}');

    if (descriptor->n_fields > MAX_FIELDS)
        return error_set(s->c.err, LOSSD_INTERNAL, "", "%s has more than %d fields", descriptor->name, MAX_FIELDS);
    s->out.tree_bytes += OBJECT_BYTES;
    for (size_t members = 0; status == LOSSD_OK && more; members++) {
        s->out.tree_bytes += members < SMALL_OBJECT ? 0 : GROWN_MEMBER_BYTES;
        status = scan_member(s, descriptor, seen);
        if (status == LOSSD_OK)
            status = json_next_or_leave(&s->c, '}', &more);
    }
    return status;
}

enum lossd_status json_scan(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t size,
                            const struct decode_limits *limits, struct arena *arena, struct json_scan *scan,
                            struct lossd_error *err)
{
    struct scanner s = {
        .c = {.body = body,
              .p = body,
              .end = body + size,
              .err = err,
              .max_depth = limits->json_depth < HARD_DEPTH ? limits->json_depth : HARD_DEPTH},
        .limits = limits,
        .arena = arena,
        .out = {.tree_bytes = TOKENER_BYTES},
    };
    enum lossd_status status;

    json_space(&s.c);
    if (!json_next_is(&s.c, '{'))
        return json_fail_expected(&s.c, "an object");
    status = scan_object(&s, descriptor);
    if (status != LOSSD_OK)
        return status;
    json_space(&s.c);
    if (s.c.p != s.c.end)
        return json_fail(&s.c, s.c.p, "something follows the message");
    *scan = s.out;
    return LOSSD_OK;
}
