/* SPDX-License-Identifier: Apache-2.0
 *
 * Results and samples of tasks of requests in the form of lm-evaluation-harness
 * (evaluator_utils.py, api/group.py).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/infer/tasks_metrics.h"

/* Numbers that JSON does not have are text, as N/A is. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v)
                       : json_string(isnan(v) ? "NaN"
                                     : v > 0  ? "Infinity"
                                              : "-Infinity");
}

static void put(json_t *o, const char *metric, const char *suffix, const char *filter, json_t *v)
{
    char key[256];
    snprintf(key, sizeof key, "%s%s,%s", metric, suffix, filter);
    json_object_set_new(o, key, v);
}

/* ---- samples --------------------------------------------------------------------------------- */

static json_t *metric_json(const eval_metric_def *m, const lf_pair *v)
{
    if (m->id == EVAL_F1 || m->id == EVAL_WORDS || m->id == EVAL_BYTES)
        return json_pack("[f,f]", v->a, v->b);
    return json_real(v->a);
}

/* {"gen_args_0": {"arg_0": ..., "arg_1": ...}, ...} */
static json_t *arguments_of(json_t *requests)
{
    json_t *all = json_object(), *q;
    size_t i;
    json_array_foreach(requests, i, q)
    {
        char key[32];
        json_t *second = json_object_get(q, "cont"),
               *args = json_pack("{s:O}", "arg_0", json_object_get(q, "ctx"));
        snprintf(key, sizeof key, "gen_args_%zu", i);
        second = second ? second : json_object_get(q, "gen");
        if (second)
            json_object_set(args, "arg_1", second);
        json_object_set_new(all, key, args);
    }
    return all;
}

/* What the model answered to request i: ["ll", "greedy"], "ll", or a text. */
static json_t *answer(int type, json_t *line, size_t i)
{
    char ll[40];
    snprintf(ll, sizeof ll, "%.17g",
             json_number_value(json_array_get(json_object_get(line, "ll"), i)));
    if (type == LF_OUT_ROLLING)
        return json_string(ll);
    return json_pack(
        "[s,s]", ll,
        json_integer_value(json_array_get(json_object_get(line, "greedy"), i)) ? "True" : "False");
}

static json_t *sample_json(const eval_task *k, const eval_doc *d, const eval_defs *defs, size_t f,
                           json_t *line, const lf_pair *v, json_t *filtered)
{
    static const char *const copied[] = {"doc", "target", "doc_hash", "prompt_hash", "target_hash"};
    int type = lf_output_type_of(k);
    json_t *doc = json_object_get(json_array_get(d->requests, 0), "doc");
    json_t *o = json_pack("{s:I,s:o,s:s}", "doc_id", (json_int_t)d->id, "arguments",
                          arguments_of(d->requests), "filter", defs->filters[f].name);
    json_t *resps = json_array(), *kept = json_array(), *metrics = json_array();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (json_object_get(doc, copied[i]))
            json_object_set(o, copied[i], json_object_get(doc, copied[i]));
    if (type == LF_OUT_CHOICE && !json_object_get(o, "target"))
        json_object_set(o, "target", json_object_get(doc, "gold"));
    for (size_t i = 0; type != LF_OUT_GENERATE && i < json_array_size(d->requests); i++) {
        json_array_append_new(resps, json_pack("[o]", answer(type, line, i)));
        json_array_append_new(kept, answer(type, line, i));
    }
    if (type == LF_OUT_GENERATE) {
        json_array_extend(resps, json_object_get(line, "resps"));
        json_array_append(kept, filtered);
    }
    for (size_t m = 0; m < defs->n_metrics; m++) {
        json_array_append_new(metrics, json_string(defs->metrics[m].name));
        json_object_set_new(o, defs->metrics[m].name, metric_json(&defs->metrics[m], &v[m]));
    }
    json_object_set_new(o, "resps", resps);
    json_object_set_new(o, "filtered_resps", kept);
    json_object_set_new(o, "metrics", metrics);
    return o;
}

