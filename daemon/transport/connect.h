/*
 * The Connect protocol, unary, as pure functions over the head of a request: no socket, no HTTP library.
 * Whoever receives the head makes a list of header fields from it.
 */
#ifndef TRANSPORT_CONNECT_H
#define TRANSPORT_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "codec/message.h"

struct header_field {
    const char *name; /* as sent, in any case */
    size_t name_length;
    const char *value;
    size_t value_length;
};

/* The first field of this name, case ignored; NULL where there is none. */
const struct header_field *header_find(const struct header_field *fields, size_t count, const char *name);

/* What of a head says how much follows; the guard against request smuggling. */
struct framing {
    bool has_content_length;
    uint64_t content_length;
    bool chunked;
    bool has_host;
    bool expects_continue; /* the client waits for 100 Continue before it sends the body */
};

/*
 * LOSSD_MALFORMED_REQUEST, field the header's name, for what two servers may read differently: Content-Length twice,
 * not a number, or beside Transfer-Encoding; Transfer-Encoding other than one `chunked`; one of the two folded; Host
 * twice; a name that is not a token; NUL, CR or LF in a value. The connection has to be closed then: where its next
 * request starts is unknown.
 */
CHECK_RESULT
enum lossd_status connect_check_framing(const struct header_field *fields, size_t count, struct framing *framing,
                                        struct lossd_error *err);

/* What the head of a call says. */
struct connect_head {
    enum codec_kind codec;
    bool has_timeout;
    uint64_t timeout_ms;
};

enum { CONNECT_MAX_TIMEOUT_DIGITS = 10 };

/*
 * The headers that POST and GET share.
 *
 * LOSSD_MALFORMED_REQUEST, field the header's name, for a Connect-Protocol-Version that is not 1, a Connect-Timeout-Ms
 * that is not 1 to 10 digits, and for one of these or Content-Encoding twice.
 * LOSSD_NOT_SUPPORTED, field "Content-Encoding" (metadata "supported"), for another than identity.
 */
CHECK_RESULT
enum lossd_status connect_parse_common(const struct header_field *fields, size_t count, struct connect_head *head,
                                       struct lossd_error *err);

/*
 * LOSSD_NOT_SUPPORTED, field "Content-Type" (HTTP 415), where it is neither application/json nor application/proto;
 * LOSSD_MALFORMED_REQUEST where it is there twice.
 */
CHECK_RESULT
enum lossd_status connect_parse_content_type(const struct header_field *fields, size_t count, struct connect_head *head,
                                             struct lossd_error *err);

/*
 * The query of a GET: encoding, message, base64, compression, connect; others are ignored, order is free.
 *
 * query    without the question mark, percent-encoded. NULL is an empty one.
 * message  in the arena, with a NUL behind.
 *
 * LOSSD_MALFORMED_REQUEST with the parameter as field: encoding or message absent or given twice, connect other than
 * v1, bad percent-encoding or base64. LOSSD_NOT_SUPPORTED, field "encoding" (HTTP 415) for an unknown one, or
 * "compression" for another than identity. LOSSD_LIMIT_EXCEEDED where the arena is full.
 */
CHECK_RESULT
enum lossd_status connect_parse_query(const char *query, struct arena *arena, struct connect_head *head,
                                      uint8_t **message, size_t *size, struct lossd_error *err);

/* 00-<32 hex>-<16 hex>-<2 hex> in lower case with ids that are not all zero, or a later version that starts so. */
bool traceparent_is_valid(const char *value, size_t length);

#endif
