/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of several writers: one identity however the tensors were cut, any cut read from any
 * other, what does not fit together is refused by name, a part that fails harms no other.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/rng.h"
#include "engine/store/ckpt.h"
#include "tests/tap/tap.h"

#define N_TENSORS 7
#define MAX_PARTS 8
#define RUN       0xfeedbeef12345678u

/* Large: leaves in eighths of rows and columns, experts of their own, nothing divides, no columns.
 * The others are one leaf each. */
static const lf_ckpt_entry model[N_TENSORS] = {
    {"model/up.weight", "master", LF_H5_F32, 2, {1280, 1024}},
    {"model/experts", "master", LF_H5_BF16, 3, {2, 1032, 1024}},
    {"model/odd", "master", LF_H5_BF16, 2, {1041, 1009}},
    {"model/long", "adam_v", LF_H5_U8, 1, {1100000}},
    {"model/small", "adam_m", LF_H5_F32, 2, {37, 24}},
    {"model/norm", "weight", LF_H5_F32, 1, {1}},
    {"model/three", "weight", LF_H5_F32, 3, {4, 6, 8}}};
static unsigned char *memory[N_TENSORS];
static lf_err err;

static const char *at(const char *name)
{
    static char path[4][4096];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", tap_tmpdir(), name);
    return path[k];
}

static int64_t elements(const lf_ckpt_entry *e)
{
    int64_t n = 1;
    for (int k = 0; k < e->ndim; k++)
        n *= e->shape[k];
    return n;
}

static void make_memory(void)
{
    for (int i = 0; i < N_TENSORS; i++) {
        size_t n = (size_t)elements(&model[i]) * lf_h5_type_bytes(model[i].dtype);
        memory[i] = malloc(n + 8);
        for (size_t k = 0; k < n; k += 4) {
            uint32_t x = (uint32_t)(k * 2654435761u + (size_t)i * 40503u);
            x ^= x >> 15;
            memcpy(memory[i] + k, &x, 4);
        }
    }
}

/* ---- cuts ---- */

enum how { ROWS_FLAT, COLUMNS, ANYWHERE, BOTH, BANDS, N_HOW };
struct cut {
    enum how how;
    int parts;
    int64_t split; /* leaves: 0 none, 1 some */
};
static const struct cut cuts[] = {{ROWS_FLAT, 1, 0}, {ROWS_FLAT, 2, 0}, {ROWS_FLAT, 3, 0},
                                  {ROWS_FLAT, 8, 0}, {COLUMNS, 2, 0},   {COLUMNS, 8, 0},
                                  {BOTH, 4, 0},      {BOTH, 8, 0},      {BANDS, 2, 0},
                                  {BANDS, 4, 0},     {ANYWHERE, 3, 1},  {ANYWHERE, 4, 1}};
#define N_CUTS (sizeof cuts / sizeof *cuts)

/* Columns (the last dimension) k of n, or 1: large tensors alone, small ones have one owner. */
static bool cut_columns(lf_ckpt_tensor *t, int k, int n)
{
    int64_t last = t->shape[t->ndim - 1];
    if (t->ndim < 2 || last % n || last < 1000)
        return false;
    t->lo[t->ndim - 1] = last / n * k;
    t->hi[t->ndim - 1] = last / n * (k + 1);
    for (int d = 0; d < t->ndim - 1; d++)
        t->hi[d] = t->shape[d];
    return true;
}

/* Share k of n of the elements of the box; false: it is empty. */
static bool cut_flat(lf_ckpt_tensor *t, int k, int n, bool anywhere)
{
    bool boxed = t->hi[0] != 0;
    int64_t volume = 1;
    for (int d = 0; d < t->ndim; d++)
        volume *= boxed ? t->hi[d] - t->lo[d] : t->shape[d];
    for (int i = 0; i < 2; i++) {
        int64_t end = volume * (k + i) / n;
        t->flat[i] = anywhere ? (k + i == 0 || k + i == n || end < 3 ? end : end - 3)
                              : lf_ckpt_cut(t->ndim, t->shape, boxed ? t->lo : NULL,
                                            boxed ? t->hi : NULL, end);
    }
    return t->flat[0] < t->flat[1];
}

