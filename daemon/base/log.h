/*
 * One line per event on standard error: `level=info event=listening address=…` (with a leading <N> priority under
 * systemd). The level is the one writable setting of the process. Any thread; a line is one write.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* "error", "warning", "info", "debug"; -1 for others. */
int log_level_from_name(const char *name);

void log_set_level(enum log_level level);

/* Text after the level: key=value pairs. Cut at 1 KiB; control characters are written as ?. */
void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/*
 * Lines about what clients do wrong, counted by the second: one that is wrong in a loop must not fill the disk. Zeroed
 * at first.
 */
struct log_quota {
    atomic_int_least64_t second; /* of the lines counted */
    atomic_uint lines;
};

/* Whether one more line may be written in this second, ten at the most; counts it. now_ns: monotonic. */
bool log_quota_take(struct log_quota *quota, int64_t now_ns);

#endif
