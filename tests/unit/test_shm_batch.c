/* Submissions of shared memory as batches: where columns lie, and every way to point elsewhere. */
#include "transport/shm_batch.h"

#include <string.h>

#include "support/runner.h"

/* A region of 4 KiB whose data block begins at 1024; two tasks, of one and of three classes; 3 requests, 5 candidates.
 */
enum { REGION_BYTES = 4096, DATA_OFFSET = 1024, NUM_TASKS = 2, NUM_REQUESTS = 3, NUM_CANDIDATES = 5 };

struct lab {
    _Alignas(64) unsigned char region[REGION_BYTES];
    struct attachment attachment;
    struct shm_space space;
    struct memory_budget budget;
    struct arena arena;
    struct lossd_shm_submission *head; /* a submission to be changed, and its tasks */
    struct lossd_shm_task *tasks;
    struct batch batch;
    struct lossd_error err;
};

static void fill_good(struct lab *lab)
{
    *lab->head = (struct lossd_shm_submission){
        .sequence = 1,
        .call = LOSSD_SHM_COMPUTE,
        .flags = LOSSD_SHM_HAS_STEP,
        .lengths = 1024,
        .num_requests = NUM_REQUESTS,
        .num_candidates = NUM_CANDIDATES,
        .gradient_scale = 2,
        .num_tasks = NUM_TASKS,
    };
    for (uint32_t t = 0; t < NUM_TASKS; t++)
        lab->tasks[t] = (struct lossd_shm_task){
            .logits = 1088 + 512 * t,
            .gradient = 1280 + 512 * t,
            .labels = 1152 + 512 * t,
            .logits_stride = t == 0 ? 1 : 3,
            .gradient_stride = t == 0 ? 1 : 3,
        };
}

static void set_up(struct lab *lab)
{
    memset(lab, 0, sizeof *lab);
    lab->attachment.num_tasks = NUM_TASKS;
    lab->attachment.tasks[0] = (struct attached_task){.name = "click", .num_class = 1, .num_losses = 1};
    lab->attachment.tasks[1] = (struct attached_task){.name = "grade", .num_class = 3, .num_losses = 1};
    lab->space = (struct shm_space){lab->region, REGION_BYTES, DATA_OFFSET, &lab->attachment, {1000, 1000}};
    lab->budget.limit_bytes = 1 << 20;
    arena_init(&lab->arena, 1 << 20, &lab->budget);
    lab->head = (struct lossd_shm_submission *)(void *)(lab->region + 128);
    lab->tasks = lab->head->tasks;
    error_init(&lab->err);
    fill_good(lab);
}

static void tear_down(struct lab *lab)
{
    arena_finish(&lab->arena);
    ck_assert_uint_eq(atomic_load(&lab->budget.used_bytes), 0);
}

static enum lossd_status read_it(struct lab *lab)
{
    const struct lossd_shm_submission *copy = shm_copy_submission(lab->head, NUM_TASKS, &lab->arena);
    const enum lossd_status status = shm_check_head(copy, &lab->attachment, &lab->err);

    return status != LOSSD_OK ? status : shm_read_batch(&lab->space, copy, &lab->arena, &lab->batch, &lab->err);
}

static void check_place(const struct lab *lab, const void *place, uint64_t offset)
{
    ck_assert_ptr_eq(place, lab->region + offset);
}

START_TEST(columns_stay_where_they_lie)
{
    struct lab lab;
    const struct task_batch *task = NULL;

    set_up(&lab);
    lab.tasks[1].weights = 2048;
    lab.tasks[1].task_space = 2112;
    lab.tasks[1].has_log_scale = 1;
    lab.tasks[1].log_scale = 2.5;
    lab.head->label_bits = 2176;
    ck_assert_msg(read_it(&lab) == LOSSD_OK, "%s: %s", lab.err.field, lab.err.message);
    ck_assert_float_eq(lab.batch.gradient_scale, 2);
    ck_assert(!lab.batch.skip_gradient);
    check_place(&lab, lab.batch.label_bits, 2176);
    ck_assert_uint_eq(lab.batch.num_label_bits, 5);
    task = &lab.batch.tasks[1];
    ck_assert_str_eq(task->name, "grade");
    check_place(&lab, task->logits, 1600);
    ck_assert_uint_eq(task->num_logits, 15);
    ck_assert_uint_eq(task->logits_stride, 3);
    check_place(&lab, task->gradient, 1792);
    check_place(&lab, task->labels, 1664);
    ck_assert_uint_eq(task->num_labels, 5);
    check_place(&lab, task->weights, 2048);
    ck_assert_uint_eq(task->num_weights, 5);
    check_place(&lab, task->task_space, 2112);
    ck_assert_uint_eq(task->num_task_space, 5);
    ck_assert(task->has_log_scale);
    ck_assert_double_eq(task->log_scale, 2.5);
    task = &lab.batch.tasks[0];
    ck_assert_uint_eq(task->num_logits, 5);
    ck_assert_uint_eq(task->num_weights, 0);
    tear_down(&lab);
}
END_TEST

