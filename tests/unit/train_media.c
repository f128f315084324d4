/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents with pictures through the loader: every document once and whole, its pictures as they
 * are decoded and processed one by one, placed where its placeholders are; any sample can be gone
 * to, ranks share the work, rows do not depend on the micro-batch; damage is told with shard,
 * document and picture.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/train/loader_priv.h"
#include "tests/golden/media/util.h"
#include "tests/tap/tap.h"

enum { DOCS = 40, T = 160, IMAGE = 7, MOST_DOC = 4000 };

/* Files of tests/golden/media/images; document d has d % 4 of them. */
static const char *const files[] = {"rgb8.png", "exif.png", "wide.png", "adam7-narrow.png",
                                    "grey8.png"};
enum { FILES = sizeof files / sizeof files[0] };
static lf_buf bytes[FILES];

/* A processor, the class that writes its placeholders, and what a row holds. */
struct kind {
    const char *name, *processor, *settings;
    int32_t patches, tiles; /* of a row */
};
static const struct kind kinds[] = {
    {"qwen",
     "{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":4,\"size\":{\"longest_"
     "edge\":1600,\"shortest_edge\":256}}",
     "{\"processor_class\":\"Qwen2VLProcessor\"}", 230, 9},
    {"internvl",
     "{\"crop_to_patches\":true,\"image_processor_type\":\"GotOcr2ImageProcessor\",\"max_patches\":"
     "4,\"size\":{\"height\":16,\"width\":16}}",
     "{\"image_seq_length\":4,\"patch_size\":8,\"processor_class\":\"InternVLProcessor\"}", 60, 12},
    {"gemma3",
     "{\"do_pan_and_scan\":true,\"image_processor_type\":\"Gemma3ImageProcessor\",\"pan_and_scan_"
     "max_num_crops\":3,"
     "\"pan_and_scan_min_crop_size\":10,\"pan_and_scan_min_ratio_to_activate\":1.2,\"size\":{"
     "\"height\":16,\"width\":16}}",
     "{\"do_pan_and_scan\":true,\"image_seq_length\":3,\"patch_size\":8,\"processor_class\":"
     "\"Gemma3Processor\"}",
     50, 9},
    {"pixtral",
     "{\"image_processor_type\":\"PixtralImageProcessor\",\"patch_size\":4,\"size\":{\"longest_"
     "edge\":32}}",
     "{\"patch_size\":4,\"processor_class\":\"PixtralProcessor\",\"spatial_merge_size\":2}", 100,
     9},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct made {
    lf_processor p;
    lf_expand e;
};

static struct made open_kind(const struct kind *k)
{
    struct made m;
    lf_err err = LF_ERR_INIT;
    if (lf_expand_open(&m.p, &m.e, k->processor, k->settings, k->name, &err) < 0)
        tap_bail("%s", err.text);
    return m;
}

static size_t n_pics(uint64_t d)
{
    return d % 4;
}
static size_t file_of(uint64_t d, size_t i)
{
    return (size_t)(d * 3 + i) % FILES;
}

/* Picture i of document d as it is made alone. */
static lf_pixels pixels_of(const struct made *m, uint64_t d, size_t i)
{
    lf_image im = {0};
    lf_pixels x = {0};
    lf_err err = LF_ERR_INIT;
    const lf_buf *b = &bytes[file_of(d, i)];
    if (lf_image_decode(&im, b->data, b->len, NULL, &err) < 0 ||
        lf_processor_run(&x, &m->p, &im, n_pics(d) == 1, &err) < 0)
        tap_bail("%s", err.text);
    lf_image_fini(&im);
    return x;
}

/* ---- shards ---- */

static struct {
    uint32_t tok[MOST_DOC];
    uint8_t mask[MOST_DOC];
    size_t n;
    lf_shard_picture pics[3];
} doc;

static void add_token(uint32_t t)
{
    doc.mask[doc.n] = t != IMAGE && doc.n > 4;
    doc.tok[doc.n++] = t;
}

/* Is there another token before placeholder k? Crops of Gemma's stand apart, and so do rows of
 * Pixtral; others' placeholders are one run. */
static bool has_gap(const struct made *m, const lf_pixels *x, int64_t count, int64_t k)
{
    const lf_expand_picture v = lf_expand_measure(&m->e, &m->p, x, true);
    const int64_t run = m->e.kind == LF_EXPAND_GEMMA3    ? count / x->tiles
                        : m->e.kind == LF_EXPAND_PIXTRAL ? v.layout.w
                                                         : count;
    return k > 0 && k % run == 0;
}

static void add_picture(const struct made *m, uint64_t d, size_t i)
{
    lf_pixels x = pixels_of(m, d, i);
    const lf_buf *b = &bytes[file_of(d, i)];
    const int64_t count = lf_expand_count(&m->e, &m->p, &x, n_pics(d) == 1);
    lf_shard_picture *p = &doc.pics[i];
    *p = (lf_shard_picture){.bytes = b->data,
                            .n = b->len,
                            .kind = LF_PICTURE_PNG,
                            .w = (uint32_t)x.from.w,
                            .h = (uint32_t)x.from.h,
                            .tiles = x.tiles,
                            .grid_h = x.grid_h,
                            .grid_w = x.grid_w,
                            .first = (uint32_t)doc.n,
                            .count = (uint32_t)count};
    if (lf_hash_buf(p->sha256, b->data, b->len, NULL) < 0)
        tap_bail("hash");
    for (int64_t k = 0; k < count; k++) {
        if (has_gap(m, &x, count, k))
            add_token(20);
        add_token(IMAGE);
    }
    lf_pixels_fini(&x);
}

static void fill_doc(const struct made *m, uint64_t d)
{
    doc.n = 0;
    for (uint64_t i = 0; i < 3 + d % 5; i++)
        add_token((uint32_t)(30 + (d + i) % 50));
    for (size_t i = 0; i < n_pics(d); i++) {
        add_picture(m, d, i);
        if (i % 2)
            add_token(21); /* else the next picture's placeholders follow at once */
    }
    for (uint64_t i = 0; i < 4 + d * d % 11; i++)
        add_token((uint32_t)(30 + (3 * d + i) % 50));
}

static const char *dir_of(const char *name)
{
    static char dir[4][4200];
    static int k;
    k = (k + 1) % 4;
    snprintf(dir[k], sizeof dir[k], "%s/%s", tap_tmpdir(), name);
    return dir[k];
}

/* damage: changes document 3's second picture. */
static void write_set(const char *dir, const struct kind *k, void (*damage)(lf_shard_picture *))
{
    const struct made m = open_kind(k);
    lf_shard_info info = {.vocab_size = 100,
                          .eos_id = 0,
                          .source = "pictures",
                          .processor = k->processor,
                          .settings = k->settings,
                          .image_token = IMAGE};
    lf_err err = LF_ERR_INIT;
    lf_artifact a = {0};
    char path[4300];
    memset(info.tokenizer_sha256, 'c', LF_HASH_HEX - 1);
    int rc = lf_io_mkdirs(dir, 0777, &err);
    rc = rc ? rc : lf_artifact_init(&a, "shards", &err);
    for (uint64_t f = 0; f < 2 && !rc; f++) {
        lf_shard_writer *w = NULL;
        char name[32];
        snprintf(name, sizeof name, "train-%05d.h5", (int)f);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        rc = lf_shard_create(&w, path, &info, 0, &err);
        for (uint64_t d = f * DOCS / 2; d < (f + 1) * DOCS / 2 && !rc; d++) {
            fill_doc(&m, d);
            if (damage && d == 3)
                damage(&doc.pics[1]);
            rc = lf_shard_append_doc(w,
                                     &(lf_shard_doc){.tokens = doc.tok,
                                                     .n = doc.n,
                                                     .mask = doc.mask,
                                                     .pictures = doc.pics,
                                                     .n_pictures = n_pics(d)},
                                     &err);
        }
        rc = rc ? rc : lf_shard_finish(w, NULL, &err);
        rc = rc ? rc : lf_artifact_add_hashed(&a, dir, name, &err);
    }
    rc = rc ? rc : lf_artifact_publish(&a, dir, &err);
    lf_artifact_fini(&a);
    if (rc)
        tap_bail("%s", err.text);
}

/* ---- loaders ---- */

static const lf_loader_ramp ramp[] = {{0, 4}};
static lf_loader_source source[1];

static lf_loader_config config(const char *dir, const struct kind *k, const lf_processor *p,
                               int32_t B)
{
    source[0] = (lf_loader_source){dir, 1};
    return (lf_loader_config){.split = "train",
                              .sources = source,
                              .n_sources = 1,
                              .T = T,
                              .B = B,
                              .policy = LF_PACK_CONCAT,
                              .seed = 5,
                              .ramp = ramp,
                              .n_ramp = 1,
                              .patch_bytes = p ? 3 * p->patches.side * p->patches.side : 0,
                              .image_token = IMAGE,
                              .max_patches = p ? k->patches * B : 0,
                              .max_tiles = p ? k->tiles * B : 0};
}

static lf_loader *must_open(const lf_loader_config *c)
{
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_loader_open(&l, c, &err) < 0)
        tap_bail("open: %s", err.text);
    return l;
}

