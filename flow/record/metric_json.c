/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a stage's metrics from JSON.
 */
#include "config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/metric.h"

#include "flow/record/fields.h"

static const struct lf_fields metric_fields =
    LF_FIELDS(struct lf_metric, LF_MEMBERS(struct lf_metric, t, save_s),
              {LF_FIELD(struct lf_metric, step), .none = -1},
              {LF_FIELD(struct lf_metric, saved), .none = -1});

void lf_metric_parse(struct lf_metric *out, const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, 0, NULL);
    lf_fields_read(out, &metric_fields, o, "a record of metrics", NULL);
    json_decref(o);
}

/* ---- curves ---- */

static const struct lf_fields row_fields =
    LF_FIELDS(lf_metric_row, LF_MEMBERS(lf_metric_row, step, t, resumed));

bool lf_metric_row_parse(lf_metric_row *out, const char *text, size_t n)
{
    json_t *o = json_loadb(text, n, 0, NULL);
    lf_fields_read(out, &row_fields, o, "a record of metrics", NULL);
    if (json_is_object(o))
        out->values = o;
    else
        json_decref(o);
    return out->values != NULL;
}

void lf_metric_row_fini(lf_metric_row *r)
{
    json_decref(r->values);
    memset(r, 0, sizeof *r);
}

int lf_metric_row_add(lf_metric_row *r, const lf_metric_row *more, lf_err *err)
{
    return json_object_update(r->values, more->values) == 0 ? 0
                                                            : lf_fail(err, LF_ENOMEM, "metrics");
}

void lf_metric_rows_cut(lf_metric_rows *rows, size_t n)
{
    while (rows->n > n)
        lf_metric_row_fini(&rows->v[--rows->n]);
}

void lf_metric_rows_fini(lf_metric_rows *rows)
{
    lf_metric_rows_cut(rows, 0);
    free(rows->v);
    memset(rows, 0, sizeof *rows);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int lf_metric_names(lf_texts *out, const lf_metric_rows *rows, lf_err *err)
{
    int rc = 0;
    memset(out, 0, sizeof *out);
    out->given = true;
    for (size_t i = 0; i < rows->n; i++) {
        const char *k;
        json_t *v;
        json_object_foreach(rows->v[i].values, k, v)
        {
            bool curve = json_is_number(v) && strcmp(k, "step") != 0 && strcmp(k, "t") != 0;
            if (rc == 0 && curve && out->n < 256 && !lf_texts_has(out, k))
                rc = lf_texts_add(out, k, err);
        }
    }
    if (out->n > 1)
        qsort(out->v, out->n, sizeof *out->v, by_name);
    return rc;
}

const struct lf_fields lf_metric_row_fields =
    LF_FIELDS_BARE(lf_metric_row, LF_MEMBERS(lf_metric_row, values));
