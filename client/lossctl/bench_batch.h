/* What `lossctl bench` sends: made up once, the same on every machine. */
#ifndef LOSSCTL_BENCH_BATCH_H
#define LOSSCTL_BENCH_BATCH_H

#include "lossctl/bench_options.h"

enum { BENCH_CONFIG_BYTES = 128 * BENCH_MAX_TASKS };

/* A GroupConfig in JSON: so many tasks with binary cross entropy. */
void bench_config(uint32_t tasks, char config[BENCH_CONFIG_BYTES]);

/*
 * Fill every column of a batch that was begun: logits of a normal distribution, one label in eight is 1, requests of
 * the same length but for the last. seed: different ones give different batches.
 */
void bench_fill(struct lossd_batch *batch, enum lossd_type type, uint32_t seed);

/* Bytes of columns that a step moves for one rank: lengths, logits and labels in, gradients out. */
uint64_t bench_bytes(const struct bench_options *bench, uint32_t candidates);

#endif
