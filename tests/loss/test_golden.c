/* Known right values of single losses on one rank. Inputs are rounded to binary32 first, hence the tolerances. */
#include <math.h>
#include <string.h>

#include "loss/golden_batch.h"
#include "loss/world.h"
#include "support/runner.h"

static void run_case(struct json_object *entry, bool as_sessions)
{
    const char *id = golden_text(entry, "id");
    const struct loss_config loss = golden_loss(entry);
    struct task_config task = default_task("t", &loss, 1);
    const struct group_config config = default_config(&task, 1);
    const bool weighted = golden_has(entry, "batch.sample_weights");
    const double loss_value = golden_number(entry, "expected.loss");
    const double scale = golden_number_or(golden_get(entry, "config"), "scale", 1.0);
    struct golden_batch golden;
    struct world *world = world_create();
    const struct task_result *result;

    golden_batch_init(&golden, golden_get(entry, "batch"), "t");
    task.num_class = (uint32_t)golden_number_or(golden_get(entry, "config"), "num_class", 1.0);
    task.lists = as_sessions ? LISTS_SESSIONS : LISTS_REQUESTS;
    if (!as_sessions)
        golden.task.num_sessions = 0;
    if (golden_has(entry, "config.theta")) {
        golden.task.has_log_scale = true;
        golden.task.log_scale = golden_number(entry, "config.theta");
    }
    ck_assert_msg(world_run(world, &config, &golden.batch, 1) == LOSSD_OK, "%s: %s", id, world->err.message);
    result = &world->ranks[0].result.tasks[0];
    expect_near(result->loss, loss_value, 2e-6 * fabs(loss_value) + 2e-7 * scale, id, "loss");
    if (!weighted) {
        expect_near(result->terms[0].denominator, golden_number(entry, "expected.denominator"), 0.0, id, "denominator");
        expect_near(result->terms[0].sum, golden_number(entry, "expected.sum"),
                    2e-6 * golden_number(entry, "expected.sum") + 1e-6 * scale, id, "sum");
    }
    expect_gradient(result->gradient, result->num_gradient, entry, "expected.grad", scale * fmax(1.0, fabs(loss_value)),
                    id);
    if (golden_has(entry, "expected.grad_theta"))
        expect_near(result->log_scale_gradient, golden_number(entry, "expected.grad_theta"), 2e-5 * scale, id,
                    "grad_theta");
    golden_batch_finish(&golden);
    world_destroy(world);
}

static const struct {
    const char *file;
    size_t num_cases;
} files[] = {{"bce", 7}, {"focal", 6}, {"softmax_ce", 7}, {"l2", 2}, {"listwise", 30}};

START_TEST(every_case_of_a_loss_gives_its_known_values)
{
    struct json_object *cases = golden_open(files[_i].file);
    size_t run = 0;

    ck_assert_uint_eq(golden_count(cases), files[_i].num_cases);
    for (size_t i = 0; i < golden_count(cases); i++) {
        struct json_object *entry = golden_at(cases, i);

        /* -100 with weights: a mean over all rows there, over the rows that count here */
        if (strcmp(golden_text(entry, "id"), "softmax/ignore_index_weighted_parity") == 0)
            continue;
        run_case(entry, false);
        run++;
    }
    ck_assert_uint_eq(run, files[_i].num_cases - (strcmp(files[_i].file, "softmax_ce") == 0));
    golden_close(cases);
}
END_TEST

START_TEST(jrc_cases_give_their_known_values_by_requests_and_by_sessions)
{
    struct json_object *cases = golden_open("jrc");

    ck_assert_uint_eq(golden_count(cases), 5);
    for (size_t i = 0; i < golden_count(cases); i++) {
        run_case(golden_at(cases, i), true);
        if (golden_has(golden_at(cases, i), "batch.lengths"))
            run_case(golden_at(cases, i), false);
    }
    golden_close(cases);
}
END_TEST

START_TEST(easy_rows_keep_their_small_gradients)
{
    static const struct {
        const char *file;
        const char *id;
        enum loss_kind kind;
        size_t row;
        double relative;
    } rows[] = {{"bce", "bce/saturated", LOSS_BINARY_CROSS_ENTROPY, 0, 1e-6},
                {"bce", "bce/saturated", LOSS_BINARY_CROSS_ENTROPY, 1, 1e-6},
                /* below the normal range of binary32: 1e-40 has 17 bits */
                {"focal", "focal/saturated", LOSS_BINARY_FOCAL, 0, 1e-4},
                {"focal", "focal/saturated", LOSS_BINARY_FOCAL, 1, 1e-4}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json_object *cases = golden_open(rows[i].file);
        struct json_object *entry = golden_case(cases, rows[i].id);
        struct json_object *expected = golden_at(golden_get(entry, "expected.grad"), rows[i].row);
        const struct loss_config loss = default_loss(rows[i].kind);
        const struct task_config task = default_task("t", &loss, 1);
        const struct group_config config = default_config(&task, 1);
        struct world *world = world_create();
        struct golden_batch golden;
        double found;

        golden_batch_init(&golden, golden_get(entry, "batch"), "t");
        ck_assert_int_eq(world_run(world, &config, &golden.batch, 1), LOSSD_OK);
        found = (double)world->ranks[0].result.tasks[0].gradient[rows[i].row];
        expect_near(found / golden_number(expected, ""), 1.0, rows[i].relative, rows[i].id, "ratio");
        golden_batch_finish(&golden);
        world_destroy(world);
        golden_close(cases);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("golden");
    TCase *tcase = tcase_create("one rank");

    tcase_add_loop_test(tcase, every_case_of_a_loss_gives_its_known_values, 0, sizeof files / sizeof *files);
    tcase_add_test(tcase, jrc_cases_give_their_known_values_by_requests_and_by_sessions);
    tcase_add_test(tcase, easy_rows_keep_their_small_gradients);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
