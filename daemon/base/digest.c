#include "base/digest.h"

#include <gnutls/crypto.h>

bool digest_sha256_hex(const void *bytes, size_t size, char hex[DIGEST_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[32];

    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, size, digest) < 0)
        return false;
    for (size_t i = 0; i < sizeof digest; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * sizeof digest] = '\0';
    return true;
}
