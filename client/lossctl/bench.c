/* lossctl bench: how long steps take over each transport, and how many there are in a second. */
#include <inttypes.h>
#include <stdio.h>

#include "lossctl/bench_batch.h"
#include "lossctl/bench_options.h"
#include "lossctl/bench_run.h"
#include "lossctl/command.h"
#include "lossctl/failure.h"
#include "lossctl/table.h"

enum { MAX_ROWS = BENCH_NUM_TRANSPORTS * BENCH_MAX_SIZES };

struct rows {
    struct bench_row of[MAX_ROWS];
    size_t count;
};

static double us(double ns)
{
    return ns / 1e3;
}

static double percentile_us(const struct bench_row *row, double share)
{
    return us(histogram_percentile_ns(&row->latency, share));
}

static double steps_per_second(const struct bench_row *row)
{
    return row->seconds > 0.0 ? (double)row->steps / row->seconds : 0.0;
}

static void print_table(const struct bench_options *bench, const struct rows *rows)
{
    struct table table;

    table_init(&table, "lrrrrrrrrrr");
    table_row(&table, "TRANSPORT", "CANDIDATES", "STEPS", "P50 us", "P90 us", "P99 us", "P99.9 us", "MAX us", "STEPS/s",
              "CANDIDATES/s", "MB/s");
    for (size_t i = 0; i < rows->count; i++) {
        const struct bench_row *row = &rows->of[i];
        const double rate = steps_per_second(row);

        table_cell(&table, "%s", bench_transport_name(row->transport));
        table_cell(&table, "%" PRIu32, row->candidates);
        table_cell(&table, "%" PRIu64, row->steps);
        table_cell(&table, "%.1f", percentile_us(row, 0.5));
        table_cell(&table, "%.1f", percentile_us(row, 0.9));
        table_cell(&table, "%.1f", percentile_us(row, 0.99));
        table_cell(&table, "%.1f", percentile_us(row, 0.999));
        table_cell(&table, "%.1f", us((double)row->latency.max_ns));
        table_cell(&table, "%.1f", rate);
        table_cell(&table, "%.3g", rate * row->candidates * bench->ranks);
        table_cell(&table, "%.1f", rate * (double)bench_bytes(bench, row->candidates) * bench->ranks / 1e6);
    }
    (void)table_print_and_finish(&table, stdout);
}

static void print_json_row(const struct bench_options *bench, const struct bench_row *row)
{
    const double rate = steps_per_second(row);

    printf("{\"transport\":\"%s\",\"candidates\":%" PRIu32 ",\"requests\":%" PRIu32 ",\"tasks\":%" PRIu32
           ",\"ranks\":%" PRIu32 ",\"dtype\":\"%s\",\"steps\":%" PRIu64 ",\"seconds\":%.6f,\"interrupted\":%s,",
           bench_transport_name(row->transport), row->candidates, row->requests, bench->tasks, bench->ranks,
           bench_type_name(bench->type), row->steps, row->seconds, row->interrupted ? "true" : "false");
    printf("\"latency_us\":{\"min\":%.3f,\"mean\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p99_9\":%.3f,"
           "\"max\":%.3f},",
           us((double)row->latency.min_ns), us(row->latency.sum_ns / (double)row->latency.total),
           percentile_us(row, 0.5), percentile_us(row, 0.9), percentile_us(row, 0.99), percentile_us(row, 0.999),
           us((double)row->latency.max_ns));
    printf("\"steps_per_second\":%.3f,\"candidates_per_second\":%.3f,\"bytes_per_second\":%.3f}", rate,
           rate * row->candidates * bench->ranks, rate * (double)bench_bytes(bench, row->candidates) * bench->ranks);
}

static void print_json(const struct bench_options *bench, const struct rows *rows)
{
    printf("{\"results\":[");
    for (size_t i = 0; i < rows->count; i++) {
        fputs(i == 0 ? "" : ",", stdout);
        print_json_row(bench, &rows->of[i]);
    }
    puts("]}");
}

static int report_failure(const struct options *options, const char *who, const struct lossd_failure *failure)
{
    struct failure told;
    const int exit_code = failure_from_client(&told, failure);

    if (options->json)
        failure_print_json(&told, stderr);
    else
        failure_print(&told, who);
    failure_finish(&told);
    return exit_code;
}

/* All that the address offers, where no transport is named: one step of one candidate shows it. */
static int choose_transports(const struct options *options, struct bench_options *bench)
{
    const struct bench_options probe = {.list_length = 1, .tasks = 1, .ranks = 1, .steps = 1};
    struct bench_row row;
    struct lossd_failure failure;

    if (bench->num_transports > 0)
        return EXIT_DONE;
    if (!bench_run(options, &probe, LOSSD_TRANSPORT_AUTO, 1, &row, &failure))
        return report_failure(options, NULL, &failure);
    if (row.interrupted)
        return EXIT_INTERRUPTED;
    if (row.transport == LOSSD_TRANSPORT_SHARED_MEMORY)
        bench->transports[bench->num_transports++] = LOSSD_TRANSPORT_SHARED_MEMORY;
    bench->transports[bench->num_transports++] = LOSSD_TRANSPORT_HTTP_PROTOBUF;
    bench->transports[bench->num_transports++] = LOSSD_TRANSPORT_HTTP_JSON;
    return EXIT_DONE;
}

/* One that fails does not keep the others from being measured. The first failure's exit code. */
static int measure(const struct options *options, const struct bench_options *bench, struct rows *rows)
{
    int exit_code = EXIT_DONE;

    for (size_t t = 0; t < bench->num_transports; t++) {
        for (size_t i = 0; i < bench->num_sizes; i++) {
            struct bench_row *row = &rows->of[rows->count];
            struct lossd_failure failure;
            char who[64];
            int code;

            if (bench_run(options, bench, bench->transports[t], bench->candidates[i], row, &failure)) {
                rows->count += row->latency.total > 0;
                if (row->interrupted)
                    return EXIT_INTERRUPTED;
                continue;
            }
            (void)snprintf(who, sizeof who, "%s, %" PRIu32 " candidates", bench_transport_name(bench->transports[t]),
                           bench->candidates[i]);
            code = report_failure(options, who, &failure);
            exit_code = exit_code == EXIT_DONE ? code : exit_code;
        }
    }
    return exit_code;
}

int command_bench(const struct options *options, int argc, char **argv)
{
    struct bench_options bench;
    struct rows rows = {.count = 0};
    int exit_code;

    (void)argv;
    if (argc != 0)
        return usage("bench takes no arguments but options");
    exit_code = bench_options_parse(&options->bench, &bench);
    if (exit_code != EXIT_DONE)
        return exit_code;
    bench_block_signals();
    exit_code = choose_transports(options, &bench);
    if (bench.num_transports > 0)
        exit_code = measure(options, &bench, &rows);
    if (options->json)
        print_json(&bench, &rows);
    else if (rows.count > 0)
        print_table(&bench, &rows);
    return exit_code;
}
