/* Calls: announced, submitted, waited for; made again on a link that was lost. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/failure.h"

/* NULL for a batch of another client, and for all before joining. */
static struct slot *slot_of(struct lossd_client *client, const struct lossd_batch *batch)
{
    for (uint32_t i = 0; client->slots != NULL && i < client->settings.num_slots; i++)
        if (&client->slots[i].batch == batch)
            return &client->slots[i];
    return NULL;
}

static enum lossd_code bad_call(struct lossd_client *client, const char *what)
{
    return failure_set(&client->failure, OWN_BAD_CALL, "", "%s", what);
}

/* Calls that the daemon as it is now does not know. */
static bool any_unsent(const struct lossd_client *client)
{
    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        if (client->slots[i].state == SLOT_OPEN && !client->slots[i].is_sent)
            return true;
    return false;
}

/* The daemon answers a promise at once, or it hangs. */
static int64_t patience_end(const struct lossd_client *client, int64_t deadline_ns)
{
    const int64_t end_ns = clock_after_ms(clock_now_ns(), client->settings.patience_ms);

    return deadline_ns != NO_DEADLINE && deadline_ns < end_ns ? deadline_ns : end_ns;
}

/*
 * What comes before the announced step has to be sent first, and waits for other ranks: where that is still to be done,
 * the promise is not made. It only saves time.
 */
static enum lossd_code announce(struct lossd_client *client, uint64_t step, uint32_t requests, uint32_t candidates)
{
    int64_t deadline_ns;
    enum lossd_code code;

    if (!client->is_joined)
        return bad_call(client, "this client has joined no group");
    deadline_ns = client_deadline(client);
    do {
        code = client_connect(client, deadline_ns);
        if (code != LOSSD_CODE_OK || client->owes_last || any_unsent(client))
            return code;
        code = client->transport->ops->announce(client->transport, step, requests, candidates,
                                                patience_end(client, deadline_ns), &client->failure);
    } while (code != LOSSD_CODE_OK && client_lost_link(client));
    return code;
}

enum lossd_code lossd_announce(struct lossd_client *client, uint64_t step, uint32_t requests, uint32_t candidates,
                               struct lossd_failure *failure)
{
    return client_end(client, announce(client, step, requests, candidates), failure);
}

static void send_slot(struct lossd_client *client, struct slot *slot)
{
    if (!slot->call.has_step && client->counts_anew) {
        slot->call.has_step = true;
        slot->call.step = client->last_step + 1;
    }
    client->transport->ops->send(client->transport, &slot->call, slot->deadline_ns);
    slot->is_sent = true;
}

static enum lossd_code check_counts(struct lossd_client *client, const struct slot *slot)
{
    const struct lossd_shape *shape = &slot->layout.shape;

    if (slot->batch.requests > shape->requests)
        return failure_set(&client->failure, OWN_BAD_SHAPE, "requests", "is %u, but the batch was begun for %u",
                           slot->batch.requests, shape->requests);
    if (slot->batch.candidates > shape->candidates)
        return failure_set(&client->failure, OWN_BAD_SHAPE, "candidates", "is %u, but the batch was begun for %u",
                           slot->batch.candidates, shape->candidates);
    return LOSSD_CODE_OK;
}

/* A slot in which the daemon still works on that takes no other call: the next region has none. */
void client_drop_last(struct lossd_client *client)
{
    if (client->repeats)
        client->link = LINK_DOWN;
    client->last = NULL;
    client->owes_last = false;
    client->repeats = false;
}

static enum lossd_code submit(struct lossd_client *client, struct lossd_batch *batch, uint64_t step)
{
    struct slot *slot = slot_of(client, batch);

    if (slot == NULL || slot->state == SLOT_EMPTY)
        return bad_call(client, "the batch was not begun, or its buffers are gone");
    if (slot->state == SLOT_OPEN)
        return bad_call(client, "the batch was submitted already: wait for its answer first");
    if (check_counts(client, slot) != LOSSD_CODE_OK)
        return client->failure.code;
    if (client->last == slot)
        client_drop_last(client);
    slot->call = (struct call){
        .slot = (uint32_t)(slot - client->slots),
        .layout = &slot->layout,
        .tasks = slot->tasks,
        .has_step = step != LOSSD_STEP_COUNTS_ON,
        .step = step,
        .requests = batch->requests,
        .candidates = batch->candidates,
        .gradient_scale = batch->gradient_scale,
        .skip_gradient = batch->skip_gradient != 0,
    };
    slot->deadline_ns = client_deadline(client);
    slot->state = SLOT_OPEN;
    slot->is_sent = false;
    slot->is_abandoned = false;
    if (client->link == LINK_UP && !client->owes_last)
        send_slot(client, slot);
    return LOSSD_CODE_OK;
}

enum lossd_code lossd_submit(struct lossd_client *client, struct lossd_batch *batch, uint64_t step,
                             struct lossd_failure *failure)
{
    return client_end(client, submit(client, batch, step), failure);
}

