/*
 * Shared memory between lossd and a trainer on its node: records of the socket, layout of the region. Both sides
 * include this file; little-endian machines with 64-bit pointers only.
 *
 * Beside each Unix socket PATH the daemon listens on PATH.shm, of type SOCK_SEQPACKET. A trainer that has joined its
 * group (JoinGroup over HTTP) connects there and attaches as its rank. The daemon answers with a region: a sealed memfd
 * that it has made, mapped and touched. The region starts with a control block; behind it, from data_offset on, the
 * trainer lays out its columns as it likes.
 *
 *   trainer                                        lossd
 *   ATTACH group, rank, generation, slots, bytes ─▶
 *                                                ◀─ ATTACHED region, layout, with the descriptor; or REFUSED, error
 *   fill columns, slot.submission, then its
 *   sequence, then control.bell                  ─▶ copies the submission once, checks the copy, computes in place
 *                                                   slot.answer, then its sequence
 *   whoever sleeps is woken by a BELL over the socket
 *
 * Trust. The daemon reads no word of the region twice that steers it: a submission is copied to private memory and the
 * copy is checked; lengths and sessions are copied before they are used; column values may be anything at any time.
 * The trainer may write anywhere in the region; what it breaks there is its own answer.
 *
 * Lifetime. A region that another ATTACHED has replaced stays as it is until the first submission in the new one, the
 * next ATTACH (a refused one, too), or the end of the connection: until then the trainer takes from it what it wants to
 * keep. Then lossd takes its pages away, and those of all regions of a connection that the trainer ends, by its death or
 * otherwise: whoever still has the descriptor or a mapping reads zeros, and what it touches there is its own memory.
 * Regions count against limits.regions_bytes until their pages are gone, so that a connection has at most two of them at
 * once; an ATTACH waits for bytes that are about to become free. A daemon that stops leaves the pages to the trainer.
 *
 * Sleeping. Before it sleeps on the socket, a side sets its sleeps word, and looks once more. The other side stores its
 * word (bell, or answer.sequence), loads the sleeps word, and sends a BELL where that is set. All four are sequentially
 * consistent, or have such a fence between the two of a side. Superfluous BELLs are harmless.
 *
 * Versions. A daemon refuses a version that it does not know with REFUSED, whose header has its own version. Reserved
 * fields are 0.
 */
#ifndef LOSSD_SHM_H
#define LOSSD_SHM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOSSD_SHM_MAGIC = 0x6d68736c, /* "lshm" */
    LOSSD_SHM_VERSION = 1,
    LOSSD_SHM_MAX_SLOTS = 16,
    LOSSD_SHM_MAX_TASKS = 64,
    LOSSD_SHM_ALIGNMENT = 64, /* of blocks, and of columns as the client library lays them out */
};

/* What the file name of the socket ends with. */
#define LOSSD_SHM_SUFFIX ".shm"

/* Records of the socket. */

enum lossd_shm_type {
    LOSSD_SHM_ATTACH = 1,   /* to lossd */
    LOSSD_SHM_ATTACHED = 2, /* from lossd, with one descriptor */
    LOSSD_SHM_REFUSED = 3,  /* from lossd: an ATTACH is refused, or, before lossd closes, what the trainer did wrong */
    LOSSD_SHM_BELL = 4,     /* both ways; the header alone */
};

struct lossd_shm_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;       /* of enum lossd_shm_type */
    uint32_t size_bytes; /* of the whole record, header included */
    uint32_t reserved;
};

/*
 * Speak for a rank from now on, with a new region of its own. Again on the same connection: another region in place of
 * the first, where no call is open (for larger batches); group, rank and slots may change, too. Both are counted until
 * the first submission in the new one (Lifetime, above).
 */
struct lossd_shm_attach {
    struct lossd_shm_header header;
    char group[64]; /* NUL-terminated */
    uint64_t generation;
    uint32_t rank;
    uint32_t num_slots;  /* 1 to LOSSD_SHM_MAX_SLOTS: calls that may be open at once */
    uint64_t data_bytes; /* of the data block: 0 to limits.region_bytes */
};

