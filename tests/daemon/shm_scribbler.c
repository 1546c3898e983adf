/*
 * shm_scribbler SOCKET GROUP GENERATION CLASSES SESSIONS CALLS HOW
 *
 * Makes CALLS calls as rank 0, while a second thread writes into the region. CLASSES: numbers of classes of the tasks,
 * "1,3,2"; SESSIONS: bits of the tasks that have sessions. HOW: `values`: columns get any bits at all, and the words of
 * the submission others that might pass; `all`: everything gets any bits, the words of both sides included, for which
 * the daemon may break off, and this program comes again. Prints how the calls ended.
 *
 * How many calls the thread spoils is the scheduler's to say. With `values` it pauses in two of EACH_PAUSE calls: one
 * is good, and has to be answered, the other one bad, and has to fail.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/random.h"
#include "support/shm_raw.h"

enum { NUM_CANDIDATES = 24, MAX_CLASSES = 64, EACH_PAUSE = 256 };

struct scribbler {
    struct raw raw;
    bool is_total;
    bool stops;      /* atomic */
    uint64_t pauses; /* begun and ended; odd: the thread pauses; atomic */
    uint64_t seen;   /* of these, by the thread; atomic */
    struct random random;
};

static void set_word(const struct scribbler *s, uint64_t offset, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(s->raw.bytes + offset), value, __ATOMIC_RELAXED);
}

/* A place that might be right: near a border, or anywhere in the region. */
static uint64_t some_offset(struct scribbler *s)
{
    const uint64_t r = random_next(&s->random);
    const uint64_t borders[] = {0, 4, s->raw.layout.data_offset, s->raw.layout.region_bytes, UINT64_MAX - 7};

    if (r % 4 == 0)
        return borders[r / 4 % 5] - r / 20 % 3 * 4;
    return s->raw.layout.data_offset + r / 4 % (s->raw.layout.region_bytes - s->raw.layout.data_offset) / 8 * 8;
}

/* One word of a task or of the head; neither its sequence nor its step, which would be the last it has. */
static void scribble_submission(struct scribbler *s)
{
    struct lossd_shm_submission *head = raw_submission(&s->raw);
    struct lossd_shm_task *task = &head->tasks[random_next(&s->random) % s->raw.layout.num_tasks];
    uint64_t *const offsets[] = {&task->logits,   &task->gradient,   &task->labels,  &task->weights,
                                 &task->sessions, &task->task_space, &head->lengths, &head->label_bits};
    uint32_t *const counts[] = {&task->logits_stride, &task->gradient_stride, &head->num_requests,
                                &head->num_candidates};
    const uint64_t r = random_next(&s->random);

    switch (r % 8) {
    case 0:
        __atomic_store_n(&task->logits_type, (uint8_t)(r / 8 % 4), __ATOMIC_RELAXED);
        break;
    case 1:
        __atomic_store_n(&task->gradient_type, (uint8_t)(r / 8 % 4), __ATOMIC_RELAXED);
        break;
    case 2:
        __atomic_store_n(&head->flags, (uint32_t)(LOSSD_SHM_HAS_STEP | r / 8 % 4), __ATOMIC_RELAXED);
        break;
    case 3:
    case 4:
        __atomic_store_n(counts[r / 8 % 4], (uint32_t)(r / 32 % (r % 3 == 0 ? UINT32_MAX : 40)), __ATOMIC_RELAXED);
        break;
    default:
        __atomic_store_n(offsets[r / 8 % 8], some_offset(s), __ATOMIC_RELAXED);
    }
}

/* Numbers that hurt where they are believed, among any. */
static uint64_t some_value(struct scribbler *s)
{
    static const uint64_t specials[] = {0, UINT64_MAX, 0x7fc000007fc00000, 0x7f8000007f800000, 0x0000001800000018};
    const uint64_t r = random_next(&s->random);

    return r % 4 == 0 ? specials[r / 4 % 5] : random_next(&s->random);
}

/* Any bits, lengths included. */
static void scribble_wild(struct scribbler *s)
{
    const uint64_t words = (s->raw.layout.region_bytes - s->raw.layout.data_offset) / 8;

    for (int i = 0; i < 64; i++)
        set_word(s, s->raw.layout.data_offset + 8 * (random_next(&s->random) % words), some_value(s));
}

/* Zeros and ones behind the lengths: logits, labels and sessions that pass, and that are others at the next look. */
static void scribble_mild(struct scribbler *s)
{
    const uint64_t start = s->raw.layout.data_offset + LOSSD_SHM_ALIGNMENT;
    const uint64_t words = (s->raw.layout.region_bytes - start) / 8;

    for (int i = 0; i < 64; i++) {
        const uint64_t r = random_next(&s->random);

        set_word(s, start + 8 * (r / 4 % words), (r & 1) * 0x3f800000 + (r >> 1 & 1) * 0x3f80000000000000);
    }
}

static void scribble_all(struct scribbler *s)
{
    for (int i = 0; i < 64; i++)
        set_word(s, 8 * (random_next(&s->random) % (s->raw.layout.region_bytes / 8)), some_value(s));
}

/* Returns when the thread pauses, or goes on when it sees it. */
static void pause_thread(struct scribbler *s)
{
    const uint64_t pauses = __atomic_add_fetch(&s->pauses, 1, __ATOMIC_SEQ_CST);

    while (__atomic_load_n(&s->seen, __ATOMIC_SEQ_CST) != pauses)
        (void)sched_yield();
}

