#include "group/compute_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct compute_pool {
    void (*run)(void *context, struct submission *submission);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct submission *first; /* the queue, by submission->next */
    struct submission *last;
    bool stopping;
    unsigned num_threads; /* that run */
    pthread_t threads[];
};

/* The next in the queue; NULL where there will be none any more. */
static struct submission *pop(struct compute_pool *pool)
{
    struct submission *next;

    (void)pthread_mutex_lock(&pool->lock);
    while (pool->first == NULL && !pool->stopping)
        (void)pthread_cond_wait(&pool->changed, &pool->lock);
    next = pool->first;
    if (next != NULL)
        pool->first = next->next;
    (void)pthread_mutex_unlock(&pool->lock);
    return next;
}

static void *work(void *argument)
{
    struct compute_pool *pool = argument;

    for (struct submission *submission = pop(pool); submission != NULL; submission = pop(pool))
        pool->run(pool->context, submission);
    return NULL;
}

struct compute_pool *compute_pool_create(unsigned num_threads, void (*run)(void *context, struct submission *),
                                         void *context, struct lossd_error *err)
{
    struct compute_pool *pool = calloc(1, sizeof *pool + num_threads * sizeof pool->threads[0]);

    if (pool == NULL) {
        (void)error_set(err, LOSSD_INTERNAL, "", "out of memory");
        return NULL;
    }
    pool->run = run;
    pool->context = context;
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->changed, NULL);
    while (pool->num_threads < num_threads) {
        const int failure = pthread_create(&pool->threads[pool->num_threads], NULL, work, pool);

        if (failure != 0) {
            (void)error_set(err, LOSSD_INTERNAL, "compute_threads", "%u threads can't be started: %s", num_threads,
                            strerror(failure));
            compute_pool_destroy(pool);
            return NULL;
        }
        pool->num_threads++;
    }
    return pool;
}

void compute_pool_push(struct compute_pool *pool, struct submission *submission)
{
    submission->next = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    if (pool->first == NULL)
        pool->first = submission;
    else
        pool->last->next = submission;
    pool->last = submission;
    (void)pthread_cond_signal(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

void compute_pool_destroy(struct compute_pool *pool)
{
    if (pool == NULL)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned t = 0; t < pool->num_threads; t++)
        (void)pthread_join(pool->threads[t], NULL);
    (void)pthread_cond_destroy(&pool->changed);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
}
