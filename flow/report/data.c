/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of a page as JSON, for its script and for whoever downloads them.
 *
 *   {"schema": 1, "runs": [{"run", "name", "stages": [{"stage", "kind",
 *     "records": how many `metrics --json` has,
 *     "bucket": how many of them are one row here,
 *     "step": [..], "hours": [..],          of the last record of each row
 *     "keys": [..], "series": [{"at"?: [rows], "v": [..], "lo"?: [..], "hi"?: [..]}]}]}]}
 *
 * at is missing where every row has a value. With bucket = 1, v are the values as they were
 * written; else v are means of the values of a row in nine digits, lo and hi its lowest and highest
 * one as they were written.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/fields.h"
#include "flow/report/report.h"

/* The shortest of two forms that reads as the same number again. */
static void number(lf_buf *b, double v)
{
    char text[40];
    if (!isfinite(v)) {
        lf_buf_adds(b, "null");
        return;
    }
    snprintf(text, sizeof text, "%.9g", v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof text, "%.17g", v);
    lf_buf_adds(b, text);
}

/* Of values that stand in the page themselves, or are left out: nine digits. */
static void mean(lf_buf *b, double v)
{
    if (isfinite(v))
        lf_buf_addf(b, "%.9g", v);
    else
        lf_buf_adds(b, "null");
}

/* A text that can end no script: < stands in no other place of JSON than in texts. */
static void quoted(lf_buf *b, const char *text)
{
    lf_buf t;
    lf_buf_init(&t);
    lf_buf_add_json(&t, text, strlen(text));
    for (size_t i = 0; i < t.len; i++)
        if (t.data[i] == '<')
            lf_buf_adds(b, "\\u003c");
        else
            lf_buf_addc(b, t.data[i]);
    b->failed = b->failed || lf_buf_check(&t, NULL) < 0;
    lf_buf_fini(&t);
}

/* The values of a key in the records of a row. */
struct row {
    double sum, lo, hi;
    size_t n;
};

static struct row row_of(const lf_facts_stage *s, size_t from, size_t to, const char *key)
{
    struct row r = {.lo = INFINITY, .hi = -INFINITY};
    double v;
    for (size_t i = from; i < to && i < s->records.n; i++)
        if (lf_raw_number(&v, s->records.v[i].values, key) && isfinite(v)) {
            r.sum += v;
            r.lo = v < r.lo ? v : r.lo;
            r.hi = v > r.hi ? v : r.hi;
            r.n++;
        }
    return r;
}

struct lists {
    lf_buf at, v, lo, hi;
};

static void series(lf_buf *b, struct lists *l, const lf_facts_stage *s, size_t bucket,
                   const char *key)
{
    size_t n = 0, rows = 0;
    lf_buf_clear(&l->at);
    lf_buf_clear(&l->v);
    lf_buf_clear(&l->lo);
    lf_buf_clear(&l->hi);
    for (size_t i = 0; i < s->records.n; i += bucket, rows++) {
        const struct row r = row_of(s, i, i + bucket, key);
        if (r.n == 0)
            continue;
        const char *comma = n++ > 0 ? "," : "";
        lf_buf_addf(&l->at, "%s%zu", comma, rows);
        lf_buf_adds(&l->v, comma);
        if (bucket == 1) {
            number(&l->v, r.sum);
            continue;
        }
        mean(&l->v, r.sum / (double)r.n);
        lf_buf_adds(&l->lo, comma);
        number(&l->lo, r.lo);
        lf_buf_adds(&l->hi, comma);
        number(&l->hi, r.hi);
    }
    lf_buf_adds(b, "{");
    if (n < rows)
        lf_buf_addf(b, "\"at\":[%s],", n > 0 ? l->at.data : "");
    lf_buf_addf(b, "\"v\":[%s]", n > 0 ? l->v.data : "");
    if (bucket > 1)
        lf_buf_addf(b, ",\"lo\":[%s],\"hi\":[%s]", n > 0 ? l->lo.data : "",
                    n > 0 ? l->hi.data : "");
    lf_buf_adds(b, "}");
    b->failed = b->failed || l->at.failed || l->v.failed || l->lo.failed || l->hi.failed;
}

static void stage(lf_buf *b, struct lists *l, const lf_facts_stage *s, size_t most)
{
    const size_t n = s->records.n, rows = most / 2, bucket = n > most ? (n - 1) / rows + 1 : 1;
    lf_buf_adds(b, "{\"stage\":");
    quoted(b, s->view->plan->name);
    lf_buf_adds(b, ",\"kind\":");
    quoted(b, s->view->plan->kind);
    lf_buf_addf(b, ",\"records\":%zu,\"bucket\":%zu,\"step\":[", n, bucket);
    for (size_t i = 0; i < n; i += bucket) {
        lf_buf_adds(b, i > 0 ? "," : "");
        number(b, s->records.v[i + bucket < n ? i + bucket - 1 : n - 1].step.v);
    }
    lf_buf_adds(b, "],\"hours\":[");
    for (size_t i = 0; i < n; i += bucket)
        lf_buf_addf(b, "%s%.6g", i > 0 ? "," : "",
                    s->hours[i + bucket < n ? i + bucket - 1 : n - 1]);
    lf_buf_adds(b, "],\"keys\":[");
    for (size_t k = 0; k < s->keys.n; k++) {
        lf_buf_adds(b, k > 0 ? "," : "");
        quoted(b, s->keys.v[k]);
    }
    lf_buf_adds(b, "],\"series\":[");
    for (size_t k = 0; k < s->keys.n; k++) {
        lf_buf_adds(b, k > 0 ? ",\n" : "\n");
        series(b, l, s, bucket, s->keys.v[k]);
    }
    lf_buf_adds(b, "]}");
}

void lf_report_data(lf_buf *b, const lf_facts *const *runs, size_t n)
{
    struct lists l;
    lf_buf_init(&l.at);
    lf_buf_init(&l.v);
    lf_buf_init(&l.lo);
    lf_buf_init(&l.hi);
    lf_buf_adds(b, "<script type=\"application/json\" id=\"data\">{\"schema\":1,\"runs\":[");
    for (size_t r = 0; r < n; r++) {
        lf_buf_adds(b, r > 0 ? ",\n{\"run\":" : "\n{\"run\":");
        quoted(b, runs[r]->shown.run);
        lf_buf_adds(b, ",\"name\":");
        quoted(b, runs[r]->shown.name != NULL ? runs[r]->shown.name : "");
        lf_buf_adds(b, ",\"stages\":[");
        for (size_t i = 0; i < runs[r]->n; i++) {
            lf_buf_adds(b, i > 0 ? ",\n" : "\n");
            stage(b, &l, &runs[r]->stages[i],
                  n > LF_DATA_MANY_RUNS ? LF_DATA_ROWS / 4 : LF_DATA_ROWS);
        }
        lf_buf_adds(b, "]}");
    }
    lf_buf_adds(b, "]}</script>\n");
    lf_buf_fini(&l.at);
    lf_buf_fini(&l.v);
    lf_buf_fini(&l.lo);
    lf_buf_fini(&l.hi);
}
