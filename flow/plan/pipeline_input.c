/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs of a stage: options whose row says LF_OPT_INPUT. A value holds references ${stage:NAME} or
 * ${stage:NAME.output}, or names files of the outside world, which must exist when the pipeline is
 * read.
 */
#include "config.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"

static lf_conf_item *item_of(const lf_pipeline *p, const json_t *stage, const char *option)
{
    char section[128];
    snprintf(section, sizeof section, "stage %s",
             json_string_value(json_object_get(stage, "name")));
    lf_conf_item *it = lf_conf_find(&p->conf, section, option);
    if (it != NULL)
        return it;
    snprintf(section, sizeof section, "kind %s", json_string_value(json_object_get(stage, "kind")));
    return lf_conf_find(&p->conf, section, option);
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
static int parse_ref(json_t *refs, const lf_pipeline *p, const lf_pipeline_args *args,
                     const lf_conf_item *it, const char *text, size_t len, lf_err *err)
{
    char name[128], section[160];
    if (len == 0 || len >= sizeof name)
        return lf_conf_fail(it, err, "${stage:...}: not a stage");
    memcpy(name, text, len);
    name[len] = '\0';
    char *dot = strchr(name, '.');
    if (dot != NULL)
        *dot = '\0';
    snprintf(section, sizeof section, "stage %s", name);
    if (lf_conf_find_section(&p->conf, section) == NULL)
        return no_such_stage(p, it, name, err);
    const lf_conf_item *kind = lf_conf_find(&p->conf, section, "kind");
    const lf_opt_table *t = kind != NULL ? lf_table_find(args->tables, kind->value) : NULL;
    if (t == NULL)
        return lf_conf_fail(it, err, "${stage:%s}: that stage has no valid kind", name);
    if (t->outputs == NULL || t->outputs[0] == NULL)
        return lf_conf_fail(it, err, "${stage:%s}: stages of kind %s have no outputs", name,
                            t->stage);
    const char *output = dot != NULL ? dot + 1 : t->outputs[0];
    int rc = check_output(it, t, name, output, err);
    if (rc < 0)
        return rc;
    return lf_json_push_new(refs, json_pack("{s:s, s:s}", "stage", name, "output", output), err);
}

static int parse_refs(json_t *refs, const lf_pipeline *p, const lf_pipeline_args *args,
                      const lf_conf_item *it, const char *text, lf_err *err)
{
    for (const char *d = strstr(text, "${stage:"); d != NULL; d = strstr(d + 1, "${stage:")) {
        const char *name = d + strlen("${stage:"), *close = strchr(name, '}');
        if (close == NULL)
            return lf_conf_fail(it, err, "\"%.40s\": the reference has no closing brace", d);
        int rc = parse_ref(refs, p, args, it, name, (size_t)(close - name), err);
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

/* A file, a directory, or a pattern that matches something. */
static int check_outside(const lf_pipeline *p, const lf_conf_item *it, const lf_opt *o,
                         const char *text, lf_err *err)
{
    if (is_word(o, text))
        return 0;
    if (strcmp(text, "-") == 0)
        return lf_conf_fail(it, err, "%s = -: a pipeline has no standard input; name a file",
                            o->name);
    lf_err e = LF_ERR_INIT;
    if (lf_path_plain(text, o->name, &e) < 0)
        return lf_conf_fail(it, err, "%s", e.text);
    lf_buf b;
    lf_buf_init(&b);
    if (text[0] != '/')
        lf_buf_addf(&b, "%s/", p->project);
    lf_buf_adds(&b, text);
    int rc = 0;
    if (!lf_io_exists(b.data)) {
        glob_t g;
        memset(&g, 0, sizeof g);
        if (strpbrk(text, "*?[") == NULL)
            rc =
                lf_conf_fail(it, err, "%s = %s: there is no such file or directory", o->name, text);
        else if (glob(b.data, GLOB_NOSORT, NULL, &g) != 0)
            rc = lf_conf_fail(it, err, "%s = %s: no file matches", o->name, text);
        globfree(&g);
    }
    lf_buf_fini(&b);
    return rc;
}

static int one_input(json_t *inputs, const lf_pipeline *p, const lf_pipeline_args *args,
                     const lf_conf_item *it, const lf_opt *o, size_t index, const char *text,
                     lf_err *err)
{
    json_t *refs = json_array();
    if (refs == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = parse_refs(refs, p, args, it, text, err);
    if (rc == 0 && json_array_size(refs) == 0)
        rc = check_outside(p, it, o, text, err);
    if (rc == 0)
        rc = lf_json_push_new(inputs,
                              json_pack("{s:s, s:i, s:s, s:O, s:b, s:b}", "option", o->name,
                                        "index", (int)index, "text", text, "refs", refs, "identity",
                                        o->cls == LF_OPT_IDENTITY, "word", (int)is_word(o, text)),
                              err);
    json_decref(refs);
    return rc;
}

int lf_pipeline_inputs(json_t *stage, const lf_pipeline *p, const lf_pipeline_args *args,
                       const lf_opt_table *table, lf_err *err)
{
    json_t *inputs = json_array(), *values;
    int rc = lf_json_set_new(stage, "inputs", inputs, err);
    const char *name;
    json_object_foreach(json_object_get(stage, "options"), name, values)
    {
        const lf_opt *o = lf_opt_find(table, name);
        const lf_conf_item *it = item_of(p, stage, name);
        for (size_t i = 0; rc == 0 && i < json_array_size(values); i++) {
            const char *text = json_string_value(json_array_get(values, i));
            if ((o->flags & LF_OPT_INPUT) != 0)
                rc = one_input(inputs, p, args, it, o, i, text, err);
            else if (strstr(text, "${stage:") != NULL)
                rc = lf_conf_fail(
                    it, err,
                    "%s = %s: outputs of stages can only be given to options that are inputs", name,
                    text);
        }
    }
    return rc;
}
