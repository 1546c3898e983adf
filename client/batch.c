/* The ring of slots: the batches that the user fills, and the block that their columns lie in. */
#include <string.h>

#include "client/client.h"
#include "client/failure.h"
#include "lossd_shm.h"

enum { PAGE_BYTES = 4096 };

static void fill_names(const struct group_config *config, struct slot *slot)
{
    struct lossd_term *terms = slot->terms;

    for (size_t t = 0; t < config->num_tasks; t++) {
        const struct task_config *task = &config->tasks[t];
        struct lossd_task_result *result = &slot->task_results[t];

        slot->tasks[t].name = task->name;
        slot->tasks[t].num_class = task->num_class;
        result->name = task->name;
        result->num_terms = task->num_losses;
        result->terms = terms;
        for (size_t i = 0; i < task->num_losses; i++)
            terms[i].name = loss_kind_name(task->losses[i].kind);
        terms += task->num_losses;
    }
    slot->batch.tasks = slot->tasks;
    slot->batch.num_tasks = config->num_tasks;
    slot->result.tasks = slot->task_results;
    slot->result.num_tasks = config->num_tasks;
}

enum lossd_code slots_create(struct lossd_client *client)
{
    const struct group_config *config = &client->config;
    const size_t num_terms = config_num_terms(config);
    struct slot *slots = arena_calloc(&client->arena, client->settings.num_slots, sizeof *slots);

    for (uint32_t i = 0; slots != NULL && i < client->settings.num_slots; i++) {
        slots[i].tasks = arena_calloc(&client->arena, config->num_tasks, sizeof *slots[i].tasks);
        slots[i].task_results = arena_calloc(&client->arena, config->num_tasks, sizeof *slots[i].task_results);
        slots[i].terms = arena_calloc(&client->arena, num_terms, sizeof *slots[i].terms);
        if (slots[i].tasks == NULL || slots[i].task_results == NULL || slots[i].terms == NULL)
            slots = NULL;
        else
            fill_names(config, &slots[i]);
    }
    if (slots == NULL)
        return failure_set(&client->failure, OWN_OUT_OF_MEMORY, "", "memory is out for %u batches",
                           client->settings.num_slots);
    client->slots = slots;
    return LOSSD_CODE_OK;
}

uint64_t slots_expected_bytes(const struct lossd_client *client, const struct lossd_shape *shape)
{
    struct lossd_shape expected = *shape;
    struct batch_layout layout;
    struct lossd_failure ignored;

    expected.requests = client->settings.max_requests;
    expected.candidates = client->settings.max_candidates;
    if (expected.requests == 0 && expected.candidates == 0)
        return 0;
    if (layout_plan(&client->config, &expected, &layout, &ignored) != LOSSD_CODE_OK)
        return 0;
    return lossd_shm_round_up(layout.bytes, PAGE_BYTES);
}

static void *column(const struct lossd_client *client, const struct slot *slot, uint64_t offset)
{
    const size_t index = (size_t)(slot - client->slots);

    return offset == NO_COLUMN ? NULL : client->transport->block + index * client->transport->slot_bytes + offset;
}

static void set_columns(const struct lossd_client *client, struct slot *slot)
{
    slot->batch.lengths = column(client, slot, slot->layout.lengths);
    slot->batch.label_bits = column(client, slot, slot->layout.label_bits);
    for (size_t t = 0; t < client->config.num_tasks; t++) {
        const struct task_columns *columns = &slot->layout.tasks[t];
        struct lossd_task *task = &slot->tasks[t];

        task->logits = column(client, slot, columns->logits);
        task->gradient = column(client, slot, columns->gradient);
        task->stride = columns->stride;
        task->labels = column(client, slot, columns->labels);
        task->weights = column(client, slot, columns->weights);
        task->sessions = column(client, slot, columns->sessions);
        task->task_space = column(client, slot, columns->task_space);
    }
}

/* What is sent when nobody says otherwise. */
static void set_defaults(struct slot *slot)
{
    slot->batch.requests = slot->layout.shape.requests;
    slot->batch.candidates = slot->layout.shape.candidates;
    slot->batch.gradient_scale = 1;
    slot->batch.skip_gradient = 0;
    for (size_t t = 0; t < slot->batch.num_tasks; t++) {
        slot->tasks[t].has_log_scale = 0;
        slot->tasks[t].log_scale = 0;
    }
}

static bool any_open(const struct lossd_client *client)
{
    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        if (client->slots[i].state == SLOT_OPEN)
            return true;
    return false;
}

