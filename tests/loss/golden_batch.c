#include "loss/golden_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss/world.h"
#include "support/runner.h"

void golden_batch_init(struct golden_batch *golden, struct json_object *object, const char *task_name)
{
    size_t count;

    *golden = (struct golden_batch){.task = {.name = task_name}};
    golden->task.logits = golden_floats(object, "logits", &golden->task.num_logits);
    golden->task.labels = golden_floats(object, "labels", &golden->task.num_labels);
    golden->task.weights = golden_floats(object, "sample_weights", &golden->task.num_weights);
    golden->task.task_space = golden_floats(object, "indicator", &golden->task.num_task_space);
    golden->task.sessions = golden_ids(object, "session_index", &golden->task.num_sessions);
    golden->batch.lengths = golden_lengths(object, "lengths", &count);
    golden->batch.num_lengths = count;
    if (golden->batch.lengths == NULL) {
        golden->one_length = (uint32_t)golden->task.num_labels;
        golden->batch.num_lengths = 1;
    }
    golden->batch.num_tasks = 1;
    golden->batch.gradient_scale = 1.0F;
    golden->batch.tasks = &golden->task;
    if (golden->batch.lengths == NULL)
        golden->batch.lengths = &golden->one_length;
}

void golden_batch_finish(struct golden_batch *golden)
{
    free((void *)(uintptr_t)golden->task.logits);
    free((void *)(uintptr_t)golden->task.labels);
    free((void *)(uintptr_t)golden->task.weights);
    free((void *)(uintptr_t)golden->task.task_space);
    free((void *)(uintptr_t)golden->task.sessions);
    if (golden->batch.lengths != &golden->one_length)
        free((void *)(uintptr_t)golden->batch.lengths);
}

static enum loss_kind kind_of(const char *name)
{
    for (int kind = 0; kind < NUM_LOSS_KINDS; kind++)
        if (strcmp(loss_kind_name(kind), name) == 0)
            return kind;
    ck_abort_msg("no loss %s", name);
}

double golden_number_or(struct json_object *config, const char *name, double otherwise)
{
    return golden_has(config, name) ? golden_number(config, name) : otherwise;
}

static enum listwise_target target_of(const char *name)
{
    static const char *const names[] = {"mean_positive", "raw", "prob", "softmax"};

    for (int target = 0; target < 4; target++)
        if (strcmp(names[target], name) == 0)
            return target;
    ck_abort_msg("no target %s", name);
}

struct loss_config golden_loss(struct json_object *entry)
{
    struct loss_config loss = default_loss(kind_of(golden_text(entry, "loss")));
    struct json_object *config = golden_get(entry, "config");

    if (loss.kind == LOSS_BINARY_CROSS_ENTROPY)
        loss.binary_cross_entropy.label_smoothing = golden_number_or(config, "label_smoothing", 0.0);
    if (loss.kind == LOSS_SOFTMAX_CROSS_ENTROPY)
        loss.softmax_cross_entropy.label_smoothing = golden_number_or(config, "label_smoothing", 0.0);
    if (loss.kind == LOSS_JRC)
        loss.jrc.alpha = golden_number(config, "alpha");
    if (loss.kind == LOSS_BINARY_FOCAL) {
        loss.binary_focal.alpha = golden_number(config, "alpha");
        loss.binary_focal.gamma = golden_number(config, "gamma");
        loss.binary_focal.detach_weight = golden_flag(config, "detach_weight");
    }
    if (loss.kind == LOSS_LISTWISE_RANK)
        loss.listwise_rank.target = target_of(golden_text(config, "target"));
    return loss;
}

void expect_near(double found, double expected, double tolerance, const char *id, const char *what)
{
    ck_assert_msg((isnan(found) && isnan(expected)) || found == expected || fabs(found - expected) <= tolerance,
                  "%s: %s is %.17g, expected %.17g", id, what, found, expected);
}

void expect_gradient(const float *found, size_t count, struct json_object *object, const char *path, double scale,
                     const char *id)
{
    size_t num_expected;
    double *expected = golden_numbers(object, path, &num_expected);

    ck_assert_msg(num_expected == count, "%s: %zu gradients, expected %zu", id, count, num_expected);
    for (size_t v = 0; v < count; v++) {
        expect_near((double)found[v], expected[v], 2e-6 * scale, id, path);
        ck_assert_msg(found[v] != 0.0F || !signbit(found[v]), "%s: gradient[%zu] is -0", id, v);
    }
    free(expected);
}
