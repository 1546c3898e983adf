/* A place that losses can be computed in, for those who write one. Callers include loss/loss.h. */
#ifndef LOSS_BACKEND_H
#define LOSS_BACKEND_H

#include "loss/loss.h"
#include "loss/rescale.h"

struct loss_backend {
    const char *name; /* "cpu" */
    /* As loss_run. */
    void (*run)(const struct loss_plan *plan, const struct prepared_batch *prepared, const struct scales *scales,
                struct result *result);
};

extern const struct loss_backend cpu_backend;

#endif
