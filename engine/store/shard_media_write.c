/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing the pictures of a shard. A picture is told by the hash of its file and stored once. The
 * bytes wait in a temporary file beside the shard that has no name from the start, so a run that is
 * killed leaves nothing behind.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/shard_priv.h"

int lf_shard_pics_attrs(const lf_shard_info *info, lf_h5 *f, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX];
    int rc = lf_hash_buf(digest, info->processor, strlen(info->processor), err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    if ((rc = lf_h5_put_attr_str(f, "media_processor", info->processor, err)) < 0 ||
        (rc = lf_h5_put_attr_str(f, "media_processor_sha256", hex, err)) < 0 ||
        (rc = lf_h5_put_attr_str(f, "media_settings", info->settings, err)) < 0)
        return rc;
    return lf_h5_put_attr_i64(f, "image_token", info->image_token, err);
}

/* ---- the table of hashes ---- */

/* The slot of this hash: that of the picture, or the empty one where it belongs. */
static size_t find_slot(const struct lf_shard_pics *x, const uint8_t *sha)
{
    uint64_t h;
    memcpy(&h, sha, sizeof h);
    size_t i = (size_t)h & (x->n_slots - 1);
    while (x->slot[i] &&
           memcmp(x->sha + LF_HASH_BYTES * (size_t)(x->slot[i] - 1), sha, LF_HASH_BYTES) != 0)
        i = (i + 1) & (x->n_slots - 1);
    return i;
}

/* The table is at most half full. */
static int more_slots(struct lf_shard_pics *x, lf_err *err)
{
    if (2 * (x->n + 1) <= x->n_slots)
        return 0;
    size_t n = x->n_slots ? 2 * x->n_slots : 256;
    uint32_t *slot = lf_calloc(n, sizeof *slot, err);
    if (!slot)
        return LF_ENOMEM;
    free(x->slot);
    x->slot = slot;
    x->n_slots = n;
    for (size_t i = 0; i < x->n; i++)
        x->slot[find_slot(x, x->sha + LF_HASH_BYTES * i)] = (uint32_t)i + 1;
    return 0;
}

/* ---- one picture ---- */

/* Room for `add` more elements behind `used`. */
static int room(void *p_ptr, size_t *cap, size_t used, size_t add, size_t size, lf_err *err)
{
    size_t need = used + add;
    if (need <= *cap)
        return 0;
    size_t n = need > 2 * *cap ? need : 2 * *cap;
    int rc = lf_realloc(p_ptr, n, size, err);
    if (rc == 0)
        *cap = n;
    return rc;
}

static int room_for_picture(struct lf_shard_pics *x, lf_err *err)
{
    int rc = room(&x->offset, &x->cap_offset, x->n, 2, sizeof *x->offset, err);
    if (rc == 0)
        rc = room(&x->kind, &x->cap_kind, x->n, 1, 1, err);
    if (rc == 0)
        rc = room(&x->sha, &x->cap_sha, LF_HASH_BYTES * x->n, LF_HASH_BYTES, 1, err);
    if (rc == 0)
        rc = room(&x->wh, &x->cap_wh, 2 * x->n, 2, sizeof *x->wh, err);
    return rc < 0 ? rc : more_slots(x, err);
}

static int open_bytes(struct lf_shard_pics *x, lf_err *err)
{
    lf_buf name;
    lf_buf_init(&name);
    lf_buf_addf(&name, "%s.media-XXXXXX", x->beside);
    int rc = lf_buf_check(&name, err), fd = rc == 0 ? mkstemp(name.data) : -1;
    if (rc == 0 && fd < 0)
        rc = lf_fail_errno(err, "cannot make the temporary file %s", name.data);
    if (rc == 0 && (unlink(name.data) != 0 || !(x->bytes = fdopen(fd, "w+")))) {
        rc = lf_fail_errno(err, "cannot use the temporary file %s", name.data);
        close(fd);
    }
    lf_buf_fini(&name);
    return rc;
}

static int add_picture(struct lf_shard_pics *x, const lf_shard_picture *p, lf_err *err)
{
    if (x->n >= UINT32_MAX - 1)
        return lf_fail(err, LF_EINVAL, "a shard holds at most 2^32 - 2 pictures");
    int rc = room_for_picture(x, err);
    if (rc < 0)
        return rc;
    if (!x->bytes && (rc = open_bytes(x, err)) < 0)
        return rc;
    if (fwrite(p->bytes, 1, p->n, x->bytes) != p->n)
        return lf_fail_errno(err, "cannot write a picture to a temporary file (is the disk full?)");
    if (x->n == 0)
        x->offset[0] = 0;
    memcpy(x->sha + LF_HASH_BYTES * x->n, p->sha256, LF_HASH_BYTES);
    x->kind[x->n] = (uint8_t)p->kind;
    x->wh[2 * x->n] = p->w;
    x->wh[2 * x->n + 1] = p->h;
    x->offset[x->n + 1] = x->offset[x->n] + p->n;
    x->slot[find_slot(x, p->sha256)] = (uint32_t)x->n + 1;
    x->n++;
    return 0;
}

