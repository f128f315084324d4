/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases of 8-bit floats out again: blocks against transformers' own (golden file,
 * tests/golden/fp8); what nothing has changed byte for byte, whatever scales and codes it has; of
 * what has changed its own blocks and no others; weights that have one scale each; several threads;
 * and a model that was never quantised. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/bf16.h"
#include "engine/base/f8.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/convert.h"
#include "engine/convert/requant.h"
#include "engine/model/scales.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"
#include "engine/store/f8_blocks.h"
#include "tests/tap/tap.h"
#include "tests/unit/fp8_release.h"

static lf_st *open_set(const char *path)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    if (lf_st_open(&s, path, &err))
        tap_bail("%s: %s", path, err.text);
    return s;
}

static void *read_all(const lf_st *s, const char *name, const lf_st_entry **e)
{
    lf_err err = LF_ERR_INIT;
    *e = lf_st_find(s, name);
    void *data = need(*e ? malloc((size_t)(*e)->bytes + 1) : NULL);
    if (lf_st_read(s, *e, 0, (*e)->elems, data, &err))
        tap_bail("%s: %s", name, err.text);
    return data;
}

/* ---- blocks ---- */

/* Scales and codes of a matrix, block by block, as an export makes them. */
static void quantise(const uint16_t *x, const struct lf_f8_grid *g, enum lf_st_dtype t,
                     uint8_t *codes, void *scales)
{
    float v[COLS];
    for (int64_t b = 0; b < g->down * g->across; b++) {
        const int64_t at = b / g->across * g->rows * g->width + b % g->across * g->cols;
        struct lf_f8_block k = {.changed = true};
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t r = 0; r < g->rows; r++) {
                for (int64_t c = 0; c < g->cols; c++)
                    v[c] = lf_f32_of_bf16(x[at + r * g->width + c]);
                if (pass)
                    lf_f8_encode(&k, codes + at + r * g->width, NULL, v, g->cols);
                else
                    lf_f8_look(&k, NULL, NULL, v, g->cols);
            }
            if (!pass)
                lf_f8_settle(&k, t);
        }
        lf_f8_scale_put(t, scales, b, k.scale);
    }
}

static void test_rule(void)
{
    char *dir = join(getenv("LF_SRCDIR"), "tests/golden/fp8"),
         *path = join(dir, "expected.safetensors");
    const struct {
        const char *codes, *scales;
        enum lf_st_dtype type;
    } rows[] = {{"codes.float", "scales.float", LF_ST_F32},
                {"codes.ue8m0", "scales.ue8m0", LF_ST_F8_E8M0}};
    lf_st *s = open_set(path);
    const lf_st_entry *e, *c;
    struct lf_f8_grid g;
    uint16_t *x = read_all(s, "x", &e);
    lf_f8_grid_of(&g, 2, e->shape, ROWS, COLS);
    for (size_t i = 0; i < 2; i++) {
        uint8_t *codes = need(malloc((size_t)e->elems));
        float scales[64] = {0};
        quantise(x, &g, rows[i].type, codes, scales);
        char *want = read_all(s, rows[i].scales, &c);
        tap_ok(c->dtype == rows[i].type && memcmp(want, scales, (size_t)c->bytes) == 0,
               "%s of every block have the bits of transformers", rows[i].scales);
        free(want);
        want = read_all(s, rows[i].codes, &c);
        tap_ok(memcmp(want, codes, (size_t)c->bytes) == 0, "and %s", rows[i].codes);
        free(want);
        free(codes);
    }
    lf_st_close(s);
    free(x);
    free(dir);
    free(path);
}

