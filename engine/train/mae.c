/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see mae.h. */
#include "engine/train/mae.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/model/mae.h"

/* ---- numbers ---- */

void lf_mae_noise(uint32_t *noise, int64_t n, uint64_t seed, bool valid, int64_t sample,
                  int64_t first)
{
    uint32_t four[4];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i;
        if (i == 0 || at % 4 == 0)
            lf_philox(four, seed, LF_SITE_MAE + valid, (uint64_t)sample, (uint32_t)(at / 4));
        noise[i] = four[at % 4];
    }
}

void lf_mae_norm_pix(float *patch, int64_t k)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < k; i++)
        mean += (double)patch[i];
    mean /= (double)k;
    for (int64_t i = 0; i < k; i++)
        var += ((double)patch[i] - mean) * ((double)patch[i] - mean);
    const double by = 1 / sqrt(var / (double)(k - 1) + 1e-6);
    for (int64_t i = 0; i < k; i++)
        patch[i] = (float)(((double)patch[i] - mean) * by);
}

double lf_mae_loss(const struct lf_mae_restored *r, double scale, float *slope)
{
    const double k = (double)r->k;
    double sum = 0;
#pragma omp parallel for schedule(static) num_threads(r->threads)
    for (int64_t i = 0; i < r->n; i++) {
        const float *p = r->pixels + i * r->k, *t = r->target + i * r->k;
        const double by = scale * r->weight[i] * 2 / k;
        double s = 0;
        for (int64_t j = 0; j < r->k; j++) {
            const double d = (double)p[j] - (double)t[j];
            s += d * d;
            if (slope)
                slope[i * r->k + j] = (float)(by * d);
        }
        r->row[i] = r->weight[i] * s / k;
    }
    for (int64_t i = 0; i < r->n; i++) /* in one order, whatever the threads */
        sum += r->row[i];
    return sum;
}

/* ---- the object ---- */

enum { PICTURES, LOSS, N_SUMS };

struct lf_mae_train {
    struct lf_mae_train_opts o;
    lf_objective objective;
    const lf_decoder *d; /* of the graph; borrowed */
    struct lf_mae_rows r;
    int64_t k;
    lf_mae_sight *sight;
    struct lf_sight_tile *tile;
    bool *hidden;           /* [patches] */
    uint32_t *noise;        /* [patches] */
    uint64_t *order;        /* [patches] */
    float *seen;            /* [patches of the encoder, k] */
    float *target, *pixels; /* [hidden, k] */
    float *slope;           /* [hidden, k] */
    double *weight, *row;   /* [hidden] */
};

static void drop(lf_mae_train *t)
{
    void *const all[] = {t->tile,   t->hidden, t->noise, t->order,  t->seen,
                         t->target, t->pixels, t->slope, t->weight, t->row};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    lf_mae_sight_destroy(t->sight);
    t->sight = NULL;
    t->tile = NULL;
    t->hidden = NULL;
    t->noise = NULL;
    t->order = NULL;
    t->seen = t->target = t->pixels = t->slope = NULL;
    t->weight = t->row = NULL;
}

/* Room for the micro-batches of these bounds. */
static int make_room(lf_mae_train *t, lf_err *err)
{
    const size_t patches = (size_t)t->r.decoder.patches, hidden = (size_t)t->r.hidden,
                 k = (size_t)t->k;
    drop(t);
    t->sight = lf_mae_sight_create(lf_decoder_config(t->d), &t->r, err);
    t->tile = lf_calloc((size_t)t->r.decoder.images, sizeof *t->tile, err);
    t->hidden = lf_calloc(patches, sizeof *t->hidden, err);
    t->noise = lf_calloc(patches, sizeof *t->noise, err);
    t->order = lf_calloc(patches, sizeof *t->order, err);
    t->seen = lf_calloc((size_t)t->r.encoder.patches * k, sizeof *t->seen, err);
    t->target = lf_calloc(hidden * k, sizeof *t->target, err);
    t->pixels = lf_calloc(hidden * k, sizeof *t->pixels, err);
    t->slope = lf_calloc(hidden * k, sizeof *t->slope, err);
    t->weight = lf_calloc(hidden, sizeof *t->weight, err);
    t->row = lf_calloc(hidden, sizeof *t->row, err);
    return t->sight && t->tile && t->hidden && t->noise && t->order && t->seen && t->target &&
                   t->pixels && t->slope && t->weight && t->row
               ? 0
               : LF_ENOMEM;
}

