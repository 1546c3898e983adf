#include "transport/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { BACKLOG = 1024, FIRST_INHERITED_FD = 3, HOST_SIZE = 256 };

const char *listener_unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

/* "host:port" or "[v6]:port" into its parts; *port points into address. */
static bool split_address(const char *address, char host[HOST_SIZE], const char **port)
{
    const char *colon = strrchr(address, ':');
    const char *start = address;
    const char *end = colon;
    char *rest;

    if (colon == NULL)
        return false;
    if (*address == '[') {
        if (colon[-1] != ']')
            return false;
        start++;
        end--;
    } else if (memchr(address, ':', (size_t)(colon - address)) != NULL) {
        return false;
    }
    if (end - start >= HOST_SIZE || colon[1] < '0' || colon[1] > '9' || strtoul(colon + 1, &rest, 10) > 65535 ||
        *rest != '\0')
        return false;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *port = colon + 1;
    return true;
}

enum lossd_status listener_check_address(const char *address, struct lossd_error *err)
{
    const char *path = listener_unix_path(address);
    char host[HOST_SIZE];
    const char *port;

    if (path != NULL) {
        if (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
            return error_set(err, LOSSD_INVALID_ARGUMENT, "listen",
                             "`%s` is not unix: and an absolute path of less than 108 bytes", address);
        return LOSSD_OK;
    }
    if (!split_address(address, host, &port))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "listen", "`%s` is neither host:port nor unix:/path", address);
    return LOSSD_OK;
}

static enum lossd_status system_error(struct lossd_error *err, const char *address, const char *what)
{
    return error_set(err, LOSSD_INTERNAL, "listen", "`%s`: %s: %s", address, what, strerror(errno));
}

static bool is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    if (address->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127);
    return true;
}

static enum lossd_status check_exposure(const struct sockaddr *address, const char *name, bool insecure,
                                        struct lossd_error *err)
{
    if (insecure || is_loopback(address))
        return LOSSD_OK;
    return error_set(err, LOSSD_INVALID_ARGUMENT, "listen",
                     "`%s` can be reached from other machines, and calls are neither encrypted nor authenticated: "
                     "--insecure (\"insecure\": true) allows that",
                     name);
}

/* host NULL is any address. found: for freeaddrinfo, after 0 only. */
static int resolve(const char *host, const char *port, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV | flags};

    return getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, found);
}

/* Why a socket can't be bound: mostly its folder. path is absolute. */
static enum lossd_status bind_error(const char *address, const char *path, struct lossd_error *err)
{
    const int number = errno;
    char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct stat file;

    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (stat(folder[0] == '\0' ? "/" : folder, &file) != 0)
        return system_error(err, address, folder);
    if (!S_ISDIR(file.st_mode))
        return error_set(err, LOSSD_INTERNAL, "listen", "`%s`: %s is not a folder", address, folder);
    errno = number;
    return system_error(err, address, "bind");
}

enum lossd_status listener_check_place(const char *address, bool insecure, struct lossd_error *err)
{
    enum lossd_status status = LOSSD_OK;
    struct addrinfo *found;
    char host[HOST_SIZE];
    const char *port;

    if (listener_unix_path(address) != NULL || !split_address(address, host, &port) ||
        resolve(host, port, AI_NUMERICHOST, &found) != 0)
        return LOSSD_OK;
    for (const struct addrinfo *info = found; info != NULL && status == LOSSD_OK; info = info->ai_next)
        status = check_exposure(info->ai_addr, address, insecure, err);
    freeaddrinfo(found);
    return status;
}

/* The address that the socket really has. */
static bool name_socket(struct listener *listener)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_un *local = (struct sockaddr_un *)&storage;
    socklen_t length = sizeof storage;
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];

    if (getsockname(listener->fd, (struct sockaddr *)&storage, &length) != 0)
        return false;
    if (storage.ss_family == AF_UNIX) {
        const size_t path_length = length - offsetof(struct sockaddr_un, sun_path);

        if (path_length > 0 && local->sun_path[0] == '\0')
            local->sun_path[0] = '@';
        (void)snprintf(listener->address, sizeof listener->address, "unix:%.*s",
                       (int)strnlen(local->sun_path, path_length), local->sun_path);
        return true;
    }
    if (getnameinfo((struct sockaddr *)&storage, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    return snprintf(listener->address, sizeof listener->address, strchr(host, ':') == NULL ? "%s:%s" : "[%s]:%s", host,
                    port) < (int)sizeof listener->address;
}

static int open_tcp(const struct addrinfo *info)
{
    static const int on = 1;
    CLEANUP_CLOSE int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)
        return -1;
    return steal_fd(&fd);
}

/* The first address of the host that can be bound. */
static enum lossd_status listen_tcp(struct listener *listener, const char *address, bool insecure,
                                    struct lossd_error *err)
{
    enum lossd_status status = LOSSD_OK;
    struct addrinfo *found;
    char host[HOST_SIZE];
    const char *port;
    int code;

    if (!split_address(address, host, &port))
        return error_set(err, LOSSD_INVALID_ARGUMENT, "listen", "`%s` is not host:port", address);
    code = resolve(host, port, 0, &found);
    if (code != 0)
        return error_set(err, LOSSD_INTERNAL, "listen", "`%s`: %s", address, gai_strerror(code));
    for (const struct addrinfo *info = found; info != NULL && listener->fd < 0; info = info->ai_next) {
        status = check_exposure(info->ai_addr, address, insecure, err);
        if (status != LOSSD_OK)
            break;
        listener->fd = open_tcp(info);
    }
    if (status == LOSSD_OK && listener->fd < 0)
        status = system_error(err, address, "bind");
    freeaddrinfo(found);
    return status;
}

