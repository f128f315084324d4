/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ranges of tensors: one pread where the bytes are one run, else piece by piece.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/tensors_priv.h"

/* Short runs that lie close together are cut from a window of the file instead of being read one by
 * one. */
#define WINDOW ((int64_t)256 << 10)

struct reader {
    const struct lf_st_file *f;
    const struct lf_st_piece *p;
    int64_t elem;
    int64_t lo, hi;     /* wanted elements of the tensor */
    unsigned char *dst; /* of element lo */
    unsigned char *window;
    int64_t win_at, win_end; /* bytes of the file */
    int64_t end;             /* of the piece's bytes in the file */
    lf_err *err;
};

/* bytes of the file at `at`: borrowed from the window until the next call. alone: what follows is
 * not wanted soon. */
static int from_window(struct reader *r, int64_t at, int64_t bytes, bool alone,
                       const unsigned char **out)
{
    if (at < r->win_at || at + bytes > r->win_end) {
        int64_t n = alone ? bytes : r->end - at < WINDOW ? r->end - at : WINDOW;
        int rc = lf_io_pread_all(r->f->fd, r->window, (size_t)n, (off_t)at, r->f->path, r->err);
        if (rc < 0)
            return rc;
        r->win_at = at;
        r->win_end = at + n;
    }
    *out = r->window + (at - r->win_at);
    return 0;
}

/* The innermost dimension: elements i0 <= i < i1 at src (bytes) + i * step, for places to + i *
 * dst. */
static int read_run(struct reader *r, int64_t src, int64_t to, int64_t i0, int64_t i1, bool far)
{
    const struct lf_st_piece *p = r->p;
    int k = p->ndim - 1;
    int64_t elem = r->elem, step = k < 0 ? elem : p->src[k] * elem, dst = k < 0 ? 1 : p->dst[k];
    bool run = step == elem;
    unsigned char *at = r->dst + (to + i0 * dst - r->lo) * elem;
    if (run && dst == 1 && (far || (i1 - i0) * elem > WINDOW / 4))
        return lf_io_pread_all(r->f->fd, at, (size_t)((i1 - i0) * elem), (off_t)(src + i0 * step),
                               r->f->path, r->err);
    int64_t at_once = run ? WINDOW / elem : 1;
    for (int64_t i = i0; i < i1;) {
        int64_t n = i1 - i < at_once ? i1 - i : at_once;
        const unsigned char *from;
        int rc = from_window(r, src + i * step, n * elem, !run && step > WINDOW / 16, &from);
        if (rc < 0)
            return rc;
        if (dst == 1)
            memcpy(at, from, (size_t)(n * elem));
        else
            for (int64_t j = 0; j < n; j++)
                memcpy(at + j * dst * elem, from + j * elem, (size_t)elem);
        at += n * dst * elem;
        i += n;
    }
    return 0;
}

/* How far the dimensions behind k reach in the tensor. */
static int64_t reach(const struct lf_st_piece *p, int k)
{
    int64_t n = 0;
    for (k++; k < p->ndim; k++)
        n += (p->n[k] - 1) * p->dst[k];
    return n;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

static int read_dims(struct reader *r, int k, int64_t src, int64_t to)
{
    const struct lf_st_piece *p = r->p;
    if (p->ndim == 0)
        return to >= r->lo && to < r->hi ? read_run(r, src, to, 0, 1, true) : 0;
    /* Only indices whose places can be wanted: lo - reach <= to + i * dst < hi. */
    int64_t dst = p->dst[k], i0 = 0, i1 = p->n[k];
    if (dst > 0) {
        int64_t a = floor_div(r->lo - reach(p, k) - to + dst - 1, dst),
                b = floor_div(r->hi - 1 - to, dst) + 1;
        i0 = a > 0 ? a : 0;
        i1 = b < i1 ? b : i1;
    }
    if (k == p->ndim - 1) {
        bool far = k > 0 && p->src[k - 1] * r->elem > WINDOW / 4;
        return i0 < i1 ? read_run(r, src, to, i0, i1, far) : 0;
    }
    for (int64_t i = i0; i < i1; i++) {
        int rc = read_dims(r, k + 1, src + i * p->src[k] * r->elem, to + i * dst);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_pieces(const lf_st *s, const struct lf_st_rec *rec, int64_t lo, int64_t hi,
                       void *dst, lf_err *err)
{
    struct reader r = {.elem = (int64_t)lf_st_dtype_bytes(rec->e.dtype),
                       .lo = lo,
                       .hi = hi,
                       .dst = dst,
                       .err = err};
    int rc = 0;
    if (!(r.window = lf_malloc((size_t)WINDOW, 1, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < rec->n_pieces && rc == 0; i++) {
        const struct lf_st_piece *p = &s->pieces[rec->piece + i];
        r.p = p;
        r.f = &s->files[p->file];
        r.win_at = r.win_end = 0;
        r.end = p->offset + r.elem;
        for (int k = 0; k < p->ndim; k++)
            r.end += (p->n[k] - 1) * p->src[k] * r.elem;
        rc = read_dims(&r, 0, p->offset, p->first);
    }
    free(r.window);
    return rc;
}

int lf_st_read(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst,
               lf_err *err)
{
    const struct lf_st_rec *r =
        (const struct lf_st_rec *)(const void *)e; /* e is its first member */
    int64_t elem = (int64_t)lf_st_dtype_bytes(e->dtype);
    if (first < 0 || n < 0 || first > e->elems || n > e->elems - first)
        return lf_fail(err, LF_EINVAL, "tensor %.200s: elements %lld to %lld of %lld", e->name,
                       (long long)first, (long long)first + (long long)n, (long long)e->elems);
    if (n == 0)
        return 0;
    if (r->scale)
        return r->scale->rows ? lf_st_read_scaled(s, r, first, n, dst, err)
                              : lf_st_read_mxfp4(s, r, first, n, dst, err);
    if (e->offset < 0 && r->n_pieces == 0)
        LF_BUG("tensor %s was never placed", e->name);
    const struct lf_st_file *f = &s->files[e->file];
    int rc = r->n_pieces ? read_pieces(s, r, first, first + n, dst, err)
                         : lf_io_pread_all(f->fd, dst, (size_t)(n * elem),
                                           (off_t)(e->offset + first * elem), f->path, err);
    return rc < 0 ? lf_err_prefix(err, "tensor %.200s", e->name) : 0;
}

/* All ones in the exponent. `mask` in the type's own width; data need not be aligned. */
#define COUNT(type, mask)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type v;                                                                                    \
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                            \
        count += (v & (mask)) == (mask);                                                           \
    }

int64_t lf_st_count_nonfinite(enum lf_st_dtype t, const void *data, int64_t n)
{
    const unsigned char *p = data;
    int64_t count = 0;
    switch (t) {
    case LF_ST_F16:
        COUNT(uint16_t, 0x7C00u)
        break;
    case LF_ST_BF16:
        COUNT(uint16_t, 0x7F80u)
        break;
    case LF_ST_F32:
        COUNT(uint32_t, 0x7F800000u)
        break;
    case LF_ST_F64:
        COUNT(uint64_t, 0x7FF0000000000000ull)
        break;
    case LF_ST_F8_E5M2:
        COUNT(uint8_t, 0x7Cu)
        break;
    case LF_ST_F8_E4M3: /* no infinity; NaN is all ones below the sign */
        COUNT(uint8_t, 0x7Fu)
        break;
    case LF_ST_F8_E8M0:
        COUNT(uint8_t, 0xFFu)
        break;
    default:
        break;
    }
    return count;
}
