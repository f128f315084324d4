/* SPDX-License-Identifier: Apache-2.0
 *
 * Values to 8-bit floats in blocks, a band of blocks after the other. */
#include "engine/convert/requant.h"

#include <stdlib.h>

#include "engine/base/mem.h"

/* Rows of a band that are in memory. */
struct rows {
    int64_t row, end, block; /* rows of all matrices, the first block */
    float *v;
    uint8_t *had;   /* codes that the tensor had; NULL: they follow */
    uint8_t *codes; /* that go out */
};

static int64_t all_rows(const struct lf_f8_grid *g)
{
    return g->matrices * g->height;
}

static int64_t n_blocks(const struct lf_f8_grid *g)
{
    return g->matrices * g->down * g->across;
}

static int rows_init(struct rows *x, const struct lf_requant *q, int64_t step, lf_err *err)
{
    const int64_t n = step > q->grid.width ? step : q->grid.width;
    *x = (struct rows){.v = lf_malloc((size_t)n, sizeof *x->v, err),
                       .had = q->codes ? lf_malloc((size_t)n, 1, err) : NULL,
                       .codes = lf_malloc((size_t)n, 1, err)};
    return x->v && x->codes && (x->had || !q->codes) ? 0 : LF_ENOMEM;
}

static void rows_fini(struct rows *x)
{
    free(x->v);
    free(x->had);
    free(x->codes);
}

/* The next rows: false, there are none. */
static bool advance(struct rows *x, const struct lf_requant *q, const struct lf_requant_job *job)
{
    const struct lf_f8_grid *g = &q->grid;
    const int64_t most = job->step / g->width, all = all_rows(g);
    x->row = x->end;
    x->end = x->row + (most > 0 ? most : 1);
    if (x->row == all)
        return false;
    x->end = lf_f8_band(g, x->row, x->end < all ? x->end : all, &x->block);
    return true;
}

static int load(struct rows *x, const struct lf_requant *q, const struct lf_requant_job *job,
                lf_err *err)
{
    const int64_t first = x->row * q->grid.width, n = (x->end - x->row) * q->grid.width;
    const int rc = lf_move_block(job->values, first, n, x->v, err);
    return rc == 0 && q->codes ? lf_ckpt_read_flat(q->ckpt, q->codes, first, n, x->had, err) : rc;
}

/* ---- what the blocks are ---- */

/* Blocks with the scales that they had. */
static int begin(struct lf_requant *q, lf_err *err)
{
    const int64_t n = n_blocks(&q->grid);
    void *had = q->scales ? lf_malloc((size_t)n, sizeof(float), err) : NULL;
    q->blocks = lf_calloc((size_t)n, sizeof *q->blocks, err);
    int rc = q->blocks && (had || !q->scales) ? 0 : LF_ENOMEM;
    if (rc == 0 && had)
        rc = lf_ckpt_read_flat(q->ckpt, q->scales, 0, n, had, err);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        struct lf_f8_block *b = &q->blocks[i];
        b->changed = !had;
        b->scale = had ? lf_f8_scale_of(q->type, had, i) : 0;
        b->by = 1 / b->scale;
    }
    free(had);
    return rc;
}

/* The values of each block of a row of them. */
static void make_values(uint16_t *value, const struct lf_requant *q, int64_t block)
{
    for (int64_t b = 0; b < q->grid.across; b++)
        lf_f8_values(value + b * 256, q->blocks[block + b].scale);
}

static void look_at(const struct lf_requant *q, const struct rows *x, const uint16_t *value)
{
    const struct lf_f8_grid *g = &q->grid;
    for (int64_t i = 0; i < (x->end - x->row) * g->across; i++) {
        const int64_t b = i % g->across, c = b * g->cols, at = i / g->across * g->width + c;
        lf_f8_look(&q->blocks[x->block + b], value ? value + b * 256 : NULL,
                   x->had ? x->had + at : NULL, x->v + at,
                   c + g->cols < g->width ? g->cols : g->width - c);
    }
}

static int look(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    struct rows x = {0};
    int64_t known = -1;
    uint16_t *value = NULL;
    int rc = begin(q, err);
    if (rc == 0)
        rc = rows_init(&x, q, job->step, err);
    if (rc == 0 && q->scales &&
        !(value = lf_malloc((size_t)q->grid.across, 256 * sizeof *value, err)))
        rc = LF_ENOMEM;
    while (rc == 0 && advance(&x, q, job)) {
        rc = load(&x, q, job, err);
        if (value && x.block != known)
            make_values(value, q, x.block);
        known = x.block;
        if (rc == 0)
            look_at(q, &x, value);
        if (rc == 0)
            rc = job->between(job->arg, 0, err);
    }
    for (int64_t i = 0; i < n_blocks(&q->grid) && rc == 0; i++)
        lf_f8_settle(&q->blocks[i], q->type);
    free(value);
    rows_fini(&x);
    return rc;
}

static int know(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    return q->blocks ? 0 : look(q, job, err);
}

static void done(struct lf_requant *q)
{
    if (++q->written == 2)
        lf_requant_fini(q);
}

/* ---- what goes out ---- */

int lf_requant_scales(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    const int64_t n = n_blocks(&q->grid), size = (int64_t)lf_st_dtype_bytes(q->type);
    int rc = know(q, job, err);
    char *out = rc == 0 ? lf_malloc((size_t)n, (size_t)size, err) : NULL;
    if (rc == 0 && !out)
        rc = LF_ENOMEM;
    if (rc == 0 && q->scales) /* of old ones each bit counts, whatever it means */
        rc = lf_ckpt_read_flat(q->ckpt, q->scales, 0, n, out, err);
    for (int64_t i = 0; i < n && rc == 0; i++)
        if (q->blocks[i].changed)
            lf_f8_scale_put(q->type, out, i, q->blocks[i].scale);
    if (rc == 0)
        rc = lf_st_writer_put(job->to, out, (size_t)(n * size), err);
    if (rc == 0)
        rc = job->between(job->arg, n * size, err);
    free(out);
    done(q);
    return rc;
}

static void encode(const struct lf_requant *q, const struct rows *x)
{
    const struct lf_f8_grid *g = &q->grid;
    for (int64_t i = 0; i < (x->end - x->row) * g->across; i++) {
        const int64_t b = i % g->across, c = b * g->cols, at = i / g->across * g->width + c;
        lf_f8_encode(&q->blocks[x->block + b], x->codes + at, x->had ? x->had + at : NULL,
                     x->v + at, c + g->cols < g->width ? g->cols : g->width - c);
    }
}

int lf_requant_codes(struct lf_requant *q, const struct lf_requant_job *job, lf_err *err)
{
    struct rows x = {0};
    int rc = know(q, job, err);
    atomic_store(&job->values->nonfinite, 0); /* of this pass alone */
    if (rc == 0)
        rc = rows_init(&x, q, job->step, err);
    while (rc == 0 && advance(&x, q, job)) {
        const int64_t n = (x.end - x.row) * q->grid.width;
        rc = load(&x, q, job, err);
        if (rc != 0)
            break;
        encode(q, &x);
        rc = lf_st_writer_put(job->to, x.codes, (size_t)n, err);
        if (rc == 0)
            rc = job->between(job->arg, n, err);
    }
    rows_fini(&x);
    done(q);
    return rc;
}

void lf_requant_fini(struct lf_requant *q)
{
    free(q->blocks);
    q->blocks = NULL;
}
