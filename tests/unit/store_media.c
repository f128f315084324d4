/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards with pictures: what was written comes back, one file is stored once however often it is
 * used, shards without pictures keep their format, and files that contradict themselves are
 * refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/store/h5.h"
#include "engine/store/shard.h"
#include "tests/tap/tap.h"

enum { N_DOCS = 40, MOST = 3000, IMAGE = 7 };

static const char *at(const char *name)
{
    static char p[4100];
    snprintf(p, sizeof p, "%s/%s", tap_tmpdir(), name);
    return p;
}

static lf_shard_info info_of(void)
{
    lf_shard_info info = {.vocab_size = 100,
                          .eos_id = -1,
                          .source = "pictures",
                          .processor = "{\"a\": 1}",
                          .settings = "{\"b\": 2}",
                          .image_token = IMAGE};
    memset(info.tokenizer_sha256, 'c', LF_HASH_HEX - 1);
    return info;
}

/* Picture k is the bytes of a formula; there are only 9 of them, so most are used again. */
static size_t picture(uint64_t k, unsigned char *dst)
{
    size_t n = 1 + (size_t)(k * k * 37 % MOST);
    for (size_t i = 0; i < n; i++)
        dst[i] = (unsigned char)(k * 31 + i * (k + 1));
    return n;
}
static uint64_t picture_of(uint64_t doc, uint64_t i)
{
    return (doc * 5 + i * 7) % 9;
}
static uint64_t pictures_of(uint64_t doc)
{
    return doc % 4 == 1 ? 0 : doc % 3 + 1;
}

static void fill(lf_shard_picture *p, uint64_t doc, uint64_t i, unsigned char *bytes)
{
    uint64_t k = picture_of(doc, i);
    *p = (lf_shard_picture){.bytes = bytes,
                            .n = picture(k, bytes),
                            .kind = (enum lf_shard_picture_kind)(k % 3 + 1),
                            .w = (uint32_t)k + 1,
                            .h = (uint32_t)k + 2,
                            .tiles = (int32_t)(doc % 5 + 1),
                            .grid_h = (int32_t)i + 1,
                            .grid_w = 3,
                            .first = (uint32_t)(1 + 10 * i),
                            .count = (uint32_t)(i + 2)};
    if (lf_hash_buf(p->sha256, bytes, p->n, NULL) < 0)
        tap_bail("hash");
}

static void write_shard(const char *path, uint64_t first, uint64_t n, lf_shard_stat *st)
{
    static unsigned char bytes[3][MOST];
    uint32_t tok[40];
    lf_shard_info info = info_of();
    lf_shard_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    int rc = lf_shard_create(&w, path, &info, 0, &err);
    for (size_t i = 0; i < 40; i++)
        tok[i] = i % 10 == 0 ? 3 : IMAGE;
    for (uint64_t d = first; d < first + n && rc == 0; d++) {
        lf_shard_picture p[3];
        for (uint64_t i = 0; i < pictures_of(d); i++)
            fill(&p[i], d, i, bytes[i]);
        rc = lf_shard_append_doc(
            w, &(lf_shard_doc){.tokens = tok, .n = 40, .pictures = p, .n_pictures = pictures_of(d)},
            &err);
    }
    if (rc < 0 || lf_shard_finish(w, st, &err) < 0)
        tap_bail("%s: %s", path, err.text);
}

static bool same(const lf_shard_picture *a, const lf_shard_picture *b)
{
    return a->n == b->n && a->kind == b->kind && a->w == b->w && a->h == b->h &&
           a->tiles == b->tiles && a->grid_h == b->grid_h && a->grid_w == b->grid_w &&
           a->first == b->first && a->count == b->count &&
           memcmp(a->sha256, b->sha256, LF_HASH_BYTES) == 0;
}

static int64_t differing(const lf_shardset *s)
{
    static unsigned char want[MOST], got[MOST];
    int64_t bad = 0;
    for (uint64_t d = 0; d < N_DOCS; d++) {
        uint64_t n = lf_shardset_pictures(s, d), patches = 0, tiles = 0, said;
        bad += n != pictures_of(d);
        for (uint64_t i = 0; i < n && i < pictures_of(d); i++) {
            lf_shard_picture a, b;
            fill(&a, d, i, want);
            lf_shardset_picture_get(s, d, i, &b);
            bad += !same(&a, &b) || lf_shardset_picture_read(s, d, i, got, NULL) < 0 ||
                   memcmp(got, want, a.n) != 0;
            tiles += (uint64_t)a.tiles;
            patches += (uint64_t)(a.tiles * a.grid_h * a.grid_w);
        }
        bad += lf_shardset_patches(s, d, &said) != patches || said != tiles;
    }
    return bad;
}

