/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs below the data roots: listing, finding by a short name, reading the newest frozen revision.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/ledger.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/conf.h"
#include "flow/record/fields.h"
#include "flow/run/asking.h"
#include "flow/run/gone.h"
#include "flow/run/naming.h"
#include "flow/run/project.h"

#define ROOT_MAX_BYTES ((size_t)8192)

static int add_run(lf_run_list *l, const char *data, const char *id, lf_err *err)
{
    int rc = lf_grow(&l->runs, &l->cap, l->n, sizeof *l->runs, err);
    if (rc < 0)
        return rc;
    lf_run *r = &l->runs[l->n];
    memset(r, 0, sizeof *r);
    memcpy(r->id, id, LF_ULID_SIZE);
    r->data = lf_strdup(data, err);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s/runs/%s", data, id);
    r->dir = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    l->n++;
    return r->data != NULL && r->dir != NULL ? 0 : LF_ENOMEM;
}

static int list_root(lf_run_list *l, const char *data, lf_err *err)
{
    char *runs = lf_path_join(data, "runs", err);
    int rc = runs == NULL ? LF_ENOMEM : 0;
    DIR *d = rc == 0 ? opendir(runs) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT)
        rc = lf_fail_errno(err, "the runs below data_dir cannot be listed, mount or restore it: %s",
                           runs);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0;
         e = readdir(d))
        if (lf_ulid_valid(e->d_name))
            rc = add_run(l, data, e->d_name, err);
    if (d != NULL)
        closedir(d);
    free(runs);
    return rc;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(((const lf_run *)b)->id, ((const lf_run *)a)->id);
}

static int add_root(lf_texts *list, const lf_project *p, const char *path, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_io_read_file(path, ROOT_MAX_BYTES, &b, err);
    char *data = rc == 0 ? lf_project_data(p, b.data, err) : NULL;
    if (rc == 0)
        rc = data == NULL ? LF_ENOMEM : lf_texts_add(list, data, err);
    free(data);
    lf_buf_fini(&b);
    return rc;
}

int lf_project_roots(lf_texts *out, const lf_project *p, lf_err *err)
{
    *out = (lf_texts){.given = true};
    char *roots = lf_path_join(p->dot, "roots", err);
    int rc = roots == NULL ? LF_ENOMEM : 0;
    DIR *d = rc == 0 ? opendir(roots) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot list %s", roots);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0;
         e = readdir(d)) {
        if (strlen(e->d_name) != 16 || e->d_name[0] == '.')
            continue;
        char *path = lf_path_join(roots, e->d_name, err);
        rc = path == NULL ? LF_ENOMEM : add_root(out, p, path, err);
        free(path);
    }
    if (d != NULL)
        closedir(d);
    free(roots);
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}

int lf_run_list_load(lf_run_list *out, const lf_project *p, lf_err *err)
{
    lf_run_list l = {NULL, 0, 0};
    lf_texts roots = {.n = 0};
    int rc = lf_project_roots(&roots, p, err);
    for (size_t i = 0; rc == 0 && i < roots.n; i++)
        rc = list_root(&l, roots.v[i], err);
    lf_texts_fini(&roots);
    if (rc < 0) {
        lf_run_list_fini(&l);
        return rc;
    }
    if (l.n > 1)
        qsort(l.runs, l.n, sizeof *l.runs, newest_first);
    *out = l;
    return 0;
}

void lf_run_list_fini(lf_run_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        lf_run_fini(&l->runs[i]);
    free(l->runs);
    memset(l, 0, sizeof *l);
}

void lf_run_fini(lf_run *r)
{
    free(r->dir);
    free(r->data);
    lf_doc_free(r->plan);
    memset(r, 0, sizeof *r);
}

void lf_run_take_plan(lf_run *r, lf_doc *plan)
{
    lf_doc_free(r->plan);
    r->plan = plan;
}

