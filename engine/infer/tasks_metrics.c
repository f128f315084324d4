/* SPDX-License-Identifier: Apache-2.0
 *
 * What one document of a task of requests is worth under each metric of the task
 * (lm_eval/api/task.py, process_results).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/infer/tasks_metrics.h"

#define M(type) (1u << (type))

static const struct {
    const char *name;
    enum eval_metric id;
    unsigned types;
} table[] = {
    {"acc", EVAL_ACC, M(LF_OUT_CHOICE) | M(LF_OUT_LL)},
    {"acc_norm", EVAL_ACC_NORM, M(LF_OUT_CHOICE)},
    {"acc_bytes", EVAL_ACC_BYTES, M(LF_OUT_CHOICE)},
    {"acc_mutual_info", EVAL_MUTUAL_INFO, M(LF_OUT_CHOICE)},
    {"exact_match", EVAL_EXACT, M(LF_OUT_CHOICE) | M(LF_OUT_GENERATE)},
    {"f1", EVAL_F1, M(LF_OUT_CHOICE)},
    {"mcc", EVAL_F1, M(LF_OUT_CHOICE)},
    {"brier_score", EVAL_BRIER, M(LF_OUT_CHOICE)},
    {"perplexity", EVAL_LL, M(LF_OUT_LL)},
    {"word_perplexity", EVAL_WORDS, M(LF_OUT_ROLLING)},
    {"byte_perplexity", EVAL_BYTES, M(LF_OUT_ROLLING)},
    {"bits_per_byte", EVAL_BYTES, M(LF_OUT_ROLLING)},
};

static int create_metric(eval_metric_def *d, json_t *o, int type, lf_err *err)
{
    const char *agg = NULL;
    size_t i = 0;
    int rc = lf_json_get_str(&d->name, o, "metric", true, "metric", err);
    if (rc == 0)
        rc = lf_json_get_str(&agg, o, "aggregation", true, "metric", err);
    if (rc != 0)
        return rc;
    while (i < sizeof table / sizeof *table && strcmp(table[i].name, d->name) != 0)
        i++;
    if (i == sizeof table / sizeof *table || !(table[i].types & M(type)))
        return lf_fail(err, LF_ENOTSUP, "the metric '%s' is not supported for this kind of task",
                       d->name);
    int a = lf_agg_find(agg);
    if (a < 0)
        return lf_fail(err, LF_ENOTSUP, "the aggregation '%s' is not supported", agg);
    d->id = table[i].id;
    d->agg = (enum lf_agg)a;
    if (d->id == EVAL_EXACT && type == LF_OUT_GENERATE &&
        !(d->match = lf_match_create(json_object_get(o, "kwargs"), err)))
        return LF_EFORMAT;
    return 0;
}

static int create_filter(eval_filter_def *d, json_t *o, int type, lf_err *err)
{
    json_t *steps = NULL;
    int rc = lf_json_get_str(&d->name, o, "name", true, "filter", err);
    if (rc == 0)
        rc = lf_json_get_array(&steps, o, "steps", true, "filter", err);
    if (rc == 0 && !(d->filter = lf_filter_create(steps, err)))
        rc = LF_ENOTSUP;
    const char *last = json_string_value(
        json_object_get(json_array_get(steps, json_array_size(steps) - 1), "function"));
    if (rc == 0 && (!last || strcmp(last, "take_first") != 0 ||
                    (type != LF_OUT_GENERATE && json_array_size(steps) != 1)))
        rc = lf_fail(err, LF_ENOTSUP, "the filter '%s' of this kind of task must %s take_first",
                     d->name, type == LF_OUT_GENERATE ? "end with" : "be");
    return rc;
}

int lf_eval_defs_create(eval_defs *d, json_t *head, lf_err *err)
{
    json_t *metrics = NULL, *filters = NULL;
    int type = lf_output_type_of(&(eval_task){.head = head});
    int rc = lf_json_get_array(&metrics, head, "metrics", true, "header", err);
    *d = (eval_defs){0};
    if (rc == 0)
        rc = lf_json_get_array(&filters, head, "filters", true, "header", err);
    if (rc == 0 && (json_array_size(metrics) == 0 || json_array_size(metrics) > EVAL_MAX_DEFS ||
                    json_array_size(filters) == 0 || json_array_size(filters) > EVAL_MAX_DEFS))
        rc = lf_fail(err, LF_EFORMAT, "a task has 1 to %d metrics and as many filters",
                     EVAL_MAX_DEFS);
    for (size_t i = 0; rc == 0 && i < json_array_size(metrics); i++)
        rc = create_metric(&d->metrics[d->n_metrics++], json_array_get(metrics, i), type, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(filters); i++)
        rc = create_filter(&d->filters[d->n_filters++], json_array_get(filters, i), type, err);
    if (rc != 0)
        lf_eval_defs_destroy(d);
    return rc;
}

void lf_eval_defs_destroy(eval_defs *d)
{
    for (size_t i = 0; i < d->n_metrics; i++)
        lf_match_destroy(d->metrics[i].match);
    for (size_t i = 0; i < d->n_filters; i++)
        lf_filter_destroy(d->filters[i].filter);
    *d = (eval_defs){0};
}

int lf_requests_check_head(json_t *head, lf_err *err)
{
    eval_defs d;
    const char *task = json_string_value(json_object_get(head, "task"));
    int rc = lf_eval_defs_create(&d, head, err);
    if (rc != 0)
        return lf_err_prefix(err, "task '%s'", task ? task : "");
    lf_eval_defs_destroy(&d);
    return 0;
}

/* ---- multiple choice ------------------------------------------------------------------------- */