struct lossd_shm_attached {
    struct lossd_shm_header header;
    uint64_t region_bytes;  /* size of the descriptor, a multiple of the page */
    uint64_t data_offset;   /* a multiple of the page; where the trainer's columns may lie: up to region_bytes */
    uint64_t slots_offset;  /* of slot 0 */
    uint64_t slot_bytes;    /* from a slot to the next */
    uint64_t answer_offset; /* of the answer in a slot; the submission is at its start */
    uint32_t num_slots;
    uint32_t num_tasks; /* T of the group's config */
    uint32_t num_terms; /* losses of all tasks, in the order of the config */
    uint32_t reserved;
    char config_digest[72]; /* as JoinGroup answers it */
};

/* An error as the other transports have it; strings are NUL-terminated. */
struct lossd_shm_error {
    char reason[64];         /* "STEP_TIMEOUT": proto/README.md */
    char code[32];           /* "deadline_exceeded" */
    char field[160];         /* "tasks[1].labels[17]", or "" */
    char message[320];       /* one sentence without a full stop */
    uint32_t retry;          /* of enum lossd_shm_retry */
    uint32_t metadata_bytes; /* of metadata in use */
    char metadata[12288];    /* keys and values, each ended by NUL, alternating */
};

/* Whether the same call can help. */
enum lossd_shm_retry {
    LOSSD_SHM_RETRY_NEVER = 0,
    LOSSD_SHM_RETRY_SAME = 1,
    LOSSD_SHM_RETRY_HIGHER = 2, /* join again, or go on to another step */
    LOSSD_SHM_RETRY_FIX = 3,    /* something outside the call has to change first */
};

struct lossd_shm_refused {
    struct lossd_shm_header header;
    struct lossd_shm_error error;
};

/* The region. */

/* At offset 0. Each side writes its own line of the cache. */
struct lossd_shm_control {
    uint32_t bell;          /* the trainer's: number of submissions so far, modulo 2^32; atomic */
    uint32_t client_sleeps; /* the trainer's: 1 while it sleeps on the socket; atomic */
    uint32_t reserved0[14];
    uint32_t daemon_sleeps; /* lossd's; atomic */
    uint32_t reserved1[15];
};

enum lossd_shm_call {
    LOSSD_SHM_COMPUTE = 1,  /* ComputeLoss */
    LOSSD_SHM_ANNOUNCE = 2, /* AnnounceCounts: only flags, step, generation, num_requests, num_candidates are read */
};

enum lossd_shm_value_type { LOSSD_SHM_F32 = 0, LOSSD_SHM_F16 = 1, LOSSD_SHM_BF16 = 2 };

enum lossd_shm_flags {
    LOSSD_SHM_HAS_STEP = 1,
    LOSSD_SHM_SKIP_GRADIENT = 2,
    LOSSD_SHM_HAS_GENERATION = 4,
    LOSSD_SHM_REPLAYED = 8, /* of answers */
};

/*
 * Columns of a task, in the order of the config. Offsets are from the start of the region, in bytes, multiples of the
 * element's size, at or behind data_offset; 0 for an absent column. C candidates, K = num_class.
 * Row c of logits begins stride elements behind row c - 1; stride >= K.
 * Where columns overlap the answer has no meaning.
 */
struct lossd_shm_task {
    uint64_t logits;   /* [C, K] of logits_type */
    uint64_t gradient; /* [C, K] of gradient_type, F32 or logits_type; written by lossd. Not read with SKIP_GRADIENT */
    uint64_t labels;   /* [C] float */
    uint64_t weights;  /* [C] float */
    uint64_t sessions; /* [C] int64 */
    uint64_t task_space; /* [C] float */
    double log_scale;
    uint32_t logits_stride;
    uint32_t gradient_stride;
    uint8_t logits_type; /* of enum lossd_shm_value_type */
    uint8_t gradient_type;
    uint8_t has_log_scale; /* 0 or 1 */
    uint8_t reserved[5];
};

