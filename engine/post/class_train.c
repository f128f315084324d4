/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the objective: see class_train.h. */
#include "engine/post/class_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/classes.h"
#include "engine/post/class_mix.h"
#include "engine/post/label_train.h"
#include "engine/post/picture_state.h"

/* ---- numbers ---- */

double lf_class_loss(const float *z, const double *q, int64_t n, double scale, float *d)
{
    double most = -INFINITY, sum = 0, loss = 0, all = 0;
    for (int64_t k = 0; k < n; k++)
        most = fmax(most, (double)z[k]);
    for (int64_t k = 0; k < n; k++) {
        sum += exp((double)z[k] - most);
        all += q[k];
    }
    for (int64_t k = 0; k < n; k++) {
        loss -= q[k] * ((double)z[k] - most - log(sum));
        if (d)
            d[k] = (float)(scale * (all * exp((double)z[k] - most) / sum - q[k]));
    }
    return loss;
}

int64_t lf_class_rank(const float *z, int64_t n, int64_t k)
{
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++)
        before += i < k ? !(z[i] < z[k]) : i > k && !(z[i] <= z[k]); /* NaN is before all */
    return before;
}

/* ---- the object ---- */

enum { PICTURES, LOSS, RIGHT, AMONG_FIVE, N_SUMS };
enum { FIVE = 5 };

struct lf_class_train {
    struct lf_class_train_opts o;
    lf_objective objective;
    const lf_decoder *d; /* of the graph; borrowed */
    lf_pstore *ps;       /* its tensors; borrowed */
    struct lf_classes_rows r;
    int64_t k, n, layers; /* numbers of a patch; classes */
    int heads;
    lf_classes_sight *sight;
    struct lf_sight_tile *tile;
    int64_t *sample; /* [pictures] and number of the picture in it */
    int32_t *in_sample;
    float *rows;      /* [patches, k] in the order of the batch */
    float *fed;       /* [patches, k] in that of the encoder */
    double *share[2]; /* [pictures, n] of classes, and by the teacher */
    float *z[2], *dz[2];
    float *keep; /* [layers, 2, pictures] */
};

static struct lf_label_form form_of(const lf_class_train *t, const char *column)
{
    return (struct lf_label_form){.kind = LF_LABEL_ONE, .labels = t->n, .column = column};
}

static void drop(lf_class_train *t)
{
    void *const all[] = {t->tile, t->sample, t->in_sample, t->rows, t->fed, t->keep};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    for (int k = 0; k < 2; k++) {
        free(t->share[k]);
        free(t->z[k]);
        free(t->dz[k]);
        t->share[k] = NULL;
        t->z[k] = t->dz[k] = NULL;
    }
    lf_classes_sight_destroy(t->sight);
    t->sight = NULL;
    t->tile = NULL;
    t->sample = NULL;
    t->in_sample = NULL;
    t->rows = t->fed = t->keep = NULL;
}

/* Room for the micro-batches of these bounds. */
static int make_room(lf_class_train *t, lf_err *err)
{
    const size_t patches = (size_t)t->r.media.vision.patches, pictures = (size_t)t->r.pictures,
                 k = (size_t)t->k, n = (size_t)t->n;
    drop(t);
    t->sight = lf_classes_sight_create(lf_decoder_config(t->d), &t->r, err);
    t->tile = lf_calloc(pictures, sizeof *t->tile, err);
    t->sample = lf_calloc(pictures, sizeof *t->sample, err);
    t->in_sample = lf_calloc(pictures, sizeof *t->in_sample, err);
    t->rows = lf_calloc(patches * k, sizeof *t->rows, err);
    t->fed = lf_calloc(patches * k, sizeof *t->fed, err);
    t->keep = lf_calloc(2 * (size_t)t->layers * pictures, sizeof *t->keep, err);
    bool all = t->sight && t->tile && t->sample && t->in_sample && t->rows && t->fed && t->keep;
    for (int i = 0; i < t->heads; i++) {
        t->share[i] = lf_calloc(pictures * n, sizeof *t->share[i], err);
        t->z[i] = lf_calloc(pictures * n, sizeof *t->z[i], err);
        t->dz[i] = lf_calloc(pictures * n, sizeof *t->dz[i], err);
        all = all && t->share[i] && t->z[i] && t->dz[i];
    }
    return all ? 0 : LF_ENOMEM;
}

