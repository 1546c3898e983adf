/*
 * All ranks have to stop at the same step, or one waits for ever. Rank 0 says at which, before it submits the step
 * before that one: nobody can be further by then, as nobody's step ends without it.
 */
#include "lossctl/bench_rank.h"

#include "base/clock.h"
#include "lossctl/bench_batch.h"

/* Different batches of a rank: as many as a client can have, or as fit. */
enum { NUM_BATCHES = 15, MIN_BATCHES = 2, BATCHES_BYTES = 512 << 20 };

/* No daemon there: say so at once, as the other commands do. */
enum { RECONNECT_MS = 1 };

static uint32_t slots_of(uint64_t bytes)
{
    const uint64_t slots = BATCHES_BYTES / bytes;

    return slots > NUM_BATCHES ? NUM_BATCHES : slots < MIN_BATCHES ? MIN_BATCHES : (uint32_t)slots;
}

static bool open_client(struct bench_rank *rank, const struct options *options, enum lossd_transport transport,
                        const struct lossd_membership *membership, uint32_t num_slots)
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

bool bench_rank_open(struct bench_rank *rank, const struct options *options, enum lossd_transport transport,
                     const struct lossd_membership *membership)
{
    const uint32_t num_slots = slots_of(rank->shared->bytes_per_step);

    rank->failed = !open_client(rank, options, transport, membership, num_slots) || !fill_batches(rank, num_slots);
    return !rank->failed;
}

/* Rank 0 looks at clock and signals before each step. */
static void decide(struct bench_rank *rank, uint64_t step, int64_t now_ns)
{
    struct bench_shared *shared = rank->shared;
    const struct bench_options *bench = shared->bench;
    const bool is_measured = step >= bench->warmup;
    bool over;

    if (step == bench->warmup)
        shared->begin_ns = now_ns;
    if (bench->steps != 0)
        over = step + 1 == bench->warmup + bench->steps;
    else
        over = is_measured && (double)(now_ns - shared->begin_ns) >= bench->seconds * 1e9;
    if (over || atomic_load(&shared->stop))
        atomic_store(&shared->end_step, step + 1);
}

static bool make_step(struct bench_rank *rank, uint64_t step)
{
    struct bench_shared *shared = rank->shared;
    const int64_t begin_ns = clock_now_ns();
    const struct lossd_result *result;
    struct lossd_batch *batch;
    int64_t end_ns;

    if (rank->rank == 0)
        decide(rank, step, begin_ns);
    if (lossd_batch_begin(rank->client, &rank->shape, &batch, &rank->failure) != LOSSD_CODE_OK ||
        lossd_compute(rank->client, batch, step, &result, &rank->failure) != LOSSD_CODE_OK)
        return false;
    if (step < shared->bench->warmup)
        return true;
    end_ns = clock_now_ns();
    histogram_add(&rank->latency, end_ns - begin_ns);
    if (rank->rank == 0) {
        shared->end_ns = end_ns;
        atomic_store_explicit(&shared->steps, step + 1 - shared->bench->warmup, memory_order_relaxed);
    }
    return true;
}

void bench_rank_leave(struct bench_rank *rank)
{
    if (rank->joined)
        (void)lossd_leave(rank->client, NULL);
    rank->joined = false;
}

void *bench_rank_run(void *context)
{
    struct bench_rank *rank = context;

    for (uint64_t step = 0; !rank->failed && step < atomic_load(&rank->shared->end_step); step++)
        rank->failed = !make_step(rank, step);
    if (rank->failed)
        bench_rank_leave(rank);
    (void)atomic_fetch_sub(&rank->shared->running, 1);
    return NULL;
}