static void resume_thread(struct scribbler *s)
{
    (void)__atomic_add_fetch(&s->pauses, 1, __ATOMIC_SEQ_CST);
}

static void keep_pause(struct scribbler *s)
{
    uint64_t pauses;

    while ((pauses = __atomic_load_n(&s->pauses, __ATOMIC_SEQ_CST)) % 2 == 1) {
        __atomic_store_n(&s->seen, pauses, __ATOMIC_SEQ_CST);
        (void)sched_yield();
    }
}

static void *scribble(void *context)
{
    struct scribbler *s = context;

    while (!__atomic_load_n(&s->stops, __ATOMIC_RELAXED)) {
        const uint64_t r = random_next(&s->random);
        const uint64_t rounds = r / 8 % 40;

        keep_pause(s);
        /* Long enough for calls to be checked in, and short enough to end in the middle of them. */
        for (uint64_t i = 0; i < rounds; i++)
            if (r % 8 < 6)
                scribble_mild(s);
            else if (r % 8 == 6)
                scribble_wild(s);
            else
                scribble_submission(s);
        if (s->is_total)
            scribble_all(s);
    }
    return NULL;
}

struct tally {
    uint64_t answered;
    uint64_t failed;
    uint64_t broken_off;
    uint64_t wrong; /* of the calls in which the thread paused */
};

/* False where it has to end one way and ends the other. */
static bool ends_well(const struct scribbler *s, uint64_t sequence, bool has_failed)
{
    if (s->is_total || sequence % EACH_PAUSE > 1)
        return true;
    return has_failed == (sequence % EACH_PAUSE == 1);
}

/* One call; false where it is not answered. The thread pauses in some. */
static bool call_once(struct scribbler *s, const unsigned *classes, uint32_t sessions, uint64_t sequence)
{
    const bool is_quiet = !s->is_total && sequence % EACH_PAUSE <= 1;
    bool is_answered;

    if (is_quiet)
        pause_thread(s);
    raw_fill(&s->raw, classes, NUM_CANDIDATES, sessions);
    if (is_quiet && sequence % EACH_PAUSE == 1)
        raw_submission(&s->raw)->num_tasks = 0;
    raw_submit(&s->raw, sequence);
    is_answered = raw_wait(&s->raw, sequence, s->is_total ? 5 : 20000); /* the answer may be written over */
    if (is_quiet)
        resume_thread(s);
    return is_answered;
}

/* Calls on one connection, until it breaks. *step goes on. */
static void call_all(struct scribbler *s, const unsigned *classes, uint32_t sessions, uint64_t calls, uint64_t *step,
                     struct tally *tally)
{
    for (uint64_t sequence = 1; tally->answered + tally->failed < calls; sequence++) {
        bool has_failed;

        raw_submission(&s->raw)->step = ++*step;
        if (!call_once(s, classes, sessions, sequence)) {
            tally->broken_off++;
            return;
        }
        has_failed = __atomic_load_n(&raw_answer(&s->raw)->failed, __ATOMIC_RELAXED) != 0;
        tally->failed += has_failed;
        tally->answered += !has_failed;
        tally->wrong += !ends_well(s, sequence, has_failed);
    }
}

static void parse_classes(const char *text, unsigned classes[MAX_CLASSES])
{
    uint32_t count = 0;

    for (char *end; count < MAX_CLASSES && *text != '\0'; text = end + (*end == ','))
        classes[count++] = (unsigned)strtoul(text, &end, 10);
}

/* False where the daemon does not let it in any more. */
static bool run_once(struct scribbler *s, char **argv, uint64_t calls, uint64_t *step, struct tally *tally)
{
    unsigned classes[MAX_CLASSES] = {0};
    const int fd = raw_connect(argv[1]);
    pthread_t thread;

    parse_classes(argv[4], classes);
    raw_ask(fd, argv[2], 0, strtoull(argv[3], NULL, 10), 16384);
    if (!raw_attached(&s->raw, fd))
        return false;
    s->stops = false;
    if (pthread_create(&thread, NULL, scribble, s) != 0)
        return false;
    call_all(s, classes, (uint32_t)strtoul(argv[5], NULL, 10), calls, step, tally);
    __atomic_store_n(&s->stops, true, __ATOMIC_RELAXED);
    (void)pthread_join(thread, NULL);
    raw_close(&s->raw);
    return true;
}

int main(int argc, char **argv)
{
    struct scribbler scribbler = {.random = {.state = 1}};
    struct tally tally = {0};
    uint64_t step = 0;
    uint64_t calls;

    if (argc != 8)
        return EXIT_FAILURE;
    calls = strtoull(argv[6], NULL, 10);
    scribbler.is_total = strcmp(argv[7], "all") == 0;
    while (tally.answered + tally.failed < calls && tally.broken_off < calls)
        if (!run_once(&scribbler, argv, calls, &step, &tally)) {
            (void)fprintf(stderr, "refused\n");
            return EXIT_FAILURE;
        }
    (void)printf("%llu %llu %llu %llu\n", (unsigned long long)tally.answered, (unsigned long long)tally.failed,
                 (unsigned long long)tally.broken_off, (unsigned long long)tally.wrong);
    return EXIT_SUCCESS;
}
