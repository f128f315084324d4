/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases whose experts are 4-bit floats in blocks: values against transformers' own (golden
 * files, tests/golden/mxfp4) and by plain loops over any range of elements, what an import and an
 * export make of them, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/convert.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

static void *need(void *p)
{
    return p ? p : (tap_bail("no memory"), p);
}

static char *join(const char *a, const char *b)
{
    lf_err err = LF_ERR_INIT;
    return need(lf_path_join(a, b, &err));
}

static char *golden(const char *name)
{
    const char *src = getenv("LF_SRCDIR");
    char *dir = join(src ? src : ".", "tests/golden/mxfp4"), *path = join(dir, name);
    free(dir);
    return path;
}

static lf_st *open_set(const char *path)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    if (lf_st_open(&s, path, &err))
        tap_bail("%s: %s", path, err.text);
    return s;
}

/* All of a tensor; *e becomes its entry. */
static void *read_all(const lf_st *s, const char *name, const lf_st_entry **e)
{
    lf_err err = LF_ERR_INIT;
    *e = lf_st_find(s, name);
    if (!*e)
        tap_bail("no tensor %s", name);
    void *data = need(malloc((size_t)(*e)->bytes + 1));
    if (lf_st_read(s, *e, 0, (*e)->elems, data, &err))
        tap_bail("%s: %s", name, err.text);
    return data;
}

/* Number k of 4 bits, by the definition of e2m1, times 2^(scale - 127), as bf16. */
static uint16_t value(unsigned k, unsigned scale)
{
    const unsigned e = k >> 1 & 3, m = k & 1;
    const double x = e ? ldexp(2 + m, (int)e - 2) : 0.5 * m;
    const float f = scale == 255 ? NAN : (float)ldexp(k & 8 ? -x : x, (int)scale - 127);
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)(u >> 16); /* nothing is lost */
}

/* ---- values ---- */

static void test_values(void)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *e, *w;
    char *path = golden("all"), *want_path = golden("expected.safetensors");
    lf_st *s = open_set(path), *x = open_set(want_path);
    tap_rc(lf_st_unpack_mxfp4(s, "_blocks", "_scales", &err), 0, &err, NULL, "scales are found");
    uint16_t *got = read_all(s, "all_blocks", &e), *want = read_all(x, "all.values", &w);
    tap_ok(lf_st_n_entries(s) == 1 && e->dtype == LF_ST_BF16 && e->ndim == 3 &&
               e->shape[1] == 255 && e->shape[2] == 32,
           "a tensor of bf16, and none of scales");
    tap_ok(e->bytes == w->bytes && memcmp(got, want, (size_t)e->bytes) == 0,
           "each of 255 exponents with each number has the bits of transformers");
    got[4711] ^= 1;
    tap_ok(memcmp(got, want, (size_t)e->bytes) != 0, "one flipped bit is found");
    free(got);
    free(want);
    lf_st_close(s);
    lf_st_close(x);
    free(path);
    free(want_path);
}

