/* One row per loss kind. CONTRIBUTING.md says what else a new one needs. */
#include "loss/loss.h"

static const struct loss_kind_info kinds[NUM_LOSS_KINDS] = {
    [LOSS_BINARY_CROSS_ENTROPY] = {LABEL_UNIT_INTERVAL, false, 1, 1},
    [LOSS_BINARY_FOCAL] = {LABEL_UNIT_INTERVAL, false, 1, 1},
    [LOSS_SOFTMAX_CROSS_ENTROPY] = {LABEL_CLASS, false, 2, MAX_NUM_CLASS},
    [LOSS_JRC] = {LABEL_ZERO_OR_ONE, false, 2, 2},
    [LOSS_L2] = {LABEL_FINITE, false, 1, 1},
    [LOSS_LISTWISE_RANK] = {LABEL_FINITE, true, 1, 1},
};

const struct loss_kind_info *loss_kind_info(enum loss_kind kind)
{
    return &kinds[kind];
}
