/* SPDX-License-Identifier: Apache-2.0
 *
 * validate and plan: is the pipeline right, and what would a run of it do and cost?
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmd_plan.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/cost.h"
#include "flow/cmd/laid.h"
#include "flow/cmd/place.h"
#include "flow/cmd/prep.h"
#include "flow/cmd/sweep_sum.h"
#include "flow/job/exec.h"
#include "flow/record/parts.h"
#include "flow/record/record.h"
#include "flow/sched/attempt.h"

#define SET_ROW                                                                                    \
    LF_OPT_ROW(.name = "set", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,                  \
               .help = "section.key=value over the file, may be repeated; A,B,C is a sweep")

static const lf_opt validate_rows[] = {
    LF_CMD_COMMON,
    SET_ROW,
    {.name = "quick",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "look at the file alone, without asking the programs of its stages"},
};
LF_CMD_TABLE(validate, "check a pipeline file and everything it names", validate_rows);
static const lf_opt plan_rows[] = {
    LF_CMD_COMMON,
    SET_ROW,
    {.name = "rate",
     .type = LF_OPT_COUNT,
     LF_OPT_COMMAND,
     .help =
         "FLOP/s to estimate times with, e.g. 150G; default: those of earlier runs, else measured"},
    {.name = "measure",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "yes",
     .help = "before the first run, let stages measure this machine for some 0.2 s"},
    {.name = "new",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "plan a run that takes over nothing"},
};
LF_CMD_TABLE(plan, "show what would run, why, and what it costs", plan_rows);

struct valid {
    bool valid;
    const char *pipeline;
    lf_doc doc; /* its stages are shown */
};
static const struct lf_fields valid_fields =
    LF_FIELDS(struct valid, LF_MEMBERS(struct valid, valid, pipeline),
              {.key = "stages",
               .type = LF_FIELD_LIST,
               .at = offsetof(struct valid, doc.stages),
               .sub = &lf_doc_stage_fields});

/* What the stages would refuse, and what this machine has not. */
static int ask_stages(lf_texts *mistakes, lf_prep *p, lf_err *err)
{
    lf_cost_rows costs;
    int rc = lf_cost_ask(&costs, p, err);
    if (rc < 0)
        return rc;
    rc = lf_cost_refusals(mistakes, &costs, true, err);
    if (rc == 0)
        rc = lf_cost_here(mistakes, p, err);
    if (rc == 0)
        rc = lf_cost_too_small(mistakes, p, &costs, err);
    lf_cost_rows_fini(&costs);
    return rc;
}

static int print_valid(const lf_cmd *c, const char *path, const lf_doc *plan, lf_err *err)
{
    if (c->json) {
        const struct valid v = {.valid = true, .pipeline = path, .doc = *plan};
        return lf_cmd_print(&v, &valid_fields, err);
    }
    lf_say("%s is valid: %zu stage%s, in this order:", path, plan->stages.n,
           plan->stages.n == 1 ? "" : "s");
    for (size_t i = 0; i < plan->stages.n; i++)
        printf(" %s", plan->stages.v[i].name);
    putchar('\n');
    return 0;
}

static int run_validate(lf_cmd *c, lf_err *err)
{
    lf_texts mistakes = {.n = 0}, warnings = {.n = 0};
    lf_prep p;
    memset(&p, 0, sizeof p);
    size_t n = 0;
    const char **sets = lf_cmd_list(c, "set", &n, err);
    char *models = lf_cmd_model_dir();
    const char *path = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini";
    lf_pipeline_args a = {.path = path,
                          .tables = c->tables,
                          .sets = sets,
                          .n_sets = n,
                          .model_dir = models,
                          .mistakes = &mistakes,
                          .warnings = &warnings};
    int rc = sets == NULL ? LF_ENOMEM : lf_pipeline_load(&p.pipeline, &a, err);
    if (rc == 0) {
        p.has_pipeline = true;
        p.tables = c->tables;
        p.plan = lf_doc_hold(p.pipeline.plan);
    }
    if (rc == 0)
        rc = lf_place_check(&mistakes, &p, err);
    if (rc == 0 && !lf_optset_bool(c->opts, "quick"))
        rc = ask_stages(&mistakes, &p, err);
    for (size_t i = 0; i < warnings.n; i++)
        lf_say_err("loong-flow validate: warning: %s\n", warnings.v[i]);
    for (size_t i = 0; i < mistakes.n; i++)
        if (rc < 0 || i + 1 < mistakes.n) /* the last one is this command's error */
            lf_say_err("loong-flow validate: %s\n", mistakes.v[i]);
    if (rc == 0)
        rc = mistakes.n > 0 ? lf_fail(err, LF_EINVAL, "%s", mistakes.v[mistakes.n - 1])
                            : print_valid(c, path, p.plan, err);
    lf_prep_fini(&p);
    lf_texts_fini(&mistakes);
    lf_texts_fini(&warnings);
    free(sets);
    free(models);
    return rc;
}