int lf_run_load(lf_run *r, lf_err *err)
{
    int newest = 0;
    DIR *d = opendir(r->dir);
    if (d == NULL)
        return lf_fail_errno(err, "run %s", r->dir);
    char path[PATH_MAX];
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int64_t k = 0;
        if (!lf_str_has_prefix(e->d_name, "rev.") || lf_parse_i64(&k, e->d_name + 4, NULL) < 0 ||
            k <= newest || k > INT_MAX)
            continue;
        snprintf(path, sizeof path, "%s/%s/plan.json", r->dir, e->d_name);
        if (lf_io_exists(path))
            newest = (int)k;
    }
    closedir(d);
    if (newest == 0)
        return lf_fail(
            err, LF_ENOENT,
            "run %s has no complete revision (its submit died early, or its rev.* was removed); "
            "`loong-flow gc` shows what is left",
            r->id);
    return lf_run_load_rev(r, newest, err);
}

int lf_run_load_rev(lf_run *r, int rev, lf_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rev.%d/plan.json", r->dir, rev);
    lf_doc *plan = NULL;
    int rc = lf_doc_load(&plan, path, err);
    if (rc < 0)
        return rc;
    lf_run_take_plan(r, plan);
    r->rev = rev;
    return 0;
}

/* ---- finding by a word ---- */

static bool is_latest(const char *word)
{
    return word == NULL || strcmp(word, "latest") == 0 || strcmp(word, "last") == 0;
}

/* Four characters of an id, or more, from its beginning or its end. */
static bool matches(const char *id, const char *name)
{
    size_t n = strlen(name);
    if (n < 4 || n > (LF_ULID_SIZE - 1))
        return false;
    return strncasecmp(id, name, n) == 0 || strcasecmp(id + (LF_ULID_SIZE - 1) - n, name) == 0;
}

static lf_run *of_id(lf_run_list *l, const char *id)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcasecmp(l->runs[i].id, id) == 0)
            return &l->runs[i];
    return NULL;
}

/* One more run that a word stands for; two are too many. */
static int take(lf_run **hit, lf_run *r, const char *word, const char *more, lf_err *err)
{
    if (*hit != NULL && *hit != r) {
        (void)lf_run_load(*hit, NULL); /* for their short names */
        (void)lf_run_load(r, NULL);
        return lf_fail(err, LF_EINVAL, "\"%s\" fits several runs (%s, %s); %s", word,
                       lf_run_label(*hit), lf_run_label(r), more);
    }
    *hit = r;
    return 0;
}

static int by_part_of_id(lf_run **hit, lf_run_list *l, const char *word, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        if (matches(l->runs[i].id, word))
            rc = take(hit, &l->runs[i], word, "give more characters", err);
    return rc;
}

/* A tag of a run, or of a stage of it, as the ledger tells it. */
struct tagged {
    char *run, *tag;
};
static const struct lf_fields tagged_fields =
    LF_FIELDS(struct tagged, LF_MEMBERS(struct tagged, run, tag));

static int by_tag(lf_run **hit, lf_run_list *l, const lf_project *p, const char *word, lf_err *err)
{
    LF_ROWS(struct tagged) tags = {.n = 0};
    lf_ledger *db = lf_ask_open(p, NULL);
    int rc = 0;
    if (db == NULL ||
        lf_fields_list(&tags, &tagged_fields, lf_ledger_tags(db, NULL, NULL), NULL) < 0)
        tags.n = 0; /* without a ledger there are no tags, and all other words are good */
    for (size_t i = 0; rc == 0 && i < tags.n; i++) {
        const struct tagged *t = &tags.v[i];
        lf_run *r = t->tag != NULL && strcmp(t->tag, word) == 0 ? of_id(l, t->run) : NULL;
        if (r != NULL)
            rc = take(hit, r, word, "it is a tag of both, name one of them", err);
    }
    lf_fields_list_fini(&tags, &tagged_fields);
    lf_ledger_close(db);
    return rc;
}

/* The newest run of a pipeline's name that is there. */
static int by_pipeline(lf_run **hit, lf_run_list *l, const lf_project *p, const char *word,
                       lf_err *err)
{
    lf_texts names;
    int rc = lf_naming_list(&names, p, err), best = 0;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < names.n; i++) {
        char id[LF_ULID_SIZE];
        int n = lf_naming_number(names.v[i], word);
        lf_run *r = n > best && lf_naming_id(id, p, names.v[i], NULL) == 0 ? of_id(l, id) : NULL;
        if (r != NULL) {
            best = n;
            *hit = r;
        }
    }
    lf_texts_fini(&names);
    return 0;
}

