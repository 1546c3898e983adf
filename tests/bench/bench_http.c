/*
 * A step of one rank through the running daemon over a Unix socket, as protobuf and as JSON, beside the bare kernel in
 * this process and what it costs to copy what is sent. Bodies are made before: this is the daemon and the way to it,
 * not what a client does to make them.
 *
 * Usage: bench_http LOSSD [--markdown]. Contenders take turns round by round, each with a burst of calls, of which the
 * median counts; batches rotate.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/local_daemon.h"
#include "bench/report.h"
#include "bench/workload.h"
#include "client/http_client.h"
#include "codec/message.h"
#include "lossd/v1/loss.pb-c.h"

enum { NUM_TASKS = 3, MAX_BURST = 32 };

enum contender { KERNEL, COPIES, PROTO, JSON, NUM_CONTENDERS };

struct bench {
    struct kernel kernel;
    struct copies copies;
    struct http_client *client;
    struct arena arena; /* of the batches of one size */
    struct columns columns[NUM_BATCHES];
    struct encoded bodies[NUM_BATCHES][2]; /* by codec */
    size_t next;                           /* batch */
};

static void encode(const struct bench *bench, const struct columns *columns, struct encoded bodies[2])
{
    Lossd__V1__ComputeLossRequest message = LOSSD__V1__COMPUTE_LOSS_REQUEST__INIT;
    Lossd__V1__TaskBatch tasks[NUM_TASKS];
    Lossd__V1__TaskBatch *pointers[NUM_TASKS];
    struct lossd_error err;

    message.group = (char *)(uintptr_t) "bench";
    message.lengths = columns->lengths;
    message.n_lengths = columns->num_requests;
    message.tasks = pointers;
    message.n_tasks = NUM_TASKS;
    for (size_t t = 0; t < NUM_TASKS; t++) {
        pointers[t] = &tasks[t];
        lossd__v1__task_batch__init(&tasks[t]);
        tasks[t].name = (char *)(uintptr_t)bench->kernel.config.tasks[t].name;
        tasks[t].logits = columns->logits[t];
        tasks[t].labels = columns->labels[t];
        tasks[t].n_logits = tasks[t].n_labels = columns->num_candidates;
    }
    if (message_encode(CODEC_JSON, &message.base, false, &bodies[CODEC_JSON], &err) != LOSSD_OK ||
        message_encode(CODEC_PROTO, &message.base, false, &bodies[CODEC_PROTO], &err) != LOSSD_OK)
        bench_die("encode", err.message);
}

static void call(struct bench *bench, const char *path, enum codec_kind kind, const uint8_t *body, size_t size)
{
    const struct http_request request = {
        .path = path, .media_type = codec_media_type(kind), .body = body, .body_bytes = size, .timeout_ms = 60000};
    struct http_response response;
    struct http_error err;

    if (http_client_call(bench->client, &request, &response, &err) != HTTP_OK)
        bench_die(path, err.message);
    if (response.status != 200)
        bench_die(path, (const char *)response.body);
    http_response_finish(&response);
}

static void compute(struct bench *bench, enum codec_kind kind, size_t batch)
{
    const struct encoded *body = &bench->bodies[batch][kind];

    call(bench, "/lossd.v1.LossService/ComputeLoss", kind, body->bytes, body->size);
}

static void contend(struct bench *bench, enum contender contender)
{
    const size_t batch = bench->next++ % NUM_BATCHES;

    switch (contender) {
    case KERNEL:
        kernel_run(&bench->kernel, &bench->columns[batch]);
        break;
    case COPIES:
        copies_run(&bench->copies, NUM_TASKS, &bench->columns[batch]);
        break;
    case PROTO:
        compute(bench, CODEC_PROTO, batch);
        break;
    case JSON:
        compute(bench, CODEC_JSON, batch);
        break;
    case NUM_CONTENDERS:
        break;
    }
}

