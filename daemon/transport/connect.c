#include "transport/connect.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

const struct header_field *header_find(const struct header_field *fields, size_t count, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < count; i++)
        if (fields[i].name_length == length && strncasecmp(fields[i].name, name, length) == 0)
            return &fields[i];
    return NULL;
}

static bool value_is(const char *value, size_t length, const char *expected)
{
    return length == strlen(expected) && strncasecmp(value, expected, length) == 0;
}

static bool field_is(const struct header_field *field, const char *name)
{
    return value_is(field->name, field->name_length, name);
}

/* At most 19 digits, so that it fits. */
static bool parse_digits(const char *text, size_t length, size_t max_digits, uint64_t *number)
{
    uint64_t value = 0;

    if (length == 0 || length > max_digits)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *number = value;
    return true;
}

static bool name_is_token(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && (name[i] == '\0' || strchr("!#$%&'*+-.^_`|~", name[i]) == NULL))
            return false;
    return length > 0;
}

static bool value_is_one_line(const char *value, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (value[i] == '\0' || value[i] == '\r' || value[i] == '\n')
            return false;
    return true;
}

/*
 * libmicrohttpd 0.9.75 appends a folded line to the name of its header: "Content-Length: 2", "\r\n 5" is there a header
 * Content-Length5, and a body that nobody reads, which would be taken for the next request.
 */
static bool is_folded(const struct header_field *field, const char *name)
{
    const size_t length = strlen(name);

    return field->name_length > length && strncasecmp(field->name, name, length) == 0;
}

static enum lossd_status check_field(const struct header_field *field, struct framing *framing, struct lossd_error *err)
{
    if (!name_is_token(field->name, field->name_length))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "a header has a name that is not a token");
    if (!value_is_one_line(field->value, field->value_length))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "a header has a NUL, CR or LF in its value");
    if (is_folded(field, "Content-Length") || is_folded(field, "Transfer-Encoding"))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "", "a header is folded over two lines");
    if (field_is(field, "Content-Length")) {
        if (framing->has_content_length)
            return error_set(err, LOSSD_MALFORMED_REQUEST, "Content-Length", "is there twice");
        framing->has_content_length = true;
        if (!parse_digits(field->value, field->value_length, 19, &framing->content_length))
            return error_set(err, LOSSD_MALFORMED_REQUEST, "Content-Length", "is not a number of bytes");
    } else if (field_is(field, "Transfer-Encoding")) {
        if (framing->chunked || !value_is(field->value, field->value_length, "chunked"))
            return error_set(err, LOSSD_MALFORMED_REQUEST, "Transfer-Encoding", "is not one `chunked`");
        framing->chunked = true;
    } else if (field_is(field, "Host")) {
        if (framing->has_host)
            return error_set(err, LOSSD_MALFORMED_REQUEST, "Host", "is there twice");
        framing->has_host = true;
    } else if (field_is(field, "Expect")) {
        framing->expects_continue = value_is(field->value, field->value_length, "100-continue");
    }
    return LOSSD_OK;
}

enum lossd_status connect_check_framing(const struct header_field *fields, size_t count, struct framing *framing,
                                        struct lossd_error *err)
{
    struct framing found = {0};

    for (size_t i = 0; i < count; i++) {
        const enum lossd_status status = check_field(&fields[i], &found, err);

        if (status != LOSSD_OK)
            return status;
    }
    if (found.has_content_length && found.chunked)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "Content-Length", "is there beside Transfer-Encoding");
    *framing = found;
    return LOSSD_OK;
}

/* A header whose first and second value would mean different calls: *field is it, or NULL. */
static enum lossd_status find_single(const struct header_field *fields, size_t count, const char *name,
                                     const struct header_field **field, struct lossd_error *err)
{
    const struct header_field *first = header_find(fields, count, name);
    const struct header_field *behind = first == NULL ? fields + count : first + 1;

    if (header_find(behind, (size_t)(fields + count - behind), name) != NULL)
        return error_set(err, LOSSD_MALFORMED_REQUEST, name, "is there twice");
    *field = first;
    return LOSSD_OK;
}

enum lossd_status connect_parse_common(const struct header_field *fields, size_t count, struct connect_head *head,
                                       struct lossd_error *err)
{
    const struct header_field *version;
    const struct header_field *timeout;
    const struct header_field *encoding;

    if (find_single(fields, count, "Connect-Protocol-Version", &version, err) != LOSSD_OK ||
        find_single(fields, count, "Connect-Timeout-Ms", &timeout, err) != LOSSD_OK ||
        find_single(fields, count, "Content-Encoding", &encoding, err) != LOSSD_OK)
        return err->status;
    if (version != NULL && !value_is(version->value, version->value_length, "1"))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "Connect-Protocol-Version", "is not 1");
    if (timeout != NULL &&
        !parse_digits(timeout->value, timeout->value_length, CONNECT_MAX_TIMEOUT_DIGITS, &head->timeout_ms))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "Connect-Timeout-Ms", "is not a number of 1 to %d digits",
                         CONNECT_MAX_TIMEOUT_DIGITS);
    head->has_timeout = timeout != NULL;
    if (encoding != NULL && !value_is(encoding->value, encoding->value_length, "identity")) {
        (void)error_set(err, LOSSD_NOT_SUPPORTED, "Content-Encoding", "is not identity, which alone is taken");
        error_add_metadata(err, "supported", "identity");
        return LOSSD_NOT_SUPPORTED;
    }
    return LOSSD_OK;
}

enum lossd_status connect_parse_content_type(const struct header_field *fields, size_t count, struct connect_head *head,
                                             struct lossd_error *err)
{
    const struct header_field *type;
    size_t length;

    if (find_single(fields, count, "Content-Type", &type, err) != LOSSD_OK)
        return err->status;
    if (type != NULL) {
        for (length = 0; length < type->value_length && type->value[length] != ';'; length++)
            ;
        while (length > 0 && (type->value[length - 1] == ' ' || type->value[length - 1] == '\t'))
            length--;
        if (codec_from_media_type(type->value, length, &head->codec))
            return LOSSD_OK;
    }
    (void)error_set(err, LOSSD_NOT_SUPPORTED, "Content-Type", "%s, but application/json or application/proto is taken",
                    type == NULL ? "is absent" : "is another");
    error_add_metadata(err, "supported", "application/json, application/proto");
    return LOSSD_NOT_SUPPORTED;
}

static bool all_zero(const char *text, size_t length)
{
    return strspn(text, "0") >= length;
}

bool traceparent_is_valid(const char *value, size_t length)
{
    enum { LENGTH = 55, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53 };

    if (length < LENGTH || (length > LENGTH && (memcmp(value, "00", 2) == 0 || value[LENGTH] != '-')))
        return false;
    for (size_t i = 0; i < LENGTH; i++) {
        if (i == TRACE_AT - 1 || i == SPAN_AT - 1 || i == FLAGS_AT - 1) {
            if (value[i] != '-')
                return false;
        } else if (value[i] == '\0' || strchr("0123456789abcdef", value[i]) == NULL) {
            return false;
        }
    }
    return memcmp(value, "ff", 2) != 0 && !all_zero(value + TRACE_AT, 32) && !all_zero(value + SPAN_AT, 16);
}
