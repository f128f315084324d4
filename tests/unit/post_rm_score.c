/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of texts: x . score.weight at the last token of each, as a head over a vocabulary has it
 * in its first row; the same bits in any batch, order and number of threads; the end of a text
 * found by its length whatever token stands there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/infer/runner.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"
#include "engine/post/rm_score.h"
#include "engine/store/ckpt.h"
#include "tests/tap/tap.h"
#include "tests/unit/infer_ckpt.h"

enum { N = 7, CONTEXT = 80, V = 96 };

static int32_t ids[N][CONTEXT];
static lf_rm_text texts[N];

static lf_model_config config(const char *output)
{
    static const char *const keys[][2] = {
        {"layers", "2"}, {"hidden", "48"}, {"heads", "4"},          {"kv_heads", "2"},
        {"ffn", "80"},   {"vocab", "96"},  {"max_positions", "128"}};
    lf_model_config c;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(&c);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (lf_model_config_set(&c, keys[i][0], keys[i][1], "test", &err))
            tap_bail("%s", err.text);
    if (lf_model_config_set(&c, "output", output, "test", &err) || lf_model_config_finish(&c, &err))
        tap_bail("%s", err.text);
    return c;
}

/* Hot, and score.weight is the first row of head.weight. */
static void fill(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows, int64_t cols)
{
    struct lf_param_desc as = *d;
    if (strcmp(d->name, "score.weight") == 0)
        as.name = "head.weight";
    infer_ckpt_hot(arg, &as, dst, rows, cols);
}

static const char *write_model(char path[4096], const char *output)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = config(output);
    uint64_t seed = 5;
    snprintf(path, 4096, "%s/%s", tap_tmpdir(), output);
    if (infer_ckpt_write(path, &c, fill, &seed, &err))
        tap_bail("%s", err.text);
    return path;
}

static void make_texts(void)
{
    static const size_t lengths[N] = {1, 17, 64, 65, 30, 80, 3};
    for (uint32_t t = 0; t < N; t++) {
        for (uint64_t i = 0; i < lengths[t]; i++)
            ids[t][i] = (int32_t)(lf_rng_u32(3, t, i) % V);
        texts[t] = (lf_rm_text){.tokens = ids[t], .n = lengths[t]};
    }
    ids[4][29] = ids[4][28] = 0; /* what pads elsewhere */
}

static lf_rm *open_rm(const char *dir, int threads, int64_t rows, int64_t docs)
{
    lf_err err = LF_ERR_INIT;
    lf_rm *r = NULL;
    const struct lf_rm_opts o = {
        .threads = threads, .max_context = CONTEXT, .rows = rows, .docs = docs};
    if (lf_rm_open(&r, dir, &o, &err))
        tap_bail("%s", err.text);
    return r;
}

static void score(lf_rm *r, const lf_rm_text *t, size_t n, float *out)
{
    lf_err err = LF_ERR_INIT;
    if (lf_rm_score(r, t, n, out, NULL, &err))
        tap_bail("%s", err.text);
}

/* The first logit of the last token of each text, from a graph that holds all logits of one
 * text. */
static void reference(const char *dir, float *out)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = config("tokens");
    lf_ckpt *ck = NULL;
    lf_decoder *d = lf_decoder_create(&c, CONTEXT, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    lf_plan *p = NULL;
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT};
    const struct lf_decoder_rows rows = {.rows = CONTEXT, .n_docs = 1, .max_doc = CONTEXT};
    if (!d || !ps || lf_decoder_declare(d, ps, &err) || !(p = lf_plan_create(ps, &po, &err)))
        tap_bail("%s", err.text);
    lf_graph *g = lf_decoder_logits_graph(d, ps, "logits", &rows, &err);
    int chain = g ? lf_plan_add(p, g, &(struct lf_chain_opts){0}, &err) : -1;
    lf_back *b = chain >= 0 && !lf_plan_finish(p, &err)
                     ? lf_back_cpu_create(lf_target_host()->isa, 1, &err)
                     : NULL;
    lf_exec *ex = b ? lf_exec_create(p, b, NULL, &err) : NULL;
    if (!ex || lf_ckpt_open(&ck, dir, 1, &err) ||
        lf_weights_load(ps, ck, LF_WEIGHTS_PREFIX, false, &err))
        tap_bail("%s", err.text);
    for (int t = 0; t < N; t++) {
        int32_t tok[CONTEXT] = {0}, pos[CONTEXT] = {0}, cu[2] = {0, (int32_t)texts[t].n};
        static float logits[CONTEXT * V];
        for (size_t i = 0; i < texts[t].n; i++) {
            tok[i] = ids[t][i];
            pos[i] = (int32_t)i;
        }
        if (lf_exec_write(ex, chain, 0, "tokens", tok, sizeof tok, &err) ||
            lf_exec_write(ex, chain, 0, "positions", pos, sizeof pos, &err) ||
            lf_exec_write(ex, chain, 0, "cu_seqlens", cu, sizeof cu, &err) ||
            lf_exec_run(ex, chain, LF_FWD, 0, LF_FIRST, &err) ||
            lf_exec_read(ex, chain, 0, "logits", logits, sizeof logits, &err))
            tap_bail("%s", err.text);
        out[t] = logits[(texts[t].n - 1) * V];
    }
    lf_ckpt_close(ck);
    lf_graph_destroy(g);
    lf_exec_destroy(ex);
    lf_back_destroy(b);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void values(const char *rm, const char *lm)
{
    float got[N], want[N], turned[N], one;
    double worst = 0, spread = 0;
    lf_rm *r = open_rm(rm, 2, CONTEXT, 1);
    score(r, texts, N, got);
    reference(lm, want);
    for (int t = 0; t < N; t++) {
        worst = tap_worse(worst, fabs((double)got[t] - (double)want[t]));
        spread = tap_worse(spread, fabs((double)want[t]));
    }
    tap_ok(worst < 1e-5 && spread > 0.5, "scores are x . w at the last token: off by %.2g of %.2g",
           worst, spread);
    const lf_rm_text shorter = {.tokens = ids[4], .n = texts[4].n - 1};
    score(r, &shorter, 1, &one);
    tap_ok(fabs((double)one - (double)got[4]) > 1e-3,
           "a text that ends in token 0 is scored there, not before");
    lf_rm_close(r);

    static const int64_t rows[4] = {80, 150, 300, 97}, docs[4] = {4, 2, 16, 3};
    for (int k = 0; k < 4; k++) {
        r = open_rm(rm, 1 + k % 2, rows[k], docs[k]);
        lf_rm_text back[N];
        for (int t = 0; t < N; t++)
            back[t] = texts[N - 1 - t];
        score(r, k % 2 ? back : texts, N, turned);
        for (int t = 0; k % 2 && t < N / 2; t++) {
            one = turned[t];
            turned[t] = turned[N - 1 - t];
            turned[N - 1 - t] = one;
        }
        tap_mem(turned, got, sizeof got, "the same bits in batches of another size");
        lf_rm_close(r);
    }
}

