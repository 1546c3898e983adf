/*
 * The parts of shared memory among themselves: shm_thread.c is the thread, shm_connection.c a trainer's connection,
 * shm_peer.c the trainer's process, shm_attach.c its way to a region, shm_session.c what an ATTACH has made, shm_call.c
 * the call of a slot.
 *
 * Everything belongs to the thread, but for an open call: that is the registry's until its answer is written, on any
 * thread. It holds its connection (and with it session and region) by a count.
 *
 * Words that tell the other side to wake up, and the word after which one sleeps, are stored and loaded sequentially
 * consistent: in the one order of these either side sees what the other has stored.
 */
#ifndef TRANSPORT_SHM_INTERNAL_H
#define TRANSPORT_SHM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/spinner.h"
#include "lossd_shm.h"
#include "transport/shm.h"
#include "transport/shm_batch.h"
#include "transport/shm_region.h"

enum { SHM_MAX_LISTENERS = 64 };

struct shm_session;
struct shm_connection;

/* A place of one call at a time. */
struct shm_slot {
    struct shm_session *session;
    struct lossd_shm_submission *shared;
    struct lossd_shm_answer *answer;
    uint64_t sequence;   /* of the submission that was taken last; 0 before the first */
    uint32_t call;       /* of enum lossd_shm_call */
    atomic_bool is_open; /* from when a submission is taken until its answer is written */
    int64_t taken_ns;
    struct submission submission;
};

/* What one ATTACH has made. */
struct shm_session {
    struct shm_connection *connection;
    char group[NAME_MAX_LENGTH + 1];
    struct address address; /* its group is the one above */
    struct attachment attachment;
    struct shm_region region;
    struct lossd_shm_attached layout; /* the record that the trainer gets */
    struct lossd_shm_control *control;
    uint32_t bell;            /* as seen last */
    struct shm_slot *slots;   /* [layout.num_slots] */
    struct shm_session *next; /* in the waste */
};

/* Of shm_connection.calls: nobody needs the connection any more but its open calls. */
enum { SHM_CONNECTION_ENDS = 1 << 30 };

struct shm_connection {
    struct shm *shm;
    int fd;
    int peer_fd;                 /* pidfd of the trainer: children of it may hold the socket open; -1: none */
    int64_t deadline_ns;         /* to attach; NO_DEADLINE once it has */
    bool ends;                   /* no record or submission is taken any more */
    atomic_uint calls;           /* open ones, and SHM_CONNECTION_ENDS */
    struct shm_session *session; /* in service; NULL before the first */
    struct shm_session *retired; /* the one before, until something is submitted in the one in service */
    struct shm_session *coming;  /* waits for room, or is being touched; meanwhile no submission is taken */
    struct shm_connection *previous;
    struct shm_connection *next;
};

struct shm {
    struct shm_settings settings;
    struct registry *registry;
    struct counters *counters;
    struct memory_budget *budget;
    struct memory_budget regions;
    size_t compute_method; /* rows of the table of methods */
    size_t announce_method;
    atomic_size_t open_calls;
    atomic_bool is_closed;
    atomic_bool stops;
    struct log_quota log_quota; /* of what trainers do wrong */

    int epoll_fd;
    int wake_fd; /* eventfd: closed, stopped, room for a region, the last call of a connection that ends is answered */
    int listen_fds[SHM_MAX_LISTENERS]; /* -1 once it is closed */
    size_t num_listeners;
    bool is_started;
    pthread_t thread;

    int waste_fd; /* eventfd: there is waste */
    pthread_mutex_t waste_lock;
    struct shm_session *waste; /* under the lock: for the main thread to destroy */
    atomic_size_t num_waste;   /* sessions whose regions are still counted, those that are being destroyed included */

    /* The thread's. */
    struct spinner spinner;
    struct shm_connection *connections;
    struct shm_connection *turn; /* whose region is touched next; NULL: the first */
    size_t num_connections;
    size_t num_coming;        /* regions that are being touched */
    size_t num_waiting;       /* sessions that wait for room for theirs */
    size_t num_ending;        /* connections that wait for their last call */
    int64_t next_deadline_ns; /* to attach: none is earlier */
    int64_t next_look_ns;     /* at the sockets */
    int64_t accept_again_ns;  /* descriptors were out; 0: sockets are watched */
};

/* shm_thread.c. The thread; context is the shm. */
void *shm_run(void *context);

/* The thread, or the main thread when it is over. May be called again. */
void shm_close_listeners(struct shm *shm);

/* shm.c. Have the thread look around. Any thread. */
void shm_wake(const struct shm *shm);

/* shm_session.c. */

