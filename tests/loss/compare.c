#include "loss/compare.h"

#include <float.h>
#include <math.h>

#include "support/runner.h"

/* Half a unit in the last place of binary32 is 6e-8, everything before it is binary64. */
static const double gradient_tolerance = 7e-8;
static const double smallest = 1.5e-45;

static void compare_terms(const struct task_result *task, const struct reference_task *reference, const char *note)
{
    for (size_t l = 0; l < task->num_terms; l++) {
        const struct loss_term *term = &task->terms[l];
        const struct reference_term *expected = &reference->terms[l];
        const double slack = 1e-11 * fabs(expected->sum) + 1e-13 * expected->units;

        ck_assert_msg(fabs(term->sum - expected->sum) <= slack, "%s: %s %s sum is %.17g, expected %.17g", note,
                      task->name, term->name, term->sum, expected->sum);
        ck_assert_msg(fabs(term->denominator - expected->denominator) <= 1e-12 * expected->denominator,
                      "%s: %s %s denominator is %.17g, expected %.17g", note, task->name, term->name, term->denominator,
                      expected->denominator);
        ck_assert_msg(fabs(term->factor - expected->factor) <= 1e-12 * expected->factor,
                      "%s: %s %s factor is %.17g, expected %.17g", note, task->name, term->name, term->factor,
                      expected->factor);
        ck_assert_msg(fabs(term->value - expected->value) <= 1e-11 * fabs(expected->value) + 1e-11,
                      "%s: %s %s value is %.17g, expected %.17g", note, task->name, term->name, term->value,
                      expected->value);
    }
}

static void compare_gradients(const struct task_result *task, const struct reference_task *reference, const char *note)
{
    for (size_t v = 0; v < task->num_gradient; v++) {
        const double found = (double)task->gradient[v];
        const double expected = reference->gradient[v];

        if (fabs(expected) >= (double)FLT_MAX)
            continue; /* beyond binary32: infinite, or the greatest number */
        ck_assert_msg(fabs(found - expected) <= gradient_tolerance * fabs(reference->largest[v]) + smallest,
                      "%s: %s gradient[%zu] is %.9g, expected %.17g", note, task->name, v, found, expected);
        ck_assert_msg(found != 0.0 || !signbit(found), "%s: %s gradient[%zu] is -0", note, task->name, v);
    }
    if (!task->has_log_scale_gradient)
        return;
    ck_assert_msg(fabs(task->log_scale_gradient - reference->log_scale_gradient) <=
                      1e-11 * reference->log_scale_largest,
                  "%s: %s log_scale_gradient is %.17g, expected %.17g", note, task->name, task->log_scale_gradient,
                  reference->log_scale_gradient);
    ck_assert_msg(task->log_scale_gradient != 0.0 || !signbit(task->log_scale_gradient), "%s: %s -0", note, task->name);
}

void compare_rank(const struct world_rank *rank, const struct reference_rank *reference, const char *note)
{
    double sum = 0.0;

    ck_assert_uint_eq(rank->result.num_tasks, reference->num_tasks);
    for (size_t t = 0; t < reference->num_tasks; t++) {
        const struct task_result *task = &rank->result.tasks[t];

        compare_terms(task, &reference->tasks[t], note);
        compare_gradients(task, &reference->tasks[t], note);
        ck_assert_msg(task->nonfinite_units == reference->tasks[t].nonfinite_units,
                      "%s: %s nonfinite_units is %u, expected %u", note, task->name, task->nonfinite_units,
                      reference->tasks[t].nonfinite_units);
        sum += task->loss;
    }
    ck_assert(sum == rank->result.loss);
    ck_assert_msg(fabs(rank->result.loss - reference->loss) <= 1e-11 * fabs(reference->loss) + 1e-11,
                  "%s: loss is %.17g, expected %.17g", note, rank->result.loss, reference->loss);
}
