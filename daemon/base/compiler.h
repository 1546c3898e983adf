/* Attributes of functions, in one place. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* The caller has to look at the status. */
#define CHECK_RESULT __attribute__((warn_unused_result))

/* Inlined also where it is long: an argument that is a constant there chooses one of several loops. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#endif
