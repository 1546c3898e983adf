/* An engine that sums nothing, counts its calls and fails those that it is told to. */
#ifndef TESTS_SUPPORT_FAKE_ENGINE_H
#define TESTS_SUPPORT_FAKE_ENGINE_H

#include <stdatomic.h>

#include "collective/engine.h"

extern const struct engine fake_engine;

/* Of the process: engines have no other way to the test. */
unsigned fake_engine_calls(void);

/* Of the last call. */
int64_t fake_engine_deadline_ns(void);

/* The next count calls fail with LOSSD_INTERNAL, "the wire is cut". */
void fake_engine_fail_next(unsigned count);

#endif
