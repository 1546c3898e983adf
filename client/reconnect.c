#include "client/reconnect.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/failure.h"

#define SHORTEST_NS (10 * NS_PER_MS)
#define LONGEST_NS  (1 * NS_PER_S)

void backoff_init(struct backoff *backoff, uint64_t seed)
{
    backoff->random = seed | 1;
    backoff_restart(backoff);
}

void backoff_restart(struct backoff *backoff)
{
    backoff->interval_ns = SHORTEST_NS;
}

/* xorshift64*: good enough to keep clients apart. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

int64_t backoff_next_ns(struct backoff *backoff)
{
    const double factor = 0.5 + (double)(next_random(&backoff->random) >> 11) * 0x1p-53;
    const int64_t wait_ns = (int64_t)((double)backoff->interval_ns * factor);

    backoff->interval_ns = backoff->interval_ns < LONGEST_NS / 2 ? 2 * backoff->interval_ns : LONGEST_NS;
    return wait_ns;
}

void outage_end(struct outage *outage)
{
    outage->is_over = true;
}

static void outage_begin(struct outage *outage, int64_t now_ns)
{
    outage->is_over = false;
    outage->since_ns = now_ns;
    outage->attempts = 0;
    backoff_restart(&outage->backoff);
}

/* A link that goes down soon after it came up is the same outage. */
static void lose_link(struct lossd_client *client, enum link_state link)
{
    const int64_t now_ns = clock_now_ns();

    if (client->link == LINK_UP && now_ns - client->outage.up_ns > LONGEST_NS)
        outage_begin(&client->outage, now_ns);
    client->link = link;
}

bool client_lost_link(struct lossd_client *client)
{
    if (failure_is_of_connection(&client->failure)) {
        lose_link(client, LINK_DOWN);
        return true;
    }
    if (failure_is_of_membership(&client->failure)) {
        lose_link(client, LINK_DOUBTFUL);
        return true;
    }
    /* Whatever the daemon does with that call: it must not be taken for the next one's. */
    if (failure_is(&client->failure, "NO_ANSWER"))
        lose_link(client, LINK_DOWN);
    return false;
}

static enum lossd_code give_up(struct lossd_client *client, int64_t now_ns)
{
    const int64_t away_ms = (now_ns - client->outage.since_ns) / NS_PER_MS;
    char message[sizeof client->failure.message];

    outage_end(&client->outage);
    if (!client->is_joined || !failure_is(&client->failure, "CANNOT_CONNECT"))
        return client->failure.code;
    memcpy(message, client->failure.message, sizeof message);
    return failure_set(&client->failure, OWN_CONNECTION_LOST, "", "the daemon has been away for %" PRId64 " ms: %.400s",
                       away_ms, message);
}

/* False where it was interrupted. */
static bool sleep_until(int64_t end_ns, struct interrupt *interrupt)
{
    int64_t rest_ns;

    while ((rest_ns = end_ns - clock_now_ns()) > 0) {
        const int64_t wait_ns = rest_ns < INTERRUPT_INTERVAL_NS ? rest_ns : INTERRUPT_INTERVAL_NS;
        const struct timespec wait = {.tv_nsec = wait_ns};

        if (interrupt_asks(interrupt))
            return false;
        (void)nanosleep(&wait, NULL);
    }
    return true;
}

enum lossd_code client_persist(struct lossd_client *client, enum lossd_code (*attempt)(struct lossd_client *client),
                               int64_t deadline_ns)
{
    struct outage *outage = &client->outage;
    enum lossd_code code;

    if (outage->is_over)
        outage_begin(outage, clock_now_ns());
    for (;;) {
        if (outage->attempts++ > 0) {
            const int64_t end_ns = clock_after_ms(outage->since_ns, client->settings.reconnect_ms);
            const int64_t now_ns = clock_now_ns();
            const int64_t wait_ns = backoff_next_ns(&outage->backoff);

            if (now_ns + wait_ns > end_ns || (deadline_ns != NO_DEADLINE && now_ns + wait_ns > deadline_ns))
                return give_up(client, now_ns);
            if (!sleep_until(now_ns + wait_ns, &client->settings.interrupt)) {
                outage_end(outage);
                return failure_set(&client->failure, OWN_INTERRUPTED, "", "the wait was interrupted");
            }
        }
        code = attempt(client);
        if (code == LOSSD_CODE_OK)
            break;
        if (!failure_is_of_connection(&client->failure) && !failure_is(&client->failure, "NO_ANSWER")) {
            outage_end(outage);
            return code;
        }
    }
    outage->up_ns = clock_now_ns();
    client->link = LINK_UP;
    return LOSSD_CODE_OK;
}

