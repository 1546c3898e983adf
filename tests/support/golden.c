#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "support/runner.h"

struct json_object *golden_open(const char *name)
{
    const char *directory = getenv("GOLDEN_DIR");
    char path[512];
    struct json_object *cases;

    (void)snprintf(path, sizeof path, "%s/%s.json", directory != NULL ? directory : "tests/golden", name);
    cases = json_object_from_file(path);
    ck_assert_msg(cases != NULL, "can't read %s", path);
    ck_assert(json_object_is_type(cases, json_type_array));
    return cases;
}

void golden_close(struct json_object *cases)
{
    (void)json_object_put(cases);
}

size_t golden_count(const struct json_object *array)
{
    return json_object_array_length(array);
}

struct json_object *golden_at(const struct json_object *array, size_t index)
{
    return json_object_array_get_idx(array, index);
}

struct json_object *golden_case(const struct json_object *cases, const char *id)
{
    for (size_t i = 0; i < golden_count(cases); i++)
        if (strcmp(golden_text(golden_at(cases, i), "id"), id) == 0)
            return golden_at(cases, i);
    ck_abort_msg("no case %s", id);
}

static struct json_object *find(struct json_object *object, const char *path)
{
    while (*path != '\0' && object != NULL) {
        const size_t length = strcspn(path, ".");
        char key[64];

        ck_assert_uint_lt(length, sizeof key);
        memcpy(key, path, length);
        key[length] = '\0';
        if (!json_object_object_get_ex(object, key, &object))
            return NULL;
        path += length + (path[length] == '.');
    }
    return object;
}

bool golden_has(struct json_object *object, const char *path)
{
    return find(object, path) != NULL;
}

struct json_object *golden_get(struct json_object *object, const char *path)
{
    struct json_object *found = find(object, path);

    ck_assert_msg(found != NULL, "no %s", path);
    return found;
}

const char *golden_text(struct json_object *object, const char *path)
{
    return json_object_get_string(golden_get(object, path));
}

bool golden_flag(struct json_object *object, const char *path)
{
    return json_object_get_boolean(golden_get(object, path));
}

static double number_of(struct json_object *value)
{
    const char *text = json_object_get_string(value);

    if (!json_object_is_type(value, json_type_string))
        return json_object_get_double(value);
    if (strcmp(text, "NaN") == 0)
        return NAN;
    ck_assert_msg(strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0, "\"%s\" is no number", text);
    return text[0] == '-' ? -INFINITY : INFINITY;
}

double golden_number(struct json_object *object, const char *path)
{
    return number_of(golden_get(object, path));
}

static size_t count_leaves(struct json_object *value)
{
    size_t count = 0;

    if (!json_object_is_type(value, json_type_array))
        return 1;
    for (size_t i = 0; i < golden_count(value); i++)
        count += count_leaves(golden_at(value, i));
    return count;
}

static double *copy_leaves(struct json_object *value, double *to)
{
    if (!json_object_is_type(value, json_type_array)) {
        *to = number_of(value);
        return to + 1;
    }
    for (size_t i = 0; i < golden_count(value); i++)
        to = copy_leaves(golden_at(value, i), to);
    return to;
}

double *golden_numbers(struct json_object *object, const char *path, size_t *count)
{
    struct json_object *found = find(object, path);
    double *numbers;

    *count = 0;
    if (found == NULL)
        return NULL;
    *count = count_leaves(found);
    numbers = malloc(sizeof *numbers * (*count + 1));
    ck_assert_ptr_nonnull(numbers);
    (void)copy_leaves(found, numbers);
    return numbers;
}

float *golden_floats(struct json_object *object, const char *path, size_t *count)
{
    double *numbers = golden_numbers(object, path, count);
    float *floats = numbers != NULL ? malloc(sizeof *floats * (*count + 1)) : NULL;

    for (size_t i = 0; i < *count; i++)
        floats[i] = (float)numbers[i];
    free(numbers);
    return floats;
}

uint32_t *golden_lengths(struct json_object *object, const char *path, size_t *count)
{
    double *numbers = golden_numbers(object, path, count);
    uint32_t *lengths = numbers != NULL ? malloc(sizeof *lengths * (*count + 1)) : NULL;

    for (size_t i = 0; i < *count; i++)
        lengths[i] = (uint32_t)numbers[i];
    free(numbers);
    return lengths;
}

int64_t *golden_ids(struct json_object *object, const char *path, size_t *count)
{
    double *numbers = golden_numbers(object, path, count);
    int64_t *ids = numbers != NULL ? malloc(sizeof *ids * (*count + 1)) : NULL;

    for (size_t i = 0; i < *count; i++)
        ids[i] = (int64_t)numbers[i];
    free(numbers);
    return ids;
}
