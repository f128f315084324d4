/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a checkpoint: checks, identity, JSON. Nothing read here is believed: shapes,
 * boxes and ranges are checked before anyone computes with them, and the identity is recomputed, so
 * that a changed digit is seen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/ckpt_priv.h"

#define MAX_BOXES 4096 /* of one tensor */
#define MAX_NAME  1024

static bool good_name(const char *s)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    if (strlen(s) > MAX_NAME)
        return false;
    for (;;) {
        size_t n = strspn(s, set);
        if (n == 0 || (n <= 2 && strspn(s, ".") >= n))
            return false;
        if (s[n] == 0)
            return true;
        if (s[n] != '/')
            return false;
        s += n + 1;
    }
}

int lf_ckpt_check_entry(const lf_ckpt_entry *e, uint64_t *n_elems, lf_err *err)
{
    uint64_t n = 1, bytes;
    if (!good_name(e->name))
        return lf_fail(err, LF_EINVAL,
                       "tensor name '%.200s'; names are parts of [A-Za-z0-9_.-] separated by '/'",
                       e->name);
    if (e->kind[0] == 0 || strlen(e->kind) > 64 ||
        e->kind[strspn(e->kind, "abcdefghijklmnopqrstuvwxyz0123456789_")] != 0 ||
        strcmp(e->kind, "pieces") == 0)
        return lf_fail(err, LF_EINVAL,
                       "tensor kind '%.80s' of %s; kinds are of [a-z0-9_] and not 'pieces'",
                       e->kind, e->name);
    if (lf_h5_type_bytes(e->dtype) == 0 || e->ndim < 1 || e->ndim > LF_CKPT_MAX_DIMS)
        return lf_fail(err, LF_EINVAL,
                       "tensor %s: number type %d or %d dimensions not possible (1 to %d)", e->name,
                       (int)e->dtype, e->ndim, LF_CKPT_MAX_DIMS);
    for (int i = 0; i < e->ndim; i++)
        if (e->shape[i] < 1 || __builtin_mul_overflow(n, (uint64_t)e->shape[i], &n))
            return lf_fail(err, LF_EINVAL, "tensor %s: dimension %d is %lld", e->name, i,
                           (long long)e->shape[i]);
    if (__builtin_mul_overflow(n, (uint64_t)lf_h5_type_bytes(e->dtype), &bytes) ||
        bytes > INT64_MAX / 2)
        return lf_fail(err, LF_EINVAL, "tensor %s is too large", e->name);
    *n_elems = n;
    return 0;
}

int lf_ckpt_cmp(const lf_ckpt_entry *a, const lf_ckpt_entry *b)
{
    int c = strcmp(a->kind, b->kind);
    return c ? c : strcmp(a->name, b->name);
}

/* ---- tiling ---- */

static bool same_box(const struct lf_ckpt_piece *a, const struct lf_ckpt_piece *b, int ndim)
{
    size_t n = (size_t)ndim * sizeof(int64_t);
    return memcmp(a->lo, b->lo, n) == 0 && memcmp(a->hi, b->hi, n) == 0;
}

static bool boxes_touch(const struct lf_ckpt_piece *a, const struct lf_ckpt_piece *b, int ndim)
{
    for (int i = 0; i < ndim; i++)
        if (a->hi[i] <= b->lo[i] || b->hi[i] <= a->lo[i])
            return false;
    return true;
}

static uint64_t box_volume(const struct lf_ckpt_piece *p, int ndim)
{
    uint64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (uint64_t)(p->hi[i] - p->lo[i]);
    return n;
}

static bool box_inside(const struct lf_ckpt_piece *p, const lf_ckpt_entry *e)
{
    for (int i = 0; i < e->ndim; i++)
        if (p->lo[i] < 0 || p->lo[i] >= p->hi[i] || p->hi[i] > e->shape[i])
            return false;
    return true;
}

int lf_ckpt_check_pieces(const struct lf_ckpt_rec *r, lf_err *err)
{
    const lf_ckpt_entry *e = &r->e;
    uint64_t covered = 0;
    size_t boxes[MAX_BOXES], n_boxes = 0, i = 0;
    while (i < r->n_pieces) {
        const struct lf_ckpt_piece *p = &r->pieces[i];
        int64_t at = 0;
        if (!box_inside(p, e) || n_boxes == MAX_BOXES)
            return lf_fail(err, LF_EFORMAT, "tensor %s (%s): piece %zu lies outside its shape",
                           e->name, e->kind, i);
        for (size_t b = 0; b < n_boxes; b++)
            if (boxes_touch(&r->pieces[boxes[b]], p, e->ndim))
                return lf_fail(err, LF_EFORMAT, "tensor %s (%s): piece %zu overlaps another",
                               e->name, e->kind, i);
        boxes[n_boxes++] = i;
        int64_t volume = (int64_t)box_volume(p, e->ndim);
        for (; i < r->n_pieces && same_box(p, &r->pieces[i], e->ndim); at = r->pieces[i++].flat[1])
            if (r->pieces[i].flat[0] != at || r->pieces[i].flat[1] <= at ||
                r->pieces[i].flat[1] > volume)
                return lf_fail(err, LF_EFORMAT,
                               "tensor %s (%s): piece %zu does not follow the one before", e->name,
                               e->kind, i);
        if (at != volume)
            return lf_fail(err, LF_EFORMAT, "tensor %s (%s): elements from %lld on are missing",
                           e->name, e->kind, (long long)at);
        covered += (uint64_t)volume;
    }
    if (covered != r->n_elems)
        return lf_fail(err, LF_EFORMAT, "tensor %s (%s): its pieces hold %llu of %llu elements",
                       e->name, e->kind, (unsigned long long)covered,
                       (unsigned long long)r->n_elems);
    return 0;
}

