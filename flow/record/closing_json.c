/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of results from manifests and lines of texts.
 */
#include "config.h"

#include "flow/record/closing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/fields.h"
#include "flow/record/parts.h"

#define MAX_LINE   ((size_t)4 << 20)
#define MAX_SCORES 200

static const struct lf_fields score_fields =
    LF_FIELDS_SHOWN(lf_score, LF_MEMBERS(lf_score, task, metric, value, error));
static const struct lf_fields sample_fields =
    LF_FIELDS_SHOWN(lf_sample, LF_MEMBERS(lf_sample, id, sample, prompt, text),
                    {LF_FIELD_AS(lf_sample, failed, "error"), .opt = true});
const struct lf_fields lf_closing_fields = {
    LF_FIELDS_TABLE(
        lf_closing, offsetof(lf_closing, given), LF_FIELD_NONE,
        LF_MEMBERS(lf_closing, first_loss, loss, first_reward, reward, valid_loss, best_valid_loss,
                   best_step, tokens_per_s, documents, tokens, bytes_per_token, pictures),
        LF_LIST(lf_closing, scores, score_fields), LF_MEMBERS(lf_closing, results, refused),
        LF_LIST(lf_closing, samples, sample_fields),
        LF_MEMBERS(lf_closing, tensors, family, verified)),
    .sparse = true};

void lf_closing_fini(lf_closing *c)
{
    lf_fields_fini(c, &lf_closing_fields);
    memset(c, 0, sizeof *c);
}

/* ---- datasets ---- */

static void add_shards(lf_closing *c, const json_t *meta)
{
    const char *name;
    json_t *split;
    json_int_t docs = 0, tokens = 0;
    json_object_foreach(json_object_get(meta, "splits"), name, split)
    {
        docs += json_integer_value(json_object_get(split, "docs"));
        tokens += json_integer_value(json_object_get(split, "tokens"));
        const json_t *per = json_object_get(split, "bytes_per_token");
        if (json_is_number(per) && (strcmp(name, "train") == 0 || !c->bytes_per_token.given))
            c->bytes_per_token = lf_real_of(json_number_value(per));
    }
    if (json_is_object(json_object_get(meta, "splits"))) {
        c->documents = lf_int_of(docs);
        c->tokens = lf_int_of(tokens);
    }
}

/* ---- evaluations ---- */

static int add_score(lf_closing *c, const char *task, const char *metric, const json_t *value,
                     const json_t *error, lf_err *err)
{
    lf_score *s = c->scores.n < MAX_SCORES ? lf_rows_add(&c->scores, sizeof *s, err) : NULL;
    if (s == NULL)
        return c->scores.n < MAX_SCORES ? LF_ENOMEM : 0;
    c->scores.given = true;
    s->value = lf_real_of(json_number_value(value));
    if (json_is_number(error))
        s->error = lf_real_of(json_number_value(error));
    int rc = lf_text_set(&s->task, task, "task", err);
    return rc == 0 ? lf_text_set(&s->metric, metric, "metric", err) : rc;
}

/* "acc,none" with "acc_stderr,none" beside it, as lm-evaluation-harness writes them. What has no
 * filter behind a comma is a count. */
static int add_task(lf_closing *c, const char *task, const json_t *metrics, lf_err *err)
{
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)metrics, key, v)
    {
        const char *comma = strchr(key, ',');
        char error[200], name[200];
        if (rc < 0 || comma == NULL || !json_is_number(v) || strstr(key, "_stderr,") != NULL)
            continue;
        const int n = (int)(comma - key);
        const bool plain = strcmp(comma, ",none") == 0;
        snprintf(error, sizeof error, "%.*s_stderr%s", n, key, comma);
        snprintf(name, sizeof name, plain ? "%.*s" : "%.*s (%s)", n, key, comma + 1);
        rc = add_score(c, task, name, v, json_object_get(metrics, error), err);
    }
    return rc;
}

