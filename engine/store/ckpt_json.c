/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a checkpoint as JSON. Nothing read here is believed: shapes, boxes and ranges
 * are checked before anyone computes with them, and the identity is recomputed, so that a changed
 * digit is seen.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/ckpt_priv.h"

static json_t *ints(const int64_t *v, int n)
{
    json_t *a = json_array();
    for (int i = 0; a && i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

/* The digits of n hashes one behind the other. */
static json_t *hashes(uint8_t (*v)[LF_HASH_BYTES], size_t n)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < n; i++) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, v[i]);
        lf_buf_adds(&b, hex);
    }
    json_t *s = lf_buf_check(&b, NULL) == 0 ? json_stringn(b.len ? b.data : "", b.len) : NULL;
    lf_buf_fini(&b);
    return s;
}

json_t *lf_ckpt_rec_json(const struct lf_ckpt_rec *r, bool part)
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
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", r->e.name, "kind", r->e.kind,
                     "dtype", lf_h5_type_name(r->e.dtype), "shape", ints(r->e.shape, r->e.ndim),
                     part ? "leaves" : "sha256",
                     part ? hashes(r->leaves, r->n_leaves) : json_string(hex), "pieces", pieces);
}

int lf_ckpt_meta_store(const struct lf_ckpt_meta *m, json_t *o, lf_err *err)
{
    char hex[LF_HASH_HEX];
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < m->n_recs && ok; i++)
        ok = json_array_append_new(list, lf_ckpt_rec_json(&m->recs[i], false)) == 0;
    lf_hash_hex(hex, m->identity);
    if (ok && m->version > 1)
        ok = json_object_set_new(o, "identity_version", json_integer(m->version)) == 0;
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

static int load_shape(struct lf_ckpt_rec *r, json_t *o, lf_err *err)
{
    const char *name = NULL, *kind = NULL, *dtype = NULL;
    json_t *shape = NULL;
    int rc;
    if ((rc = lf_json_get_str(&name, o, "name", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_str(&kind, o, "kind", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_str(&dtype, o, "dtype", true, "a tensor", err)) < 0 ||
        (rc = lf_json_get_array(&shape, o, "shape", true, "a tensor", err)) < 0 ||
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
    return lf_ckpt_check_entry(&r->e, &r->n_elems, err) < 0 ? LF_EFORMAT : 0;
}

static int load_pieces(struct lf_ckpt_rec *r, json_t *o, lf_err *err)
{
    json_t *pieces = NULL;
    int rc = lf_json_get_array(&pieces, o, "pieces", true, "a tensor", err);
    if (rc < 0)
        return rc;
    if (json_array_size(pieces) > LF_CKPT_MAX_PIECES)
        return lf_fail(err, LF_EFORMAT, "tensor %s has too many pieces", r->e.name);
    if (!(r->pieces = lf_calloc(json_array_size(pieces), sizeof *r->pieces, err)))
        return LF_ENOMEM;
    for (; r->n_pieces < json_array_size(pieces); r->n_pieces++)
        if ((rc = load_piece(&r->pieces[r->n_pieces], &r->e, json_array_get(pieces, r->n_pieces),
                             err)) < 0)
            return rc;
    return 0;
}

static int load_hashes(struct lf_ckpt_rec *r, json_t *o, lf_err *err)
{
    const char *text = NULL;
    int rc = lf_json_get_str(&text, o, "leaves", true, "a tensor", err);
    const size_t digits = LF_HASH_HEX - 1, n = rc < 0 ? 0 : strlen(text) / digits;
    if (rc == 0 && strlen(text) != n * digits)
        rc = lf_fail(err, LF_EFORMAT, "tensor %s: its leaves have no whole number of hashes",
                     r->e.name);
    if (rc < 0 || n == 0)
        return rc;
    if (!(r->leaves = lf_calloc(n, sizeof *r->leaves, err)))
        return LF_ENOMEM;
    for (; r->n_leaves < n && rc == 0; r->n_leaves++) {
        char hex[LF_HASH_HEX] = {0};
        memcpy(hex, text + r->n_leaves * digits, digits);
        rc = lf_artifact_parse_hex(r->leaves[r->n_leaves], hex, err);
    }
    return rc;
}

int lf_ckpt_rec_load(struct lf_ckpt_rec *r, json_t *o, bool part, lf_err *err)
{
    const char *hex = NULL;
    int rc;
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "a tensor is no object");
    if ((rc = load_shape(r, o, err)) < 0 || (rc = load_pieces(r, o, err)) < 0)
        return rc;
    if (part)
        return (rc = load_hashes(r, o, err)) < 0 ? rc : lf_ckpt_check_part(r, err);
    if ((rc = lf_json_get_str(&hex, o, "sha256", true, "a tensor", err)) < 0 ||
        (rc = lf_artifact_parse_hex(r->sha256, hex, err)) < 0)
        return rc;
    return lf_ckpt_check_pieces(r, err);
}

static int load_all(struct lf_ckpt_meta *m, json_t *o, lf_err *err)
{
    const char *hex = NULL;
    uint8_t have[LF_HASH_BYTES];
    json_t *list = NULL;
    int64_t version = 1;
    int rc;
    if ((rc = lf_json_get_i64(&version, o, "identity_version", false, "meta", err)) < 0)
        return rc;
    if (version != 1 && version != 2)
        return lf_fail(err, LF_ENOTSUP, "identity_version %lld; this program reads 1 and 2",
                       (long long)version);
    m->version = (int)version;
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
        if ((rc = lf_ckpt_rec_load(&m->recs[i], json_array_get(list, i), false, err)) < 0)
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
