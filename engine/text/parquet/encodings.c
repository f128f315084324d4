/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a page, one after the other. Texts are where the page has them, but those of
 * DELTA_BYTE_ARRAY, which are put together from the one before.
 */
#include "config.h"

#include <string.h>

#include "engine/base/le.h"
#include "engine/text/parquet/parquet_priv.h"

size_t lf_pq_type_bytes(enum lf_pq_type t)
{
    return t == LF_PQ_INT32 || t == LF_PQ_FLOAT ? 4 : t == LF_PQ_INT64 || t == LF_PQ_DOUBLE ? 8 : 0;
}

/* ---- DELTA_BINARY_PACKED ---- */

bool lf_pq_delta_begin(struct lf_pq_delta *d, const uint8_t *p, const uint8_t *end, uint64_t max)
{
    *d = (struct lf_pq_delta){.t = {.p = p, .end = end}, .first = true};
    uint64_t block = lf_thrift_varint(&d->t);
    d->minis = lf_thrift_varint(&d->t);
    d->left = lf_thrift_varint(&d->t);
    d->value = (uint64_t)lf_thrift_zigzag(&d->t);
    d->mini = d->minis;
    if (d->t.bad || d->left > max || d->minis == 0 || block > 1 << 24 || block % d->minis != 0)
        return false;
    d->per_mini = block / d->minis;
    return d->per_mini > 0 && d->per_mini % 8 == 0;
}

/* The next small block, with the head of its block before the first. */
static bool begin_mini(struct lf_pq_delta *d)
{
    if (d->mini == d->minis) {
        d->min = (uint64_t)lf_thrift_zigzag(&d->t);
        if (d->t.bad || (uint64_t)(d->t.end - d->t.p) < d->minis)
            return false;
        d->widths = d->t.p;
        d->t.p += d->minis;
        d->mini = 0;
    }
    d->width = d->widths[d->mini++];
    uint64_t bytes = d->per_mini / 8 * (uint64_t)d->width, room = (uint64_t)(d->t.end - d->t.p);
    if (d->width > 64)
        return false;
    /* The last one may be cut behind its last number. */
    uint64_t used = d->left < d->per_mini ? (d->left * (uint64_t)d->width + 7) / 8 : bytes;
    if (used > room)
        return false;
    d->bits = d->t.p;
    d->at = 0;
    d->in_mini = d->per_mini;
    d->t.p += bytes < room ? bytes : room;
    return true;
}

bool lf_pq_delta_next(struct lf_pq_delta *d, int64_t *v)
{
    if (d->left == 0)
        return false;
    if (!d->first) {
        if (d->in_mini == 0 && !begin_mini(d))
            return false;
        d->value += d->min + lf_pq_bits(d->bits, d->t.end, d->at, d->width);
        d->at += (uint64_t)d->width;
        d->in_mini--;
    }
    d->first = false;
    d->left--;
    *v = (int64_t)d->value;
    return true;
}

const uint8_t *lf_pq_delta_end(const struct lf_pq_delta *d)
{
    struct lf_pq_delta over = *d;
    over.left -= over.first && over.left > 0; /* the first one stands in the head */
    while (over.left > 0) {
        if (!begin_mini(&over))
            return NULL;
        over.left -= over.left < over.per_mini ? over.left : over.per_mini;
    }
    return over.t.p;
}

/* ---- beginning ---- */

static int cut(const struct lf_pq_leaf *l, lf_err *err)
{
    return lf_pq_fail(l, err, LF_EFORMAT, "its values end too early or cannot be read");
}

static bool begin_lengths(struct lf_pq_leaf *l, struct lf_pq_delta *d)
{
    if (!lf_pq_delta_begin(d, l->p, l->e, l->page_n))
        return false;
    const uint8_t *end = lf_pq_delta_end(d);
    if (!end)
        return false;
    d->t.end = end;
    l->p = end;
    return true;
}

static int begin_dict(struct lf_pq_leaf *l, lf_err *err)
{
    if (!l->has_dict)
        return lf_pq_fail(l, err, LF_EFORMAT, "it needs a dictionary, and the column has none");
    int width = l->p < l->e ? *l->p++ : 33;
    if (width > 32)
        return cut(l, err);
    lf_pq_hybrid_begin(&l->index, l->p, l->e, width);
    return 0;
}