static size_t host_bytes(void *user)
{
    const lf_class_train *t = user;
    const size_t patches = (size_t)t->r.media.vision.patches, pictures = (size_t)t->r.pictures;
    return lf_classes_sight_bytes(lf_decoder_config(t->d), &t->r) +
           pictures * (sizeof *t->tile + sizeof *t->sample + sizeof *t->in_sample) +
           2 * patches * (size_t)t->k * sizeof *t->rows +
           (size_t)t->heads * pictures * (size_t)t->n * (sizeof(double) + 2 * sizeof(float)) +
           2 * (size_t)t->layers * pictures * sizeof *t->keep;
}

/* Constants are measured of an encoder that stays as it is. */
static int check_probe(const lf_pstore *ps, lf_err *err)
{
    for (int i = 0; i < lf_pstore_count(ps); i++)
        if (strncmp(lf_pstore_desc(ps, i)->name, "vision.", 7) == 0 &&
            !lf_pstore_desc(ps, i)->frozen)
            return lf_fail(err, LF_EINVAL,
                           "[model] classes.norm normalises by constants of an encoder that is not "
                           "trained: say freeze = vision.*, or leave it out (%s is trained)",
                           lf_pstore_desc(ps, i)->name);
    return 0;
}

static lf_graph *graph(void *user, const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    lf_class_train *t = user;
    const lf_model_config *c = lf_decoder_config(d);
    if (!r->media) {
        lf_fail(err, LF_EINVAL,
                "objective = classes trains on pictures: give max_patches, the patches that the "
                "pictures of a micro-batch have at most");
        return NULL;
    }
    if (t->d != d) {
        t->d = d;
        t->k = c->vision.patch_dim;
        t->n = c->classes.labels;
        t->layers = c->vision.layers;
        t->heads = c->classes.read == LF_CLASS_BOTH ? 2 : 1;
        t->r = (struct lf_classes_rows){*r->media, r->media->vision.images - 1};
        t->r.media.vision.drop_path = t->o.drop_path > 0;
    }
    t->ps = ps;
    if (train && c->classes.norm && check_probe(ps, err) != 0)
        return NULL;
    if (train && (t->heads > 1) != (t->o.teacher != NULL)) {
        lf_fail(err, LF_EINVAL,
                t->heads > 1
                    ? "[model] classes.read = both: its second head learns from a teacher: "
                      "say the column of the data that has its classes with teacher_column"
                    : "teacher_column is for [model] classes.read = both, whose second "
                      "head learns from it");
        return NULL;
    }
    struct lf_classes_rows of = t->r;
    of.media.vision.drop_path = train && of.media.vision.drop_path;
    return lf_classes_graph(d, ps, name, &of, train, err);
}

/* ---- constants of the norm ---- */

/* Sums over pictures: their number, then features, then their squares. */
struct measure {
    lf_class_train *t;
    double *sums;
    float *features;
    int64_t width;
};

static int measure(void *user, const struct lf_train_view *v, lf_err *err)
{
    struct measure *m = user;
    const int64_t C = m->width;
    const size_t bytes = (size_t)(m->t->r.pictures * C) * sizeof *m->features;
    const int rc = lf_exec_read(v->ex, v->chain, v->slot, "features", m->features, bytes, err);
    for (int64_t i = 0; i < v->batch->media.n_tiles && rc == 0; i++) {
        m->sums[0] += 1;
        for (int64_t c = 0; c < C; c++) {
            const double x = (double)m->features[i * C + c];
            m->sums[1 + c] += x;
            m->sums[1 + C + c] += x * x;
        }
    }
    return rc;
}

