/* SPDX-License-Identifier: Apache-2.0
 *
 * How Megatron-LM divides its tensors over tensor-parallel ranks, and putting them together again:
 * every rank's part becomes one or two pieces (tensors_priv.h), so nothing is copied before it is
 * read.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/store/megatron_ckpt_priv.h"

/* By the end of the name; names of the older classes (language_model.encoder. ...) and of Megatron
 * core. */
static const struct {
    const char *suffix;
    enum lf_mg_kind kind;
} KINDS[] = {
    {".query_key_value.weight", LF_MG_QKV},
    {".query_key_value.bias", LF_MG_QKV},
    {".linear_qkv.weight", LF_MG_QKV},
    {".linear_qkv.bias", LF_MG_QKV},
    {".dense_h_to_4h.weight", LF_MG_FC1},
    {".dense_h_to_4h.bias", LF_MG_FC1},
    {".linear_fc1.weight", LF_MG_FC1},
    {".linear_fc1.bias", LF_MG_FC1},
    {"word_embeddings.weight", LF_MG_VOCAB},
    {"word_embeddings_for_head.weight", LF_MG_VOCAB},
    {"output_layer.weight", LF_MG_VOCAB},
    {"output_layer.bias", LF_MG_VOCAB},
    {"lm_head.weight", LF_MG_VOCAB},
    {"lm_head.bias", LF_MG_VOCAB},
    {"attention.dense.weight", LF_MG_ROW},
    {".linear_proj.weight", LF_MG_ROW},
    {".dense_4h_to_h.weight", LF_MG_ROW},
    {".linear_fc2.weight", LF_MG_ROW},
    {"attention.dense.bias", LF_MG_SAME},
    {".linear_proj.bias", LF_MG_SAME},
    {".dense_4h_to_h.bias", LF_MG_SAME},
    {".linear_fc2.bias", LF_MG_SAME},
    {"layernorm.weight", LF_MG_SAME},
    {"layernorm.bias", LF_MG_SAME},
    {"norm.weight", LF_MG_SAME},
    {"norm.bias", LF_MG_SAME},
    {".layer_norm_weight", LF_MG_SAME},
    {".layer_norm_bias", LF_MG_SAME},
    {"position_embeddings.weight", LF_MG_SAME},
    {"tokentype_embeddings.weight", LF_MG_SAME},
    {".router.weight", LF_MG_SAME},
    {".router.expert_bias", LF_MG_SAME},
    {".shared_experts.gate_weight", LF_MG_SAME},
    {".inv_freq", LF_MG_SAME},
};

enum lf_mg_kind lf_mg_kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (lf_str_has_suffix(name, KINDS[i].suffix))
            return KINDS[i].kind;
    return LF_MG_UNKNOWN;
}

/* ---- pieces ---- */

/* Rows of a shard and where they go: up to three axes, in rows. */
struct rows {
    int n_axes;
    int64_t n[3], src[3], dst[3];
    int64_t src0, dst0; /* of the first row */
};

/* The elements behind one row of t, and of the merged tensor e. */
static int64_t row_elems(const int64_t *shape, int ndim)
{
    int64_t n = 1;
    for (int k = 1; k < ndim; k++)
        n *= shape[k];
    return n;
}

/* col0: where the shard's columns begin in the merged tensor (row-parallel layers). */
static int add_rows(lf_st *s, const lf_st_entry *e, const struct lf_pv_tensor *t,
                    const struct rows *r, int64_t col0, lf_err *err)
{
    struct lf_st_piece p = {.file = t->storage->file};
    int64_t row = row_elems(e->shape, e->ndim), elem = (int64_t)lf_st_dtype_bytes(t->dtype),
            dst = row;
    for (int k = 0; k < r->n_axes; k++) {
        if (r->n[k] == 0)
            return 0;
        p.n[p.ndim] = r->n[k];
        p.src[p.ndim] = r->src[k] * t->stride[0];
        p.dst[p.ndim++] = r->dst[k] * row;
    }
    for (int k = 1; k < t->ndim; k++) {
        dst /= e->shape[k];
        if (p.ndim == LF_ST_MAX_DIMS)
            return lf_fail(err, LF_ENOTSUP, "tensor %.200s has %d dimensions", e->name, t->ndim);
        if (t->shape[k] == 0)
            return 0;
        p.n[p.ndim] = t->shape[k];
        p.src[p.ndim] = t->stride[k];
        p.dst[p.ndim++] = dst;
    }
    p.offset = t->storage->offset + (t->first + r->src0 * t->stride[0]) * elem;
    p.first = r->dst0 * row + col0;
    return lf_st_add_piece(s, &p, err);
}

