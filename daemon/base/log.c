#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