/* Does writer `part` have anything of tensor i, and what? */
static bool part_of(const struct cut *c, int part, int i, lf_ckpt_tensor *t)
{
    const lf_ckpt_entry *e = &model[i];
    *t = (lf_ckpt_tensor){.name = e->name, .kind = e->kind, .dtype = e->dtype, .ndim = e->ndim};
    memcpy(t->shape, e->shape, sizeof t->shape);
    bool mine = i % c->parts == part;
    switch (c->how) {
    case ROWS_FLAT:
    case ANYWHERE:
        return cut_flat(t, part, c->parts, c->how == ANYWHERE);
    case COLUMNS:
        return cut_columns(t, part, c->parts) || mine;
    case BOTH: /* two halves of columns, shares of each */
        return cut_columns(t, part % 2, 2) ? cut_flat(t, part / 2, c->parts / 2, false) : mine;
    case BANDS: { /* rows of each expert, or of the matrix */
        int d = t->ndim - 2;
        if (t->ndim < 2 || t->shape[d] % c->parts || t->shape[d] < 1000)
            return mine;
        memcpy(t->hi, t->shape, sizeof t->hi);
        t->lo[d] = t->shape[d] / c->parts * part;
        t->hi[d] = t->shape[d] / c->parts * (part + 1);
        return true;
    }
    case N_HOW:
        break;
    }
    return false;
}

/* The elements of a part, taken from memory row by row. Owned. */
static unsigned char *take(const lf_ckpt_tensor *t, const unsigned char *from, size_t *bytes)
{
    int64_t lo[LF_CKPT_MAX_DIMS], n[LF_CKPT_MAX_DIMS], volume = 1, flat[2];
    size_t elem = lf_h5_type_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        lo[d] = t->hi[0] ? t->lo[d] : 0;
        n[d] = t->hi[0] ? t->hi[d] - t->lo[d] : t->shape[d];
        volume *= n[d];
    }
    flat[0] = t->flat[0];
    flat[1] = t->flat[1] ? t->flat[1] : volume;
    *bytes = (size_t)(flat[1] - flat[0]) * elem;
    unsigned char *out = malloc(*bytes ? *bytes : 1);
    const int64_t cols = n[t->ndim - 1];
    for (int64_t row = flat[0] / cols; row * cols < flat[1]; row++) {
        int64_t left = row, index = 0, stride = t->shape[t->ndim - 1],
                a = row * cols > flat[0] ? row * cols : flat[0],
                b = (row + 1) * cols < flat[1] ? (row + 1) * cols : flat[1];
        for (int d = t->ndim - 2; d >= 0; d--) {
            index += (lo[d] + left % n[d]) * stride;
            left /= n[d];
            stride *= t->shape[d];
        }
        index += lo[t->ndim - 1] + (a - row * cols);
        memcpy(out + (size_t)(a - flat[0]) * elem, from + (size_t)index * elem,
               (size_t)(b - a) * elem);
    }
    return out;
}

/* ---- saving ---- */

static json_t *state_at(int step)
{
    return json_pack("{s:i, s:b}", "step", step, "ended", 1);
}

struct writer {
    lf_ckpt_writer *w;
    lf_ckpt_tensor t[N_TENSORS];
    size_t n;
    void *arena;
};

static void writer_open(struct writer *w, const struct cut *c, int part)
{
    size_t bytes;
    *w = (struct writer){.n = 0};
    for (int i = 0; i < N_TENSORS; i++)
        if (part_of(c, part, i, &w->t[w->n])) {
            w->t[w->n].data = take(&w->t[w->n], memory[i], &bytes);
            w->n++;
        }
    bytes = lf_ckpt_snapshot_bytes(w->t, w->n);
    w->arena = aligned_alloc(64, bytes ? bytes : 64);
    const lf_ckpt_options o = {.arena = w->arena,
                               .threads = 1 + part % 2,
                               .part = part,
                               .parts = c->parts,
                               .run = RUN,
                               .file_bytes = part == 2 ? 300000 : 0,
                               .piece_bytes = part == 2 ? 200000 : 0};
    if (lf_ckpt_writer_create(&w->w, w->t, w->n, &o, &err) < 0)
        tap_bail("%s", err.text);
}

static void writer_close(struct writer *w)
{
    lf_ckpt_writer_destroy(w->w);
    for (size_t i = 0; i < w->n; i++)
        free((void *)(uintptr_t)w->t[i].data);
    free(w->arena);
}

/* All parts of a save, in the background and at the same time; 0 or the first failure. */
static int save_parts(struct writer *w, int parts, const char *dir, int step)
{
    json_t *state = state_at(step);
    int rc = 0;
    for (int i = 0; i < parts && rc == 0; i++)
        rc = lf_ckpt_save_begin(w[i].w, dir, state, &err);
    for (int i = 0; i < parts; i++) {
        int one = lf_ckpt_save_wait(w[i].w, NULL, rc < 0 ? NULL : &err);
        rc = rc < 0 ? rc : one < 0 ? one : 0;
    }
    json_decref(state);
    return rc;
}

