#include "lossctl/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/message.h"
#include "lossctl/command.h"

static uint8_t *read_all(FILE *file, size_t *size)
{
    size_t capacity = 65536;
    uint8_t *bytes = malloc(capacity);

    *size = 0;
    while (bytes != NULL) {
        uint8_t *grown;

        *size += fread(bytes + *size, 1, capacity - *size - 1, file);
        if (feof(file) || ferror(file))
            break;
        capacity *= 2;
        grown = realloc(bytes, capacity);
        if (grown == NULL)
            free(bytes);
        bytes = grown;
    }
    if (bytes == NULL || ferror(file)) {
        free(bytes);
        return NULL;
    }
    bytes[*size] = '\0';
    return bytes;
}

bool input_read(const char *name, uint8_t **bytes, size_t *size)
{
    const bool is_stdin = strcmp(name, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(name, "rbe");

    *bytes = file == NULL ? NULL : read_all(file, size);
    if (*bytes == NULL)
        complain(EXIT_INPUT, "%s: %s", is_stdin ? "standard input" : name, strerror(errno));
    if (file != NULL && !is_stdin)
        (void)fclose(file);
    return *bytes != NULL;
}

bool input_message(const char *name, const ProtobufCMessageDescriptor *descriptor, struct arena *arena,
                   ProtobufCMessage **message)
{
    const struct decode_limits limits = {.json_depth = 32};
    struct lossd_error err;
    enum lossd_status status;
    uint8_t *bytes;
    size_t size;

    if (!input_read(name, &bytes, &size))
        return false;
    status = message_decode(CODEC_JSON, descriptor, bytes, size, &limits, arena, message, &err);
    free(bytes);
    if (status == LOSSD_OK)
        return true;
    complain(EXIT_INPUT, "%s is no %s: %s%s%s", name, descriptor->short_name, err.field,
             err.field[0] == '\0' ? "" : ": ", err.message);
    return false;
}
