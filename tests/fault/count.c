/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library: counts what a program does, as a measure of its work that no clock and no
 * other process can change. At its end a process whose name is LF_COUNT_PROGRAM adds one line to
 * the file LF_COUNT_LOG: "texts N json N files N forks N parsed N".
 *
 *   texts  comparisons of texts and memory, but for those of SQLite: it finds a row in a tree, so
 *          their number grows by the logarithm more than the rows do
 *   json   members and elements that were looked up
 *   files  files that were opened or looked at
 *   forks  processes made by fork(), which copies the tables of all pages; vfork() is not counted
 *   parsed statements of SQL that SQLite was given to parse
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long texts, json, files, forks, parsed;

#define NEXT(name) ((__typeof__(&name))(void *)dlsym(RTLD_NEXT, #name))

static uintptr_t sqlite_from, sqlite_to; /* where its library lies; nowhere at first */

static int find_sqlite(struct dl_phdr_info *o, size_t size, void *user)
{
    (void)size, (void)user;
    if (o->dlpi_name == NULL || strstr(o->dlpi_name, "libsqlite3") == NULL)
        return 0;
    for (int i = 0; i < o->dlpi_phnum; i++) {
        const uintptr_t from = o->dlpi_addr + o->dlpi_phdr[i].p_vaddr;
        if (o->dlpi_phdr[i].p_type != PT_LOAD || (o->dlpi_phdr[i].p_flags & PF_X) == 0)
            continue;
        sqlite_from = from;
        sqlite_to = from + o->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void look_for_sqlite(void)
{
    dl_iterate_phdr(find_sqlite, NULL);
}

static void count_text(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;
    if (at < sqlite_from || at >= sqlite_to)
        atomic_fetch_add_explicit(&texts, 1, memory_order_relaxed);
}

int strcmp(const char *a, const char *b)
{
    count_text(__builtin_return_address(0));
    while (*a != '\0' && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

int memcmp(const void *a, const void *b, size_t n)
{
    count_text(__builtin_return_address(0));
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)a)[i] != ((const unsigned char *)b)[i])
            return ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
    return 0;
}

/* Jansson's, without its header. */
void *json_object_get(const void *object, const char *key);
void *json_object_get(const void *object, const char *key)
{
    static void *(*next)(const void *, const char *);
    if (next == NULL)
        next = NEXT(json_object_get);
    atomic_fetch_add_explicit(&json, 1, memory_order_relaxed);
    return next(object, key);
}

void *json_array_get(const void *array, size_t i);
void *json_array_get(const void *array, size_t i)
{
    static void *(*next)(const void *, size_t);
    if (next == NULL)
        next = NEXT(json_array_get);
    atomic_fetch_add_explicit(&json, 1, memory_order_relaxed);
    return next(array, i);
}

/* SQLite's, without its header. */
int sqlite3_prepare_v3(void *db, const char *sql, int n, unsigned flags, void **st,
                       const char **tail);
int sqlite3_prepare_v3(void *db, const char *sql, int n, unsigned flags, void **st,
                       const char **tail)
{
    static int (*next)(void *, const char *, int, unsigned, void **, const char **);
    if (next == NULL)
        next = NEXT(sqlite3_prepare_v3);
    atomic_fetch_add_explicit(&parsed, 1, memory_order_relaxed);
    return next(db, sql, n, flags, st, tail);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    atomic_fetch_add_explicit(&files, 1, memory_order_relaxed);
    return openat(AT_FDCWD, path, flags, mode);
}

int lstat(const char *restrict path, struct stat *restrict st)
{
    atomic_fetch_add_explicit(&files, 1, memory_order_relaxed);
    return fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int stat(const char *restrict path, struct stat *restrict st)
{
    atomic_fetch_add_explicit(&files, 1, memory_order_relaxed);
    return fstatat(AT_FDCWD, path, st, 0);
}

pid_t fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
    return NEXT(fork)();
}

static int same(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b)
        a++, b++;
    return *a == *b;
}

__attribute__((destructor)) static void tell(void)
{
    const char *log = getenv("LF_COUNT_LOG"), *program = getenv("LF_COUNT_PROGRAM");
    if (log == NULL || program == NULL || !same(program, program_invocation_short_name))
        return;
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    dprintf(fd, "texts %ld json %ld files %ld forks %ld parsed %ld\n", atomic_load(&texts),
            atomic_load(&json), atomic_load(&files), atomic_load(&forks), atomic_load(&parsed));
    close(fd);
}
