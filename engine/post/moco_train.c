/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see moco_train.h. */
#include "engine/post/moco_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

enum { PICTURES, LOSS, RIGHT, N_SUMS };

/* Rows of the pictures that this rank has seen, in that order. */
struct seen {
    int64_t *sample;
    double *x; /* [n, 2 C]: of the encoder and of its average */
    size_t n, cap_sample, cap_x;
};

struct lf_moco_train {
    struct lf_moco_train_opts o;
    lf_objective objective;
    const lf_decoder *d; /* of the graph; borrowed */
    lf_pstore *ps;
    lf_moco *model;
    struct lf_classes_rows r;
    lf_classes_sight *sight;
    int64_t *sample;       /* [pictures] */
    float *features, *key; /* [pictures, C] */
    float *rows;           /* [pictures, widest]: an input of the graph */
    struct seen seen;
    /* of all ranks: pictures of the samples from `first` on */
    int64_t first, n;
    double *h[2], *g[2]; /* [n, C] by view */
    double *loss;
    bool *right;
    lf_moco_heads *heads;
    int64_t heads_n; /* pictures that they have room for */
    bool ready;      /* heads has the slopes of the step */
};

/* ---- which sample is what (loader.h, repeats = 2) ---- */

static int view_of(int64_t sample)
{
    return (int)(sample / 2 % 2);
}

static int64_t picture_of(int64_t sample)
{
    return 2 * (sample / 4) + sample % 2;
}

/* ---- the model ---- */

static int declare(void *user, const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    lf_moco_train *t = user;
    if (t->model && t->d == d)
        return lf_moco_declare(t->model, ps, err);
    lf_moco_destroy(t->model);
    t->d = d;
    t->model = lf_moco_create(d, t->o.hidden, t->o.dim, err);
    return t->model ? lf_moco_declare(t->model, ps, err) : LF_EINVAL;
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_moco_train *t = user;
    (void)d;
    if (!r->media) {
        lf_fail(err, LF_EINVAL,
                "objective = moco trains on pictures: give max_patches, the patches that the "
                "pictures of a micro-batch have at most");
        return NULL;
    }
    t->ps = ps;
    t->r = (struct lf_classes_rows){*r->media, r->media->vision.images - 1};
    return lf_moco_graph(t->model, ps, name, &t->r, train, err);
}

/* ---- room ---- */

static const struct lf_moco_sizes *sizes(const lf_moco_train *t)
{
    return lf_moco_sizes_of(t->model);
}

static int64_t widest(const lf_moco_train *t)
{
    int64_t most = 0;
    for (int l = 0; l < LF_MOCO_LINEARS; l++) {
        const int64_t in = lf_moco_in(sizes(t), l), out = lf_moco_out(sizes(t), l);
        most = in > most ? in : most;
        most = out > most ? out : most;
    }
    return most;
}

