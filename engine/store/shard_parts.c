/* SPDX-License-Identifier: Apache-2.0
 *
 * The optional parts of a shard: a bit per token for the loss, and sequences inside documents.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/store/shard_priv.h"

/* ---- writing ---- */

static int add_mask(struct lf_shard_extra *x, const lf_shard_doc *d, uint64_t n_tokens, lf_err *err)
{
    if (!x->any_mask && !d->mask)
        return 0;
    size_t need = (size_t)((n_tokens + d->n + 7) / 8);
    if (need > x->mask_bytes) { /* doubled: documents are many and short */
        size_t cap = need > 2 * x->mask_bytes ? need : 2 * x->mask_bytes;
        int rc = lf_realloc(&x->mask, cap, 1, err);
        if (rc < 0)
            return rc;
        memset(x->mask + x->mask_bytes, 0xff, cap - x->mask_bytes);
        x->mask_bytes = cap;
    }
    x->any_mask = true;
    for (size_t i = 0; d->mask && i < d->n; i++)
        if (!d->mask[i])
            x->mask[(n_tokens + i) / 8] &= (uint8_t) ~(1u << (n_tokens + i) % 8);
    return 0;
}

static int add_seq(struct lf_shard_extra *x, uint64_t first, int8_t mode, lf_err *err)
{
    int rc = lf_grow(&x->seq_first, &x->cap_seqs, x->n_seqs, sizeof *x->seq_first, err);
    if (rc == 0)
        rc = lf_grow(&x->modes, &x->cap_modes, x->n_seqs, sizeof *x->modes, err);
    if (rc < 0)
        return rc;
    x->seq_first[x->n_seqs] = first;
    x->modes[x->n_seqs++] = mode;
    return 0;
}

/* The documents so far were one sequence each; now that has to be written down. */
static int begin_seqs(struct lf_shard_extra *x, const uint64_t *offsets, size_t n_docs, lf_err *err)
{
    int rc = lf_grow(&x->doc_seqs, &x->cap_docs, 0, sizeof *x->doc_seqs, err);
    if (rc == 0)
        x->doc_seqs[0] = 0;
    for (size_t d = 0; d < n_docs && rc == 0; d++) {
        rc = lf_grow(&x->doc_seqs, &x->cap_docs, d + 1, sizeof *x->doc_seqs, err);
        if (rc == 0)
            rc = add_seq(x, offsets[d], 0, err);
        if (rc == 0)
            x->doc_seqs[d + 1] = d + 1;
    }
    x->any_seqs = rc == 0;
    return rc;
}

static int add_seqs(struct lf_shard_extra *x, const lf_shard_doc *d, const uint64_t *offsets,
                    size_t n_docs, uint64_t n_tokens, lf_err *err)
{
    bool one = !d->seq_len || d->n_seqs == 1;
    if (!x->any_seqs && one && !d->modes)
        return 0;
    int rc = x->any_seqs ? 0 : begin_seqs(x, offsets, n_docs, err);
    if (rc == 0)
        rc = lf_grow(&x->doc_seqs, &x->cap_docs, n_docs + 1, sizeof *x->doc_seqs, err);
    x->any_modes = x->any_modes || d->modes;
    for (size_t i = 0; i < (d->seq_len ? d->n_seqs : 1) && rc == 0; i++) {
        rc = add_seq(x, n_tokens, d->modes ? d->modes[i] : 0, err);
        n_tokens += d->seq_len ? d->seq_len[i] : 0;
    }
    if (rc < 0)
        return rc;
    x->doc_seqs[n_docs + 1] = x->n_seqs;
    x->n_docs = n_docs + 1;
    return 0;
}

int lf_shard_extra_add(struct lf_shard_extra *x, const lf_shard_doc *d, const uint64_t *offsets,
                       size_t n_docs, uint64_t n_tokens, lf_err *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; d->seq_len && i < d->n_seqs; i++)
        sum += d->seq_len[i];
    if (d->seq_len && sum != d->n)
        return lf_fail(err, LF_EINVAL, "a document of %zu tokens in sequences of %llu", d->n,
                       (unsigned long long)sum);
    int rc = add_mask(x, d, n_tokens, err);
    return rc < 0 ? rc : add_seqs(x, d, offsets, n_docs, n_tokens, err);
}

