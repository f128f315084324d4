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

static void finish_rows(json_t *rows, const char *role)
{
    for (size_t i = json_array_size(rows); i-- > 0;) {
        char b[32];
        json_t *r = json_array_get(rows, i), *bytes = json_object_get(r, "bytes");
        const char *its = json_string_value(json_object_get(r, "role"));
        if (strcmp(role, "any") != 0 && (its == NULL || strcmp(its, role) != 0))
            json_array_remove(rows, i);
        else if (json_is_number(bytes))
            json_object_set_new(r, "size",
                                json_string(lf_fmt_bytes(b, sizeof b, json_number_value(bytes))));
    }
}

static int artifacts_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run run;
    memset(&run, 0, sizeof run);
    bool all = lf_optset_bool(c->opts, "all");
    const char *stage = lf_optset_str(c->opts, "stage");
    int rc = all ? 0 : lf_run_find(&run, p, lf_cmd_word(c, 0), err);
    if (rc == 0 && !all && stage != NULL && lf_run_stage(&run, stage) == NULL)
        rc = lf_fail(err, LF_ENOENT, "run %s has no stage \"%s\"", run.id, stage);
    lf_ledger *l = rc == 0 ? lf_cmd_open_ledger(p, false, err) : NULL;
    if (rc == 0 && l == NULL)
        rc = err->rc;
    if (rc == 0) {
        json_t *rows = lf_ledger_artifacts(l, all ? NULL : run.id, stage, err);
        finish_rows(rows, lf_optset_str(c->opts, "role"));
        rc = lf_cmd_rows(c, rows, &artifact_table, err);
    }
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

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "-";
}

static void print_maker(const json_t *by, int depth)
{
    json_t *options = json_object_get(by, "options"), *v;
    const char *k;
    indent(depth);
    lf_say("  made by %s (%s), run %s, attempt %lld, spec %.12s\n", str(by, "stage"),
           str(by, "kind"), str(by, "run"),
           (long long)json_integer_value(json_object_get(by, "attempt")), str(by, "spec_id"));
    json_object_foreach(options, k, v)
    {
        char *text = json_is_string(v) ? lf_strdup(json_string_value(v), NULL)
                                       : json_dumps(v, JSON_ENCODE_ANY);
        indent(depth);
        lf_say("    %s = %s\n", k, text != NULL ? text : "");
        free(text);
    }
}

static void print_back(const json_t *o, int depth)
{
    const json_t *by = json_object_get(o, "made_by");
    json_t *inputs = json_object_get(o, "inputs");
    if (depth > 64)
        return;
    indent(depth);
    lf_say("%s\n", str(json_object_get(o, "artifact"), "path"));
    if (json_is_object(by))
        print_maker(by, depth);
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i), *up = json_object_get(in, "lineage");
        indent(depth);
        lf_say("  %s:\n", str(in, "name"));
        if (json_is_object(up)) {
            print_back(up, depth + 2);
        } else {
            indent(depth + 2);
            lf_say("%s  sha256 %.16s\n", str(in, "path"), str(in, "sha256"));
        }
    }
    if (json_is_object(json_object_get(o, "from"))) {
        indent(depth);
        printf("  continued from:\n");
        print_back(json_object_get(o, "from"), depth + 2);
    }
}

static void print_forward(const json_t *o, int depth)
{
    json_t *users = json_object_get(o, "used_by");
    if (depth > 64)
        return;
    indent(depth);
    lf_say("%s%s\n",
           json_is_object(json_object_get(o, "artifact"))
               ? str(json_object_get(o, "artifact"), "path")
               : str(o, "path"),
           json_is_true(json_object_get(o, "shown")) ? "  (see above)" : "");
    for (size_t i = 0; i < json_array_size(users); i++) {
        const json_t *u = json_array_get(users, i);
        json_t *made = json_object_get(u, "made");
        indent(depth);
        lf_say("  %s %s (%s), run %s, attempt %lld, epoch %lld%s\n",
               strcmp(str(u, "how"), "input") == 0 ? "read by" : "continued by", str(u, "stage"),
               str(u, "kind"), str(u, "run"),
               (long long)json_integer_value(json_object_get(u, "attempt")),
               (long long)json_integer_value(json_object_get(u, "epoch")),
               json_array_size(made) == 0 ? ", which made nothing" : "");
        for (size_t k = 0; k < json_array_size(made); k++)
            print_forward(json_array_get(made, k), depth + 2);
    }
    if (json_array_size(users) == 0 && !json_is_true(json_object_get(o, "shown"))) {
        indent(depth);
        printf("  nothing was made from it\n");
    }
}

static int lineage_of(lf_cmd *c, const lf_project *p, lf_err *err)
{
    bool forward = lf_optset_bool(c->opts, "forward");
    if (c->n_words != 1)
        return lf_fail(err, LF_EINVAL, "usage: loong-flow lineage PATH-OR-HASH");
    char *what = lf_ask_path(p, c->words[0], err);
    lf_ledger *l = what != NULL ? lf_cmd_open_ledger(p, false, err) : NULL;
    json_t *o = l == NULL ? NULL
                : forward ? lf_ledger_descent(l, what, err)
                          : lf_ledger_lineage(l, what, err);
    int rc = o == NULL ? (err->rc != 0 ? err->rc : LF_EIO) : 0;
    if (rc == 0 && c->json)
        rc = lf_cmd_print_json(json_incref(o), err);
    else if (rc == 0 && forward)
        print_forward(o, 0);
    else if (rc == 0)
        print_back(o, 0);
    json_decref(o);
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
