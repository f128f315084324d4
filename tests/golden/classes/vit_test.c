/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that tell classes of pictures against transformers in f64 (make_classes.py): logits, the
 * loss of soft labels and, of DeiT, of a teacher's, and the gradient of every tensor, in f32 within
 * 1e-5. Each switch, flipped, and tensors, exchanged, must be noticed. Pictures one by one are told
 * as all together, and room that is not used changes nothing.
 */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/convert.h"
#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/classes.h"
#include "engine/model/weights.h"
#include "engine/post/class_train.h"
#include "engine/store/ckpt.h"
#include "tests/tap/tap.h"

enum { N = 3, LABELS = 5 };
/* Patches of the side of a picture, patches of it, numbers of a patch. */
static int SIDE, EACH, K;

static lf_err err = LF_ERR_INIT;
static hid_t file;

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory, or %s", err.text);
    return p;
}

static void must(int rc)
{
    if (rc != 0)
        tap_bail("%s", err.text);
}

static void *read_set(const char *name, hid_t type, size_t size)
{
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
        tap_bail("no %s in the file", name);
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), s = H5Dget_space(d);
    void *p = need(calloc((size_t)H5Sget_simple_extent_npoints(s) + 1, size));
    if (H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0)
        tap_bail("cannot read %s", name);
    H5Sclose(s);
    H5Dclose(d);
    return p;
}

/* ---- the model ---- */

struct model {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    lf_classes_sight *sight;
    struct lf_classes_rows r;
    int n, heads; /* pictures of a micro-batch */
    float z[2][N * LABELS + 64], dz[2][N * LABELS + 64];
};

/* Exchanges the numbers of two tensors of one shape. */
static void swap(lf_pstore *ps, const char *a, const char *b)
{
    const int i = lf_pstore_find(ps, a), j = lf_pstore_find(ps, b);
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    const size_t n = (size_t)(d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1));
    float *x = need(calloc(n, 4)), *y = need(calloc(n, 4));
    must(lf_pstore_read(ps, i, LF_P_MASTER, x, n * 4, &err));
    must(lf_pstore_read(ps, j, LF_P_MASTER, y, n * 4, &err));
    must(lf_pstore_write(ps, i, LF_F32, y, &err));
    must(lf_pstore_write(ps, j, LF_F32, x, &err));
    free(x);
    free(y);
}

/* As make_classes.py has them. */
static const struct lf_adamw_opts adam = {
    .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
enum { STEPS = 10 };

struct how {
    bool drop_path, optimizer;
    enum lf_dtype compute;
};

/* Those of the file, where no checkpoint has them. */
static void read_weights(lf_pstore *ps)
{
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        char name[128];
        snprintf(name, sizeof name, "w/%s", lf_pstore_desc(ps, i)->name);
        float *x = read_set(name, H5T_NATIVE_FLOAT, 4);
        must(lf_pstore_write(ps, i, LF_F32, x, &err));
        free(x);
    }
}

/* n pictures at once, with room for `more` besides. */
static struct model *open_model(const lf_model_config *c, int n, int more, const struct how *how)
{
    struct model *m = need(calloc(1, sizeof *m));
    const struct lf_plan_opts po = {.threads = 2, .mode = LF_INVARIANT, .compute = how->compute};
    m->n = n;
    m->heads = c->classes.read == LF_CLASS_BOTH ? 2 : 1;
    m->r = lf_classes_bounds(c, (int64_t)(n + more) * EACH, n + more);
    m->r.media.vision.drop_path = how->drop_path;
    m->d = need(lf_decoder_create(c, 2, &err));
    m->ps = need(lf_pstore_create(&err));
    must(lf_decoder_declare(m->d, m->ps, &err));
    m->plan = need(lf_plan_create(m->ps, &po, &err));
    return m;
}

static void add_chain(struct model *m, bool train)
{
    lf_graph *g =
        need(lf_classes_graph(m->d, m->ps, train ? "classes" : "measured", &m->r, train, &err));
    if (lf_plan_add(m->plan, g, &(struct lf_chain_opts){.train = train}, &err) < 0)
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
}

static void bind(struct model *m, const lf_model_config *c)
{
    const struct lf_step_record rec = {.seed = 5, .loss_scale = 1, .inv_tokens = 1};
    must(lf_plan_finish(m->plan, &err));
    m->back = need(lf_back_cpu_create(lf_target_host()->isa, 2, &err));
    m->ex = need(lf_exec_create(m->plan, m->back, &(struct lf_exec_opts){.poison = true}, &err));
    m->sight = need(lf_classes_sight_create(c, &m->r, &err));
    must(lf_exec_record_write(m->ex, &rec, &err));
}

