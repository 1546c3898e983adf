/* A row: its group and its ranks, what is shown meanwhile, and signals. */
#include "lossctl/bench_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "lossctl/bench_batch.h"
#include "lossctl/bench_rank.h"

/* Those that end a row. */
static sigset_t ending_signals(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    return signals;
}

void bench_block_signals(void)
{
    const sigset_t signals = ending_signals();

    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static void name_group(char group[64])
{
    uint32_t random = (uint32_t)getpid();

    (void)!getrandom(&random, sizeof random, 0);
    (void)snprintf(group, 64, "bench-%08" PRIx32, random);
}

static void show_progress(const struct bench_shared *shared, const char *what, int64_t start_ns)
{
    const bool is_terminal = isatty(STDERR_FILENO);
    const uint64_t steps = atomic_load_explicit(&shared->steps, memory_order_relaxed);

    if (is_terminal || shared->bench->progress)
        fprintf(stderr, "%s%s: %.0f s, %" PRIu64 " steps%s", is_terminal ? "\r" : "", what,
                (double)(clock_now_ns() - start_ns) / 1e9, steps, is_terminal ? "  " : "\n");
}

/* Wait for the threads; meanwhile show where they are, and take signals. */
static void attend(struct bench_shared *shared, const char *what)
{
    const struct timespec moment = {.tv_nsec = 50 * NS_PER_MS};
    const int64_t start_ns = clock_now_ns();
    const sigset_t signals = ending_signals();
    int64_t shown_ns = start_ns;

    while (atomic_load(&shared->running) > 0) {
        if (sigtimedwait(&signals, NULL, &moment) > 0 && atomic_exchange(&shared->stop, true))
            _exit(EXIT_INTERRUPTED);
        if (clock_now_ns() - shown_ns < NS_PER_S)
            continue;
        shown_ns += NS_PER_S;
        show_progress(shared, what, start_ns);
    }
    if (shown_ns != start_ns && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void run_threads(struct bench_shared *shared, struct bench_rank *ranks, const char *what)
{
    const uint32_t count = shared->bench->ranks;
    bool *started = calloc(count, sizeof *started);

    atomic_store(&shared->running, (int)count);
    for (uint32_t r = 0; r < count; r++) {
        if (started != NULL && pthread_create(&ranks[r].thread, NULL, bench_rank_run, &ranks[r]) == 0) {
            started[r] = true;
            continue;
        }
        (void)atomic_fetch_sub(&shared->running, 1);
        ranks[r].failed = true;
        ranks[r].failure = (struct lossd_failure){.code = LOSSD_CODE_RESOURCE_EXHAUSTED, .reason = "OUT_OF_MEMORY"};
        (void)snprintf(ranks[r].failure.message, sizeof ranks[r].failure.message, "no thread for rank %" PRIu32, r);
        bench_rank_leave(&ranks[r]);
    }
    attend(shared, what);
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
    char config[BENCH_CONFIG_BYTES];

    bench_config(bench->tasks, config);
    membership.config = config;
    name_group(membership.group);
    for (uint32_t r = 0; r < bench->ranks; r++) {
        membership.rank = r;
        if (!bench_rank_open(&ranks[r], options, transport, &membership))
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
        bench_rank_leave(&ranks[r]);
    for (uint32_t r = 0; r < count; r++)
        lossd_client_close(ranks[r].client);
    free(ranks);
}

static void finish_row(struct bench_shared *shared, const struct bench_rank *ranks, struct bench_row *row)
{
    *row = (struct bench_row){
        .transport = lossd_client_transport(ranks[0].client),
        .candidates = ranks[0].shape.candidates,
        .requests = ranks[0].shape.requests,
        .steps = atomic_load(&shared->steps),
        .seconds = (double)(shared->end_ns - shared->begin_ns) / 1e9,
        .interrupted = atomic_load(&shared->stop),
    };
    histogram_init(&row->latency);
    for (uint32_t r = 0; r < shared->bench->ranks; r++)
        histogram_merge(&row->latency, &ranks[r].latency);
}

static struct bench_rank *make_ranks(struct bench_shared *shared, uint32_t candidates)
{
    const struct bench_options *bench = shared->bench;
    struct bench_rank *ranks = calloc(bench->ranks, sizeof *ranks);

    for (uint32_t r = 0; ranks != NULL && r < bench->ranks; r++) {
        ranks[r].shared = shared;
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
    struct bench_shared shared = {
        .bench = bench, .bytes_per_step = bench_bytes(bench, candidates), .end_step = UINT64_MAX};
    struct bench_rank *ranks = make_ranks(&shared, candidates);
    const struct bench_rank *failed;
    char what[64];

    if (ranks == NULL) {
        *failure = (struct lossd_failure){
            .code = LOSSD_CODE_RESOURCE_EXHAUSTED, .reason = "OUT_OF_MEMORY", .message = "memory is out"};
        return false;
    }
    (void)snprintf(what, sizeof what, "%s, %" PRIu32 " candidates", bench_transport_name(transport), candidates);
    if (join_all(options, bench, transport, ranks))
        run_threads(&shared, ranks, what);
    failed = find_failed(ranks, bench->ranks);
    if (failed == NULL)
        finish_row(&shared, ranks, row);
    else
        *failure = failed->failure;
    close_all(ranks, bench->ranks);
    return failed == NULL;
}
