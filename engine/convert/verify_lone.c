/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of pictures without a decoder of text against the rows that are expected behind their
 * last norm, a masked autoencoder against the patches that it is to restore, and a model that tells
 * classes against its logits: one group of pictures at a time. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/convert/verify.h"
#include "engine/model/classes.h"
#include "engine/model/composed.h"
#include "engine/model/mae.h"
#include "engine/model/sight.h"

enum { MAX_TILES = 4096 };

struct lone {
    struct lf_verify_in *in;
    const lf_model_config *c;
    const lf_st_entry *pixels, *tiles, *want, *mask; /* mask: NULL unless it restores */
    int64_t batch, patches, K;
    int32_t n_tiles;
    struct lf_verify_model m;
    struct lf_decoder_media media; /* bounds of an encoder */
    struct lf_mae_rows rows;       /* and of what restores */
    struct lf_classes_rows told;   /* and of what tells classes */
    lf_sight *sight;
    lf_mae_sight *mae;
    lf_classes_sight *classes;
    float *second;              /* [pictures, N] of the head of a distill token */
    struct lf_sight_tile *tile; /* [n_tiles] */
    int32_t *numbers;           /* [2 n_tiles + patches] as they are read */
    bool *hidden;               /* [patches] */
    float *read, *fed;          /* [patches, K] as in the file, and in the order of the encoder */
    float *got;
    double *expected; /* a group of want */
};

/* ---- the file ---- */

static const lf_st_entry *find(const struct lone *l, const char *name, enum lf_st_dtype dtype,
                               int ndim)
{
    const lf_st_entry *e = lf_st_find(l->in->expected, name);
    return e && e->dtype == dtype && e->ndim == ndim && e->elems > 0 ? e : NULL;
}

static int find_tensors(struct lone *l, lf_err *err)
{
    const char *path = l->in->path;
    const bool restores = lf_model_restores(l->c);
    l->pixels = find(l, "pixels", LF_ST_F32, 3);
    l->tiles = find(l, "tiles", LF_ST_I64, 3);
    l->want = lf_st_find(l->in->expected, restores                    ? "restored"
                                          : lf_model_classifies(l->c) ? "logits"
                                                                      : "hidden");
    l->mask = restores ? find(l, "mask", LF_ST_I64, 2) : NULL;
    if (!l->pixels || !l->tiles || l->tiles->shape[2] != 2 || l->tiles->shape[1] > MAX_TILES)
        return lf_verify_bad_file(
            path,
            "the model is an encoder of pictures, and there are no pixels, F32 "
            "[batch, patches, K], and tiles, I64 [batch, n, 2]",
            err);
    if (!lf_verify_is_numbers(l->want))
        return lf_verify_bad_file(
            path,
            restores ? "there is no restored, F64 or F32 [batch, hidden patches, K]"
            : lf_model_classifies(l->c) ? "there are no logits, F64 or F32 [batch, pictures, N]"
                                        : "there is no hidden, F64 or F32 [batch, rows, C]",
            err);
    if (restores && (!l->mask || l->mask->shape[1] != l->pixels->shape[1]))
        return lf_verify_bad_file(path, "there is no mask, I64 [batch, patches]", err);
    l->batch = l->pixels->shape[0];
    l->patches = l->pixels->shape[1];
    l->K = l->pixels->shape[2];
    l->n_tiles = (int32_t)l->tiles->shape[1];
    if (l->tiles->shape[0] != l->batch || l->want->shape[0] != l->batch ||
        (l->mask && l->mask->shape[0] != l->batch))
        return lf_verify_bad_file(path, "its tensors are not of one batch", err);
    return 0;
}

/* The rows that are expected must be those that the model gives. */
static int check_sizes(const struct lone *l, lf_err *err)
{
    const lf_vision_config *v = &l->c->vision;
    const struct lf_vision_stage last = lf_vision_stage_of(v, lf_vision_stages(v) - 1);
    const int64_t class_rows = l->n_tiles * lf_sight_class_rows(l->c),
                  rows = l->mask                     ? l->want->shape[1]
                         : lf_model_classifies(l->c) ? l->n_tiles
                         : v->grid                   ? l->n_tiles * last.side * last.side
                                                     : l->patches + class_rows,
                  width = l->mask                     ? v->patch_dim
                          : lf_model_classifies(l->c) ? l->c->classes.labels
                                                      : lf_vision_width(v);
    if (l->K != v->patch_dim)
        return lf_fail(err, LF_EINVAL, "a patch of the file has %lld numbers, of the model %lld",
                       (long long)l->K, (long long)v->patch_dim);
    if (l->mask && rows >= l->patches)
        return lf_fail(err, LF_EFORMAT, "restored has %lld patches of %lld: none is visible",
                       (long long)rows, (long long)l->patches);
    if (l->want->shape[1] != rows || l->want->shape[2] != width)
        return lf_fail(err, LF_EINVAL,
                       "the file expects %lld rows of %lld numbers, the model gives %lld of %lld",
                       (long long)l->want->shape[1], (long long)l->want->shape[2], (long long)rows,
                       (long long)width);
    return 0;
}

