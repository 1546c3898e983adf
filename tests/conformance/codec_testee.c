/*
 * Transcodes for test_python_oracle.py. Standard input, again and again: one byte for the type of the message (its
 * place in the table below), one for the codec of the body and one for the codec of the answer (0 JSON, 1 protobuf),
 * the length of the body in 4 little-endian bytes, the body. Standard output: one byte (0, or 1 for an error), a
 * length, an answer or the text of the error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.pb-c.h"
#include "lossd/v1/config.pb-c.h"
#include "lossd/v1/error.pb-c.h"
#include "lossd/v1/group.pb-c.h"
#include "lossd/v1/loss.pb-c.h"
#include "transcode.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &lossd__test__kinds__descriptor,
    &lossd__v1__compute_loss_request__descriptor,
    &lossd__v1__compute_loss_response__descriptor,
    &lossd__v1__daemon_config__descriptor,
    &lossd__v1__join_group_request__descriptor,
    &lossd__v1__get_group_response__descriptor,
    &lossd__v1__error_info__descriptor,
};

static void answer(int failed, const void *bytes, size_t size)
{
    (void)putchar(failed);
    write_length(size);
    (void)fwrite(bytes, 1, size, stdout);
    (void)fflush(stdout);
}

int main(void)
{
    uint8_t head[3];
    uint32_t size;

    while (read_exactly(head, sizeof head) && read_length(&size)) {
        uint8_t *const body = malloc((size_t)size + 1);
        struct lossd_error err;
        struct encoded out;

        if (body == NULL || head[0] >= sizeof types / sizeof types[0] || !read_exactly(body, size))
            return EXIT_FAILURE;
        error_init(&err);
        if (transcode(types[head[0]], head[1] == 0 ? CODEC_JSON : CODEC_PROTO, head[2] == 0 ? CODEC_JSON : CODEC_PROTO,
                      false, body, size, &out, &err) == TRANSCODED) {
            answer(0, out.bytes, out.size);
            free(out.bytes);
        } else {
            answer(1, err.message, strlen(err.message));
        }
        free(body);
    }
    return EXIT_SUCCESS;
}
