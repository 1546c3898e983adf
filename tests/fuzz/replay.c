/* Runs a fuzz target over the files of the folders that it is given, as an ordinary test; prints TAP. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "target.h"

enum { MAX_BYTES = 1 << 20 };

/* The input is a heap block of its exact size, so that a read past the end is seen. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *const buffer = malloc(MAX_BYTES);
    const size_t size = file != NULL && buffer != NULL ? fread(buffer, 1, MAX_BYTES, file) : MAX_BYTES;
    uint8_t *const bytes = size < MAX_BYTES ? realloc(buffer, size + (size == 0)) : NULL;

    if (file != NULL)
        (void)fclose(file);
    if (bytes == NULL) {
        free(buffer);
        return -1;
    }
    (void)LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 0;
}

int main(int count, char **folders)
{
    int number = 0;
    int failed = 0;

    for (int i = 1; i < count; i++) {
        DIR *folder = opendir(folders[i]);
        const struct dirent *entry;

        if (folder == NULL)
            return EXIT_FAILURE;
        while ((entry = readdir(folder)) != NULL) {
            char path[PATH_MAX];
            int result;

            if (entry->d_name[0] == '.')
                continue;
            (void)snprintf(path, sizeof path, "%s/%s", folders[i], entry->d_name);
            result = replay_file(path);
            failed += result != 0;
            (void)printf("%sok %d %s\n", result == 0 ? "" : "not ", ++number, entry->d_name);
        }
        (void)closedir(folder);
    }
    (void)printf("1..%d\n", number);
    return failed == 0 && number > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
