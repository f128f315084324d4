/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see dual_train.h. */
#include "engine/post/dual_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/dual.h"
#include "engine/post/picture_state.h"

enum { PAIRS, LOSS, RIGHT, TEXT_RIGHT, N_SUMS };
enum { IMAGE, TEXT, SIDES };

static const char *const out_names[] = {"image", "text"}, *const grad_names[] = {"dimage", "dtext"};
static const char *const metrics[] = {"loss", "accuracy", "text_accuracy", "scale"};
static const char *const valid_metrics[] = {"valid_loss", "valid_accuracy", "valid_text_accuracy",
                                            "valid_scale"};

/* Pairs of this rank, in the order in which they were seen. */
struct seen {
    int64_t *sample;
    double *x; /* [n, 2 width]: picture, text */
    size_t n, cap_sample, cap_x;
};

struct lf_dual_train {
    struct lf_dual_train_opts o;
    lf_objective objective;
    const lf_decoder *d; /* of the graph, and its store; borrowed */
    lf_pstore *ps;
    struct lf_dual_rows r;
    int64_t width, most; /* D; tokens of a text */
    lf_dual_sight *sight;
    struct lf_dual_text *texts; /* [pairs], of tokens [pairs, most] */
    int32_t *tokens;
    int64_t *sample; /* [pairs] of the micro-batch */
    float *v[SIDES]; /* [pairs, width] vectors, then their gradients */
    struct seen seen;
    double number[2]; /* s, b */
    /* of all ranks: the pair of sample first + i is number at[i] of the next */
    int64_t first, samples;
    size_t *at;
    double *x[SIDES], *slope[SIDES]; /* [pairs, width] */
    double *loss, *by[2];            /* [pairs]; derivatives by s and b */
    bool *right[2];
};

/* ---- the graph ---- */

static void drop(lf_dual_train *t)
{
    lf_dual_sight_destroy(t->sight);
    free(t->texts);
    free(t->tokens);
    free(t->sample);
    for (int k = 0; k < SIDES; k++) {
        free(t->v[k]);
        t->v[k] = NULL;
    }
    t->sight = NULL;
    t->texts = NULL;
    t->tokens = NULL;
    t->sample = NULL;
}

/* Room for the micro-batches of these bounds. */
static int make_room(lf_dual_train *t, lf_err *err)
{
    const size_t n = (size_t)t->r.pairs;
    drop(t);
    t->sight = lf_dual_sight_create(lf_decoder_config(t->d), &t->r, err);
    t->texts = lf_calloc(n, sizeof *t->texts, err);
    t->tokens = lf_calloc(n * (size_t)t->most, sizeof *t->tokens, err);
    t->sample = lf_calloc(n, sizeof *t->sample, err);
    for (int k = 0; k < SIDES; k++)
        t->v[k] = lf_calloc(n * (size_t)t->width, sizeof *t->v[k], err);
    return t->sight && t->texts && t->tokens && t->sample && t->v[IMAGE] && t->v[TEXT] ? 0
                                                                                       : LF_ENOMEM;
}

static size_t host_bytes(void *user)
{
    const lf_dual_train *t = user;
    const size_t n = (size_t)t->r.pairs;
    return lf_dual_sight_bytes(lf_decoder_config(t->d), &t->r) +
           n * (sizeof *t->texts + (size_t)t->most * sizeof *t->tokens + sizeof *t->sample +
                SIDES * (size_t)t->width * sizeof **t->v);
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_dual_train *t = user;
    const lf_model_config *c = lf_decoder_config(d);
    if (!r->media) {
        lf_fail(err, LF_EINVAL,
                "objective = clip and siglip train on pictures: give max_patches, the patches that "
                "the pictures of a micro-batch have at most");
        return NULL;
    }
    t->d = d;
    t->ps = ps;
    t->width = c->dual.dim;
    t->most = c->max_positions;
    t->r = (struct lf_dual_rows){.media = *r->media, .pairs = r->media->vision.images - 1};
    return lf_dual_graph(d, ps, name, &t->r, train, err);
}

