/* SPDX-License-Identifier: Apache-2.0
 *
 * One split of a `shards` artifact as a single sequence of documents.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/shard.h"

struct member {
    lf_shard *shard;
    const uint64_t *offsets; /* the shard's */
    uint64_t first_doc, first_token;
    char *name;
};

struct lf_shardset {
    lf_shard_info info;
    struct member *m;
    size_t n;
    uint8_t id[LF_HASH_BYTES];
};

static bool in_split(const char *path, const char *split)
{
    size_t n = strlen(split);
    return strncmp(path, split, n) == 0 && path[n] == '-';
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int check_same(const lf_shardset *s, const lf_shard_info *b, const char *dir,
                      const char *name, lf_err *err)
{
    const lf_shard_info *a = &s->info;
    const char *what = strcmp(a->tokenizer_sha256, b->tokenizer_sha256) != 0 ? "tokenizer_sha256"
                       : a->vocab_size != b->vocab_size                      ? "vocab_size"
                       : a->eos_id != b->eos_id                              ? "eos_id"
                       : a->rows != b->rows                                  ? "lf_rows"
                       : !same_text(a->processor, b->processor)              ? "media_processor"
                       : !same_text(a->settings, b->settings)                ? "media_settings"
                       : a->image_token != b->image_token                    ? "image_token"
                                                                             : NULL;
    return what ? lf_fail(err, LF_EFORMAT, "%s: %s has another %s than %s", dir, name, what,
                          s->m[0].name)
                : 0;
}

static int add_shard(lf_shardset *s, const char *dir, const lf_artifact_file *f, lf_err *err)
{
    struct member *m = &s->m[s->n];
    char *path = NULL;
    int fd = lf_artifact_open_file(dir, f->path, err); /* refuses links and odd paths */
    if (fd < 0)
        return fd;
    close(fd);
    if (!(path = lf_path_join(dir, f->path, err)) || !(m->name = lf_strdup(f->path, err))) {
        free(path);
        return LF_ENOMEM;
    }
    s->n++;
    int64_t bytes = lf_io_size(path, err);
    int rc = bytes < 0 ? (int)bytes : 0;
    if (rc == 0 && bytes != f->bytes)
        rc = lf_fail(err, LF_EFORMAT, "%s has %lld bytes, its manifest says %lld (cut short?)",
                     path, (long long)bytes, (long long)f->bytes);
    if (rc == 0)
        rc = lf_shard_open(&m->shard, path, err);
    free(path);
    if (rc < 0)
        return rc;
    const lf_shard_info *info = lf_shard_get_info(m->shard);
    m->offsets = lf_shard_offsets(m->shard);
    m->first_doc = s->info.n_docs;
    m->first_token = s->info.n_tokens;
    if (s->n == 1)
        s->info = *info;
    else if ((rc = check_same(s, info, dir, f->path, err)) == 0) {
        s->info.n_docs += info->n_docs;
        s->info.n_tokens += info->n_tokens;
    }
    return rc;
}

int lf_shardset_open(lf_shardset **out, const char *dir, const char *split, lf_err *err)
{
    lf_artifact a = {0};
    lf_shardset *s = NULL;
    lf_hash *h = NULL;
    int rc = lf_artifact_load(&a, dir, "shards", err);
    if (rc < 0)
        return rc;
    rc = LF_ENOMEM;
    if (!(s = lf_calloc(1, sizeof *s, err)) || !(s->m = lf_calloc(a.n_files, sizeof *s->m, err)) ||
        !(h = lf_hash_create(err)))
        goto out;
    rc = 0;
    for (size_t i = 0; i < a.n_files && rc == 0; i++)
        if (in_split(a.files[i].path, split)) {
            lf_hash_update(h, a.files[i].sha256, LF_HASH_BYTES);
            rc = add_shard(s, dir, &a.files[i], err);
        }
    if (rc < 0)
        goto out;
    if (s->n == 0) {
        rc = lf_fail(err, LF_ENOENT, "%s has no '%s' shards (files %s-NNNNN.h5)%s", dir, split,
                     split,
                     strcmp(split, "valid") == 0 ? ": nothing was kept for validation "
                                                   "(valid_fraction of the stage that made it)"
                                                 : "");
        goto out;
    }
    lf_hash_final(h, s->id);
    *out = s;
    s = NULL;
out:
    lf_hash_destroy(h);
    lf_shardset_close(s);
    lf_artifact_fini(&a);
    return rc;
}

void lf_shardset_close(lf_shardset *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        lf_shard_close(s->m[i].shard);
        free(s->m[i].name);
    }
    free(s->m);
    free(s);
}

const lf_shard_info *lf_shardset_get_info(const lf_shardset *s)
{
    return &s->info;
}
const uint8_t *lf_shardset_id(const lf_shardset *s)
{
    return s->id;
}

static const struct member *member_of(const lf_shardset *s, uint64_t doc)
{
    size_t lo = 0, hi = s->n;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->m[mid].first_doc <= doc)
            lo = mid;
        else
            hi = mid;
    }
    return &s->m[lo];
}

uint64_t lf_shardset_doc_len(const lf_shardset *s, uint64_t doc)
{
    const struct member *m = member_of(s, doc);
    uint64_t d = doc - m->first_doc;
    return m->offsets[d + 1] - m->offsets[d];
}

