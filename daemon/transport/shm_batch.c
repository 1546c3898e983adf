#include "transport/shm_batch.h"

#include <inttypes.h>
#include <string.h>

enum {
    KNOWN_FLAGS = LOSSD_SHM_HAS_STEP | LOSSD_SHM_SKIP_GRADIENT | LOSSD_SHM_HAS_GENERATION,
};

_Static_assert((int)LOSSD_SHM_F32 == (int)VALUE_F32 && (int)LOSSD_SHM_F16 == (int)VALUE_F16 &&
                   (int)LOSSD_SHM_BF16 == (int)VALUE_BF16,
               "types of values are numbered alike");
_Static_assert((int)LOSSD_SHM_MAX_TASKS == (int)MAX_TASKS, "a submission has room for the largest config");

/* What is being read, for the functions below. */
struct reader {
    const struct shm_space *space;
    const struct lossd_shm_submission *copy;
    struct arena *arena;
    struct batch *batch;
    struct lossd_error *err;
    size_t task; /* index; MAX_TASKS for columns of the batch */
};

/* A matrix in the region: rows of width elements, the starts of two of them stride elements apart. */
struct column {
    const char *name;
    uint64_t offset; /* 0: absent */
    uint64_t rows;
    uint64_t width;
    uint64_t stride; /* >= width >= 1 */
    size_t element;  /* bytes */
};

/* Copies are used from here on: nothing may be read from the shared bytes once more in their place. */
static void copy_shared(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" ::: "memory");
}

const struct lossd_shm_submission *shm_copy_submission(const struct lossd_shm_submission *shared, uint32_t num_tasks,
                                                       struct arena *arena)
{
    const size_t bytes = sizeof *shared + num_tasks * sizeof(struct lossd_shm_task);
    void *copy = arena_alloc(arena, bytes);

    if (copy != NULL)
        copy_shared(copy, shared, bytes);
    return copy;
}

enum lossd_status shm_check_head(const struct lossd_shm_submission *copy, const struct attachment *attachment,
                                 struct lossd_error *err)
{
    if (copy->call != LOSSD_SHM_COMPUTE && copy->call != LOSSD_SHM_ANNOUNCE)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "call", "is %" PRIu32 ", which is no call", copy->call);
    if ((copy->flags & ~(uint32_t)KNOWN_FLAGS) != 0)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "flags", "are %#" PRIx32 ", some of which are unknown",
                         copy->flags);
    if (copy->call == LOSSD_SHM_COMPUTE && copy->num_tasks != attachment->num_tasks)
        return error_set(err, LOSSD_MALFORMED_REQUEST, "num_tasks", "is %" PRIu32 ", but the group has %" PRIu32,
                         copy->num_tasks, attachment->num_tasks);
    return LOSSD_OK;
}

static enum lossd_status field_error(const struct reader *reader, const char *name, const char *message)
{
    (void)error_set(reader->err, LOSSD_MALFORMED_REQUEST, name, "%s", message);
    if (reader->task < MAX_TASKS)
        error_prefix_field(reader->err, "tasks[%zu]", reader->task);
    return LOSSD_MALFORMED_REQUEST;
}

/* Whether all elements lie in the data block, with no product that could overflow. */
static bool is_inside(const struct shm_space *space, const struct column *column)
{
    uint64_t room;

    if (column->offset < space->data_offset || column->offset > space->size)
        return false;
    room = (space->size - column->offset) / column->element;
    return column->rows == 0 || (column->width <= room && column->rows - 1 <= (room - column->width) / column->stride);
}

/* *place: NULL for an absent column. */
static enum lossd_status locate(const struct reader *reader, const struct column *column, unsigned char **place)
{
    *place = NULL;
    if (column->offset == 0)
        return LOSSD_OK;
    if (column->offset % column->element != 0)
        return field_error(reader, column->name, "begins in the middle of an element");
    if (!is_inside(reader->space, column))
        return field_error(reader, column->name, "does not lie in the data block of the region");
    *place = reader->space->bytes + column->offset;
    return LOSSD_OK;
}