/* The same file as a set of scaled matrices: what they are read as. */
static void test_values(void)
{
    char *dir = join(getenv("LF_SRCDIR"), "tests/golden/fp8"),
         *path = join(dir, "expected.safetensors");
    static const char *const forms[] = {"float", "ue8m0"};
    lf_st *s = open_set(path);
    for (size_t i = 0; i < 2; i++) {
        char name[3][32];
        static const char *const of[] = {"codes", "scales", "values"};
        const lf_st_entry *e[3];
        uint16_t value[256], *want;
        for (size_t k = 0; k < 3; k++)
            snprintf(name[k], sizeof name[k], "%s.%s", of[k], forms[i]);
        uint8_t *codes = read_all(s, name[0], &e[0]);
        void *scales = read_all(s, name[1], &e[1]);
        want = read_all(s, name[2], &e[2]);
        int64_t wrong = 0;
        for (int64_t k = 0; k < e[0]->elems; k++) {
            const int64_t w = e[0]->shape[1], b = k / w / ROWS * (w / COLS) + k % w / COLS;
            lf_f8_values(value, lf_f8_scale_of(e[1]->dtype, scales, b));
            wrong += value[codes[k]] != want[k];
        }
        tap_ok(wrong == 0, "%s are the bf16 of transformers", name[2]);
        free(codes);
        free(scales);
        free(want);
    }
    lf_st_close(s);
    free(dir);
    free(path);
}

/* No two codes of a plain scale have the same value, and each is found from its value. */
static void test_plain(void)
{
    int64_t twice = 0, lost = 0, scales = 0;
    for (int e = -100; e <= 100; e++)
        for (int m = 0; m < 16; m++, scales++) {
            const float s =
                (float)ldexp(e < 100 ? 1 + m * 0.0625 + 1e-7 * m : 1, e) * (m & 1 ? -1.0f : 1.0f);
            struct lf_f8_block b = {.scale = s, .by = 1 / s};
            uint16_t value[256];
            float v[256];
            uint8_t codes[256];
            lf_f8_values(value, s);
            for (int i = 0; i < 256; i++) {
                v[i] = lf_f32_of_bf16(value[i]);
                for (int k = 0; k < i; k++)
                    twice += value[i] == value[k];
            }
            lf_f8_look(&b, value, NULL, v, 256);
            lf_f8_encode(&b, codes, NULL, v, 256);
            for (int i = 0; i < 256; i++)
                lost += b.changed || codes[i] != i;
        }
    tap_ok(!twice && !lost,
           "%lld scales: each code comes back from its value (%lld twice, %lld not)",
           (long long)scales, (long long)twice, (long long)lost);
    tap_ok(!lf_f8_scale_is_plain(0) && !lf_f8_scale_is_plain(NAN) &&
               !lf_f8_scale_is_plain(INFINITY) && !lf_f8_scale_is_plain(1e-38f) &&
               lf_f8_scale_is_plain(-1e-9f),
           "what is not plain is told");
}

/* ---- releases ---- */

static void convert(bool out, struct lf_convert_opts o)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    o.threads = o.threads ? o.threads : 2;
    o.pad_token = -1;
    if (out ? lf_convert_export(&o, &res, &err) : lf_convert_import(&o, &res, &err))
        tap_bail("%s: %s", o.from, err.text);
}

static bool same_file(const char *a, const char *b, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_buf x, y;
    char *from = join(a, name), *to = join(b, name);
    lf_buf_init(&x);
    lf_buf_init(&y);
    if (lf_io_read_file(from, 1 << 24, &x, &err) || lf_io_read_file(to, 1 << 24, &y, &err))
        tap_bail("%s", err.text);
    const bool same = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    lf_buf_fini(&x);
    lf_buf_fini(&y);
    free(from);
    free(to);
    return same;
}

static bool is_quantised(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    char *path = join(dir, "config.json");
    json_t *o = lf_json_load_file(path, 1 << 20, &err);
    const bool is = json_object_get(o, "quantization_config") != NULL;
    json_decref(o);
    free(path);
    return is;
}

static void test_round(enum lf_st_dtype scales, enum fault fault, int dtype)
{
    struct release r;
    char name[64];
    snprintf(name, sizeof name, "%s-%d-%d", lf_st_dtype_name(scales), (int)fault, dtype);
    char *dir = write_release(&r, name, QUANT, scales, fault), *in = join(dir, "in"),
         *out = join(dir, "out");
    convert(false, (struct lf_convert_opts){.from = dir, .out = in, .dtype = dtype});
    convert(true, (struct lf_convert_opts){.from = in, .out = out});
    tap_ok(same_file(dir, out, "model.safetensors"),
           "scales of %s%s%s: the file comes back byte for byte", lf_st_dtype_name(scales),
           fault == ODD ? ", odd ones" : "", dtype ? ", through f32" : "");
    tap_ok(same_file(dir, out, "config.json"), "and so does its config.json");
    drop(&r);
    free(dir);
    free(in);
    free(out);
}

