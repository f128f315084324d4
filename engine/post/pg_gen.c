/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation with weights that are being trained: segments in the plan of the training graph, the step function of gen.h over them. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/post/pg_model_priv.h"

static int add_bucket(lf_pg_model *m, int64_t rows, lf_err *err)
{
    char name[32];
    int k = m->n_buckets;
    int64_t select = rows < m->s.slots ? rows : m->s.slots;
    struct lf_decoder_paged p = {.rows = rows,
                                 .n_seq = m->s.slots,
                                 .max_pages = m->max_pages,
                                 .n_pages = m->n_pages,
                                 .page_tokens = m->s.page_tokens,
                                 .n_select = select,
                                 .cache = m->s.compute};
    if (k == LF_PG_MAX_BUCKETS)
        return lf_fail(err, LF_EINVAL, "%lld rows in a step are too many", (long long)m->s.step_rows);
    snprintf(name, sizeof name, "rollout%lld", (long long)rows);
    lf_graph *g = lf_decoder_paged_graph(m->dec, m->ps, name, &p, err);
    if (!g)
        return err && err->rc ? err->rc : LF_EINVAL;
    int chain = lf_plan_add(m->plan, g, &(struct lf_chain_opts){.eras = 1u << k, .packed = true}, err);
    lf_graph_destroy(g);
    if (chain < 0)
        return chain;
    m->bucket_rows[k] = rows;
    m->bucket_select[k] = select;
    m->bucket_chain[k] = chain;
    m->n_buckets++;
    return 0;
}

int lf_pg_gen_plan(lf_pg_model *m, lf_err *err)
{
    struct lf_pg_model_spec *s = &m->s;
    if (s->page_tokens < LF_ATTN_TILE || s->page_tokens % LF_ATTN_TILE)
        return lf_fail(err, LF_EINVAL, "a page of %lld positions: it must be a multiple of %d", (long long)s->page_tokens, LF_ATTN_TILE);
    if (s->step_rows < s->slots)
        s->step_rows = s->slots;
    m->max_pages = (s->context + s->page_tokens - 1) / s->page_tokens;
    int64_t tokens = s->kv_tokens > 0 ? s->kv_tokens : s->slots * m->max_pages * s->page_tokens;
    m->n_pages = (tokens + s->page_tokens - 1) / s->page_tokens;
    int rc = 0;
    for (int64_t rows = 1; !rc; rows *= 2) {
        rc = add_bucket(m, rows < s->step_rows ? rows : s->step_rows, err);
        if (rows >= s->step_rows)
            break;
    }
    size_t cap = (size_t)s->step_rows;
    if (rc)
        return rc;
    m->row_tok = lf_calloc(cap, sizeof *m->row_tok, err);
    m->row_pos = lf_calloc(cap, sizeof *m->row_pos, err);
    m->row_seq = lf_calloc(cap, sizeof *m->row_seq, err);
    m->select = lf_calloc(cap, sizeof *m->select, err);
    m->lse = lf_calloc(cap, sizeof *m->lse, err);
    return m->row_tok && m->row_pos && m->row_seq && m->select && m->lse ? 0 : LF_ENOMEM;
}

static int write_i32(lf_pg_model *m, int chain, const char *name, const int32_t *v, int64_t n, lf_err *err)
{
    return lf_exec_write(m->ex, chain, 0, name, v, (size_t)n * sizeof *v, err);
}

/* Inputs of a step, padded to the bucket: unused rows have sequence -1, unused selections repeat row 0. */
static int write_step(lf_pg_model *m, int k, int64_t rows, const int32_t *token, const int32_t *pos, const int32_t *seq, const int32_t *table,
                      int64_t n_want, const int32_t *want, lf_err *err)
{
    int64_t cap = m->bucket_rows[k];
    int chain = m->bucket_chain[k];
    for (int64_t i = 0; i < cap; i++) {
        m->row_tok[i] = i < rows ? token[i] : 0;
        m->row_pos[i] = i < rows ? pos[i] : 0;
        m->row_seq[i] = i < rows ? seq[i] : -1;
    }
    for (int64_t i = 0; i < m->bucket_select[k]; i++)
        m->select[i] = i < n_want ? want[i] : 0;
    int rc = write_i32(m, chain, "tokens", m->row_tok, cap, err);
    rc = rc ? rc : write_i32(m, chain, "positions", m->row_pos, cap, err);
    rc = rc ? rc : write_i32(m, chain, "seq", m->row_seq, cap, err);
    rc = rc ? rc : write_i32(m, chain, "table", table, m->s.slots * m->max_pages, err);
    return rc ? rc : write_i32(m, chain, "select", m->select, m->bucket_select[k], err);
}

/* Logits come back divided by the temperature, so that a draw from them as they are is a draw at the temperature, and their
 * log-probabilities are those that training computes. */
static int step(void *ctx, int64_t rows, const int32_t *token, const int32_t *pos, const int32_t *seq, const int32_t *table,
                int64_t n_want, const int32_t *want, struct lf_gen_logits *result, lf_err *err)
{
    lf_pg_model *m = ctx;
    int k = 0;
    while (k < m->n_buckets && (m->bucket_rows[k] < rows || m->bucket_select[k] < n_want))
        k++;
    if (k == m->n_buckets)
        return lf_fail(err, LF_EINVAL, "a step of %lld rows is beyond the largest of %lld", (long long)rows, (long long)m->s.step_rows);
    int rc = write_step(m, k, rows, token, pos, seq, table, n_want, want, err);
    rc = rc ? rc : lf_exec_run(m->ex, m->bucket_chain[k], LF_FWD, 0, LF_FIRST, err);
    if (rc)
        return rc;
    float *out = lf_exec_host_ptr(m->ex, m->bucket_chain[k], 0, "logits");
    if (!out)
        return lf_fail(err, LF_ENOTSUP, "logits are not in host memory on this backend");
    struct lf_k_logit_stats s = {.rows = n_want,
                                 .v_real = m->mc.vocab,
                                 .ldz = m->mc.vocab,
                                 .z = out,
                                 .lse = m->lse,
                                 .softcap = (float)m->mc.logit_softcap,
                                 .inv_temperature = (float)(1 / m->s.temperature)};
    if (m->back->kernels->logit_stats.run(m->back->queue, &s) != LF_K_OK)
        return lf_fail(err, LF_EINVAL, "log-probabilities of %lld rows could not be computed", (long long)n_want);
    *result = (struct lf_gen_logits){out, m->mc.vocab, m->lse};
    return 0;
}

int lf_pg_model_gen(lf_pg_model *m, lf_gen_model *out, lf_err *err)
{
    if (m->n_buckets == 0)
        return lf_fail(err, LF_EINVAL, "%s was planned without generation", m->s.name);
    *out = (lf_gen_model){.ctx = m,
                          .vocab = m->mc.vocab,
                          .max_context = m->s.context,
                          .slots = m->s.slots,
                          .max_rows = m->s.step_rows,
                          .page_tokens = m->s.page_tokens,
                          .n_pages = m->n_pages,
                          .max_pages = m->max_pages,
                          .step = step};
    return 0;
}
