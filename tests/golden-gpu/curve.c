/* SPDX-License-Identifier: Apache-2.0
 *
 * See curve.h. */
#include "tests/golden-gpu/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"

enum { KINDS = 3 };
static const enum lf_pkind kinds[KINDS] = {LF_P_MASTER, LF_P_M, LF_P_V};

struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
};

static lf_err err = LF_ERR_INIT;
#define MUST(x)                                                                                    \
    do                                                                                             \
        if ((x) < 0)                                                                               \
            tap_bail("%s: %s", #x, err.text);                                                      \
    while (0)

static void open_rig(struct rig *r, const lf_model_config *c, const struct size *z,
                     const struct job *j)
{
    const struct lf_target *target = j->cuda ? golden_cuda_target() : lf_target_host();
    const int threads = j->cuda ? 1 : golden_cpu_threads();
    const struct lf_plan_opts po = {.target = target,
                                    .threads = threads,
                                    .compute = j->compute,
                                    .fp8 = j->fp8,
                                    .mode = LF_FAST};
    const struct lf_decoder_rows rows = {
        .rows = (int64_t)z->docs * z->length, .n_docs = z->docs, .max_doc = z->length};
    *r = (struct rig){0};
    MUST((r->dec = lf_decoder_create(c, z->length, &err)) ? 0 : -1);
    MUST((r->ps = lf_pstore_create(&err)) ? lf_decoder_declare(r->dec, r->ps, &err) : -1);
    if (j->fp8)
        MUST(lf_decoder_mark_fp8(r->dec, r->ps,
                                 &(struct lf_fp8_layers){.attention = true, .mlp = true}, &err));
    MUST((r->plan = lf_plan_create(r->ps, &po, &err)) ? 0 : -1);
    lf_graph *g = lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, &err);
    MUST(g ? r->chain = lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1);
    lf_graph_destroy(g);
    MUST(lf_plan_optimizer(
        r->plan,
        &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        &err));
    MUST(lf_plan_finish(r->plan, &err));
    r->back = j->cuda ? golden_cuda_back(&err) : lf_back_cpu_create(target->isa, threads, &err);
    MUST(r->back ? 0 : -1);
    if (j->cuda && j->fp8 && !golden_on_gpu())
        golden_emulate_blaslt(r->back);
    MUST((r->ex = lf_exec_create(r->plan, r->back, NULL, &err))
             ? lf_pstore_init(r->ps, j->seed, &err)
             : -1);
}

static void close_rig(struct rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

/* Masters and moments of every tensor, one after another: out of the store, or into it. */
static size_t state(const struct rig *r, char *out, const char *in)
{
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(r->ps); i++)
        for (int k = 0; k < KINDS; k++) {
            struct lf_pview v;
            if (lf_pstore_view(r->ps, i, kinds[k], &v) != 1)
                tap_bail("a tensor has no masters or moments");
            if (out)
                MUST(lf_pstore_read(r->ps, i, kinds[k], out + at, v.bytes, &err));
            if (in && kinds[k] == LF_P_MASTER)
                MUST(lf_pstore_write(r->ps, i, LF_F32, in + at, &err));
            else if (in)
                MUST(lf_pstore_write_kind(r->ps, i, kinds[k], LF_F32, in + at, &err));
            at += v.bytes;
        }
    return at;
}

/* Tokens with something to learn: mostly a fixed function of the one before. */
static void feed(const struct rig *r, const lf_model_config *c, const struct size *z, uint64_t seed,
                 int64_t batch)
{
    static int32_t tok[MAX_ROWS], tgt[MAX_ROWS], pos[MAX_ROWS], cu[64];
    const int32_t rows = z->docs * z->length, V = (int32_t)c->vocab;
    for (int32_t i = 0; i < rows; i++) {
        const uint32_t u = lf_rng_u32(seed, 9, (uint64_t)(batch * rows + i));
        if (z->text) {
            tok[i] = z->text[(size_t)(batch * rows + i) % z->n_text];
            pos[i] = i % z->length;
            continue;
        }
        tok[i] = i % z->length == 0 || u % 4 == 0 ? (int32_t)(u / 4 % (uint32_t)V)
                                                  : (tok[i - 1] * 5 + 3) % V;
        pos[i] = i % z->length;
    }
    for (int32_t i = 0; i < rows; i++)
        tgt[i] = pos[i] + 1 < z->length ? tok[i + 1] : -1;
    for (int d = 0; d <= z->docs; d++)
        cu[d] = d * z->length;
    MUST(lf_exec_write(r->ex, r->chain, 0, "tokens", tok, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "targets", tgt, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "positions", pos, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "cu_seqlens", cu, (size_t)(z->docs + 1) * 4, &err));
}

static double step(const struct rig *r, const lf_model_config *c, const struct size *z,
                   uint64_t seed, int s)
{
    const double trained = (double)(z->docs * (z->length - 1) * z->micro);
    struct lf_step_record rec = {.step = (uint64_t)s,
                                 .lr = z->lr * (s < 10 ? (float)(s + 1) / 10 : 1) *
                                       (z->decay ? 1 - (float)s / (float)z->steps : 1),
                                 .bias_corr1 = (float)(1 - pow(0.9, s + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, s + 1)),
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = (float)(1 / trained)};
    MUST(lf_exec_record_write(r->ex, &rec, &err));
    for (int m = 0; m < z->micro; m++) {
        feed(r, c, z, seed, (int64_t)s * z->micro + m);
        MUST(lf_exec_run(r->ex, r->chain, LF_FWD, 0, m ? LF_ACCUM : LF_FIRST, &err));
        MUST(lf_exec_run(r->ex, r->chain, LF_BWD, 0, m ? LF_ACCUM : LF_FIRST, &err));
    }
    MUST(lf_exec_run(r->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
    MUST(lf_exec_record_read(r->ex, &rec, &err));
    if (rec.skip || (double)rec.tokens != trained)
        tap_bail("step %d: skipped, or %lld trained tokens instead of %.0f", s,
                 (long long)rec.tokens, trained);
    return rec.loss_sum / trained;
}

void curve_train(struct job *j, const lf_model_config *c, const struct size *z)
{
    struct rig r;
    open_rig(&r, c, z, j);
    if (j->begin)
        state(&r, NULL, j->begin);
    for (int s = j->from; s < j->to; s++)
        j->loss[s] = step(&r, c, z, j->seed, s);
    j->bytes = state(&r, NULL, NULL);
    if (!(j->end = malloc(j->bytes)))
        tap_bail("no memory");
    state(&r, j->end, NULL);
    close_rig(&r);
}

double curve_last_quarter(const struct job *j)
{
    const int n = j->to / 4 > 0 ? j->to / 4 : 1;
    double sum = 0;
    for (int s = j->to - n; s < j->to; s++)
        sum += j->loss[s];
    return sum / n;
}

bool curve_same_bits(const struct job *a, const struct job *b, int from)
{
    return a->bytes == b->bytes && memcmp(a->end, b->end, a->bytes) == 0 &&
           memcmp(a->loss + from, b->loss + from, (size_t)(a->to - from) * sizeof a->loss[0]) == 0;
}
