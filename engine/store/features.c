/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of pictures: see features.h. Sizes follow from the grids, so a file has its structure
 * before the first row is known, and rows are written where they belong. */
#include "engine/store/features.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

/* ---- keys ---- */

static bool same(const struct lf_features_key *a, const struct lf_features_key *b)
{
    return memcmp(a->sha256, b->sha256, LF_HASH_BYTES) == 0 && a->tiles == b->tiles &&
           a->grid_h == b->grid_h && a->grid_w == b->grid_w && a->alone == b->alone;
}

/* The slot of this key, or the empty one where it belongs. */
static size_t slot_of(const struct lf_features_keys *k, const struct lf_features_key *key)
{
    uint64_t h;
    memcpy(&h, key->sha256, sizeof h);
    size_t i = (size_t)h & (k->n_slots - 1);
    while (k->slot[i] && !same(&k->v[k->slot[i] - 1], key))
        i = (i + 1) & (k->n_slots - 1);
    return i;
}

int64_t lf_features_find(const struct lf_features_keys *k, const struct lf_features_key *key)
{
    const uint32_t at = k->n_slots ? k->slot[slot_of(k, key)] : 0;
    return at ? (int64_t)at - 1 : LF_ENOENT;
}

/* The table is at most half full. */
static int more_slots(struct lf_features_keys *k, lf_err *err)
{
    if (2 * (k->n + 1) <= k->n_slots)
        return 0;
    const size_t n = k->n_slots ? 2 * k->n_slots : 256;
    uint32_t *slot = lf_calloc(n, sizeof *slot, err);
    if (!slot)
        return LF_ENOMEM;
    free(k->slot);
    k->slot = slot;
    k->n_slots = n;
    for (size_t i = 0; i < k->n; i++)
        k->slot[slot_of(k, &k->v[i])] = (uint32_t)i + 1;
    return 0;
}

int64_t lf_features_add(struct lf_features_keys *k, const struct lf_features_key *key, lf_err *err)
{
    const int64_t have = lf_features_find(k, key);
    if (have >= 0)
        return have;
    if (k->n >= UINT32_MAX - 1)
        return lf_fail(err, LF_EINVAL, "features of more than 2^32 - 2 pictures");
    int rc = more_slots(k, err);
    if (rc == 0)
        rc = lf_grow(&k->v, &k->cap, k->n, sizeof *k->v, err);
    if (rc != 0)
        return rc;
    k->v[k->n] = *key;
    k->slot[slot_of(k, key)] = (uint32_t)k->n + 1;
    return (int64_t)k->n++;
}

void lf_features_keys_fini(struct lf_features_keys *k)
{
    free(k->v);
    free(k->slot);
    memset(k, 0, sizeof *k);
}

int lf_features_type(enum lf_h5_type *out, const char *precision, lf_err *err)
{
    static const struct {
        const char *name;
        enum lf_h5_type type;
    } all[] = {{"f32", LF_H5_F32}, {"bf16", LF_H5_BF16}, {"fp16", LF_H5_F32}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, precision) == 0) {
            *out = all[i].type;
            return 0;
        }
    return lf_fail(err, LF_EINVAL, "features of precision %.16s", precision);
}

/* ---- writing ---- */

enum { HEAD_BYTES = 2056 }; /* of HDF5: headers, attributes, the last entry of offsets */

struct lf_features_writer {
    char *path;
    int fd;
    uint64_t *offset; /* [n + 1] */
    uint64_t at;      /* of rows in the file */
    size_t row_bytes;
};

