/* SPDX-License-Identifier: Apache-2.0
 *
 * From the frozen stage document to the INI file its executable reads: references become
 * directories of artifacts whose commit markers were checked just now, relative paths become
 * absolute against the project.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/job/exec.h"
#include "flow/record/record.h"

/* The result a stage of this run stands for: its directory and marker, checked file by file. */
static int find_upstream(lf_stage_view *out, lf_exec *x, const char *name, lf_err *err)
{
    const lf_stage_view *known = x->view != NULL ? lf_view_stage(x->view, name) : NULL;
    const lf_doc_stage *st = known != NULL ? known->plan : lf_run_stage(&x->run, name);
    if (st == NULL)
        return lf_fail(err, LF_EFORMAT, "the plan has no stage %s", name);
    int rc = lf_stage_scan(out, x->run.dir, st, err);
    if (rc < 0)
        return rc;
    rc = lf_stage_result(out, &x->run, err);
    if (rc == 0) {
        rc = out->state == LF_STATE_PURGED && out->result_dir != NULL
                 ? lf_fail(err, LF_ENOENT, "stage %s was done, but %s", name, out->reason)
                 : lf_fail(err, LF_ENOENT, "stage %s is not done", name);
    }
    if (rc < 0)
        lf_stage_scan_fini(out);
    return rc < 0 ? rc : 0;
}

static int copy(const char **out, const char *text, lf_err *err)
{
    *out = text != NULL ? lf_strdup(text, err) : NULL;
    return text != NULL && *out == NULL ? LF_ENOMEM : 0;
}

/* in: borrowed. */
static int add_input(lf_exec *x, const struct lf_used *in, lf_err *err)
{
    int rc = lf_grow(&x->inputs, &x->cap_inputs, x->n_inputs, sizeof *x->inputs, err);
    if (rc < 0)
        return rc;
    struct lf_used *row = &x->inputs[x->n_inputs++];
    *row = (struct lf_used){
        .attempt = in->attempt, .epoch = in->epoch, .ended_at_step = in->ended_at_step};
    rc = copy(&row->name, in->name, err);
    if (rc == 0)
        rc = copy(&row->path, in->path, err);
    if (rc == 0)
        rc = copy(&row->run, in->run, err);
    if (rc == 0)
        rc = copy(&row->stage, in->stage, err);
    if (rc == 0)
        rc = copy(&row->spec_id, in->spec_id, err);
    if (rc == 0)
        rc = copy(&row->output, in->output, err);
    return rc == 0 ? copy(&row->sha256, in->sha256, err) : rc;
}

static int resolve_ref(lf_buf *value, lf_exec *x, const char *option, const lf_doc_ref *ref,
                       lf_err *err)
{
    const char *name = ref->stage, *output = ref->output;
    lf_stage_view up;
    memset(&up, 0, sizeof up);
    lf_err e = LF_ERR_INIT;
    const bool anywhere = !x->planning || x->view != NULL;
    int rc = anywhere ? find_upstream(&up, x, name, &e) : LF_ENOENT;
    if (rc == LF_ENOENT && x->planning) {
        lf_buf_addf(value, "%s/" LF_NOT_MADE "/%s.%s", x->dir, name, output);
        return 0;
    }
    if (rc < 0)
        return lf_fail(err, rc, "%s", e.text);
    const struct lf_done *done = up.result_done;
    const struct lf_output *o = lf_done_output(done, output);
    if (o == NULL || o->path == NULL) {
        rc = lf_fail(err, LF_ENOENT, "stage %s is done but made no output \"%s\"", name, output);
    } else {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", up.result_dir, o->path);
        lf_buf_adds(value, path);
        const struct lf_used in = {.name = option,
                                   .path = path,
                                   .stage = name,
                                   .run = done->run,
                                   .attempt = done->attempt,
                                   .epoch = done->epoch,
                                   .spec_id = done->spec_id,
                                   .output = output,
                                   .sha256 = o->manifest_sha256,
                                   .ended_at_step = lf_done_ended_at(done)};
        rc = add_input(x, &in, err);
    }
    lf_stage_scan_fini(&up);
    return rc;
}

/* Replace "${stage:...}" pieces in order; the refs array was made from the same text. */
static int resolve_text(lf_buf *value, lf_exec *x, const lf_doc_input *in, lf_err *err)
{
    const char *p = in->text;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < in->refs.n; i++) {
        const char *d = strstr(p, "${stage:"), *close = d != NULL ? strchr(d, '}') : NULL;
        if (close == NULL)
            return lf_fail(err, LF_EFORMAT, "plan: a reference and its text disagree");
        lf_buf_add(value, p, (size_t)(d - p));
        rc = resolve_ref(value, x, in->option, &in->refs.v[i], err);
        p = close + 1;
    }
    lf_buf_adds(value, p);
    return rc;
}

/* Where the inputs of an option begin; they lie side by side, in the order of its values. */
static size_t first_input(const lf_exec *x, const char *option)
{
    size_t i = 0;
    while (i < x->plan->inputs.n && strcmp(x->plan->inputs.v[i].option, option) != 0)
        i++;
    return i;
}

/* The hash that entered the spec id for an outside input, without its "sha256:"; NULL for words. */
static const char *outside_hash(const lf_exec *x, const char *option, size_t index)
{
    const lf_texts *list = lf_lists_get(&x->plan->spec.inputs, option);
    const char *s = list != NULL && index < list->n ? list->v[index] : NULL;
    return s != NULL && lf_str_has_prefix(s, "sha256:") ? s + 7 : NULL;
}

