/* Errors in the shape that Connect clients read, with details of the types that they know. */
#include <stdio.h>
#include <string.h>

#include "codec/convert.h"
#include "codec/protojson.h"
#include "codec/utf8.h"

enum { MAX_DETAILS = 3, ARENA_BYTES = 1 << 20 };

/* Text that was cut in the middle of a character, or came from outside, becomes UTF-8. */
static void mend_utf8(char *text)
{
    uint8_t *p = (uint8_t *)text;
    const uint8_t *const end = p + strlen(text);

    while (p < end) {
        const size_t length = utf8_sequence(p, end);

        if (length == 0)
            *p = '?';
        p += length == 0 ? 1 : length;
    }
}

static char *mended_copy(struct arena *arena, const char *text)
{
    char *copy = arena_strndup(arena, text, strlen(text));

    if (copy != NULL)
        mend_utf8(copy);
    return copy;
}

static bool add_entry(Lossd__V1__ErrorInfo *info, struct arena *arena, const char *key, const char *value)
{
    Lossd__V1__ErrorInfo__MetadataEntry *entry = arena_alloc(arena, sizeof *entry);

    if (entry == NULL)
        return false;
    lossd__v1__error_info__metadata_entry__init(entry);
    entry->key = mended_copy(arena, key);
    entry->value = mended_copy(arena, value);
    info->metadata[info->n_metadata++] = entry;
    return entry->key != NULL && entry->value != NULL;
}

static bool fill_info(Lossd__V1__ErrorInfo *info, const struct lossd_error *error, struct arena *arena)
{
    static char domain[] = "lossd";
    size_t cursor = 0;
    size_t entries = 0;
    const char *key;
    const char *value;

    lossd__v1__error_info__init(info);
    info->reason = mended_copy(arena, status_info(error->status)->reason);
    info->domain = domain;
    while (error_next_metadata(error, &cursor, &key, &value))
        entries++;
    info->metadata = arena_calloc(arena, entries, sizeof(Lossd__V1__ErrorInfo__MetadataEntry *));
    if (info->reason == NULL || info->metadata == NULL)
        return false;
    cursor = 0;
    while (error_next_metadata(error, &cursor, &key, &value))
        if (!add_entry(info, arena, key, value))
            return false;
    return true;
}

struct bad_request {
    Lossd__V1__BadRequest message;
    Lossd__V1__BadRequest__FieldViolation violation;
    Lossd__V1__BadRequest__FieldViolation *violations[1];
};

static bool fill_bad_request(struct bad_request *bad, const struct lossd_error *error, struct arena *arena)
{
    lossd__v1__bad_request__init(&bad->message);
    lossd__v1__bad_request__field_violation__init(&bad->violation);
    bad->violation.field = mended_copy(arena, error->field);
    bad->violation.description = mended_copy(arena, error->message);
    bad->violations[0] = &bad->violation;
    bad->message.field_violations = bad->violations;
    bad->message.n_field_violations = 1;
    return bad->violation.field != NULL && bad->violation.description != NULL;
}

struct retry_info {
    Lossd__V1__RetryInfo message;
    Lossd__V1__RetryInfo__RetryDelay delay;
};

/* One second, as the Retry-After header says. */
static void fill_retry_info(struct retry_info *retry)
{
    lossd__v1__retry_info__init(&retry->message);
    lossd__v1__retry_info__retry_delay__init(&retry->delay);
    retry->delay.has_seconds = 1;
    retry->delay.seconds = 1;
    retry->message.retry_delay = &retry->delay;
}

static enum lossd_status encode(const struct lossd_error *error, struct arena *arena, struct encoded *encoded)
{
    const struct status_info *row = status_info(error->status);
    const bool has_field = error->field[0] != '\0';
    const bool may_retry = row->retry == RETRY_SAME && row->code == CONNECT_UNAVAILABLE;
    struct error_detail details[MAX_DETAILS];
    struct lossd_error ignored;
    Lossd__V1__ErrorInfo info;
    struct bad_request bad;
    struct retry_info retry;
    char text[sizeof error->field + sizeof error->message + 2];
    size_t count = 0;

    if (!fill_info(&info, error, arena) || !fill_bad_request(&bad, error, arena))
        return LOSSD_INTERNAL;
    fill_retry_info(&retry);
    details[count++] = (struct error_detail){.type = "google.rpc.ErrorInfo", .message = &info.base, .map = "metadata"};
    if (has_field)
        details[count++] = (struct error_detail){.type = "google.rpc.BadRequest", .message = &bad.message.base};
    if (may_retry)
        details[count++] = (struct error_detail){
            .type = "google.rpc.RetryInfo", .message = &retry.message.base, .duration = "retryDelay"};
    (void)snprintf(text, sizeof text, "%s%s%s", error->field, has_field ? ": " : "", error->message);
    mend_utf8(text);
    return protojson_encode_error(row->code_name, text, details, count, encoded, &ignored);
}

enum lossd_status error_to_connect_json(const struct lossd_error *error, uint8_t **bytes, size_t *size)
{
    struct arena arena;
    struct encoded encoded;
    enum lossd_status status;

    arena_init(&arena, ARENA_BYTES, NULL);
    status = encode(error, &arena, &encoded);
    arena_finish(&arena);
    if (status != LOSSD_OK)
        return status;
    *bytes = encoded.bytes;
    *size = encoded.size;
    return LOSSD_OK;
}
