/* lossctl schema: what any Connect or protobuf client can be made from. */
#include <stdio.h>
#include <unistd.h>

#include "lossctl/command.h"
#include "lossctl/rpc.h"
#include "lossctl/table.h"

/* A google.protobuf.FileDescriptorSet. */
static const uint8_t schema[] = {
#include "lossctl_schema.inc"
};

static int print_methods(void)
{
    struct table table;
    size_t count;
    const ProtobufCServiceDescriptor *const *services = rpc_services(&count);

    table_init(&table, "lll");
    table_row(&table, "METHOD", "REQUEST", "RESPONSE");
    for (size_t s = 0; s < count; s++) {
        for (unsigned m = 0; m < services[s]->n_methods; m++) {
            table_cell(&table, "%s/%s", services[s]->name, services[s]->methods[m].name);
            table_cell(&table, "%s", services[s]->methods[m].input->name);
            table_cell(&table, "%s", services[s]->methods[m].output->name);
        }
    }
    return table_print_and_finish(&table, stdout) ? EXIT_DONE : complain(EXIT_LOCAL, "memory is out");
}

static void print_methods_json(void)
{
    const char *separator = "";
    size_t count;
    const ProtobufCServiceDescriptor *const *services = rpc_services(&count);

    fputs("{\"methods\":[", stdout);
    for (size_t s = 0; s < count; s++) {
        for (unsigned m = 0; m < services[s]->n_methods; m++) {
            const ProtobufCMethodDescriptor *method = &services[s]->methods[m];

            printf("%s{\"method\":\"%s/%s\",\"request\":\"%s\",\"response\":\"%s\"}", separator, services[s]->name,
                   method->name, method->input->name, method->output->name);
            separator = ",";
        }
    }
    puts("]}");
}

int command_schema(const struct options *options, int argc, char **argv)
{
    (void)argv;
    if (argc != 0)
        return usage("schema takes no arguments");
    if (options->json) {
        print_methods_json();
        return EXIT_DONE;
    }
    if (options->text)
        return print_methods();
    if (isatty(STDOUT_FILENO))
        return usage("schema is binary: send it to a file, or ask for the list of methods with --text");
    (void)fwrite(schema, 1, sizeof schema, stdout);
    return EXIT_DONE;
}