const lf_cmd_def lf_cmd_validate = {
    .table = &validate_table, .words = "[PIPELINE]", .max_words = 1, .run = run_validate};

/* ---- plan ---- */

/* Costs are in the order of the stages, without those that are done: *at is where this one's would
 * be. */
static const lf_cost_row *next_cost(const lf_cost_rows *costs, size_t *at, const char *name)
{
    if (*at >= costs->n || strcmp(costs->v[*at].stage->name, name) != 0)
        return NULL;
    return &costs->v[(*at)++];
}

/* When a stage with a time limit is asked to stop before it, and why then. */
struct lead {
    bool given;
    double lead_s, grace_s, time_limit_s, save_s, spacing_s;
};
static const struct lf_fields lead_fields = {
    LF_FIELDS_TABLE(struct lead, offsetof(struct lead, given), LF_FIELD_NONE,
                    LF_MEMBERS(struct lead, lead_s, grace_s, time_limit_s, save_s, spacing_s))};

/* What would happen to a stage, and what it would cost. */
struct row {
    const char *name, *kind, *state;
    bool will_run;
    char why[600];
    lf_texts deps;
    const char *spec_id;
    lf_resources resources; /* owned */
    char *asks;             /* owned */
    struct lead lead;
    const char *error; /* why the cost is not known */
    lf_cost plan;
    lf_int gpu_memory;
    lf_real estimated_s, rate_flops;
    lf_flag rate_measured; /* now, for want of an earlier run; otherwise not given */
    bool unmeasured;       /* because it was asked for, shown in text only */
};
static const struct lf_fields row_fields =
    LF_FIELDS_SHOWN(struct row, LF_MEMBERS(struct row, name, kind, state, will_run),
                    {LF_FIELD_BUF(struct row, why, "why")}, LF_MEMBERS(struct row, deps, spec_id),
                    LF_RECORD(struct row, resources, lf_resources_fields),
                    LF_MEMBERS(struct row, asks), LF_RECORD(struct row, lead, lead_fields),
                    LF_MEMBERS(struct row, error), LF_RECORD(struct row, plan, lf_cost_fields),
                    LF_MEMBERS(struct row, gpu_memory, estimated_s, rate_flops, rate_measured));

struct plan {
    const char *name, *scheduler, *run, *short_name, *refused;
    lf_texts warnings; /* borrowed */
    double executables_bytes;
    bool fits;
    lf_sweep sweep; /* borrowed */
    lf_sweep_sum sum;
    LF_ROWS(struct row) stages;
};
static const struct lf_fields plan_fields = LF_FIELDS_SHOWN(
    struct plan,
    LF_MEMBERS(struct plan, name, scheduler, run, short_name, refused, fits, warnings,
               executables_bytes),
    LF_RECORD(struct plan, sweep, lf_sweep_fields),
    LF_RECORD(struct plan, sum, lf_sweep_sum_fields), LF_LIST(struct plan, stages, row_fields));

static void set_lead(struct lead *lead, const lf_stage_view *s)
{
    double limit = (double)s->plan->time_limit_s.v;
    double grace = (double)s->plan->grace_s.v;
    lf_exec_pace pace;
    if (limit <= 0)
        return;
    lf_exec_pace_of(&pace, s);
    *lead = (struct lead){.given = true,
                          .lead_s = lf_exec_lead_s(&pace, grace, limit),
                          .grace_s = grace,
                          .time_limit_s = limit,
                          .save_s = pace.save_s,
                          .spacing_s = pace.spacing_s};
}