int lf_class_write_norm(lf_pstore *ps, const double *sums, int64_t width, lf_err *err)
{
    float *const shift = lf_calloc(2 * (size_t)width, sizeof *shift, err);
    if (!shift)
        return LF_ENOMEM;
    float *const gain = shift + width;
    for (int64_t c = 0; c < width; c++) {
        const double mean = sums[1 + c] / sums[0],
                     variance = sums[1 + width + c] / sums[0] - mean * mean;
        if (!isfinite(mean) || !isfinite(variance)) {
            free(shift);
            return lf_fail(err, LF_EINVAL,
                           "classes.norm: of %g pictures the mean of number %lld that the encoder "
                           "gives is %g, and its variance %g; look at its weights",
                           sums[0], (long long)c, mean, variance);
        }
        shift[c] = (float)-mean;
        gain[c] = (float)(1 / sqrt(fmax(0, variance) + 1e-6));
    }
    int rc = lf_pstore_write(ps, lf_pstore_find(ps, LF_CLASSES_SHIFT), LF_F32, shift, err);
    if (rc == 0)
        rc = lf_pstore_write(ps, lf_pstore_find(ps, LF_CLASSES_GAIN), LF_F32, gain, err);
    free(shift);
    return rc;
}

/* Collective. */
static int measure_features(lf_class_train *t, lf_trainer *tr, lf_err *err)
{
    struct measure m = {.t = t, .width = lf_decoder_config(t->d)->vision.hidden};
    const size_t C = (size_t)m.width, n = 1 + 2 * C;
    m.sums = lf_calloc(n, sizeof *m.sums, err);
    m.features = lf_calloc((size_t)t->r.pictures * C, sizeof *m.features, err);
    int rc = lf_train_agree(tr, m.sums && m.features ? 0 : LF_ENOMEM, err);
    for (size_t i = 0; i < lf_train_n_sources(tr, false) && rc == 0; i++) {
        const struct lf_train_over over = {.source = i, .user = &m, .visit = measure};
        rc = lf_train_over(tr, &over, err);
    }
    if (rc == 0)
        rc = lf_train_add_up(tr, m.sums, n, err);
    if (rc == 0)
        rc = lf_class_write_norm(t->ps, m.sums, m.width, err);
    free(m.sums);
    free(m.features);
    return rc;
}

/* What is wrong with a label is told before the first step. */
static int check_labels(const lf_class_train *t, lf_trainer *tr, lf_err *err)
{
    const struct lf_label_form label = form_of(t, t->o.column), said = form_of(t, t->o.teacher);
    int rc = lf_label_check(&label, tr, false, err);
    if (rc == 0)
        rc = lf_label_check(&label, tr, true, err);
    return rc == 0 && t->o.teacher ? lf_label_check(&said, tr, false, err) : rc;
}

/* Weights that were kept as the best ones took the state with them. */
static int finish(void *user, lf_trainer *tr, lf_err *err)
{
    const lf_class_train *t = user;
    return lf_picture_state(t->objective.extra, tr, t->o.column, t->n, err);
}

/* What the first rank alone looks at. */
static int prepare_first(const lf_class_train *t, lf_trainer *tr, bool fresh, lf_err *err)
{
    const int rc = lf_picture_state(t->objective.extra, tr, t->o.column, t->n, err);
    return rc == 0 && fresh ? check_labels(t, tr, err) : rc;
}

static int prepare(void *user, lf_trainer *tr, bool fresh, lf_err *err)
{
    lf_class_train *t = user;
    int rc = lf_train_first_rank(tr) ? prepare_first(t, tr, fresh, err) : 0;
    if (!fresh || !lf_decoder_config(t->d)->classes.norm)
        return rc;
    rc = lf_train_agree(tr, rc, err);
    return rc != 0 ? rc : measure_features(t, tr, err);
}

/* ---- a micro-batch ---- */

static int check(const lf_class_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_media_batch *m = &v->batch->media;
    const struct lf_sight_media in = {.media = m, .processor = lf_loader_processor(v->data)};
    if (m->n_tiles > t->r.pictures || m->n_patches > t->r.media.vision.patches)
        LF_BUG("%lld patches in %d tiles", (long long)m->n_patches, m->n_tiles);
    return lf_sight_check_patches(&in, t->k, err);
}