/* ---- data ---- */

static int wrong_document(const lf_shardset *s, uint64_t doc, const char *what, lf_err *err)
{
    const char *file = "";
    uint64_t index = 0;
    lf_shardset_locate(s, doc, &file, &index);
    return lf_fail(err, LF_EINVAL,
                   "%s: document %llu %s; it has one picture, of one tile, and its caption", file,
                   (unsigned long long)index, what);
}

static int check_set(const lf_shardset *s, lf_err *err)
{
    const uint64_t docs = lf_shardset_get_info(s)->n_docs;
    int rc = 0;
    for (uint64_t d = 0; d < docs && rc == 0; d++) {
        const uint64_t pictures = lf_shardset_pictures(s, d);
        lf_shard_picture p = {0};
        if (pictures) /* others are left out */
            lf_shardset_picture_get(s, d, 0, &p);
        if (pictures && (pictures > 1 || p.tiles > 1))
            rc = wrong_document(
                s, d, pictures > 1 ? "has several pictures" : "has a picture of several tiles",
                err);
        if (rc == 0 && pictures && p.count)
            rc = wrong_document(s, d,
                                "has placeholders in its text: make the data with placeholders = "
                                "{\"processor_class\": \"CLIPProcessor\"}",
                                err);
        if (rc == 0 && pictures && !lf_shardset_doc_len(s, d))
            rc = wrong_document(s, d, "has no text", err);
    }
    return rc;
}

/* What is wrong with a document is told before the first step. */
static int prepare(void *user, lf_trainer *tr, bool fresh, lf_err *err)
{
    const lf_dual_train *t = user;
    int rc = lf_picture_state(t->objective.extra, tr, NULL, 0, err);
    for (int valid = 0; valid < 2 && fresh && lf_train_first_rank(tr); valid++)
        for (size_t i = 0; i < lf_train_n_sources(tr, valid) && rc == 0; i++)
            if ((rc = check_set(lf_train_source_set(tr, i, valid), err)) != 0)
                lf_err_prefix(err, "%s: %s split", lf_train_source_dir(tr, i, valid),
                              valid ? "valid" : "train");
    return rc;
}

/* ---- a micro-batch ---- */

/* The caption of a document; of a long one the tokens before the last are lost, as the graph
 * would have it. */
static int read_caption(lf_dual_train *t, const lf_shardset *s, uint64_t doc, int64_t i,
                        lf_err *err)
{
    int32_t *to = t->tokens + i * t->most;
    const int64_t all = (int64_t)lf_shardset_doc_len(s, doc), n = all < t->most ? all : t->most;
    t->texts[i] = (struct lf_dual_text){to, n};
    int rc = lf_shardset_read(s, doc, 0, (size_t)n, to, err);
    return rc == 0 && n < all ? lf_shardset_read(s, doc, (uint64_t)all - 1, 1, to + n - 1, err)
                              : rc;
}

/* Samples and captions in the order of the pictures. A row is a document, and a segment. */
static int describe(lf_dual_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    const lf_media_batch *m = &b->media;
    int rc = 0;
    if (m->n_pictures != m->n_tiles || m->n_tiles > t->r.pairs)
        LF_BUG("%d pictures in %d tiles", m->n_pictures, m->n_tiles);
    for (int32_t i = 0; i < m->n_pictures && rc == 0; i++) {
        const int64_t row = m->picture[i].first_row / b->T;
        t->sample[i] = b->sample_ids[row];
        rc = read_caption(t, lf_loader_set(v->data, b->seg_source[row]), (uint64_t)b->seg_doc[row],
                          i, err);
    }
    return rc;
}

