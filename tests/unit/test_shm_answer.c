/* Answers and errors as they lie in the region. */
#include <string.h>

#include "support/runner.h"
#include "transport/shm_internal.h"

/* One answer with two tasks and three terms, and a word behind it that has to stay. */
struct room {
    struct lossd_shm_answer answer;
    struct lossd_shm_task_answer tasks[2];
    struct lossd_shm_term terms[3];
    uint64_t behind;
};

static const struct lossd_shm_attached layout = {.num_tasks = 2, .num_terms = 3};

static struct loss_term terms[4] = {{"a", 1, 2, 3, 4, 5}, {"b", 6, 7, 8, 9, 10}, {"c", 11, 12, 13, 14, 15}, {0}};
static struct task_result tasks[2] = {
    {.loss = 7, .terms = &terms[0], .num_terms = 2, .nonfinite_units = 3},
    {.loss = 11, .terms = &terms[2], .num_terms = 1, .has_log_scale_gradient = true, .log_scale_gradient = -0.5},
};

static void set_up(struct room *room, struct submission *submission)
{
    memset(room, 0xee, sizeof *room);
    memset(submission, 0, sizeof *submission);
    error_init(&submission->error);
    submission->step = 42;
    submission->result = (struct result){
        .step = 42,
        .loss = 18,
        .tasks = tasks,
        .num_tasks = 2,
        .local = {3, 5, 1},
        .world = {9, 20, 2},
        .request_factor = 0.75,
        .candidate_factor = 0.5,
        .replayed = true,
    };
}

START_TEST(a_result_is_laid_out_task_by_task_and_term_by_term)
{
    struct room room;
    struct submission submission;

    set_up(&room, &submission);
    shm_fill_answer(&room.answer, &layout, true, &submission);
    ck_assert_uint_eq(room.answer.failed, 0);
    ck_assert_uint_eq(room.answer.flags, LOSSD_SHM_REPLAYED);
    ck_assert_uint_eq(room.answer.step, 42);
    ck_assert_double_eq(room.answer.loss, 18);
    ck_assert_double_eq(room.answer.local_requests, 3);
    ck_assert_double_eq(room.answer.local_candidates, 5);
    ck_assert_double_eq(room.answer.world_requests, 9);
    ck_assert_double_eq(room.answer.world_candidates, 20);
    ck_assert_uint_eq(room.answer.world_ranks, 2);
    ck_assert_double_eq(room.answer.request_factor, 0.75);
    ck_assert_double_eq(room.answer.candidate_factor, 0.5);
    ck_assert_double_eq(room.tasks[0].loss, 7);
    ck_assert_uint_eq(room.tasks[0].nonfinite_units, 3);
    ck_assert_uint_eq(room.tasks[0].has_log_scale_gradient, 0);
    ck_assert_uint_eq(room.tasks[1].has_log_scale_gradient, 1);
    ck_assert_double_eq(room.tasks[1].log_scale_gradient, -0.5);
    ck_assert_double_eq(room.terms[1].value, 6);
    ck_assert_double_eq(room.terms[1].local_mean, 7);
    ck_assert_double_eq(room.terms[2].sum, 13);
    ck_assert_double_eq(room.terms[2].denominator, 14);
    ck_assert_double_eq(room.terms[2].factor, 15);
    ck_assert_uint_eq(room.behind, UINT64_C(0xeeeeeeeeeeeeeeee));
    ck_assert_uint_eq(room.answer.sequence, UINT64_C(0xeeeeeeeeeeeeeeee)); /* is written later */
}
END_TEST

START_TEST(a_result_of_another_shape_is_not_written)
{
    struct room room;
    struct submission submission;

    set_up(&room, &submission);
    tasks[1].num_terms = 2;
    shm_fill_answer(&room.answer, &layout, true, &submission);
    tasks[1].num_terms = 1;
    ck_assert_uint_eq(room.answer.failed, 1);
    ck_assert_str_eq(room.answer.error.reason, "STALE_GENERATION");
    ck_assert_str_eq(room.answer.error.field, "generation");
    ck_assert_int_eq(submission.error.status, LOSSD_STALE_GENERATION);
    ck_assert_uint_eq(room.tasks[0].nonfinite_units, 0xeeeeeeee);
    ck_assert_uint_eq(room.behind, UINT64_C(0xeeeeeeeeeeeeeeee));
}
END_TEST

START_TEST(an_announcement_is_answered_without_a_result)
{
    struct room room;
    struct submission submission;

    set_up(&room, &submission);
    submission.result = (struct result){0};
    shm_fill_answer(&room.answer, &layout, false, &submission);
    ck_assert_uint_eq(room.answer.failed, 0);
    ck_assert_uint_eq(room.answer.flags, 0);
    ck_assert_uint_eq(room.answer.step, 42);
}
END_TEST

START_TEST(an_error_has_all_that_others_have)
{
    static const char metadata[] = "rank\0"
                                   "7\0"
                                   "reason\0"
                                   "x";
    struct room room;
    struct submission submission;
    struct lossd_error *err = &submission.error;

    set_up(&room, &submission);
    (void)error_set(err, LOSSD_STEP_REJECTED_BY_PEER, "tasks[1].labels[17]", "rank %d says no", 7);
    error_add_metadata(err, "rank", "7");
    error_add_metadata(err, "reason", "x");
    shm_fill_answer(&room.answer, &layout, true, &submission);
    ck_assert_uint_eq(room.answer.failed, 1);
    ck_assert_str_eq(room.answer.error.reason, "STEP_REJECTED_BY_PEER");
    ck_assert_str_eq(room.answer.error.code, "aborted");
    ck_assert_str_eq(room.answer.error.field, "tasks[1].labels[17]");
    ck_assert_str_eq(room.answer.error.message, "rank 7 says no");
    ck_assert_uint_eq(room.answer.error.retry, (unsigned)status_info(LOSSD_STEP_REJECTED_BY_PEER)->retry);
    ck_assert_uint_eq(room.answer.error.metadata_bytes, sizeof metadata);
    ck_assert_mem_eq(room.answer.error.metadata, metadata, sizeof metadata);
}
END_TEST

START_TEST(no_error_is_longer_than_its_place)
{
    struct room room;
    struct submission submission;
    struct lossd_error *err = &submission.error;

    set_up(&room, &submission);
    (void)error_set(err, LOSSD_INTERNAL, "", "%2000d", 1);
    for (int i = 0; i < 20000; i++)
        error_add_metadata(err, "k", "v");
    shm_fill_answer(&room.answer, &layout, true, &submission);
    ck_assert_uint_eq(strlen(room.answer.error.message), sizeof room.answer.error.message - 1);
    ck_assert_uint_le(room.answer.error.metadata_bytes, sizeof room.answer.error.metadata);
    ck_assert_uint_gt(room.answer.error.metadata_bytes, sizeof room.answer.error.metadata - 4);
    ck_assert_uint_eq(room.tasks[0].nonfinite_units, 0xeeeeeeee);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shm_answer");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_result_is_laid_out_task_by_task_and_term_by_term);
    tcase_add_test(tcase, a_result_of_another_shape_is_not_written);
    tcase_add_test(tcase, an_announcement_is_answered_without_a_result);
    tcase_add_test(tcase, an_error_has_all_that_others_have);
    tcase_add_test(tcase, no_error_is_longer_than_its_place);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
