/* SPDX-License-Identifier: Apache-2.0
 *
 * Towers of pictures and texts against transformers in f64 (make_dual.py): logits, loss and the
 * gradient of every tensor in f32 within 1e-5, ten AdamW steps, bf16 within 1.5 times the
 * reference's own error, and out again byte for byte. Each switch, flipped, and tensors, exchanged,
 * must be noticed. Pairs one by one are what they are together, and room that is not used changes
 * nothing.
 */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/convert.h"
#include "engine/convert/families.h"
#include "engine/convert/hf.h"
#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/dual.h"
#include "engine/model/weights.h"
#include "engine/post/dual_loss.h"
#include "engine/store/ckpt.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { N = 5, SIDE = 3, EACH = SIDE * SIDE, K = 48, D = 16, STEPS = 10, TOKENS = 9 };

/* As make_dual.py has them. */
static const struct lf_adamw_opts adam = {
    .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

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

static void *read_set(const char *name, hid_t type, size_t size, int64_t *n)
{
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
        tap_bail("no %s in the file", name);
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), s = H5Dget_space(d);
    const int64_t all = H5Sget_simple_extent_npoints(s);
    void *p = need(calloc((size_t)all + 1, size));
    if (H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0)
        tap_bail("cannot read %s", name);
    H5Sclose(s);
    H5Dclose(d);
    if (n)
        *n = all;
    return p;
}

static double *numbers(const char *name)
{
    return read_set(name, H5T_NATIVE_DOUBLE, sizeof(double), NULL);
}

/* ---- the model ---- */

struct model {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    lf_dual_sight *sight;
    struct lf_dual_rows r;
    int n; /* pairs of a micro-batch */
    int64_t width;
    enum lf_dual_kind kind;
    double v[2][N * D], dv[2][N * D], by[2][N]; /* vectors; gradients of them, of s and b */
};

static bool is_given(void *user, const struct lf_param_desc *d)
{
    (void)user;
    (void)d;
    return true;
}

/* n pairs at once, with room for `more` besides. */
static struct model *make_in(const lf_model_config *c, const char *ckpt, int n, int more,
                             enum lf_dtype compute)
{
    struct model *m = need(calloc(1, sizeof *m));
    const struct lf_plan_opts po = {
        .threads = 2, .mode = compute == LF_F32 ? LF_INVARIANT : LF_FAST, .compute = compute};
    lf_ckpt *ck = NULL;
    m->n = n;
    m->width = c->dual.dim;
    m->kind = c->dual.read == LF_DUAL_CLASS ? LF_DUAL_CLIP : LF_DUAL_SIGLIP;
    m->r = lf_dual_bounds(c, (int64_t)(n + more) * EACH, n + more);
    m->d = need(lf_decoder_create(c, 2, &err));
    m->ps = need(lf_pstore_create(&err));
    must(lf_decoder_declare(m->d, m->ps, &err));
    m->plan = need(lf_plan_create(m->ps, &po, &err));
    lf_graph *g = need(lf_dual_graph(m->d, m->ps, "dual", &m->r, true, &err));
    must(lf_plan_add(m->plan, g, &(struct lf_chain_opts){.train = true}, &err));
    must(lf_plan_optimizer(m->plan, &adam, &err));
    must(lf_plan_finish(m->plan, &err));
    lf_graph_destroy(g);
    m->back = need(lf_back_cpu_create(lf_target_host()->isa, 2, &err));
    m->ex = need(lf_exec_create(m->plan, m->back, &(struct lf_exec_opts){.poison = true}, &err));
    must(lf_ckpt_open(&ck, ckpt, 1, &err));
    must(lf_weights_load(m->ps, ck, LF_WEIGHTS_PREFIX, false, &err));
    lf_ckpt_close(ck);
    must(lf_pstore_init_rest(m->ps, 1, is_given, NULL, &err));
    m->sight = need(lf_dual_sight_create(c, &m->r, &err));
    return m;
}

static struct model *make(const lf_model_config *c, const char *ckpt, int n, int more)
{
    return make_in(c, ckpt, n, more, LF_F32);
}

static void drop(struct model *m)
{
    lf_dual_sight_destroy(m->sight);
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->d);
    free(m);
}

