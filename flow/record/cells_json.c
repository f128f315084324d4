/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of records for tables that people read, and values that other programs put in.
 */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/record/fields.h"

/* A cell is one line. */
static char *text_cell(const char *text, lf_err *err)
{
    char *s = lf_strdup(text, err);
    for (char *p = s; p != NULL && *p != '\0'; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    return s;
}

static char *cell(const json_t *v, lf_err *err)
{
    char buf[64];
    if (json_is_string(v))
        return text_cell(json_string_value(v), err);
    if (json_is_integer(v))
        snprintf(buf, sizeof buf, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(buf, sizeof buf, "%.6g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(buf, sizeof buf, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_array(v) || json_is_object(v))
        return json_dumps(v, JSON_COMPACT);
    else
        snprintf(buf, sizeof buf, "-");
    return lf_strdup(buf, err);
}

char *lf_raw_cell(const json_t *o, const char *key, lf_err *err)
{
    return cell(json_object_get(o, key), err);
}

/* Only the one row is made into JSON: a table has many cells. */
char *lf_fields_cell(const void *rec, const struct lf_fields *t, const char *key, lf_err *err)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct lf_field *f = &t->rows[i];
        if (f->type == LF_FIELD_BASE) {
            char *s = lf_fields_cell((const char *)rec + f->at, f->sub, key, err);
            if (s == NULL || strcmp(s, "-") != 0)
                return s;
            free(s);
        } else if (strcmp(f->key, key) == 0) {
            const struct lf_fields one = {
                .rows = f, .n = 1, .more = LF_FIELD_NONE, .sparse = t->sparse};
            json_t *o = lf_fields_json(rec, &one, err);
            char *s = o != NULL ? lf_raw_cell(o, key, err) : NULL;
            json_decref(o);
            return s;
        }
    }
    return lf_strdup("-", err);
}

bool lf_raw_number(double *out, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v);
}

void lf_raw_free(json_t *v)
{
    json_decref(v);
}