/* Nobody listens on it any more: a daemon that was killed left it. */
static bool is_stale(const struct sockaddr_un *address, int type)
{
    CLEANUP_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
}

static bool bind_unix(int fd, const struct sockaddr_un *address)
{
    const mode_t mask = umask(0117); /* the file is 0660 from its first moment */
    const bool bound = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;

    (void)umask(mask);
    return bound;
}

static enum lossd_status listen_unix(struct listener *listener, const char *address, int type, struct lossd_error *err)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat file;
    bool is_held;
    bool bound;

    if (fd < 0)
        return system_error(err, address, "socket");
    (void)snprintf(local.sun_path, sizeof local.sun_path, "%s", listener_unix_path(address));
    bound = bind_unix(fd, &local);
    is_held = !bound && errno == EADDRINUSE && lstat(local.sun_path, &file) == 0;
    if (is_held && !S_ISSOCK(file.st_mode))
        return error_set(err, LOSSD_INTERNAL, "listen", "`%s`: the path is held by something that is not a socket",
                         address);
    if (is_held && is_stale(&local, type)) {
        (void)unlink(local.sun_path);
        bound = bind_unix(fd, &local);
    }
    if (!bound)
        return bind_error(address, local.sun_path, err);
    if (listen(fd, BACKLOG) != 0 || lstat(local.sun_path, &file) != 0)
        return system_error(err, address, "listen");
    listener->device = file.st_dev;
    listener->inode = file.st_ino;
    listener->is_records = type == SOCK_SEQPACKET;
    listener->owns_file = true;
    listener->fd = steal_fd(&fd);
    return LOSSD_OK;
}

enum lossd_status listener_open(struct listener *listener, const char *address, bool insecure, struct lossd_error *err)
{
    struct listener opened = {.fd = -1};
    enum lossd_status status = listener_check_address(address, err);

    if (status != LOSSD_OK)
        return status;
    status = listener_unix_path(address) != NULL ? listen_unix(&opened, address, SOCK_STREAM, err)
                                                 : listen_tcp(&opened, address, insecure, err);
    if (status != LOSSD_OK)
        return status;
    if (!name_socket(&opened)) {
        status = system_error(err, address, "getsockname");
        (void)close(opened.fd);
        return status;
    }
    *listener = opened;
    return LOSSD_OK;
}

enum lossd_status listener_open_records(struct listener *listener, const char *address, struct lossd_error *err)
{
    struct listener opened = {.fd = -1};
    enum lossd_status status = listener_check_address(address, err);

    if (status == LOSSD_OK && listener_unix_path(address) == NULL)
        status = error_set(err, LOSSD_INVALID_ARGUMENT, "listen", "`%s` is not unix:/path", address);
    if (status == LOSSD_OK)
        status = listen_unix(&opened, address, SOCK_SEQPACKET, err);
    if (status != LOSSD_OK)
        return status;
    (void)snprintf(opened.address, sizeof opened.address, "%s", address);
    *listener = opened;
    return LOSSD_OK;
}

static enum lossd_status inherit_one(struct listener *listener, int fd, bool insecure, struct lossd_error *err)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    int type = 0;
    socklen_t type_length = sizeof type;

    *listener = (struct listener){.fd = fd};
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0 ||
        getsockname(fd, (struct sockaddr *)&storage, &length) != 0 || !name_socket(listener) ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0 ||
        (type != SOCK_STREAM && (type != SOCK_SEQPACKET || storage.ss_family != AF_UNIX)))
        return error_set(err, LOSSD_INTERNAL, "listen",
                         "descriptor %d of LISTEN_FDS is neither a stream socket nor a Unix socket of records", fd);
    listener->is_records = type == SOCK_SEQPACKET;
    return check_exposure((const struct sockaddr *)&storage, listener->address, insecure, err);
}

enum lossd_status listener_inherit(struct listener *listeners, size_t max, size_t *count, bool insecure,
                                   struct lossd_error *err)
{
    const char *pid = getenv("LISTEN_PID");
    const char *fds = getenv("LISTEN_FDS");
    const bool ours = pid != NULL && fds != NULL && strtol(pid, NULL, 10) == getpid();
    const long number = ours ? strtol(fds, NULL, 10) : 0;
    enum lossd_status status = LOSSD_OK;

    *count = 0;
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    if (number < 0 || (unsigned long)number > max)
        return error_set(err, LOSSD_INVALID_ARGUMENT, "listen", "LISTEN_FDS is %ld, but at most %zu are taken", number,
                         max);
    for (long i = 0; i < number && status == LOSSD_OK; i++)
        status = inherit_one(&listeners[(*count)++], FIRST_INHERITED_FD + (int)i, insecure, err);
    if (status != LOSSD_OK)
        while (*count > 0)
            listener_close(&listeners[--*count]);
    return status;
}

/* The file goes first: as long as the descriptor is open, its inode can't be that of another daemon's new socket. */
void listener_close(struct listener *listener)
{
    struct stat file;

    if (listener->owns_file && lstat(listener_unix_path(listener->address), &file) == 0 &&
        file.st_dev == listener->device && file.st_ino == listener->inode)
        (void)unlink(listener_unix_path(listener->address));
    listener->owns_file = false;
    if (listener->fd >= 0)
        (void)close(listener->fd);
    listener->fd = -1;
}
