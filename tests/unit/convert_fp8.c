/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases whose weights are 8-bit floats with a scale for each block: values by plain loops, any
 * range of elements, what an import and an export make of them, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/convert.h"
#include "engine/model/weights.h"
#include "engine/store/ckpt.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { ROWS = 6, COLS = 7 }; /* of a block: they divide no side of the model's matrices */

static void *need(void *p)
{
    return p ? p : (tap_bail("no memory"), p);
}

static char *join(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    return need(lf_path_join(a, b, &err));
}

/* What the 8 bits of e4m3 are, by their definition. */
static double e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const double x = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return b & 0x80 ? -x : x;
}

static uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* One tensor of the quantised release. */
struct weight {
    char name[200];
    bool scaled, is_scale;
    enum lf_st_dtype dtype;
    int ndim;
    int64_t shape[2], elems;
    void *data;
};

enum fault { NONE, NO_SCALE, SHORT_SCALE, BF16_SCALE };

struct release {
    struct weight w[64];
    size_t n;
};

static int64_t blocks(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

static struct weight *add(struct release *r, const char *name, enum lf_st_dtype t, int ndim,
                          const int64_t *shape)
{
    struct weight *w = &r->w[r->n++];
    *w = (struct weight){.dtype = t, .ndim = ndim, .elems = 1};
    snprintf(w->name, sizeof w->name, "%s", name);
    for (int k = 0; k < ndim; k++)
        w->elems *= w->shape[k] = shape[k];
    w->data = need(calloc((size_t)w->elems, 8));
    return w;
}

/* Any codes but NaN, and scales of all sizes, some of them negative powers of two. */
static void add_quantised(struct release *r, const lf_st_entry *e, enum fault fault, uint64_t *seed)
{
    struct weight *w = add(r, e->name, LF_ST_F8_E4M3, 2, e->shape);
    w->scaled = true;
    for (int64_t i = 0; i < w->elems; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const uint8_t b = (uint8_t)(*seed >> 40);
        ((uint8_t *)w->data)[i] = (b & 0x7f) == 0x7f ? 0 : b;
    }
    char name[220];
    snprintf(name, sizeof name, "%s_scale_inv", e->name);
    const int64_t shape[2] = {blocks(e->shape[0], ROWS) - (fault == SHORT_SCALE),
                              blocks(e->shape[1], COLS)};
    if (fault == NO_SCALE)
        return;
    w = add(r, name, fault == BF16_SCALE ? LF_ST_BF16 : LF_ST_F32, 2, shape);
    w->is_scale = true;
    for (int64_t i = 0; i < w->elems; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const double x = (double)(*seed >> 11) * 0x1p-53;
        ((float *)w->data)[i] = (float)(*seed & 1 ? ldexp(1, -9) : 1e-3 * (x + 0.01));
    }
}

static void load(struct release *r, const lf_st *s, enum fault fault)
{
    lf_err err = LF_ERR_INIT;
    uint64_t seed = 11;
    *r = (struct release){.n = 0};
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (e->ndim == 2 && strstr(e->name, "_proj")) {
            add_quantised(r, e, i > 3 ? fault : NONE, &seed);
            continue;
        }
        struct weight *w = add(r, e->name, e->dtype, e->ndim, e->shape);
        if (lf_st_read(s, e, 0, e->elems, w->data, &err))
            tap_bail("%s", err.text);
    }
}

