/* SPDX-License-Identifier: Apache-2.0
 *
 * The masked autoencoder against transformers in f64 (make_mae.py): what is hidden, what is
 * restored, the loss of normalised and of plain pixels and the gradient of every tensor, in f32
 * within 1e-5. Each switch, flipped, must be noticed. Pictures one by one have the sums of all
 * together; bounds hold whatever the pictures; descriptions that contradict themselves are refused.
 */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/mae.h"
#include "engine/train/mae.h"
#include "tests/tap/tap.h"

enum { N = 3, SIDE = 5, EACH = SIDE * SIDE, PATCHES = N * EACH, K = 48 };
#define RATIO 0.6

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

/* A dataset as type; NULL: there is none. */
static void *read_set(const char *name, hid_t type, size_t size)
{
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
        return NULL;
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), s = H5Dget_space(d);
    void *p = need(calloc((size_t)H5Sget_simple_extent_npoints(s) + 1, size));
    if (H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0)
        tap_bail("cannot read %s", name);
    H5Sclose(s);
    H5Dclose(d);
    return p;
}

static void set(lf_model_config *c, const char *key, const char *value)
{
    must(lf_model_config_set(c, key, value, "test.ini:1:1", &err));
}

/* The description of the file, before it is checked. */
static lf_model_config describe(void)
{
    static const char *const keys[][2] = {
        {"vision.family", "vit-mae"}, {"vision.layers", "2"}, {"vision.hidden", "32"},
        {"vision.heads", "4"},        {"vision.ffn", "48"},   {"vision.patch_dim", "48"},
        {"vision.positions", "26"},   {"mae.layers", "2"},    {"mae.hidden", "24"},
        {"mae.heads", "3"},           {"mae.ffn", "40"}};
    lf_model_config c;
    lf_model_config_defaults(&c);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        set(&c, keys[i][0], keys[i][1]);
    return c;
}

struct model {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    lf_mae_sight *sight;
    struct lf_mae_rows r;
    double ratio;
    int n; /* pictures of a micro-batch */
    bool norm_pix;
    bool hidden[PATCHES];
    float target[PATCHES * K], pixels[PATCHES * K], slope[PATCHES * K];
    double weight[PATCHES], row[PATCHES];
};

static void load_weights(struct model *m)
{
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        char name[128];
        snprintf(name, sizeof name, "w/%s", lf_pstore_desc(m->ps, i)->name);
        float *w = need(read_set(name, H5T_NATIVE_FLOAT, 4));
        must(lf_pstore_write(m->ps, i, LF_F32, w, &err));
        free(w);
    }
}

/* n pictures at once, with random weights. */
static struct model *make(const lf_model_config *c, double ratio, int n)
{
    struct model *m = need(calloc(1, sizeof *m));
    const struct lf_plan_opts po = {.threads = 2, .mode = LF_INVARIANT};
    *m = (struct model){.ratio = ratio, .n = n, .norm_pix = true};
    m->r = lf_mae_bounds(c, (int64_t)n * EACH, n, ratio);
    m->d = need(lf_decoder_create(c, 2, &err));
    m->ps = need(lf_pstore_create(&err));
    must(lf_decoder_declare(m->d, m->ps, &err));
    m->plan = need(lf_plan_create(m->ps, &po, &err));
    lf_graph *g = need(lf_mae_graph(m->d, m->ps, "mae", &m->r, true, &err));
    must(lf_plan_add(m->plan, g, &(struct lf_chain_opts){.train = true}, &err));
    must(lf_plan_finish(m->plan, &err));
    lf_graph_destroy(g);
    m->back = need(lf_back_cpu_create(lf_target_host()->isa, 2, &err));
    m->ex = need(lf_exec_create(m->plan, m->back, &(struct lf_exec_opts){.poison = true}, &err));
    must(lf_pstore_init(m->ps, 1, &err));
    m->sight = need(lf_mae_sight_create(c, &m->r, &err));
    const struct lf_step_record rec = {.seed = 5, .loss_scale = 1, .inv_tokens = 1};
    must(lf_exec_record_write(m->ex, &rec, &err));
    return m;
}

static void drop(struct model *m)
{
    lf_mae_sight_destroy(m->sight);
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->d);
    free(m);
}

