/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine against transformers in f64, one family a run (the first argument, or all): logits, loss, every gradient, ten AdamW steps,
 * bf16; and the proof that these comparisons can fail: each switch flipped, each pair of same-shaped tensors swapped.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "tests/golden/golden.h"
#include "tests/tap/tap.h"

/* A planned and bound model. */
struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int loss, logits;
};

static void add_chain(struct rig *g, int *chain, lf_graph *graph, bool train, uint32_t era, lf_err *err)
{
    *chain = graph ? lf_plan_add(g->plan, graph, &(struct lf_chain_opts){.train = train, .eras = era}, err) : -1;
    lf_graph_destroy(graph);
    if (*chain < 0)
        tap_bail("plan: %s", err->text);
}

/* max_doc is the longest document. NULL when the configuration is refused. */
static bool rig_open(struct rig *r, const golden *g, const lf_model_config *c, enum lf_dtype compute, enum lf_numeric mode, bool train)
{
    lf_err err = LF_ERR_INIT;
    struct lf_decoder_rows rows = {g->T, 2, 0};
    struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = mode};
    *r = (struct rig){.loss = -1};
    r->dec = lf_decoder_create(c, c->max_positions, &err);
    r->ps = lf_pstore_create(&err);
    if (!r->dec || !r->ps || lf_decoder_declare(r->dec, r->ps, &err) || !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("decoder: %s", err.text);
    add_chain(r, &r->logits, lf_decoder_logits_graph(r->dec, r->ps, "logits", &rows, &err), false, 1, &err);
    if (train) {
        struct lf_adamw_opts adam = {(float)g->beta1, (float)g->beta2, (float)g->eps, (float)g->weight_decay};
        add_chain(r, &r->loss, lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, &err), true, 2, &err);
        if (lf_plan_optimizer(r->plan, &adam, &err))
            tap_bail("optimizer: %s", err.text);
    }
    if (lf_plan_finish(r->plan, &err) || !(r->back = lf_back_cpu_create(lf_target_host()->isa, 2, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, &err)))
        tap_bail("bind: %s", err.text);
    return true;
}

static void rig_close(struct rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

static void feed(const struct rig *r, int chain, const golden *g)
{
    lf_err err = LF_ERR_INIT;
    size_t n = (size_t)g->T * 4;
    if (lf_exec_write(r->ex, chain, 0, "tokens", g->tokens, n, &err) || lf_exec_write(r->ex, chain, 0, "positions", g->positions, n, &err) ||
        lf_exec_write(r->ex, chain, 0, "cu_seqlens", g->cu_seqlens, sizeof g->cu_seqlens, &err) ||
        (chain == r->loss && lf_exec_write(r->ex, chain, 0, "targets", g->targets, n, &err)))
        tap_bail("inputs: %s", err.text);
}

static void run(const struct rig *r, int chain, enum lf_segment seg)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(r->ex, chain, seg, 0, LF_FIRST, &err))
        tap_bail("run: %s", err.text);
}

static void logits_of(const struct rig *r, const golden *g, float *out)
{
    lf_err err = LF_ERR_INIT;
    feed(r, r->logits, g);
    run(r, r->logits, LF_FWD);
    if (lf_exec_read(r->ex, r->logits, 0, "logits", out, (size_t)(g->T * g->V) * 4, &err))
        tap_bail("logits: %s", err.text);
    lf_decoder_softcap(lf_decoder_config(r->dec), out, g->T * g->V);
}

/* Largest error relative to the largest logit; infinite for anything not finite. */
static double logit_error(const golden *g, const float *got, double *rms)
{
    double worst = 0, most = 0, sq = 0;
    for (int64_t i = 0; i < g->T * g->V; i++) {
        double e = fabs((double)got[i] - g->logits[i]);
        if (!isfinite(got[i]))
            return HUGE_VAL;
        worst = fmax(worst, e);
        most = fmax(most, fabs(g->logits[i]));
        sq += e * e;
    }
    *rms = sqrt(sq / (double)(g->T * g->V));
    return worst / most;
}

static const double F32_TOLERANCE = 1e-5;

static double measure(const golden *g, const lf_model_config *c, enum lf_dtype compute, enum lf_numeric mode, double *rms)
{
    struct rig r;
    float *out = calloc((size_t)(g->T * g->V), sizeof *out);
    if (!out || !rig_open(&r, g, c, compute, mode, false))
        tap_bail("no memory");
    golden_load(g, r.ps);
    logits_of(&r, g, out);
    double e = logit_error(g, out, rms);
    rig_close(&r);
    free(out);
    return e;
}

