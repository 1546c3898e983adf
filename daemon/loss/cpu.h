/*
 * Inside of the CPU backend: a tile of rows on the stack, and what each family of losses adds to it.
 *
 * A task is computed tile by tile. Rows of a tile are converted to binary64 once, every loss of the task adds its
 * gradients there, and the sum is rounded once when the tile is stored. Tasks with a loss over lists walk their lists
 * in order: a tile holds whole lists, or a part of one that is longer than a tile.
 * Where tiles begin depends on the layout alone, so the order of all sums does, too.
 * What lies in a tile no other process can change; a list of several tiles is loaded more than once, and its columns
 * may then not be the same. Nothing loaded may be an index before it has been compared with its range.
 */
#ifndef LOSS_CPU_H
#define LOSS_CPU_H

#include "loss/elem.h"
#include "loss/loss.h"
#include "loss/rescale.h"

enum { TILE_ROWS = 512, TILE_VALUES = MAX_NUM_CLASS };

struct tile {
    uint32_t num_rows;   /* n, at least one row even where num_class is largest */
    uint32_t num_class;  /* K */
    uint32_t num_bad;    /* rows that ON_NONFINITE_ZERO leaves out */
    bool bad[TILE_ROWS]; /* [n] which; only set where num_bad > 0 */
    /* Arrays begin where a line of the cache does: loops are several percent slower where each vector lies in two. */
    _Alignas(64) double logits[TILE_VALUES]; /* [n, K]; of bad rows 0 */
    double gradient[TILE_VALUES];            /* [n, K] sum over the losses, scaled */
    double labels[TILE_ROWS];                /* [n] */
    double weights[TILE_ROWS];               /* [n]; of bad rows 0 */
    double exps[TILE_ROWS];                  /* [n] of the list-wise loss: e^(scale (z - max z of the list)) */
    double targets[TILE_ROWS];               /* [n] raw targets of the list-wise loss */
};

/* One loss of the task that is being computed. */
struct term_run {
    const struct loss_config *config;
    double unit; /* scale of a gradient, gradient_scale included */
    double sum;  /* of the losses so far */
};

struct task_run {
    const struct task_config *config;
    const struct task_batch *batch;
    const struct prepared_task *prepared;
    struct term_run terms[MAX_LOSSES];
    void *gradient; /* where tiles are stored; NULL for nowhere */
    enum value_type gradient_type;
    size_t gradient_stride;
    bool zero_nonfinite;
    double scale;       /* 1 / temperature of the list-wise loss */
    bool scale_is_free; /* not cut at its limit: the log-scale has a gradient */
    double log_scale_gradient;
    uint32_t nonfinite_units;
    struct tile tile;
};

/* Fill the tile with the rows at positions begin to begin + count - 1 of the lists, count no more than a tile has. */
void tile_load(struct task_run *run, size_t begin, uint32_t count);
/* Write its gradients where they belong. */
void tile_store(const struct task_run *run, size_t begin);

/* A sum in the fixed order of four lanes. */
double sum_in_order(const double *values, size_t count);

/* A run of values; of rows of a tile: those that belong to one list, all of it or a part. */
struct segment {
    uint32_t begin;
    uint32_t end;
};

/* Index of the first greatest value of a segment that is not empty. A NaN is passed over, unless it is the first. */
static inline uint32_t find_max(const double *values, struct segment segment)
{
    uint32_t max = segment.begin;

    for (uint32_t i = segment.begin + 1; i < segment.end; i++)
        max = values[i] > values[max] ? i : max;
    return max;
}

/*
 * WIDE_VECTORS (daemon/loss/meson.build) marks the definitions of functions with long loops: they exist once for each
 * width of vectors, with the same bits.
 */

/* Losses over rows: add sum and gradients of the tile. */
void binary_cross_entropy_add(struct tile *tile, struct term_run *term);
void binary_focal_add(struct tile *tile, struct term_run *term);
void l2_add(struct tile *tile, struct term_run *term);
void softmax_add(struct tile *tile, struct term_run *term);

/* What one list-wise loss knows of a list; parts are added up in order. */
struct listwise_list {
    struct elem_lse logits;
    double label_max; /* of TARGET_SOFTMAX; 0 otherwise */
    double mass;      /* sum of the raw targets */
    double dot;       /* sum of raw target * scale * (z - max z) */
    uint32_t num_rows;
    uint32_t num_positive;
};

/*
 * listwise_rank_loss: add all parts to an empty list; then its loss; then the gradients of each part. A part of a list
 * that has more rows has to be loaded again in between; a whole list need not.
 */
struct listwise_list listwise_empty(void);
void listwise_scan(struct task_run *run, const struct loss_config *loss, struct segment segment,
                   struct listwise_list *list);
double listwise_loss(const struct loss_config *loss, const struct listwise_list *list);
void listwise_add(struct task_run *run, const struct term_run *term, struct segment segment,
                  const struct listwise_list *list);

/* What jrc_loss knows of a list, whatever its alpha; b and a are the columns 0 and 1. */
struct jrc_list {
    struct elem_lse negatives; /* of a over the rows with y = 0 */
    struct elem_lse positives; /* of b over the rows with y = 1 */
    double negative_tail;      /* ln(1 + rest) of both: once a part, not once a row */
    double positive_tail;
    double negative_pull; /* sum of w * sigmoid(B - b) over the rows with y = 0 */
    double positive_pull; /* sum of w * sigmoid(A - a) over the rows with y = 1 */
};

/* jrc_loss: add all parts to a list, then all pulls, then for each part losses and gradients. */
struct jrc_list jrc_empty(void);
void jrc_scan(const struct tile *tile, struct segment segment, struct jrc_list *list);
void jrc_pull(const struct tile *tile, struct segment segment, struct jrc_list *list);
void jrc_add(struct tile *tile, struct term_run *term, struct segment segment, const struct jrc_list *list);

#endif
