/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding what a freeze has left behind.
 */
#include "config.h"

#include "flow/run/leftover.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/record/parts.h"
#include "flow/record/record.h"

struct search {
    lf_removables *list;
    LF_ROWS(ino_t) links; /* the inode of each link that is about to go with a revision */
    const char *data;
};

const struct lf_fields lf_removable_fields = LF_FIELDS_SHOWN(
    lf_removable, LF_MEMBERS(lf_removable, path, data, why, bytes, half_run, run, run_dir),
    {LF_FIELD_SUBS(lf_removable, outputs, LF_FIELD_NAMED, &lf_output_fields)});

int lf_removables_add(lf_removables *l, const lf_removable *r, lf_err *err)
{
    lf_removable *e = lf_rows_add(l, sizeof *e, err);
    return e == NULL ? LF_ENOMEM : lf_fields_copy(e, r, &lf_removable_fields, err);
}

void lf_removables_fini(lf_removables *l)
{
    lf_fields_list_fini(l, &lf_removable_fields);
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static bool is_revision(const char *name)
{
    int64_t k = 0;
    return lf_str_has_prefix(name, "rev.") && lf_parse_i64(&k, name + 4, NULL) == 0 && k > 0;
}

static int propose(const struct search *s, const char *path, const char *why, double bytes,
                   const char *run, lf_err *err)
{
    const lf_removable found = {
        .path = path, .data = s->data, .why = why, .bytes = bytes, .half_run = run};
    return lf_removables_add(s->list, &found, err);
}

/* Links of this inode that go. */
static size_t going(const struct search *s, ino_t ino)
{
    size_t n = 0;
    for (size_t i = 0; i < s->links.n; i++)
        n += s->links.v[i] == ino;
    return n;
}

/* Bytes that only this tree holds; files with more links are counted in s->links. */
static double measure(struct search *s, const char *path, int depth)
{
    struct stat st;
    char sub[PATH_MAX];
    if (depth > 40 || lstat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode)) {
        ino_t *link = lf_rows_add(&s->links, sizeof *link, NULL);
        if (link != NULL)
            *link = st.st_ino;
        return st.st_nlink > 1 ? 0 : (double)st.st_blocks * 512.0;
    }
    double sum = 0;
    DIR *d = opendir(path);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        if (!is_dot(e->d_name) && lf_path_set(sub, NULL, "%s/%s", path, e->d_name) == 0)
            sum += measure(s, sub, depth + 1);
    if (d != NULL)
        closedir(d);
    return sum;
}

/* ---- runs and revisions ---- */

/* A freeze makes of a stage's directory only its spool. */
static bool only_spool(const char *dir)
{
    DIR *d = opendir(dir);
    bool only = d != NULL;
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && only; e = readdir(d))
        only = is_dot(e->d_name) || strcmp(e->d_name, "spool") == 0;
    if (d != NULL)
        closedir(d);
    return only;
}

/* complete: revisions with a plan; other: entries that no freeze makes. */
static int count_entries(const char *run_dir, int *complete, int *other, lf_err *err)
{
    DIR *d = opendir(run_dir);
    char path[PATH_MAX];
    int rc = 0;
    if (d == NULL)
        return lf_fail_errno(err, "cannot list %s", run_dir);
    for (const struct dirent *e = readdir(d); e != NULL && rc == 0; e = readdir(d)) {
        if (is_dot(e->d_name) || strcmp(e->d_name, "spool") == 0)
            continue;
        bool rev = is_revision(e->d_name);
        rc = lf_path_set(path, err, rev ? "%s/%s/plan.json" : "%s/%s", run_dir, e->d_name);
        if (rc == 0 && rev)
            *complete += lf_io_exists(path);
        else if (rc == 0)
            *other += !only_spool(path);
    }
    closedir(d);
    return rc;
}

