/* What a hostile process does to the columns of a batch that it shares: anything, at any time. */
#ifndef TESTS_LOSS_CHANGES_H
#define TESTS_LOSS_CHANGES_H

#include "loss/layout.h"
#include "support/random.h"

/* Write over some words of the columns that may change, with values that are likely to hurt. */
void change_columns(struct laid_out *batch, struct random *random);

#endif
