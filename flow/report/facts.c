/* SPDX-License-Identifier: Apache-2.0
 *
 * See facts.h.
 */
#include "config.h"

#include "flow/report/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/fields.h"
#include "flow/record/units.h"
#include "flow/sched/describe.h"

/* Seconds until t that the stage spent in its starts: a queue or a night between two of them is no
 * time of training. */
static double active_s(const lf_stage_view *s, double t)
{
    double sum = 0;
    for (size_t k = 0; k < s->n_incs; k++) {
        const double begin = lf_inc_begin(&s->incs[k]), end = lf_inc_end(&s->incs[k]);
        const double until = end > 0 && end < t ? end : t;
        if (begin > 0 && until > begin)
            sum += until - begin;
    }
    if (s->n_incs == 0 && s->result_done != NULL && t > s->result_done->t_start)
        sum = t - s->result_done->t_start;
    return sum;
}

static int load_stage(lf_facts_stage *f, const lf_run_view *v, const lf_stage_view *s, lf_err *err)
{
    f->view = s;
    int rc = lf_metrics_records(&f->records, s, err);
    if (rc == 0)
        rc = lf_metric_names(&f->keys, &f->records, err);
    if (rc == 0 && (f->hours = lf_calloc(f->records.n + 1, sizeof(double), err)) == NULL)
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < f->records.n; i++)
        f->hours[i] = active_s(s, f->records.v[i].t.v) / 3600;
    return rc == 0 ? lf_provenance_load(&f->from, v, s, err) : rc;
}

int lf_facts_load(lf_facts *out, const lf_run_view *v, lf_err *err)
{
    lf_facts f = {.view = v};
    int rc = lf_describe_run(&f.shown, v, err);
    if (rc < 0)
        return rc;
    f.stages = lf_calloc(v->n + 1, sizeof *f.stages, err);
    rc = f.stages == NULL ? LF_ENOMEM : 0;
    for (; rc == 0 && f.n < v->n; f.n++) {
        rc = load_stage(&f.stages[f.n], v, &v->stages[f.n], err);
        f.stages[f.n].shown = &f.shown.stages.v[f.n];
    }
    if (rc < 0)
        lf_facts_fini(&f);
    else
        *out = f;
    return rc;
}

void lf_facts_fini(lf_facts *f)
{
    for (size_t i = 0; f->stages != NULL && i < f->n; i++) {
        lf_facts_stage *s = &f->stages[i];
        lf_metric_rows_fini(&s->records);
        lf_texts_fini(&s->keys);
        free(s->hours);
        lf_provenance_fini(&s->from);
    }
    free(f->stages);
    lf_run_shown_fini(&f->shown);
    memset(f, 0, sizeof *f);
}

double lf_facts_last(const lf_facts_stage *s, const char *key)
{
    double v;
    for (size_t i = s->records.n; i > 0; i--)
        if (lf_raw_number(&v, s->records.v[i - 1].values, key) && isfinite(v))
            return v;
    return NAN;
}

double lf_facts_lowest(const lf_facts_stage *s, const char *key, double *step)
{
    double low = NAN, v;
    for (size_t i = 0; i < s->records.n; i++)
        if (lf_raw_number(&v, s->records.v[i].values, key) && isfinite(v) && !(v >= low)) {
            low = v;
            if (step != NULL)
                *step = s->records.v[i].step.v;
        }
    return low;
}

double lf_facts_greatest(const lf_facts_stage *s, const char *key)
{
    double most = NAN, v;
    for (size_t i = 0; i < s->records.n; i++)
        if (lf_raw_number(&v, s->records.v[i].values, key) && isfinite(v) && !(v <= most))
            most = v;
    return most;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double lf_facts_median(const lf_facts_stage *s, const char *key)
{
    lf_points p;
    double m = NAN;
    if (lf_metrics_points(&p, &s->records, key, NULL) < 0)
        return m;
    size_t n = 0;
    for (size_t i = 0; i < p.n; i++)
        if (isfinite(p.y[i]))
            p.y[n++] = p.y[i];
    if (n > 0) {
        qsort(p.y, n, sizeof *p.y, by_value);
        m = n % 2 != 0 ? p.y[n / 2] : (p.y[n / 2 - 1] + p.y[n / 2]) / 2;
    }
    lf_points_fini(&p);
    return m;
}

int lf_facts_key(const lf_facts_stage *s, const char *key)
{
    for (size_t i = 0; i < s->keys.n; i++)
        if (strcmp(s->keys.v[i], key) == 0)
            return (int)i;
    return -1;
}

bool lf_facts_pictures(const lf_facts_stage *s)
{
    return lf_facts_key(s, "pictures") >= 0;
}

const char *lf_facts_loss_unit(const lf_facts_stage *s)
{
    return lf_facts_pictures(s) ? "squared error of a pixel" : lf_loss_unit(s->view->plan->kind);
}
