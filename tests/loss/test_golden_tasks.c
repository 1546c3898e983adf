/* Known right values of several tasks and of several losses on one task. */
#include <math.h>
#include <stdlib.h>

#include "loss/golden_batch.h"
#include "loss/world.h"
#include "support/runner.h"

static void run_two_tasks(struct json_object *entry)
{
    const char *id = golden_text(entry, "id");
    struct json_object *described = golden_get(entry, "tasks");
    const struct loss_config loss = default_loss(LOSS_BINARY_CROSS_ENTROPY);
    struct task_config tasks[2];
    const struct group_config config = default_config(tasks, 2);
    struct golden_batch golden[2];
    struct task_batch columns[2];
    struct batch batch;
    struct world *world = world_create();
    size_t count;
    float *indicator;

    for (size_t t = 0; t < 2; t++) {
        struct json_object *task = golden_at(described, t);

        tasks[t] = default_task(golden_text(task, "name"), &loss, 1);
        tasks[t].weight = golden_number(task, "weight");
        if (golden_has(task, "in_task_space_weight")) {
            tasks[t].in_task_space_weight = golden_number(task, "in_task_space_weight");
            tasks[t].out_task_space_weight = golden_number(task, "out_task_space_weight");
        }
        golden_batch_init(&golden[t], task, tasks[t].name);
        columns[t] = golden[t].task;
    }
    indicator = golden_floats(golden_at(described, 1), "task_space_indicator", &count);
    columns[1].task_space = indicator;
    columns[1].num_task_space = count;
    batch = golden[0].batch;
    batch.lengths = &golden[0].one_length;
    batch.tasks = columns;
    batch.num_tasks = 2;
    ck_assert_msg(world_run(world, &config, &batch, 1) == LOSSD_OK, "%s: %s", id, world->err.message);
    expect_near(world->ranks[0].result.tasks[0].loss, golden_number(entry, "expected.loss_t1"), 1e-6, id, "t1");
    expect_near(world->ranks[0].result.tasks[1].loss, golden_number(entry, "expected.loss_t2"), 1e-6, id, "t2");
    expect_near(world->ranks[0].result.loss, golden_number(entry, "expected.total"), 1e-6, id, "total");
    expect_gradient(world->ranks[0].result.tasks[0].gradient, 2, entry, "expected.grad_t1", 1.0, id);
    expect_gradient(world->ranks[0].result.tasks[1].gradient, 2, entry, "expected.grad_t2", 1.0, id);
    free(indicator);
    golden_batch_finish(&golden[0]);
    golden_batch_finish(&golden[1]);
    world_destroy(world);
}

START_TEST(tasks_have_their_own_weight_and_space)
{
    struct json_object *cases = golden_open("multitask");
    size_t run = 0;

    for (size_t i = 0; i < golden_count(cases); i++)
        if (golden_has(golden_at(cases, i), "tasks")) {
            run_two_tasks(golden_at(cases, i));
            run++;
        }
    ck_assert_uint_eq(run, 4);
    golden_close(cases);
}
END_TEST

/* -log(1 / 0.07), so that the gradient of the temperature comes back. */
static double log_scale_of(double temperature)
{
    return log(1.0 / temperature);
}

START_TEST(gradients_of_two_losses_of_a_task_add)
{
    struct json_object *cases = golden_open("multitask");
    struct json_object *entry = golden_case(cases, "multitask/bce_plus_listwise_loss_weights");
    struct loss_config losses[2] = {default_loss(LOSS_BINARY_CROSS_ENTROPY), default_loss(LOSS_LISTWISE_RANK)};
    struct task_config task = default_task("t", losses, 2);
    const struct group_config config = default_config(&task, 1);
    struct golden_batch golden;
    struct world *world = world_create();
    const struct task_result *result;

    task.weight = golden_number(entry, "config.task_weight");
    losses[1].weight = golden_number(golden_at(golden_get(entry, "config.losses"), 1), "weight");
    golden_batch_init(&golden, golden_get(entry, "batch"), "t");
    golden.task.has_log_scale = true;
    golden.task.log_scale = log_scale_of(0.07);
    ck_assert_msg(world_run(world, &config, &golden.batch, 1) == LOSSD_OK, "%s", world->err.message);
    result = &world->ranks[0].result.tasks[0];
    expect_near(result->terms[0].value, golden_number(entry, "expected.bce"), 1e-6, "bce", "value");
    expect_near(result->terms[1].value, golden_number(entry, "expected.listwise"), 1e-8, "listwise", "value");
    expect_near(result->loss, golden_number(entry, "expected.total"), 1e-6, "total", "value");
    expect_gradient(result->gradient, result->num_gradient, entry, "expected.grad", 1.0, "sum");
    expect_near(result->log_scale_gradient, golden_number(entry, "expected.grad_theta"), 1e-7, "theta", "gradient");
    golden_batch_finish(&golden);
    world_destroy(world);
    golden_close(cases);
}
END_TEST

START_TEST(sessions_need_not_be_adjacent)
{
    struct json_object *cases = golden_open("multitask");
    struct json_object *entry = golden_case(cases, "multitask/session_ids_unsorted");
    const struct loss_config losses[2] = {default_loss(LOSS_LISTWISE_RANK), default_loss(LOSS_BINARY_CROSS_ENTROPY)};
    struct task_config tasks[2] = {default_task("listwise", &losses[0], 1), default_task("bce", &losses[1], 1)};
    const struct group_config config = default_config(tasks, 2);
    struct golden_batch golden;
    struct task_batch columns[2];
    struct world *world = world_create();
    const struct task_result *result;
    size_t count;
    int64_t *ids = golden_ids(entry, "config.session_ids", &count);

    golden_batch_init(&golden, golden_get(entry, "batch"), "listwise");
    for (size_t t = 0; t < 2; t++) {
        tasks[t].weight = golden_number(entry, "config.task_weight");
        columns[t] = golden.task;
        columns[t].name = tasks[t].name;
    }
    tasks[0].lists = LISTS_SESSIONS;
    columns[0].sessions = ids;
    columns[0].num_sessions = count;
    columns[0].has_log_scale = true;
    columns[0].log_scale = log_scale_of(golden_number(entry, "config.temperature_init"));
    golden.batch.tasks = columns;
    golden.batch.num_tasks = 2;
    ck_assert_msg(world_run(world, &config, &golden.batch, 1) == LOSSD_OK, "%s", world->err.message);
    result = world->ranks[0].result.tasks;
    expect_near(result[0].loss, golden_number(entry, "expected.listwise"), 1e-5, "listwise", "value");
    expect_near(result[0].terms[0].denominator, golden_number(entry, "expected.num_lists"), 0.0, "lists", "count");
    expect_near(result[1].loss, golden_number(entry, "expected.bce"), 1e-6, "bce", "value");
    expect_gradient(result[0].gradient, 6, entry, "expected.grad_listwise", 5.0, "listwise");
    expect_gradient(result[1].gradient, 6, entry, "expected.grad_bce", 1.0, "bce");
    expect_near(result[0].log_scale_gradient, golden_number(entry, "expected.grad_theta"), 1e-5, "theta", "gradient");
    free(ids);
    golden_batch_finish(&golden);
    world_destroy(world);
    golden_close(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("golden_tasks");
    TCase *tcase = tcase_create("tasks");

    tcase_add_test(tcase, tasks_have_their_own_weight_and_space);
    tcase_add_test(tcase, gradients_of_two_losses_of_a_task_add);
    tcase_add_test(tcase, sessions_need_not_be_adjacent);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