/* ckpt NULL: with the weights of the file. */
static struct model *make_with(const lf_model_config *c, const char *ckpt, int n, int more,
                               const struct how *how)
{
    struct model *m = open_model(c, n, more, how);
    lf_ckpt *ck = NULL;
    add_chain(m, true);
    if (how->optimizer)
        must(lf_plan_optimizer(m->plan, &adam, &err));
    bind(m, c);
    if (ckpt) {
        must(lf_ckpt_open(&ck, ckpt, 1, &err));
        must(lf_weights_load(m->ps, ck, LF_WEIGHTS_PREFIX, false, &err));
    } else {
        read_weights(m->ps);
    }
    lf_ckpt_close(ck);
    return m;
}

static struct model *make(const lf_model_config *c, const char *ckpt, int n, int more)
{
    return make_with(c, ckpt, n, more, &(struct how){.compute = LF_F32});
}

static void drop(struct model *m)
{
    lf_classes_sight_destroy(m->sight);
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->d);
    free(m);
}

static void copy_tensors(lf_pstore *to, const lf_pstore *from)
{
    for (int i = 0; i < lf_pstore_count(from); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(from, i);
        const size_t n = (size_t)(d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1));
        float *x = need(calloc(n, 4));
        must(lf_pstore_read(from, i, LF_P_MASTER, x, n * 4, &err));
        must(lf_pstore_write(to, lf_pstore_find(to, d->name), LF_F32, x, &err));
        free(x);
    }
}

/* All pictures, an encoder that is not trained, and a second chain that is not either, with the
 * weights of another store. */
static struct model *make_probe(const lf_model_config *c, const lf_pstore *weights)
{
    struct model *m = open_model(c, N, 0, &(struct how){.compute = LF_F32});
    (void)lf_pstore_freeze(m->ps, "vision.", true);
    add_chain(m, true);
    add_chain(m, false);
    bind(m, c);
    copy_tensors(m->ps, weights);
    return m;
}

/* Pictures from `first` on, by a chain; keep: of stochastic depth, [layers, 2, pictures]. */
static void forward_in(struct model *m, int first, int chain, const float *keep)
{
    static const char *const out[] = {"score", "distilled"};
    const int64_t room = m->r.media.vision.patches;
    float *pixels = need(read_set("pixels", H5T_NATIVE_FLOAT, 4)),
          *fed = need(calloc((size_t)(room * K), sizeof *fed));
    struct lf_sight_tile tile[N];
    for (int b = 0; b < m->n; b++)
        tile[b] = (struct lf_sight_tile){SIDE, SIDE};
    must(lf_classes_sight_fill(
        m->sight, &(struct lf_sight_batch){.n_tiles = m->n, .tile = tile, .merge = 1}, &err));
    const int32_t *order = lf_classes_sight_order(m->sight);
    for (int i = 0; i < m->n * EACH; i++)
        memcpy(fed + i * K, pixels + (first * EACH + order[i]) * K, (size_t)K * sizeof *fed);
    must(lf_classes_sight_write(m->sight, m->ex, chain, 0, &err));
    must(lf_exec_write(m->ex, chain, 0, "vision.pixels", fed, (size_t)(room * K) * sizeof *fed,
                       &err));
    if (keep)
        must(lf_classes_sight_write_paths(m->sight, m->ex, chain, 0, keep, &err));
    must(lf_exec_run(m->ex, chain, LF_FWD, 0, LF_FIRST, &err));
    for (int k = 0; k < m->heads; k++)
        must(lf_exec_read(m->ex, chain, 0, out[k], m->z[k],
                          (size_t)(m->r.pictures * LABELS) * sizeof(float), &err));
    free(pixels);
    free(fed);
}

static void forward_kept(struct model *m, int first, const float *keep)
{
    forward_in(m, first, 0, keep);
}

static void forward(struct model *m, int first)
{
    forward_kept(m, first, NULL);
}

/* ---- against the file ---- */

/* How far what the model says of pictures from `first` on is from the logits, by their size. */
static double apart_from(const struct model *m, const char *set, int first)
{
    double *want = need(read_set(set, H5T_NATIVE_DOUBLE, 8)), d = 0, all = 0;
    for (int i = 0; i < m->n * LABELS; i++) {
        const double z = m->heads > 1 ? ((double)m->z[0][i] + (double)m->z[1][i]) / 2
                                      : (double)m->z[0][i],
                     w = want[first * LABELS + i];
        d += (z - w) * (z - w);
        all += w * w;
    }
    free(want);
    return sqrt(d / all);
}

