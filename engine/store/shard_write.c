/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing shards. Tokens are gathered to whole chunks before HDF5 sees them, document offsets are
 * kept in memory and written at the end; the bytes depend on the documents and the attributes
 * alone.
 */
#include "engine/store/shard.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/store/h5.h"
#include "engine/store/shard_priv.h"

#define CHUNK_TOKENS ((size_t)256 << 10)

struct lf_shard_writer {
    lf_h5 *h5;
    char *path;
    int token_bytes;
    int64_t vocab_size;
    void *chunk; /* [CHUNK_TOKENS] of token_bytes */
    size_t fill;
    uint64_t *offsets; /* [n_docs + 1] */
    size_t n_docs, cap;
    uint64_t n_tokens;
    struct lf_shard_extra extra;
    enum lf_rows kind;
    struct lf_shard_rows rows;
    bool media;
    struct lf_shard_pics pics;
    bool failed; /* an append failed half-way: finish must not make it look whole */
};

static void writer_free(lf_shard_writer *w)
{
    free(w->path);
    free(w->chunk);
    free(w->offsets);
    lf_shard_extra_fini(&w->extra);
    lf_shard_rows_fini(&w->rows);
    lf_shard_pics_fini(&w->pics);
    free(w);
}

static int check_info(const lf_shard_info *info, int token_bytes, lf_err *err)
{
    uint8_t sha[LF_HASH_BYTES];
    if (info->vocab_size < 1 || info->vocab_size > INT32_MAX)
        return lf_fail(err, LF_EINVAL, "a shard's vocab_size is 1 to 2^31 - 1, not %lld",
                       (long long)info->vocab_size);
    if (info->eos_id < -1 || info->eos_id >= info->vocab_size)
        return lf_fail(err, LF_EINVAL, "eos_id %lld is not below vocab_size %lld",
                       (long long)info->eos_id, (long long)info->vocab_size);
    if ((token_bytes != 2 && token_bytes != 4) || (token_bytes == 2 && info->vocab_size > 65536))
        return lf_fail(err, LF_EINVAL, "tokens of %d bytes cannot hold a vocabulary of %lld",
                       token_bytes, (long long)info->vocab_size);
    if (info->processor &&
        (!info->settings || info->image_token < 0 || info->image_token >= info->vocab_size))
        return lf_fail(err, LF_EINVAL,
                       "a shard with pictures has settings, and an image_token below vocab_size "
                       "%lld; it is %lld",
                       (long long)info->vocab_size, (long long)info->image_token);
    return lf_artifact_parse_hex(sha, info->tokenizer_sha256, err);
}

int lf_shard_create(lf_shard_writer **out, const char *path, const lf_shard_info *info,
                    int token_bytes, lf_err *err)
{
    if (token_bytes == 0)
        token_bytes = info->vocab_size <= 65536 ? 2 : 4;
    int rc = check_info(info, token_bytes, err);
    if (rc < 0)
        return rc;
    lf_shard_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    w->token_bytes = token_bytes;
    w->vocab_size = info->vocab_size;
    w->kind = info->rows;
    w->media = info->processor != NULL;
    rc = LF_ENOMEM;
    if (!(w->path = lf_strdup(path, err)) ||
        !(w->chunk = lf_malloc(CHUNK_TOKENS, (size_t)token_bytes, err)) ||
        lf_grow(&w->offsets, &w->cap, 0, sizeof *w->offsets, err) < 0)
        goto out;
    w->offsets[0] = 0;
    w->pics.beside = w->path;
    if ((rc = lf_h5_create(&w->h5, path, err)) < 0)
        goto out;
    if ((rc = lf_h5_put_attr_str(w->h5, "lf_format",
                                 w->media ? LF_SHARD_FORMAT_MEDIA : LF_SHARD_FORMAT, err)) < 0 ||
        (rc = lf_h5_put_attr_str(w->h5, "tokenizer_sha256", info->tokenizer_sha256, err)) < 0 ||
        (rc = lf_h5_put_attr_i64(w->h5, "vocab_size", info->vocab_size, err)) < 0 ||
        (rc = lf_h5_put_attr_i64(w->h5, "eos_id", info->eos_id, err)) < 0 ||
        (rc = lf_h5_put_attr_str(w->h5, "source", info->source ? info->source : "", err)) < 0 ||
        (info->rows &&
         (rc = lf_h5_put_attr_str(w->h5, "lf_rows", lf_rows_name(info->rows), err)) < 0) ||
        (w->media && (rc = lf_shard_pics_attrs(info, w->h5, err)) < 0) ||
        (rc = lf_h5_begin_growing(w->h5, "tokens", token_bytes == 2 ? LF_H5_U16 : LF_H5_U32,
                                  CHUNK_TOKENS, err)) < 0) {
        lf_shard_abort(w);
        return rc;
    }
    *out = w;
    return 0;
out:
    writer_free(w);
    return rc;
}