static const lf_loader_batch *next(lf_loader *l)
{
    const lf_loader_batch *b = NULL;
    lf_err err = LF_ERR_INIT;
    if (lf_loader_next(l, &b, &err) < 0)
        tap_bail("%s", err.text);
    return b;
}

/* One picture of a batch against the document that it is of; tile and patch are where it begins. */
static int64_t audit_alone(const lf_loader_batch *b, const struct made *m, uint64_t d, size_t i,
                           int32_t *tile, int32_t *run)
{
    lf_pixels x = pixels_of(m, d, i);
    const lf_media_batch *to = &b->media;
    int64_t patch = 0, rows = (int64_t)x.tiles * x.grid_h * x.grid_w, bad = 0;
    const int32_t runs = m->e.kind == LF_EXPAND_GEMMA3 ? x.tiles : 1;
    for (int32_t t = 0; t < *tile; t++)
        patch += (int64_t)to->tile[t].grid_h * to->tile[t].grid_w;
    bad += *tile + x.tiles > to->n_tiles || *run + runs > to->n_pictures ||
           patch + rows > to->n_patches || to->row_bytes != x.row_bytes;
    if (!bad)
        bad += memcmp(to->patches + patch * x.row_bytes, x.rows, (size_t)(rows * x.row_bytes)) != 0;
    for (int32_t t = 0; t < x.tiles && !bad; t++)
        bad += to->tile[*tile + t].grid_h != x.grid_h || to->tile[*tile + t].grid_w != x.grid_w;
    for (int32_t r = 0; r < runs && !bad; r++) {
        const struct lf_media_picture *p = &to->picture[(*run)++];
        bad += p->first_tile != *tile + r || p->tiles != x.tiles / runs ||
               p->layout.w != x.layout.w || p->from.h != x.from.h ||
               p->rows != lf_expand_count(&m->e, &m->p, &x, n_pics(d) == 1) / runs;
    }
    *tile += x.tiles;
    lf_pixels_fini(&x);
    return bad;
}

