/*
 * Random schedules of everything that can happen to a step machine, checked event by event against a naive model:
 * what each event returns, which calls end and how, when a reduce starts and what it holds, who is named as missing,
 * the states, the counters. So: one outcome a step, made of what all ranks contributed; every call ends once.
 *
 * LOSSD_SCHEDULES says how many (100,000), LOSSD_SEED where to begin: a failure prints the seed of its schedule.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/random.h"
#include "support/runner.h"
#include "support/step_model.h"

enum { TIMEOUT = 20, FIRST_TIMEOUT = 50, MAX_VECTOR = MODEL_DENOMINATORS + 2 * MODEL_RANKS };

struct schedule {
    uint64_t seed;
    struct random random;
    struct step_settings settings;
    struct step_machine *machine;
    struct model model;
    int64_t now;
    bool is_held; /* a reduce runs, with this vector */
    double vector[MAX_VECTOR];
    double fault_rate; /* of bad batches, lost clients, ranks that leave or die, engines that fail */
    struct lossd_error err;
};

/* Check's own assertions write to a pipe each time, which is too slow here. */
static void expect(const struct schedule *schedule, bool holds, const char *what)
{
    if (!holds)
        ck_abort_msg("schedule LOSSD_SEED=%" PRIu64 ": %s", schedule->seed, what);
}

static bool chance(struct schedule *schedule, double probability)
{
    return random_chance(&schedule->random, probability);
}

static uint32_t below(struct schedule *schedule, uint32_t limit)
{
    return random_below(&schedule->random, limit);
}

