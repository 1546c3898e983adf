/* lossctl compute FILE…: one step of as many ranks as there are files, and what each is answered. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lossctl/awaited.h"
#include "lossctl/check.h"
#include "lossctl/command.h"
#include "lossctl/ranks.h"
#include "lossctl/terms.h"

enum { SHOWN_GRADIENTS = 6 };

static void print_gradients(const Lossd__V1__ComputeLossResponse *response)
{
    for (size_t t = 0; t < response->n_tasks; t++) {
        const Lossd__V1__TaskResult *task = response->tasks[t];

        printf("  gradient of %s, %zu values:", task->name, task->n_gradient);
        for (size_t i = 0; i < task->n_gradient && i < SHOWN_GRADIENTS; i++)
            printf(" %.7g", (double)task->gradient[i]);
        puts(task->n_gradient > SHOWN_GRADIENTS ? " ..." : "");
        if (task->has_log_scale_gradient)
            printf("  gradient of the log scale of %s: %.9g\n", task->name, task->log_scale_gradient);
        if (task->nonfinite_units > 0)
            printf("  %s left out %" PRIu32 " rows or lists that were not finite\n", task->name, task->nonfinite_units);
    }
}

static void print_answer(const struct rank_run *run)
{
    const Lossd__V1__ComputeLossResponse *response = run->response;

    printf("rank %" PRIu32 ", step %" PRIu64 "%s: loss %.9g\n", run->request->rank, response->step,
           response->replayed ? " (answered before)" : "", response->loss);
    if (response->local != NULL && response->world != NULL)
        printf("  %.15g of %.15g requests: factor %.9g; %.15g of %.15g candidates: factor %.9g; %" PRIu32 " ranks\n",
               response->local->requests, response->world->requests, response->request_factor,
               response->local->candidates, response->world->candidates, response->candidate_factor,
               response->world->ranks);
    terms_print(run, stdout);
    print_gradients(response);
}

static void print_json(const struct rank_run *run)
{
    struct encoded json = {0};
    struct lossd_error err;

    if (run->response == NULL)
        failure_print_json(&run->failure, stdout);
    else if (message_encode(CODEC_JSON, &run->response->base, false, &json, &err) == LOSSD_OK)
        printf("%s\n", (const char *)json.bytes);
    free(json.bytes);
}

/* From the thread that the rank is sent from: whole lines. */
static void print_failure(const struct rank_run *run)
{
    char who[32];

    (void)snprintf(who, sizeof who, "rank %" PRIu32, run->request->rank);
    flockfile(stderr);
    failure_print(&run->failure, who);
    funlockfile(stderr);
}

/* The culprit's code rather than that of those who were aborted with it. */
static int exit_code_of(const struct rank_runs *ranks)
{
    int exit_code = EXIT_DONE;

    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (run->response != NULL)
            continue;
        if (exit_code == EXIT_DONE || exit_code == EXIT_PER_GRPC_CODE * CONNECT_ABORTED)
            exit_code = run->failure.exit_code;
    }
    return exit_code;
}

static int run_step(const struct options *options, struct rank_runs *ranks)
{
    int exit_code = rank_runs_check(ranks);

    if (exit_code == EXIT_DONE && options->check)
        exit_code = check_possible(ranks);
    if (exit_code == EXIT_DONE && options->join != NULL)
        exit_code = rank_runs_check_whole(ranks);
    if (exit_code == EXIT_DONE && options->join != NULL)
        exit_code = rank_runs_join(options, options->join, ranks);
    if (exit_code != EXIT_DONE)
        return exit_code;
    rank_runs_ask(ranks);
    awaited_print(ranks);
    rank_runs_send(ranks, options->json ? NULL : print_failure);
    for (size_t i = 0; i < ranks->count; i++) {
        if (options->json)
            print_json(&ranks->runs[i]);
        else if (ranks->runs[i].response != NULL)
            print_answer(&ranks->runs[i]);
    }
    exit_code = exit_code_of(ranks);
    if (exit_code == EXIT_DONE && !options->json)
        terms_print_means(ranks, stdout);
    return exit_code == EXIT_DONE && options->check ? check_against_whole(options, ranks) : exit_code;
}

int command_compute(const struct options *options, int argc, char **argv)
{
    struct rank_runs ranks = {0};
    int exit_code;

    if (argc == 0)
        return usage("compute: expected at least one FILE with a ComputeLossRequest in JSON");
    exit_code = rank_runs_load(options, argv, (size_t)argc, &ranks);
    if (exit_code == EXIT_DONE)
        exit_code = run_step(options, &ranks);
    rank_runs_finish(&ranks);
    return exit_code;
}
