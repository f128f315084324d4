/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures for rows that others pack: see seen.h. */
#include "engine/train/seen.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/classes.h"
#include "engine/model/dual.h"
#include "engine/model/sight.h"
#include "engine/train/loader_priv.h"

struct lf_pictures_size lf_pictures_size(const lf_pictures *p, uint64_t doc)
{
    struct lf_pictures_size s = {0};
    for (uint64_t i = 0, n = p->count(p->arg, doc); i < n; i++) {
        lf_shard_picture x;
        p->get(p->arg, doc, i, &x);
        s.patches += (int64_t)x.tiles * x.grid_h * x.grid_w;
        s.tiles += x.tiles;
        s.tokens += x.count;
    }
    return s;
}

/* ---- of shards ---- */

struct lf_shard_eyes {
    lf_pictures p;
    const lf_shardset **set;
    struct lf_loader_media media;
};

/* The set and the document of a number. */
static const lf_shardset *set_of(const lf_shard_eyes *e, uint64_t *doc)
{
    const size_t k = (size_t)(*doc >> 48);
    *doc &= ((uint64_t)1 << 48) - 1;
    return e->set[k];
}

static uint64_t count(void *arg, uint64_t doc)
{
    const lf_shardset *set = set_of(arg, &doc);
    return lf_shardset_pictures(set, doc);
}

static void get(void *arg, uint64_t doc, uint64_t i, lf_shard_picture *out)
{
    const lf_shardset *set = set_of(arg, &doc);
    lf_shardset_picture_get(set, doc, i, out);
}

static int read_one(void *arg, uint64_t doc, uint64_t i, lf_pixels *out, lf_err *err)
{
    const lf_shard_eyes *e = arg;
    lf_shard_picture said;
    const lf_shardset *set = set_of(e, &doc);
    lf_shardset_picture_get(set, doc, i, &said);
    const int rc = lf_loader_media_read(&e->media, out, set, doc, i, &said, err);
    return rc < 0 ? lf_loader_media_blame(set, doc, i, err) : rc;
}

/* What all sets agree on, and room for the largest file. */
static int take_sets(lf_shard_eyes *e, const lf_shardset *const *sets, size_t n, const char *called,
                     const lf_model_config *mc, lf_err *err)
{
    const lf_loader_config c = {.max_patches = 1,
                                .patch_bytes = (int32_t)mc->vision.patch_dim,
                                .image_token = mc->image_token};
    size_t most = 0;
    int rc = 0;
    for (size_t k = 0; k < n && rc == 0; k++) {
        const size_t bytes = lf_shardset_picture_most(sets[k]);
        e->set[k] = sets[k];
        most = bytes > most ? bytes : most;
        rc = lf_loader_media_source(&e->media, &e->media.on, sets[k], called, err);
    }
    if (rc == 0 && e->media.on && !mc->vision.family)
        rc = lf_fail(err, LF_EINVAL,
                     "%s has pictures, but the model sees none ([model] has no vision.family)",
                     called);
    if (rc == 0 && e->media.on)
        rc = lf_loader_media_check(&e->media, &c, called, err);
    if (rc == 0 && !(e->media.file = lf_malloc(most + 1, 1, err)))
        rc = LF_ENOMEM;
    return rc;
}

int lf_shard_eyes_open(lf_shard_eyes **out, const lf_shardset *const *sets, size_t n,
                       const char *called, const lf_model_config *mc, lf_err *err)
{
    lf_shard_eyes *e = lf_calloc(1, sizeof *e, err);
    if (!e || !(e->set = lf_calloc(n + 1, sizeof *e->set, err))) {
        free(e);
        return LF_ENOMEM;
    }
    int rc = take_sets(e, sets, n, called, mc, err);
    if (rc != 0 || !e->media.on) {
        lf_shard_eyes_close(e);
        *out = rc == 0 ? NULL : *out;
        return rc;
    }
    e->p = (lf_pictures){.arg = e,
                         .processor = &e->media.processor,
                         .expand = &e->media.expand,
                         .image_token = e->media.image_token,
                         .count = count,
                         .get = get,
                         .read = read_one};
    *out = e;
    return 0;
}

