/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a merged model the one that it was made of? Both run in f32 on the same tokens. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/rng.h"
#include "engine/convert/peft.h"
#include "engine/graph/exec.h"
#include "engine/model/weights.h"

#define SEED 20140815u
#define SITE 0x50524f42u

struct model {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    int64_t vocab,
        width; /* of a row of the output: vocab, of a reward model 1, of labels as many */
    const char *output;
};

static void close_model(struct model *m)
{
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
}

static int bind(struct model *m, int64_t tokens, int threads, lf_err *err)
{
    const struct lf_decoder_rows rows = {.rows = tokens, .n_docs = 1};
    const struct lf_plan_opts po = {.threads = threads, .compute = LF_F32, .mode = LF_INVARIANT};
    m->plan = lf_plan_create(m->ps, &po, err);
    const lf_model_config *mc = lf_decoder_config(m->dec);
    const bool score = mc->output != LF_OUTPUT_TOKENS;
    lf_graph *g = !m->plan ? NULL
                  : score  ? lf_decoder_heads_graph(m->dec, m->ps, "probe", &rows,
                                                    &(struct lf_decoder_heads){.score = true}, err)
                           : lf_decoder_logits_graph(m->dec, m->ps, "probe", &rows, err);
    m->output = score ? "score" : "logits";
    m->width = score ? lf_model_scores(mc) : m->vocab;
    int rc = m->chain =
        g ? lf_plan_add(m->plan, g, &(struct lf_chain_opts){.eras = 1}, err) : LF_EINVAL;
    lf_graph_destroy(g);
    if (rc >= 0)
        rc = lf_plan_finish(m->plan, err);
    if (rc == 0 && (!(m->back = lf_back_cpu_create(lf_target_host()->isa, threads, err)) ||
                    !(m->ex = lf_exec_create(m->plan, m->back, NULL, err))))
        rc = LF_EINVAL;
    return rc;
}

/* Weights of ck, and those of an adapter. */
static int open_model(struct model *m, const lf_ckpt *ck, const lf_ckpt *adapter, int64_t *tokens,
                      int threads, lf_err *err)
{
    lf_model_config mc;
    struct lf_adapter_config ac;
    int rc = lf_weights_config(&mc, ck, err);
    if (rc == 0 && mc.max_positions < *tokens)
        *tokens = mc.max_positions;
    m->vocab = rc != 0 ? 0 : mc.vocab;
    if (rc == 0 && adapter)
        rc = lf_adapter_config(&ac, adapter, err);
    if (rc == 0 && adapter)
        rc = lf_adapter_model(&mc, &ac, err);
    if (rc == 0 &&
        (!(m->dec = lf_decoder_create(&mc, *tokens, err)) || !(m->ps = lf_pstore_create(err))))
        rc = LF_EINVAL;
    if (rc == 0)
        rc = lf_decoder_declare(m->dec, m->ps, err);
    if (rc == 0 && adapter)
        rc = lf_decoder_adapt(m->dec, m->ps, &ac, err);
    if (rc == 0)
        rc = bind(m, *tokens, threads, err);
    if (rc == 0)
        rc = lf_weights_load_below(m->ps, mc.output, ck, LF_WEIGHTS_PREFIX, err);
    if (rc == 0 && adapter)
        rc = lf_weights_load_adapter(m->ps, adapter, LF_WEIGHTS_PREFIX, false, err);
    return rc;
}

static int logits(struct model *m, int64_t tokens, float *out, lf_err *err)
{
    int32_t *id = lf_calloc((size_t)tokens, sizeof *id, err),
            *pos = lf_calloc((size_t)tokens, sizeof *pos, err);
    const int32_t cu[2] = {0, (int32_t)tokens};
    int rc = id && pos ? 0 : LF_ENOMEM;
    for (int64_t i = 0; i < tokens && rc == 0; i++) {
        id[i] = (int32_t)(lf_rng_u32(SEED, SITE, (uint64_t)i) % (uint32_t)m->vocab);
        pos[i] = (int32_t)i;
    }
    if (rc == 0)
        rc = lf_exec_write(m->ex, m->chain, 0, "tokens", id, (size_t)tokens * sizeof *id, err);
    if (rc == 0)
        rc = lf_exec_write(m->ex, m->chain, 0, "positions", pos, (size_t)tokens * sizeof *pos, err);
    if (rc == 0)
        rc = lf_exec_write(m->ex, m->chain, 0, "cu_seqlens", cu, sizeof cu, err);
    if (rc == 0)
        rc = lf_decoder_write_turns(
            m->dec, m->ex, m->chain,
            &(struct lf_decoder_docs){.cu_seqlens = cu, .n = 1, .rows = tokens}, err);
    if (rc == 0)
        rc = lf_exec_run(m->ex, m->chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(m->ex, m->chain, 0, m->output, out,
                          (size_t)(tokens * m->width) * sizeof *out, err);
    free(id);
    free(pos);
    return rc;
}

/* One model after the other: never two in memory. */
static int run_one(const lf_ckpt *ck, const lf_ckpt *adapter, int64_t *tokens, int threads,
                   float **out, int64_t *n, lf_err *err)
{
    struct model m = {0};
    int rc = open_model(&m, ck, adapter, tokens, threads, err);
    *n = *tokens * m.width;
    if (rc == 0 && !(*out = lf_malloc((size_t)*n, sizeof **out, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = logits(&m, *tokens, *out, err);
    close_model(&m);
    return rc;
}

int lf_adapter_probe(const char *base, const char *adapter, const char *merged, int64_t tokens,
                     int threads, double *out, lf_err *err)
{
    lf_ckpt *b = NULL, *a = NULL, *m = NULL;
    float *x = NULL, *y = NULL;
    int64_t n = 0, n2 = 0;
    int rc = lf_ckpt_open(&b, base, threads, err);
    if (rc == 0)
        rc = lf_ckpt_open(&a, adapter, threads, err);
    if (rc == 0)
        rc = lf_ckpt_open(&m, merged, threads, err);
    if (rc == 0)
        rc = run_one(b, a, &tokens, threads, &x, &n, err);
    if (rc == 0)
        rc = run_one(m, NULL, &tokens, threads, &y, &n2, err);
    if (rc == 0 && n != n2)
        rc = lf_fail(err, LF_EINVAL, "%s is of another model", merged);
    double worst = 0, most = 0;
    for (int64_t i = 0; i < n && rc == 0; i++) {
        worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
        most = fmax(most, fabs((double)x[i]));
    }
    if (rc == 0 && !(isfinite(worst) && isfinite(most)))
        rc = lf_fail(err, LF_ENUMERIC, "logits or scores of the probe are not finite");
    if (rc == 0)
        *out = most > 0 ? worst / most : worst;
    free(x);
    free(y);
    lf_ckpt_close(b);
    lf_ckpt_close(a);
    lf_ckpt_close(m);
    return rc;
}
