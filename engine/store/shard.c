/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading one shard. HDF5 is asked once, at open, where the bytes lie; from then on everything is
 * pread.
 */
#include "engine/store/shard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/h5.h"
#include "engine/store/shard_priv.h"

struct lf_shard {
    lf_shard_info info;
    char *source, *path;
    int fd;
    uint64_t *offsets;
    lf_h5_dataset tokens;
    struct lf_shard_parts parts;
    char *about_media[2];         /* info.processor, info.settings */
    struct lf_shard_media *media; /* NULL: no pictures */
};

int lf_shard_read_raw(const lf_shard *s, const lf_h5_dataset *d, uint64_t first, size_t n,
                      void *dst, lf_err *err)
{
    size_t lo = 0, hi = d->n_extents, elem = lf_h5_type_bytes(d->type);
    unsigned char *p = dst;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->extents[mid].first <= first)
            lo = mid;
        else
            hi = mid;
    }
    for (; n; lo++) {
        const lf_h5_extent *e = &d->extents[lo];
        uint64_t skip = first - e->first;
        size_t k = e->n - skip < n ? (size_t)(e->n - skip) : n;
        int rc =
            lf_io_pread_all(s->fd, p, k * elem, (off_t)(e->offset + skip * elem), s->path, err);
        if (rc < 0)
            return rc;
        p += k * elem;
        first += k;
        n -= k;
    }
    return 0;
}

static int read_attrs(lf_shard *s, lf_h5 *f, lf_err *err)
{
    char *format = NULL, *sha = NULL, *rows = NULL;
    uint8_t digest[LF_HASH_BYTES];
    int rc;
    if ((rc = lf_h5_get_attr_str(f, "lf_format", &format, err)) < 0 ||
        (rc = lf_h5_get_attr_str(f, "tokenizer_sha256", &sha, err)) < 0 ||
        (rc = lf_h5_get_attr_i64(f, "vocab_size", &s->info.vocab_size, err)) < 0 ||
        (rc = lf_h5_get_attr_i64(f, "eos_id", &s->info.eos_id, err)) < 0 ||
        (rc = lf_h5_get_attr_str(f, "source", &s->source, err)) < 0 ||
        (lf_h5_has_attr(f, "lf_rows") &&
         ((rc = lf_h5_get_attr_str(f, "lf_rows", &rows, err)) < 0 ||
          (rc = lf_shard_rows_parse(&s->info.rows, rows, s->path, err)) < 0)))
        goto out;
    bool media = strcmp(format, LF_SHARD_FORMAT_MEDIA) == 0;
    if (!media && strcmp(format, LF_SHARD_FORMAT) != 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: lf_format is '%.40s', needed is '%s' or '%s'", s->path,
                     format, LF_SHARD_FORMAT, LF_SHARD_FORMAT_MEDIA);
    else if ((rc = lf_artifact_parse_hex(digest, sha, err)) < 0)
        lf_err_prefix(err, "%s: tokenizer_sha256", s->path);
    else if (s->info.vocab_size < 1 || s->info.vocab_size > INT32_MAX)
        rc =
            lf_fail(err, LF_EFORMAT, "%s: vocab_size %lld", s->path, (long long)s->info.vocab_size);
    else if (s->info.eos_id < -1 || s->info.eos_id >= s->info.vocab_size)
        rc = lf_fail(err, LF_EFORMAT, "%s: eos_id %lld is not below vocab_size", s->path,
                     (long long)s->info.eos_id);
    else
        memcpy(s->info.tokenizer_sha256, sha, LF_HASH_HEX);
    s->info.source = s->source;
    if (rc == 0 && media)
        rc = lf_shard_media_attrs(&s->info, s->about_media, s->path, f, err);
out:
    free(format);
    free(sha);
    free(rows);
    return rc;
}

