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
#include "flow/cmd/cmds.h"
#include "flow/cmd/cost.h"
#include "flow/cmd/prep.h"
#include "flow/job/exec.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"
#include "flow/sched/attempt.h"

#define SET_ROW                                                                                    \
    LF_OPT_ROW(.name = "set", .type = LF_OPT_STR, LF_OPT_COMMAND | LF_OPT_REPEAT,                  \
               .help = "section.key=value over the file, may be repeated")

static const lf_opt validate_rows[] = {LF_CMD_COMMON, SET_ROW};
LF_CMD_TABLE(validate, "check a pipeline file and everything it names", validate_rows);
static const lf_opt plan_rows[] = {
    LF_CMD_COMMON,
    SET_ROW,
    {.name = "rate",
     .type = LF_OPT_COUNT,
     LF_OPT_COMMAND,
     .help = "FLOP/s to estimate times with, e.g. 150G; default: measured before"},
    {.name = "new",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "plan a run that takes over nothing"},
};
LF_CMD_TABLE(plan, "show what would run, why, and what it costs", plan_rows);

static const char **sets_of(const lf_cmd *c, size_t *n, lf_err *err)
{
    *n = lf_optset_count(c->opts, "set");
    const char **sets = lf_calloc(*n + 1, sizeof *sets, err);
    for (size_t i = 0; sets != NULL && i < *n; i++)
        sets[i] = lf_optset_str_at(c->opts, "set", i);
    return sets;
}

static int run_validate(lf_cmd *c, lf_err *err)
{
    size_t n = 0;
    const char **sets = sets_of(c, &n, err);
    char *models = lf_cmd_model_dir();
    const char *path = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini";
    lf_pipeline p;
    lf_pipeline_args a = {
        .path = path, .tables = c->tables, .sets = sets, .n_sets = n, .model_dir = models};
    int rc = sets == NULL ? LF_ENOMEM : lf_pipeline_load(&p, &a, err);
    free(sets);
    free(models);
    if (rc < 0)
        return rc;
    if (c->json) {
        json_t *o = lf_doc_json(p.plan, err), *stages = json_object_get(o, "stages");
        rc = lf_cmd_print_json(
            json_pack("{s:b, s:s, s:O}", "valid", 1, "pipeline", path, "stages", stages), err);
        json_decref(o);
    } else {
        lf_say("%s is valid: %zu stage%s, in this order:", path, p.plan->stages.n,
               p.plan->stages.n == 1 ? "" : "s");
        for (size_t i = 0; i < p.plan->stages.n; i++)
            printf(" %s", p.plan->stages.v[i].name);
        putchar('\n');
    }
    lf_pipeline_fini(&p);
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
static void add_lead(json_t *row, const lf_stage_view *s)
{
    double limit = (double)s->plan->time_limit_s.v;
    double grace = (double)s->plan->grace_s.v;
    lf_exec_pace pace;
    if (row == NULL || limit <= 0)
        return;
    lf_exec_pace_of(&pace, s);
    json_object_set_new(row, "lead",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "lead_s",
                                  lf_exec_lead_s(&pace, grace, limit), "grace_s", grace,
                                  "time_limit_s", limit, "save_s", pace.save_s, "spacing_s",
                                  pace.spacing_s));
}

static void print_lead(const json_t *lead)
{
    char a[32], b[32], c[32], d[32];
    double save = json_number_value(json_object_get(lead, "save_s")),
           spacing = json_number_value(json_object_get(lead, "spacing_s"));
    if (lead == NULL)
        return;
    printf("      asked to stop %s before its limit of %s",
           lf_fmt_duration(a, sizeof a, json_number_value(json_object_get(lead, "lead_s"))),
           lf_fmt_duration(b, sizeof b, json_number_value(json_object_get(lead, "time_limit_s"))));
    if (spacing > 0)
        printf(" (measured: a save takes %s, safe points are %s apart)\n",
               lf_fmt_duration(c, sizeof c, save), lf_fmt_duration(d, sizeof d, spacing));
    else
        printf(" (grace = %s; nothing measured yet)\n",
               lf_fmt_duration(c, sizeof c, json_number_value(json_object_get(lead, "grace_s"))));
}