START_TEST(lengths_and_sessions_are_copies)
{
    struct lab lab;
    uint32_t *lengths = NULL;
    int64_t *sessions = NULL;

    set_up(&lab);
    lengths = (uint32_t *)(void *)(lab.region + 1024);
    sessions = (int64_t *)(void *)(lab.region + 2048);
    lab.tasks[0].sessions = 2048;
    for (int i = 0; i < 5; i++)
        sessions[i] = 70 + i;
    lengths[0] = 3;
    lengths[2] = 2;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    memset(lab.region, 0xff, sizeof lab.region);
    ck_assert_uint_eq(lab.batch.num_lengths, 3);
    ck_assert_uint_eq(lab.batch.lengths[0], 3);
    ck_assert_uint_eq(lab.batch.lengths[1], 0);
    ck_assert_uint_eq(lab.batch.lengths[2], 2);
    ck_assert_uint_eq(lab.batch.tasks[0].num_sessions, 5);
    ck_assert_int_eq(lab.batch.tasks[0].sessions[4], 74);
    tear_down(&lab);
}
END_TEST

START_TEST(a_copy_does_not_follow_its_original)
{
    struct lab lab;
    const struct lossd_shm_submission *copy = NULL;

    set_up(&lab);
    copy = shm_copy_submission(lab.head, NUM_TASKS, &lab.arena);
    memset(lab.region, 0xff, sizeof lab.region);
    ck_assert_uint_eq(copy->num_candidates, 5);
    ck_assert_uint_eq(copy->tasks[1].logits, 1600);
    tear_down(&lab);
}
END_TEST

START_TEST(halves_and_rows_apart_are_read_as_they_are)
{
    struct lab lab;

    set_up(&lab);
    lab.tasks[1].logits_type = LOSSD_SHM_BF16;
    lab.tasks[1].gradient_type = LOSSD_SHM_BF16;
    lab.tasks[1].logits_stride = 7;
    lab.tasks[1].gradient_stride = 9;
    lab.tasks[1].gradient = 1794; /* of two bytes */
    lab.tasks[0].logits_type = LOSSD_SHM_F16;
    lab.tasks[0].gradient_type = LOSSD_SHM_F32;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    ck_assert_int_eq(lab.batch.tasks[1].logits_type, VALUE_BF16);
    ck_assert_int_eq(lab.batch.tasks[1].gradient_type, VALUE_BF16);
    ck_assert_uint_eq(lab.batch.tasks[1].logits_stride, 7);
    ck_assert_uint_eq(lab.batch.tasks[1].gradient_stride, 9);
    ck_assert_int_eq(lab.batch.tasks[0].logits_type, VALUE_F16);
    ck_assert_int_eq(lab.batch.tasks[0].gradient_type, VALUE_F32);
    tear_down(&lab);
}
END_TEST

START_TEST(without_gradient_its_place_is_not_looked_at)
{
    struct lab lab;

    set_up(&lab);
    lab.head->flags |= LOSSD_SHM_SKIP_GRADIENT;
    lab.tasks[0].gradient = 3;
    lab.tasks[0].gradient_type = 77;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    ck_assert(lab.batch.skip_gradient);
    ck_assert_ptr_null(lab.batch.tasks[0].gradient);
    tear_down(&lab);
}
END_TEST

START_TEST(an_empty_batch_needs_no_columns)
{
    struct lab lab;

    set_up(&lab);
    memset(lab.tasks, 0, NUM_TASKS * sizeof *lab.tasks);
    lab.head->lengths = 0;
    lab.head->num_requests = lab.head->num_candidates = 0;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    ck_assert_uint_eq(lab.batch.num_lengths, 0);
    ck_assert_uint_eq(lab.batch.tasks[0].num_logits, 0);
    tear_down(&lab);
}
END_TEST

