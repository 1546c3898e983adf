#include "base/clock.h"

#include <time.h>

int64_t clock_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_after_ms(int64_t now_ns, uint64_t ms)
{
    if (ms > (uint64_t)(NO_DEADLINE - now_ns) / (uint64_t)NS_PER_MS)
        return NO_DEADLINE;
    return now_ns + (int64_t)ms * NS_PER_MS;
}
