/*
 * A step through shared memory beside the bare kernel on the same columns, in one process with the daemon as its child.
 * While both sides spin, and where neither does; and what memory the region takes. Each of both has a core of its own:
 * on one they would find nothing within a spin, as long as other processes are at work on the other.
 *
 * Usage: bench_shm LOSSD [--markdown]. Kernel and call take turns round by round, each with a burst of calls, of which
 * the median counts: the first ones wake the daemon, which sleeps while the kernel runs here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/client_side.h"
#include "bench/local_daemon.h"
#include "bench/report.h"
#include "bench/workload.h"

enum { MAX_BURST = 256 };

struct setting {
    const char *name;
    const char *config;
    uint32_t candidates;
    bool sleeps; /* neither side spins */
    size_t rounds;
    size_t calls;    /* of a burst */
    const char *bar; /* of the difference */
};

static const struct setting settings[] = {
    {"1000 x 1, spinning", WORKLOAD_ONE_TASK, 1000, false, 101, 256, "at most 1.0"},
    {"1000 x 1, asleep", WORKLOAD_ONE_TASK, 1000, true, 101, 64, "at most 50"},
    {"1000 x 3 and list-wise, spinning", WORKLOAD_THREE_TASKS, 1000, false, 101, 64, ""},
    {"1000 x 3 and list-wise, asleep", WORKLOAD_THREE_TASKS, 1000, true, 51, 64, ""},
    {"100000 x 3 and list-wise, spinning", WORKLOAD_THREE_TASKS, 100000, false, 61, 4, ""},
    {"100000 x 3 and list-wise, asleep", WORKLOAD_THREE_TASKS, 100000, true, 61, 4, ""},
};

/* Microseconds. */
static double burst_of_kernels(struct kernel *kernel, const struct client_side *side, size_t calls)
{
    double us[MAX_BURST];

    for (size_t i = 0; i < calls; i++) {
        const int64_t start_ns = clock_now_ns();

        kernel_run(kernel, &side->columns[(side->next + i) % NUM_BATCHES]);
        us[i] = (double)(clock_now_ns() - start_ns) / 1e3;
    }
    return median_of(us, calls);
}

static double burst_of_steps(struct client_side *side, size_t calls)
{
    double us[MAX_BURST];

    for (size_t i = 0; i < calls; i++) {
        const int64_t start_ns = clock_now_ns();

        client_side_step(side);
        us[i] = (double)(clock_now_ns() - start_ns) / 1e3;
    }
    return median_of(us, calls);
}

/* The memory that this process shares with the daemon: the region's descriptor is the only one of its kind. */
static double region_bytes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    double bytes = 0.0;
    char line[512];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin;
        unsigned long long end;

        if (strstr(line, "/memfd:") != NULL && sscanf(line, "%llx-%llx", &begin, &end) == 2)
            bytes += (double)(end - begin);
    }
    if (maps != NULL)
        (void)fclose(maps);
    return bytes;
}

static void report_setting(const struct report *report, const struct setting *setting, struct samples *kernel,
                           struct samples *call)
{
    const size_t rounds = kernel->count;
    const size_t dropped = drop_disturbed(kernel, (struct samples *const[]){kernel, call}, 2);
    char what[128];

    (void)snprintf(what, sizeof what, "bare kernel, %s", setting->name);
    report_row(report, what, quartiles_of(kernel), "us", "");
    (void)snprintf(what, sizeof what, "shared memory, %s", setting->name);
    report_row(report, what, quartiles_of(call), "us", "");
    (void)snprintf(what, sizeof what, "shared memory - kernel, %s (%zu of %zu rounds dropped)", setting->name, dropped,
                   rounds);
    report_row(report, what, quartiles_of_difference(call, kernel), "us", setting->bar);
}

static void report_memory(const struct report *report, const struct setting *setting, double idle_bytes,
                          const struct local_daemon *daemon)
{
    struct samples ratio = {.count = 0};
    char what[128];

    if (setting->candidates < 100000)
        return; /* the daemon's own few pages would be most of it */
    samples_add(&ratio, (local_daemon_memory(daemon, "VmHWM") - idle_bytes) / region_bytes());
    (void)snprintf(what, sizeof what, "daemon's memory over idle / region (%.0f MiB), %s", region_bytes() / 0x1p20,
                   setting->name);
    report_row(report, what, quartiles_of(&ratio), "", "at most 1.1");
}

static void run(const struct report *report, const struct setting *setting, const char *program)
{
    struct samples kernel_us = {.count = 0};
    struct samples call_us = {.count = 0};
    struct lossd_options options = {.transport = LOSSD_TRANSPORT_SHARED_MEMORY, .no_spin = setting->sleeps};
    struct local_daemon daemon;
    struct client_side side;
    struct kernel kernel;
    double idle_bytes;

    kernel_init(&kernel, setting->config);
    local_daemon_start(&daemon, program, setting->sleeps ? "\"spin_us\":0," : "", true);
    idle_bytes = local_daemon_memory(&daemon, "VmRSS");
    options.address = daemon.address;
    client_side_open(&side, &options, setting->config, &kernel, setting->candidates);
    for (size_t round = 0; round <= setting->rounds; round++) {
        const double kernel_median = burst_of_kernels(&kernel, &side, setting->calls);
        const double call_median = burst_of_steps(&side, setting->calls);

        if (round == 0)
            continue;
        samples_add(&kernel_us, kernel_median);
        samples_add(&call_us, call_median);
    }
    report_setting(report, setting, &kernel_us, &call_us);
    report_memory(report, setting, idle_bytes, &daemon);
    client_side_close(&side);
    local_daemon_stop(&daemon);
    kernel_finish(&kernel);
}

int main(int argc, char **argv)
{
    const struct report report = report_open(&argc, argv);

    if (argc != 2)
        bench_die("usage", "bench_shm LOSSD [--markdown]");
    report_head(&report);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        run(&report, &settings[i], argv[1]);
    return EXIT_SUCCESS;
}
