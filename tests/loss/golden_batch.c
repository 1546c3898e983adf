#include "loss/golden_batch.h"

#include <math.h>
#include <stdlib.h>

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