static int read_offsets(lf_shard *s, const lf_h5_dataset *d, lf_err *err)
{
    if (d->type != LF_H5_U64 || d->ndim != 1 || d->n_elems < 1)
        return lf_fail(err, LF_EFORMAT,
                       "%s: doc_offsets is not a list of u64 of at least one element", s->path);
    /* d lies inside the file, so this allocation is bounded by the file's length. */
    if (!(s->offsets = lf_malloc((size_t)d->n_elems, sizeof *s->offsets, err)))
        return LF_ENOMEM;
    int rc = lf_shard_read_raw(s, d, 0, (size_t)d->n_elems, s->offsets, err);
    if (rc < 0)
        return rc;
    s->info.n_docs = d->n_elems - 1;
    if (s->offsets[0] != 0 || s->offsets[s->info.n_docs] != s->info.n_tokens)
        return lf_fail(
            err, LF_EFORMAT, "%s: doc_offsets run from %llu to %llu, the tokens from 0 to %llu",
            s->path, (unsigned long long)s->offsets[0],
            (unsigned long long)s->offsets[s->info.n_docs], (unsigned long long)s->info.n_tokens);
    for (uint64_t i = 0; i < s->info.n_docs; i++)
        if (s->offsets[i] > s->offsets[i + 1])
            return lf_fail(err, LF_EFORMAT, "%s: doc_offsets decrease at document %llu", s->path,
                           (unsigned long long)i);
    return 0;
}