START_TEST(a_column_may_end_where_the_region_ends)
{
    struct lab lab;

    set_up(&lab);
    lab.tasks[1].logits = REGION_BYTES - 4 * ((NUM_CANDIDATES - 1) * 10 + 3); /* the last row has no stride behind it */
    lab.tasks[1].logits_stride = 10;
    lab.tasks[0].labels = REGION_BYTES - 4 * NUM_CANDIDATES;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    tear_down(&lab);
}
END_TEST

START_TEST(more_than_the_limits_allow_is_not_copied)
{
    struct lab lab;

    set_up(&lab);
    lab.space.limits = (struct batch_limits){2, 4};
    lab.tasks[0].sessions = 2048;
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    ck_assert_ptr_null(lab.batch.lengths);
    ck_assert_uint_eq(lab.batch.num_lengths, 3);
    ck_assert_ptr_null(lab.batch.tasks[0].sessions);
    ck_assert_uint_eq(lab.batch.tasks[0].num_sessions, 5);
    tear_down(&lab);
}
END_TEST

START_TEST(memory_that_is_not_there_is_a_limit)
{
    struct lab lab;
    const struct lossd_shm_submission *copy = NULL;

    set_up(&lab);
    copy = shm_copy_submission(lab.head, NUM_TASKS, &lab.arena);
    lab.arena.limit_bytes = lab.arena.used_bytes + 2 * sizeof(struct task_batch) + 64;
    lab.tasks[0].sessions = 2048;
    lab.head->num_candidates = 100;
    ck_assert_int_eq(shm_read_batch(&lab.space, copy, &lab.arena, &lab.batch, &lab.err), LOSSD_OK);
    lab.arena.limit_bytes = lab.arena.used_bytes;
    ck_assert_int_eq(shm_read_batch(&lab.space, copy, &lab.arena, &lab.batch, &lab.err), LOSSD_LIMIT_EXCEEDED);
    ck_assert_ptr_null(shm_copy_submission(lab.head, NUM_TASKS, &lab.arena));
    tear_down(&lab);
}
END_TEST

/* A word of the submission, its new value, and the field that is named. */
struct fault {
    size_t offset;
    size_t size;
    uint64_t value;
    const char *field;
};

#define HEAD(member, value, field)                                                                                     \
    {                                                                                                                  \
        offsetof(struct lossd_shm_submission, member), sizeof(((struct lossd_shm_submission *)NULL)->member), value,   \
            field                                                                                                      \
    }
#define TASK(t, member, value, field)                                                                                  \
    {                                                                                                                  \
        sizeof(struct lossd_shm_submission) + (t) * sizeof(struct lossd_shm_task) +                                    \
            offsetof(struct lossd_shm_task, member),                                                                   \
            sizeof(((struct lossd_shm_task *)NULL)->member), value, field                                              \
    }