static int publish(struct writer *w, int parts, const char *dir, int step, lf_ckpt_result *res)
{
    const char *receipts[MAX_PARTS];
    json_t *state = state_at(step);
    for (int i = 0; i < parts; i++)
        receipts[i] = lf_ckpt_save_receipt(w[parts - 1 - i].w);
    int rc = lf_ckpt_publish(dir,
                             &(struct lf_ckpt_parts){.receipts = receipts,
                                                     .n = (size_t)parts,
                                                     .state = state,
                                                     .tensors = model,
                                                     .n_tensors = N_TENSORS,
                                                     .threads = 1},
                             res, &err);
    json_decref(state);
    return rc;
}

static const char *dir_of(size_t cut)
{
    char name[32];
    snprintf(name, sizeof name, "cut%zu", cut);
    return at(name);
}

static int save_cut(const struct cut *c, const char *dir, lf_ckpt_result *res)
{
    struct writer w[MAX_PARTS];
    json_t *state = state_at(5);
    int rc = 0;
    for (int i = 0; i < c->parts; i++)
        writer_open(&w[i], c, i);
    if (c->parts == 1) {
        rc = lf_ckpt_save_begin(w[0].w, dir, state, &err);
        rc = rc < 0 ? rc : lf_ckpt_save_wait(w[0].w, res, &err) == 1 ? 0 : -1;
    } else if ((rc = save_parts(w, c->parts, dir, 5)) == 0) {
        rc = publish(w, c->parts, dir, 5, res);
    }
    json_decref(state);
    for (int i = 0; i < c->parts; i++)
        writer_close(&w[i]);
    return rc;
}

static void test_identity(void)
{
    lf_ckpt_result first = {0}, r;
    for (size_t i = 0; i < N_CUTS; i++) {
        r = (lf_ckpt_result){0};
        tap_rc(save_cut(&cuts[i], dir_of(i), &r), 0, &err, NULL, "a save in parts");
        if (i == 0)
            first = r;
        tap_mem(r.identity, first.identity, LF_HASH_BYTES, "one identity for every cut");
        tap_ok((r.split_leaves > 0) == (cuts[i].split > 0), "%lld leaves were split between parts",
               (long long)r.split_leaves);
    }
    /* The form of the identity is for good. */
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, first.identity);
    tap_str(hex, "511479a85edc6d136ef0c48e35dd412bdab9762a5f1e4a01f22c11c553510fb9",
            "the identity of these tensors");
    memory[2][77] ^= 1;
    save_cut(&cuts[4], at("other"), &r);
    memory[2][77] ^= 1;
    tap_ok(memcmp(r.identity, first.identity, LF_HASH_BYTES) != 0, "one bit changes it");
}

/* ---- reading ---- */

/* Parts of cut `by` read from an open checkpoint. */
static int64_t read_by(const lf_ckpt *c, const struct cut *by)
{
    int64_t bad = 0;
    for (int part = 0; part < by->parts; part++)
        for (int i = 0; i < N_TENSORS; i++) {
            lf_ckpt_tensor t;
            size_t bytes;
            if (!part_of(by, part, i, &t))
                continue;
            const lf_ckpt_entry *e = lf_ckpt_find(c, model[i].name, model[i].kind);
            unsigned char *want = take(&t, memory[i], &bytes), *got = calloc(1, bytes);
            bool boxed = t.hi[0] != 0;
            bad += !e ||
                   lf_ckpt_read_part(c, e, boxed ? t.lo : NULL, boxed ? t.hi : NULL,
                                     t.flat[1] ? t.flat : NULL, got, &err) < 0 ||
                   memcmp(want, got, bytes) != 0;
            free(want);
            free(got);
        }
    return bad;
}

