/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents beside the rewards (PPO-ptx: Ouyang et al. 2022, equation 2): every update of the
 * actor takes ptx_batch documents in a shuffled order and adds ptx_coef times their mean loss of a
 * token that their shards have trained, at temperature 1. Which documents they are follows from the
 * number of the update alone, so nothing about them is in a checkpoint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/post/pg_priv.h"

#define SITE_PTX    0x50475450u /* of the permutation of documents; one site per epoch follows it */
#define SITE_WINDOW 0x50475457u /* of where a long one is read */

/* Has it a trained token behind another one? */
static bool has_target(const lf_shardset *s, uint64_t doc)
{
    const uint64_t n = lf_shardset_doc_len(s, doc);
    return n >= 2 && (!lf_shardset_has_mask(s) || lf_shardset_count_trained(s, doc, 1, n - 1) > 0);
}

int lf_pg_ptx_open(lf_pg *p, lf_err *err)
{
    if (!p->c->ptx_data)
        return 0;
    int rc = lf_shardset_open(&p->ptx, p->c->ptx_data, "train", err);
    if (rc != 0)
        return lf_err_prefix(err, "ptx_data");
    const lf_shard_info *info = lf_shardset_get_info(p->ptx);
    if (info->rows != LF_ROWS_PLAIN)
        return lf_fail(err, LF_EINVAL, "ptx_data: %s holds %s, not texts or conversations",
                       p->c->ptx_data, lf_rows_name(info->rows));
    if (strcmp(info->tokenizer_sha256, lf_shardset_get_info(p->data)->tokenizer_sha256) != 0)
        return lf_fail(err, LF_EINVAL, "ptx_data: %s was tokenized otherwise than the prompts",
                       p->c->ptx_data);
    p->ptx_docs = lf_calloc(info->n_docs + 1, sizeof *p->ptx_docs, err);
    if (!p->ptx_docs)
        return LF_ENOMEM;
    for (uint64_t d = 0; d < info->n_docs; d++)
        if (has_target(p->ptx, d))
            p->ptx_docs[p->n_ptx++] = d;
    return p->n_ptx ? 0
                    : lf_fail(err, LF_EINVAL,
                              "ptx_data: no document of %s has a token to predict from another",
                              p->c->ptx_data);
}

/* A document with pictures is seen whole or not at all. */
static bool fits(const lf_pg *p, uint64_t doc, const struct lf_pictures_size *s)
{
    return !s->tiles || (lf_shardset_doc_len(p->ptx, doc) <= (uint64_t)p->context &&
                         s->patches <= p->c->max_patches && s->tiles <= lf_pg_most_tiles(p));
}

int lf_pg_ptx_see(lf_pg *p, lf_err *err)
{
    uint64_t kept = 0;
    if (!p->ptx || !p->eyes)
        return 0;
    for (uint64_t i = 0; i < p->n_ptx; i++) {
        const struct lf_pictures_size s = lf_pg_ptx_size(p, p->ptx_docs[i]);
        if (fits(p, p->ptx_docs[i], &s))
            p->ptx_docs[kept++] = p->ptx_docs[i];
    }
    if (kept < p->n_ptx)
        lf_run_log(&p->run, 1,
                   "%llu of %llu documents of ptx_data have too many pictures for max_patches and "
                   "max_tiles, or with these more than %lld tokens, and are left out",
                   (unsigned long long)(p->n_ptx - kept), (unsigned long long)p->n_ptx,
                   (long long)p->context);
    p->n_ptx = kept;
    return kept ? 0
                : lf_fail(err, LF_EINVAL,
                          "ptx_data: no document of %s fits with its pictures into a micro-batch "
                          "and the %lld tokens of a sequence (the longest prompt and max_tokens): "
                          "raise max_patches, max_tiles or max_tokens",
                          p->c->ptx_data, (long long)p->context);
}

void lf_pg_ptx_close(lf_pg *p)
{
    lf_shardset_close(p->ptx);
    free(p->ptx_docs);
}

struct batch {
    int32_t *tokens; /* [documents, context] */
    bool *trained;   /* likewise */
    struct lf_pg_doc *docs;
    uint32_t *order, *start;
    int64_t n, targets;
};

static void batch_free(struct batch *b)
{
    free(b->tokens);
    free(b->trained);
    free(b->docs);
    free(b->order);
    free(b->start);
}

/* Document number i of the run: all of it, or a window of the longest sequence at a place drawn for
 * it. */
