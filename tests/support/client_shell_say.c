#include "support/client_shell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "batch/values.h"

static void say_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned)*text);
        else
            printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    putchar('"');
}

static void say_failure(const struct lossd_failure *why)
{
    const char *text = why->metadata;
    const char *separator = "";

    printf("{\"code\": %d, \"retry\": %d, \"reason\": ", (int)why->code, (int)why->retry);
    say_text(why->reason);
    printf(", \"field\": ");
    say_text(why->field);
    printf(", \"message\": ");
    say_text(why->message);
    printf(", \"metadata\": {");
    while (text < why->metadata + why->metadata_bytes) {
        const char *value = text + strlen(text) + 1;

        printf("%s", separator);
        say_text(text);
        printf(": ");
        say_text(value);
        separator = ", ";
        text = value + strlen(value) + 1;
    }
    puts("}}");
}

void say(enum lossd_code code, const struct lossd_failure *why)
{
    if (code == LOSSD_CODE_OK)
        puts("{\"code\": 0}");
    else
        say_failure(why);
}

static void say_floats(const char *name, const float *values, size_t count)
{
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        printf("%s\"%a\"", i == 0 ? "" : ", ", (double)values[i]);
    printf("]");
}

/* Rows of [count, K] of any type, wherever they lie. */
static void say_rows(const char *name, const void *values, enum lossd_type type, const struct lossd_task *task,
                     size_t count)
{
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < count * task->num_class; i++)
        printf("%s\"%a\"", i == 0 ? "" : ", ",
               value_load(values, (enum value_type)type, i / task->num_class * task->stride + i % task->num_class));
    printf("]");
}

void say_result(const struct shell *shell, const struct lossd_result *result)
{
    const struct lossd_batch *batch = shell->batches[shell->current];

    printf("{\"code\": 0, \"step\": %" PRIu64 ", \"loss\": \"%a\", \"replayed\": %u, \"tasks\": [", result->step,
           result->loss, result->replayed);
    for (size_t t = 0; t < result->num_tasks; t++) {
        const struct lossd_task_result *task = &result->tasks[t];

        printf("%s{\"name\": \"%s\", \"loss\": \"%a\", \"nonfinite\": %u", t == 0 ? "" : ", ", task->name, task->loss,
               task->nonfinite_units);
        if (task->has_log_scale_gradient)
            printf(", \"log_scale_gradient\": \"%a\"", task->log_scale_gradient);
        printf(", \"terms\": [");
        for (size_t i = 0; i < task->num_terms; i++)
            printf("%s[\"%s\", \"%a\", \"%a\", \"%a\", \"%a\", \"%a\"]", i == 0 ? "" : ", ", task->terms[i].name,
                   task->terms[i].value, task->terms[i].local_mean, task->terms[i].sum, task->terms[i].denominator,
                   task->terms[i].factor);
        printf("]");
        if (!batch->skip_gradient)
            say_rows("gradient", batch->tasks[t].gradient, shell->shapes[shell->current].gradient_type,
                     &batch->tasks[t], batch->candidates);
        printf("}");
    }
    printf("], \"counts\": [\"%a\", \"%a\", %u, \"%a\", \"%a\", %u], \"factors\": [\"%a\", \"%a\"]}\n",
           result->local.requests, result->local.candidates, result->local.ranks, result->world.requests,
           result->world.candidates, result->world.ranks, result->request_factor, result->candidate_factor);
}

void say_columns(const struct shell *shell)
{
    const struct lossd_batch *batch = shell->batches[shell->current];
    const size_t count = batch->candidates;

    printf("{\"code\": 0, \"lengths\": [");
    for (uint32_t r = 0; r < batch->requests; r++)
        printf("%s%u", r == 0 ? "" : ", ", batch->lengths[r]);
    printf("], \"label_bits\": [");
    for (size_t c = 0; batch->label_bits != NULL && c < count; c++)
        printf("%s%" PRIu64, c == 0 ? "" : ", ", batch->label_bits[c]);
    printf("], \"tasks\": [");
    for (size_t t = 0; t < batch->num_tasks; t++) {
        const struct lossd_task *task = &batch->tasks[t];

        printf("%s{\"name\": \"%s\", \"stride\": %zu", t == 0 ? "" : ", ", task->name, task->stride);
        say_rows("logits", task->logits, shell->shapes[shell->current].logits_type, task, count);
        say_floats("labels", task->labels, task->labels == NULL ? 0 : count);
        say_floats("weights", task->weights, task->weights == NULL ? 0 : count);
        say_floats("task_space", task->task_space, task->task_space == NULL ? 0 : count);
        printf(", \"sessions\": [");
        for (size_t c = 0; task->sessions != NULL && c < count; c++)
            printf("%s%" PRId64, c == 0 ? "" : ", ", task->sessions[c]);
        printf("]}");
    }
    puts("]}");
}