/* Whether a rank of the table of a desync, "0-1:5 2:6", is at a lower step. */
static bool somebody_is_below(const struct lossd_failure *failure, uint64_t step)
{
    const char *text = lossd_failure_metadata(failure, "table");

    for (text = text == NULL ? NULL : strchr(text, ':'); text != NULL; text = strchr(text + 1, ':'))
        if (strtoull(text + 1, NULL, 10) < step)
            return true;
    return false;
}

/* Whether the daemon goes on with a call that nobody waits for. */
static bool keeps_calls(const struct lossd_client *client)
{
    return client->transport->ops->kind == LOSSD_TRANSPORT_SHARED_MEMORY;
}

/*
 * Ranks are one step apart at most: those whose last step is the lower one learn it from the desync, and go on to the
 * step that the others repeat, who try again meanwhile.
 */
enum lossd_code client_repeat_last(struct lossd_client *client, int64_t deadline_ns)
{
    const struct transport_ops *ops = client->transport->ops;
    struct call again = client->last->call;
    enum lossd_code code;

    again.skip_gradient = true;
    do {
        if (!client->repeats)
            ops->send(client->transport, &again, deadline_ns);
        client->repeats = false;
        code = ops->receive(client->transport, &again, NULL, deadline_ns, &client->failure);
    } while (code != LOSSD_CODE_OK && failure_is(&client->failure, "STEP_DESYNC") &&
             somebody_is_below(&client->failure, again.step));
    if (code == LOSSD_CODE_UNAVAILABLE || code == LOSSD_CODE_DEADLINE_EXCEEDED)
        return code;
    if (code != LOSSD_CODE_OK && failure_is_interruption(&client->failure)) {
        client->repeats = keeps_calls(client);
        return code;
    }
    if (code != LOSSD_CODE_OK && failure_is_of_membership(&client->failure))
        return code;
    client->owes_last = false;
    return LOSSD_CODE_OK;
}

static void note_answer(struct lossd_client *client, struct slot *slot)
{
    slot->call.has_step = true;
    slot->call.step = slot->result.step;
    client->last = slot;
    client->last_step = slot->result.step;
    client->has_last_step = true;
    client->counts_anew = false;
    outage_end(&client->outage);
}

static enum lossd_code wait_open(struct lossd_client *client, struct slot *slot)
{
    const struct answer answer = {.result = &slot->result, .tasks = slot->task_results, .terms = slot->terms};
    enum lossd_code code;

    do {
        code = client_connect(client, slot->deadline_ns);
        if (code != LOSSD_CODE_OK)
            return code;
        if (client->owes_last)
            code = client_repeat_last(client, slot->deadline_ns);
        if (code == LOSSD_CODE_OK && !slot->is_sent)
            send_slot(client, slot);
        if (code == LOSSD_CODE_OK)
            code = client->transport->ops->receive(client->transport, &slot->call, &answer, slot->deadline_ns,
                                                   &client->failure);
    } while (code != LOSSD_CODE_OK && client_lost_link(client));
    return code;
}

/* The call is over then, unless it was the wait that ended. */
static enum lossd_code finish(struct lossd_client *client, struct slot *slot)
{
    const enum lossd_code code = wait_open(client, slot);

    slot->is_abandoned = code != LOSSD_CODE_OK && failure_is_interruption(&client->failure);
    if (slot->is_abandoned)
        return code;
    slot->state = SLOT_DONE;
    if (code == LOSSD_CODE_OK)
        note_answer(client, slot);
    return code;
}

enum lossd_code client_settle(struct lossd_client *client, struct slot *slot)
{
    if (client->repeats && client->last == slot &&
        client_repeat_last(client, client_deadline(client)) != LOSSD_CODE_OK) {
        if (client->repeats)
            return client->failure.code;
        if (client_lost_link(client))
            client->link = LINK_DOWN; /* that failure is nobody's: it must not be taken for one of the next call */
    }
    if (slot->state != SLOT_OPEN || !slot->is_abandoned)
        return LOSSD_CODE_OK;
    if (keeps_calls(client) && slot->is_sent && finish(client, slot) != LOSSD_CODE_OK && slot->is_abandoned)
        return client->failure.code;
    slot->state = SLOT_DONE;
    slot->is_abandoned = false;
    return LOSSD_CODE_OK;
}

static enum lossd_code wait_for(struct lossd_client *client, struct lossd_batch *batch,
                                const struct lossd_result **result)
{
    struct slot *slot = slot_of(client, batch);
    enum lossd_code code;

    if (slot == NULL || slot->state != SLOT_OPEN)
        return bad_call(client, "the batch was not submitted, or was answered already");
    code = finish(client, slot);
    if (code == LOSSD_CODE_OK)
        *result = &slot->result;
    return code;
}

enum lossd_code lossd_wait(struct lossd_client *client, struct lossd_batch *batch, const struct lossd_result **result,
                           struct lossd_failure *failure)
{
    return client_end(client, wait_for(client, batch, result), failure);
}

enum lossd_code lossd_compute(struct lossd_client *client, struct lossd_batch *batch, uint64_t step,
                              const struct lossd_result **result, struct lossd_failure *failure)
{
    enum lossd_code code = submit(client, batch, step);

    if (code == LOSSD_CODE_OK)
        code = wait_for(client, batch, result);
    return client_end(client, code, failure);
}
