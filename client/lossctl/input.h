/* What users give as files, or on standard input. */
#ifndef LOSSCTL_INPUT_H
#define LOSSCTL_INPUT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/arena.h"

/* name "-" is standard input. *bytes, from malloc, has a NUL behind. False with a complaint on standard error. */
bool input_read(const char *name, uint8_t **bytes, size_t *size);

/*
 * A message in JSON. It lies in the arena.
 * False with a complaint on standard error: the field, what was found, what was expected.
 */
bool input_message(const char *name, const ProtobufCMessageDescriptor *descriptor, struct arena *arena,
                   ProtobufCMessage **message);

#endif
