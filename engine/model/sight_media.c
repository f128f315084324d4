/* SPDX-License-Identifier: Apache-2.0
 *
 * From the pictures of a micro-batch, as they come from files, to the inputs of a graph. */
#include <string.h>

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
    if (b->n_patches &&
        (int64_t)b->row_bytes * in->processor->patches.times != s->c->vision.patch_dim)
        return lf_fail(err, LF_EINVAL,
                       "a patch of the data has %d bytes, %d times, but vision.patch_dim = %lld: "
                       "another processor made it",
                       b->row_bytes, in->processor->patches.times,
                       (long long)s->c->vision.patch_dim);
    return 0;
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

int lf_sight_fill_media(lf_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    int rc = check(s, in, err);
    if (rc != 0)
        return rc;
    const struct lf_sight_batch b = sizes(s, in);
    rc = check_tokens(s, in, &b, err);
    if (rc == 0)
        rc = lf_sight_fill(s, &b, err);
    if (rc == 0)
        fill_pixels(s, in);
    return rc;
}

int lf_sight_write_pixels(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    return lf_exec_write(ex, chain, slot, "vision.pixels", s->pixels,
                         (size_t)(s->m.vision.patches * s->c->vision.patch_dim) * sizeof *s->pixels,
                         err);
}