static size_t host_bytes(void *user)
{
    const lf_mae_train *t = user;
    const size_t patches = (size_t)t->r.decoder.patches, hidden = (size_t)t->r.hidden,
                 numbers = (size_t)t->k * sizeof(float);
    return lf_mae_sight_bytes(lf_decoder_config(t->d), &t->r) +
           (size_t)t->r.decoder.images * sizeof *t->tile +
           patches * (sizeof *t->hidden + sizeof *t->noise + sizeof *t->order) +
           (size_t)t->r.encoder.patches * numbers +
           hidden * (3 * numbers + sizeof *t->weight + sizeof *t->row);
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_mae_train *t = user;
    const lf_model_config *c = lf_decoder_config(d);
    if (!r->media) {
        lf_fail(err, LF_EINVAL,
                "objective = mae trains on pictures: give max_patches, the patches that the "
                "pictures of a micro-batch have at most");
        return NULL;
    }
    if (t->d != d) {
        t->d = d;
        t->k = c->vision.patch_dim;
        t->r = lf_mae_bounds(c, r->media->vision.patches, r->media->vision.images - 1,
                             t->o.mask_ratio);
    }
    return lf_mae_graph(d, ps, name, &t->r, train, err);
}

/* ---- a micro-batch ---- */

static int check(const lf_mae_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_media_batch *m = &v->batch->media;
    const struct lf_sight_media in = {.media = m, .processor = lf_loader_processor(v->data)};
    if (m->n_tiles > t->r.decoder.images - 1 || m->n_patches > t->r.decoder.patches)
        LF_BUG("%lld patches in %d tiles", (long long)m->n_patches, m->n_tiles);
    return lf_sight_check_patches(&in, t->k, err);
}

/* What is hidden of each picture, and the weight of each row that is restored. */
static void hide(lf_mae_train *t, const struct lf_train_view *v)
{
    const lf_loader_batch *b = v->batch;
    int64_t patch = 0, first = 0, row = -1, out = 0;
    for (int32_t i = 0; i < b->media.n_pictures; i++) {
        const struct lf_media_picture *p = &b->media.picture[i];
        const int64_t at = p->first_row / b->T;
        first = at == row ? first : 0; /* in its sample */
        row = at;
        for (int32_t k = p->first_tile; k < p->first_tile + p->tiles; k++) {
            const struct lf_media_tile *m = &b->media.tile[k];
            const int64_t n = (int64_t)m->grid_h * m->grid_w,
                          hidden = n - lf_mae_visible(n, t->o.mask_ratio);
            t->tile[k] = (struct lf_sight_tile){m->grid_h, m->grid_w};
            lf_mae_noise(t->noise, n, t->o.seed, v->valid_split, b->sample_ids[row], first);
            lf_mae_hide(t->hidden + patch, t->noise, n, t->o.mask_ratio, t->order);
            for (int64_t j = 0; j < hidden && out < t->r.hidden; j++)
                t->weight[out++] = 1 / (double)hidden;
            first += n;
            patch += n;
        }
    }
}

/* Pixels of these patches of the batch. */
static void fill(float *to, const struct lf_train_view *v, const int32_t *patch, int64_t n,
                 const lf_mae_train *t)
{
    const lf_media_batch *m = &v->batch->media;
    const lf_processor *p = lf_loader_processor(v->data);
#pragma omp parallel for schedule(static) num_threads(t->o.threads)
    for (int64_t i = 0; i < n; i++)
        lf_norm_rows(to + i * t->k, m->patches + (int64_t)patch[i] * m->row_bytes, 1, &p->patches,
                     p->table);
}