/* The class of a document by a column, as shares of classes. */
static int read_share(const lf_class_train *t, const struct lf_train_view *v, int64_t row,
                      const char *column, double *out, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    const struct lf_label_form f = form_of(t, column);
    const double e = v->train ? t->o.smoothing : 0;
    double y = 0;
    const int rc = lf_label_read(&y, &f, lf_loader_set(v->data, b->seg_source[row]),
                                 (uint64_t)b->seg_doc[row], err);
    for (int64_t k = 0; k < t->n && rc == 0; k++)
        out[k] = (1 - e) * ((double)k >= y && (double)k <= y) + e / (double)t->n;
    return rc;
}

/* Sizes, samples and labels of all tiles. A row is a document, and a segment. */
static int describe(lf_class_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_loader_batch *b = v->batch;
    const bool taught = v->train && t->heads > 1;
    int rc = 0;
    int32_t in_sample = 0;
    int64_t before = -1;
    for (int32_t i = 0; i < b->media.n_pictures && rc == 0; i++) {
        const struct lf_media_picture *p = &b->media.picture[i];
        const int64_t row = p->first_row / b->T;
        in_sample = row == before ? in_sample : 0;
        before = row;
        for (int32_t k = p->first_tile; k < p->first_tile + p->tiles && rc == 0; k++) {
            const struct lf_media_tile *m = &b->media.tile[k];
            t->tile[k] = (struct lf_sight_tile){m->grid_h, m->grid_w};
            t->sample[k] = b->sample_ids[row];
            t->in_sample[k] = in_sample++;
            rc = read_share(t, v, row, t->o.column, t->share[0] + k * t->n, err);
            if (rc == 0 && taught)
                rc = read_share(t, v, row, t->o.teacher, t->share[1] + k * t->n, err);
        }
    }
    return rc;
}

static int64_t patches_of(const struct lf_sight_tile *t)
{
    return (int64_t)t->h * t->w;
}

static struct lf_class_view view_of(const lf_class_train *t, const lf_processor *p, int32_t i,
                                    int64_t first)
{
    return (struct lf_class_view){t->rows + first * t->k, t->tile[i].h, t->tile[i].w, &p->patches};
}

static void erase(lf_class_train *t, const lf_processor *p, int32_t n)
{
    int64_t first = 0;
    for (int32_t i = 0; i < n && t->o.erase > 0; first += patches_of(&t->tile[i++])) {
        lf_draws d = lf_draws_of(t->o.seed, LF_SITE_ERASE, t->sample[i], (uint32_t)t->in_sample[i]);
        const struct lf_class_view view = view_of(t, p, i, first);
        if (lf_draw_u01(&d) < t->o.erase)
            lf_class_erase(&view, &d);
    }
}

/* Samples 2 i and 2 i + 1 stand behind each other, in one micro-batch. */
static int mix(lf_class_train *t, const lf_processor *p, int32_t n, lf_err *err)
{
    int64_t first = 0;
    if (!(t->o.mixup > 0) && !(t->o.cutmix > 0))
        return 0;
    for (int32_t i = 0; i < n; i += 2) {
        const struct lf_sight_tile *a = &t->tile[i], *b = &t->tile[i + 1];
        if (i + 1 == n || t->sample[i] % 2 || t->sample[i + 1] != t->sample[i] + 1 ||
            a->h != b->h || a->w != b->w)
            return lf_fail(err, LF_EINVAL,
                           "sample %lld: mixup and cutmix mix pairs of pictures of one size: every "
                           "document has one picture, of one tile, and the processor makes all of "
                           "one size",
                           (long long)t->sample[i]);
        lf_draws d = lf_draws_of(t->o.seed, LF_SITE_BLEND, t->sample[i] / 2, 0);
        const struct lf_class_view x = view_of(t, p, i, first),
                                   y = view_of(t, p, i + 1, first + patches_of(a));
        const struct lf_class_mix m = lf_class_mix_of(
            &d, t->o.mixup, t->o.cutmix, (lf_size){a->w * p->patches.side, a->h * p->patches.side});
        lf_class_mix_apply(&m, &x, &y);
        for (int k = 0; k < t->heads; k++)
            lf_class_mix_labels(&m, t->share[k] + i * t->n, t->share[k] + (i + 1) * t->n, t->n);
        first += 2 * patches_of(a);
    }
    return 0;
}

