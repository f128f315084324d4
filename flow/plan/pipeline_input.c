/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs of a stage: options whose row says LF_OPT_INPUT. A value holds references ${stage:NAME} or
 * ${stage:NAME.output}, or names files of the outside world, which must exist when the pipeline is
 * read.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"

/* One value of an option, while it is understood. */
struct value {
    const lf_reading *r;
    const lf_opt *o;
    const lf_conf_item *it; /* where it stands */
    const char *text;
};

const lf_conf_item *lf_pipeline_option(const lf_pipeline *p, const lf_doc_stage *stage,
                                       const char *option)
{
    char section[128];
    /* A stage of a child of a sweep is written under its name without the child. */
    snprintf(section, sizeof section, "stage %.*s", (int)strcspn(stage->name, "@"), stage->name);
    const lf_conf_item *it = lf_conf_find(&p->conf, section, option);
    if (it == NULL)
        it = lf_layout_option(&p->conf, section, option);
    if (it != NULL)
        return it;
    snprintf(section, sizeof section, "kind %s", stage->kind);
    it = lf_conf_find(&p->conf, section, option);
    return it != NULL || !lf_resource_key(option) ? it
                                                  : lf_conf_find(&p->conf, "resources", option);
}

static int check_output(const lf_conf_item *it, const lf_opt_table *t, const char *stage,
                        const char *output, lf_err *err)
{
    size_t n = 0;
    for (; t->outputs != NULL && t->outputs[n] != NULL; n++)
        if (strcmp(t->outputs[n], output) == 0)
            return 0;
    const char *near = lf_nearest(output, t->outputs, n);
    if (near != NULL)
        return lf_conf_fail(it, err,
                            "${stage:%s.%s}: stage %s (%s) has no such output; did you mean %s?",
                            stage, output, stage, t->stage, near);
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "", t->outputs[i]);
    int rc = lf_conf_fail(it, err, "${stage:%s.%s}: stage %s (%s) has no such output; it has: %s",
                          stage, output, stage, t->stage, n > 0 ? b.data : "none");
    lf_buf_fini(&b);
    return rc;
}

/* Does the option take what this output is? A path below the output is the stage's business. */
static int check_taken(const struct value *v, const lf_opt_table *t, const char *stage,
                       const char *output, lf_err *err)
{
    if (lf_opt_takes(v->o, output))
        return 0;
    const char *better = NULL;
    for (size_t i = 0; better == NULL && t->outputs[i] != NULL; i++)
        if (lf_opt_takes(v->o, t->outputs[i]))
            better = t->outputs[i];
    lf_buf b;
    lf_buf_init(&b);
    for (const char *p = v->o->takes; *p != '\0'; p++)
        lf_buf_adds(&b, *p == '|' ? " or " : (char[]){*p, '\0'});
    if (better != NULL)
        lf_buf_addf(&b, "; did you mean ${stage:%s.%s}?", stage, better);
    int rc =
        lf_conf_fail(v->it, err, "%s = ${stage:%s.%s}: the %s of stage %s is not what it takes: %s",
                     v->o->name, stage, output, output, stage, b.data);
    lf_buf_fini(&b);
    return rc;
}

static int no_such_stage(const lf_pipeline *p, const lf_conf_item *it, const char *name,
                         lf_err *err)
{
    const char *names[512];
    size_t n = 0;
    for (size_t i = 0; i < p->conf.n_sections && n < 512; i++)
        if (lf_str_has_prefix(p->conf.sections[i].name, "stage "))
            names[n++] = p->conf.sections[i].name + strlen("stage ");
    const char *near = lf_nearest(name, names, n);
    if (near != NULL)
        return lf_conf_fail(it, err, "${stage:%s}: there is no [stage %s]; did you mean %s?", name,
                            name, near);
    return lf_conf_fail(it, err, "${stage:%s}: there is no [stage %s]", name, name);
}

