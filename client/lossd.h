/*
 * lossd for training processes: join a group, fill the buffers of a batch, get its losses and gradients.
 *
 *     struct lossd_client *client;
 *     struct lossd_membership me;
 *     struct lossd_batch *batch;
 *     const struct lossd_result *result;
 *
 *     lossd_client_open(NULL, &client, &why);                    // LOSSD_ADDR
 *     lossd_membership_from_environment(&me, &why);              // torchrun's RANK, WORLD_SIZE, …
 *     me.config = "{\"tasks\": [{\"name\": \"click\", \"losses\": [{\"binary_cross_entropy\": {}}]}]}";
 *     lossd_join(client, &me, &why);
 *     for (step = 0; …; step++) {
 *         lossd_batch_begin(client, &(struct lossd_shape){.requests = B, .candidates = C}, &batch, &why);
 *         // fill batch->lengths, batch->tasks[0].logits, batch->tasks[0].labels
 *         lossd_compute(client, batch, step, &result, &why);
 *         // result->loss, batch->tasks[0].gradient
 *     }
 *     lossd_leave(client, &why);
 *     lossd_client_close(client);
 *
 * Every function that can fail returns a code, LOSSD_CODE_OK (0) for success, and writes *failure on failure only,
 * where that is not NULL. Outputs are written on success only. Strings are UTF-8.
 *
 * Threads: one thread at a time uses a client and its batches; different clients are independent. A function waits only
 * where it says so. No client may be used behind a fork, but in the process that opened it: in a child that was forked
 * off, buffers of shared memory are not mapped, and touching them ends it with SIGSEGV. lossd sees the death of the
 * process that opened the client also where such a child lives on (but where it can't watch that process: on Linux
 * before 5.3, or from another PID namespace before 6.5).
 *
 * Letters in shapes: B requests, C candidates (the sum of lengths), K classes of a task (1 for most), T tasks.
 */
#ifndef LOSSD_LOSSD_H
#define LOSSD_LOSSD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOSSD_API __attribute__((visibility("default")))

/* "0.1.0", of the library. */
LOSSD_API const char *lossd_version(void);

/* Failures. */

/* Codes of gRPC and Connect. */
enum lossd_code {
    LOSSD_CODE_OK = 0,
    LOSSD_CODE_CANCELED = 1,
    LOSSD_CODE_UNKNOWN = 2,
    LOSSD_CODE_INVALID_ARGUMENT = 3,
    LOSSD_CODE_DEADLINE_EXCEEDED = 4,
    LOSSD_CODE_NOT_FOUND = 5,
    LOSSD_CODE_ALREADY_EXISTS = 6,
    LOSSD_CODE_PERMISSION_DENIED = 7,
    LOSSD_CODE_RESOURCE_EXHAUSTED = 8,
    LOSSD_CODE_FAILED_PRECONDITION = 9,
    LOSSD_CODE_ABORTED = 10,
    LOSSD_CODE_OUT_OF_RANGE = 11,
    LOSSD_CODE_UNIMPLEMENTED = 12,
    LOSSD_CODE_INTERNAL = 13,
    LOSSD_CODE_UNAVAILABLE = 14,
    LOSSD_CODE_DATA_LOSS = 15,
    LOSSD_CODE_UNAUTHENTICATED = 16,
};

enum lossd_retry {
    LOSSD_RETRY_NEVER = 0,  /* the same call fails again */
    LOSSD_RETRY_SAME = 1,   /* the same call can succeed */
    LOSSD_RETRY_HIGHER = 2, /* join again, or go on to another step */
    LOSSD_RETRY_FIX = 3,    /* something outside the call has to change first */
};