int lf_shardset_read(const lf_shardset *s, uint64_t doc, uint64_t first, size_t n, int32_t *dst,
                     lf_err *err)
{
    if (doc >= s->info.n_docs)
        return lf_fail(err, LF_EINVAL, "document %llu of %llu", (unsigned long long)doc,
                       (unsigned long long)s->info.n_docs);
    const struct member *m = member_of(s, doc);
    uint64_t d = doc - m->first_doc, len = m->offsets[d + 1] - m->offsets[d];
    if (first > len || n > len - first)
        return lf_fail(err, LF_EINVAL, "tokens %llu + %zu of a document of %llu",
                       (unsigned long long)first, n, (unsigned long long)len);
    return lf_shard_read(m->shard, m->offsets[d] + first, n, dst, err);
}

bool lf_shardset_has_mask(const lf_shardset *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++)
        any = any || lf_shard_has_mask(s->m[i].shard);
    return any;
}

bool lf_shardset_trained(const lf_shardset *s, uint64_t doc, uint64_t token)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_trained(m->shard, m->offsets[doc - m->first_doc] + token);
}

uint64_t lf_shardset_count_trained(const lf_shardset *s, uint64_t doc, uint64_t first, uint64_t n)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_count_trained(m->shard, m->offsets[doc - m->first_doc] + first, n);
}

bool lf_shardset_has_margin(const lf_shardset *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++)
        any = any || lf_shard_has_margin(s->m[i].shard);
    return any;
}

float lf_shardset_margin(const lf_shardset *s, uint64_t pair)
{
    const struct member *m = member_of(s, 2 * pair);
    return lf_shard_margin(m->shard, pair - m->first_doc / 2);
}

bool lf_shardset_label(const lf_shardset *s, uint64_t doc)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_label(m->shard, doc - m->first_doc);
}

const char *lf_shardset_rest(const lf_shardset *s, uint64_t doc, size_t *len)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_rest(m->shard, doc - m->first_doc, len);
}

uint64_t lf_shardset_pictures(const lf_shardset *s, uint64_t doc)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_pictures(m->shard, doc - m->first_doc);
}

void lf_shardset_picture_get(const lf_shardset *s, uint64_t doc, uint64_t i, lf_shard_picture *out)
{
    const struct member *m = member_of(s, doc);
    lf_shard_picture_get(m->shard, doc - m->first_doc, i, out);
}

int lf_shardset_picture_read(const lf_shardset *s, uint64_t doc, uint64_t i, void *dst, lf_err *err)
{
    const struct member *m = member_of(s, doc);
    return lf_shard_picture_read(m->shard, doc - m->first_doc, i, dst, err);
}

size_t lf_shardset_picture_most(const lf_shardset *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = lf_shard_picture_most(s->m[i].shard);
        most = n > most ? n : most;
    }
    return most;
}

uint64_t lf_shardset_patches(const lf_shardset *s, uint64_t doc, uint64_t *tiles)
{
    const struct member *m = member_of(s, doc);
    uint64_t n = lf_shard_pictures(m->shard, doc - m->first_doc), patches = 0;
    *tiles = 0;
    for (uint64_t i = 0; i < n; i++) {
        lf_shard_picture p;
        lf_shard_picture_get(m->shard, doc - m->first_doc, i, &p);
        *tiles += (uint64_t)p.tiles;
        patches += (uint64_t)p.tiles * (uint64_t)p.grid_h * (uint64_t)p.grid_w;
    }
    return patches;
}

static uint64_t seqs_of(const struct member *m, const uint64_t **offsets)
{
    uint64_t docs = lf_shard_get_info(m->shard)->n_docs;
    const uint64_t *seqs = lf_shard_doc_seqs(m->shard);
    *offsets = seqs ? lf_shard_seq_offsets(m->shard) : m->offsets;
    return seqs ? seqs[docs] : docs;
}

uint64_t lf_shardset_n_seqs(const lf_shardset *s)
{
    const uint64_t *offsets;
    uint64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += seqs_of(&s->m[i], &offsets);
    return n;
}

int lf_shardset_seq_lengths(const lf_shardset *s, uint32_t *len, lf_err *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t *offsets;
        uint64_t n = seqs_of(&s->m[i], &offsets);
        for (uint64_t k = 0; k < n; k++) {
            if (offsets[k + 1] - offsets[k] > INT32_MAX)
                return lf_fail(err, LF_EINVAL, "%s: sequence %llu has more than 2^31 - 1 tokens",
                               s->m[i].name, (unsigned long long)k);
            *len++ = (uint32_t)(offsets[k + 1] - offsets[k]);
        }
    }
    return 0;
}

int lf_shardset_read_flat(const lf_shardset *s, uint64_t first, size_t n, int32_t *dst, lf_err *err)
{
    size_t lo = 0, hi = s->n;
    if (first > s->info.n_tokens || n > s->info.n_tokens - first)
        return lf_fail(err, LF_EINVAL, "tokens %llu + %zu of %llu", (unsigned long long)first, n,
                       (unsigned long long)s->info.n_tokens);
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->m[mid].first_token <= first)
            lo = mid;
        else
            hi = mid;
    }
    for (; n; lo++) {
        const struct member *m = &s->m[lo];
        uint64_t at = first - m->first_token, left = lf_shard_get_info(m->shard)->n_tokens - at;
        size_t k = left < n ? (size_t)left : n;
        int rc = lf_shard_read(m->shard, at, k, dst, err);
        if (rc < 0)
            return rc;
        dst += k;
        first += k;
        n -= k;
    }
    return 0;
}

const lf_shard *lf_shardset_file(const lf_shardset *s, size_t i)
{
    return i < s->n ? s->m[i].shard : NULL;
}

void lf_shardset_locate(const lf_shardset *s, uint64_t doc, const char **file, uint64_t *index)
{
    const struct member *m = member_of(s, doc);
    *file = m->name;
    *index = doc - m->first_doc;
}
