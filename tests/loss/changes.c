#include "loss/changes.h"

#include <float.h>
#include <math.h>

static const float hostile_floats[] = {NAN,   INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, -1.0F,         -100.0F, 0.0F,
                                       -0.0F, 0.5F,     1.0F,      3.0F,    16.0F,    4294967296.0F, 1e-45F,  65504.0F};

/* Halves and bfloats alike: infinities, NaN, the greatest, the least. */
static const uint16_t hostile_halves[] = {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0001, 0x8000,
                                          0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0xffff, 0x3f80};

static uint32_t hostile_word(struct random *random)
{
    const float number = hostile_floats[random_below(random, sizeof hostile_floats / sizeof *hostile_floats)];
    const uint32_t high = hostile_halves[random_below(random, sizeof hostile_halves / sizeof *hostile_halves)];
    const uint32_t low = hostile_halves[random_below(random, sizeof hostile_halves / sizeof *hostile_halves)];
    uint32_t word;

    switch (random_below(random, 3)) {
    case 0:
        memcpy(&word, &number, sizeof word);
        return word;
    case 1:
        return high << 16 | low;
    default:
        return (uint32_t)random_next(random);
    }
}

static void change_block(const struct block *block, struct random *random)
{
    const uint32_t num_words = (uint32_t)(block->size / sizeof(uint32_t));
    const uint32_t changes = random_chance(random, 0.3) ? num_words : 1 + random_below(random, 3);

    for (uint32_t i = 0; i < changes && num_words > 0; i++) {
        const uint32_t word = hostile_word(random);
        char *at = (char *)block->bytes + (size_t)random_below(random, num_words) * sizeof word;

        /* one store, as another process would make it */
        *(volatile uint32_t *)(void *)at = word;
    }
}

void change_columns(struct laid_out *batch, struct random *random)
{
    for (size_t b = 0; b < batch->num_blocks; b++)
        if (batch->blocks[b].may_change && random_chance(random, 0.5))
            change_block(&batch->blocks[b], random);
}