static void fill_pixels(lf_mae_train *t, const struct lf_train_view *v)
{
    int64_t n, hidden;
    const int32_t *seen = lf_mae_sight_seen(t->sight, &n),
                  *restored = lf_mae_sight_hidden(t->sight, &hidden);
    fill(t->seen, v, seen, n, t);
    memset(t->seen + n * t->k, 0, (size_t)((t->r.encoder.patches - n) * t->k) * sizeof *t->seen);
    fill(t->target, v, restored, hidden, t);
    for (int64_t i = 0; i < hidden && t->o.norm_pix; i++)
        lf_mae_norm_pix(t->target + i * t->k, t->k);
}

static int inputs(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_mae_train *t = user;
    const lf_processor *p = lf_loader_processor(v->data);
    int rc = t->sight ? 0 : make_room(t, err);
    if (rc == 0)
        rc = check(t, v, err);
    if (rc != 0)
        return rc;
    hide(t, v);
    const struct lf_mae_batch b = {.n_tiles = v->batch->media.n_tiles,
                                   .tile = t->tile,
                                   .merge = p ? p->patches.merge : 1,
                                   .hidden = t->hidden};
    rc = lf_mae_sight_fill(t->sight, &b, err);
    if (rc != 0)
        return rc;
    fill_pixels(t, v);
    rc = lf_mae_sight_write(t->sight, v->ex, v->chain, v->slot, err);
    return rc != 0 ? rc
                   : lf_exec_write(v->ex, v->chain, v->slot, "vision.pixels", t->seen,
                                   (size_t)(t->r.encoder.patches * t->k) * sizeof *t->seen, err);
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_mae_train *t = user;
    const size_t bytes = (size_t)(t->r.hidden * t->k) * sizeof *t->pixels;
    struct lf_mae_restored r = {.k = t->k,
                                .pixels = t->pixels,
                                .target = t->target,
                                .weight = t->weight,
                                .row = t->row,
                                .threads = t->o.threads};
    (void)tops;
    int rc = lf_exec_read(v->ex, v->chain, v->slot, "pixels", t->pixels, bytes, err);
    if (rc != 0)
        return rc;
    lf_mae_sight_hidden(t->sight, &r.n);
    if (v->train)
        memset(t->slope + r.n * t->k, 0, (size_t)((t->r.hidden - r.n) * t->k) * sizeof *t->slope);
    sums[LOSS] += lf_mae_loss(&r, v->inv_units, v->train ? t->slope : NULL);
    sums[PICTURES] += v->batch->media.n_tiles;
    return v->train ? lf_exec_write(v->ex, v->chain, v->slot, "dpixels", t->slope, bytes, err) : 0;
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    (void)user;
    (void)tops;
    out[0] = sums[LOSS] / sums[PICTURES];
}

static const char *const metrics[] = {"loss"};
static const char *const valid_metrics[] = {"valid_loss"};

lf_mae_train *lf_mae_train_create(const struct lf_mae_train_opts *o, lf_err *err)
{
    lf_mae_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->objective =
        (lf_objective){.user = t,
                       .rows = LF_ROWS_PLAIN,
                       .units = "pictures",
                       .pictures = true,
                       .graph = graph,
                       .inputs = inputs,
                       .host_bytes = host_bytes,
                       .after_forward = after_forward,
                       .n_sums = N_SUMS,
                       .means = means,
                       .metrics = metrics,
                       .valid_metrics = valid_metrics,
                       .n_metrics = 1,
                       .identity = json_pack("{s:s,s:f,s:b}", "loss", "mae", "mask_ratio",
                                             o->mask_ratio, "norm_pix_loss", o->norm_pix)};
    if (!t->objective.identity) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_mae_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_mae_train_objective(const lf_mae_train *t)
{
    return &t->objective;
}

void lf_mae_train_destroy(lf_mae_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    drop(t);
    free(t);
}
