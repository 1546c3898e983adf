#include "codec/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_encoded_size(size_t size)
{
    return (size + 2) / 3 * 4;
}

size_t base64_encode(const uint8_t *bytes, size_t size, bool padded, char *text)
{
    size_t length = 0;

    for (size_t i = 0; i < size; i += 3) {
        const size_t left = size - i;
        const uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)bytes[i + 2] : 0);

        for (size_t c = 0; c < 4; c++) {
            if (c <= left)
                text[length++] = alphabet[group >> (18 - 6 * c) & 63];
            else if (padded)
                text[length++] = '=';
        }
    }
    text[length] = '\0';
    return length;
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, uint8_t *bytes, size_t *size)
{
    uint32_t group = 0;
    size_t digits = 0;
    size_t written = 0;

    if (length % 4 == 0 && length > 0 && text[length - 1] == '=')
        length -= text[length - 2] == '=' ? 2 : 1;
    if (length % 4 == 1)
        return false;
    for (; digits < length; digits++) {
        const int value = digit_value(text[digits]);

        if (value < 0)
            return false;
        group = group << 6 | (uint32_t)value;
        if (digits % 4 != 0)
            bytes[written++] = (uint8_t)(group >> (6 - 2 * (digits % 4)));
    }
    *size = written;
    return true;
}
