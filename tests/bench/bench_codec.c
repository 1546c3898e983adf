/*
 * JSON of a batch of 3 tasks with 1e5 logits each: MB of text a second and a thread, parsed and printed, for shortest
 * text and for the 17 digits that Python writes; beside json-c doing the same alone, and protobuf. Best of several
 * runs.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "codec/message.h"
#include "lossd/v1/loss.pb-c.h"

enum { TASKS = 3, CANDIDATES = 100000, RUNS = 15, TEXT_BYTES = TASKS * CANDIDATES * 32 };

struct measured {
    struct arena arena;
    const uint8_t *body;
    size_t size;
    const ProtobufCMessage *message;
    enum codec_kind kind;
};

typedef void (*work)(struct measured *m);

static void report(const char *what, struct measured *m, work run)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < RUNS; i++) {
        const int64_t start = clock_now_ns();

        run(m);
        if (clock_now_ns() - start < best)
            best = clock_now_ns() - start;
    }
    (void)printf("%-32s %9.0f MB/s %9.3f ms\n", what, (double)m->size / 1e6 / ((double)best / 1e9), (double)best / 1e6);
}

static void parse(struct measured *m)
{
    const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *message;
    struct lossd_error err;

    arena_init(&m->arena, SIZE_MAX, NULL);
    if (message_decode(m->kind, &lossd__v1__compute_loss_request__descriptor, m->body, m->size, &limits, &m->arena,
                       &message, &err) != LOSSD_OK)
        abort();
    arena_finish(&m->arena);
}

static void print(struct measured *m)
{
    struct encoded encoded;
    struct lossd_error err;

    if (message_encode(m->kind, m->message, false, &encoded, &err) != LOSSD_OK)
        abort();
    m->size = encoded.size;
    free(encoded.bytes);
}

static void parse_by_json_c(struct measured *m)
{
    struct json_object *object = json_tokener_parse((const char *)m->body);

    if (object == NULL)
        abort();
    json_object_put(object);
}

static void print_by_json_c(struct measured *m)
{
    const Lossd__V1__ComputeLossRequest *request = (const Lossd__V1__ComputeLossRequest *)m->message;
    struct json_object *object = json_object_new_object();
    struct json_object *tasks = json_object_new_array();

    for (size_t t = 0; t < request->n_tasks; t++) {
        struct json_object *logits = json_object_new_array();

        for (size_t i = 0; i < request->tasks[t]->n_logits; i++)
            json_object_array_add(logits, json_object_new_double((double)request->tasks[t]->logits[i]));
        json_object_array_add(tasks, logits);
    }
    json_object_object_add(object, "tasks", tasks);
    m->size = strlen(json_object_to_json_string(object));
    json_object_put(object);
}

static void fill(Lossd__V1__ComputeLossRequest *request, Lossd__V1__TaskBatch *tasks, Lossd__V1__TaskBatch **pointers,
                 float *logits)
{
    uint64_t state = 88172645463325252;

    lossd__v1__compute_loss_request__init(request);
    request->tasks = pointers;
    request->n_tasks = TASKS;
    for (size_t i = 0; i < TASKS * CANDIDATES; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        logits[i] = (float)((double)(int64_t)state * 0x1p-60);
    }
    for (size_t t = 0; t < TASKS; t++) {
        lossd__v1__task_batch__init(&tasks[t]);
        tasks[t].logits = logits + t * CANDIDATES;
        tasks[t].n_logits = CANDIDATES;
        pointers[t] = &tasks[t];
    }
}

static size_t write_long_text(char *text, const float *logits)
{
    size_t size = (size_t)sprintf(text, "{\"tasks\": [");

    for (size_t t = 0; t < TASKS; t++) {
        size += (size_t)sprintf(text + size, "%s{\"logits\": [", t == 0 ? "" : ", ");
        for (size_t i = 0; i < CANDIDATES; i++)
            size += (size_t)sprintf(text + size, "%s%.17g", i == 0 ? "" : ", ", (double)logits[t * CANDIDATES + i]);
        size += (size_t)sprintf(text + size, "]}");
    }
    return size + (size_t)sprintf(text + size, "]}");
}

static void measure(const char *name, enum codec_kind kind, const uint8_t *body, size_t size)
{
    struct measured m = {.body = body, .size = size, .kind = kind};
    char what[64];

    (void)snprintf(what, sizeof what, "parse %s", name);
    report(what, &m, parse);
    if (kind == CODEC_JSON) {
        (void)snprintf(what, sizeof what, "parse %s, json-c alone", name);
        report(what, &m, parse_by_json_c);
    }
}

int main(void)
{
    Lossd__V1__ComputeLossRequest request;
    Lossd__V1__TaskBatch tasks[TASKS];
    Lossd__V1__TaskBatch *pointers[TASKS];
    float *logits = malloc(TASKS * CANDIDATES * sizeof *logits);
    char *text = malloc(TEXT_BYTES);
    struct measured m = {.message = &request.base, .kind = CODEC_JSON};
    struct encoded encoded;
    struct lossd_error err;

    if (logits == NULL || text == NULL)
        return EXIT_FAILURE;
    fill(&request, tasks, pointers, logits);
    if (message_encode(CODEC_JSON, &request.base, false, &encoded, &err) != LOSSD_OK)
        return EXIT_FAILURE;
    measure("shortest", CODEC_JSON, encoded.bytes, encoded.size);
    free(encoded.bytes);
    measure("%.17g", CODEC_JSON, (const uint8_t *)text, write_long_text(text, logits));
    report("print", &m, print);
    report("print, json-c alone", &m, print_by_json_c);
    if (message_encode(CODEC_PROTO, &request.base, false, &encoded, &err) != LOSSD_OK)
        return EXIT_FAILURE;
    measure("protobuf", CODEC_PROTO, encoded.bytes, encoded.size);
    free(encoded.bytes);
    m.kind = CODEC_PROTO;
    report("print protobuf", &m, print);
    free(text);
    free(logits);
    return EXIT_SUCCESS;
}