static double logits_apart(const struct model *m, int first)
{
    return apart_from(m, "logits", first);
}

/* The mean loss of all pictures; gradients are left in dz. */
static double loss_of(struct model *m)
{
    double *soft = need(read_set("soft", H5T_NATIVE_DOUBLE, 8)), loss = 0;
    int32_t *teacher = need(read_set("teacher", H5T_NATIVE_INT32, 4));
    for (int k = 0; k < m->heads; k++)
        for (int i = 0; i < N; i++) {
            double said[LABELS] = {0};
            said[teacher[i]] = 1;
            loss += lf_class_loss(m->z[k] + i * LABELS, k ? said : soft + i * LABELS, LABELS,
                                  1.0 / (N * m->heads), m->dz[k] + i * LABELS) /
                    (N * m->heads);
        }
    free(soft);
    free(teacher);
    return loss;
}

static double length(const double *a, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += a[i] * a[i];
    return sqrt(all);
}

static void run_back(struct model *m)
{
    static const char *const back[] = {"dscore", "ddistilled"};
    for (int k = 0; k < m->heads; k++)
        must(lf_exec_write(m->ex, 0, 0, back[k], m->dz[k],
                           (size_t)(m->r.pictures * LABELS) * sizeof(float), &err));
    must(lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err));
}

/* The worst of all gradients; *name is whose. A bias of keys adds the same to all scores of a
 * query, so its gradient is 0 and its error counts by that of the queries'. What nothing reads (the
 * second token of a DeiT without a teacher is read by attention) has a gradient too. */
static double backward(struct model *m, const char **name)
{
    double worst = 0, before = 0;
    run_back(m);
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
        char text[128];
        snprintf(text, sizeof text, "g/%s", d->name);
        double *want = read_set(text, H5T_NATIVE_DOUBLE, 8), e = 0;
        float *got = need(calloc((size_t)n, 4));
        must(lf_pstore_read(m->ps, i, LF_P_GRAD, got, (size_t)n * 4, &err));
        const double by = strstr(d->name, ".attn.k.bias") ? before : length(want, n);
        for (int64_t j = 0; j < n; j++)
            e += ((double)got[j] - want[j]) * ((double)got[j] - want[j]);
        e = sqrt(e) / by;
        before = by;
        if (!(e <= worst)) {
            worst = e;
            *name = d->name;
        }
        free(got);
        free(want);
    }
    return worst;
}