/* The same, at its placeholders. */
static int64_t audit_picture(const lf_loader_batch *b, const struct made *m, uint64_t d, size_t i,
                             int32_t *tile, int32_t *run)
{
    const int32_t first = *run;
    int64_t bad = audit_alone(b, m, d, i, tile, run);
    for (int32_t r = first; r < *run; r++) {
        const struct lf_media_picture *p = &b->media.picture[r];
        const bool rows = m->e.kind == LF_EXPAND_PIXTRAL;
        for (int64_t k = p->first_row, n = 0; n < p->rows; k++) {
            n += b->tokens[k] == IMAGE;
            bad += b->tokens[k] != (rows && b->tokens[k] == 20 ? 20 : IMAGE) ||
                   (k > 0 && b->targets[k - 1] == IMAGE);
        }
    }
    return bad;
}

/* Every document of a batch whole, its pictures in order, and no placeholder besides. */
static int64_t audit(const lf_loader_batch *b, const struct made *m, unsigned char *seen)
{
    int64_t bad = 0, placeholders = 0, covered = 0;
    int32_t tile = 0, run = 0;
    for (int32_t s = 0; s < b->n_segs; s++) {
        int64_t d = b->seg_doc[s];
        if (d < 0)
            continue;
        fill_doc(m, (uint64_t)d);
        bad += b->cu_seqlens[s + 1] - b->cu_seqlens[s] != (int32_t)doc.n || seen[d]++ != 0;
        for (size_t i = 0; i < doc.n; i++)
            bad += b->tokens[b->cu_seqlens[s] + (int32_t)i] != (int32_t)doc.tok[i];
        for (size_t i = 0; i < n_pics((uint64_t)d); i++)
            bad += audit_picture(b, m, (uint64_t)d, i, &tile, &run);
    }
    for (int32_t i = 0; i < b->B * b->T; i++)
        placeholders += b->tokens[i] == IMAGE;
    for (int32_t i = 0; i < b->media.n_pictures; i++)
        covered += b->media.picture[i].rows;
    return bad + (placeholders != covered) + (tile != b->media.n_tiles) +
           (run != b->media.n_pictures);
}

