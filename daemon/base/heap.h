/* What the process does with memory that was freed: settings of the C library's malloc. */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

/*
 * Keep up to 64 MiB of freed memory, blocks of up to 32 MiB among it, instead of giving it back at once: a call of a
 * few MiB would otherwise spend more time on new pages than on its bytes. For the whole process; before other threads
 * are started.
 */
void heap_keep_freed(void);

/* Give freed memory back to the system, all of it. Takes milliseconds, during which others may wait to allocate. */
void heap_give_back(void);

#endif