/* Truth values as runs have their length before them. */
static bool begin_runs(struct lf_pq_leaf *l)
{
    if (l->e - l->p < 4)
        return false;
    uint64_t n = lf_get_le(l->p, 4);
    l->p += 4;
    if (n > (uint64_t)(l->e - l->p))
        return false;
    lf_pq_hybrid_begin(&l->index, l->p, l->p + n, 1);
    return true;
}

static bool fits(enum lf_pq_type t, int encoding)
{
    bool text = t == LF_PQ_BYTE_ARRAY, whole = t == LF_PQ_INT32 || t == LF_PQ_INT64;
    switch (encoding) {
    case LF_PQ_PLAIN:
    case LF_PQ_PLAIN_DICTIONARY:
    case LF_PQ_RLE_DICTIONARY:
        return true;
    case LF_PQ_RLE:
        return t == LF_PQ_BOOLEAN;
    case LF_PQ_DELTA_BINARY_PACKED:
        return whole;
    case LF_PQ_DELTA_LENGTH_BYTE_ARRAY:
    case LF_PQ_DELTA_BYTE_ARRAY:
        return text;
    case LF_PQ_BYTE_STREAM_SPLIT:
        return lf_pq_type_bytes(t) > 0;
    default:
        return false;
    }
}

int lf_pq_values_begin(struct lf_pq_leaf *l, lf_err *err)
{
    bool ok = true;
    l->bit = 0;
    if (!fits(l->node->type, l->encoding))
        return lf_pq_fail(l, err, LF_ENOTSUP,
                          "encoding number %d of a column of this type is not read; write the file "
                          "anew with PLAIN",
                          l->encoding);
    switch (l->encoding) {
    case LF_PQ_PLAIN_DICTIONARY:
    case LF_PQ_RLE_DICTIONARY:
        return begin_dict(l, err);
    case LF_PQ_RLE:
        ok = begin_runs(l);
        break;
    case LF_PQ_DELTA_BINARY_PACKED:
        ok = lf_pq_delta_begin(&l->delta, l->p, l->e, l->page_n);
        break;
    case LF_PQ_DELTA_BYTE_ARRAY:
        lf_buf_clear(&l->text);
        ok = begin_lengths(l, &l->prefix) && begin_lengths(l, &l->delta);
        break;
    case LF_PQ_DELTA_LENGTH_BYTE_ARRAY:
        ok = begin_lengths(l, &l->delta);
        break;
    default:
        break;
    }
    return ok ? 0 : cut(l, err);
}

/* ---- the next value ---- */

static void set_fixed(struct lf_pq_value *v, enum lf_pq_type t, const uint8_t *p)
{
    uint64_t u = lf_get_le(p, lf_pq_type_bytes(t));
    float f;
    uint32_t half = (uint32_t)u;
    if (t == LF_PQ_INT32)
        v->i = (int32_t)half;
    else if (t == LF_PQ_INT64 || t == LF_PQ_DOUBLE)
        v->i = (int64_t)u; /* the bits of a double */
    else {
        memcpy(&f, &half, 4);
        v->d = (double)f;
    }
}

static bool next_plain(struct lf_pq_leaf *l, struct lf_pq_value *v)
{
    enum lf_pq_type t = l->node->type;
    size_t room = (size_t)(l->e - l->p), n = lf_pq_type_bytes(t);
    if (t == LF_PQ_BOOLEAN) {
        v->i = (int64_t)lf_pq_bits(l->p, l->e, l->bit, 1);
        return l->bit++ / 8 < room;
    }
    if (n > 0) {
        if (room < n)
            return false;
        set_fixed(v, t, l->p);
        l->p += n;
        return true;
    }
    uint64_t len = room < 4 ? room : lf_get_le(l->p, 4);
    if (room < 4 || len > room - 4)
        return false;
    v->text.p = l->p + 4;
    v->text.n = (uint32_t)len;
    l->p += 4 + len;
    return true;
}

static bool next_split(struct lf_pq_leaf *l, struct lf_pq_value *v)
{
    uint8_t bytes[8];
    size_t n = lf_pq_type_bytes(l->node->type), count = (size_t)(l->e - l->p) / n;
    if (l->bit >= count)
        return false;
    for (size_t k = 0; k < n; k++)
        bytes[k] = l->p[k * count + l->bit];
    l->bit++;
    set_fixed(v, l->node->type, bytes);
    return true;
}