static void test_epoch(const struct kind *k)
{
    const struct made m = open_kind(k);
    char name[32];
    snprintf(name, sizeof name, "set-%s", k->name);
    const char *dir = dir_of(name);
    unsigned char seen[DOCS] = {0};
    write_set(dir, k, NULL);
    lf_loader_config c = config(dir, k, &m.p, 2);
    c.mode = LF_LOADER_VALID;
    lf_loader *l = must_open(&c);
    lf_loader_step st;
    int64_t bad = 0, docs = 0, full = 0;
    tap_i64((int64_t)l->bytes, (int64_t)lf_loader_slot_bytes(&c), "bytes held are bytes planned");
    tap_ok(l->index_bytes <= lf_loader_index_bytes(&c, DOCS, lf_loader_info(l, 0)->n_tokens),
           "the index is within its plan");
    while (lf_loader_begin_step(l, &st, NULL) > 0) {
        const lf_loader_batch *b = next(l);
        bad += audit(b, &m, seen) + (b->trained != st.trained);
        full += b->media.n_tiles > 2;
    }
    for (size_t d = 0; d < DOCS; d++)
        docs += seen[d];
    tap_i64(bad, 0, "pictures, places and tokens are those of the documents");
    tap_i64(docs + (int64_t)lf_loader_left_out(l, 0), DOCS,
            "every document once, but for those left out");
    tap_ok(lf_loader_left_out(l, 0) > 0 && docs > DOCS / 2 && full > 2,
           "%s: %lld documents, %llu left out", k->name, (long long)docs,
           (unsigned long long)lf_loader_left_out(l, 0));
    uint64_t needs[LF_PACK_AXES];
    lf_loader_needs(l, 0, needs);
    lf_loader_close(l);
    c.T = 600;
    c.max_patches = (int32_t)needs[0];
    c.max_tiles = (int32_t)needs[1];
    l = must_open(&c);
    tap_ok(lf_loader_left_out(l, 0) == 0, "max_patches = %d and max_tiles = %d hold all of them",
           c.max_patches, c.max_tiles);
    lf_loader_close(l);
    c.max_patches -= 2;
    l = must_open(&c);
    tap_ok(lf_loader_left_out(l, 0) > 0, "and no fewer patches do");
    lf_loader_close(l);
}

