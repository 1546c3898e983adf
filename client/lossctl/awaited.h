/* Whom a step would wait for beside the ranks that are about to be sent. */
#ifndef LOSSCTL_AWAITED_H
#define LOSSCTL_AWAITED_H

#include "lossctl/ranks.h"

/*
 * After rank_runs_ask: say on standard error which other ranks of the groups have not come to the step yet: "lossctl:
 * GROUP has 4 ranks; step 7 waits for other ranks too: 1,3". Nothing where nobody is, or the group is not known.
 */
void awaited_print(const struct rank_runs *ranks);

#endif
