/* What is answered beside the calls, as text: /livez, /readyz, /healthz, /metrics and /. Knows no HTTP library. */
#ifndef TRANSPORT_PAGES_H
#define TRANSPORT_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/counters.h"
#include "transport/rpc.h"

struct page_context {
    const struct rpc_context *rpc;
    const struct counters *counters;
    const struct memory_budget *budget;
    atomic_int_least64_t loop_ns; /* when the main loop last came round: its life sign */
};

/* text from malloc, for the caller to free. */
struct page_answer {
    unsigned http_status;
    const char *content_type;
    char *text;
    size_t size;
};

struct page;

/* By the path as sent; NULL for others. */
const struct page *page_find(const char *path);

/* query: without the question mark, or NULL. False where memory is out. Any thread; waits for no rank. */
bool page_render(const struct page *page, const struct page_context *context, const char *query,
                 struct page_answer *answer);

#endif
