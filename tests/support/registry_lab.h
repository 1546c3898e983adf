/*
 * A registry with groups of one task, "click" with binary cross entropy, and submissions that are waited for: for the
 * tests of groups. The helpers abort the test where something fails that the test is not about.
 */
#ifndef TESTS_SUPPORT_REGISTRY_LAB_H
#define TESTS_SUPPORT_REGISTRY_LAB_H

#include <semaphore.h>

#include "group/registry.h"

struct registry *lab_registry(void);
struct registry *lab_registry_with(const struct registry_settings *settings);

/* Room for 4 groups of 8 ranks, 2 threads, batches of 8 requests and 64 candidates. */
extern const struct registry_settings lab_settings;

/* Closes, waits until nothing is open, destroys. */
void lab_end(struct registry *registry);

/* A config whose digest and bytes are this text. Step timeouts are 30 s. */
struct owned_config *lab_config(const char *digest);

/* Join with lab_config("a") and no instance. Returns the generation. */
uint64_t lab_join(struct registry *registry, const char *group, uint32_t rank, uint32_t world_size);

/* The same with all that a join can hold; the status, and the error where err is not NULL. */
enum lossd_status lab_try_join(struct registry *registry, struct join_request request, struct join_answer *answer,
                               struct lossd_error *err);

/* A registry where ranks 0 and 1 have joined "g" so. */
struct registry *lab_registry_of_two(void);

/* All ranks join "g"; the first of them with this config, which is taken over, the others with one of its digest. */
void lab_join_all(struct registry *registry, struct owned_config *config, uint32_t world_size);

enum lossd_status lab_leave(struct registry *registry, const char *group, uint32_t rank);

/* A connection speaks for a rank of "g" from now on: its token. */
uint64_t lab_attach(struct registry *registry, uint32_t rank);

/* The connection with this token has ended. */
void lab_detach(struct registry *registry, uint32_t rank, uint64_t token);

enum lossd_status lab_announce(struct registry *registry, const char *group, uint32_t rank, uint64_t step,
                               uint32_t requests, uint32_t candidates, struct lossd_error *err);

/* To be finished by the caller. */
struct group_view lab_view(struct registry *registry, const char *group);

/* What "g" has counted. */
void lab_expect_counters(struct registry *registry, uint64_t done, uint64_t failed, uint64_t aborted,
                         uint64_t all_reduces);

/* A submission of one request, all logits 0 and labels 1: loss log 2 each. */
struct ticket {
    struct submission submission;
    struct task_batch task;
    uint32_t length;
    float logits[64];
    float labels[64];
    sem_t is_done;
    atomic_int ends;
};

/* Made but not sent. */
struct ticket *lab_ticket(const char *group, uint32_t rank, uint64_t step, uint32_t candidates);

struct ticket *lab_submit(struct registry *registry, const char *group, uint32_t rank, uint64_t step,
                          uint32_t candidates);

/* Wait (at most 10 s) for the answer; its status. */
enum lossd_status ticket_wait(struct ticket *ticket);

/* Whether it has been answered. */
bool ticket_is_done(struct ticket *ticket);

/* After the answer. */
void ticket_free(struct ticket *ticket);

/* Wait, check the status, free. */
void ticket_expect(struct ticket *ticket, enum lossd_status status);

const char *lab_metadata(const struct lossd_error *err, const char *wanted);

#endif
