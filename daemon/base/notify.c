#include "base/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

bool notify_send(const char *format, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = -1;
    char state[256];
    va_list arguments;
    size_t length;
    int size;

    if (path == NULL || (path[0] != '/' && path[0] != '@'))
        return false;
    length = strlen(path);
    if (length >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    va_start(arguments, format);
    size = vsnprintf(state, sizeof state, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof state)
        return false;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    return sendto(fd, state, (size_t)size, MSG_NOSIGNAL, (const struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == size;
}

int64_t notify_watchdog_interval_ns(void)
{
    const char *interval = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    long long usec;

    if (interval == NULL || (pid != NULL && strtoll(pid, NULL, 10) != getpid()))
        return 0;
    usec = strtoll(interval, NULL, 10);
    if (usec <= 0 || usec > INT64_MAX / 1000)
        return 0;
    return usec * 1000 / 2;
}