/* ---- the model ---- */

/* Numbers that the graph gives. */
static int64_t given(const struct lone *l)
{
    return l->mask                     ? l->rows.hidden * l->K
           : lf_model_classifies(l->c) ? l->told.pictures * l->c->classes.labels
                                       : lf_vision_end_rows(&l->c->vision, &l->media.vision) *
                                             lf_vision_width(&l->c->vision);
}

static int make_room(struct lone *l, lf_err *err)
{
    const size_t K = (size_t)l->K, tiles = (size_t)l->n_tiles, patches = (size_t)l->patches;
    const int64_t fed = l->mask ? l->rows.encoder.patches : l->media.vision.patches;
    l->tile = lf_calloc(tiles, sizeof *l->tile, err);
    l->numbers = lf_calloc(2 * tiles + patches, sizeof *l->numbers, err);
    l->hidden = lf_calloc(patches, sizeof *l->hidden, err);
    l->read = lf_calloc(patches * K, sizeof *l->read, err);
    l->fed = lf_calloc((size_t)fed * K, sizeof *l->fed, err);
    l->got = lf_calloc((size_t)given(l), sizeof *l->got, err);
    l->second = lf_calloc((size_t)given(l), sizeof *l->second, err);
    l->expected = lf_calloc((size_t)(l->want->elems / l->batch), sizeof *l->expected, err);
    if (l->mask)
        l->mae = lf_mae_sight_create(l->c, &l->rows, err);
    else if (lf_model_classifies(l->c))
        l->classes = lf_classes_sight_create(l->c, &l->told, err);
    else
        l->sight = lf_sight_create(l->c, &l->media, 1, err);
    return l->tile && l->numbers && l->hidden && l->read && l->fed && l->got && l->second &&
                   l->expected && (l->mae || l->classes || l->sight)
               ? 0
               : LF_ENOMEM;
}

static int open_model(struct lone *l, lf_err *err)
{
    lf_graph *g;
    int rc = lf_verify_declare(&l->m, l->c, 1, err);
    if (rc != 0)
        return rc;
    l->c = lf_decoder_config(l->m.dec);
    if (l->mask) {
        l->rows = lf_mae_bounds(l->c, l->patches, l->n_tiles,
                                (double)l->want->shape[1] / (double)l->patches);
        g = lf_mae_graph(l->m.dec, l->m.ps, "verify", &l->rows, false, err);
    } else if (lf_model_classifies(l->c)) {
        l->told = lf_classes_bounds(l->c, l->patches, l->n_tiles);
        l->media = l->told.media;
        g = lf_classes_graph(l->m.dec, l->m.ps, "verify", &l->told, false, err);
    } else {
        l->media = lf_sight_bounds(l->c, l->patches, l->n_tiles, 1);
        g = lf_decoder_encoder_graph(l->m.dec, l->m.ps, "verify", &l->media, err);
    }
    rc = lf_verify_bind(&l->m, g, l->in->ck, l->in->threads, err);
    return rc != 0 ? rc : make_room(l, err);
}

/* ---- a group of pictures ---- */

static int read_tiles(struct lone *l, int64_t b, lf_err *err)
{
    int64_t patches = 0;
    int rc = lf_verify_read_i32(l->in->expected, l->tiles, b, l->numbers, err);
    for (int32_t i = 0; i < l->n_tiles && rc == 0; i++) {
        l->tile[i] = (struct lf_sight_tile){l->numbers[2 * i], l->numbers[2 * i + 1]};
        patches += (int64_t)l->tile[i].h * l->tile[i].w;
    }
    if (rc == 0 && patches != l->patches)
        rc = lf_fail(err, LF_EFORMAT, "tiles have %lld patches, pixels %lld", (long long)patches,
                     (long long)l->patches);
    return rc;
}

static int read_mask(struct lone *l, int64_t b, lf_err *err)
{
    int64_t n = 0;
    int32_t *mask = l->numbers + 2 * l->n_tiles;
    int rc = lf_verify_read_i32(l->in->expected, l->mask, b, mask, err);
    for (int64_t i = 0; i < l->patches && rc == 0; i++) {
        l->hidden[i] = mask[i] != 0;
        n += l->hidden[i];
    }
    if (rc == 0 && n != l->want->shape[1])
        rc = lf_fail(err, LF_EFORMAT, "mask hides %lld patches, restored has %lld", (long long)n,
                     (long long)l->want->shape[1]);
    return rc;
}

