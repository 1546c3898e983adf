/*
 * All ranks have to stop at the same step, or one waits for ever. Rank 0 says at which, before it submits the step
 * before that one: nobody can be further by then, as nobody's step ends without it.
 */
#include "lossctl/bench_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "lossctl/bench_batch.h"

/* Different batches of a rank: as many as a client can have, or as fit. */
enum { NUM_BATCHES = 15, MIN_BATCHES = 2, BATCHES_BYTES = 512 << 20 };

/* No daemon there: say so at once, as the other commands do. */
enum { RECONNECT_MS = 1 };

struct run {
    const struct bench_options *bench;
    uint64_t bytes_per_step;
    atomic_uint_least64_t end_step; /* the first that is not made any more */
    atomic_uint_least64_t steps;    /* measured so far by rank 0; for the display */
    atomic_bool stop;               /* a signal came */
    atomic_int running;             /* threads */
    int64_t begin_ns;               /* of the first step that is measured; rank 0's */
    int64_t end_ns;                 /* of the last one */
};

struct bench_rank {
    struct run *run;
    uint32_t rank;
    struct lossd_client *client; /* NULL where it could not be opened */
    bool joined;
    struct lossd_shape shape;
    struct histogram latency;
    bool failed;
    struct lossd_failure failure;
    pthread_t thread;
};