int lf_shard_read_all(const lf_shard *s, lf_h5 *f, const char *name, enum lf_h5_type type,
                      uint64_t n, void *out_ptr, lf_err *err)
{
    lf_h5_dataset d = {0};
    void *v = NULL;
    int rc = lf_h5_stat(f, name, &d, err);
    if (rc == 0 && (d.type != type || d.ndim != 1 || d.n_elems != n))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s is not a list of %llu %s", s->path, name,
                     (unsigned long long)n, lf_h5_type_name(type));
    if (rc == 0 && !(v = lf_malloc((size_t)n, lf_h5_type_bytes(type), err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_shard_read_raw(s, &d, 0, (size_t)n, v, err);
    lf_h5_dataset_fini(&d);
    if (rc < 0)
        free(v);
    else
        memcpy(out_ptr, &v, sizeof v);
    return rc;
}

/* What the attribute lf_rows promises. */
static int read_rows(lf_shard *s, lf_h5 *f, lf_err *err)
{
    struct lf_shard_parts *p = &s->parts;
    uint64_t docs = s->info.n_docs;
    int rc = 0;
    if (s->info.rows == LF_ROWS_PAIRS && lf_h5_has(f, "margin"))
        rc = lf_shard_read_all(s, f, "margin", LF_H5_F32, docs / 2, &p->margin, err);
    if (s->info.rows == LF_ROWS_UNPAIRED)
        rc = lf_shard_read_all(s, f, "label", LF_H5_U8, docs, &p->label, err);
    if (s->info.rows == LF_ROWS_PROMPTS)
        rc = lf_shard_read_all(s, f, "rest_offsets", LF_H5_U64, docs + 1, &p->rest_offset, err);
    if (rc == 0 && p->rest_offset)
        rc = lf_shard_read_all(s, f, "rest", LF_H5_U8, p->rest_offset[docs], &p->rest, err);
    return rc < 0 ? rc : lf_shard_rows_check(p, s->info.rows, docs, s->path, err);
}

static int read_parts(lf_shard *s, lf_h5 *f, lf_err *err)
{
    struct lf_shard_parts *p = &s->parts;
    uint64_t n = s->info.n_tokens, docs = s->info.n_docs;
    int rc = 0;
    if (lf_h5_has(f, "loss_mask"))
        rc = lf_shard_read_all(s, f, "loss_mask", LF_H5_U8, n / 8 + (n % 8 > 0), &p->mask, err);
    if (rc == 0 && p->mask)
        rc = lf_shard_parts_rank(p, n, err);
    if (rc < 0 || !lf_h5_has(f, "doc_seqs"))
        return rc;
    rc = lf_shard_read_all(s, f, "doc_seqs", LF_H5_U64, docs + 1, &p->doc_seqs, err);
    if (rc < 0)
        return rc;
    /* One more than this many is asked of the file, which must then hold it: no value of n_seqs is
     * believed. */
    p->n_seqs = p->doc_seqs[docs];
    if (p->n_seqs == UINT64_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: doc_seqs ends at 2^64 - 1", s->path);
    rc = lf_shard_read_all(s, f, "seq_offsets", LF_H5_U64, p->n_seqs + 1, &p->seq_offsets, err);
    if (rc == 0 && lf_h5_has(f, "seq_modes"))
        rc = lf_shard_read_all(s, f, "seq_modes", LF_H5_U8, p->n_seqs, &p->modes, err);
    return rc < 0 ? rc : lf_shard_parts_check(p, s->offsets, docs, s->path, err);
}

int lf_shard_open(lf_shard **out, const char *path, lf_err *err)
{
    lf_h5 *f = NULL;
    lf_h5_dataset offs = {0};
    lf_shard *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    s->fd = -1;
    int rc = LF_ENOMEM;
    if (!(s->path = lf_strdup(path, err)))
        goto out;
    if ((rc = lf_h5_open(&f, path, err)) < 0 || (rc = read_attrs(s, f, err)) < 0 ||
        (rc = lf_h5_stat(f, "tokens", &s->tokens, err)) < 0 ||
        (rc = lf_h5_stat(f, "doc_offsets", &offs, err)) < 0)
        goto out;
    if (s->tokens.ndim != 1 || (s->tokens.type != LF_H5_U16 && s->tokens.type != LF_H5_U32)) {
        rc = lf_fail(err, LF_EFORMAT, "%s: tokens is not a list of u16 or u32", path);
        goto out;
    }
    s->info.token_bytes = (int)lf_h5_type_bytes(s->tokens.type);
    s->info.n_tokens = s->tokens.n_elems;
    if ((s->fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        rc = lf_fail_errno(err, "cannot open %s", path);
        goto out;
    }
    if ((rc = read_offsets(s, &offs, err)) < 0 || (rc = read_parts(s, f, err)) < 0 ||
        (rc = read_rows(s, f, err)) < 0)
        goto out;
    if (s->info.processor) {
        rc = LF_ENOMEM;
        if (!(s->media = lf_calloc(1, sizeof *s->media, err)) ||
            (rc = lf_shard_media_open(s, f, err)) < 0)
            goto out;
    }
    *out = s;
    s = NULL;
out:
    lf_h5_dataset_fini(&offs);
    lf_h5_close(f, NULL);
    lf_shard_close(s);
    return rc;
}

void lf_shard_close(lf_shard *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    lf_h5_dataset_fini(&s->tokens);
    lf_shard_parts_fini(&s->parts);
    lf_shard_media_fini(s->media);
    free(s->about_media[0]);
    free(s->about_media[1]);
    free(s->offsets);
    free(s->source);
    free(s->path);
    free(s);
}

const lf_shard_info *lf_shard_get_info(const lf_shard *s)
{
    return &s->info;
}
const uint64_t *lf_shard_offsets(const lf_shard *s)
{
    return s->offsets;
}

const struct lf_shard_parts *lf_shard_get_parts(const lf_shard *s)
{
    return &s->parts;
}

struct lf_shard_media *lf_shard_get_media(const lf_shard *s)
{
    return s->media;
}
const char *lf_shard_path(const lf_shard *s)
{
    return s->path;
}

/* Widen u16 in place: the raw bytes stand in the upper half of dst, so ascending order never
 * overwrites what is still to be read. */
static void widen(int32_t *dst, size_t n)
{
    const unsigned char *src = (const unsigned char *)dst + 2 * n;
    for (size_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, src + 2 * i, 2);
        dst[i] = v;
    }
}

int lf_shard_read(const lf_shard *s, uint64_t first, size_t n, int32_t *dst, lf_err *err)
{
    if (first > s->info.n_tokens || n > s->info.n_tokens - first)
        return lf_fail(err, LF_EINVAL, "%s: tokens %llu + %zu of %llu", s->path,
                       (unsigned long long)first, n, (unsigned long long)s->info.n_tokens);
    bool narrow = s->info.token_bytes == 2;
    int rc = lf_shard_read_raw(s, &s->tokens, first, n, (unsigned char *)dst + (narrow ? 2 * n : 0),
                               err);
    if (rc < 0)
        return rc;
    if (narrow)
        widen(dst, n);
    uint32_t top = 0, vocab = (uint32_t)s->info.vocab_size;
    for (size_t i = 0; i < n; i++)
        top = (uint32_t)dst[i] > top ? (uint32_t)dst[i] : top;
    if (n && top >= vocab)
        return lf_fail(err, LF_EFORMAT,
                       "%s: token id %u near token %llu is not below vocab_size %u (damaged shard)",
                       s->path, top, (unsigned long long)first, vocab);
    return 0;
}