static void record(struct model *m, int step)
{
    const struct lf_step_record rec = {.seed = 5,
                                       .loss_scale = 1,
                                       .inv_tokens = 1,
                                       .lr = 5e-3f,
                                       .clip_norm = 1,
                                       .bias_corr1 = (float)(1 - pow((double)0.9f, step + 1)),
                                       .bias_corr2 = (float)(1 - pow((double)0.95f, step + 1))};
    must(lf_exec_record_write(m->ex, &rec, &err));
}

/* Not 0: the second token of each text is 0, and the third is this one. */
static int32_t third;

/* Texts from `first` on. */
static void feed_texts(struct model *m, int first)
{
    int64_t all = 0;
    int32_t *rows = read_set("texts", H5T_NATIVE_INT32, 4, &all);
    const int64_t each = all / N;
    struct lf_dual_text t[N];
    for (int i = 0; i < m->n; i++) {
        t[i] = (struct lf_dual_text){rows + (first + i) * each, 0};
        while (t[i].n < each && t[i].tokens[t[i].n] >= 0)
            t[i].n++;
        if (third) {
            rows[(first + i) * each + 1] = 0;
            rows[(first + i) * each + 2] = third;
        }
    }
    must(lf_dual_sight_texts(m->sight, t, m->n, &err));
    free(rows);
}

/* Pairs from `first` on. */
static void forward(struct model *m, int first)
{
    static const char *const out[] = {"image", "text"};
    const int64_t room = m->r.media.vision.patches;
    float *pixels = need(read_set("pixels", H5T_NATIVE_FLOAT, 4, NULL)),
          *fed = need(calloc((size_t)(room * K), sizeof *fed)),
          *v = need(calloc((size_t)(m->r.pairs * m->width), sizeof *v));
    struct lf_sight_tile tile[N];
    for (int b = 0; b < m->n; b++)
        tile[b] = (struct lf_sight_tile){SIDE, SIDE};
    must(lf_dual_sight_fill(
        m->sight, &(struct lf_sight_batch){.n_tiles = m->n, .tile = tile, .merge = 1}, &err));
    const int32_t *order = lf_dual_sight_order(m->sight);
    for (int i = 0; i < m->n * EACH; i++)
        memcpy(fed + i * K, pixels + (first * EACH + order[i]) * K, K * sizeof *fed);
    feed_texts(m, first);
    must(lf_dual_sight_write(m->sight, m->ex, 0, 0, &err));
    must(lf_exec_write(m->ex, 0, 0, "vision.pixels", fed, (size_t)(room * K) * sizeof *fed, &err));
    must(lf_exec_run(m->ex, 0, LF_FWD, 0, LF_FIRST, &err));
    for (int k = 0; k < 2; k++) {
        must(lf_exec_read(m->ex, 0, 0, out[k], v, (size_t)(m->r.pairs * m->width) * 4, &err));
        for (int64_t i = 0; i < m->n * m->width; i++)
            m->v[k][i] = (double)v[i];
    }
    free(pixels);
    free(fed);
    free(v);
}

/* ---- against the file ---- */

