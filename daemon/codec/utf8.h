/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef CODEC_UTF8_H
#define CODEC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid sequence at text, 1 to 4; 0 where there is none before end. */
size_t utf8_sequence(const uint8_t *text, const uint8_t *end);

/* All of it is UTF-8. NUL is a character like others. */
bool utf8_is_valid(const uint8_t *text, size_t size);

#endif