static void print_lead(const struct lead *lead)
{
    char a[32], b[32], c[32], d[32];
    if (!lead->given)
        return;
    printf("      asked to stop %s before its limit of %s",
           lf_fmt_duration(a, sizeof a, lead->lead_s),
           lf_fmt_duration(b, sizeof b, lead->time_limit_s));
    if (lead->spacing_s > 0)
        printf(" (measured: a save takes %s, safe points are %s apart)\n",
               lf_fmt_duration(c, sizeof c, lead->save_s),
               lf_fmt_duration(d, sizeof d, lead->spacing_s));
    else
        printf(" (grace = %s; nothing measured yet)\n",
               lf_fmt_duration(c, sizeof c, lead->grace_s));
}

static void set_cost(struct row *row, lf_prep *p, const lf_cost_row *cost, const lf_doc_stage *st,
                     const lf_plan_ask *ask)
{
    if (!cost->cost.given) {
        row->error = cost->error;
        return;
    }
    row->plan = cost->cost;
    row->gpu_memory = st->resources.gpu_memory;
    double work = cost->cost.flops_per_step.v * cost->cost.steps.v;
    bool measured = false;
    double rate = ask->rate > 0 ? ask->rate : lf_cost_rate(p, st->kind, &measured);
    row->unmeasured = !ask->measure;
    if (work > 0 && rate > 0) {
        row->estimated_s = lf_real_of(work / rate);
        row->rate_flops = lf_real_of(rate);
        if (measured)
            row->rate_measured = lf_flag_of(true);
    }
    const double before = work > 0 ? 0 : lf_cost_stored_seconds(p, st);
    if (before > 0)
        row->estimated_s = lf_real_of(before);
}

static int set_row(struct row *row, lf_prep *p, const lf_stage_view *s, const lf_cost_row *cost,
                   const lf_plan_ask *ask, lf_err *err)
{
    lf_buf asks;
    row->name = s->plan->name;
    row->kind = s->plan->kind;
    row->state = lf_state_name(s->state);
    row->spec_id = s->plan->spec_id;
    row->deps = s->plan->deps;
    row->deps.given = true;
    lf_prep_explain(p, s, NULL, &row->will_run, row->why, sizeof row->why);
    lf_buf_init(&asks);
    lf_resources_line(&asks, s->plan);
    int rc = lf_text_set(&row->asks, asks.len > 0 ? asks.data : NULL, "asks", err);
    lf_buf_fini(&asks);
    if (lf_attempt_resources(&row->resources, s->plan, NULL, NULL) == 0)
        row->resources.given = true;
    set_lead(&row->lead, s);
    if (cost != NULL)
        set_cost(row, p, cost, s->plan, ask);
    return rc;
}

/* Parts that are not nothing. */
static void print_parts(const struct lf_cost_bytes *bytes, bool host)
{
    const struct {
        const char *name;
        lf_real v;
    } parts[] = {{"weights", bytes->params},
                 {"gradients", bytes->grads},
                 {"moments", bytes->optimizer},
                 {"activations", bytes->activations},
                 {"workspace", bytes->workspace},
                 {"inputs", bytes->inputs},
                 {"cache", bytes->state},
                 {"cache", bytes->cache},
                 {"communicators", bytes->communicators},
                 {"host", bytes->host}};
    const size_t n = sizeof parts / sizeof parts[0] - (host ? 0 : 1);
    const char *sep = ": ";
    char b[32];
    for (size_t i = 0; i < n; i++) {
        if (!(parts[i].v.v > 0))
            continue;
        printf("%s%s %s", sep, parts[i].name, lf_fmt_bytes(b, sizeof b, parts[i].v.v));
        sep = ", ";
    }
    putchar('\n');
}

/* Whose memory is shown: ranks that divide the state differ a little. */
static const char *of_rank(char *buf, size_t cap, const lf_cost *plan)
{
    const lf_int *rank = &plan->bytes.rank;
    snprintf(buf, cap, "%s", plan->ranks.v > 1 ? " of a rank" : "");
    if (plan->ranks.v > 1 && rank->given)
        snprintf(buf, cap, " of rank %lld, the largest,", (long long)rank->v);
    return buf;
}

/* The planned memory of a process: the number that its log and the report have too. With a GPU it
 * is the host's alone. */
