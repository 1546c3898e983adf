/* Attributes of functions, in one place. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* The caller has to look at the status. */
#define CHECK_RESULT __attribute__((warn_unused_result))

#endif
