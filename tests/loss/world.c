#include "loss/world.h"

#include <stdlib.h>

struct world *world_create(void)
{
    struct world *world = calloc(1, sizeof *world);

    if (world == NULL)
        abort();
    arena_init(&world->arena, (size_t)1 << 30, NULL);
    error_init(&world->err);
    return world;
}

void world_destroy(struct world *world)
{
    arena_finish(&world->arena);
    free(world);
}

static enum lossd_status check_and_prepare(struct world *world, const struct group_config *config,
                                           struct world_rank *rank)
{
    const struct batch_limits limits = {1U << 22, 1U << 24};
    enum lossd_status status = batch_check(rank->batch, config, world->plan.rules, &limits, &world->arena, &world->err);

    if (status == LOSSD_OK)
        status = loss_prepare(&world->plan, rank->batch, &world->arena, &rank->prepared, &world->err);
    if (status == LOSSD_OK)
        status = loss_result_alloc(&world->plan, rank->batch, &world->arena, &rank->result, &world->err);
    return status;
}

enum lossd_status world_run(struct world *world, const struct group_config *config, struct batch *batches,
                            size_t num_ranks)
{
    enum lossd_status status = loss_plan_init(&world->plan, config, &world->arena, &world->err);

    world->num_ranks = num_ranks;
    world->totals = (struct totals){.num_ranks = (uint32_t)num_ranks};
    for (size_t r = 0; r < num_ranks && status == LOSSD_OK; r++) {
        world->ranks[r].batch = &batches[r];
        status = check_and_prepare(world, config, &world->ranks[r]);
        for (uint32_t d = 0; d < world->plan.num_denominators && status == LOSSD_OK; d++)
            world->totals.sums[d] += world->ranks[r].prepared.contribution[d];
    }
    for (size_t r = 0; r < num_ranks && status == LOSSD_OK; r++) {
        struct world_rank *rank = &world->ranks[r];

        rescale(&world->plan, &rank->prepared, &world->totals, &rank->scales);
        loss_run(&world->plan, &rank->prepared, &rank->scales, &rank->result);
    }
    return status;
}

struct loss_config default_loss(enum loss_kind kind)
{
    struct loss_config loss = {.kind = kind, .weight = 1.0};

    if (kind == LOSS_BINARY_FOCAL) {
        loss.binary_focal.gamma = 2.0;
        loss.binary_focal.alpha = 0.5;
        loss.binary_focal.detach_weight = true;
    }
    if (kind == LOSS_JRC)
        loss.jrc.alpha = 0.5;
    if (kind == LOSS_LISTWISE_RANK) {
        loss.listwise_rank.temperature_init = 0.07;
        loss.listwise_rank.learnable_temperature = true;
    }
    return loss;
}

struct task_config default_task(const char *name, const struct loss_config *losses, size_t num_losses)
{
    return (struct task_config){
        .name = name,
        .num_class = 1,
        .weight = 1.0,
        .in_task_space_weight = 1.0,
        .out_task_space_weight = 1.0,
        .losses = losses,
        .num_losses = num_losses,
    };
}

struct group_config default_config(const struct task_config *tasks, size_t num_tasks)
{
    return (struct group_config){
        .tasks = tasks,
        .num_tasks = num_tasks,
        .global_average = true,
        .step_timeout_ms = 120000,
        .first_step_timeout_ms = 600000,
    };
}
