#include "batch/group_config.h"

static const char *const loss_kind_names[NUM_LOSS_KINDS] = {
    [LOSS_BINARY_CROSS_ENTROPY] = "binary_cross_entropy",
    [LOSS_BINARY_FOCAL] = "binary_focal_loss",
    [LOSS_SOFTMAX_CROSS_ENTROPY] = "softmax_cross_entropy",
    [LOSS_JRC] = "jrc_loss",
    [LOSS_L2] = "l2_loss",
    [LOSS_LISTWISE_RANK] = "listwise_rank_loss",
};

const char *loss_kind_name(enum loss_kind kind)
{
    return loss_kind_names[kind];
}

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
