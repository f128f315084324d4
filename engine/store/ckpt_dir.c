/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of checkpoints: naming, the newest complete one, what an interrupted save left,
 * retention.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/ckpt_priv.h"

struct found {
    char *dir;
    int64_t step;
    size_t order; /* of its out directory; the final checkpoint of one comes after its steps */
};

struct finds {
    struct found *v;
    size_t n, cap;
};

char *lf_ckpt_step_dir(const char *out_dir, int64_t step, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/checkpoints/step-%08lld", out_dir, (long long)step);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}

/* "step-NNNNNNNN" (at least eight digits): the step, or -1. */
static int64_t step_of(const char *name)
{
    int64_t v;
    const char *digits = name + 5;
    if (strncmp(name, "step-", 5) != 0 || strlen(digits) < 8 ||
        digits[strspn(digits, "0123456789")] != 0)
        return -1;
    return lf_parse_i64(&v, digits, NULL) < 0 ? -1 : v;
}

static void finds_fini(struct finds *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->v[i].dir);
    free(f->v);
}

static int add_found(struct finds *f, char *dir, int64_t step, size_t order, lf_err *err)
{
    int rc = dir ? lf_grow(&f->v, &f->cap, f->n, sizeof *f->v, err) : LF_ENOMEM;
    if (rc < 0) {
        free(dir);
        return rc;
    }
    f->v[f->n++] = (struct found){dir, step, order};
    return 0;
}

/* Every step directory of one out directory, complete or not. */
static int scan_steps(struct finds *f, const char *out_dir, size_t order, lf_err *err)
{
    char *path = lf_path_join(out_dir, "checkpoints", err);
    DIR *d = path ? opendir(path) : NULL;
    int rc = path ? 0 : LF_ENOMEM;
    if (path && !d && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot look for checkpoints in %s", path);
    while (d && rc == 0) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                rc = lf_fail_errno(err, "cannot look for checkpoints in %s", path);
            break;
        }
        int64_t step = step_of(e->d_name);
        if (step >= 0)
            rc = add_found(f, lf_path_join(path, e->d_name, err), step, order, err);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

/* Step in the manifest of a checkpoint: 0, or the reason why it has none. */
static int manifest_step(const char *dir, int64_t *step, lf_err *err)
{
    lf_artifact a;
    int rc = lf_artifact_load(&a, dir, LF_CKPT_KIND, err);
    if (rc < 0)
        return rc;
    rc = lf_json_get_i64(step, a.meta, "step", true, dir, err);
    lf_artifact_fini(&a);
    return rc;
}

/* Does this reason mean that the files are wrong? Anything else (EIO, no permission, no memory)
 * says nothing about them. */
static bool is_damage(int rc)
{
    return rc == LF_EFORMAT || rc == LF_ENOTSUP || rc == LF_ENOENT;
}

/* The final checkpoint of an out directory, when there is one. */
static int scan_final(struct finds *f, const char *out_dir, size_t order, lf_ckpt_report report,
                      void *user, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    int64_t step = 0;
    char *dir = lf_path_join(out_dir, "checkpoint", err);
    int rc = dir ? manifest_step(dir, &step, &why) : LF_ENOMEM;
    if (rc == 0)
        return add_found(f, dir, step, order, err);
    if (dir && !is_damage(rc))
        rc = lf_fail(err, rc, "%s", why.text);
    else if (dir && rc != LF_ENOENT && report)
        report(user, dir, why.text);
    free(dir);
    return !dir || !is_damage(rc) ? rc : 0;
}

/* Newest first; on equal steps the later directory first. */
static int cmp_found(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    if (x->order != y->order)
        return x->order < y->order ? 1 : -1;
    return strcmp(x->dir, y->dir);
}

enum verdict { JUDGE_ABSENT, JUDGE_WHOLE, JUDGE_BROKEN };

/* Whole: complete, and the step in its manifest is that of its name. Broken is told to report.
 * Negative: it could not be looked at, which is no verdict. */
static int judge(const struct found *f, lf_ckpt_report report, void *user, lf_err *err)
{
    enum lf_artifact_state s = LF_ARTIFACT_ABSENT;
    lf_err why = LF_ERR_INIT;
    int64_t step = -1;
    int rc = lf_artifact_state(&s, f->dir, &why);
    if (rc < 0)
        return lf_fail(err, rc, "%s", why.text);
    if (s == LF_ARTIFACT_ABSENT)
        return JUDGE_ABSENT;
    if (s == LF_ARTIFACT_PRESENT) {
        rc = manifest_step(f->dir, &step, &why);
        if (rc < 0 && !is_damage(rc))
            return lf_fail(err, rc, "%s", why.text);
        if (rc == 0 && step == f->step)
            return JUDGE_WHOLE;
        if (rc == 0)
            lf_fail(&why, LF_EFORMAT, "%s: its manifest says step %lld", f->dir, (long long)step);
    }
    if (report)
        report(user, f->dir, why.text);
    return JUDGE_BROKEN;
}

int lf_ckpt_find_newest(char **dir, int64_t *step, const struct lf_ckpt_search *s, lf_err *err)
{
    struct finds f = {0};
    int rc = 0;
    char *best = NULL;
    int64_t best_step = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++)
        if ((rc = scan_steps(&f, s->out_dirs[i], 2 * i, err)) == 0)
            rc = scan_final(&f, s->out_dirs[i], 2 * i + 1, s->report, s->user, err);
    if (rc == 0 && f.n)
        qsort(f.v, f.n, sizeof *f.v, cmp_found);
    for (size_t i = 0; i < f.n && rc == 0 && !best; i++) {
        int j = s->max_step < 0 || f.v[i].step <= s->max_step
                    ? judge(&f.v[i], s->report, s->user, err)
                    : JUDGE_BROKEN;
        if (j < 0)
            rc = j;
        if (j == JUDGE_WHOLE) {
            best = f.v[i].dir;
            f.v[i].dir = NULL;
            best_step = f.v[i].step;
        }
    }
    finds_fini(&f);
    if (rc < 0)
        return rc;
    *dir = best;
    if (best)
        *step = best_step;
    return 0;
}