/* "${stage:NAME.out}": the border is the first dot, names of stages have none. */
static int parse_ref(lf_doc_input *in, const struct value *v, const char *text, size_t len,
                     lf_err *err)
{
    const lf_conf *c = &v->r->p->conf;
    char name[128], section[160];
    if (len == 0 || len >= sizeof name)
        return lf_conf_fail(v->it, err, "${stage:...}: not a stage");
    memcpy(name, text, len);
    name[len] = '\0';
    char *dot = strchr(name, '.');
    if (dot != NULL)
        *dot = '\0';
    snprintf(section, sizeof section, "stage %s", name);
    if (lf_conf_find_section(c, section) == NULL)
        return no_such_stage(v->r->p, v->it, name, err);
    const lf_conf_item *kind = lf_conf_find(c, section, "kind");
    const lf_opt_table *t = kind != NULL ? lf_table_find(v->r->args->tables, kind->value) : NULL;
    if (t == NULL)
        return lf_conf_fail(v->it, err, "${stage:%s}: that stage has no valid kind", name);
    if (t->outputs == NULL || t->outputs[0] == NULL)
        return lf_conf_fail(v->it, err, "${stage:%s}: stages of kind %s have no outputs", name,
                            t->stage);
    const char *output = dot != NULL ? dot + 1 : t->outputs[0];
    int rc = check_output(v->it, t, name, output, err);
    if (rc == 0 && text[len + 1] == '\0')
        rc = check_taken(v, t, name, output, err);
    lf_doc_ref *ref = rc == 0 ? lf_rows_add(&in->refs, sizeof *ref, err) : NULL;
    if (ref == NULL)
        return rc < 0 ? rc : LF_ENOMEM;
    rc = lf_text_set(&ref->stage, name, "stage", err);
    return rc == 0 ? lf_text_set(&ref->output, output, "output", err) : rc;
}

