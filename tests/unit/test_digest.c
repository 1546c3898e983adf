/* SHA-256 against the examples of FIPS 180-4. */
#include "base/digest.h"

#include <string.h>

#include "support/runner.h"

START_TEST(the_digest_of_nothing_is_the_known_one)
{
    char hex[DIGEST_HEX_SIZE];

    ck_assert(digest_sha256_hex("", 0, hex));
    ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
END_TEST

START_TEST(the_digest_of_abc_is_the_known_one)
{
    char hex[DIGEST_HEX_SIZE];

    ck_assert(digest_sha256_hex("abc", 3, hex));
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("digest");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, the_digest_of_nothing_is_the_known_one);
    tcase_add_test(tcase, the_digest_of_abc_is_the_known_one);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
