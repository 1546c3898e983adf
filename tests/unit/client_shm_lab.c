#include "client_shm_lab.h"

#include <dirent.h>
#include <string.h>

#include "base/clock.h"
#include "support/runner.h"

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct loss_config losses[3];
static const struct task_config tasks[2] = {
    {.name = "one",
     .num_class = 1,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = losses,
     .num_losses = 2},
    {.name = "two",
     .num_class = 3,
     .in_task_space_weight = 1,
     .out_task_space_weight = 1,
     .losses = losses,
     .num_losses = 1},
};
static const struct group_config config = {.tasks = tasks, .num_tasks = 2};
const struct member lab_member = {
    .group = "some", .rank = 3, .generation = 9, .config_digest = DIGEST, .config = &config, .num_terms = 3};

void lab_init(struct lab *lab, bool no_spin)
{
    const struct lossd_shape shape = {.requests = 2, .candidates = 5, .logits_type = LOSSD_F16, .weighted_tasks = 1};

    memset(lab, 0, sizeof *lab);
    shm_daemon_start(&lab->daemon, 2, 3, DIGEST);
    lab->transport = shm_transport_create(lab->daemon.path, &lab_member, NUM_SLOTS, no_spin);
    lab->transport->slot_bytes = SLOT_BYTES;
    ck_assert_int_eq(layout_plan(&config, &shape, &lab->layout, &lab->failure), LOSSD_CODE_OK);
}

void lab_finish(struct lab *lab)
{
    lab->transport->ops->destroy(lab->transport);
    shm_daemon_stop(&lab->daemon);
}

enum lossd_code lab_attach(struct lab *lab)
{
    return lab->transport->ops->attach(lab->transport, NUM_SLOTS * SLOT_BYTES, &lab->failure);
}

enum lossd_code lab_compute(struct lab *lab, int64_t deadline_ns)
{
    const struct call call = {.slot = 1,
                              .layout = &lab->layout,
                              .tasks = lab->tasks,
                              .has_step = true,
                              .step = 41,
                              .requests = 2,
                              .candidates = 4,
                              .gradient_scale = 8};
    const struct answer answer = {&lab->result, lab->task_results, lab->terms};

    lab->transport->ops->send(lab->transport, &call, deadline_ns);
    return lab->transport->ops->receive(lab->transport, &call, &answer, deadline_ns, &lab->failure);
}

int64_t soon(uint64_t ms)
{
    return clock_after_ms(clock_now_ns(), ms);
}

int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}
