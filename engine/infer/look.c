/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoder and projector over the pictures of one prompt: see look.h. */
#include "engine/infer/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/base64.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/infer/paged.h"

#define MOST_BYTES ((size_t)1 << 30) /* of a picture's file */

struct lf_look {
    const lf_model_config *c;
    struct lf_look_opts o;
    struct lf_decoder_media m;
    lf_exec *ex;
    int chain;
    lf_sight *sight;
    int32_t *token, *position; /* [o.tokens] */
    uint8_t *bytes;            /* [patches, patch_dim] at most */
    float *rows;               /* [o.tokens, widest output] */
};

static int take(lf_look *l, lf_err *err)
{
    const int64_t E = lf_model_embed_width(l->c), C = l->c->hidden, widest = E > C ? E : C;
    const size_t tokens = (size_t)l->o.tokens;
    l->sight = lf_sight_create(l->c, &l->m, l->o.tokens, err);
    l->token = lf_calloc(tokens, sizeof *l->token, err);
    l->position = lf_calloc(tokens, sizeof *l->position, err);
    l->bytes = lf_calloc((size_t)l->m.vision.patches, (size_t)l->c->vision.patch_dim, err);
    l->rows = lf_calloc(tokens * (size_t)widest, sizeof *l->rows, err);
    return l->sight && l->token && l->position && l->bytes && l->rows ? 0 : LF_ENOMEM;
}

int lf_look_plan(lf_look **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                 const struct lf_look_opts *o, lf_err *err)
{
    lf_look *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return LF_ENOMEM;
    l->c = lf_decoder_config(d);
    l->o = *o;
    l->m = lf_sight_bounds(l->c, o->patches, o->tiles, o->tokens);
    lf_graph *g = lf_decoder_features_graph(d, ps, "features", o->tokens, &l->m, err);
    int rc = g ? 0 : LF_EINVAL;
    if (rc == 0) {
        /* ranks that divide weights look at pictures of their own, so it reads all of them */
        l->chain =
            lf_plan_add(plan, g, &(struct lf_chain_opts){.eras = o->eras, .whole = true}, err);
        rc = l->chain < 0 ? l->chain : 0;
    }
    lf_graph_destroy(g);
    if (rc == 0)
        rc = take(l, err);
    if (rc != 0)
        lf_look_destroy(l);
    else
        *out = l;
    return rc;
}

void lf_look_destroy(lf_look *l)
{
    if (!l)
        return;
    lf_sight_destroy(l->sight);
    void *const blocks[] = {l->token, l->position, l->bytes, l->rows};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
    free(l);
}

void lf_look_bind(lf_look *l, lf_exec *ex)
{
    l->ex = ex;
}

static int64_t rows_of(const lf_media_batch *b)
{
    int64_t n = 0;
    for (int32_t i = 0; i < b->n_pictures; i++)
        n += b->picture[i].rows;
    return n;
}

static int fits(const lf_look *l, const lf_media_batch *b, lf_err *err)
{
    if (b->n_patches <= l->o.patches && b->n_tiles < l->m.vision.images &&
        rows_of(b) <= l->o.tokens)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "the pictures of a prompt have %lld patches in %d tiles, and %lld tokens; there "
                   "is room for %lld in %lld, and %lld: raise max_context, or give fewer pictures",
                   (long long)b->n_patches, b->n_tiles, (long long)rows_of(b),
                   (long long)l->o.patches, (long long)l->o.tiles, (long long)l->o.tokens);
}

static int collect(lf_look *l, const char *name, const int64_t part[2], int64_t n, float *out,
                   lf_err *err)
{
    const int64_t first = part[0], width = part[1], all = lf_paged_feature_width(l->c);
    const int rc = lf_exec_read(l->ex, l->chain, 0, name, l->rows,
                                (size_t)(l->o.tokens * width) * sizeof *l->rows, err);
    for (int64_t r = 0; r < n && rc == 0; r++)
        memcpy(out + r * all + first, l->rows + r * width, (size_t)width * sizeof *out);
    return rc;
}

