/* Who waits for whom in a group, in words. */
#ifndef LOSSCTL_WAITS_H
#define LOSSCTL_WAITS_H

#include <stddef.h>
#include <stdio.h>

#include "lossd/v1/group.pb-c.h"

/* "waiting", "never joined"; "unknown" for states of a newer daemon. */
const char *waits_state_name(Lossd__V1__RankState state);

/* "2 waiting, 1 idle", cut to fit. */
void waits_count_states(const Lossd__V1__Group *group, char *text, size_t size);

/*
 * A line for each step that a call waits in: "GROUP step 7: ranks 0-2 wait for 3 (idle) and 4 (left), since 3.2 s".
 * A rank is waited for while it has contributed nothing to the step. One whose batch for it was refused is named
 * behind:
 * "; rank 5 refused, may send another". Nothing where nobody waits.
 */
void waits_print(const Lossd__V1__Group *group, FILE *file);

#endif