static void test_rounds(void)
{
    test_round(LF_ST_F32, NONE, LF_CONVERT_KEEP);
    test_round(LF_ST_BF16, NONE, LF_CONVERT_KEEP);
    test_round(LF_ST_F8_E8M0, NONE, LF_CONVERT_KEEP);
    test_round(LF_ST_U8, NONE, LF_CONVERT_KEEP);
    test_round(LF_ST_F32, NONE, LF_CONVERT_F32);
    test_round(LF_ST_F32, ODD, LF_CONVERT_KEEP);
    test_round(LF_ST_BF16, ODD, LF_CONVERT_KEEP);
    test_round(LF_ST_U8, ODD, LF_CONVERT_KEEP);
    test_round(LF_ST_F32, ODD, LF_CONVERT_F32);
}

static void test_dropped(void)
{
    struct release r;
    char *dir = write_release(&r, "dropped", QUANT, LF_ST_F32, NONE), *in = join(dir, "in"),
         *bare = join(dir, "bare"),
         *out[4] = {join(dir, "a"), join(dir, "b"), join(dir, "c"), join(dir, "d")};
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    convert(false, (struct lf_convert_opts){.from = dir, .out = in});
    convert(false,
            (struct lf_convert_opts){.from = dir, .out = bare, .quantize = LF_QUANTIZE_BF16});
    convert(true, (struct lf_convert_opts){.from = bare, .out = out[0]});
    convert(true,
            (struct lf_convert_opts){.from = in, .out = out[1], .quantize = LF_QUANTIZE_BF16});
    convert(true, (struct lf_convert_opts){.from = in, .out = out[2], .dtype = LF_CONVERT_BF16});
    convert(true,
            (struct lf_convert_opts){
                .from = in, .out = out[3], .dtype = LF_CONVERT_F32, .quantize = LF_QUANTIZE_FP8});
    if (lf_ckpt_open(&c, bare, 1, &err))
        tap_bail("%s", err.text);
    bool none = !json_object_get(lf_ckpt_state(c), LF_SCALES_STATE);
    for (size_t i = 0; i < lf_ckpt_n_entries(c); i++)
        none = none && !lf_scales_is(lf_ckpt_entry_at(c, i));
    tap_ok(none, "quantize = bf16: an import keeps no scales");
    lf_ckpt_close(c);
    for (size_t i = 0; i < 3; i++) {
        lf_st *s = open_set(out[i]);
        tap_ok(lf_st_n_entries(s) + 14 == r.n && !is_quantised(out[i]) &&
                   (i == 2 || same_file(out[0], out[i], "model.safetensors")),
               "an export has no scales, and config.json says so");
        lf_st_close(s);
    }
    lf_st *s = open_set(out[3]);
    const lf_st_entry *e = lf_st_find(s, "model.norm.weight");
    tap_ok(lf_st_n_entries(s) == r.n && is_quantised(out[3]) && e && e->dtype == LF_ST_F32,
           "quantize = fp8 with a dtype: that is of the others");
    lf_st_close(s);
    for (size_t i = 0; i < 4; i++)
        free(out[i]);
    free(dir);
    free(in);
    free(bare);
    drop(&r);
}

/* ---- one scale for each weight ---- */

