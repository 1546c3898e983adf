#include "lossctl/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lossctl/whole_batch.h"
#include "lossd/v1/group.pb-c.h"

/*
 * Two binary32 gradients of a row agree within 1e-6 of the largest of their task, or of an average row's share of it
 * where all are small. Losses are sums in binary64 of terms in binary32.
 */
#define GRADIENT_TOLERANCE 1e-6
#define LOSS_TOLERANCE     4e-6

static bool same_task(const Lossd__V1__TaskBatch *a, const Lossd__V1__TaskBatch *b)
{
    return a->n_sessions == 0 && b->n_sessions == 0 && a->has_log_scale == b->has_log_scale &&
           (!a->has_log_scale || a->log_scale == b->log_scale);
}

int check_possible(const struct rank_runs *ranks)
{
    const Lossd__V1__ComputeLossRequest *first = ranks->runs[0].request;

    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank_run *run = &ranks->runs[i];

        if (run->request->skip_gradient)
            return complain(EXIT_INPUT, "%s: --check needs gradients, but skip_gradient is set", run->file);
        if (run->request->gradient_scale != first->gradient_scale || run->request->n_tasks != first->n_tasks)
            return complain(EXIT_INPUT, "%s: --check needs the gradient_scale and the tasks of %s", run->file,
                            ranks->runs[0].file);
        for (size_t t = 0; t < first->n_tasks; t++) {
            const char *name = first->tasks[t]->name;
            const Lossd__V1__TaskBatch *task = name == NULL ? NULL : find_task(run->request, name);

            if (task == NULL || !same_task(task, first->tasks[t]))
                return complain(EXIT_INPUT,
                                "%s: --check needs the tasks of %s with the same log_scale, and no sessions", run->file,
                                ranks->runs[0].file);
        }
    }
    return EXIT_DONE;
}

struct whole_run {
    struct arena arena;
    struct rpc_connection *connection;
    const Lossd__V1__Group *group; /* of the ranks */
    const Lossd__V1__ComputeLossResponse *response;
};

static bool get_group(struct whole_run *whole, char *name, struct failure *failure)
{
    Lossd__V1__GetGroupRequest request = LOSSD__V1__GET_GROUP_REQUEST__INIT;
    ProtobufCMessage *message;

    request.group = name;
    if (!rpc_call(whole->connection, "lossd.v1.GroupService/GetGroup", &request.base,
                  &lossd__v1__get_group_response__descriptor, &whole->arena, &message, failure))
        return false;
    whole->group = ((const Lossd__V1__GetGroupResponse *)message)->group;
    if (whole->group == NULL || whole->group->config == NULL)
        return failure_local(failure, EXIT_NOT_LOSSD, "GetGroup of %s answered without a config", name);
    return true;
}

static bool join(struct whole_run *whole, char *name, struct failure *failure)
{
    Lossd__V1__JoinGroupRequest request = LOSSD__V1__JOIN_GROUP_REQUEST__INIT;
    ProtobufCMessage *message;

    request.group = name;
    request.has_world_size = 1;
    request.world_size = 1;
    request.config = whole->group->config;
    return rpc_call(whole->connection, "lossd.v1.GroupService/JoinGroup", &request.base,
                    &lossd__v1__join_group_response__descriptor, &whole->arena, &message, failure);
}

static bool compute(struct whole_run *whole, const struct rank_runs *ranks, char *name, struct failure *failure)
{
    Lossd__V1__ComputeLossRequest *request = whole_batch(ranks, &whole->arena);
    ProtobufCMessage *message;

    if (request == NULL)
        return failure_local(failure, EXIT_LOCAL, "memory is out");
    request->group = name;
    if (!rpc_call(whole->connection, "lossd.v1.LossService/ComputeLoss", &request->base,
                  &lossd__v1__compute_loss_response__descriptor, &whole->arena, &message, failure))
        return false;
    whole->response = (const Lossd__V1__ComputeLossResponse *)message;
    return true;
}

/* Free the name. That it can't be freed changes nothing about the numbers. */
static void leave(struct whole_run *whole, char *name)
{
    Lossd__V1__LeaveGroupRequest request = LOSSD__V1__LEAVE_GROUP_REQUEST__INIT;
    ProtobufCMessage *message;
    struct failure ignored;

    request.group = name;
    if (!rpc_call(whole->connection, "lossd.v1.GroupService/LeaveGroup", &request.base,
                  &lossd__v1__leave_group_response__descriptor, &whole->arena, &message, &ignored))
        failure_finish(&ignored);
}

