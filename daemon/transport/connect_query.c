/* The query of a GET call. */
#include "transport/connect.h"

#include <string.h>

/* The parameters that mean something; each points into the query, still percent-encoded. */
struct parameter {
    const char *value; /* NULL where absent */
    size_t length;
};

enum { ENCODING, MESSAGE, BASE64, COMPRESSION, CONNECT, NUM_PARAMETERS };

static const char *const parameter_names[NUM_PARAMETERS] = {
    [ENCODING] = "encoding",       [MESSAGE] = "message", [BASE64] = "base64",
    [COMPRESSION] = "compression", [CONNECT] = "connect",
};

static enum lossd_status find_parameters(const char *query, struct parameter parameters[NUM_PARAMETERS],
                                         struct lossd_error *err)
{
    while (*query != '\0') {
        const size_t length = strcspn(query, "&");
        const size_t name_length = strcspn(query, "=&");

        for (size_t p = 0; p < NUM_PARAMETERS; p++) {
            if (name_length != strlen(parameter_names[p]) || strncmp(query, parameter_names[p], name_length) != 0)
                continue;
            if (parameters[p].value != NULL)
                return error_set(err, LOSSD_MALFORMED_REQUEST, parameter_names[p], "is in the query twice");
            parameters[p].value = query + name_length + (name_length < length);
            parameters[p].length = length - name_length - (name_length < length);
        }
        query += length + (query[length] == '&');
    }
    return LOSSD_OK;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

/* In place: the result is never longer. A plus is a space, as forms write it. */
static bool percent_decode(uint8_t *text, size_t *length)
{
    size_t out = 0;

    for (size_t i = 0; i < *length; i++) {
        if (text[i] == '%') {
            const int high = i + 2 < *length ? hex_value((char)text[i + 1]) : -1;
            const int low = i + 2 < *length ? hex_value((char)text[i + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            text[out++] = (uint8_t)(high * 16 + low);
            i += 2;
        } else {
            text[out++] = text[i] == '+' ? ' ' : text[i];
        }
    }
    *length = out;
    return true;
}

static int base64url_value(uint8_t digit)
{
    if (digit >= 'A' && digit <= 'Z')
        return digit - 'A';
    if (digit >= 'a' && digit <= 'z')
        return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9')
        return digit - '0' + 52;
    if (digit == '-')
        return 62;
    return digit == '_' ? 63 : -1;
}

/* In place. Padding may be there or not; bits that no byte takes have to be zero. */
static bool base64url_decode(uint8_t *text, size_t *length)
{
    uint32_t bits = 0;
    unsigned num_bits = 0;
    size_t count = *length;
    size_t out = 0;

    if (count % 4 == 0)
        for (int i = 0; i < 2 && count > 0 && text[count - 1] == '='; i++)
            count--;
    if (count % 4 == 1)
        return false;
    for (size_t i = 0; i < count; i++) {
        const int value = base64url_value(text[i]);

        if (value < 0)
            return false;
        bits = (bits << 6 | (uint32_t)value) & 0xffff;
        num_bits += 6;
        if (num_bits >= 8) {
            num_bits -= 8;
            text[out++] = (uint8_t)(bits >> num_bits);
        }
    }
    *length = out;
    return (bits & ((1u << num_bits) - 1)) == 0;
}

/* A decoded copy in the arena. */
static enum lossd_status decode_parameter(const struct parameter *parameter, const char *name, struct arena *arena,
                                          uint8_t **value, size_t *size, struct lossd_error *err)
{
    uint8_t *copy = (uint8_t *)arena_strndup(arena, parameter->value, parameter->length);
    size_t length = parameter->length;

    if (copy == NULL)
        return arena_error(arena, "query", err);
    if (!percent_decode(copy, &length))
        return error_set(err, LOSSD_MALFORMED_REQUEST, name, "has a %% without two hexadecimal digits behind it");
    copy[length] = '\0';
    *value = copy;
    *size = length;
    return LOSSD_OK;
}

static bool parameter_is(const struct parameter *parameter, const char *expected)
{
    return parameter->length == strlen(expected) && memcmp(parameter->value, expected, parameter->length) == 0;
}

static enum lossd_status check_parameters(const struct parameter parameters[NUM_PARAMETERS], struct lossd_error *err)
{
    const struct parameter *compression = &parameters[COMPRESSION];

    if (parameters[ENCODING].value == NULL)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "encoding", "is not in the query");
    if (parameters[MESSAGE].value == NULL)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "message", "is not in the query");
    if (parameters[CONNECT].value != NULL && !parameter_is(&parameters[CONNECT], "v1"))
        return error_set(err, LOSSD_MALFORMED_REQUEST, "connect", "is not v1");
    if (compression->value != NULL && compression->length > 0 && !parameter_is(compression, "identity")) {
        (void)error_set(err, LOSSD_NOT_SUPPORTED, "compression", "is not identity, which alone is taken");
        error_add_metadata(err, "supported", "identity");
        return LOSSD_NOT_SUPPORTED;
    }
    return LOSSD_OK;
}

enum lossd_status connect_parse_query(const char *query, struct arena *arena, struct connect_head *head,
                                      uint8_t **message, size_t *size, struct lossd_error *err)
{
    struct parameter parameters[NUM_PARAMETERS] = {0};
    enum lossd_status status;
    uint8_t *text;
    size_t length;

    status = find_parameters(query == NULL ? "" : query, parameters, err);
    if (status == LOSSD_OK)
        status = check_parameters(parameters, err);
    if (status == LOSSD_OK)
        status = decode_parameter(&parameters[ENCODING], "encoding", arena, &text, &length, err);
    if (status != LOSSD_OK)
        return status;
    if (strlen((const char *)text) != length || !codec_from_name((const char *)text, &head->codec)) {
        (void)error_set(err, LOSSD_NOT_SUPPORTED, "encoding", "is neither json nor proto");
        error_add_metadata(err, "supported", "json, proto");
        return LOSSD_NOT_SUPPORTED;
    }
    status = decode_parameter(&parameters[MESSAGE], "message", arena, &text, &length, err);
    if (status != LOSSD_OK)
        return status;
    if (parameters[BASE64].value != NULL && parameter_is(&parameters[BASE64], "1")) {
        if (!base64url_decode(text, &length))
            return error_set(err, LOSSD_MALFORMED_REQUEST, "message", "is not base64 of the URL-safe alphabet");
        text[length] = '\0';
    }
    *message = text;
    *size = length;
    return LOSSD_OK;
}
