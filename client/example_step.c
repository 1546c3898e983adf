/*
 * One step of one rank with liblossd, from joining to leaving: three requests with six candidates, and two tasks.
 *
 *     cc example_step.c -o example_step $(pkg-config --cflags --libs lossd)
 *     LOSSD_ADDR=unix:/run/lossd/lossd.sock torchrun --no_python --nproc_per_node 2 ./example_step
 */
#include <lossd/lossd.h>

#include <stdio.h>
#include <string.h>

static const char config[] = "{\"tasks\": [{\"name\": \"click\", \"losses\": [{\"binaryCrossEntropy\": {}}]},"
                             "             {\"name\": \"order\", \"losses\": [{\"listwiseRankLoss\": {}}]}]}";

static const char *words(enum lossd_transport transport)
{
    return transport == LOSSD_TRANSPORT_SHARED_MEMORY ? "shared memory" : "HTTP";
}

static int run(struct lossd_client *client, struct lossd_failure *why)
{
    static const uint32_t lengths[3] = {2, 3, 1};
    static const float logits[6] = {0.5f, -1.0f, 2.0f, 0.0f, 1.5f, -0.5f};
    static const float labels[6] = {1, 0, 1, 0, 0, 1};
    const struct lossd_shape shape = {.requests = 3, .candidates = 6};
    const struct lossd_result *result;
    struct lossd_membership me;
    struct lossd_batch *batch;

    if (lossd_membership_from_environment(&me, why))
        return 1;
    me.config = config;
    if (lossd_join(client, &me, why) || lossd_batch_begin(client, &shape, &batch, why))
        return 1;
    memcpy(batch->lengths, lengths, sizeof lengths);
    for (size_t t = 0; t < batch->num_tasks; t++) {
        memcpy(batch->tasks[t].logits, logits, sizeof logits);
        memcpy(batch->tasks[t].labels, labels, sizeof labels);
    }
    if (lossd_compute(client, batch, 0, &result, why))
        return 1;
    printf("rank %u: loss %.9g over %g candidates of %u ranks, by %s\n", me.rank, result->loss,
           result->world.candidates, result->world.ranks, words(lossd_client_transport(client)));
    for (size_t t = 0; t < batch->num_tasks; t++)
        printf("  %s: loss %.9g, first gradient %.7g\n", result->tasks[t].name, result->tasks[t].loss,
               (double)((const float *)batch->tasks[t].gradient)[0]);
    return lossd_leave(client, why) ? 1 : 0;
}

int main(void)
{
    struct lossd_client *client = NULL;
    struct lossd_failure why;
    int failed = lossd_client_open(NULL, &client, &why) != LOSSD_CODE_OK || run(client, &why) != 0;

    if (failed)
        fprintf(stderr, "%s%s%s: %s\n", why.reason, why.field[0] == '\0' ? "" : " ", why.field, why.message);
    lossd_client_close(client);
    return failed;
}