static int put_lists(lf_h5 *f, const struct lf_features_keys *keys, const uint64_t *offset,
                     lf_err *err)
{
    uint8_t *sha = lf_malloc(keys->n, LF_HASH_BYTES, err);
    int32_t *grid = lf_malloc(keys->n, 4 * sizeof *grid, err);
    int rc = sha && grid ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < keys->n && rc == 0; i++) {
        const struct lf_features_key *k = &keys->v[i];
        const int32_t g[] = {k->tiles, k->grid_h, k->grid_w, k->alone};
        memcpy(sha + i * LF_HASH_BYTES, k->sha256, LF_HASH_BYTES);
        memcpy(grid + 4 * i, g, sizeof g);
    }
    if (rc == 0)
        rc = lf_h5_put(f, "sha256", LF_H5_U8, sha, keys->n * LF_HASH_BYTES, err);
    if (rc == 0)
        rc = lf_h5_put(f, "grid", LF_H5_I32, grid, 4 * keys->n, err);
    if (rc == 0)
        rc = lf_h5_put(f, "offsets", LF_H5_U64, offset, keys->n + 1, err);
    free(sha);
    free(grid);
    return rc;
}

static int put_attrs(lf_h5 *f, const struct lf_features_info *info, lf_err *err)
{
    int rc = lf_h5_put_attr_str(f, "lf_format", LF_FEATURES_FORMAT, err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "encoder_sha256", info->encoder_sha256, err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "processor_sha256", info->processor_sha256, err);
    return rc == 0 ? lf_h5_put_attr_str(f, "precision", info->precision, err) : rc;
}

static int structure(lf_features_writer *w, const struct lf_features_info *info,
                     const struct lf_features_keys *keys, lf_err *err)
{
    enum lf_h5_type type;
    lf_h5 *f = NULL;
    int rc = lf_features_type(&type, info->precision, err);
    if (rc != 0)
        return rc;
    const int64_t dims[] = {(int64_t)w->offset[keys->n], info->width};
    w->row_bytes = (size_t)info->width * lf_h5_type_bytes(type);
    if ((rc = lf_h5_create(&f, w->path, err)) != 0)
        return rc;
    rc = put_attrs(f, info, err);
    if (rc == 0)
        rc = put_lists(f, keys, w->offset, err);
    if (rc == 0)
        rc = lf_h5_put_extent(f, "rows", type, 2, dims, &w->at, err);
    const int closed = lf_h5_close(f, rc < 0 ? NULL : err);
    rc = rc < 0 ? rc : closed;
    if (rc == 0 && (w->fd = open(w->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW)) < 0)
        rc = lf_fail_errno(err, "cannot open %s", w->path);
    if (rc != 0)
        unlink(w->path);
    return rc;
}

static void writer_free(lf_features_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    free(w->path);
    free(w->offset);
    free(w);
}

static uint64_t rows_of(const struct lf_features_key *k, int class_rows)
{
    return (uint64_t)k->tiles * ((uint64_t)k->grid_h * (uint64_t)k->grid_w + (uint64_t)class_rows);
}

int64_t lf_features_bytes(const struct lf_features_keys *keys, size_t row_bytes, int class_rows)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < keys->n; i++)
        rows += rows_of(&keys->v[i], class_rows);
    const size_t list = LF_HASH_BYTES + 4 * sizeof(int32_t) + sizeof(uint64_t);
    return HEAD_BYTES + (int64_t)(keys->n * list + rows * row_bytes);
}

int lf_features_create(lf_features_writer **out, const char *path,
                       const struct lf_features_info *info, const struct lf_features_keys *keys,
                       int class_rows, lf_err *err)
{
    if (!keys->n)
        LF_BUG("features of no pictures in %s", path);
    lf_features_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    w->fd = -1;
    w->path = lf_strdup(path, err);
    w->offset = lf_calloc(keys->n + 1, sizeof *w->offset, err);
    int rc = w->path && w->offset ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < keys->n && rc == 0; i++)
        w->offset[i + 1] = w->offset[i] + rows_of(&keys->v[i], class_rows);
    if (rc == 0)
        rc = structure(w, info, keys, err);
    if (rc != 0)
        writer_free(w);
    else
        *out = w;
    return rc;
}

