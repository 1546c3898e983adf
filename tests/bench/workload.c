#include "bench/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/convert.h"
#include "codec/message.h"

_Noreturn void bench_die(const char *what, const char *why)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

/* Uniform in [0, 1). */
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

static uint32_t fill_lengths(uint32_t *lengths, uint32_t num_candidates, uint64_t *state)
{
    uint32_t num_requests = 0;

    for (uint32_t left = num_candidates; left > 0;) {
        const double length = ceil(17.5 * exp(1.1 * next_normal(state)));
        const uint32_t n = length < left ? (uint32_t)length : left;

        lengths[num_requests++] = n;
        left -= n;
    }
    return num_requests;
}

static void fill_columns(struct columns *columns, size_t num_tasks, uint64_t seed)
{
    uint64_t state = seed;

    columns->num_requests = fill_lengths(columns->lengths, columns->num_candidates, &state);
    for (size_t t = 0; t < num_tasks; t++)
        for (uint32_t c = 0; c < columns->num_candidates; c++) {
            columns->logits[t][c] = (float)(next_normal(&state) * 1.5 - 1.0);
            columns->labels[t][c] = next_uniform(&state) < 0.125 ? 1.0F : 0.0F;
        }
}

static void *allocate(struct arena *arena, size_t count)
{
    void *memory = arena_calloc(arena, count, sizeof(float));

    if (memory == NULL)
        bench_die("workload", "memory is out");
    return memory;
}

void columns_make(struct columns *columns, size_t num_tasks, uint32_t num_candidates, uint64_t seed,
                  struct arena *arena)
{
    *columns = (struct columns){.num_candidates = num_candidates, .lengths = allocate(arena, num_candidates)};
    for (size_t t = 0; t < num_tasks; t++) {
        columns->logits[t] = allocate(arena, num_candidates);
        columns->labels[t] = allocate(arena, num_candidates);
    }
    fill_columns(columns, num_tasks, seed);
}

static void check(enum lossd_status status, const char *what, const struct lossd_error *err)
{
    if (status != LOSSD_OK)
        bench_die(what, err->message);
}

void kernel_init(struct kernel *kernel, const char *config)
{
    const struct decode_limits limits = {.json_depth = 32};
    ProtobufCMessage *message;
    struct lossd_error err;

    arena_init(&kernel->arena, SIZE_MAX, NULL);
    arena_init(&kernel->scratch, SIZE_MAX, NULL);
    check(message_decode(CODEC_JSON, &lossd__v1__group_config__descriptor, (const uint8_t *)config, strlen(config),
                         &limits, &kernel->arena, &message, &err),
          "config", &err);
    check(config_from_message((Lossd__V1__GroupConfig *)message, MAX_TASKS, MAX_LOSSES, &kernel->arena, &kernel->config,
                              &err),
          "config", &err);
    check(loss_plan_init(&kernel->plan, &kernel->config, &kernel->arena, &err), "config", &err);
}

void kernel_finish(struct kernel *kernel)
{
    arena_finish(&kernel->scratch);
    arena_finish(&kernel->arena);
}

static void set_batch(struct kernel *kernel, const struct columns *columns)
{
    const size_t count = columns->num_candidates;

    for (size_t t = 0; t < kernel->config.num_tasks; t++)
        kernel->tasks[t] = (struct task_batch){.name = kernel->config.tasks[t].name,
                                               .logits = columns->logits[t],
                                               .num_logits = count,
                                               .labels = columns->labels[t],
                                               .num_labels = count,
                                               .gradient = columns->gradients[t]};
    kernel->batch = (struct batch){.lengths = columns->lengths,
                                   .num_lengths = columns->num_requests,
                                   .tasks = kernel->tasks,
                                   .num_tasks = kernel->config.num_tasks,
                                   .gradient_scale = 1.0F};
}

void kernel_run(struct kernel *kernel, const struct columns *columns)
{
    const struct batch_limits limits = {.max_requests = UINT32_MAX, .max_candidates = UINT32_MAX};
    const struct loss_plan *plan = &kernel->plan;
    struct totals totals = {.num_ranks = 1};
    struct prepared_batch prepared;
    struct scales scales;
    struct lossd_error err;

    arena_reset(&kernel->scratch);
    set_batch(kernel, columns);
    check(batch_check(&kernel->batch, &kernel->config, plan->rules, &limits, &kernel->scratch, &err), "check", &err);
    check(loss_prepare(plan, &kernel->batch, &kernel->scratch, &prepared, &err), "prepare", &err);
    check(loss_result_alloc(plan, &kernel->batch, &kernel->scratch, &kernel->result, &err), "result", &err);
    memcpy(totals.sums, prepared.contribution, plan->num_denominators * sizeof *totals.sums);
    rescale(plan, &prepared, &totals, &scales);
    loss_run(plan, &prepared, &scales, &kernel->result);
}

void copies_init(struct copies *copies, size_t num_tasks, uint32_t num_candidates, struct arena *arena)
{
    copies->scratch = allocate(arena, 2 * num_tasks * num_candidates);
    copies->gradients = allocate(arena, num_tasks * num_candidates);
}

void copies_run(const struct copies *copies, size_t num_tasks, const struct columns *columns)
{
    const size_t count = columns->num_candidates;

    for (size_t t = 0; t < num_tasks; t++) {
        memcpy(copies->scratch + 2 * t * count, columns->logits[t], count * sizeof(float));
        memcpy(copies->scratch + (2 * t + 1) * count, columns->labels[t], count * sizeof(float));
    }
    memcpy(copies->gradients, copies->scratch, num_tasks * count * sizeof(float));
}
