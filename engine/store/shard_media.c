/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the pictures of a shard: every list is checked at open, so that no number of the file is
 * believed afterwards.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/store/shard_priv.h"

#define MAX_SIDE 65536 /* of a picture, of a grid; their products fit */

int lf_shard_media_attrs(lf_shard_info *info, char *owned[2], const char *path, lf_h5 *f,
                         lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char hex[LF_HASH_HEX], *said = NULL;
    int rc;
    if ((rc = lf_h5_get_attr_str(f, "media_processor", &owned[0], err)) < 0 ||
        (rc = lf_h5_get_attr_str(f, "media_settings", &owned[1], err)) < 0 ||
        (rc = lf_h5_get_attr_str(f, "media_processor_sha256", &said, err)) < 0 ||
        (rc = lf_h5_get_attr_i64(f, "image_token", &info->image_token, err)) < 0 ||
        (rc = lf_hash_buf(digest, owned[0], strlen(owned[0]), err)) < 0)
        goto out;
    lf_hash_hex(hex, digest);
    if (strcmp(hex, said) != 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: media_processor has not the hash that stands beside it",
                     path);
    else if (info->image_token < 0 || info->image_token >= info->vocab_size)
        rc = lf_fail(err, LF_EFORMAT, "%s: image_token %lld is not below vocab_size", path,
                     (long long)info->image_token);
    info->processor = owned[0];
    info->settings = owned[1];
out:
    free(said);
    return rc;
}

/* ---- checks ---- */

static int check_ascending(const uint64_t *v, uint64_t n, bool strictly, const char *what,
                           const char *path, lf_err *err)
{
    if (v[0] != 0)
        return lf_fail(err, LF_EFORMAT, "%s: %s do not begin at 0", path, what);
    for (uint64_t i = 0; i < n; i++)
        if (v[i] > v[i + 1] || (strictly && v[i] == v[i + 1]))
            return lf_fail(err, LF_EFORMAT, "%s: %s do not ascend at %llu", path, what,
                           (unsigned long long)i);
    return 0;
}

static int check_pictures(const struct lf_shard_media *m, const char *path, lf_err *err)
{
    for (uint64_t i = 0; i < m->n; i++) {
        uint32_t w = m->wh[2 * i], h = m->wh[2 * i + 1];
        if (w < 1 || h < 1 || w > MAX_SIDE || h > MAX_SIDE || m->kind[i] < LF_PICTURE_JPEG ||
            m->kind[i] > LF_PICTURE_WEBP)
            return lf_fail(err, LF_EFORMAT, "%s: picture %llu is of kind %d and has %u x %u pixels",
                           path, (unsigned long long)i, m->kind[i], w, h);
    }
    return 0;
}

static int check_use(const struct lf_shard_media *m, uint64_t u, uint64_t from, uint64_t doc_len,
                     const char *path, lf_err *err)
{
    const int32_t *g = &m->grid[3 * u];
    uint64_t first = m->place[2 * u], count = m->place[2 * u + 1];
    if (m->use[u] >= m->n)
        return lf_fail(err, LF_EFORMAT, "%s: media/use %llu names picture %u of %llu", path,
                       (unsigned long long)u, m->use[u], (unsigned long long)m->n);
    if (g[0] < 1 || g[1] < 1 || g[2] < 1 || g[0] > MAX_SIDE || g[1] > MAX_SIDE || g[2] > MAX_SIDE)
        return lf_fail(err, LF_EFORMAT, "%s: media/grid %llu is %d x %d x %d", path,
                       (unsigned long long)u, g[0], g[1], g[2]);
    if (first < from || count > doc_len || first > doc_len - count)
        return lf_fail(err, LF_EFORMAT,
                       "%s: media/place %llu is %llu + %llu in a document of %llu tokens", path,
                       (unsigned long long)u, (unsigned long long)first, (unsigned long long)count,
                       (unsigned long long)doc_len);
    return 0;
}

static int check_uses(const lf_shard *s, const struct lf_shard_media *m, lf_err *err)
{
    const uint64_t *offsets = lf_shard_offsets(s);
    uint64_t docs = lf_shard_get_info(s)->n_docs;
    for (uint64_t d = 0; d < docs; d++) {
        uint64_t from = 0;
        for (uint64_t u = m->doc_media[d]; u < m->doc_media[d + 1]; u++) {
            int rc = check_use(m, u, from, offsets[d + 1] - offsets[d], lf_shard_path(s), err);
            if (rc < 0)
                return rc;
            from = (uint64_t)m->place[2 * u] + m->place[2 * u + 1];
        }
    }
    return 0;
}

/* ---- opening ---- */

/* The number of elements of a list; the list itself is read with lf_shard_read_all. */
static int length_of(lf_h5 *f, const char *name, uint64_t *n, lf_err *err)
{
    lf_h5_dataset d = {0};
    int rc = lf_h5_stat(f, name, &d, err);
    *n = d.n_elems;
    lf_h5_dataset_fini(&d);
    return rc;
}

