/* Numbers as they lie in memory that somebody else laid out: which type, and how far apart. */
#ifndef BATCH_VALUES_H
#define BATCH_VALUES_H

#include <stddef.h>

enum value_type {
    VALUE_F32,  /* IEEE binary32 */
    VALUE_F16,  /* IEEE binary16 */
    VALUE_BF16, /* the upper half of a binary32 */
    NUM_VALUE_TYPES,
};

/* Bytes of an element: 4, 2, 2. */
static inline size_t value_size(enum value_type type)
{
    return type == VALUE_F32 ? 4 : 2;
}

#endif