/* One value a candidate. */
static enum lossd_status locate_plain(const struct reader *reader, const char *name, uint64_t offset, size_t element,
                                      unsigned char **place, size_t *count)
{
    const struct column column = {name, offset, reader->copy->num_candidates, 1, 1, element};
    const enum lossd_status status = locate(reader, &column, place);

    *count = *place == NULL ? 0 : column.rows;
    return status;
}

/* count elements at place, in the arena. */
static enum lossd_status snapshot(const struct reader *reader, const void *place, size_t count, size_t element,
                                  const char *what, void **copy)
{
    *copy = arena_alloc(reader->arena, count * element);
    if (*copy == NULL)
        return arena_error(reader->arena, what, reader->err);
    copy_shared(*copy, place, count * element);
    return LOSSD_OK;
}

static enum lossd_status read_lengths(const struct reader *reader)
{
    const uint32_t requests = reader->copy->num_requests;
    const struct column column = {"lengths", reader->copy->lengths, requests, 1, 1, sizeof(uint32_t)};
    unsigned char *place;
    void *copy = NULL;
    enum lossd_status status = locate(reader, &column, &place);

    if (status == LOSSD_OK && place == NULL && requests > 0)
        return field_error(reader, "lengths", "is absent, but num_requests is not 0");
    if (status == LOSSD_OK && place != NULL && requests <= reader->space->limits.max_requests)
        status = snapshot(reader, place, requests, sizeof(uint32_t), "copy of lengths", &copy);
    reader->batch->lengths = copy;
    reader->batch->num_lengths = requests;
    return status;
}

static enum lossd_status read_sessions(const struct reader *reader, uint64_t offset, struct task_batch *task)
{
    unsigned char *place;
    void *copy = NULL;
    enum lossd_status status = locate_plain(reader, "sessions", offset, sizeof(int64_t), &place, &task->num_sessions);

    if (status == LOSSD_OK && place != NULL && task->num_sessions <= reader->space->limits.max_candidates)
        status = snapshot(reader, place, task->num_sessions, sizeof(int64_t), "copy of sessions", &copy);
    task->sessions = copy;
    return status;
}

static enum lossd_status read_logits(const struct reader *reader, const struct lossd_shm_task *from, uint32_t num_class,
                                     struct task_batch *task)
{
    unsigned char *place;
    enum lossd_status status;

    if (from->logits == 0)
        return LOSSD_OK;
    if (from->logits_type >= NUM_VALUE_TYPES)
        return field_error(reader, "logits_type", "is none of F32, F16, BF16");
    if (from->logits_stride < num_class)
        return field_error(reader, "logits_stride", "is smaller than num_class");
    status = locate(reader,
                    &(struct column){"logits", from->logits, reader->copy->num_candidates, num_class,
                                     from->logits_stride, value_size((enum value_type)from->logits_type)},
                    &place);
    task->logits = place;
    task->num_logits = (size_t)reader->copy->num_candidates * num_class;
    task->logits_type = (enum value_type)from->logits_type;
    task->logits_stride = from->logits_stride;
    return status;
}

static enum lossd_status read_gradient(const struct reader *reader, const struct lossd_shm_task *from,
                                       uint32_t num_class, struct task_batch *task)
{
    const uint32_t candidates = reader->copy->num_candidates;
    unsigned char *place;
    enum lossd_status status;

    if (from->gradient == 0)
        return candidates == 0 ? LOSSD_OK : field_error(reader, "gradient", "is absent, and SKIP_GRADIENT not set");
    if (from->gradient_type >= NUM_VALUE_TYPES ||
        (from->gradient_type != LOSSD_SHM_F32 && from->gradient_type != from->logits_type))
        return field_error(reader, "gradient_type", "is neither F32 nor logits_type");
    if (from->gradient_stride < num_class)
        return field_error(reader, "gradient_stride", "is smaller than num_class");
    status = locate(reader,
                    &(struct column){"gradient", from->gradient, candidates, num_class, from->gradient_stride,
                                     value_size((enum value_type)from->gradient_type)},
                    &place);
    task->gradient = place;
    task->gradient_type = (enum value_type)from->gradient_type;
    task->gradient_stride = from->gradient_stride;
    return status;
}