static int add_sample(lf_buf *out, json_t *sample, lf_err *err)
{
    char *text =
        sample ? json_dumps(sample, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(sample);
    if (!text)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    lf_buf_adds(out, text);
    lf_buf_addc(out, '\n');
    free(text);
    return lf_buf_check(out, err);
}

static int write_samples(const char *dir, const char *task, const lf_buf *text, lf_err *err)
{
    char name[300];
    snprintf(name, sizeof name, "samples_%.255s.jsonl", task);
    for (char *c = name; *c; c++)
        *c = *c == '/' ? '_' : *c;
    char *path = lf_path_join(dir, name, err);
    int rc = path ? lf_io_replace(path, text->data, text->len, 0640, err) : LF_ENOMEM;
    free(path);
    return rc;
}

/* ---- one task -------------------------------------------------------------------------------- */

/* A task with its answers and what they are measured by. */
struct measured {
    const lf_tasks *t;
    const eval_task *k;
    json_t *const *lines;
    const eval_defs *defs;
};

/* Values of every document under one filter: out[m * n + doc]. */
static int filter_values(const struct measured *w, size_t f, lf_pair *out, lf_buf *samples,
                         lf_err *err)
{
    const eval_task *k = w->k;
    const eval_defs *defs = w->defs;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < k->n_docs; i++) {
        const eval_doc *d = &w->t->docs[k->first_doc + i];
        json_t *line = w->lines[k->first_doc + i], *filtered;
        const struct lf_eval_answer a = {.type = lf_output_type_of(k),
                                         .doc =
                                             json_object_get(json_array_get(d->requests, 0), "doc"),
                                         .line = line};
        lf_pair v[EVAL_MAX_DEFS] = {{0, 0}};
        rc = lf_eval_values(defs, f, &a, v, &filtered, err);
        for (size_t m = 0; m < defs->n_metrics; m++)
            out[m * k->n_docs + i] = v[m];
        if (rc == 0 && samples)
            rc = add_sample(samples, sample_json(k, d, defs, f, line, v, filtered), err);
        json_decref(filtered);
    }
    return rc != 0 ? lf_err_prefix(err, "task '%s'", k->name) : 0;
}

