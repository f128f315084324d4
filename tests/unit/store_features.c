/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of pictures: keys are found whatever their number, rows come back, pictures are found in
 * several files, files that do not belong together or contradict themselves are refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/store/features.h"
#include "tests/tap/tap.h"

enum { W = 6, KEYS = 1000 };

static lf_err err = LF_ERR_INIT;

static const char *at(const char *name)
{
    static char p[4100];
    snprintf(p, sizeof p, "%s/%s", tap_tmpdir(), name);
    return p;
}

static struct lf_features_key key(int k)
{
    struct lf_features_key y = {
        .tiles = k % 2 + 1, .grid_h = k % 3 + 1, .grid_w = 2, .alone = k % 5 == 0};
    y.sha256[0] = (uint8_t)k; /* most share their slot */
    y.sha256[LF_HASH_BYTES - 1] = (uint8_t)(k >> 8);
    return y;
}

static void test_keys(void)
{
    struct lf_features_keys keys = {0};
    int bad = 0;
    for (int k = 0; k < KEYS; k++) {
        const struct lf_features_key x = key(k);
        bad += lf_features_find(&keys, &x) != LF_ENOENT;
        bad += lf_features_add(&keys, &x, &err) != k || lf_features_add(&keys, &x, &err) != k;
    }
    for (int k = 0; k < KEYS; k++) {
        struct lf_features_key x = key(k);
        bad += lf_features_find(&keys, &x) != k;
        x.alone = !x.alone;
        bad += lf_features_find(&keys, &x) != LF_ENOENT;
    }
    tap_i64(bad, 0, "each key has its number, and others have none");
    lf_features_keys_fini(&keys);
}

/* ---- sets ---- */

static struct lf_features_info info_of(char encoder)
{
    struct lf_features_info i = {.precision = "f32", .width = W};
    memset(i.encoder_sha256, encoder, LF_HASH_HEX - 1);
    memset(i.processor_sha256, 'b', LF_HASH_HEX - 1);
    return i;
}

static int64_t rows_of(const struct lf_features_key *k, int class_rows)
{
    return k->tiles * ((int64_t)k->grid_h * k->grid_w + class_rows);
}

/* Number i of the rows of picture k. */
static float number(int k, int64_t i)
{
    return (float)(k * 1000 + i);
}

/* Publishes directory `name` with one file, of pictures [from, to), the last one first. */
static void make(const char *name, const struct lf_features_info *info, int from, int to)
{
    struct lf_features_keys keys = {0};
    lf_features_writer *w = NULL;
    struct lf_features_stat st;
    lf_artifact a = {0};
    char dir[4100], path[4200];
    float rows[200];
    snprintf(dir, sizeof dir, "%s", at(name));
    snprintf(path, sizeof path, "%s/features-00000.h5", dir);
    for (int k = from; k < to; k++) {
        const struct lf_features_key x = key(k);
        if (lf_features_add(&keys, &x, &err) < 0)
            tap_bail("%s", err.text);
    }
    if (lf_io_mkdirs(dir, 0750, &err) || lf_features_create(&w, path, info, &keys, 1, &err))
        tap_bail("%s", err.text);
    for (int k = to - 1; k >= from; k--) {
        const struct lf_features_key x = key(k);
        for (int64_t i = 0; i < rows_of(&x, 1) * W; i++)
            rows[i] = number(k, i);
        if (lf_features_put(w, (size_t)(k - from), rows, &err))
            tap_bail("%s", err.text);
    }
    if (lf_features_finish(w, &st, &err) || lf_artifact_init(&a, "features", &err) ||
        lf_artifact_add(&a, "features-00000.h5", st.bytes, st.sha256, &err) ||
        lf_artifact_publish(&a, dir, &err))
        tap_bail("%s", err.text);
    lf_artifact_fini(&a);
    lf_features_keys_fini(&keys);
}

static int open_both(lf_features **f, const char *a, const char *b)
{
    char x[4100], y[4100];
    snprintf(x, sizeof x, "%s", at(a));
    snprintf(y, sizeof y, "%s", at(b));
    return lf_features_open(f, (const char *const[]){x, y}, 2, &err);
}

