/*
 * What a group computes and how it averages, as plain data: the messages of proto/lossd/v1/config.proto with all
 * defaults filled in. Whoever reads a config in (codec/convert.c) fills it; loss_plan_init checks it; nobody writes it
 * afterwards.
 */
#ifndef BATCH_GROUP_CONFIG_H
#define BATCH_GROUP_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NAME_MAX_LENGTH = 63, /* of groups and tasks */
    MAX_TASKS = 64,       /* the hard limits; the configured ones are not above */
    MAX_LOSSES = 16,
    MAX_NUM_CLASS = 4096,
};

enum loss_kind {
    LOSS_BINARY_CROSS_ENTROPY,
    LOSS_BINARY_FOCAL,
    LOSS_SOFTMAX_CROSS_ENTROPY,
    LOSS_JRC,
    LOSS_L2,
    LOSS_LISTWISE_RANK,
    NUM_LOSS_KINDS,
};

/* "binary_cross_entropy": the name in the schema, of the term, and TorchEasyRec's. */
const char *loss_kind_name(enum loss_kind kind);

enum grad_reduce { GRAD_REDUCE_MEAN, GRAD_REDUCE_SUM };
enum on_nonfinite { ON_NONFINITE_ERROR, ON_NONFINITE_ZERO, ON_NONFINITE_PROPAGATE };
enum weight_normalizer { WEIGHT_NORMALIZER_GLOBAL, WEIGHT_NORMALIZER_LOCAL };
enum lists { LISTS_REQUESTS, LISTS_SESSIONS };
enum ignore_counting { IGNORE_COUNTING_KEPT, IGNORE_COUNTING_ALL };
enum listwise_target { TARGET_MEAN_POSITIVE, TARGET_RAW, TARGET_PROBABILITY, TARGET_SOFTMAX };
enum listwise_denominator { DENOMINATOR_ALL, DENOMINATOR_VALID };

/* One loss of a task; kind says which member of the union holds. Ranges: proto/lossd/v1/config.proto. */
struct loss_config {
    enum loss_kind kind;
    double weight;
    union {
        struct {
            double label_smoothing;
        } binary_cross_entropy;
        struct {
            double gamma;
            double alpha;
            bool detach_weight;
        } binary_focal;
        struct {
            double label_smoothing;
            enum ignore_counting ignore_counting;
        } softmax_cross_entropy;
        struct {
            double alpha;
        } jrc;
        struct {
            double temperature_init;
            bool learnable_temperature;
            enum listwise_target target;
            enum listwise_denominator denominator;
        } listwise_rank;
    };
};

struct task_config {
    const char *name;   /* 1 to NAME_MAX_LENGTH bytes */
    uint32_t num_class; /* K >= 1 */
    double weight;
    bool has_label_bitmask;
    uint64_t label_bitmask;
    enum lists lists;
    double in_task_space_weight;
    double out_task_space_weight;
    const struct loss_config *losses; /* [num_losses] */
    size_t num_losses;
};

struct group_config {
    const struct task_config *tasks; /* [num_tasks] */
    size_t num_tasks;
    bool global_average;
    enum grad_reduce grad_reduce;
    enum on_nonfinite on_nonfinite;
    enum weight_normalizer weight_normalizer;
    uint32_t step_timeout_ms;
    uint32_t first_step_timeout_ms;
};

/* 1 to NAME_MAX_LENGTH of [A-Za-z0-9_.-]: what names of groups and tasks are made of. NULL is no name. */
bool name_is_valid(const char *name);

#endif