/* A column of 4-byte values: in front of the block, behind it, over its end, in the middle of a value, far away. */
#define COLUMN(t, member)                                                                                              \
    TASK(t, member, 4, "tasks[" #t "]." #member), TASK(t, member, DATA_OFFSET - 4, "tasks[" #t "]." #member),          \
        TASK(t, member, REGION_BYTES, "tasks[" #t "]." #member),                                                       \
        TASK(t, member, REGION_BYTES - 16, "tasks[" #t "]." #member), TASK(t, member, 2049, "tasks[" #t "]." #member), \
        TASK(t, member, UINT64_MAX - 3, "tasks[" #t "]." #member),                                                     \
        TASK(t, member, UINT64_C(1) << 63, "tasks[" #t "]." #member)

static const struct fault faults[] = {
    HEAD(call, 0, "call"),
    HEAD(call, 3, "call"),
    HEAD(flags, 8, "flags"),
    HEAD(flags, UINT32_MAX, "flags"),
    HEAD(num_tasks, 1, "num_tasks"),
    HEAD(num_tasks, 3, "num_tasks"),
    HEAD(num_tasks, UINT32_MAX, "num_tasks"),
    HEAD(lengths, 0, "lengths"),
    HEAD(lengths, 1026, "lengths"),
    HEAD(lengths, 1020, "lengths"),
    HEAD(lengths, REGION_BYTES - 8, "lengths"),
    HEAD(lengths, UINT64_MAX - 3, "lengths"),
    HEAD(num_requests, UINT32_MAX, "lengths"),
    HEAD(num_requests, 769, "lengths"), /* 768 would just fit */
    HEAD(label_bits, 8, "label_bits"),
    HEAD(label_bits, 2052, "label_bits"),
    HEAD(label_bits, REGION_BYTES - 32, "label_bits"),
    HEAD(num_candidates, UINT32_MAX, "tasks[0].logits"),
    HEAD(num_candidates, 753, "tasks[0].logits"), /* 752 would just fit */
    COLUMN(0, logits),
    COLUMN(1, logits),
    COLUMN(0, gradient),
    COLUMN(1, gradient),
    COLUMN(0, labels),
    COLUMN(1, labels),
    COLUMN(0, weights),
    COLUMN(1, task_space),
    TASK(0, sessions, 8, "tasks[0].sessions"),
    TASK(0, sessions, 2052, "tasks[0].sessions"),
    TASK(1, sessions, REGION_BYTES - 32, "tasks[1].sessions"),
    TASK(0, gradient, 0, "tasks[0].gradient"),
    TASK(0, logits_type, 3, "tasks[0].logits_type"),
    TASK(1, logits_type, 255, "tasks[1].logits_type"),
    TASK(0, gradient_type, LOSSD_SHM_F16, "tasks[0].gradient_type"),
    TASK(0, gradient_type, 3, "tasks[0].gradient_type"),
    TASK(0, logits_stride, 0, "tasks[0].logits_stride"),
    TASK(1, logits_stride, 2, "tasks[1].logits_stride"),
    TASK(1, logits_stride, UINT32_MAX, "tasks[1].logits"),
    TASK(1, logits_stride, 156, "tasks[1].logits"), /* 155 would just fit: 1600 + 4 (4 * 155 + 3) = 4092 */
    TASK(0, gradient_stride, 0, "tasks[0].gradient_stride"),
    TASK(1, gradient_stride, 2, "tasks[1].gradient_stride"),
    TASK(1, gradient_stride, UINT32_MAX, "tasks[1].gradient"),
    TASK(0, has_log_scale, 2, "tasks[0].has_log_scale"),
    TASK(1, reserved, 1, "tasks[1].reserved"),
};

static void set_word(struct lab *lab, const struct fault *fault)
{
    memcpy((unsigned char *)lab->head + fault->offset, &fault->value, fault->size);
}

START_TEST(what_points_elsewhere_is_refused_by_its_field)
{
    const struct fault *fault = &faults[_i];
    struct lab lab;

    set_up(&lab);
    ck_assert_int_eq(read_it(&lab), LOSSD_OK);
    set_word(&lab, fault);
    ck_assert_int_eq(read_it(&lab), LOSSD_MALFORMED_REQUEST);
    ck_assert_str_eq(lab.err.field, fault->field);
    tear_down(&lab);
}
END_TEST

/* The largest values that the table calls just fitting: so that it tests the edge and not something before it. */
static const struct fault fits[] = {
    HEAD(num_requests, 768, ""), TASK(1, logits_stride, 155, ""),
    TASK(1, gradient_stride, 143, ""), /* 1792 + 4 (4 * 143 + 3) = 4092 */
};

START_TEST(what_just_fits_is_taken)
{
    struct lab lab;

    set_up(&lab);
    set_word(&lab, &fits[_i]);
    ck_assert_msg(read_it(&lab) == LOSSD_OK, "%s: %s", lab.err.field, lab.err.message);
    tear_down(&lab);
}
END_TEST

START_TEST(an_announcement_has_no_tasks_to_count)
{
    struct lab lab;

    set_up(&lab);
    lab.head->call = LOSSD_SHM_ANNOUNCE;
    lab.head->num_tasks = 99;
    ck_assert_int_eq(shm_check_head(lab.head, &lab.attachment, &lab.err), LOSSD_OK);
    tear_down(&lab);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shm_batch");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, columns_stay_where_they_lie);
    tcase_add_test(tcase, lengths_and_sessions_are_copies);
    tcase_add_test(tcase, a_copy_does_not_follow_its_original);
    tcase_add_test(tcase, halves_and_rows_apart_are_read_as_they_are);
    tcase_add_test(tcase, without_gradient_its_place_is_not_looked_at);
    tcase_add_test(tcase, an_empty_batch_needs_no_columns);
    tcase_add_test(tcase, a_column_may_end_where_the_region_ends);
    tcase_add_test(tcase, more_than_the_limits_allow_is_not_copied);
    tcase_add_test(tcase, memory_that_is_not_there_is_a_limit);
    tcase_add_loop_test(tcase, what_points_elsewhere_is_refused_by_its_field, 0, sizeof faults / sizeof faults[0]);
    tcase_add_loop_test(tcase, what_just_fits_is_taken, 0, sizeof fits / sizeof fits[0]);
    tcase_add_test(tcase, an_announcement_has_no_tasks_to_count);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
