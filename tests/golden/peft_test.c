/* SPDX-License-Identifier: Apache-2.0
 *
 * Training an adapter as PEFT does: from its golden adapters (tests/golden/peft) twenty AdamW steps
 * on the same batch, loss and gradient norm of each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/convert/peft.h"
#include "engine/graph/exec.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "tests/tap/tap.h"

enum { B = 2, T = 24, R = B * T, STEPS = 20 };

struct run {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
    int32_t tokens[R], targets[R], positions[R], cu[B + 1];
    int32_t places[3 * R]; /* of a text they are three times its positions */
    bool turns;            /* the model takes them */
    double loss[STEPS], norm[STEPS];
};

static void must(int rc, const lf_err *err)
{
    if (rc)
        tap_bail("%s", err->text);
}

/* Where the model of a case lies: those that see are beside the families. */
static void folder_of(char *to, size_t cap, const char *name)
{
    const bool sees = strncmp(name, "vlm-", 4) == 0;
    const char *dora = strstr(name, "-dora");
    snprintf(to, cap, "%s/tests/golden/%s/%.*s", getenv("LF_SRCDIR"), sees ? "vlm" : "families",
             (int)(dora ? dora - name : (long)strlen(name)), sees ? name + 4 : name);
}

/* Base and adapter of a case as checkpoints below the test's directory. */
static void make(const char *name, char *base, char *adapter, size_t cap)
{
    lf_err err = LF_ERR_INIT;
    char from[4096];
    struct lf_convert_result r;
    snprintf(base, cap, "%s/%s-base", tap_tmpdir(), name);
    snprintf(adapter, cap, "%s/%s-adapter", tap_tmpdir(), name);
    folder_of(from, sizeof from, name);
    const struct lf_convert_opts co = {.from = from, .out = base, .threads = 1, .pad_token = -1};
    must(lf_convert_import(&co, &r, &err), &err);
    char peft[4096];
    snprintf(peft, sizeof peft, "%s/tests/golden/peft/%s", getenv("LF_SRCDIR"), name);
    const struct lf_peft_opts po = {.from = peft, .base = base, .out = adapter, .threads = 1};
    must(lf_peft_import(&po, &r, &err), &err);
}

static void open_run(struct run *r, const char *base, const char *adapter)
{
    lf_err err = LF_ERR_INIT;
    lf_ckpt *b = NULL, *a = NULL;
    lf_model_config mc;
    struct lf_adapter_config ac;
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_FAST};
    const struct lf_adamw_opts adam = {
        .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    const struct lf_decoder_rows rows = {.rows = R, .n_docs = B, .max_doc = T};
    memset(r, 0, sizeof *r);
    must(lf_ckpt_open(&b, base, 1, &err) || lf_ckpt_open(&a, adapter, 1, &err), &err);
    must(lf_adapter_check_base(a, b, &err) || lf_weights_config(&mc, b, &err) ||
             lf_adapter_config(&ac, a, &err),
         &err);
    mc.embed_dropout = mc.attn_dropout = mc.mlp_dropout = mc.attn_prob_dropout =
        0; /* as the script has it */
    r->turns = mc.rope_sections.n > 0;
    r->d = lf_decoder_create(&mc, T, &err);
    r->ps = lf_pstore_create(&err);
    must(!r->d || !r->ps || lf_decoder_declare(r->d, r->ps, &err) ||
             lf_decoder_adapt(r->d, r->ps, &ac, &err) ||
             !(r->plan = lf_plan_create(r->ps, &po, &err)),
         &err);
    lf_graph *g = lf_decoder_loss_graph(r->d, r->ps, "train", &rows, true, &err);
    r->chain = g ? lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1;
    lf_graph_destroy(g);
    must(r->chain < 0 || lf_plan_optimizer(r->plan, &adam, &err) || lf_plan_finish(r->plan, &err) ||
             !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, &err)) ||
             !(r->ex = lf_exec_create(r->plan, r->back, NULL, &err)),
         &err);
    must(lf_weights_load(r->ps, b, LF_WEIGHTS_PREFIX, false, &err) ||
             lf_weights_load_adapter(r->ps, a, LF_WEIGHTS_PREFIX, false, &err),
         &err);
    lf_ckpt_close(a);
    lf_ckpt_close(b);
}

static void close_run(struct run *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
}