static void print_bytes(const lf_cost *plan)
{
    const struct lf_cost_bytes *bytes = &plan->bytes;
    int64_t ranks = plan->ranks.v;
    char b[32], of[64];
    if (bytes->total.given)
        printf("      planned memory%s %s", of_rank(of, sizeof of, plan),
               lf_fmt_bytes(b, sizeof b, bytes->total.v));
    if (bytes->offloaded.v > 0)
        printf(", %s of it offloaded", lf_fmt_bytes(b, sizeof b, bytes->offloaded.v));
    if (bytes->total.given && bytes->device.v > 0)
        putchar('\n');
    else if (bytes->total.given)
        print_parts(bytes, true);
    lf_laid_print(plan);
    if (ranks > 1 && plan->comm.bytes_per_round.v > 0)
        printf("      and %s of weights in each round\n",
               lf_fmt_bytes(b, sizeof b, plan->comm.bytes_per_round.v));
    if (plan->comm.rollout_bytes_most.given)
        printf("      rollouts have weights of their own: at most %s come to a rank before each "
               "round\n",
               lf_fmt_bytes(b, sizeof b, plan->comm.rollout_bytes_most.v));
}

/* What lies on a GPU, against what one has where the pipeline says it. */
static void print_device(const struct row *row)
{
    char b[32], of[64];
    double device = row->plan.bytes.device.v;
    if (device <= 0)
        return;
    printf("      planned GPU memory%s %s", of_rank(of, sizeof of, &row->plan),
           lf_fmt_bytes(b, sizeof b, device));
    if (row->gpu_memory.given)
        printf(" of %s (gpu_memory)", lf_fmt_bytes(b, sizeof b, (double)row->gpu_memory.v));
    fputs(", with what the driver keeps", stdout);
    print_parts(&row->plan.bytes, false);
}

static void print_counts(const struct row *row)
{
    const lf_cost *plan = &row->plan;
    const struct {
        const char *name;
        lf_real v;
    } parts[] = {{"parameters", plan->parameters},
                 {"steps", plan->steps},
                 {"tokens", plan->tokens},
                 {"FLOP per step", plan->flops_per_step}};
    char b[32];
    const char *sep = "      ";
    for (size_t i = 0; i < 4; i++) {
        if (!parts[i].v.given)
            continue;
        printf("%s%s %s", sep, lf_fmt_count(b, sizeof b, parts[i].v.v), parts[i].name);
        sep = ", ";
    }
    if (plan->disk_bytes.given) {
        printf("%s%s on disk", sep, lf_fmt_bytes(b, sizeof b, plan->disk_bytes.v));
        sep = ", ";
    }
    if (row->estimated_s.given)
        printf("%sabout %s", sep, lf_fmt_duration(b, sizeof b, row->estimated_s.v));
    if (row->estimated_s.given && !row->rate_flops.given)
        fputs(", as in an earlier run", stdout);
    if (row->rate_measured.v)
        printf(" at %s FLOP/s (measured now, before the first run)",
               lf_fmt_count(b, sizeof b, row->rate_flops.v));
    const bool unknown = !row->estimated_s.given && plan->flops_per_step.given && plan->steps.given;
    if (unknown)
        printf("%stime unknown before the first run%s", sep,
               row->unmeasured ? " (--no-measure)" : "");
    if (sep[0] == ',' || row->estimated_s.given || unknown)
        putchar('\n');
}

static void print_line(const char *title, const char *text)
{
    printf("      %s", title);
    lf_print_safe(text);
    putchar('\n');
}

static void print_title(const struct row *row)
{
    printf("  %-4s %s (%s)", row->will_run ? "run" : "-", row->name, row->kind);
    for (size_t i = 0; i < row->deps.n; i++)
        printf("%s%s", i == 0 ? " <- " : ", ", row->deps.v[i]);
    putchar('\n');
}

static void print_row(const struct row *row)
{
    print_title(row);
    print_line("", row->why);
    if (row->asks != NULL)
        print_line("asks for ", row->asks);
    if (row->error != NULL)
        print_line("cost unknown: ", row->error);
    print_counts(row);
    print_lead(&row->lead);
    print_bytes(&row->plan);
    print_device(row);
    for (size_t i = 0; i < row->plan.notes.n; i++)
        print_line("note: ", row->plan.notes.v[i]);
}