/*
 * What went wrong. The daemon's reasons are listed in proto/README.md. Those of this library:
 *   BAD_ADDRESS      invalid_argument   LOSSD_ADDR or options.address is none of the forms
 *   BAD_OPTION       invalid_argument   another option is out of its range (field: its name)
 *   BAD_ENVIRONMENT  invalid_argument   a variable of the environment is absent or not in its range (field: its name)
 *   BAD_CONFIG       invalid_argument   config is no JSON of a GroupConfig (field: the path, "config.tasks[0]...")
 *   BAD_SHAPE        invalid_argument   a shape that the group's batches can't have (field: the member of the shape)
 *   BAD_CALL         failed_precondition  not in this order: join first, a batch that was begun, …
 *   CANNOT_CONNECT   unavailable        nobody answers at the address, for reconnect_ms
 *   CONNECTION_LOST  unavailable        the daemon went away, and did not come back for reconnect_ms
 *   NO_ANSWER        deadline_exceeded  timeout_ms is over by a second, and the daemon has not ended the call; or it
 *                                       does not answer where it need not wait (options.reconnect_ms)
 *   INTERRUPTED      canceled           options.interrupted has ended the wait
 *   VERSION          unimplemented      the daemon speaks another version of the shared-memory records
 *   OUT_OF_MEMORY    resource_exhausted
 *   INTERNAL         internal           an answer that can't be right
 * A reason is the same over every transport, and so are field and message.
 */
struct lossd_failure {
    enum lossd_code code;
    enum lossd_retry retry;
    char reason[64];   /* "STEP_TIMEOUT" */
    char field[160];   /* "tasks[0].labels[3]", or "" */
    char message[512]; /* one sentence without a full stop: what was found, what was expected */
    uint32_t metadata_bytes;
    char metadata[12288]; /* keys and values, each ended by NUL, alternating: "missing_ranks", "2-3" */
};

/* The value of a key of the metadata; NULL where there is none. Lives in *failure. */
LOSSD_API const char *lossd_failure_metadata(const struct lossd_failure *failure, const char *key);

/* The client. */

enum lossd_transport {
    /*
     * Shared memory where address is a Unix socket, and the daemon that this client joins at offers it (in a version
     * that this library knows); else protobuf. Once chosen it stays for as long as the client is joined.
     */
    LOSSD_TRANSPORT_AUTO = 0,
    LOSSD_TRANSPORT_SHARED_MEMORY = 1, /* that or nothing */
    LOSSD_TRANSPORT_HTTP_PROTOBUF = 2,
    LOSSD_TRANSPORT_HTTP_JSON = 3,
};

/*
 * Zeroes are the defaults. struct_bytes is sizeof(struct lossd_options), or 0 for that of this version.
 *
 * Shared memory has its own socket, at the path of address with ".shm" behind it, or at LOSSD_SHM_SOCKET.
 */
struct lossd_options {
    size_t struct_bytes;
    /* unix:/path, http://host:port, https://host:port or host:port; NULL: LOSSD_ADDR, else 127.0.0.1:7430 */
    const char *address;
    const char *ca_file; /* PEM, for https. NULL: LOSSD_CA_FILE, else the system's */
    enum lossd_transport transport;
    uint32_t num_slots; /* batches that may be in use at once, 1 to 15; 0: 2. See lossd_wait on more than 1 */
    /*
     * timeout_ms: of each call that waits, from lossd_submit; 0: LOSSD_TIMEOUT_MS, else the group's. reconnect_ms: how
     * long to try to reach a daemon that is away; 0: 30,000. The shorter of the two, but no more than 10 s, is also how
     * long to wait for one that says nothing where it has only to answer, as when joining; then a second more, and it
     * is NO_ANSWER. A reconnect_ms below 1,000 tries once and waits for 1,000 there.
     */
    uint64_t timeout_ms;
    uint64_t reconnect_ms;
    uint32_t no_spin;      /* 1: sleep at once where there is no answer yet, for fewer cores than processes */
    uint32_t max_requests; /* buffers are made for batches of this size at first; larger ones make new buffers */
    uint32_t max_candidates;
    /*
     * Called with interrupt_context on the thread that waits, about every 100 ms in which a function has slept, and
     * mostly at once when a signal has woken it up: anything but 0 ends the function with INTERRUPTED. Any function
     * that waits may fail so, and may then be called again, but for lossd_compute, whose batch stays submitted: go on
     * with lossd_wait. It may not use the client. NULL: nobody is asked.
     */
    uint32_t (*interrupted)(void *context);
    void *interrupt_context;
};

struct lossd_client;