int lf_features_put(const lf_features_writer *w, size_t i, const void *rows, lf_err *err)
{
    return lf_io_pwrite_all(w->fd, rows, (size_t)(w->offset[i + 1] - w->offset[i]) * w->row_bytes,
                            (off_t)(w->at + w->offset[i] * w->row_bytes), w->path, err);
}

int lf_features_finish(lf_features_writer *w, struct lf_features_stat *stat, lf_err *err)
{
    int rc = 0;
    if (close(w->fd) != 0)
        rc = lf_fail_errno(err, "cannot complete %s", w->path);
    w->fd = -1;
    if (rc == 0)
        rc = lf_tree_hash_file(stat->sha256, &stat->bytes, w->path, err);
    if (rc == 0)
        rc = lf_io_fsync_path(w->path, err);
    if (rc != 0)
        unlink(w->path);
    writer_free(w);
    return rc;
}

void lf_features_abort(lf_features_writer *w)
{
    if (!w)
        return;
    unlink(w->path);
    writer_free(w);
}

/* ---- reading ---- */

struct place {
    uint32_t file;
    uint64_t at; /* byte in the file */
    uint64_t rows;
};

struct file {
    char *path;
    int fd;
};

struct lf_features {
    struct lf_features_info info;
    size_t row_bytes;
    struct lf_features_keys keys;
    struct place *place; /* [keys.n] */
    size_t cap_place;
    uint64_t class_rows; /* of each tile of every picture, beside those of its patches */
    struct file *file;
    size_t n_files, cap_files;
};

