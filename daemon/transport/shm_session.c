/* What an ATTACH makes: the rank's place in the registry, the region, and the slots in it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/counters.h"
#include "transport/rpc.h"
#include "transport/shm_internal.h"

_Static_assert(sizeof(((struct lossd_shm_attach *)NULL)->group) == NAME_MAX_LENGTH + 1,
               "a name is as long in a record");

static enum lossd_status check_attach(const struct lossd_shm_attach *attach, const struct shm_settings *settings,
                                      struct lossd_error *err)
{
    if (memchr(attach->group, '\0', sizeof attach->group) == NULL)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "group", "has no end");
    if (attach->num_slots < 1 || attach->num_slots > LOSSD_SHM_MAX_SLOTS)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "num_slots", "is %" PRIu32 ", but has to be from 1 to %d",
                         attach->num_slots, LOSSD_SHM_MAX_SLOTS);
    if (attach->data_bytes > settings->region_bytes) {
        (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "data_bytes",
                        "is %" PRIu64 ", but at most %" PRIu64 " bytes are allowed", attach->data_bytes,
                        settings->region_bytes);
        error_add_metadata(err, "limit", "region_bytes");
        return LOSSD_LIMIT_EXCEEDED;
    }
    return LOSSD_OK;
}

static struct lossd_shm_attached make_layout(const struct lossd_shm_attach *attach, const struct attachment *attachment)
{
    struct lossd_shm_attached layout = {
        .header = {LOSSD_SHM_MAGIC, LOSSD_SHM_VERSION, LOSSD_SHM_ATTACHED, sizeof layout, 0},
        .slots_offset = lossd_shm_round_up(sizeof(struct lossd_shm_control), LOSSD_SHM_ALIGNMENT),
        .answer_offset = lossd_shm_answer_offset(attachment->num_tasks),
        .num_slots = attach->num_slots,
        .num_tasks = attachment->num_tasks,
    };
    const uint64_t page = shm_region_page_bytes();

    for (uint32_t t = 0; t < attachment->num_tasks; t++)
        layout.num_terms += attachment->tasks[t].num_losses;
    layout.slot_bytes = lossd_shm_slot_bytes(layout.num_tasks, layout.num_terms);
    layout.data_offset = lossd_shm_round_up(layout.slots_offset + layout.num_slots * layout.slot_bytes, page);
    layout.region_bytes = lossd_shm_round_up(layout.data_offset + attach->data_bytes, page);
    memcpy(layout.config_digest, attachment->digest, sizeof attachment->digest);
    return layout;
}

static void init_slots(struct shm_session *session)
{
    const uint64_t data_bytes = session->layout.region_bytes - session->layout.data_offset;
    const size_t arena_limit = RPC_ARENA_BASE_BYTES + RPC_ARENA_BYTES_PER_BYTE * data_bytes;

    for (uint32_t s = 0; s < session->layout.num_slots; s++) {
        struct shm_slot *slot = &session->slots[s];
        unsigned char *start = session->region.bytes + session->layout.slots_offset + s * session->layout.slot_bytes;

        slot->session = session;
        slot->shared = (struct lossd_shm_submission *)(void *)start;
        slot->answer = (struct lossd_shm_answer *)(void *)(start + session->layout.answer_offset);
        submission_init(&slot->submission, arena_limit, session->connection->shm->budget);
    }
}

/* Bytes that are about to be free: their trainers are gone, or have other regions. */
static bool has_bytes_to_come(const struct shm *shm)
{
    return atomic_load(&shm->num_waste) > 0 || shm->num_ending > 0;
}

enum lossd_status shm_session_make_region(struct shm_session *session, struct lossd_error *err)
{
    struct shm *shm = session->connection->shm;
    const bool may_wait = has_bytes_to_come(shm);
    const enum lossd_status status = shm_region_create(&session->region, session->layout.region_bytes, &shm->regions,
                                                       err);

    if (status == LOSSD_LIMIT_EXCEEDED && may_wait) {
        error_init(err);
        return LOSSD_OK;
    }
    if (status != LOSSD_OK)
        return status;
    (void)gauge_add(&shm->counters->region_bytes, (int64_t)session->region.size);
    session->control = (struct lossd_shm_control *)(void *)session->region.bytes;
    init_slots(session);
    return LOSSD_OK;
}

enum lossd_status shm_session_create(struct shm_connection *connection, const struct lossd_shm_attach *attach,
                                     struct shm_session **session, uint64_t *token, struct lossd_error *err)
{
    struct shm *shm = connection->shm;
    struct shm_session *made;
    enum lossd_status status = check_attach(attach, &shm->settings, err);

    *token = 0;
    if (status != LOSSD_OK)
        return status;
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_set(err, LOSSD_OVERLOADED, "", "the daemon is out of memory");
    made->connection = connection;
    memcpy(made->group, attach->group, sizeof made->group);
    made->address = (struct address){made->group, true, attach->rank, true, attach->generation};
    made->region.fd = -1;
    status = registry_attach(shm->registry, &made->address, &made->attachment, err);
    if (status == LOSSD_OK) {
        *token = made->attachment.token;
        made->layout = make_layout(attach, &made->attachment);
        made->slots = calloc(made->layout.num_slots, sizeof *made->slots);
        status = made->slots == NULL ? error_set(err, LOSSD_OVERLOADED, "", "the daemon is out of memory")
                                     : shm_session_make_region(made, err);
    }
    if (status != LOSSD_OK) {
        shm_session_discard(made);
        return status;
    }
    *session = made;
    return LOSSD_OK;
}

void shm_session_discard(struct shm_session *session)
{
    struct shm *shm;

    if (session == NULL)
        return;
    shm = session->connection->shm;
    (void)atomic_fetch_add(&shm->num_waste, 1);
    (void)pthread_mutex_lock(&shm->waste_lock);
    session->next = shm->waste;
    shm->waste = session;
    (void)pthread_mutex_unlock(&shm->waste_lock);
    (void)!write(shm->waste_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void shm_session_destroy(struct shm *shm, struct shm_session *session)
{
    const uint64_t bytes = session->region.size;

    for (uint32_t s = 0; shm_session_has_region(session) && s < session->layout.num_slots; s++)
        submission_finish(&session->slots[s].submission);
    free(session->slots);
    if (!atomic_load(&shm->stops))
        shm_region_empty(&session->region);
    shm_region_finish(&session->region);
    (void)gauge_add(&shm->counters->region_bytes, -(int64_t)bytes);
    free(session);
    (void)atomic_fetch_sub(&shm->num_waste, 1);
    shm_wake(shm);
}