/* Rows [0, n) of the shard to rows dst0, dst0 + 1, ... */
static struct rows plain(int64_t n, int64_t src0, int64_t dst0)
{
    return (struct rows){1, {n}, {1}, {1}, src0, dst0};
}

/* ---- kinds ---- */

static int add_column(lf_st *s, const lf_st_entry *e, const struct lf_pv_tensor *const *t, int tp,
                      lf_err *err)
{
    int rc = 0;
    int64_t at = 0;
    for (int i = 0; i < tp && rc == 0; i++) {
        int64_t n = t[i]->shape[0] < e->shape[0] - at ? t[i]->shape[0]
                                                      : e->shape[0] - at; /* padding is cut off */
        struct rows r = plain(n, 0, at);
        rc = add_rows(s, e, t[i], &r, 0, err);
        at += n;
    }
    return rc;
}

static int add_gated(lf_st *s, const lf_st_entry *e, const struct lf_pv_tensor *const *t, int tp,
                     lf_err *err)
{
    int rc = 0;
    int64_t at = 0;
    for (int i = 0; i < tp && rc == 0; i++) {
        int64_t half = t[i]->shape[0] / 2;
        struct rows gate = plain(half, 0, at), up = plain(half, half, e->shape[0] / 2 + at);
        if (t[i]->shape[0] % 2)
            return lf_fail(err, LF_EFORMAT,
                           "tensor %.200s has an odd number of rows; gate and up need two halves",
                           e->name);
        rc = add_rows(s, e, t[i], &gate, 0, err);
        if (rc == 0)
            rc = add_rows(s, e, t[i], &up, 0, err);
        at += half;
    }
    return rc;
}

static int add_row(lf_st *s, const lf_st_entry *e, const struct lf_pv_tensor *const *t, int tp,
                   lf_err *err)
{
    int rc = 0;
    int64_t at = 0;
    for (int i = 0; i < tp && rc == 0; i++) {
        struct rows r = plain(t[i]->shape[0], 0, 0);
        rc = add_rows(s, e, t[i], &r, at, err);
        at += t[i]->shape[1];
    }
    return rc;
}

/* Groups of [q ... q, k, v], whatever the version. */
static int add_qkv(lf_st *s, const lf_st_entry *e, const struct lf_pv_tensor *const *t,
                   const struct lf_mg_shape *m, lf_err *err)
{
    int rc = 0;
    int64_t at = 0, d = m->head_dim, rows = (m->heads + 2 * m->groups) * d;
    if (e->shape[0] != rows || m->groups % m->tp)
        return lf_fail(err, LF_EFORMAT,
                       "tensor %.200s has %lld rows over %d ranks; %lld heads and %lld groups of "
                       "%lld need %lld rows and a "
                       "number of groups that the ranks can share",
                       e->name, (long long)e->shape[0], m->tp, (long long)m->heads,
                       (long long)m->groups, (long long)d, (long long)rows);
    if (m->version >= 2)
        return add_column(s, e, t, m->tp, err);
    if (m->groups != m->heads)
        return lf_fail(err, LF_ENOTSUP,
                       "tensor %.200s: checkpoint_version %g knows no groups of queries", e->name,
                       m->version);
    for (int i = 0; i < m->tp && rc == 0; i++) {
        int64_t h = m->heads / m->tp;
        struct rows v0 = {3, {3, h, d}, {h * d, d, 1}, {d, 3 * d, 1}, 0, at};
        struct rows v1 = {3, {h, d, 3}, {3 * d, 3, 1}, {3 * d, 1, d}, 0, at};
        if (t[i]->shape[0] != 3 * h * d)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s: rank %d has %lld rows, not %lld",
                           e->name, i, (long long)t[i]->shape[0], (long long)(3 * h * d));
        rc = add_rows(s, e, t[i], m->version < 1 ? &v0 : &v1, 0, err);
        at += 3 * h * d;
    }
    return rc;
}

/* ---- one tensor ---- */

/* Shards agree in type and in every dimension but the one that is divided; *shape: of the whole. */
static int whole_shape(int64_t *shape, const char *name, const struct lf_pv_tensor *const *t,
                       int tp, int divided, lf_err *err)
{
    memcpy(shape, t[0]->shape, sizeof t[0]->shape);
    for (int i = 1; i < tp; i++) {
        bool ok = t[i]->dtype == t[0]->dtype && t[i]->ndim == t[0]->ndim;
        for (int k = 0; ok && k < t[0]->ndim; k++) {
            if (k == divided)
                ok = !__builtin_add_overflow(shape[k], t[i]->shape[k], &shape[k]);
            else
                ok = t[i]->shape[k] == shape[k];
        }
        if (!ok)
            return lf_fail(err, LF_EFORMAT,
                           "tensor %.200s: rank %d has another type or shape than rank 0", name, i);
    }
    return 0;
}

