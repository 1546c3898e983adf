#include "transport/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct page {
    const char *path;
    const char *content_type;
    /* Writes the text and returns the HTTP status. */
    unsigned (*write)(FILE *out, const struct page_context *context, bool verbose);
};

enum { LOOP_LIMIT_S = 30 };

static bool loop_is_alive(const struct page_context *context)
{
    return clock_now_ns() - atomic_load_explicit(&context->loop_ns, memory_order_relaxed) < LOOP_LIMIT_S * NS_PER_S;
}

static unsigned write_check(FILE *out, const char *name, bool passed, bool verbose)
{
    if (verbose)
        (void)fprintf(out, "[%c]%s %s\n", passed ? '+' : '-', name, passed ? "ok" : "failed");
    return passed ? 200 : 503;
}

/* Whether restarting would help: never depends on other ranks. */
static unsigned write_livez(FILE *out, const struct page_context *context, bool verbose)
{
    const unsigned status = write_check(out, "loop", loop_is_alive(context), verbose);

    (void)fputs(status == 200 ? "ok\n" : "failed\n", out);
    return status;
}

static unsigned write_readyz(FILE *out, const struct page_context *context, bool verbose)
{
    const bool draining = atomic_load(&context->rpc->draining);
    const unsigned loop = write_check(out, "loop", loop_is_alive(context), verbose);
    const unsigned not_draining = write_check(out, "not-draining", !draining, verbose);

    if (loop != 200 || not_draining != 200) {
        (void)fputs(draining ? "draining\n" : "failed\n", out);
        return 503;
    }
    (void)fputs("ok\n", out);
    return 200;
}

static void write_group_metrics(FILE *out, struct registry *registry)
{
    struct lossd_error err;
    struct group_view *views;
    size_t count;

    error_init(&err);
    if (registry_view_all(registry, &views, &count, &err) != LOSSD_OK)
        return;
    metric_write_head(out, METRIC_ALL_REDUCES);
    for (size_t i = 0; i < count; i++)
        metric_write_sample(out, METRIC_ALL_REDUCES, views[i].all_reduces, views[i].name, views[i].engine, NULL);
    metric_write_head(out, METRIC_STEPS);
    for (size_t i = 0; i < count; i++) {
        metric_write_sample(out, METRIC_STEPS, views[i].steps.done, views[i].name, "done", NULL);
        metric_write_sample(out, METRIC_STEPS, views[i].steps.failed, views[i].name, "failed", NULL);
        metric_write_sample(out, METRIC_STEPS, views[i].steps.aborted, views[i].name, "aborted", NULL);
        group_view_finish(&views[i]);
    }
    free(views);
}

/* Codes that never came are left out. */
static void write_rpc_metrics(FILE *out, const struct counters *counters)
{
    metric_write_head(out, METRIC_RPC_REQUESTS);
    for (size_t m = 0; m < rpc_num_methods; m++)
        for (unsigned code = 0; code < COUNTERS_CODES; code++) {
            const uint64_t value = atomic_load_explicit(&counters->rpc_requests[m][code], memory_order_relaxed);

            if (value > 0)
                metric_write_sample(out, METRIC_RPC_REQUESTS, value, rpc_methods[m].path + 1,
                                    code == 0 ? "ok" : connect_code_name((enum connect_code)code), NULL);
        }
}

static void write_gauge(FILE *out, enum metric metric, int64_t value)
{
    metric_write_head(out, metric);
    metric_write_sample(out, metric, value < 0 ? 0 : (uint64_t)value, NULL);
}

static unsigned write_metrics(FILE *out, const struct page_context *context, bool verbose)
{
    (void)verbose;
    metric_write_head(out, METRIC_BUILD_INFO);
    metric_write_sample(out, METRIC_BUILD_INFO, 1, LOSSD_VERSION, NULL);
    write_group_metrics(out, context->rpc->registry);
    write_rpc_metrics(out, context->counters);
    write_gauge(out, METRIC_PARKED_CALLS, gauge_get(&context->counters->parked_calls));
    write_gauge(out, METRIC_OPEN_CALLS, gauge_get(&context->counters->open_calls));
    write_gauge(out, METRIC_CONNECTIONS, gauge_get(&context->counters->connections));
    metric_write_head(out, METRIC_MEMORY_BYTES);
    metric_write_sample(out, METRIC_MEMORY_BYTES,
                        atomic_load_explicit(&context->budget->used_bytes, memory_order_relaxed), NULL);
    write_gauge(out, METRIC_SHARED_MEMORY_CLIENTS, gauge_get(&context->counters->shared_memory_clients));
    write_gauge(out, METRIC_REGION_BYTES, gauge_get(&context->counters->region_bytes));
    return 200;
}

static unsigned write_index(FILE *out, const struct page_context *context, bool verbose)
{
    (void)context;
    (void)verbose;
    (void)fputs("lossd " LOSSD_VERSION "\n\n/livez\n/readyz\n/metrics\n", out);
    for (size_t m = 0; m < rpc_num_methods; m++)
        (void)fprintf(out, "%s\n", rpc_methods[m].path);
    return 200;
}

#define PLAIN_TEXT "text/plain; charset=utf-8"

static const struct page pages[] = {
    {"/", PLAIN_TEXT, write_index},        {"/livez", PLAIN_TEXT, write_livez},
    {"/healthz", PLAIN_TEXT, write_livez}, /* what older probes ask for */
    {"/readyz", PLAIN_TEXT, write_readyz}, {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
};

const struct page *page_find(const char *path)
{
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

bool page_render(const struct page *page, const struct page_context *context, const char *query,
                 struct page_answer *answer)
{
    const bool verbose = query != NULL && (strcmp(query, "verbose") == 0 || strncmp(query, "verbose=", 8) == 0);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    unsigned http_status;
    bool failed;

    if (out == NULL)
        return false;
    http_status = page->write(out, context, verbose);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return false;
    }
    *answer = (struct page_answer){http_status, page->content_type, text, size};
    return true;
}