/* In, out, and what an import makes of it. */
static void test_whole(enum lf_st_dtype type, enum fault dims)
{
    struct release r;
    char name[48];
    snprintf(name, sizeof name, "whole-%s-%d", lf_st_dtype_name(type), (int)dims);
    char *dir = write_release(&r, name, QUANT_WHOLE, type, dims), *in = join(dir, "in"),
         *out = join(dir, "out"), *plain = join(dir, "plain");
    convert(false, (struct lf_convert_opts){.from = dir, .out = in});
    convert(true, (struct lf_convert_opts){.from = in, .out = out});
    tap_ok(same_file(dir, out, "model.safetensors") && same_file(dir, out, "config.json"),
           "a scale of %s for each weight, of %d dimensions: the files come back byte for byte",
           lf_st_dtype_name(type), dims == WHOLE_1);
    convert(true, (struct lf_convert_opts){.from = in, .out = plain, .quantize = LF_QUANTIZE_BF16});
    lf_st *s = open_set(plain);
    int64_t wrong = 0, left = 0;
    for (size_t i = 0; i < r.n; i++) {
        const struct weight *w = &r.w[i];
        const lf_st_entry *e;
        left += w->is_scale && lf_st_find(s, w->name);
        if (!w->scaled)
            continue;
        uint16_t *v = read_all(s, w->name, &e);
        for (int64_t k = 0; k < w->elems; k++)
            wrong += v[k] != bf16_of((float)e4m3(((uint8_t *)w->data)[k]) * scale_at(w, k));
        free(v);
    }
    tap_ok(wrong == 0 && left == 0 && !is_quantised(plain),
           "in bf16 each value is its code times the scale, and no scale is left");
    lf_st_close(s);
    drop(&r);
    free(dir);
    free(in);
    free(out);
    free(plain);
}

/* ---- what has changed ---- */

#define CHANGED "model.layers.0.mlp.gate_proj.weight"

static int give(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    (void)err;
    memcpy(dst, (const char *)user + 2 * first, (size_t)(2 * n));
    return 0;
}

static int pass_on(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    const struct {
        const lf_ckpt *c;
        const lf_ckpt_entry *e;
    } *of = user;
    return lf_ckpt_read_flat(of->c, of->e, first, n, dst, err);
}

static int zeros(void *user, int64_t first, int64_t n, void *dst, lf_err *err)
{
    (void)user, (void)first, (void)err;
    memset(dst, 0, (size_t)n * sizeof(double));
    return 0;
}

/* A checkpoint as training leaves it: new values, and what is carried. name NULL: no new values,
 * and scales of a type that no import writes. */
static void train(const char *from, const char *to, const char *name, uint16_t *values)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    lf_ckpt_writer *w = NULL;
    lf_arena *a = lf_arena_create(&err);
    struct lf_scales scales = {0};
    if (!a || lf_ckpt_open(&c, from, 1, &err) || lf_scales_read(&scales, c, a, &err))
        tap_bail("%s", err.text);
    size_t n = 0, all = lf_ckpt_n_entries(c);
    lf_ckpt_tensor t[128];
    struct {
        const lf_ckpt *c;
        const lf_ckpt_entry *e;
    } of[128];
    for (size_t i = 0; i < all && all < 128; i++) {
        const lf_ckpt_entry *e = lf_ckpt_entry_at(c, i);
        if (lf_scales_is(e))
            continue;
        const bool new = name &&strcmp(e->name, name) == 0;
        of[n].c = c;
        of[n].e = e;
        t[n] = (lf_ckpt_tensor){.name = e->name,
                                .kind = e->kind,
                                .dtype = e->dtype,
                                .ndim = e->ndim,
                                .fill = new ? give : pass_on,
                                .user = new ? (void *)values : (void *)&of[n]};
        memcpy(t[n++].shape, e->shape, sizeof e->shape);
    }
    for (size_t i = 0; i < scales.n && !name; i++) {
        scales.tensors[i].dtype = LF_H5_F64;
        scales.tensors[i].fill = zeros;
    }
    const lf_ckpt_tensor *list = t;
    json_t *state =
        json_pack("{s:i,s:O}", "step", 7, "model", json_object_get(lf_ckpt_state(c), "model"));
    if (lf_scales_append(&scales, &list, &n, a, &err) || lf_scales_tell(&scales, state) ||
        lf_ckpt_writer_create(&w, list, n, &(lf_ckpt_options){.threads = 1}, &err) ||
        lf_ckpt_save_begin(w, to, state, &err) || lf_ckpt_save_wait(w, NULL, &err) < 0)
        tap_bail("%s", err.text);
    lf_ckpt_writer_destroy(w);
    lf_scales_fini(&scales);
    json_decref(state);
    lf_ckpt_close(c);
    lf_arena_destroy(a);
}

