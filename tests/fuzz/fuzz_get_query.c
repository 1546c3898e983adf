/* The query of a GET call: whatever it holds, there is a message in the arena or an error with a reason. */
#include <stdlib.h>
#include <string.h>

#include "target.h"
#include "transport/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct connect_head head = {0};
    struct lossd_error err;
    struct arena arena;
    uint8_t *message;
    size_t length;
    char *query = malloc(size + 1);

    if (query == NULL)
        return 0;
    memcpy(query, bytes, size);
    query[size] = '\0';
    error_init(&err);
    arena_init(&arena, 1 << 20, NULL);
    if (connect_parse_query(query, &arena, &head, &message, &length, &err) == LOSSD_OK) {
        if (length > size || message[length] != '\0')
            abort();
    } else if (err.status == LOSSD_OK || err.message[0] == '\0') {
        abort();
    }
    arena_finish(&arena);
    free(query);
    return 0;
}
