/* SPDX-License-Identifier: Apache-2.0
 *
 * Towers of pictures and texts against what a picture and a text are to each other: one group of n
 * pictures and n texts at a time, of one tile each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/convert/verify.h"
#include "engine/model/dual.h"

enum { MAX_PAIRS = 1024 };

struct dual {
    struct lf_verify_in *in;
    const lf_model_config *c;
    const lf_st_entry *pixels, *tiles, *texts, *lengths, *logits;
    int64_t batch, patches, K, length;
    int32_t n; /* pairs of a group */
    struct lf_verify_model m;
    struct lf_dual_rows rows;
    lf_dual_sight *sight;
    struct lf_sight_tile *tile; /* [n] */
    struct lf_dual_text *text;  /* [n] */
    int32_t *numbers;           /* [2 n] of tiles, [n] of lengths, [n, length] of texts */
    float *read, *fed;          /* [patches, K] as in the file, and in the order of the encoder */
    float *v[2];                /* [n, D] vectors of pictures, of texts */
    float *got;                 /* [n, n] */
    double *want;
};

static const lf_st_entry *find(const struct dual *d, const char *name, enum lf_st_dtype dtype,
                               int ndim)
{
    const lf_st_entry *e = lf_st_find(d->in->expected, name);
    return e && e->dtype == dtype && e->ndim == ndim && e->elems > 0 ? e : NULL;
}

static int find_tensors(struct dual *d, lf_err *err)
{
    d->pixels = find(d, "pixels", LF_ST_F32, 3);
    d->tiles = find(d, "tiles", LF_ST_I64, 3);
    d->texts = find(d, "texts", LF_ST_I64, 3);
    d->lengths = find(d, "lengths", LF_ST_I64, 2);
    d->logits = lf_st_find(d->in->expected, "logits");
    if (!d->pixels || !d->tiles || !d->texts || !d->lengths || !lf_verify_is_numbers(d->logits))
        return lf_verify_bad_file(
            d->in->path,
            "the model compares pictures and texts, and there are no pixels, F32 "
            "[batch, patches, K], tiles, I64 [batch, n, 2], texts, I64 [batch, n, length], "
            "lengths, I64 [batch, n], and logits, F64 or F32 [batch, n, n]",
            err);
    const int64_t batch = d->pixels->shape[0], n = d->tiles->shape[1];
    if (d->tiles->shape[0] != batch || d->tiles->shape[2] != 2 || d->texts->shape[0] != batch ||
        d->texts->shape[1] != n || d->lengths->shape[0] != batch || d->lengths->shape[1] != n ||
        d->logits->shape[0] != batch || d->logits->shape[1] != n || d->logits->shape[2] != n ||
        n > MAX_PAIRS)
        return lf_verify_bad_file(d->in->path, "its tensors are not of as many pictures as texts",
                                  err);
    d->batch = batch;
    d->n = (int32_t)n;
    d->patches = d->pixels->shape[1];
    d->K = d->pixels->shape[2];
    d->length = d->texts->shape[2];
    return d->K == d->c->vision.patch_dim
               ? 0
               : lf_fail(err, LF_EINVAL, "a patch of the file has %lld numbers, of the model %lld",
                         (long long)d->K, (long long)d->c->vision.patch_dim);
}

static int make_room(struct dual *d, lf_err *err)
{
    const size_t n = (size_t)d->n, width = (size_t)d->c->dual.dim,
                 pixels = (size_t)(d->rows.media.vision.patches * d->K);
    d->tile = lf_calloc(n, sizeof *d->tile, err);
    d->text = lf_calloc(n, sizeof *d->text, err);
    d->numbers = lf_calloc(n * (size_t)(3 + d->length), sizeof *d->numbers, err);
    d->read = lf_calloc(pixels, sizeof *d->read, err);
    d->fed = lf_calloc(pixels, sizeof *d->fed, err);
    d->got = lf_calloc(n * n, sizeof *d->got, err);
    d->want = lf_calloc(n * n, sizeof *d->want, err);
    for (int k = 0; k < 2; k++)
        d->v[k] = lf_calloc(n * width, sizeof *d->v[k], err);
    d->sight = lf_dual_sight_create(d->c, &d->rows, err);
    return d->tile && d->text && d->numbers && d->read && d->fed && d->got && d->want && d->v[0] &&
                   d->v[1] && d->sight
               ? 0
               : LF_ENOMEM;
}

static int open_model(struct dual *d, lf_err *err)
{
    int rc = lf_verify_declare(&d->m, d->c, 1, err);
    if (rc != 0)
        return rc;
    d->c = lf_decoder_config(d->m.dec);
    d->rows = lf_dual_bounds(d->c, d->patches, d->n);
    rc = lf_verify_bind(&d->m, lf_dual_graph(d->m.dec, d->m.ps, "verify", &d->rows, false, err),
                        d->in->ck, d->in->threads, err);
    return rc != 0 ? rc : make_room(d, err);
}

