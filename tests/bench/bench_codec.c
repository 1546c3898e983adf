/*
 * JSON of a batch of 3 tasks with 1e5 logits each: MB of text a second and a thread, parsed and printed, for shortest
 * text and for the 17 digits that Python writes; beside json-c doing the same alone, and protobuf. Contenders take
 * turns round by round.
 *
 * Usage: bench_codec [--markdown]
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/report.h"
#include "codec/message.h"
#include "lossd/v1/loss.pb-c.h"

enum { TASKS = 3, CANDIDATES = 100000, ROUNDS = 15, TEXT_BYTES = TASKS * CANDIDATES * 32 };

struct measured {
    struct arena arena;
    const uint8_t *body; /* what is parsed, of size bytes; printing sets the size */
    size_t size;
    const ProtobufCMessage *message; /* what is printed */
    enum codec_kind kind;
};

typedef void (*work)(struct measured *m);

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

enum contender {
    PARSE_SHORT,
    PARSE_SHORT_JSON_C,
    PARSE_LONG,
    PARSE_LONG_JSON_C,
    PRINT,
    PRINT_JSON_C,
    PARSE_PROTO,
    PRINT_PROTO,
    NUM_CONTENDERS,
};

static const struct {
    const char *name;
    work run;
} contenders[] = {
    [PARSE_SHORT] = {"JSON, shortest text: parse", parse},
    [PARSE_SHORT_JSON_C] = {"JSON, shortest text: json-c alone", parse_by_json_c},
    [PARSE_LONG] = {"JSON, 17 digits: parse", parse},
    [PARSE_LONG_JSON_C] = {"JSON, 17 digits: json-c alone", parse_by_json_c},
    [PRINT] = {"JSON: print", print},
    [PRINT_JSON_C] = {"JSON: print by json-c alone", print_by_json_c},
    [PARSE_PROTO] = {"protobuf: parse", parse},
    [PRINT_PROTO] = {"protobuf: print", print},
};

/* MB a second. */
static double run_once(enum contender contender, struct measured *m)
{
    const int64_t start_ns = clock_now_ns();

    contenders[contender].run(m);
    return (double)m->size * 1e3 / (double)(clock_now_ns() - start_ns);
}

static void report_all(const struct report *report, const struct samples *rates)
{
    static const struct {
        enum contender ours;
        enum contender other;
        const char *name;
    } ratios[] = {
        {PARSE_SHORT, PARSE_SHORT_JSON_C, "JSON, shortest text: parse / json-c"},
        {PARSE_LONG, PARSE_LONG_JSON_C, "JSON, 17 digits: parse / json-c"},
        {PRINT, PRINT_JSON_C, "JSON: print / json-c"},
    };

    report_head(report);
    for (enum contender c = 0; c < NUM_CONTENDERS; c++)
        report_row(report, contenders[c].name, quartiles_of(&rates[c]), "MB/s", "");
    for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++)
        report_row(report, ratios[i].name, quartiles_of_ratio(&rates[ratios[i].ours], &rates[ratios[i].other]), "", "");
}

int main(int argc, char **argv)
{
    const struct report report = report_open(&argc, argv);
    Lossd__V1__ComputeLossRequest request;
    Lossd__V1__TaskBatch tasks[TASKS];
    Lossd__V1__TaskBatch *pointers[TASKS];
    float *logits = malloc(TASKS * CANDIDATES * sizeof *logits);
    char *text = malloc(TEXT_BYTES);
    struct measured m[NUM_CONTENDERS] = {{.kind = CODEC_JSON}};
    struct samples rates[NUM_CONTENDERS] = {{.count = 0}};
    struct encoded json;
    struct encoded proto;
    struct lossd_error err;

    if (logits == NULL || text == NULL)
        return EXIT_FAILURE;
    fill(&request, tasks, pointers, logits);
    if (message_encode(CODEC_JSON, &request.base, false, &json, &err) != LOSSD_OK ||
        message_encode(CODEC_PROTO, &request.base, false, &proto, &err) != LOSSD_OK)
        return EXIT_FAILURE;
    m[PARSE_SHORT] = m[PARSE_SHORT_JSON_C] = (struct measured){
        .kind = CODEC_JSON, .body = json.bytes, .size = json.size};
    m[PARSE_LONG] = m[PARSE_LONG_JSON_C] = (struct measured){
        .kind = CODEC_JSON, .body = (uint8_t *)text, .size = write_long_text(text, logits)};
    m[PARSE_PROTO] = (struct measured){.kind = CODEC_PROTO, .body = proto.bytes, .size = proto.size};
    m[PRINT] = m[PRINT_JSON_C] = (struct measured){.kind = CODEC_JSON, .message = &request.base};
    m[PRINT_PROTO] = (struct measured){.kind = CODEC_PROTO, .message = &request.base};
    for (size_t round = 0; round < ROUNDS; round++)
        for (enum contender c = 0; c < NUM_CONTENDERS; c++)
            samples_add(&rates[c], run_once(c, &m[c]));
    report_all(&report, rates);
    free(json.bytes);
    free(proto.bytes);
    free(text);
    free(logits);
    return EXIT_SUCCESS;
}