static int read_lists(lf_shard *s, struct lf_shard_media *m, lf_h5 *f, lf_err *err)
{
    const uint64_t docs = lf_shard_get_info(s)->n_docs;
    int rc = length_of(f, "media/kind", &m->n, err);
    if (rc == 0)
        rc = length_of(f, "media/use", &m->n_uses, err);
    /* both counts are of bytes that the file holds, so that these products cannot overflow */
    const struct {
        const char *name;
        enum lf_h5_type type;
        uint64_t n;
        void *out_ptr;
    } lists[] = {{"doc_media", LF_H5_U64, docs + 1, &m->doc_media},
                 {"media/use", LF_H5_U32, m->n_uses, &m->use},
                 {"media/grid", LF_H5_I32, 3 * m->n_uses, &m->grid},
                 {"media/place", LF_H5_U32, 2 * m->n_uses, &m->place},
                 {"media/offsets", LF_H5_U64, m->n + 1, &m->offset},
                 {"media/kind", LF_H5_U8, m->n, &m->kind},
                 {"media/wh", LF_H5_U32, 2 * m->n, &m->wh},
                 {"media/sha256", LF_H5_U8, LF_HASH_BYTES * m->n, &m->sha}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0] && rc == 0; i++)
        rc = lf_shard_read_all(s, f, lists[i].name, lists[i].type, lists[i].n, lists[i].out_ptr,
                               err);
    return rc < 0 ? rc : lf_h5_stat(f, "media/bytes", &m->bytes, err);
}

int lf_shard_media_open(lf_shard *s, lf_h5 *f, lf_err *err)
{
    struct lf_shard_media *m = lf_shard_get_media(s);
    const char *path = lf_shard_path(s);
    const uint64_t docs = lf_shard_get_info(s)->n_docs;
    int rc = read_lists(s, m, f, err);
    if (rc < 0)
        return rc;
    if (m->bytes.type != LF_H5_U8 || m->bytes.ndim != 1 || m->bytes.n_elems != m->offset[m->n])
        return lf_fail(err, LF_EFORMAT,
                       "%s: media/bytes is not a list of the %llu u8 that "
                       "media/offsets end at",
                       path, (unsigned long long)m->offset[m->n]);
    if (m->doc_media[docs] != m->n_uses)
        return lf_fail(err, LF_EFORMAT, "%s: doc_media ends at %llu, there are %llu uses", path,
                       (unsigned long long)m->doc_media[docs], (unsigned long long)m->n_uses);
    if ((rc = check_ascending(m->offset, m->n, true, "media/offsets", path, err)) < 0 ||
        (rc = check_ascending(m->doc_media, docs, false, "doc_media", path, err)) < 0 ||
        (rc = check_pictures(m, path, err)) < 0)
        return rc;
    return check_uses(s, m, err);
}

void lf_shard_media_fini(struct lf_shard_media *m)
{
    if (!m)
        return;
    free(m->doc_media);
    free(m->offset);
    free(m->use);
    free(m->place);
    free(m->wh);
    free(m->grid);
    free(m->kind);
    free(m->sha);
    lf_h5_dataset_fini(&m->bytes);
    free(m);
}

/* ---- pictures ---- */

uint64_t lf_shard_pictures(const lf_shard *s, uint64_t doc)
{
    const struct lf_shard_media *m = lf_shard_get_media(s);
    return m ? m->doc_media[doc + 1] - m->doc_media[doc] : 0;
}

void lf_shard_picture_get(const lf_shard *s, uint64_t doc, uint64_t i, lf_shard_picture *out)
{
    const struct lf_shard_media *m = lf_shard_get_media(s);
    const uint64_t u = m->doc_media[doc] + i, p = m->use[u];
    *out = (lf_shard_picture){.n = (size_t)(m->offset[p + 1] - m->offset[p]),
                              .kind = (enum lf_shard_picture_kind)m->kind[p],
                              .w = m->wh[2 * p],
                              .h = m->wh[2 * p + 1],
                              .tiles = m->grid[3 * u],
                              .grid_h = m->grid[3 * u + 1],
                              .grid_w = m->grid[3 * u + 2],
                              .first = m->place[2 * u],
                              .count = m->place[2 * u + 1],
                              .id = p};
    memcpy(out->sha256, m->sha + LF_HASH_BYTES * p, LF_HASH_BYTES);
}

int lf_shard_picture_read(const lf_shard *s, uint64_t doc, uint64_t i, void *dst, lf_err *err)
{
    const struct lf_shard_media *m = lf_shard_get_media(s);
    const uint64_t p = m->use[m->doc_media[doc] + i];
    return lf_shard_read_raw(s, &m->bytes, m->offset[p], (size_t)(m->offset[p + 1] - m->offset[p]),
                             dst, err);
}

size_t lf_shard_picture_most(const lf_shard *s)
{
    const struct lf_shard_media *m = lf_shard_get_media(s);
    uint64_t most = 0;
    for (uint64_t p = 0; m && p < m->n; p++)
        most = m->offset[p + 1] - m->offset[p] > most ? m->offset[p + 1] - m->offset[p] : most;
    return (size_t)most;
}
