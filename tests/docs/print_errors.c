/* Prints the table of errors of base/status.c, one row a line, for tests/docs/errors.py. */
#include <stdio.h>

#include "base/status.h"

int main(void)
{
    static const char *const retries[] = {
        [RETRY_NEVER] = "never", [RETRY_SAME] = "same", [RETRY_HIGHER] = "higher", [RETRY_FIX] = "fix"};

    for (int status = LOSSD_OK + 1; status < LOSSD_NUM_STATUSES; status++) {
        const struct status_info *info = status_info((enum lossd_status)status);

        printf("%s %s %u %s\n", info->reason, info->code_name, info->http_status, retries[info->retry]);
    }
    return 0;
}
