/* What benchmarks measure and how they say it: as text, or as rows of a Markdown table for tests/bench/README.md. */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Rounds of contenders that took turns. */
enum { MAX_ROUNDS = 256 };

struct samples {
    double of[MAX_ROUNDS];
    size_t count;
};

void samples_add(struct samples *samples, double value);

struct quartiles {
    double least;
    double lower;
    double median;
    double upper;
};

/* Sorts a copy. count >= 1. */
struct quartiles quartiles_of(const struct samples *samples);

/* Round by round: a[i] - b[i], a[i] / b[i]. Both have as many. */
struct quartiles quartiles_of_difference(const struct samples *a, const struct samples *b);
struct quartiles quartiles_of_ratio(const struct samples *a, const struct samples *b);

/*
 * Take out of all sets the rounds in which reference, which may be one of them, was more than 15 % above its least:
 * something else was at work. Returns how many those were.
 */
size_t drop_disturbed(const struct samples *reference, struct samples *const *sets, size_t num_sets);

/* Median of count values, which are sorted by it. */
double median_of(double *values, size_t count);

struct report {
    bool is_markdown;
};

/* --markdown among the arguments, which is taken out of them. */
struct report report_open(int *argc, char **argv);

void report_head(const struct report *report);

/* bar: what the median has to keep to, "at most 1.0"; or "". */
void report_row(const struct report *report, const char *what, struct quartiles quartiles, const char *unit,
                const char *bar);

#endif