int lf_shard_extra_put(struct lf_shard_extra *x, lf_h5 *f, uint64_t n_tokens, lf_err *err)
{
    int rc = 0;
    size_t bytes = (size_t)((n_tokens + 7) / 8);
    if (x->any_mask) {
        if (n_tokens % 8) /* bits after the last token are 0 */
            x->mask[bytes - 1] &= (uint8_t)((1u << n_tokens % 8) - 1);
        rc = lf_h5_put(f, "loss_mask", LF_H5_U8, x->mask, bytes, err);
    }
    if (rc < 0 || !x->any_seqs)
        return rc;
    rc = lf_grow(&x->seq_first, &x->cap_seqs, x->n_seqs, sizeof *x->seq_first, err);
    if (rc < 0)
        return rc;
    x->seq_first[x->n_seqs] = n_tokens;
    rc = lf_h5_put(f, "doc_seqs", LF_H5_U64, x->doc_seqs, x->n_docs + 1, err);
    if (rc == 0)
        rc = lf_h5_put(f, "seq_offsets", LF_H5_U64, x->seq_first, x->n_seqs + 1, err);
    if (rc == 0 && x->any_modes)
        rc = lf_h5_put(f, "seq_modes", LF_H5_U8, x->modes, x->n_seqs, err);
    return rc;
}

void lf_shard_extra_fini(struct lf_shard_extra *x)
{
    free(x->mask);
    free(x->doc_seqs);
    free(x->seq_first);
    free(x->modes);
}

/* ---- reading ---- */

int lf_shard_parts_rank(struct lf_shard_parts *p, uint64_t n_tokens, lf_err *err)
{
    uint64_t bytes = n_tokens / 8 + (n_tokens % 8 > 0), blocks = n_tokens / LF_SHARD_RANK + 1,
             sum = 0;
    if (!(p->rank = lf_malloc((size_t)blocks, sizeof *p->rank, err)))
        return LF_ENOMEM;
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t lo = b * (LF_SHARD_RANK / 8), hi = lo + LF_SHARD_RANK / 8;
        p->rank[b] = sum;
        for (uint64_t i = lo; i < hi && i < bytes; i++)
            sum += (uint64_t)__builtin_popcount(p->mask[i]);
    }
    return 0;
}

/* Set bits of [0, i). */
static uint64_t ones_before(const struct lf_shard_parts *p, uint64_t i)
{
    uint64_t n = p->rank[i / LF_SHARD_RANK];
    for (uint64_t k = i / LF_SHARD_RANK * (LF_SHARD_RANK / 8); k < i / 8; k++)
        n += (uint64_t)__builtin_popcount(p->mask[k]);
    return i % 8 ? n + (uint64_t)__builtin_popcount(p->mask[i / 8] & ((1u << i % 8) - 1)) : n;
}

int lf_shard_parts_check(const struct lf_shard_parts *p, const uint64_t *offsets, uint64_t n_docs,
                         const char *path, lf_err *err)
{
    for (uint64_t d = 0; d < n_docs; d++)
        if (p->doc_seqs[d] > p->doc_seqs[d + 1])
            return lf_fail(err, LF_EFORMAT, "%s: doc_seqs decrease at document %llu", path,
                           (unsigned long long)d);
    for (uint64_t s = 0; s < p->n_seqs; s++)
        if (p->seq_offsets[s] > p->seq_offsets[s + 1])
            return lf_fail(err, LF_EFORMAT, "%s: seq_offsets decrease at sequence %llu", path,
                           (unsigned long long)s);
    for (uint64_t d = 0; d <= n_docs; d++)
        if (p->seq_offsets[p->doc_seqs[d]] != offsets[d])
            return lf_fail(err, LF_EFORMAT,
                           "%s: document %llu does not begin where its first sequence does", path,
                           (unsigned long long)d);
    return p->doc_seqs[0] == 0 ? 0
                               : lf_fail(err, LF_EFORMAT, "%s: doc_seqs do not begin at 0", path);
}

void lf_shard_parts_fini(struct lf_shard_parts *p)
{
    free(p->mask);
    free(p->rank);
    free(p->doc_seqs);
    free(p->seq_offsets);
    free(p->modes);
    free(p->margin);
    free(p->label);
    free(p->rest_offset);
    free(p->rest);
}

bool lf_shard_has_mask(const lf_shard *s)
{
    return lf_shard_get_parts(s)->mask != NULL;
}

bool lf_shard_trained(const lf_shard *s, uint64_t i)
{
    const uint8_t *m = lf_shard_get_parts(s)->mask;
    return !m || (m[i / 8] >> i % 8 & 1);
}

uint64_t lf_shard_count_trained(const lf_shard *s, uint64_t first, uint64_t n)
{
    const struct lf_shard_parts *p = lf_shard_get_parts(s);
    return p->mask ? ones_before(p, first + n) - ones_before(p, first) : n;
}

const uint64_t *lf_shard_doc_seqs(const lf_shard *s)
{
    return lf_shard_get_parts(s)->doc_seqs;
}
const uint64_t *lf_shard_seq_offsets(const lf_shard *s)
{
    return lf_shard_get_parts(s)->seq_offsets;
}
const int8_t *lf_shard_seq_modes(const lf_shard *s)
{
    return lf_shard_get_parts(s)->modes;
}