/*
 * Reaches nobody yet. options may be NULL; borrowed for the call. BAD_ADDRESS, BAD_OPTION, BAD_ENVIRONMENT
 * (LOSSD_TIMEOUT_MS), OUT_OF_MEMORY.
 */
LOSSD_API enum lossd_code lossd_client_open(const struct lossd_options *options, struct lossd_client **client,
                                            struct lossd_failure *failure);

/*
 * Frees everything, batches and results too. Does not leave the group: the others then see this rank dead, over shared
 * memory at once. Takes NULL.
 */
LOSSD_API void lossd_client_close(struct lossd_client *client);

/* What is in use, once joined: SHARED_MEMORY, HTTP_PROTOBUF or HTTP_JSON; before that, AUTO or what was asked for. */
LOSSD_API enum lossd_transport lossd_client_transport(const struct lossd_client *client);

/* Membership. */

struct lossd_membership {
    char group[64]; /* 1 to 63 of [A-Za-z0-9_.-] */
    uint32_t rank;
    uint32_t world_size;
    uint32_t local_world_size;
    uint32_t nnodes; /* 0: 1 */
    uint32_t node_rank;
    char master_addr[256]; /* node 0's daemon, host:port, where nnodes > 1 */
    uint64_t instance;     /* of this process; 0: a random one of the client. Makes it harmless to join again */
    const char *config;    /* GroupConfig as JSON (ProtoJSON); NULL for groups that the daemon's file declares */
};

/*
 * From what torchrun sets: RANK, WORLD_SIZE; LOCAL_WORLD_SIZE (default WORLD_SIZE; LOCAL_RANK has to be below it),
 * GROUP_RANK (the node rank, default 0), GROUP_WORLD_SIZE or WORLD_SIZE / LOCAL_WORLD_SIZE for nnodes, MASTER_ADDR with
 * port 7430 for several nodes, TORCHELASTIC_RUN_ID for the group ("default" where it is absent; characters that names
 * can't have become "-", what is past 63 is cut). Without RANK and WORLD_SIZE: rank 0 of 1. config is NULL, instance 0.
 * Reads the environment: not beside a thread that changes it. BAD_ENVIRONMENT.
 */
LOSSD_API enum lossd_code lossd_membership_from_environment(struct lossd_membership *membership,
                                                            struct lossd_failure *failure);

/*
 * Join the group, reach its daemon, and learn its config (lossd_config). Waits for the daemon (reconnect_ms), not for
 * other ranks. membership and its config are borrowed for the call. A bad config is found before anybody is reached.
 * Batches and results of a group that was left before are gone, also where this fails.
 *
 * Fails with what JoinGroup fails with (and, without a config, GetGroup), and BAD_CALL (joined already), BAD_CONFIG,
 * CANNOT_CONNECT, NO_ANSWER, VERSION, LIMIT_EXCEEDED (metadata "limit": the daemon has no room for another trainer or
 * for buffers of the size of the options), OUT_OF_MEMORY, INTERNAL.
 */
LOSSD_API enum lossd_code lossd_join(struct lossd_client *client, const struct lossd_membership *membership,
                                     struct lossd_failure *failure);

/*
 * Leave it for good: the next step of the others ends with RANK_LEFT. Open calls end, and lossd_join may be called
 * again. Batches and results stay to be read until then, or until lossd_client_close, and with them the connection of
 * shared memory; batches can't be submitted any more. Waits for the daemon (reconnect_ms). Where it fails this client
 * is still joined.
 *
 * It succeeds also where there is nothing to leave: the daemon does not know the group any more, or not this rank, or
 * the group goes on as another generation. So whoever was told STALE_GENERATION, GROUP_NOT_FOUND or RANK_NOT_JOINED
 * leaves, and joins again.
 *
 * A daemon that was started anew since the last answer gets the last batch again first (see lossd_wait), for others
 * that may wait for it; they get 2 s to come back.
 *
 * Fails with what else LeaveGroup fails with, and BAD_CALL, CONNECTION_LOST, NO_ANSWER.
 */
LOSSD_API enum lossd_code lossd_leave(struct lossd_client *client, struct lossd_failure *failure);

