/* Makes one of the writing calls fail or kill the process: preloaded, and armed in a fork.
 *
 * Only files below a folder count, so that pipes and the tests' own files are unaffected. The C
 * library's internal calls (fwrite's write) are not intercepted; fwrite and fflush are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long calls, fails_at = -1;
static int fails_with, stays;

void torture_arm(const char *below, long at, int with, int and_after) {
    strncpy(folder, below, sizeof folder - 1);
    calls = 0, fails_at = at, fails_with = with, stays = and_after;
}

long torture_calls(void) { return calls; }

static int fails(void) {
    long call = calls++;
    if (fails_at < 0 || call < fails_at || (call > fails_at && !stays)) return 0;
    if (fails_with < 0) kill(getpid(), SIGKILL);
    errno = fails_with;
    return 1;
}

/* The fork's own streams, see forks.py. */
static int streams(const char *path) {
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return !strcmp(name, ".stdout") || !strcmp(name, ".stderr");
}

static int counts(const char *path) {
    char whole[PATH_MAX];
    if (!folder[0] || !path || streams(path)) return 0;
    if (path[0] == '/') return !strncmp(path, folder, strlen(folder));
    return getcwd(whole, sizeof whole) && !strncmp(whole, folder, strlen(folder));
}

static int counts_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return counts(path);
}

#define REAL(kind, name, ...) \
    static kind (*real)(__VA_ARGS__); \
    if (!real) real = (kind (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define ON_FD(kind, name, failed, parameters, arguments, ...) \
    kind name parameters { \
        REAL(kind, #name, __VA_ARGS__); \
        if (counts_fd(fd) && fails()) return failed; \
        return real arguments; \
    }

ON_FD(ssize_t, write, -1, (int fd, const void *b, size_t n), (fd, b, n), int, const void *, size_t)
ON_FD(ssize_t, pwrite, -1, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), int, const void *, size_t, off_t)
ON_FD(ssize_t, pwrite64, -1, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), int, const void *, size_t, off64_t)
ON_FD(ssize_t, writev, -1, (int fd, const struct iovec *v, int n), (fd, v, n), int, const struct iovec *, int)
ON_FD(int, fsync, -1, (int fd), (fd), int)
ON_FD(int, fdatasync, -1, (int fd), (fd), int)
ON_FD(int, ftruncate, -1, (int fd, off_t n), (fd, n), int, off_t)
ON_FD(int, ftruncate64, -1, (int fd, off64_t n), (fd, n), int, off64_t)

size_t fwrite(const void *b, size_t s, size_t n, FILE *f) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    if (f && counts_fd(fileno(f)) && fails()) return 0;
    return real(b, s, n, f);
}

int fflush(FILE *f) {
    REAL(int, "fflush", FILE *);
    if (f && counts_fd(fileno(f)) && fails()) return EOF;
    return real(f);
}

#define ON_PATH(name, parameters, arguments, path, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        if (counts(path) && fails()) return -1; \
        return real arguments; \
    }

ON_PATH(rename, (const char *a, const char *b), (a, b), b, const char *, const char *)
ON_PATH(renameat, (int x, const char *a, int y, const char *b), (x, a, y, b), b, int, const char *, int, const char *)
ON_PATH(renameat2, (int x, const char *a, int y, const char *b, unsigned f), (x, a, y, b, f), b, int, const char *, int, const char *, unsigned)
ON_PATH(mkdir, (const char *p, mode_t m), (p, m), p, const char *, mode_t)
ON_PATH(chmod, (const char *p, mode_t m), (p, m), p, const char *, mode_t)
ON_PATH(link, (const char *a, const char *b), (a, b), b, const char *, const char *)
ON_PATH(symlink, (const char *a, const char *b), (a, b), b, const char *, const char *)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        if (flags & (O_CREAT | O_WRONLY | O_RDWR) && counts(path) && fails()) return -1; \
        return real(path, flags, mode); \
    }

OPENS(open)
OPENS(open64)