static void test_sets(void)
{
    const struct lf_features_info one = info_of('a'), two = info_of('c');
    lf_features *f = NULL;
    float rows[200];
    int bad = 0;
    size_t n;
    make("one", &one, 0, 6);
    make("more", &one, 4, 9);
    make("other", &two, 9, 10);
    tap_rc(open_both(&f, "one", "more"), 0, &err, NULL, "two of one encoder");
    for (int k = 0; k < 9; k++) {
        const struct lf_features_key x = key(k);
        const int64_t want = rows_of(&x, 1);
        if (lf_features_rows(f, &x, &n) != want || lf_features_read(f, n, rows, &err)) {
            bad++;
            continue;
        }
        for (int64_t i = 0; i < want * W; i++)
            bad += rows[i] != number(k, i);
    }
    tap_i64(bad, 0, "every number of every picture");
    const struct lf_features_key none = key(9);
    tap_i64(lf_features_rows(f, &none, &n), LF_ENOENT, "a picture that has none");
    lf_features_close(f);
    tap_rc(open_both(&f, "one", "other"), LF_EINVAL, &err, "another encoder", "of two encoders");
}

/* ---- damaged files ---- */

struct lists {
    const char *format, *precision, *encoder;
    enum lf_h5_type rows_type, offset_type;
    int ndim;
    int64_t n_rows, width;
    const uint64_t *offset;
    const int32_t *grid;
    size_t n_offset, n_sha, n_grid;
    const char *missing;
};

static int put(lf_h5 *f, const struct lists *l, const char *name, enum lf_h5_type type,
               const void *v, size_t n)
{
    return l->missing && strcmp(l->missing, name) == 0 ? 0 : lf_h5_put(f, name, type, v, n, NULL);
}

/* Opens an artifact with such a file. */
static int open_crafted(const struct lists *l)
{
    static const uint8_t sha[2 * LF_HASH_BYTES] = {1};
    const int64_t dims[] = {l->n_rows, l->width};
    uint64_t where;
    lf_h5 *h = NULL;
    lf_artifact a = {0};
    lf_features *f = NULL;
    char dir[4100], path[4200];
    snprintf(dir, sizeof dir, "%s", at("crafted"));
    snprintf(path, sizeof path, "%s/x.h5", dir);
    if ((lf_io_exists(dir) && lf_io_remove_tree(dir, &err)) || lf_io_mkdirs(dir, 0750, &err) ||
        lf_h5_create(&h, path, &err) || lf_h5_put_attr_str(h, "lf_format", l->format, &err) ||
        lf_h5_put_attr_str(h, "encoder_sha256", l->encoder, &err) ||
        lf_h5_put_attr_str(h, "processor_sha256", "b", &err) ||
        lf_h5_put_attr_str(h, "precision", l->precision, &err) ||
        put(h, l, "sha256", LF_H5_U8, sha, l->n_sha) ||
        put(h, l, "grid", LF_H5_I32, l->grid, l->n_grid) ||
        put(h, l, "offsets", l->offset_type, l->offset, l->n_offset) ||
        ((!l->missing || strcmp(l->missing, "rows") != 0) &&
         lf_h5_put_extent(h, "rows", l->rows_type, l->ndim, dims, &where, &err)) ||
        lf_h5_close(h, &err) || lf_artifact_init(&a, "features", &err) ||
        lf_artifact_add_hashed(&a, dir, "x.h5", &err) || lf_artifact_publish(&a, dir, &err))
        tap_bail("cannot make %s: %s", path, err.text);
    lf_artifact_fini(&a);
    const char *const dirs[] = {dir};
    const int rc = lf_features_open(&f, dirs, 1, &err);
    lf_features_close(f);
    return rc;
}

