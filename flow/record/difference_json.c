/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing records member by member.
 */
#include "config.h"

#include "flow/record/difference.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/record/parts.h"

const struct lf_fields lf_difference_fields =
    LF_FIELDS_SHOWN(lf_difference, LF_MEMBERS(lf_difference, stage, what, a, b));

/* As people see it: a list of one text as the text, others as text; of spec ids and hashes, which
 * say only that they differ, the beginning. New reference. */
static json_t *shown(const json_t *v, bool hash)
{
    const json_t *one = json_array_size(v) == 1 ? json_array_get(v, 0) : NULL;
    const json_t *as = json_is_string(one) ? one : v;
    json_t *out = json_incref((json_t *)(uintptr_t)as);
    if (json_is_array(as)) {
        char *list = json_dumps(as, JSON_COMPACT);
        json_decref(out);
        out = json_string(list != NULL ? list : "");
        free(list);
    }
    const char *text = json_string_value(out);
    if (hash && text != NULL && strlen(text) > 24) {
        json_t *cut = json_sprintf("%.24s...", text);
        json_decref(out);
        out = cut;
    }
    return out;
}

static int diff_value(lf_differences *out, const char *stage, const char *what, const json_t *a,
                      const json_t *b, lf_err *err)
{
    if (a == b || (a != NULL && b != NULL && json_equal(a, b)))
        return 0;
    bool hash = strncmp(what, "input ", 6) == 0 || strcmp(what, "spec") == 0 ||
                strcmp(what, "executable") == 0;
    lf_difference *d = lf_rows_add(out, sizeof *d, err);
    int rc = d == NULL ? LF_ENOMEM : lf_text_set(&d->stage, stage, "stage", err);
    if (rc == 0)
        rc = lf_text_set(&d->what, what, "what", err);
    if (rc == 0) {
        d->a = shown(a, hash);
        d->b = shown(b, hash);
    }
    return rc;
}

static int diff_maps(lf_differences *out, const char *stage, const char *prefix, json_t *a,
                     json_t *b, lf_err *err)
{
    const char *k;
    json_t *v;
    char what[256];
    int rc = 0;
    json_object_foreach(a, k, v)
    {
        snprintf(what, sizeof what, "%s%s", prefix, k);
        if (rc == 0)
            rc = diff_value(out, stage, what, v, json_object_get(b, k), err);
    }
    json_object_foreach(b, k, v)
    {
        snprintf(what, sizeof what, "%s%s", prefix, k);
        if (rc == 0 && json_object_get(a, k) == NULL)
            rc = diff_value(out, stage, what, NULL, v, err);
    }
    return rc;
}

/* Is there a stage at all? */
static int diff_there(lf_differences *out, const char *name, bool a, bool b, lf_err *err)
{
    json_t *x = json_string(a ? "there" : "missing"), *y = json_string(b ? "there" : "missing");
    int rc = diff_value(out, name, "stage", x, y, err);
    json_decref(x);
    json_decref(y);
    return rc;
}

/* What is compared, in this order. The key is what a difference is called, or the beginning of
 * what those of its members are. */
#define AS(m, name)                                                                                \
    {                                                                                              \
        LF_FIELD_AS(lf_doc_stage, m, name)                                                         \
    }
static const struct lf_fields compared =
    LF_FIELDS_SHOWN(lf_doc_stage, AS(kind, "kind"), AS(options, ""), AS(model, "model."),
                    AS(spec.inputs, "input "), AS(spec_id, "spec"),
                    {.key = "resource ",
                     .type = LF_FIELD_RECORD,
                     .at = offsetof(lf_doc_stage, resources),
                     .sub = &lf_resources_fields},
                    AS(exe.sha256, "executable"));

int lf_diff_stages(lf_differences *out, const char *name, const lf_doc_stage *a,
                   const lf_doc_stage *b, lf_err *err)
{
    if (a == NULL || b == NULL)
        return diff_there(out, name, a != NULL, b != NULL, err);
    json_t *x = lf_fields_json(a, &compared, err),
           *y = x != NULL ? lf_fields_json(b, &compared, err) : NULL;
    int rc = y == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; rc == 0 && i < compared.n; i++) {
        const char *key = compared.rows[i].key;
        json_t *v = json_object_get(x, key), *w = json_object_get(y, key);
        rc = compared.rows[i].type == LF_FIELD_TEXT ? diff_value(out, name, key, v, w, err)
                                                    : diff_maps(out, name, key, v, w, err);
    }
    json_decref(x);
    json_decref(y);
    return rc;
}

int lf_diff_records(lf_differences *out, const char *name, const lf_metric_row *a,
                    const lf_metric_row *b, lf_err *err)
{
    json_object_del(a->values, "t"); /* no result */
    json_object_del(b->values, "t");
    return diff_maps(out, name, "result ", a->values, b->values, err);
}
