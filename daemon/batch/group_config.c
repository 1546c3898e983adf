#include "batch/group_config.h"

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

bool name_is_valid(const char *name)
{
    size_t length = 0;

    if (name == NULL)
        return false;
    while (name[length] != '\0') {
        if (length == NAME_MAX_LENGTH || !is_name_character(name[length]))
            return false;
        length++;
    }
    return length > 0;
}