static void test_reading(void)
{
    for (size_t i = 0; i < N_CUTS; i++) {
        enum lf_ckpt_check mode = i % 3 == 0   ? LF_CKPT_CHECK_ALL
                                  : i % 3 == 1 ? LF_CKPT_CHECK_STRUCTURE
                                               : LF_CKPT_CHECK_READS;
        lf_ckpt *c = NULL;
        int64_t bad = 0;
        if (lf_ckpt_open_checked(&c, dir_of(i), mode, 1, &err) < 0)
            tap_bail("%s", err.text);
        for (size_t k = 0; k < N_CUTS; k++)
            bad += read_by(c, &cuts[k]);
        tap_i64(bad, 0, "every cut read from what another has written");
        tap_i64(lf_ckpt_identity_version(c), 2, "the identity's form");
        tap_ok(json_is_true(json_object_get(lf_ckpt_state(c), "ended")),
               "the state is the publisher's");
        lf_ckpt_close(c);
    }
    lf_ckpt *c = NULL;
    int64_t flat[2] = {3, 24 * 37 + 1};
    unsigned char byte[8];
    if (lf_ckpt_open_checked(&c, dir_of(6), LF_CKPT_CHECK_READS, 1, &err) < 0)
        tap_bail("%s", err.text);
    const lf_ckpt_entry *e = lf_ckpt_find(c, "model/small", "adam_m");
    tap_rc(lf_ckpt_read_part(c, e, NULL, NULL, flat, byte, &err), LF_EINVAL, &err, "888",
           "a range beyond the box");
    lf_ckpt_close(c);
}

/* Where ranges may end: nearest, in order, whole leaves. */
static void test_cut(void)
{
    const int64_t up[2] = {1280, 1024}, lo[2] = {0, 512}, hi[2] = {1280, 1024}, small[2] = {37, 24};
    tap_i64(lf_ckpt_cut(2, small, NULL, NULL, 400), 0, "a small tensor has one owner");
    tap_i64(lf_ckpt_cut(2, small, NULL, NULL, 500), 888, "the nearer end is its");
    tap_i64(lf_ckpt_cut(2, up, NULL, NULL, 1280 * 1024 / 3), 480 * 1024, "whole row blocks");
    tap_i64(lf_ckpt_cut(2, up, lo, hi, 1280 * 512 / 3), 480 * 512, "the same rows of a box");
    tap_i64(lf_ckpt_cut(2, up, NULL, NULL, 80 * 1024), 0, "the lower one of two");
    int64_t bad = 0, before = 0;
    for (int64_t i = 0; i <= 1280 * 1024; i += 333) {
        int64_t to = lf_ckpt_cut(2, up, NULL, NULL, i);
        bad += to < before || to % (160 * 1024) != 0;
        before = to;
    }
    tap_i64(bad, 0, "ends of shares are in order");
}

/* ---- what is refused ---- */

/* Two writers of two tensors of 40 numbers, whose second part is what the caller says. */
static int try_pair(const char *dir, const lf_ckpt_tensor *second, size_t n, const char **receipts)
{
    static float x[40];
    static struct writer w[2];
    static bool used;
    json_t *state = state_at(1);
    lf_ckpt_tensor first = {.name = "t/a",
                            .kind = "weight",
                            .dtype = LF_H5_F32,
                            .ndim = 2,
                            .shape = {4, 10},
                            .flat = {0, 17},
                            .data = x};
    for (int i = 0; i < 2; i++) {
        const lf_ckpt_options o = {.part = i, .parts = 2, .run = RUN};
        if (used)
            lf_ckpt_writer_destroy(w[i].w);
        if (lf_ckpt_writer_create(&w[i].w, i ? second : &first, i ? n : 1, &o, &err) < 0 ||
            lf_ckpt_save_begin(w[i].w, dir, state, &err) < 0 ||
            lf_ckpt_save_wait(w[i].w, NULL, &err) != 1)
            tap_bail("%s", err.text);
        receipts[i] = lf_ckpt_save_receipt(w[i].w);
    }
    used = true;
    json_decref(state);
    return 0;
}

static int publish_texts(const char *dir, const char **receipts, size_t n)
{
    json_t *state = state_at(1);
    lf_err_clear(&err);
    int rc = lf_ckpt_publish(
        dir, &(struct lf_ckpt_parts){.receipts = receipts, .n = n, .state = state}, NULL, &err);
    json_decref(state);
    return rc;
}

