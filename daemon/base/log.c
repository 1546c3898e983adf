#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { QUOTA_LINES = 10 };

static const char *const names[] = {"error", "warning", "info", "debug"};
static const char priorities[] = {'3', '4', '6', '7'}; /* syslog's, for the journal */
static atomic_int max_level = LOG_LEVEL_INFO;

int log_level_from_name(const char *name)
{
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++)
        if (strcmp(names[level], name) == 0)
            return level;
    return -1;
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

/* One line whatever the text holds: what a client sent must not forge another. */
static void replace_control_characters(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
}

void log_line(enum log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int length;
    int body;

    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    length = getenv("JOURNAL_STREAM") == NULL ? 0 : snprintf(line, sizeof line, "<%c>", priorities[level]);
    length += snprintf(line + length, sizeof line - (size_t)length, "level=%s ", names[level]);
    va_start(arguments, format);
    body = vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    if (body < 0)
        return;
    length = (size_t)(length + body) < sizeof line ? length + body : (int)sizeof line - 1;
    replace_control_characters(line, (size_t)length);
    line[length] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)length + 1);
}

/* Where threads begin a second together, a line or two more may pass. */
bool log_quota_take(struct log_quota *quota, int64_t now_ns)
{
    const int64_t second = now_ns / NS_PER_S;

    if (atomic_exchange_explicit(&quota->second, second, memory_order_relaxed) != second)
        atomic_store_explicit(&quota->lines, 0, memory_order_relaxed);
    return atomic_fetch_add_explicit(&quota->lines, 1, memory_order_relaxed) < QUOTA_LINES;
}
