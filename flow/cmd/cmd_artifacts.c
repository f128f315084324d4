/* SPDX-License-Identifier: Apache-2.0
 *
 * artifacts: what there is. lineage: which run, data and settings made a file, and what was made
 * from it.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/run/asking.h"
#include "flow/run/provenance.h"
#include "flow/sched/describe.h"

static const lf_opt artifacts_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    {.name = "stage", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "of this stage only"},
    {.name = "all", .type = LF_OPT_BOOL, LF_OPT_COMMAND, .def = "no", .help = "of every run"},
    {.name = "role",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "any",
     .choices = "any|output|checkpoint",
     .help = "of this role only"},
};
LF_CMD_TABLE(artifacts, "what a run made", artifacts_rows);
static const lf_opt lineage_rows[] = {
    LF_CMD_COMMON,
    {.name = "forward",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "what was made from it, instead of what made it"},
};
LF_CMD_TABLE(lineage, "which run, data and settings made this file or artifact?", lineage_rows);

/* ---- artifacts ---- */

static const lf_column artifact_cols[] = {
    {"stage", "STAGE", false, false},    {"name", "NAME", false, false},
    {"kind", "KIND", false, false},      {"size", "SIZE", true, false},
    {"files", "FILES", true, false},     {"path", "PATH", false, false},
    {"run", "RUN", false, true},         {"attempt", "ATTEMPT", true, true},
    {"epoch", "EPOCH", true, true},      {"step", "STEP", true, true},
    {"sha256", "MANIFEST", false, true}, {"gone", "GONE", false, true},
    {"role", "ROLE", false, true},       {"bytes", "BYTES", true, true},
};
static const lf_format artifact_formats[] = {
    {"where", "run,stage,attempt,epoch,name,path"}, {"hash", "name,sha256,path"}, {NULL, NULL}};
static const lf_table artifact_table = {
    artifact_cols, sizeof artifact_cols / sizeof artifact_cols[0], artifact_formats};

struct artifact {
    char *run, *stage;
    lf_int attempt, epoch;
    char *name, *role, *path, *kind, *sha256;
    lf_real bytes, files, step;
    char *spec_id;
    struct json_t *meta;
    lf_real t, gone;
    char size[32];
};
static const struct lf_fields artifact_fields =
    LF_FIELDS_SHOWN(struct artifact,
                    LF_MEMBERS(struct artifact, run, stage, attempt, epoch, name, role, path, kind,
                               sha256, bytes, files, step, spec_id, meta, t, gone),
                    {LF_FIELD_BUF(struct artifact, size, "size"), .opt = true});
typedef LF_ROWS(struct artifact) artifacts;

/* Those of the role stay. */
static void finish_rows(artifacts *l, const char *role)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct artifact *a = &l->v[i];
        if (strcmp(role, "any") != 0 && (a->role == NULL || strcmp(a->role, role) != 0)) {
            lf_fields_fini(a, &artifact_fields);
            continue;
        }
        if (a->bytes.given)
            lf_fmt_bytes(a->size, sizeof a->size, a->bytes.v);
        l->v[n++] = *a;
    }
    l->n = n;
}

static int artifacts_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run run;
    memset(&run, 0, sizeof run);
    bool all = lf_optset_bool(c->opts, "all");
    const char *stage = lf_optset_str(c->opts, "stage");
    int rc = all ? 0 : lf_run_find(&run, p, lf_cmd_word(c, 0), err);
    if (rc == 0 && !all && stage != NULL && lf_run_stage(&run, stage) == NULL)
        rc = lf_fail(err, LF_ENOENT, "run %s has no stage \"%s\"", lf_run_label(&run), stage);
    lf_ledger *l = rc == 0 ? lf_cmd_open_ledger(p, false, err) : NULL;
    if (rc == 0 && l == NULL)
        rc = err->rc;
    artifacts rows = {.n = 0};
    if (rc == 0)
        rc = lf_fields_list(&rows, &artifact_fields,
                            lf_ledger_artifacts(l, all ? NULL : run.id, stage, err), err);
    if (rc == 0) {
        finish_rows(&rows, lf_optset_str(c->opts, "role"));
        rc = lf_cmd_rows(c, &rows, &artifact_fields, &artifact_table, err);
    }
    lf_fields_list_fini(&rows, &artifact_fields);
    lf_ledger_close(l);
    lf_run_fini(&run);
    return rc;
}

static int run_artifacts(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, artifacts_of, err);
}

const lf_cmd_def lf_cmd_artifacts = {
    .table = &artifacts_table, .words = "[RUN]", .max_words = 1, .run = run_artifacts};