/* Ten steps of AdamW against those of PyTorch in f64, and bf16 against its own bf16. */
static void test_training(const lf_model_config *c, const char *ckpt)
{
    double *losses = need(read_set("train.loss", H5T_NATIVE_DOUBLE, 8)),
           *norms = need(read_set("train.norm", H5T_NATIVE_DOUBLE, 8)),
           *rms = need(read_set("bf16_rms", H5T_NATIVE_DOUBLE, 8)), loss = 0, norm = 0;
    struct model *m = make_with(c, ckpt, N, 0, &(struct how){.optimizer = true});
    for (int s = 0; s < STEPS; s++) {
        struct lf_step_record rec = {.step = (uint64_t)s,
                                     .lr = 5e-3f,
                                     .bias_corr1 = (float)(1 - pow(0.9, s + 1)),
                                     .bias_corr2 = (float)(1 - pow(0.95, s + 1)),
                                     .clip_norm = 1,
                                     .loss_scale = 1,
                                     .inv_tokens = 1};
        must(lf_exec_record_write(m->ex, &rec, &err));
        forward(m, 0);
        loss = fmax(loss, fabs(loss_of(m) / losses[s] - 1));
        run_back(m);
        must(lf_exec_run(m->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
        must(lf_exec_record_read(m->ex, &rec, &err));
        norm = fmax(norm, fabs((double)rec.grad_norm / norms[s] - 1));
    }
    tap_ok(loss <= 1e-4 && norm <= 1e-3, "ten AdamW steps: losses %.2g, gradient norms %.2g", loss,
           norm);
    drop(m);
    m = make_with(c, ckpt, N, 0, &(struct how){.compute = LF_BF16});
    forward(m, 0);
    const double e = logits_apart(m, 0) / rms[0];
    tap_ok(e <= 1.5, "in bf16 the error of logits is %.2f of the reference's own", e);
    drop(m);
    free(losses);
    free(norms);
    free(rms);
}

static lf_model_config changed(const lf_model_config *c, const char *key, const char *value)
{
    lf_model_config d = *c;
    must(lf_model_config_set(&d, key, value, "test.ini:1:1", &err));
    must(lf_model_config_finish(&d, &err));
    return d;
}

static void noticed(const lf_model_config *c, const char *ckpt, const char *key, const char *value)
{
    const lf_model_config d = changed(c, key, value);
    struct model *m = make(&d, ckpt, N, 0);
    forward(m, 0);
    const double e = logits_apart(m, 0);
    tap_ok(e > 1e-3, "%s = %s is noticed: %.2g", key, value, e);
    drop(m);
}

static void exchanged(struct model *m, const char *a, const char *b)
{
    swap(m->ps, a, b);
    forward(m, 0);
    const double e = logits_apart(m, 0);
    tap_ok(e > 1e-3, "%s in the place of %s is noticed: %.2g", a, b, e);
    swap(m->ps, a, b);
}

static void test_model(const lf_model_config *c, const char *ckpt)
{
    const char *name = "none";
    struct model *m = make(c, ckpt, N, 0);
    forward(m, 0);
    double *want = need(read_set("loss", H5T_NATIVE_DOUBLE, 8));
    const double z = logits_apart(m, 0), l = fabs(loss_of(m) / want[0] - 1), g = backward(m, &name);
    tap_ok(z < 1e-5, "logits are those of transformers: %.2g", z);
    tap_ok(l < 1e-5, "and so is the loss: %.2g", l);
    tap_ok(g < 1e-5, "and the gradients of all %d tensors: %.2g (%s)", lf_pstore_count(m->ps), g,
           name);
    free(want);
    if (c->vision.conv_taps)
        exchanged(m, "vision.layers.1.conv.weight", "vision.layers.2.conv.weight");
    else if (c->vision.mix_patches)
        exchanged(m, "vision.layers.0.mix.weight", "vision.layers.1.mix.weight");
    else
        exchanged(m, "vision.layers.0.attn.q.weight", "vision.layers.0.attn.k.weight");
    drop(m);
    m = make(c, ckpt, 1, 2);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        forward(m, i);
        worst = tap_worse(worst, logits_apart(m, i));
    }
    tap_ok(worst < 1e-5, "one by one, in room for three: %.2g", worst);
    drop(m);
    if (c->vision.affine)
        noticed(c, ckpt, "vision.affine", "no");
    else
        noticed(c, ckpt, "vision.norm_eps", "0.01");
    noticed(c, ckpt, "vision.activation", "gelu_quick");
    if (c->classes.read == LF_CLASS_FIRST)
        noticed(c, ckpt, "classes.read", "mean");
}

/* Exchanges the columns of two of the patches that a merge reads. */
static void swap_patches(lf_pstore *ps, const char *name, int a, int b)
{
    const int i = lf_pstore_find(ps, name);
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    const int64_t rows = d->dims[0], cols = d->dims[1], each = cols / 4;
    float *x = need(calloc((size_t)(rows * cols), 4));
    must(lf_pstore_read(ps, i, LF_P_MASTER, x, (size_t)(rows * cols) * 4, &err));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < each; c++) {
            float *p = x + r * cols + a * each + c, *q = x + r * cols + b * each + c, was = *p;
            *p = *q;
            *q = was;
        }
    must(lf_pstore_write(ps, i, LF_F32, x, &err));
    free(x);
}

/* What cosines are multiplied by is 100 at most, whatever its number is. */
static void test_cut(struct model *m)
{
    const int i = lf_pstore_find(m->ps, "vision.layers.3.attn.temperature.weight");
    float was[2], hot[2];
    must(lf_pstore_read(m->ps, i, LF_P_MASTER, was, sizeof was, &err));
    memcpy(hot, was, sizeof hot);
    hot[1] = 5;
    must(lf_pstore_write(m->ps, i, LF_F32, hot, &err));
    forward(m, 0);
    const double e = apart_from(m, "logits.cut", 0), far = logits_apart(m, 0);
    hot[1] = 4;
    must(lf_pstore_write(m->ps, i, LF_F32, hot, &err));
    forward(m, 0);
    const double other = apart_from(m, "logits.cut", 0);
    tap_ok(e < 1e-5 && far > 1e-3 && other > 1e-4,
           "a temperature above ln 100 is cut: %.2g, and changes logits: %.2g, %.2g", e, far,
           other);
    must(lf_pstore_write(m->ps, i, LF_F32, was, &err));
}