/* ---- identity ---- */

static void hash_u64(lf_hash *h, uint64_t v)
{
    uint8_t le[8];
    for (int k = 0; k < 8; k++)
        le[k] = (uint8_t)(v >> (8 * k));
    lf_hash_update(h, le, sizeof le);
}

int lf_ckpt_make_identity(const struct lf_ckpt_meta *m, uint8_t out[LF_HASH_BYTES], lf_err *err)
{
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, "lf-ckpt-1", sizeof "lf-ckpt-1");
    for (size_t i = 0; i < m->n_recs; i++) {
        const lf_ckpt_entry *e = &m->recs[i].e;
        const char *type = lf_h5_type_name(e->dtype);
        lf_hash_update(h, e->name, strlen(e->name) + 1);
        lf_hash_update(h, e->kind, strlen(e->kind) + 1);
        lf_hash_update(h, type, strlen(type) + 1);
        hash_u64(h, (uint64_t)e->ndim);
        for (int k = 0; k < e->ndim; k++)
            hash_u64(h, (uint64_t)e->shape[k]);
        lf_hash_update(h, m->recs[i].sha256, LF_HASH_BYTES);
    }
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}

/* ---- JSON ---- */

static json_t *ints(const int64_t *v, int n)
{
    json_t *a = json_array();
    for (int i = 0; a && i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *rec_json(const struct lf_ckpt_rec *r)
{
    char hex[LF_HASH_HEX];
    json_t *pieces = json_array();
    for (size_t i = 0; pieces && i < r->n_pieces; i++) {
        const struct lf_ckpt_piece *p = &r->pieces[i];
        json_array_append_new(pieces,
                              json_pack("{s:s, s:I, s:o, s:o, s:o}", "file", p->file, "offset",
                                        (json_int_t)p->offset, "lo", ints(p->lo, r->e.ndim), "hi",
                                        ints(p->hi, r->e.ndim), "flat", ints(p->flat, 2)));
    }
    lf_hash_hex(hex, r->sha256);
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o}", "name", r->e.name, "kind", r->e.kind,
                     "dtype", lf_h5_type_name(r->e.dtype), "shape", ints(r->e.shape, r->e.ndim),
                     "sha256", hex, "pieces", pieces);
}

int lf_ckpt_meta_store(const struct lf_ckpt_meta *m, json_t *o, lf_err *err)
{
    char hex[LF_HASH_HEX];
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < m->n_recs && ok; i++)
        ok = json_array_append_new(list, rec_json(&m->recs[i])) == 0;
    lf_hash_hex(hex, m->identity);
    ok = ok && json_object_set_new(o, "identity", json_string(hex)) == 0 &&
         json_object_set_new(o, "step", json_integer(m->step)) == 0 &&
         json_object_set(o, "tensors", list) == 0;
    json_decref(list);
    return ok ? 0 : lf_fail(err, LF_ENOMEM, "no memory for the description of a checkpoint");
}

static int get_ints(int64_t *out, int n, json_t *o, const char *key, const char *what, lf_err *err)
{
    json_t *a = NULL;
    int rc = lf_json_get_array(&a, o, key, true, what, err);
    if (rc < 0)
        return rc;
    if (json_array_size(a) != (size_t)n)
        return lf_fail(err, LF_EFORMAT, "%s: \"%s\" has %zu numbers, needed are %d", what, key,
                       json_array_size(a), n);
    for (int i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(a, (size_t)i)))
            return lf_fail(err, LF_EFORMAT, "%s: \"%s\" holds something that is no integer", what,
                           key);
        out[i] = json_integer_value(json_array_get(a, (size_t)i));
    }
    return 0;
}

static int load_piece(struct lf_ckpt_piece *p, const lf_ckpt_entry *e, json_t *o, lf_err *err)
{
    const char *file = NULL;
    int rc;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "tensor %s: a piece is no object", e->name);
    if ((rc = lf_json_get_str(&file, o, "file", true, "a piece", err)) < 0 ||
        (rc = lf_json_get_i64(&p->offset, o, "offset", true, "a piece", err)) < 0 ||
        (rc = get_ints(p->lo, e->ndim, o, "lo", "a piece", err)) < 0 ||
        (rc = get_ints(p->hi, e->ndim, o, "hi", "a piece", err)) < 0 ||
        (rc = get_ints(p->flat, 2, o, "flat", "a piece", err)) < 0)
        return rc;
    if (p->offset < 0)
        return lf_fail(err, LF_EFORMAT, "tensor %s: a piece at a negative offset", e->name);
    return (p->file = lf_strdup(file, err)) ? 0 : LF_ENOMEM;
}

