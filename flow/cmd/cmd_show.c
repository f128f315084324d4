/* SPDX-License-Identifier: Apache-2.0
 *
 * show: everything known about a run or one of its stages, or what shards hold
 * (show_shards.h). explain: why a stage would run, or not.
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
#include "flow/cmd/show_shards.h"
#include "flow/plan/sweep.h"
#include "flow/record/difference.h"
#include "flow/run/closing.h"
#include "flow/run/provenance.h"
#include "flow/run/series.h"
#include "flow/sched/describe.h"

static const lf_opt show_rows[] = {LF_CMD_COMMON, LF_CMD_UTC, LF_SHOW_SHARDS_ROWS};
LF_CMD_TABLE(show, "everything known about a run or one of its stages; or what shards hold",
             show_rows);
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

static int add_starts(lf_stage_whole *w, const lf_stage_view *s, lf_err *err)
{
    w->starts.given = true;
    for (size_t i = 0; i < s->n_incs; i++) {
        const lf_start *inc = &s->incs[i];
        const struct lf_attempt_rec *att = lf_attempt_of(s, inc);
        lf_start_shown *o = lf_rows_add(&w->starts, sizeof *o, err);
        if (o == NULL)
            return LF_ENOMEM;
        *o = (lf_start_shown){.attempt = inc->attempt, .epoch = inc->epoch, .dir = inc->dir};
        if (inc->claim != NULL) {
            o->host = inc->claim->process.host;
            o->t_start = lf_real_of(inc->claim->t);
        }
        if (inc->end != NULL) {
            o->t_end = lf_real_of(inc->end->t_end);
            o->state = inc->end->state;
            o->cls = inc->end->cls;
            o->reason = inc->end->reason;
        }
        if (inc->started != NULL) {
            o->resume = inc->started->resume;
            o->resume.given = true;
        }
        if (att != NULL) {
            o->accepted = att->accepted;
            o->resources = att->resources;
        }
    }
    return 0;
}

/* On what it was computed, and from what. */
static int add_made_of(lf_stage_whole *w, const lf_run_view *v, const lf_stage_view *s, lf_err *err)
{
    lf_provenance p;
    int rc = lf_provenance_load(&p, v, s, err);
    if (rc < 0)
        return rc;
    rc = lf_provenance_words(&w->made_of, &p, v, s, err);
    lf_provenance_fini(&p);
    return rc;
}

static int stage_whole(lf_stage_whole *w, const lf_run_view *v, const lf_stage_view *s, lf_err *err)
{
    lf_describe_stage(&w->now, s);
    w->plan = *s->plan;
    if (s->result_done != NULL) {
        w->outputs = s->result_done->outputs;
        w->n_outputs = s->result_done->n_outputs;
        w->read = s->result_done->inputs;
        w->n_read = s->result_done->n_inputs;
        w->result_dir = s->result_dir;
    }
    int rc = add_made_of(w, v, s, err);
    if (rc == 0)
        rc = lf_closing_of(&w->closing, s, err);
    return rc == 0 ? add_starts(w, s, err) : rc;
}

/* A run with all that is known of its stages; borrows from the view. */
struct whole {
    const char *run, *name, *dir;
    int rev;
    LF_ROWS(lf_stage_whole) stages;
};
static const struct lf_fields whole_fields =
    LF_FIELDS(struct whole, LF_MEMBERS(struct whole, run, name, dir, rev),
              LF_LIST(struct whole, stages, lf_stage_whole_fields));

static void whole_fini(struct whole *w)
{
    for (size_t i = 0; i < w->stages.n; i++) {
        lf_stage_shown_fini(&w->stages.v[i].now);
        lf_closing_fini(&w->stages.v[i].closing);
        lf_pairs_fini(&w->stages.v[i].made_of);
        free(w->stages.v[i].starts.v);
    }
    free(w->stages.v);
}

static void print_value(const char *key, const char *value)
{
    printf("    %-18s ", key);
    lf_print_safe(value);
    putchar('\n');
}

static void print_settings(const lf_doc_stage *plan)
{
    if (plan->options.n > 0)
        puts("  settings");
    for (size_t i = 0; i < plan->options.n; i++)
        for (size_t k = 0; k < plan->options.v[i].values.n; k++)
            print_value(k == 0 ? plan->options.v[i].name : "", plan->options.v[i].values.v[k]);
    if (plan->model.n > 0)
        puts("  model");
    for (size_t i = 0; i < plan->model.n; i++)
        print_value(plan->model.v[i].name, plan->model.v[i].value);
    lf_buf asks;
    lf_buf_init(&asks);
    lf_resources_line(&asks, plan);
    if (asks.len > 0) {
        fputs("  asks for ", stdout);
        lf_print_safe(asks.data);
        putchar('\n');
    }
    lf_buf_fini(&asks);
}

/* What came out of it. */
static void print_closing(const lf_closing *c)
{
    lf_texts words = {.n = 0};
    if (c->given && lf_closing_words(&words, c, NULL) < 0)
        return;
    for (size_t i = 0; i < words.n; i++)
        lf_say("%s%s\n", i == 0 ? "  result " : "    ", words.v[i]);
    lf_texts_fini(&words);
}