static int add_results(lf_closing *c, const json_t *meta, lf_err *err)
{
    const char *task;
    json_t *metrics;
    int rc = 0;
    json_object_foreach(json_object_get(meta, "results"), task, metrics)
    {
        if (rc == 0 && json_is_object(metrics))
            rc = add_task(c, task, metrics, err);
    }
    return rc;
}

/* Scores of a reward model: means over rows, and which answer of a pair it prefers. */
static int add_reward_scores(lf_closing *c, const json_t *meta, lf_err *err)
{
    const json_t *all = json_object_get(meta, "results"), *scores = json_object_get(all, "scores"),
                 *pairs = json_object_get(all, "pairs");
    const struct {
        const json_t *of;
        const char *task, *key, *error;
    } shown[] = {{scores, "scores", "mean", NULL},
                 {scores, "scores", "std", NULL},
                 {pairs, "pairs", "accuracy", "accuracy_stderr"},
                 {pairs, "pairs", "margin", NULL}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof shown / sizeof shown[0]; i++) {
        const json_t *v = json_object_get(shown[i].of, shown[i].key);
        const json_t *e =
            shown[i].error != NULL ? json_object_get(shown[i].of, shown[i].error) : NULL;
        if (json_is_number(v))
            rc = add_score(c, shown[i].task, shown[i].key, v, e, err);
    }
    return rc;
}

/* ---- others ---- */

static int add_model(lf_closing *c, const json_t *meta, lf_err *err)
{
    const json_t *tensors = json_object_get(meta, "tensors");
    if (json_is_integer(tensors))
        c->tensors = lf_int_of(json_integer_value(tensors));
    else if (tensors != NULL)
        c->tensors = lf_int_of((int64_t)(json_is_array(tensors) ? json_array_size(tensors)
                                                                : json_object_size(tensors)));
    return lf_text_set(&c->family, json_string_value(json_object_get(meta, "family")), "family",
                       err);
}

int lf_closing_add_output(lf_closing *c, const struct lf_output *o, lf_err *err)
{
    const char *kind = o->kind != NULL ? o->kind : "";
    int rc = 0;
    if (strcmp(kind, "shards") == 0) {
        add_shards(c, o->meta);
    } else if (strcmp(kind, "features") == 0) {
        const json_t *n = json_object_get(o->meta, "uses");
        if (json_is_integer(n))
            c->pictures = lf_int_of(json_integer_value(n));
    } else if (strcmp(kind, "results") == 0) {
        rc = add_results(c, o->meta, err);
    } else if (strcmp(kind, "scores") == 0) {
        rc = add_reward_scores(c, o->meta, err);
    } else if (strcmp(kind, "text") == 0) {
        const json_t *n = json_object_get(o->meta, "results"),
                     *refused = json_object_get(o->meta, "refused");
        if (json_is_integer(n))
            c->results = lf_int_of(json_integer_value(n));
        if (json_integer_value(refused) > 0)
            c->refused = lf_int_of(json_integer_value(refused));
    } else if (strcmp(kind, "model") == 0 || strcmp(kind, "checkpoint") == 0) {
        rc = add_model(c, o->meta, err);
    }
    return rc;
}

/* ---- texts ---- */

static int add_text(lf_closing *c, const char *line, size_t n, lf_err *err)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    lf_sample *s = json_is_object(o) ? lf_rows_add(&c->samples, sizeof *s, err) : NULL;
    int rc = json_is_object(o) && s == NULL ? LF_ENOMEM : 0;
    if (s != NULL) {
        c->samples.given = true;
        rc = lf_fields_read(s, &sample_fields, o, "a text", err);
    }
    json_decref(o);
    return rc;
}

int lf_closing_add_texts(lf_closing *c, const char *path, size_t most, lf_err *err)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (f != NULL && rc == 0 && c->samples.n < most) {
        const ssize_t n = getline(&line, &cap, f);
        if (n <= 0 || (size_t)n > MAX_LINE)
            break;
        rc = add_text(c, line, (size_t)n, err);
    }
    free(line);
    if (f != NULL)
        fclose(f);
    return rc;
}
