/*
 * A step of one rank through the running daemon, over a Unix socket as protobuf and as JSON, beside the bare kernel in
 * this process: 3 tasks with binary cross entropy, one of them with a list-wise loss too.
 *
 * Usage: bench_step LOSSD. The contenders take turns round by round, over several batches; medians are printed, and
 * ratios to the bare kernel, which is what a bar can be set for.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "http_client.h"
#include "codec/convert.h"
#include "codec/message.h"
#include "loss/loss.h"
#include "loss/rescale.h"

enum { NUM_TASKS = 3, NUM_BATCHES = 4, MAX_ROUNDS = 101 };

static const char *const config_json =
    "{\"tasks\":[{\"name\":\"click\",\"losses\":[{\"binaryCrossEntropy\":{}},{\"listwiseRankLoss\":{}}]},"
    "{\"name\":\"like\",\"losses\":[{\"binaryCrossEntropy\":{}}]},"
    "{\"name\":\"share\",\"losses\":[{\"binaryCrossEntropy\":{}}]}]}";

enum contender { KERNEL, COPY, PROTO, JSON, NUM_CONTENDERS };
static const char *const contender_names[] = {"bare kernel", "memcpy in + out", "protobuf", "JSON"};

/* One batch as message, as bodies and as what the kernel takes. */
struct workload {
    Lossd__V1__ComputeLossRequest message;
    Lossd__V1__TaskBatch tasks[NUM_TASKS];
    Lossd__V1__TaskBatch *task_pointers[NUM_TASKS];
    struct encoded bodies[2]; /* by codec */
    struct batch batch;
    struct prepared_batch prepared;
    struct scales scales;
    struct result result;
};

struct bench {
    struct arena arena;
    struct group_config config;
    struct loss_plan plan;
    struct http_client *client;
    struct workload workloads[NUM_BATCHES];
    float *copy;
};

static _Noreturn void die(const char *what, const struct lossd_error *err)
{
    fprintf(stderr, "bench_step: %s: %s %s\n", what, err != NULL ? err->field : "", err != NULL ? err->message : "");
    exit(EXIT_FAILURE);
}

/* Uniform in [0, 1), the same on every machine. */
static double next_uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static double next_normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(1.0 - next_uniform(state)));

    return radius * cos(6.283185307179586 * next_uniform(state));
}

/* Lists of log-normal length, mean 32; 12 % positives. */
static void make_message(struct workload *w, uint32_t candidates, uint64_t seed, struct arena *arena)
{
    uint64_t state = seed;
    uint32_t left = candidates;

    lossd__v1__compute_loss_request__init(&w->message);
    w->message.group = (char *)"bench";
    w->message.lengths = arena_calloc(arena, candidates, sizeof(uint32_t));
    while (left > 0) {
        const double length = ceil(17.5 * exp(1.1 * next_normal(&state)));
        const uint32_t n = length < left ? (uint32_t)length : left;

        w->message.lengths[w->message.n_lengths++] = n;
        left -= n;
    }
    for (size_t t = 0; t < NUM_TASKS; t++) {
        static const char *const names[NUM_TASKS] = {"click", "like", "share"};
        Lossd__V1__TaskBatch *task = &w->tasks[t];

        lossd__v1__task_batch__init(task);
        task->name = (char *)names[t];
        task->n_logits = task->n_labels = candidates;
        task->logits = arena_calloc(arena, candidates, sizeof(float));
        task->labels = arena_calloc(arena, candidates, sizeof(float));
        for (uint32_t c = 0; c < candidates; c++) {
            task->logits[c] = (float)(next_normal(&state) * 1.5 - 1.0);
            task->labels[c] = next_uniform(&state) < 0.12 ? 1.0F : 0.0F;
        }
        w->task_pointers[t] = task;
    }
    w->message.tasks = w->task_pointers;
    w->message.n_tasks = NUM_TASKS;
}

static void prepare_workload(struct bench *bench, struct workload *w, uint32_t candidates, uint64_t seed)
{
    const struct batch_limits limits = {.max_requests = UINT32_MAX, .max_candidates = UINT32_MAX};
    struct totals totals = {.num_ranks = 1};
    struct lossd_error err;

    memset(w, 0, sizeof *w);
    make_message(w, candidates, seed, &bench->arena);
    if (message_encode(CODEC_JSON, &w->message.base, false, &w->bodies[CODEC_JSON], &err) != LOSSD_OK ||
        message_encode(CODEC_PROTO, &w->message.base, false, &w->bodies[CODEC_PROTO], &err) != LOSSD_OK ||
        batch_from_message(&w->message, &bench->arena, &w->batch, &err) != LOSSD_OK ||
        batch_check(&w->batch, &bench->config, bench->plan.rules, &limits, &bench->arena, &err) != LOSSD_OK ||
        loss_prepare(&bench->plan, &w->batch, &bench->arena, &w->prepared, &err) != LOSSD_OK ||
        loss_result_alloc(&bench->plan, &w->batch, &bench->arena, &w->result, &err) != LOSSD_OK)
        die("batch", &err);
    memcpy(totals.sums, w->prepared.contribution, bench->plan.num_denominators * sizeof *totals.sums);
    rescale(&bench->plan, &w->prepared, &totals, &w->scales);
}

static void call(struct bench *bench, const char *path, enum codec_kind kind, const uint8_t *body, size_t size)
{
    const struct http_request request = {
        .path = path, .media_type = codec_media_type(kind), .body = body, .body_bytes = size, .timeout_ms = 60000};
    struct http_response response;
    struct http_error err;

    if (http_client_call(bench->client, &request, &response, &err) != HTTP_OK)
        die(err.message, NULL);
    if (response.status != 200)
        die((const char *)response.body, NULL);
    http_response_finish(&response);
}