/* Pixels of the batch, changed, in the order of the encoder. */
static int fill_pixels(lf_class_train *t, const struct lf_train_view *v, lf_err *err)
{
    const lf_media_batch *m = &v->batch->media;
    const lf_processor *p = lf_loader_processor(v->data);
    const int32_t *order = lf_classes_sight_order(t->sight);
    const int64_t n = m->n_patches, room = t->r.media.vision.patches;
#pragma omp parallel for schedule(static) num_threads(t->o.threads)
    for (int64_t i = 0; i < n; i++)
        lf_norm_rows(t->rows + i * t->k, m->patches + i * m->row_bytes, 1, &p->patches, p->table);
    if (v->train && n) {
        erase(t, p, m->n_tiles);
        const int rc = mix(t, p, m->n_tiles, err);
        if (rc != 0)
            return rc;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(t->fed + i * t->k, t->rows + order[i] * t->k, (size_t)t->k * sizeof *t->fed);
    memset(t->fed + n * t->k, 0, (size_t)((room - n) * t->k) * sizeof *t->fed);
    return 0;
}

/* What each picture's branches are multiplied with. */
static int write_paths(lf_class_train *t, const struct lf_train_view *v, lf_err *err)
{
    const int32_t n = v->batch->media.n_tiles;
    if (!v->train || !(t->o.drop_path > 0))
        return 0;
    for (int32_t i = 0; i < n; i++) {
        lf_draws d = lf_draws_of(t->o.seed, LF_SITE_PATH, t->sample[i], (uint32_t)t->in_sample[i]);
        for (int64_t k = 0; k < 2 * t->layers; k++) {
            const double share = t->layers > 1 ? (double)(k / 2) / (double)(t->layers - 1) : 1,
                         p = t->o.drop_path * share;
            t->keep[k * t->r.pictures + i] = lf_draw_u01(&d) < p ? 0 : (float)(1 / (1 - p));
        }
    }
    return lf_classes_sight_write_paths(t->sight, v->ex, v->chain, v->slot, t->keep, err);
}

static int inputs(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_class_train *t = user;
    const lf_processor *p = lf_loader_processor(v->data);
    int rc = t->sight ? 0 : make_room(t, err);
    if (rc == 0)
        rc = check(t, v, err);
    if (rc == 0)
        rc = describe(t, v, err);
    if (rc != 0)
        return rc;
    const struct lf_sight_batch b = {.n_tiles = v->batch->media.n_tiles,
                                     .tile = t->tile,
                                     .merge = p ? p->patches.merge : 1,
                                     .as_given = true};
    rc = lf_classes_sight_fill(t->sight, &b, err);
    if (rc == 0)
        rc = fill_pixels(t, v, err);
    if (rc == 0)
        rc = lf_classes_sight_write(t->sight, v->ex, v->chain, v->slot, err);
    if (rc == 0)
        rc = write_paths(t, v, err);
    return rc != 0
               ? rc
               : lf_exec_write(v->ex, v->chain, v->slot, "vision.pixels", t->fed,
                               (size_t)(t->r.media.vision.patches * t->k) * sizeof *t->fed, err);
}

static int64_t best_share(const double *q, int64_t n)
{
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        best = q[k] > q[best] ? k : best;
    return best;
}

/* Adds picture i. Its gradients are of its own heads. */
static void add_picture(lf_class_train *t, const struct lf_train_view *v, int64_t i, double *sums)
{
    const int64_t at = i * t->n, is = best_share(t->share[0] + at, t->n);
    const double scale = v->inv_units / t->heads;
    double loss = 0;
    for (int k = 0; k < t->heads && v->train; k++)
        loss +=
            lf_class_loss(t->z[k] + at, t->share[k] + at, t->n, scale, t->dz[k] + at) / t->heads;
    for (int64_t k = 0; k < t->n && t->heads > 1; k++) /* what the model says of it */
        t->z[0][at + k] = (t->z[0][at + k] + t->z[1][at + k]) / 2;
    const int64_t rank = lf_class_rank(t->z[0] + at, t->n, is);
    if (!v->train)
        loss = lf_class_loss(t->z[0] + at, t->share[0] + at, t->n, 0, NULL);
    sums[PICTURES] += 1;
    sums[LOSS] += loss;
    sums[RIGHT] += rank == 0;
    sums[AMONG_FIVE] += rank < FIVE;
}

static int after_forward(void *user, const struct lf_train_view *v, double *sums, double *tops,
                         lf_err *err)
{
    static const char *const out[] = {"score", "distilled"}, *const back[] = {"dscore",
                                                                              "ddistilled"};
    lf_class_train *t = user;
    const size_t bytes = (size_t)(t->r.pictures * t->n) * sizeof(float);
    int rc = 0;
    (void)tops;
    for (int k = 0; k < t->heads && rc == 0; k++) {
        rc = lf_exec_read(v->ex, v->chain, v->slot, out[k], t->z[k], bytes, err);
        memset(t->dz[k], 0, bytes);
    }
    for (int64_t i = 0; i < v->batch->media.n_tiles && rc == 0; i++)
        add_picture(t, v, i, sums);
    for (int k = 0; k < t->heads && rc == 0 && v->train; k++)
        rc = lf_exec_write(v->ex, v->chain, v->slot, back[k], t->dz[k], bytes, err);
    return rc;
}

static void means(void *user, const double *sums, const double *tops, double *out)
{
    const lf_class_train *t = user;
    (void)tops;
    out[0] = sums[LOSS] / sums[PICTURES];
    out[1] = sums[RIGHT] / sums[PICTURES];
    out[2] = t->n > FIVE ? sums[AMONG_FIVE] / sums[PICTURES] : (double)NAN;
}

static const char *const metrics[] = {"loss", "accuracy", "accuracy_5"};
static const char *const valid_metrics[] = {"valid_loss", "valid_accuracy", "valid_accuracy_5"};

static json_t *identity_of(const struct lf_class_train_opts *o)
{
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:i, s:i, s:i}", "loss",
                     "classes", "column", o->column, "teacher", o->teacher ? o->teacher : "",
                     "smoothing", o->smoothing, "mixup", o->mixup, "cutmix", o->cutmix, "erase",
                     o->erase, "drop_path", o->drop_path, "crop_scale", o->augment.crop_scale,
                     "flip", o->augment.flip, "rand_ops", o->augment.ops, "rand_magnitude",
                     o->augment.magnitude, "repeats", o->repeats);
}

