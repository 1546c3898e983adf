/* Text in columns. Cells are ASCII, as every name of the daemon is. */
#ifndef LOSSCTL_TABLE_H
#define LOSSCTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/compiler.h"

enum { TABLE_MAX_COLUMNS = 16 };

struct table {
    const char *columns; /* one letter a column: 'l' left, 'r' right */
    char **cells;        /* row by row */
    size_t num_cells;
    size_t capacity;
    bool failed; /* memory is out */
};

/* columns: 1 to TABLE_MAX_COLUMNS of 'l' and 'r'; borrowed. */
void table_init(struct table *table, const char *columns);

/* The next cell, row by row. */
void table_cell(struct table *table, const char *format, ...) PRINTF_LIKE(2, 3);

/* A whole row of strings, one for each column. */
#define table_row(table, ...) table_cells((table), (const char *const[]){__VA_ARGS__, NULL})
void table_cells(struct table *table, const char *const *texts);

/*
 * Print with two spaces between columns and none behind the last, each column as wide as its widest cell; a last row
 * that is not complete too. The table is empty then. False where memory ran out on the way: nothing is printed.
 */
bool table_print_and_finish(struct table *table, FILE *file);

#endif