/* With pictures alone: a row is a document that has some, and no token of it is read. */
static void test_alone(const struct kind *k)
{
    const struct made m = open_kind(k);
    char name[32];
    snprintf(name, sizeof name, "set-%s", k->name);
    lf_loader_config c = config(dir_of(name), k, &m.p, 2);
    unsigned char seen[DOCS] = {0};
    int64_t bad = 0, docs = 0, units = 0, text = 0, tiles = 0;
    c.mode = LF_LOADER_VALID;
    c.pictures = true;
    c.T = 2;
    c.image_token = -1;
    lf_loader *l = must_open(&c);
    lf_loader_step st;
    while (lf_loader_begin_step(l, &st, NULL) > 0) {
        const lf_loader_batch *b = next(l);
        int32_t tile = 0, run = 0;
        for (int32_t row = 0, s = 0; row < b->B; row++, s++) {
            const int64_t d = b->seg_doc[s];
            bad += b->cu_seqlens[s + 1] != 2 * (row + 1);
            for (size_t i = 0; d >= 0 && i < n_pics((uint64_t)d); i++) {
                const int32_t first = run;
                bad += audit_alone(b, &m, (uint64_t)d, i, &tile, &run);
                for (int32_t r = first; r < run; r++)
                    bad += b->media.picture[r].first_row != 2 * row;
            }
            if (d >= 0)
                seen[d]++;
        }
        for (int32_t i = 0; i < 2 * b->B; i++)
            text += b->tokens[i] != 0 || b->targets[i] != -1;
        bad += run != b->media.n_pictures || st.trained != st.units;
        tiles += b->media.n_tiles;
        units += st.units;
    }
    for (size_t d = 0; d < DOCS; d++) {
        docs += seen[d];
        bad += seen[d] > (n_pics(d) > 0);
    }
    tap_ok(bad == 0, "%s alone: a row for each document, with its pictures", k->name);
    tap_ok(docs > DOCS / 3 && docs + (int64_t)lf_loader_left_out(l, 0) == DOCS && text == 0,
           "no token is read; %lld documents, the others are counted", (long long)docs);
    tap_i64(units, tiles, "units are tiles");
    tap_ok(l->index_bytes <= lf_loader_index_bytes(&c, DOCS, lf_loader_info(l, 0)->n_tokens),
           "the index is within its plan");
    lf_loader_close(l);
}

/* What a micro-batch holds, as one number. */
static uint64_t sum_of(const lf_loader_batch *b)
{
    uint8_t out[LF_HASH_BYTES];
    uint64_t v;
    lf_hash *h = lf_hash_create(NULL);
    lf_hash_update(h, b->tokens, (size_t)(b->B * b->T) * sizeof *b->tokens);
    lf_hash_update(h, b->targets, (size_t)(b->B * b->T) * sizeof *b->targets);
    lf_hash_update(h, b->media.tile, (size_t)b->media.n_tiles * sizeof *b->media.tile);
    lf_hash_update(h, b->media.picture, (size_t)b->media.n_pictures * sizeof *b->media.picture);
    lf_hash_update(h, b->media.patches, (size_t)(b->media.n_patches * b->media.row_bytes));
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    memcpy(&v, out, sizeof v);
    return v;
}

enum { STEPS = 10, MICRO = 4 };

static void run_steps(lf_loader *l, int first, int n, uint64_t (*out)[MICRO])
{
    lf_loader_step st;
    for (int s = first; s < first + n; s++) {
        if (lf_loader_begin_step(l, &st, NULL) <= 0)
            tap_bail("no step");
        for (int i = 0; i < st.n_micro; i++)
            out[s][i] = sum_of(next(l));
    }
}

static void test_order(void)
{
    const struct kind *k = &kinds[0];
    const struct made m = open_kind(k);
    static uint64_t want[STEPS][MICRO], got[STEPS][MICRO], two[STEPS][MICRO];
    lf_loader_config c = config(dir_of("set-qwen"), k, &m.p, 1);
    lf_loader *l = must_open(&c);
    int64_t bad = 0;
    char id[LF_HASH_HEX];
    snprintf(id, sizeof id, "%s", lf_loader_order_id(l));
    run_steps(l, 0, STEPS, want);
    for (int s = STEPS - 1; s >= 0; s--) {
        memset(got, 0, sizeof got);
        if (lf_loader_seek(l, 4 * s, NULL) < 0)
            tap_bail("seek");
        run_steps(l, s, STEPS - s < 2 ? 1 : 2, got);
        bad += memcmp(got[s], want[s], sizeof want[s]) != 0;
    }
    tap_i64(bad, 0, "any step can be gone to");
    lf_loader_close(l);
    for (int r = 0; r < 2; r++) {
        c.dp_rank = r;
        c.dp_size = 2;
        l = must_open(&c);
        memset(got, 0, sizeof got);
        run_steps(l, 0, STEPS, got);
        for (int s = 0; s < STEPS; s++)
            for (int i = 0; i < 2; i++)
                two[s][2 * i + r] = got[s][i];
        lf_loader_close(l);
    }
    tap_mem(two, want, sizeof want, "two ranks have the micro-batches of one");
    c = config(c.sources[0].dir, k, &m.p, 2);
    l = must_open(&c);
    tap_str(lf_loader_order_id(l), id,
            "a larger micro-batch with as much for each row is the same order");
    lf_loader_close(l);
    c.max_patches -= 20;
    l = must_open(&c);
    tap_ok(strcmp(lf_loader_order_id(l), id) != 0, "with less it is another");
    lf_loader_close(l);
}