static void expected(struct run *r, const char *family)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    lf_st *s = NULL;
    int64_t ids[R];
    snprintf(path, sizeof path, "%s/tests/golden/peft/%s/expected.safetensors", getenv("LF_SRCDIR"),
             family);
    must(lf_st_open(&s, path, &err), &err);
    must(lf_st_read(s, lf_st_find(s, "input_ids"), 0, R, ids, &err) ||
             lf_st_read(s, lf_st_find(s, "train.loss"), 0, STEPS, r->loss, &err) ||
             lf_st_read(s, lf_st_find(s, "train.norm"), 0, STEPS, r->norm, &err),
         &err);
    for (int i = 0; i < R; i++) {
        r->tokens[i] = (int32_t)ids[i];
        r->targets[i] = i % T == T - 1 ? -1 : (int32_t)ids[i + 1];
        r->positions[i] = i % T;
        for (int k = 0; k < 3; k++)
            r->places[3 * i + k] = i % T;
    }
    for (int b = 0; b <= B; b++)
        r->cu[b] = b * T;
    lf_st_close(s);
}

static struct lf_step_record step(struct run *r, int n)
{
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec = {.lr = 5e-3f,
                                 .bias_corr1 = (float)(1 - pow(0.9, n + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, n + 1)),
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = 1.0f / (B * (T - 1))};
    must(lf_exec_record_write(r->ex, &rec, &err) ||
             lf_exec_write(r->ex, r->chain, 0, "tokens", r->tokens, sizeof r->tokens, &err) ||
             lf_exec_write(r->ex, r->chain, 0, "targets", r->targets, sizeof r->targets, &err) ||
             lf_exec_write(r->ex, r->chain, 0, "positions", r->positions, sizeof r->positions,
                           &err) ||
             lf_exec_write(r->ex, r->chain, 0, "cu_seqlens", r->cu, sizeof r->cu, &err) ||
             (r->turns &&
              lf_exec_write(r->ex, r->chain, 0, "places", r->places, sizeof r->places, &err)) ||
             lf_exec_run(r->ex, r->chain, LF_FWD, 0, LF_FIRST, &err) ||
             lf_exec_run(r->ex, r->chain, LF_BWD, 0, LF_FIRST, &err) ||
             lf_exec_run(r->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err) ||
             lf_exec_record_read(r->ex, &rec, &err),
         &err);
    return rec;
}

/* near: of gradient norms. AdamW divides by gradients, so where a few are next to nothing rounding
 * grows with the steps; the first is near everywhere. */
static void test(const char *family, double near)
{
    char base[4096], adapter[4096];
    struct run r;
    double loss = 0, norm = 0, first = 0;
    make(family, base, adapter, sizeof base);
    open_run(&r, base, adapter);
    expected(&r, family);
    for (int n = 0; n < STEPS; n++) {
        const struct lf_step_record rec = step(&r, n);
        loss = fmax(loss, fabs(rec.loss_sum / (B * (T - 1)) / r.loss[n] - 1));
        norm = fmax(norm, fabs((double)rec.grad_norm / r.norm[n] - 1));
        first = n == 0 ? norm : first;
    }
    tap_ok(loss < 1e-5, "%s: loss of twenty steps within %.2g", family, loss);
    tap_ok(norm < near && first < 1e-4, "%s: gradient norm within %.2g, at first %.2g", family,
           norm, first);
    tap_ok(r.loss[STEPS - 1] < r.loss[0] - 0.3, "%s: they learn, so a wrong gradient would show",
           family);
    close_run(&r);
}

int main(void)
{
    TAP(3, test("llama", 1e-4));
    TAP(3, test("phi3", 1e-4));
    TAP(3, test("gpt2", 1e-4));
    TAP(3, test("gpt-neox", 1e-4));
    TAP(3, test("llama-dora", 1e-4));
    TAP(3, test("gpt2-dora", 1e-4));
    TAP(3, test("qwen3-next", 1e-4));
    TAP(3, test("qwen3.5", 1e-4));
    TAP(3, test("mamba2", 1e-3));
    TAP(3, test("kimi-linear", 1e-4));
    TAP(3, test("nemotron-h-latent", 2e-3));
    TAP(3, test("qwen3-next-dora", 2e-3));
    TAP(3, test("vlm-llava", 1e-4));
    TAP(3, test("vlm-qwen2.5-vl", 1e-4));
    TAP(3, test("vlm-gemma3", 1e-4));
    return tap_done();
}
