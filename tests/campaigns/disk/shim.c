/* What a process does to the files below one folder: counted, logged, and made to fail at the n-th call.
 *
 * Loaded by LD_PRELOAD into Python and the JVM. Environment: DISK_ROOT (the folder), DISK_CONTROL (a file of 4096 bytes
 * that all processes map), DISK_LOG (a file that lines are appended to), DISK_GRAVE (a folder of the same file system that
 * keeps what is unlinked or replaced).
 *
 * A line of the log: number, call, path, second path or size, separated by tabs. Only calls that succeeded are in it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAULT_NONE, FAULT_ENOSPC, FAULT_EIO, FAULT_EXIT, FAULT_KILL };
enum { FILES_MAX = 65536 };

struct control {
    uint64_t counted;
    uint64_t fail_at; /* 0: never */
    uint32_t fault;
    uint32_t stays; /* every call after it fails too */
    uint32_t armed; /* nothing is counted or logged before */
    uint32_t failed;
    char hit[512];
};

static struct control *control;
static const char *root;
static const char *grave;
static size_t root_length;
static int log_file = -1;
static char tracked[FILES_MAX];

#define REAL(type, name, ...)                                        \
    static type (*real_##name)(__VA_ARGS__);                         \
    if (!real_##name) real_##name = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("DISK_CONTROL");
    root = getenv("DISK_ROOT");
    grave = getenv("DISK_GRAVE");
    if (!path || !root || !grave || !getenv("DISK_LOG")) return;
    REAL(int, open64, const char *, int, ...);
    int file = real_open64(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    log_file = real_open64(getenv("DISK_LOG"), O_WRONLY | O_APPEND | O_CLOEXEC);
    root_length = strlen(root);
    if (mapped != MAP_FAILED && log_file >= 0) control = mapped;
}

static int is_armed(void) { return control && __atomic_load_n(&control->armed, __ATOMIC_RELAXED); }

/* The absolute path, if it lies below the root. */
static int is_below(int folder, const char *path, char *found) {
    if (!control || !path) return 0;
    if (path[0] == '/') {
        if (strlen(path) >= PATH_MAX) return 0;
        strcpy(found, path);
    } else {
        char link[64], base[PATH_MAX];
        ssize_t length;
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
        if (snprintf(found, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return 0;
    }
    size_t length = strlen(found);
    while (length > 1 && found[length - 1] == '/') found[--length] = 0;
    return !strncmp(found, root, root_length) && (found[root_length] == '/' || !found[root_length]);
}

/* The path of an open file, if it lies below the root. */
static int path_of(int file, char *found) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(AT_FDCWD, path, found);
}

static int is_tracked(int file) { return file >= 0 && file < FILES_MAX && tracked[file]; }

/* Count one call; true if it is the one that fails, errno set. */
static int fails(const char *call, const char *path, int can_be_full) {
    if (!is_armed()) return 0;
    uint64_t number = __atomic_add_fetch(&control->counted, 1, __ATOMIC_SEQ_CST);
    uint64_t at = control->fail_at;
    if (!at || number < at || (number > at && !control->stays)) return 0;
    if (control->stays && control->fault == FAULT_ENOSPC && !can_be_full) return 0; /* what frees room works */
    if (!__atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST))
        snprintf(control->hit, sizeof control->hit, "%s %s", call, path);
    if (control->fault == FAULT_EXIT) _exit(137);
    if (control->fault == FAULT_KILL) {
        kill(0, SIGKILL);
        pause();
    }
    errno = control->fault == FAULT_ENOSPC && can_be_full ? ENOSPC : EIO;
    return 1;
}

static void note(const char *call, const char *path, const char *second) {
    if (!is_armed()) return;
    char line[2 * PATH_MAX + 128];
    int length = snprintf(line, sizeof line, "%llu\t%s\t%s\t%s\n",
                          (unsigned long long)__atomic_load_n(&control->counted, __ATOMIC_SEQ_CST), call, path, second);
    REAL(ssize_t, write, int, const void *, size_t);
    int saved = errno;
    if (length > 0 && length < (int)sizeof line && real_write(log_file, line, (size_t)length) < 0) abort();
    errno = saved;
}

/* Keep what loses its name: the name of the copy, or "". */
static void bury(const char *path, char *name) {
    static uint64_t buried;
    char to[PATH_MAX];
    name[0] = 0;
    if (!is_armed()) return;
    REAL(int, link, const char *, const char *);
    int saved = errno;
    snprintf(name, 64, "%d-%llu", getpid(), (unsigned long long)__atomic_add_fetch(&buried, 1, __ATOMIC_SEQ_CST));
    snprintf(to, sizeof to, "%s/%s", grave, name);
    if (real_link(path, to)) name[0] = 0;
    errno = saved;
}

/* -- files ---------------------------------------------------------------------------------------------------------- */

static int opened(int folder, const char *path, int flags, mode_t mode) {
    REAL(int, openat64, int, const char *, int, ...);
    char at[PATH_MAX];
    int below = is_below(folder, path, at);
    int is_new = 0, cuts = 0;
    if (below && (flags & O_ACCMODE) != O_RDONLY) {
        struct stat found;
        int is_there = !stat(at, &found);
        is_new = (flags & O_CREAT) && !is_there;
        cuts = (flags & O_TRUNC) && is_there && found.st_size;
        if (is_new && fails("create", at, 1)) return -1;
        if (cuts && fails("truncate", at, 0)) return -1;
    }
    int file = real_openat64(folder, path, flags, mode);
    if (below && file >= 0 && file < FILES_MAX) {
        tracked[file] = 1;
        if (is_new) note("create", at, "");
        if (cuts) note("truncate", at, "");
    }
    return file;
}

#define OPEN(name)                                      \
    int name(const char *path, int flags, ...) {        \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode_t mode = va_arg(rest, mode_t);             \
        va_end(rest);                                   \
        return opened(AT_FDCWD, path, flags, mode);     \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                            \
    int name(int folder, const char *path, int flags, ...) {    \
        va_list rest;                                           \
        va_start(rest, flags);                                  \
        mode_t mode = va_arg(rest, mode_t);                     \
        va_end(rest);                                           \
        return opened(folder, path, flags, mode);               \
    }
OPENAT(openat)
OPENAT(openat64)
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Buffered streams write by calls that cannot be seen from here: a test sees to it that there are none. */
#define FOPEN(name)                                                                   \
    FILE *name(const char *path, const char *mode) {                                  \
        REAL(FILE *, name, const char *, const char *);                               \
        char at[PATH_MAX];                                                            \
        if (mode[0] != 'r' && is_below(AT_FDCWD, path, at)) note("stream", at, "");   \
        return real_##name(path, mode);                                               \
    }
FOPEN(fopen)
FOPEN(fopen64)

int close(int file) {
    REAL(int, close, int);
    if (file >= 0 && file < FILES_MAX) tracked[file] = 0;
    return real_close(file);
}

int dup(int file) {
    REAL(int, dup, int);
    int other = real_dup(file);
    if (is_tracked(file) && other >= 0 && other < FILES_MAX) tracked[other] = 1;
    return other;
}

#define CHANGE(type, name, call, can_be_full, arguments, ...)         \
    type name arguments {                                             \
        REAL(type, name, __VA_ARGS__);                                \
        char at[PATH_MAX];                                            \
        int below = is_tracked(file) && is_armed() && path_of(file, at); \
        if (below && fails(call, at, can_be_full)) return -1;         \
        type done = real_##name

#define CHANGED(call)                            \
        if (below && done >= 0) note(call, at, ""); \
        return done;                             \
    }

CHANGE(ssize_t, write, "write", 1, (int file, const void *data, size_t size), int, const void *, size_t)
    (file, data, size); CHANGED("write")
CHANGE(ssize_t, pwrite, "write", 1, (int file, const void *data, size_t size, off_t at_byte), int, const void *, size_t, off_t)
    (file, data, size, at_byte); CHANGED("write")
CHANGE(ssize_t, pwrite64, "write", 1, (int file, const void *data, size_t size, off64_t at_byte), int, const void *, size_t, off64_t)
    (file, data, size, at_byte); CHANGED("write")
CHANGE(ssize_t, writev, "write", 1, (int file, const struct iovec *parts, int count), int, const struct iovec *, int)
    (file, parts, count); CHANGED("write")
CHANGE(ssize_t, pwritev, "write", 1, (int file, const struct iovec *parts, int count, off_t at_byte), int, const struct iovec *, int, off_t)
    (file, parts, count, at_byte); CHANGED("write")
CHANGE(ssize_t, pwritev64, "write", 1, (int file, const struct iovec *parts, int count, off64_t at_byte), int, const struct iovec *, int, off64_t)
    (file, parts, count, at_byte); CHANGED("write")
CHANGE(ssize_t, sendfile, "write", 1, (int file, int from, off_t *at_byte, size_t size), int, int, off_t *, size_t)
    (file, from, at_byte, size); CHANGED("write")
CHANGE(ssize_t, sendfile64, "write", 1, (int file, int from, off64_t *at_byte, size_t size), int, int, off64_t *, size_t)
    (file, from, at_byte, size); CHANGED("write")
CHANGE(int, ftruncate, "truncate", 0, (int file, off_t size), int, off_t)
    (file, size); CHANGED("truncate")
CHANGE(int, ftruncate64, "truncate", 0, (int file, off64_t size), int, off64_t)
    (file, size); CHANGED("truncate")
CHANGE(int, fallocate, "write", 1, (int file, int mode, off_t at_byte, off_t size), int, int, off_t, off_t)
    (file, mode, at_byte, size); CHANGED("write")
CHANGE(int, fallocate64, "write", 1, (int file, int mode, off64_t at_byte, off64_t size), int, int, off64_t, off64_t)
    (file, mode, at_byte, size); CHANGED("write")

ssize_t copy_file_range(int from, off64_t *from_byte, int file, off64_t *at_byte, size_t size, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    char at[PATH_MAX];
    int below = is_tracked(file) && is_armed() && path_of(file, at);
    if (below && fails("write", at, 1)) return -1;
    ssize_t done = real_copy_file_range(from, from_byte, file, at_byte, size, flags);
    if (below && done >= 0) note("write", at, "");
    return done;
}

#define SYNC(name)                                                          \
    int name(int file) {                                                    \
        REAL(int, name, int);                                               \
        char at[PATH_MAX], size[32];                                        \
        struct stat found;                                                  \
        int below = control && is_armed() && path_of(file, at); \
        if (below && fails("sync", at, 0)) return -1;                       \
        int done = real_##name(file);                                       \
        if (below && !done && !fstat(file, &found)) {                       \
            snprintf(size, sizeof size, "%lld", (long long)found.st_size);  \
            note("sync", at, size);                                         \
        }                                                                   \
        return done;                                                        \
    }
SYNC(fsync)
SYNC(fdatasync)

/* -- names ---------------------------------------------------------------------------------------------------------- */

static int renamed(int folder, const char *path, int to_folder, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    char at[PATH_MAX], there[PATH_MAX], kept[64], both[2 * PATH_MAX];
    int below = is_below(folder, path, at) & is_below(to_folder, to, there);
    if (below && fails("rename", there, 1)) return -1;
    if (below) bury(there, kept);
    int done = real_renameat2(folder, path, to_folder, to, flags);
    if (below && !done) {
        snprintf(both, sizeof both, "%s\t%s", there, kept);
        note("rename", at, both);
    }
    return done;
}
int rename(const char *path, const char *to) { return renamed(AT_FDCWD, path, AT_FDCWD, to, 0); }
int renameat(int folder, const char *path, int other, const char *to) { return renamed(folder, path, other, to, 0); }
int renameat2(int folder, const char *path, int other, const char *to, unsigned flags) {
    return renamed(folder, path, other, to, flags);
}

static int linked(int folder, const char *path, int to_folder, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    char at[PATH_MAX], there[PATH_MAX];
    int below = is_below(folder, path, at) & is_below(to_folder, to, there);
    if (below && fails("link", there, 1)) return -1;
    int done = real_linkat(folder, path, to_folder, to, flags);
    if (below && !done) note("link", at, there);
    return done;
}
int link(const char *path, const char *to) { return linked(AT_FDCWD, path, AT_FDCWD, to, 0); }
int linkat(int folder, const char *path, int other, const char *to, int flags) {
    return linked(folder, path, other, to, flags);
}

static int removed(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    char at[PATH_MAX], kept[64];
    int below = is_below(folder, path, at);
    const char *call = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    if (below && fails(call, at, 0)) return -1;
    kept[0] = 0;
    if (below && !(flags & AT_REMOVEDIR)) bury(at, kept);
    int done = real_unlinkat(folder, path, flags);
    if (below && !done) note(call, at, kept);
    return done;
}
int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return removed(folder, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat found;
    if (lstat(path, &found)) return -1;
    return removed(AT_FDCWD, path, S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

static int made(int folder, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t);
    char at[PATH_MAX];
    struct stat found;
    int below = is_below(folder, path, at) && stat(at, &found);
    if (below && fails("mkdir", at, 1)) return -1;
    int done = real_mkdirat(folder, path, mode);
    if (below && !done) note("mkdir", at, "");
    return done;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char *path, mode_t mode) { return made(folder, path, mode); }