static void print_text(const struct plan *o, const lf_doc *doc, bool changed)
{
    lf_say("%s: %s\n", o->name,
           o->run == NULL ? "a new run"
           : changed      ? "continues a run, with changed settings"
                          : "continues a run");
    if (o->run != NULL)
        lf_say("  run %s  %s\n", o->short_name != NULL ? o->short_name : "-", o->run);
    lf_sweep_print_children(&o->sweep);
    for (size_t i = 0; i < o->stages.n; i++)
        if (lf_sweep_is_repeated(doc, o->stages.v[i].name))
            print_title(&o->stages.v[i]);
        else
            print_row(&o->stages.v[i]);
    lf_sweep_print_sum(&o->sum);
    char b[32];
    if (o->executables_bytes > 0)
        printf("  and %s on disk: copies of the executables, which the run keeps\n",
               lf_fmt_bytes(b, sizeof b, o->executables_bytes));
    for (size_t i = 0; i < o->warnings.n; i++)
        lf_say("warning: %s\n", o->warnings.v[i]);
    if (o->refused != NULL)
        lf_say("refused: %s\n", o->refused);
}

static int print_plan(const lf_cmd *c, lf_prep *p, const lf_cost_rows *costs,
                      const lf_plan_ask *ask, const lf_sweep_sum *sum, const lf_err *fit,
                      lf_err *err)
{
    struct plan o = {.name = p->plan->name,
                     .scheduler = p->plan->scheduler,
                     .run = p->has_run ? p->view.run.id : NULL,
                     .short_name = p->has_run ? p->plan->short_name : NULL,
                     .refused = fit->rc != 0 ? fit->text : NULL,
                     .fits = fit->rc == 0,
                     .warnings = p->warnings,
                     .executables_bytes = lf_cost_copies(p),
                     .sweep = p->plan->sweep,
                     .sum = *sum,
                     .stages = {.given = true}};
    int rc = 0;
    for (size_t i = 0, at = 0; rc == 0 && i < p->view.n; i++) {
        const lf_stage_view *s = &p->view.stages[i];
        struct row *row = lf_rows_add(&o.stages, sizeof *row, err);
        rc = row == NULL ? LF_ENOMEM
                         : set_row(row, p, s, next_cost(costs, &at, s->plan->name), ask, err);
        if (rc == 0 && ask->wanted != NULL && !ask->wanted[i] && row->will_run) {
            row->will_run = false;
            snprintf(row->why, sizeof row->why, "it is not among the stages that were asked for");
        }
    }
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&o, &plan_fields, err);
    else if (rc == 0)
        print_text(&o, p->plan, p->changed);
    for (size_t i = 0; i < o.stages.n; i++) {
        lf_resources_fini(&o.stages.v[i].resources);
        free(o.stages.v[i].asks);
    }
    free(o.stages.v);
    return rc;
}

int lf_cmd_show_plan(const lf_cmd *c, lf_prep *p, const lf_plan_ask *ask, lf_err *err)
{
    lf_cost_rows costs = {.n = 0};
    lf_err fit = LF_ERR_INIT;
    if (ask->rate <= 0 && ask->measure)
        lf_cost_measure(p);
    int rc = lf_cost_ask(&costs, p, err);
    if (rc == 0)
        rc = lf_cost_refuse(&costs, c->def->table->stage, err);
    lf_sweep_sum sum = {.given = false};
    if (rc == 0)
        lf_sweep_add_up(&sum, p, &costs, ask->rate);
    if (rc == 0 && lf_cost_check(p, &costs, &fit) == 0)
        lf_sweep_check(&sum, p, &fit);
    if (rc == 0)
        rc = print_plan(c, p, &costs, ask, &sum, &fit, err);
    if (rc == 0 && fit.rc != 0)
        rc = LF_FLOW_FAILED;
    lf_cost_rows_fini(&costs);
    return rc;
}

static int run_plan(lf_cmd *c, lf_err *err)
{
    lf_prep p;
    lf_prep_args a = {.pipeline = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini",
                      .tables = c->tables,
                      .fresh_run = lf_optset_bool(c->opts, "new"),
                      .exe_missing_ok = true};
    a.sets = lf_cmd_list(c, "set", &a.n_sets, err);
    int rc = a.sets == NULL ? LF_ENOMEM : lf_prep_make(&p, &a, err);
    if (rc == 0) {
        const lf_plan_ask ask = {
            .rate = lf_optset_is_set(c->opts, "rate") ? (double)lf_optset_int(c->opts, "rate") : 0,
            .measure = lf_optset_bool(c->opts, "measure")};
        rc = lf_cmd_show_plan(c, &p, &ask, err);
        lf_prep_fini(&p);
    }
    free((void *)(uintptr_t)a.sets);
    return rc;
}

const lf_cmd_def lf_cmd_plan = {
    .table = &plan_table, .words = "[PIPELINE]", .max_words = 1, .run = run_plan};