/* in: the input that the value is, NULL: it is none. */
static int one_value(lf_buf *value, lf_exec *x, const char *option, size_t index,
                     const lf_doc_input *in, const char *text, lf_err *err)
{
    bool path = lf_pairs_get(&x->plan->types, option) != NULL;
    if (in != NULL && in->refs.n > 0)
        return resolve_text(value, x, in, err);
    if (path && text[0] != '/' && text[0] != '\0' && !(in != NULL && in->word.v))
        lf_buf_addf(value, "%s/", x->args.project);
    lf_buf_adds(value, text);
    const char *hash = in != NULL ? outside_hash(x, option, index) : NULL;
    if (hash == NULL)
        return 0;
    const struct lf_used used = {.name = option, .path = value->data, .sha256 = hash};
    return add_input(x, &used, err);
}

/* A value of several lines is written as continuation lines. */
static void add_key(lf_buf *ini, const char *key, const char *value)
{
    lf_buf_addf(ini, "%s = ", key);
    for (const char *p = value; *p != '\0'; p++) {
        lf_buf_addc(ini, *p);
        if (*p == '\n')
            lf_buf_adds(ini, "    ");
    }
    lf_buf_addc(ini, '\n');
}

/* One option with all its values. */
static int write_option(lf_buf *ini, lf_exec *x, const lf_list *option, lf_err *err)
{
    lf_buf all;
    lf_buf_init(&all);
    size_t first = first_input(x, option->name);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < option->values.n; i++) {
        lf_buf one;
        lf_buf_init(&one);
        const lf_doc_input *in =
            first + i < x->plan->inputs.n ? &x->plan->inputs.v[first + i] : NULL;
        rc = one_value(&one, x, option->name, i, in, option->values.v[i], err);
        lf_buf_addf(&all, "%s%s", i > 0 ? "\n" : "", one.data);
        lf_buf_fini(&one);
    }
    add_key(ini, option->name, all.data);
    lf_buf_fini(&all);
    return rc;
}

static int config_text(lf_buf *ini, lf_exec *x, lf_err *err)
{
    const lf_doc_stage *st = x->plan;
    lf_buf_adds(ini, "[stage]\n");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < st->options.n; i++)
        rc = write_option(ini, x, &st->options.v[i], err);
    if (st->model.given)
        lf_buf_adds(ini, "\n[model]\n");
    for (size_t i = 0; i < st->model.n; i++)
        add_key(ini, st->model.v[i].name, st->model.v[i].value);
    return rc == 0 ? lf_buf_check(ini, err) : rc;
}

static int write_config(lf_exec *x, lf_err *err)
{
    lf_buf ini;
    lf_buf_init(&ini);
    int rc = config_text(&ini, x, err);
    char *path = lf_path_join(x->dir, "config.ini", err);
    if (rc == 0)
        rc = path == NULL ? LF_ENOMEM
                          : lf_io_write_file(path, ini.data, ini.len, 0640,
                                             err); /* read at once; another start writes its own */
    free(path);
    lf_buf_fini(&ini);
    return rc;
}

static int resume_from_taken(lf_exec *x, lf_err *err)
{
    char path[PATH_MAX];
    int rc = x->taken ? lf_path_set(path, err, "%s/from", x->dir) : 0;
    return rc == 0 && x->taken ? lf_texts_add(&x->resume, path, err) : rc;
}

/* A stage that hands nothing over looks for its pieces in the directories of earlier starts itself,
 * oldest first. Each piece is checked against its hash, and whoever made it made the same bytes. */
static int find_resume(lf_exec *x, lf_err *err)
{
    lf_stage_view s;
    if (x->plan->carry.given)
        return resume_from_taken(x, err);
    int rc = lf_stage_scan(&s, x->run.dir, x->plan, err);
    if (rc < 0)
        return rc;
    const lf_texts *accepted = &x->attempt->accepted;
    bool fresh = x->attempt->fresh;
    for (size_t i = 0; rc == 0 && !fresh && i < s.n_incs; i++) {
        const lf_start *inc = &s.incs[i];
        if (inc->epoch >= x->epoch || inc->attempt < 1 || (size_t)inc->attempt > s.n_attempts ||
            s.attempts[inc->attempt - 1] == NULL ||
            !lf_spec_continues(s.attempts[inc->attempt - 1], x->plan, accepted))
            continue;
        char *out = lf_path_join(inc->dir, "out", err);
        if (out == NULL)
            rc = LF_ENOMEM;
        else if (lf_io_exists(out))
            rc = lf_texts_add(&x->resume, out, err);
        free(out);
    }
    lf_stage_scan_fini(&s);
    return rc;
}

int lf_exec_plan_config(lf_buf *ini, lf_exec *x, lf_err *err)
{
    x->planning = true;
    return config_text(ini, x, err);
}

void lf_exec_prepare_fini(lf_exec *x)
{
    lf_used_free(x->inputs, x->n_inputs);
    lf_texts_fini(&x->resume);
    x->inputs = NULL;
    x->n_inputs = x->cap_inputs = 0;
}

int lf_exec_deps_done(lf_exec *x, lf_err *err)
{
    const lf_texts *deps = &x->plan->deps;
    int rc = lf_exec_settle(x, err);
    for (size_t i = 0; rc == 0 && i < deps->n; i++) {
        lf_stage_view up;
        memset(&up, 0, sizeof up);
        rc = find_upstream(&up, x, deps->v[i], err);
        if (rc == 0)
            lf_stage_scan_fini(&up);
    }
    return rc;
}

int lf_exec_prepare(lf_exec *x, lf_err *err)
{
    int rc = lf_exec_deps_done(x, err);
    if (rc == 0)
        rc = write_config(x, err);
    if (rc == 0)
        rc = find_resume(x, err);
    return rc;
}
