/* SPDX-License-Identifier: Apache-2.0
 *
 * show: everything known about a run or one of its stages. explain: why a stage would run, or not.
 * diff: in what two runs differ, settings and results.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/prep.h"
#include "flow/record/shown.h"
#include "flow/run/series.h"
#include "flow/sched/describe.h"

static const lf_opt show_rows[] = {LF_CMD_COMMON};
LF_CMD_TABLE(show, "everything known about a run, or about one of its stages", show_rows);
static const lf_opt explain_rows[] = {
    LF_CMD_COMMON,
    {.name = "pipeline",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .def = "pipeline.ini",
     .help = "pipeline file"},
    {.name = "set",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "section.key=value over the file, may be repeated"},
};
LF_CMD_TABLE(explain, "why would this stage run, or why not?", explain_rows);
static const lf_opt diff_rows[] = {LF_CMD_COMMON, LF_CMD_COLUMNS};
LF_CMD_TABLE(diff, "in what do two runs differ?", diff_rows);

/* ---- show ---- */

static json_t *attempts_json(const lf_stage_view *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        const struct lf_attempt_rec *att = lf_attempt_of(s, inc);
        const struct lf_end *end = inc->end;
        json_t *o = json_pack(
            "{s:i, s:i, s:s, s:s*, s:o*, s:o*, s:s*, s:s*, s:s*, s:o*, s:o*, s:o*}", "attempt",
            inc->attempt, "epoch", inc->epoch, "dir", inc->dir, "host",
            inc->claim != NULL ? inc->claim->process.host : NULL, "t_start",
            inc->claim != NULL ? json_real(inc->claim->t) : NULL, "t_end",
            end != NULL ? json_real(end->t_end) : NULL, "state", end != NULL ? end->state : NULL,
            "class", end != NULL ? end->cls : NULL, "reason", end != NULL ? end->reason : NULL,
            "resume", lf_started_shown(inc->started, "resume"), "accepted",
            lf_attempt_shown(att, "accepted"), "resources",
            lf_attempt_shown(att, "resources")); /* as asked, after the failure policy */
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *stage_json(const lf_stage_view *s)
{
    static const char *const keys[] = {"options",      "identity", "numeric",   "operational",
                                       "model",        "inputs",   "after",     "deps",
                                       "exe",          "plan",     "adopted",   "time_limit_s",
                                       "memory_bytes", "grace_s",  "resources", "spec_version"};
    json_t *o = lf_describe_stage(s), *plan = lf_doc_stage_json(s->plan, NULL);
    for (size_t i = 0; o != NULL && i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(plan, keys[i]) != NULL)
            json_object_set(o, keys[i], json_object_get(plan, keys[i]));
    json_decref(plan);
    if (o != NULL) {
        json_object_set_new(o, "incarnations", attempts_json(s));
        if (s->result_done != NULL) {
            json_object_set_new(o, "outputs", lf_done_shown(s->result_done, "outputs"));
            json_object_set_new(o, "read", lf_done_shown(s->result_done, "inputs"));
            json_object_set_new(o, "result_dir", json_string(s->result_dir));
        }
    }
    return o;
}

static void print_value(const char *key, const json_t *v)
{
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            print_value(i == 0 ? key : "", json_array_get(v, i));
        return;
    }
    char *text = json_is_string(v) ? lf_strdup(json_string_value(v), NULL)
                                   : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    printf("    %-18s ", key);
    lf_print_safe(text != NULL ? text : "");
    putchar('\n');
    free(text);
}

static void print_object(const char *title, json_t *o)
{
    const char *k;
    json_t *v;
    if (json_object_size(o) > 0)
        printf("  %s\n", title);
    json_object_foreach(o, k, v) print_value(k, v);
}

