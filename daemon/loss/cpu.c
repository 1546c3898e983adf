/* The walk over tiles and lists; what is done with them is in the cpu_*.c beside it. */
#include "loss/cpu.h"

#include "loss/backend.h"

/* ln 100, where the scale of a learned temperature is cut. */
static const double max_log_scale = 4.605170185988092;

static uint32_t rows_per_tile(uint32_t num_class)
{
    const uint32_t rows = TILE_VALUES / num_class;

    return rows < TILE_ROWS ? rows : TILE_ROWS;
}

/* All losses of the task that are over rows. */
static void add_rows(struct task_run *run)
{
    struct tile *tile = &run->tile;

    for (size_t l = 0; l < run->config->num_losses; l++) {
        struct term_run *term = &run->terms[l];

        switch (term->config->kind) {
        case LOSS_BINARY_CROSS_ENTROPY:
            binary_cross_entropy_add(tile, term);
            break;
        case LOSS_BINARY_FOCAL:
            binary_focal_add(tile, term);
            break;
        case LOSS_L2:
            l2_add(tile, term);
            break;
        case LOSS_SOFTMAX_CROSS_ENTROPY:
            softmax_add(tile, term);
            break;
        case LOSS_JRC:
        case LOSS_LISTWISE_RANK:
        case NUM_LOSS_KINDS:
            continue;
        }
        run->nonfinite_units += tile->num_bad;
    }
}

/* What is known of one list, for whichever loss over lists the task has: they need different logits. */
struct list_run {
    struct listwise_list listwise;
    struct jrc_list jrc;
    uint32_t num_bad;
};

static bool is_over_lists(enum loss_kind kind)
{
    return kind == LOSS_LISTWISE_RANK || kind == LOSS_JRC;
}

/* The first loss over lists; NULL where the task has none. All of a task are of one kind. */
static const struct loss_config *first_over_lists(const struct task_config *task)
{
    for (size_t l = 0; l < task->num_losses; l++)
        if (is_over_lists(task->losses[l].kind))
            return &task->losses[l];
    return NULL;
}

static struct list_run empty_list(void)
{
    return (struct list_run){.listwise = listwise_empty(), .jrc = jrc_empty()};
}

static void scan_part(struct task_run *run, const struct loss_config *loss, struct segment segment,
                      struct list_run *list)
{
    if (run->tile.num_bad > 0)
        for (uint32_t i = segment.begin; i < segment.end; i++)
            list->num_bad += run->tile.bad[i];
    if (loss->kind == LOSS_LISTWISE_RANK)
        listwise_scan(run, loss, segment, &list->listwise);
    else
        jrc_scan(&run->tile, segment, &list->jrc);
}

/* A list with a bad row gives nothing: neither of these is called for it, but for its count. */
static void add_part(struct task_run *run, struct segment segment, const struct list_run *list)
{
    for (size_t l = 0; l < run->config->num_losses; l++) {
        struct term_run *term = &run->terms[l];

        if (term->config->kind == LOSS_LISTWISE_RANK)
            listwise_add(run, term, segment, &list->listwise);
        else if (term->config->kind == LOSS_JRC)
            jrc_add(&run->tile, term, segment, &list->jrc);
    }
}

static void finish_list(struct task_run *run, const struct list_run *list)
{
    for (size_t l = 0; l < run->config->num_losses; l++) {
        struct term_run *term = &run->terms[l];

        if (list->num_bad > 0 && is_over_lists(term->config->kind))
            run->nonfinite_units++;
        else if (term->config->kind == LOSS_LISTWISE_RANK)
            term->sum += listwise_loss(term->config, &list->listwise);
    }
}

/* A list that lies in the tile. */
static void run_whole_list(struct task_run *run, const struct loss_config *loss, struct segment segment)
{
    struct list_run list = empty_list();

    scan_part(run, loss, segment, &list);
    if (list.num_bad == 0) {
        if (loss->kind == LOSS_JRC)
            jrc_pull(&run->tile, segment, &list.jrc);
        add_part(run, segment, &list);
    }
    finish_list(run, &list);
}

/* A list of more rows than a tile has, tile by tile: what it needs to know first, then losses and gradients. */
static void run_long_list(struct task_run *run, const struct loss_config *loss, size_t begin, size_t end)
{
    const uint32_t step = rows_per_tile(run->config->num_class);
    struct list_run list = empty_list();

    for (size_t at = begin; at < end; at += step) {
        tile_load(run, at, (uint32_t)(end - at < step ? end - at : step));
        scan_part(run, loss, (struct segment){0, run->tile.num_rows}, &list);
    }
    for (size_t at = begin; at < end && loss->kind == LOSS_JRC; at += step) {
        tile_load(run, at, (uint32_t)(end - at < step ? end - at : step));
        jrc_pull(&run->tile, (struct segment){0, run->tile.num_rows}, &list.jrc);
    }
    for (size_t at = begin; at < end; at += step) {
        tile_load(run, at, (uint32_t)(end - at < step ? end - at : step));
        add_rows(run);
        if (list.num_bad == 0)
            add_part(run, (struct segment){0, run->tile.num_rows}, &list);
        tile_store(run, at);
    }
    finish_list(run, &list);
}