static void drop(lf_moco_train *t)
{
    void *const all[] = {t->sample, t->features, t->key, t->rows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    lf_classes_sight_destroy(t->sight);
    t->sight = NULL;
    t->sample = NULL;
    t->features = t->key = t->rows = NULL;
}

static int make_room(lf_moco_train *t, lf_err *err)
{
    const size_t pictures = (size_t)t->r.pictures, C = (size_t)sizes(t)->width;
    drop(t);
    t->sight = lf_classes_sight_create(lf_moco_reads(t->model), &t->r, err);
    t->sample = lf_calloc(pictures, sizeof *t->sample, err);
    t->features = lf_calloc(pictures * C, sizeof *t->features, err);
    t->key = lf_calloc(pictures * C, sizeof *t->key, err);
    t->rows = lf_calloc(pictures * (size_t)widest(t), sizeof *t->rows, err);
    return t->sight && t->sample && t->features && t->key && t->rows ? 0 : LF_ENOMEM;
}

/* Without the rows of a step of all ranks, whose number is not known here. */
static size_t host_bytes(void *user)
{
    const lf_moco_train *t = user;
    const size_t pictures = (size_t)t->r.pictures;
    return lf_classes_sight_bytes(lf_moco_reads(t->model), &t->r) + pictures * sizeof *t->sample +
           pictures * (size_t)(2 * sizes(t)->width + widest(t)) * sizeof(float);
}

static void forget_step(lf_moco_train *t)
{
    for (int k = 0; k < 2; k++) {
        free(t->h[k]);
        free(t->g[k]);
        t->h[k] = t->g[k] = NULL;
    }
    free(t->loss);
    free(t->right);
    t->loss = NULL;
    t->right = NULL;
    t->ready = false;
}

/* ---- the average ---- */

double lf_moco_momentum(double momentum, int64_t done, int64_t total)
{
    const double pi = 3.14159265358979323846;
    return 1 - (1 - momentum) * (1 + cos(pi * (double)done / (double)total)) / 2;
}

static int begin(void *user, int64_t done, int64_t total, lf_err *err)
{
    lf_moco_train *t = user;
    forget_step(t);
    return lf_moco_move(t->ps, done ? lf_moco_momentum(t->o.momentum, done, total) : 0, err);
}

/* ---- a micro-batch ---- */

static int describe(lf_moco_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    for (int32_t i = 0; i < b->media.n_pictures; i++) {
        const struct lf_media_picture *p = &b->media.picture[i];
        const int64_t sample = b->sample_ids[p->first_row / b->T];
        if (p->tiles != 1 || (i && t->sample[i - 1] == sample))
            return lf_fail(err, LF_EINVAL,
                           "sample %lld: objective = moco takes documents with one picture, of "
                           "one tile",
                           (long long)sample);
        t->sample[i] = sample;
    }
    return 0;
}

/* Rows of the micro-batch out of those of the step, [n, cols] of each view, times `scale`; zeros
 * behind the last. from NULL: all are zeros. */
static int write_rows(lf_moco_train *t, const struct lf_train_view *v, const char *name,
                      double *const from[2], int64_t cols, double scale, lf_err *err)
{
    const size_t bytes = (size_t)(t->r.pictures * cols) * sizeof *t->rows;
    memset(t->rows, 0, bytes);
    for (int32_t i = 0; i < v->batch->media.n_tiles && from; i++) {
        const double *row =
            from[view_of(t->sample[i])] + (picture_of(t->sample[i]) - picture_of(t->first)) * cols;
        for (int64_t c = 0; c < cols; c++)
            t->rows[i * cols + c] = (float)(scale * row[c]);
    }
    return lf_exec_write(v->ex, v->chain, v->slot, name, t->rows, bytes, err);
}

/* What the linear layers read, once it is known. */
static int write_reads(lf_moco_train *t, const struct lf_train_view *v, lf_err *err)
{
    const float one = 1;
    int rc = lf_exec_write(v->ex, v->chain, v->slot, "moco.one", &one, sizeof one, err);
    for (int l = 1; l < LF_MOCO_LINEARS && rc == 0; l++) {
        char name[32];
        double *const x[2] = {t->ready ? lf_moco_heads_rows(t->heads, 0)->x[l] : NULL,
                              t->ready ? lf_moco_heads_rows(t->heads, 1)->x[l] : NULL};
        snprintf(name, sizeof name, "moco.x.%d", l);
        rc = write_rows(t, v, name, t->ready ? x : NULL, lf_moco_in(sizes(t), l), 1, err);
    }
    return rc;
}

static int inputs(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_moco_train *t = user;
    const struct lf_sight_media in = {.media = &v->batch->media,
                                      .processor = lf_loader_processor(v->data)};
    int rc = t->sight ? 0 : make_room(t, err);
    if (rc == 0)
        rc = lf_classes_sight_fill_media(t->sight, &in, err);
    if (rc == 0)
        rc = describe(t, v, err);
    if (rc == 0)
        rc = lf_classes_sight_write(t->sight, v->ex, v->chain, v->slot, err);
    if (rc == 0 && v->train)
        rc = write_reads(t, v, err);
    return rc != 0 ? rc : lf_classes_sight_write_pixels(t->sight, v->ex, v->chain, v->slot, err);
}

/* ---- rows of all pictures ---- */

static int survey(void *user, const struct lf_train_view *v, double *sums, lf_err *err)
{
    lf_moco_train *t = user;
    struct seen *s = &t->seen;
    const size_t C = (size_t)sizes(t)->width,
                 bytes = (size_t)t->r.pictures * C * sizeof *t->features;
    (void)sums;
    int rc = lf_exec_read(v->ex, v->chain, v->slot, "features", t->features, bytes, err);
    if (rc == 0)
        rc = lf_exec_read(v->ex, v->chain, v->slot, "keys", t->key, bytes, err);
    for (int32_t i = 0; i < v->batch->media.n_tiles && rc == 0; i++) {
        rc = lf_grow(&s->sample, &s->cap_sample, s->n, sizeof *s->sample, err);
        if (rc == 0)
            rc = lf_grow(&s->x, &s->cap_x, s->n, 2 * C * sizeof *s->x, err);
        for (size_t c = 0; c < C && rc == 0; c++) {
            s->x[2 * s->n * C + c] = (double)t->features[(size_t)i * C + c];
            s->x[(2 * s->n + 1) * C + c] = (double)t->key[(size_t)i * C + c];
        }
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

static int room_for_step(lf_moco_train *t, lf_err *err)
{
    const size_t rows = (size_t)(t->n * sizes(t)->width);
    bool all = true;
    forget_step(t);
    for (int k = 0; k < 2; k++) {
        t->h[k] = lf_calloc(rows, sizeof(double), err);
        t->g[k] = lf_calloc(rows, sizeof(double), err);
        all = all && t->h[k] && t->g[k];
    }
    t->loss = lf_calloc(2 * (size_t)t->n, sizeof *t->loss, err);
    t->right = lf_calloc(2 * (size_t)t->n, sizeof *t->right, err);
    if (t->heads_n != t->n) {
        lf_moco_heads_destroy(t->heads);
        t->heads = lf_moco_heads_create(sizes(t), t->n, t->o.threads, err);
        t->heads_n = t->heads ? t->n : 0;
    }
    return all && t->loss && t->right && t->heads ? 0 : LF_ENOMEM;
}

/* The rows of every rank: in a validation each picture is both of its views. */
static int collect(lf_moco_train *t, lf_trainer *trainer, bool valid, int64_t samples, lf_err *err)
{
    const size_t C = (size_t)sizes(t)->width;
    double *all = lf_calloc((size_t)samples * 2 * C + 1, sizeof *all, err);
    int rc = lf_train_agree(trainer, all ? room_for_step(t, err) : LF_ENOMEM, err);
    for (size_t i = 0; rc == 0 && i < t->seen.n; i++)
        memcpy(all + (size_t)(t->seen.sample[i] - t->first) * 2 * C, t->seen.x + i * 2 * C,
               2 * C * sizeof *all);
    if (rc == 0)
        rc = lf_train_add_up(trainer, all, (size_t)samples * 2 * C, err);
    for (int64_t i = 0; rc == 0 && i < samples; i++)
        for (int k = 0; k < 2; k++) {
            const double *row = all + (size_t)i * 2 * C;
            const int64_t sample = t->first + i,
                          at = valid ? i : picture_of(sample) - picture_of(t->first);
            if (!valid && k != view_of(sample))
                continue;
            memcpy(t->h[k] + (size_t)at * C, row, C * sizeof *row);
            memcpy(t->g[k] + (size_t)at * C, row + C, C * sizeof *row);
        }
    free(all);
    return rc;
}

/* Weights of the heads in host memory; copies of them are freed by the caller. */
struct held {
    void *copy[4 * LF_MOCO_LINEARS];
    int n;
};

static int hold(lf_moco_train *t, struct held *c, const char *name, const float **out, lf_err *err)
{
    const void *data = NULL;
    const int i = lf_pstore_find(t->ps, name);
    const int rc = lf_pstore_host(t->ps, i, LF_P_MASTER, &data, &c->copy[c->n++], err);
    *out = data;
    return rc;
}

static int hold_weights(lf_moco_train *t, struct held *c, struct lf_moco_weights *w, bool average,
                        lf_err *err)
{
    static const char *const norms[] = {NULL, "weight", "bias"};
    const int end = average ? LF_MOCO_PROJECTOR : LF_MOCO_LINEARS;
    int rc = 0;
    for (int l = 0; l < end; l++)
        for (int k = 0; k < 3 && rc == 0; k++) {
            const float **const to[] = {&w->linear[l], &w->gain[l], &w->bias[l]};
            char name[48], whole[64];
            if (k && !lf_moco_bends(l))
                continue;
            snprintf(whole, sizeof whole, "%s%s", average ? LF_MOCO_AVERAGE : "",
                     lf_moco_name(name, l, norms[k]));
            rc = hold(t, c, whole, to[k], err);
        }
    return rc;
}

static int run_heads(lf_moco_train *t, bool valid, lf_err *err)
{
    struct held c = {.n = 0};
    struct lf_moco_step s = {.h = {t->h[0], t->h[1]},
                             .g = {t->g[0], t->g[1]},
                             .temperature = t->o.temperature,
                             .loss = t->loss,
                             .right = t->right,
                             .slopes = !valid};
    int rc = hold_weights(t, &c, &s.w, false, err);
    if (rc == 0)
        rc = hold_weights(t, &c, &s.average, true, err);
    if (rc == 0)
        lf_moco_heads_run(t->heads, &s);
    for (int i = 0; i < c.n; i++)
        free(c.copy[i]);
    t->ready = rc == 0 && !valid;
    return rc;
}

/* Every rank computes the same of the same rows. */
static int gathered(void *user, lf_trainer *trainer, bool valid, int64_t first, int64_t n,
                    lf_err *err)
{
    lf_moco_train *t = user;
    t->first = first;
    t->n = valid ? n : n / 2;
    int rc = t->n < 2 ? lf_fail(err, LF_EINVAL,
                                "objective = moco tells pictures apart, of which a step (batch / "
                                "2) and a validation have two or more")
                      : 0;
    rc = lf_train_agree(trainer, rc, err);
    if (rc == 0)
        rc = collect(t, trainer, valid, n, err);
    t->seen.n = 0;
    return rc != 0 ? rc : run_heads(t, valid, err);
}

/* ---- losses and slopes of a micro-batch ---- */

/* The gradient of the micro-batch by the weight (by NULL: the bias) of the norm of layer l. */
static int write_norm(lf_moco_train *t, const struct lf_train_view *v, int l, bool weight,
                      double scale, lf_err *err)
{
    const int64_t H = lf_moco_out(sizes(t), l);
    char name[32];
    double *sum = lf_calloc((size_t)H, sizeof *sum, err);
    if (!sum)
        return LF_ENOMEM;
    for (int32_t i = 0; i < v->batch->media.n_tiles; i++) {
        const struct lf_moco_rows *r = lf_moco_heads_rows(t->heads, view_of(t->sample[i]));
        const int64_t at = (picture_of(t->sample[i]) - picture_of(t->first)) * H;
        for (int64_t c = 0; c < H; c++)
            sum[c] += r->dy[l][at + c] * (weight ? r->u[l][at + c] : 1);
    }
    for (int64_t c = 0; c < H; c++)
        t->rows[c] = (float)(scale * sum[c]);
    free(sum);
    snprintf(name, sizeof name, "moco.dnorm.%d.%s", l, weight ? "weight" : "bias");
    return lf_exec_write(v->ex, v->chain, v->slot, name, t->rows, (size_t)H * sizeof *t->rows, err);
}

static int write_slopes(lf_moco_train *t, const struct lf_train_view *v, lf_err *err)
{
    const double scale = 2 * v->inv_units; /* units are pictures of both views */
    int rc = 0;
    for (int l = 0; l < LF_MOCO_LINEARS && rc == 0; l++) {
        char name[32];
        double *const dz[2] = {lf_moco_heads_rows(t->heads, 0)->dz[l],
                               lf_moco_heads_rows(t->heads, 1)->dz[l]};
        snprintf(name, sizeof name, "moco.dz.%d", l);
        rc = write_rows(t, v, name, dz, lf_moco_out(sizes(t), l), scale, err);
        for (int k = 0; k < 2 && rc == 0 && lf_moco_bends(l); k++)
            rc = write_norm(t, v, l, k == 0, scale, err);
    }
    return rc;
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    lf_moco_train *t = user;
    (void)tops;
    for (int32_t i = 0; i < v->batch->media.n_tiles; i++) {
        const int64_t sample = t->sample[i],
                      at = v->train
                               ? view_of(sample) * t->n + picture_of(sample) - picture_of(t->first)
                               : sample - t->first;
        sums[PICTURES] += 1;
        sums[LOSS] += t->loss[at];
        sums[RIGHT] += t->right[at];
    }
    return v->train ? write_slopes(t, v, err) : 0;
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    (void)user;
    (void)tops;
    out[0] = 2 * sums[LOSS] / sums[PICTURES];
    out[1] = sums[RIGHT] / sums[PICTURES];
}

/* ---- the object ---- */

static const char *const metrics[] = {"loss", "accuracy"};
static const char *const valid_metrics[] = {"valid_loss", "valid_accuracy"};

static json_t *identity_of(const struct lf_moco_train_opts *o)
{
    const struct lf_augment *a = &o->augment;
    return json_pack("{s:s, s:f, s:f, s:I, s:I, s:f, s:b, s:f, s:f, s:f, s:f, s:f}", "loss", "moco",
                     "temperature", o->temperature, "momentum", o->momentum, "hidden",
                     (json_int_t)o->hidden, "dim", (json_int_t)o->dim, "crop_scale", a->crop_scale,
                     "flip", a->flip, "jitter", a->jitter, "grey", a->grey, "blur", a->blur[0],
                     "blur_second", a->blur[1], "solarize", a->solarize[1]);
}

lf_moco_train *lf_moco_train_create(const struct lf_moco_train_opts *o, lf_err *err)
{
    lf_moco_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->o.augment.seed = o->seed;
    t->objective = (lf_objective){.user = t,
                                  .rows = LF_ROWS_PLAIN,
                                  .units = "pictures",
                                  .pictures = true,
                                  .augment = &t->o.augment,
                                  .repeats = 2,
                                  .least_valid = 2,
                                  .averages = true,
                                  .declare = declare,
                                  .graph = graph,
                                  .begin = begin,
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
                                  .n_metrics = 2,
                                  .n_shown = 2,
                                  .identity = identity_of(o)};
    if (!t->objective.identity) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_moco_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_moco_train_objective(const lf_moco_train *t)
{
    return &t->objective;
}

void lf_moco_train_destroy(lf_moco_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    forget_step(t);
    drop(t);
    lf_moco_heads_destroy(t->heads);
    lf_moco_destroy(t->model);
    free(t->seen.sample);
    free(t->seen.x);
    free(t);
}
