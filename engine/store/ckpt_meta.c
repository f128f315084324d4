/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a checkpoint: names, shapes, tiling, identity. Its JSON is ckpt_json.c.
 */
#include <stdlib.h>
#include <string.h>

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

/* A tensor "a" beside a tensor "a/b" would need a dataset and a group of one name. */
int lf_ckpt_check_names(const struct lf_ckpt_meta *m, lf_err *err)
{
    for (size_t i = 0; i < m->n_recs; i++) {
        const lf_ckpt_entry *e = &m->recs[i].e;
        for (size_t k = i + 1; k < m->n_recs && strcmp(m->recs[k].e.kind, e->kind) == 0; k++) {
            size_t n = strlen(e->name);
            const char *other = m->recs[k].e.name;
            if (strncmp(e->name, other, n) != 0)
                break;
            if (other[n] == '/')
                return lf_fail(err, LF_EINVAL,
                               "tensors %s and %s: one name is a folder of the other", e->name,
                               other);
        }
    }
    return 0;
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

int lf_ckpt_check_part(const struct lf_ckpt_rec *r, lf_err *err)
{
    const lf_ckpt_entry *e = &r->e;
    bool ok = r->n_pieces > 0 && box_inside(&r->pieces[0], e) && r->pieces[0].flat[0] >= 0;
    for (size_t i = 0; i < r->n_pieces && ok; i++) {
        const struct lf_ckpt_piece *p = &r->pieces[i];
        ok = same_box(p, &r->pieces[0], e->ndim) && p->flat[0] < p->flat[1] &&
             (uint64_t)p->flat[1] <= box_volume(p, e->ndim) &&
             (i == 0 || p->flat[0] == r->pieces[i - 1].flat[1]);
    }
    return ok ? 0
              : lf_fail(err, LF_EFORMAT, "tensor %s (%s): its part is no range of a box inside it",
                        e->name, e->kind);
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
    lf_hash_update(h, m->version == 1 ? "lf-ckpt-1" : "lf-ckpt-2", sizeof "lf-ckpt-1");
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

void lf_ckpt_rec_fini(struct lf_ckpt_rec *r)
{
    for (size_t k = 0; k < r->n_pieces; k++)
        free(r->pieces[k].file);
    free(r->pieces);
    free(r->leaves);
    free(r->name);
    free(r->kind);
}

void lf_ckpt_meta_fini(struct lf_ckpt_meta *m)
{
    for (size_t i = 0; i < m->n_recs; i++)
        lf_ckpt_rec_fini(&m->recs[i]);
    free(m->recs);
    *m = (struct lf_ckpt_meta){0};
}

/* ---- names ---- */

int lf_ckpt_file_part(const char *file)
{
    if (strncmp(file, "data-", 5) != 0)
        return -1;
    size_t n = strspn(file + 5, "0123456789");
    return n > 0 && n < 10 && file[5 + n] == '-' ? (int)strtol(file + 5, NULL, 10) : -1;
}

size_t lf_ckpt_n_data_files(const lf_artifact *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_files; i++)
        n += strncmp(a->files[i].path, "data-", 5) == 0;
    return n;
}

size_t lf_ckpt_piece_number(const struct lf_ckpt_rec *r, size_t i)
{
    int part = lf_ckpt_file_part(r->pieces[i].file);
    size_t first = i;
    if (part < 0)
        return i;
    while (first > 0 && lf_ckpt_file_part(r->pieces[first - 1].file) == part)
        first--; /* a writer's pieces of a tensor follow each other */
    return i - first;
}

char *lf_ckpt_dataset_name(const struct lf_ckpt_rec *r, size_t i, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    if (lf_ckpt_one_piece(r))
        lf_buf_addf(&b, "%s/%s", r->e.kind, r->e.name);
    else
        lf_buf_addf(&b, "pieces/%s/%s/%05zu", r->e.kind, r->e.name, lf_ckpt_piece_number(r, i));
    char *s = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return s;
}
