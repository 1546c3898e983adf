#include "bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void samples_add(struct samples *samples, double value)
{
    if (samples->count < MAX_ROUNDS)
        samples->of[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

double median_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

struct quartiles quartiles_of(const struct samples *samples)
{
    struct samples sorted = *samples;

    qsort(sorted.of, sorted.count, sizeof sorted.of[0], compare);
    return (struct quartiles){
        .least = sorted.of[0],
        .lower = sorted.of[sorted.count / 4],
        .median = sorted.of[sorted.count / 2],
        .upper = sorted.of[sorted.count * 3 / 4],
    };
}

struct quartiles quartiles_of_difference(const struct samples *a, const struct samples *b)
{
    struct samples differences = {.count = 0};

    for (size_t i = 0; i < a->count; i++)
        samples_add(&differences, a->of[i] - b->of[i]);
    return quartiles_of(&differences);
}

struct quartiles quartiles_of_ratio(const struct samples *a, const struct samples *b)
{
    struct samples ratios = {.count = 0};

    for (size_t i = 0; i < a->count; i++)
        samples_add(&ratios, a->of[i] / b->of[i]);
    return quartiles_of(&ratios);
}

size_t drop_disturbed(const struct samples *reference, struct samples *const *sets, size_t num_sets)
{
    const double most = 1.15 * quartiles_of(reference).least;
    const struct samples told = *reference;
    size_t kept = 0;

    for (size_t i = 0; i < told.count; i++) {
        if (told.of[i] > most)
            continue;
        for (size_t s = 0; s < num_sets; s++)
            sets[s]->of[kept] = sets[s]->of[i];
        kept++;
    }
    for (size_t s = 0; s < num_sets; s++)
        sets[s]->count = kept;
    return told.count - kept;
}

struct report report_open(int *argc, char **argv)
{
    struct report report = {.is_markdown = false};
    int kept = 0;

    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--markdown") == 0)
            report.is_markdown = true;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return report;
}

void report_head(const struct report *report)
{
    if (report->is_markdown)
        puts("| what | median | quartiles | least | bar |\n|---|--:|--:|--:|---|");
    else
        printf("%-64s %12s %12s %12s %12s\n", "", "median", "lower", "upper", "least");
}

/* Three digits that count, or two behind the point. */
static const char *number(double value, char text[32])
{
    const double size = value < 0.0 ? -value : value;

    (void)snprintf(text, 32, "%.*f", size >= 100.0 ? 0 : size >= 10.0 ? 1 : 2, value);
    return text;
}

void report_row(const struct report *report, const char *what, struct quartiles quartiles, const char *unit,
                const char *bar)
{
    char median[32];
    char lower[32];
    char upper[32];
    char least[32];

    (void)number(quartiles.median, median);
    (void)number(quartiles.lower, lower);
    (void)number(quartiles.upper, upper);
    (void)number(quartiles.least, least);
    if (report->is_markdown)
        printf("| %s | %s%s%s | %s to %s | %s | %s |\n", what, median, unit[0] == '\0' ? "" : " ", unit, lower, upper,
               least, bar);
    else
        printf("%-64s %12s %12s %12s %12s  %-5s %s\n", what, median, lower, upper, least, unit, bar);
    (void)fflush(stdout);
}
