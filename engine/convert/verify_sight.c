/* SPDX-License-Identifier: Apache-2.0
 *
 * The pictures of expected logits: one or more for each sequence, of the same sizes in all. */
#include <stdlib.h>
#include <string.h>

#include "engine/convert/priv.h"
#include "engine/convert/verify.h"
#include "engine/convert/verify_sight.h"

enum { MAX_TILES = 4096, PICTURE = 6 /* numbers of struct lf_sight_picture */ };

static const lf_st_entry *find(const lf_st *st, const char *name, enum lf_st_dtype dtype, int ndim,
                               int64_t batch)
{
    const lf_st_entry *e = lf_st_find(st, name);
    return e && e->dtype == dtype && e->ndim == ndim && e->shape[0] == batch && e->elems > 0 ? e
                                                                                             : NULL;
}

static int no_pictures(lf_err *err)
{
    return lf_fail(err, LF_EFORMAT,
                   "the model sees, but the expected logits are of text alone, which proves "
                   "nothing of its encoder; expected.py writes pixels, tiles, pictures and merge");
}

static int check_pixels(const struct lf_verify_sight *s, const lf_model_config *c, lf_err *err)
{
    if (s->pixels->shape[2] != c->vision.patch_dim)
        return lf_fail(err, LF_EINVAL, "a patch of the file has %lld numbers, of the model %lld",
                       (long long)s->pixels->shape[2], (long long)c->vision.patch_dim);
    if (s->tiles->shape[1] > MAX_TILES || s->pictures->shape[1] > MAX_TILES)
        return lf_fail(err, LF_EFORMAT, "more than %d pictures", MAX_TILES);
    return 0;
}

int lf_verify_sight_open(struct lf_verify_sight *s, const lf_st *st, const lf_model_config *c,
                         int64_t batch, int64_t length, lf_err *err)
{
    const lf_st_entry *merge = find(st, "merge", LF_ST_I64, 1, 1);
    s->st = st;
    s->c = c;
    s->length = length;
    s->pixels = find(st, "pixels", LF_ST_F32, 3, batch);
    s->tiles = find(st, "tiles", LF_ST_I64, 3, batch);
    s->pictures = find(st, "pictures", LF_ST_I64, 3, batch);
    if (!merge || !s->pixels || !s->tiles || !s->pictures || s->tiles->shape[2] != 2 ||
        s->pictures->shape[2] != PICTURE)
        return no_pictures(err);
    int rc = check_pixels(s, c, err);
    if (rc == 0)
        rc = lf_verify_read_i32(st, merge, 0, &s->batch.merge, err);
    s->batch.n_tiles = (int32_t)s->tiles->shape[1];
    s->batch.n_pictures = (int32_t)s->pictures->shape[1];
    s->batch.rows = length;
    s->media = lf_sight_bounds(c, s->pixels->shape[1], s->batch.n_tiles, length);
    const int64_t room = s->media.vision.patches * c->vision.patch_dim;
    if (rc == 0 &&
        (!(s->tile = lf_calloc((size_t)s->batch.n_tiles, sizeof *s->tile, err)) ||
         !(s->picture = lf_calloc((size_t)s->batch.n_pictures, sizeof *s->picture, err)) ||
         !(s->read = lf_malloc((size_t)s->pixels->elems / (size_t)batch, sizeof *s->read, err)) ||
         !(s->rows = lf_calloc((size_t)room, sizeof *s->rows, err)) ||
         !(s->sight = lf_sight_create(c, &s->media, length, err))))
        rc = LF_ENOMEM;
    return rc;
}

void lf_verify_sight_close(struct lf_verify_sight *s)
{
    lf_sight_destroy(s->sight);
    free(s->tile);
    free(s->picture);
    free(s->read);
    free(s->rows);
}

/* Tiles that are laid side by side are squares of one size. */
static bool is_mosaic(const struct lf_verify_sight *s, const struct lf_sight_picture *p)
{
    const int32_t side = s->tile[p->tile].h;
    for (int32_t i = p->tile; i < p->tile + p->tiles; i++)
        if (s->tile[i].h != side || s->tile[i].w != side)
            return false;
    return p->tiles > 1 && (int64_t)p->cols * p->rows == p->tiles - 1;
}

