/*
 * Cases with known right values: JSON files of tests/golden, read by path. Every function fails the Check test where
 * something is not there, so that a misspelt path is no silent pass.
 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

/* The array of cases in NAME.json, from the directory GOLDEN_DIR or tests/golden. golden_close gives it back. */
struct json_object *golden_open(const char *name);
void golden_close(struct json_object *cases);

size_t golden_count(const struct json_object *array);
struct json_object *golden_at(const struct json_object *array, size_t index);

/* The case with this id. */
struct json_object *golden_case(const struct json_object *cases, const char *id);

/* Whether "outer.inner" is there and not null; "" is the object itself. */
bool golden_has(struct json_object *object, const char *path);

struct json_object *golden_get(struct json_object *object, const char *path);
const char *golden_text(struct json_object *object, const char *path);
bool golden_flag(struct json_object *object, const char *path);

/* Also for "NaN", "Infinity", "-Infinity". */
double golden_number(struct json_object *object, const char *path);

/* All numbers of an array of any depth, in order; of malloc. NULL and count 0 where it is null or not there. */
double *golden_numbers(struct json_object *object, const char *path, size_t *count);

/* The same, rounded to binary32 or converted. */
float *golden_floats(struct json_object *object, const char *path, size_t *count);
uint32_t *golden_lengths(struct json_object *object, const char *path, size_t *count);
int64_t *golden_ids(struct json_object *object, const char *path, size_t *count);

#endif
