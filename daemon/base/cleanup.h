/* Scope-bound closing of what isn't memory, and of heap memory where an arena would be out of place. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline void cleanup_free(void *pointer)
{
    free(*(void **)pointer);
}

/* Hand a descriptor on: the variable no longer owns it. */
static inline int steal_fd(int *fd)
{
    const int taken = *fd;

    *fd = -1;
    return taken;
}

#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close)))
#define CLEANUP_FREE  __attribute__((cleanup(cleanup_free)))

#endif