static void test_forward(const golden *g, const lf_model_config *c)
{
    double rms, e = measure(g, c, LF_F32, LF_INVARIANT, &rms);
    tap_ok(e <= F32_TOLERANCE, "%s: f32 logits, invariant: relative error %.2g", g->family, e);
    e = measure(g, c, LF_F32, LF_FAST, &rms);
    tap_ok(e <= F32_TOLERANCE, "%s: f32 logits, fast: relative error %.2g", g->family, e);
    measure(g, c, LF_BF16, LF_INVARIANT, &rms);
    tap_ok(rms <= 1.5 * g->bf16_rms, "%s: bf16 rms error %.3g, transformers' own %.3g", g->family, rms, g->bf16_rms);
}

/* ---- gradients and optimizer ---- */

static struct lf_step_record record_of(const golden *g, int step)
{
    return (struct lf_step_record){.step = (uint64_t)step,
                                   .lr = (float)g->lr,
                                   .bias_corr1 = (float)(1 - pow(g->beta1, step + 1)),
                                   .bias_corr2 = (float)(1 - pow(g->beta2, step + 1)),
                                   .clip_norm = (float)g->clip,
                                   .loss_scale = 1,
                                   .inv_tokens = 1.0f / (float)g->trained};
}

static double loss_step(const struct rig *r, const golden *g, int step)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = record_of(g, step);
    feed(r, r->loss, g);
    if (lf_exec_record_write(r->ex, &rec, &err))
        tap_bail("record: %s", err.text);
    run(r, r->loss, LF_FWD);
    run(r, r->loss, LF_BWD);
    if (lf_exec_record_read(r->ex, &rec, &err))
        tap_bail("record: %s", err.text);
    if (rec.tokens != g->trained)
        tap_ok(false, "%s: %lld trained tokens, not %lld", g->family, (long long)rec.tokens, (long long)g->trained);
    return rec.loss_sum / (double)rec.tokens;
}

/* A key bias adds the same number to every score of a query unless keys turn with their position: softmax does not see it, and its gradient
 * is exactly 0. */
static bool without_effect(const lf_model_config *c, const char *name)
{
    return c->position != LF_POS_ROPE && lf_str_has_suffix(name, "attn.k.bias");
}

/* Error of tensor i's gradient relative to its own norm; where that is 0 in exact arithmetic, to the norm of the query bias's. */
static double gradient_error(const golden *g, const lf_model_config *c, const lf_pstore *ps, int i)
{
    const struct lf_param_desc *d = lf_pstore_desc(ps, i);
    int64_t rows = d->dims[0], cols = d->ndim == 2 ? d->dims[1] : 1;
    size_t n = (size_t)(rows * cols);
    float *want = calloc(n, 4), *got = calloc(n, 4);
    lf_err err = LF_ERR_INIT;
    double sq = 0, ref = 0;
    if (!want || !got)
        tap_bail("no memory");
    if (!golden_tensor(g, "grads", d->name, want, rows, cols) || lf_pstore_read(ps, i, LF_P_GRAD, got, n * 4, &err))
        tap_bail("%s: no gradient: %s", d->name, err.text);
    for (size_t e = 0; e < n; e++) {
        sq += ((double)got[e] - (double)want[e]) * ((double)got[e] - (double)want[e]);
        ref += (double)want[e] * (double)want[e];
    }
    if (without_effect(c, d->name)) {
        char name[256];
        snprintf(name, sizeof name, "%.*sq.bias", (int)(strlen(d->name) - strlen("k.bias")), d->name);
        ref = 0;
        if (!golden_tensor(g, "grads", name, want, rows, cols))
            tap_bail("no gradient of %s", name);
        for (size_t e = 0; e < n; e++)
            ref += (double)want[e] * (double)want[e];
    }
    free(want);
    free(got);
    return sqrt(sq / ref);
}

static void test_training(const golden *g, const lf_model_config *c)
{
    struct rig r;
    rig_open(&r, g, c, LF_F32, LF_FAST, true);
    tap_i64(golden_load(g, r.ps), 0, "every tensor of the model is in the golden file");
    double loss = loss_step(&r, g, 0), worst = 0;
    tap_ok(fabs(loss - g->loss) <= 1e-5 * g->loss, "%s: loss %.9g, reference %.9g", g->family, loss, g->loss);
    const char *name = "";
    for (int i = 0; i < lf_pstore_count(r.ps); i++) {
        double e = gradient_error(g, c, r.ps, i);
        if (!(e <= worst)) {
            worst = e;
            name = lf_pstore_desc(r.ps, i)->name;
        }
    }
    tap_ok(worst <= 1e-5, "%s: %d gradients, worst relative error %.2g (%s)", g->family, lf_pstore_count(r.ps), worst, name);
    double norms = 0;
    worst = 0;
    for (int s = 0; s < 10; s++) {
        lf_err err = LF_ERR_INIT;
        struct lf_step_record rec;
        if (s > 0)
            loss = loss_step(&r, g, s);
        run(&r, LF_CHAIN_OPT, LF_OPT);
        if (lf_exec_record_read(r.ex, &rec, &err))
            tap_bail("record: %s", err.text);
        worst = fmax(worst, fabs(loss - g->loss_curve[s]) / g->loss_curve[s]);
        norms = fmax(norms, fabs((double)rec.grad_norm - g->norm_curve[s]) / g->norm_curve[s]);
    }
    tap_ok(worst <= 1e-4, "%s: loss of ten AdamW steps, worst relative error %.2g", g->family, worst);
    tap_ok(norms <= 1e-3, "%s: gradient norm of ten AdamW steps, worst relative error %.2g", g->family, norms);
    rig_close(&r);
}

