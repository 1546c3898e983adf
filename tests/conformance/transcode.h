/* A body of one codec into a body of another, as both testees do it. */
#ifndef TESTS_CONFORMANCE_TRANSCODE_H
#define TESTS_CONFORMANCE_TRANSCODE_H

#include "codec/message.h"

enum transcoded { TRANSCODED, PARSE_ERROR, SERIALIZE_ERROR };

/* On success *out is from malloc; else *err says why. */
enum transcoded transcode(const ProtobufCMessageDescriptor *descriptor, enum codec_kind from, enum codec_kind to,
                          bool ignore_unknown, const uint8_t *body, size_t size, struct encoded *out,
                          struct lossd_error *err);

/* Exactly size bytes from standard input. False at its end. */
bool read_exactly(void *bytes, size_t size);

/* A length in 4 little-endian bytes. */
bool read_length(uint32_t *length);
void write_length(size_t length);

#endif
