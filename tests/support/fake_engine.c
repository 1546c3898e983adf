#include "support/fake_engine.h"

static atomic_uint num_calls;
static atomic_uint num_failures;
static atomic_int_least64_t last_deadline_ns;

static enum lossd_status fake_open(const struct comm_settings *settings, void **state, struct lossd_error *err)
{
    (void)settings;
    (void)err;
    *state = NULL;
    return LOSSD_OK;
}

static enum lossd_status fake_all_reduce(void *state, double *vector, size_t count, int64_t deadline_ns,
                                         struct lossd_error *err)
{
    (void)state;
    (void)vector;
    (void)count;
    atomic_store(&last_deadline_ns, deadline_ns);
    (void)atomic_fetch_add(&num_calls, 1);
    if (atomic_load(&num_failures) == 0)
        return LOSSD_OK;
    (void)atomic_fetch_sub(&num_failures, 1);
    return error_set(err, LOSSD_INTERNAL, "", "the wire is cut");
}

static void fake_abort(void *state)
{
    (void)state;
}

static void fake_close(void *state)
{
    (void)state;
}

const struct engine fake_engine = {
    .name = "fake",
    .immediate = true,
    .open = fake_open,
    .all_reduce = fake_all_reduce,
    .abort = fake_abort,
    .close = fake_close,
};

unsigned fake_engine_calls(void)
{
    return atomic_load(&num_calls);
}

int64_t fake_engine_deadline_ns(void)
{
    return atomic_load(&last_deadline_ns);
}

void fake_engine_fail_next(unsigned count)
{
    atomic_store(&num_failures, count);
}
