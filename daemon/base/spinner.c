#include "base/spinner.h"

#include "base/clock.h"

/* Looks between two of the clock: a clock costs some 20 ns, a pause up to 50. */
enum { LOOKS_PER_CLOCK = 8 };

void spinner_init(struct spinner *spinner, uint32_t max_ns)
{
    *spinner = (struct spinner){.max_ns = max_ns < SPINNER_MAX_NS ? max_ns : SPINNER_MAX_NS};
}

static bool spin(int64_t max_ns, bool (*is_ready)(void *context), void *context)
{
    const int64_t end_ns = clock_now_ns() + max_ns;

    do {
        for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
            __asm__ volatile(SPIN_PAUSE ::: "memory");
            if (is_ready(context))
                return true;
        }
    } while (clock_now_ns() < end_ns);
    return false;
}

bool spinner_wait(struct spinner *spinner, bool (*is_ready)(void *context), void *context)
{
    if (is_ready(context))
        return true;
    if (spinner->max_ns == 0)
        return false;
    if (spinner->sleeps > 0) {
        spinner->sleeps--;
        return false;
    }
    if (spin(spinner->max_ns, is_ready, context)) {
        spinner->misses = 0;
        return true;
    }
    if (spinner->misses < SPINNER_TOLERATED_MISSES)
        spinner->misses++;
    else
        spinner->sleeps = SPINNER_SLEEPS;
    return false;
}
