/* Arguments, configuration, server. The only file that exits. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/heap.h"
#include "config.h"
#include "server.h"
#include "transport/listener.h"

static const char *const help_lines[] = {
#include "help.inc"
};

struct arguments {
    const char *config_path;
    const char *listen[CONFIG_MAX_LISTENERS];
    size_t num_listen;
    bool insecure;
    bool check;
    int log_level; /* -1 where not given */
};

enum {
    OPTION_CONFIG = 'c',
    OPTION_LISTEN = 'l',
    OPTION_INSECURE = 'i',
    OPTION_CHECK = 'n',
    OPTION_LOG_LEVEL = 'v',
    OPTION_VERSION = 'V',
    OPTION_HELP = 'h'
};

static const struct option options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"insecure", no_argument, NULL, OPTION_INSECURE},
    {"check", no_argument, NULL, OPTION_CHECK},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static void exit_after_printing(void)
{
    exit(fflush(stdout) == 0 && ferror(stdout) == 0 ? EXIT_SUCCESS : EX_OSERR);
}

static void print_help(void)
{
    for (size_t i = 0; i < sizeof help_lines / sizeof help_lines[0]; i++)
        (void)puts(help_lines[i]);
    exit_after_printing();
}

static void usage_error(const char *what)
{
    if (what[0] != '\0')
        (void)fprintf(stderr, "lossd: %s\n", what);
    (void)fputs("Try `lossd --help`.\n", stderr);
    exit(EX_USAGE);
}

static void add_listen(struct arguments *arguments, const char *address)
{
    struct lossd_error err;

    if (listener_check_address(address, &err) != LOSSD_OK)
        usage_error(err.message);
    if (arguments->num_listen == CONFIG_MAX_LISTENERS)
        usage_error("too many --listen");
    arguments->listen[arguments->num_listen++] = address;
}

static void parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case OPTION_CONFIG:
            arguments->config_path = optarg;
            break;
        case OPTION_LISTEN:
            add_listen(arguments, optarg);
            break;
        case OPTION_INSECURE:
            arguments->insecure = true;
            break;
        case OPTION_CHECK:
            arguments->check = true;
            break;
        case OPTION_LOG_LEVEL:
            arguments->log_level = log_level_from_name(optarg);
            if (arguments->log_level < 0)
                usage_error("--log-level is none of error, warning, info, debug");
            break;
        case OPTION_VERSION:
            (void)puts("lossd " LOSSD_VERSION);
            exit_after_printing();
            break;
        case OPTION_HELP:
            print_help();
            break;
        default:
            usage_error(""); /* getopt_long has said what */
        }
    }
    if (optind < argc)
        usage_error("takes no arguments but options");
}

static void apply_arguments(const struct arguments *arguments, struct config *config)
{
    if (arguments->num_listen > 0) {
        memcpy(config->listen, arguments->listen, sizeof config->listen);
        config->num_listen = arguments->num_listen;
    }
    if (arguments->insecure)
        config->insecure = true;
    if (arguments->log_level >= 0)
        config->log_level = (enum log_level)arguments->log_level;
    log_set_level(config->log_level);
}

/* One line, and the exit status: the system may think otherwise next time, a configuration does not mend itself. */
static int report(const struct arguments *arguments, const char *event, const struct lossd_error *err)
{
    const bool is_given = arguments->num_listen > 0 && strncmp(err->field, "listen", 6) == 0;
    const char *path = arguments->config_path;

    log_line(LOG_LEVEL_ERROR, "event=%s file=%s %s%s%s", event, is_given || path == NULL ? "-" : path,
             is_given ? "--listen" : err->field, err->field[0] == '\0' ? "" : ": ", err->message);
    if (err->status == LOSSD_INTERNAL)
        return EX_OSERR;
    return is_given ? EX_USAGE : EX_CONFIG;
}

static int serve(const struct arguments *arguments, struct config *config)
{
    struct server *server;
    struct lossd_error err;

    heap_keep_freed();
    error_init(&err);
    if (server_start(config, &server, &err) != LOSSD_OK)
        return report(arguments, "start_failed", &err);
    if (!server_run(server)) {
        log_line(LOG_LEVEL_WARNING, "event=stopped some calls could not be answered");
        _exit(EXIT_SUCCESS);
    }
    server_destroy(server);
    log_line(LOG_LEVEL_INFO, "event=stopped");
    return EXIT_SUCCESS;
}

static int run(const struct arguments *arguments, struct config *config)
{
    struct lossd_error err;

    error_init(&err);
    apply_arguments(arguments, config);
    if (config_check_listen(config, &err) != LOSSD_OK)
        return report(arguments, "config_invalid", &err);
    if (!arguments->check)
        return serve(arguments, config);
    (void)puts("ok");
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EX_OSERR;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.log_level = -1};
    struct config config;
    struct lossd_error err;
    int exit_status;

    parse_arguments(argc, argv, &arguments);
    error_init(&err);
    if (config_load(arguments.config_path, &config, &err) != LOSSD_OK) {
        arguments.num_listen = 0; /* the address that is wrong is the file's */
        return report(&arguments, "config_invalid", &err);
    }
    exit_status = run(&arguments, &config);
    config_finish(&config);
    return exit_status;
}
