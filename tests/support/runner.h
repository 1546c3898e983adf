/* What every Check program ends with: run the suite, print TAP, return the exit status. */
#ifndef TESTS_SUPPORT_RUNNER_H
#define TESTS_SUPPORT_RUNNER_H

#include <check.h>

int run_suite(Suite *suite);

#endif
