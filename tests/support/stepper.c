/*
 * A rank that makes steps when it is told to: each line on standard input is a number of steps, each is answered with
 * "done". In between it calls nothing but liblossd, so that whoever looks at it (page faults, allocations, system
 * calls) sees what a step costs.
 *
 * Usage: stepper ADDRESS GROUP RANK WORLD CANDIDATES. The batches of all slots are filled before the first line is
 * read.
 */
#include <lossd/lossd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUM_SLOTS = 4, LIST_LENGTH = 10 };

static const char config[] = "{\"tasks\":[{\"name\":\"click\",\"losses\":[{\"binary_cross_entropy\":{}},"
                             "{\"listwise_rank_loss\":{}}]}]}";

static _Noreturn void die(const struct lossd_failure *failure)
{
    (void)fprintf(stderr, "stepper: %s: %s\n", failure->reason, failure->message);
    exit(EXIT_FAILURE);
}

static struct lossd_batch *begin(struct lossd_client *client, uint32_t candidates)
{
    const struct lossd_shape shape = {.requests = candidates / LIST_LENGTH, .candidates = candidates};
    struct lossd_failure failure;
    struct lossd_batch *batch;

    if (lossd_batch_begin(client, &shape, &batch, &failure) != LOSSD_CODE_OK)
        die(&failure);
    return batch;
}

/* A trainer writes its columns anew in each step; here they differ by slot. */
static void fill(struct lossd_batch *batch, uint32_t slot)
{
    float *logits = batch->tasks[0].logits;

    for (uint32_t r = 0; r < batch->requests; r++)
        batch->lengths[r] = LIST_LENGTH;
    for (uint32_t c = 0; c < batch->candidates; c++) {
        logits[c] = (float)((c * 7 + slot) % 13) * 0.25F - 1.5F;
        batch->tasks[0].labels[c] = c % 5 == 0 ? 1.0F : 0.0F;
    }
}

static void make_steps(struct lossd_client *client, uint32_t candidates, uint64_t *step, uint64_t count)
{
    for (const uint64_t end = *step + count; *step < end; ++*step) {
        struct lossd_batch *batch = begin(client, candidates);
        const struct lossd_result *result;
        struct lossd_failure failure;

        if (lossd_compute(client, batch, *step, &result, &failure) != LOSSD_CODE_OK)
            die(&failure);
    }
}

/* Without the buffers of stdio, which are allocated when they are used first. False at the end of the input. */
static bool read_count(uint64_t *count)
{
    char line[32];
    const ssize_t got = read(STDIN_FILENO, line, sizeof line - 1);

    if (got <= 0)
        return false;
    line[got] = '\0';
    *count = strtoull(line, NULL, 10);
    return true;
}

int main(int argc, char **argv)
{
    struct lossd_membership me = {.config = config};
    struct lossd_options options = {.transport = LOSSD_TRANSPORT_SHARED_MEMORY, .num_slots = NUM_SLOTS};
    struct lossd_client *client;
    struct lossd_failure failure;
    uint32_t candidates;
    uint64_t count;
    uint64_t step = 0;

    if (argc != 6)
        return EXIT_FAILURE;
    options.address = argv[1];
    (void)snprintf(me.group, sizeof me.group, "%s", argv[2]);
    me.rank = (uint32_t)strtoul(argv[3], NULL, 10);
    me.world_size = me.local_world_size = (uint32_t)strtoul(argv[4], NULL, 10);
    candidates = (uint32_t)strtoul(argv[5], NULL, 10);
    if (lossd_client_open(&options, &client, &failure) != LOSSD_CODE_OK ||
        lossd_join(client, &me, &failure) != LOSSD_CODE_OK)
        die(&failure);
    for (uint32_t slot = 0; slot < NUM_SLOTS; slot++)
        fill(begin(client, candidates), slot);
    while (read_count(&count)) {
        make_steps(client, candidates, &step, count);
        if (write(STDOUT_FILENO, "done\n", 5) != 5)
            return EXIT_FAILURE;
    }
    (void)lossd_leave(client, NULL);
    lossd_client_close(client);
    return EXIT_SUCCESS;
}