static int read_one(const lf_pg *p, struct batch *b, size_t k, uint64_t i, lf_err *err)
{
    const uint32_t epoch = (uint32_t)(i / p->n_ptx);
    const uint64_t
        doc = p->ptx_docs[lf_rng_permute(p->c->seed, SITE_PTX + epoch, p->n_ptx, i % p->n_ptx)],
        len = lf_shardset_doc_len(p->ptx, doc);
    const uint64_t n = len < (uint64_t)p->context ? len : (uint64_t)p->context,
                   places = len - n + 1;
    const uint64_t at = (uint64_t)(lf_rng_f64(p->c->seed, SITE_WINDOW, i) * (double)places);
    int32_t *to = b->tokens + k * (size_t)p->context;
    struct lf_pg_doc *d = &b->docs[k];
    *d = (struct lf_pg_doc){.tokens = to, .n = (size_t)n, .trained = (size_t)n};
    for (size_t t = (size_t)n - 1; t > 0; t--)
        if (!lf_shardset_has_mask(p->ptx) || lf_shardset_trained(p->ptx, doc, at + t)) {
            b->trained[k * (size_t)p->context + t] = true;
            b->targets++;
            d->trained = t;
        }
    lf_pg_ptx_see_doc(p, d, doc);
    return lf_shardset_read(p->ptx, doc, at, (size_t)n, to, err);
}

static int batch_make(struct batch *b, const lf_pg *p, lf_err *err)
{
    const size_t n = (size_t)p->c->ptx_batch;
    int rc = 0;
    *b = (struct batch){.tokens = lf_calloc(n * (size_t)p->context, sizeof *b->tokens, err),
                        .trained = lf_calloc(n * (size_t)p->context, sizeof *b->trained, err),
                        .docs = lf_calloc(n, sizeof *b->docs, err),
                        .order = lf_calloc(n + 1, sizeof *b->order, err),
                        .start = lf_calloc(n + 1, sizeof *b->start, err)};
    if (!b->tokens || !b->trained || !b->docs || !b->order || !b->start)
        return LF_ENOMEM;
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = read_one(p, b, k, (uint64_t)p->s.actor_updates * n + k, err);
    if (rc == 0 && (b->n = lf_pg_pack(p->actor, b->docs, n, b->order, b->start, err)) < 0)
        rc = (int)b->n;
    return rc;
}

/* Documents [from, to) of the order: their share of the mean loss, and its gradient. */
static int one(lf_pg *p, const struct batch *b, size_t from, size_t to, double *loss, lf_err *err)
{
    int rc = lf_pg_forward_lm(p->actor, b->docs, b->order + from, to - from, err);
    if (rc != 0)
        return rc;
    const float *lp = lf_pg_lp(p->actor);
    float *dlp = lf_pg_dlp(p->actor);
    lf_pg_zero_gradients(p->actor);
    for (size_t j = from; j < to; j++) {
        const struct lf_pg_doc *d = &b->docs[b->order[j]];
        const bool *trained = b->trained + b->order[j] * (size_t)p->context;
        for (size_t t = 1; t < d->n; t++) {
            const size_t r = d->row + t - 1;
            if (!trained[t])
                continue;
            *loss -= (double)lp[r] / (double)b->targets;
            dlp[r] = (float)(-p->c->ptx_coef / (double)b->targets);
        }
    }
    if (!isfinite(*loss))
        return lf_fail(err, LF_ENUMERIC, "the loss of ptx_data is not finite");
    return lf_pg_backward_lm(p->actor, LF_ACCUM, err);
}

int lf_pg_ptx_train(lf_pg *p, struct lf_pg_update *u, int rc, lf_err *err)
{
    struct batch b = {0};
    if (rc != 0)
        return rc;
    u->ptx = 0;
    rc = lf_run_agree(&p->run, batch_make(&b, p, err), err);
    const int64_t turns = rc != 0 ? 0 : lf_pg_turns(&p->who, b.n);
    for (int64_t i = 0; i < turns; i++) {
        const int64_t k = lf_pg_turn(&p->who, i);
        lf_pg_micro_begin(p->actor);
        if (rc == 0 && k < b.n)
            rc = one(p, &b, b.start[k], b.start[k + 1], &u->ptx, err);
        rc = lf_pg_micro_end(p->actor, LF_PG_LM, true, LF_ACCUM, rc, err);
    }
    batch_free(&b);
    return rc;
}