static bool at_once(void)
{
    return true;
}

static void refusals(const char *rm, const char *lm)
{
    lf_err err = LF_ERR_INIT;
    lf_rm *r = NULL;
    lf_runner *run = NULL;
    const struct lf_rm_opts o = {.threads = 1, .docs = 1};
    float out[2];
    int32_t bad[2] = {1, V};
    const lf_rm_text none[2] = {{.tokens = ids[0], .n = 1}, {.tokens = ids[0]}},
                     outside = {.tokens = bad, .n = 2};
    static int32_t many[CONTEXT + 1];
    const lf_rm_text longer = {.tokens = many, .n = CONTEXT + 1};
    tap_rc(lf_rm_open(&r, lm, &o, &err), LF_EINVAL, &err, "predicts tokens",
           "a language model has no scores");
    tap_rc(lf_runner_open(&run, rm,
                          &(struct lf_runner_opts){.threads = 1, .score_rows = 8, .score_docs = 1},
                          &err),
           LF_EINVAL, &err, "predicts no tokens", "a reward model has no tokens");
    r = open_rm(rm, 1, CONTEXT, 2);
    tap_rc(lf_rm_score(r, none, 2, out, NULL, &err), LF_EINVAL, &err, "text 1 has 0 tokens",
           "a text without tokens");
    tap_rc(lf_rm_score(r, &longer, 1, out, NULL, &err), LF_EINVAL, &err, "between 1 and 80",
           "a text too long");
    tap_rc(lf_rm_score(r, &outside, 1, out, NULL, &err), LF_EINVAL, &err, "token 96",
           "a token outside");
    tap_rc(lf_rm_score(r, texts, 1, out, at_once, &err), LF_EINTR, &err, "0 of 1", "a stop");
    tap_ok(!lf_rm_norm_of(r)->stored, "no normalisation stored");
    lf_rm_close(r);
}

static void normalisation(void)
{
    lf_err err = LF_ERR_INIT;
    const lf_rm_norm n = {true, 0.75, 2, 40};
    lf_rm_norm back = {0};
    json_t *state = json_pack("{s:o}", "score", lf_rm_norm_json(&n, &err));
    tap_rc(lf_rm_norm_read(&back, state, "here", &err), 0, &err, NULL,
           "normalisation is read back");
    tap_ok(back.stored && back.count == 40, "with the number of scores");
    tap_f64(lf_rm_normalized(&back, 4.75), 2, 0, "and applied");
    json_object_set_new(json_object_get(state, "score"), "std", json_real(0));
    tap_rc(lf_rm_norm_read(&back, state, "here", &err), LF_EFORMAT, &err, "cannot be",
           "no spread, no normalisation");
    json_object_clear(state);
    tap_rc(lf_rm_norm_read(&back, state, "here", &err), 0, &err, NULL, "none there");
    tap_ok(!back.stored && lf_rm_normalized(&back, 3) == 3, "then scores stay as they are");
    json_decref(state);
}

static void heads(void)
{
    static const struct {
        const char *init;
        double std;
    } rows[] = {{"sqrt", 1 / 7.}, {"inverse", 1 / 49.}, {"init_std", .02}, {"zero", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c = config("score");
        if (lf_model_config_set(&c, "score_init", rows[i].init, "test", &err))
            tap_bail("%s", err.text);
        lf_decoder *d = lf_decoder_create(&c, 16, &err);
        lf_pstore *ps = lf_pstore_create(&err);
        if (!d || !ps || lf_decoder_declare(d, ps, &err))
            tap_bail("%s", err.text);
        int at = lf_pstore_find(ps, "score.weight");
        tap_ok(at >= 0 && lf_pstore_find(ps, "head.weight") < 0, "a score in place of the head");
        tap_f64((double)lf_pstore_desc(ps, at)->init_std, rows[i].std, 1e-8, rows[i].init);
        lf_pstore_destroy(ps);
        lf_decoder_destroy(d);
    }
}

int main(void)
{
    char rm[4096], lm[4096];
    make_texts();
    write_model(rm, "score");
    write_model(lm, "tokens");
    TAP(6, values(rm, lm));
    TAP(7, refusals(rm, lm));
    TAP(6, normalisation());
    TAP(8, heads());
    return tap_done();
}
