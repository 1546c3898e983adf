/* Joining a group, choosing the way to its daemon, leaving. */
#include <string.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/failure.h"

/* How long a rank that leaves waits for others that may need its last batch from it, where the daemon has just been
 * started anew. They look for the daemon every 1.5 s at least. */
enum { LEAVE_GRACE_MS = 2000 };

void client_forget(struct lossd_client *client)
{
    if (client->transport != NULL)
        client->transport->ops->destroy(client->transport);
    client->transport = NULL;
    client->link = LINK_DOWN;
    client->is_joined = false;
    client->slots = NULL;
    client->last = NULL;
    client->next_slot = 0;
    client->owes_last = false;
    client->repeats = false;
    client->has_last_step = false;
    client->counts_anew = false;
    client->config_message = NULL;
    client->config = (struct group_config){0};
    client->config_json = NULL;
    client->member = (struct member){.generation = 0};
    arena_finish(&client->arena);
}

/* Attach over this transport, which is then the client's; destroyed where that fails. NULL: memory is out. */
static enum lossd_code try_transport(struct lossd_client *client, struct transport *transport)
{
    static const struct lossd_shape plain = {.requests = 0};
    const uint64_t slot_bytes = slots_expected_bytes(client, &plain);
    enum lossd_code code;

    if (transport == NULL)
        return failure_set(&client->failure, OWN_OUT_OF_MEMORY, "", "memory is out");
    transport->slot_bytes = slot_bytes;
    transport->patience_ms = client->settings.patience_ms;
    transport->interrupt = &client->settings.interrupt;
    code = transport->ops->attach(transport, slot_bytes * client->settings.num_slots, &client->failure);
    if (code != LOSSD_CODE_OK) {
        transport->ops->destroy(transport);
        return code;
    }
    client->transport = transport;
    return LOSSD_CODE_OK;
}

/* Shared memory where it can be had; where nobody offers it (in a version that is known), HTTP, if that is allowed. */
static enum lossd_code choose_transport(struct lossd_client *client)
{
    const struct settings *settings = &client->settings;
    const bool may_share = settings->transport == LOSSD_TRANSPORT_AUTO && settings->shm_path[0] != '\0';
    enum lossd_code code;

    if (may_share || settings->transport == LOSSD_TRANSPORT_SHARED_MEMORY) {
        code = try_transport(
            client, shm_transport_create(settings->shm_path, &client->member, settings->num_slots, settings->no_spin));
        if (!may_share || code == LOSSD_CODE_OK)
            return code;
        if (!failure_is(&client->failure, "CANNOT_CONNECT") && !failure_is(&client->failure, "VERSION"))
            return code;
    }
    return try_transport(client, rpc_transport_create(client->rpc, &client->member));
}

static enum lossd_code take_group_config(struct lossd_client *client)
{
    struct group_facts facts;

    if (client->config_message != NULL || client->config.num_tasks > 0)
        return LOSSD_CODE_OK;
    return rpc_get_group(client->rpc, client->me.group, client->me.rank, &facts, &client->arena, &client->config,
                         &client->failure);
}

static enum lossd_code join(struct lossd_client *client)
{
    struct member *member = &client->member;
    struct joined joined;
    enum lossd_code code = rpc_join(client->rpc, &client->me, client->config_message, &joined, &client->failure);

    if (code != LOSSD_CODE_OK)
        return code;
    *member = (struct member){.rank = client->me.rank, .generation = joined.generation, .config = &client->config};
    memcpy(member->group, client->me.group, sizeof member->group);
    memcpy(member->config_digest, joined.config_digest, sizeof member->config_digest);
    code = take_group_config(client);
    if (code == LOSSD_CODE_OK && client->config_json == NULL)
        code = config_to_json(&client->config, &client->arena, &client->config_json, &client->failure);
    if (code == LOSSD_CODE_OK && client->slots == NULL)
        code = slots_create(client);
    member->num_terms = config_num_terms(&client->config);
    return code == LOSSD_CODE_OK ? choose_transport(client) : code;
}

static enum lossd_code take_membership(struct lossd_client *client, const struct lossd_membership *membership)
{
    client->me = *membership;
    client->me.config = NULL;
    client->me.group[sizeof client->me.group - 1] = '\0';
    client->me.master_addr[sizeof client->me.master_addr - 1] = '\0';
    if (client->me.instance == 0)
        client->me.instance = client->instance;
    if (membership->config == NULL)
        return LOSSD_CODE_OK;
    return config_from_json(membership->config, &client->arena, &client->config_message, &client->config,
                            &client->failure);
}

enum lossd_code lossd_join(struct lossd_client *client, const struct lossd_membership *membership,
                           struct lossd_failure *failure)
{
    enum lossd_code code;

    if (client->is_joined) {
        (void)failure_set(&client->failure, OWN_BAD_CALL, "", "this client has joined a group already");
        return client_end(client, client->failure.code, failure);
    }
    client_forget(client);
    outage_end(&client->outage);
    code = take_membership(client, membership);
    if (code == LOSSD_CODE_OK)
        code = client_persist(client, join, client_deadline(client));
    client->is_joined = code == LOSSD_CODE_OK;
    if (code != LOSSD_CODE_OK)
        client_forget(client);
    return client_end(client, code, failure);
}

static enum lossd_code leave(struct lossd_client *client)
{
    return rpc_leave(client->rpc, client->me.group, client->me.rank, client->member.generation, &client->failure);
}

/* The daemon has not answered, so that nobody knows whether it has a member of this rank. */
static bool is_away(const struct lossd_failure *failure)
{
    return failure_is_of_connection(failure) || failure_is_interruption(failure) || failure_is(failure, "NO_ANSWER");
}

/*
 * Where the daemon is another one, somebody may still wait for the last step there. Where it does not want us back, it
 * has the last word on whether there is anything to leave.
 */
static enum lossd_code leave_persistently(struct lossd_client *client)
{
    const int64_t deadline_ns = client_deadline(client);
    enum lossd_code code;

    for (;;) {
        if (client->link == LINK_UP && client->owes_last &&
            client_repeat_last(client, clock_after_ms(clock_now_ns(), LEAVE_GRACE_MS)) != LOSSD_CODE_OK &&
            failure_is_interruption(&client->failure))
            return client->failure.code;
        code = leave(client);
        if (code == LOSSD_CODE_OK || !client_lost_link(client))
            return code;
        if (client_connect(client, deadline_ns) != LOSSD_CODE_OK)
            return is_away(&client->failure) ? client->failure.code : leave(client);
    }
}

/* What batches and results are made of stays, to be read; none of them can be submitted any more. */
static void part(struct lossd_client *client)
{
    client->is_joined = false;
    client->link = LINK_DOWN;
    client->last = NULL;
    client->owes_last = false;
    client->repeats = false;
    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        client->slots[i].state = SLOT_EMPTY;
}

enum lossd_code lossd_leave(struct lossd_client *client, struct lossd_failure *failure)
{
    enum lossd_code code;

    if (!client->is_joined) {
        (void)failure_set(&client->failure, OWN_BAD_CALL, "", "this client has joined no group");
        return client_end(client, client->failure.code, failure);
    }
    code = leave_persistently(client);
    if (code != LOSSD_CODE_OK && !failure_is_of_membership(&client->failure))
        return client_end(client, code, failure);
    part(client);
    return LOSSD_CODE_OK;
}