/*
 * The config that the group has, which is all that a member of a declared group knows of it: a GroupConfig as JSON
 * (ProtoJSON, in one line) with all defaults filled in. NULL where this client has not joined. Lives until the next
 * lossd_join, or lossd_client_close.
 */
LOSSD_API const char *lossd_config(const struct lossd_client *client);

/* Generation of the group, as joined, or as joined again at a daemon that was started anew; 0 before. */
LOSSD_API uint64_t lossd_generation(const struct lossd_client *client);

/* Batches. */

enum lossd_type {
    LOSSD_F32 = 0,
    LOSSD_F16 = 1,
    LOSSD_BF16 = 2,
};

enum lossd_layout {
    LOSSD_PLANES = 0, /* each task's logits [C, K] by themselves */
    LOSSD_ROWS = 1,   /* one matrix [C, sum of K], as a linear layer with an output for each task gives it */
};

struct lossd_shape {
    uint32_t requests;
    uint32_t candidates;
    enum lossd_type logits_type;
    enum lossd_type gradient_type; /* F32, or logits_type */
    enum lossd_layout layout;      /* of logits and gradients */
    uint64_t weighted_tasks;       /* bit t: task t has sample weights */
};

/* Columns of one task, in the order of the config. A pointer is NULL where the task or the shape has no such column. */
struct lossd_task {
    const char *name;
    uint32_t num_class;     /* K */
    uint32_t has_log_scale; /* 1: log_scale is sent, and its gradient comes back. 0 at first */
    double log_scale;       /* ln(1 / temperature), of a task with a listwise_rank_loss that learns it */
    void *logits;           /* [C, K]; element (c, k) at c * stride + k */
    /*
     * [C, K] the same way, of gradient_type: d(loss * gradient_scale)/d(logits), once the call has been answered.
     * In F32 the same bits over every transport. In F16 and BF16 shared memory rounds once from binary64; HTTP brings
     * binary32, which is rounded again.
     */
    const void *gradient;
    size_t stride;     /* elements from a row to the next */
    float *labels;     /* [C]; NULL where the task has a label_bitmask */
    float *weights;    /* [C] where bit t of weighted_tasks is set; finite, >= 0 */
    int64_t *sessions; /* [C] where the task has LISTS_SESSIONS */
    float *task_space; /* [C] where the task has weights in or out of a task space */
};

/* Buffers of one batch: with shared memory, the daemon's own. Contents are undefined where nothing was written yet. */
struct lossd_batch {
    uint32_t requests;        /* B; may be lowered before the call */
    uint32_t candidates;      /* C; the same */
    uint32_t *lengths;        /* [B] */
    uint64_t *label_bits;     /* [C], where a task has a label_bitmask; else NULL */
    struct lossd_task *tasks; /* [num_tasks] */
    size_t num_tasks;
    float gradient_scale;   /* multiplies gradients, not losses; 1 at first */
    uint32_t skip_gradient; /* 1: losses alone; 0 at first */
};

/*
 * The next batch of the ring of num_slots, with room for shape. The batch, its buffers and its result stay as they are
 * until num_slots more have been begun. Where its call is still open: BAD_CALL, wait for it first. One for which
 * lossd_wait was interrupted is waited for here, over shared memory; what comes of it is dropped.
 *
 * A batch larger than any before makes new buffers: no call may be open then (BAD_CALL), and buffers of earlier batches
 * are gone, with gradients: columns that they point to must not be touched any more, results beside may be read. With
 * shared memory that waits for the daemon, which makes them.
 *
 * BAD_CALL (also before lossd_join), BAD_SHAPE, OUT_OF_MEMORY, LIMIT_EXCEEDED (metadata "limit": what the daemon allows
 * for buffers), CONNECTION_LOST, NO_ANSWER.
 */
LOSSD_API enum lossd_code lossd_batch_begin(struct lossd_client *client, const struct lossd_shape *shape,
                                            struct lossd_batch **batch, struct lossd_failure *failure);

/* Calls. */

struct lossd_term {
    const char *name; /* "binary_cross_entropy" */
    double value;     /* task weight * loss weight * factor * local_mean */
    double local_mean;
    double sum;
    double denominator;
    double factor;
};

