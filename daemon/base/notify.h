/* Word to the service manager: one datagram to $NOTIFY_SOCKET, as sd_notify(3) would send it. */
#ifndef BASE_NOTIFY_H
#define BASE_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/*
 * "READY=1\nSTATUS=serving", "STOPPING=1", "WATCHDOG=1". True where it was sent; false where nobody listens or the
 * socket refused, which is never a reason to stop. Reads the environment: call it on the main thread.
 */
bool notify_send(const char *format, ...) PRINTF_LIKE(1, 2);

/* How often WATCHDOG=1 is due: half of $WATCHDOG_USEC; 0 where the manager asked for none (or not this process). */
int64_t notify_watchdog_interval_ns(void);

#endif