typedef struct choice {
    json_t *gold;               /* an index, or a list */
    const double *ll, *free_ll; /* [n]; free_ll: without context, NULL unless asked for */
    const double *chars, *bytes;
    json_t *greedy;
    size_t n;
} choice;

static bool is_gold(const choice *c, size_t i)
{
    if (!json_is_array(c->gold))
        return json_integer_value(c->gold) == (json_int_t)i;
    for (size_t k = 0; k < json_array_size(c->gold); k++)
        if (json_integer_value(json_array_get(c->gold, k)) == (json_int_t)i)
            return true;
    return false;
}

static double gold_index(const choice *c)
{
    return (double)json_integer_value(json_is_array(c->gold) ? json_array_get(c->gold, 0)
                                                             : c->gold);
}

static bool gold_greedy(const choice *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_gold(c, i) && json_integer_value(json_array_get(c->greedy, i)) != 0)
            return true;
    return false;
}

/* sum (p - [i = gold])^2 with p the softmax of the sums. */
static double brier(const choice *c)
{
    double max = -INFINITY, total = 0, sum = 0;
    for (size_t i = 0; i < c->n; i++)
        max = fmax(max, c->ll[i]);
    for (size_t i = 0; i < c->n; i++)
        total += exp(c->ll[i] - max);
    for (size_t i = 0; i < c->n; i++) {
        double p = exp(c->ll[i] - max) / total - (gold_index(c) == (double)i);
        sum += p * p;
    }
    return sum;
}

static lf_pair choice_value(enum eval_metric m, const choice *c, double *scratch)
{
    switch (m) {
    case EVAL_ACC:
        return (lf_pair){is_gold(c, lf_best_choice(c->ll, NULL, c->n)), 0};
    case EVAL_ACC_NORM:
        return (lf_pair){is_gold(c, lf_best_choice(c->ll, c->chars, c->n)), 0};
    case EVAL_ACC_BYTES:
        return (lf_pair){is_gold(c, lf_best_choice(c->ll, c->bytes, c->n)), 0};
    case EVAL_MUTUAL_INFO:
        for (size_t i = 0; i < c->n; i++)
            scratch[i] = c->ll[i] - c->free_ll[i];
        return (lf_pair){is_gold(c, lf_best_choice(scratch, NULL, c->n)), 0};
    case EVAL_EXACT:
        return (lf_pair){gold_greedy(c), 0};
    case EVAL_BRIER:
        return (lf_pair){brier(c), 0};
    default: /* f1, mcc */
        return (lf_pair){gold_index(c), (double)lf_best_choice(c->ll, NULL, c->n)};
    }
}

