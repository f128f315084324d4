/* SPDX-License-Identifier: Apache-2.0
 *
 * A golden family in the engine: planned, bound, fed, run. */
#include <math.h>
#include <stdlib.h>

#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"
#ifdef FAMILY_CUDA /* tests/golden-gpu */
#include "tests/golden-gpu/device.h"
#define TARGET    golden_cuda_target()
#define BACK(err) golden_cuda_back(err)
#else
#define TARGET    NULL
#define BACK(err) lf_back_cpu_create(lf_target_host()->isa, 1, err)
#endif

/* As make_families.py has them. */
static const struct lf_adamw_opts adam = {
    .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
#define LEARNING_RATE 5e-3f
#define CLIP_NORM     1.0f

static int add_chain(rig *r, int *chain, lf_graph *graph, bool train, uint32_t era, lf_err *err)
{
    if (!graph)
        return err->rc;
    *chain = lf_plan_add(r->plan, graph, &(struct lf_chain_opts){.train = train, .eras = era}, err);
    lf_graph_destroy(graph);
    return *chain < 0 ? *chain : 0;
}

static int plan(rig *r, const family *f, bool train, lf_err *err)
{
    struct lf_decoder_rows rows = {
        .rows = f->rows, .n_docs = f->docs, .max_doc = f->length, .source_rows = f->source_rows};
    int rc = lf_decoder_declare(r->dec, r->ps, err);
    if (rc)
        return rc;
    rc = add_chain(r, &r->logits, lf_decoder_logits_graph(r->dec, r->ps, "logits", &rows, err),
                   false, 1, err);
    if (!rc && train) {
        rc = add_chain(r, &r->loss, lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, err),
                       true, 2, err);
        rc = rc ? rc : lf_plan_optimizer(r->plan, &adam, err);
    }
    return rc ? rc : lf_plan_finish(r->plan, err);
}

int rig_open(rig *r, const family *f, const lf_model_config *c, enum lf_dtype compute,
             enum lf_numeric mode, bool train, lf_err *err)
{
    struct lf_plan_opts po = {.target = TARGET, .threads = 1, .compute = compute, .mode = mode};
    lf_model_config held = *c;
    *r = (rig){.loss = -1};
    lf_model_config_set(&held, "router_bias_rate", "0", "test", NULL);
    if (!(r->dec = lf_decoder_create(&held, f->length, err)) || !(r->ps = lf_pstore_create(err)) ||
        !(r->plan = lf_plan_create(r->ps, &po, err)) || plan(r, f, train, err) ||
        !(r->back = BACK(err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, err))) {
        rig_close(r);
        return err->rc;
    }
    return 0;
}

void rig_close(rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

static void put(const rig *r, int chain, const char *name, const int32_t *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, chain, 0, name, v, (size_t)n * 4, &err))
        tap_bail("input %s: %s", name, err.text);
}

static void feed(const rig *r, int chain, const family *f, const int32_t *tokens,
                 const int32_t *source)
{
    if (lf_model_is_seq2seq(lf_decoder_config(r->dec))) {
        put(r, chain, "source_tokens", source ? source : f->source_tokens, f->source_rows);
        put(r, chain, "source_positions", f->source_positions, f->source_rows);
        put(r, chain, "source_cu_seqlens", f->source_cu, f->docs + 1);
    }

    put(r, chain, "tokens", tokens ? tokens : f->tokens, f->rows);
    put(r, chain, "positions", f->positions, f->rows);
    put(r, chain, "cu_seqlens", f->cu_seqlens, f->docs + 1);
    lf_err err = LF_ERR_INIT;
    if (lf_decoder_write_turns(
            r->dec, r->ex, chain,
            &(struct lf_decoder_docs){
                .cu_seqlens = f->cu_seqlens, .n = f->docs, .rows = f->rows, .types = f->types},
            &err))
        tap_bail("turns: %s", err.text);
    if (lf_decoder_config(r->dec)->mask == LF_MASK_PREFIX)
        put(r, chain, "prefix", f->prefix, f->docs);
    if (lf_decoder_config(r->dec)->position == LF_POS_ROPE2D) {
        put(r, chain, "turns", f->turns, f->rows);
        put(r, chain, "blocks", f->blocks, f->rows);
    }
    if (chain == r->loss)
        put(r, chain, "targets", f->targets, f->rows);
}

static void run(const rig *r, int chain, enum lf_segment seg)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(r->ex, chain, seg, 0, LF_FIRST, &err))
        tap_bail("run: %s", err.text);
}

void rig_logits(const rig *r, const family *f, const int32_t *tokens, float *out)
{
    rig_logits_of(r, f, tokens, NULL, out);
}

void rig_logits_of(const rig *r, const family *f, const int32_t *tokens, const int32_t *source,
                   float *out)
{
    lf_err err = LF_ERR_INIT;
    feed(r, r->logits, f, tokens, source);
    run(r, r->logits, LF_FWD);
    if (lf_exec_read(r->ex, r->logits, 0, "logits", out, (size_t)(f->rows * f->vocab) * 4, &err))
        tap_bail("logits: %s", err.text);
    lf_decoder_softcap(lf_decoder_config(r->dec), out, f->rows * f->vocab);
}

double rig_step(const rig *r, const family *f, int step)
{
    lf_err err = LF_ERR_INIT;
    int64_t trained = f->docs * (f->length - 1);
    struct lf_step_record rec = {.step = (uint64_t)step,
                                 .lr = LEARNING_RATE,
                                 .bias_corr1 = (float)(1 - pow(0.9, step + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, step + 1)),
                                 .clip_norm = CLIP_NORM,
                                 .loss_scale = 1,
                                 .inv_tokens = 1.0f / (float)trained};
    feed(r, r->loss, f, NULL, NULL);
    if (lf_exec_record_write(r->ex, &rec, &err))
        tap_bail("record: %s", err.text);
    run(r, r->loss, LF_FWD);
    run(r, r->loss, LF_BWD);
    if (lf_exec_record_read(r->ex, &rec, &err) || rec.tokens != trained)
        tap_bail("%s: %lld trained tokens, not %lld %s", f->name, (long long)rec.tokens,
                 (long long)trained, err.text);
    return rec.loss_sum / (double)rec.tokens;
}

double rig_update(const rig *r)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec;
    run(r, LF_CHAIN_OPT, LF_OPT);
    if (lf_exec_record_read(r->ex, &rec, &err))
        tap_bail("record: %s", err.text);
    return (double)rec.grad_norm;
}

double family_error(const family *f, const float *got, double *rms)
{
    double worst = 0, most = 0, sq = 0;
    for (int64_t i = 0; i < f->rows * f->vocab; i++) {
        double e = fabs((double)got[i] - f->logits[i]);
        if (!isfinite(got[i]))
            return HUGE_VAL;
        worst = tap_worse(worst, e);
        most = tap_worse(most, fabs(f->logits[i]));
        sq += e * e;
    }
    if (rms)
        *rms = sqrt(sq / (double)(f->rows * f->vocab));
    return worst / most;
}

int family_measure(const family *f, const lf_model_config *c, enum lf_dtype compute,
                   enum lf_numeric mode, double *error, double *rms, lf_err *err)
{
    rig r;
    int rc = rig_open(&r, f, c, compute, mode, false, err);
    if (rc)
        return rc;
    float *out = calloc((size_t)(f->rows * f->vocab), sizeof *out);
    if (!out)
        tap_bail("no memory");
    family_load(f, r.ps);
    rig_logits(&r, f, NULL, out);
    *error = family_error(f, out, rms);
    rig_close(&r);
    free(out);
    return 0;
}
