/*
 * A trainer that does what it is told, a command a line, through liblossd, and says what came of it, a line of JSON
 * each. Floats are hexadecimal, so that they are the same bits on the other side.
 *
 *   open ADDRESS TRANSPORT SLOTS TIMEOUT_MS RECONNECT_MS NO_SPIN MAX_REQUESTS MAX_CANDIDATES
 *   join GROUP RANK WORLD_SIZE CONFIG    ("-": none)                leave    close
 *   begin REQUESTS CANDIDATES LOGITS_TYPE GRADIENT_TYPE LAYOUT WEIGHTED    use BATCH (in the order of begin)
 *   fill SEED    columns    counts REQUESTS CANDIDATES    logit TASK INDEX VALUE    log_scale TASK VALUE
 *   gradient_scale VALUE    skip_gradient FLAG
 *   announce STEP REQUESTS CANDIDATES    submit STEP    wait    compute STEP    ("-": the step counts on)
 *   config    show    (the last answer, of the current batch)
 *   interrupt COUNT    what waits from now on ends when it has been asked so often ("0": never), and says how often
 *   run FIRST_STEP COUNT SEED    a step after the other, each with another batch; a line for each
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/values.h"
#include "support/client_shell.h"

enum { LINE_BYTES = 1 << 16 };

static void seed(struct shell *shell, uint64_t number)
{
    shell->random = (struct random){.state = (number + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    for (int i = 0; i < 8; i++)
        (void)random_next(&shell->random);
}

/* Filling. */

/* Every candidate goes to some request. */
static void fill_lengths(struct shell *shell, struct lossd_batch *batch)
{
    for (uint32_t r = 0; r < batch->requests; r++)
        batch->lengths[r] = 0;
    for (uint32_t c = 0; c < batch->candidates && batch->requests > 0; c++)
        batch->lengths[random_below(&shell->random, batch->requests)]++;
}

/* Logits that all types hold exactly, labels of two kinds, weights and the others small. */
static void fill(struct shell *shell, struct lossd_batch *batch, enum lossd_type type)
{
    fill_lengths(shell, batch);
    for (uint32_t c = 0; c < batch->candidates; c++) {
        if (batch->label_bits != NULL)
            batch->label_bits[c] = random_next(&shell->random) & 0xff;
        for (size_t t = 0; t < batch->num_tasks; t++) {
            const struct lossd_task *task = &batch->tasks[t];

            for (uint32_t k = 0; k < task->num_class; k++)
                value_store(task->logits, (enum value_type)type, c * task->stride + k,
                            (double)random_below(&shell->random, 129) / 16 - 4);
            if (task->labels != NULL)
                task->labels[c] = (float)random_below(&shell->random, 2);
            if (task->weights != NULL)
                task->weights[c] = (float)random_below(&shell->random, 5) / 2;
            if (task->sessions != NULL)
                task->sessions[c] = (int64_t)random_below(&shell->random, 7) - 3;
            if (task->task_space != NULL)
                task->task_space[c] = (float)random_below(&shell->random, 2);
        }
    }
}

/* Commands. */

static uint32_t has_enough(void *context)
{
    struct shell *shell = context;

    shell->asked++;
    return shell->patience != 0 && shell->asked >= shell->patience;
}

static void do_interrupt(struct shell *shell, const char *words)
{
    printf("{\"code\": 0, \"asked\": %u}\n", shell->asked);
    shell->patience = (uint32_t)strtoul(words, NULL, 10);
    shell->asked = 0;
}

static void do_open(struct shell *shell, const char *words)
{
    struct lossd_options options = {
        .struct_bytes = sizeof options, .interrupted = has_enough, .interrupt_context = shell};
    struct lossd_failure why;
    char address[512];
    int transport = 0;

    (void)sscanf(words, "%511s %d %u %" SCNu64 " %" SCNu64 " %u %u %u", address, &transport, &options.num_slots,
                 &options.timeout_ms, &options.reconnect_ms, &options.no_spin, &options.max_requests,
                 &options.max_candidates);
    options.address = strcmp(address, "-") == 0 ? NULL : address;
    options.transport = (enum lossd_transport)transport;
    say(lossd_client_open(&options, &shell->client, &why), &why);
}