static json_t *task_results(const lf_tasks *t, const eval_task *k, json_t *const *lines,
                            const struct lf_eval_opts *o, const char *dir, lf_err *err)
{
    eval_defs defs;
    lf_buf samples;
    json_t *res = json_pack("{s:s,s:s,s:I}", "name", k->name, "alias", k->name, "sample_len",
                            (json_int_t)k->n_docs);
    const char *alias = json_string_value(json_object_get(k->head, "alias"));
    lf_buf_init(&samples);
    int rc = lf_eval_defs_create(&defs, k->head, err);
    lf_pair *v = rc != 0 ? NULL : lf_calloc(k->n_docs * (defs.n_metrics + 1), sizeof *v, err);
    if (alias)
        json_object_set_new(res, "alias", json_string(alias));
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    for (size_t f = 0; rc == 0 && f < defs.n_filters; f++) {
        const struct measured w = {t, k, lines, &defs};
        rc = filter_values(&w, f, v, dir ? &samples : NULL, err);
        for (size_t m = 0; rc == 0 && m < defs.n_metrics; m++) {
            double se;
            bool has = lf_agg_stderr(defs.metrics[m].agg, v + m * k->n_docs, k->n_docs,
                                     o->bootstrap_iters, v + defs.n_metrics * k->n_docs, &se);
            put(res, defs.metrics[m].name, "", defs.filters[f].name,
                number(lf_agg_value(defs.metrics[m].agg, v + m * k->n_docs, k->n_docs)));
            put(res, defs.metrics[m].name, "_stderr", defs.filters[f].name,
                has ? number(se) : json_string("N/A"));
        }
    }
    if (rc == 0 && dir)
        rc = write_samples(dir, k->name, &samples, err);
    lf_eval_defs_destroy(&defs);
    lf_buf_fini(&samples);
    free(v);
    if (rc != 0) {
        json_decref(res);
        return NULL;
    }
    return res;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The mean of one metric under one filter over the tasks that have it. */
static int group_metric(json_t *res, json_t *all, json_t *tasks, const char *metric,
                        const char *filter, bool by_size, lf_err *err)
{
    size_t n = json_array_size(tasks), k = 0, k_se = 0, i;
    double *v = lf_calloc(3 * n + 1, sizeof *v, err), *se = v + n, *size = v + 2 * n;
    char key[256], key_se[256];
    json_t *name;
    if (!v)
        return LF_ENOMEM;
    snprintf(key, sizeof key, "%s,%s", metric, filter);
    snprintf(key_se, sizeof key_se, "%s_stderr,%s", metric, filter);
    json_array_foreach(tasks, i, name)
    {
        json_t *task = json_object_get(all, json_string_value(name)),
               *value = json_object_get(task, key);
        if (!json_is_number(value))
            continue;
        v[k] = json_number_value(value);
        size[k++] = json_number_value(json_object_get(task, "sample_len"));
        if (json_is_number(json_object_get(task, key_se)))
            se[k_se++] = json_number_value(json_object_get(task, key_se));
    }
    if (k > 0) {
        json_object_set_new(res, key, number(lf_group_mean(v, size, k, by_size)));
        json_object_set_new(res, key_se,
                            k_se == k ? number(lf_group_stderr(se, size, k, by_size))
                                      : json_string("N/A"));
    }
    free(v);
    return 0;
}

/* Filters under which any of the tasks has the metric, in the order of their names. */
static json_t *filters_of(json_t *all, json_t *tasks, const char *metric)
{
    json_t *set = json_object(), *list = json_array(), *name, *v;
    const char *key, *best;
    size_t i, len = strlen(metric);
    json_array_foreach(tasks, i, name)
        json_object_foreach(json_object_get(all, json_string_value(name)), key,
                            v) if (strncmp(key, metric, len) == 0 && key[len] == ',')
            json_object_set_new(set, key + len + 1, json_true());
    while (json_object_size(set) > 0) {
        best = NULL;
        json_object_foreach(set, key, v) best = !best || strcmp(key, best) < 0 ? key : best;
        json_array_append_new(list, json_string(best));
        char copy[256];
        snprintf(copy, sizeof copy, "%s", best);
        json_object_del(set, copy);
    }
    json_decref(set);
    return list;
}

static json_t *group_results(json_t *group, json_t *all, lf_err *err)
{
    const char *name = json_string_value(json_object_get(group, "group")), *alias = name;
    json_t *res, *m, *tasks = json_object_get(group, "tasks"), *task;
    size_t i, k;
    double samples = 0;
    int rc = lf_json_get_str(&alias, group, "alias", false, "group", err);
    json_array_foreach(tasks, i, task) samples += json_number_value(
        json_object_get(json_object_get(all, json_string_value(task)), "sample_len"));
    res =
        json_pack("{s:s,s:s,s:I}", "name", name, "alias", alias, "sample_len", (json_int_t)samples);
    json_array_foreach(json_object_get(group, "metrics"), i, m)
    {
        const char *metric = NULL;
        bool by_size = true;
        json_t *list = json_object_get(m, "filter_list"), *filter;
        if (rc == 0)
            rc = lf_json_get_str(&metric, m, "metric", true, "group metric", err);
        if (rc == 0)
            rc = lf_json_get_bool(&by_size, m, "weight_by_size", false, "group metric", err);
        if (rc != 0)
            break;
        list = json_is_array(list)    ? json_incref(list)
               : json_is_string(list) ? json_pack("[O]", list)
                                      : filters_of(all, tasks, metric);
        json_array_foreach(list, k, filter) if (rc == 0 && json_is_string(filter)) rc =
            group_metric(res, all, tasks, metric, json_string_value(filter), by_size, err);
        json_decref(list);
    }
    if (rc == 0)
        return res;
    lf_err_prefix(err, "group '%s'", name);
    json_decref(res);
    return NULL;
}

/* ---- all ------------------------------------------------------------------------------------- */

static json_t *member(json_t *o, const char *name)
{
    if (!json_object_get(o, name))
        json_object_set_new(o, name, json_object());
    return json_object_get(o, name);
}

/* What the header says about a task, beside the numbers. */
static void describe(const eval_task *k, json_t *out)
{
    json_t *v, *m, *config = json_object_get(k->head, "config");
    size_t i;
    if ((v = json_object_get(k->head, "version")))
        json_object_set(member(out, "versions"), k->name, v);
    if ((v = json_object_get(k->head, "n_shot")))
        json_object_set(member(out, "n-shot"), k->name, v);
    json_object_set_new(member(out, "higher_is_better"), k->name, json_object());
    json_array_foreach(json_object_get(k->head, "metrics"), i, m)
    {
        v = json_object_get(m, "higher_is_better");
        json_object_set(json_object_get(member(out, "higher_is_better"), k->name),
                        json_string_value(json_object_get(m, "metric")), v ? v : json_null());
    }
    if (json_is_object(config)) /* the exporter's, with what was measured beside it */
        json_object_update_missing(json_object_get(member(out, "configs"), k->name), config);
    v = json_object_get(k->head, "original");
    if (json_is_integer(v))
        json_object_set(json_object_get(member(out, "n-samples"), k->name), "original", v);
}

int lf_requests_results(const lf_tasks *t, json_t *const *lines, const struct lf_eval_opts *o,
                        const char *dir, json_t *out, lf_err *err)
{
    json_t *all = member(out, "results"), *group;
    size_t i;
    for (i = 0; i < t->n_tasks; i++) {
        const eval_task *k = &t->tasks[i];
        if (k->kind != LF_TASK_REQUESTS)
            continue;
        json_t *res = task_results(t, k, lines, o, dir, err);
        if (!res)
            return LF_EFORMAT;
        json_object_set_new(all, k->name, res);
        describe(k, out);
    }
    json_array_foreach(t->groups, i, group)
    { /* leaves alone are members, so the order does not matter */
        const char *name = json_string_value(json_object_get(group, "group"));
        json_t *res = group_results(group, all, err), *v = json_object_get(group, "version");
        if (!res)
            return LF_EFORMAT;
        json_object_set(member(out, "groups"), name, res);
        json_object_set(member(out, "group_subtasks"), name, json_object_get(group, "tasks"));
        if (v)
            json_object_set(member(out, "versions"), name, v);
        json_object_set_new(all, name, res);
    }
    return 0;
}
