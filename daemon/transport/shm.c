/* What the main thread does: make, start, close, clean up. */
#include "transport/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "transport/rpc.h"
#include "transport/shm_internal.h"

void shm_wake(const struct shm *shm)
{
    (void)!write(shm->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

static bool open_events(struct shm *shm)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &shm->wake_fd};

    shm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    shm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    shm->waste_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return shm->epoll_fd >= 0 && shm->wake_fd >= 0 && shm->waste_fd >= 0 &&
           epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, shm->wake_fd, &event) == 0;
}

struct shm *shm_create(const struct shm_settings *settings, struct registry *registry, struct counters *counters,
                       struct memory_budget *budget, struct lossd_error *err)
{
    struct shm *shm = calloc(1, sizeof *shm);

    if (shm == NULL) {
        (void)error_set(err, LOSSD_INTERNAL, "", "out of memory");
        return NULL;
    }
    shm->settings = *settings;
    shm->registry = registry;
    shm->counters = counters;
    shm->budget = budget;
    shm->regions.limit_bytes = settings->regions_bytes;
    shm->compute_method = (size_t)(rpc_find("/lossd.v1.LossService/ComputeLoss") - rpc_methods);
    shm->announce_method = (size_t)(rpc_find("/lossd.v1.LossService/AnnounceCounts") - rpc_methods);
    shm->next_deadline_ns = NO_DEADLINE;
    spinner_init(&shm->spinner, settings->spin_us * 1000);
    (void)pthread_mutex_init(&shm->waste_lock, NULL);
    if (!open_events(shm)) {
        (void)error_set(err, LOSSD_INTERNAL, "", "epoll fails: %s", strerror(errno));
        shm_destroy(shm);
        return NULL;
    }
    return shm;
}

enum lossd_status shm_listen(struct shm *shm, int listen_fd, struct lossd_error *err)
{
    if (shm->num_listeners == SHM_MAX_LISTENERS) {
        (void)close(listen_fd);
        return error_set(err, LOSSD_INTERNAL, "listen", "more than %d sockets of shared memory", SHM_MAX_LISTENERS);
    }
    shm->listen_fds[shm->num_listeners++] = listen_fd;
    return LOSSD_OK;
}

enum lossd_status shm_start(struct shm *shm, struct lossd_error *err)
{
    const int code = pthread_create(&shm->thread, NULL, shm_run, shm);

    if (code != 0)
        return error_set(err, LOSSD_INTERNAL, "", "pthread_create fails: %s", strerror(code));
    shm->is_started = true;
    (void)pthread_setname_np(shm->thread, "shm");
    return LOSSD_OK;
}

int shm_watch_fd(const struct shm *shm)
{
    return shm->waste_fd;
}

void shm_watch(struct shm *shm)
{
    struct shm_session *session;
    uint64_t wakes;

    (void)!read(shm->waste_fd, &wakes, sizeof wakes);
    (void)pthread_mutex_lock(&shm->waste_lock);
    session = shm->waste;
    shm->waste = NULL;
    (void)pthread_mutex_unlock(&shm->waste_lock);
    while (session != NULL) {
        struct shm_session *next = session->next;

        shm_session_destroy(shm, session);
        session = next;
    }
}

void shm_close(struct shm *shm)
{
    atomic_store(&shm->is_closed, true);
    shm_wake(shm);
}

size_t shm_open_calls(const struct shm *shm)
{
    return atomic_load(&shm->open_calls);
}

void shm_destroy(struct shm *shm)
{
    if (shm == NULL)
        return;
    atomic_store(&shm->stops, true);
    if (shm->is_started) {
        shm_wake(shm);
        (void)pthread_join(shm->thread, NULL);
    }
    shm_watch(shm);
    shm_close_listeners(shm);
    cleanup_close(&shm->epoll_fd);
    cleanup_close(&shm->wake_fd);
    cleanup_close(&shm->waste_fd);
    (void)pthread_mutex_destroy(&shm->waste_lock);
    free(shm);
}