/* ---- lineage ---- */

static void indent(int depth)
{
    for (int i = 0; i < depth; i++)
        fputs("  ", stdout);
}

/* What made an artifact, up the chain. */
struct maker {
    bool given;
    char *run, *stage;
    lf_int attempt, epoch;
    char *kind, *spec_id, *exe_sha256;
    lf_pairs options;
    lf_pairs made_of; /* what its run knows: flow/run/provenance.h */
};
struct lineage {
    struct artifact artifact;
    struct maker made_by;
    LF_ROWS(struct lineage_input) inputs;
    struct lineage *from; /* of the checkpoint that its start continued from */
};
struct lineage_input {
    char *name, *path, *sha256;
    struct lineage *lineage; /* NULL: from outside */
};
static const struct lf_fields maker_fields = {
    LF_FIELDS_TABLE(struct maker, offsetof(struct maker, given), LF_FIELD_NONE,
                    LF_MEMBERS(struct maker, run, stage, attempt, epoch, kind, spec_id, exe_sha256,
                               options, made_of)),
    .sparse = true};
static const struct lf_fields lineage_fields;
static const struct lf_fields input_fields =
    LF_FIELDS_SHOWN(struct lineage_input, LF_MEMBERS(struct lineage_input, name, path, sha256),
                    {LF_FIELD_SUB(struct lineage_input, lineage, LF_FIELD_PART, &lineage_fields)});
static const struct lf_fields lineage_fields = LF_FIELDS_SHOWN(
    struct lineage, LF_RECORD(struct lineage, artifact, artifact_fields),
    LF_RECORD(struct lineage, made_by, maker_fields), LF_LIST(struct lineage, inputs, input_fields),
    {LF_FIELD_SUB(struct lineage, from, LF_FIELD_PART, &lineage_fields)});

/* What was made from it. */
struct descent {
    struct artifact *artifact; /* NULL: a path outside */
    char *path;
    bool shown; /* it was met before */
    LF_ROWS(struct user) used_by;
};
struct user {
    char *run, *stage;
    lf_int attempt, epoch;
    char *kind, *how;
    LF_ROWS(struct descent) made;
};
static const struct lf_fields descent_fields;
static const struct lf_fields user_fields =
    LF_FIELDS_SHOWN(struct user, LF_MEMBERS(struct user, run, stage, attempt, epoch, kind, how),
                    LF_LIST(struct user, made, descent_fields));
static const struct lf_fields descent_fields = LF_FIELDS_SHOWN(
    struct descent, {LF_FIELD_SUB(struct descent, artifact, LF_FIELD_PART, &artifact_fields)},
    LF_MEMBERS(struct descent, path), LF_MEMBERS_OPT(struct descent, shown),
    LF_LIST(struct descent, used_by, user_fields));

static const char *or_dash(const char *text)
{
    return text != NULL ? text : "-";
}

static void print_maker(const struct maker *by, int depth)
{
    indent(depth);
    lf_say("  made by %s (%s), run %s, attempt %lld, spec %.12s\n", or_dash(by->stage),
           or_dash(by->kind), or_dash(by->run), (long long)by->attempt.v, or_dash(by->spec_id));
    for (size_t i = 0; i < by->options.n; i++) {
        indent(depth);
        lf_say("    %s = %s\n", by->options.v[i].name, by->options.v[i].value);
    }
    for (size_t i = 0; i < by->made_of.n; i++) {
        indent(depth);
        lf_say("    %s: %s\n", by->made_of.v[i].name, by->made_of.v[i].value);
    }
}

/* ", ended at 812 of 2,000" of a result that did, else "". */
static const char *ended(char *buf, size_t cap, const struct artifact *a)
{
    char text[200];
    const struct lf_output o = {.name = a->path, .meta = a->meta};
    buf[0] = '\0';
    if (lf_output_short_text(text, sizeof text, &o) != NULL)
        snprintf(buf, cap, ", %s", text);
    return buf;
}

static void print_back(const struct lineage *o, int depth)
{
    char end[220];
    if (depth > 64)
        return;
    indent(depth);
    lf_say("%s%s\n", or_dash(o->artifact.path), ended(end, sizeof end, &o->artifact));
    if (o->made_by.given)
        print_maker(&o->made_by, depth);
    for (size_t i = 0; i < o->inputs.n; i++) {
        const struct lineage_input *in = &o->inputs.v[i];
        indent(depth);
        lf_say("  %s:\n", or_dash(in->name));
        if (in->lineage != NULL) {
            print_back(in->lineage, depth + 2);
        } else {
            indent(depth + 2);
            lf_say("%s  sha256 %.16s\n", or_dash(in->path), or_dash(in->sha256));
        }
    }
    if (o->from != NULL) {
        indent(depth);
        printf("  continued from:\n");
        print_back(o->from, depth + 2);
    }
}