static void print_stage(const lf_cmd *c, const lf_stage_whole *w)
{
    char when[21], dur[32];
    printf("%s (%s): %s", w->now.name, w->now.kind, w->now.state);
    if (w->now.reason[0] != '\0') {
        fputs(": ", stdout);
        lf_print_safe(w->now.reason);
    }
    printf("\n  spec %s\n", w->now.spec_id);
    if (w->now.layout[0] != '\0')
        printf("  layout %s\n", w->now.layout);
    print_closing(&w->closing);
    if (w->made_of.n > 0)
        puts("  made of and on");
    for (size_t i = 0; i < w->made_of.n; i++)
        print_value(w->made_of.v[i].name, w->made_of.v[i].value);
    print_settings(&w->plan);
    for (size_t i = 0; i < w->starts.n; i++) {
        const lf_start_shown *s = &w->starts.v[i];
        printf("  attempt %d start %d  %s  %s  %s  %s\n", s->attempt, s->epoch,
               lf_cmd_time(when, c, s->t_start.v),
               s->t_end.given ? lf_fmt_duration(dur, sizeof dur, s->t_end.v - s->t_start.v) : "-",
               s->state != NULL ? s->state : "no end record", s->dir);
    }
    for (size_t i = 0; i < w->n_outputs; i++) {
        const struct lf_output *o = &w->outputs[i];
        printf("  output %s: %s, %s in %lld file%s, %s/%s\n", o->name, o->kind,
               lf_fmt_bytes(dur, sizeof dur, (double)o->bytes), (long long)o->files,
               o->files == 1 ? "" : "s", w->result_dir, o->path);
    }
}

static int collect(struct whole *w, const lf_run_view *v, const char *stage, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        if (stage != NULL && !lf_sweep_named(v->stages[i].plan->name, stage))
            continue;
        lf_stage_whole *s = lf_rows_add(&w->stages, sizeof *s, err);
        rc = s == NULL ? LF_ENOMEM : stage_whole(s, v, &v->stages[i], err);
    }
    if (rc == 0 && w->stages.n == 0)
        rc = lf_view_no_stage(v, stage != NULL ? stage : "", err);
    return rc;
}

static int show_view(lf_cmd *c, const lf_run_view *v, const char *stage, lf_err *err)
{
    struct whole w = {
        .run = v->run.id, .name = v->run.plan->name, .dir = v->run.dir, .rev = v->run.rev};
    int rc = collect(&w, v, stage, err);
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&w, &whole_fields, err);
    else if (rc == 0) {
        lf_say("run %s  %s  %s\n  directory %s\n  revision %d\n", lf_run_label(&v->run), w.run,
               w.name, w.dir, w.rev);
        for (size_t i = 0; i < w.stages.n; i++)
            print_stage(c, &w.stages.v[i]);
    }
    whole_fini(&w);
    return rc;
}

/* `show`, `show RUN`, `show STAGE`, `show RUN STAGE`: one word is a stage when the newest run has
 * one of that name. */
static int show_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_view v;
    const char *a = lf_cmd_word(c, 0), *b = lf_cmd_word(c, 1);
    int rc = lf_view_find(&v, p, b != NULL ? a : NULL, err);
    if (rc == 0 && b == NULL && a != NULL && !lf_view_names(&v, a)) {
        lf_view_fini(&v);
        rc = lf_view_find(&v, p, a, err);
        a = NULL;
    }
    if (rc < 0)
        return rc;
    rc = show_view(c, &v, b != NULL ? b : a, err);
    lf_view_fini(&v);
    return rc;
}

static int run_show(lf_cmd *c, lf_err *err)
{
    bool shards;
    int rc = lf_show_wants_shards(&shards, c, err);
    if (rc < 0)
        return rc;
    return shards ? lf_show_shards(c, err) : lf_cmd_with_project(c, show_on, err);
}

const lf_cmd_def lf_cmd_show = {
    .table = &show_table, .words = "[RUN] [STAGE] | shards [RUN]", .max_words = 2, .run = run_show};

/* ---- explain ---- */

struct why {
    const char *name, *state;
    bool will_run;
    char why[600];
};
static const struct lf_fields why_fields =
    LF_FIELDS(struct why, LF_MEMBERS(struct why, name, state, will_run),
              {LF_FIELD_BUF(struct why, why, "why")});
struct reasons {
    LF_ROWS(struct why) stages;
};
static const struct lf_fields reasons_fields =
    LF_FIELDS(struct reasons, LF_LIST(struct reasons, stages, why_fields));

static int explain(struct reasons *r, const lf_prep *p, const char *only, lf_err *err)
{
    for (size_t i = 0; i < p->view.n; i++) {
        const lf_stage_view *s = &p->view.stages[i];
        if (only != NULL && !lf_sweep_named(s->plan->name, only))
            continue;
        struct why *w = lf_rows_add(&r->stages, sizeof *w, err);
        if (w == NULL)
            return LF_ENOMEM;
        w->name = s->plan->name;
        w->state = lf_state_name(s->state);
        lf_prep_explain(p, s, NULL, &w->will_run, w->why, sizeof w->why);
    }
    return r->stages.n > 0
               ? 0
               : lf_fail(err, LF_ENOENT, "there is no stage \"%s\" in the pipeline", only);
}

