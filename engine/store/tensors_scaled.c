/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of 8-bit floats whose blocks have a scale each, read as bf16. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/f8_blocks.h"
#include "engine/store/tensors_priv.h"

/* ---- reading ---- */

/* What a read of elements [first, first + n) of a tensor has at hand. */
struct scaled_read {
    struct lf_f8_grid grid;
    enum lf_st_dtype type; /* of scales */
    int64_t first, n;
    const uint8_t *raw; /* of element `first` */
    uint16_t *dst;      /* the same */
    const void *row;    /* scales of one row of blocks */
};

/* Rows [r0, r1) of one block of columns, by a table of what each 8-bit number is times its scale:
 * the product is rounded once. */
static void expand_block(const struct scaled_read *x, int64_t r0, int64_t r1, int64_t b)
{
    const struct lf_f8_grid *g = &x->grid;
    uint16_t value[256];
    lf_f8_values(value, lf_f8_scale_of(x->type, x->row, b));
    const int64_t c0 = b * g->cols, end = c0 + g->cols < g->width ? c0 + g->cols : g->width;
    for (int64_t r = r0; r < r1; r++) {
        int64_t lo = r * g->width + c0 - x->first, hi = r * g->width + end - x->first;
        lo = lo > 0 ? lo : 0;
        hi = hi < x->n ? hi : x->n;
        for (int64_t i = lo; i < hi; i++)
            x->dst[i] = value[x->raw[i]];
    }
}

/* One row of blocks after the other. */
static int expand(const lf_st *s, const lf_st_entry *scales, struct scaled_read *x, void *row,
                  lf_err *err)
{
    const int64_t end = (x->first + x->n - 1) / x->grid.width + 1;
    int rc = 0;
    x->row = row;
    for (int64_t r = x->first / x->grid.width, next, at; r < end && rc == 0; r = next) {
        next = lf_f8_band(&x->grid, r, end, &at);
        rc = lf_st_read(s, scales, at, x->grid.across, row, err);
        for (int64_t b = 0; b < x->grid.across && rc == 0; b++)
            expand_block(x, r, next, b);
    }
    return rc;
}

int lf_st_read_codes(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst,
                     lf_err *err)
{
    struct lf_st_rec as_stored = *(const struct lf_st_rec *)(const void *)e;
    as_stored.scale = NULL;
    as_stored.e.dtype = LF_ST_F8_E4M3;
    return lf_st_read(s, &as_stored.e, first, n, dst, err);
}

const lf_st_entry *lf_st_scales_of(const lf_st_entry *e)
{
    const struct lf_st_rec *r = (const struct lf_st_rec *)(const void *)e;
    return r->scale && r->scale->rows ? &r->scale->rec.e : NULL;
}

const lf_st_entry *lf_st_act_scale_of(const lf_st_entry *e)
{
    const struct lf_st_rec *r = (const struct lf_st_rec *)(const void *)e;
    return r->scale && r->scale->act.e.name ? &r->scale->act.e : NULL;
}

int lf_st_read_scaled(const lf_st *s, const struct lf_st_rec *r, int64_t first, int64_t n,
                      void *dst, lf_err *err)
{
    const lf_st_entry *scales = &r->scale->rec.e;
    struct scaled_read x = {.type = scales->dtype, .first = first, .n = n, .dst = dst};
    if (!lf_f8_grid_of(&x.grid, r->e.ndim, r->e.shape, r->scale->rows, r->scale->cols))
        LF_BUG("tensor %s is no matrix and has scales", r->e.name);
    uint8_t *raw = lf_malloc((size_t)n, 1, err);
    void *row = lf_calloc((size_t)x.grid.across, sizeof(float), err);
    int rc = raw && row ? lf_st_read_codes(s, &r->e, first, n, raw, err) : LF_ENOMEM;
    x.raw = raw;
    if (rc == 0)
        rc = expand(s, scales, &x, row, err);
    free(raw);
    free(row);
    return rc;
}

/* ---- which tensors are scaled ---- */

static bool is_scale(const lf_st_entry *e, const struct lf_st_rec *of, int64_t rows, int64_t cols)
{
    struct lf_f8_grid g;
    int64_t shape[LF_ST_MAX_DIMS];
    const bool whole = rows == LF_ST_WHOLE && of->e.ndim == 2 && e->ndim < 2 && e->elems == 1;
    if (whole)
        return e->dtype == LF_ST_F32 || e->dtype == LF_ST_BF16;
    if (!lf_f8_is_scale(e->dtype) || e->ndim != of->e.ndim ||
        !lf_f8_grid_of(&g, of->e.ndim, of->e.shape, rows, cols))
        return false;
    lf_f8_scales_shape(&g, e->ndim, shape);
    return memcmp(shape, e->shape, (size_t)e->ndim * sizeof *shape) == 0;
}