static int read_group(struct dual *d, int64_t b, lf_err *err)
{
    const lf_st *st = d->in->expected;
    int32_t *tiles = d->numbers, *lengths = tiles + 2 * d->n, *texts = lengths + d->n;
    int64_t patches = 0, all = d->patches * d->K;
    int rc = lf_verify_read_i32(st, d->tiles, b, tiles, err);
    if (rc == 0)
        rc = lf_verify_read_i32(st, d->lengths, b, lengths, err);
    if (rc == 0)
        rc = lf_verify_read_i32(st, d->texts, b, texts, err);
    for (int32_t i = 0; i < d->n && rc == 0; i++) {
        d->tile[i] = (struct lf_sight_tile){tiles[2 * i], tiles[2 * i + 1]};
        d->text[i] = (struct lf_dual_text){texts + i * d->length, lengths[i]};
        patches += (int64_t)d->tile[i].h * d->tile[i].w;
        if (lengths[i] > d->length)
            rc = lf_fail(err, LF_EFORMAT, "a text of %d tokens in a row of %lld", lengths[i],
                         (long long)d->length);
    }
    if (rc == 0 && patches != d->patches)
        rc = lf_fail(err, LF_EFORMAT, "tiles have %lld patches, pixels %lld", (long long)patches,
                     (long long)d->patches);
    return rc != 0 ? rc : lf_st_read(st, d->pixels, b * all, all, d->read, err);
}

static int run(struct dual *d, lf_err *err)
{
    static const char *const names[] = {"image", "text"};
    const struct lf_sight_batch batch = {.n_tiles = d->n, .tile = d->tile, .merge = 1};
    const size_t K = (size_t)d->K, width = (size_t)d->c->dual.dim;
    lf_exec *ex = d->m.exec;
    int rc = lf_dual_sight_fill(d->sight, &batch, err);
    if (rc == 0)
        rc = lf_dual_sight_texts(d->sight, d->text, d->n, err);
    if (rc == 0)
        rc = lf_dual_sight_write(d->sight, ex, d->m.chain, 0, err);
    for (int64_t i = 0; i < d->patches && rc == 0; i++)
        memcpy(d->fed + (size_t)i * K, d->read + (size_t)lf_dual_sight_order(d->sight)[i] * K,
               K * sizeof *d->fed);
    if (rc == 0)
        rc = lf_exec_write(ex, d->m.chain, 0, "vision.pixels", d->fed,
                           (size_t)d->rows.media.vision.patches * K * sizeof *d->fed, err);
    if (rc == 0)
        rc = lf_exec_run(ex, d->m.chain, LF_FWD, 0, LF_FIRST, err);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = lf_exec_read(ex, d->m.chain, 0, names[k], d->v[k],
                          (size_t)d->n * width * sizeof **d->v, err);
    return rc;
}

/* What the vectors of picture i and text j are to each other. */
static float between(const struct dual *d, const double number[2], int32_t i, int32_t j)
{
    const int64_t width = d->c->dual.dim;
    const float *a = d->v[0] + i * width, *b = d->v[1] + j * width;
    double ab = 0, aa = 0, bb = 0;
    for (int64_t c = 0; c < width; c++) {
        ab += (double)a[c] * (double)b[c];
        aa += (double)a[c] * (double)a[c];
        bb += (double)b[c] * (double)b[c];
    }
    return (float)(exp(number[0]) * ab / sqrt(aa * bb) + number[1]);
}

static int compare(struct dual *d, int64_t b, lf_err *err)
{
    const int64_t n = (int64_t)d->n * d->n;
    double number[2];
    int rc = lf_dual_numbers(d->m.ps, number, NULL, err);
    for (int32_t i = 0; i < d->n && rc == 0; i++)
        for (int32_t j = 0; j < d->n; j++)
            d->got[i * d->n + j] = between(d, number, i, j);
    if (rc == 0)
        rc = lf_verify_read(d->in->expected, d->logits, b * n, n, d->want, err);
    return rc != 0 ? rc : lf_verify_compare(&d->in->sum, d->got, d->want, n, err);
}

static void fini(struct dual *d)
{
    lf_verify_model_fini(&d->m);
    lf_dual_sight_destroy(d->sight);
    free(d->tile);
    free(d->text);
    free(d->numbers);
    free(d->read);
    free(d->fed);
    free(d->got);
    free(d->want);
    free(d->v[0]);
    free(d->v[1]);
}

int lf_verify_dual(struct lf_verify_in *in, struct lf_convert_verdict *out, lf_err *err)
{
    struct dual d = {.in = in, .c = &in->config};
    int rc = find_tensors(&d, err);
    if (rc == 0)
        rc = open_model(&d, err);
    for (int64_t b = 0; b < d.batch && rc == 0; b++) {
        rc = read_group(&d, b, err);
        if (rc == 0)
            rc = run(&d, err);
        if (rc == 0)
            rc = compare(&d, b, err);
    }
    if (rc == 0)
        *out = (struct lf_convert_verdict){.of = "logits of pictures and texts",
                                           .rows = d.batch * d.n};
    fini(&d);
    return rc;
}