struct lossd_task_result {
    const char *name;
    double loss;
    const struct lossd_term *terms; /* [num_terms] in the order of the config */
    size_t num_terms;
    uint32_t nonfinite_units;
    uint32_t has_log_scale_gradient;
    double log_scale_gradient;
};

struct lossd_counts {
    double requests;
    double candidates;
    uint32_t ranks;
};

struct lossd_result {
    uint64_t step;
    double loss; /* back-propagate this: its mean over ranks is the loss of the global batch */
    const struct lossd_task_result *tasks; /* [num_tasks] in the order of the config */
    size_t num_tasks;
    struct lossd_counts local;
    struct lossd_counts world;
    double request_factor;
    double candidate_factor;
    uint32_t replayed;
};

/* For the absent step of a group of one rank. */
#define LOSSD_STEP_COUNTS_ON UINT64_MAX

/*
 * Promise the counts of the batch of a step before it is there, so that the all-reduce is over when it comes. Waits for
 * the daemon, not for other ranks. Fails with what AnnounceCounts fails with, and BAD_CALL, CONNECTION_LOST, NO_ANSWER.
 *
 * A promise costs nothing but time where it is not made: it is left out where something has to be sent to the daemon
 * before it, over HTTP a submitted batch that was not waited for yet, or what a daemon that was started anew gets
 * again.
 */
LOSSD_API enum lossd_code lossd_announce(struct lossd_client *client, uint64_t step, uint32_t requests,
                                         uint32_t candidates, struct lossd_failure *failure);

/*
 * Hand over a batch that was filled. Its buffers must not be written until lossd_wait. Does not wait: with shared
 * memory the daemon starts at once; over HTTP the call is made by lossd_wait. A batch may be submitted again, as it is
 * or changed, once it was waited for: the next step, or the same after a failure. A rank has one step open at a time:
 * a later one ends the call of an earlier one that is not reduced yet (SUPERSEDED). BAD_CALL, BAD_SHAPE (more requests
 * or candidates than the batch was begun for).
 */
LOSSD_API enum lossd_code lossd_submit(struct lossd_client *client, struct lossd_batch *batch, uint64_t step,
                                       struct lossd_failure *failure);

/*
 * Wait for the answer of a submitted batch: until it is there, or timeout_ms of the client is over. *result belongs to
 * the batch. Fails with what ComputeLoss fails with, and BAD_CALL, CONNECTION_LOST, NO_ANSWER, OUT_OF_MEMORY, INTERNAL.
 * The call is over then, in any case but INTERRUPTED: the batch stays submitted, and lossd_wait may be called again.
 * With shared memory the daemon goes on meanwhile. Over HTTP it sees that nobody waits for its answer any more, but
 * counts this rank in; the next lossd_wait makes the call again.
 *
 * A daemon that goes away meanwhile is looked for again, for reconnect_ms, at rising intervals that differ at random,
 * and so is one that says unavailable (SHUTTING_DOWN, OVERLOADED). The open call is then sent again; `replayed` says
 * that this rank was answered before. Each call is answered once.
 *
 * A daemon keeps nothing over a restart. One that was started anew is known by what it says of the group: it does not
 * know it, or has it in a generation that is not above ours, and this rank has not joined it. There this rank joins
 * again, with the same instance and config, and sends again first what was answered last, for a rank that was not
 * answered before the daemon went. Buffers and their contents stay where they are. So leave columns and counts of an
 * answered batch as they are until the next call is answered; where its slot was begun or submitted anew before (as it
 * always is with one slot), nothing is repeated, and a step in which only some were answered ends for the others as
 * STEP_DESYNC. A group whose members have joined anew for other reasons has a higher generation: the call ends as
 * STALE_GENERATION, and nobody joins again by himself.
 */
LOSSD_API enum lossd_code lossd_wait(struct lossd_client *client, struct lossd_batch *batch,
                                     const struct lossd_result **result, struct lossd_failure *failure);

/* lossd_submit, then lossd_wait. */
LOSSD_API enum lossd_code lossd_compute(struct lossd_client *client, struct lossd_batch *batch, uint64_t step,
                                        const struct lossd_result **result, struct lossd_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
