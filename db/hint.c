/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints: files that are only touched.
 */
#include "db/hint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

#define SETTLE_S 60.0

static double mtime_of(const struct stat *st)
{
    return (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec * 1e-9;
}

/* Nearly always the hint is there already, and then it is one call. A link is touched itself. */
static bool touch_there(const char *dir, const char *run)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", dir, run) < (int)sizeof path &&
           utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Opened below dir_fd and given the server's time; negative on failure. */
static int touch_at(int dir_fd, const char *name, mode_t mode)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0)
        futimens(fd, NULL);
    return fd;
}

void lf_hint_touch(const char *spool_dir, const char *run, unsigned dir_mode, unsigned file_mode)
{
    char needle[PATH_MAX], dir[PATH_MAX];
    const char *at = NULL;
    if (snprintf(needle, sizeof needle, "/runs/%s", run) >= (int)sizeof needle)
        return;
    for (const char *p = strstr(spool_dir, needle); p; p = strstr(p + 1, needle))
        if (p[strlen(needle)] == '/' || p[strlen(needle)] == '\0')
            at = p;
    if (!at || snprintf(dir, sizeof dir, "%.*s/changed", (int)(at - spool_dir), spool_dir) >=
                   (int)sizeof dir)
        return;
    if (touch_there(dir, run))
        return;
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (d < 0 && errno == ENOENT && lf_io_mkdirs(dir, (mode_t)dir_mode, NULL) == 0)
        d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int fd = d >= 0 ? touch_at(d, run, (mode_t)file_mode) : -1;
    if (fd >= 0)
        close(fd);
    if (d >= 0)
        close(d);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_hint(struct lf_hints *h, size_t *cap, const char *name, lf_err *err)
{
    int rc = lf_grow(&h->runs, cap, h->n, sizeof *h->runs, err);
    if (rc == 0 && !(h->runs[h->n] = lf_strdup(name, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        h->n++;
    return rc;
}

int lf_hints_load(struct lf_hints *out, const char *data_root, lf_err *err)
{
    struct lf_hints h = {.dir = lf_path_join(data_root, "changed", err)};
    struct stat st;
    size_t cap = 0;
    if (!h.dir)
        return LF_ENOMEM;
    DIR *d = opendir(h.dir);
    int rc = d || errno == ENOENT ? 0 : lf_fail_errno(err, "cannot list %s", h.dir);
    int now = d ? touch_at(dirfd(d), ".now", 0600)
                : -1; /* before the walk: what is touched later is newer */
    if (now >= 0 && fstat(now, &st) == 0)
        h.now = mtime_of(&st);
    if (now >= 0)
        close(now);
    for (const struct dirent *e = d ? readdir(d) : NULL; e && rc == 0; e = readdir(d))
        if (e->d_name[0] != '.')
            rc = add_hint(&h, &cap, e->d_name, err);
    if (rc == 0 && h.n > 1)
        qsort(h.runs, h.n, sizeof *h.runs, by_name);
    if (rc == 0 && !(h.t = lf_calloc(h.n + 1, sizeof *h.t, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < h.n; i++)
        if (fstatat(dirfd(d), h.runs[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            h.t[i] = mtime_of(&st);
    if (d)
        closedir(d);
    if (rc < 0)
        lf_hints_fini(&h);
    else
        *out = h;
    return rc;
}

bool lf_hints_has(const struct lf_hints *h, const char *run)
{
    return h->n > 0 && bsearch(&run, h->runs, h->n, sizeof *h->runs, by_name) != NULL;
}

void lf_hints_settle(const struct lf_hints *h)
{
    struct stat st;
    int d = h->now > 0 ? open(h->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
    for (size_t i = 0; d >= 0 && i < h->n; i++)
        if (h->now - h->t[i] > SETTLE_S && fstatat(d, h->runs[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            !(mtime_of(&st) > h->t[i])) /* not touched since */
            unlinkat(d, h->runs[i], 0);
    if (d >= 0)
        close(d);
}

void lf_hints_fini(struct lf_hints *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->runs[i]);
    free(h->runs);
    free(h->t);
    free(h->dir);
    *h = (struct lf_hints){0};
}
