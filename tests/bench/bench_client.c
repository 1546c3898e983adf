/*
 * What a step of 1e5 candidates and 3 tasks costs a C program with liblossd, over each transport: with columns written
 * in place, and with columns that are copied into the buffers first. Other clients are measured against it.
 *
 * Usage: bench_client LOSSD|ADDRESS [--transport NAME] [--json | --markdown]. With an address it measures a daemon that
 * runs there; NAME is shared-memory, protobuf or json, of which all are measured where none is named.
 *
 * JSON: an array of {"transport", "candidates", "tasks", "rounds", "call_us", "copy_and_call_us"}, the times as objects
 * with "median", "lower", "upper" (quartiles) and "least".
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/client_side.h"
#include "bench/local_daemon.h"
#include "bench/report.h"
#include "bench/workload.h"

enum { CANDIDATES = 100000, ROUNDS = 25, NUM_TRANSPORTS = 3 };

static const struct {
    const char *name;
    enum lossd_transport transport;
} transports[NUM_TRANSPORTS] = {
    {"shared-memory", LOSSD_TRANSPORT_SHARED_MEMORY},
    {"protobuf", LOSSD_TRANSPORT_HTTP_PROTOBUF},
    {"json", LOSSD_TRANSPORT_HTTP_JSON},
};

struct arguments {
    const char *place;
    const char *transport; /* NULL: all */
    bool is_json;
    struct report report;
};

typedef void (*step)(struct client_side *side);

static double measure(struct client_side *side, step make_step)
{
    const int64_t start_ns = clock_now_ns();

    make_step(side);
    return (double)(clock_now_ns() - start_ns) / 1e3;
}

static void print_json(const char *name, struct quartiles q)
{
    printf(",\"%s\":{\"median\":%.3f,\"lower\":%.3f,\"upper\":%.3f,\"least\":%.3f}", name, q.median, q.lower, q.upper,
           q.least);
}

static void tell(const struct arguments *arguments, const char *name, const struct samples *call,
                 const struct samples *copy, bool is_first)
{
    char what[128];

    if (arguments->is_json) {
        printf("%s{\"transport\":\"%s\",\"candidates\":%d,\"tasks\":3,\"rounds\":%d", is_first ? "" : ",", name,
               CANDIDATES, ROUNDS);
        print_json("call_us", quartiles_of(call));
        print_json("copy_and_call_us", quartiles_of(copy));
        printf("}");
        return;
    }
    (void)snprintf(what, sizeof what, "liblossd, %s, %d x 3", name, CANDIDATES);
    report_row(&arguments->report, what, quartiles_of(call), "us", "");
    (void)snprintf(what, sizeof what, "liblossd, %s, columns copied in, %d x 3", name, CANDIDATES);
    report_row(&arguments->report, what, quartiles_of(copy), "us", "");
}

static void run(const struct arguments *arguments, const char *address, struct kernel *kernel, size_t transport,
                bool is_first)
{
    const struct lossd_options options = {.address = address, .transport = transports[transport].transport};
    struct samples call = {.count = 0};
    struct samples copy = {.count = 0};
    struct client_side side;

    client_side_open(&side, &options, WORKLOAD_THREE_TASKS, kernel, CANDIDATES);
    for (int round = 0; round < ROUNDS; round++) {
        samples_add(&call, measure(&side, client_side_step));
        samples_add(&copy, measure(&side, client_side_copy_and_step));
    }
    tell(arguments, transports[transport].name, &call, &copy, is_first);
    client_side_close(&side);
}

static void run_all(const struct arguments *arguments, const char *address)
{
    struct kernel kernel;
    bool is_first = true;

    kernel_init(&kernel, WORKLOAD_THREE_TASKS);
    if (arguments->is_json)
        fputs("[", stdout);
    else
        report_head(&arguments->report);
    for (size_t i = 0; i < NUM_TRANSPORTS; i++) {
        if (arguments->transport != NULL && strcmp(arguments->transport, transports[i].name) != 0)
            continue;
        run(arguments, address, &kernel, i, is_first);
        is_first = false;
    }
    if (arguments->is_json)
        puts("]");
    if (is_first)
        bench_die("--transport", "expected shared-memory, protobuf or json");
    kernel_finish(&kernel);
}

static struct arguments parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"transport", required_argument, NULL, 't'}, {"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    struct arguments arguments = {.report = report_open(&argc, argv)};
    int letter;

    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (letter == 't')
            arguments.transport = optarg;
        else if (letter == 'j')
            arguments.is_json = true;
    }
    if (argc != optind + 1)
        bench_die("usage", "bench_client LOSSD|ADDRESS [--transport NAME] [--json | --markdown]");
    arguments.place = argv[optind];
    return arguments;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = parse(argc, argv);
    struct local_daemon daemon;

    if (strncmp(arguments.place, "unix:", 5) == 0 || strncmp(arguments.place, "http", 4) == 0) {
        run_all(&arguments, arguments.place);
        return EXIT_SUCCESS;
    }
    local_daemon_start(&daemon, arguments.place, "", false);
    run_all(&arguments, daemon.address);
    local_daemon_stop(&daemon);
    return EXIT_SUCCESS;
}