/* Tables and norms of the layers of Swin and Swin v2 are of their place. */
static void test_stages(const lf_model_config *c, const char *ckpt)
{
    struct model *m = make(c, ckpt, N, 0);
    exchanged(m, "vision.layers.0.attn_norm.weight", "vision.layers.0.mlp_norm.weight");
    if (c->vision.cosine) {
        exchanged(m, "vision.layers.2.attn.distances.down.weight",
                  "vision.layers.3.attn.distances.down.weight");
        exchanged(m, "vision.layers.2.attn.temperature.weight",
                  "vision.layers.3.attn.temperature.weight");
        test_cut(m);
    } else {
        exchanged(m, "vision.layers.0.attn.distances.weight",
                  "vision.layers.1.attn.distances.weight");
        exchanged(m, "vision.layers.2.attn.distances.weight",
                  "vision.layers.3.attn.distances.weight");
    }
    for (int k = 1; k < 4; k += 2) {
        char name[64];
        snprintf(name, sizeof name, "vision.layers.%d.merge.weight", k);
        swap_patches(m->ps, name, 1, 2);
        forward(m, 0);
        const double e = logits_apart(m, 0);
        tap_ok(e > 1e-3, "patches of %s in rows are noticed: %.2g", name, e);
        swap_patches(m->ps, name, 1, 2);
    }
    drop(m);
    noticed(c, ckpt, "vision.out_norm", c->vision.out_norm ? "no" : "yes");
    if (c->vision.cosine) {
        noticed(c, ckpt, "vision.trained_windows", "0,0,0");
        noticed(c, ckpt, "vision.window", "5");
    }
}

static void refused(const lf_model_config *c, const char *key, const char *value, const char *says)
{
    lf_model_config d = *c;
    lf_err e = LF_ERR_INIT;
    int rc = lf_model_config_set(&d, key, value, "test.ini:2:1", &e);
    rc = rc != 0 ? rc : lf_model_config_finish(&d, &e);
    tap_ok(rc == LF_EINVAL && strstr(e.text, says), "%s = %s: %s", key, value, e.text);
}

/* Rows of the taps of a layer's convolution become columns. */
static void turn_taps(lf_pstore *ps, const char *name)
{
    enum { SIDE_OF = 7, ALL = SIDE_OF * SIDE_OF };
    const int i = lf_pstore_find(ps, name);
    const int64_t n = lf_pstore_desc(ps, i)->dims[0];
    float *x = need(calloc((size_t)(n * ALL), 4));
    must(lf_pstore_read(ps, i, LF_P_MASTER, x, (size_t)(n * ALL) * 4, &err));
    for (int64_t c = 0; c < n; c++)
        for (int u = 0; u < SIDE_OF; u++)
            for (int v = 0; v < u; v++) {
                float *p = x + c * ALL + u * SIDE_OF + v, *q = x + c * ALL + v * SIDE_OF + u,
                      was = *p;
                *p = *q;
                *q = was;
            }
    must(lf_pstore_write(ps, i, LF_F32, x, &err));
    free(x);
}

/* Convolutions, merges and the norm behind the mean of ConvNeXt. */
static void test_convolutions(const lf_model_config *c, const char *ckpt)
{
    static const char first[] = "vision.layers.0.conv.weight";
    struct model *m = make(c, ckpt, N, 0);
    turn_taps(m->ps, first);
    forward(m, 0);
    const double e = logits_apart(m, 0);
    tap_ok(e > 1e-3, "taps by columns are noticed: %.2g", e);
    turn_taps(m->ps, first);
    exchanged(m, "vision.layers.1.conv.bias", "vision.layers.1.mlp_norm.bias");
    exchanged(m, "vision.layers.1.mlp_scale", "vision.layers.2.mlp_scale");
    exchanged(m, "vision.pre_norm.weight", "vision.layers.0.merge_norm.weight");
    for (int k = 0; k < 3; k += 2) {
        char name[64];
        snprintf(name, sizeof name, "vision.layers.%d.merge.weight", k);
        swap_patches(m->ps, name, 1, 2);
        forward(m, 0);
        const double s = logits_apart(m, 0);
        tap_ok(s > 1e-3, "patches of %s in rows are noticed: %.2g", name, s);
        swap_patches(m->ps, name, 1, 2);
    }
    drop(m);
    noticed(c, ckpt, "classes.norm_eps", "0.1");
    refused(c, "vision.heads", "2", "is of attention");
}

/* What a branch adds, times a number: the numbers of its last matrix and bias, times it. */
static void scale(lf_pstore *ps, const char *name, float by)
{
    for (int bias = 0; bias < 2; bias++) {
        char text[128];
        snprintf(text, sizeof text, "%s.%s", name, bias ? "bias" : "weight");
        const int i = lf_pstore_find(ps, text);
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        const size_t n = (size_t)(d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1));
        float *x = need(calloc(n, 4));
        must(lf_pstore_read(ps, i, LF_P_MASTER, x, n * 4, &err));
        for (size_t k = 0; k < n; k++)
            x[k] *= by;
        must(lf_pstore_write(ps, i, LF_F32, x, &err));
        free(x);
    }
}