static void write_all(struct model *m, int first)
{
    static float seen[PATCHES * K];
    float *pixels = need(read_set("pixels", H5T_NATIVE_FLOAT, 4)),
          *from = pixels + first * EACH * K;
    uint32_t *noise = need(read_set("noise", H5T_NATIVE_UINT32, 4));
    uint64_t order[EACH];
    struct lf_sight_tile tile[N];
    int64_t n, hidden;
    for (int b = 0; b < m->n; b++) {
        tile[b] = (struct lf_sight_tile){SIDE, SIDE};
        lf_mae_hide(m->hidden + b * EACH, noise + (first + b) * EACH, EACH, m->ratio, order);
    }
    must(lf_mae_sight_fill(m->sight, &(struct lf_mae_batch){m->n, tile, 1, m->hidden}, &err));
    const int32_t *see = lf_mae_sight_seen(m->sight, &n),
                  *hide = lf_mae_sight_hidden(m->sight, &hidden);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++)
        memcpy(seen + i * K, from + see[i] * K, K * sizeof *seen);
    for (int64_t i = 0; i < hidden; i++) {
        memcpy(m->target + i * K, from + hide[i] * K, K * sizeof *seen);
        if (m->norm_pix)
            lf_mae_norm_pix(m->target + i * K, K);
        m->weight[i] = (double)m->n / (double)hidden;
    }
    must(lf_mae_sight_write(m->sight, m->ex, 0, 0, &err));
    must(lf_exec_write(m->ex, 0, 0, "vision.pixels", seen,
                       (size_t)(m->r.encoder.patches * K) * sizeof *seen, &err));
    free(pixels);
    free(noise);
}

/* The sum of the losses of pictures from `first` on; gradients are of their mean. */
static double forward(struct model *m, int first)
{
    struct lf_mae_restored r = {.k = K,
                                .pixels = m->pixels,
                                .target = m->target,
                                .weight = m->weight,
                                .row = m->row,
                                .threads = 2};
    write_all(m, first);
    must(lf_exec_run(m->ex, 0, LF_FWD, 0, LF_FIRST, &err));
    must(lf_exec_read(m->ex, 0, 0, "pixels", m->pixels,
                      (size_t)(m->r.hidden * K) * sizeof *m->pixels, &err));
    lf_mae_sight_hidden(m->sight, &r.n);
    memset(m->slope, 0, sizeof m->slope);
    return lf_mae_loss(&r, 1.0 / m->n, m->slope);
}

static double length(const double *a, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += a[i] * a[i];
    return sqrt(all);
}

static double apart(const float *a, const double *b, int64_t n)
{
    double d = 0;
    for (int64_t i = 0; i < n; i++)
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(d);
}

/* The worst of all gradients by those of `group`; *name is whose. A bias of keys adds the same to
 * all scores of a query, so its gradient is 0 and its error counts by that of the queries'. */
static double backward(struct model *m, const char *group, const char **name)
{
    double worst = 0, before = 0;
    must(lf_exec_write(m->ex, 0, 0, "dpixels", m->slope,
                       (size_t)(m->r.hidden * K) * sizeof *m->slope, &err));
    must(lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err));
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
        char text[128];
        snprintf(text, sizeof text, "%s/%s", group, d->name);
        double *want = read_set(text, H5T_NATIVE_DOUBLE, 8);
        if (d->frozen != !want)
            tap_bail("%s is %s", d->name, want ? "frozen" : "trained");
        if (!want)
            continue;
        float *got = need(calloc((size_t)n, 4));
        must(lf_pstore_read(m->ps, i, LF_P_GRAD, got, (size_t)n * 4, &err));
        const double by = strstr(d->name, ".attn.k.bias") ? before : length(want, n),
                     e = apart(got, want, n) / by;
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

static int64_t links(const char *group)
{
    H5G_info_t info = {0};
    hid_t g = H5Gopen2(file, group, H5P_DEFAULT);
    if (g < 0 || H5Gget_info(g, &info) < 0)
        tap_bail("no %s in the file", group);
    H5Gclose(g);
    return (int64_t)info.nlinks;
}

/* ---- numbers ---- */

static void test_hidden(const struct model *m)
{
    int32_t *want = need(read_set("hidden", H5T_NATIVE_INT32, 4));
    int wrong = 0;
    for (int i = 0; i < PATCHES; i++)
        wrong += m->hidden[i] != (want[i] != 0);
    tap_ok(wrong == 0, "the same patches are hidden (%d are not)", wrong);
    free(want);
}

static void test_numbers(const lf_model_config *c)
{
    struct model *m = make(c, RATIO, N);
    double *loss = need(read_set("loss", H5T_NATIVE_DOUBLE, 8)),
           *want = need(read_set("restored", H5T_NATIVE_DOUBLE, 8));
    load_weights(m);
    for (int k = 0; k < 2; k++) {
        const char *name = "none";
        m->norm_pix = k == 0;
        const double got = forward(m, 0) / N, worst = backward(m, k ? "plain" : "g", &name);
        if (k == 0)
            test_hidden(m);
        tap_ok(fabs(got / loss[k] - 1) < 1e-5, "the loss of %s pixels: %.9g (apart %.1e)",
               k ? "plain" : "normalised", got, got / loss[k] - 1);
        tap_ok(worst < 1e-5, "and every gradient (%.1e, %s)", worst, name);
    }
    int64_t n;
    lf_mae_sight_hidden(m->sight, &n);
    const double e = apart(m->pixels, want, n * K) / length(want, n * K);
    tap_ok(n == N * 15 && e < 1e-5, "what is restored of 45 patches (%.1e)", e);
    tap_i64(lf_pstore_elements(m->ps), lf_model_param_count(c), "parameters are counted");
    tap_i64(lf_pstore_count(m->ps), links("w"), "the file has no other tensors");
    free(loss);
    free(want);
    drop(m);
}