static void test_tiling(void)
{
    static float x[40];
    static const struct {
        enum lf_h5_type dtype;
        int64_t shape[2], lo[2], hi[2], flat[2];
        const char *want;
    } v[] = {
        {LF_H5_F32, {4, 10}, {0, 0}, {0, 0}, {18, 40}, "t/a (weight): piece 1 does not follow"},
        {LF_H5_F32, {4, 10}, {0, 0}, {0, 0}, {16, 40}, "t/a (weight): piece 1 does not follow"},
        {LF_H5_F32, {4, 10}, {0, 0}, {0, 0}, {17, 39}, "t/a (weight): elements from 39 on"},
        {LF_H5_F32, {4, 10}, {1, 0}, {4, 10}, {0, 0}, "t/a (weight): elements from 17 on"},
        {LF_H5_I32, {4, 10}, {0, 0}, {0, 0}, {17, 40}, "not of one type and shape"},
        {LF_H5_F32, {10, 4}, {0, 0}, {0, 0}, {17, 40}, "not of one type and shape"}};
    const char *receipts[2];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        lf_ckpt_tensor t = {.name = "t/a",
                            .kind = "weight",
                            .dtype = v[i].dtype,
                            .ndim = 2,
                            .shape = {v[i].shape[0], v[i].shape[1]},
                            .lo = {v[i].lo[0], v[i].lo[1]},
                            .hi = {v[i].hi[0], v[i].hi[1]},
                            .flat = {v[i].flat[0], v[i].flat[1]},
                            .data = x};
        try_pair(at("tiling"), &t, 1, receipts);
        tap_rc(publish_texts(at("tiling"), receipts, 2), LF_EFORMAT, &err, v[i].want, "no tiling");
        tap_ok(access(at("tiling/manifest.json"), F_OK) != 0 &&
                   access(at("tiling/state.json"), F_OK) != 0 &&
                   access(at("tiling/data-00001-00000.h5"), F_OK) == 0,
               "nothing is published, the parts stay");
    }
    /* And what is one: the rest, by a writer that has nothing else. */
    lf_ckpt_tensor t = {.name = "t/a",
                        .kind = "weight",
                        .dtype = LF_H5_F32,
                        .ndim = 2,
                        .shape = {4, 10},
                        .flat = {17, 40},
                        .data = x};
    try_pair(at("tiling"), &t, 1, receipts);
    tap_rc(publish_texts(at("tiling"), receipts, 2), 0, &err, NULL, "the rest");
    tap_rc(publish_texts(at("tiling"), receipts, 2), LF_EEXIST, &err, "already", "but once");
    tap_rc(lf_ckpt_discard(at("tiling"), &err), LF_EEXIST, &err, "already",
           "a checkpoint is not discarded");
}

/* A receipt with one member changed. Owned. */
static char *changed(const char *receipt, const char *key, json_t *value)
{
    json_t *o = json_loads(receipt, 0, NULL);
    json_object_set_new(o, key, value);
    char *text = json_dumps(o, 0);
    json_decref(o);
    return text;
}

static void refuse_changed(const char *dir, const char **good, const char *key, json_t *value,
                           const char *want)
{
    char *text = changed(good[1], key, value);
    const char *receipts[2] = {good[0], text};
    tap_rc(publish_texts(dir, receipts, 2), LF_EFORMAT, &err, want, key);
    free(text);
}

