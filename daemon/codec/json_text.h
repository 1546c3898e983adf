/* White space and strings of JSON. For json_cursor and json_numbers, which know what may be around them. */
#ifndef CODEC_JSON_TEXT_H
#define CODEC_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline const uint8_t *json_skip_space(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

struct json_string {
    const uint8_t *text; /* between the quotes */
    size_t length;
    bool has_escapes;
};

/*
 * The string whose opening quote is at p. Returns what is behind its closing quote, or NULL with *fault at the byte
 * where it stops being one: end of text, control character, invalid UTF-8, unknown escape, lone surrogate.
 */
const uint8_t *json_parse_string(const uint8_t *p, const uint8_t *end, struct json_string *string,
                                 const uint8_t **fault);

/* What a valid string stands for. False where it is longer than size. */
bool json_unescape(const struct json_string *string, char *text, size_t size, size_t *length);

/* "an object", "a string", "a number", "a boolean", "the end", … by the first byte, for messages. */
const char *json_kind_name(const uint8_t *p, const uint8_t *end);

#endif