static void write_weights(const struct release *r, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_st_decl d[64];
    lf_st_writer *w = NULL;
    for (size_t i = 0; i < r->n; i++) {
        d[i] = (lf_st_decl){.name = r->w[i].name, .dtype = r->w[i].dtype, .ndim = r->w[i].ndim};
        memcpy(d[i].shape, r->w[i].shape, sizeof r->w[i].shape);
    }
    int rc = lf_st_writer_create(&w, dir, d, r->n, NULL, &err);
    for (size_t k; rc == 0 && (k = lf_st_writer_next(w)) < r->n;)
        rc = lf_st_writer_put(w, r->w[k].data,
                              (size_t)r->w[k].elems * lf_st_dtype_bytes(r->w[k].dtype), &err);
    if (rc || lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s: %s", dir, err.text);
    lf_st_writer_destroy(w);
}

/* The golden llama with this quantization_config. */
static char *write_release(struct release *r, const char *name, const char *quant, enum fault fault)
{
    lf_err err = LF_ERR_INIT;
    char *dir = join(tap_tmpdir(), name),
         *from = join(getenv("LF_SRCDIR"), "tests/golden/families/"
                                           "llama"),
         *config = join(from, "config.json"), *to = join(dir, "config.json");
    lf_st *s = NULL;
    json_t *o = lf_json_load_file(config, 1 << 20, &err), *q = json_loads(quant, 0, NULL);
    if (!o || !q || json_object_set_new(o, "quantization_config", q) || mkdir(dir, 0777) ||
        lf_st_open(&s, from, &err) || json_dump_file(o, to, JSON_INDENT(2)))
        tap_bail("%s: %s", dir, err.text);
    load(r, s, fault);
    write_weights(r, dir);
    lf_st_close(s);
    json_decref(o);
    free(from);
    free(config);
    free(to);
    return dir;
}

static void drop(struct release *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->w[i].data);
}

static uint16_t value(const struct weight *w, int64_t i)
{
    const int64_t r = i / w->shape[1], c = i % w->shape[1];
    const float scale = ((const float *)w[1].data)[r / ROWS * blocks(w->shape[1], COLS) + c / COLS];
    return bf16_of((float)(e4m3(((const uint8_t *)w->data)[i]) * (double)scale));
}

/* Every range of elements of a matrix. */
static void test_ranges(void)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    char *dir = write_release(&r, "ranges", "{}", NONE);
    if (lf_st_open(&s, dir, &err))
        tap_bail("%s", err.text);
    tap_rc(lf_st_scale_blocks(s, "_scale_inv", ROWS, COLS, &err), 0, &err, NULL,
           "scales are found");
    size_t scaled = 0, wrong = 0, ranges = 0;
    for (size_t i = 0; i < r.n; i++) {
        const struct weight *w = &r.w[i];
        const lf_st_entry *e = lf_st_find(s, w->name);
        wrong += w->is_scale ? e != NULL : !e;
        if (!w->scaled || !e)
            continue;
        scaled++;
        uint16_t *got = need(calloc((size_t)w->elems + 1, 2));
        for (int64_t a = 0; a < w->elems; a += scaled == 1 ? 1 : 37)
            for (int64_t n = 1; a + n <= w->elems; n += scaled == 1 ? 1 : 29) {
                got[n] = 0xabcd;
                int rc = lf_st_read(s, e, a, n, got, &err);
                for (int64_t k = 0; k < n && rc == 0; k++)
                    rc = got[k] != value(w, a + k);
                wrong += rc != 0 || got[n] != 0xabcd;
                ranges++;
            }
        free(got);
    }
    tap_ok(scaled == 14 && ranges > 10000 && !wrong,
           "%zu matrices, %zu ranges: as the loops say, and nothing behind (%zu wrong)", scaled,
           ranges, wrong);
    lf_st_close(s);
    drop(&r);
    free(dir);
}

static int n_told;

static void hear(void *arg, const char *text)
{
    (void)arg;
    n_told += strstr(text, "blocks of 6 x 7") != NULL || strstr(text, "block of 6 x 7") != NULL;
}

/* q_proj of layer 0 is no box of others in the checkpoint. */
static bool same_q(const struct release *r, const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *c = NULL;
    bool same = true;
    if (lf_ckpt_open(&c, dir, 1, &err))
        tap_bail("%s", err.text);
    const lf_ckpt_entry *e = lf_ckpt_find(c, LF_WEIGHTS_PREFIX "layers.0.attn.q.weight", "weight");
    for (size_t i = 0; i < r->n; i++) {
        const struct weight *w = &r->w[i];
        if (strcmp(w->name, "model.layers.0.self_attn.q_proj.weight") != 0)
            continue;
        uint16_t *got = need(calloc((size_t)w->elems, 2));
        same = e && e->dtype == LF_H5_BF16 && !lf_ckpt_read_flat(c, e, 0, w->elems, got, &err);
        for (int64_t k = 0; k < w->elems && same; k++)
            same = got[k] == value(w, k);
        free(got);
    }
    lf_ckpt_close(c);
    return same;
}

