/* Base64 of RFC 4648. Pure; any thread. */
#ifndef CODEC_BASE64_H
#define CODEC_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters with padding, for any size below SIZE_MAX / 2. */
size_t base64_encoded_size(size_t size);

/* Write the standard alphabet and a NUL; text has room for base64_encoded_size + 1. Returns the characters written. */
size_t base64_encode(const uint8_t *bytes, size_t size, bool padded, char *text);

/*
 * Both alphabets, with or without padding. bytes has room for length / 4 * 3 + 3. False for other characters, for
 * padding in a wrong place, and for a length that no bytes have.
 */
bool base64_decode(const char *text, size_t length, uint8_t *bytes, size_t *size);

#endif
