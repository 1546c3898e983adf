/* Between the columns of a batch and a tile: types, strides, lists whose rows lie apart. */
#include <string.h>

#include "loss/cpu.h"

/*
 * Rows as they are walked: row i of the tile is row rows[i] of the column, or row i of it where rows is NULL. One loop
 * for each type and each of these: all values in a run, one column, some columns.
 */
struct walk {
    const uint32_t *rows;
    uint32_t num_rows;
    uint32_t num_class;
    size_t stride;
};

static ALWAYS_INLINE size_t row_of(const struct walk *walk, uint32_t i)
{
    return walk->rows != NULL ? walk->rows[i] : i;
}

static ALWAYS_INLINE void load_rows(const struct walk *walk, const void *from, enum value_type type, double *to)
{
    for (uint32_t i = 0; i < walk->num_rows; i++)
        for (uint32_t c = 0; c < walk->num_class; c++)
            to[(size_t)i * walk->num_class + c] = value_load(from, type, row_of(walk, i) * walk->stride + c);
}

static ALWAYS_INLINE void load_values(const struct walk *walk, const void *from, enum value_type type, double *to)
{
    if (walk->rows == NULL && walk->stride == walk->num_class)
        load_rows(&(struct walk){NULL, walk->num_rows * walk->num_class, 1, 1}, from, type, to);
    else if (walk->rows == NULL && walk->num_class == 1)
        load_rows(&(struct walk){NULL, walk->num_rows, 1, walk->stride}, from, type, to);
    else if (walk->rows == NULL)
        load_rows(&(struct walk){NULL, walk->num_rows, walk->num_class, walk->stride}, from, type, to);
    else
        load_rows(walk, from, type, to);
}

WIDE_VECTORS static void load_logits(const struct walk *walk, const void *from, enum value_type type, double *to)
{
    switch (type) {
    case VALUE_F16:
        load_values(walk, from, VALUE_F16, to);
        break;
    case VALUE_BF16:
        load_values(walk, from, VALUE_BF16, to);
        break;
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        load_values(walk, from, VALUE_F32, to);
        break;
    }
}

static ALWAYS_INLINE void store_rows(const struct walk *walk, const double *from, void *to, enum value_type type)
{
    for (uint32_t i = 0; i < walk->num_rows; i++)
        for (uint32_t c = 0; c < walk->num_class; c++)
            value_store(to, type, row_of(walk, i) * walk->stride + c, from[(size_t)i * walk->num_class + c]);
}

static ALWAYS_INLINE void store_values(const struct walk *walk, const double *from, void *to, enum value_type type)
{
    if (walk->rows == NULL && walk->stride == walk->num_class)
        store_rows(&(struct walk){NULL, walk->num_rows * walk->num_class, 1, 1}, from, to, type);
    else if (walk->rows == NULL && walk->num_class == 1)
        store_rows(&(struct walk){NULL, walk->num_rows, 1, walk->stride}, from, to, type);
    else if (walk->rows == NULL)
        store_rows(&(struct walk){NULL, walk->num_rows, walk->num_class, walk->stride}, from, to, type);
    else
        store_rows(walk, from, to, type);
}

WIDE_VECTORS static void store_gradient(const struct walk *walk, const double *from, void *to, enum value_type type)
{
    switch (type) {
    case VALUE_F16:
        store_values(walk, from, to, VALUE_F16);
        break;
    case VALUE_BF16:
        store_values(walk, from, to, VALUE_BF16);
        break;
    case VALUE_F32:
    case NUM_VALUE_TYPES:
        store_values(walk, from, to, VALUE_F32);
        break;
    }
}

/* A row with a NaN or infinite logit becomes one that weighs nothing. */
static void leave_out_bad_rows(struct tile *tile)
{
    const uint32_t num_class = tile->num_class;

    for (uint32_t i = 0; i < tile->num_rows; i++) {
        double *logits = &tile->logits[(size_t)i * num_class];
        bool bad = false;

        for (uint32_t c = 0; c < num_class; c++)
            bad |= !isfinite(logits[c]);
        tile->bad[i] = bad;
        if (!bad)
            continue;
        tile->num_bad++;
        tile->weights[i] = 0.0;
        for (uint32_t c = 0; c < num_class; c++)
            logits[c] = 0.0;
    }
}

/* Numbers that lie together are by far the most, and the one loop here that becomes vector code. */
WIDE_VECTORS static void load_labels(struct tile *tile, const struct prepared_task *prepared, size_t begin)
{
    const uint32_t *rows = prepared->lists.rows;
    const float *labels = prepared->labels;

    if (rows == NULL && prepared->label_bits == NULL)
        for (uint32_t i = 0; i < tile->num_rows; i++)
            tile->labels[i] = (double)labels[begin + i];
    else
        for (uint32_t i = 0; i < tile->num_rows; i++)
            tile->labels[i] = (double)row_label(prepared, rows != NULL ? rows[begin + i] : begin + i);
}

static void load_weights(struct tile *tile, const struct prepared_task *prepared, size_t begin)
{
    const uint32_t *rows = prepared->lists.rows;

    if (prepared->weights == NULL && prepared->task_space == NULL)
        for (uint32_t i = 0; i < tile->num_rows; i++)
            tile->weights[i] = 1.0;
    else
        for (uint32_t i = 0; i < tile->num_rows; i++)
            tile->weights[i] = row_weight(prepared, rows != NULL ? rows[begin + i] : begin + i);
}

/* The rows of the tile in a column with this stride, and, in *first, the element that they are counted from. */
static struct walk walk_of(const struct task_run *run, size_t begin, size_t stride, size_t *first)
{
    const uint32_t *rows = run->prepared->lists.rows;

    *first = rows != NULL ? 0 : begin * stride;
    return (struct walk){rows != NULL ? rows + begin : NULL, run->tile.num_rows, run->tile.num_class, stride};
}

void tile_load(struct task_run *run, size_t begin, uint32_t count)
{
    struct tile *tile = &run->tile;
    const enum value_type type = run->batch->logits_type;
    struct walk walk;
    size_t first;

    tile->num_rows = count;
    tile->num_class = run->config->num_class;
    tile->num_bad = 0;
    walk = walk_of(run, begin, row_stride(run->batch->logits_stride, tile->num_class), &first);
    load_logits(&walk, (const char *)run->batch->logits + first * value_size(type), type, tile->logits);
    load_labels(tile, run->prepared, begin);
    load_weights(tile, run->prepared, begin);
    memset(tile->gradient, 0, sizeof *tile->gradient * count * tile->num_class);
    if (run->zero_nonfinite)
        leave_out_bad_rows(tile);
}

void tile_store(const struct task_run *run, size_t begin)
{
    const enum value_type type = run->gradient_type;
    struct walk walk;
    size_t first;

    if (run->gradient == NULL)
        return;
    walk = walk_of(run, begin, run->gradient_stride, &first);
    store_gradient(&walk, run->tile.gradient, (char *)run->gradient + first * value_size(type), type);
}