static void test_receipts(void)
{
    static float x[40];
    const char *good[2], *receipts[3];
    char dir[4096];
    lf_ckpt_tensor t[2] = {
        {.name = "t/a",
         .kind = "weight",
         .dtype = LF_H5_F32,
         .ndim = 2,
         .shape = {4, 10},
         .flat = {17, 40},
         .data = x},
        {.name = "t/b", .kind = "weight", .dtype = LF_H5_F32, .ndim = 1, .shape = {3}, .data = x}};
    snprintf(dir, sizeof dir, "%s", at("receipts"));
    try_pair(dir, t, 2, good);
    tap_rc(publish_texts(dir, good, 1), LF_EFORMAT, &err, "1 receipts", "a missing receipt");
    receipts[0] = good[0];
    receipts[1] = NULL;
    tap_rc(publish_texts(dir, receipts, 2), LF_EINVAL, &err, "receipt 1 of 2", "one that failed");
    receipts[0] = receipts[1] = good[1];
    tap_rc(publish_texts(dir, receipts, 2), LF_EFORMAT, &err, "part 1 of 2 twice", "one twice");
    tap_rc(publish_texts(at("elsewhere"), good, 2), LF_EFORMAT, &err, "another save",
           "another place");
    refuse_changed(dir, good, "run", json_string("0000000000000001"), "part 1 is of another save");
    refuse_changed(dir, good, "saves", json_integer(2), "part 1 is of another save");
    refuse_changed(dir, good, "step", json_integer(2), "part 1 is of another save");
    refuse_changed(dir, good, "parts", json_integer(3), "2 receipts, that of part 1 of 3");
    refuse_changed(dir, good, "part", json_integer(7), "part 7 of 2");
    refuse_changed(dir, good, "files", json_array(), "does not list");
    refuse_changed(dir, good, "tensors", json_array(), "elements from 17 on");
    /* Hashes that are not those of the part's leaves: t/b is whole in it, so it has one. */
    json_t *o = json_loads(good[1], 0, NULL), *list = json_object_get(o, "tensors");
    json_object_set_new(json_array_get(list, 1), "leaves", json_string(""));
    refuse_changed(dir, good, "tensors", json_incref(list), "t/b (weight): 0 hashes of leaves");
    json_decref(o);
    o = json_loads(good[1], 0, NULL);
    list = json_object_get(o, "tensors");
    json_t *last = json_array_get(list, 1);
    char hash[80];
    snprintf(hash, sizeof hash, "%s0", json_string_value(json_object_get(last, "leaves")));
    json_object_set_new(last, "leaves", json_string(hash));
    refuse_changed(dir, good, "tensors", json_incref(list), "no whole number of hashes");
    json_decref(o);
    /* A tensor that no part has, one that the model has not, one of another shape. */
    json_t *state = state_at(1);
    lf_ckpt_entry want[3] = {{"t/a", "weight", LF_H5_F32, 2, {4, 10}},
                             {"t/b", "weight", LF_H5_F32, 1, {3}},
                             {"t/c", "weight", LF_H5_F32, 1, {3}}};
    struct lf_ckpt_parts p = {
        .receipts = good, .n = 2, .state = state, .tensors = want, .n_tensors = 3};
    tap_rc(lf_ckpt_publish(dir, &p, NULL, &err), LF_EFORMAT, &err, "t/c (weight) is in no part",
           "a tensor that is missing");
    p.n_tensors = 1;
    tap_rc(lf_ckpt_publish(dir, &p, NULL, &err), LF_EFORMAT, &err, "t/b (weight) is none",
           "one too many");
    p.n_tensors = 2;
    want[1].shape[0] = 4;
    tap_rc(lf_ckpt_publish(dir, &p, NULL, &err), LF_EFORMAT, &err, "type and shape",
           "another shape");
    json_decref(state);
    /* Text that is cut or damaged is an error of the receipt, or changes what a member says. */
    int64_t accepted = 0;
    char *text = strdup(good[1]);
    for (size_t i = 0; i + 1 < strlen(good[1]); i += 7) {
        text[i] = 0;
        receipts[0] = good[0];
        receipts[1] = text;
        accepted += publish_texts(dir, receipts, 2) >= 0;
        text[i] = good[1][i];
    }
    free(text);
    tap_i64(accepted, 0, "no receipt that is cut short is accepted");
    tap_rc(lf_ckpt_discard(dir, &err), 0, &err, NULL, "what is there is discarded");
    tap_ok(access(dir, F_OK) != 0, "with its directory");
}

/* ---- damage ---- */

static void patch(const char *path, int64_t offset)
{
    char byte;
    int fd = open(path, O_RDWR);
    if (fd < 0 || pread(fd, &byte, 1, offset) != 1)
        tap_bail("read %s", path);
    byte ^= 4;
    if (pwrite(fd, &byte, 1, offset) != 1)
        tap_bail("write %s", path);
    close(fd);
}