/* What the model makes of all pictures and texts, far from the file's by its size. */
static double apart(const double *z, const double *want, int64_t n)
{
    double d = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (z[i] - want[i]) * (z[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(d / all);
}

static double cosine(const double *a, const double *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static double logits_apart(const struct model *m)
{
    double *want = numbers("logits"), z[N * N], number[2];
    must(lf_dual_numbers(m->ps, number, NULL, &err));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            z[i * N + j] =
                exp(number[0]) * cosine(m->v[0] + i * m->width, m->v[1] + j * m->width, m->width) +
                number[1];
    const double d = apart(z, want, N * N);
    free(want);
    return d;
}

/* The mean loss of all pairs; gradients are left in dv and by. */
static double loss_of(struct model *m)
{
    double number[2], each[N], loss = 0;
    bool right[2][N];
    must(lf_dual_numbers(m->ps, number, NULL, &err));
    const struct lf_dual_loss d = {.kind = m->kind,
                                   .width = m->width,
                                   .n = N,
                                   .image = m->v[0],
                                   .text = m->v[1],
                                   .scale = number[0],
                                   .bias = number[1],
                                   .threads = 2};
    must(lf_dual_loss(&d,
                      &(struct lf_dual_out){.loss = each,
                                            .right = {right[0], right[1]},
                                            .dimage = m->dv[0],
                                            .dtext = m->dv[1],
                                            .dscale = m->by[0],
                                            .dbias = m->by[1]},
                      &err));
    for (int i = 0; i < N; i++)
        loss += each[i] / N;
    return loss;
}

/* Gradients of the mean loss to the graph, and back. */
static void backward(struct model *m)
{
    static const char *const back[] = {"dimage", "dtext"}, *const one[] = {"dscale", "dbias"};
    const size_t bytes = (size_t)(m->r.pairs * m->width) * 4;
    float *d = need(calloc(1, bytes)), sum[2] = {0};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < N * m->width; i++)
            d[i] = (float)(m->dv[k][i] / N);
        must(lf_exec_write(m->ex, 0, 0, back[k], d, bytes, &err));
        double all = 0;
        for (int i = 0; i < N; i++)
            all += m->by[k][i] / N;
        sum[k] = (float)all;
    }
    for (int k = 0; k < (m->kind == LF_DUAL_SIGLIP ? 2 : 1); k++)
        must(lf_exec_write(m->ex, 0, 0, one[k], &sum[k], 4, &err));
    must(lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err));
    free(d);
}

static double length(const double *a, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += a[i] * a[i];
    return sqrt(all);
}

/* The worst of all gradients; *name is whose. A bias of keys adds the same to all scores of a
 * query, so its gradient is 0 and its error counts by that of the queries'. */