/* A contiguous list, whose length the file decides where n is 0. */
static int read_list(const struct file *at, lf_h5 *f, const char *name, enum lf_h5_type type,
                     uint64_t *n, void **out, lf_err *err)
{
    lf_h5_dataset d = {0};
    int rc = lf_h5_stat(f, name, &d, err);
    if (rc == 0 && (d.type != type || d.ndim != 1 || d.n_extents != 1))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is not a list of %s", at->path, name,
                     lf_h5_type_name(type));
    if (rc == 0 && *n && d.n_elems != *n)
        rc = lf_fail(err, LF_EFORMAT, "%s: %s has %llu numbers, not %llu", at->path, name,
                     (unsigned long long)d.n_elems, (unsigned long long)*n);
    const size_t bytes = rc == 0 ? (size_t)d.n_elems * lf_h5_type_bytes(type) : 0;
    if (rc == 0 && !(*out = lf_malloc(bytes, 1, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_pread_all(at->fd, *out, bytes, (off_t)d.extents[0].offset, at->path, err);
    *n = d.n_elems;
    lf_h5_dataset_fini(&d);
    return rc;
}

static int read_attr(char *out, size_t cap, lf_h5 *f, const char *name, const char *path,
                     lf_err *err)
{
    char *text = NULL;
    int rc = lf_h5_get_attr_str(f, name, &text, err);
    if (rc == 0 && strlen(text) >= cap)
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is too long", path, name);
    if (rc == 0)
        memcpy(out, text, strlen(text) + 1);
    free(text);
    return rc;
}

static int read_info(struct lf_features_info *i, lf_h5 *f, const char *path, lf_err *err)
{
    char format[32];
    int rc = read_attr(format, sizeof format, f, "lf_format", path, err);
    if (rc == 0 && strcmp(format, LF_FEATURES_FORMAT) != 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: lf_format is '%s', needed is '%s'", path, format,
                     LF_FEATURES_FORMAT);
    if (rc == 0)
        rc = read_attr(i->encoder_sha256, sizeof i->encoder_sha256, f, "encoder_sha256", path, err);
    if (rc == 0)
        rc = read_attr(i->processor_sha256, sizeof i->processor_sha256, f, "processor_sha256", path,
                       err);
    return rc == 0 ? read_attr(i->precision, sizeof i->precision, f, "precision", path, err) : rc;
}

static int check_info(lf_features *f, const struct lf_features_info *i, const char *path,
                      lf_err *err)
{
    if (f->n_files == 1) {
        f->info = *i;
        return 0;
    }
    if (strcmp(i->encoder_sha256, f->info.encoder_sha256) == 0 &&
        strcmp(i->processor_sha256, f->info.processor_sha256) == 0 &&
        strcmp(i->precision, f->info.precision) == 0 && i->width == f->info.width)
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "%s was made with another encoder, processor or precision than %s", path,
                   f->file[0].path);
}

/* Has a picture of this grid so many rows? Who reads them puts them where its grid says, behind
 * those of other pictures, so one row too many would move all that follow. */
static bool has_rows(lf_features *f, const int32_t *g, uint64_t rows)
{
    if (g[0] < 1 || g[1] < 1 || g[2] < 1)
        return false;
    const uint64_t tiles = (uint64_t)g[0], patches = (uint64_t)g[1] * (uint64_t)g[2];
    if (rows % tiles != 0 || rows / tiles < patches)
        return false;
    if (!f->keys.n)
        f->class_rows = rows / tiles - patches;
    return rows / tiles - patches == f->class_rows;
}

/* The pictures of a file, whose rows begin at byte `at`. */
static int take_pictures(lf_features *f, const uint8_t *sha, const int32_t *grid,
                         const uint64_t *offset, uint64_t n, uint64_t at, lf_err *err)
{
    const char *path = f->file[f->n_files - 1].path;
    for (uint64_t i = 0; i < n; i++) {
        const int32_t *g = grid + 4 * i;
        struct lf_features_key k = {.tiles = g[0], .grid_h = g[1], .grid_w = g[2], .alone = g[3]};
        if (offset[i + 1] <= offset[i] || !has_rows(f, g, offset[i + 1] - offset[i]))
            return lf_fail(err, LF_EFORMAT,
                           "%s: picture %llu is %d x %d x %d patches, and rows [%llu, %llu)", path,
                           (unsigned long long)i, g[0], g[1], g[2], (unsigned long long)offset[i],
                           (unsigned long long)offset[i + 1]);
        memcpy(k.sha256, sha + i * LF_HASH_BYTES, LF_HASH_BYTES);
        const size_t before = f->keys.n;
        int64_t rc = lf_features_add(&f->keys, &k, err);
        if (rc >= 0 && f->keys.n > before) /* else an earlier file has it */
            rc = lf_grow(&f->place, &f->cap_place, before, sizeof *f->place, err);
        if (rc < 0)
            return (int)rc;
        if (f->keys.n > before)
            f->place[before] = (struct place){.file = (uint32_t)f->n_files - 1,
                                              .at = at + offset[i] * f->row_bytes,
                                              .rows = offset[i + 1] - offset[i]};
    }
    return 0;
}

static int read_rows(lf_features *f, lf_h5 *h, struct lf_features_info *info, uint64_t *n,
                     uint64_t *at, lf_err *err)
{
    const char *path = f->file[f->n_files - 1].path;
    enum lf_h5_type type;
    lf_h5_dataset d = {0};
    int rc = lf_features_type(&type, info->precision, NULL) == 0
                 ? lf_h5_stat(h, "rows", &d, err)
                 : lf_fail(err, LF_EFORMAT, "%s: precision is '%s'", path, info->precision);
    if (rc == 0 && (d.ndim != 2 || d.type != type || d.n_extents != 1))
        rc =
            lf_fail(err, LF_EFORMAT, "%s: rows is not a matrix of %s", path, lf_h5_type_name(type));
    if (rc == 0) {
        *n = (uint64_t)d.dims[0];
        info->width = d.dims[1];
        *at = d.extents[0].offset;
        rc = check_info(f, info, path, err);
        f->row_bytes = (size_t)info->width * lf_h5_type_bytes(type);
    }
    lf_h5_dataset_fini(&d);
    return rc;
}

static int read_file(lf_features *f, lf_h5 *h, lf_err *err)
{
    const struct file *at = &f->file[f->n_files - 1];
    struct lf_features_info info = {.width = 0};
    uint64_t k = 0, rows = 0, begin = 0, n = 0;
    void *offset = NULL, *sha = NULL, *grid = NULL;
    int rc = read_info(&info, h, at->path, err);
    if (rc == 0)
        rc = read_rows(f, h, &info, &rows, &begin, err);
    if (rc == 0)
        rc = read_list(at, h, "offsets", LF_H5_U64, &k, &offset, err);
    if (rc == 0 && (k < 2 || ((uint64_t *)offset)[0] != 0 || ((uint64_t *)offset)[k - 1] != rows))
        rc = lf_fail(err, LF_EFORMAT, "%s: offsets do not end at its %llu rows", at->path,
                     (unsigned long long)rows);
    n = LF_HASH_BYTES * (k - 1);
    if (rc == 0)
        rc = read_list(at, h, "sha256", LF_H5_U8, &n, &sha, err);
    n = 4 * (k - 1);
    if (rc == 0)
        rc = read_list(at, h, "grid", LF_H5_I32, &n, &grid, err);
    if (rc == 0)
        rc = take_pictures(f, sha, grid, offset, k - 1, begin, err);
    free(offset);
    free(sha);
    free(grid);
    return rc;
}

static int open_file(lf_features *f, const char *dir, const char *name, lf_err *err)
{
    lf_h5 *h = NULL;
    int rc = lf_grow(&f->file, &f->cap_files, f->n_files, sizeof *f->file, err);
    if (rc != 0)
        return rc;
    struct file *at = &f->file[f->n_files++];
    *at = (struct file){.path = lf_path_join(dir, name, err), .fd = -1};
    if (!at->path)
        return LF_ENOMEM;
    if ((at->fd = lf_artifact_open_file(dir, name, err)) < 0)
        return at->fd;
    rc = lf_h5_open(&h, at->path, err);
    if (rc == 0)
        rc = read_file(f, h, err);
    const int closed = lf_h5_close(h, rc < 0 ? NULL : err);
    return rc < 0 ? rc : closed;
}

int lf_features_open(lf_features **out, const char *const *dirs, size_t n, lf_err *err)
{
    lf_features *f = lf_calloc(1, sizeof *f, err);
    int rc = f ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        lf_artifact a = {0};
        rc = lf_artifact_load(&a, dirs[i], "features", err);
        if (rc == 0)
            rc = lf_artifact_check_lengths(&a, dirs[i], err);
        for (size_t k = 0; rc == 0 && k < a.n_files; k++)
            rc = open_file(f, dirs[i], a.files[k].path, err);
        if (rc == 0 && !a.n_files)
            rc = lf_fail(err, LF_EFORMAT, "%s: its manifest names no file", dirs[i]);
        lf_artifact_fini(&a);
    }
    if (rc != 0)
        lf_features_close(f);
    else
        *out = f;
    return rc;
}

void lf_features_close(lf_features *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n_files; i++) {
        if (f->file[i].fd >= 0)
            close(f->file[i].fd);
        free(f->file[i].path);
    }
    lf_features_keys_fini(&f->keys);
    free(f->place);
    free(f->file);
    free(f);
}

const struct lf_features_info *lf_features_get_info(const lf_features *f)
{
    return &f->info;
}

int64_t lf_features_rows(const lf_features *f, const struct lf_features_key *key, size_t *number)
{
    const int64_t at = lf_features_find(&f->keys, key);
    if (at < 0)
        return at;
    *number = (size_t)at;
    return (int64_t)f->place[at].rows;
}

int lf_features_read(const lf_features *f, size_t number, void *dst, lf_err *err)
{
    const struct place *p = &f->place[number];
    return lf_io_pread_all(f->file[p->file].fd, dst, (size_t)p->rows * f->row_bytes, (off_t)p->at,
                           f->file[p->file].path, err);
}
