/* What goes back: errors and results in the layout of lossd_shm.h. Nothing that lies there is read. */
#include <string.h>

#include "transport/shm_internal.h"

_Static_assert((int)LOSSD_SHM_RETRY_NEVER == (int)RETRY_NEVER && (int)LOSSD_SHM_RETRY_SAME == (int)RETRY_SAME &&
                   (int)LOSSD_SHM_RETRY_HIGHER == (int)RETRY_HIGHER && (int)LOSSD_SHM_RETRY_FIX == (int)RETRY_FIX,
               "kinds of retry are numbered alike");
_Static_assert(sizeof(((struct lossd_shm_error *)NULL)->field) == sizeof(((struct lossd_error *)NULL)->field) &&
                   sizeof(((struct lossd_shm_error *)NULL)->message) == sizeof(((struct lossd_error *)NULL)->message) &&
                   sizeof(((struct lossd_shm_error *)NULL)->metadata) == sizeof(((struct lossd_error *)NULL)->metadata),
               "an error fits");

/* Text with its NUL, cut where it is too long. */
static void copy_text(char *to, size_t size, const char *from)
{
    const size_t length = strnlen(from, size - 1);

    memcpy(to, from, length);
    to[length] = '\0';
}

void shm_fill_error(struct lossd_shm_error *to, const struct lossd_error *from)
{
    const struct status_info *info = status_info(from->status);

    copy_text(to->reason, sizeof to->reason, info->reason);
    copy_text(to->code, sizeof to->code, info->code_name);
    copy_text(to->field, sizeof to->field, from->field);
    copy_text(to->message, sizeof to->message, from->message);
    to->retry = (uint32_t)info->retry;
    to->metadata_bytes = (uint32_t)from->metadata_bytes;
    memcpy(to->metadata, from->metadata, from->metadata_bytes);
}

/*
 * The trainer may have asked for a generation that began after it attached: its config can have the same columns and
 * other losses.
 */
static bool fits(const struct lossd_shm_attached *layout, const struct result *result)
{
    size_t num_terms = 0;

    for (size_t t = 0; t < result->num_tasks; t++)
        num_terms += result->tasks[t].num_terms;
    return result->num_tasks == layout->num_tasks && num_terms == layout->num_terms;
}

static void fill_tasks(struct lossd_shm_answer *answer, const struct result *result)
{
    struct lossd_shm_task_answer *task = (struct lossd_shm_task_answer *)(void *)(answer + 1);
    struct lossd_shm_term *term = (struct lossd_shm_term *)(void *)(task + result->num_tasks);

    for (size_t t = 0; t < result->num_tasks; t++) {
        const struct task_result *from = &result->tasks[t];

        *task++ = (struct lossd_shm_task_answer){
            .loss = from->loss,
            .log_scale_gradient = from->has_log_scale_gradient ? from->log_scale_gradient : 0,
            .nonfinite_units = from->nonfinite_units,
            .has_log_scale_gradient = from->has_log_scale_gradient,
        };
        for (size_t i = 0; i < from->num_terms; i++)
            *term++ = (struct lossd_shm_term){
                .value = from->terms[i].value,
                .local_mean = from->terms[i].local_mean,
                .sum = from->terms[i].sum,
                .denominator = from->terms[i].denominator,
                .factor = from->terms[i].factor,
            };
    }
}

static void fill_result(struct lossd_shm_answer *answer, const struct result *result)
{
    answer->flags = result->replayed ? LOSSD_SHM_REPLAYED : 0;
    answer->step = result->step;
    answer->loss = result->loss;
    answer->local_requests = result->local.requests;
    answer->local_candidates = result->local.candidates;
    answer->world_requests = result->world.requests;
    answer->world_candidates = result->world.candidates;
    answer->request_factor = result->request_factor;
    answer->candidate_factor = result->candidate_factor;
    answer->world_ranks = result->world.ranks;
    fill_tasks(answer, result);
}

void shm_fill_answer(struct lossd_shm_answer *answer, const struct lossd_shm_attached *layout, bool has_result,
                     struct submission *submission)
{
    struct lossd_error *err = &submission->error;

    if (err->status == LOSSD_OK && has_result && !fits(layout, &submission->result))
        (void)error_set(err, LOSSD_STALE_GENERATION, "generation",
                        "the config has changed since this connection attached");
    if (err->status == LOSSD_OK) {
        answer->failed = 0;
        answer->flags = 0;
        answer->step = submission->step;
        if (has_result)
            fill_result(answer, &submission->result);
        return;
    }
    shm_fill_error(&answer->error, err);
    answer->failed = 1;
}