static int inputs(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_dual_train *t = user;
    const struct lf_sight_media in = {.media = &v->batch->media,
                                      .processor = lf_loader_processor(v->data)};
    int rc = t->sight ? 0 : make_room(t, err);
    if (rc == 0)
        rc = describe(t, v, err);
    if (rc == 0)
        rc = lf_dual_sight_texts(t->sight, t->texts, v->batch->media.n_pictures, err);
    if (rc == 0)
        rc = lf_dual_sight_fill_media(t->sight, &in, err);
    if (rc == 0)
        rc = lf_dual_sight_write(t->sight, v->ex, v->chain, v->slot, err);
    return rc != 0 ? rc : lf_dual_sight_write_pixels(t->sight, v->ex, v->chain, v->slot, err);
}

static int survey(void *user, const struct lf_train_view *v, double *sums, lf_err *err)
{
    lf_dual_train *t = user;
    struct seen *s = &t->seen;
    const size_t width = (size_t)t->width, bytes = (size_t)t->r.pairs * width * sizeof **t->v;
    int rc = 0;
    (void)sums;
    for (int k = 0; k < SIDES && rc == 0; k++)
        rc = lf_exec_read(v->ex, v->chain, v->slot, out_names[k], t->v[k], bytes, err);
    for (int32_t i = 0; i < v->batch->media.n_pictures && rc == 0; i++) {
        rc = lf_grow(&s->sample, &s->cap_sample, s->n, sizeof *s->sample, err);
        if (rc == 0)
            rc = lf_grow(&s->x, &s->cap_x, s->n, SIDES * width * sizeof *s->x, err);
        for (size_t c = 0; c < SIDES * width && rc == 0; c++)
            s->x[s->n * SIDES * width + c] = (double)t->v[c / width][(size_t)i * width + c % width];
        if (rc == 0)
            s->sample[s->n++] = t->sample[i];
    }
    return rc;
}

static void surveyed(void *user, const double *sums)
{
    (void)user;
    (void)sums;
}

/* ---- scale and bias ---- */

/* Collective: both on every rank, and with clip the scale within its bound, which becomes that of
 * the model. */
static int settle_numbers(lf_dual_train *t, lf_trainer *tr, lf_err *err)
{
    const double most = log(100);
    bool kept[2];
    double v[4];
    int rc = lf_train_agree(tr, lf_dual_numbers(t->ps, v, kept, err), err);
    v[2] = kept[0];
    v[3] = kept[1];
    if (rc == 0)
        rc = lf_train_add_up(tr, v, 4, err);
    for (int k = 0; k < 2 && rc == 0; k++) /* sums of equal f32 numbers are exact */
        t->number[k] = v[2 + k] > 0 ? v[k] / v[2 + k] : 0;
    if (rc != 0 || t->o.kind != LF_DUAL_CLIP || !(t->number[0] > most))
        return rc;
    const float bound = (float)most;
    t->number[0] = (double)bound;
    return lf_train_agree(
        tr, lf_pstore_write(t->ps, lf_pstore_find(t->ps, "dual.scale"), LF_F32, &bound, err), err);
}

static int finish(void *user, lf_trainer *tr, lf_err *err)
{
    lf_dual_train *t = user;
    const int rc = settle_numbers(t, tr, err);
    return rc != 0 ? rc : lf_picture_state(t->objective.extra, tr, NULL, 0, err);
}

/* ---- of all ranks ---- */

static void forget(lf_dual_train *t)
{
    for (int k = 0; k < 2; k++) {
        free(t->x[k]);
        free(t->slope[k]);
        free(t->by[k]);
        free(t->right[k]);
        t->x[k] = t->slope[k] = t->by[k] = NULL;
        t->right[k] = NULL;
    }
    free(t->at);
    free(t->loss);
    t->at = NULL;
    t->loss = NULL;
}

