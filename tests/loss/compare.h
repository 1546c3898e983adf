/* The daemon's results against the reference's, within tolerances that come from the number formats. */
#ifndef TESTS_LOSS_COMPARE_H
#define TESTS_LOSS_COMPARE_H

#include "loss/reference.h"
#include "loss/world.h"

/* Fails the Check test where a value is off; note says which case it was. */
void compare_rank(const struct world_rank *rank, const struct reference_rank *reference, const char *note);

#endif
