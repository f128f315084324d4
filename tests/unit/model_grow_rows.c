/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a growing vocabulary against values worked out here: every init, tied and untied heads
 * with a bias, f32 and bf16, padding rows old and new, and what does not fit.
 */
#include "engine/model/grow_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/model/weights.h"
#include "tests/tap/tap.h"

#define C    6  /* width */
#define ROWS 20 /* of the old model: 17 tokens and 3 rows of padding */
#define USED 17
#define NEW  5

static float embed[ROWS][C], head[ROWS][C], bias[ROWS], other[4][C];
static char path[4096];

static const char *at(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", tap_tmpdir(), name);
    return path;
}

static uint16_t bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static float f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static lf_ckpt *save(const char *name, bool untied, bool half, int64_t vocab)
{
    static uint16_t packed[ROWS][C];
    lf_err err = LF_ERR_INIT;
    lf_model_config mc;
    lf_ckpt_writer *w = NULL;
    lf_ckpt_options o = {.threads = 1};
    lf_ckpt *c = NULL;
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < C; k++)
            packed[r][k] = bf16(embed[r][k]);
    const lf_ckpt_tensor t[] = {
        {.name = "model/embed.weight",
         .kind = "weight",
         .dtype = half ? LF_H5_BF16 : LF_H5_F32,
         .ndim = 2,
         .shape = {ROWS, C},
         .data = half ? (void *)packed : (void *)embed},
        {.name = "model/layers.0.mlp.up.weight",
         .kind = "weight",
         .dtype = LF_H5_F32,
         .ndim = 2,
         .shape = {4, C},
         .data = other},
        {.name = "model/embed.weight",
         .kind = "adam_m",
         .dtype = LF_H5_F32,
         .ndim = 2,
         .shape = {ROWS, C},
         .data = embed},
        {.name = "model/head.weight",
         .kind = "weight",
         .dtype = LF_H5_F32,
         .ndim = 2,
         .shape = {ROWS, C},
         .data = head},
        {.name = "model/head.bias",
         .kind = "weight",
         .dtype = LF_H5_F32,
         .ndim = 1,
         .shape = {ROWS},
         .data = bias},
    };
    lf_model_config_defaults(&mc);
    mc.layers = 1;
    mc.hidden = C;
    mc.heads = 1;
    mc.ffn = 4;
    mc.max_positions = 8;
    mc.vocab = vocab;
    mc.tied_head = !untied;
    mc.head_bias = untied;
    if (lf_model_config_finish(&mc, &err) != 0)
        tap_bail("%s", err.text);
    json_t *state =
        json_pack("{s:I,s:o}", "step", (json_int_t)7, "model", lf_model_config_to_json(&mc, &err));
    int rc = lf_ckpt_writer_create(&w, t, untied ? 5 : 3, &o, &err);
    if (rc == 0)
        rc = lf_ckpt_save_begin(w, at(name), state, &err);
    if (rc == 0)
        rc = lf_ckpt_save_wait(w, NULL, &err);
    if (rc < 0 || lf_ckpt_open(&c, at(name), 1, &err) != 0)
        tap_bail("%s", err.text);
    lf_ckpt_writer_destroy(w);
    json_decref(state);
    return c;
}

static const uint32_t a[] = {3, 9}, b[] = {0, 16, 5, 5}, one[] = {11};
static const uint32_t *const old[NEW] = {a, b, one, a, b};
static const size_t n_old[NEW] = {2, 4, 1, 2, 4};

/* Value k of row r as the header says it. */
static double want(const float *old_rows, int width, int r, int k, const lf_rows_plan *p,
                   const double *drawn)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < USED; i++)
        mean += (double)old_rows[i * width + k] / USED;
    if (r < USED || (r >= USED + NEW && r < ROWS))
        return (double)old_rows[r * width + k];
    if (r >= USED + NEW || p->init == LF_ROWS_MEAN)
        return mean;
    if (p->init == LF_ROWS_LAST)
        return (double)old_rows[(USED - 1) * width + k];
    if (p->init == LF_ROWS_GAUSSIAN)
        return width == 1 ? mean : drawn[(r - USED) * width + k];
    for (size_t i = 0; i < n_old[r - USED]; i++)
        sum += (double)old_rows[(int)old[r - USED][i] * width + k] / (double)n_old[r - USED];
    return sum;
}

