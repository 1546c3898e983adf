/*
 * For LD_PRELOAD: counts the calls of malloc and its kin, and of those functions by which lossd and its client make
 * system calls, in a file that is shared with whoever wants to know, and makes them. The file is named by
 * LOSSD_COUNT_CALLS, has to be there, and holds one uint64 for each of enum kind.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind { MALLOC, CALLOC, REALLOC, ALIGNED, FREE, SYSTEM, NUM_KINDS };

#define SHOWN __attribute__((visibility("default")))

/* The C library's own, under the names that it keeps for those who replace the others. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

SHOWN void *memalign(size_t alignment, size_t size);

/* What is called by everybody and given nothing has no other place to keep this. */
static _Atomic(atomic_uint_least64_t *) counters;

__attribute__((constructor)) static void map_counters(void)
{
    const char *path = getenv("LOSSD_COUNT_CALLS");
    const int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *mapped;

    if (fd < 0)
        return;
    mapped = mmap(NULL, NUM_KINDS * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (mapped != MAP_FAILED)
        atomic_store(&counters, (atomic_uint_least64_t *)mapped);
}

static void count(enum kind kind)
{
    atomic_uint_least64_t *shared = atomic_load_explicit(&counters, memory_order_acquire);

    if (shared != NULL)
        (void)atomic_fetch_add_explicit(&shared[kind], 1, memory_order_relaxed);
}

SHOWN void *malloc(size_t size)
{
    count(MALLOC);
    return __libc_malloc(size);
}

SHOWN void *calloc(size_t number, size_t size)
{
    count(CALLOC);
    return __libc_calloc(number, size);
}

SHOWN void *realloc(void *memory, size_t size)
{
    count(REALLOC);
    return __libc_realloc(memory, size);
}

SHOWN void *memalign(size_t alignment, size_t size)
{
    count(ALIGNED);
    return __libc_memalign(alignment, size);
}

SHOWN void *aligned_alloc(size_t alignment, size_t size)
{
    count(ALIGNED);
    return __libc_memalign(alignment, size);
}

SHOWN int posix_memalign(void **memory, size_t alignment, size_t size)
{
    count(ALIGNED);
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

SHOWN void free(void *memory)
{
    count(FREE);
    __libc_free(memory);
}

SHOWN ssize_t read(int fd, void *bytes, size_t size)
{
    count(SYSTEM);
    return syscall(SYS_read, fd, bytes, size);
}

SHOWN ssize_t write(int fd, const void *bytes, size_t size)
{
    count(SYSTEM);
    return syscall(SYS_write, fd, bytes, size);
}

SHOWN ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    count(SYSTEM);
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

SHOWN ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    count(SYSTEM);
    return syscall(SYS_sendmsg, fd, message, flags);
}

SHOWN ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    count(SYSTEM);
    return syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
}

SHOWN ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    count(SYSTEM);
    return syscall(SYS_recvmsg, fd, message, flags);
}

SHOWN int poll(struct pollfd *polled, nfds_t number, int timeout_ms)
{
    count(SYSTEM);
    return (int)syscall(SYS_poll, polled, number, timeout_ms);
}

SHOWN int ppoll(struct pollfd *polled, nfds_t number, const struct timespec *timeout, const sigset_t *mask)
{
    struct timespec left = timeout == NULL ? (struct timespec){0} : *timeout; /* the kernel writes what is left */

    count(SYSTEM);
    return (int)syscall(SYS_ppoll, polled, number, timeout == NULL ? NULL : &left, mask, _NSIG / 8);
}

SHOWN int epoll_wait(int fd, struct epoll_event *events, int number, int timeout_ms)
{
    count(SYSTEM);
    return (int)syscall(SYS_epoll_wait, fd, events, number, timeout_ms);
}
