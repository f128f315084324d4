/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents that are pairs, labelled answers or prompts (lf_rows): what they have besides tokens.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/store/shard_priv.h"

static const char *const names[] = {"plain", "pairs", "unpaired", "prompts"};

const char *lf_rows_name(enum lf_rows r)
{
    return (unsigned)r < 4 ? names[r] : "?";
}

/* ---- writing ---- */

/* Documents 2 i and 2 i + 1 share an element; the second does not change it. */
static int add_margin(struct lf_shard_rows *x, const lf_shard_doc *d, size_t doc, lf_err *err)
{
    if (doc % 2)
        return d->has_margin
                   ? lf_fail(err, LF_EINVAL, "a margin belongs to the first document of a pair")
                   : 0;
    if (d->has_margin && !isfinite(d->margin))
        return lf_fail(err, LF_EINVAL, "the margin of pair %zu is not finite", doc / 2);
    int rc = lf_grow(&x->margin, &x->cap_margin, doc / 2, sizeof *x->margin, err);
    if (rc < 0)
        return rc;
    x->margin[doc / 2] = d->has_margin ? d->margin : 0;
    x->any_margin = x->any_margin || d->has_margin;
    return 0;
}

static int add_label(struct lf_shard_rows *x, const lf_shard_doc *d, size_t doc, lf_err *err)
{
    int rc = lf_grow(&x->label, &x->cap_label, doc, sizeof *x->label, err);
    if (rc == 0)
        x->label[doc] = d->label;
    return rc;
}

static int add_rest(struct lf_shard_rows *x, const lf_shard_doc *d, size_t doc, lf_err *err)
{
    const char *text = d->rest ? d->rest : "{}";
    size_t n = d->rest ? d->rest_len : 2, end = 0;
    int rc = lf_grow(&x->rest_offset, &x->cap_offset, doc + 1, sizeof *x->rest_offset, err);
    if (rc < 0)
        return rc;
    size_t at = doc ? (size_t)x->rest_offset[doc] : 0;
    if (!lf_size_add(&end, at, n))
        return lf_fail(err, LF_ENOMEM, "the other columns of prompts have too many bytes");
    if (end > x->cap_rest) {
        size_t cap = end > 2 * x->cap_rest ? end : 2 * x->cap_rest;
        if ((rc = lf_realloc(&x->rest, cap, 1, err)) < 0)
            return rc;
        x->cap_rest = cap;
    }
    memcpy(x->rest + at, text, n);
    x->rest_offset[doc] = at;
    x->rest_offset[doc + 1] = end;
    return 0;
}

int lf_shard_rows_add(struct lf_shard_rows *x, enum lf_rows rows, const lf_shard_doc *d, size_t doc,
                      lf_err *err)
{
    switch (rows) {
    case LF_ROWS_PAIRS:
        return add_margin(x, d, doc, err);
    case LF_ROWS_UNPAIRED:
        return add_label(x, d, doc, err);
    case LF_ROWS_PROMPTS:
        return add_rest(x, d, doc, err);
    default:
        return 0;
    }
}

int lf_shard_rows_put(const struct lf_shard_rows *x, enum lf_rows rows, lf_h5 *f, size_t n_docs,
                      lf_err *err)
{
    static const uint64_t zero = 0;
    const uint64_t *off = x->rest_offset ? x->rest_offset : &zero;
    if (rows == LF_ROWS_PAIRS && n_docs % 2)
        return lf_fail(err, LF_EINVAL, "%zu documents are no pairs", n_docs);
    if (rows == LF_ROWS_PAIRS && x->any_margin)
        return lf_h5_put(f, "margin", LF_H5_F32, x->margin, n_docs / 2, err);
    if (rows == LF_ROWS_UNPAIRED)
        return lf_h5_put(f, "label", LF_H5_U8, x->label, n_docs, err);
    if (rows != LF_ROWS_PROMPTS)
        return 0;
    int rc = lf_h5_put(f, "rest_offsets", LF_H5_U64, off, n_docs + 1, err);
    return rc < 0 ? rc : lf_h5_put(f, "rest", LF_H5_U8, x->rest, (size_t)off[n_docs], err);
}

void lf_shard_rows_fini(struct lf_shard_rows *x)
{
    free(x->margin);
    free(x->label);
    free(x->rest_offset);
    free(x->rest);
}

/* ---- reading ---- */

int lf_shard_rows_parse(enum lf_rows *out, const char *name, const char *path, lf_err *err)
{
    for (int r = LF_ROWS_PAIRS; r <= LF_ROWS_PROMPTS; r++)
        if (strcmp(name, names[r]) == 0) {
            *out = (enum lf_rows)r;
            return 0;
        }
    return lf_fail(err, LF_EFORMAT, "%s: lf_rows is '%.40s'; pairs, unpaired and prompts are known",
                   path, name);
}

static int check_rest(const struct lf_shard_parts *p, uint64_t n_docs, const char *path,
                      lf_err *err)
{
    if (p->rest_offset[0] != 0)
        return lf_fail(err, LF_EFORMAT, "%s: rest_offsets do not begin at 0", path);
    for (uint64_t d = 0; d < n_docs; d++)
        if (p->rest_offset[d] > p->rest_offset[d + 1])
            return lf_fail(err, LF_EFORMAT, "%s: rest_offsets decrease at document %llu", path,
                           (unsigned long long)d);
    return 0;
}

int lf_shard_rows_check(const struct lf_shard_parts *p, enum lf_rows rows, uint64_t n_docs,
                        const char *path, lf_err *err)
{
    if (rows == LF_ROWS_PAIRS && n_docs % 2)
        return lf_fail(err, LF_EFORMAT, "%s: %llu documents are no pairs", path,
                       (unsigned long long)n_docs);
    for (uint64_t i = 0; p->margin && i < n_docs / 2; i++)
        if (!isfinite(p->margin[i]))
            return lf_fail(err, LF_EFORMAT, "%s: the margin of pair %llu is not finite", path,
                           (unsigned long long)i);
    for (uint64_t d = 0; p->label && d < n_docs; d++)
        if (p->label[d] > 1)
            return lf_fail(err, LF_EFORMAT, "%s: the label of document %llu is %d, not 0 or 1",
                           path, (unsigned long long)d, p->label[d]);
    return p->rest_offset ? check_rest(p, n_docs, path, err) : 0;
}

bool lf_shard_has_margin(const lf_shard *s)
{
    return lf_shard_get_parts(s)->margin != NULL;
}

float lf_shard_margin(const lf_shard *s, uint64_t pair)
{
    const float *m = lf_shard_get_parts(s)->margin;
    return m ? m[pair] : 0;
}

bool lf_shard_label(const lf_shard *s, uint64_t doc)
{
    const uint8_t *l = lf_shard_get_parts(s)->label;
    return !l || l[doc];
}

const char *lf_shard_rest(const lf_shard *s, uint64_t doc, size_t *len)
{
    const struct lf_shard_parts *p = lf_shard_get_parts(s);
    *len = p->rest_offset ? (size_t)(p->rest_offset[doc + 1] - p->rest_offset[doc]) : 2;
    return p->rest_offset ? p->rest + p->rest_offset[doc] : "{}";
}
