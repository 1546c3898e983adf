/* Errors that several calls and ranks share. */
#include <stdlib.h>

#include "group/step_internal.h"

static const struct lossd_error no_memory = {.status = LOSSD_INTERNAL,
                                             .message = "the step failed, and there is no memory to say why"};

struct verdict *verdict_new(void)
{
    struct verdict *verdict = malloc(sizeof *verdict);

    if (verdict == NULL)
        return NULL;
    verdict->references = 1;
    error_init(&verdict->error);
    return verdict;
}

struct verdict *verdict_ref(struct verdict *verdict)
{
    if (verdict != NULL)
        verdict->references++;
    return verdict;
}

void verdict_unref(struct verdict *verdict)
{
    if (verdict != NULL && --verdict->references == 0)
        free(verdict);
}

const struct lossd_error *verdict_error(const struct verdict *verdict)
{
    return verdict == NULL ? &no_memory : &verdict->error;
}
