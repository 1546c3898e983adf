/* What torchrun says about this process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch/group_config.h"
#include "client/failure.h"

enum { DEFAULT_PORT = 7430 };

static enum lossd_code fail(struct lossd_failure *failure, const char *name, const char *found, const char *expected)
{
    return failure_set(failure, OWN_BAD_ENVIRONMENT, name, "is \"%.64s\", expected %s", found, expected);
}

/* The number in a variable; fallback where it is absent. */
static enum lossd_code read_number(const char *name, uint32_t fallback, uint32_t *number, struct lossd_failure *failure)
{
    const char *text = getenv(name);
    unsigned long long value;
    char *end;

    if (text == NULL) {
        *number = fallback;
        return LOSSD_CODE_OK;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > UINT32_MAX)
        return fail(failure, name, text, "a number from 0 to 4294967295");
    *number = (uint32_t)value;
    return LOSSD_CODE_OK;
}

/* A number that is there to be below another one. */
static enum lossd_code check_below(const char *name, uint32_t number, const char *bound_name, uint32_t bound,
                                   struct lossd_failure *failure)
{
    if (number < bound)
        return LOSSD_CODE_OK;
    return failure_set(failure, OWN_BAD_ENVIRONMENT, name, "is %u, expected a number below %s, which is %u", number,
                       bound_name, bound);
}

/* RANK and WORLD_SIZE: both, or none. */
static enum lossd_code read_world(struct lossd_membership *me, struct lossd_failure *failure)
{
    const bool has_rank = getenv("RANK") != NULL;
    const bool has_world = getenv("WORLD_SIZE") != NULL;
    enum lossd_code code;

    if (has_rank != has_world)
        return failure_set(failure, OWN_BAD_ENVIRONMENT, has_rank ? "WORLD_SIZE" : "RANK", "is absent, but %s is set",
                           has_rank ? "RANK" : "WORLD_SIZE");
    code = read_number("RANK", 0, &me->rank, failure);
    if (code == LOSSD_CODE_OK)
        code = read_number("WORLD_SIZE", 1, &me->world_size, failure);
    if (code == LOSSD_CODE_OK)
        code = check_below("RANK", me->rank, "WORLD_SIZE", me->world_size, failure);
    return code;
}

static enum lossd_code read_nodes(struct lossd_membership *me, struct lossd_failure *failure)
{
    enum lossd_code code = read_number("LOCAL_WORLD_SIZE", me->world_size, &me->local_world_size, failure);
    uint32_t local_rank = 0;

    if (code == LOSSD_CODE_OK && me->local_world_size == 0)
        code = fail(failure, "LOCAL_WORLD_SIZE", "0", "1 at least");
    if (code == LOSSD_CODE_OK)
        code = read_number("LOCAL_RANK", 0, &local_rank, failure);
    if (code == LOSSD_CODE_OK)
        code = check_below("LOCAL_RANK", local_rank, "LOCAL_WORLD_SIZE", me->local_world_size, failure);
    if (code == LOSSD_CODE_OK)
        code = read_number("GROUP_WORLD_SIZE", me->world_size / me->local_world_size, &me->nnodes, failure);
    if (code == LOSSD_CODE_OK)
        code = read_number("GROUP_RANK", 0, &me->node_rank, failure);
    if (code == LOSSD_CODE_OK)
        code = check_below("GROUP_RANK", me->node_rank, "the number of nodes", me->nnodes, failure);
    return code;
}

static enum lossd_code read_master(struct lossd_membership *me, struct lossd_failure *failure)
{
    const char *host = getenv("MASTER_ADDR");
    int length;

    if (host == NULL || me->nnodes == 1)
        return LOSSD_CODE_OK;
    length = snprintf(me->master_addr, sizeof me->master_addr,
                      strchr(host, ':') != NULL && host[0] != '[' ? "[%s]:%d" : "%s:%d", host, DEFAULT_PORT);
    if (length < 0 || (size_t)length >= sizeof me->master_addr)
        return fail(failure, "MASTER_ADDR", host, "a shorter name of a host");
    return LOSSD_CODE_OK;
}

/* Names hold fewer characters than run ids. */
static void read_group(struct lossd_membership *me)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID");

    (void)snprintf(me->group, sizeof me->group, "%s", id == NULL || id[0] == '\0' ? "default" : id);
    for (char *c = me->group; *c != '\0'; c++) {
        const char one[2] = {*c, '\0'};

        if (!name_is_valid(one))
            *c = '-';
    }
}

enum lossd_code lossd_membership_from_environment(struct lossd_membership *membership, struct lossd_failure *failure)
{
    struct lossd_failure why;
    struct lossd_membership me = {.rank = 0};
    enum lossd_code code = read_world(&me, &why);

    if (code == LOSSD_CODE_OK)
        code = read_nodes(&me, &why);
    if (code == LOSSD_CODE_OK)
        code = read_master(&me, &why);
    if (code != LOSSD_CODE_OK) {
        failure_copy(failure, &why);
        return code;
    }
    read_group(&me);
    *membership = me;
    return LOSSD_CODE_OK;
}
