/* A connect that is tried once more, for its errno. */
#include "client/unix_failure.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* errno of a connect to the Unix socket at path, 0 where there is one now. */
static int unix_errno(const char *path)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int cause = 0;
    int fd;

    if (strlen(path) >= sizeof where.sun_path)
        return ENAMETOOLONG;
    memcpy(where.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&where, sizeof where) != 0)
        cause = errno;
    if (fd >= 0)
        (void)close(fd);
    return cause;
}

const char *unix_failure(const char *path)
{
    const int cause = unix_errno(path);
    struct stat found;

    if (cause == ECONNREFUSED && stat(path, &found) == 0 && !S_ISSOCK(found.st_mode))
        return "Not a socket";
    if (cause == EPROTOTYPE)
        return "Not a stream socket: the one of shared memory, maybe";
    if (cause == ECONNREFUSED)
        return "Connection refused: nobody listens there";
    return cause != 0 ? strerrordesc_np(cause) : "Connection failed";
}
