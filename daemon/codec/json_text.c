#include "codec/json_text.h"

#include <string.h>

#include "codec/utf8.h"

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* Four hexadecimal digits; -1 where they are not. */
static int32_t parse_hex(const uint8_t *p, const uint8_t *end)
{
    int32_t value = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_value(p[i]);

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static bool is_high_surrogate(int32_t unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low_surrogate(int32_t unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* The code point of the escape whose backslash is at p, and its length: 2, 6 or 12. 0 where it is none. */
static size_t parse_escape(const uint8_t *p, const uint8_t *end, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    const char *name;
    int32_t unit;
    int32_t low;

    if (end - p < 2)
        return 0;
    name = p[1] == '\0' ? NULL : strchr(names, p[1]);
    if (name != NULL) {
        *code = (uint8_t)values[name - names];
        return 2;
    }
    unit = p[1] == 'u' ? parse_hex(p + 2, end) : -1;
    if (unit < 0 || is_low_surrogate(unit))
        return 0;
    *code = (uint32_t)unit;
    if (!is_high_surrogate(unit))
        return 6;
    low = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? parse_hex(p + 8, end) : -1;
    if (low < 0 || !is_low_surrogate(low))
        return 0;
    *code = 0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return 12;
}

/* Eight bytes of plain ASCII: no quote, backslash, control character or high bit. */
static bool eight_plain(const uint8_t *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t high = UINT64_C(0x8080808080808080);
    uint64_t chunk;
    uint64_t quote;
    uint64_t backslash;

    memcpy(&chunk, p, sizeof chunk);
    quote = chunk ^ (ones * '"');
    backslash = chunk ^ (ones * '\\');
    return (((chunk - ones * 0x20) | (quote - ones) | (backslash - ones) | chunk) & high) == 0;
}

const uint8_t *json_parse_string(const uint8_t *p, const uint8_t *end, struct json_string *string,
                                 const uint8_t **fault)
{
    const uint8_t *const text = ++p;
    bool has_escapes = false;

    for (;;) {
        size_t length;
        uint32_t code;

        while (end - p >= 8 && eight_plain(p))
            p += 8;
        *fault = p;
        if (p == end || *p < 0x20)
            return NULL;
        if (*p == '"')
            break;
        length = *p == '\\' ? parse_escape(p, end, &code) : utf8_sequence(p, end);
        if (length == 0)
            return NULL;
        has_escapes |= *p == '\\';
        p += length;
    }
    *string = (struct json_string){.text = text, .length = (size_t)(p - text), .has_escapes = has_escapes};
    return p + 1;
}

static size_t encode_utf8(uint32_t code, uint8_t out[4])
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

bool json_unescape(const struct json_string *string, char *text, size_t size, size_t *length)
{
    const uint8_t *p = string->text;
    const uint8_t *const end = p + string->length;

    *length = 0;
    while (p < end) {
        uint8_t bytes[4] = {*p};
        size_t count = 1;
        uint32_t code;

        if (*p == '\\') {
            p += parse_escape(p, end, &code);
            count = encode_utf8(code, bytes);
        } else {
            p++;
        }
        if (*length + count > size)
            return false;
        memcpy(text + *length, bytes, count);
        *length += count;
    }
    return true;
}

const char *json_kind_name(const uint8_t *p, const uint8_t *end)
{
    if (p == end)
        return "the end";
    switch (*p) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case 't':
    case 'f':
        return "a boolean";
    case 'n':
        return "null";
    default:
        return *p == '-' || (*p >= '0' && *p <= '9') ? "a number" : "what is no JSON value";
    }
}