/* Tables of positions before anything is loaded; the mask token is drawn. */
static void test_begin(const lf_model_config *c)
{
    static const char *const names[] = {"vision.pos_embed.weight", "mae.pos_embed.weight"};
    struct model *m = make(c, RATIO, N);
    for (int k = 0; k < 2; k++) {
        const int at = lf_pstore_find(m->ps, names[k]);
        const int64_t n = lf_pstore_desc(m->ps, at)->dims[0] * lf_pstore_desc(m->ps, at)->dims[1];
        char text[64];
        snprintf(text, sizeof text, "w/%s", names[k]);
        double *want = need(read_set(text, H5T_NATIVE_DOUBLE, 8));
        float *got = need(calloc((size_t)n, 4));
        must(lf_pstore_read(m->ps, at, LF_P_MASTER, got, (size_t)n * 4, &err));
        const double e = apart(got, want, n);
        tap_ok(e < 1e-6, "%s: sines and cosines (%.1e)", names[k], e);
        free(got);
        free(want);
    }
    drop(m);
}

/* Pictures in micro-batches of one: the sum of their losses. */
static void test_cut(const lf_model_config *c)
{
    struct model *m = make(c, RATIO, 1);
    double *loss = need(read_set("loss", H5T_NATIVE_DOUBLE, 8)), sum = 0;
    load_weights(m);
    for (int b = 0; b < N; b++)
        sum += forward(m, b);
    tap_ok(fabs(sum / N / loss[0] - 1) < 1e-5, "one picture at a time: the same loss");
    free(loss);
    drop(m);
}

static double loss_with(const lf_model_config *c, double ratio, bool norm_pix)
{
    struct model *m = make(c, ratio, N);
    load_weights(m);
    m->norm_pix = norm_pix;
    const double loss = forward(m, 0) / N;
    drop(m);
    return loss;
}

static void test_flips(const lf_model_config *c)
{
    double *loss = need(read_set("loss", H5T_NATIVE_DOUBLE, 8));
    int missed = 0;
    for (int k = 0; k < 6; k++) {
        lf_model_config f = *c;
        if (k == 0)
            f.vision.activation = LF_ACT_GELU_TANH;
        if (k == 1)
            f.vision.norm_eps = 1e-3;
        if (k == 2) { /* other heads of the encoder, then of the decoder: no tensor changes */
            f.vision.heads = 2;
            f.vision.head_dim = 16;
        }
        if (k == 3)
            f.mae.heads = 2;
        const double got = loss_with(&f, k == 4 ? 0.5 : RATIO, k != 5);
        if (!(fabs(got / loss[0] - 1) > 2e-5)) {
            missed++;
            tap_diag("flip %d: loss %.9g", k, got);
        }
    }
    tap_ok(missed == 0, "6 switches flipped, %d not noticed", missed);
    free(loss);
}

/* ---- what is hidden ---- */

static void test_noise(void)
{
    uint32_t all[100], part[60], other[100];
    int same = 0;
    lf_mae_noise(all, 100, 7, false, 12, 0);
    lf_mae_noise(part, 60, 7, false, 12, 37);
    tap_ok(memcmp(all + 37, part, sizeof part) == 0, "a patch has its noise, however it is cut");
    const struct {
        uint64_t seed;
        bool valid;
        int64_t sample;
    } k[] = {{8, false, 12}, {7, true, 12}, {7, false, 13}};
    for (int i = 0; i < 3; i++) {
        lf_mae_noise(other, 100, k[i].seed, k[i].valid, k[i].sample, 0);
        for (int j = 0; j < 100; j++)
            same += other[j] == all[j];
    }
    tap_i64(same, 0, "seed, split and sample change all of it");
    uint64_t order[100];
    bool hidden[100];
    int n = 0;
    lf_mae_hide(hidden, all, 100, 0.75, order);
    for (int i = 0; i < 100; i++)
        n += hidden[i];
    tap_i64(n, 75, "three quarters are hidden");
    tap_ok(lf_mae_visible(2, 0.99) == 1 && lf_mae_visible(2, 0.01) == 1 &&
               lf_mae_visible(64, 0.75) == 16 && lf_mae_visible(3, 0.01) == 2,
           "some are visible, and some are not");
}