/*
 * Check an ATTACH, attach its rank, and make the region, as shm_session_make_region does. LOSSD_INVALID_ARGUMENT
 * (group, num_slots), LOSSD_LIMIT_EXCEEDED (data_bytes; metadata "limit" "region_bytes", "regions_bytes"),
 * LOSSD_OVERLOADED, and as registry_attach. *token: of the attachment, also where it fails after that; 0 where it fails
 * before.
 */
CHECK_RESULT
enum lossd_status shm_session_create(struct shm_connection *connection, const struct lossd_shm_attach *attach,
                                     struct shm_session **session, uint64_t *token, struct lossd_error *err);

/*
 * Make the region, untouched. Success without one where others have all the room, and some of them is about to go: to
 * be tried again when that is gone. LOSSD_LIMIT_EXCEEDED (regions_bytes), LOSSD_OVERLOADED.
 */
CHECK_RESULT
enum lossd_status shm_session_make_region(struct shm_session *session, struct lossd_error *err);

static inline bool shm_session_has_region(const struct shm_session *session)
{
    return session->region.bytes != NULL;
}

/*
 * The session is over; the main thread does the work, and its bytes are counted until that is done. No call is open.
 * Takes NULL. Says nothing to the registry.
 */
void shm_session_discard(struct shm_session *session);

/*
 * The work, and the thread is woken up. The trainer loses the pages of the region, unless the daemon stops: then it
 * goes on to use what it has mapped.
 */
void shm_session_destroy(struct shm *shm, struct shm_session *session);

/* Whether a submission may have come since the bell was seen last. */
static inline bool shm_session_rings(const struct shm_session *session)
{
    return __atomic_load_n(&session->control->bell, __ATOMIC_SEQ_CST) != session->bell;
}

/* shm_peer.c. */

/*
 * A pidfd of the process that has connected the socket at the other end. -1 where none can be had: the system is too
 * old, the process is of another namespace or gone, descriptors are out.
 */
int shm_peer_pidfd(int fd);

/* shm_connection.c. */

/* Takes over fd. NULL where memory is out; then fd is closed. */
struct shm_connection *shm_connection_open(struct shm *shm, int fd);

/* Whether submissions are looked for: not while another region is coming, for there can be none. */
static inline bool shm_connection_is_served(const struct shm_connection *connection)
{
    return connection->session != NULL && connection->coming == NULL && !connection->ends;
}

/* The socket is readable, or the end of it or of its trainer has come. The connection may be gone afterwards. */
void shm_connection_receive(struct shm_connection *connection, bool has_ended);

/*
 * Take what has been submitted. How many calls; -1 where the trainer broke the rules: the connection ends, and may be
 * gone.
 */
int shm_connection_serve(struct shm_connection *connection);

/* Send REFUSED without waiting; false where that does not go. */
bool shm_send_refused(int fd, const struct lossd_error *why);

/* Close a socket so that its peer can read what was sent, whatever else it sends. */
void shm_close_socket(int fd);

/* The trainer is told what it did wrong, and let go. The connection may be gone afterwards. */
void shm_connection_break_off(struct shm_connection *connection, const struct lossd_error *why);

/* Cancel its calls, and tell the registry. It goes now, or is reaped when the last of them is answered. */
void shm_connection_end(struct shm_connection *connection);

/* Frees a connection that ends and has no open call; false for others. */
bool shm_connection_reap(struct shm_connection *connection);

/* shm_attach.c. */

/* Take an ATTACH. The connection may be gone afterwards. */
void shm_attach(struct shm_connection *connection, const struct lossd_shm_attach *record);

/* Make the region of the session that waits for room, if there is some now. The connection may be gone afterwards. */
void shm_connection_make_region(struct shm_connection *connection);

/* Touch the next piece of the region that is coming. The connection may be gone afterwards. */
void shm_connection_touch(struct shm_connection *connection);

/* Tell the registry that the connection no longer speaks for the session's rank. */
void shm_detach(struct shm_connection *connection, const struct shm_session *session);

/* The session that is coming does not come. Says nothing to the registry. */
void shm_drop_coming(struct shm_connection *connection);

/* The trainer has no use for the region before the one in service. */
void shm_drop_retired(struct shm_connection *connection);

/* shm_call.c. */

/* Take the submission of a slot that has no open call: it is answered, maybe before this returns. */
void shm_slot_take(struct shm_slot *slot, uint64_t sequence);

/* shm_answer.c. */

/* The strings, the codes and the metadata in use. */
void shm_fill_error(struct lossd_shm_error *to, const struct lossd_error *from);

/*
 * Everything but the sequence: the submission's error, or its result, where its call has one. A result that does not
 * fit the layout becomes an error of the submission.
 */
void shm_fill_answer(struct lossd_shm_answer *answer, const struct lossd_shm_attached *layout, bool has_result,
                     struct submission *submission);

#endif