/* Every tile of a picture is there, and their patches are all. */
static int check_sizes(const struct lf_verify_sight *s, lf_err *err)
{
    int64_t patches = 0, tiles = 0;
    for (int32_t i = 0; i < s->batch.n_tiles; i++)
        patches += (int64_t)s->tile[i].h * s->tile[i].w;
    for (int32_t i = 0; i < s->batch.n_pictures; i++) {
        const struct lf_sight_picture *p = &s->picture[i];
        if (p->tile != tiles || p->tiles < 1 || p->tiles > s->batch.n_tiles - tiles ||
            (p->cols && !is_mosaic(s, p)) || p->from_w < 1 || p->from_h < 1)
            return lf_fail(err, LF_EFORMAT, "picture %d has not the tiles that it names", (int)i);
        tiles += p->tiles;
    }
    if (tiles != s->batch.n_tiles || patches != s->pixels->shape[1] || s->batch.merge < 1)
        return lf_fail(err, LF_EFORMAT, "tiles, pictures and pixels do not go together");
    return 0;
}

static int read_pictures(struct lf_verify_sight *s, int64_t b, lf_err *err)
{
    int32_t *tile = lf_malloc((size_t)s->batch.n_tiles, 2 * sizeof *tile, err),
            *p = lf_malloc((size_t)s->batch.n_pictures, PICTURE * sizeof *p, err);
    int rc = tile && p ? lf_verify_read_i32(s->st, s->tiles, b, tile, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_verify_read_i32(s->st, s->pictures, b, p, err);
    for (int32_t i = 0; i < s->batch.n_tiles && rc == 0; i++)
        s->tile[i] = (struct lf_sight_tile){tile[2 * i], tile[2 * i + 1]};
    for (int32_t i = 0; i < s->batch.n_pictures && rc == 0; i++) {
        const int32_t *q = p + PICTURE * i;
        s->picture[i] = (struct lf_sight_picture){q[0], q[1], q[2], q[3], q[4], q[5]};
    }
    free(tile);
    free(p);
    return rc != 0 ? rc : check_sizes(s, err);
}

/* Rows of pixels in the order of the encoder. */
static int read_pixels(struct lf_verify_sight *s, int64_t b, lf_err *err)
{
    const int64_t P = s->pixels->shape[1], K = s->pixels->shape[2];
    const int32_t *order = lf_sight_patch_order(s->sight);
    int rc = lf_st_read(s->st, s->pixels, b * P * K, P * K, s->read, err);
    for (int64_t p = 0; p < P && rc == 0; p++)
        memcpy(s->rows + p * K, s->read + order[p] * K, (size_t)K * sizeof *s->rows);
    return rc;
}

static int put(const struct lf_verify_feed *in, const char *name, const void *data, int64_t n,
               lf_err *err)
{
    return lf_exec_write(in->exec, in->chain, 0, name, data, (size_t)n * 4, err);
}

int lf_verify_sight_feed(struct lf_verify_sight *s, int64_t b, const struct lf_verify_feed *in,
                         lf_err *err)
{
    int rc = read_pictures(s, b, err);
    s->batch.tile = s->tile;
    s->batch.picture = s->picture;
    s->batch.tokens = in->tokens;
    s->batch.positions = in->positions;
    if (rc == 0)
        rc = lf_sight_fill(s->sight, &s->batch, err);
    if (rc == 0)
        rc = read_pixels(s, b, err);
    if (rc == 0)
        rc = put(in, "tokens", lf_sight_token_rows(s->sight), s->length, err);
    if (rc == 0)
        rc = lf_sight_write_rows(s->sight, in->exec, in->chain, 0, err);
    if (rc == 0)
        rc = put(in, "vision.pixels", s->rows, s->media.vision.patches * s->c->vision.patch_dim,
                 err);
    return rc != 0 ? rc : lf_sight_write(s->sight, in->exec, in->chain, 0, err);
}
