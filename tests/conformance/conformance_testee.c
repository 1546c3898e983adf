/* What Google's conformance runner starts: a ConformanceRequest in, a ConformanceResponse out, lengths before each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.pb-c.h"
#include "google/protobuf/test_messages_proto2.pb-c.h"
#include "google/protobuf/test_messages_proto3.pb-c.h"
#include "transcode.h"

typedef Conformance__ConformanceRequest request_t;
typedef Conformance__ConformanceResponse response_t;

static const ProtobufCMessageDescriptor *const types[] = {
    &protobuf_test_messages__proto2__test_all_types_proto2__descriptor,
    &protobuf_test_messages__proto3__test_all_types_proto3__descriptor,
};

static const ProtobufCMessageDescriptor *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i]->name, name) == 0)
            return types[i];
    return NULL;
}

static void set_text(response_t *response, Conformance__ConformanceResponse__ResultCase result, char *text)
{
    response->result_case = result;
    response->skipped = text; /* all texts of the oneof lie in the same place */
}

static void run(const request_t *request, const ProtobufCMessageDescriptor *type, response_t *response,
                struct encoded *out, struct lossd_error *err)
{
    const bool from_json = request->payload_case == CONFORMANCE__CONFORMANCE_REQUEST__PAYLOAD_JSON_PAYLOAD;
    const bool to_json = request->requested_output_format == CONFORMANCE__WIRE_FORMAT__JSON;
    const bool lenient = request->test_category == CONFORMANCE__TEST_CATEGORY__JSON_IGNORE_UNKNOWN_PARSING_TEST;
    const ProtobufCBinaryData *body = from_json ? &request->json_payload : &request->protobuf_payload;

    switch (transcode(type, from_json ? CODEC_JSON : CODEC_PROTO, to_json ? CODEC_JSON : CODEC_PROTO, lenient,
                      body->data, body->len, out, err)) {
    case TRANSCODED:
        response->result_case = to_json ? CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_JSON_PAYLOAD
                                        : CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_PROTOBUF_PAYLOAD;
        response->protobuf_payload = (ProtobufCBinaryData){.data = out->bytes, .len = out->size};
        break;
    case PARSE_ERROR:
        set_text(response, CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_PARSE_ERROR, err->message);
        break;
    case SERIALIZE_ERROR:
        set_text(response, CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_SERIALIZE_ERROR, err->message);
        break;
    }
}

static bool is_offered(const request_t *request)
{
    return (request->payload_case == CONFORMANCE__CONFORMANCE_REQUEST__PAYLOAD_PROTOBUF_PAYLOAD ||
            request->payload_case == CONFORMANCE__CONFORMANCE_REQUEST__PAYLOAD_JSON_PAYLOAD) &&
           (request->requested_output_format == CONFORMANCE__WIRE_FORMAT__PROTOBUF ||
            request->requested_output_format == CONFORMANCE__WIRE_FORMAT__JSON);
}

static bool answer(const uint8_t *bytes, size_t size)
{
    static char other_format[] = "only binary and JSON";
    static char other_type[] = "only proto2 and proto3";
    request_t *request = conformance__conformance_request__unpack(NULL, size, bytes);
    response_t response = CONFORMANCE__CONFORMANCE_RESPONSE__INIT;
    const ProtobufCMessageDescriptor *type;
    struct encoded out = {0};
    struct lossd_error err;
    uint8_t *packed;

    if (request == NULL)
        return false;
    error_init(&err);
    type = find_type(request->message_type);
    if (!is_offered(request))
        set_text(&response, CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_SKIPPED, other_format);
    else if (type == NULL && strcmp(request->message_type, "conformance.FailureSet") != 0)
        set_text(&response, CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_SKIPPED, other_type);
    else if (type == NULL)
        response.result_case = CONFORMANCE__CONFORMANCE_RESPONSE__RESULT_PROTOBUF_PAYLOAD;
    else
        run(request, type, &response, &out, &err);
    packed = malloc(conformance__conformance_response__get_packed_size(&response) + 1);
    if (packed == NULL)
        return false;
    size = conformance__conformance_response__pack(&response, packed);
    write_length(size);
    (void)fwrite(packed, 1, size, stdout);
    (void)fflush(stdout);
    free(packed);
    free(out.bytes);
    conformance__conformance_request__free_unpacked(request, NULL);
    return true;
}

int main(void)
{
    uint32_t size;

    while (read_length(&size)) {
        uint8_t *const bytes = malloc((size_t)size + 1);
        const bool done = bytes != NULL && read_exactly(bytes, size) && answer(bytes, size);

        free(bytes);
        if (!done)
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