/* Store a token in the chunk being filled. */
static void put_token(lf_shard_writer *w, uint32_t t)
{
    if (w->token_bytes == 2)
        ((uint16_t *)w->chunk)[w->fill++] = (uint16_t)t;
    else
        ((uint32_t *)w->chunk)[w->fill++] = t;
}

static int flush_chunk(lf_shard_writer *w, lf_err *err)
{
    int rc = lf_h5_append(w->h5, w->chunk, w->fill, err);
    if (rc == 0)
        w->fill = 0;
    return rc;
}

int lf_shard_append(lf_shard_writer *w, const uint32_t *tokens, size_t n, lf_err *err)
{
    return lf_shard_append_doc(w, &(lf_shard_doc){.tokens = tokens, .n = n}, err);
}

int lf_shard_append_doc(lf_shard_writer *w, const lf_shard_doc *d, lf_err *err)
{
    const uint32_t *tokens = d->tokens;
    size_t n = d->n;
    int rc;
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= (uint64_t)w->vocab_size)
            return lf_fail(err, LF_EINVAL,
                           "token id %u at position %zu of a document is not below vocab_size %lld",
                           tokens[i], i, (long long)w->vocab_size);
    if ((rc = lf_grow(&w->offsets, &w->cap, w->n_docs + 1, sizeof *w->offsets, err)) < 0)
        return rc;
    if (d->n_pictures && !w->media)
        return lf_fail(err, LF_EINVAL, "a document with pictures in a shard without");
    if ((rc = lf_shard_rows_add(&w->rows, w->kind, d, w->n_docs, err)) < 0)
        return rc;
    if (w->media && (rc = lf_shard_pics_add(&w->pics, d, w->n_docs, err)) < 0) {
        w->failed = true;
        return rc;
    }
    if ((rc = lf_shard_extra_add(&w->extra, d, w->offsets, w->n_docs, w->n_tokens, err)) < 0) {
        w->failed = true;
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (w->fill == CHUNK_TOKENS && (rc = flush_chunk(w, err)) < 0) {
            w->failed = true;
            return rc;
        }
        put_token(w, tokens[i]);
    }
    w->n_tokens += n;
    w->offsets[++w->n_docs] = w->n_tokens;
    return 0;
}

uint64_t lf_shard_writer_tokens(const lf_shard_writer *w)
{
    return w->n_tokens;
}

uint64_t lf_shard_writer_media_bytes(const lf_shard_writer *w)
{
    return w->pics.n ? w->pics.offset[w->pics.n] : 0;
}

int lf_shard_finish(lf_shard_writer *w, lf_shard_stat *stat, lf_err *err)
{
    uint64_t media_at = 0;
    lf_shard_stat st = {.n_docs = w->n_docs, .n_tokens = w->n_tokens};
    int rc = w->failed ? lf_fail(err, LF_EIO, "%s: an earlier write failed", w->path)
                       : flush_chunk(w, err);
    if (rc == 0)
        rc = lf_h5_put(w->h5, "doc_offsets", LF_H5_U64, w->offsets, w->n_docs + 1, err);
    if (rc == 0)
        rc = lf_shard_extra_put(&w->extra, w->h5, w->n_tokens, err);
    if (rc == 0)
        rc = lf_shard_rows_put(&w->rows, w->kind, w->h5, w->n_docs, err);
    if (rc == 0 && w->media)
        rc = lf_shard_pics_put(&w->pics, w->h5, w->n_docs, &media_at, err);
    if (rc < 0) {
        lf_shard_abort(w);
        return rc;
    }
    rc = lf_h5_close(w->h5, err);
    w->h5 = NULL;
    if (rc == 0 && w->pics.n)
        rc = lf_shard_pics_copy(&w->pics, w->path, media_at, err);
    /* Hash before fsync: the pages are still in memory either way, and an I/O error of fsync must
     * be the last word. */
    if (rc < 0 || (rc = lf_tree_hash_file(st.sha256, &st.bytes, w->path, err)) < 0 ||
        (rc = lf_io_fsync_path(w->path, err)) < 0) {
        lf_shard_abort(w);
        return rc;
    }
    writer_free(w);
    if (stat)
        *stat = st;
    return 0;
}

