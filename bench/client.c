/* The client: times one operation, or holds many readers blocked.
 *
 *     client time CORE OPERATION COUNT PATH    prints "P50 P99", nanoseconds
 *     client block COUNT PATH                  prints "started" and waits until it is killed
 *
 * Operations: orc (open, read, close), stat, pread (4 KiB of a file that is open), readdir (open, list, close),
 * ctl (write a command and read the list of commands), exchange (write a request and read its answer).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define STACK (64 * 1024)
#define COMMAND "budget 0\n"
#define REQUEST "{\"intent\":\"say x\"}\n"

static const char *path;
static int fd = -1;
static char buffer[64 * 1024];

static void fail(const char *what)
{
	fprintf(stderr, "client: %s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

/* A call that must give something; errno says nothing where it gave nothing. */
static ssize_t some(ssize_t got, const char *what)
{
	if (got == 0)
		errno = ENODATA;
	if (got <= 0)
		fail(what);
	return got;
}

static void reopen(int flags)
{
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		fail("open");
}

static void op_orc(void)
{
	reopen(O_RDONLY);
	some(read(fd, buffer, BLOCK), "read");
	close(fd);
}

static void op_stat(void)
{
	struct stat st;
	if (stat(path, &st))
		fail("stat");
}

static void op_pread(void)
{
	if (some(pread(fd, buffer, BLOCK, 0), "pread") != BLOCK) {
		errno = ENODATA;
		fail("pread of 4 KiB");
	}
}

static void op_readdir(void)
{
	reopen(O_RDONLY | O_DIRECTORY);
	some(getdents64(fd, buffer, sizeof buffer), "readdir");
	while (getdents64(fd, buffer, sizeof buffer) > 0)
		;
	close(fd);
}

static void op_ctl(void)
{
	some(pwrite(fd, COMMAND, sizeof COMMAND - 1, 0), "write");
	some(pread(fd, buffer, BLOCK, 0), "read");
}

static void op_exchange(void)
{
	some(pwrite(fd, REQUEST, sizeof REQUEST - 1, 0), "write");
	some(pread(fd, buffer, BLOCK, sizeof REQUEST - 1), "read");
}

static const struct operation {
	const char *name;
	void (*run)(void);
	int flags; /* of an open before the first one; -1 for none */
} operations[] = {
	{"orc", op_orc, -1},
	{"stat", op_stat, -1},
	{"pread", op_pread, O_RDONLY},
	{"readdir", op_readdir, -1},
	{"ctl", op_ctl, O_RDWR},
	{"exchange", op_exchange, O_RDWR},
};

static long now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	long left = *(const long *)a, right = *(const long *)b;
	return (left > right) - (left < right);
}

static int measure(const struct operation *operation, size_t count)
{
	long *times = calloc(count, sizeof *times);
	if (!times)
		fail("memory for");
	if (operation->flags >= 0)
		reopen(operation->flags);
	for (size_t i = 0; i < count / 10 + 3; i++)
		operation->run();
	for (size_t i = 0; i < count; i++) {
		long start = now();
		operation->run();
		times[i] = now() - start;
	}
	qsort(times, count, sizeof *times, ascending);
	printf("%ld %ld\n", times[count / 2], times[count * 99 / 100]);
	free(times);
	return 0;
}

static void pin(const char *core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(atoi(core), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("pinning before");
}

static void *reader(void *nothing)
{
	int mine = open(path, O_RDONLY | O_CLOEXEC);
	char byte;
	if (mine < 0)
		fail("open");
	if (read(mine, &byte, 1) < 0 && errno != EINTR)
		fail("read");
	return nothing;
}

static _Noreturn void block(size_t count)
{
	struct rlimit files;
	pthread_attr_t small;
	pthread_t thread;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (size_t i = 0; i < count; i++)
		if ((errno = pthread_create(&thread, &small, reader, NULL)))
			fail("a thread for");
	puts("started");
	fflush(stdout);
	for (;;)
		pause();
}

static int usage(void)
{
	fprintf(stderr, "usage: client time CORE OPERATION COUNT PATH | client block COUNT PATH\n");
	return 2;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return usage();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	path = argv[argc - 1];
	size_t count = strtoul(argv[argc - 2], NULL, 10);
	if (!strcmp(argv[1], "block") && argc == 4)
		block(count);
	if (strcmp(argv[1], "time") || argc != 6 || !count)
		return usage();
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (!strcmp(operations[i].name, argv[3])) {
			pin(argv[2]);
			return measure(&operations[i], count);
		}
	return usage();
}
