/* Monotonic time in nanoseconds. Wall-clock time is for log stamps alone. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S  INT64_C(1000000000)

/* A deadline that never comes. */
#define NO_DEADLINE INT64_MAX

int64_t clock_now_ns(void);

/* now + ms without overflow: NO_DEADLINE at the worst. */
int64_t clock_after_ms(int64_t now_ns, uint64_t ms);

#endif
