/* All ranks of one step in one process: the calls that a daemon makes, in order, with the totals summed by hand. */
#ifndef TESTS_LOSS_WORLD_H
#define TESTS_LOSS_WORLD_H

#include "loss/loss.h"
#include "loss/rescale.h"

enum { WORLD_MAX_RANKS = 8 };

struct world_rank {
    struct batch *batch; /* borrowed */
    struct prepared_batch prepared;
    struct scales scales;
    struct result result;
};

struct world {
    struct arena arena;
    struct lossd_error err;
    struct loss_plan plan;
    struct totals totals;
    size_t num_ranks;
    struct world_rank ranks[WORLD_MAX_RANKS];
};

/* Of calloc; world_destroy gives it and all arrays back. */
struct world *world_create(void);
void world_destroy(struct world *world);

/* Plan, check, prepare, sum, rescale, run. Stops at the first failure, with world->err. */
enum lossd_status world_run(struct world *world, const struct group_config *config, struct batch *batches,
                            size_t num_ranks);

/* A config with the defaults of the wire. */
struct group_config default_config(const struct task_config *tasks, size_t num_tasks);
struct task_config default_task(const char *name, const struct loss_config *losses, size_t num_losses);
struct loss_config default_loss(enum loss_kind kind);

#endif