static int check_picture(const lf_shard_picture *p, const lf_shard_doc *d, uint64_t from,
                         lf_err *err)
{
    if (p->n == 0 || p->kind < LF_PICTURE_JPEG || p->kind > LF_PICTURE_WEBP || p->w < 1 ||
        p->h < 1 || p->tiles < 1 || p->grid_h < 1 || p->grid_w < 1)
        return lf_fail(err, LF_EINVAL, "a picture without bytes, kind, size or patches");
    if (p->first < from || p->count > d->n || p->first > d->n - p->count)
        return lf_fail(
            err, LF_EINVAL,
            "a picture with placeholders %u + %u in a document of %zu tokens, after %llu", p->first,
            p->count, d->n, (unsigned long long)from);
    return 0;
}

static int add_use(struct lf_shard_pics *x, const lf_shard_picture *p, lf_err *err)
{
    size_t u = x->n_uses;
    int rc = room(&x->use, &x->cap_use, u, 1, sizeof *x->use, err);
    if (rc == 0)
        rc = room(&x->place, &x->cap_place, 2 * u, 2, sizeof *x->place, err);
    if (rc == 0)
        rc = room(&x->grid, &x->cap_grid, 3 * u, 3, sizeof *x->grid, err);
    if (rc == 0 && (x->n_slots == 0 || x->slot[find_slot(x, p->sha256)] == 0))
        rc = add_picture(x, p, err);
    if (rc < 0)
        return rc;
    x->use[u] = x->slot[find_slot(x, p->sha256)] - 1;
    x->place[2 * u] = p->first;
    x->place[2 * u + 1] = p->count;
    x->grid[3 * u] = p->tiles;
    x->grid[3 * u + 1] = p->grid_h;
    x->grid[3 * u + 2] = p->grid_w;
    x->n_uses++;
    return 0;
}

int lf_shard_pics_add(struct lf_shard_pics *x, const lf_shard_doc *d, size_t n_docs, lf_err *err)
{
    uint64_t from = 0;
    int rc = room(&x->doc_media, &x->cap_docs, n_docs, 2, sizeof *x->doc_media, err);
    for (size_t i = 0; i < d->n_pictures && rc == 0; i++) {
        const lf_shard_picture *p = &d->pictures[i];
        rc = check_picture(p, d, from, err);
        if (rc == 0)
            rc = add_use(x, p, err);
        from = (uint64_t)p->first + p->count;
    }
    if (rc < 0)
        return rc;
    if (n_docs == 0)
        x->doc_media[0] = 0;
    x->doc_media[n_docs + 1] = x->n_uses;
    return 0;
}

/* ---- all of them ---- */

int lf_shard_pics_put(struct lf_shard_pics *x, lf_h5 *f, size_t n_docs, uint64_t *at, lf_err *err)
{
    static const uint64_t zero = 0;
    const struct {
        const char *name;
        enum lf_h5_type type;
        const void *data;
        size_t n;
    } lists[] = {{"doc_media", LF_H5_U64, x->doc_media ? x->doc_media : &zero, n_docs + 1},
                 {"media/use", LF_H5_U32, x->use, x->n_uses},
                 {"media/grid", LF_H5_I32, x->grid, 3 * x->n_uses},
                 {"media/place", LF_H5_U32, x->place, 2 * x->n_uses},
                 {"media/offsets", LF_H5_U64, x->n ? x->offset : &zero, x->n + 1},
                 {"media/kind", LF_H5_U8, x->kind, x->n},
                 {"media/wh", LF_H5_U32, x->wh, 2 * x->n},
                 {"media/sha256", LF_H5_U8, x->sha, LF_HASH_BYTES * x->n}};
    int rc = 0;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && rc == 0; i++)
        rc = lf_h5_put(f, lists[i].name, lists[i].type, lists[i].data, lists[i].n, err);
    if (rc < 0)
        return rc;
    if (x->n == 0)
        return lf_h5_put(f, "media/bytes", LF_H5_U8, NULL, 0, err);
    const int64_t bytes = (int64_t)x->offset[x->n];
    return lf_h5_put_extent(f, "media/bytes", LF_H5_U8, 1, &bytes, at, err);
}

int lf_shard_pics_copy(struct lf_shard_pics *x, const char *path, uint64_t at, lf_err *err)
{
    enum { BLOCK = 1 << 20 };
    uint64_t left = x->offset[x->n];
    char *block = lf_malloc(BLOCK, 1, err);
    int fd = block ? open(path, O_WRONLY | O_CLOEXEC) : -1, rc = block ? 0 : LF_ENOMEM;
    if (block && fd < 0)
        rc = lf_fail_errno(err, "cannot open %s", path);
    if (rc == 0 && fseeko(x->bytes, 0, SEEK_SET) != 0)
        rc = lf_fail_errno(err, "cannot write pictures to a temporary file (is the disk full?)");
    while (rc == 0 && left > 0) {
        size_t n = left < BLOCK ? (size_t)left : BLOCK;
        if (fread(block, 1, n, x->bytes) != n)
            rc = lf_fail(err, LF_EIO, "cannot read pictures back from a temporary file");
        else
            rc = lf_io_pwrite_all(fd, block, n, (off_t)at, path, err);
        at += n;
        left -= n;
    }
    if (fd >= 0 && close(fd) != 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot complete %s", path);
    free(block);
    return rc;
}

void lf_shard_pics_fini(struct lf_shard_pics *x)
{
    if (x->bytes)
        fclose(x->bytes);
    free(x->doc_media);
    free(x->use);
    free(x->place);
    free(x->grid);
    free(x->offset);
    free(x->kind);
    free(x->sha);
    free(x->wh);
    free(x->slot);
}