static enum lossd_code stale(struct lossd_client *client, uint64_t generation, const char *why)
{
    struct lossd_error err;

    error_init(&err);
    (void)error_set(&err, LOSSD_STALE_GENERATION, "generation", "the group is at generation %" PRIu64 ", %s",
                    generation, why);
    error_add_metadata(&err, "generation", "%" PRIu64, generation);
    return failure_from_error(&client->failure, &err);
}

/* Whether the daemon that answers now is another one than that which this rank joined. */
static enum lossd_code look(struct lossd_client *client, bool *is_other)
{
    const uint64_t ours = client->member.generation;
    struct group_facts facts;
    const enum lossd_code code = rpc_get_group(client->rpc, client->me.group, client->me.rank, &facts, NULL, NULL,
                                               &client->failure);

    *is_other = true;
    if (code != LOSSD_CODE_OK)
        return failure_is(&client->failure, "GROUP_NOT_FOUND") ? LOSSD_CODE_OK : code;
    if (facts.generation > ours)
        return stale(client, facts.generation, "which began when a rank joined anew");
    if (facts.generation < ours && facts.has_joined)
        return stale(client, facts.generation, "of a new daemon, and somebody else has joined as this rank");
    *is_other = !facts.has_joined;
    return LOSSD_CODE_OK;
}

/* The same process, by its instance, with the same config. */
static enum lossd_code join_other(struct lossd_client *client)
{
    struct joined joined;
    struct lossd_error err;
    const enum lossd_code code = rpc_join(client->rpc, &client->me, client->config_message, &joined, &client->failure);

    if (code != LOSSD_CODE_OK)
        return code;
    if (strcmp(joined.config_digest, client->member.config_digest) != 0) {
        error_init(&err);
        (void)error_set(&err, LOSSD_CONFIG_DIGEST_MISMATCH, "config",
                        "has another digest since the daemon was started anew");
        error_add_metadata(&err, "mine", "%s", client->member.config_digest);
        error_add_metadata(&err, "first_seen", "%s", joined.config_digest);
        return failure_from_error(&client->failure, &err);
    }
    client->member.generation = joined.generation;
    client->owes_last = client->last != NULL;
    client->counts_anew = client->has_last_step;
    return LOSSD_CODE_OK;
}

/* A doubt is settled by this: the daemon means what it said where it does not know better now, and goes on with us. */
static enum lossd_code reconnect(struct lossd_client *client)
{
    const bool in_doubt = client->link == LINK_DOUBTFUL;
    const enum lossd_code doubt = client->failure.code;
    bool is_other = false;
    enum lossd_code code;

    client->link = LINK_DOWN;
    code = look(client, &is_other);
    if (code == LOSSD_CODE_OK && !is_other && in_doubt) {
        client->link = LINK_UP;
        return doubt;
    }
    if (code == LOSSD_CODE_OK && is_other)
        code = join_other(client);
    if (code == LOSSD_CODE_OK)
        code = client->transport->ops->attach(client->transport, client->transport->data_bytes, &client->failure);
    if (code != LOSSD_CODE_OK)
        return code;
    client->repeats = false;
    for (uint32_t i = 0; i < client->settings.num_slots; i++)
        client->slots[i].is_sent = false;
    return LOSSD_CODE_OK;
}

enum lossd_code client_connect(struct lossd_client *client, int64_t deadline_ns)
{
    return client->link == LINK_UP ? LOSSD_CODE_OK : client_persist(client, reconnect, deadline_ns);
}