static void test_damage(void)
{
    const struct cut *by = &cuts[5]; /* eighths of columns */
    char dir[4096], path[4200];
    lf_ckpt *c = NULL;
    int64_t lo[2] = {0, 384}, hi[2] = {1280, 512}; /* part 3 of model/up.weight */
    float *buf = malloc(1280 * 128 * sizeof *buf);
    snprintf(dir, sizeof dir, "%s", dir_of(5));
    snprintf(path, sizeof path, "%s/data-00003-00000.h5", dir);
    struct stat st;
    if (stat(path, &st) < 0)
        tap_bail("stat %s", path);
    patch(path, st.st_size - 5000); /* the last tensor in it is model/up.weight */
    tap_rc(lf_ckpt_open(&c, dir, 1, &err), LF_EFORMAT, &err, "tensor model/up.weight (master)",
           "opening hashes all of it");
    c = NULL;
    tap_rc(lf_ckpt_open(&c, dir, 1, &err), LF_EFORMAT, &err, "data-00003-00000.h5",
           "and names the file");
    lf_err_clear(&err);
    tap_rc(lf_ckpt_open_checked(&c, dir, LF_CKPT_CHECK_READS, 1, &err), 0, &err, NULL,
           "opening for checked reads does not");
    const lf_ckpt_entry *e = lf_ckpt_find(c, "model/up.weight", "master");
    tap_rc(lf_ckpt_read_part(c, e, lo, hi, NULL, buf, &err), LF_EFORMAT, &err,
           "tensor model/up.weight (master) in data-00003-00000.h5 is damaged", "reading does");
    lo[1] = 512;
    hi[1] = 640;
    tap_rc(lf_ckpt_read_part(c, e, lo, hi, NULL, buf, &err), 0, &err, NULL, "the others are whole");
    lf_ckpt_close(c);
    free(buf);
    patch(path, st.st_size - 5000);
    tap_rc(lf_ckpt_open(&c, dir, 1, &err), 0, &err, NULL, "mended");
    lf_ckpt_close(c);
    snprintf(path, sizeof path, "%s/leaves.bin", dir);
    for (int i = 0; i < 3; i++) {
        patch(path, 32 * 10 + 3);
        c = NULL;
        tap_rc(lf_ckpt_open_checked(&c, dir, (enum lf_ckpt_check)i, 1, &err), LF_EFORMAT, &err,
               "leaves.bin", "a hash of a leaf is damaged");
        lf_ckpt_close(c);
        patch(path, 32 * 10 + 3);
    }
    /* Cut short, before and after publishing. */
    struct writer w[8];
    for (int i = 0; i < by->parts; i++)
        writer_open(&w[i], by, i);
    if (save_parts(w, by->parts, at("cut"), 5) < 0)
        tap_bail("%s", err.text);
    snprintf(path, sizeof path, "%s/data-00006-00000.h5", at("cut"));
    if (stat(path, &st) < 0)
        tap_bail("stat");
    for (int i = 0; i < 4; i++) {
        if (truncate(path, st.st_size * i / 4) < 0)
            tap_bail("truncate");
        tap_rc(publish(w, by->parts, at("cut"), 5, NULL), LF_EFORMAT, &err, "data-00006-00000.h5",
               "a part that is cut short is not published");
    }
    for (int i = 0; i < by->parts; i++)
        writer_close(&w[i]);
    snprintf(path, sizeof path, "%s/data-00006-00000.h5", dir);
    for (int i = 0; i < 3; i++) {
        lo[1] = 768;
        hi[1] = 896;
        float *b = malloc(1280 * 128 * sizeof *b);
        if (truncate(path, st.st_size * i / 3) < 0)
            tap_bail("truncate");
        c = NULL;
        tap_rc(lf_ckpt_open_checked(&c, dir, LF_CKPT_CHECK_STRUCTURE, 1, &err), LF_EFORMAT, &err,
               "data-00006-00000.h5", "a file that is cut short is seen at opening");
        if (lf_ckpt_open_checked(&c, dir, LF_CKPT_CHECK_READS, 1, &err) < 0)
            tap_bail("%s", err.text);
        e = lf_ckpt_find(c, "model/up.weight", "master");
        tap_rc(lf_ckpt_read_part(c, e, lo, hi, NULL, b, &err), LF_EFORMAT, &err,
               "data-00006-00000.h5", "or at the first read of it");
        lf_ckpt_close(c);
        free(b);
    }
}

/* ---- a part that fails ---- */

/* A directory with what earlier starts may have left: more parts, one file, a publisher's files. */
static void leave(const char *dir)
{
    static const char *const names[] = {
        "data-00000.h5", "data-00007-00000.h5", "data-00001-00009.h5", "state.json",
        "index.h5",      "leaves.bin",          "manifest.json.1.tmp"};
    char path[4200];
    if (lf_io_mkdirs(dir, 0750, &err) < 0)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        close(open(path, O_CREAT | O_WRONLY, 0640));
    }
}