void bench_block_signals(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void name_group(char group[64])
{
    uint32_t random = (uint32_t)getpid();

    (void)!getrandom(&random, sizeof random, 0);
    (void)snprintf(group, 64, "bench-%08" PRIx32, random);
}

static uint32_t slots_of(uint64_t bytes)
{
    const uint64_t slots = BATCHES_BYTES / bytes;

    return slots > NUM_BATCHES ? NUM_BATCHES : slots < MIN_BATCHES ? MIN_BATCHES : (uint32_t)slots;
}

static bool open_rank(const struct options *options, enum lossd_transport transport,
                      const struct lossd_membership *membership, struct bench_rank *rank, uint32_t num_slots)
{
    const struct lossd_options settings = {
        .struct_bytes = sizeof settings,
        .address = options->address,
        .transport = transport,
        .num_slots = num_slots,
        .timeout_ms = options->timeout_ms,
        .reconnect_ms = RECONNECT_MS,
        .max_requests = rank->shape.requests,
        .max_candidates = rank->shape.candidates,
    };

    if (lossd_client_open(&settings, &rank->client, &rank->failure) != LOSSD_CODE_OK)
        return false;
    rank->joined = lossd_join(rank->client, membership, &rank->failure) == LOSSD_CODE_OK;
    return rank->joined;
}

static bool fill_batches(struct bench_rank *rank, uint32_t num_batches)
{
    for (uint32_t i = 0; i < num_batches; i++) {
        struct lossd_batch *batch;

        if (lossd_batch_begin(rank->client, &rank->shape, &batch, &rank->failure) != LOSSD_CODE_OK)
            return false;
        bench_fill(batch, rank->shape.logits_type, rank->rank * NUM_BATCHES + i + 1);
    }
    return true;
}

/* Rank 0 looks at clock and signals before each step. */
static void decide(struct bench_rank *rank, uint64_t step, int64_t now_ns)
{
    struct run *run = rank->run;
    const struct bench_options *bench = run->bench;
    const bool is_measured = step >= bench->warmup;
    bool over;

    if (step == bench->warmup)
        run->begin_ns = now_ns;
    if (bench->steps != 0)
        over = step + 1 == bench->warmup + bench->steps;
    else
        over = is_measured && (double)(now_ns - run->begin_ns) >= bench->seconds * 1e9;
    if (over || atomic_load(&run->stop))
        atomic_store(&run->end_step, step + 1);
}

static bool make_step(struct bench_rank *rank, uint64_t step)
{
    struct run *run = rank->run;
    const int64_t begin_ns = clock_now_ns();
    const struct lossd_result *result;
    struct lossd_batch *batch;
    int64_t end_ns;

    if (rank->rank == 0)
        decide(rank, step, begin_ns);
    if (lossd_batch_begin(rank->client, &rank->shape, &batch, &rank->failure) != LOSSD_CODE_OK ||
        lossd_compute(rank->client, batch, step, &result, &rank->failure) != LOSSD_CODE_OK)
        return false;
    if (step < run->bench->warmup)
        return true;
    end_ns = clock_now_ns();
    histogram_add(&rank->latency, end_ns - begin_ns);
    if (rank->rank == 0) {
        run->end_ns = end_ns;
        atomic_store_explicit(&run->steps, step + 1 - run->bench->warmup, memory_order_relaxed);
    }
    return true;
}

static void leave(struct bench_rank *rank)
{
    if (rank->joined)
        (void)lossd_leave(rank->client, NULL);
    rank->joined = false;
}

/* A rank that can't go on leaves at once: the step of the others ends with that. */
static void *run_rank(void *context)
{
    struct bench_rank *rank = context;

    for (uint64_t step = 0; !rank->failed && step < atomic_load(&rank->run->end_step); step++)
        rank->failed = !make_step(rank, step);
    if (rank->failed)
        leave(rank);
    (void)atomic_fetch_sub(&rank->run->running, 1);
    return NULL;
}

static void show_progress(const struct run *run, const char *what, int64_t start_ns)
{
    const bool is_terminal = isatty(STDERR_FILENO);
    const uint64_t steps = atomic_load_explicit(&run->steps, memory_order_relaxed);

    if (is_terminal || run->bench->progress)
        fprintf(stderr, "%s%s: %.0f s, %" PRIu64 " steps%s", is_terminal ? "\r" : "", what,
                (double)(clock_now_ns() - start_ns) / 1e9, steps, is_terminal ? "  " : "\n");
}

/* Wait for the threads; meanwhile show where they are, and take signals. */
static void attend(struct run *run, const char *what)
{
    const struct timespec moment = {.tv_nsec = 50 * NS_PER_MS};
    const int64_t start_ns = clock_now_ns();
    int64_t shown_ns = start_ns;
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    while (atomic_load(&run->running) > 0) {
        if (sigtimedwait(&signals, NULL, &moment) > 0 && atomic_exchange(&run->stop, true))
            _exit(EXIT_INTERRUPTED);
        if (clock_now_ns() - shown_ns < NS_PER_S)
            continue;
        shown_ns += NS_PER_S;
        show_progress(run, what, start_ns);
    }
    if (shown_ns != start_ns && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void run_threads(struct run *run, struct bench_rank *ranks, const char *what)
{
    const uint32_t count = run->bench->ranks;
    bool *started = calloc(count, sizeof *started);

    atomic_store(&run->running, (int)count);
    for (uint32_t r = 0; r < count; r++) {
        if (started != NULL && pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) == 0) {
            started[r] = true;
            continue;
        }
        (void)atomic_fetch_sub(&run->running, 1);
        ranks[r].failed = true;
        ranks[r].failure = (struct lossd_failure){.code = LOSSD_CODE_RESOURCE_EXHAUSTED, .reason = "OUT_OF_MEMORY"};
        (void)snprintf(ranks[r].failure.message, sizeof ranks[r].failure.message, "no thread for rank %" PRIu32, r);
        leave(&ranks[r]);
    }
    attend(run, what);
    for (uint32_t r = 0; r < count; r++)
        if (started != NULL && started[r])
            (void)pthread_join(ranks[r].thread, NULL);
    free(started);
}

/* Joining waits for nobody, so one thread joins all. False with the rank's failure. */
static bool join_all(const struct options *options, const struct bench_options *bench, enum lossd_transport transport,
                     struct bench_rank *ranks)
{
    struct lossd_membership membership = {.world_size = bench->ranks, .local_world_size = bench->ranks, .nnodes = 1};
    const uint32_t num_slots = slots_of(ranks[0].run->bytes_per_step);
    char config[BENCH_CONFIG_BYTES];

    bench_config(bench->tasks, config);
    membership.config = config;
    name_group(membership.group);
    for (uint32_t r = 0; r < bench->ranks; r++) {
        membership.rank = r;
        ranks[r].failed = !open_rank(options, transport, &membership, &ranks[r], num_slots) ||
                          !fill_batches(&ranks[r], num_slots);
        if (ranks[r].failed)
            return false;
    }
    return true;
}

/* The rank to blame: one that failed by itself, not with another. */
static const struct bench_rank *find_failed(const struct bench_rank *ranks, uint32_t count)
{
    const struct bench_rank *found = NULL;

    for (uint32_t r = 0; r < count; r++)
        if (ranks[r].failed && (found == NULL || found->failure.code == LOSSD_CODE_ABORTED))
            found = &ranks[r];
    return found;
}

static void close_all(struct bench_rank *ranks, uint32_t count)
{
    for (uint32_t r = 0; r < count; r++)
        leave(&ranks[r]);
    for (uint32_t r = 0; r < count; r++)
        lossd_client_close(ranks[r].client);
    free(ranks);
}

static void finish_row(struct run *run, const struct bench_rank *ranks, struct bench_row *row)
{
    *row = (struct bench_row){
        .transport = lossd_client_transport(ranks[0].client),
        .candidates = ranks[0].shape.candidates,
        .requests = ranks[0].shape.requests,
        .steps = atomic_load(&run->steps),
        .seconds = (double)(run->end_ns - run->begin_ns) / 1e9,
        .interrupted = atomic_load(&run->stop),
    };
    histogram_init(&row->latency);
    for (uint32_t r = 0; r < run->bench->ranks; r++)
        histogram_merge(&row->latency, &ranks[r].latency);
}

static struct bench_rank *make_ranks(struct run *run, uint32_t candidates)
{
    const struct bench_options *bench = run->bench;
    struct bench_rank *ranks = calloc(bench->ranks, sizeof *ranks);

    for (uint32_t r = 0; ranks != NULL && r < bench->ranks; r++) {
        ranks[r].run = run;
        ranks[r].rank = r;
        ranks[r].shape = (struct lossd_shape){.requests = bench_requests(bench, candidates),
                                              .candidates = candidates,
                                              .logits_type = bench->type,
                                              .gradient_type = bench->type};
        histogram_init(&ranks[r].latency);
    }
    return ranks;
}

bool bench_run(const struct options *options, const struct bench_options *bench, enum lossd_transport transport,
               uint32_t candidates, struct bench_row *row, struct lossd_failure *failure)
{
    struct run run = {.bench = bench, .bytes_per_step = bench_bytes(bench, candidates), .end_step = UINT64_MAX};
    struct bench_rank *ranks = make_ranks(&run, candidates);
    const struct bench_rank *failed;
    char what[64];

    if (ranks == NULL) {
        *failure = (struct lossd_failure){
            .code = LOSSD_CODE_RESOURCE_EXHAUSTED, .reason = "OUT_OF_MEMORY", .message = "memory is out"};
        return false;
    }
    (void)snprintf(what, sizeof what, "%s, %" PRIu32 " candidates", bench_transport_name(transport), candidates);
    if (join_all(options, bench, transport, ranks))
        run_threads(&run, ranks, what);
    failed = find_failed(ranks, bench->ranks);
    if (failed == NULL)
        finish_row(&run, ranks, row);
    else
        *failure = failed->failure;
    close_all(ranks, bench->ranks);
    return failed == NULL;
}

bool bench_probe(const struct options *options, enum lossd_transport *transport, struct lossd_failure *failure)
{
    const struct bench_options small = {.list_length = 1, .tasks = 1, .ranks = 1, .steps = 1};
    struct bench_row row;

    if (!bench_run(options, &small, LOSSD_TRANSPORT_AUTO, 1, &row, failure))
        return false;
    *transport = row.transport;
    return true;
}