/* The gradient of a tensor, for the loss of the file. */
static float *slope(struct model *m, const char *name, int64_t *n)
{
    const char *worst = NULL;
    const int i = lf_pstore_find(m->ps, name);
    const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
    *n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
    float *x = need(calloc((size_t)*n, 4));
    loss_of(m);
    backward(m, &worst);
    must(lf_pstore_read(m->ps, i, LF_P_GRAD, x, (size_t)*n * 4, &err));
    return x;
}

/* Stochastic depth: branches times 0, 2, 0.5 and 1.25 are those of scaled matrices, their gradients
 * too; and what one picture leaves out changes no other. */
static void test_paths(const lf_model_config *c, const char *ckpt)
{
    static const float by[] = {0.5f, 2, 0, 1.25f};
    static const char *const last[2][2] = {{"attn.o", "mlp.down"}, {"attn_norm", "mlp_norm"}};
    struct model *a = make_with(c, ckpt, N, 0, &(struct how){.drop_path = true, .compute = LF_F32}),
                 *b = make(c, ckpt, N, 0);
    const int branches = 2 * (int)c->vision.layers;
    float *keep = need(calloc((size_t)(branches * N), sizeof *keep)), one[LABELS], two[LABELS];
    for (int k = 0; k < branches; k++) {
        char name[64];
        if (c->vision.conv_taps && k % 2 == 0) /* there is one branch */
            continue;
        snprintf(name, sizeof name, "vision.layers.%d.%s", k / 2,
                 c->vision.mix_patches && k % 2 == 0 ? "mix" : last[c->vision.out_norm][k % 2]);
        scale(b->ps, name, by[k % 4]);
        for (int i = 0; i < N; i++)
            keep[k * N + i] = by[k % 4];
    }
    forward_kept(a, 0, keep);
    forward(b, 0);
    double z = 0, g = 0, all = 0;
    int64_t n = 0;
    for (int i = 0; i < N * LABELS; i++)
        z = tap_worse(z, fabs((double)a->z[0][i] - (double)b->z[0][i]));
    float *x = slope(a, "vision.patch_embed.weight", &n),
          *y = slope(b, "vision.patch_embed.weight", &n);
    for (int64_t i = 0; i < n; i++) {
        g += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)y[i] * (double)y[i];
    }
    g = sqrt(g / all);
    tap_ok(z < 1e-5 && g < 1e-5 && all > 0, "branches are multiplied: %.2g, gradients %.2g", z, g);
    memcpy(one, a->z[0], sizeof one);
    memcpy(two, a->z[0] + LABELS, sizeof two);
    keep[c->vision.conv_taps ? N + 1 : 1] = 0;
    forward_kept(a, 0, keep);
    tap_ok(memcmp(one, a->z[0], sizeof one) == 0 && memcmp(two, a->z[0] + LABELS, sizeof two) != 0,
           "of the picture that leaves one out alone");
    free(keep);
    free(x);
    free(y);
    drop(a);
    drop(b);
}

static void test_tokens(const lf_model_config *c, const char *ckpt)
{
    struct model *m = make(c, ckpt, N, 0);
    swap(m->ps, "classes.weight", "classes.distill.weight");
    forward(m, 0);
    const double heads = logits_apart(m, 0);
    swap(m->ps, "classes.weight", "classes.distill.weight");
    swap(m->ps, "vision.class_token.weight", "vision.distill_token.weight");
    forward(m, 0);
    const double tokens = logits_apart(m, 0);
    tap_ok(heads > 1e-3 && tokens > 1e-3, "heads and tokens, exchanged, are noticed: %.2g, %.2g",
           heads, tokens);
    drop(m);
}

/* ---- a linear probe ---- */

/* How far n numbers are from those of the file, by their size. */
static double apart(const float *got, const char *name, int64_t n)
{
    double *want = read_set(name, H5T_NATIVE_DOUBLE, 8), e = 0;
    for (int64_t i = 0; i < n; i++)
        e += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    e = sqrt(e) / length(want, n);
    free(want);
    return e;
}

