/* Whoever waits for the daemon asks the user now and then whether to go on. */
#ifndef CLIENT_INTERRUPT_H
#define CLIENT_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* From one question to the next. */
#define INTERRUPT_INTERVAL_NS (100 * NS_PER_MS)

struct interrupt {
    uint32_t (*interrupted)(void *context); /* NULL: nobody is asked */
    void *context;
    int64_t next_ns; /* not before; 0: at the next occasion */
};

/* Ask where it is time to: true where the wait has to end. interrupt may be NULL. */
static inline bool interrupt_asks(struct interrupt *interrupt)
{
    int64_t now_ns;

    if (interrupt == NULL || interrupt->interrupted == NULL)
        return false;
    now_ns = clock_now_ns();
    if (now_ns < interrupt->next_ns)
        return false;
    interrupt->next_ns = now_ns + INTERRUPT_INTERVAL_NS;
    return interrupt->interrupted(interrupt->context) != 0;
}

#endif
