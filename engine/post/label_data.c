/* SPDX-License-Identifier: Apache-2.0
 *
 * See label_data.h. */
#include "engine/post/label_data.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "engine/base/json.h"

int64_t lf_label_room(const struct lf_label_form *f, int64_t tokens)
{
    switch (f->kind) {
    case LF_LABEL_ANY:
    case LF_LABEL_NUMBERS:
        return f->labels;
    case LF_LABEL_TOKENS:
        return tokens;
    case LF_LABEL_SPAN:
        return 2;
    default:
        return 1;
    }
}

/* Number i of a label; true and false are 1 and 0. */
static int number(double *out, json_t *v, size_t i, size_t n)
{
    json_t *x = json_is_array(v) ? json_array_get(v, i) : n == 1 ? v : NULL;
    if (!json_is_number(x) && !json_is_boolean(x))
        return LF_EFORMAT;
    *out = json_is_boolean(x) ? (double)json_is_true(x) : json_number_value(x);
    return isfinite(*out) ? 0 : LF_EFORMAT;
}

static bool whole(double x)
{
    return !(x - floor(x) > 0);
}

/* Why a number is none of its kind; NULL: it is. */
static const char *wrong(const struct lf_label_form *f, const double *y, size_t i, int64_t tokens)
{
    const double x = y[i];
    switch (f->kind) {
    case LF_LABEL_ONE:
        return whole(x) && x >= 0 && x < (double)f->labels ? NULL : "is no class below labels";
    case LF_LABEL_TOKENS:
        return whole(x) && x < (double)f->labels ? NULL
                                                 : "has a number that is no class below labels";
    case LF_LABEL_ANY:
        return x < 0 || x > 1 || (x > 0 && x < 1) ? "has a number that is neither 0 nor 1" : NULL;
    case LF_LABEL_SPAN:
        return whole(x) && x >= 0 && x < (double)tokens && (i == 0 || x >= y[0])
                   ? NULL
                   : "is no first and last token of the text";
    default:
        return NULL;
    }
}

static const char *wanted(const struct lf_label_form *f)
{
    switch (f->kind) {
    case LF_LABEL_ONE:
        return "the number of a class";
    case LF_LABEL_ANY:
        return "a list of 0 and 1, one for each label";
    case LF_LABEL_NUMBERS:
        return "a number, or a list of as many as there are labels";
    case LF_LABEL_TOKENS:
        return "a list with the class of each token";
    default:
        return "a list of the first and the last token of the answer";
    }
}

int lf_label_read(double *out, const struct lf_label_form *f, const lf_shardset *s, uint64_t doc,
                  lf_err *err)
{
    const char *file = "";
    uint64_t index = 0;
    size_t len = 0;
    const char *text = lf_shardset_rest(s, doc, &len), *why = NULL;
    const int64_t tokens = (int64_t)lf_shardset_doc_len(s, doc), n = lf_label_room(f, tokens);
    json_t *o = lf_json_load_text(text, len, "row", err), *v = json_object_get(o, f->column);
    int rc = o ? 0 : LF_EFORMAT;
    lf_shardset_locate(s, doc, &file, &index);
    if (rc == 0 && (!v || (json_is_array(v) && json_array_size(v) != (size_t)n)))
        why = v ? "has another length" : "is missing";
    for (int64_t i = 0; i < n && rc == 0 && !why; i++)
        why = number(&out[i], v, (size_t)i, (size_t)n) ? "is of another kind"
                                                       : wrong(f, out, (size_t)i, tokens);
    if (rc == 0 && why)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: document %llu of %lld tokens: column \"%.60s\" %s; it is %s (labels = "
                     "%lld)",
                     file, (unsigned long long)index, (long long)tokens, f->column, why, wanted(f),
                     (long long)f->labels);
    json_decref(o);
    return rc;
}
