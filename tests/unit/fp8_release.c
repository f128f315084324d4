/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases of 8-bit floats for tests. */
#include "tests/unit/fp8_release.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "tests/tap/tap.h"

void *need(void *p)
{
    return p ? p : (tap_bail("no memory"), p);
}

char *join(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    return need(lf_path_join(a, b, &err));
}

double e4m3(uint8_t b)
{
    const int e = b >> 3 & 15, m = b & 7;
    const double x = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return b & 0x80 ? -x : x;
}

uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

int64_t blocks(int64_t n, int64_t of)
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

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11;
}

/* Scales of all sizes, some of them negative powers of two. */
static float scale_of(uint64_t *seed, bool odd)
{
    static const float odds[] = {0.0f, -0.0f, INFINITY, NAN, 1e-38f, -3e-39f, 3e38f, -1.5f};
    const uint64_t k = draw(seed);
    const double x = (double)k * 0x1p-53;
    if (odd && k % 3 == 0)
        return odds[k / 3 % (sizeof odds / sizeof *odds)];
    return (float)(k & 1 ? ldexp(1, -9) : 1e-3 * (x + 0.01));
}

static void put_scale(struct weight *w, int64_t i, float x, uint64_t *seed)
{
    const uint16_t h = bf16_of(x);
    if (w->dtype == LF_ST_F32)
        ((float *)w->data)[i] = x;
    else if (lf_st_dtype_bytes(w->dtype) == 2)
        ((uint16_t *)w->data)[i] = h;
    else
        ((uint8_t *)w->data)[i] = (uint8_t)(110 + draw(seed) % 16);
}

/* One scale of all of e, and one of what it multiplies. */
static void add_whole(struct release *r, const lf_st_entry *e, enum lf_st_dtype scales,
                      enum fault fault, uint64_t *seed)
{
    const int ndim = (int)fault - (int)WHOLE;
    const int64_t one[2] = {1, 1};
    char name[220];
    snprintf(name, sizeof name, "%s_scale_inv", e->name);
    struct weight *w = add(r, name, scales, ndim, one);
    w->is_scale = true;
    put_scale(w, 0, scale_of(seed, false), seed);
    snprintf(name, sizeof name, "%.*s.activation_scale", (int)(strlen(e->name) - strlen(".weight")),
             e->name);
    w = add(r, name, scales, ndim, one);
    w->is_scale = true;
    put_scale(w, 0, scale_of(seed, false), seed);
}

/* Any codes but NaN. */
static void add_quantised(struct release *r, const lf_st_entry *e, enum lf_st_dtype scales,
                          enum fault fault, uint64_t *seed)
{
    struct weight *w = add(r, e->name, LF_ST_F8_E4M3, 2, e->shape);
    w->scaled = true;
    for (int64_t i = 0; i < w->elems; i++) {
        const uint8_t b = (uint8_t)(draw(seed) >> 29);
        ((uint8_t *)w->data)[i] = (b & 0x7f) == 0x7f && fault != ODD ? 0 : b;
    }
    if (fault >= WHOLE) {
        add_whole(r, e, scales, fault, seed);
        return;
    }
    char name[220];
    snprintf(name, sizeof name, "%s_scale_inv", e->name);
    const int64_t shape[2] = {blocks(e->shape[0], ROWS) - (fault == SHORT_SCALE),
                              blocks(e->shape[1], COLS)};
    if (fault == NO_SCALE)
        return;
    w = add(r, name,
            fault == F16_SCALE     ? LF_ST_F16
            : fault == MIXED_SCALE ? LF_ST_U8
                                   : scales,
            2, shape);
    w->is_scale = true;
    for (int64_t i = 0; i < w->elems; i++)
        put_scale(w, i, scale_of(seed, fault == ODD), seed);
    if (fault == ODD && lf_st_dtype_bytes(w->dtype) == 1)
        memcpy(w->data, "\0\1\377\376", 4);
}

static void load(struct release *r, const lf_st *s, enum lf_st_dtype scales, enum fault fault)
{
    lf_err err = LF_ERR_INIT;
    uint64_t seed = 11;
    *r = (struct release){.n = 0};
    for (size_t i = 0; i < lf_st_n_entries(s); i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        if (e->ndim == 2 && strstr(e->name, "_proj")) {
            add_quantised(r, e, scales, i > 3 || fault >= WHOLE ? fault : NONE, &seed);
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
char *write_release(struct release *r, const char *name, const char *quant, enum lf_st_dtype scales,
                    enum fault fault)
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
    load(r, s, scales, fault);
    write_weights(r, dir);
    lf_st_close(s);
    json_decref(o);
    free(from);
    free(config);
    free(to);
    return dir;
}

void drop(struct release *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->w[i].data);
}

float scale_at(const struct weight *w, int64_t i)
{
    const struct weight *s = w + 1;
    const int64_t at =
        s->elems == 1 ? 0
                      : i / w->shape[1] / ROWS * blocks(w->shape[1], COLS) + i % w->shape[1] / COLS;
    float x;
    uint32_t u;
    if (s->dtype == LF_ST_F32)
        return ((const float *)s->data)[at];
    if (s->dtype != LF_ST_BF16)
        return (float)ldexp(1, (int)((const uint8_t *)s->data)[at] - 127);
    u = (uint32_t)((const uint16_t *)s->data)[at] << 16;
    memcpy(&x, &u, 4);
    return x;
}