static int load_rec(struct lf_ckpt_rec *r, json_t *o, lf_err *err)
{
    const char *name = NULL, *kind = NULL, *dtype = NULL, *hex = NULL;
    json_t *shape = NULL, *pieces = NULL;
    int rc;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "a tensor is no object");
    if ((rc = lf_json_get_str(&name, o, "name", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_str(&kind, o, "kind", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_str(&dtype, o, "dtype", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_str(&hex, o, "sha256", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_array(&shape, o, "shape", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_array(&pieces, o, "pieces", true, "a tensor", err)) < 0 ||
        (rc = lf_artifact_parse_hex(r->sha256, hex, err)) < 0 ||
        (rc = lf_h5_type_parse(&r->e.dtype, dtype, err)) < 0)
        return rc;
    if (!(r->name = lf_strdup(name, err)) || !(r->kind = lf_strdup(kind, err)))
        return LF_ENOMEM;
    r->e.name = r->name;
    r->e.kind = r->kind;
    if (json_array_size(shape) < 1 || json_array_size(shape) > LF_CKPT_MAX_DIMS)
        return lf_fail(err, LF_EFORMAT, "tensor %.200s has %zu dimensions", name,
                       json_array_size(shape));
    r->e.ndim = (int)json_array_size(shape);
    if ((rc = get_ints(r->e.shape, r->e.ndim, o, "shape", "a tensor", err)) < 0)
        return rc;
    if ((rc = lf_ckpt_check_entry(&r->e, &r->n_elems, err)) < 0)
        return LF_EFORMAT;
    if (json_array_size(pieces) > LF_CKPT_MAX_PIECES)
        return lf_fail(err, LF_EFORMAT, "tensor %s has too many pieces", r->e.name);
    if (!(r->pieces = lf_calloc(json_array_size(pieces), sizeof *r->pieces, err)))
        return LF_ENOMEM;
    for (; r->n_pieces < json_array_size(pieces); r->n_pieces++)
        if ((rc = load_piece(&r->pieces[r->n_pieces], &r->e, json_array_get(pieces, r->n_pieces),
                             err)) < 0)
            return rc;
    return lf_ckpt_check_pieces(r, err);
}

static int load_all(struct lf_ckpt_meta *m, json_t *o, lf_err *err)
{
    const char *hex = NULL;
    uint8_t have[LF_HASH_BYTES];
    json_t *list = NULL;
    int rc;
    if ((rc = lf_json_get_i64(&m->step, o, "step", true, "meta", err)) < 0 ||
        (rc = lf_json_get_str(&hex, o, "identity", true, "meta", err)) < 0 ||
        (rc = lf_json_get_array(&list, o, "tensors", true, "meta", err)) < 0 ||
        (rc = lf_artifact_parse_hex(m->identity, hex, err)) < 0)
        return rc;
    if (m->step < 0 || json_array_size(list) > LF_CKPT_MAX_TENSORS)
        return lf_fail(err, LF_EFORMAT, "step %lld, %zu tensors", (long long)m->step,
                       json_array_size(list));
    if (!(m->recs = lf_calloc(json_array_size(list), sizeof *m->recs, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < json_array_size(list); i++) {
        m->n_recs = i + 1;
        if ((rc = load_rec(&m->recs[i], json_array_get(list, i), err)) < 0)
            return rc;
        if (i && lf_ckpt_cmp(&m->recs[i - 1].e, &m->recs[i].e) >= 0)
            return lf_fail(err, LF_EFORMAT, "tensors are not sorted at %s", m->recs[i].e.name);
    }
    if ((rc = lf_ckpt_make_identity(m, have, err)) < 0)
        return rc;
    if (memcmp(have, m->identity, sizeof have) != 0)
        return lf_fail(err, LF_EFORMAT,
                       "the tensors do not give the checkpoint's identity (damaged manifest)");
    return 0;
}

int lf_ckpt_meta_load(struct lf_ckpt_meta *out, json_t *o, lf_err *err)
{
    struct lf_ckpt_meta m = {0};
    int rc = load_all(&m, o, err);
    if (rc < 0) {
        lf_ckpt_meta_fini(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void lf_ckpt_meta_fini(struct lf_ckpt_meta *m)
{
    for (size_t i = 0; i < m->n_recs; i++) {
        struct lf_ckpt_rec *r = &m->recs[i];
        for (size_t k = 0; k < r->n_pieces; k++)
            free(r->pieces[k].file);
        free(r->pieces);
        free(r->name);
        free(r->kind);
    }
    free(m->recs);
    *m = (struct lf_ckpt_meta){0};
}

char *lf_ckpt_dataset_name(const struct lf_ckpt_rec *r, size_t i, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    if (r->n_pieces == 1)
        lf_buf_addf(&b, "%s/%s", r->e.kind, r->e.name);
    else
        lf_buf_addf(&b, "pieces/%s/%s/%05zu", r->e.kind, r->e.name, i);
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}
