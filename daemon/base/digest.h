/* SHA-256. The one home of GnuTLS's hashes. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_HEX_SIZE = 65 };

/* Lower-case hexadecimal with a NUL. False where the library refuses, which memory alone can be the reason of. */
bool digest_sha256_hex(const void *bytes, size_t size, char hex[DIGEST_HEX_SIZE]);

#endif