/* Random pictures that fill their room: they always fit. */
static void test_bounds(const lf_model_config *c)
{
    static bool hidden[600];
    static uint32_t noise[600];
    static uint64_t order[600];
    struct lf_sight_tile tile[40];
    int failed = 0;
    uint64_t at = 0;
    for (int t = 0; t < 60; t++) {
        const double ratio = 0.05 + 0.9 * lf_rng_f64(3, 1, at++);
        const int n = 1 + (int)(lf_rng_f64(3, 1, at++) * 39);
        int64_t patches = 0;
        for (int i = 0; i < n; i++) {
            tile[i] = (struct lf_sight_tile){1, 2 + (int32_t)(lf_rng_f64(3, 1, at++) * 12)};
            lf_mae_noise(noise, tile[i].w, 9, false, t, patches);
            lf_mae_hide(hidden + patches, noise, tile[i].w, ratio, order);
            patches += tile[i].w;
        }
        const struct lf_mae_rows r = lf_mae_bounds(c, patches, n, ratio);
        lf_mae_sight *s = need(lf_mae_sight_create(c, &r, &err));
        failed += lf_mae_sight_fill(s, &(struct lf_mae_batch){n, tile, 1, hidden}, &err) != 0;
        lf_mae_sight_destroy(s);
    }
    tap_ok(failed == 0, "pictures of all sizes fit into their bounds (%d do not: %s)", failed,
           err.text);
}

static void test_room(const lf_model_config *c)
{
    const struct lf_mae_rows r = lf_mae_bounds(c, 50, 2, RATIO);
    lf_mae_sight *s = need(lf_mae_sight_create(c, &r, &err));
    bool hidden[PATCHES] = {false};
    const struct lf_sight_tile one[] = {{1, 1}}, many[] = {{5, 5}, {5, 5}, {5, 5}};
    lf_err e = LF_ERR_INIT;
    tap_ok(lf_mae_sight_fill(s, &(struct lf_mae_batch){1, one, 1, hidden}, &e) == LF_EINVAL &&
               strstr(e.text, "single patch"),
           "%s", e.text);
    lf_err_clear(&e);
    tap_ok(lf_mae_sight_fill(s, &(struct lf_mae_batch){3, many, 1, hidden}, &e) == LF_EINVAL &&
               strstr(e.text, "raise max_patches"),
           "%s", e.text);
    lf_mae_sight_destroy(s);
}

/* ---- descriptions ---- */

static void refused(const char *key, const char *value, const char *says)
{
    lf_model_config c = describe();
    lf_err e = LF_ERR_INIT;
    int rc = lf_model_config_set(&c, key, value, "test.ini:2:1", &e);
    rc = rc != 0 ? rc : lf_model_config_finish(&c, &e);
    tap_ok(rc == LF_EINVAL && strstr(e.text, says), "%s = %s: %s", key, value, e.text);
}

static void test_descriptions(const lf_model_config *c)
{
    refused("layers", "2", "it; leave it out");
    refused("projector.kind", "linear", "it; leave it out");
    refused("mae.heads", "5", "are not hidden");
    refused("mae.hidden", "26", "mae: ");
    refused("vision.taps", "0", "the last is read");
    refused("vision.windows", "yes", "windows are of neighbours");
    lf_err e = LF_ERR_INIT;
    lf_decoder *d = need(lf_decoder_create(c, 2, &err));
    lf_pstore *ps = need(lf_pstore_create(&err));
    const struct lf_decoder_rows r = {.rows = 2, .n_docs = 2};
    must(lf_decoder_declare(d, ps, &err));
    tap_ok(!lf_decoder_loss_graph(d, ps, "text", &r, true, &e) &&
               strstr(e.text, "predicts no tokens"),
           "%s", e.text);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
    json_t *o = need(lf_model_config_to_json(c, &err));
    lf_model_config back;
    const char *key = "none";
    must(lf_model_config_from_json(&back, o, "state", &err));
    tap_ok(lf_model_config_equal(c, &back, &key) && !json_object_get(o, "vocab"),
           "a checkpoint brings it back, without a text decoder (%s)", key);
    json_decref(o);
}

int main(void)
{
    char path[4096];
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/golden/mae/mae.h5", src ? src : ".");
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        tap_bail("cannot open %s", path);
    lf_model_config c = describe();
    must(lf_model_config_finish(&c, &err));
    TAP(8, test_numbers(&c));
    TAP(2, test_begin(&c));
    TAP(1, test_cut(&c));
    TAP(1, test_flips(&c));
    TAP(4, test_noise());
    TAP(1, test_bounds(&c));
    TAP(2, test_room(&c));
    TAP(8, test_descriptions(&c));
    H5Fclose(file);
    return tap_done();
}
