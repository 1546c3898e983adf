#include "loss/layout.h"

#include <stdlib.h>

#include "support/value_reference.h"

static void *add_block(struct laid_out *copy, size_t size, bool may_change)
{
    struct block *block = &copy->blocks[copy->num_blocks++];

    *block = (struct block){malloc(size > 0 ? size : 1), size, may_change};
    if (block->bytes == NULL)
        abort();
    memset(block->bytes, LAID_OUT_MARK, size);
    return block->bytes;
}

static void *copy_column(struct laid_out *copy, const void *column, size_t count, size_t size, bool may_change)
{
    return count > 0 ? memcpy(add_block(copy, count * size, may_change), column, count * size) : NULL;
}

static void *element(void *values, enum value_type type, size_t index)
{
    return (char *)values + index * value_size(type);
}

static void set_element(void *values, enum value_type type, size_t index, float value)
{
    if (type == VALUE_F32) {
        ((float *)values)[index] = value;
    } else if (isnan(value)) {
        ((uint16_t *)values)[index] = 0x7fffU;
    } else {
        ((uint16_t *)values)[index] = reference_to_bits((double)value, type);
    }
}

static size_t num_rows(const struct batch *batch)
{
    size_t rows = 0;

    for (size_t r = 0; r < batch->num_lengths; r++)
        rows += batch->lengths[r];
    return rows;
}

/* Columns that every layout has alike. */
static void copy_columns(struct laid_out *copy, const struct task_batch *from, struct task_batch *to)
{
    *to = *from;
    to->labels = copy_column(copy, from->labels, from->num_labels, sizeof *from->labels, true);
    to->weights = copy_column(copy, from->weights, from->num_weights, sizeof *from->weights, true);
    to->task_space = copy_column(copy, from->task_space, from->num_task_space, sizeof *from->task_space, true);
    to->sessions = copy_column(copy, from->sessions, from->num_sessions, sizeof *from->sessions, false);
}

static void *add_matrix(struct laid_out *copy, size_t rows, size_t stride, enum value_type type)
{
    return add_block(copy, rows * stride * value_size(type), true);
}

static void lay_out_task(struct laid_out *copy, const struct layout *layout, size_t rows, size_t num_class,
                         const float *logits, struct task_batch *task)
{
    if (!layout->in_rows) {
        const size_t stride = num_class + !layout->tight;

        task->logits = add_matrix(copy, rows, stride, layout->logits_type);
        task->gradient = add_matrix(copy, rows, stride, layout->gradient_type);
        task->logits_stride = task->gradient_stride = layout->tight ? 0 : stride;
    }
    task->logits_type = layout->logits_type;
    task->gradient_type = layout->gradient_type;
    for (size_t v = 0; v < rows * num_class; v++)
        set_element((void *)(uintptr_t)task->logits, layout->logits_type,
                    v / num_class * row_stride(task->logits_stride, num_class) + v % num_class, logits[v]);
}

/* Where each task begins in the matrices of all. */
static void share_matrices(struct laid_out *copy, const struct layout *layout, const struct group_config *config,
                           size_t rows)
{
    size_t stride = 1;
    size_t column = 0;
    void *logits;
    void *gradient;

    for (size_t t = 0; t < config->num_tasks; t++)
        stride += config->tasks[t].num_class;
    logits = add_matrix(copy, rows, stride, layout->logits_type);
    gradient = add_matrix(copy, rows, stride, layout->gradient_type);
    for (size_t t = 0; t < config->num_tasks; t++) {
        copy->tasks[t].logits = element(logits, layout->logits_type, rows > 0 ? column : 0);
        copy->tasks[t].gradient = element(gradient, layout->gradient_type, rows > 0 ? column : 0);
        copy->tasks[t].logits_stride = copy->tasks[t].gradient_stride = stride;
        column += config->tasks[t].num_class;
    }
}

void lay_out(struct laid_out *copy, const struct batch *batch, const struct group_config *config,
             const struct layout *layout)
{
    const size_t rows = num_rows(batch);

    *copy = (struct laid_out){.layout = *layout, .batch = *batch};
    copy->batch.tasks = copy->tasks;
    copy->batch.lengths = copy_column(copy, batch->lengths, batch->num_lengths, sizeof *batch->lengths, false);
    copy->batch.label_bits = copy_column(copy, batch->label_bits, batch->num_label_bits, sizeof *batch->label_bits,
                                         true);
    for (size_t t = 0; t < batch->num_tasks; t++)
        copy_columns(copy, &batch->tasks[t], &copy->tasks[t]);
    if (layout->in_rows)
        share_matrices(copy, layout, config, rows);
    for (size_t t = 0; t < batch->num_tasks; t++)
        lay_out_task(copy, layout, rows, config->tasks[t].num_class, batch->tasks[t].logits, &copy->tasks[t]);
}

void laid_out_finish(struct laid_out *copy)
{
    for (size_t b = 0; b < copy->num_blocks; b++)
        free(copy->blocks[b].bytes);
}

double laid_out_gradient(const struct task_batch *task, size_t num_class, size_t v)
{
    return reference_value(task->gradient, task->gradient_type,
                           v / num_class * row_stride(task->gradient_stride, num_class) + v % num_class);
}

static bool gap_is_marked(const struct task_batch *task, size_t row, size_t num_class)
{
    const unsigned char *gap = element(task->gradient, task->gradient_type, row * task->gradient_stride + num_class);

    for (size_t b = 0; b < value_size(task->gradient_type); b++)
        if (gap[b] != LAID_OUT_MARK)
            return false;
    return true;
}

bool laid_out_gaps_are_marked(const struct laid_out *copy, const struct group_config *config)
{
    const size_t rows = num_rows(&copy->batch);
    size_t t = copy->layout.in_rows ? config->num_tasks - 1 : 0; /* the gap of shared rows is behind the last task */

    for (; t < config->num_tasks; t++)
        for (size_t c = 0; c < rows && copy->tasks[t].gradient_stride > 0; c++)
            if (!gap_is_marked(&copy->tasks[t], c, config->tasks[t].num_class))
                return false;
    return true;
}

double round_to_type(double value, enum value_type type)
{
    return type == VALUE_F32 ? (double)((float)value + 0.0F)
                             : reference_from_bits(reference_to_bits(value, type), type);
}