static void test_full(void)
{
    const struct cut by = {ROWS_FLAT, 3, 0};
    struct writer w[3];
    struct rlimit old, lim;
    lf_ckpt_result r;
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", at("full/step"));
    for (int i = 0; i < by.parts; i++)
        writer_open(&w[i], &by, i);
    getrlimit(RLIMIT_FSIZE, &old);
    lim = old;
    lim.rlim_cur = 2500000; /* parts 0 and 1 need more, part 2 has files of 300 kB */
    setrlimit(RLIMIT_FSIZE, &lim);
    json_t *state = state_at(5);
    for (int i = 0; i < by.parts; i++)
        if (lf_ckpt_save_begin(w[i].w, dir, state, &err) < 0)
            tap_bail("%s", err.text);
    tap_rc(lf_ckpt_save_wait(w[0].w, NULL, &err), LF_EIO, &err, "data-00000-00000.h5",
           "a disk that is full is told with the file's name");
    tap_ok(lf_ckpt_save_receipt(w[0].w) == NULL, "without a receipt");
    lf_ckpt_save_wait(w[1].w, NULL, &err);
    lf_err_clear(&err);
    tap_rc(lf_ckpt_save_wait(w[2].w, &r, &err), 1, &err, NULL, "another part is durable");
    setrlimit(RLIMIT_FSIZE, &old);
    char path[4200];
    snprintf(path, sizeof path, "%s/data-00000-00000.h5", dir);
    tap_ok(access(path, F_OK) != 0, "what could not be written is removed");
    snprintf(path, sizeof path, "%s/data-00002-00001.h5", dir);
    tap_ok(access(path, F_OK) == 0, "what is durable stays");
    tap_rc(lf_ckpt_discard(dir, &err), 0, &err, NULL, "until who saves gives it up");
    tap_ok(access(dir, F_OK) != 0, "all of it");
    /* The same directory again, with left-overs. */
    leave(dir);
    tap_i64(save_parts(w, by.parts, dir, 5), 0, "the next save");
    tap_rc(publish(w, by.parts, dir, 5, &r), 0, &err, NULL, "is a checkpoint");
    lf_ckpt *c = NULL;
    tap_rc(lf_ckpt_open(&c, dir, 1, &err), 0, &err, NULL, "whole");
    tap_i64(c ? read_by(c, &cuts[0]) : 1, 0, "with the bytes of memory");
    lf_ckpt_close(c);
    snprintf(path, sizeof path, "%s/data-00007-00000.h5", dir);
    tap_ok(access(path, F_OK) != 0, "and nothing of what was left");
    tap_i64(save_parts(w, by.parts, dir, 5), LF_EEXIST, "no part writes into a checkpoint");
    lf_err_clear(&err);
    json_decref(state);
    for (int i = 0; i < by.parts; i++)
        writer_close(&w[i]);
}

static void test_options(void)
{
    lf_ckpt_writer *w = NULL;
    float x[4] = {0};
    lf_ckpt_tensor t = {
        .name = "a", .kind = "weight", .dtype = LF_H5_F32, .ndim = 1, .shape = {4}, .data = x};
    lf_ckpt_options o = {.part = 2, .parts = 2};
    tap_rc(lf_ckpt_writer_create(&w, &t, 1, &o, &err), LF_EINVAL, &err, "part 2 of 2",
           "a part too far");
    o = (lf_ckpt_options){.parts = 2, .resume = {.key = "aa"}};
    tap_rc(lf_ckpt_writer_create(&w, &t, 1, &o, &err), LF_EINVAL, &err, "resume", "no resume");
    o = (lf_ckpt_options){.parts = 2};
    t.flat[1] = 5;
    tap_rc(lf_ckpt_writer_create(&w, &t, 1, &o, &err), LF_EINVAL, &err, "outside",
           "beyond the tensor");
    t.flat[1] = 0;
    t.lo[0] = 1;
    t.hi[0] = 1;
    tap_rc(lf_ckpt_writer_create(&w, &t, 1, &o, &err), LF_EINVAL, &err, "empty", "an empty box");
    /* The only writer with a part of a tensor makes no checkpoint. */
    json_t *state = state_at(1);
    t = (lf_ckpt_tensor){.name = "a",
                         .kind = "weight",
                         .dtype = LF_H5_F32,
                         .ndim = 1,
                         .shape = {4},
                         .flat = {0, 3},
                         .data = x};
    if (lf_ckpt_writer_create(&w, &t, 1, &(lf_ckpt_options){0}, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_ckpt_save_begin(w, at("alone"), state, &err), LF_EFORMAT, &err,
           "elements from 3 on are missing", "a part by itself is none");
    tap_ok(access(at("alone"), F_OK) != 0, "and nothing is left");
    lf_err_clear(&err);
    lf_ckpt_writer_destroy(w);
    /* A writer may have nothing. */
    o = (lf_ckpt_options){.part = 1, .parts = 2, .run = RUN};
    if (lf_ckpt_writer_create(&w, NULL, 0, &o, &err) < 0 ||
        lf_ckpt_save_begin(w, at("none"), state, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_ckpt_save_wait(w, NULL, &err), 1, &err, NULL, "a part of nothing is durable");
    const char *receipt = lf_ckpt_save_receipt(w);
    tap_ok(receipt && strstr(receipt, "\"tensors\":[]"), "its receipt says so");
    lf_ckpt_writer_destroy(w);
    json_decref(state);
}

int main(void)
{
    make_memory();
    TAP(3 * N_CUTS + 2, test_identity());
    TAP(3 * N_CUTS + 1, test_reading());
    TAP(6, test_cut());
    TAP(15, test_tiling());
    TAP(19, test_receipts());
    TAP(19, test_damage());
    TAP(13, test_full());
    TAP(8, test_options());
    for (int i = 0; i < N_TENSORS; i++)
        free(memory[i]);
    return tap_done();
}
