/*
 * A submission of shared memory as a batch. Control words are looked at once: copied to private memory, and the copy is
 * checked. Lengths and sessions are copied too; all other columns stay where they are.
 */
#ifndef TRANSPORT_SHM_BATCH_H
#define TRANSPORT_SHM_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "group/registry.h"
#include "lossd_shm.h"

/* What a submission may point into, and what it is for. Borrowed. */
struct shm_space {
    unsigned char *bytes; /* the region */
    uint64_t size;
    uint64_t data_offset; /* columns lie from here to size */
    const struct attachment *attachment;
    struct batch_limits limits; /* no more lengths and sessions than that are copied */
};

/*
 * A private copy of a submission and its num_tasks tasks; NULL where the arena is full. Nobody reads shared again.
 * shared: [sizeof(struct lossd_shm_submission) + num_tasks * sizeof(struct lossd_shm_task)]
 */
const struct lossd_shm_submission *shm_copy_submission(const struct lossd_shm_submission *shared, uint32_t num_tasks,
                                                       struct arena *arena);

/*
 * Check what a copy says of itself: call and flags are known, num_tasks is that of the attachment.
 * LOSSD_MALFORMED_REQUEST (call, flags, num_tasks).
 */
CHECK_RESULT
enum lossd_status shm_check_head(const struct lossd_shm_submission *copy, const struct attachment *attachment,
                                 struct lossd_error *err);

/*
 * The batch of a checked head. Columns that are absent have no values, others as many as num_candidates says:
 * batch_check compares that with the lengths. Where there are more requests or candidates than the limits allow, which
 * batch_check refuses by their number, lengths or sessions are NULL.
 *
 * arena  receives tasks, lengths and sessions.
 * batch  written on success only.
 *
 * LOSSD_MALFORMED_REQUEST, with the path of the message on the wire as field where it has one ("tasks[1].labels"):
 *   lengths, label_bits, tasks[i].logits, gradient, labels, weights, sessions, task_space
 *             not within the data block, or not a multiple of the element's size; lengths absent where there are
 *             requests; gradient absent where it is asked for and there are candidates
 *   tasks[i].logits_type, gradient_type        unknown; gradient_type neither F32 nor logits_type
 *   tasks[i].logits_stride, gradient_stride    below num_class
 *   tasks[i].has_log_scale, reserved           neither 0 nor 1; not 0
 * LOSSD_LIMIT_EXCEEDED  as arena_error.
 */
CHECK_RESULT
enum lossd_status shm_read_batch(const struct shm_space *space, const struct lossd_shm_submission *copy,
                                 struct arena *arena, struct batch *batch, struct lossd_error *err);

#endif