/* Numbers the samples that some rank has seen; *n of them. */
static int number_samples(lf_dual_train *t, lf_trainer *tr, size_t *n, lf_err *err)
{
    double *there = lf_calloc((size_t)t->samples + 1, sizeof *there, err);
    t->at = lf_calloc((size_t)t->samples + 1, sizeof *t->at, err);
    int rc = lf_train_agree(tr, there && t->at ? 0 : LF_ENOMEM, err);
    for (size_t i = 0; rc == 0 && i < t->seen.n; i++)
        there[t->seen.sample[i] - t->first] = 1;
    rc = rc != 0 ? rc : lf_train_add_up(tr, there, (size_t)t->samples, err);
    *n = 0;
    for (int64_t i = 0; rc == 0 && i < t->samples; i++) {
        t->at[i] = *n;
        *n += there[i] > 0;
    }
    free(there);
    return rc;
}

static int collect(lf_dual_train *t, lf_trainer *tr, size_t n, lf_err *err)
{
    const size_t width = (size_t)t->width;
    bool made = true;
    for (int k = 0; k < 2; k++) {
        t->x[k] = lf_calloc(n * width + 1, sizeof *t->x[k], err);
        t->slope[k] = lf_calloc(n * width + 1, sizeof *t->slope[k], err);
        t->by[k] = lf_calloc(n + 1, sizeof *t->by[k], err);
        t->right[k] = lf_calloc(n + 1, sizeof *t->right[k], err);
        made = made && t->x[k] && t->slope[k] && t->by[k] && t->right[k];
    }
    t->loss = lf_calloc(n + 1, sizeof *t->loss, err);
    int rc = lf_train_agree(tr, made && t->loss ? 0 : LF_ENOMEM, err);
    for (size_t i = 0; rc == 0 && i < t->seen.n; i++)
        for (int k = 0; k < SIDES; k++)
            memcpy(t->x[k] + t->at[t->seen.sample[i] - t->first] * width,
                   t->seen.x + (i * SIDES + (size_t)k) * width, width * sizeof **t->x);
    for (int k = 0; k < SIDES && rc == 0; k++)
        rc = lf_train_add_up(tr, t->x[k], n * width, err);
    return rc;
}

/* Vectors that are none have a loss that is none, which ends the run as any such loss does. */
static void no_numbers(lf_dual_train *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t->loss[i] = t->by[0][i] = t->by[1][i] = (double)NAN;
    for (size_t i = 0; i < n * (size_t)t->width; i++)
        t->slope[IMAGE][i] = t->slope[TEXT][i] = (double)NAN;
}

/* Every rank computes the same of the same vectors. */
static int gathered(void *user, lf_trainer *tr, bool valid, int64_t first, int64_t samples,
                    lf_err *err)
{
    lf_dual_train *t = user;
    size_t n = 0;
    forget(t);
    t->first = first;
    t->samples = samples;
    int rc = settle_numbers(t, tr, err);
    rc = rc != 0 ? rc : number_samples(t, tr, &n, err);
    rc = rc != 0 ? rc : collect(t, tr, n, err);
    t->seen.n = 0;
    if (rc != 0)
        return rc;
    const struct lf_dual_loss d = {.kind = t->o.kind,
                                   .width = t->width,
                                   .n = n,
                                   .group = valid ? LF_DUAL_GROUP : 0,
                                   .image = t->x[IMAGE],
                                   .text = t->x[TEXT],
                                   .scale = t->number[0],
                                   .bias = t->number[1],
                                   .threads = t->o.threads};
    const struct lf_dual_out out = {.loss = t->loss,
                                    .right = {t->right[0], t->right[1]},
                                    .dimage = valid ? NULL : t->slope[IMAGE],
                                    .dtext = t->slope[TEXT],
                                    .dscale = t->by[0],
                                    .dbias = t->by[1]};
    lf_err why = LF_ERR_INIT;
    rc = lf_dual_loss(&d, &out, &why);
    if (rc == LF_ENUMERIC) {
        lf_train_log(tr, 1, "%s", why.text);
        no_numbers(t, n);
        return 0;
    }
    return rc != 0 ? lf_fail(err, rc, "%s", why.text) : 0;
}

/* ---- losses and gradients of a micro-batch ---- */