static int run_explain(lf_cmd *c, lf_err *err)
{
    lf_prep p;
    size_t n;
    const char **sets = lf_cmd_list(c, "set", &n, err);
    if (sets == NULL)
        return LF_ENOMEM;
    lf_prep_args a = {.pipeline = lf_optset_str(c->opts, "pipeline"),
                      .sets = sets,
                      .n_sets = n,
                      .tables = c->tables,
                      .exe_missing_ok = true};
    int rc = lf_prep_make(&p, &a, err);
    free(sets);
    if (rc < 0)
        return rc;
    struct reasons r = {.stages = {.n = 0}};
    rc = explain(&r, &p, lf_cmd_word(c, 0), err);
    for (size_t i = 0; rc == 0 && !c->json && i < r.stages.n; i++) {
        const struct why *w = &r.stages.v[i];
        printf("%s: %s: ", w->name, w->will_run ? "would run" : "would not run");
        lf_print_safe(w->why);
        putchar('\n');
    }
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&r, &reasons_fields, err);
    free(r.stages.v);
    lf_prep_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_explain = {
    .table = &explain_table, .words = "[STAGE]", .max_words = 1, .run = run_explain};

/* ---- diff ---- */

/* The last record of a stage; what it has beside the metrics is no result. */
static bool last_record(lf_metric_row *out, const lf_stage_view *s)
{
    lf_metric_rows all;
    memset(out, 0, sizeof *out);
    if (lf_metrics_records(&all, s, NULL) < 0)
        return false;
    if (all.n > 0) {
        *out = all.v[all.n - 1];
        all.n--;
    }
    lf_metric_rows_fini(&all);
    return out->values != NULL;
}

static int diff_stage(lf_differences *out, const char *name, const lf_stage_view *a,
                      const lf_stage_view *b, lf_err *err)
{
    lf_metric_row x, y;
    int rc = lf_diff_stages(out, name, a != NULL ? a->plan : NULL, b != NULL ? b->plan : NULL, err);
    if (rc < 0 || a == NULL || b == NULL)
        return rc;
    (void)last_record(&x, a);
    (void)last_record(&y, b);
    rc = lf_diff_records(out, name, &x, &y, err);
    lf_metric_row_fini(&x);
    lf_metric_row_fini(&y);
    return rc;
}

struct diff {
    const char *a, *b;
    lf_differences differences;
};
static const struct lf_fields diff_fields =
    LF_FIELDS(struct diff, LF_MEMBERS(struct diff, a, b),
              LF_LIST(struct diff, differences, lf_difference_fields));

static int show_diff(const lf_cmd *c, const struct diff *d, lf_err *err)
{
    static const lf_column cols[] = {{"stage", "STAGE", false, false},
                                     {"what", "WHAT", false, false},
                                     {"a", "FIRST", false, false},
                                     {"b", "SECOND", false, false}};
    static const lf_table t = {.cols = cols, .n_cols = 4};
    if (c->json)
        return lf_cmd_print(d, &diff_fields, err);
    if (d->differences.n > 0)
        return lf_table_show(&t, &d->differences, &lf_difference_fields,
                             lf_optset_str(c->opts, "columns"), err);
    puts("no difference");
    return 0;
}

static int diff_views(lf_cmd *c, lf_run_view *a, lf_run_view *b, lf_err *err)
{
    struct diff d = {.a = a->run.id, .b = b->run.id};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->n; i++) {
        const char *name = a->stages[i].plan->name;
        rc = diff_stage(&d.differences, name, &a->stages[i], lf_view_stage(b, name), err);
    }
    for (size_t i = 0; rc == 0 && i < b->n; i++) {
        const char *name = b->stages[i].plan->name;
        if (lf_view_stage(a, name) == NULL)
            rc = diff_stage(&d.differences, name, NULL, &b->stages[i], err);
    }
    if (rc == 0)
        rc = show_diff(c, &d, err);
    lf_fields_list_fini(&d.differences, &lf_difference_fields);
    return rc;
}

static int diff_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_view a, b;
    int rc = lf_view_find(&a, p, c->words[0], err);
    if (rc < 0)
        return rc;
    rc = lf_view_find(&b, p, c->words[1], err);
    if (rc == 0) {
        rc = diff_views(c, &a, &b, err);
        lf_view_fini(&b);
    }
    lf_view_fini(&a);
    return rc;
}

static int run_diff(lf_cmd *c, lf_err *err)
{
    if (c->n_words != 2)
        return lf_fail(err, LF_EINVAL, "usage: loong-flow diff RUN RUN");
    return lf_cmd_with_project(c, diff_on, err);
}

const lf_cmd_def lf_cmd_diff = {
    .table = &diff_table, .words = "RUN RUN", .max_words = 2, .run = run_diff};