static bool next_dict(struct lf_pq_leaf *l, struct lf_pq_value *v)
{
    uint32_t k;
    if (!lf_pq_hybrid_next(&l->index, &k) || k >= l->n_dict)
        return false;
    if (l->node->type == LF_PQ_BYTE_ARRAY) {
        v->text.p = l->dict.p + l->dict_at[k];
        v->text.n = l->dict_at[k + 1] - l->dict_at[k] - 4; /* the next one's length is between */
    } else {
        set_fixed(v, l->node->type, l->dict.p + k * lf_pq_type_bytes(l->node->type));
    }
    return true;
}

/* A text whose length is the next of d, at l->p. */
static bool next_length(struct lf_pq_leaf *l, struct lf_pq_value *v)
{
    int64_t n;
    if (!lf_pq_delta_next(&l->delta, &n) || n < 0 || n > l->e - l->p)
        return false;
    v->text.p = l->p;
    v->text.n = (uint32_t)n;
    l->p += n;
    return true;
}

static bool next_shared(struct lf_pq_leaf *l, struct lf_pq_value *v)
{
    int64_t keep;
    struct lf_pq_value rest;
    if (!lf_pq_delta_next(&l->prefix, &keep) || keep < 0 || (uint64_t)keep > l->text.len ||
        !next_length(l, &rest))
        return false; /* all that is added comes from the page, so no text is longer than it */
    l->text.len = (size_t)keep;
    lf_buf_add(&l->text, rest.text.p, rest.text.n);
    v->text.p = (const uint8_t *)l->text.data;
    v->text.n = (uint32_t)l->text.len;
    return true;
}

int lf_pq_values_next(struct lf_pq_leaf *l, struct lf_pq_value *v, lf_err *err)
{
    uint32_t bit = 0;
    bool ok;
    switch (l->encoding) {
    case LF_PQ_PLAIN:
        ok = next_plain(l, v);
        break;
    case LF_PQ_BYTE_STREAM_SPLIT:
        ok = next_split(l, v);
        break;
    case LF_PQ_RLE:
        ok = lf_pq_hybrid_next(&l->index, &bit);
        v->i = (int64_t)bit;
        break;
    case LF_PQ_DELTA_BINARY_PACKED:
        ok = lf_pq_delta_next(&l->delta, &v->i);
        if (l->node->type == LF_PQ_INT32)
            v->i = (int32_t)(uint32_t)(uint64_t)v->i;
        break;
    case LF_PQ_DELTA_LENGTH_BYTE_ARRAY:
        ok = next_length(l, v);
        break;
    case LF_PQ_DELTA_BYTE_ARRAY:
        ok = next_shared(l, v);
        break;
    default:
        ok = next_dict(l, v);
    }
    if (l->text.failed)
        return lf_buf_check(&l->text, err);
    return ok ? 0 : cut(l, err);
}

/* ---- dictionaries ---- */

int lf_pq_dict_index(struct lf_pq_leaf *l, size_t n, size_t bytes, lf_err *err)
{
    size_t at = 0, each = lf_pq_type_bytes(l->node->type);
    l->n_dict = 0;
    if (l->node->type == LF_PQ_BOOLEAN)
        return lf_pq_fail(l, err, LF_EFORMAT, "truth values have no dictionary");
    if (n > bytes / (each ? each : 4))
        return lf_pq_fail(l, err, LF_EFORMAT, "its dictionary of %zu values has %zu bytes", n,
                          bytes);
    if (each == 0 && n + 1 > l->cap_dict) {
        int rc = lf_realloc(&l->dict_at, n + 1, sizeof *l->dict_at, err);
        if (rc < 0)
            return rc;
        l->cap_dict = n + 1;
    }
    for (size_t i = 0; i < n && each == 0; i++) {
        uint64_t len = bytes - at < 4 ? bytes : lf_get_le(l->dict.p + at, 4);
        if (bytes - at < 4 || len > bytes - at - 4)
            return lf_pq_fail(l, err, LF_EFORMAT, "its dictionary ends too early");
        l->dict_at[i] = (uint32_t)at + 4;
        at += 4 + (size_t)len;
        l->dict_at[i + 1] = (uint32_t)at + 4;
    }
    l->n_dict = n;
    l->has_dict = true;
    return 0;
}
