#include "client/rpc_batch.h"

#include <stdlib.h>
#include <string.h>

#include "batch/values.h"
#include "client/failure.h"

/* A column of the call's slot; NULL where there is none, or nothing in it. */
static void *column(const struct transport *transport, const struct call *call, uint64_t offset)
{
    if (offset == NO_COLUMN)
        return NULL;
    return transport->block + call->slot * transport->slot_bytes + offset;
}

static bool lies_as_sent(enum lossd_type type, uint32_t stride, uint32_t num_class)
{
    return type == LOSSD_F32 && stride == num_class;
}

/* Logits of all tasks that have to be gathered. */
static size_t count_gathered(const struct group_config *config, const struct call *call)
{
    const enum lossd_type type = call->layout->shape.logits_type;
    size_t count = 0;

    for (size_t t = 0; t < config->num_tasks; t++)
        if (!lies_as_sent(type, call->layout->tasks[t].stride, config->tasks[t].num_class))
            count += (size_t)call->candidates * config->tasks[t].num_class;
    return count;
}

static bool make_room(struct rpc_batch *batch, size_t count)
{
    float *room;

    if (count <= batch->gathered_capacity)
        return true;
    room = malloc(count * sizeof *room);
    if (room == NULL)
        return false;
    free(batch->gathered);
    batch->gathered = room;
    batch->gathered_capacity = count;
    return true;
}

/* Rows of num_class of any type, stride apart, as binary32 rows that lie together. The type is a constant here. */
static ALWAYS_INLINE void gather_type(float *to, const void *from, enum value_type type, size_t rows, size_t stride,
                                      size_t num_class)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t k = 0; k < num_class; k++)
            to[row * num_class + k] = (float)value_load(from, type, row * stride + k);
}

static void gather(float *to, const void *from, enum lossd_type type, size_t rows, size_t stride, size_t num_class)
{
    switch (type) {
    case LOSSD_F16:
        gather_type(to, from, VALUE_F16, rows, stride, num_class);
        return;
    case LOSSD_BF16:
        gather_type(to, from, VALUE_BF16, rows, stride, num_class);
        return;
    case LOSSD_F32:
        gather_type(to, from, VALUE_F32, rows, stride, num_class);
        return;
    }
}

static ALWAYS_INLINE void scatter_type(void *to, const float *from, enum value_type type, size_t rows, size_t stride,
                                       size_t num_class)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t k = 0; k < num_class; k++)
            value_store(to, type, row * stride + k, (double)from[row * num_class + k]);
}

static void scatter(void *to, const float *from, enum lossd_type type, size_t rows, size_t stride, size_t num_class)
{
    switch (type) {
    case LOSSD_F16:
        scatter_type(to, from, VALUE_F16, rows, stride, num_class);
        return;
    case LOSSD_BF16:
        scatter_type(to, from, VALUE_BF16, rows, stride, num_class);
        return;
    case LOSSD_F32:
        if (stride == num_class && rows > 0)
            memcpy(to, from, rows * num_class * sizeof *from);
        else
            scatter_type(to, from, VALUE_F32, rows, stride, num_class);
        return;
    }
}

/* Set a column of C values, or none. */
static void set_column(void *values, uint32_t num_candidates, size_t *count, void *field)
{
    *count = values == NULL ? 0 : num_candidates;
    memcpy(field, &values, sizeof values);
}

static void fill_task(Lossd__V1__TaskBatch *message, const struct transport *transport, const struct call *call,
                      size_t t, float **gathered)
{
    const struct task_config *config = &transport->member->config->tasks[t];
    const struct task_columns *columns = &call->layout->tasks[t];
    const enum lossd_type type = call->layout->shape.logits_type;
    const size_t num_logits = (size_t)call->candidates * config->num_class;

    lossd__v1__task_batch__init(message);
    message->name = (char *)config->name;
    message->n_logits = num_logits;
    if (lies_as_sent(type, columns->stride, config->num_class)) {
        message->logits = column(transport, call, columns->logits);
    } else {
        message->logits = *gathered;
        gather(*gathered, column(transport, call, columns->logits), type, call->candidates, columns->stride,
               config->num_class);
        *gathered += num_logits;
    }
    set_column(column(transport, call, columns->labels), call->candidates, &message->n_labels, &message->labels);
    set_column(column(transport, call, columns->weights), call->candidates, &message->n_weights, &message->weights);
    set_column(column(transport, call, columns->sessions), call->candidates, &message->n_sessions, &message->sessions);
    set_column(column(transport, call, columns->task_space), call->candidates, &message->n_task_space,
               &message->task_space);
    message->has_log_scale = call->tasks[t].has_log_scale != 0;
    message->log_scale = call->tasks[t].log_scale;
}