/* bf16 compute trains too: the loss of the first step is within the error of transformers' bf16, and ten steps come near the curve. */
static void test_training_bf16(const golden *g, const lf_model_config *c)
{
    struct rig r;
    rig_open(&r, g, c, LF_BF16, LF_FAST, true);
    golden_load(g, r.ps);
    double loss = 0, worst = 0;
    for (int s = 0; s < 10; s++) {
        loss = loss_step(&r, g, s);
        run(&r, LF_CHAIN_OPT, LF_OPT);
        worst = fmax(worst, fabs(loss - g->loss_curve[s]) / g->loss_curve[0]);
    }
    tap_ok(worst <= 0.02, "%s: bf16: ten AdamW steps stay within 2 %% of the f64 curve: %.2g", g->family, worst);
    rig_close(&r);
}

/* ---- the comparison can fail ---- */

struct flip {
    const char *family, *key, *value;
};
static const struct flip flips[] = {
    {"gpt2", "norm_eps", "1e-2"},         {"gpt2", "activation", "gelu"},       {"gpt2", "qkv_bias", "no"},
    {"gpt2", "out_bias", "no"},           {"gpt2", "mlp_bias", "no"},           {"gpt2", "norm_bias", "no"},
    {"gpt2", "position", "none"},         {"gpt2", "tied_head", "no"},          {"gpt2", "embed_scale", "1.01"},
    {"gpt2", "attn_scale", "0.3"},        {"gpt2", "parallel_block", "two_norms"}, {"gpt2", "sliding_window", "30"},
    {"llama", "norm_eps", "1e-3"},        {"llama", "norm", "layer"},           {"llama", "activation", "gelu_tanh"},
    {"llama", "rope_factor", "1"},        {"llama", "rope_theta", "101"},       {"llama", "rope_factor", "4.1"},
    {"llama", "rope_low_freq_factor", "1.3"}, {"llama", "rope_high_freq_factor", "3.5"}, {"llama", "rope_original_positions", "31"},
    {"llama", "rope_interleaved", "yes"}, {"llama", "rope_fraction", "0.5"},    {"llama", "mlp", "plain"},
    {"llama", "logit_softcap", "30"},     {"llama", "attn_softcap", "20"},      {"llama", "sliding_window", "36"},
    {"llama", "kv_heads", "4"},           {"llama", "position", "alibi"},       {"llama", "qk_norm", "yes"},
    {"mistral", "sliding_window", "8"},   {"mistral", "sliding_window", "10"},  {"mistral", "sliding_window", "0"},
    {"mistral", "max_window_layers", "1"}, {"mistral", "rope_theta", "1010"},   {"mistral", "norm_eps", "1e-3"},
    {"qwen2.5", "qkv_bias", "no"},        {"qwen2.5", "sliding_window", "12"},  {"qwen2.5", "max_window_layers", "0"},
    {"qwen2.5", "max_window_layers", "2"}, {"qwen2.5", "tied_head", "no"},      {"qwen2.5", "norm_eps", "1e-3"},
    {"qwen2.5", "rope_theta", "505"},     {"qwen3", "qk_norm", "no"},           {"qwen3", "norm_eps", "1e-3"},
    {"qwen3", "attn_scale", "0.3"},       {"qwen3", "rope_theta", "505"},       {"qwen3", "tied_head", "yes"},
    {"qwen3", "qkv_bias", "yes"},         {"qwen3", "norm_offset", "1"},
};

static void test_flips(const golden *g)
{
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c;
        double rms;
        if (strcmp(flips[i].family, g->family) != 0)
            continue;
        golden_config(g->family, &c);
        if (lf_model_config_set(&c, flips[i].key, flips[i].value, "flip", &err) || lf_model_config_finish(&c, &err)) {
            tap_ok(false, "%s: flip %s = %s: %s", g->family, flips[i].key, flips[i].value, err.text);
            continue;
        }
        double e = measure(g, &c, LF_F32, LF_INVARIANT, &rms);
        tap_ok(!(e <= 3 * F32_TOLERANCE), "%s: %s = %s is noticed: %.2g", g->family, flips[i].key, flips[i].value, e);
    }
}

