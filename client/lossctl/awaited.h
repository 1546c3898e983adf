/* Whom a step would wait for beside the ranks that are about to be sent. */
#ifndef LOSSCTL_AWAITED_H
#define LOSSCTL_AWAITED_H

#include "lossctl/ranks.h"

/*
 * Ask the daemon for the groups of the files, and say on standard error which of their other ranks have not come to the
 * step yet: "lossctl: GROUP has 4 ranks; step 7 waits for other ranks too: 1,3". Nothing where nobody is; nothing
 * either where the daemon can't be asked, since the calls that follow say why.
 */
void awaited_print(const struct rank_runs *ranks);

#endif