static void print_stage(json_t *o, const lf_stage_view *s)
{
    char when[21], dur[32];
    printf("%s (%s): %s", json_string_value(json_object_get(o, "name")),
           json_string_value(json_object_get(o, "kind")),
           json_string_value(json_object_get(o, "state")));
    const char *reason = json_string_value(json_object_get(o, "reason"));
    if (reason[0] != '\0') {
        fputs(": ", stdout);
        lf_print_safe(reason);
    }
    printf("\n  spec %s\n", json_string_value(json_object_get(o, "spec_id")));
    print_object("settings", json_object_get(o, "options"));
    print_object("model", json_object_get(o, "model"));
    lf_buf asks;
    lf_buf_init(&asks);
    lf_resources_line(&asks, s->plan);
    if (asks.len > 0) {
        fputs("  asks for ", stdout);
        lf_print_safe(asks.data);
        putchar('\n');
    }
    lf_buf_fini(&asks);
    json_t *incs = json_object_get(o, "incarnations"), *outs = json_object_get(o, "outputs"), *v;
    for (size_t i = 0; i < json_array_size(incs); i++) {
        const json_t *inc = json_array_get(incs, i);
        const json_t *t0 = json_object_get(inc, "t_start"), *t1 = json_object_get(inc, "t_end");
        const char *st = json_string_value(json_object_get(inc, "state"));
        printf("  attempt %d start %d  %s  %s  %s  %s\n",
               (int)json_integer_value(json_object_get(inc, "attempt")),
               (int)json_integer_value(json_object_get(inc, "epoch")),
               lf_time_iso(when, json_number_value(t0)),
               t1 != NULL
                   ? lf_fmt_duration(dur, sizeof dur, json_number_value(t1) - json_number_value(t0))
                   : "-",
               st != NULL ? st : "no end record", json_string_value(json_object_get(inc, "dir")));
    }
    const char *k;
    json_object_foreach(outs, k, v)
    {
        printf("  output %s: %s, %s in %lld file%s, %s/%s\n", k,
               json_string_value(json_object_get(v, "kind")),
               lf_fmt_bytes(dur, sizeof dur, json_number_value(json_object_get(v, "bytes"))),
               (long long)json_integer_value(json_object_get(v, "files")),
               json_integer_value(json_object_get(v, "files")) == 1 ? "" : "s",
               json_string_value(json_object_get(o, "result_dir")),
               json_string_value(json_object_get(v, "path")));
    }
}

static int show_view(lf_cmd *c, lf_run_view *v, const char *stage, lf_err *err)
{
    const lf_stage_view *only = stage != NULL ? lf_view_stage(v, stage) : NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < v->n; i++)
        if (stage == NULL || only == &v->stages[i])
            json_array_append_new(list, stage_json(&v->stages[i]));
    if (json_array_size(list) == 0) {
        json_decref(list);
        return lf_fail(err, LF_EINVAL, "run %s has no stage \"%s\"", v->run.id,
                       stage != NULL ? stage : "");
    }
    if (c->json)
        return lf_cmd_print_json(json_pack("{s:s, s:s, s:s, s:i, s:o}", "run", v->run.id, "name",
                                           v->run.plan->name, "dir", v->run.dir, "rev", v->run.rev,
                                           "stages", list),
                                 err);
    lf_say("run %s  %s\n  directory %s\n  revision %d\n", v->run.id, v->run.plan->name, v->run.dir,
           v->run.rev);
    for (size_t i = 0; i < json_array_size(list); i++)
        print_stage(json_array_get(list, i), only != NULL ? only : &v->stages[i]);
    json_decref(list);
    return 0;
}

/* `show`, `show RUN`, `show STAGE`, `show RUN STAGE`: one word is a stage when the newest run has
 * one of that name. */