static void compare(const lf_ckpt *c, const char *name, const float *old_rows, int width,
                    const lf_rows_plan *p, double tol, const char *what)
{
    lf_err err = LF_ERR_INIT;
    const lf_ckpt_entry *e = lf_ckpt_find(c, name, "weight");
    static float got[64 * C];
    static uint16_t raw[64 * C];
    double worst = 0, sum = 0, square = 0, drawn[NEW * C];
    if (!tap_ok(e && e->shape[0] == p->rows, "%s: %s has %lld rows", what, name,
                (long long)p->rows))
        return;
    bool half = e->dtype == LF_H5_BF16;
    if (lf_ckpt_read(c, e, NULL, NULL, half ? (void *)raw : (void *)got, &err) != 0)
        tap_bail("%s", err.text);
    for (int i = 0; half && i < (int)p->rows * width; i++)
        got[i] = f32(raw[i]);
    for (int i = 0; i < NEW * width; i++) { /* a drawn row is checked by its statistics only */
        drawn[i] = (double)got[USED * width + i];
        sum += drawn[i];
        square += drawn[i] * drawn[i];
    }
    for (int r = 0; r < (int)p->rows; r++)
        for (int k = 0; k < width; k++)
            worst = tap_worse(
                worst, fabs((double)got[r * width + k] - want(old_rows, width, r, k, p, drawn)));
    tap_ok(worst <= tol, "%s: %s, off by %.3g", what, name, worst);
    if (p->init == LF_ROWS_GAUSSIAN && width > 1)
        tap_ok(square / (NEW * C) < 4 * p->std * p->std &&
                   square / (NEW * C) > p->std * p->std / 4 && fabs(sum / (NEW * C)) < p->std,
               "%s: %s is drawn with standard deviation %.3g (%.3g)", what, name, p->std,
               sqrt(square / (NEW * C)));
}

static void test_init(int i, lf_ckpt *c, lf_ckpt *half, json_t *note)
{
    static const char *const inits[] = {"subtokens", "mean", "gaussian", "last"};
    lf_err err = LF_ERR_INIT;
    lf_ckpt_result done;
    char name[64], second[64];
    lf_rows_plan p = {.used = USED,
                      .n_new = NEW,
                      .rows = 32,
                      .old = old,
                      .n_old = n_old,
                      .init = (enum lf_rows_init)i,
                      .std = 0.3,
                      .seed = 5};
    lf_ckpt *g = NULL, *h = NULL;
    snprintf(name, sizeof(name), "grown-%s", inits[i]);
    tap_rc(lf_rows_grow(at(name), c, &p, note, 3, &done, &err), 0, &err, NULL, name);
    if (lf_ckpt_open(&g, at(name), 1, &err) != 0)
        tap_bail("%s", err.text);
    compare(g, "model/embed.weight", &embed[0][0], C, &p, 1e-6, name);
    compare(g, "model/head.weight", &head[0][0], C, &p, 1e-6, name);
    compare(g, "model/head.bias", bias, 1, &p, 1e-6, name);
    lf_model_config mc;
    tap_ok(lf_weights_config(&mc, g, &err) == 0 && mc.vocab == 32 && lf_ckpt_step(g) == 7 &&
               lf_ckpt_n_entries(g) == 4,
           "its model has the rows, its step stays, moments are gone");
    tap_ok(json_object_get(lf_ckpt_state(g), "grown") != NULL, "its state says what it is");
    float copied[4][C];
    tap_ok(lf_ckpt_read(g, lf_ckpt_find(g, "model/layers.0.mlp.up.weight", "weight"), NULL, NULL,
                        copied, &err) == 0 &&
               memcmp(copied, other, sizeof(other)) == 0,
           "other tensors are copied");
    snprintf(second, sizeof(second), "half-%s", inits[i]);
    tap_rc(lf_rows_grow(at(second), half, &p, note, 1, &done, &err), 0, &err, NULL, second);
    if (lf_ckpt_open(&h, at(second), 1, &err) != 0)
        tap_bail("%s", err.text);
    compare(h, "model/embed.weight", &embed[0][0], C, &p, 0.02, second);
    tap_ok(lf_ckpt_find(h, "model/head.weight", "weight") == NULL, "a tied head stays tied");
    lf_ckpt_close(g);
    lf_ckpt_close(h);
}

