/* The handle: made, freed, asked. */
#include "client/client.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "client/failure.h"

/* Of the config and of what the slots hold beside their columns. */
enum { ARENA_BYTES = 64 << 20 };

const char *lossd_version(void)
{
    return LIBLOSSD_VERSION;
}

int64_t client_deadline(const struct lossd_client *client)
{
    return client->settings.timeout_ms == 0 ? NO_DEADLINE : clock_after_ms(clock_now_ns(), client->settings.timeout_ms);
}

enum lossd_code client_end(const struct lossd_client *client, enum lossd_code code, struct lossd_failure *failure)
{
    if (code != LOSSD_CODE_OK)
        failure_copy(failure, &client->failure);
    return code;
}

static enum lossd_code draw(struct lossd_client *client, uint64_t *number)
{
    if (getrandom(number, sizeof *number, 0) == (ssize_t)sizeof *number)
        return LOSSD_CODE_OK;
    return failure_set(&client->failure, OWN_INTERNAL, "", "the system has no random numbers");
}

static enum lossd_code open_client(struct lossd_client *client, const struct lossd_options *options)
{
    enum lossd_code code = settings_read(options, &client->settings, &client->failure);
    uint64_t seed = 0;

    if (code == LOSSD_CODE_OK)
        code = draw(client, &client->instance);
    if (code == LOSSD_CODE_OK)
        code = draw(client, &seed);
    if (code == LOSSD_CODE_OK)
        code = rpc_open(client->settings.address, client->settings.ca_file, &client->rpc, &client->failure);
    if (code != LOSSD_CODE_OK)
        return code;
    client->rpc->patience_ms = client->settings.patience_ms;
    http_client_ask(client->rpc->http, &client->settings.interrupt);
    client->rpc->is_json = client->settings.transport == LOSSD_TRANSPORT_HTTP_JSON;
    arena_init(&client->arena, ARENA_BYTES, NULL);
    backoff_init(&client->outage.backoff, seed);
    return LOSSD_CODE_OK;
}

enum lossd_code lossd_client_open(const struct lossd_options *options, struct lossd_client **client,
                                  struct lossd_failure *failure)
{
    struct lossd_client *made = calloc(1, sizeof *made);
    struct lossd_failure why;
    enum lossd_code code;

    if (made == NULL) {
        code = failure_set(&why, OWN_OUT_OF_MEMORY, "", "memory is out");
        failure_copy(failure, &why);
        return code;
    }
    code = open_client(made, options);
    if (code == LOSSD_CODE_OK) {
        *client = made;
        return LOSSD_CODE_OK;
    }
    (void)client_end(made, code, failure);
    lossd_client_close(made);
    return code;
}

void lossd_client_close(struct lossd_client *client)
{
    if (client == NULL)
        return;
    client_forget(client);
    rpc_close(client->rpc);
    free(client);
}

enum lossd_transport lossd_client_transport(const struct lossd_client *client)
{
    return client->is_joined ? client->transport->ops->kind : client->settings.transport;
}

const char *lossd_config(const struct lossd_client *client)
{
    return client->is_joined ? client->config_json : NULL;
}

uint64_t lossd_generation(const struct lossd_client *client)
{
    return client->is_joined ? client->member.generation : 0;
}