/* Features by the graph without training, and the constants that follow from them. */
static void measure_norm(struct model *m, int64_t width)
{
    double *sums = need(calloc((size_t)(1 + 2 * width), sizeof *sums));
    float *x = need(calloc((size_t)(N * width), sizeof *x));
    must(lf_exec_read(m->ex, 1, 0, "features", x, (size_t)(N * width) * sizeof *x, &err));
    sums[0] = N;
    for (int64_t i = 0; i < N * width; i++) {
        sums[1 + i % width] += (double)x[i];
        sums[1 + width + i % width] += (double)x[i] * (double)x[i];
    }
    must(lf_class_write_norm(m->ps, sums, width, &err));
    free(sums);
    free(x);
}

/* With classes.norm a frozen encoder and a linear layer are BatchNorm1d without weights, over all
 * pictures, and a linear layer: logits, loss, gradients. */
static void test_probe(const lf_model_config *c, const char *ckpt)
{
    static const char *const head[] = {"classes.weight", "classes.bias"};
    const lf_model_config d = changed(c, "classes.norm", "yes");
    struct model *plain = make(c, ckpt, N, 0), *m = make_probe(&d, plain->ps);
    forward_in(m, 0, 1, NULL);
    measure_norm(m, c->vision.hidden);
    forward(m, 0);
    double *want = need(read_set("probe/loss", H5T_NATIVE_DOUBLE, 8)), worst = 0;
    const double z = apart(m->z[0], "probe/logits", (int64_t)N * LABELS),
                 l = fabs(loss_of(m) / want[0] - 1);
    must(lf_exec_write(m->ex, 0, 0, "dscore", m->dz[0], N * LABELS * sizeof(float), &err));
    must(lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err));
    for (int k = 0; k < 2; k++) {
        const int64_t n = k ? LABELS : LABELS * c->vision.hidden;
        const int i = lf_pstore_find(m->ps, head[k]);
        char name[64];
        float *x = need(calloc((size_t)n, sizeof *x));
        must(lf_pstore_read(m->ps, i, LF_P_GRAD, x, (size_t)n * sizeof *x, &err));
        snprintf(name, sizeof name, "probe/%s", head[k]);
        worst = tap_worse(worst, apart(x, name, n));
        free(x);
    }
    tap_ok(z < 1e-5 && l < 1e-5, "a probe has the logits and the loss of PyTorch: %.2g, %.2g", z,
           l);
    tap_ok(worst < 1e-5, "and its gradients: %.2g", worst);
    tap_ok(lf_pstore_elements_trained(m->ps) == LABELS * (c->vision.hidden + 1),
           "and nothing else is trained");
    double *sums = need(calloc((size_t)(1 + 2 * c->vision.hidden), sizeof *sums));
    const int rc = lf_class_write_norm(m->ps, sums, c->vision.hidden, &err);
    tap_ok(rc == LF_EINVAL && strstr(err.text, "of 0 pictures"), "means of nothing: %s", err.text);
    lf_err_clear(&err);
    free(sums);
    free(want);
    drop(plain);
    drop(m);
}

/* ---- numbers ---- */

static void test_loss(void)
{
    const float z[] = {1, -2, 0.5f, 1, 3};
    const double q[] = {0.1, 0.2, 0.3, 0.15, 0.25};
    float d[LABELS];
    double worst = 0, none = lf_class_loss(z, q, LABELS, 2, d);
    for (int k = 0; k < LABELS; k++) {
        float up[LABELS], down[LABELS];
        memcpy(up, z, sizeof z);
        memcpy(down, z, sizeof z);
        up[k] += 0.0078125f;
        down[k] -= 0.0078125f;
        const double by =
            (lf_class_loss(up, q, LABELS, 0, NULL) - lf_class_loss(down, q, LABELS, 0, NULL)) /
            0.015625;
        worst = tap_worse(worst, fabs(2 * by - (double)d[k]));
    }
    tap_ok(worst < 1e-5 && none > 0, "the gradient is that of differences: %.2g", worst);
    tap_ok(lf_class_rank(z, LABELS, 4) == 0 && lf_class_rank(z, LABELS, 0) == 1 &&
               lf_class_rank(z, LABELS, 3) == 2 && lf_class_rank(z, LABELS, 1) == 4,
           "ranks count larger numbers, and equal ones before");
    const float none_of[] = {NAN, NAN, NAN, NAN, NAN};
    tap_ok(lf_class_rank(none_of, LABELS, 0) > 0 && lf_class_rank(none_of, LABELS, 4) > 0,
           "no class is the first of numbers that are none");
}