static void test_import(void)
{
    struct release r;
    lf_err err = LF_ERR_INIT;
    char *dir = write_release(&r, "fp8",
                              "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
                              "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [6, 7]}",
                              NONE),
         *out = join(tap_tmpdir(), "ckpt"), *back = join(tap_tmpdir(), "back"),
         *json = join(back, "config.json");
    struct lf_convert_result res;
    struct lf_convert_opts o = {.from = dir, .out = out, .threads = 2, .warn = hear};
    json_t *seen = lf_convert_inspect(dir, &err);
    const char *mapping = json_string_value(json_object_get(seen, "mapping"));
    tap_str(mapping ? mapping : "none", "complete", "inspect knows the release");
    json_decref(seen);
    const bool in = tap_rc(lf_convert_import(&o, &res, &err), 0, &err, NULL, "it comes in");
    tap_i64(n_told, 1, "and the user is told that its weights become bf16");
    tap_ok(in && same_q(&r, out), "its values are those of the loops");
    o = (struct lf_convert_opts){.from = out, .out = back, .threads = 1, .pad_token = -1};
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    json_t *config = lf_json_load_file(json, 1 << 20, &err);
    tap_ok(config && !json_object_get(config, "quantization_config"),
           "config.json of the export speaks of no quantisation");
    lf_st *s = NULL;
    const lf_st_entry *e = NULL;
    if (!lf_st_open(&s, back, &err))
        e = lf_st_find(s, "model.layers.0.self_attn.q_proj.weight");
    tap_ok(e && e->dtype == LF_ST_BF16 && lf_st_n_entries(s) + 14 == r.n,
           "and its matrices are bf16, without scales");
    lf_st_close(s);
    json_decref(config);
    drop(&r);
    free(dir);
    free(out);
    free(back);
    free(json);
}

static void test_refusals(void)
{
    static const struct {
        const char *quant;
        enum fault fault;
        const char *text;
    } rows[] = {
        {"{\"quant_method\": \"awq\"}", NONE, "quant_method = awq"},
        {"{\"quant_method\": \"gptq\"}", NONE, "quant_method = gptq"},
        {"{}", NONE, "quant_method = (none)"},
        {"{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\", \"weight_block_size\": [6, 7]}", NONE,
         "fmt = e5m2"},
        {"{\"quant_method\": \"fp8\"}", NONE, "weight_block_size is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [0, 7]}", NONE, "is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7, 8]}", NONE, "is no pair"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 8]}", NONE,
         "one scale for each block of 6 x 8"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", NO_SCALE, "has no scales"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", SHORT_SCALE,
         "one scale for each block of 6 x 7"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [6, 7]}", BF16_SCALE,
         "is no F32 matrix"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct release r;
        struct lf_convert_result res;
        lf_err err = LF_ERR_INIT;
        char name[32];
        snprintf(name, sizeof name, "bad-%zu", i);
        char *dir = write_release(&r, name, rows[i].quant, rows[i].fault), *out = join(dir, "out");
        struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1};
        const int rc = lf_convert_import(&o, &res, &err);
        tap_ok(rc < 0 && strstr(err.text, rows[i].text) && !lf_io_exists(out), "refused: %s%s",
               rows[i].text, strstr(err.text, rows[i].text) ? "" : err.text);
        drop(&r);
        free(dir);
        free(out);
    }
}

int main(void)
{
    TAP(2, test_ranges());
    TAP(7, test_import());
    TAP(11, test_refusals());
    return tap_done();
}