static int run_show(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    lf_run_view v;
    const char *a = lf_cmd_word(c, 0), *b = lf_cmd_word(c, 1);
    rc = lf_view_find(&v, &p, b != NULL ? a : NULL, err);
    if (rc == 0 && b == NULL && a != NULL && lf_view_stage(&v, a) == NULL) {
        lf_view_fini(&v);
        rc = lf_view_find(&v, &p, a, err);
        a = NULL;
    }
    if (rc == 0) {
        rc = show_view(c, &v, b != NULL ? b : a, err);
        lf_view_fini(&v);
    }
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_show = {
    .table = &show_table, .words = "[RUN] [STAGE]", .max_words = 2, .run = run_show};

/* ---- explain ---- */

static int run_explain(lf_cmd *c, lf_err *err)
{
    lf_prep p;
    size_t n = lf_optset_count(c->opts, "set");
    const char **sets = lf_calloc(n + 1, sizeof *sets, err);
    if (sets == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < n; i++)
        sets[i] = lf_optset_str_at(c->opts, "set", i);
    lf_prep_args a = {.pipeline = lf_optset_str(c->opts, "pipeline"),
                      .sets = sets,
                      .n_sets = n,
                      .tables = c->tables,
                      .exe_missing_ok = true};
    int rc = lf_prep_make(&p, &a, err);
    free(sets);
    if (rc < 0)
        return rc;
    json_t *rows = json_array();
    for (size_t i = 0; i < p.view.n; i++) {
        const lf_stage_view *s = &p.view.stages[i];
        const char *name = s->plan->name;
        char why[600];
        bool will = false;
        if (lf_cmd_word(c, 0) != NULL && strcmp(lf_cmd_word(c, 0), name) != 0)
            continue;
        lf_prep_explain(&p, s, NULL, &will, why, sizeof why);
        json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:s}", "name", name, "state",
                                              lf_state_name(s->state), "will_run", (int)will, "why",
                                              why));
    }
    if (json_array_size(rows) == 0)
        rc = lf_fail(err, LF_EINVAL, "there is no stage \"%s\" in the pipeline", lf_cmd_word(c, 0));
    for (size_t i = 0; rc == 0 && !c->json && i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        printf("%s: %s: ", json_string_value(json_object_get(r, "name")),
               json_is_true(json_object_get(r, "will_run")) ? "would run" : "would not run");
        lf_print_safe(json_string_value(json_object_get(r, "why")));
        putchar('\n');
    }
    if (rc == 0 && c->json)
        rc = lf_cmd_print_json(json_pack("{s:O}", "stages", rows), err);
    json_decref(rows);
    lf_prep_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_explain = {
    .table = &explain_table, .words = "[STAGE]", .max_words = 1, .run = run_explain};

/* ---- diff ---- */

static void diff_value(json_t *out, const char *stage, const char *what, const json_t *a,
                       const json_t *b)
{
    if (a == b || (a != NULL && b != NULL && json_equal(a, b)))
        return;
    json_t *o = json_pack("{s:s, s:s, s:O?, s:O?}", "stage", stage, "what", what, "a", a, "b", b);
    for (int i = 0; o != NULL && i < 2; i++) { /* lists of one value are shown as the value */
        json_t *v = json_object_get(o, i == 0 ? "a" : "b");
        if (json_is_array(v)) {
            char *text = json_array_size(v) == 1 && json_is_string(json_array_get(v, 0))
                             ? lf_strdup(json_string_value(json_array_get(v, 0)), NULL)
                             : json_dumps(v, JSON_COMPACT);
            json_object_set_new(o, i == 0 ? "a" : "b", json_string(text != NULL ? text : ""));
            free(text);
        }
    }
    if (strncmp(what, "input ", 6) == 0 || strcmp(what, "spec") == 0 ||
        strcmp(what, "executable") == 0) /* spec ids and hashes say only that they differ */
        for (int i = 0; i < 2; i++) {
            const char *text = json_string_value(json_object_get(o, i == 0 ? "a" : "b"));
            if (text != NULL)
                json_object_set_new(o, i == 0 ? "a" : "b",
                                    json_sprintf("%.24s%s", text, strlen(text) > 24 ? "..." : ""));
        }
    json_array_append_new(out, o);
}

static void diff_maps(json_t *out, const char *stage, const char *prefix, json_t *a, json_t *b)
{
    const char *k;
    json_t *v;
    char what[256];
    json_object_foreach(a, k, v)
    {
        snprintf(what, sizeof what, "%s%s", prefix, k);
        diff_value(out, stage, what, v, json_object_get(b, k));
    }
    json_object_foreach(b, k, v) if (json_object_get(a, k) == NULL)
    {
        snprintf(what, sizeof what, "%s%s", prefix, k);
        diff_value(out, stage, what, NULL, v);
    }
}