static enum lossd_status read_scalars(const struct reader *reader, const struct lossd_shm_task *from,
                                      struct task_batch *task)
{
    static const uint8_t zeros[sizeof from->reserved];

    if (from->has_log_scale > 1)
        return field_error(reader, "has_log_scale", "is neither 0 nor 1");
    if (memcmp(from->reserved, zeros, sizeof zeros) != 0)
        return field_error(reader, "reserved", "is not 0");
    task->has_log_scale = from->has_log_scale == 1;
    task->log_scale = from->log_scale;
    return LOSSD_OK;
}

static enum lossd_status read_plain(const struct reader *reader, const char *name, uint64_t offset,
                                    const float **values, size_t *count)
{
    unsigned char *place;
    const enum lossd_status status = locate_plain(reader, name, offset, sizeof(float), &place, count);

    *values = (const float *)(const void *)place;
    return status;
}

static enum lossd_status read_task(const struct reader *reader, const struct attached_task *config,
                                   struct task_batch *task)
{
    const struct lossd_shm_task *from = &reader->copy->tasks[reader->task];
    enum lossd_status status = read_scalars(reader, from, task);

    task->name = config->name;
    if (status == LOSSD_OK)
        status = read_logits(reader, from, config->num_class, task);
    if (status == LOSSD_OK && !reader->batch->skip_gradient)
        status = read_gradient(reader, from, config->num_class, task);
    if (status == LOSSD_OK)
        status = read_plain(reader, "labels", from->labels, &task->labels, &task->num_labels);
    if (status == LOSSD_OK)
        status = read_plain(reader, "weights", from->weights, &task->weights, &task->num_weights);
    if (status == LOSSD_OK)
        status = read_plain(reader, "task_space", from->task_space, &task->task_space, &task->num_task_space);
    if (status == LOSSD_OK)
        status = read_sessions(reader, from->sessions, task);
    return status;
}

static enum lossd_status read_columns(struct reader *reader)
{
    const struct attachment *attachment = reader->space->attachment;
    struct batch *batch = reader->batch;
    unsigned char *place = NULL;
    enum lossd_status status = read_lengths(reader);

    if (status == LOSSD_OK)
        status = locate_plain(reader, "label_bits", reader->copy->label_bits, sizeof(uint64_t), &place,
                              &batch->num_label_bits);
    batch->label_bits = (const uint64_t *)(const void *)place;
    for (uint32_t t = 0; t < attachment->num_tasks && status == LOSSD_OK; t++) {
        reader->task = t;
        status = read_task(reader, &attachment->tasks[t], &batch->tasks[t]);
    }
    return status;
}

enum lossd_status shm_read_batch(const struct shm_space *space, const struct lossd_shm_submission *copy,
                                 struct arena *arena, struct batch *batch, struct lossd_error *err)
{
    struct batch made = {
        .num_tasks = space->attachment->num_tasks,
        .skip_gradient = (copy->flags & LOSSD_SHM_SKIP_GRADIENT) != 0,
        .gradient_scale = copy->gradient_scale,
    };
    struct reader reader = {space, copy, arena, &made, err, MAX_TASKS};
    enum lossd_status status;

    made.tasks = arena_calloc(arena, made.num_tasks, sizeof *made.tasks);
    if (made.tasks == NULL)
        return arena_error(arena, "batch", err);
    status = read_columns(&reader);
    if (status == LOSSD_OK)
        *batch = made;
    return status;
}