/* Scales of eight bytes in the place of one: what is read of them must fit where it goes. */
static void test_foreign(enum lf_st_dtype type)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    char name[64];
    snprintf(name, sizeof name, "foreign-%s", lf_st_dtype_name(type));
    char *dir = write_release(&r, name, QUANT, type, NONE), *in = join(dir, "in"),
         *to = join(dir, "foreign"), *out = join(dir, "out");
    convert(false, (struct lf_convert_opts){.from = dir, .out = in});
    train(in, to, NULL, NULL);
    tap_rc(lf_convert_export(
               &(struct lf_convert_opts){.from = to, .out = out, .threads = 1, .pad_token = -1},
               &res, &err),
           LF_EFORMAT, &err, "has scales that are none of its blocks", name);
    drop(&r);
    free(dir);
    free(in);
    free(to);
    free(out);
}

/* Tensors of the release that the export has with the same bytes. */
static size_t same_tensors(const struct release *r, const lf_st *s)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const lf_st_entry *e;
        void *x = read_all(s, r->w[i].name, &e);
        n += e->dtype == r->w[i].dtype && memcmp(x, r->w[i].data, (size_t)e->bytes) == 0;
        free(x);
    }
    return n;
}

/* One value in one block, and one in another that its scale has too. */
static void test_change(enum lf_st_dtype type)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    char name[32];
    snprintf(name, sizeof name, "change-%s", lf_st_dtype_name(type));
    char *dir = write_release(&r, name, QUANT, type, NONE), *in = join(dir, "in"),
         *mid = join(dir, "mid"), *out = join(dir, "out");
    const struct weight *w = r.w;
    while (strcmp(w->name, CHANGED) != 0)
        w++;
    const int64_t width = w->shape[1], down = blocks(w->shape[0], ROWS),
                  across = blocks(width, COLS), at = 8 * width + 9, other = 13 * width;
    uint8_t *was = w->data;
    uint16_t value[256], *v = need(malloc((size_t)w->elems * 2));
    for (int64_t i = 0; i < w->elems; i++) {
        lf_f8_values(value, scale_at(w, i));
        v[i] = value[was[i]];
    }
    lf_f8_values(value, scale_at(w, other));
    v[other] = value[was[other] ^ 1];
    v[at] = bf16_of(1000 * (1 + fabsf(lf_f32_of_bf16(v[at]))));
    convert(false, (struct lf_convert_opts){.from = dir, .out = in});
    train(in, mid, LF_WEIGHTS_PREFIX "layers.0.mlp.gate.weight", v);
    convert(true, (struct lf_convert_opts){.from = mid, .out = out});
    lf_st *s = open_set(out);
    const lf_st_entry *e, *k;
    tap_ok(same_tensors(&r, s) == r.n - 2,
           "scales of %s: a changed value changes its matrix and the scales of that, no other",
           lf_st_dtype_name(type));
    uint8_t *codes = read_all(s, CHANGED, &e), *want = need(malloc((size_t)w->elems));
    char *scales = read_all(s, CHANGED "_scale_inv", &k);
    const int64_t size = (int64_t)lf_st_dtype_bytes(type), block = across + 1;
    int64_t differ = 0, inside = 0;
    for (int64_t b = 0; b < down * across; b++)
        differ += memcmp(scales + b * size, (char *)w[1].data + b * size, (size_t)size) != 0;
    tap_ok(k->dtype == type && differ == 1 &&
               memcmp(scales + block * size, (char *)w[1].data + block * size, (size_t)size) != 0,
           "one block has a new scale");
    const float scale = lf_f8_scale_of(type, scales, block);
    const float most = lf_f32_of_bf16(v[at]);
    tap_ok(type == LF_ST_F32 ? scale == 1 / (448 * (1 / most)) /* NOLINT: bits */
                             : scale * 448 > most * 0.99f && scale * 448 < most * 2.01f,
           "of the largest of its values and 448");
    for (int64_t i = 0; i < w->elems; i++) {
        const bool in_block = i / width / ROWS == 1 && i % width / COLS == 1;
        want[i] = i == other ? was[i] ^ 1 : was[i];
        if (!in_block) {
            inside += codes[i] != want[i];
            continue;
        }
        const float x = lf_f32_of_bf16(v[i]);
        inside += codes[i] != lf_e4m3_of(x * (type == LF_ST_F32 ? 448 * (1 / most) : 1 / scale));
    }
    tap_i64(inside, 0,
            "its codes are of that scale; all others are as they were, but one that has "
            "another value of its old scale");
    free(codes);
    free(scales);
    free(want);
    lf_st_close(s);
    /* What comes in again goes out again. */
    char *in2 = join(dir, "in2"), *out2 = join(dir, "out2");
    convert(false, (struct lf_convert_opts){.from = out, .out = in2});
    convert(true, (struct lf_convert_opts){.from = in2, .out = out2});
    tap_ok(same_file(out, out2, "model.safetensors"), "and that file comes back byte for byte");
    (void)err;
    free(in2);
    free(out2);
    free(v);
    drop(&r);
    free(dir);
    free(in);
    free(mid);
    free(out);
}

