/* SPDX-License-Identifier: Apache-2.0
 *
 * See corpus_files.h. Order is byte order of names, never that of the directory.
 */
#include "config.h"

#include "engine/text/corpus/corpus_files.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"

#define DEPTH_MAX 64

static int add_file(lf_corpus_list *l, const char *path, const char *label, int64_t bytes,
                    lf_err *err)
{
    int rc = lf_grow(&l->v, &l->cap, l->n, sizeof(*l->v), err);
    if (rc != 0)
        return rc;
    lf_corpus_source s = {.path = lf_strdup(path, err),
                          .label = lf_strdup(label, err),
                          .bytes = bytes,
                          .class_number = l->class_number};
    if (!s.path || !s.label) {
        free(s.path);
        free(s.label);
        return LF_ENOMEM;
    }
    l->v[l->n++] = s;
    return 0;
}

void lf_corpus_list_fini(lf_corpus_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].path);
        free(l->v[i].label);
        free(l->v[i].passed);
    }
    free(l->v);
    for (size_t i = 0; i < l->n_folders; i++)
        lf_energon_close(l->folders[i]);
    free(l->folders);
    *l = (lf_corpus_list){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_path(lf_corpus_list *l, const char *path, const char *label, int depth, lf_err *err);

/* Names in a directory, sorted, hidden ones left out. */
static int list_names(char ***out, size_t *out_n, const char *path, lf_err *err)
{
    char **names = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;
    DIR *d = opendir(path);
    if (!d)
        return lf_fail_errno(err, "cannot open directory %s", path);
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno != 0)
                rc = lf_fail_errno(err, "cannot read directory %s", path);
            break;
        }
        if (e->d_name[0] == '.')
            continue;
        rc = lf_grow(&names, &cap, n, sizeof(*names), err);
        if (rc != 0)
            break;
        names[n] = lf_strdup(e->d_name, err);
        if (!names[n]) {
            rc = LF_ENOMEM;
            break;
        }
        n++;
    }
    closedir(d);
    if (n > 0)
        qsort(names, n, sizeof(*names), by_name);
    *out = names;
    *out_n = n;
    return rc;
}

/* ---- folders of Energon ---- */

/* The folder belongs to the list from here on. */
static int keep_folder(lf_corpus_list *l, lf_energon *e, lf_err *err)
{
    int rc = lf_grow(&l->folders, &l->cap_folders, l->n_folders, sizeof *l->folders, err);
    if (rc == 0)
        l->folders[l->n_folders++] = e;
    else
        lf_energon_close(e);
    return rc;
}

static int add_archive(lf_corpus_list *l, const char *dir, const char *label, const lf_energon *e,
                       size_t i, lf_err *err)
{
    struct stat st;
    char *path = lf_path_join(dir, lf_energon_archive(e, i), err),
         *name = label[0] ? lf_path_join(label, lf_energon_archive(e, i), err)
                          : lf_strdup(lf_energon_archive(e, i), err);
    int rc = path && name ? 0 : LF_ENOMEM;
    if (rc == 0 && stat(path, &st) != 0)
        rc = lf_fail_errno(err, "cannot read %s, which the split of %s names", path, dir);
    else if (rc == 0 && !S_ISREG(st.st_mode))
        rc = lf_fail(err, LF_EFORMAT, "%s: an archive of a split is no regular file", path);
    if (rc == 0)
        rc = add_file(l, path, name, st.st_size, err);
    if (rc == 0) {
        l->v[l->n - 1].folder = e;
        l->v[l->n - 1].archive = i;
    }
    free(path);
    free(name);
    return rc;
}

static int add_energon(lf_corpus_list *l, const char *path, const char *label, lf_err *err)
{
    lf_energon *e = NULL;
    if (!l->energon)
        return lf_fail(err, LF_EINVAL,
                       "%s is a folder of Energon (it has .nv-meta), which lf-tokenize reads",
                       path);
    int rc = lf_energon_open(&e, path, l->energon, err);
    if (rc == 0)
        rc = keep_folder(l, e, err);
    for (size_t i = 0; rc == 0 && i < lf_energon_archives(e); i++)
        rc = add_archive(l, path, label, e, i, err);
    return rc;
}

/* ---- directories ---- */

static int add_directory(lf_corpus_list *l, const char *path, const char *label, int depth,
                         lf_err *err)
{
    if (lf_energon_is(path))
        return add_energon(l, path, label, err);
    if (depth >= DEPTH_MAX)
        return lf_fail(err, LF_EINVAL, "%s: directories nested too deep", path);
    char **names = NULL;
    size_t n = 0;
    int rc = list_names(&names, &n, path, err);
    for (size_t i = 0; i < n; i++) {
        char *p = rc == 0 ? lf_path_join(path, names[i], err) : NULL;
        char *q = p && label[0] ? lf_path_join(label, names[i], err)
                  : p           ? lf_strdup(names[i], err)
                                : NULL;
        if (rc == 0)
            rc = p && q ? add_path(l, p, q, depth + 1, err) : LF_ENOMEM;
        free(p);
        free(q);
        free(names[i]);
    }
    free(names);
    return rc;
}