static json_t *last_metrics(const lf_stage_view *s)
{
    json_t *r = s != NULL ? lf_metrics_records(s, NULL) : NULL;
    json_t *last =
        json_incref(json_array_get(r, json_array_size(r) > 0 ? json_array_size(r) - 1 : 0));
    json_decref(r);
    json_object_del(last, "t");
    return last;
}

static void diff_stage(json_t *out, const char *name, const lf_stage_view *a,
                       const lf_stage_view *b)
{
    if (a == NULL || b == NULL) {
        json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "stage", name, "what", "stage",
                                             "a", a != NULL ? "there" : "missing", "b",
                                             b != NULL ? "there" : "missing"));
        return;
    }
    json_t *x = lf_doc_stage_json(a->plan, NULL), *y = lf_doc_stage_json(b->plan, NULL);
    diff_value(out, name, "kind", json_object_get(x, "kind"), json_object_get(y, "kind"));
    diff_maps(out, name, "", json_object_get(x, "options"), json_object_get(y, "options"));
    diff_maps(out, name, "model.", json_object_get(x, "model"), json_object_get(y, "model"));
    diff_maps(out, name, "input ", json_object_get(json_object_get(x, "spec"), "inputs"),
              json_object_get(json_object_get(y, "spec"), "inputs"));
    diff_value(out, name, "spec", json_object_get(x, "spec_id"), json_object_get(y, "spec_id"));
    diff_maps(out, name, "resource ", json_object_get(x, "resources"),
              json_object_get(y, "resources"));
    diff_value(out, name, "executable", json_object_get(json_object_get(x, "exe"), "sha256"),
               json_object_get(json_object_get(y, "exe"), "sha256"));
    json_decref(x);
    json_decref(y);
    json_t *ma = last_metrics(a), *mb = last_metrics(b);
    diff_maps(out, name, "result ", ma, mb);
    json_decref(ma);
    json_decref(mb);
}

static int diff_views(lf_cmd *c, lf_run_view *a, lf_run_view *b, lf_err *err)
{
    static const lf_column cols[] = {{"stage", "STAGE", false, false},
                                     {"what", "WHAT", false, false},
                                     {"a", "FIRST", false, false},
                                     {"b", "SECOND", false, false}};
    json_t *out = json_array();
    for (size_t i = 0; i < a->n; i++) {
        const char *name = a->stages[i].plan->name;
        diff_stage(out, name, &a->stages[i], lf_view_stage(b, name));
    }
    for (size_t i = 0; i < b->n; i++) {
        const char *name = b->stages[i].plan->name;
        if (lf_view_stage(a, name) == NULL)
            diff_stage(out, name, NULL, &b->stages[i]);
    }
    if (c->json)
        return lf_cmd_print_json(
            json_pack("{s:s, s:s, s:o}", "a", a->run.id, "b", b->run.id, "differences", out), err);
    int rc = 0;
    if (json_array_size(out) == 0)
        puts("no difference");
    else
        rc = lf_table_print(out, cols, 4, lf_optset_str(c->opts, "columns"), err);
    json_decref(out);
    return rc;
}

static int run_diff(lf_cmd *c, lf_err *err)
{
    if (c->n_words != 2)
        return lf_fail(err, LF_EINVAL, "usage: loong-flow diff RUN RUN");
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    lf_run_view a, b;
    rc = lf_view_find(&a, &p, c->words[0], err);
    if (rc == 0) {
        rc = lf_view_find(&b, &p, c->words[1], err);
        if (rc == 0) {
            rc = diff_views(c, &a, &b, err);
            lf_view_fini(&b);
        }
        lf_view_fini(&a);
    }
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_diff = {
    .table = &diff_table, .words = "RUN RUN", .max_words = 2, .run = run_diff};