enum lossd_code rpc_batch_fill(struct rpc_batch *batch, const struct transport *transport, const struct call *call,
                               struct lossd_failure *failure)
{
    const struct member *member = transport->member;
    Lossd__V1__ComputeLossRequest *request = &batch->request;
    const size_t count = count_gathered(member->config, call);
    float *gathered;

    if (!make_room(batch, count))
        return failure_set(failure, OWN_OUT_OF_MEMORY, "", "memory is out for %zu logits", count);
    lossd__v1__compute_loss_request__init(request);
    request->group = (char *)member->group;
    request->has_rank = true;
    request->rank = member->rank;
    request->has_generation = true;
    request->generation = member->generation;
    request->has_step = call->has_step;
    request->step = call->step;
    request->n_lengths = call->requests;
    request->lengths = column(transport, call, call->layout->lengths);
    set_column(column(transport, call, call->layout->label_bits), call->candidates, &request->n_label_bits,
               &request->label_bits);
    request->has_skip_gradient = call->skip_gradient;
    request->skip_gradient = call->skip_gradient;
    request->has_gradient_scale = true;
    request->gradient_scale = call->gradient_scale;
    request->n_tasks = member->config->num_tasks;
    request->tasks = batch->task_pointers;
    gathered = batch->gathered;
    for (size_t t = 0; t < request->n_tasks; t++) {
        batch->task_pointers[t] = &batch->tasks[t];
        fill_task(&batch->tasks[t], transport, call, t, &gathered);
    }
    return LOSSD_CODE_OK;
}

static bool fits(const Lossd__V1__ComputeLossResponse *response, const struct group_config *config,
                 const struct call *call)
{
    if (response->n_tasks != config->num_tasks || response->local == NULL || response->world == NULL)
        return false;
    for (size_t t = 0; t < response->n_tasks; t++) {
        const Lossd__V1__TaskResult *task = response->tasks[t];
        const size_t num_logits = (size_t)call->candidates * config->tasks[t].num_class;

        if (task->n_terms != config->tasks[t].num_losses || task->n_gradient != (call->skip_gradient ? 0 : num_logits))
            return false;
    }
    return true;
}

static void take_terms(const Lossd__V1__TaskResult *message, struct lossd_term *terms)
{
    for (size_t i = 0; i < message->n_terms; i++) {
        terms[i].value = message->terms[i]->value;
        terms[i].local_mean = message->terms[i]->local_mean;
        terms[i].sum = message->terms[i]->sum;
        terms[i].denominator = message->terms[i]->denominator;
        terms[i].factor = message->terms[i]->factor;
    }
}

static struct lossd_counts counts_of(const Lossd__V1__Counts *message)
{
    return (struct lossd_counts){
        .requests = message->requests,
        .candidates = message->candidates,
        .ranks = message->ranks,
    };
}

enum lossd_code rpc_batch_take(const Lossd__V1__ComputeLossResponse *response, const struct transport *transport,
                               const struct call *call, const struct answer *answer, struct lossd_failure *failure)
{
    const struct group_config *config = transport->member->config;
    struct lossd_result *result = answer->result;
    struct lossd_term *terms = answer->terms;

    if (!fits(response, config, call))
        return failure_set(failure, OWN_INTERNAL, "tasks", "the answer has not the shape of the batch");
    for (size_t t = 0; t < response->n_tasks; t++) {
        const Lossd__V1__TaskResult *message = response->tasks[t];
        const struct task_columns *columns = &call->layout->tasks[t];
        struct lossd_task_result *task = &answer->tasks[t];

        task->loss = message->loss;
        task->nonfinite_units = message->nonfinite_units;
        task->has_log_scale_gradient = message->has_log_scale_gradient != 0;
        task->log_scale_gradient = message->log_scale_gradient;
        take_terms(message, terms);
        terms += message->n_terms;
        if (!call->skip_gradient)
            scatter(column(transport, call, columns->gradient), message->gradient, call->layout->shape.gradient_type,
                    call->candidates, columns->stride, config->tasks[t].num_class);
    }
    result->step = response->step;
    result->loss = response->loss;
    result->local = counts_of(response->local);
    result->world = counts_of(response->world);
    result->request_factor = response->request_factor;
    result->candidate_factor = response->candidate_factor;
    result->replayed = response->replayed != 0;
    return LOSSD_CODE_OK;
}

void rpc_batch_finish(struct rpc_batch *batch)
{
    free(batch->gathered);
    batch->gathered = NULL;
    batch->gathered_capacity = 0;
}