/* Writes blocks [E, R, n, 16] and their scales, of any bytes, as a set of their own. */
static char *write_packed(const char *name, const int64_t shape[4], uint8_t *blocks,
                          uint8_t *scales)
{
    lf_err err = LF_ERR_INIT;
    char *dir = join(tap_tmpdir(), name);
    const int64_t n = shape[0] * shape[1] * shape[2];
    lf_st_decl d[2] = {{.name = "w_blocks", .dtype = LF_ST_U8, .ndim = 4},
                       {.name = "w_scales", .dtype = LF_ST_U8, .ndim = 3}};
    uint64_t seed = 5;
    memcpy(d[0].shape, shape, 4 * sizeof *shape);
    memcpy(d[1].shape, shape, 3 * sizeof *shape);
    for (int64_t i = 0; i < 17 * n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        *(i < n ? scales + i : blocks + i - n) = (uint8_t)(seed >> 40);
    }
    scales[0] = 255;
    scales[n - 1] = 0;
    lf_st_writer *w = NULL;
    if (mkdir(dir, 0777) || lf_st_writer_create(&w, dir, d, 2, NULL, &err))
        tap_bail("%s: %s", dir, err.text);
    for (size_t k; (k = lf_st_writer_next(w)) < 2;)
        if (lf_st_writer_put(w, k ? scales : blocks, (size_t)(k ? n : 16 * n), &err))
            tap_bail("%s", err.text);
    if (lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s", err.text);
    lf_st_writer_destroy(w);
    return dir;
}

/* Every range of elements. NaN: any. */
static void test_ranges(void)
{
    enum { N = 2 * 3 * 2 };
    const int64_t shape[4] = {2, 3, 2, 16};
    uint8_t blocks[16 * N], scales[N];
    uint16_t got[32 * N + 1];
    char *dir = write_packed("ranges", shape, blocks, scales);
    lf_err err = LF_ERR_INIT;
    lf_st *s = open_set(dir);
    int64_t wrong = 0, ranges = 0;
    if (lf_st_unpack_mxfp4(s, "_blocks", "_scales", &err))
        tap_bail("%s", err.text);
    const lf_st_entry *e = lf_st_find(s, "w_blocks");
    for (int64_t a = 0; e && a < 32 * N; a++)
        for (int64_t n = 1; a + n <= 32 * N; n++, ranges++) {
            got[n] = 0xabcd;
            int rc = lf_st_read(s, e, a, n, got, &err);
            for (int64_t i = a; i < a + n && rc == 0; i++) {
                const uint16_t want = value(blocks[i / 2] >> (i % 2 ? 4 : 0) & 15, scales[i / 32]);
                rc = scales[i / 32] == 255 ? (got[i - a] & 0x7fff) <= 0x7f80 : got[i - a] != want;
            }
            wrong += rc != 0 || got[n] != 0xabcd;
        }
    tap_ok(ranges > 70000 && !wrong,
           "%lld ranges: as the loops say, and nothing behind (%lld wrong)", (long long)ranges,
           (long long)wrong);
    tap_ok(e && lf_st_read(s, e, 32 * N - 1, 2, got, &err) == LF_EINVAL,
           "a range beyond the tensor is refused");
    lf_st_close(s);
    free(dir);
}

/* ---- a release ---- */

static int n_told;

static void hear(void *arg, const char *text)
{
    (void)arg;
    n_told += strstr(text, "mxfp4") != NULL;
}

/* The same bytes, of the tensors of x that are in y. */
static int64_t same(const lf_st *x, const lf_st *y)
{
    int64_t n = 0;
    for (size_t i = 0; i < lf_st_n_entries(x); i++) {
        const lf_st_entry *a = lf_st_entry_at(x, i), *b = lf_st_find(y, a->name);
        if (!b)
            continue;
        void *u = read_all(x, a->name, &a), *v = read_all(y, b->name, &b);
        n += a->dtype == LF_ST_BF16 && b->dtype == LF_ST_BF16 && a->ndim == b->ndim &&
             memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0 &&
             memcmp(u, v, (size_t)a->bytes) == 0;
        free(u);
        free(v);
    }
    return n;
}

static void test_release(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_convert_result res;
    char *dir = golden("release"), *want = golden("expected.safetensors"),
         *out = join(tap_tmpdir(), "ckpt"), *back = join(tap_tmpdir(), "back"),
         *again = join(tap_tmpdir(), "again"), *json = join(back, "config.json");
    struct lf_convert_opts o = {.from = dir, .out = out, .threads = 2, .warn = hear};
    json_t *seen = lf_convert_inspect(dir, LF_PARTS_ALL, &err);
    const char *mapping = json_string_value(json_object_get(seen, "mapping"));
    tap_str(mapping ? mapping : "none", "complete", "inspect knows the release");
    json_decref(seen);
    tap_rc(lf_convert_import(&o, &res, &err), 0, &err, NULL, "it comes in");
    tap_i64(n_told, 1, "and the user is told that its weights become bf16");
    o = (struct lf_convert_opts){.from = out, .out = back, .threads = 1, .pad_token = -1};
    tap_rc(lf_convert_export(&o, &res, &err), 0, &err, NULL, "it goes out");
    json_t *config = lf_json_load_file(json, 1 << 20, &err);
    tap_ok(config && !json_object_get(config, "quantization_config"),
           "config.json of the export speaks of no quantisation");
    lf_st *s = open_set(back), *from = open_set(dir), *x = open_set(want);
    tap_i64((int64_t)lf_st_n_entries(s), (int64_t)lf_st_n_entries(from) - 2,
            "and its experts are bf16, without scales");
    tap_i64(same(x, s), 2, "with the bytes that transformers unpacks");
    tap_i64(same(from, s), (int64_t)lf_st_n_entries(from) - 4,
            "whatever else there is has the bytes of the release");
    o = (struct lf_convert_opts){.from = back, .out = again, .threads = 1};
    tap_ok(lf_convert_import(&o, &res, &err) == 0 && res.tensors > 0, "the export comes in again");
    lf_st_close(s);
    lf_st_close(from);
    lf_st_close(x);
    json_decref(config);
    char *made[] = {dir, want, out, back, again, json};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        free(made[i]);
}

/* ---- refusals ---- */

/* The tensors of the release, one of them of another shape, type or name. */
static char *write_bad(int which, const char *name, const char *as, enum lf_st_dtype type, int ndim,
                       const int64_t *shape)
{
    lf_err err = LF_ERR_INIT;
    char leaf[32], *from = golden("release"), *config = golden("release/config.json");
    lf_st_decl d[40];
    lf_st_writer *w = NULL;
    lf_st *s = open_set(from);
    snprintf(leaf, sizeof leaf, "bad-%d", which);
    char *dir = join(tap_tmpdir(), leaf), *to = join(dir, "config.json");
    json_t *o = lf_json_load_file(config, 1 << 20, &err);
    size_t n = lf_st_n_entries(s);
    for (size_t i = 0; i < n; i++) {
        const lf_st_entry *e = lf_st_entry_at(s, i);
        const bool bad = strcmp(e->name, name) == 0;
        d[i] = (lf_st_decl){.name = bad ? as : e->name,
                            .dtype = bad ? type : e->dtype,
                            .ndim = bad ? ndim : e->ndim};
        memcpy(d[i].shape, bad ? shape : e->shape, (size_t)d[i].ndim * sizeof *shape);
    }
    if (!o || mkdir(dir, 0777) || json_dump_file(o, to, 0) ||
        lf_st_writer_create(&w, dir, d, n, NULL, &err))
        tap_bail("%s: %s", dir, err.text);
    for (size_t k; (k = lf_st_writer_next(w)) < n;) {
        size_t bytes = lf_st_dtype_bytes(d[k].dtype);
        for (int i = 0; i < d[k].ndim; i++)
            bytes *= (size_t)d[k].shape[i];
        void *zeros = need(calloc(bytes + 1, 1));
        if (lf_st_writer_put(w, zeros, bytes, &err))
            tap_bail("%s", err.text);
        free(zeros);
    }
    if (lf_st_writer_finish(w, NULL, NULL, &err))
        tap_bail("%s", err.text);
    lf_st_writer_destroy(w);
    lf_st_close(s);
    json_decref(o);
    free(from);
    free(config);
    free(to);
    return dir;
}

#define UP "model.layers.0.mlp.experts.gate_up_proj"
static void test_refusals(void)
{
    static const struct {
        const char *name, *as;
        enum lf_st_dtype type;
        int ndim;
        int64_t shape[5];
        const char *text;
    } rows[] = {
        {UP "_scales", UP "_other", LF_ST_U8, 3, {3, 128, 1}, "has no scales"},
        {UP "_scales", UP "_scales", LF_ST_U8, 3, {3, 127, 1}, "with one scale for each block"},
        {UP "_scales", UP "_scales", LF_ST_U8, 2, {3, 128}, "with one scale for each block"},
        {UP "_scales", UP "_scales", LF_ST_I8, 3, {3, 128, 1}, "with one scale for each block"},
        {UP "_blocks", UP "_blocks", LF_ST_U8, 4, {3, 128, 1, 15}, "is no U8 tensor of blocks"},
        {UP "_blocks", UP "_blocks", LF_ST_I8, 4, {3, 128, 1, 16}, "is no U8 tensor of blocks"},
        {UP "_blocks", UP "_blocks", LF_ST_U8, 1, {16}, "is no U8 tensor of blocks"},
        {UP "_blocks", UP, LF_ST_BF16, 3, {3, 32, 128}, UP "_scales"},
        {UP "_bias", UP "_bias", LF_ST_BF16, 2, {3, 127}, UP "_bias"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lf_convert_result res;
        lf_err err = LF_ERR_INIT;
        char *dir = write_bad((int)i, rows[i].name, rows[i].as, rows[i].type, rows[i].ndim,
                              rows[i].shape),
             *out = join(dir, "out");
        struct lf_convert_opts o = {.from = dir, .out = out, .threads = 1};
        const int rc = lf_convert_import(&o, &res, &err);
        tap_ok(rc < 0 && strstr(err.text, rows[i].text) && !lf_io_exists(out), "refused: %s: %s",
               rows[i].text, err.text);
        free(dir);
        free(out);
    }
}

/* A file that ends early is refused when it is opened. */
static void test_truncated(void)
{
    lf_err err = LF_ERR_INIT;
    lf_buf text;
    lf_buf_init(&text);
    char *from = golden("release/model.safetensors"), *dir = join(tap_tmpdir(), "short"),
         *to = join(dir, "model.safetensors");
    lf_st *s = NULL;
    if (mkdir(dir, 0777) || lf_io_read_file(from, 1 << 20, &text, &err) ||
        lf_io_write_file(to, text.data, text.len - 1, 0644, &err))
        tap_bail("%s", err.text);
    tap_ok(lf_st_open(&s, dir, &err) < 0 && !s, "a file that lacks a byte: %s", err.text);
    lf_buf_fini(&text);
    free(from);
    free(dir);
    free(to);
}

int main(void)
{
    TAP(4, test_values());
    TAP(2, test_ranges());
    TAP(9, test_release());
    TAP(9, test_refusals());
    TAP(1, test_truncated());
    return tap_done();
}