static int take_pair(lf_dual_train *t, const struct lf_train_view *v, int32_t i, double *sums,
                     double by[2], lf_err *err)
{
    const int64_t sample = t->sample[i];
    const size_t width = (size_t)t->width;
    if (sample < t->first || sample >= t->first + t->samples)
        return lf_fail(err, LF_EINVAL, "sample %lld was not surveyed", (long long)sample);
    const size_t at = t->at[sample - t->first];
    sums[PAIRS] += 1;
    sums[LOSS] += t->loss[at];
    sums[RIGHT] += t->right[0][at];
    sums[TEXT_RIGHT] += t->right[1][at];
    for (int k = 0; k < 2 && v->train; k++) {
        by[k] += v->inv_units * t->by[k][at];
        for (size_t c = 0; c < width; c++)
            t->v[k][(size_t)i * width + c] = (float)(v->inv_units * t->slope[k][at * width + c]);
    }
    return 0;
}

static int write_gradients(lf_dual_train *t, const struct lf_train_view *v, const double by[2],
                           lf_err *err)
{
    const size_t bytes = (size_t)(t->r.pairs * t->width) * sizeof **t->v;
    const float scale = (float)by[0], bias = (float)by[1];
    int rc = 0;
    for (int k = 0; k < SIDES && rc == 0; k++)
        rc = lf_exec_write(v->ex, v->chain, v->slot, grad_names[k], t->v[k], bytes, err);
    if (rc == 0)
        rc = lf_exec_write(v->ex, v->chain, v->slot, "dscale", &scale, sizeof scale, err);
    return rc == 0 && lf_decoder_config(t->d)->dual.bias
               ? lf_exec_write(v->ex, v->chain, v->slot, "dbias", &bias, sizeof bias, err)
               : rc;
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_dual_train *t = user;
    double by[2] = {0};
    int rc = 0;
    (void)tops;
    for (int k = 0; k < SIDES; k++)
        memset(t->v[k], 0, (size_t)(t->r.pairs * t->width) * sizeof **t->v);
    for (int32_t i = 0; i < v->batch->media.n_pictures && rc == 0; i++)
        rc = take_pair(t, v, i, sums, by, err);
    return rc != 0 || !v->train ? rc : write_gradients(t, v, by, err);
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    const lf_dual_train *t = user;
    (void)tops;
    out[0] = sums[LOSS] / sums[PAIRS];
    out[1] = sums[RIGHT] / sums[PAIRS];
    out[2] = sums[TEXT_RIGHT] / sums[PAIRS];
    out[3] = exp(t->number[0]);
}

/* ---- the object ---- */

lf_dual_train *lf_dual_train_create(const struct lf_dual_train_opts *o, lf_err *err)
{
    lf_dual_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->objective = (lf_objective){
        .user = t,
        .rows = LF_ROWS_PLAIN,
        .units = "pictures",
        .pictures = true,
        .captions = true,
        .whole_texts = true,
        .separator = -1,
        .graph = graph,
        .prepare = prepare,
        .inputs = inputs,
        .host_bytes = host_bytes,
        .survey = survey,
        .surveyed = surveyed,
        .gathered = gathered,
        .after_forward = after_forward,
        .n_sums = N_SUMS,
        .means = means,
        .metrics = metrics,
        .valid_metrics = valid_metrics,
        .n_metrics = sizeof metrics / sizeof *metrics,
        .n_shown = 4,
        .identity = json_pack("{s:s}", "loss", o->kind == LF_DUAL_CLIP ? "clip" : "siglip"),
        .finish = finish,
        .extra = json_object()};
    if (!t->objective.identity || !t->objective.extra) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_dual_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_dual_train_objective(const lf_dual_train *t)
{
    return &t->objective;
}

void lf_dual_train_destroy(lf_dual_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    json_decref(t->objective.extra);
    forget(t);
    drop(t);
    free(t->seen.sample);
    free(t->seen.x);
    free(t);
}