static int choice_values(const eval_defs *d, json_t *doc, json_t *line, lf_pair *out, lf_err *err)
{
    json_t *ll = json_object_get(line, "ll"), *chars = json_object_get(doc, "chars"),
           *bytes = json_object_get(doc, "bytes");
    size_t n = json_array_size(chars), n_ll = json_array_size(ll);
    double *v = lf_calloc(5 * n + 1, sizeof *v, err);
    int rc = v ? 0 : LF_ENOMEM;
    if (rc == 0 && n_ll != n && n_ll != 2 * n)
        rc = lf_fail(err, LF_EFORMAT, "a sample line has %zu scores for %zu choices", n_ll, n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        v[i] = json_number_value(json_array_get(ll, i));
        v[n + i] = json_number_value(json_array_get(ll, n_ll == 2 * n ? n + i : i));
        v[2 * n + i] = json_number_value(json_array_get(chars, i));
        v[3 * n + i] = json_number_value(json_array_get(bytes, i));
    }
    choice c = {json_object_get(doc, "gold"),    v, v + n, v + 2 * n, v + 3 * n,
                json_object_get(line, "greedy"), n};
    for (size_t m = 0; rc == 0 && m < d->n_metrics; m++) {
        if (d->metrics[m].id == EVAL_MUTUAL_INFO && n_ll != 2 * n)
            rc = lf_fail(err, LF_EFORMAT, "acc_mutual_info needs the requests without context");
        else
            out[m] = choice_value(d->metrics[m].id, &c, v + 4 * n);
    }
    free(v);
    return rc;
}

/* ---- the other kinds ------------------------------------------------------------------------- */

/* Any target that the text equals. */
static int generate_value(const eval_metric_def *m, json_t *target, json_t *text, lf_pair *out,
                          lf_err *err)
{
    bool equal = false;
    int rc = 0;
    for (size_t i = 0;
         rc == 0 && !equal && i < (json_is_array(target) ? json_array_size(target) : 1); i++) {
        const char *t =
            json_string_value(json_is_array(target) ? json_array_get(target, i) : target);
        rc = lf_match_equal(m->match, json_string_value(text), t, &equal, err);
    }
    *out = (lf_pair){equal, 0};
    return rc;
}

int lf_eval_values(const eval_defs *d, size_t filter, const struct lf_eval_answer *a, lf_pair *out,
                   json_t **filtered, lf_err *err)
{
    const int type = a->type;
    json_t *doc = a->doc, *line = a->line;
    double ll = json_number_value(json_array_get(json_object_get(line, "ll"), 0));
    *filtered = NULL;
    if (type == LF_OUT_CHOICE)
        return choice_values(d, doc, line, out, err);
    if (type == LF_OUT_GENERATE &&
        !(*filtered = lf_filter_apply(d->filters[filter].filter,
                                      json_array_get(json_object_get(line, "resps"), 0), err)))
        return LF_EFORMAT;
    if (type == LF_OUT_GENERATE && !json_is_string(*filtered))
        return lf_fail(err, LF_EFORMAT, "the filter '%s' gives no text", d->filters[filter].name);
    int rc = 0;
    for (size_t m = 0; rc == 0 && m < d->n_metrics; m++) {
        if (type == LF_OUT_GENERATE)
            rc = generate_value(&d->metrics[m], json_object_get(doc, "target"), *filtered, &out[m],
                                err);
        else if (d->metrics[m].id == EVAL_ACC)
            out[m] = (lf_pair){
                (double)json_integer_value(json_array_get(json_object_get(line, "greedy"), 0)), 0};
        else
            out[m] =
                (lf_pair){ll, d->metrics[m].id == EVAL_LL
                                  ? 0
                                  : json_number_value(json_object_get(
                                        doc, d->metrics[m].id == EVAL_WORDS ? "words" : "bytes"))};
    }
    return rc;
}
