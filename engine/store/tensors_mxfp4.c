/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of 4-bit floats in blocks of 32 that have an exponent each, read as bf16. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/mem.h"
#include "engine/store/tensors_priv.h"

enum { BLOCK = 32, BLOCK_BYTES = BLOCK / 2, BIAS = 127, NO_NUMBER = 255 };

/* ---- reading ---- */

/* What the 16 numbers of four bits are with this scale. Where none of them leaves the normal
 * numbers of bf16, a scale is an addition to the exponent. */
static void values(uint16_t out[16], uint8_t scale)
{
    static const float e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    static const uint16_t plain[16] = {0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
                                       0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0,
                                       0xc000, 0xc040, 0xc080, 0xc0c0};
    if (scale >= 2 && scale <= 252) {
        const uint16_t by = (uint16_t)(((unsigned)scale - BIAS) << 7);
        for (int k = 0; k < 16; k++)
            out[k] = (uint16_t)(plain[k] + (k & 7 ? by : 0));
        return;
    }
    for (int k = 0; k < 16; k++) {
        const float x = scale == NO_NUMBER ? NAN : ldexpf(e2m1[k & 7], (int)scale - BIAS);
        out[k] = lf_bf16_of(k & 8 ? -x : x);
    }
}

/* Numbers [at, at + n) of a block. */
static void expand_block(uint16_t *dst, const uint8_t *bytes, const uint16_t value[16], int64_t at,
                         int64_t n)
{
    if (n == BLOCK) {
        for (int k = 0; k < BLOCK_BYTES; k++) {
            dst[2 * k] = value[bytes[k] & 15];
            dst[2 * k + 1] = value[bytes[k] >> 4];
        }
        return;
    }
    for (int64_t i = at; i < at + n; i++)
        dst[i - at] = value[i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15];
}

/* The file's own bytes [first, first + n) of a tensor, whatever its shape. */
static int read_bytes(const lf_st *s, const struct lf_st_rec *r, int64_t first, int64_t n,
                      void *dst, lf_err *err)
{
    struct lf_st_rec raw = *r;
    raw.scale = NULL;
    raw.e.dtype = LF_ST_U8;
    raw.e.elems = raw.e.bytes = r->scale ? r->e.elems / 2 : r->e.elems;
    return lf_st_read(s, &raw.e, first, n, dst, err);
}

int lf_st_read_mxfp4(const lf_st *s, const struct lf_st_rec *r, int64_t first, int64_t n, void *dst,
                     lf_err *err)
{
    const int64_t block0 = first / BLOCK, blocks = (first + n - 1) / BLOCK - block0 + 1;
    uint8_t *raw = lf_malloc((size_t)blocks, BLOCK_BYTES + 1, err),
            *scale = raw ? raw + blocks * BLOCK_BYTES : NULL;
    uint16_t *out = dst, value[16];
    int known = -1;
    int rc =
        raw ? read_bytes(s, r, block0 * BLOCK_BYTES, blocks * BLOCK_BYTES, raw, err) : LF_ENOMEM;
    if (rc == 0)
        rc = read_bytes(s, &r->scale->rec, block0, blocks, scale, err);
    for (int64_t i = first, k; i < first + n && rc == 0; i += k) {
        const int64_t block = i / BLOCK - block0, at = i % BLOCK;
        k = BLOCK - at < first + n - i ? BLOCK - at : first + n - i;
        if (scale[block] != known)
            values(value, scale[block]);
        known = scale[block];
        expand_block(out + (i - first), raw + block * BLOCK_BYTES, value, at, k);
    }
    free(raw);
    return rc;
}

/* ---- which tensors are packed ---- */

static bool is_packed(const lf_st_entry *e)
{
    return e->dtype == LF_ST_U8 && e->ndim >= 2 && e->shape[e->ndim - 1] == BLOCK_BYTES &&
           e->elems > 0 && e->elems <= INT64_MAX / 8;
}

/* One scale for each block, in the blocks' order. */
static bool is_scale(const lf_st_entry *e, const lf_st_entry *of)
{
    return e->dtype == LF_ST_U8 && e->ndim == of->ndim - 1 &&
           memcmp(e->shape, of->shape, (size_t)e->ndim * sizeof *e->shape) == 0;
}

static int unpack(lf_st *s, struct lf_st_rec *r, size_t stem, const char *scales, lf_err *err)
{
    const lf_st_entry *e = NULL;
    if (!is_packed(&r->e))
        return lf_fail(err, LF_EFORMAT,
                       "%.200s is no U8 tensor of blocks of %d bytes, which 32 numbers of 4 bits "
                       "take",
                       r->e.name, BLOCK_BYTES);
    int rc = lf_st_find_scale(s, r, "4-bit floats", (int)stem, scales, &e, err);
    if (rc == 0 && !is_scale(e, &r->e))
        rc = lf_fail(err, LF_EFORMAT,
                     "%.200s is no U8 tensor with one scale for each block of "
                     "%.200s",
                     e->name, r->e.name);
    if (rc != 0)
        return rc;
    r->e.ndim--;
    r->e.shape[r->e.ndim - 1] *= BLOCK;
    r->e.elems *= 2;
    return lf_st_take_scale(r, e, 0, 0, err);
}

int lf_st_unpack_mxfp4(lf_st *s, const char *blocks, const char *scales, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < s->n_recs && rc == 0; i++) {
        struct lf_st_rec *r = &s->recs[i];
        const size_t len = strlen(r->e.name), end = strlen(blocks);
        if (!r->scale && len > end && strcmp(r->e.name + len - end, blocks) == 0)
            rc = unpack(s, r, len - end, scales, err);
    }
    return rc != 0 ? rc : lf_st_drop_scales(s, err);
}
