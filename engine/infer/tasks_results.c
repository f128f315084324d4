/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of evaluation tasks from their sample lines, in lm-evaluation-harness's form.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/infer/tasks_priv.h"

/* Columns of one task, a value per document. */
typedef struct columns {
    double *ll, *tokens, *words, *bytes, *acc, *acc_norm, *acc_bytes;
    size_t n;
} columns;

static int columns_create(columns *c, size_t n, lf_err *err)
{
    double **all[] = {&c->ll,  &c->tokens,   &c->words,    &c->bytes,
                      &c->acc, &c->acc_norm, &c->acc_bytes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!(*all[i] = lf_calloc(n + 1, sizeof(double), err)))
            return LF_ENOMEM;
    return 0;
}

static void columns_destroy(columns *c)
{
    double *all[] = {c->ll, c->tokens, c->words, c->bytes, c->acc, c->acc_norm, c->acc_bytes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int read_sample(columns *c, enum lf_task_kind kind, json_t *o, lf_err *err)
{
    size_t i = c->n++;
    int rc = 0;
    if (kind != LF_TASK_CHOICE)
        rc = lf_json_get_f64(&c->ll[i], o, "ll", true, "sample", err);
    if (rc == 0 && kind == LF_TASK_ROLLING) {
        rc = lf_json_get_f64(&c->tokens[i], o, "tokens", true, "sample", err);
        if (rc == 0)
            rc = lf_json_get_f64(&c->words[i], o, "words", true, "sample", err);
        if (rc == 0)
            rc = lf_json_get_f64(&c->bytes[i], o, "bytes", true, "sample", err);
        return rc;
    }
    if (rc == 0)
        rc = lf_json_get_f64(&c->acc[i], o, "acc", true, "sample", err);
    if (rc == 0 && kind == LF_TASK_CHOICE)
        rc = lf_json_get_f64(&c->acc_norm[i], o, "acc_norm", true, "sample", err);
    if (rc == 0 && kind == LF_TASK_CHOICE)
        rc = lf_json_get_f64(&c->acc_bytes[i], o, "acc_bytes", true, "sample", err);
    return rc;
}

static void put(json_t *o, const char *metric, double value, double se)
{
    char key[64];
    snprintf(key, sizeof key, "%s,none", metric);
    json_object_set_new(o, key, json_real(value));
    snprintf(key, sizeof key, "%s_stderr,none", metric);
    json_object_set_new(o, key, json_real(se));
}

static void put_mean(json_t *o, const char *metric, const double *v, size_t n)
{
    double mean, se;
    lf_mean_stderr(v, n, &mean, &se);
    put(o, metric, mean, se);
}

static double sum_of(const double *v, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += v[i];
    return s;
}

static void rolling_metrics(json_t *o, const columns *c)
{
    double v, se;
    if (sum_of(c->bytes, c->n) > 0) {
        lf_ratio_perplexity(c->ll, c->words, c->n, &v, &se);
        put(o, "word_perplexity", v, se);
        lf_ratio_perplexity(c->ll, c->bytes, c->n, &v, &se);
        put(o, "byte_perplexity", v, se);
        lf_ratio_bits(c->ll, c->bytes, c->n, &v, &se);
        put(o, "bits_per_byte", v, se);
    }
    lf_ratio_perplexity(c->ll, c->tokens, c->n, &v, &se);
    put(o, "token_perplexity", v, se);
    put(o, "token_loss", log(v), se / v);
    json_object_set_new(o, "tokens", json_real(sum_of(c->tokens, c->n)));
    json_object_set_new(o, "bytes", json_real(sum_of(c->bytes, c->n)));
}

static json_t *task_metrics(const eval_task *k, const columns *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "alias", json_string(k->name));
    if (k->kind == LF_TASK_ROLLING) {
        rolling_metrics(o, c);
    } else if (k->kind == LF_TASK_CHOICE) {
        put_mean(o, "acc", c->acc, c->n);
        put_mean(o, "acc_norm", c->acc_norm, c->n);
        put_mean(o, "acc_bytes", c->acc_bytes, c->n);
    } else {
        double mean, se;
        put_mean(o, "acc", c->acc, c->n);
        lf_mean_stderr(c->ll, c->n, &mean, &se);
        put(o, "perplexity", exp(-mean), exp(-mean) * se);
    }
    return o;
}

/* lines[i]: the sample line of document i, owned. */
static int read_samples(const lf_tasks *t, columns *c, json_t **lines, const char *path,
                        lf_err *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return lf_fail_errno(err, "cannot read %s", path);
    char *line = NULL;
    size_t cap = 0, i = 0;
    ssize_t len;
    int rc = 0;
    for (; rc == 0 && (len = getline(&line, &cap, f)) > 0; i++) {
        rc = lf_tasks_check_line(t, i, line, (size_t)len, err);
        const eval_task *k = rc != 0 ? NULL : &t->tasks[t->docs[i].task];
        if (rc == 0)
            rc = (lines[i] = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL))
                     ? 0
                     : lf_fail(err, LF_ENOMEM, "out of memory");
        if (rc == 0 && k->kind != LF_TASK_REQUESTS)
            rc = read_sample(&c[t->docs[i].task], k->kind, lines[i], err);
        if (rc != 0)
            rc = lf_err_prefix(err, "%s:%zu", path, i + 1);
    }
    if (rc == 0 && i != t->n_docs)
        rc = lf_fail(err, LF_EFORMAT, "%s has %zu of %zu documents", path, i, t->n_docs);
    free(line);
    fclose(f);
    return rc;
}

json_t *lf_tasks_results(const lf_tasks *t, const char *samples_path, const struct lf_eval_opts *o,
                         const char *dir, lf_err *err)
{
    json_t *out = NULL, *results = json_object(), *samples = json_object(),
           *configs = json_object();
    columns *c = lf_calloc(t->n_tasks + 1, sizeof *c, err);
    json_t **lines = lf_calloc(t->n_docs + 1, sizeof *lines, err);
    int rc = c && lines ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < t->n_tasks; i++)
        rc = columns_create(&c[i], t->tasks[i].n_docs, err);
    if (rc == 0)
        rc = read_samples(t, c, lines, samples_path, err);
    for (size_t i = 0; rc == 0 && i < t->n_tasks; i++) {
        const eval_task *k = &t->tasks[i];
        json_int_t n = (json_int_t)k->n_docs;
        if (k->kind != LF_TASK_REQUESTS)
            json_object_set_new(results, k->name, task_metrics(k, &c[i]));
        json_object_set_new(samples, k->name,
                            json_pack("{s:I,s:I}", "original", n, "effective", n));
        /* What was measured, not where it lay: the same data elsewhere gives the same results. */
        const char *base = strrchr(k->path, '/');
        json_object_set_new(configs, k->name,
                            json_pack("{s:s,s:s,s:s,s:s}", "task", k->name, "kind",
                                      lf_task_kind_name(k->kind), "source",
                                      base ? base + 1 : k->path, "source_sha256", k->sha256));
    }
    if (rc == 0)
        out = json_pack("{s:O,s:O,s:O}", "results", results, "configs", configs, "n-samples",
                        samples);
    if (rc == 0 && !out)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = lf_requests_results(t, lines, o, dir, out, err);
    for (size_t i = 0; c && i < t->n_tasks; i++)
        columns_destroy(&c[i]);
    for (size_t i = 0; lines && i < t->n_docs; i++)
        json_decref(lines[i]);
    free(lines);
    free(c);
    json_decref(results);
    json_decref(samples);
    json_decref(configs);
    if (rc != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}