void lf_shard_abort(lf_shard_writer *w)
{
    if (!w)
        return;
    lf_h5_close(w->h5, NULL);
    unlink(w->path);
    writer_free(w);
}

/* ---- synthetic data ---- */

enum { SITE_LEN = 0x51, SITE_TOKEN = 0x52 };

uint32_t lf_shard_synthetic_len(uint64_t seed, uint64_t doc, uint32_t max_len)
{
    return 1 + lf_rng_u32(seed, SITE_LEN, doc) % max_len;
}

uint32_t lf_shard_synthetic_token(uint64_t seed, uint64_t doc, uint32_t k, uint32_t len,
                                  int64_t vocab_size)
{
    uint32_t out[4];
    if (k + 1 == len || vocab_size < 2)
        return 0;
    lf_philox(out, seed, SITE_TOKEN, doc, k);
    return 1 + out[0] % (uint32_t)(vocab_size - 1);
}

/* Documents [d0, d1) as one file of the artifact. */
static int synthetic_file(lf_artifact *a, const char *dir, const char *name, uint64_t d0,
                          uint64_t d1, const struct lf_shard_synthetic *s, lf_err *err)
{
    lf_shard_info info = {.vocab_size = s->vocab_size, .eos_id = 0, .source = "synthetic"};
    lf_shard_writer *w = NULL;
    lf_shard_stat st;
    char *path = lf_path_join(dir, name, err);
    uint32_t *doc = lf_malloc(s->max_len, sizeof *doc, err);
    memset(info.tokenizer_sha256, '0', LF_HASH_HEX - 1);
    int rc = path && doc ? lf_shard_create(&w, path, &info, 0, err) : LF_ENOMEM;
    for (uint64_t d = d0; d < d1 && rc == 0; d++) {
        uint32_t n = lf_shard_synthetic_len(s->seed, d, s->max_len);
        for (uint32_t k = 0; k < n; k++)
            doc[k] = lf_shard_synthetic_token(s->seed, d, k, n, s->vocab_size);
        rc = lf_shard_append(w, doc, n, err);
    }
    if (rc == 0) {
        rc = lf_shard_finish(w, &st, err);
        w = NULL;
    }
    if (rc == 0)
        rc = lf_artifact_add(a, name, st.bytes, st.sha256, err);
    lf_shard_abort(w);
    free(doc);
    free(path);
    return rc;
}

int lf_shard_write_synthetic(const char *dir, const struct lf_shard_synthetic *s, lf_err *err)
{
    lf_artifact a = {0};
    char name[32];
    int rc;
    if (s->n_files < 1 || s->n_files > 99999 || s->max_len < 1)
        return lf_fail(err, LF_EINVAL, "synthetic data: 1 to 99999 files, max_len at least 1");
    if ((rc = lf_io_mkdirs(dir, 0750, err)) < 0 || (rc = lf_artifact_init(&a, "shards", err)) < 0)
        return rc;
    for (int i = 0; i < s->n_files && rc == 0; i++) {
        uint64_t n = (uint64_t)s->n_files, k = (uint64_t)i;
        snprintf(name, sizeof name, "train-%05d.h5", i);
        rc = synthetic_file(&a, dir, name, s->n_docs * k / n, s->n_docs * (k + 1) / n, s, err);
    }
    if (rc == 0 && s->n_valid)
        rc = synthetic_file(&a, dir, "valid-00000.h5", s->n_docs, s->n_docs + s->n_valid, s, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, dir, err);
    lf_artifact_fini(&a);
    return rc;
}