static void run_lists(struct task_run *run, const struct loss_config *loss)
{
    const struct task_lists *lists = &run->prepared->lists;
    const uint32_t most = rows_per_tile(run->config->num_class);
    uint32_t next;

    for (uint32_t first = 0; first < lists->num_lists; first = next) {
        const uint32_t begin = lists->offsets[first];

        next = first;
        while (next < lists->num_lists && lists->offsets[next + 1] - begin <= most)
            next++;
        if (next == first) {
            run_long_list(run, loss, begin, lists->offsets[++next]);
            continue;
        }
        tile_load(run, begin, lists->offsets[next] - begin);
        add_rows(run);
        for (uint32_t l = first; l < next; l++)
            run_whole_list(run, loss, (struct segment){lists->offsets[l] - begin, lists->offsets[l + 1] - begin});
        tile_store(run, begin);
    }
}

static void run_rows(struct task_run *run, size_t num_candidates)
{
    const uint32_t step = rows_per_tile(run->config->num_class);

    for (size_t at = 0; at < num_candidates; at += step) {
        tile_load(run, at, (uint32_t)(num_candidates - at < step ? num_candidates - at : step));
        add_rows(run);
        tile_store(run, at);
    }
}

static void set_scale(struct task_run *run, const struct loss_config *loss)
{
    const double log_scale = run->batch->has_log_scale ? run->batch->log_scale
                                                       : -log(loss->listwise_rank.temperature_init);

    run->scale = exp(log_scale <= max_log_scale ? log_scale : max_log_scale);
    run->scale_is_free = log_scale <= max_log_scale;
}

/* The batch's own memory, or what loss_result_alloc has made. */
static void set_gradient(struct task_run *run, bool skip, const struct task_result *result)
{
    const struct task_batch *batch = run->batch;
    const bool own = batch->gradient != NULL;

    run->gradient = skip ? NULL : own ? batch->gradient : result->gradient;
    run->gradient_type = own ? batch->gradient_type : VALUE_F32;
    run->gradient_stride = row_stride(own ? batch->gradient_stride : 0, run->config->num_class);
}

static void write_result(const struct task_run *run, const struct term_scale *scales, struct task_result *result)
{
    result->loss = 0.0;
    for (size_t l = 0; l < run->config->num_losses; l++) {
        const struct loss_config *loss = &run->config->losses[l];
        struct loss_term *term = &result->terms[l];

        term->name = loss_kind_name(loss->kind);
        term->sum = run->terms[l].sum + 0.0;
        term->denominator = scales[l].denominator;
        term->factor = scales[l].factor;
        term->local_mean = term->denominator > 0.0 ? term->sum / term->denominator : 0.0;
        term->value = run->config->weight * loss->weight * term->factor * term->local_mean + 0.0;
        result->loss += term->value;
    }
    result->log_scale_gradient = run->log_scale_gradient + 0.0;
    result->nonfinite_units = run->nonfinite_units;
}

static void run_task(const struct loss_plan *plan, const struct prepared_batch *prepared, size_t i,
                     const struct term_scale *scales, struct task_result *result)
{
    const struct batch *batch = prepared->batch;
    const struct task_config *config = &plan->config->tasks[batch->tasks[i].config_index];
    const struct loss_config *over_lists = first_over_lists(config);
    struct task_run run;

    run.config = config;
    run.batch = &batch->tasks[i];
    run.prepared = &prepared->tasks[i];
    set_gradient(&run, batch->skip_gradient, result);
    run.zero_nonfinite = plan->config->on_nonfinite == ON_NONFINITE_ZERO;
    run.scale = 1.0;
    run.scale_is_free = false;
    run.log_scale_gradient = 0.0;
    run.nonfinite_units = 0;
    for (size_t l = 0; l < config->num_losses; l++)
        run.terms[l] = (struct term_run){&config->losses[l], scales[l].unit * (double)batch->gradient_scale, 0.0};
    if (over_lists != NULL && over_lists->kind == LOSS_LISTWISE_RANK)
        set_scale(&run, over_lists);
    if (over_lists != NULL)
        run_lists(&run, over_lists);
    else
        run_rows(&run, batch->layout.num_candidates);
    write_result(&run, scales, result);
}

static void cpu_run(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct scales *scales,
                    struct result *result)
{
    const struct batch *batch = prepared->batch;

    result->loss = 0.0;
    for (size_t i = 0; i < batch->num_tasks; i++) {
        run_task(plan, prepared, i, scales->terms[batch->tasks[i].config_index], &result->tasks[i]);
        result->loss += result->tasks[i].loss;
    }
    result->local = (struct counts){batch->layout.num_requests, batch->layout.num_candidates, 1};
    result->request_factor = scales->request_factor;
    result->candidate_factor = scales->candidate_factor;
}

const struct loss_backend cpu_backend = {"cpu", cpu_run};
