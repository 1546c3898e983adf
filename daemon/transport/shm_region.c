#include "transport/shm_region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Of Linux 6.3; headers may be older. */
enum { NO_EXEC_SEAL = 0x0008 };

/* Unmapping holds up whoever maps or unmaps meanwhile. */
enum { PART_BYTES = 16 << 20 };

uint64_t shm_region_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static enum lossd_status system_error(struct lossd_error *err, const char *what)
{
    return error_set(err, LOSSD_OVERLOADED, "", "no memory to share: %s: %s", what, strerror(errno));
}

static enum lossd_status budget_error(struct lossd_error *err, uint64_t size, const struct memory_budget *budget)
{
    (void)error_set(err, LOSSD_LIMIT_EXCEEDED, "data_bytes",
                    "the region takes %" PRIu64 " bytes, but %zu are left of regions_bytes", size, budget_room(budget));
    error_add_metadata(err, "limit", "regions_bytes");
    return LOSSD_LIMIT_EXCEEDED;
}

static int create_file(uint64_t size)
{
    static const char name[] = "lossd";
    CLEANUP_CLOSE int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | NO_EXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -1;
    return steal_fd(&fd);
}

enum lossd_status shm_region_create(struct shm_region *region, uint64_t size, struct memory_budget *budget,
                                    struct lossd_error *err)
{
    const uint64_t page = shm_region_page_bytes();
    const uint64_t rounded = (size + page - 1) / page * page;
    CLEANUP_CLOSE int fd = -1;
    void *bytes;

    if (!budget_take(budget, rounded))
        return budget_error(err, rounded, budget);
    fd = create_file(rounded);
    bytes = fd < 0 ? MAP_FAILED : mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        budget_give(budget, rounded);
        return system_error(err, fd < 0 ? "memfd" : "mmap");
    }
    *region = (struct shm_region){.bytes = bytes, .size = rounded, .fd = steal_fd(&fd), .budget = budget};
    return LOSSD_OK;
}

/* Kernels before 5.14 can't be asked: a write to each page does it there. */
static void write_pages(unsigned char *bytes, uint64_t size)
{
    const uint64_t page = shm_region_page_bytes();

    for (uint64_t offset = 0; offset < size; offset += page)
        *(volatile unsigned char *)(bytes + offset) = 0;
}

enum lossd_status shm_region_touch(struct shm_region *region, bool *is_ready, struct lossd_error *err)
{
    const uint64_t rest = region->size - region->touched;
    const uint64_t piece = rest < SHM_REGION_PIECE_BYTES ? rest : SHM_REGION_PIECE_BYTES;
    unsigned char *start = region->bytes + region->touched;

    if (piece > 0 && madvise(start, piece, MADV_POPULATE_WRITE) != 0) {
        if (errno != EINVAL)
            return system_error(err, "MADV_POPULATE_WRITE");
        write_pages(start, piece);
    }
    region->touched += piece;
    *is_ready = region->touched == region->size;
    return LOSSD_OK;
}

void shm_region_close_fd(struct shm_region *region)
{
    if (region->fd >= 0)
        (void)close(region->fd);
    region->fd = -1;
}

/* Bytes of the part that begins there. */
static uint64_t part_bytes(const struct shm_region *region, uint64_t offset)
{
    const uint64_t rest = region->size - offset;

    return rest < PART_BYTES ? rest : PART_BYTES;
}

/* Punches a hole into the file, which has no descriptor any more. */
void shm_region_empty(struct shm_region *region)
{
    if (region->bytes == NULL)
        return;
    for (uint64_t offset = 0; offset < region->size; offset += PART_BYTES)
        (void)madvise(region->bytes + offset, part_bytes(region, offset), MADV_REMOVE);
    region->touched = 0;
}

void shm_region_finish(struct shm_region *region)
{
    if (region->bytes == NULL)
        return;
    shm_region_close_fd(region);
    for (uint64_t offset = 0; offset < region->size; offset += PART_BYTES)
        (void)munmap(region->bytes + offset, part_bytes(region, offset));
    budget_give(region->budget, region->size);
    *region = (struct shm_region){.fd = -1};
}
