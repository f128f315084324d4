/* SPDX-License-Identifier: Apache-2.0
 *
 * rung.<N>.json.
 */
#include "config.h"

#include "flow/record/rung.h"

#include <jansson.h>
#include <stdio.h>

#include "flow/record/parts.h"

static const struct lf_fields row_fields =
    LF_FIELDS_SHOWN(lf_rung_row, LF_MEMBERS(lf_rung_row, child, spec_id, value, kept));

static const struct lf_fields rung_fields = LF_FIELDS(
    lf_rung, LF_FIELD_KIND("lf_rung"), LF_MEMBERS(lf_rung, number, step, t, metric_stage, metric),
    LF_LIST(lf_rung, rows, row_fields));

static void name_of(char name[40], int number)
{
    snprintf(name, 40, "rung.%d.json", number);
}

int lf_rung_load(lf_rung **out, const char *run_dir, int number, lf_err *err)
{
    char name[40];
    name_of(name, number);
    return lf_fields_load(out, &rung_fields, run_dir, name, err);
}

int lf_rung_publish(const char *run_dir, const lf_rung *r, lf_err *err)
{
    char name[40];
    name_of(name, r->number);
    return lf_fields_publish(run_dir, name, &rung_fields, r, err);
}

void lf_rung_free(lf_rung *r)
{
    lf_fields_free(r, &rung_fields);
}

static json_t *children_of(const lf_rung *r, bool kept)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < r->rows.n; i++)
        if (r->rows.v[i].kept == kept)
            json_array_append_new(list, json_integer(r->rows.v[i].child));
    return list;
}

int lf_event_rung(const char *run_dir, const char *run, const lf_rung *r, lf_err *err)
{
    json_t *d = json_pack("{s:i, s:I, s:s, s:s, s:o, s:o}", "rung", r->number, "step",
                          (json_int_t)r->step, "stage", r->metric_stage, "metric", r->metric,
                          "kept", children_of(r, true), "ended", children_of(r, false));
    return lf_record_event(&(lf_origin){.dir = run_dir, .run = run}, "rung", d, err);
}