static void print_forward(const struct descent *o, int depth)
{
    if (depth > 64)
        return;
    indent(depth);
    lf_say("%s%s\n", or_dash(o->artifact != NULL ? o->artifact->path : o->path),
           o->shown ? "  (see above)" : "");
    for (size_t i = 0; i < o->used_by.n; i++) {
        const struct user *u = &o->used_by.v[i];
        indent(depth);
        lf_say("  %s %s (%s), run %s, attempt %lld, epoch %lld%s\n",
               strcmp(or_dash(u->how), "input") == 0 ? "read by" : "continued by",
               or_dash(u->stage), or_dash(u->kind), or_dash(u->run), (long long)u->attempt.v,
               (long long)u->epoch.v, u->made.n == 0 ? ", which made nothing" : "");
        for (size_t k = 0; k < u->made.n; k++)
            print_forward(&u->made.v[k], depth + 2);
    }
    if (o->used_by.n == 0 && !o->shown) {
        indent(depth);
        printf("  nothing was made from it\n");
    }
}

/* Of a run that is gone the ledger has the settings alone. */
static int add_made_of(struct maker *by, const lf_project *p, lf_err *err)
{
    lf_run_view v;
    lf_provenance from;
    if (!by->given || by->run == NULL || by->stage == NULL ||
        lf_view_find(&v, p, by->run, NULL) < 0)
        return 0;
    const lf_stage_view *s = lf_view_stage(&v, by->stage);
    int rc = s != NULL ? lf_provenance_load(&from, &v, s, err) : 0;
    if (rc == 0 && s != NULL) {
        rc = lf_provenance_words(&by->made_of, &from, &v, s, err);
        lf_provenance_fini(&from);
    }
    lf_view_fini(&v);
    return rc;
}

/* Of everything on the way. */
static int add_all_made_of(struct lineage *o, const lf_project *p, int depth, lf_err *err)
{
    int rc = depth > 64 ? 0 : add_made_of(&o->made_by, p, err);
    for (size_t i = 0; rc == 0 && depth <= 64 && i < o->inputs.n; i++)
        if (o->inputs.v[i].lineage != NULL)
            rc = add_all_made_of(o->inputs.v[i].lineage, p, depth + 1, err);
    return rc == 0 && depth <= 64 && o->from != NULL ? add_all_made_of(o->from, p, depth + 1, err)
                                                     : rc;
}

static int show_back(const lf_cmd *c, const lf_project *p, lf_ledger *l, const char *what,
                     lf_err *err)
{
    struct lineage o;
    int rc = lf_fields_take(&o, &lineage_fields, lf_ledger_lineage(l, what, err), err);
    if (rc < 0)
        return rc;
    lf_err e = LF_ERR_INIT;
    if (add_all_made_of(&o, p, 0, &e) < 0)
        lf_say_err("loong-flow: what made it is not known in full: %s\n", e.text);
    if (c->json)
        rc = lf_cmd_print(&o, &lineage_fields, err);
    else
        print_back(&o, 0);
    lf_fields_fini(&o, &lineage_fields);
    return rc;
}

static int show_forward(const lf_cmd *c, lf_ledger *l, const char *what, lf_err *err)
{
    struct descent o;
    int rc = lf_fields_take(&o, &descent_fields, lf_ledger_descent(l, what, err), err);
    if (rc < 0)
        return rc;
    if (c->json)
        rc = lf_cmd_print(&o, &descent_fields, err);
    else
        print_forward(&o, 0);
    lf_fields_fini(&o, &descent_fields);
    return rc;
}

static int lineage_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    bool forward = lf_optset_bool(c->opts, "forward");
    if (c->n_words != 1)
        return lf_fail(err, LF_EINVAL, "usage: loong-flow lineage PATH-OR-HASH");
    char *what = lf_ask_path(p, c->words[0], err);
    lf_ledger *l = what != NULL ? lf_cmd_open_ledger(p, false, err) : NULL;
    int rc = l == NULL ? err->rc
             : forward ? show_forward(c, l, what, err)
                       : show_back(c, p, l, what, err);
    lf_ledger_close(l);
    free(what);
    return rc;
}

static int run_lineage(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, lineage_of, err);
}

const lf_cmd_def lf_cmd_lineage = {
    .table = &lineage_table, .words = "PATH", .max_words = 1, .run = run_lineage};
