/* The yardstick: about the least that a FUSE server can do, in C with the low-level libfuse and one thread.
 *
 *     cserver MOUNTPOINT STATUS_BYTES MESSAGES_BYTES PROC_ENTRIES
 *
 * It serves the paths that the benchmark uses, with the sizes and the numbers of entries that it is told, and
 * with what the measured daemon tells the host kernel: names are kept for a second, attributes of folders and
 * devices too, those of other files not at all; every read is direct; listings carry attributes; flush is not
 * implemented, so that the host kernel asks for it once and never again. So both get the same requests.
 *
 * It prints "ready" when it is mounted, and leaves on SIGTERM or when its parent is gone.
 */
#define FUSE_USE_VERSION 34
#define _GNU_SOURCE
#include <errno.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NAME_SECONDS 1.0
#define LISTED_FIRST 1000 /* inodes of the entries that only fill the listing of proc/ */
#define LINE "answered by the server in C\n"

enum kind { FOLDER, DOCUMENT, CONTROL, DEVICE };

struct node {
	fuse_ino_t ino, parent;
	const char *name;
	enum kind kind;
	size_t size;
};

enum { ROOT = FUSE_ROOT_ID, PROC, DEV, LLM, AGENT, STATUS, MESSAGES, CTL, SCRIPT };

static struct node nodes[] = {
	{ROOT, 0, "", FOLDER, 0},
	{PROC, ROOT, "proc", FOLDER, 0},
	{DEV, ROOT, "dev", FOLDER, 0},
	{LLM, DEV, "llm", FOLDER, 0},
	{AGENT, PROC, "1", FOLDER, 0},
	{STATUS, AGENT, "status", DOCUMENT, 0},
	{MESSAGES, AGENT, "messages.json", DOCUMENT, 0},
	{CTL, AGENT, "ctl", CONTROL, sizeof LINE - 1},
	{SCRIPT, LLM, "script", DEVICE, 0},
};
#define NODES (sizeof nodes / sizeof *nodes)

/* One open: its content, and where the answer of an exchange begins. */
struct opened {
	off_t base;
	size_t size;
	char data[];
};

static size_t listed; /* entries of proc/ */

static struct node *by_ino(fuse_ino_t ino)
{
	return ino <= NODES ? &nodes[ino - 1] : NULL;
}

static struct node *by_name(fuse_ino_t parent, const char *name)
{
	for (size_t i = 0; i < NODES; i++)
		if (nodes[i].parent == parent && !strcmp(nodes[i].name, name))
			return &nodes[i];
	return NULL;
}

static double attributes(const struct node *node, struct stat *st)
{
	memset(st, 0, sizeof *st);
	st->st_ino = node->ino;
	st->st_mode = node->kind == FOLDER ? S_IFDIR | 0555 : S_IFREG | (node->kind == DOCUMENT ? 0444 : 0666);
	st->st_nlink = node->kind == FOLDER ? 2 : 1;
	st->st_uid = getuid();
	st->st_gid = getgid();
	st->st_size = node->size;
	st->st_blksize = 4096;
	return node->kind == FOLDER || node->kind == DEVICE ? NAME_SECONDS : 0.0;
}

static struct fuse_entry_param entry(const struct node *node)
{
	struct fuse_entry_param e = {.ino = node->ino, .entry_timeout = NAME_SECONDS};
	e.attr_timeout = attributes(node, &e.attr);
	return e;
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct node *node = by_name(parent, name);
	if (!node) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	struct fuse_entry_param e = entry(node);
	fuse_reply_entry(req, &e);
}

static void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *node = by_ino(ino);
	struct stat st;
	(void)fi;
	if (!node) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	double seconds = attributes(node, &st);
	fuse_reply_attr(req, &st, seconds);
}

/* A document is made when it is opened, as the daemon does. */
static void render(struct opened *opened, const struct node *node)
{
	static unsigned serial;
	int head = snprintf(opened->data, node->size + 1, "{\"pid\":%d,\"serial\":%u,", (int)getpid(), serial++);
	for (size_t i = head; i < node->size; i++)
		opened->data[i] = ' ';
	opened->size = node->size;
}

