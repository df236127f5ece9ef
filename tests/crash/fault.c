/* A file system that fails on demand, for tests: an LD_PRELOAD library in front of the C library's calls.
 *
 * RNIX_FAULT_PATH     files whose path contains this text are concerned, all others never
 * RNIX_FAULT_CONTROL  a file of the six numbers of `struct control`, mapped here and by the test, which may
 *                     change them at any time; it is the same for all processes that have the library
 *
 * A disk that is full: a write takes what still fits, and fails with ENOSPC where nothing does. Every byte
 * counts, also one that replaces another, as on file systems that copy on write. A file may always shrink.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    int64_t room;          /* bytes that still fit; negative: no limit */
    int64_t syncs;         /* how many fsync and fdatasync are to fail with EIO; negative: all */
    int64_t failed_writes; /* writes that failed or were cut short */
    int64_t failed_syncs;
    int64_t seen_writes;   /* writes and syncs to the files concerned, counted always */
    int64_t seen_syncs;
};

static struct control *control;
static const char *wanted;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("RNIX_FAULT_CONTROL");
    void *map = MAP_FAILED;
    int fd = -1;

    wanted = getenv("RNIX_FAULT_PATH");
    if (!path || !wanted || !*wanted)
        return;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        /* A test that believes in faults which never come would prove nothing. */
        fprintf(stderr, "fault: cannot map %s: %s\n", path, strerror(errno));
        abort();
    }
    close(fd);
    control = map;
}

static void count(int64_t *number)
{
    __atomic_add_fetch(number, 1, __ATOMIC_SEQ_CST);
}

static int concerned(int fd)
{
    char name[40], path[PATH_MAX];
    int before = errno;
    ssize_t length;

    if (!control)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    length = readlink(name, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, wanted) != NULL;
}

/* How many of `size` bytes may be written; takes them from the room that is left. */
static size_t granted(int fd, size_t size)
{
    int64_t room, given;

    if (!concerned(fd))
        return size;
    count(&control->seen_writes);
    room = __atomic_load_n(&control->room, __ATOMIC_SEQ_CST);
    do {
        if (room < 0)
            return size;
        given = (uint64_t)room < size ? room : (int64_t)size;
    } while (!__atomic_compare_exchange_n(&control->room, &room, room - given, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    if ((size_t)given < size)
        count(&control->failed_writes);
    return (size_t)given;
}

static ssize_t no_space(void)
{
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *data, size_t size)
{
    size_t fits = granted(fd, size);

    return size && !fits ? no_space() : syscall(SYS_write, fd, data, fits);
}

static ssize_t at(int fd, const void *data, size_t size, off64_t offset)
{
    size_t fits = granted(fd, size);

    return size && !fits ? no_space() : syscall(SYS_pwrite64, fd, data, fits, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return at(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return at(fd, data, size, offset);
}

enum { HERE = -1 };

/* A write in pieces, cut where the room ends; at the file's own position if `offset` is HERE. */
static ssize_t pieces(int fd, const struct iovec *parts, int number, off64_t offset, int flags)
{
    struct iovec left[IOV_MAX];
    size_t size = 0, fits;
    int used = 0;

    if (number < 0 || number > IOV_MAX) {
        errno = EINVAL;
        return -1;
    }
    for (int i = 0; i < number; i++)
        size += parts[i].iov_len;
    fits = granted(fd, size);
    if (size && !fits)
        return no_space();
    for (size = fits; used < number; used++) {
        left[used] = parts[used];
        if (left[used].iov_len > size)
            left[used].iov_len = size;
        size -= left[used].iov_len;
    }
    return syscall(SYS_pwritev2, fd, left, (long)used, (long)offset, 0L, (long)flags);
}

ssize_t writev(int fd, const struct iovec *parts, int number)
{
    return pieces(fd, parts, number, HERE, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int number, off_t offset)
{
    return pieces(fd, parts, number, offset, 0);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int number, off64_t offset)
{
    return pieces(fd, parts, number, offset, 0);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int number, off_t offset, int flags)
{
    return pieces(fd, parts, number, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int number, off64_t offset, int flags)
{
    return pieces(fd, parts, number, offset, flags);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    /* Holes and the like are punched even on a full disk. */
    if (size > 0 && (mode & ~FALLOC_FL_KEEP_SIZE) == 0 && granted(fd, (size_t)size) < (size_t)size)
        return (int)no_space();
    return (int)syscall(SYS_fallocate, fd, (long)mode, offset, size);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t size)
{
    return fallocate(fd, mode, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    int before = errno, failure = fallocate(fd, 0, offset, size) ? errno : 0;

    errno = before;
    return failure;
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return posix_fallocate(fd, offset, size);
}

int ftruncate(int fd, off_t size)
{
    struct stat now;

    /* To grow without data costs no room, but a block for bookkeeping: it fails where nothing is left. */
    if (fstat(fd, &now) == 0 && size > now.st_size && concerned(fd)
        && __atomic_load_n(&control->room, __ATOMIC_SEQ_CST) == 0) {
        count(&control->failed_writes);
        return (int)no_space();
    }
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}

/* Whether this sync is to fail. */
static int refused(int fd)
{
    int64_t left;

    if (!concerned(fd))
        return 0;
    count(&control->seen_syncs);
    left = __atomic_load_n(&control->syncs, __ATOMIC_SEQ_CST);
    do {
        if (left == 0)
            return 0;
    } while (left > 0 && !__atomic_compare_exchange_n(&control->syncs, &left, left - 1, 0, __ATOMIC_SEQ_CST,
                                                      __ATOMIC_SEQ_CST));
    count(&control->failed_syncs);
    errno = EIO;
    return 1;
}

int fsync(int fd)
{
    return refused(fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return refused(fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}
