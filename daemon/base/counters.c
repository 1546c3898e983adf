/* The table of metrics, and its Prometheus text (version 0.0.4). */
#include "base/counters.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

static const struct metric_info table[NUM_METRICS] = {
    [METRIC_BUILD_INFO] = {"lossd_build_info", "gauge", "version", "Always 1; says which build this is"},
    [METRIC_ALL_REDUCES] = {"lossd_all_reduces_total", "counter", "group,engine",
                            "All-reduces, one for each attempt at a step: done, failed and aborted ones"},
    [METRIC_STEPS] = {"lossd_steps_total", "counter", "group,result", "Attempts at a step by how they ended"},
    [METRIC_RPC_REQUESTS] = {"lossd_rpc_requests_total", "counter", "method,code",
                             "Answered calls by method and Connect code"},
    [METRIC_PARKED_CALLS] = {"lossd_parked_calls", "gauge", "",
                             "Calls that wait for other ranks or are being computed"},
    [METRIC_OPEN_CALLS] = {"lossd_open_calls", "gauge", "", "Calls that are being received, parked or answered"},
    [METRIC_CONNECTIONS] = {"lossd_connections", "gauge", "", "Open connections of all listeners"},
    [METRIC_MEMORY_BYTES] = {"lossd_memory_bytes", "gauge", "",
                             "Memory that bodies, batches and answers hold, of limits.memory_bytes"},
    [METRIC_SHARED_MEMORY_CLIENTS] = {"lossd_shared_memory_clients", "gauge", "",
                                      "Trainers that are attached through shared memory"},
    [METRIC_REGION_BYTES] = {"lossd_region_bytes", "gauge", "",
                             "Memory that is shared with trainers, of limits.regions_bytes"},
};

const struct metric_info *metric_info(enum metric metric)
{
    return &table[metric];
}

void metric_write_head(FILE *out, enum metric metric)
{
    const struct metric_info *info = &table[metric];

    (void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", info->name, info->help, info->name, info->kind);
}

static void write_label_value(FILE *out, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            (void)fputs("\\n", out);
            continue;
        }
        if (*value == '\\' || *value == '"')
            (void)fputc('\\', out);
        (void)fputc(*value, out);
    }
}

void metric_write_sample(FILE *out, enum metric metric, uint64_t value, ...)
{
    const char *label = table[metric].labels;
    const char *label_value;
    va_list values;
    char separator = '{';

    (void)fputs(table[metric].name, out);
    va_start(values, value);
    while ((label_value = va_arg(values, const char *)) != NULL && *label != '\0') {
        const size_t length = strcspn(label, ",");

        (void)fprintf(out, "%c%.*s=\"", separator, (int)length, label);
        write_label_value(out, label_value);
        (void)fputc('"', out);
        separator = ',';
        label += length + (label[length] == ',');
    }
    va_end(values);
    (void)fprintf(out, "%s %" PRIu64 "\n", separator == ',' ? "}" : "", value);
}
