/* Files that the build puts into the program. */
#ifndef LOSSCTL_EMBEDDED_H
#define LOSSCTL_EMBEDDED_H

#include <stddef.h>
#include <stdint.h>

/* help.txt */
const char *embedded_help(void);

/* The google.protobuf.FileDescriptorSet of the whole schema; *bytes is set to its size. */
const uint8_t *embedded_schema(size_t *bytes);

#endif