lf_class_train *lf_class_train_create(const struct lf_class_train_opts *o, lf_err *err)
{
    lf_class_train *t = lf_calloc(1, sizeof *t, err);
    if (!t)
        return NULL;
    t->o = *o;
    t->o.augment.seed = o->seed;
    const bool changes = o->augment.crop_scale > 0 || o->augment.flip || o->augment.ops > 0;
    t->objective = (lf_objective){.user = t,
                                  .rows = LF_ROWS_PROMPTS,
                                  .units = "pictures",
                                  .pictures = true,
                                  .augment = changes ? &t->o.augment : NULL,
                                  .repeats = o->repeats,
                                  .graph = graph,
                                  .prepare = prepare,
                                  .inputs = inputs,
                                  .host_bytes = host_bytes,
                                  .after_forward = after_forward,
                                  .n_sums = N_SUMS,
                                  .means = means,
                                  .metrics = metrics,
                                  .valid_metrics = valid_metrics,
                                  .n_metrics = 3,
                                  .n_shown = 3,
                                  .identity = identity_of(o),
                                  .finish = finish,
                                  .extra = json_object()};
    if (!t->objective.identity || !t->objective.extra) {
        lf_fail(err, LF_ENOMEM, "out of memory");
        lf_class_train_destroy(t);
        return NULL;
    }
    return t;
}

const lf_objective *lf_class_train_objective(const lf_class_train *t)
{
    return &t->objective;
}

void lf_class_train_destroy(lf_class_train *t)
{
    if (!t)
        return;
    json_decref(t->objective.identity);
    json_decref(t->objective.extra);
    drop(t);
    free(t);
}