static bool run_whole(struct whole_run *whole, const struct rank_runs *ranks, struct failure *failure)
{
    char name[40];
    uint64_t number;
    bool done;

    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return failure_local(failure, EXIT_LOCAL, "no random number for the name of a group");
    (void)snprintf(name, sizeof name, "check-%016" PRIx64, number);
    if (!get_group(whole, ranks->runs[0].request->group, failure) || !join(whole, name, failure))
        return false;
    done = compute(whole, ranks, name, failure);
    leave(whole, name);
    return done;
}

static const Lossd__V1__TaskResult *find_result(const Lossd__V1__ComputeLossResponse *response, const char *name)
{
    for (size_t t = 0; t < response->n_tasks; t++)
        if (response->tasks[t]->name != NULL && strcmp(response->tasks[t]->name, name) == 0)
            return response->tasks[t];
    return NULL;
}

struct difference {
    double found; /* NaN where values are missing */
    double allowed;
};

static struct difference compare_losses(const struct rank_runs *ranks, const struct whole_run *whole, double divisor)
{
    double sum = 0.0;

    for (size_t i = 0; i < ranks->count; i++)
        sum += ranks->runs[i].response->loss;
    return (struct difference){fabs(sum / divisor - whole->response->loss),
                               LOSS_TOLERANCE * fabs(whole->response->loss) + 1e-9};
}

/* The gradients of the ranks one behind the other, over the divisor, against the whole's. */
static struct difference compare_gradients(const struct rank_runs *ranks, const Lossd__V1__TaskResult *whole,
                                           double divisor)
{
    struct difference difference = {0};
    double largest = 0.0;
    size_t row = 0;

    for (size_t i = 0; i < ranks->count; i++) {
        const Lossd__V1__TaskResult *task = find_result(ranks->runs[i].response, whole->name);

        for (size_t c = 0; task != NULL && c < task->n_gradient && row < whole->n_gradient; c++, row++) {
            const double off = fabs((double)task->gradient[c] / divisor - (double)whole->gradient[row]);

            /* Not fmax: a NaN has to stay. */
            difference.found = off > difference.found || isnan(off) ? off : difference.found;
            largest = fmax(largest, fabs((double)whole->gradient[row]));
        }
        if (task == NULL || (i + 1 == ranks->count && row != whole->n_gradient))
            difference.found = NAN;
    }
    difference.allowed = GRADIENT_TOLERANCE * fmax(largest, 1.0 / fmax((double)whole->n_gradient, 1.0));
    return difference;
}

static bool report(const struct options *options, const char *what, struct difference difference)
{
    const bool ok = difference.found <= difference.allowed;

    if (!options->json)
        printf("check: %s: largest difference %.3g, allowed %.3g: %s\n", what, difference.found, difference.allowed,
               ok ? "ok" : "DIFFERENT");
    return ok;
}

static bool compare(const struct options *options, const struct rank_runs *ranks, const struct whole_run *whole)
{
    const bool is_sum = whole->group->config->grad_reduce == LOSSD__V1__GRAD_REDUCE__GRAD_REDUCE_SUM;
    const double divisor = is_sum ? 1.0 : (double)ranks->count;
    const char *over = is_sum ? "sum" : "mean";
    char what[200];
    bool ok;

    (void)snprintf(what, sizeof what, "%s of the losses of %zu ranks = loss %.9g of one rank with the whole batch",
                   over, ranks->count, whole->response->loss);
    ok = report(options, what, compare_losses(ranks, whole, divisor));
    for (size_t t = 0; t < whole->response->n_tasks; t++) {
        const Lossd__V1__TaskResult *task = whole->response->tasks[t];

        if (task->name == NULL)
            continue;
        (void)snprintf(what, sizeof what, "%s, %s of the gradients of the ranks = gradient of the whole, %zu values",
                       task->name, over, task->n_gradient);
        ok &= report(options, what, compare_gradients(ranks, task, divisor));
    }
    if (options->json)
        printf("{\"check\":{\"ok\":%s}}\n", ok ? "true" : "false");
    return ok;
}

int check_against_whole(const struct options *options, const struct rank_runs *ranks)
{
    struct whole_run whole = {.connection = &ranks->runs[0].connection};
    struct failure failure;
    int exit_code;

    arena_init(&whole.arena, (size_t)1 << 30, NULL);
    if (!run_whole(&whole, ranks, &failure))
        exit_code = rpc_failed(options, &failure);
    else if (whole.group->world_size != ranks->count)
        exit_code = complain(EXIT_INPUT, "--check needs the batch of every rank: the group has %" PRIu32 ", %zu came",
                             whole.group->world_size, ranks->count);
    else
        exit_code = compare(options, ranks, &whole) ? EXIT_DONE : EXIT_CHECK;
    arena_finish(&whole.arena);
    return exit_code;
}