static void publish(const char *dir, const char *const *names, const lf_shard_stat *st, int n)
{
    lf_artifact a = {0};
    lf_err err = LF_ERR_INIT;
    int rc = lf_artifact_init(&a, "shards", &err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = lf_artifact_add(&a, names[i], st[i].bytes, st[i].sha256, &err);
    if (rc < 0 || lf_artifact_publish(&a, dir, &err) < 0)
        tap_bail("%s", err.text);
    lf_artifact_fini(&a);
}

static void test_set(void)
{
    static const char *const names[] = {"train-00000.h5", "train-00001.h5"};
    lf_shard_stat st[2], again;
    lf_shardset *s = NULL;
    lf_err err = LF_ERR_INIT;
    char p[4200], dir[4100];
    snprintf(dir, sizeof dir, "%s", tap_tmpdir());
    for (uint64_t i = 0; i < 2; i++) {
        snprintf(p, sizeof p, "%s/%s", dir, names[i]);
        write_shard(p, 20 * i, 20, &st[i]);
    }
    publish(dir, names, st, 2);
    tap_rc(lf_shardset_open(&s, dir, "train", &err), 0, &err, NULL, "open");
    tap_i64(differing(s), 0, "every picture of every document");
    tap_str(lf_shardset_get_info(s)->processor, "{\"a\": 1}", "the processor");
    tap_str(lf_shardset_get_info(s)->settings, "{\"b\": 2}", "the settings");
    tap_i64(lf_shardset_get_info(s)->image_token, IMAGE, "the placeholder");
    lf_shard_picture a;
    uint64_t most = 0;
    for (uint64_t d = 0; d < 20; d++)
        for (uint64_t i = 0; i < lf_shardset_pictures(s, d); i++) {
            lf_shardset_picture_get(s, d, i, &a);
            most = a.id > most ? a.id : most;
        }
    tap_i64((int64_t)most, 8, "nine pictures are stored nine times, not once per use");
    lf_shardset_close(s);
    write_shard(at("again.h5"), 0, 20, &again);
    tap_mem(again.sha256, st[0].sha256, LF_HASH_BYTES, "the same documents give the same bytes");
}

static void test_without(void)
{
    lf_shard_stat st;
    lf_shard *s = NULL;
    lf_err err = LF_ERR_INIT;
    char *format = NULL;
    lf_h5 *f = NULL;
    write_shard(at("none.h5"), 1, 1, &st);
    tap_rc(lf_shard_open(&s, at("none.h5"), &err), 0, &err, NULL,
           "a shard whose documents have no picture");
    tap_i64((int64_t)lf_shard_picture_most(s), 0, "holds none");
    lf_shard_close(s);
    lf_shard_info info = info_of();
    info.processor = info.settings = NULL;
    lf_shard_writer *w = NULL;
    const uint32_t tok[] = {1, 2};
    static const unsigned char byte[1] = {1};
    const lf_shard_picture p = {.bytes = byte,
                                .n = 1,
                                .kind = 1,
                                .w = 1,
                                .h = 1,
                                .tiles = 1,
                                .grid_h = 1,
                                .grid_w = 1,
                                .count = 1};
    if (lf_shard_create(&w, at("text.h5"), &info, 0, &err) < 0)
        tap_bail("%s", err.text);
    tap_rc(lf_shard_append_doc(
               w, &(lf_shard_doc){.tokens = tok, .n = 2, .pictures = &p, .n_pictures = 1}, &err),
           LF_EINVAL, &err, "without", "a picture in a shard of text");
    if (lf_shard_append(w, tok, 2, &err) < 0 || lf_shard_finish(w, &st, &err) < 0 ||
        lf_h5_open(&f, at("text.h5"), &err) < 0 ||
        lf_h5_get_attr_str(f, "lf_format", &format, &err) < 0)
        tap_bail("%s", err.text);
    tap_str(format, "lf-shard-1", "text keeps its format");
    tap_ok(!lf_h5_has(f, "doc_media"), "and has no list of pictures");
    free(format);
    lf_h5_close(f, NULL);
}

static void test_refused_writes(void)
{
    lf_shard_info info = info_of();
    lf_shard_writer *w = NULL;
    lf_err err = LF_ERR_INIT;
    static unsigned char bytes[2][MOST];
    lf_shard_picture p[2];
    const uint32_t tok[20] = {0};
    fill(&p[0], 0, 0, bytes[0]);
    fill(&p[1], 0, 1, bytes[1]);
    p[1].first = p[0].first + 1;
    if (lf_shard_create(&w, at("bad.h5"), &info, 0, &err) < 0)
        tap_bail("%s", err.text);
    const lf_shard_doc d = {.tokens = tok, .n = 20, .pictures = p, .n_pictures = 2};
    tap_rc(lf_shard_append_doc(w, &d, &err), LF_EINVAL, &err, "placeholders",
           "pictures that overlap");
    lf_shard_abort(w);
    info.image_token = 100;
    tap_rc(lf_shard_create(&w, at("bad.h5"), &info, 0, &err), LF_EINVAL, &err, "image_token",
           "a placeholder outside the vocabulary");
}

/* ---- damaged files ---- */

static const uint64_t docs[] = {0, 10, 20}, media[] = {0, 1, 3}, offs[] = {0, 4, 6};
static const uint32_t use[] = {0, 1, 0}, place[] = {1, 2, 0, 3, 5, 5}, wh[] = {5, 6, 7, 8};
static const int32_t grid[] = {1, 2, 2, 1, 1, 1, 2, 3, 3};
static const uint8_t kind[] = {1, 3};

struct lists {
    const uint64_t *media, *offs;
    const uint32_t *use, *place, *wh;
    const int32_t *grid;
    const uint8_t *kind;
    size_t n_grid, n_bytes;
    int64_t image;
    const char *sha, *missing;
};

static int put(lf_h5 *f, const struct lists *l, const char *name, enum lf_h5_type type,
               const void *v, size_t n)
{
    return l->missing && strcmp(l->missing, name) == 0 ? 0 : lf_h5_put(f, name, type, v, n, NULL);
}

static void craft(const char *path, const struct lists *l)
{
    static const uint8_t zeros[64];
    static const uint32_t tok[20];
    char sha[LF_HASH_HEX];
    lf_h5 *f = NULL;
    memset(sha, 'd', LF_HASH_HEX - 1);
    sha[LF_HASH_HEX - 1] = 0;
    unlink(path);
    if (lf_h5_create(&f, path, NULL) < 0 ||
        lf_h5_put_attr_str(f, "lf_format", LF_SHARD_FORMAT_MEDIA, NULL) < 0 ||
        lf_h5_put_attr_str(f, "tokenizer_sha256", sha, NULL) < 0 ||
        lf_h5_put_attr_i64(f, "vocab_size", 50, NULL) < 0 ||
        lf_h5_put_attr_i64(f, "eos_id", -1, NULL) < 0 ||
        lf_h5_put_attr_str(f, "source", "", NULL) < 0 ||
        lf_h5_put_attr_str(f, "media_processor", "{}", NULL) < 0 ||
        lf_h5_put_attr_str(f, "media_settings", "{}", NULL) < 0 ||
        lf_h5_put_attr_str(f, "media_processor_sha256", l->sha, NULL) < 0 ||
        lf_h5_put_attr_i64(f, "image_token", l->image, NULL) < 0 ||
        lf_h5_put(f, "tokens", LF_H5_U32, tok, 20, NULL) < 0 ||
        lf_h5_put(f, "doc_offsets", LF_H5_U64, docs, 3, NULL) < 0 ||
        put(f, l, "doc_media", LF_H5_U64, l->media, 3) < 0 ||
        put(f, l, "media/use", LF_H5_U32, l->use, 3) < 0 ||
        put(f, l, "media/grid", LF_H5_I32, l->grid, l->n_grid) < 0 ||
        put(f, l, "media/place", LF_H5_U32, l->place, 6) < 0 ||
        put(f, l, "media/offsets", LF_H5_U64, l->offs, 3) < 0 ||
        put(f, l, "media/kind", LF_H5_U8, l->kind, 2) < 0 ||
        put(f, l, "media/wh", LF_H5_U32, l->wh, 4) < 0 ||
        put(f, l, "media/sha256", LF_H5_U8, zeros, 64) < 0 ||
        put(f, l, "media/bytes", LF_H5_U8, zeros, l->n_bytes) < 0 || lf_h5_close(f, NULL) < 0)
        tap_bail("cannot make %s", path);
}

static void test_damaged(void)
{
    static const uint64_t media_down[] = {0, 3, 2}, media_long[] = {0, 1, 4},
                          offs_same[] = {0, 6, 6}, offs_late[] = {1, 4, 6};
    static const uint32_t use_far[] = {0, 2, 0}, place_over[] = {1, 2, 0, 3, 2, 5},
                          place_far[] = {1, 2, 0, 3, 5, 6}, place_none[] = {1, 0, 0, 3, 5, 5},
                          wh_zero[] = {5, 6, 0, 8}, wh_big[] = {5, 6, 7, 70000};
    static const int32_t grid_zero[] = {1, 2, 2, 1, 1, 0, 2, 3, 3},
                         grid_neg[] = {-1, 2, 2, 1, 1, 1, 2, 3, 3};
    static const uint8_t kind_odd[] = {1, 9};
    char sha[LF_HASH_HEX];
    uint8_t digest[LF_HASH_BYTES];
    if (lf_hash_buf(digest, "{}", 2, NULL) < 0)
        tap_bail("hash");
    lf_hash_hex(sha, digest);
    const struct lists good = {media, offs, use, place, wh, grid, kind, 9, 6, 7, sha, NULL};
    struct {
        struct lists l;
        const char *why;
    } v[15];
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        v[i].l = good;
    v[0].l.media = media_down, v[0].why = "doc_media";
    v[1].l.media = media_long, v[1].why = "doc_media";
    v[2].l.offs = offs_same, v[2].why = "offsets";
    v[3].l.offs = offs_late, v[3].why = "offsets";
    v[4].l.use = use_far, v[4].why = "media/use";
    v[5].l.place = place_over, v[5].why = "media/place";
    v[6].l.place = place_far, v[6].why = "media/place";
    v[7].l.wh = wh_zero, v[7].why = "picture 1";
    v[8].l.wh = wh_big, v[8].why = "picture 1";
    v[9].l.grid = grid_zero, v[9].why = "media/grid";
    v[10].l.grid = grid_neg, v[10].why = "media/grid";
    v[11].l.kind = kind_odd, v[11].why = "kind 9";
    v[12].l.n_bytes = 5, v[12].why = "media/bytes";
    v[13].l.image = 50, v[13].why = "image_token";
    v[14].l.sha = "00", v[14].why = "hash";
    lf_shard *s = NULL;
    lf_err err = LF_ERR_INIT;
    craft(at("crafted.h5"), &good);
    tap_rc(lf_shard_open(&s, at("crafted.h5"), &err), 0, &err, NULL,
           "the file that the others differ from");
    lf_shard_close(s);
    struct lists beside = good;
    beside.place = place_none;
    craft(at("crafted.h5"), &beside);
    tap_rc(lf_shard_open(&s, at("crafted.h5"), &err), 0, &err, NULL,
           "a picture beside its text, where no token stands for it");
    lf_shard_close(s);
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        craft(at("crafted.h5"), &v[i].l);
        tap_rc(lf_shard_open(&s, at("crafted.h5"), &err), LF_EFORMAT, &err, v[i].why, v[i].why);
    }
    static const char *const names[] = {"doc_media",   "media/use",     "media/grid",
                                        "media/place", "media/offsets", "media/kind",
                                        "media/wh",    "media/sha256",  "media/bytes"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct lists l = good;
        l.missing = names[i];
        craft(at("crafted.h5"), &l);
        tap_rc(lf_shard_open(&s, at("crafted.h5"), &err), LF_EFORMAT, &err, names[i],
               "a list that is not there");
    }
    struct lists l = good;
    l.n_grid = 8;
    craft(at("crafted.h5"), &l);
    tap_rc(lf_shard_open(&s, at("crafted.h5"), &err), LF_EFORMAT, &err, "media/grid",
           "a list that is too short");
}

/* libhdf5 1.10 forgets a block when an object header's checksum is wrong; ours are still
 * watched. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

int main(void)
{
    TAP(7, test_set());
    TAP(5, test_without());
    TAP(2, test_refused_writes());
    TAP(27, test_damaged());
    return tap_done();
}
