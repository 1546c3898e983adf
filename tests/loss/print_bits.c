/*
 * A number made of every bit that 300 random steps give, for test_bits.sh: two builds of the losses have to agree.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "loss/random_batch.h"
#include "loss/world.h"

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t mix_result(uint64_t hash, const struct result *result)
{
    hash = mix(hash, &result->loss, sizeof result->loss);
    for (size_t t = 0; t < result->num_tasks; t++) {
        const struct task_result *task = &result->tasks[t];

        for (size_t l = 0; l < task->num_terms; l++)
            hash = mix(hash, &task->terms[l].sum, sizeof task->terms[l].sum);
        hash = mix(hash, &task->log_scale_gradient, sizeof task->log_scale_gradient);
        hash = mix(hash, task->gradient, sizeof *task->gradient * task->num_gradient);
    }
    return hash;
}

int main(void)
{
    const struct random_limits limits = {.max_tasks = 3, .max_requests = 20, .max_length = 900, .max_logit = 40.0};
    struct random random = {.state = 1};
    uint64_t hash = UINT64_C(14695981039346656037);
    int num_run = 0;

    for (int i = 0; i < 300; i++) {
        struct world *world = world_create();
        struct group_config config;
        struct batch batch;
        struct arena arena;

        arena_init(&arena, SIZE_MAX, NULL);
        random_config(&random, &limits, &arena, &config);
        random_batch(&random, &limits, &config, &arena, &batch);
        if (world_run(world, &config, &batch, 1) == LOSSD_OK) {
            hash = mix_result(hash, &world->ranks[0].result);
            num_run++;
        }
        world_destroy(world);
        arena_finish(&arena);
    }
    printf("%d %016" PRIx64 "\n", num_run, hash);
    return num_run > 200 ? EXIT_SUCCESS : EXIT_FAILURE;
}