static void test_descriptions(const lf_model_config *c)
{
    refused(c, "layers", "2", "it; leave it out");
    refused(c, "projector.kind", "linear", "it; leave it out");
    refused(c, "classes.labels", "1", "nothing to tell");
    refused(c, "classes.read", "both", "distill token");
    refused(c, "vision.class_token", "no", "has no class token");
    refused(c, "vision.distill_token", "yes", "not a square");
    refused(c, "vision.taps", "0", "behind all layers");
    json_t *o = need(lf_model_config_to_json(c, &err));
    lf_model_config back;
    const char *key = "none";
    must(lf_model_config_from_json(&back, o, "state", &err));
    tap_ok(lf_model_config_equal(c, &back, &key) && !json_object_get(o, "vocab"),
           "a checkpoint brings it back, without a text decoder (%s)", key);
    json_decref(o);
}

/* A ResMLP: no library that is asked here has one, so the file has its weights. */
static void test_resmlp(const char *path)
{
    static const char *const keys[][2] = {{"vision.family", "resmlp"}, {"vision.layers", "2"},
                                          {"vision.hidden", "10"},     {"vision.ffn", "24"},
                                          {"vision.patch_dim", "12"},  {"vision.grid", "4"},
                                          {"classes.labels", "5"},     {"classes.read", "mean"}};
    lf_model_config c;
    lf_model_config_defaults(&c);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        must(lf_model_config_set(&c, keys[i][0], keys[i][1], "test.ini:1:1", &err));
    must(lf_model_config_finish(&c, &err));
    SIDE = (int)c.vision.grid;
    EACH = SIDE * SIDE;
    K = (int)c.vision.patch_dim;
    if ((file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT)) < 0)
        tap_bail("cannot read %s", path);
    TAP(7, test_model(&c, NULL));
    struct model *m = make(&c, NULL, N, 0);
    exchanged(m, "vision.layers.0.attn_scale", "vision.layers.0.mlp_scale");
    exchanged(m, "vision.layers.1.attn_norm.weight", "vision.layers.1.attn_norm.bias");
    exchanged(m, "vision.layers.0.mix.bias", "vision.layers.1.mix.bias");
    drop(m);
    TAP(2, test_training(&c, NULL));
    TAP(2, test_paths(&c, NULL));
    refused(&c, "vision.heads", "2", "is of attention");
    refused(&c, "vision.grid", "0", "needs grid");
    refused(&c, "vision.class_token", "yes", "does not go together");
    H5Fclose(file);
}

int main(void)
{
    static const char *const names[] = {"vit", "deit", "deit-taught", "swin", "swinv2", "convnext"};
    const char *src = getenv("LF_SRCDIR") ? getenv("LF_SRCDIR") : ".", *dir = tap_tmpdir();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512], from[512], out[512], ckpt[600];
        struct lf_convert_result res;
        lf_ckpt *ck = NULL;
        lf_model_config c;
        snprintf(path, sizeof path, "%s/tests/golden/classes/%s.h5", src, names[i]);
        snprintf(from, sizeof from, "%s/tests/golden/vision/lone/%s", src, names[i]);
        snprintf(out, sizeof out, "%s/%s", dir, names[i]);
        snprintf(ckpt, sizeof ckpt, "%s/checkpoint", out);
        const struct lf_convert_opts o = {.from = from, .out = out, .threads = 1, .pad_token = -1};
        must(lf_convert_import(&o, &res, &err));
        must(lf_ckpt_open(&ck, out, 1, &err));
        must(lf_weights_config(&c, ck, &err));
        lf_ckpt_close(ck);
        SIDE = (int)(c.vision.grid ? c.vision.grid : lf_vision_table_side(&c.vision));
        EACH = SIDE * SIDE;
        K = (int)c.vision.patch_dim;
        if ((file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT)) < 0)
            tap_bail("cannot read %s", path);
        TAP(c.classes.read == LF_CLASS_FIRST ? 8 : 7, test_model(&c, out));
        if (c.classes.read == LF_CLASS_BOTH)
            TAP(1, test_tokens(&c, out));
        if (i == 0)
            TAP(8, test_descriptions(&c));
        if (c.vision.shifted)
            TAP(c.vision.cosine ? 9 : 6, test_stages(&c, out));
        if (c.vision.conv_taps)
            TAP(8, test_convolutions(&c, out));
        if (c.vision.stage_layers.n)
            TAP(2, test_training(&c, out));
        if (i == 0 || c.vision.stage_layers.n)
            TAP(2, test_paths(&c, out));
        if (i == 0)
            TAP(4, test_probe(&c, out));
        H5Fclose(file);
    }
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/classes/resmlp.h5", src);
    TAP(17, test_resmlp(path));
    TAP(3, test_loss());
    return tap_done();
}