int lf_ckpt_retain(const char *out_dir, int keep_last, int64_t keep_every, lf_err *err)
{
    struct finds f = {0};
    int kept = 0, rc = lf_fence_closed() ? 0 : scan_steps(&f, out_dir, 0, err);
    if (rc == 0 && f.n)
        qsort(f.v, f.n, sizeof *f.v, cmp_found);
    for (size_t i = 0; i < f.n && rc == 0; i++) {
        int j = judge(&f.v[i], NULL, NULL, NULL);
        if (j < 0 || j == JUDGE_BROKEN || (j == JUDGE_ABSENT && kept == 0))
            /* unknown; broken: for a person to look at; unfinished and newer than all: may be under
             * way */
            continue;
        bool whole = j == JUDGE_WHOLE;
        bool keep = whole && (kept == 0 || kept < keep_last ||
                              (keep_every > 0 && f.v[i].step % keep_every == 0));
        kept += whole;
        if (!keep)
            rc = lf_artifact_remove(f.v[i].dir, err);
    }
    finds_fini(&f);
    return rc;
}

/* ---- left-overs ---- */

static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    if (strcmp(name, LF_CKPT_STATE) == 0 || strcmp(name, LF_CKPT_INDEX) == 0 ||
        strcmp(name, LF_CKPT_LEAVES) == 0 || strcmp(name, LF_CKPT_STRUCTURE) == 0 ||
        strcmp(name, LF_PARTIAL_FILE) == 0)
        return true;
    if (strncmp(name, LF_ARTIFACT_MANIFEST ".", strlen(LF_ARTIFACT_MANIFEST) + 1) == 0)
        return lf_str_has_suffix(name, ".tmp");
    if (n <= 8 || strncmp(name, "data-", 5) != 0 || !lf_str_has_suffix(name, ".h5"))
        return false;
    size_t digits = strspn(name + 5, "0123456789"), rest = 5 + digits;
    if (digits > 0 && name[rest] == '-') {
        digits = strspn(name + rest + 1, "0123456789");
        rest += 1 + digits;
    }
    return digits > 0 && rest == n - 3;
}

int lf_ckpt_clean(const char *dir, lf_ckpt_choice *mine, void *arg, lf_err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc = 0;
    if (!d)
        return errno == ENOENT ? 0 : lf_fail_errno(err, "cannot look into %s", dir);
    /* Look first: nothing is removed from a directory that is not ours. */
    while (rc == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, LF_ARTIFACT_MANIFEST) == 0)
            rc = lf_fail(err, LF_EEXIST, "%s holds a checkpoint already", dir);
        else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !is_ours(e->d_name))
            rc = lf_fail(
                err, LF_EEXIST,
                "%s holds '%.100s', which is no part of a checkpoint; name another directory", dir,
                e->d_name);
    rewinddir(d);
    while (rc == 0 && (e = readdir(d)))
        if (is_ours(e->d_name) && (!mine || mine(arg, e->d_name)) &&
            unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
            rc = lf_fail_errno(err, "cannot remove %s/%s, left by an interrupted save", dir,
                               e->d_name);
    closedir(d);
    return rc;
}
