/* SPDX-License-Identifier: Apache-2.0
 *
 * The vision core against transformers in f64 (make_vision.py): hidden states and the gradient of
 * every tensor, in f32 within 1e-5; in bf16 near. Each switch that leaves the tensors alone,
 * flipped, and each pair of equal tensors, exchanged, must be noticed.
 */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec.h"
#include "engine/graph/plan.h"
#include "engine/model/sight_priv.h"
#include "tests/tap/tap.h"

static lf_err err = LF_ERR_INIT;
static hid_t file;

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory, or %s", err.text);
    return p;
}

/* A dataset as type; *rows and *cols may be NULL. NULL: there is none. */
static void *read_set(const char *name, hid_t type, size_t size, int64_t *rows, int64_t *cols)
{
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
        return NULL;
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), s = H5Dget_space(d);
    hsize_t dims[3] = {1, 1, 1};
    H5Sget_simple_extent_dims(s, dims, NULL);
    void *p = need(calloc((size_t)H5Sget_simple_extent_npoints(s) + 1, size));
    if (H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) < 0)
        tap_bail("cannot read %s", name);
    H5Sclose(s);
    H5Dclose(d);
    if (rows)
        *rows = (int64_t)dims[0];
    if (cols)
        *cols = (int64_t)dims[1];
    return p;
}

struct model {
    lf_vision_config c;
    lf_vision *v;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    struct lf_vision_rows r;
    int64_t tap;
    bool deep;
};

static void sizes(lf_vision_config *c, const char *family)
{
    lf_vision_family(c, lf_vision_family_of(family));
    if (strcmp(family, "clip") == 0)
        c->final_norm = false; /* of its pooled output, which is not asked for */
    c->layers = strcmp(family, "qwen2.5-vl") == 0 ? 3 : 2;
    c->hidden = 40;
    c->heads = 5;
    c->head_dim = 8;
    c->ffn = strncmp(family, "dinov2", 6) == 0 || strcmp(family, "qwen2-vl") == 0 ? 80 : 56;
    if (strcmp(family, "dinov2-swiglu") == 0)
        c->ffn = 56; /* two thirds of 80, to the next multiple of 8 */
    c->patch_dim = strncmp(family, "qwen", 4) == 0 ? 3 * 2 * 4 * 4 : 3 * 4 * 4;
    c->positions = strncmp(family, "qwen", 4) ? 25 + c->class_token : 0;
    if (strcmp(family, "qwen3-vl") == 0)
        c->positions = 25;
    if (strcmp(family, "eva02") == 0)
        c->rope_side = 3;
    if (c->windows) {
        c->full_layers.n = 1;
        c->full_layers.v[0] = 1;
    }
}

/* A dense matrix of the file, written into its six inputs as compressed rows and their
 * transpose. */
static void write_matrix(struct model *m, const char *name, int64_t entries)
{
    int64_t rows, cols;
    double *d = read_set(name, H5T_NATIVE_DOUBLE, 8, &rows, &cols);
    for (int t = 0; t < 2; t++) {
        const int64_t a = t ? cols : rows, b = t ? rows : cols;
        int32_t *start = need(calloc((size_t)a + 1, 4)), *index = need(calloc((size_t)entries, 4)),
                k = 0;
        float *weight = need(calloc((size_t)entries, 4));
        for (int64_t i = 0; i < a; i++) {
            start[i] = k;
            for (int64_t j = 0; j < b; j++) {
                const double w = t ? d[j * cols + i] : d[i * cols + j];
                if (!(w > 0 || w < 0))
                    continue;
                if (k >= entries)
                    tap_bail("%s has more than %lld entries", name, (long long)entries);
                index[k] = (int32_t)j;
                weight[k++] = (float)w;
            }
        }
        start[a] = k;
        const char *back = t ? "back." : "";
        char text[64];
        int rc = 0;
        snprintf(text, sizeof text, "vision.%s.%sstart", name, back);
        rc |= lf_exec_write(m->ex, 0, 0, text, start, (size_t)(a + 1) * 4, &err);
        snprintf(text, sizeof text, "vision.%s.%sindex", name, back);
        rc |= lf_exec_write(m->ex, 0, 0, text, index, (size_t)entries * 4, &err);
        snprintf(text, sizeof text, "vision.%s.%sweight", name, back);
        rc |= lf_exec_write(m->ex, 0, 0, text, weight, (size_t)entries * 4, &err);
        if (rc)
            tap_bail("%s", err.text);
        free(start);
        free(index);
        free(weight);
    }
    free(d);
}

