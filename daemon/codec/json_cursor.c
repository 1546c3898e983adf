#include "codec/json_cursor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/decimal.h"

enum lossd_status json_fail(struct json_cursor *c, const uint8_t *at, const char *format, ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)error_set(c->err, LOSSD_MALFORMED_REQUEST, "", "%s", text);
    error_add_metadata(c->err, "offset", "%zu", (size_t)(at - c->body));
    return LOSSD_MALFORMED_REQUEST;
}

enum lossd_status json_fail_expected(struct json_cursor *c, const char *expected)
{
    return json_fail(c, c->p, "expected %s, found %s", expected, json_kind_name(c->p, c->end));
}

void json_space(struct json_cursor *c)
{
    c->p = json_skip_space(c->p, c->end);
}

bool json_next_is(const struct json_cursor *c, char byte)
{
    return c->p < c->end && *c->p == (uint8_t)byte;
}

enum lossd_status json_enter(struct json_cursor *c)
{
    c->p++;
    if (++c->depth <= c->max_depth)
        return LOSSD_OK;
    (void)error_set(c->err, LOSSD_LIMIT_EXCEEDED, "", "more than %" PRIu32 " nested objects and arrays", c->max_depth);
    error_add_metadata(c->err, "limit", "json_depth");
    error_add_metadata(c->err, "offset", "%zu", (size_t)(c->p - 1 - c->body));
    return LOSSD_LIMIT_EXCEEDED;
}

enum lossd_status json_next_or_leave(struct json_cursor *c, char bracket, bool *more)
{
    json_space(c);
    *more = json_next_is(c, ',');
    if (!*more && !json_next_is(c, bracket))
        return json_fail(c, c->p, "expected a comma or %c, found %s", bracket, json_kind_name(c->p, c->end));
    c->p++;
    if (*more)
        json_space(c);
    else
        c->depth--;
    return LOSSD_OK;
}

bool json_leave_if_empty(struct json_cursor *c, char bracket)
{
    json_space(c);
    if (!json_next_is(c, bracket))
        return false;
    c->p++;
    c->depth--;
    return true;
}

enum lossd_status json_literal(struct json_cursor *c, const char *word)
{
    const size_t length = strlen(word);

    if ((size_t)(c->end - c->p) < length || memcmp(c->p, word, length) != 0)
        return json_fail(c, c->p, "expected %s", word);
    c->p += length;
    return LOSSD_OK;
}

enum lossd_status json_string_at(struct json_cursor *c, struct json_string *string)
{
    const uint8_t *fault;
    const uint8_t *behind;

    if (!json_next_is(c, '"'))
        return json_fail_expected(c, "a string");
    behind = json_parse_string(c->p, c->end, string, &fault);
    if (behind == NULL)
        return json_fail(c, fault, "%s",
                         fault == c->end  ? "the string has no end"
                         : *fault == '\\' ? "an escape that JSON does not have, or half of a surrogate pair"
                         : *fault < 0x20  ? "a control character in a string"
                                          : "a string that is not UTF-8");
    c->p = behind;
    return LOSSD_OK;
}

enum lossd_status json_bare_number(struct json_cursor *c)
{
    struct decimal decimal;
    const uint8_t *const behind = decimal_parse(c->p, c->end, &decimal);

    if (behind == NULL)
        return json_fail(c, c->p, "a number that JSON does not have");
    c->p = behind;
    return LOSSD_OK;
}

static enum lossd_status skip_container(struct json_cursor *c, char bracket)
{
    const bool is_object = bracket == '}';
    enum lossd_status status = json_enter(c);
    bool more = status == LOSSD_OK && !json_leave_if_empty(c, bracket);

    while (status == LOSSD_OK && more) {
        struct json_string key;

        if (is_object) {
            status = json_string_at(c, &key);
            json_space(c);
            if (status == LOSSD_OK && !json_next_is(c, ':'))
                status = json_fail(c, c->p, "expected a colon");
            if (status != LOSSD_OK)
                break;
            c->p++;
            json_space(c);
        }
        status = json_skip_value(c);
        if (status == LOSSD_OK)
            status = json_next_or_leave(c, bracket, &more);
    }
    return status;
}

enum lossd_status json_skip_value(struct json_cursor *c)
{
    struct json_string string;

    if (c->p == c->end)
        return json_fail_expected(c, "a value");
    switch (*c->p) {
    case '{':
        return skip_container(c, '}');
    case '[':
        return skip_container(c, ']');
    case '"':
        return json_string_at(c, &string);
    case 't':
        return json_literal(c, "true");
    case 'f':
        return json_literal(c, "false");
    case 'n':
        return json_literal(c, "null");
    default:
        return json_bare_number(c);
    }
}
