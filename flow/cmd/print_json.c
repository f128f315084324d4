/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that prints --json: records by their tables, and what the ledger answers in rows of
 * whatever members.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "flow/cmd/cmd.h"

/* Null members of objects, at any depth: a missing key means not available. */
static void drop_nulls(json_t *v)
{
    const char *k;
    json_t *m;
    void *tmp;
    size_t i;
    if (json_is_array(v))
        json_array_foreach(v, i, m) drop_nulls(m);
    if (!json_is_object(v))
        return;
    json_object_foreach_safe(v, tmp, k, m)
    {
        if (json_is_null(m))
            json_object_del(v, k);
        else
            drop_nulls(m);
    }
}

static int print(json_t *o, size_t flags, lf_err *err)
{
    if (o == NULL)
        return err->rc != 0 ? err->rc : lf_fail(err, LF_ENOMEM, "out of memory");
    drop_nulls(o);
    json_object_set_new(o, "schema", json_integer(LF_JSON_SCHEMA));
    char *text = json_dumps(o, flags | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_decref(o);
    if (text == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    puts(text);
    free(text);
    return fflush(stdout) == 0 ? 0 : lf_fail_errno(err, "cannot write to standard output");
}

int lf_cmd_print(const void *rec, const struct lf_fields *t, lf_err *err)
{
    return print(lf_fields_json(rec, t, err), JSON_INDENT(2), err);
}

int lf_cmd_print_line(const void *rec, const struct lf_fields *t, lf_err *err)
{
    return print(lf_fields_json(rec, t, err), JSON_COMPACT, err);
}

static char *cell_of(const void *rows, size_t row, const char *key, lf_err *err)
{
    return lf_raw_cell(json_array_get(rows, row), key, err);
}

int lf_cmd_print_rows(const lf_cmd *c, json_t *rows, lf_err *err)
{
    lf_column cols[64];
    lf_table t = {.cols = cols};
    const char *k;
    json_t *v;
    if (rows == NULL)
        return err->rc != 0 ? err->rc : LF_EIO;
    if (c->json)
        return print(json_pack("{s:o}", "rows", rows), JSON_INDENT(2), err);
    json_object_foreach(json_array_get(rows, 0), k, v) if (t.n_cols < 64)
    {
        cols[t.n_cols++] = (lf_column){k, k, json_is_number(v), false};
    }
    const lf_cells all = {.n = json_array_size(rows), .cell = cell_of, .rows = rows};
    int rc = t.n_cols > 0 ? lf_table_cells(&t, &all, lf_optset_str(c->opts, "columns"), err) : 0;
    json_decref(rows);
    return rc;
}