int lf_look_at(lf_pixels *out, const lf_processor *p, const char *path, bool alone, lf_err *err)
{
    lf_image im = {0};
    lf_buf bytes;
    lf_buf_init(&bytes);
    const bool url = strncmp(path, "data:", 5) == 0;
    int rc = url ? lf_base64_url(&bytes, path, strlen(path), err)
                 : lf_io_read_file(path, MOST_BYTES, &bytes, err);
    if (rc == 0 && (rc = lf_image_decode(&im, bytes.data, bytes.len, NULL, err)) < 0)
        lf_err_prefix(err, "%.*s", url ? 20 : 4000, path);
    if (rc == 0 && (rc = lf_processor_run(out, p, &im, alone, err)) < 0)
        lf_err_prefix(err, "%.*s", url ? 20 : 4000, path);
    lf_image_fini(&im);
    lf_buf_fini(&bytes);
    return rc;
}

/* What a picture is called in messages. */
static const char *name_of(const struct lf_look_pictures *p, int32_t i, char buf[32])
{
    if (p->path)
        return p->path[i];
    snprintf(buf, 32, "picture %d", i + 1);
    return buf;
}

/* Patches of all pictures, behind each other. The files may have changed since they were
 * measured. */
static int decode(lf_look *l, const struct lf_look_pictures *p, lf_err *err)
{
    char name[32];
    const lf_media_batch *b = p->batch;
    int64_t patch = 0;
    int rc = 0;
    for (int32_t i = 0; i < p->n && rc == 0; i++) {
        const struct lf_media_picture *q = &b->picture[i];
        const struct lf_media_tile *t = &b->tile[q->first_tile];
        lf_pixels x = {0};
        rc = p->path ? lf_look_at(&x, p->processor, p->path[i], p->n == 1, err)
                     : p->read(p->arg, i, &x, err);
        if (rc == 0 && (x.tiles != q->tiles || x.grid_h != t->grid_h || x.grid_w != t->grid_w))
            rc = lf_fail(err, LF_EINVAL, "%.200s has another size than at the start",
                         name_of(p, i, name));
        const int64_t n = (int64_t)x.tiles * x.grid_h * x.grid_w;
        if (rc == 0)
            memcpy(l->bytes + patch * b->row_bytes, x.rows, (size_t)(n * b->row_bytes));
        patch += n;
        lf_pixels_fini(&x);
    }
    return rc;
}

int lf_look_run(lf_look *l, const struct lf_look_pictures *p, float *out, lf_err *err)
{
    const int64_t E = lf_model_embed_width(l->c), C = l->c->hidden, n = rows_of(p->batch);
    int rc = fits(l, p->batch, err);
    if (rc != 0)
        return rc;
    for (int64_t i = 0; i < l->o.tokens; i++)
        l->token[i] = i < n ? (int32_t)l->c->image_token : -1;
    lf_media_batch b = *p->batch;
    b.patches = l->bytes;
    const struct lf_sight_media in = {
        .media = &b, .processor = p->processor, .tokens = l->token, .positions = l->position};
    rc = decode(l, p, err);
    if (rc == 0)
        rc = lf_sight_fill_media(l->sight, &in, err);
    if (rc == 0)
        rc = lf_sight_write(l->sight, l->ex, l->chain, 0, err);
    if (rc == 0)
        rc = lf_sight_write_pixels(l->sight, l->ex, l->chain, 0, err);
    if (rc == 0)
        rc = lf_exec_run(l->ex, l->chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = collect(l, "features", (int64_t[]){0, E}, n, out, err);
    for (int64_t t = 0; t < l->c->vision.taps.n && rc == 0; t++) {
        char name[32];
        snprintf(name, sizeof name, "deep.%lld", (long long)t);
        rc = collect(l, name, (int64_t[]){E + t * C, C}, n, out, err);
    }
    return rc;
}
