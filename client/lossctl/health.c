/* lossctl health: whether the daemon takes steps, with the exit codes of grpc_health_probe. */
#include <stdio.h>

#include "grpc/health/v1/health.pb-c.h"
#include "lossctl/command.h"
#include "lossctl/rpc.h"

enum { HEALTH_TIMEOUT_MS = 3000 };

/* The same failure, told by the codes of a probe. */
static int probe_exit_code(const struct failure *failure)
{
    if (failure->exit_code == EXIT_USAGE)
        return HEALTH_USAGE;
    if (failure->exit_code == EXIT_PER_GRPC_CODE * CONNECT_UNAVAILABLE && failure->reason[0] == '\0')
        return HEALTH_CANNOT_CONNECT;
    return HEALTH_CALL_FAILED;
}

static int show(const struct options *options, const Grpc__Health__V1__HealthCheckResponse *answer)
{
    const bool serving = answer->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;

    if (options->json)
        printf("{\"status\":\"%s\"}\n", serving ? "SERVING" : "NOT_SERVING");
    else
        puts(serving ? "serving" : "not serving");
    return serving ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

int command_health(const struct options *options, int argc, char **argv)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct rpc_connection connection = {0};
    ProtobufCMessage *answer;
    struct failure failure;
    struct arena arena;
    int exit_code = HEALTH_CALL_FAILED;

    (void)argv;
    if (argc != 0)
        return usage("health takes no arguments");
    arena_init(&arena, (size_t)1 << 16, NULL);
    if (rpc_open(options, HEALTH_TIMEOUT_MS, &connection, &failure) &&
        rpc_call(&connection, "grpc.health.v1.Health/Check", &request.base,
                 &grpc__health__v1__health_check_response__descriptor, &arena, &answer, &failure)) {
        exit_code = show(options, (const Grpc__Health__V1__HealthCheckResponse *)answer);
    } else {
        exit_code = probe_exit_code(&failure);
        (void)rpc_failed(options, &failure);
    }
    arena_finish(&arena);
    rpc_close(&connection);
    return exit_code;
}
