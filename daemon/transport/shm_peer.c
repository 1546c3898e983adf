/* The process at the other end of a trainer's socket. */
#include <errno.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/shm_internal.h"

/* SO_PEERPIDFD, of Linux 6.5; the headers may be older. */
enum { PEER_PIDFD = 77 };

static bool has_hung_up(int fd)
{
    struct pollfd socket = {.fd = fd, .events = POLLRDHUP};

    return poll(&socket, 1, 0) != 0;
}

/*
 * A process id may have gone to another process by the time it is looked up. As long as the peer has not forked, an
 * open socket shows that it lives, and so that the id was its own. One that has forked and is gone within the moment
 * from its connect to here may be taken for a stranger, whose end then ends a connection that nobody uses.
 */
static int pidfd_by_id(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof peer;
    int pidfd;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid == 0)
        return -1;
    pidfd = pidfd_open(peer.pid, 0);
    if (pidfd >= 0 && has_hung_up(fd)) {
        (void)close(pidfd);
        return -1;
    }
    return pidfd;
}

int shm_peer_pidfd(int fd)
{
    int pidfd = -1;
    socklen_t size = sizeof pidfd;

    if (getsockopt(fd, SOL_SOCKET, PEER_PIDFD, &pidfd, &size) == 0)
        return pidfd;
    return errno == ENOPROTOOPT ? pidfd_by_id(fd) : -1;
}
