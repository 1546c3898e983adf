/*
 * What the benchmarks compute: batches that are the same on every machine, and the bare kernel, which is all that a
 * step has to do where nothing is sent anywhere. Like every benchmark they end the process where something fails.
 */
#ifndef TESTS_BENCH_WORKLOAD_H
#define TESTS_BENCH_WORKLOAD_H

#include <stdint.h>

#include "batch/batch.h"
#include "batch/result.h"
#include "loss/loss.h"
#include "loss/rescale.h"

/* Batches of a rotation, as many as a ring of liblossd has: with few, branch predictors know them by heart. */
enum { NUM_BATCHES = 15 };

/* One task with binary cross entropy: at 1e3 candidates a few microseconds, less than anybody spins. */
#define WORKLOAD_ONE_TASK "{\"tasks\":[{\"name\":\"click\",\"losses\":[{\"binary_cross_entropy\":{}}]}]}"

/* Three tasks with binary cross entropy, the first of them with a list-wise loss, too. */
#define WORKLOAD_THREE_TASKS                                                                                           \
    "{\"tasks\":[{\"name\":\"click\",\"losses\":[{\"binary_cross_entropy\":{}},{\"listwise_rank_loss\":{}}]},"         \
    "{\"name\":\"like\",\"losses\":[{\"binary_cross_entropy\":{}}]},"                                                  \
    "{\"name\":\"share\",\"losses\":[{\"binary_cross_entropy\":{}}]}]}"

/* Where the numbers of one batch are written; [C] each, lengths [C] as there are at most so many requests. */
struct columns {
    uint32_t num_requests;
    uint32_t num_candidates;
    uint32_t *lengths;
    float *logits[MAX_TASKS];
    float *labels[MAX_TASKS];
    void *gradients[MAX_TASKS]; /* where the kernel writes them; NULL: to memory of its own */
};

/*
 * Lists of log-normal length with mean 32; logits of a normal distribution; one label in eight is 1. The columns lie in
 * the arena.
 */
void columns_make(struct columns *columns, size_t num_tasks, uint32_t num_candidates, uint64_t seed,
                  struct arena *arena);

struct kernel {
    struct arena arena;   /* of config and plan */
    struct arena scratch; /* of one call, reset by the next */
    struct group_config config;
    struct loss_plan plan;
    struct batch batch;
    struct task_batch tasks[MAX_TASKS];
    struct result result; /* of the last call */
};

/* config: a GroupConfig in JSON. */
void kernel_init(struct kernel *kernel, const char *config);
void kernel_finish(struct kernel *kernel);

/* A step of one rank, from the check of its columns to its gradients, on this thread. The result is the kernel's. */
void kernel_run(struct kernel *kernel, const struct columns *columns);

/* Logits and labels copied to scratch, and as many gradients from there to gradients: what sending must cost. */
struct copies {
    float *scratch;   /* [2 * T * C] */
    float *gradients; /* [T * C] */
};
void copies_init(struct copies *copies, size_t num_tasks, uint32_t num_candidates, struct arena *arena);
void copies_run(const struct copies *copies, size_t num_tasks, const struct columns *columns);

/* "WHAT: WHY" on standard error, and the end. */
_Noreturn void bench_die(const char *what, const char *why);

#endif