static void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct node *node = by_ino(ino);
	if (!node || node->kind == FOLDER) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	struct opened *opened = malloc(sizeof *opened + node->size + sizeof LINE);
	if (!opened) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	opened->base = 0;
	if (node->kind == DOCUMENT) {
		render(opened, node);
	} else {
		memcpy(opened->data, LINE, sizeof LINE);
		opened->size = sizeof LINE - 1;
	}
	fi->fh = (uintptr_t)opened;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi))
		free(opened);
}

static void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct opened *opened = (struct opened *)(uintptr_t)fi->fh;
	(void)ino;
	size_t start = off < opened->base ? 0 : (size_t)(off - opened->base);
	if (start >= opened->size)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_buf(req, opened->data + start, opened->size - start < size ? opened->size - start : size);
}

static void do_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct opened *opened = (struct opened *)(uintptr_t)fi->fh;
	(void)data;
	if (by_ino(ino)->kind == DEVICE)
		opened->base = off + size;
	fuse_reply_write(req, size);
}

static void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	free((void *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

/* The n-th entry of a folder: ".", "..", what is in it, and for proc/ as many more as it was told. */
static int nth(fuse_ino_t folder, size_t n, char *name, size_t room, struct fuse_entry_param *e)
{
	struct node filler = {LISTED_FIRST + n, PROC, "", FOLDER, 0};
	size_t at = 2;
	if (n < 2) {
		snprintf(name, room, "%s", n ? ".." : ".");
		*e = entry(by_ino(folder));
		e->ino = 0; /* the host kernel makes no entry of these two */
		return 1;
	}
	for (size_t i = 0; i < NODES; i++)
		if (nodes[i].parent == folder && at++ == n) {
			snprintf(name, room, "%s", nodes[i].name);
			*e = entry(&nodes[i]);
			return 1;
		}
	if (folder != PROC || n - 2 >= listed)
		return 0;
	snprintf(name, room, "entry-%zu", n);
	*e = entry(&filler);
	return 1;
}

static void listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, int plus)
{
	char name[32], *data = malloc(size);
	struct fuse_entry_param e;
	size_t used = 0;
	if (!data) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (size_t n = off; nth(ino, n, name, sizeof name, &e); n++) {
		size_t room = size - used;
		size_t length = plus ? fuse_add_direntry_plus(req, data + used, room, name, &e, n + 1)
				     : fuse_add_direntry(req, data + used, room, name, &e.attr, n + 1);
		if (length > room)
			break;
		used += length;
	}
	fuse_reply_buf(req, data, used);
	free(data);
}

static void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	listing(req, ino, size, off, 0);
}

static void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	listing(req, ino, size, off, 1);
}

static void do_init(void *data, struct fuse_conn_info *conn)
{
	(void)data;
	conn->want &= ~FUSE_CAP_READDIRPLUS_AUTO; /* attributes in every listing */
}

static const struct fuse_lowlevel_ops operations = {
	.init = do_init,
	.lookup = do_lookup,
	.getattr = do_getattr,
	.open = do_open,
	.read = do_read,
	.write = do_write,
	.release = do_release,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
};

int main(int argc, char **argv)
{
	char *options[] = {argv[0], "-odefault_permissions,fsname=rnixfs-bench"};
	struct fuse_args args = FUSE_ARGS_INIT(2, options);
	if (argc != 5) {
		fprintf(stderr, "usage: cserver MOUNTPOINT STATUS_BYTES MESSAGES_BYTES PROC_ENTRIES\n");
		return 2;
	}
	nodes[STATUS - 1].size = strtoul(argv[2], NULL, 10);
	nodes[MESSAGES - 1].size = strtoul(argv[3], NULL, 10);
	listed = strtoul(argv[4], NULL, 10);
	struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
	if (!session || fuse_set_signal_handlers(session) || fuse_session_mount(session, argv[1]))
		return 1;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	puts("ready");
	fflush(stdout);
	int failed = fuse_session_loop(session);
	fuse_session_unmount(session);
	fuse_remove_signal_handlers(session);
	fuse_session_destroy(session);
	return failed < 0;
}
