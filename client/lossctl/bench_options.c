#include "lossctl/bench_options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 1 << 24 };

static const char *const transport_names[] = {
    [LOSSD_TRANSPORT_AUTO] = "auto",
    [LOSSD_TRANSPORT_SHARED_MEMORY] = "shared-memory",
    [LOSSD_TRANSPORT_HTTP_PROTOBUF] = "protobuf",
    [LOSSD_TRANSPORT_HTTP_JSON] = "json",
};

static const char *const type_names[] = {[LOSSD_F32] = "f32", [LOSSD_F16] = "f16", [LOSSD_BF16] = "bf16"};

const char *bench_transport_name(enum lossd_transport transport)
{
    return transport_names[transport];
}

const char *bench_type_name(enum lossd_type type)
{
    return type_names[type];
}

uint32_t bench_requests(const struct bench_options *bench, uint32_t candidates)
{
    return bench->requests != 0 ? bench->requests : (candidates + bench->list_length - 1) / bench->list_length;
}

/* A whole number up to the end of the text or a comma; *end points there. */
static bool parse_whole(const char *text, uint64_t least, uint64_t most, uint64_t *value, char **end)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value = strtoull(text, end, 10);
    return errno == 0 && *value >= least && *value <= most && (**end == '\0' || **end == ',');
}

/* text NULL leaves the default. */
static int take_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end;

    if (text == NULL || (parse_whole(text, least, most, value, &end) && *end == '\0'))
        return EXIT_DONE;
    return usage("--%s %s: expected a whole number, %" PRIu64 " to %" PRIu64, option, text, least, most);
}

static int take_count(const char *option, const char *text, uint32_t most, uint32_t *value)
{
    uint64_t number = *value;
    const int exit_code = take_number(option, text, 1, most, &number);

    *value = (uint32_t)number;
    return exit_code;
}

static int take_sizes(const char *text, struct bench_options *bench)
{
    char *end;

    for (const char *next = text; next != NULL; next = *end == ',' ? end + 1 : NULL) {
        uint64_t size;

        if (bench->num_sizes == BENCH_MAX_SIZES)
            return usage("--candidates %s: expected at most %d numbers", text, BENCH_MAX_SIZES);
        if (!parse_whole(next, 1, MAX_CANDIDATES, &size, &end))
            return usage("--candidates %s: expected whole numbers, 1 to %d, with commas between", text, MAX_CANDIDATES);
        bench->candidates[bench->num_sizes++] = (uint32_t)size;
    }
    return EXIT_DONE;
}

/* Each transport once, however often it is named. */
static int take_transport(const char *text, struct bench_options *bench)
{
    for (size_t i = 0; i < sizeof transport_names / sizeof transport_names[0]; i++) {
        if (strcmp(text, transport_names[i]) != 0)
            continue;
        for (size_t t = 0; t < bench->num_transports; t++)
            if (bench->transports[t] == (enum lossd_transport)i)
                return EXIT_DONE;
        if (bench->num_transports == BENCH_NUM_TRANSPORTS)
            return usage("--transport auto is one of the others: name it alone");
        bench->transports[bench->num_transports++] = (enum lossd_transport)i;
        return EXIT_DONE;
    }
    return usage("--transport %s: expected auto, shared-memory, protobuf or json", text);
}

static int take_type(const char *text, struct bench_options *bench)
{
    for (size_t i = 0; text != NULL && i < sizeof type_names / sizeof type_names[0]; i++) {
        if (strcmp(text, type_names[i]) == 0) {
            bench->type = (enum lossd_type)i;
            return EXIT_DONE;
        }
    }
    return text == NULL ? EXIT_DONE : usage("--dtype %s: expected f32, f16 or bf16", text);
}

static int take_seconds(const char *text, struct bench_options *bench)
{
    char *end;

    if (text == NULL)
        return EXIT_DONE;
    bench->seconds = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(bench->seconds) && bench->seconds > 0.0 && bench->seconds <= 1e6)
        return EXIT_DONE;
    return usage("--seconds %s: expected a number above 0, up to 1000000", text);
}

/* What can't be told from one option alone. */
static int check(const struct bench_arguments *arguments, struct bench_options *bench)
{
    if (arguments->steps != NULL && arguments->seconds != NULL)
        return usage("--steps and --seconds: expected one of them");
    if (arguments->requests != NULL && arguments->list_length != NULL)
        return usage("--requests and --list-length: expected one of them");
    for (size_t i = 0; i < bench->num_sizes; i++)
        if (bench->requests > bench->candidates[i])
            return usage("--requests %" PRIu32 ": more than the %" PRIu32 " candidates", bench->requests,
                         bench->candidates[i]);
    return EXIT_DONE;
}

int bench_options_parse(const struct bench_arguments *arguments, struct bench_options *bench)
{
    int exit_code = EXIT_DONE;

    *bench = (struct bench_options){
        .list_length = 32, .tasks = 3, .ranks = 1, .seconds = 2.0, .warmup = 32, .progress = arguments->progress};
    for (size_t i = 0; i < arguments->num_transports && exit_code == EXIT_DONE; i++)
        exit_code = take_transport(arguments->transports[i], bench);
    if (exit_code == EXIT_DONE)
        exit_code = take_sizes(arguments->candidates == NULL ? "1000,100000" : arguments->candidates, bench);
    if (exit_code == EXIT_DONE)
        exit_code = take_count("requests", arguments->requests, MAX_CANDIDATES, &bench->requests);
    if (exit_code == EXIT_DONE)
        exit_code = take_count("list-length", arguments->list_length, MAX_CANDIDATES, &bench->list_length);
    if (exit_code == EXIT_DONE)
        exit_code = take_count("tasks", arguments->tasks, BENCH_MAX_TASKS, &bench->tasks);
    if (exit_code == EXIT_DONE)
        exit_code = take_count("ranks", arguments->ranks, BENCH_MAX_RANKS, &bench->ranks);
    if (exit_code == EXIT_DONE)
        exit_code = take_number("steps", arguments->steps, 1, UINT32_MAX, &bench->steps);
    if (exit_code == EXIT_DONE)
        exit_code = take_number("warmup", arguments->warmup, 0, UINT32_MAX, &bench->warmup);
    if (exit_code == EXIT_DONE)
        exit_code = take_seconds(arguments->seconds, bench);
    if (exit_code == EXIT_DONE)
        exit_code = take_type(arguments->dtype, bench);
    return exit_code == EXIT_DONE ? check(arguments, bench) : exit_code;
}