void lf_shard_eyes_close(lf_shard_eyes *e)
{
    if (!e)
        return;
    free(e->media.file);
    free(e->set);
    free(e);
}

const lf_pictures *lf_shard_eyes_pictures(const lf_shard_eyes *e)
{
    return &e->p;
}

/* ---- a micro-batch ---- */

struct lf_seen {
    const lf_model_config *mc;
    int64_t rows;
    const lf_pictures *from;
    struct lf_loader_media media; /* bounds, and what from says */
    lf_loader_batch batch;        /* one row; its tokens are the caller's while it adds */
    lf_sight *sight;
    lf_classes_sight *classes; /* in its place, of a model that tells classes and reads no text */
    lf_dual_sight *dual;       /* ... or of two towers, of that of pictures */
    int32_t *id, *row;         /* [rows] for the sight, for the graph */
};

/* The slot of a loader of one row that holds these bounds. */
static lf_loader_config room_of(const lf_model_config *mc, const struct lf_decoder_media *b)
{
    return (lf_loader_config){.max_patches = (int32_t)b->vision.patches,
                              .max_tiles = (int32_t)b->vision.images - 1,
                              .patch_bytes = (int32_t)mc->vision.patch_dim};
}

int lf_seen_create(lf_seen **out, const lf_model_config *mc, const struct lf_decoder_media *bounds,
                   int64_t rows, lf_err *err)
{
    const lf_loader_config c = room_of(mc, bounds);
    lf_seen *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    s->mc = mc;
    s->rows = rows;
    s->media.max_patches = c.max_patches;
    s->media.max_tiles = c.max_tiles;
    s->batch.B = 1;
    s->batch.T = (int32_t)rows;
    lf_media_batch *m = &s->batch.media;
    m->tile = lf_calloc((size_t)c.max_tiles, sizeof *m->tile, err);
    m->picture = lf_calloc((size_t)c.max_tiles, sizeof *m->picture, err);
    m->patches = lf_calloc((size_t)c.max_patches, (size_t)c.patch_bytes, err);
    s->id = lf_calloc((size_t)rows, sizeof *s->id, err);
    s->row = lf_calloc((size_t)rows, sizeof *s->row, err);
    s->media.alone = lf_model_classifies(mc) || lf_model_is_dual(mc);
    if (lf_model_is_dual(mc))
        s->dual = lf_dual_sight_create(
            mc, &(struct lf_dual_rows){*bounds, bounds->vision.images - 1, false, true}, err);
    else if (lf_model_classifies(mc))
        s->classes = lf_classes_sight_create(
            mc, &(struct lf_classes_rows){*bounds, bounds->vision.images - 1}, err);
    else
        s->sight = lf_sight_create(mc, bounds, rows, err);
    if (!m->tile || !m->picture || !m->patches || !s->id || !s->row ||
        (!s->sight && !s->classes && !s->dual)) {
        lf_seen_destroy(s);
        return LF_ENOMEM;
    }
    *out = s;
    return 0;
}

void lf_seen_destroy(lf_seen *s)
{
    if (!s)
        return;
    free(s->batch.media.tile);
    free(s->batch.media.picture);
    free(s->batch.media.patches);
    free(s->id);
    free(s->row);
    lf_sight_destroy(s->sight);
    lf_classes_sight_destroy(s->classes);
    lf_dual_sight_destroy(s->dual);
    free(s);
}

size_t lf_seen_bytes(const lf_model_config *mc, const struct lf_decoder_media *bounds, int64_t rows)
{
    const lf_loader_config c = room_of(mc, bounds);
    return lf_loader_media_bytes(&c) + lf_sight_bytes(mc, bounds, rows) +
           2 * (size_t)rows * sizeof(int32_t) + sizeof(lf_seen);
}

