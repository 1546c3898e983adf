/*
 * Looking for a word of memory that another process is about to write, for a few microseconds, before going to sleep:
 * a wake-up costs tens of them. A spin that finds nothing is time that nobody else had on this core, so whoever has
 * spun in vain twice sleeps at once for a while, and then tries again. One owner, one thread.
 */
#ifndef BASE_SPINNER_H
#define BASE_SPINNER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SPINNER_MAX_NS = 20000,       /* longer than that, sleeping is cheaper than the core */
    SPINNER_TOLERATED_MISSES = 1, /* in a row: one may be an interruption */
    SPINNER_SLEEPS = 15,          /* waits without a spin after more misses than that */
};

struct spinner {
    int64_t max_ns;
    unsigned misses; /* spins in vain, one after the other */
    unsigned sleeps; /* waits that still go without a spin */
};

/* max_ns: of one spin, at most SPINNER_MAX_NS (more is taken as that); 0: never spin. Allocates nothing. */
void spinner_init(struct spinner *spinner, uint32_t max_ns);

/*
 * Whether is_ready(context) has become true: asks once in any case, and then again and again for max_ns, unless the
 * last spins were in vain. False: the caller announces that it sleeps, looks once more, and sleeps. Makes no system
 * call (the clock is the vDSO's).
 */
bool spinner_wait(struct spinner *spinner, bool (*is_ready)(void *context), void *context);

#endif