/* A folder of pictures of one class. */
static int add_class(lf_corpus_list *l, const char *path, const char *name, lf_err *err)
{
    const size_t before = l->n;
    struct stat st;
    if (stat(path, &st) != 0)
        return lf_fail_errno(err, "cannot read %s", path);
    if (!S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL,
                       "%s is no folder: with class_folders the input has a folder of pictures for "
                       "each class, and nothing else",
                       path);
    const int rc = add_directory(l, path, name, 1, err);
    return rc == 0 && l->n == before
               ? lf_fail(err, LF_EINVAL, "%s: the folder of a class has no picture", path)
               : rc;
}

static int add_classes(lf_corpus_list *l, const char *path, lf_err *err)
{
    char **names = NULL;
    size_t n = 0;
    int rc = list_names(&names, &n, path, err);
    for (size_t i = 0; i < n; i++) {
        char *p = rc == 0 ? lf_path_join(path, names[i], err) : NULL;
        l->class_number = (int64_t)i + 1;
        if (rc == 0)
            rc = p ? add_class(l, p, names[i], err) : LF_ENOMEM;
        free(p);
        free(names[i]);
    }
    free(names);
    return rc;
}

/* An index that an input names is a mistake; beside its lines, in a folder or among the matches of
 * a pattern, it is left out. */
static int refuse_index(const char *path, lf_err *err)
{
    return !lf_energon_is_index(path)
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "%s is an index of JSON lines, and these are read from front to back: "
                         "give the file beside it",
                         path);
}

static int add_regular(lf_corpus_list *l, const char *path, const char *label, int64_t bytes,
                       lf_err *err)
{
    if (lf_energon_is_index(path))
        return 0;
    return !lf_energon_is_mix(path)
               ? add_file(l, path, label, bytes, err)
               : lf_fail(err, LF_ENOTSUP,
                         "%s is a metadataset of Energon, which mixes folders by weight: give each "
                         "of its folders to a tokenize stage of its own, and training the shards "
                         "of all (data) with their weights (data_weights)",
                         path);
}

static int add_path(lf_corpus_list *l, const char *path, const char *label, int depth, lf_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return lf_fail_errno(err, "cannot read input %s", path);
    if (S_ISREG(st.st_mode))
        return add_regular(l, path, label, st.st_size, err);
    if (S_ISDIR(st.st_mode)) {
        /* Below an input, a link to a directory may lead back up. */
        struct stat ln;
        if (depth > 0 && lstat(path, &ln) == 0 && S_ISLNK(ln.st_mode))
            return 0;
        return add_directory(l, path, depth == 0 ? "" : label, depth, err);
    }
    if (depth > 0) /* sockets and devices in a directory are not text */
        return 0;
    if (S_ISFIFO(st.st_mode))
        return add_file(l, path, label, -1, err);
    return lf_fail(err, LF_EINVAL, "input %s is neither a file nor a directory", path);
}

static const char *base_name(const char *path)
{
    const char *s = strrchr(path, '/');
    return s && s[1] ? s + 1 : path;
}

int lf_corpus_list_add(lf_corpus_list *l, const char *input, lf_err *err)
{
    if (strcmp(input, "-") == 0)
        return add_file(l, "-", "-", -1, err);
    size_t before = l->n;
    int rc;
    if (l->classes)
        rc = add_classes(l, input, err);
    else if (strpbrk(input, "*?[") && !lf_io_exists(input)) {
        glob_t g = {0};
        int got = glob(input, GLOB_ERR, NULL, &g);
        rc = got == 0              ? 0
             : got == GLOB_NOSPACE ? lf_fail(err, LF_ENOMEM, "no memory for glob %s", input)
             : got == GLOB_NOMATCH
                 ? lf_fail(err, LF_ENOENT, "no file matches %s", input)
                 : lf_fail(err, LF_EIO, "cannot read a directory of glob %s", input);
        /* glob sorts by the locale's order. */
        if (rc == 0)
            qsort(g.gl_pathv, g.gl_pathc, sizeof(*g.gl_pathv), by_name);
        for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
            rc = add_path(l, g.gl_pathv[i], base_name(g.gl_pathv[i]), 0, err);
        globfree(&g);
    } else {
        rc = refuse_index(input, err);
        if (rc == 0)
            rc = add_path(l, input, base_name(input), 0, err);
    }
    if (rc == 0 && l->n == before)
        rc = lf_fail(err, LF_ENOENT, "input %s holds no file", input);
    return rc;
}