/* Written by the trainer while its slot has no open call. */
struct lossd_shm_submission {
    uint64_t sequence; /* written last; atomic. Any value but the one of the call before in this slot, and not 0 */
    uint32_t call;     /* of enum lossd_shm_call */
    uint32_t flags;    /* of enum lossd_shm_flags */
    uint64_t step;
    uint64_t generation;
    uint64_t timeout_ns; /* of the call, from when lossd takes it; 0 for none but the group's */
    uint64_t lengths;    /* [num_requests] uint32, an offset as those of tasks */
    uint64_t label_bits; /* [C] uint64; 0 for none */
    uint32_t num_requests;
    uint32_t num_candidates;
    float gradient_scale;
    uint32_t num_tasks;            /* T: all tasks of the config */
    struct lossd_shm_task tasks[]; /* [T] */
};

/* One term: value = task weight * loss weight * factor * local_mean. */
struct lossd_shm_term {
    double value;
    double local_mean;
    double sum;
    double denominator;
    double factor;
};

struct lossd_shm_task_answer {
    double loss;
    double log_scale_gradient;
    uint32_t nonfinite_units;
    uint32_t has_log_scale_gradient; /* 0 or 1 */
};

/* Written by lossd. Behind it task_answers[num_tasks], then terms[num_terms]. */
struct lossd_shm_answer {
    uint64_t sequence; /* of the submission that it answers; written last; atomic */
    uint32_t failed;   /* 1: error holds, nothing else */
    uint32_t flags;    /* LOSSD_SHM_REPLAYED */
    uint64_t step;
    double loss;
    double local_requests;
    double local_candidates;
    double world_requests;
    double world_candidates;
    double request_factor;
    double candidate_factor;
    uint32_t world_ranks;
    uint32_t reserved;
    struct lossd_shm_error error;
};

/* Where everything lies, from the numbers of an ATTACH and the config: for lossd. Trainers take what ATTACHED says. */

static inline uint64_t lossd_shm_round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static inline uint64_t lossd_shm_answer_offset(uint32_t num_tasks)
{
    return lossd_shm_round_up(sizeof(struct lossd_shm_submission) + num_tasks * sizeof(struct lossd_shm_task),
                              LOSSD_SHM_ALIGNMENT);
}

static inline uint64_t lossd_shm_slot_bytes(uint32_t num_tasks, uint32_t num_terms)
{
    return lossd_shm_round_up(lossd_shm_answer_offset(num_tasks) + sizeof(struct lossd_shm_answer) +
                                  num_tasks * sizeof(struct lossd_shm_task_answer) +
                                  num_terms * sizeof(struct lossd_shm_term),
                              LOSSD_SHM_ALIGNMENT);
}

static_assert(sizeof(struct lossd_shm_header) == 16, "on the wire");
static_assert(sizeof(struct lossd_shm_attach) == 104, "on the wire");
static_assert(sizeof(struct lossd_shm_attached) == 144, "on the wire");
static_assert(sizeof(struct lossd_shm_error) == 12872, "on the wire");
static_assert(sizeof(struct lossd_shm_refused) == 12888, "on the wire");
static_assert(sizeof(struct lossd_shm_control) == 128, "in the region");
static_assert(offsetof(struct lossd_shm_control, daemon_sleeps) == 64, "a line of the cache for each side");
static_assert(sizeof(struct lossd_shm_task) == 72, "in the region");
static_assert(sizeof(struct lossd_shm_submission) == 72, "in the region");
static_assert(sizeof(struct lossd_shm_term) == 40, "in the region");
static_assert(sizeof(struct lossd_shm_task_answer) == 24, "in the region");
static_assert(sizeof(struct lossd_shm_answer) == 88 + sizeof(struct lossd_shm_error), "in the region");

#endif