/* ---- refusals ---- */

static void break_bytes(lf_shard_picture *p)
{
    p->n = 60;
    p->sha256[0] ^= 1;
}
static void break_grid(lf_shard_picture *p)
{
    p->grid_h += 1;
}
static void break_place(lf_shard_picture *p)
{
    p->first += 1;
}

static void first_failure(lf_loader *l, lf_err *err)
{
    lf_loader_step st;
    const lf_loader_batch *b;
    int rc = 0;
    while (rc == 0 && lf_loader_begin_step(l, &st, err) > 0)
        rc = lf_loader_next(l, &b, err);
}

static void test_damage(void)
{
    static const struct {
        void (*damage)(lf_shard_picture *);
        const char *name, *why;
    } v[] = {{break_bytes, "bytes", "document 3, picture 2: PNG"},
             {break_grid, "grid", "document 3, picture 2: it becomes 1 tiles"},
             {break_place, "place", "document 3, picture 2: its "}};
    const struct made m = open_kind(&kinds[0]);
    struct kind wide = kinds[0];
    wide.patches = 4000;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        lf_err err = LF_ERR_INIT;
        write_set(dir_of(v[i].name), &kinds[0], v[i].damage);
        lf_loader_config c = config(dir_of(v[i].name), &wide, &m.p, 1);
        c.mode = LF_LOADER_VALID;
        c.T = 600;
        lf_loader *l = must_open(&c);
        first_failure(l, &err);
        const bool shard = strstr(err.text, "train-00000.h5") != NULL;
        tap_rc(err.rc, LF_EFORMAT, &err, v[i].why, v[i].name);
        tap_ok(shard, "with the shard");
        lf_loader_close(l);
    }
}

static void test_refused(void)
{
    const struct made m = open_kind(&kinds[0]);
    const lf_loader_megatron mega = {.split = "1,0,0", .seed = 1, .samples = 8};
    lf_loader_source both[2] = {{dir_of("set-qwen"), 1}, {dir_of("set-internvl"), 1}};
    lf_loader *l = NULL;
    lf_err err = LF_ERR_INIT;
    lf_loader_config c = config(both[0].dir, &kinds[0], NULL, 1);
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "only text is trained on",
           "pictures for a model of text");
    c = config(both[0].dir, &kinds[0], &m.p, 1);
    c.patch_bytes = 3 * 5 * 5;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "not what the model takes",
           "pictures for another model");
    c = config(both[0].dir, &kinds[0], &m.p, 1);
    c.image_token = 9;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "in the model at token 9",
           "another placeholder");
    c = config(both[0].dir, &kinds[0], &m.p, 2);
    c.max_tiles = 1;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "at least one",
           "no room for a tile in each row");
    c = config(both[0].dir, &kinds[0], &m.p, 1);
    c.megatron = &mega;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "Megatron", "Megatron's order");
    c = config(both[0].dir, &kinds[0], &m.p, 1);
    c.sources = both;
    c.n_sources = 2;
    tap_rc(lf_loader_open(&l, &c, &err), LF_EINVAL, &err, "another processor",
           "sources of two processors");
}

int main(void)
{
    if (!media_has_decoder("rgb8.png"))
        tap_skip_all("PNG is not built in");
    for (size_t i = 0; i < FILES; i++)
        media_read(&bytes[i], files[i]);
    for (size_t i = 0; i < KINDS; i++)
        TAP(7, test_epoch(&kinds[i]));
    for (size_t i = 0; i < KINDS; i++)
        TAP(4, test_alone(&kinds[i]));
    TAP(4, test_order());
    TAP(6, test_damage());
    TAP(6, test_refused());
    for (size_t i = 0; i < FILES; i++)
        lf_buf_fini(&bytes[i]);
    return tap_done();
}