static json_t *stage_row(lf_prep *p, const lf_stage_view *s, const lf_cost_rows *costs, size_t *at,
                         double rate_given)
{
    char why[600];
    bool will = false;
    lf_prep_explain(p, s, NULL, &will, why, sizeof why);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:b, s:s, s:o, s:s}", "name", s->plan->name, "kind",
                  s->plan->kind, "state", lf_state_name(s->state), "will_run", (int)will, "why",
                  why, "deps", lf_texts_json(&s->plan->deps), "spec_id", s->plan->spec_id);
    lf_buf asks;
    lf_buf_init(&asks);
    lf_resources_line(&asks, s->plan);
    lf_resources res = {.given = false};
    if (row != NULL && lf_attempt_resources(&res, s->plan, NULL, NULL) == 0)
        json_object_set_new(row, "resources", lf_resources_json(&res, NULL));
    if (row != NULL && asks.len > 0)
        json_object_set_new(row, "asks", json_string(asks.data));
    lf_resources_fini(&res);
    lf_buf_fini(&asks);
    add_lead(row, s);
    const lf_cost_row *cost = next_cost(costs, at, s->plan->name);
    if (row == NULL || cost == NULL)
        return row;
    if (!cost->cost.given) {
        json_object_set_new(row, "error", json_string(cost->error));
        return row;
    }
    json_object_set_new(row, "plan", lf_cost_json(&cost->cost, NULL));
    const lf_int *gpu_memory = &s->plan->resources.gpu_memory;
    if (gpu_memory->given)
        json_object_set_new(row, "gpu_memory", json_integer(gpu_memory->v));
    double work = cost->cost.flops_per_step.v * cost->cost.steps.v;
    double rate = rate_given > 0 ? rate_given : lf_cost_stored_rate(p, s->plan->kind);
    if (work > 0 && rate > 0) {
        json_object_set_new(row, "estimated_s", json_real(work / rate));
        json_object_set_new(row, "rate_flops", json_real(rate));
    }
    return row;
}

static void print_bytes(const json_t *plan)
{
    const json_t *bytes = json_object_get(plan, "bytes"), *comm = json_object_get(plan, "comm");
    int64_t ranks = json_integer_value(json_object_get(plan, "ranks"));
    static const char *const classes[] = {"params",    "grads",     "optimizer", "activations",
                                          "workspace", "offloaded", "host",      "total"};
    char b[32];
    const char *sep = ranks > 1 ? "      memory of a rank: " : "      memory: ";
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        const json_t *v = json_object_get(bytes, classes[i]);
        if (v == NULL || (strcmp(classes[i], "offloaded") == 0 && !(json_number_value(v) > 0)))
            continue;
        printf("%s%s %s", sep, classes[i], lf_fmt_bytes(b, sizeof b, json_number_value(v)));
        sep = ", ";
    }
    if (sep[0] == ',')
        putchar('\n');
    if (ranks > 1 && comm != NULL)
        printf(
            "      %lld ranks: each sends %s a step in %lld sums of gradients\n", (long long)ranks,
            lf_fmt_bytes(b, sizeof b, json_number_value(json_object_get(comm, "bytes_per_step"))),
            (long long)json_integer_value(json_object_get(comm, "messages_per_step")));
}

/* What lies on a GPU, against what one has where the pipeline says it. */
static void print_device(const json_t *row)
{
    const json_t *plan = json_object_get(row, "plan"),
                 *device = json_object_get(json_object_get(plan, "bytes"), "device");
    const json_t *has = json_object_get(row, "gpu_memory");
    char b[32];
    if (json_number_value(device) <= 0)
        return;
    printf("      GPU memory%s: %s",
           json_integer_value(json_object_get(plan, "ranks")) > 1 ? " of a rank" : "",
           lf_fmt_bytes(b, sizeof b, json_number_value(device)));
    if (has != NULL)
        printf(" of %s (gpu_memory)", lf_fmt_bytes(b, sizeof b, json_number_value(has)));
    puts(", with what the driver keeps");
}

static void print_counts(const json_t *row)
{
    const json_t *plan = json_object_get(row, "plan");
    char b[32];
    const char *sep = "      ";
    static const char *const keys[][2] = {{"parameters", "parameters"},
                                          {"steps", "steps"},
                                          {"tokens", "tokens"},
                                          {"flops_per_step", "FLOP per step"}};
    for (size_t i = 0; i < 4; i++) {
        const json_t *v = json_object_get(plan, keys[i][0]);
        if (v == NULL)
            continue;
        printf("%s%s %s", sep, lf_fmt_count(b, sizeof b, json_number_value(v)), keys[i][1]);
        sep = ", ";
    }
    const json_t *disk = json_object_get(plan, "disk_bytes"),
                 *est = json_object_get(row, "estimated_s");
    if (disk != NULL) {
        printf("%s%s on disk", sep, lf_fmt_bytes(b, sizeof b, json_number_value(disk)));
        sep = ", ";
    }
    if (est != NULL)
        printf("%sabout %s", sep, lf_fmt_duration(b, sizeof b, json_number_value(est)));
    if (sep[0] == ',')
        putchar('\n');
}

