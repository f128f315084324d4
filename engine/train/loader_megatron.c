/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources in Megatron's order: the indices of megatron_order.h over the sequences of shards.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/train/loader_priv.h"

int lf_mega_open(struct lf_mega *m, const lf_shardset *set, const lf_loader_megatron *c, int32_t T,
                 uint64_t samples, lf_err *err)
{
    double bounds[4];
    uint32_t *len = NULL;
    m->set = set;
    m->n_seqs = lf_shardset_n_seqs(set);
    int rc = lf_megatron_parse_split(bounds, c->split, err);
    if (rc == 0 && (!(len = lf_malloc((size_t)m->n_seqs, sizeof *len, err)) ||
                    !(m->first = lf_malloc((size_t)m->n_seqs + 1, sizeof *m->first, err))))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_shardset_seq_lengths(set, len, err);
    if (rc == 0) {
        lf_megatron_order_args a = {.lengths = len,
                                    .n_seqs = m->n_seqs,
                                    .T = (uint32_t)T,
                                    .samples = samples,
                                    .seed = c->seed};
        m->first[0] = 0;
        for (uint64_t i = 0; i < m->n_seqs; i++)
            m->first[i + 1] = m->first[i] + len[i];
        lf_megatron_split_range(&a.begin, &a.end, bounds, LF_MEGATRON_TRAIN, m->n_seqs);
        rc = lf_megatron_order_build(&m->order, &a, err);
    }
    free(len);
    return rc;
}

void lf_mega_fini(struct lf_mega *m)
{
    lf_megatron_order_destroy(m->order);
    free(m->first);
}

size_t lf_mega_bytes(const struct lf_mega *m)
{
    return m->order ? lf_megatron_order_bytes(m->order) + (size_t)(m->n_seqs + 1) * sizeof *m->first
                    : 0;
}

size_t lf_loader_megatron_bytes(int32_t T, uint64_t seqs, uint64_t tokens, uint64_t samples)
{
    uint64_t t = (uint64_t)T, epochs = tokens ? (samples * t + tokens) / tokens : 1,
             n = epochs * tokens / t + 1;
    return (size_t)(4 * (epochs * seqs + 3 * n + seqs) + 8 * (seqs + 1));
}

struct reading {
    const struct lf_mega *m;
    int32_t *dst;
};

static int read_piece(void *user, uint64_t seq, uint64_t first, uint32_t n, lf_err *err)
{
    struct reading *r = user;
    int rc = lf_shardset_read_flat(r->m->set, r->m->first[seq] + first, n, r->dst, err);
    r->dst += n;
    return rc;
}

int lf_mega_read(const struct lf_mega *m, uint64_t sample, int32_t *dst, lf_err *err)
{
    struct reading r = {m, dst};
    return lf_megatron_order_pieces(m->order, sample, read_piece, &r, err);
}

static int describe_piece(void *user, uint64_t seq, uint64_t first, uint32_t n, lf_err *err)
{
    (void)err;
    return json_array_append_new(user, json_pack("{s:I, s:I, s:I}", "sequence", (json_int_t)seq,
                                                 "first", (json_int_t)first, "len", (json_int_t)n));
}

json_t *lf_mega_describe(const struct lf_mega *m, uint64_t sample)
{
    json_t *list = json_array();
    if (list && lf_megatron_order_pieces(m->order, sample, describe_piece, list, NULL) < 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* ---- all of them ---- */

/* Does the blend ask a source for more than its index has? The counts only rise, so its end
 * tells. */
static int check_blend(const struct lf_mega *m, struct lf_order *o, const lf_loader_config *c,
                       lf_err *err)
{
    struct lf_walker w;
    lf_walker_seek(&w, o, o->n_samples);
    for (size_t k = 0; k < o->n_sources; k++)
        if (w.count[k] > lf_megatron_order_count(m[k].order))
            return lf_fail(err, LF_EINVAL,
                           "%s: the blend takes %llu samples of it and its index has %llu; raise "
                           "megatron_surplus",
                           c->sources[k].dir, (unsigned long long)w.count[k],
                           (unsigned long long)lf_megatron_order_count(m[k].order));
    return 0;
}

int lf_mega_open_all(struct lf_mega *m, struct lf_order *o, const lf_shardset *const *sets,
                     const lf_loader_config *c, lf_err *err)
{
    const lf_loader_megatron *g = c->megatron;
    uint64_t asked = 0, there = 0, samples = (uint64_t)g->samples;
    size_t n = c->n_sources;
    if (g->samples < 1)
        return lf_fail(err, LF_EINVAL,
                       "Megatron's order depends on the samples of the run, which are not known");
    for (size_t k = 0; k < n; k++)
        o->mw[k] = c->sources[k].weight;
    lf_megatron_normalize(o->mw, n);
    o->megatron = true;
    for (size_t k = 0; k < n; k++) {
        uint64_t want = n == 1 && !g->weighted ? samples
                        : g->weighted ? lf_megatron_source_samples(samples, o->mw[k], g->surplus)
                                      : 0;
        int rc = lf_mega_open(&m[k], sets[k], g, c->T, want, err);
        if (rc < 0)
            return lf_err_prefix(err, "%s", c->sources[k].dir);
        o->n[k] = lf_megatron_order_count(m[k].order);
        there += o->n[k];
        asked += lf_megatron_source_samples(samples, o->mw[k], 0);
    }
    for (size_t k = 0; k < n && !g->weighted; k++)
        o->mw[k] = (double)o->n[k];
    lf_megatron_normalize(o->mw, n);
    o->n_samples = (int64_t)(g->weighted       ? asked
                             : n == 1          ? there
                             : samples < there ? samples
                                               : there);
    return n > 1 || g->weighted ? check_blend(m, o, c, err) : 0;
}
