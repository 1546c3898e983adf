/* What holds for any body that a codec is given. */
#ifndef TESTS_FUZZ_CODEC_PROMISES_H
#define TESTS_FUZZ_CODEC_PROMISES_H

#include "codec/message.h"

/*
 * Aborts unless: the body is read, refused as malformed, or ends at a limit; a message that was read can be written by
 * both codecs, and comes back from each as the same JSON text.
 */
void check_codec_promises(enum codec_kind kind, const ProtobufCMessageDescriptor *descriptor, const uint8_t *body,
                          size_t size);

#endif