static void do_join(struct shell *shell, const char *words)
{
    struct lossd_membership me = {.rank = 0};
    struct lossd_failure why;
    enum lossd_code code;
    int used = 0;

    (void)sscanf(words, "%63s %u %u %n", me.group, &me.rank, &me.world_size, &used);
    me.config = strcmp(words + used, "-") == 0 ? NULL : words + used;
    shell->rank = me.rank;
    code = lossd_join(shell->client, &me, &why);
    if (code != LOSSD_CODE_OK)
        say(code, &why);
    else
        printf("{\"code\": 0, \"transport\": %d, \"generation\": %" PRIu64 "}\n",
               (int)lossd_client_transport(shell->client), lossd_generation(shell->client));
}

static enum lossd_code begin(struct shell *shell, const struct lossd_shape *shape, struct lossd_failure *why)
{
    struct lossd_batch *batch;
    const enum lossd_code code = lossd_batch_begin(shell->client, shape, &batch, why);

    if (code != LOSSD_CODE_OK)
        return code;
    shell->current = shell->num_batches++ % MAX_BATCHES;
    shell->batches[shell->current] = batch;
    shell->shapes[shell->current] = *shape;
    return code;
}

static void do_begin(struct shell *shell, const char *words)
{
    struct lossd_shape shape = {.requests = 0};
    struct lossd_failure why;
    int logits = 0;
    int gradient = 0;
    int layout = 0;

    (void)sscanf(words, "%u %u %d %d %d %" SCNu64, &shape.requests, &shape.candidates, &logits, &gradient, &layout,
                 &shape.weighted_tasks);
    shape.logits_type = (enum lossd_type)logits;
    shape.gradient_type = (enum lossd_type)gradient;
    shape.layout = (enum lossd_layout)layout;
    say(begin(shell, &shape, &why), &why);
}

static uint64_t step_of(const char *words)
{
    return words[0] == '-' ? LOSSD_STEP_COUNTS_ON : strtoull(words, NULL, 10);
}

static void do_wait(struct shell *shell)
{
    const struct lossd_result *result;
    struct lossd_failure why;
    const enum lossd_code code = lossd_wait(shell->client, shell->batches[shell->current], &result, &why);

    if (code == LOSSD_CODE_OK)
        say_result(shell, shell->result = result);
    else
        say(code, &why);
}

static void do_compute(struct shell *shell, const char *words)
{
    const struct lossd_result *result;
    struct lossd_failure why;
    const enum lossd_code code = lossd_compute(shell->client, shell->batches[shell->current], step_of(words), &result,
                                               &why);

    if (code == LOSSD_CODE_OK)
        say_result(shell, shell->result = result);
    else
        say(code, &why);
}

static void do_announce(struct shell *shell, const char *words)
{
    struct lossd_failure why;
    uint64_t step = 0;
    uint32_t requests = 0;
    uint32_t candidates = 0;

    (void)sscanf(words, "%" SCNu64 " %u %u", &step, &requests, &candidates);
    say(lossd_announce(shell->client, step, requests, candidates, &why), &why);
}

/* Sizes of a batch differ by rank and step, and some ranks have none. */
static enum lossd_code run_step(struct shell *shell, uint64_t step, uint64_t number)
{
    struct lossd_shape shape = {.requests = 0};
    const struct lossd_result *result;
    struct lossd_failure why;
    enum lossd_code code;

    seed(shell, number + 1000 * step + shell->rank);
    shape.requests = random_below(&shell->random, 5);
    shape.candidates = shape.requests == 0 ? 0 : random_below(&shell->random, 400);
    code = begin(shell, &shape, &why);
    if (code == LOSSD_CODE_OK) {
        fill(shell, shell->batches[shell->current], LOSSD_F32);
        if (step % 3 == 0)
            code = lossd_announce(shell->client, step, shape.requests, shape.candidates, &why);
    }
    if (code == LOSSD_CODE_OK)
        code = lossd_compute(shell->client, shell->batches[shell->current], step, &result, &why);
    if (code == LOSSD_CODE_OK)
        printf("{\"code\": 0, \"step\": %" PRIu64 ", \"loss\": \"%a\", \"replayed\": %u, \"world\": \"%a\"}\n",
               result->step, result->loss, result->replayed, result->world.candidates);
    else
        say(code, &why);
    (void)fflush(stdout);
    return code;
}