/* A block of so many bytes a slot, from a daemon that may have to be found first. */
static enum lossd_code attach(struct lossd_client *client, uint64_t slot_bytes)
{
    const int64_t deadline_ns = client_deadline(client);
    enum lossd_code code;

    do {
        code = client_connect(client, deadline_ns);
        if (code != LOSSD_CODE_OK)
            return code;
        code = client->transport->ops->attach(client->transport, slot_bytes * client->settings.num_slots,
                                              &client->failure);
    } while (code != LOSSD_CODE_OK && client_lost_link(client));
    return code;
}

/* The slots have moved apart; what was answered last may have to be sent again. */
static void keep_last(struct lossd_client *client, uint64_t old_slot_bytes)
{
    struct slot *last = client->last;
    const size_t index = last == NULL ? 0 : (size_t)(last - client->slots);
    uint8_t *block = client->transport->block;

    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        if (&client->slots[i] != last)
            client->slots[i].state = SLOT_EMPTY;
    if (last == NULL)
        return;
    memmove(block + index * client->transport->slot_bytes, block + index * old_slot_bytes, last->layout.bytes);
    set_columns(client, last);
}

/* Batches differ from step to step: some room above what is asked for, if it can be had. */
static enum lossd_code grow(struct lossd_client *client, const struct batch_layout *layout)
{
    struct transport *transport = client->transport;
    const uint64_t old = transport->slot_bytes;
    const uint64_t needed = lossd_shm_round_up(layout->bytes, PAGE_BYTES);
    const uint64_t expected = slots_expected_bytes(client, &layout->shape);
    uint64_t wanted = old == 0 ? needed : lossd_shm_round_up(needed + needed / 4, PAGE_BYTES);
    enum lossd_code code;

    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        if (client_settle(client, &client->slots[i]) != LOSSD_CODE_OK)
            return client->failure.code;
    if (any_open(client))
        return failure_set(&client->failure, OWN_BAD_CALL, "",
                           "a batch larger than any before needs new buffers, but a call is open: wait for it first");
    if (wanted < expected)
        wanted = expected;
    code = attach(client, wanted);
    if (code == LOSSD_CODE_RESOURCE_EXHAUSTED && wanted > needed) {
        wanted = needed;
        code = attach(client, wanted);
    }
    if (code != LOSSD_CODE_OK)
        return code;
    transport->slot_bytes = wanted;
    keep_last(client, old);
    return LOSSD_CODE_OK;
}

static bool same_shape(const struct lossd_shape *a, const struct lossd_shape *b)
{
    return a->requests == b->requests && a->candidates == b->candidates && a->logits_type == b->logits_type &&
           a->gradient_type == b->gradient_type && a->layout == b->layout && a->weighted_tasks == b->weighted_tasks;
}

/* A slot's memory for the shape, and nothing else of the slot. */
static enum lossd_code plan(struct lossd_client *client, struct slot *slot, const struct lossd_shape *shape)
{
    struct batch_layout layout;
    enum lossd_code code;

    if (slot->state != SLOT_EMPTY && same_shape(&slot->layout.shape, shape))
        return LOSSD_CODE_OK;
    code = layout_plan(&client->config, shape, &layout, &client->failure);
    if (code == LOSSD_CODE_OK && layout.bytes > client->transport->slot_bytes)
        code = grow(client, &layout);
    if (code == LOSSD_CODE_OK)
        slot->layout = layout;
    return code;
}

static enum lossd_code begin(struct lossd_client *client, const struct lossd_shape *shape, struct lossd_batch **batch)
{
    struct slot *slot;
    enum lossd_code code;

    if (!client->is_joined)
        return failure_set(&client->failure, OWN_BAD_CALL, "", "this client has joined no group");
    slot = &client->slots[client->next_slot];
    if (client_settle(client, slot) != LOSSD_CODE_OK)
        return client->failure.code;
    if (slot->state == SLOT_OPEN)
        return failure_set(&client->failure, OWN_BAD_CALL, "",
                           "all %u batches are in use, and the call of the oldest is open: wait for it first",
                           client->settings.num_slots);
    code = plan(client, slot, shape);
    if (code != LOSSD_CODE_OK)
        return code;
    if (client->last == slot)
        client_drop_last(client);
    slot->state = SLOT_FILLING;
    set_columns(client, slot);
    set_defaults(slot);
    client->next_slot = (client->next_slot + 1) % client->settings.num_slots;
    *batch = &slot->batch;
    return LOSSD_CODE_OK;
}

enum lossd_code lossd_batch_begin(struct lossd_client *client, const struct lossd_shape *shape,
                                  struct lossd_batch **batch, struct lossd_failure *failure)
{
    return client_end(client, begin(client, shape, batch), failure);
}
