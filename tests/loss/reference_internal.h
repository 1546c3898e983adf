/* What the files of the reference share. */
#ifndef TESTS_LOSS_REFERENCE_INTERNAL_H
#define TESTS_LOSS_REFERENCE_INTERNAL_H

#include "loss/reference.h"

/* One task of one batch with everything looked up. */
struct reference_input {
    const struct task_config *config;
    const struct task_batch *batch;
    uint32_t num_rows;
    uint32_t num_lists;
    uint32_t *list_of; /* [C] */
    long double *z;    /* [C, K] */
    long double *y;    /* [C] */
    long double *w;    /* [C] */
    bool *bad_row;     /* [C] left out by ON_NONFINITE_ZERO */
    bool *bad_list;    /* [lists] */
    long double scale; /* of the list-wise loss */
    bool scale_has_gradient;
};

/* Add sum and, times unit, gradients of one loss. */
typedef void reference_loss(const struct reference_input *in, const struct loss_config *loss, long double unit,
                            long double *sum, long double *gradient, double *largest);

reference_loss reference_pointwise;
reference_loss reference_softmax;
reference_loss reference_jrc;
reference_loss reference_listwise;

long double reference_softplus(long double x);
long double reference_sigmoid(long double x);

#endif