int lf_st_find_scale(const lf_st *s, const struct lf_st_rec *of, const char *what, int stem,
                     const char *suffix, const lf_st_entry **out, lf_err *err)
{
    lf_buf name;
    lf_buf_init(&name);
    lf_buf_addf(&name, "%.*s%s", stem, of->e.name, suffix);
    int rc = lf_buf_check(&name, err);
    if (rc == 0 && !(*out = lf_st_find(s, name.data)))
        rc = lf_fail(err, LF_EFORMAT, "tensor %.200s is of %s and has no scales (%.220s)",
                     of->e.name, what, name.data);
    lf_buf_fini(&name);
    return rc;
}

int lf_st_take_scale(struct lf_st_rec *r, const lf_st_entry *e, int64_t rows, int64_t cols,
                     lf_err *err)
{
    struct lf_st_rec *from = (struct lf_st_rec *)(void *)(uintptr_t)e;
    r->scale = lf_calloc(1, sizeof *r->scale, err);
    if (!r->scale)
        return LF_ENOMEM;
    *r->scale = (struct lf_st_scale){.rec = *from, .rows = rows, .cols = cols};
    from->hidden = true;
    r->e.dtype = LF_ST_BF16;
    r->e.bytes = 2 * r->e.elems;
    return 0;
}

int lf_st_drop_scales(lf_st *s, lf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_recs; i++) /* the names of hidden ones are those of scales now */
        if (!s->recs[i].hidden)
            s->recs[n++] = s->recs[i];
    s->n_recs = n;
    for (size_t i = 0; i < n; i++)
        s->recs[i].e.alias_of = -1;
    return lf_st_seal(s, err);
}

/* Of what the matrix multiplies, where the file has it. */
static int take_act_scale(lf_st *s, struct lf_st_rec *r, lf_err *err)
{
    const size_t len = strlen(r->e.name), stem = len - strlen(LF_ST_WEIGHT);
    lf_buf name;
    if (!lf_str_has_suffix(r->e.name, LF_ST_WEIGHT))
        return 0;
    lf_buf_init(&name);
    lf_buf_addf(&name, "%.*s" LF_ST_ACT_SCALE, (int)stem, r->e.name);
    int rc = lf_buf_check(&name, err);
    const lf_st_entry *e = rc == 0 ? lf_st_find(s, name.data) : NULL;
    lf_buf_fini(&name);
    if (!e)
        return rc;
    if (e->ndim > 1 || e->elems != 1 || (e->dtype != LF_ST_F32 && e->dtype != LF_ST_BF16))
        return lf_fail(err, LF_EFORMAT, "%.200s is not one number of F32 or BF16", e->name);
    struct lf_st_rec *from = (struct lf_st_rec *)(void *)(uintptr_t)e;
    r->scale->act = *from;
    from->hidden = true;
    return 0;
}

static int take_scale(lf_st *s, struct lf_st_rec *r, const char *suffix, int64_t rows, int64_t cols,
                      lf_err *err)
{
    const lf_st_entry *e = NULL;
    int rc = lf_st_find_scale(s, r, "8-bit floats", (int)strlen(r->e.name), suffix, &e, err);
    const bool fits = rc == 0 && is_scale(e, r, rows, cols);
    if (rc == 0 && !fits && rows == LF_ST_WHOLE)
        rc = lf_fail(err, LF_EFORMAT, "%.200s is not one number of F32 or BF16 for all of %.200s",
                     e->name, r->e.name);
    else if (rc == 0 && !fits)
        rc = lf_fail(err, LF_EFORMAT,
                     "%.200s is no matrix of F32, BF16 or F8_E8M0 with one scale for each block of "
                     "%lld x %lld of %.200s",
                     e->name, (long long)rows, (long long)cols, r->e.name);
    rc = rc != 0 ? rc : lf_st_take_scale(r, e, rows, cols, err);
    return rc == 0 && rows == LF_ST_WHOLE ? take_act_scale(s, r, err) : rc;
}

int lf_st_scale_blocks(lf_st *s, const char *suffix, int64_t rows, int64_t cols, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->n_recs && rc == 0; i++)
        if (s->recs[i].e.dtype == LF_ST_F8_E4M3 && !s->recs[i].scale)
            rc = take_scale(s, &s->recs[i], suffix, rows, cols, err);
    return rc != 0 ? rc : lf_st_drop_scales(s, err);
}