static int half_revisions(struct search *s, const char *run_dir, lf_err *err)
{
    DIR *d = opendir(run_dir);
    char path[PATH_MAX], plan[PATH_MAX];
    int rc = d == NULL ? lf_fail_errno(err, "cannot list %s", run_dir) : 0;
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0; e = readdir(d)) {
        if (!is_revision(e->d_name))
            continue;
        rc = lf_path_set(path, err, "%s/%s", run_dir, e->d_name);
        if (rc == 0)
            rc = lf_path_set(plan, err, "%s/plan.json", path);
        if (rc == 0 && !lf_io_exists(plan))
            rc = propose(s, path, "of a submit that did not end: a revision without a plan",
                         measure(s, path, 0), NULL, err);
    }
    if (d != NULL)
        closedir(d);
    return rc;
}

static int search_run(struct search *s, const char *id, lf_err *err)
{
    char dir[PATH_MAX];
    int complete = 0, other = 0;
    int rc = lf_path_set(dir, err, "%s/runs/%s", s->data, id);
    if (rc == 0)
        rc = count_entries(dir, &complete, &other, err);
    if (rc < 0)
        return rc;
    if (complete > 0)
        return half_revisions(s, dir, err);
    if (other > 0)
        return 0; /* somebody has worked in it: its plan was lost, not never written */
    return propose(s, dir, "of a submit that did not end: a run without a plan", measure(s, dir, 0),
                   id, err);
}

static int search_runs(struct search *s, lf_err *err)
{
    char runs[PATH_MAX];
    int rc = lf_path_set(runs, err, "%s/runs", s->data);
    DIR *d = rc == 0 ? opendir(runs) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot list %s", runs);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0; e = readdir(d))
        if (lf_ulid_valid(e->d_name))
            rc = search_run(s, e->d_name, err);
    if (d != NULL)
        closedir(d);
    return rc;
}

/* ---- copies of programs ---- */

/* A copy that was published may still have its first name, which goes too. */
static void count_unfinished(struct search *s, DIR *d)
{
    char path[PATH_MAX];
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (lf_str_has_prefix(e->d_name, ".tmp-") &&
            lf_path_set(path, NULL, "%s/exe/%s", s->data, e->d_name) == 0)
            measure(s, path, 0);
    rewinddir(d);
}

/* One link is the copy's own name. */
static int search_copy(const struct search *s, const char *name, lf_err *err)
{
    char path[PATH_MAX];
    struct stat st;
    int rc = lf_path_set(path, err, "%s/exe/%s", s->data, name);
    if (rc < 0 || lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return rc;
    bool unfinished = lf_str_has_prefix(name, ".tmp-");
    if (!unfinished && (size_t)st.st_nlink > 1 + going(s, st.st_ino))
        return 0;
    const char *why = unfinished ? "of a submit that did not end: an unfinished copy of a program"
                                 : "a copy of a program that no run has";
    return propose(s, path, why, (double)st.st_blocks * 512.0, NULL, err);
}

static int search_copies(struct search *s, lf_err *err)
{
    char exe[PATH_MAX];
    int rc = lf_path_set(exe, err, "%s/exe", s->data);
    DIR *d = rc == 0 ? opendir(exe) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot list %s", exe);
    if (d != NULL)
        count_unfinished(s, d);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0; e = readdir(d))
        if (!is_dot(e->d_name))
            rc = search_copy(s, e->d_name, err);
    if (d != NULL)
        closedir(d);
    return rc;
}

static int search_root(lf_removables *list, const char *data, lf_err *err)
{
    struct search s = {.list = list, .data = data};
    int rc = search_runs(&s, err);
    if (rc == 0)
        rc = search_copies(&s, err);
    free(s.links.v);
    return rc;
}

int lf_leftovers(lf_removables *list, const lf_project *p, lf_err *err)
{
    lf_texts roots = {.n = 0};
    int rc = lf_project_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < roots.n; i++)
        rc = search_root(list, roots.v[i], err);
    lf_texts_fini(&roots);
    return rc;
}

void lf_leftover_drop(const char *data, const char *rev_dir)
{
    lf_removables list = {.n = 0};
    struct search s = {.list = &list, .data = data};
    lf_io_remove_tree(rev_dir, NULL);
    if (search_copies(&s, NULL) == 0)
        for (size_t i = 0; i < list.n; i++)
            unlink(list.v[i].path);
    lf_removables_fini(&list);
    free(s.links.v);
}