static void do_run(struct shell *shell, const char *words)
{
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t number = 0;

    (void)sscanf(words, "%" SCNu64 " %" SCNu64 " %" SCNu64, &first, &count, &number);
    for (uint64_t step = first; step < first + count; step++)
        if (run_step(shell, step, number) != LOSSD_CODE_OK)
            return;
}

static void do_set(struct shell *shell, const char *command, const char *words)
{
    struct lossd_batch *batch = shell->batches[shell->current];
    struct lossd_task *tasks = batch->tasks;
    size_t t = 0;
    size_t i = 0;
    double value = 0;

    if (strcmp(command, "gradient_scale") == 0) {
        batch->gradient_scale = strtof(words, NULL);
    } else if (strcmp(command, "skip_gradient") == 0) {
        batch->skip_gradient = words[0] == '1';
    } else if (strcmp(command, "counts") == 0) {
        (void)sscanf(words, "%u %u", &batch->requests, &batch->candidates);
    } else if (strcmp(command, "log_scale") == 0) {
        (void)sscanf(words, "%zu %lf", &t, &value);
        tasks[t].has_log_scale = 1;
        tasks[t].log_scale = value;
    } else {
        (void)sscanf(words, "%zu %zu %lf", &t, &i, &value);
        value_store(tasks[t].logits, (enum value_type)shell->shapes[shell->current].logits_type, i, value);
    }
    puts("{\"code\": 0}");
}

static const char *or_null(const char *json)
{
    return json == NULL ? "null" : json;
}

static void obey(struct shell *shell, const char *command, const char *words)
{
    struct lossd_failure why;

    if (strcmp(command, "open") == 0) {
        do_open(shell, words);
    } else if (strcmp(command, "join") == 0) {
        do_join(shell, words);
    } else if (strcmp(command, "leave") == 0) {
        say(lossd_leave(shell->client, &why), &why);
    } else if (strcmp(command, "close") == 0) {
        lossd_client_close(shell->client);
        shell->client = NULL;
        puts("{\"code\": 0}");
    } else if (strcmp(command, "begin") == 0) {
        do_begin(shell, words);
    } else if (strcmp(command, "use") == 0) {
        shell->current = strtoull(words, NULL, 10) % MAX_BATCHES;
        puts("{\"code\": 0}");
    } else if (strcmp(command, "fill") == 0) {
        seed(shell, strtoull(words, NULL, 10));
        fill(shell, shell->batches[shell->current], shell->shapes[shell->current].logits_type);
        puts("{\"code\": 0}");
    } else if (strcmp(command, "columns") == 0) {
        say_columns(shell);
    } else if (strcmp(command, "announce") == 0) {
        do_announce(shell, words);
    } else if (strcmp(command, "submit") == 0) {
        say(lossd_submit(shell->client, shell->batches[shell->current], step_of(words), &why), &why);
    } else if (strcmp(command, "wait") == 0) {
        do_wait(shell);
    } else if (strcmp(command, "compute") == 0) {
        do_compute(shell, words);
    } else if (strcmp(command, "config") == 0) {
        printf("{\"code\": 0, \"config\": %s}\n", or_null(lossd_config(shell->client)));
    } else if (strcmp(command, "show") == 0) {
        say_result(shell, shell->result);
    } else if (strcmp(command, "interrupt") == 0) {
        do_interrupt(shell, words);
    } else if (strcmp(command, "run") == 0) {
        do_run(shell, words);
    } else {
        do_set(shell, command, words);
    }
    (void)fflush(stdout);
}

int main(void)
{
    char line[LINE_BYTES];
    struct shell shell = {.client = NULL};

    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words = line + strcspn(line, " \n");

        line[strcspn(line, "\n")] = '\0';
        if (*words != '\0')
            *words++ = '\0';
        obey(&shell, line, words);
    }
    lossd_client_close(shell.client);
    return 0;
}
