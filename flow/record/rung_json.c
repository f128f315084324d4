/* SPDX-License-Identifier: Apache-2.0
 *
 * rung.<N>.json.
 */
#include "config.h"

#include "flow/record/rung.h"

#include <stdio.h>

#include "flow/record/fields.h"

static const struct lf_fields row_fields =
    LF_FIELDS_SHOWN(lf_rung_row, LF_MEMBERS(lf_rung_row, child, value, kept));

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