/* A weight with one scale gets a new one, and codes of it; what it multiplies keeps its own. */
static void test_whole_change(void)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    char *dir = write_release(&r, "whole-change", QUANT_WHOLE, LF_ST_F32, WHOLE),
         *in = join(dir, "in"), *mid = join(dir, "mid"), *out = join(dir, "out");
    const struct weight *w = r.w;
    while (strcmp(w->name, CHANGED) != 0)
        w++;
    uint16_t *v = need(malloc((size_t)w->elems * 2));
    float most = 0;
    for (int64_t i = 0; i < w->elems; i++) {
        const float x = 0.37f * (float)(i % 101 - 50);
        v[i] = bf16_of(x);
        most = fmaxf(most, fabsf(lf_f32_of_bf16(v[i])));
    }
    convert(false, (struct lf_convert_opts){.from = dir, .out = in});
    train(in, mid, LF_WEIGHTS_PREFIX "layers.0.mlp.gate.weight", v);
    convert(true, (struct lf_convert_opts){.from = mid, .out = out});
    lf_st *s = open_set(out);
    const lf_st_entry *e, *k;
    uint8_t *codes = read_all(s, CHANGED, &e);
    float *scale = read_all(s, CHANGED "_scale_inv", &k);
    int64_t differ = 0;
    for (int64_t i = 0; i < w->elems; i++)
        differ += codes[i] != lf_e4m3_of(lf_f32_of_bf16(v[i]) * (448 * (1 / most)));
    tap_ok(same_tensors(&r, s) == r.n - 2 && k->ndim == 0, "its matrix and scale change alone");
    tap_ok(differ == 0 && *scale == 1 / (448 * (1 / most)), /* NOLINT: bits */
           "the scale is of the largest value, the codes are of the scale");
    (void)err;
    lf_st_close(s);
    free(codes);
    free(scale);
    free(v);
    drop(&r);
    free(dir);
    free(in);
    free(mid);
    free(out);
}

/* ---- threads ---- */

enum { MATRICES = 3, HIGH = 150, WIDE = 260 };

static enum lf_st_dtype f32_of(void *ctx, int src)
{
    (void)ctx, (void)src;
    return LF_ST_F32;
}

static int read_f32(void *ctx, int src, int64_t first, int64_t n, void *dst, lf_err *err)
{
    (void)src, (void)err;
    memcpy(dst, (const float *)ctx + first, (size_t)n * sizeof(float));
    return 0;
}

static int count_calls(void *arg, int64_t bytes, lf_err *err)
{
    (void)bytes;
    return --*(int *)arg == 0 ? lf_fail(err, LF_EINTR, "enough") : 0;
}

