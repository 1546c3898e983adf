#include "client/shm_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/failure.h"

/* All pages of the head are mapped and touched. That of the largest config, with all slots, has about 1 MiB. */
#define MAX_HEAD_BYTES (UINT64_C(8) << 20)

static enum lossd_code refuse(struct lossd_failure *failure, const char *what)
{
    return failure_set(failure, OWN_INTERNAL, "", "the region of shared memory is not as it has to be: %s", what);
}

/* Memory that could be taken from under us would end this process at the next access. */
static enum lossd_code check_descriptor(int fd, uint64_t region_bytes, struct lossd_failure *failure)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return refuse(failure, "it is not sealed against shrinking");
    if (fstat(fd, &info) != 0 || info.st_size < 0 || (uint64_t)info.st_size != region_bytes)
        return refuse(failure, "it has another size than what was said of it");
    return LOSSD_CODE_OK;
}

static bool is_aligned(uint64_t offset)
{
    return offset % LOSSD_SHM_ALIGNMENT == 0;
}

/* All slots in front of the data, an answer in each, and room for the data; no sum here can wrap. */
static bool fits(const struct lossd_shm_attached *at, uint64_t data_bytes)
{
    const uint64_t answer_bytes = sizeof(struct lossd_shm_answer) +
                                  at->num_tasks * sizeof(struct lossd_shm_task_answer) +
                                  at->num_terms * sizeof(struct lossd_shm_term);

    if (at->data_offset % (uint64_t)sysconf(_SC_PAGESIZE) != 0 || !is_aligned(at->slots_offset) ||
        !is_aligned(at->slot_bytes) || !is_aligned(at->answer_offset))
        return false;
    if (at->data_offset > MAX_HEAD_BYTES || at->data_offset > at->region_bytes ||
        data_bytes > at->region_bytes - at->data_offset)
        return false;
    if (at->slots_offset < sizeof(struct lossd_shm_control) || at->slots_offset > at->data_offset)
        return false;
    if (at->slot_bytes > (at->data_offset - at->slots_offset) / at->num_slots)
        return false;
    return at->answer_offset >= lossd_shm_answer_offset(at->num_tasks) && at->answer_offset <= at->slot_bytes &&
           answer_bytes <= at->slot_bytes - at->answer_offset;
}

static enum lossd_code check_layout(const struct lossd_shm_attached *at, const struct member *member,
                                    uint32_t num_slots, uint64_t data_bytes, struct lossd_failure *failure)
{
    if (at->num_slots != num_slots || num_slots == 0)
        return refuse(failure, "it has another number of slots than was asked for");
    if (at->num_tasks != member->config->num_tasks || at->num_terms != member->num_terms)
        return refuse(failure, "it has other tasks than the config of the group");
    if (at->region_bytes > MAX_HEAD_BYTES && at->region_bytes - MAX_HEAD_BYTES > data_bytes)
        return refuse(failure, "it is larger than what was asked for");
    if (strncmp(at->config_digest, member->config_digest, sizeof at->config_digest) != 0)
        return refuse(failure, "it is for another config than the group was joined with");
    return fits(at, data_bytes) ? LOSSD_CODE_OK : refuse(failure, "its parts do not lie in it");
}

/* All pages at once, and none of them in a child that is forked off. */
static uint8_t *map_part(int fd, uint64_t offset, uint64_t bytes)
{
    void *part = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);

    if (part == MAP_FAILED)
        return NULL;
    (void)madvise(part, bytes, MADV_DONTFORK);
    return part;
}

enum lossd_code shm_map_open(const struct lossd_shm_attached *attached, int region_fd, const struct member *member,
                             uint32_t num_slots, uint64_t data_bytes, struct shm_map *map,
                             struct lossd_failure *failure)
{
    enum lossd_code code = check_layout(attached, member, num_slots, data_bytes, failure);
    struct shm_map made = {.data_bytes = data_bytes, .at = *attached};

    if (code == LOSSD_CODE_OK)
        code = check_descriptor(region_fd, attached->region_bytes, failure);
    if (code != LOSSD_CODE_OK)
        return code;
    made.head = map_part(region_fd, 0, attached->data_offset);
    if (made.head != NULL && data_bytes > 0)
        made.data = map_part(region_fd, attached->data_offset, data_bytes);
    if (made.head == NULL || (data_bytes > 0 && made.data == NULL)) {
        code = failure_set(failure, OWN_OUT_OF_MEMORY, "", "a region of %llu bytes can't be mapped: %s",
                           (unsigned long long)attached->region_bytes, strerror(errno));
        shm_map_close(&made);
        return code;
    }
    *map = made;
    return LOSSD_CODE_OK;
}

enum lossd_code shm_map_replace(struct shm_map *old, struct shm_map *map, struct lossd_failure *failure)
{
    if (map->data != NULL) {
        memcpy(map->data, old->data, map->data_bytes);
        if (mremap(map->data, map->data_bytes, map->data_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old->data) == MAP_FAILED)
            return failure_set(failure, OWN_INTERNAL, "", "a region can't be moved: %s", strerror(errno));
        map->data = old->data;
        old->data = NULL;
    }
    shm_map_close(old);
    *old = *map;
    *map = (struct shm_map){.head = NULL};
    return LOSSD_CODE_OK;
}

static bool keep_part(uint8_t *part, uint64_t bytes)
{
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        return false;
    (void)madvise(copy, bytes, MADV_DONTFORK);
    memcpy(copy, part, bytes);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, part) != MAP_FAILED)
        return true;
    (void)munmap(copy, bytes);
    return false;
}

enum lossd_code shm_map_keep(struct shm_map *map, struct lossd_failure *failure)
{
    if ((map->head == NULL || keep_part(map->head, map->at.data_offset)) &&
        (map->data == NULL || keep_part(map->data, map->data_bytes)))
        return LOSSD_CODE_OK;
    return failure_set(failure, OWN_INTERNAL, "", "a region can't be copied: %s", strerror(errno));
}

void shm_map_close(struct shm_map *map)
{
    if (map->data != NULL)
        (void)munmap(map->data, map->data_bytes);
    if (map->head != NULL)
        (void)munmap(map->head, map->at.data_offset);
    *map = (struct shm_map){.head = NULL};
}