int lf_mg_merge(lf_st *s, const char *name, const struct lf_pv_tensor *const *t,
                const struct lf_mg_shape *m, lf_err *err)
{
    enum lf_mg_kind kind = lf_mg_kind_of(name);
    int64_t shape[LF_ST_MAX_DIMS];
    bool whole = kind == LF_MG_SAME || kind == LF_MG_UNKNOWN;
    int divided = whole ? -1 : kind == LF_MG_ROW ? 1 : 0;
    if (kind == LF_MG_UNKNOWN && m->tp > 1)
        return lf_fail(err, LF_ENOTSUP,
                       "tensor %.200s is of no known kind, so its %d parts cannot be put together",
                       name, m->tp);
    if (t[0]->ndim <= divided)
        return lf_fail(err, LF_EFORMAT, "tensor %.200s has only %d dimensions", name, t[0]->ndim);
    int rc = whole_shape(shape, name, t, m->tp, divided, err);
    if (rc < 0)
        return rc;
    if (whole) {
        for (int i = 1; i < m->tp && rc == 0; i++)
            rc = lf_mg_compare(s, name, t[0], t[i], err);
        return rc < 0 ? rc : lf_torch_add_tensor(s, name, t[0], err);
    }
    if (kind == LF_MG_VOCAB && m->vocab_size) {
        if (m->vocab_size > shape[0])
            return lf_fail(err, LF_EINVAL,
                           "tensor %.200s has %lld rows, fewer than the vocabulary of %lld", name,
                           (long long)shape[0], (long long)m->vocab_size);
        shape[0] = m->vocab_size;
    }
    const lf_st_entry *e = lf_st_add_entry(s, name, t[0]->dtype, t[0]->ndim, shape, err);
    if (!e)
        return err && err->rc ? err->rc : LF_EFORMAT;
    if (e->elems == 0) {
        lf_st_place(s, t[0]->storage->file, t[0]->storage->offset);
        return 0;
    }
    if (kind == LF_MG_ROW)
        return add_row(s, e, t, m->tp, err);
    if (kind == LF_MG_QKV)
        return add_qkv(s, e, t, m, err);
    return kind == LF_MG_FC1 && m->gated ? add_gated(s, e, t, m->tp, err)
                                         : add_column(s, e, t, m->tp, err);
}

#define COMPARE_BYTES ((size_t)1 << 20)

/* Through two sets of one entry each, which only borrow the files. */
int lf_mg_compare(const lf_st *s, const char *name, const struct lf_pv_tensor *a,
                  const struct lf_pv_tensor *b, lf_err *err)
{
    const struct lf_pv_tensor *v[2] = {a, b};
    lf_st *one[2] = {NULL, NULL};
    if (a->dtype != b->dtype || a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) != 0)
        return lf_fail(
            err, LF_EFORMAT, "tensor %.200s has two types or shapes, in %.300s and %.300s", name,
            lf_st_file_at(s, (size_t)a->storage->file), lf_st_file_at(s, (size_t)b->storage->file));
    unsigned char *buf = lf_malloc(2 * COMPARE_BYTES, 1, err);
    int rc = buf ? 0 : LF_ENOMEM;
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (!(one[i] = lf_st_create(err)))
            rc = LF_ENOMEM;
        else {
            one[i]->files = s->files;
            one[i]->n_files = s->n_files;
            rc = lf_torch_add_tensor(one[i], name, v[i], err);
        }
        if (rc == 0)
            rc = lf_st_seal(one[i], err);
    }
    if (rc == 0) {
        const lf_st_entry *e = lf_st_entry_at(one[0], 0), *f = lf_st_entry_at(one[1], 0);
        int64_t elem = (int64_t)lf_st_dtype_bytes(e->dtype), step = (int64_t)COMPARE_BYTES / elem;
        for (int64_t at = 0; at < e->elems && rc == 0; at += step) {
            int64_t n = e->elems - at < step ? e->elems - at : step;
            rc = lf_st_read(one[0], e, at, n, buf, err);
            if (rc == 0)
                rc = lf_st_read(one[1], f, at, n, buf + COMPARE_BYTES, err);
            if (rc == 0 && memcmp(buf, buf + COMPARE_BYTES, (size_t)(n * elem)) != 0)
                rc = lf_fail(err, LF_EFORMAT,
                             "tensor %.200s should be the same in %.300s and %.300s and is not",
                             name, lf_st_file_at(s, (size_t)a->storage->file),
                             lf_st_file_at(s, (size_t)b->storage->file));
        }
    }
    for (int i = 0; i < 2; i++)
        if (one[i]) {
            one[i]->files = NULL; /* borrowed */
            one[i]->n_files = 0;
            lf_st_close(one[i]);
        }
    free(buf);
    return rc;
}
