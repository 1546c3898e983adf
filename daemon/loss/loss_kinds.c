/* One row per loss kind. CONTRIBUTING.md says what else a new one needs. */
#include "loss/loss.h"

static const struct loss_kind_info kinds[NUM_LOSS_KINDS] = {
    [LOSS_BINARY_CROSS_ENTROPY] = {"binary_cross_entropy", LABEL_UNIT_INTERVAL, false, 1, 1},
    [LOSS_BINARY_FOCAL] = {"binary_focal_loss", LABEL_UNIT_INTERVAL, false, 1, 1},
    [LOSS_SOFTMAX_CROSS_ENTROPY] = {"softmax_cross_entropy", LABEL_CLASS, false, 2, MAX_NUM_CLASS},
    [LOSS_JRC] = {"jrc_loss", LABEL_ZERO_OR_ONE, false, 2, 2},
    [LOSS_L2] = {"l2_loss", LABEL_FINITE, false, 1, 1},
    [LOSS_LISTWISE_RANK] = {"listwise_rank_loss", LABEL_FINITE, true, 1, 1},
};

const struct loss_kind_info *loss_kind_info(enum loss_kind kind)
{
    return &kinds[kind];
}