static void print_row(const json_t *row)
{
    json_t *deps = json_object_get(row, "deps"), *plan = json_object_get(row, "plan");
    printf("  %-4s %s (%s)", json_is_true(json_object_get(row, "will_run")) ? "run" : "-",
           json_string_value(json_object_get(row, "name")),
           json_string_value(json_object_get(row, "kind")));
    for (size_t i = 0; i < json_array_size(deps); i++)
        printf("%s%s", i == 0 ? " <- " : ", ", json_string_value(json_array_get(deps, i)));
    fputs("\n      ", stdout);
    lf_print_safe(json_string_value(json_object_get(row, "why")));
    putchar('\n');
    if (json_object_get(row, "asks") != NULL) {
        fputs("      asks for ", stdout);
        lf_print_safe(json_string_value(json_object_get(row, "asks")));
        putchar('\n');
    }
    if (json_object_get(row, "error") != NULL) {
        fputs("      cost unknown: ", stdout);
        lf_print_safe(json_string_value(json_object_get(row, "error")));
        putchar('\n');
    }
    print_counts(row);
    print_lead(json_object_get(row, "lead"));
    print_bytes(plan);
    print_device(row);
    json_t *notes = json_object_get(plan, "notes");
    for (size_t i = 0; i < json_array_size(notes); i++) {
        fputs("      note: ", stdout);
        const char *note = json_string_value(json_array_get(notes, i));
        lf_print_safe(note != NULL ? note : "");
        putchar('\n');
    }
}

static int print_plan(const lf_cmd *c, lf_prep *p, const lf_cost_rows *costs, double rate,
                      const lf_err *fit, lf_err *err)
{
    json_t *rows = json_array();
    for (size_t i = 0, at = 0; i < p->view.n; i++)
        json_array_append_new(rows, stage_row(p, &p->view.stages[i], costs, &at, rate));
    if (c->json) {
        json_t *o = json_pack("{s:s, s:s, s:o, s:b}", "name", p->plan->name, "scheduler",
                              p->plan->scheduler, "stages", rows, "fits", fit->rc == 0);
        if (o != NULL && p->has_run)
            json_object_set_new(o, "run", json_string(p->view.run.id));
        if (o != NULL && fit->rc != 0)
            json_object_set_new(o, "refused", json_string(fit->text));
        return lf_cmd_print_json(o, err);
    }
    lf_say("%s: %s\n", p->plan->name,
           p->has_run ? (p->changed ? "continues a run, with changed settings" : "continues a run")
                      : "a new run");
    if (p->has_run)
        printf("  run %s\n", p->view.run.id);
    for (size_t i = 0; i < json_array_size(rows); i++)
        print_row(json_array_get(rows, i));
    json_decref(rows);
    if (fit->rc != 0)
        lf_say("refused: %s\n", fit->text);
    return 0;
}

static int run_plan(lf_cmd *c, lf_err *err)
{
    lf_prep p;
    lf_cost_rows costs = {.n = 0};
    lf_prep_args a = {.pipeline = lf_cmd_word(c, 0) != NULL ? lf_cmd_word(c, 0) : "pipeline.ini",
                      .tables = c->tables,
                      .fresh_run = lf_optset_bool(c->opts, "new"),
                      .exe_missing_ok = true};
    a.sets = sets_of(c, &a.n_sets, err);
    int rc = a.sets == NULL ? LF_ENOMEM : lf_prep_make(&p, &a, err);
    if (rc == 0) {
        double rate =
            lf_optset_is_set(c->opts, "rate") ? (double)lf_optset_int(c->opts, "rate") : 0;
        lf_err fit = LF_ERR_INIT;
        rc = lf_cost_ask(&costs, &p, err);
        if (rc == 0)
            lf_cost_check(&p, &costs, &fit);
        if (rc == 0)
            rc = print_plan(c, &p, &costs, rate, &fit, err);
        if (rc == 0 && fit.rc != 0)
            rc = LF_FLOW_FAILED;
        lf_cost_rows_fini(&costs);
        lf_prep_fini(&p);
    }
    free((void *)(uintptr_t)a.sets);
    return rc;
}

const lf_cmd_def lf_cmd_plan = {
    .table = &plan_table, .words = "[PIPELINE]", .max_words = 1, .run = run_plan};
