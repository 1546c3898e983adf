/* Options, and the table of commands. */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/http_client.h"
#include "lossctl/command.h"

static const char *const help_lines[] = {
#include "lossctl_help.inc"
};

static const struct command {
    const char *name;
    const char *options; /* its own, by short name */
    int (*run)(const struct options *options, int argc, char **argv);
} commands[] = {
    {"call", "d", command_call},    {"compute", "jc", command_compute}, {"status", "", command_status},
    {"health", "", command_health}, {"schema", "x", command_schema},    {"bench", "TCRLKNSDWYP", command_bench},
};

static const struct option long_options[] = {
    {"addr", required_argument, NULL, 'a'},
    {"json", no_argument, NULL, 'J'},
    {"timeout", required_argument, NULL, 't'},
    {"data", required_argument, NULL, 'd'},
    {"join", required_argument, NULL, 'j'},
    {"check", no_argument, NULL, 'c'},
    {"text", no_argument, NULL, 'x'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {"transport", required_argument, NULL, 'T'},
    {"candidates", required_argument, NULL, 'C'},
    {"requests", required_argument, NULL, 'R'},
    {"list-length", required_argument, NULL, 'L'},
    {"tasks", required_argument, NULL, 'K'},
    {"ranks", required_argument, NULL, 'N'},
    {"steps", required_argument, NULL, 'S'},
    {"seconds", required_argument, NULL, 'D'},
    {"warmup", required_argument, NULL, 'W'},
    {"dtype", required_argument, NULL, 'Y'},
    {"progress", no_argument, NULL, 'P'},
    {NULL, 0, NULL, 0},
};

static const char own_options[] = "djcxTCRLKNSDWYP";

int complain(int code, const char *format, ...)
{
    va_list arguments;

    fputs("lossctl: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return code;
}

int usage(const char *format, ...)
{
    va_list arguments;

    fputs("lossctl: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs("\nhint: lossctl --help\n", stderr);
    return EXIT_USAGE;
}

/* Seconds, with a fraction if need be; at least a millisecond. */
static bool parse_timeout(const char *text, uint64_t *timeout_ms)
{
    char *end;
    const double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0.001 || seconds > 1e6)
        return false;
    *timeout_ms = (uint64_t)llround(seconds * 1e3);
    return true;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static const char *long_name(int letter)
{
    const struct option *option = long_options;

    while (option->val != letter)
        option++;
    return option->name;
}

/* Values are looked at by the command. */
static int take_bench_option(int letter, struct bench_arguments *bench)
{
    const struct {
        int letter;
        const char **value;
    } values[] = {
        {'C', &bench->candidates}, {'R', &bench->requests}, {'L', &bench->list_length},
        {'K', &bench->tasks},      {'N', &bench->ranks},    {'S', &bench->steps},
        {'D', &bench->seconds},    {'W', &bench->warmup},   {'Y', &bench->dtype},
    };

    if (letter == 'P')
        bench->progress = true;
    if (letter == 'T' && bench->num_transports == BENCH_MAX_TRANSPORT_ARGUMENTS)
        return usage("--transport: given more than %d times", BENCH_MAX_TRANSPORT_ARGUMENTS);
    if (letter == 'T')
        bench->transports[bench->num_transports++] = optarg;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i].letter == letter)
            *values[i].value = optarg;
    return EXIT_DONE;
}

/* What can be wrong with one option is its value. given [], by letter. */
static int take_option(int letter, struct options *options, bool *given)
{
    given[letter & 127] = true;
    switch (letter) {
    case 'a':
        options->address = optarg;
        break;
    case 'J':
        options->json = true;
        break;
    case 't':
        if (!parse_timeout(optarg, &options->timeout_ms))
            return usage("--timeout %s: expected seconds, 0.001 to 1000000", optarg);
        break;
    case 'd':
        options->data = optarg;
        break;
    case 'j':
        options->join = optarg;
        break;
    case 'c':
        options->check = true;
        break;
    case 'x':
        options->text = true;
        break;
    default:
        return take_bench_option(letter, &options->bench);
    }
    return EXIT_DONE;
}

/* Errors of writing show up late, at the last flush. */
static int flush(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return complain(EXIT_OUTPUT, "standard output: %s", strerror(errno));
    return code;
}

static int print_help(void)
{
    for (size_t i = 0; i < sizeof help_lines / sizeof help_lines[0]; i++)
        puts(help_lines[i]);
    return flush(EXIT_DONE);
}

static int run(const struct options *options, const bool *given, int argc, char **argv)
{
    const struct command *command;

    if (argc == 0)
        return usage("which command? call, compute, status, health, schema or bench");
    command = find_command(argv[0]);
    if (command == NULL)
        return usage("%s: no such command; there are call, compute, status, health, schema and bench", argv[0]);
    for (const char *letter = own_options; *letter != '\0'; letter++)
        if (given[(unsigned char)*letter] && strchr(command->options, *letter) == NULL)
            return usage("%s takes no --%s", command->name, long_name(*letter));
    return flush(command->run(options, argc - 1, argv + 1));
}

int main(int argc, char **argv)
{
    const char *address = getenv("LOSSD_ADDR");
    struct options options = {.address = address == NULL || address[0] == '\0' ? "127.0.0.1:7430" : address};
    bool given[128] = {false};
    int letter;

    while ((letter = getopt_long(argc, argv, "hVd:", long_options, NULL)) != -1) {
        if (letter == '?')
            return usage("options not understood");
        if (letter == 'h')
            return print_help();
        if (letter == 'V')
            return flush(puts("lossctl " LOSSCTL_VERSION) < 0 ? EXIT_OUTPUT : EXIT_DONE);
        if (take_option(letter, &options, given) != EXIT_DONE)
            return EXIT_USAGE;
    }
    return run(&options, given, argc - optind, argv + optind);
}