static void swap_tensors(lf_pstore *ps, int a, int b, size_t n)
{
    float *x = malloc(n * 4), *y = malloc(n * 4);
    lf_err err = LF_ERR_INIT;
    if (!x || !y || lf_pstore_read(ps, a, LF_P_MASTER, x, n * 4, &err) || lf_pstore_read(ps, b, LF_P_MASTER, y, n * 4, &err) ||
        lf_pstore_write(ps, a, LF_F32, y, &err) || lf_pstore_write(ps, b, LF_F32, x, &err))
        tap_bail("swap: %s", err.text);
    free(x);
    free(y);
}

static void test_swaps(const golden *g, const lf_model_config *c)
{
    struct rig r;
    int pairs = 0, unseen = 0;
    double rms, least = HUGE_VAL;
    float *out = calloc((size_t)(g->T * g->V), sizeof *out);
    if (!out)
        tap_bail("no memory");
    rig_open(&r, g, c, LF_F32, LF_INVARIANT, false);
    golden_load(g, r.ps);
    for (int a = 0; a < lf_pstore_count(r.ps); a++)
        for (int b = a + 1; b < lf_pstore_count(r.ps); b++) {
            const struct lf_param_desc *x = lf_pstore_desc(r.ps, a), *y = lf_pstore_desc(r.ps, b);
            int64_t cx = x->ndim == 2 ? x->dims[1] : 1, cy = y->ndim == 2 ? y->dims[1] : 1;
            if (x->dims[0] != y->dims[0] || cx != cy || (without_effect(c, x->name) && without_effect(c, y->name)))
                continue;
            size_t n = (size_t)(x->dims[0] * cx);
            swap_tensors(r.ps, a, b, n);
            logits_of(&r, g, out);
            double e = logit_error(g, out, &rms);
            swap_tensors(r.ps, a, b, n);
            pairs++;
            least = fmin(least, e);
            if (e <= 3 * F32_TOLERANCE) {
                unseen++;
                tap_diag("%s and %s swapped: %.2g", x->name, y->name, e);
            }
        }
    tap_ok(pairs > 20 && unseen == 0, "%s: each of %d pairs of same-shaped tensors swapped is noticed, least %.2g", g->family, pairs, least);
    logits_of(&r, g, out);
    tap_ok(logit_error(g, out, &rms) <= F32_TOLERANCE, "%s: and all swapped back is right again", g->family);
    rig_close(&r);
    free(out);
}

/* No token sees the future: other tokens behind position p leave the bits of every logit up to p alone, and those behind move. */
static void test_causal(const golden *g, const lf_model_config *c)
{
    struct rig r;
    golden other = *g;
    size_t n = (size_t)(g->T * g->V);
    float *a = calloc(n, 4), *b = calloc(n, 4);
    int32_t *tok = calloc((size_t)g->T, 4);
    if (!a || !b || !tok)
        tap_bail("no memory");
    other.tokens = tok;
    rig_open(&r, g, c, LF_F32, LF_FAST, false);
    golden_load(g, r.ps);
    logits_of(&r, g, a);
    bool past = true, future = true;
    for (int32_t p = 5; p < g->T - 2; p += 9) {
        memcpy(tok, g->tokens, (size_t)g->T * 4);
        for (int64_t t = p + 1; t < g->T; t++)
            tok[t] = (tok[t] + 17) % (int32_t)g->V;
        logits_of(&r, &other, b);
        size_t upto = (size_t)(p + 1) * (size_t)g->V;
        past = past && memcmp(a, b, upto * 4) == 0;
        future = future && memcmp(a + upto, b + upto, (n - upto) * 4) != 0;
    }
    tap_ok(past, "%s: a changed future token changes no earlier logit bit", g->family);
    tap_ok(future, "%s: and the later ones do change", g->family);
    rig_close(&r);
    free(a);
    free(b);
    free(tok);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"gpt2", "llama", "mistral", "qwen2.5", "qwen3"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lf_model_config c;
        if (argc > 1 && strcmp(argv[1], all[i]) != 0)
            continue;
        golden *g = golden_open(all[i]);
        golden_config(all[i], &c);
        test_forward(g, &c);
        test_training(g, &c);
        test_training_bf16(g, &c);
        test_causal(g, &c);
        test_flips(g);
        test_swaps(g, &c);
        golden_close(g);
    }
    return tap_done();
}