/* What the payload costs to copy: logits and labels in, gradients out. */
static void copy_payload(struct bench *bench, const struct workload *w)
{
    for (size_t t = 0; t < NUM_TASKS; t++) {
        memcpy(bench->copy, w->tasks[t].logits, w->tasks[t].n_logits * sizeof(float));
        memcpy(bench->copy, w->tasks[t].labels, w->tasks[t].n_labels * sizeof(float));
        memcpy(w->tasks[t].labels, bench->copy, w->tasks[t].n_labels * sizeof(float));
    }
}

static void contend(struct bench *bench, enum contender contender, struct workload *w)
{
    static const char compute_path[] = "/lossd.v1.LossService/ComputeLoss";

    switch (contender) {
    case KERNEL:
        loss_run(&bench->plan, &w->prepared, &w->scales, &w->result);
        break;
    case COPY:
        copy_payload(bench, w);
        break;
    case PROTO:
        call(bench, compute_path, CODEC_PROTO, w->bodies[CODEC_PROTO].bytes, w->bodies[CODEC_PROTO].size);
        break;
    case JSON:
        call(bench, compute_path, CODEC_JSON, w->bodies[CODEC_JSON].bytes, w->bodies[CODEC_JSON].size);
        break;
    case NUM_CONTENDERS:
        break;
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run_size(struct bench *bench, uint32_t candidates, int rounds)
{
    double us[NUM_CONTENDERS][MAX_ROUNDS];

    bench->copy = arena_calloc(&bench->arena, candidates, sizeof(float));
    for (size_t b = 0; b < NUM_BATCHES; b++)
        prepare_workload(bench, &bench->workloads[b], candidates, b + 1);
    for (int round = -NUM_BATCHES; round < rounds; round++)
        for (enum contender c = 0; c < NUM_CONTENDERS; c++) {
            const int64_t start = clock_now_ns();

            contend(bench, c, &bench->workloads[(round + NUM_BATCHES) % NUM_BATCHES]);
            if (round >= 0)
                us[c][round] = (double)(clock_now_ns() - start) / 1000.0;
        }
    for (enum contender c = 0; c < NUM_CONTENDERS; c++)
        qsort(us[c], (size_t)rounds, sizeof us[c][0], compare);
    for (enum contender c = 0; c < NUM_CONTENDERS; c++)
        printf("%8u  %-16s %10.1f %10.1f %10.1f   %6.2f\n", candidates, contender_names[c], us[c][rounds / 4],
               us[c][rounds / 2], us[c][rounds * 3 / 4], us[c][rounds / 2] / us[KERNEL][rounds / 2]);
    for (size_t b = 0; b < NUM_BATCHES; b++) {
        free(bench->workloads[b].bodies[CODEC_JSON].bytes);
        free(bench->workloads[b].bodies[CODEC_PROTO].bytes);
    }
}

static void read_config(struct bench *bench)
{
    const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *message;
    struct lossd_error err;

    if (message_decode(CODEC_JSON, &lossd__v1__group_config__descriptor, (const uint8_t *)config_json,
                       strlen(config_json), &limits, &bench->arena, &message, &err) != LOSSD_OK ||
        config_from_message((Lossd__V1__GroupConfig *)message, MAX_TASKS, MAX_LOSSES, &bench->arena, &bench->config,
                            &err) != LOSSD_OK ||
        loss_plan_init(&bench->plan, &bench->config, &bench->arena, &err) != LOSSD_OK)
        die("config", &err);
}

static pid_t start_daemon(const char *program, const char *address)
{
    const pid_t pid = fork();

    if (pid == 0) {
        execl(program, program, "--listen", address, "--log-level", "error", (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* The socket is there a moment after the start. */
static void wait_until_ready(struct bench *bench)
{
    for (int tries = 0; tries < 500; tries++) {
        struct http_request request = {.path = "/readyz", .timeout_ms = 1000};
        struct http_response response;
        struct http_error err;

        if (http_client_call(bench->client, &request, &response, &err) == HTTP_OK) {
            http_response_finish(&response);
            return;
        }
        usleep(10000);
    }
    die("the daemon does not answer", NULL);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char directory[] = "/tmp/lossd-bench-XXXXXX";
    char address[64];
    char join[1024];
    struct http_error err;
    pid_t daemon_pid;

    if (argc != 2 || mkdtemp(directory) == NULL)
        die("usage: bench_step LOSSD", NULL);
    (void)snprintf(address, sizeof address, "unix:%s/s", directory);
    daemon_pid = start_daemon(argv[1], address);
    arena_init(&bench.arena, SIZE_MAX, NULL);
    if (http_client_open(address, &bench.client, &err) != HTTP_OK)
        die(err.message, NULL);
    wait_until_ready(&bench);
    read_config(&bench);
    (void)snprintf(join, sizeof join, "{\"group\":\"bench\",\"worldSize\":1,\"config\":%s}", config_json);
    call(&bench, "/lossd.v1.GroupService/JoinGroup", CODEC_JSON, (const uint8_t *)join, strlen(join));

    printf("candidates  contender             q1 us  median us      q3 us  x kernel\n");
    run_size(&bench, 1000, 101);
    run_size(&bench, 100000, 31);

    http_client_close(bench.client);
    arena_finish(&bench.arena);
    (void)kill(daemon_pid, SIGTERM);
    (void)waitpid(daemon_pid, NULL, 0);
    (void)unlink(address + strlen("unix:"));
    (void)rmdir(directory);
    return EXIT_SUCCESS;
}
