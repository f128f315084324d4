/* SPDX-License-Identifier: Apache-2.0
 *
 * From the pictures of a micro-batch, as they come from files, to the inputs of a graph. */
#include <stdio.h>
#include <string.h>

#include "engine/base/f16.h"
#include "engine/model/sight_priv.h"

static struct lf_sight_batch sizes(lf_sight *s, const struct lf_sight_media *in)
{
    const lf_media_batch *b = in->media;
    for (int32_t i = 0; i < b->n_tiles; i++)
        s->tile[i] = (struct lf_sight_tile){b->tile[i].grid_h, b->tile[i].grid_w};
    for (int32_t i = 0; i < b->n_pictures; i++) {
        const struct lf_media_picture *p = &b->picture[i];
        s->picture[i] = (struct lf_sight_picture){.tile = p->first_tile,
                                                  .tiles = p->tiles,
                                                  .cols = p->layout.w,
                                                  .rows = p->layout.h,
                                                  .from_w = p->from.w,
                                                  .from_h = p->from.h};
    }
    return (struct lf_sight_batch){.n_tiles = b->n_tiles,
                                   .n_pictures = b->n_pictures,
                                   .tile = s->tile,
                                   .picture = s->picture,
                                   .merge = in->processor ? in->processor->patches.merge : 1,
                                   .rows = s->rows,
                                   .tokens = in->tokens,
                                   .positions = in->positions};
}

int lf_sight_check_patches(const struct lf_sight_media *in, int64_t patch_dim, lf_err *err)
{
    const lf_media_batch *b = in->media;
    return b->n_patches && (int64_t)b->row_bytes * in->processor->patches.times != patch_dim
               ? lf_fail(err, LF_EINVAL,
                         "a patch of the data has %d bytes, %d times, but vision.patch_dim = "
                         "%lld: another processor made it",
                         b->row_bytes, in->processor->patches.times, (long long)patch_dim)
               : 0;
}

static int check(const lf_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    const lf_media_batch *b = in->media;
    const int64_t room = s->m.vision.images - 1;
    if (b->n_tiles > room || b->n_pictures > room || b->n_patches > s->m.vision.patches)
        return lf_fail(
            err, LF_EINVAL,
            "pictures have %lld patches in %d tiles, but there is room for %lld in %lld: "
            "raise max_patches or max_tiles",
            (long long)b->n_patches, b->n_tiles, (long long)s->m.vision.patches, (long long)room);
    return s->m.encoded ? 0 : lf_sight_check_patches(in, s->c->vision.patch_dim, err);
}

/* As many tokens for each picture as it has rows: that the sums agree is not enough. */
static int check_tokens(const lf_sight *s, const struct lf_sight_media *in,
                        const struct lf_sight_batch *b, lf_err *err)
{
    for (int32_t i = 0; i < b->n_pictures; i++) {
        const int64_t n = lf_sight_tokens(s->c, b, &b->picture[i], err),
                      there = in->media->picture[i].rows;
        if (n < 0)
            return (int)n;
        if (n != there)
            return lf_fail(err, LF_EINVAL,
                           "picture %d has %lld rows, but %lld tokens stand for it: another "
                           "processor made the data",
                           i + 1, (long long)n, (long long)there);
    }
    return 0;
}

/* Rows in the order of the encoder; those without a patch are zeros. */
static void fill_pixels(lf_sight *s, const struct lf_sight_media *in)
{
    const lf_media_batch *b = in->media;
    const int64_t K = s->c->vision.patch_dim;
    for (int64_t r = 0; r < b->n_patches; r++)
        lf_norm_rows(s->pixels + r * K, b->patches + (int64_t)s->order[r] * b->row_bytes, 1,
                     &in->processor->patches, in->processor->table);
    memset(s->pixels + b->n_patches * K, 0,
           (size_t)((s->m.vision.patches - b->n_patches) * K) * sizeof *s->pixels);
}

/* C numbers of a row of features, which has fp16 as f32. */
static void take_row(const lf_sight *s, uint8_t *to, const uint8_t *from)
{
    const int64_t C = lf_vision_width(&s->c->vision);
    if (s->m.encoded_type != LF_F16)
        memcpy(to, from, (size_t)C * lf_dtype_size(s->m.encoded_type));
    for (int64_t i = 0; s->m.encoded_type == LF_F16 && i < C; i++) {
        float x;
        memcpy(&x, from + (size_t)i * sizeof x, sizeof x);
        const uint16_t half = lf_f16_of(x);
        memcpy(to + (size_t)i * sizeof half, &half, sizeof half);
    }
}

/* The row of the features that has row r of the encoder: they lie as pictures were given. Windows
 * and class tokens keep the order that the encoder had. */
static int64_t given_row(const lf_sight *s, int64_t r)
{
    return s->c->vision.windows || s->used.class ? r : s->order[r];
}