/* Microseconds. */
static double burst(struct bench *bench, enum contender contender, size_t calls)
{
    double us[MAX_BURST];

    for (size_t i = 0; i < calls; i++) {
        const int64_t start_ns = clock_now_ns();

        contend(bench, contender);
        us[i] = (double)(clock_now_ns() - start_ns) / 1e3;
    }
    return median_of(us, calls);
}

static void report_size(const struct report *report, uint32_t candidates, struct samples *us)
{
    static const char *const names[] = {"bare kernel", "payload copied in and out", "protobuf, Unix socket",
                                        "JSON, Unix socket"};
    struct samples *const sets[NUM_CONTENDERS] = {&us[KERNEL], &us[COPIES], &us[PROTO], &us[JSON]};
    struct samples least = {.count = 0};
    char what[128];

    (void)drop_disturbed(&us[KERNEL], sets, NUM_CONTENDERS);
    for (size_t i = 0; i < us[KERNEL].count; i++)
        samples_add(&least, us[KERNEL].of[i] + us[COPIES].of[i]);
    for (enum contender c = 0; c < NUM_CONTENDERS; c++) {
        (void)snprintf(what, sizeof what, "%s, %u x 3", names[c], candidates);
        report_row(report, what, quartiles_of(&us[c]), "us", "");
    }
    for (enum contender c = PROTO; c <= JSON; c++) {
        (void)snprintf(what, sizeof what, "%s / (kernel + copies), %u x 3", names[c], candidates);
        report_row(report, what, quartiles_of_ratio(&us[c], &least), "",
                   c == PROTO && candidates == 100000 ? "at most 2.5" : "");
    }
}

static void run_size(struct bench *bench, const struct report *report, uint32_t candidates, size_t rounds, size_t calls)
{
    struct samples us[NUM_CONTENDERS] = {{.count = 0}};

    arena_init(&bench->arena, SIZE_MAX, NULL);
    copies_init(&bench->copies, NUM_TASKS, candidates, &bench->arena);
    for (size_t b = 0; b < NUM_BATCHES; b++) {
        columns_make(&bench->columns[b], NUM_TASKS, candidates, b + 1, &bench->arena);
        encode(bench, &bench->columns[b], bench->bodies[b]);
    }
    for (size_t round = 0; round <= rounds; round++)
        for (enum contender c = 0; c < NUM_CONTENDERS; c++) {
            const double median = burst(bench, c, calls);

            if (round > 0)
                samples_add(&us[c], median);
        }
    report_size(report, candidates, us);
    for (size_t b = 0; b < NUM_BATCHES; b++) {
        free(bench->bodies[b][CODEC_JSON].bytes);
        free(bench->bodies[b][CODEC_PROTO].bytes);
    }
    arena_finish(&bench->arena);
}

int main(int argc, char **argv)
{
    static const char join[] = "{\"group\":\"bench\",\"rank\":0,\"world_size\":1,\"config\":" WORKLOAD_THREE_TASKS "}";
    const struct report report = report_open(&argc, argv);
    struct local_daemon daemon;
    struct bench bench = {.next = 0};
    struct http_error err;

    if (argc != 2)
        bench_die("usage", "bench_http LOSSD [--markdown]");
    kernel_init(&bench.kernel, WORKLOAD_THREE_TASKS);
    local_daemon_start(&daemon, argv[1], "", false);
    if (http_client_open(daemon.address, &bench.client, &err) != HTTP_OK)
        bench_die(daemon.address, err.message);
    call(&bench, "/lossd.v1.GroupService/JoinGroup", CODEC_JSON, (const uint8_t *)join, strlen(join));

    report_head(&report);
    run_size(&bench, &report, 1000, 51, 32);
    run_size(&bench, &report, 100000, 31, 3);

    http_client_close(bench.client);
    kernel_finish(&bench.kernel);
    local_daemon_stop(&daemon);
    return EXIT_SUCCESS;
}