static void test_threads(lf_ckpt *c, json_t *note)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt_result done;
    lf_rows_plan p = {.used = USED, .n_new = NEW, .rows = 32, .old = old, .n_old = n_old};
    lf_ckpt *g = NULL;
    tap_rc(lf_rows_grow(at("again"), c, &p, note, 1, &done, &err), 0, &err, NULL, "one thread");
    if (lf_ckpt_open(&g, at("again"), 1, &err) != 0)
        tap_bail("%s", err.text);
    lf_ckpt *first = NULL;
    if (lf_ckpt_open(&first, at("grown-subtokens"), 1, &err) != 0)
        tap_bail("%s", err.text);
    tap_mem(lf_ckpt_identity(g), lf_ckpt_identity(first), LF_HASH_BYTES, "as with three threads");
    lf_ckpt_close(g);
    lf_ckpt_close(first);
}

static void test_refused(lf_ckpt *c, lf_ckpt *odd, json_t *note)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt_result done;
    lf_rows_plan p = {.used = USED, .n_new = NEW, .rows = 32, .old = old, .n_old = n_old};
    lf_ckpt *g = NULL;
    p.used = ROWS + 1;
    tap_rc(lf_rows_grow(at("bad"), c, &p, note, 1, &done, &err), LF_EINVAL, &err,
           "do not belong together", "more tokens than rows");
    p.used = USED;
    p.rows = 21;
    tap_rc(lf_rows_grow(at("bad"), c, &p, note, 1, &done, &err), LF_EINVAL, &err, "do not hold",
           "too few rows");
    p.rows = 32;
    tap_rc(lf_rows_grow(at("bad"), odd, &p, note, 1, &done, &err), LF_EINVAL, &err,
           "model/embed.weight", "rows that are not the model's");
    p.used = 16;
    tap_rc(lf_rows_grow(at("bad"), c, &p, note, 1, &done, &err), LF_EINVAL, &err, "no old token",
           "a part that is no old token");
    tap_ok(lf_ckpt_open(&g, at("bad"), 1, &err) == LF_ENOENT,
           "nothing is left of the refused ones");
}

int main(void)
{
    for (int i = 0; i < ROWS * C; i++) {
        embed[i / C][i % C] = (float)lf_rng_normal(1, 0, (uint64_t)i);
        head[i / C][i % C] = (float)lf_rng_normal(1, 1, (uint64_t)i);
        bias[i / C] = (float)lf_rng_normal(1, 2, (uint64_t)i);
        other[i / C % 4][i % C] = embed[i / C][i % C];
    }
    tap_i64(lf_rows_padded(17, 5, 20, 8), 24, "padding to a multiple");
    tap_i64(lf_rows_padded(17, 5, 40, 8), 40, "rows never become fewer");
    tap_i64(lf_rows_padded(17, 5, 20, 1), 22, "no padding");
    lf_ckpt *c = save("untied", true, false, ROWS), *half = save("tied", false, true, ROWS),
            *odd = save("odd", true, false, ROWS + 1);
    json_t *note = json_pack("{s:s}", "from", "test");
    for (int i = 0; i < 4; i++)
        TAP(i == LF_ROWS_GAUSSIAN ? 17 : 14, test_init(i, c, half, note));
    TAP(2, test_threads(c, note));
    TAP(5, test_refused(c, odd, note));
    json_decref(note);
    lf_ckpt_close(c);
    lf_ckpt_close(half);
    lf_ckpt_close(odd);
    return tap_done();
}