/* Rows of all tiles and of their taps; those behind the last tile are zeros. */
static int fill_encoded(lf_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    const lf_media_batch *b = in->media;
    const int64_t C = lf_vision_width(&s->c->vision), R = s->m.vision.rows,
                  parts = 1 + s->c->vision.taps.n,
                  n = b->n_patches + (int64_t)b->n_tiles * lf_sight_class_rows(s->c);
    const size_t row = (size_t)C * lf_dtype_size(s->m.encoded_type),
                 part = (size_t)b->encoded_bytes / (size_t)parts;
    if (s->c->vision.windows && in->processor &&
        in->processor->patches.merge != s->c->projector.merge)
        return lf_fail(err, LF_EINVAL,
                       "features of an encoder with windows go with the projector.merge that they "
                       "were made for, %d, not with %lld",
                       in->processor->patches.merge, (long long)s->c->projector.merge);
    if (b->n_encoded != n)
        return lf_fail(err, LF_EINVAL, "features have %lld rows, the encoder has %lld",
                       (long long)b->n_encoded, (long long)n);
    for (int64_t p = 0; p < parts; p++) {
        uint8_t *to = s->encoded + (size_t)(p * R) * row;
        for (int64_t r = 0; r < n; r++, to += row)
            take_row(s, to, b->encoded + given_row(s, r) * b->encoded_bytes + (size_t)p * part);
        memset(to, 0, (size_t)(R - n) * row);
    }
    return 0;
}

int lf_sight_class_rows(const lf_model_config *c)
{
    return (int)lf_vision_tokens(&c->vision);
}

int lf_sight_fill_encoder(lf_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    int rc = check(s, in, err);
    if (rc != 0)
        return rc;
    struct lf_sight_batch b = sizes(s, in);
    b.as_given = true; /* whichever projector reads what it says */
    rc = lf_sight_rows(s, &b, err);
    if (rc == 0)
        fill_pixels(s, in);
    return rc;
}

/* ---- samples, for dropout ---- */

/* Rows of the encoder [0] and features [1]. */
static const char *const dropped[2][2] = {{"vision.samples", "vision.offsets"},
                                          {"media.samples", "media.offsets"}};

/* Where rows of tile n begin; n may be one behind the last. */
static int64_t rows_before(const lf_sight *s, int k, int64_t n)
{
    const lf_projector_config *p = &s->c->projector;
    const int64_t fold = p->merge * p->merge;
    if (k == 0)
        return s->images[n];
    return s->used.select ? s->first[n] / (fold * p->pool * p->pool) : s->images[n] / fold;
}

static void fill_samples(lf_sight *s, const struct lf_sight_media *in)
{
    const lf_media_batch *b = in->media;
    for (int k = 0; k < 2; k++) {
        const int64_t all = k ? s->m.features : s->m.vision.rows;
        int64_t at = -1, begin = 0; /* the sample of the picture before, its first row */
        memset(s->sample[k], 0, (size_t)all * sizeof *s->sample[k]);
        memset(s->offset[k], 0, (size_t)all * sizeof *s->offset[k]);
        for (int32_t i = 0; i < b->n_pictures; i++) {
            const struct lf_media_picture *p = &b->picture[i];
            const int64_t first = rows_before(s, k, p->first_tile),
                          end = rows_before(s, k, p->first_tile + p->tiles),
                          sample = p->first_row / in->row_tokens;
            begin = sample == at ? begin : first;
            at = sample;
            for (int64_t r = first; r < end; r++) {
                s->sample[k][r] = in->samples[sample];
                s->offset[k][r] = (int32_t)(r - begin);
            }
        }
    }
}

int lf_sight_write_samples(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    int rc = 0;
    for (int k = s->m.encoded ? 1 : 0; k < 2 && rc == 0; k++) {
        const size_t n = (size_t)(k ? s->m.features : s->m.vision.rows);
        rc = lf_exec_write(ex, chain, slot, dropped[k][0], s->sample[k], n * sizeof(int64_t), err);
        if (rc == 0)
            rc = lf_exec_write(ex, chain, slot, dropped[k][1], s->offset[k], n * sizeof(int32_t),
                               err);
    }
    return rc;
}

int lf_sight_fill_media(lf_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    int rc = check(s, in, err);
    if (rc != 0)
        return rc;
    const struct lf_sight_batch b = sizes(s, in);
    rc = check_tokens(s, in, &b, err);
    if (rc == 0)
        rc = lf_sight_fill(s, &b, err);
    if (rc == 0 && s->m.drops && in->samples)
        fill_samples(s, in);
    if (rc == 0 && s->m.encoded)
        rc = fill_encoded(s, in, err);
    else if (rc == 0)
        fill_pixels(s, in);
    return rc;
}

static int write_encoded(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const size_t bytes = (size_t)(s->m.vision.rows * lf_vision_width(&s->c->vision)) *
                         lf_dtype_size(s->m.encoded_type);
    int rc = lf_exec_write(ex, chain, slot, "media.encoded", s->encoded, bytes, err);
    for (int64_t i = 0; i < s->c->vision.taps.n && rc == 0; i++) {
        char name[48];
        snprintf(name, sizeof name, "media.encoded.%lld", (long long)i);
        rc = lf_exec_write(ex, chain, slot, name, s->encoded + (size_t)(i + 1) * bytes, bytes, err);
    }
    return rc;
}

int lf_sight_write_pixels(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    if (s->m.encoded)
        return write_encoded(s, ex, chain, slot, err);
    return lf_exec_write(ex, chain, slot, "vision.pixels", s->pixels,
                         (size_t)(s->m.vision.patches * s->c->vision.patch_dim) * sizeof *s->pixels,
                         err);
}
