#include "bench/client_side.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void die(const char *what, const struct lossd_failure *failure)
{
    char why[800];

    (void)snprintf(why, sizeof why, "%s %s: %s", failure->reason, failure->field, failure->message);
    bench_die(what, why);
}

static struct lossd_batch *begin(struct client_side *side)
{
    const struct columns *source = &side->sources[side->next % NUM_BATCHES];
    const struct lossd_shape shape = {.requests = source->num_requests, .candidates = source->num_candidates};
    struct lossd_failure failure;
    struct lossd_batch *batch;

    if (lossd_batch_begin(side->client, &shape, &batch, &failure) != LOSSD_CODE_OK)
        die("lossd_batch_begin", &failure);
    return batch;
}

static const struct lossd_result *compute(struct client_side *side, struct lossd_batch *batch)
{
    const struct lossd_result *result;
    struct lossd_failure failure;

    if (lossd_compute(side->client, batch, side->next++, &result, &failure) != LOSSD_CODE_OK)
        die("lossd_compute", &failure);
    return result;
}

static void copy_in(struct client_side *side, struct lossd_batch *batch)
{
    const struct columns *source = &side->sources[side->next % NUM_BATCHES];
    const size_t bytes = source->num_candidates * sizeof(float);

    memcpy(batch->lengths, source->lengths, source->num_requests * sizeof *source->lengths);
    for (size_t t = 0; t < side->num_tasks; t++) {
        memcpy(batch->tasks[t].logits, source->logits[t], bytes);
        memcpy(batch->tasks[t].labels, source->labels[t], bytes);
    }
}

void client_side_step(struct client_side *side)
{
    (void)compute(side, begin(side));
}

void client_side_copy_and_step(struct client_side *side)
{
    struct lossd_batch *batch = begin(side);

    copy_in(side, batch);
    (void)compute(side, batch);
}

static struct columns columns_of(const struct client_side *side, const struct lossd_batch *batch)
{
    struct columns columns = {
        .num_requests = batch->requests, .num_candidates = batch->candidates, .lengths = batch->lengths};

    for (size_t t = 0; t < side->num_tasks; t++) {
        columns.logits[t] = batch->tasks[t].logits;
        columns.labels[t] = batch->tasks[t].labels;
        columns.gradients[t] = (void *)(uintptr_t)batch->tasks[t].gradient;
    }
    return columns;
}

/* A benchmark of the wrong thing would be a fast one. */
static void see_that_it_is_right(const struct client_side *side, const struct lossd_batch *batch,
                                 const struct lossd_result *result, struct kernel *kernel)
{
    kernel_run(kernel, &side->sources[(side->next - 1) % NUM_BATCHES]);
    if (memcmp(&result->loss, &kernel->result.loss, sizeof result->loss) != 0)
        bench_die("lossd_compute", "the loss is not that of the kernel");
    for (size_t t = 0; t < side->num_tasks; t++)
        if (memcmp(batch->tasks[t].gradient, kernel->result.tasks[t].gradient, batch->candidates * sizeof(float)) != 0)
            bench_die("lossd_compute", "the gradient is not that of the kernel");
}

static void fill_all(struct client_side *side, struct kernel *kernel, uint32_t num_candidates)
{
    for (size_t b = 0; b < NUM_BATCHES; b++)
        columns_make(&side->sources[b], side->num_tasks, num_candidates, b + 1, &side->arena);
    for (size_t b = 0; b < NUM_BATCHES; b++) {
        struct lossd_batch *batch = begin(side);

        side->columns[b] = columns_of(side, batch);
        copy_in(side, batch);
        see_that_it_is_right(side, batch, compute(side, batch), kernel);
    }
}

void client_side_open(struct client_side *side, const struct lossd_options *options, const char *config,
                      struct kernel *kernel, uint32_t num_candidates)
{
    struct lossd_membership membership = {.world_size = 1, .local_world_size = 1, .config = config};
    struct lossd_options own = *options;
    struct lossd_failure failure;

    *side = (struct client_side){.num_tasks = kernel->config.num_tasks};
    arena_init(&side->arena, SIZE_MAX, NULL);
    own.num_slots = NUM_BATCHES;
    own.max_requests = num_candidates;
    own.max_candidates = num_candidates;
    (void)snprintf(membership.group, sizeof membership.group, "bench-%d", (int)getpid());
    if (lossd_client_open(&own, &side->client, &failure) != LOSSD_CODE_OK ||
        lossd_join(side->client, &membership, &failure) != LOSSD_CODE_OK)
        die(own.address, &failure);
    fill_all(side, kernel, num_candidates);
}

void client_side_close(struct client_side *side)
{
    (void)lossd_leave(side->client, NULL);
    lossd_client_close(side->client);
    arena_finish(&side->arena);
}