static int parse_refs(lf_doc_input *in, const struct value *v, lf_err *err)
{
    in->refs.given = true;
    for (const char *d = strstr(v->text, "${stage:"); d != NULL; d = strstr(d + 1, "${stage:")) {
        const char *name = d + strlen("${stage:"), *close = strchr(name, '}');
        if (close == NULL)
            return lf_conf_fail(v->it, err, "\"%.40s\": the reference has no closing brace", d);
        int rc = parse_ref(in, v, name, (size_t)(close - name), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Words that the row of a path option allows besides paths are the stage's business. */
static bool is_word(const lf_opt *o, const char *text)
{
    return o->type != LF_OPT_PATH || lf_opt_choice_index(o, text) >= 0;
}

/* Shards are artifacts of ours and nothing else; a checkpoint may also be somebody's files. */
static int check_shards(const struct value *v, const char *path, bool there, lf_err *err)
{
    char below[PATH_MAX];
    lf_artifact a = {0};
    lf_err e = LF_ERR_INIT;
    if (there && lf_artifact_load(&a, path, NULL, &e) < 0)
        return lf_conf_fail(v->it, err, "%s = %s: %s", v->o->name, v->text, e.text);
    int rc =
        !there || strcmp(a.kind, "shards") == 0
            ? 0
            : lf_conf_fail(v->it, err,
                           "%s = %s: that is an artifact of kind %s, needed is one of kind shards",
                           v->o->name, v->text, a.kind);
    lf_artifact_fini(&a);
    if (there)
        return rc;
    bool inside = lf_path_set(below, NULL, "%s/shards/" LF_ARTIFACT_MANIFEST, path) == 0 &&
                  lf_io_exists(below);
    return lf_conf_fail(
        v->it, err, "%s = %s: no finished shards are there (no " LF_ARTIFACT_MANIFEST "); %s%s%s",
        v->o->name, v->text, inside ? "did you mean " : "name the directory ",
        inside ? v->text : "`shards` that a tokenize or convert stage made",
        inside ? "/shards?" : "");
}

/* What a stage made, given by its path alone, must be whole: a run finds out late. Contents are
 * compared with their hashes when the stage reads them. */
static int check_artifact(const struct value *v, const char *path, lf_err *err)
{
    enum lf_artifact_state state;
    lf_err why = LF_ERR_INIT;
    if (v->o->takes == NULL || lf_artifact_state(&state, path, &why) < 0)
        return 0; /* the stage knows what it needs and says why it cannot have it */
    if (state == LF_ARTIFACT_PURGED || state == LF_ARTIFACT_BROKEN)
        return lf_conf_fail(v->it, err, "%s = %s: it is damaged: %s; restore it, or make it again",
                            v->o->name, v->text, why.text);
    return strcmp(v->o->takes, "shards") == 0
               ? check_shards(v, path, state == LF_ARTIFACT_PRESENT, err)
               : 0;
}

/* What was meant in the place of a path that is not there: an output, where NAME.OUTPUT is one, or
 * the value without what else it holds. */
static const char *hint_of(char *buf, size_t cap, const struct value *v)
{
    char section[160];
    const lf_conf *c = &v->r->p->conf;
    const size_t name = strcspn(v->text, ".");
    snprintf(section, sizeof section, "stage %.*s", (int)(name < 128 ? name : 128), v->text);
    const char *kind = lf_conf_get(c, section, "kind", NULL);
    const lf_opt_table *t = kind != NULL ? lf_table_find(v->r->args->tables, kind) : NULL;
    bool has = t == NULL || v->text[name] != '.';
    for (size_t i = 0; !has && t->outputs != NULL && t->outputs[i] != NULL; i++)
        has = strcmp(t->outputs[i], v->text + name + 1) == 0;
    const char *hint = has ? lf_stage_hint(buf, cap, c, v->text) : "";
    return hint[0] != '\0' ? hint : lf_value_hint(v->text);
}

/* A file, a directory, or a pattern that matches something. */
static int check_outside(const struct value *v, lf_err *err)
{
    if (is_word(v->o, v->text))
        return 0;
    if (strcmp(v->text, "-") == 0)
        return lf_conf_fail(v->it, err, "%s = -: a pipeline has no standard input; name a file",
                            v->o->name);
    lf_err e = LF_ERR_INIT;
    if (lf_path_plain(v->text, v->o->name, &e) < 0)
        return lf_conf_fail(v->it, err, "%s", e.text);
    lf_buf b;
    lf_buf_init(&b);
    if (v->text[0] != '/')
        lf_buf_addf(&b, "%s/", v->r->p->project);
    lf_buf_adds(&b, v->text);
    int rc = 0;
    if (lf_io_exists(b.data)) {
        if (faccessat(AT_FDCWD, b.data, R_OK, AT_EACCESS) != 0)
            rc = lf_conf_fail(v->it, err, "%s = %s: it cannot be read: %s", v->o->name, v->text,
                              strerror(errno));
        else
            rc = check_artifact(v, b.data, err);
    } else {
        glob_t g;
        memset(&g, 0, sizeof g);
        char hint[200];
        if (strpbrk(v->text, "*?[") == NULL)
            rc = lf_conf_fail(v->it, err, "%s = %s: there is no such file or directory%s",
                              v->o->name, v->text, hint_of(hint, sizeof hint, v));
        else if (glob(b.data, GLOB_NOSORT, NULL, &g) != 0)
            rc = lf_conf_fail(v->it, err, "%s = %s: no file matches", v->o->name, v->text);
        globfree(&g);
    }
    lf_buf_fini(&b);
    return rc;
}

static int one_input(lf_doc_stage *stage, const struct value *v, size_t index, lf_err *err)
{
    lf_doc_input *in = lf_rows_add(&stage->inputs, sizeof *in, err);
    int rc = in == NULL ? LF_ENOMEM : lf_text_set(&in->option, v->o->name, "option", err);
    if (rc == 0)
        rc = lf_text_set(&in->text, v->text, "text", err);
    if (rc == 0)
        rc = parse_refs(in, v, err);
    if (rc == 0 && in->refs.n == 0)
        rc = check_outside(v, err);
    if (rc < 0)
        return rc;
    in->index = lf_int_of((int64_t)index);
    in->identity = lf_flag_of(v->o->cls == LF_OPT_IDENTITY);
    in->word = lf_flag_of(is_word(v->o, v->text));
    return 0;
}

int lf_pipeline_inputs(lf_doc_stage *stage, const lf_reading *r, const lf_opt_table *table,
                       lf_err *err)
{
    int rc = 0;
    stage->inputs.given = true;
    for (size_t k = 0; rc == 0 && k < stage->options.n; k++) {
        const lf_list *values = &stage->options.v[k];
        struct value v = {.r = r,
                          .o = lf_opt_find(table, values->name),
                          .it = lf_pipeline_option(r->p, stage, values->name)};
        for (size_t i = 0; rc == 0 && i < values->values.n; i++) {
            v.text = values->values.v[i];
            if ((v.o->flags & LF_OPT_INPUT) != 0)
                rc = lf_reading_note(r, one_input(stage, &v, i, err), err);
            else if (strstr(v.text, "${stage:") != NULL)
                rc = lf_reading_note(
                    r,
                    lf_conf_fail(
                        v.it, err,
                        "%s = %s: outputs of stages can only be given to options that are inputs",
                        values->name, v.text),
                    err);
        }
    }
    return rc;
}