/* Flags of "0-3,7". */
static void parse_ranks(const char *text, bool *flags)
{
    while (*text != '\0') {
        char *end;
        const unsigned long first = strtoul(text, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;

        for (unsigned long r = first; r <= last && r < MODEL_RANKS; r++)
            flags[r] = true;
        text = *end == ',' ? end + 1 : end;
    }
}

/* Who is missing, from which step, and whether somebody's process is gone. */
static void check_missing(const struct schedule *schedule, const struct lossd_error *error,
                          const struct model_call *wanted)
{
    const struct model *model = &schedule->model;
    bool is_dead = false;
    bool says_dead = false;
    uint64_t step = STEP_LIMIT;
    bool flags[MODEL_RANKS] = {false};
    const char *key;
    const char *value;
    size_t cursor = 0;

    while (error_next_metadata(error, &cursor, &key, &value)) {
        if (strcmp(key, "missing_ranks") == 0)
            parse_ranks(value, flags);
        if (strcmp(key, "step") == 0)
            step = strtoull(value, NULL, 10);
        if (strcmp(key, "missing_states") == 0)
            says_dead = strstr(value, " dead") != NULL;
    }
    for (uint32_t r = 0; r < model->world_size; r++)
        is_dead = is_dead || (wanted->missing[r] && model->dead[r] && !model->left[r]);
    expect(schedule, memcmp(flags, wanted->missing, model->world_size * sizeof flags[0]) == 0,
           "the missing are those that did not come");
    expect(schedule, step == wanted->missed_step, "the step that they are missing from");
    expect(schedule, says_dead == is_dead, "whether a process is gone");
}

static void check_end(struct schedule *schedule, const struct step_action *action)
{
    struct model *model = &schedule->model;
    struct model_call *call = action->call;
    const struct model_done *done = &model->done[call->step];

    expect(schedule, call->is_expected, "a call ends that goes on in the model");
    expect(schedule, action->rank == call->rank && action->step == model->first_step + call->step, "rank and step");
    call->is_expected = false;
    call->ends++;
    model->num_expected--;
    if (action->kind == STEP_ACTION_FAIL) {
        expect(schedule, action->error->status == call->status, "the error of a call");
        if (call->has_missing)
            check_missing(schedule, action->error, call);
        return;
    }
    expect(schedule, call->status == LOSSD_OK && action->replayed == call->replayed, "an answer, and whether repeated");
    expect(schedule, action->totals->num_ranks == model->world_size, "number of ranks");
    expect(schedule, memcmp(action->totals->sums, done->totals, sizeof done->totals) == 0, "totals of an answer");
}

static void finish_reduce(struct schedule *schedule)
{
    const bool is_cut = chance(schedule, 0.2 * schedule->fault_rate);

    schedule->is_held = false;
    model_reduced(&schedule->model, schedule->vector, is_cut ? LOSSD_INTERNAL : LOSSD_OK, schedule->now);
    if (is_cut) {
        (void)error_set(&schedule->err, LOSSD_INTERNAL, "", "the engine failed");
        step_reduce_failed(schedule->machine, &schedule->err, schedule->now);
    } else {
        step_reduced(schedule->machine, schedule->vector, schedule->now);
    }
}

static void begin_reduce(struct schedule *schedule)
{
    struct model *model = &schedule->model;
    double wanted[MAX_VECTOR];

    expect(schedule, model->reduce_expected && !schedule->is_held, "a reduce starts that does not in the model");
    model->reduce_expected = false;
    step_fill_vector(schedule->machine, schedule->vector);
    model_vector(model, wanted);
    expect(schedule, memcmp(schedule->vector, wanted, step_vector_size(&schedule->settings) * sizeof wanted[0]) == 0,
           "the vector of a reduce");
    schedule->is_held = true;
    if (chance(schedule, 0.7))
        finish_reduce(schedule);
}

/* Drain the actions of an event and compare all that can be seen. */
static void settle(struct schedule *schedule)
{
    struct model *model = &schedule->model;
    struct step_counters counters;

    for (struct step_action action = step_next_action(schedule->machine); action.kind != STEP_ACTION_NONE;
         action = step_next_action(schedule->machine)) {
        if (action.kind == STEP_ACTION_REDUCE)
            begin_reduce(schedule);
        else
            check_end(schedule, &action);
    }
    expect(schedule, model->num_expected == 0 && !model->reduce_expected, "a call or reduce is due and does not come");
    counters = step_counters(schedule->machine);
    expect(schedule, memcmp(&counters, &model->counters, sizeof counters) == 0, "done, failed and aborted");
    expect(schedule, step_next_deadline(schedule->machine) <= model_deadline(model), "the clock is looked at in time");
    for (uint32_t r = 0; r < model->world_size; r++)
        expect(schedule, step_rank_view(schedule->machine, r).state == model_state(model, r), "state of a rank");
}

/* Mostly the step that is next for the group, or near it. */
static int random_step(struct schedule *schedule)
{
    const int offset = chance(schedule, 0.65) ? 0 : (int)below(schedule, 5) - 2;
    const int step = schedule->model.last_done + 1 + offset;

    return step < 0 ? 0 : step;
}

/* Small numbers, often those that the rank has sent for the step before. */
static void random_values(struct schedule *schedule, uint32_t rank, int step, double *values)
{
    const bool is_usual = chance(schedule, 0.9);

    values[0] = is_usual ? rank + 1 : below(schedule, 3);
    values[1] = is_usual ? (uint32_t)step % 4 : below(schedule, 3);
}

static void submit(struct schedule *schedule, uint32_t rank, int step)
{
    struct model *model = &schedule->model;
    struct model_call *call = &model->calls[model->num_calls];
    const int64_t deadline = chance(schedule, 0.3) ? schedule->now + below(schedule, 30) : NO_DEADLINE;
    double values[MODEL_DENOMINATORS];
    enum lossd_status wanted;
    enum lossd_status status;

    *call = (struct model_call){.rank = rank, .step = (uint64_t)step};
    random_values(schedule, rank, step, values);
    wanted = model_submit(model, rank, step, values, model->num_calls++, deadline, schedule->now);
    status = step_submit(schedule->machine, rank, model->first_step + (uint64_t)step, values, call, deadline,
                         schedule->now, &schedule->err);
    expect(schedule, status == wanted, "what a batch is answered at once");
    expect(schedule, status == LOSSD_OK || schedule->err.status == status, "an error says what is returned");
    call->ends += status != LOSSD_OK;
}

static void announce(struct schedule *schedule, uint32_t rank, int step)
{
    double values[MODEL_DENOMINATORS];
    enum lossd_status wanted;

    random_values(schedule, rank, step, values);
    wanted = model_announce(&schedule->model, rank, step, values, schedule->now);
    expect(schedule,
           step_announce(schedule->machine, rank, schedule->model.first_step + (uint64_t)step, values, schedule->now,
                         &schedule->err) == wanted,
           "what an announcement is answered");
}

static void cancel(struct schedule *schedule)
{
    struct model *model = &schedule->model;
    const int call = model->num_calls == 0 ? -1 : (int)below(schedule, (uint32_t)model->num_calls);
    bool was_open;

    if (call < 0)
        return;
    was_open = model_cancel(model, call);
    expect(schedule,
           step_cancel(schedule->machine, model->calls[call].rank, &model->calls[call], schedule->now) == was_open,
           "whether a cancelled call was open");
    model->calls[call].ends += was_open;
}

/* Mostly its calls are cancelled first, as their connection does; but a rank may have others. */
static void die(struct schedule *schedule, uint32_t rank)
{
    struct model *model = &schedule->model;
    const bool cancels = chance(schedule, 0.8);

    for (int c = 0; c < model->num_calls && cancels; c++) {
        if (model->calls[c].rank != rank || !model_cancel(model, c))
            continue;
        expect(schedule, step_cancel(schedule->machine, rank, &model->calls[c], schedule->now), "a call of the dead");
        model->calls[c].ends++;
    }
    model_died(model, rank);
    step_died(schedule->machine, rank, schedule->now);
}

static void come_back(struct schedule *schedule, uint32_t rank)
{
    if (chance(schedule, 0.5)) {
        model_joined(&schedule->model, rank);
        step_joined(schedule->machine, rank, schedule->now);
    } else {
        model_heard(&schedule->model, rank);
        step_heard(schedule->machine, rank, schedule->now);
    }
}

static void close_all(struct schedule *schedule)
{
    (void)error_set(&schedule->err, LOSSD_SHUTTING_DOWN, "", "closed");
    model_close(&schedule->model, LOSSD_SHUTTING_DOWN);
    step_close(schedule->machine, &schedule->err, schedule->now);
}

static void random_event(struct schedule *schedule)
{
    const uint32_t rank = below(schedule, schedule->model.world_size);
    const int step = random_step(schedule);
    const uint64_t number = schedule->model.first_step + (uint64_t)step;

    if (chance(schedule, 0.15 * schedule->fault_rate)) {
        model_refuse(&schedule->model, rank, step, LOSSD_NONFINITE_LOGITS, schedule->now);
        step_refuse(schedule->machine, rank, number, LOSSD_NONFINITE_LOGITS, schedule->now);
    } else if (chance(schedule, 0.1 * schedule->fault_rate)) {
        cancel(schedule);
    } else if (chance(schedule, 0.02 * schedule->fault_rate)) {
        model_leave(&schedule->model, rank);
        step_leave(schedule->machine, rank, schedule->now);
    } else if (chance(schedule, 0.05 * schedule->fault_rate)) {
        die(schedule, rank);
    } else if (chance(schedule, 0.02 * schedule->fault_rate)) {
        come_back(schedule, rank);
    } else if (schedule->is_held && chance(schedule, 0.4)) {
        finish_reduce(schedule);
    } else if (chance(schedule, 0.12)) {
        schedule->now += below(schedule, 25);
        model_tick(&schedule->model, schedule->now);
        step_tick(schedule->machine, schedule->now);
    } else if (chance(schedule, 0.3)) {
        announce(schedule, rank, step);
    } else {
        submit(schedule, rank, step);
    }
}

static void check_over(struct schedule *schedule)
{
    close_all(schedule);
    settle(schedule);
    if (schedule->is_held) {
        finish_reduce(schedule);
        settle(schedule);
    }
    expect(schedule, !step_is_busy(schedule->machine), "nothing is open after closing");
    for (int c = 0; c < schedule->model.num_calls; c++)
        expect(schedule, schedule->model.calls[c].ends == 1, "every call ends once");
}

/* Returns how many events. */
static uint64_t run_schedule(struct schedule *schedule, uint64_t seed)
{
    static const double fault_rates[] = {0, 0.3, 1, 2};
    uint32_t num_events;

    schedule->seed = seed;
    schedule->random.state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    schedule->now = 0;
    schedule->is_held = false;
    schedule->fault_rate = fault_rates[below(schedule, 4)];
    schedule->settings = (struct step_settings){
        .world_size = 1 + below(schedule, MODEL_RANKS),
        .num_denominators = MODEL_DENOMINATORS,
        .step_timeout_ns = TIMEOUT,
        .first_step_timeout_ns = FIRST_TIMEOUT,
    };
    schedule->machine = step_create(&schedule->settings, 0);
    model_init(&schedule->model, schedule->settings.world_size, chance(schedule, 0.5) ? 0 : STEP_LIMIT - MODEL_STEPS);
    schedule->model.timeout = TIMEOUT;
    schedule->model.first_timeout = FIRST_TIMEOUT;
    num_events = 5 + below(schedule, 80);
    for (uint32_t e = 0; e < num_events && schedule->model.last_done < MODEL_STEPS - 6; e++) {
        random_event(schedule);
        settle(schedule);
    }
    check_over(schedule);
    step_destroy(schedule->machine);
    return num_events;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

START_TEST(every_event_of_random_schedules_goes_as_in_the_model)
{
    const uint64_t count = number_from("LOSSD_SCHEDULES", 100000);
    const uint64_t first = number_from("LOSSD_SEED", 0);
    const int64_t start_ns = clock_now_ns();
    struct schedule *schedule = calloc(1, sizeof *schedule);
    struct step_counters counters = {0};
    uint64_t events = 0;
    uint64_t vain = 0;
    double seconds;

    for (uint64_t seed = first; seed < first + count; seed++) {
        events += run_schedule(schedule, seed);
        counters.done += schedule->model.counters.done;
        counters.failed += schedule->model.counters.failed;
        counters.aborted += schedule->model.counters.aborted;
        vain += (uint64_t)schedule->model.num_vain;
    }
    seconds = (double)(clock_now_ns() - start_ns) / NS_PER_S;
    printf("# %" PRIu64 " schedules, %" PRIu64 " events, %.0f schedules a second; steps done %" PRIu64
           ", failed %" PRIu64 " (in vain %" PRIu64 "), aborted %" PRIu64 "\n",
           count, events, (double)count / seconds, counters.done, counters.failed, vain, counters.aborted);
    /* A generator that reaches nothing would pass as well. */
    ck_assert_uint_gt(counters.done, count / 10);
    ck_assert_uint_gt(counters.failed, count / 10);
    ck_assert_uint_gt(vain, count / 10);
    ck_assert(count < 1000 || counters.aborted > 0);
    free(schedule);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step_random");
    TCase *tcase = tcase_create("schedules");

    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, every_event_of_random_schedules_goes_as_in_the_model);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