/* Matrices in blocks of rows x cols, in steps of 2,000 elements; the call that ends it. */
static int write_steps(const char *dir, float *values, int64_t rows, int threads, int calls,
                       lf_err *err)
{
    const int64_t shape[3] = {MATRICES, HIGH, WIDE};
    lf_st_writer *w = NULL;
    struct lf_requant q = {.type = LF_ST_F32};
    struct lf_map_seg one = {.n = MATRICES * HIGH * WIDE, .times = 1};
    struct lf_map_parts parts = {.segs = &one, .n = 1, .cap = 1, .width = 1};
    const struct lf_move_source from = {values, f32_of, read_f32};
    struct lf_move m = {.from = &from, .parts = &parts, .elems = one.n, .dtype = LF_ST_F32};
    lf_st_decl d[2] = {{.name = "w", .dtype = LF_ST_F8_E4M3, .ndim = 3},
                       {.name = "w_scale_inv", .dtype = LF_ST_F32, .ndim = 3}};
    one.step = one.src_step = one.n;
    memcpy(d[0].shape, shape, sizeof shape);
    lf_f8_grid_of(&q.grid, 3, shape, rows, 100);
    lf_f8_scales_shape(&q.grid, 3, d[1].shape);
    int rc = lf_st_writer_create(&w, dir, d, 2, NULL, err);
    const struct lf_requant_job job = {&m, 2000, threads, w, count_calls, &calls};
    rc = rc != 0 ? rc : lf_requant_scales(&q, &job, err);
    rc = rc != 0 ? rc : lf_requant_codes(&q, &job, err);
    rc = rc != 0 ? rc : lf_st_writer_finish(w, NULL, NULL, err);
    lf_st_writer_destroy(w);
    lf_requant_fini(&q);
    return rc;
}

static void test_threads(void)
{
    float *v = need(malloc(sizeof(float) * MATRICES * HIGH * WIDE));
    for (int64_t i = 0; i < MATRICES * HIGH * WIDE; i++)
        v[i] = lf_f32_of_bf16(bf16_of((float)ldexp(sin((double)i), (int)(i / 7919 % 9))));
    static const int64_t rows[] = {50, 7, 1000000};
    for (int k = 0; k < 3; k++) {
        char *dir[3];
        lf_err err = LF_ERR_INIT;
        for (int i = 0; i < 3; i++) {
            char name[32];
            snprintf(name, sizeof name, "threads-%d-%d", k, i);
            dir[i] = join(tap_tmpdir(), name);
            if (mkdir(dir[i], 0777))
                tap_bail("%s", dir[i]);
        }
        const int one = write_steps(dir[0], v, rows[k], 1, -1, &err),
                  four = write_steps(dir[1], v, rows[k], 4, -1, &err);
        tap_ok(one == 0 && four == 0 && same_file(dir[0], dir[1], "model.safetensors"),
               "blocks of %lld rows: four threads write the bytes of one (%s)", (long long)rows[k],
               err.text);
        lf_st *s = open_set(dir[0]);
        const lf_st_entry *e, *f;
        uint8_t *codes = read_all(s, "w", &e);
        float *scales = read_all(s, "w_scale_inv", &f);
        struct lf_f8_grid g;
        lf_f8_grid_of(&g, 3, e->shape, rows[k], 100);
        int64_t wrong = 0;
        for (int64_t i = 0; i < e->elems; i++) {
            const int64_t row = i / WIDE % HIGH, b = i / WIDE / HIGH * g.down + row / g.rows;
            const double x = e4m3(codes[i]) * (double)scales[b * g.across + i % WIDE / 100];
            wrong +=
                fabs(x - (double)v[i]) > 448 * (double)scales[b * g.across + i % WIDE / 100] / 16;
        }
        tap_i64(wrong, 0, "each value is near its code times the scale of its block");
        err = (lf_err)LF_ERR_INIT;
        tap_rc(write_steps(dir[2], v, rows[k], 4, 5, &err), LF_EINTR, &err, "enough",
               "a request ends it");
        lf_st_close(s);
        free(codes);
        free(scales);
        for (int i = 0; i < 3; i++)
            free(dir[i]);
    }
    free(v);
}

static void test_changes(void)
{
    test_change(LF_ST_F32);
    test_change(LF_ST_BF16);
    test_change(LF_ST_F8_E8M0);
}

int main(void)
{
    TAP(4, test_rule());
    TAP(2, test_values());
    TAP(2, test_plain());
    TAP(18, test_rounds());
    TAP(5, test_dropped());
    TAP(2, test_whole(LF_ST_F32, WHOLE));
    TAP(2, test_whole(LF_ST_BF16, WHOLE));
    TAP(2, test_whole(LF_ST_BF16, WHOLE_1));
    TAP(2, test_whole_change());
    TAP(9, test_threads());
    TAP(15, test_changes());
    TAP(1, test_foreign(LF_ST_F32));
    TAP(1, test_foreign(LF_ST_U8));
    return tap_done();
}