/* Fills the inputs that follow from sizes; *order: which patches go in, *n of them. */
static int fill(struct lone *l, const int32_t **order, int64_t *n, lf_err *err)
{
    const struct lf_verify_model *m = &l->m;
    int rc;
    if (l->mask) {
        const struct lf_mae_batch batch = {
            .n_tiles = l->n_tiles, .tile = l->tile, .merge = 1, .hidden = l->hidden};
        rc = lf_mae_sight_fill(l->mae, &batch, err);
        *order = lf_mae_sight_seen(l->mae, n);
        return rc != 0 ? rc : lf_mae_sight_write(l->mae, m->exec, m->chain, 0, err);
    }
    const struct lf_sight_batch batch = {.n_tiles = l->n_tiles, .tile = l->tile, .merge = 1};
    if (l->classes) {
        rc = lf_classes_sight_fill(l->classes, &batch, err);
        *order = lf_classes_sight_order(l->classes);
        *n = l->patches;
        return rc != 0 ? rc : lf_classes_sight_write(l->classes, m->exec, m->chain, 0, err);
    }
    rc = lf_sight_rows(l->sight, &batch, err);
    *order = lf_sight_patch_order(l->sight);
    *n = l->patches;
    return rc != 0 ? rc : lf_sight_write_encoder(l->sight, m->exec, m->chain, 0, err);
}

static int feed(struct lone *l, int64_t b, lf_err *err)
{
    const int32_t *order;
    const size_t K = (size_t)l->K;
    int64_t n = 0, all = l->patches * l->K;
    int rc = read_tiles(l, b, err);
    if (rc == 0 && l->mask)
        rc = read_mask(l, b, err);
    if (rc == 0)
        rc = fill(l, &order, &n, err);
    if (rc == 0)
        rc = lf_st_read(l->in->expected, l->pixels, b * all, all, l->read, err);
    if (rc != 0)
        return rc;
    for (int64_t i = 0; i < n; i++)
        memcpy(l->fed + (size_t)i * K, l->read + (size_t)order[i] * K, K * sizeof *l->fed);
    const int64_t room = l->mask ? l->rows.encoder.patches : l->media.vision.patches;
    return lf_exec_write(l->m.exec, l->m.chain, 0, "vision.pixels", l->fed,
                         (size_t)room * K * sizeof *l->fed, err);
}

static int read_given(struct lone *l, lf_err *err)
{
    const size_t n = (size_t)given(l);
    const char *name = l->mask ? "pixels" : l->classes ? "score" : "encoded";
    int rc = lf_exec_read(l->m.exec, l->m.chain, 0, name, l->got, n * sizeof *l->got, err);
    if (rc != 0 || !l->classes || l->c->classes.read != LF_CLASS_BOTH)
        return rc;
    rc = lf_exec_read(l->m.exec, l->m.chain, 0, "distilled", l->second, n * sizeof *l->second, err);
    for (size_t i = 0; i < n; i++)
        l->got[i] = (l->got[i] + l->second[i]) / 2;
    return rc;
}

static int compare(struct lone *l, int64_t b, lf_err *err)
{
    const int64_t n = l->want->elems / l->batch;
    int rc = read_given(l, err);
    if (rc == 0)
        rc = lf_verify_read(l->in->expected, l->want, b * n, n, l->expected, err);
    return rc != 0 ? rc : lf_verify_compare(&l->in->sum, l->got, l->expected, n, err);
}

static void fini(struct lone *l)
{
    lf_verify_model_fini(&l->m);
    lf_sight_destroy(l->sight);
    lf_mae_sight_destroy(l->mae);
    lf_classes_sight_destroy(l->classes);
    free(l->second);
    free(l->tile);
    free(l->numbers);
    free(l->hidden);
    free(l->read);
    free(l->fed);
    free(l->got);
    free(l->expected);
}

int lf_verify_lone(struct lf_verify_in *in, struct lf_convert_verdict *out, lf_err *err)
{
    struct lone l = {.in = in, .c = &in->config};
    int rc = find_tensors(&l, err);
    if (rc == 0)
        rc = check_sizes(&l, err);
    if (rc == 0)
        rc = open_model(&l, err);
    for (int64_t b = 0; b < l.batch && rc == 0; b++) {
        rc = feed(&l, b, err);
        if (rc == 0)
            rc = lf_exec_run(l.m.exec, l.m.chain, LF_FWD, 0, LF_FIRST, err);
        if (rc == 0)
            rc = compare(&l, b, err);
    }
    if (rc == 0)
        *out = (struct lf_convert_verdict){.of = l.mask      ? "patches"
                                                 : l.classes ? "logits of pictures"
                                                             : "rows",
                                           .rows = l.batch * l.want->shape[1]};
    fini(&l);
    return rc;
}
