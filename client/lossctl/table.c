#include "lossctl/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void table_init(struct table *table, const char *columns)
{
    *table = (struct table){.columns = columns};
}

static bool reserve(struct table *table)
{
    const size_t capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
    char **grown;

    if (table->num_cells < table->capacity)
        return true;
    grown = reallocarray(table->cells, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    table->cells = grown;
    table->capacity = capacity;
    return true;
}

void table_cell(struct table *table, const char *format, ...)
{
    va_list arguments;
    char *text = NULL;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    if (text == NULL || !reserve(table)) {
        free(text);
        table->failed = true;
        return;
    }
    table->cells[table->num_cells++] = text;
}

void table_cells(struct table *table, const char *const *texts)
{
    for (; *texts != NULL; texts++)
        table_cell(table, "%s", *texts);
}

static void measure(const struct table *table, size_t num_columns, int *widths)
{
    for (size_t i = 0; i < table->num_cells; i++) {
        const int length = (int)strlen(table->cells[i]);

        if (length > widths[i % num_columns])
            widths[i % num_columns] = length;
    }
}

/* Nothing is padded that nothing follows, so that no line ends with spaces. */
static void print_cell(const struct table *table, size_t i, size_t num_columns, int width, FILE *file)
{
    const size_t column = i % num_columns;
    const bool is_last = column + 1 == num_columns || i + 1 == table->num_cells;

    if (table->columns[column] == 'r')
        fprintf(file, "%*s", width, table->cells[i]);
    else
        fprintf(file, "%-*s", is_last ? 0 : width, table->cells[i]);
    fputs(is_last ? "\n" : "  ", file);
}

bool table_print_and_finish(struct table *table, FILE *file)
{
    const size_t num_columns = strlen(table->columns);
    const bool ok = !table->failed;
    int widths[TABLE_MAX_COLUMNS] = {0};

    measure(table, num_columns, widths);
    for (size_t i = 0; ok && i < table->num_cells; i++)
        print_cell(table, i, num_columns, widths[i % num_columns], file);
    for (size_t i = 0; i < table->num_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    table_init(table, table->columns);
    return ok;
}