static void test_damaged(void)
{
    /* 2 tiles of 1 x 2 patches and a class token each; 1 of 2 x 2 */
    static const uint64_t offset[] = {0, 6, 11}, down[] = {0, 12, 11}, late[] = {1, 6, 11},
                          odd[] = {0, 5, 11}, more[] = {0, 8, 11}, less[] = {0, 7, 11};
    static const int32_t grid[] = {2, 1, 2, 0, 1, 2, 2, 0}, zero[] = {2, 1, 2, 0, 1, 2, 0, 0},
                         minus[] = {-2, 1, 2, 0, 1, 2, 2, 0}, one[] = {1, 1, 2, 0, 1, 2, 2, 0},
                         huge[] = {2, 1, 2, 0, 1, INT32_MAX, INT32_MAX, 0};
    const struct lists good = {LF_FEATURES_FORMAT,
                               "f32",
                               "a",
                               LF_H5_F32,
                               LF_H5_U64,
                               2,
                               11,
                               W,
                               offset,
                               grid,
                               3,
                               64,
                               8,
                               NULL};
    char longer[LF_HASH_HEX + 1];
    struct {
        struct lists l;
        const char *why;
    } v[21];
    memset(longer, 'a', LF_HASH_HEX);
    longer[LF_HASH_HEX] = '\0';
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        v[i].l = good;
    v[0].l.format = "lf-features-9", v[0].why = "lf_format is 'lf-features-9'";
    v[1].l.precision = "int8", v[1].why = "precision is 'int8'";
    v[2].l.encoder = longer, v[2].why = "encoder_sha256 is too long";
    v[3].l.rows_type = LF_H5_BF16, v[3].why = "rows is not a matrix of f32";
    v[4].l.ndim = 1, v[4].why = "rows is not a matrix";
    v[5].l.missing = "rows", v[5].why = "rows";
    v[6].l.n_rows = 10, v[6].why = "do not end at its 10 rows";
    v[7].l.offset_type = LF_H5_I64, v[7].why = "offsets is not a list of u64";
    v[8].l.offset = late, v[8].why = "offsets";
    v[9].l.offset = down, v[9].why = "rows [12, 11)";
    v[10].l.n_offset = 1, v[10].why = "offsets";
    v[11].l.n_offset = 0, v[11].why = "offsets is not a list of u64";
    v[12].l.missing = "offsets", v[12].why = "offsets";
    v[13].l.n_sha = 63, v[13].why = "sha256 has 63 numbers, not 64";
    v[14].l.n_grid = 7, v[14].why = "grid has 7 numbers, not 8";
    v[15].l.grid = zero, v[15].why = "picture 1 is 1 x 2 x 0 patches";
    v[16].l.grid = minus, v[16].why = "picture 0 is -2 x 1 x 2 patches";
    v[17].l.grid = huge, v[17].why = "picture 1";
    v[18].l.offset = odd, v[18].why = "picture 0";  /* not as many of one tile as of the other */
    v[19].l.offset = more, v[19].why = "picture 1"; /* fewer than patches */
    v[20].l.grid = one, v[20].why = "picture 1";    /* four class tokens there, one here */
    tap_rc(open_crafted(&good), 0, &err, NULL, "the file that the others differ from");
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        tap_rc(open_crafted(&v[i].l), LF_EFORMAT, &err, v[i].why, v[i].why);
    struct lists l = good;
    l.offset = less;
    tap_rc(open_crafted(&l), LF_EFORMAT, &err, "rows [0, 7)", "which says what it has");
}

static void test_files(void)
{
    const struct lf_features_info info = info_of('a');
    lf_features *f = NULL;
    lf_artifact a = {0};
    char dir[4100];
    snprintf(dir, sizeof dir, "%s", at("none"));
    const char *const dirs[] = {dir};
    tap_rc(lf_features_open(&f, dirs, 1, &err), LF_ENOENT, &err, "none", "no artifact");
    if (lf_io_mkdirs(dir, 0750, &err) || lf_artifact_init(&a, "features", &err) ||
        lf_artifact_publish(&a, dir, &err))
        tap_bail("%s", err.text);
    lf_artifact_fini(&a);
    tap_rc(lf_features_open(&f, dirs, 1, &err), LF_EFORMAT, &err, "no file", "one without files");
    make("short", &info, 0, 3);
    snprintf(dir, sizeof dir, "%s", at("short"));
    if (truncate(at("short/features-00000.h5"), 3000) != 0)
        tap_bail("truncate");
    tap_rc(lf_features_open(&f, dirs, 1, &err), LF_EFORMAT, &err, "features-00000.h5",
           "a file of another length");
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
    TAP(1, test_keys());
    TAP(4, test_sets());
    TAP(23, test_damaged());
    TAP(3, test_files());
    return tap_done();
}