static int no_such_run(const lf_project *p, const char *word, lf_err *err)
{
    lf_texts names;
    if (lf_naming_list(&names, p, NULL) < 0)
        names = (lf_texts){.n = 0};
    const char *near = lf_nearest(word, (const char *const *)names.v, names.n);
    int rc = lf_fail(err, LF_ENOENT, "there is no run \"%s\" in this project%s%s%s", word,
                     near != NULL ? "; did you mean " : "; `loong-flow status --all` lists them",
                     near != NULL ? near : "", near != NULL ? "?" : "");
    lf_texts_fini(&names);
    return rc;
}

static int newest(lf_run **out, lf_run_list *l, lf_err *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (lf_run_load(&l->runs[i], NULL) == 0) {
            *out = &l->runs[i];
            return 0;
        }
    return lf_run_load(&l->runs[0], err);
}

/* *id is set when the word says it, also when the run is not there. */
static int pick(lf_run **out, char id[LF_ULID_SIZE], lf_run_list *l, const lf_project *p,
                const char *word, lf_err *err)
{
    lf_run *hit = NULL;
    id[0] = '\0';
    if (word != NULL && lf_naming_id(id, p, word, NULL) == 0)
        hit = of_id(l, id);
    else if (word != NULL)
        snprintf(id, LF_ULID_SIZE, "%s", lf_ulid_valid(word) ? word : "");
    if (l->n == 0)
        return lf_fail(err, LF_ENOENT, "this project has no runs yet");
    if (is_latest(word))
        return newest(out, l, err);
    bool settled = id[0] != '\0';
    int rc = 0;
    if (!settled)
        rc = by_part_of_id(&hit, l, word, err);
    if (rc == 0 && !settled && hit == NULL)
        rc = by_tag(&hit, l, p, word, err);
    if (rc == 0 && !settled && hit == NULL)
        rc = by_pipeline(&hit, l, p, word, err);
    if (rc == 0 && settled && hit == NULL)
        hit = of_id(l, id);
    if (rc == 0 && hit == NULL)
        return no_such_run(p, word, err);
    *out = hit;
    return rc == 0 ? lf_run_load(hit, err) : rc;
}

int lf_run_find(lf_run *out, const lf_project *p, const char *word, lf_err *err)
{
    lf_run_list l;
    char id[LF_ULID_SIZE];
    int rc = lf_run_list_load(&l, p, err);
    if (rc < 0)
        return rc;
    lf_run *hit = NULL;
    lf_err e = LF_ERR_INIT;
    rc = pick(&hit, id, &l, p, word, &e);
    const char *sought = id[0] != '\0' ? id : is_latest(word) ? NULL : word;
    if (rc < 0 && (rc != LF_ENOENT || hit != NULL ||
                   lf_gone_run(p, sought, err) == 0)) /* it may have been there */
        lf_fail(err, rc, "%s", e.text);
    if (rc == 0) {
        *out = *hit;
        memset(hit, 0, sizeof *hit);
    }
    lf_run_list_fini(&l);
    return rc;
}

static int check_dir_owner(const char *dir, lf_err *err)
{
    struct stat st;
    const char *why = NULL;
    if (lstat(dir, &st) < 0)
        return lf_fail_errno(err, "run %s", dir);
    if (!S_ISDIR(st.st_mode))
        return lf_fail(err, LF_EINVAL, "%s is not a directory (symbolic links are refused)", dir);
    if (!lf_owner_allowed(st.st_uid, st.st_mode, geteuid(), NULL, 0, &why))
        return lf_fail(err, LF_EINVAL, "%s: nothing is started from it: %s", dir, why);
    return 0;
}

int lf_data_check_owner(const char *data, lf_err *err)
{
    char runs[PATH_MAX];
    if (!lf_io_exists(data))
        return 0; /* it is about to be made */
    if (snprintf(runs, sizeof runs, "%s/runs", data) >= (int)sizeof runs)
        return lf_fail(err, LF_EINVAL, "%s: the path is too long", data);
    int rc = check_dir_owner(data, err);
    return rc < 0 || !lf_io_exists(runs) ? rc : check_dir_owner(runs, err);
}

int lf_run_check_owner(const lf_run *r, lf_err *err)
{
    int rc = lf_data_check_owner(r->data, err);
    return rc < 0 ? rc : check_dir_owner(r->dir, err);
}

lf_doc_stage *lf_run_stage(const lf_run *r, const char *name)
{
    return lf_doc_find(r->plan, name);
}
