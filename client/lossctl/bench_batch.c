#include "lossctl/bench_batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "batch/values.h"

enum { NUM_NORMALS = 4096, LABEL_EVERY = 8 };

void bench_config(uint32_t tasks, char config[BENCH_CONFIG_BYTES])
{
    size_t length = (size_t)snprintf(config, BENCH_CONFIG_BYTES, "{\"tasks\":[");

    for (uint32_t t = 0; t < tasks; t++)
        length += (size_t)snprintf(config + length, BENCH_CONFIG_BYTES - length,
                                   "%s{\"name\":\"task%" PRIu32 "\",\"losses\":[{\"binary_cross_entropy\":{}}]}",
                                   t == 0 ? "" : ",", t);
    (void)snprintf(config + length, BENCH_CONFIG_BYTES - length, "]}");
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* Some values of a normal distribution; millions of them would take longer to make than to send. */
static void make_normals(double normals[NUM_NORMALS], uint32_t *state)
{
    for (size_t i = 0; i < NUM_NORMALS; i++) {
        const double radius = sqrt(-2.0 * log((next_random(state) + 1.0) * 0x1p-24));

        normals[i] = radius * cos(6.283185307179586 * next_random(state) * 0x1p-24);
    }
}

static enum value_type value_type_of(enum lossd_type type)
{
    return type == LOSSD_F16 ? VALUE_F16 : type == LOSSD_BF16 ? VALUE_BF16 : VALUE_F32;
}

static void fill_task(struct lossd_task *task, uint32_t candidates, enum lossd_type type, const double *normals,
                      uint32_t *state)
{
    for (uint32_t c = 0; c < candidates; c++) {
        value_store(task->logits, value_type_of(type), c * task->stride, normals[next_random(state) % NUM_NORMALS]);
        task->labels[c] = next_random(state) % LABEL_EVERY == 0 ? 1.0F : 0.0F;
    }
}

void bench_fill(struct lossd_batch *batch, enum lossd_type type, uint32_t seed)
{
    double normals[NUM_NORMALS];
    uint32_t state = seed;

    make_normals(normals, &state);
    for (uint32_t r = 0; r < batch->requests; r++)
        batch->lengths[r] = batch->candidates / batch->requests + (r < batch->candidates % batch->requests);
    for (size_t t = 0; t < batch->num_tasks; t++)
        fill_task(&batch->tasks[t], batch->candidates, type, normals, &state);
}

uint64_t bench_bytes(const struct bench_options *bench, uint32_t candidates)
{
    const uint64_t value_bytes = value_size(value_type_of(bench->type));
    const uint64_t row_bytes = bench->tasks * (2 * value_bytes + sizeof(float));

    return candidates * row_bytes + bench_requests(bench, candidates) * sizeof(uint32_t);
}