static void write_set(struct model *m, const char *set, const char *input, hid_t type)
{
    int64_t rows, cols;
    void *p = read_set(set, type, 4, &rows, &cols);
    if (!p || lf_exec_write(m->ex, 0, 0, input, p, (size_t)(rows * cols) * 4, &err))
        tap_bail("%s: %s", set, err.text);
    free(p);
}

static void write_inputs(struct model *m)
{
    write_set(m, "pixels", "vision.pixels", H5T_NATIVE_FLOAT);
    write_set(m, "cu_seqlens", "vision.cu_seqlens", H5T_NATIVE_INT32);
    write_set(m, "dhidden", "dhidden", H5T_NATIVE_FLOAT);
    if (m->deep)
        write_set(m, "ddeep", "ddeep", H5T_NATIVE_FLOAT);
    if (m->c.rope)
        write_set(m, "positions", "vision.positions", H5T_NATIVE_INT32);
    if (m->c.windows)
        write_set(m, "cu_windows", "vision.cu_windows", H5T_NATIVE_INT32);
    if (m->c.positions)
        write_matrix(m, "pos", m->r.taps);
    if (m->c.class_token) {
        write_matrix(m, "place", m->r.patches);
        write_matrix(m, "class", m->r.images);
    }
}

static void load_weights(struct model *m)
{
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const char *name = lf_pstore_desc(m->ps, i)->name;
        char set[128];
        snprintf(set, sizeof set, "w/%s", name + strlen("vision."));
        float *w = read_set(set, H5T_NATIVE_FLOAT, 4, NULL, NULL);
        if (!w || lf_pstore_write(m->ps, i, LF_F32, w, &err))
            tap_bail("%s: %s", set, w ? err.text : "not in the file");
        free(w);
    }
}

/* The longest of consecutive numbers' differences. */
static int64_t count_of(const char *set, int64_t *longest)
{
    int64_t n;
    int32_t *cu = read_set(set, H5T_NATIVE_INT32, 4, &n, NULL);
    *longest = 0;
    for (int64_t i = 1; cu && i < n; i++)
        *longest = cu[i] - cu[i - 1] > *longest ? cu[i] - cu[i - 1] : *longest;
    free(cu);
    return cu ? n - 1 : 0;
}

static struct model make(const lf_vision_config *c, enum lf_dtype compute)
{
    struct model m = {.c = *c};
    free(read_set("pixels", H5T_NATIVE_FLOAT, 4, &m.r.patches, NULL));
    free(read_set("hidden", H5T_NATIVE_DOUBLE, 8, &m.r.rows, NULL));
    m.r.images = count_of("cu_seqlens", &m.r.max_image);
    m.r.windows = count_of("cu_windows", &m.r.max_window);
    m.r.taps = 16 * m.r.rows;
    m.deep = H5Lexists(file, "deep", H5P_DEFAULT) > 0;
    m.v = need(lf_vision_create(c, "vision.", 16, &err));
    m.ps = need(lf_pstore_create(&err));
    if (lf_vision_declare(m.v, m.ps, &err))
        tap_bail("%s", err.text);
    const struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT};
    m.plan = need(lf_plan_create(m.ps, &po, &err));
    lf_graph *g = need(lf_graph_create(m.ps, "vision", &err));
    lf_val deep = LF_NONE, h = lf_vision_encode(m.v, g, &m.r, &m.tap, m.deep, &deep);
    lf_pin_f32(g, h);
    lf_output_grad(g, h, "hidden", "dhidden");
    if (m.deep) {
        lf_pin_f32(g, deep);
        lf_output_grad(g, deep, "deep", "ddeep");
    }
    if (lf_graph_check(g, &err) ||
        lf_plan_add(m.plan, g, &(struct lf_chain_opts){.train = true}, &err) ||
        lf_plan_finish(m.plan, &err))
        tap_bail("%s", err.text);
    lf_graph_destroy(g);
    m.back = need(lf_back_cpu_create(lf_target_host()->isa, 2, &err));
    m.ex = need(lf_exec_create(m.plan, m.back, &(struct lf_exec_opts){.poison = true}, &err));
    load_weights(&m);
    write_inputs(&m);
    const struct lf_step_record rec = {.seed = 5, .loss_scale = 1, .inv_tokens = 1};
    if (lf_exec_record_write(m.ex, &rec, &err))
        tap_bail("%s", err.text);
    return m;
}

static void drop(struct model *m)
{
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_vision_destroy(m->v);
}

static double length(const double *a, int64_t n)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++)
        all += a[i] * a[i];
    return sqrt(all);
}