static double worst_gradient(struct model *m, const char **name)
{
    double worst = 0, before = 0;
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
        char text[128];
        snprintf(text, sizeof text, "g/%s", d->name);
        double *want = numbers(text), e = 0;
        float *got = need(calloc((size_t)n, 4));
        must(lf_pstore_read(m->ps, i, LF_P_GRAD, got, (size_t)n * 4, &err));
        const double by = strstr(d->name, ".k.bias") ? before : length(want, n);
        for (int64_t j = 0; j < n; j++)
            e += ((double)got[j] - want[j]) * ((double)got[j] - want[j]);
        e = sqrt(e) / by;
        if (strstr(d->name, ".q.bias"))
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

static void test_training(const lf_model_config *c, const char *ckpt)
{
    double *losses = numbers("losses"), *norms = numbers("norms"), loss = 0, norm = 0;
    struct model *m = make(c, ckpt, N, 0);
    for (int s = 0; s < STEPS; s++) {
        struct lf_step_record rec;
        record(m, s);
        forward(m, 0);
        loss = fmax(loss, fabs(loss_of(m) / losses[s] - 1));
        backward(m);
        must(lf_exec_run(m->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
        must(lf_exec_record_read(m->ex, &rec, &err));
        norm = fmax(norm, fabs((double)rec.grad_norm / norms[s] - 1));
    }
    tap_ok(loss <= 1e-4 && norm <= 1e-3,
           "ten AdamW steps, worst relative error of the loss %.2g, of the gradient norm %.2g",
           loss, norm);
    drop(m);
    free(losses);
    free(norms);
}

static void test_bf16(const lf_model_config *c, const char *ckpt)
{
    double *own = numbers("bf16"), *losses = numbers("losses"), loss = 0;
    struct model *m = make_in(c, ckpt, N, 0, LF_BF16);
    record(m, 0);
    forward(m, 0);
    const double e = logits_apart(m);
    tap_ok(e <= 1.5 * own[0], "bf16: %.2g from f64, the reference's own run %.2g", e, own[0]);
    for (int s = 0; s < STEPS; s++) {
        record(m, s);
        forward(m, 0);
        loss = fmax(loss, fabs(loss_of(m) - losses[s]) / losses[0]);
        backward(m);
        must(lf_exec_run(m->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
    }
    tap_ok(loss <= 0.03, "bf16: ten AdamW steps stay within 3 %% of the f64 curve: %.2g", loss);
    drop(m);
    free(own);
    free(losses);
}

/* ---- what must be noticed ---- */

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

static void test_swaps(const lf_model_config *c, const char *ckpt)
{
    static const char *const pairs[][2] = {
        {"vision.layers.0.attn.q.weight", "vision.layers.0.attn.k.weight"},
        {"layers.1.attn.q.bias", "layers.1.attn.v.bias"},
        {"layers.0.attn_norm.weight", "layers.0.mlp_norm.weight"},
        {"dual.pool.q.weight", "dual.pool.k.weight"},
        {"dual.pool.v.weight", "dual.pool.o.weight"}};
    double least = INFINITY;
    int n = 0;
    struct model *m = make(c, ckpt, N, 0);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (lf_pstore_find(m->ps, pairs[i][0]) < 0)
            continue;
        swap(m->ps, pairs[i][0], pairs[i][1]);
        record(m, 0);
        forward(m, 0);
        least = fmin(least, logits_apart(m));
        swap(m->ps, pairs[i][0], pairs[i][1]);
        n++;
    }
    tap_ok(n >= 3 && least > 1e-3, "%d pairs of tensors, exchanged, are noticed: %.2g", n, least);
    drop(m);
}

static void noticed(const lf_model_config *c, const char *ckpt, const char *key, const char *value)
{
    lf_model_config d = *c;
    must(lf_model_config_set(&d, key, value, "test.ini:1:1", &err));
    must(lf_model_config_finish(&d, &err));
    struct model *m = make(&d, ckpt, N, 0);
    record(m, 0);
    forward(m, 0);
    const double e = logits_apart(m);
    tap_ok(e > 1e-3, "%s = %s is noticed: %.2g", key, value, e);
    drop(m);
}

static void refused(const lf_model_config *c, const char *key, const char *value, const char *says)
{
    lf_model_config d = *c;
    lf_err e = LF_ERR_INIT;
    int rc = lf_model_config_set(&d, key, value, "test.ini:2:1", &e);
    rc = rc != 0 ? rc : lf_model_config_finish(&d, &e);
    tap_ok(rc == LF_EINVAL && strstr(e.text, says), "%s = %s: %s", key, value, e.text);
}

/* How far apart texts are that differ in their third token alone, behind a token 0. */
static double behind(const lf_model_config *c, const char *ckpt, const char *end)
{
    lf_model_config d = *c;
    must(lf_model_config_set(&d, "dual.end_token", end, "test.ini:3:1", &err));
    must(lf_model_config_finish(&d, &err));
    struct model *m = make(&d, ckpt, N, 0);
    double *v = need(calloc((size_t)(N * m->width), sizeof *v));
    record(m, 0);
    for (third = 3; third < 5; third++) {
        forward(m, 0);
        if (third == 3)
            memcpy(v, m->v[1], (size_t)(N * m->width) * sizeof *v);
    }
    third = 0;
    const double e = apart(m->v[1], v, N * m->width);
    free(v);
    drop(m);
    return e;
}

/* What eos_token_id a CLIPModel has; -1: it is refused for want of one. */
static json_int_t written(const lf_model_config *c, const char *end)
{
    lf_model_config d = *c;
    lf_err e = LF_ERR_INIT;
    must(lf_model_config_set(&d, "dual.end_token", end, "test.ini:4:1", &err));
    must(lf_model_config_finish(&d, &err));
    json_t *o = lf_hf_config_write(lf_hf_family_for(&d, "clip", &err), &d, "float32", &e);
    if (!o)
        return strstr(e.text, "dual.end_token is not set") ? -1 : -2;
    const json_int_t n =
        json_integer_value(json_object_get(json_object_get(o, "text_config"), "eos_token_id"));
    json_decref(o);
    return n;
}

static void test_ends(const lf_model_config *c, const char *ckpt)
{
    refused(c, "dual.end_token", "40", "no word of the vocabulary");
    const double zero = behind(c, ckpt, "0"), none = behind(c, ckpt, "-1");
    tap_ok(zero < 1e-6, "token 0 ends a text: %.2g", zero);
    tap_ok(none > 1e-3, "without a token it is read at its last one: %.2g", none);
    tap_ok(written(c, "0") == 0, "a CLIPModel reads at token 0, too");
    tap_ok(written(c, "-1") == -1, "but none reads at the last one");
}

/* Files of transformers 4 have some parts twice, and the class lets the second win whole. */
static void test_dicts(const char *from)
{
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", from);
    json_t *o = need(json_load_file(path, 0, NULL)), *text = json_object_get(o, "text_config"),
           *vision = json_object_get(o, "vision_config"), *dict = need(json_deep_copy(text));
    lf_model_config c;
    json_object_del(dict, "layer_norm_eps");
    json_object_del(dict, "model_type");
    json_object_set_new(text, "layer_norm_eps", json_real(0.0625));
    json_object_set_new(o, "text_config_dict", dict);
    json_object_set_new(o, "vision_config_dict", need(json_deep_copy(vision)));
    json_object_set_new(vision, "layer_norm_eps", json_real(0.0625));
    must(lf_hf_config_read(&c, &lf_hf_clip, o, path, &err));
    tap_ok(fabs(c.norm_eps - 1e-5) < 1e-12 && fabs(c.vision.norm_eps - 1e-5) < 1e-12,
           "text_config_dict and vision_config_dict win: %g, %g", c.norm_eps, c.vision.norm_eps);
    json_object_set_new(o, "text_config_dict", json_null());
    must(lf_hf_config_read(&c, &lf_hf_clip, o, path, &err));
    tap_ok(fabs(c.norm_eps - 0.0625) < 1e-12, "but not where they are null: %g", c.norm_eps);
    json_decref(o);
}

static void test_descriptions(const lf_model_config *c)
{
    refused(c, "dual.read", "attention", "as wide as their encoder");
    refused(c, "vision.read_layers", "1", "behind all layers");
    refused(c, "tied_head", "no", "no head over words");
    refused(c, "position", "none", "learned positions");
    refused(c, "projector.kind", "linear", "enter no text");
    refused(c, "attn_dropout", "0.1", "left out at random");
    refused(c, "vision.taps", "0", "behind all layers");
    json_t *o = need(lf_model_config_to_json(c, &err));
    lf_model_config back;
    const char *key = "none";
    must(lf_model_config_from_json(&back, o, "state", &err));
    tap_ok(lf_model_config_equal(c, &back, &key) && !json_object_get(o, "projector.kind") &&
               !json_object_get(o, "image_token"),
           "a checkpoint brings it back, without a projector (%s)", key);
    json_decref(o);
    lf_err e = LF_ERR_INIT;
    tap_ok(lf_model_need_text(c, &e) == LF_EINVAL && strstr(e.text, "compares pictures"), "%s",
           e.text);
}

static void test_model(const lf_model_config *c, const char *ckpt)
{
    const char *name = "none";
    double *want = numbers("loss"), worst = 0;
    struct model *m = make(c, ckpt, N, 0);
    record(m, 0);
    forward(m, 0);
    const double z = logits_apart(m), l = fabs(loss_of(m) / want[0] - 1);
    backward(m);
    const double g = worst_gradient(m, &name);
    tap_ok(z < 1e-5, "logits are those of transformers: %.2g", z);
    tap_ok(l < 1e-5, "and so is the loss: %.2g", l);
    tap_ok(g < 1e-5, "and the gradients of all %d tensors: %.2g (%s)", lf_pstore_count(m->ps), g,
           name);
    struct model *one = make(c, ckpt, 1, 2);
    for (int i = 0; i < N; i++) {
        record(one, 0);
        forward(one, i);
        for (int k = 0; k < 2; k++)
            worst = tap_worse(worst, apart(one->v[k], m->v[k] + i * m->width, m->width));
    }
    tap_ok(worst < 1e-5, "pairs one by one, in room for three: %.2g", worst);
    drop(one);
    drop(m);
    free(want);
    noticed(c, ckpt, "vision.activation", c->dual.read ? "gelu_quick" : "gelu_tanh");
    noticed(c, ckpt, "activation", c->dual.read ? "gelu_quick" : "gelu_tanh");
    noticed(c, ckpt, "norm_eps", "0.01");
    noticed(c, ckpt, "vision.norm_eps", "0.01");
    noticed(c, ckpt, "mask", c->mask == LF_MASK_BOTH ? "causal" : "both");
    if (c->dual.padded) {
        noticed(c, ckpt, "dual.padded", "no");
        noticed(c, ckpt, "dual.pad_token", "2");
        return;
    }
    int32_t *rows = read_set("texts", H5T_NATIVE_INT32, 4, NULL);
    char second[16];
    snprintf(second, sizeof second, "%d", rows[1]); /* of the first text */
    noticed(c, ckpt, "dual.end_token", second);
    free(rows);
}

/* ---- in and out ---- */

static int count_equal(const char *a, const char *b)
{
    lf_st *x = NULL, *y = NULL;
    int same = 0;
    must(lf_st_open(&x, a, &err));
    must(lf_st_open(&y, b, &err));
    for (size_t i = 0; i < lf_st_n_entries(x); i++) {
        const lf_st_entry *e = lf_st_entry_at(x, i), *f = lf_st_find(y, e->name);
        if (!f || f->elems != e->elems || f->dtype != e->dtype || f->ndim != e->ndim)
            continue;
        float *p = need(calloc((size_t)e->elems + 1, 4)),
              *q = need(calloc((size_t)e->elems + 1, 4));
        must(lf_st_read(x, e, 0, e->elems, p, &err));
        must(lf_st_read(y, f, 0, e->elems, q, &err));
        same += memcmp(p, q, (size_t)e->elems * 4) == 0;
        free(p);
        free(q);
    }
    const int all = (int)lf_st_n_entries(x), other = (int)lf_st_n_entries(y);
    lf_st_close(x);
    lf_st_close(y);
    return same == all && all == other ? all : -1;
}

static void test_export(const char *from, const char *in, const char *out)
{
    const struct lf_convert_opts o = {.from = in, .out = out, .threads = 1, .pad_token = -1};
    struct lf_convert_result res;
    char a[640], b[640];
    must(lf_convert_export(&o, &res, &err));
    snprintf(a, sizeof a, "%s/model.safetensors", from);
    snprintf(b, sizeof b, "%s/model.safetensors", out);
    const int n = count_equal(a, b);
    tap_ok(n > 40, "out again, %d tensors byte for byte", n);
}

/* What stages/expected.py says of it. */
static void test_proof(const char *ckpt, const char *expected)
{
    struct lf_convert_verdict v;
    must(lf_convert_verify(ckpt, expected, 2, &v, &err));
    tap_ok(v.max < v.tol_max && v.rms < v.tol_rms && v.rows == 8,
           "%s of %lld pairs: %.2g of the largest, %.2g rms", v.of, (long long)v.rows, v.max,
           v.rms);
}

int main(void)
{
    static const char *const names[] = {"clip", "siglip"};
    const char *src = getenv("LF_SRCDIR") ? getenv("LF_SRCDIR") : ".", *dir = tap_tmpdir();
    for (int i = 0; i < 2; i++) {
        char path[512], from[512], out[512], back[600];
        struct lf_convert_result res;
        lf_ckpt *ck = NULL;
        lf_model_config c;
        snprintf(path, sizeof path, "%s/tests/golden/dual/%s.h5", src, names[i]);
        snprintf(from, sizeof from, "%s/tests/golden/dual/%s", src, names[i]);
        snprintf(out, sizeof out, "%s/%s", dir, names[i]);
        snprintf(back, sizeof back, "%s.out", out);
        const struct lf_convert_opts o = {.from = from, .out = out, .threads = 1, .pad_token = -1};
        must(lf_convert_import(&o, &res, &err));
        must(lf_ckpt_open(&ck, out, 1, &err));
        must(lf_weights_config(&c, ck, &err));
        lf_ckpt_close(ck);
        if ((file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT)) < 0)
            tap_bail("cannot read %s", path);
        TAP(1,
            tap_ok(lf_model_is_dual(&c), "%s: %lld dimensions", names[i], (long long)c.dual.dim));
        TAP(c.dual.padded ? 11 : 10, test_model(&c, out));
        TAP(1, test_swaps(&c, out));
        TAP(1, test_training(&c, out));
        TAP(2, test_bf16(&c, out));
        TAP(1, test_export(from, out, back));
        snprintf(back, sizeof back, "%s/tests/golden/dual/expected/%s.safetensors", src, names[i]);
        TAP(1, test_proof(out, back));
        if (i == 0) {
            TAP(9, test_descriptions(&c));
            TAP(5, test_ends(&c, out));
            TAP(2, test_dicts(from));
        }
        H5Fclose(file);
    }
    return tap_done();
}
