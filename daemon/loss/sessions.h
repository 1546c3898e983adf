/* Lists from session ids: candidates of a batch that share an id, adjacent or not. */
#ifndef LOSS_SESSIONS_H
#define LOSS_SESSIONS_H

#include "base/arena.h"
#include "loss/loss.h"

/*
 * ids    [count]
 * arena  receives 8 * count + 4 * (number of lists + 1) bytes.
 * lists  in the order of their ids as unsigned numbers, the rows of each rising: the same for any way to run it.
 * False where the arena is full. O(count) whatever the ids, so that no choice of them makes it slow.
 */
CHECK_RESULT
bool session_lists(const int64_t *ids, uint32_t count, struct arena *arena, struct task_lists *lists);

#endif
