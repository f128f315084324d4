/* SPDX-License-Identifier: Apache-2.0
 *
 * show shards: which directory is meant.
 */
#include "config.h"

#include "flow/cmd/show_shards.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "flow/record/record.h"
#include "flow/sched/describe.h"

static const char *const names[] = {"from", "tokenizer", "split", "samples",
                                    "seed", "sample",    "ids",   "show_tokens"};
enum { N_NAMES = sizeof names / sizeof names[0] };

int lf_show_wants_shards(bool *out, const lf_cmd *c, lf_err *err)
{
    const char *word = lf_cmd_word(c, 0);
    *out = word != NULL && strcmp(word, "shards") == 0;
    for (size_t i = 0; !*out && i < N_NAMES; i++)
        if (lf_optset_is_set(c->opts, names[i]))
            return lf_fail(err, LF_EINVAL, "--%s is of `loong-flow show shards`", names[i]);
    return 0;
}

/* ---- which stage ---- */

struct found {
    char path[PATH_MAX];
    lf_buf stages; /* that have some, for the message when there are several */
    size_t n;
};

static int add_found(struct found *f, const char *stage, const char *path, lf_err *err)
{
    lf_buf_addf(&f->stages, "%s%s", f->n ? ", " : "", stage);
    return f->n++ == 0 ? lf_path_set(f->path, err, "%s", path) : 0;
}

/* What the stage made. */
static int add_made(struct found *f, const lf_stage_view *s, lf_err *err)
{
    char path[PATH_MAX];
    int rc = 0;
    for (size_t i = 0; rc == 0 && s->result_done != NULL && i < s->result_done->n_outputs; i++) {
        const struct lf_output *o = &s->result_done->outputs[i];
        if (strcmp(o->kind, "shards") != 0)
            continue;
        rc = lf_path_set(path, err, "%s/%s", s->result_dir, o->path);
        rc = rc < 0 ? rc : add_found(f, s->plan->name, path, err);
    }
    return rc;
}

/* What it reads: of its newest start, since one that failed has read them too. */
static int add_read(struct found *f, const lf_stage_view *s, lf_err *err)
{
    const lf_start *last = s->n_incs > 0 ? &s->incs[s->n_incs - 1] : NULL;
    const struct lf_used *in = s->result_done != NULL                  ? s->result_done->inputs
                               : last != NULL && last->started != NULL ? last->started->inputs
                                                                       : NULL;
    size_t n = s->result_done != NULL ? s->result_done->n_inputs
               : in != NULL           ? last->started->n_inputs
                                      : 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        lf_artifact a = {0};
        if (lf_artifact_load(&a, in[i].path, "shards", NULL) == 0)
            rc = add_found(f, in[i].path, in[i].path, err);
        lf_artifact_fini(&a);
    }
    return rc;
}

static int of_stage(struct found *f, const lf_stage_view *s, lf_err *err)
{
    int rc = add_made(f, s, err);
    if (rc == 0 && f->n == 0)
        rc = add_read(f, s, err);
    if (rc == 0 && f->n == 0)
        rc = lf_fail(err, LF_ENOENT, "stage %s (%s) has made no shards and read none",
                     s->plan->name, lf_state_name(s->state));
    if (rc == 0 && f->n > 1)
        rc = lf_fail(err, LF_EINVAL, "stage %s has several, choose one with --from: %s",
                     s->plan->name, f->stages.data);
    return rc;
}

static int of_run(struct found *f, const lf_run_view *v, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++)
        rc = add_made(f, &v->stages[i], err);
    if (rc == 0 && f->n == 0)
        rc = lf_fail(err, LF_ENOENT,
                     "no stage of run %s has made shards yet; --from DIRECTORY shows others",
                     lf_run_label(&v->run));
    if (rc == 0 && f->n > 1)
        rc = lf_fail(err, LF_EINVAL, "several stages made shards, choose one with --from: %s",
                     f->stages.data);
    return rc;
}

static int in_run(struct found *f, const lf_run_view *v, const char *from, lf_err *err)
{
    const lf_stage_view *s = from != NULL ? lf_view_stage(v, from) : NULL;
    if (s != NULL)
        return of_stage(f, s, err);
    if (from == NULL)
        return of_run(f, v, err);
    if (lf_io_exists(from))
        return add_found(f, from, from, err);
    return lf_fail(err, LF_ENOENT,
                   "--from %s: run %s has no such stage, and there is no such "
                   "directory",
                   from, lf_run_label(&v->run));
}

static int in_project(struct found *f, const lf_cmd *c, const char *from, lf_err *err)
{
    lf_project p;
    lf_run_view v;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = lf_view_find(&v, &p, lf_cmd_word(c, 1), err);
    if (rc == 0) {
        rc = in_run(f, &v, from, err);
        lf_view_fini(&v);
    }
    lf_project_fini(&p);
    return rc;
}

/* A directory needs neither project nor run. */
static int find(struct found *f, const lf_cmd *c, lf_err *err)
{
    const char *from = lf_optset_str(c->opts, "from");
    lf_err why = LF_ERR_INIT;
    if (from != NULL && strchr(from, '/') != NULL)
        return add_found(f, from, from, err);
    int rc = in_project(f, c, from, &why);
    if (rc < 0 && f->n == 0 && from != NULL && lf_cmd_word(c, 1) == NULL && lf_io_exists(from))
        return add_found(f, from, from, err);
    return rc < 0 ? lf_fail(err, rc, "%s", why.text) : 0;
}

/* ---- the stage ---- */

static void pass(const char **argv, size_t *n, const char *option, const char *value)
{
    if (value != NULL) {
        argv[(*n)++] = option;
        argv[(*n)++] = value;
    }
}

static const char *number(const lf_cmd *c, const char *name, char buf[24])
{
    if (!lf_optset_is_set(c->opts, name))
        return NULL;
    snprintf(buf, 24, "%lld", (long long)lf_optset_int(c->opts, name));
    return buf;
}

static int become(lf_cmd *c, const char *dir, lf_err *err)
{
    const lf_opt_list named = lf_optset_list(c->opts, "sample");
    char samples[24], seed[24], tokens[24];
    size_t n = 0;
    const char **argv = lf_calloc(2 * named.n + 20, sizeof *argv, err);
    if (argv == NULL)
        return LF_ENOMEM;
    argv[n++] = "--show-shards";
    argv[n++] = c->json ? "--json" : "--no-json";
    argv[n++] = lf_optset_bool(c->opts, "ids") ? "--ids" : "--no-ids";
    pass(argv, &n, "--tokenizer", lf_optset_str(c->opts, "tokenizer"));
    pass(argv, &n, "--split", lf_optset_str(c->opts, "split"));
    pass(argv, &n, "--samples", number(c, "samples", samples));
    pass(argv, &n, "--seed", number(c, "seed", seed));
    pass(argv, &n, "--show-tokens", number(c, "show_tokens", tokens));
    for (size_t i = 0; i < named.n; i++)
        pass(argv, &n, "--sample", named.v[i]);
    pass(argv, &n, "--inputs", dir);
    int rc = lf_cmd_become("lf-tokenize", argv, n, err);
    free(argv);
    return rc;
}

int lf_show_shards(lf_cmd *c, lf_err *err)
{
    struct found f = {.n = 0};
    lf_buf_init(&f.stages);
    int rc = find(&f, c, err);
    if (rc == 0)
        rc = become(c, f.path, err);
    lf_buf_fini(&f.stages);
    return rc;
}