void lf_seen_begin(lf_seen *s, const lf_pictures *from)
{
    s->from = from;
    s->batch.media.n_tiles = s->batch.media.n_pictures = 0;
    s->batch.media.n_patches = 0;
    if (!from)
        return;
    s->media.processor = *from->processor;
    s->media.expand = *from->expand;
    s->media.image_token = from->image_token;
    s->batch.media.row_bytes = 3 * from->processor->patches.side * from->processor->patches.side;
}

int lf_seen_add(lf_seen *s, uint64_t doc, const int32_t *tokens, int64_t row, lf_err *err)
{
    const lf_pictures *from = s->from;
    int rc = 0;
    memcpy(s->id, tokens, (size_t)s->rows * sizeof *s->id);
    s->batch.tokens = s->id;
    for (uint64_t i = 0, n = from ? from->count(from->arg, doc) : 0; i < n && rc == 0; i++) {
        lf_shard_picture said;
        lf_pixels x = {0};
        from->get(from->arg, doc, i, &said);
        rc = from->read(from->arg, doc, i, &x, err);
        if (rc == 0 &&
            (rc = lf_loader_media_put(&s->media, &s->batch, &x, &said, row + said.first, err)) < 0)
            lf_err_prefix(err, "picture %llu", (unsigned long long)i + 1);
        lf_pixels_fini(&x);
    }
    return rc;
}

/* Ids in which placeholders stand where pictures are, and nowhere else. */
static void name_rows(lf_seen *s, const int32_t *tokens)
{
    const lf_media_batch *m = &s->batch.media;
    const int32_t mark = (int32_t)s->mc->image_token, other = mark == 0;
    for (int64_t r = 0; r < s->rows; r++)
        s->id[r] = tokens[r] == mark ? other : tokens[r];
    for (int32_t i = 0; i < m->n_pictures; i++)
        for (int64_t r = m->picture[i].first_row, n = 0; n < m->picture[i].rows; r++)
            if (tokens[r] == mark) { /* some processors put other tokens between them */
                s->id[r] = mark;
                n++;
            }
}

static int write_classes(lf_seen *s, lf_exec *ex, int chain, lf_err *err)
{
    const struct lf_sight_media in = {.media = &s->batch.media,
                                      .processor = s->from ? s->from->processor : NULL};
    int rc = lf_classes_sight_fill_media(s->classes, &in, err);
    if (rc == 0)
        rc = lf_classes_sight_write(s->classes, ex, chain, 0, err);
    return rc == 0 ? lf_classes_sight_write_pixels(s->classes, ex, chain, 0, err) : rc;
}

static int write_dual(lf_seen *s, lf_exec *ex, int chain, lf_err *err)
{
    const struct lf_sight_media in = {.media = &s->batch.media,
                                      .processor = s->from ? s->from->processor : NULL};
    int rc = lf_dual_sight_fill_media(s->dual, &in, err);
    if (rc == 0)
        rc = lf_dual_sight_write(s->dual, ex, chain, 0, err);
    return rc == 0 ? lf_dual_sight_write_pixels(s->dual, ex, chain, 0, err) : rc;
}

int lf_seen_write(lf_seen *s, lf_exec *ex, int chain, const struct lf_seen_rows *r, lf_err *err)
{
    if (s->classes)
        return write_classes(s, ex, chain, err);
    if (s->dual)
        return write_dual(s, ex, chain, err);
    const struct lf_own_rows all = {.all = s->rows, .own = s->rows},
                             *mine = r->mine ? r->mine : &all;
    name_rows(s, r->tokens);
    const struct lf_sight_media in = {.media = &s->batch.media,
                                      .processor = s->from ? s->from->processor : NULL,
                                      .tokens = s->id,
                                      .positions = r->positions};
    int rc = lf_sight_fill_media(s->sight, &in, err);
    if (rc != 0)
        return rc;
    const int32_t *given = lf_sight_token_rows(s->sight);
    for (int64_t i = 0; i < s->rows; i++)
        s->row[i] = given[i] < 0 ? given[i] : r->tokens[i];
    const struct lf_own_sight see = {.ex = ex, .chain = chain, .sight = s->sight, .tokens = s->row};
    return lf_own_rows_write_sight(mine, &see, err);
}