/* |a - b| of n numbers. */
static double apart(const float *a, const double *b, int64_t n)
{
    double d = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = (double)a[i] - b[i];
        d += e * e;
    }
    return sqrt(d);
}

static double output_error(struct model *m, const char *name)
{
    int64_t rows, cols;
    double *want = read_set(name, H5T_NATIVE_DOUBLE, 8, &rows, &cols);
    float *got = need(calloc((size_t)(rows * cols), 4));
    if (lf_exec_read(m->ex, 0, 0, name, got, (size_t)(rows * cols) * 4, &err))
        tap_bail("%s", err.text);
    const double e = apart(got, want, rows * cols) / length(want, rows * cols);
    free(want);
    free(got);
    return e;
}

static double forward(struct model *m)
{
    if (lf_exec_run(m->ex, 0, LF_FWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    return output_error(m, "hidden");
}

/* A bias of keys adds the same number to all scores of a query, which softmax does not see: without
 * positions that turn keys its gradient is 0. Its error counts by the gradient of the queries'. */
static bool vanishes(const struct model *m, const char *name)
{
    return !m->c.rope && strstr(name, ".attn.k.bias");
}

/* The worst of all gradients; *name is whose. */
static double backward(struct model *m, const char **name)
{
    double worst = 0, before = 0;
    if (lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(m->ps, i);
        const int64_t n = d->dims[0] * (d->ndim > 1 ? d->dims[1] : 1);
        char set[128];
        snprintf(set, sizeof set, "g/%s", d->name + strlen("vision."));
        double *want = need(read_set(set, H5T_NATIVE_DOUBLE, 8, NULL, NULL));
        float *got = need(calloc((size_t)n, 4));
        if (lf_pstore_read(m->ps, i, LF_P_GRAD, got, (size_t)n * 4, &err))
            tap_bail("%s", err.text);
        const double scale = vanishes(m, d->name) ? before : length(want, n);
        const double e = apart(got, want, n) / scale;
        before = scale;
        if (!(e <= worst)) {
            worst = e;
            *name = d->name;
        }
        free(got);
        free(want);
    }
    return worst;
}

static int64_t weights_of_file(void)
{
    H5G_info_t info = {0};
    hid_t g = H5Gopen2(file, "w", H5P_DEFAULT);
    if (g < 0 || H5Gget_info(g, &info) < 0)
        tap_bail("no weights in the file");
    H5Gclose(g);
    return (int64_t)info.nlinks;
}

/* Weights before anything is loaded: those of layer scale have the number that the family begins
 * with, gains of norms are ones, biases zeros. */
static void test_begin(const lf_vision_config *c)
{
    lf_pstore *ps = need(lf_pstore_create(&err));
    lf_vision *v = need(lf_vision_create(c, "vision.", 16, &err));
    const struct lf_plan_opts po = {.threads = 1, .mode = LF_INVARIANT};
    lf_plan *plan = need(lf_plan_create(ps, &po, &err));
    lf_back *back = need(lf_back_cpu_create(lf_target_host()->isa, 1, &err));
    if (lf_vision_declare(v, ps, &err) || lf_plan_finish(plan, &err))
        tap_bail("%s", err.text);
    lf_exec *ex = need(lf_exec_create(plan, back, &(struct lf_exec_opts){0}, &err));
    if (lf_pstore_init(ps, 1, &err))
        tap_bail("%s", err.text);
    int wrong = 0;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        const double want = strstr(d->name, "_scale")  ? c->layer_scale_init
                            : strstr(d->name, ".bias") ? 0
                                                       : 1;
        float first[128];
        if (d->ndim > 1)
            continue;
        if (lf_pstore_read(ps, i, LF_P_MASTER, first, (size_t)d->dims[0] * 4, &err))
            tap_bail("%s", err.text);
        for (int64_t e = 0; e < d->dims[0]; e++)
            wrong += !(fabs((double)first[e] - want) < 1e-7);
    }
    tap_ok(wrong == 0, "%s: vectors begin with their numbers (%d do not)",
           lf_vision_families[c->family], wrong);
    lf_exec_destroy(ex);
    lf_back_destroy(back);
    lf_plan_destroy(plan);
    lf_pstore_destroy(ps);
    lf_vision_destroy(v);
}

static void test_numbers(const lf_vision_config *c)
{
    const char *name = "none";
    struct model m = make(c, LF_F32);
    const double e = forward(&m), deep = m.deep ? output_error(&m, "deep") : 0,
                 worst = backward(&m, &name);
    tap_ok(e < 1e-5 && deep < 1e-5, "%s: hidden states within 1e-5 (%.1e, taps %.1e)",
           lf_vision_families[c->family], e, deep);
    tap_ok(worst < 1e-5, "and every gradient (%.1e, %s)", worst, name);
    tap_i64(lf_pstore_count(m.ps), weights_of_file(), "the file has no other tensors");
    drop(&m);
    m = make(c, LF_BF16);
    const double b = forward(&m);
    tap_ok(b > 1e-4 && b < 0.03, "in bf16 within 3 %% (%.1e)", b);
    drop(&m);
}

/* Switches that change no tensor. */
static void test_flips(const lf_vision_config *c)
{
    int missed = 0, tried = 0;
    for (int k = 0; k < 7; k++) {
        lf_vision_config f = *c;
        if (k < 3)
            f.activation = k == 0 ? LF_ACT_GELU : k == 1 ? LF_ACT_GELU_TANH : LF_ACT_GELU_QUICK;
        else if (k == 3)
            f.norm_eps *= 1e3;
        else if (k == 4 && c->windows)
            f.full_layers.v[0] = 2;
        else if (k == 5 && c->rope)
            f.rope_interleaved = !c->rope_interleaved;
        else if (k == 6 && c->rope_side)
            f.rope_side = 0;
        else
            continue;
        if (f.activation == c->activation && k < 3)
            continue;
        struct model m = make(&f, LF_F32);
        const double e = forward(&m);
        tried++;
        if (e < 2e-5 || !isfinite(e)) {
            missed++;
            tap_diag("flip %d: error %.1e", k, e);
        }
        drop(&m);
    }
    tap_ok(missed == 0 && tried >= 3, "%s: %d switches flipped, %d not noticed",
           lf_vision_families[c->family], tried, missed);
}

static bool alike(const struct lf_param_desc *a, const struct lf_param_desc *b)
{
    return a->ndim == b->ndim && a->dims[0] == b->dims[0] &&
           (a->ndim == 1 || a->dims[1] == b->dims[1]);
}

/* A score has the product of the weights of both norms, where positions turn neither. */
static bool commute(const struct model *m, const char *a, const char *b)
{
    return !m->c.rope && strstr(a, ".q_norm.") && strstr(b, ".k_norm.");
}

static void put(struct model *m, int to, int from)
{
    char set[128];
    snprintf(set, sizeof set, "w/%s", lf_pstore_desc(m->ps, from)->name + strlen("vision."));
    float *w = need(read_set(set, H5T_NATIVE_FLOAT, 4, NULL, NULL));
    if (lf_pstore_write(m->ps, to, LF_F32, w, &err))
        tap_bail("%s", err.text);
    free(w);
}

/* Two tensors of one shape, exchanged: each and the next three in the order of declaration. */
static void test_swaps(const lf_vision_config *c)
{
    struct model m = make(c, LF_F32);
    int tried = 0, missed = 0;
    for (int i = 0; i < lf_pstore_count(m.ps); i++)
        for (int k = i + 1, near = 0; k < lf_pstore_count(m.ps) && near < 3; k++) {
            const struct lf_param_desc *a = lf_pstore_desc(m.ps, i), *b = lf_pstore_desc(m.ps, k);
            if (!alike(a, b) || commute(&m, a->name, b->name))
                continue;
            near++;
            tried++;
            put(&m, i, k);
            put(&m, k, i);
            const double e = forward(&m);
            if (!(e > 1e-4)) {
                missed++;
                tap_diag("%s and %s: error %.1e", a->name, b->name, e);
            }
            put(&m, i, i);
            put(&m, k, k);
        }
    const double e = forward(&m);
    tap_ok(missed == 0 && tried > 20 && e < 1e-5,
           "%s: %d pairs of equal shape exchanged, %d not noticed", lf_vision_families[c->family],
           tried, missed);
    drop(&m);
}

/* The largest error of the positions that sight.h makes of the grids of these pictures. */
static double grids_error(const lf_vision_config *c)
{
    int64_t n = 0, rows = 0, cols = 0, row = 0;
    int32_t *grid = need(read_set("grids", H5T_NATIVE_INT32, 4, &n, NULL));
    double *want = need(read_set("pos", H5T_NATIVE_DOUBLE, 8, &rows, &cols)), worst = 0;
    const int64_t most = rows * cols;
    struct lf_sight_block b = {.at = need(calloc(1, (size_t)(most + rows + cols + 64) * 64))};
    struct lf_sight_matrix m;
    lf_sight_carve_matrix(&b, &m, "pos", rows, cols, most);
    lf_sight_begin(&m);
    for (int64_t i = 0; i < n; i++) {
        const struct lf_sight_tile t = {grid[2 * i], grid[2 * i + 1]};
        for (int64_t k = 0; k < (int64_t)t.h * t.w; k++, row++) {
            const int64_t from = m.n;
            lf_sight_position(&m, c, &t, k / t.w, k % t.w);
            lf_sight_end_row(&m);
            for (int64_t e = from; e < m.n; e++)
                want[row * cols + m.index[0][e]] -= (double)m.weight[0][e];
        }
    }
    if (row != rows || (c->smooth_positions && m.n > lf_sight_taps(c, rows, n)))
        tap_bail("%lld rows, %lld entries", (long long)row, (long long)m.n);
    for (int64_t i = 0; i < rows * cols; i++)
        worst = tap_worse(worst, fabs(want[i]));
    free(grid);
    free(want);
    free(b.at);
    return worst;
}

static void test_grids(lf_vision_config c)
{
    const double e = grids_error(&c);
    tap_ok(e < 1e-6, "%s: positions of its grids, error %.1e", lf_vision_families[c.family], e);
    c.smooth_positions = false;
    const double other = grids_error(&c);
    tap_ok(other > 1e-2, "and %.1e as other encoders have them", other);
}

static void one(const char *family)
{
    char path[4096];
    const char *src = getenv("LF_SRCDIR");
    lf_vision_config c;
    snprintf(path, sizeof path, "%s/tests/golden/vision/%s.h5", src ? src : ".", family);
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        tap_bail("cannot open %s", path);
    sizes(&c, family);
    TAP(4, test_numbers(&c));
    TAP(1, test_begin(&c));
    TAP(1, test_flips(&c));
    TAP(1, test_swaps(&c));
    if (c.smooth_positions)
        TAP(2, test_grids(c));
    H5Fclose(file);
}

static void refused(const char *what, void (*spoil)(lf_vision_config *c), const char *says)
{
    lf_vision_config c;
    lf_err e = LF_ERR_INIT;
    sizes(&c, "qwen2.5-vl");
    spoil(&c);
    tap_ok(lf_vision_check(&c, &e) == LF_EINVAL && strstr(e.text, says), "%s: %s", what, e.text);
}

static void no_ffn(lf_vision_config *c)
{
    c->ffn = 0;
}
static void odd_head(lf_vision_config *c)
{
    c->head_dim = 10;
    c->heads = 4;
}
static void bad_heads(lf_vision_config *c)
{
    c->heads = 3;
}
static void no_positions(lf_vision_config *c)
{
    c->rope = false;
}
static void odd_side(lf_vision_config *c)
{
    c->rope_side = 16;
}
static void bare(lf_vision_config *c)
{
    c->bare_keys = true;
    c->qkv_bias = false;
}
static void smooth_rope(lf_vision_config *c)
{
    c->positions = 25;
    c->smooth_positions = true;
}
static void beyond(lf_vision_config *c)
{
    c->full_layers.v[0] = 3;
}
static void half_window(lf_vision_config *c)
{
    c->full_layers.v[0] = 1.5;
}
static void half_state(lf_vision_config *c)
{
    c->read_states = (lf_model_list){.n = 2, .v = {0.5, 3}};
}
static void half_tap(lf_vision_config *c)
{
    c->taps = (lf_model_list){.n = 2, .v = {0, 0.5}};
}

static void test_refusals(void)
{
    tap_ok(lf_vision_family_of("clop") == 0, "an unknown family has no number");
    refused("a size", no_ffn, "needs ffn");
    refused("a head that rows and columns cannot share", odd_head, "multiple of 4");
    refused("heads", bad_heads, "are not hidden");
    refused("no positions", no_positions, "needs positions");
    refused("a side without a table", odd_side, "rope_side");
    refused("no bias to leave out", bare, "bare_keys");
    refused("a table beside rope", smooth_rope, "smooth_positions");
    refused("a layer that is not there", beyond, "layer 3, of 3");
    refused("half a layer without windows", half_window, "full_layers names layer 1.5");
    refused("half a layer to read", half_state, "read_states names layer 0.5");
    refused("half a layer to tap", half_tap, "taps names layer 0.5");
}

int main(void)
{
    static const char *const families[] = {
        "clip",          "siglip",   "siglip2",    "dinov2",   "dinov2-swiglu", "internvit",
        "internvit-rms", "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "eva-clip",      "eva02"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        one(families[i]);
    TAP(12, test_refusals());
    return tap_done();
}
