/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs whose losses are arithmetic outside (lf_decoder_heads_graph, lf_output_grad): values
 * against the loss graph bit for bit, gradients against the loss node's and against differences,
 * several heads at once, what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "engine/model/decoder.h"
#include "tests/tap/tap.h"

enum { T = 40, DOCS = 4 };

static lf_err err = LF_ERR_INIT;

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if ((x) < 0)                                                                               \
            tap_bail("%s: %s", #x, err.text);                                                      \
    } while (0)

struct opts {
    const char *set[4]; /* "key=value" on top of tiny-llama */
    bool loss;          /* lf_xent in place of the heads */
    struct lf_decoder_heads heads;
    bool trained, poison;
    enum lf_dtype compute;
    enum lf_recompute recompute;
};

struct run {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
    int32_t targets[T];
    int trained;
};

static void model(lf_model_config *c, const struct opts *o)
{
    char path[4096], key[48];
    snprintf(path, sizeof path, "%s/models/tiny-llama.ini", getenv("LF_SRCDIR"));
    MUST(lf_model_config_load(c, path, &err));
    for (int i = 0; i < 4 && o->set[i]; i++) {
        const char *eq = strchr(o->set[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - o->set[i]), o->set[i]);
        MUST(lf_model_config_set(c, key, eq + 1, "switch", &err));
    }
    MUST(lf_model_config_finish(c, &err));
}

static void write_inputs(struct run *r, const lf_model_config *c)
{
    int32_t tokens[T], positions[T], cu[DOCS + 1] = {0, 13, 29, T, T};
    for (int i = 0, doc = 0; i < T; i++) {
        doc += i == cu[doc + 1];
        positions[i] = i - cu[doc];
        tokens[i] = (int32_t)(lf_rng_u32(3, 1, (uint64_t)i) % (uint32_t)c->vocab);
        r->targets[i] = lf_rng_u32(4, 1, (uint64_t)i) % 4
                            ? (int32_t)(lf_rng_u32(5, 1, (uint64_t)i) % (uint32_t)c->vocab)
                            : -1;
        r->trained += r->targets[i] >= 0;
    }
    MUST(lf_exec_write(r->ex, 0, 0, "tokens", tokens, sizeof tokens, &err));
    MUST(lf_exec_write(r->ex, 0, 0, "positions", positions, sizeof positions, &err));
    MUST(lf_exec_write(r->ex, 0, 0, "targets", r->targets, sizeof r->targets, &err));
    MUST(lf_exec_write(r->ex, 0, 0, "cu_seqlens", cu, sizeof cu, &err));
}

static void open_run(struct run *r, const struct opts *o)
{
    lf_model_config c;
    const struct lf_decoder_rows rows = {.rows = T, .n_docs = DOCS};
    const struct lf_plan_opts po = {
        .threads = 2, .compute = o->compute, .mode = LF_INVARIANT, .keep_master = true};
    memset(r, 0, sizeof *r);
    model(&c, o);
    r->d = lf_decoder_create(&c, T, &err);
    r->ps = lf_pstore_create(&err);
    MUST(lf_decoder_declare(r->d, r->ps, &err));
    const struct lf_param_desc score = {.name = "score.weight",
                                        .ndim = 2,
                                        .dims = {1, c.hidden},
                                        .init = LF_INIT_NORMAL,
                                        .init_std = 0.004f,
                                        .decay = true};
    MUST(lf_pstore_add(r->ps, &score, &err));
    MUST((r->p = lf_plan_create(r->ps, &po, &err)) ? 0 : -1);
    lf_graph *g = o->loss && o->trained
                      ? lf_decoder_loss_graph(r->d, r->ps, "loss", &rows, true, &err)
                  : o->loss ? lf_decoder_score_graph(r->d, r->ps, "loss", &rows, &err)
                            : lf_decoder_heads_graph(r->d, r->ps, "heads", &rows, &o->heads, &err);
    MUST(g ? 0 : -1);
    MUST(lf_plan_add(
        r->p, g, &(struct lf_chain_opts){.train = o->trained, .recompute = o->recompute}, &err));
    lf_graph_destroy(g);
    MUST(lf_plan_finish(r->p, &err));
    MUST((r->b = lf_back_cpu_create(lf_target_host()->isa, 2, &err)) ? 0 : -1);
    MUST((r->ex = lf_exec_create(r->p, r->b, &(struct lf_exec_opts){.poison = o->poison}, &err))
             ? 0
             : -1);
    MUST(lf_pstore_init(r->ps, 7, &err));
    for (int i = 0; i < lf_pstore_count(r->ps); i++) { /* hot weights: logits of order 1 */
        struct lf_pview v;
        if (lf_pstore_view(r->ps, i, LF_P_MASTER, &v) == 1 && v.ndim == 2)
            for (size_t k = 0; k < v.bytes / 4; k++)
                ((float *)v.data)[k] *= 6;
    }
    lf_pstore_touch(r->ps);
    write_inputs(r, &c);
}

static void close_run(struct run *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->b);
    lf_plan_destroy(r->p);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->d);
}

static void record(struct run *r)
{
    const struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1 / (float)r->trained};
    MUST(lf_exec_record_write(r->ex, &rec, &err));
}

static void forward(struct run *r)
{
    record(r);
    MUST(lf_exec_run(r->ex, 0, LF_FWD, 0, LF_FIRST, &err));
}

static void read_rows(struct run *r, const char *name, float *v)
{
    MUST(lf_exec_read(r->ex, 0, 0, name, v, T * sizeof *v, &err));
}

static void write_rows(struct run *r, const char *name, const float *v)
{
    MUST(lf_exec_write(r->ex, 0, 0, name, v, T * sizeof *v, &err));
}

static float *grads(struct run *r, size_t *n)
{
    float *all = calloc((size_t)lf_pstore_elements(r->ps), sizeof *all);
    *n = 0;
    for (int i = 0; all && i < lf_pstore_count(r->ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(r->ps, i, LF_P_GRAD, &v) != 1)
            continue;
        MUST(lf_pstore_read(r->ps, i, LF_P_GRAD, all + *n, v.bytes, &err));
        *n += v.bytes / 4;
    }
    return all;
}

/* ---- log-probabilities are those of the loss, and so are their gradients ---- */

static void test_same_bits(const struct opts *base, const char *name)
{
    struct opts a = *base, b = *base;
    struct run ra, rb;
    float loss[T], lp[T], dlp[T];
    size_t na, nb;
    a.loss = true;
    b.heads = (struct lf_decoder_heads){.logp = true};
    open_run(&ra, &a);
    open_run(&rb, &b);
    forward(&ra);
    forward(&rb);
    read_rows(&ra, "loss", loss);
    read_rows(&rb, "lp", lp);
    bool same = true, some = false;
    for (int i = 0; i < T; i++) {
        same = same && lp[i] == -loss[i] && (rb.targets[i] >= 0 || lp[i] == 0);
        some = some || lp[i] < -0.1f;
    }
    tap_ok(same && some, "%s: lp has the bits of -loss", name);
    close_run(&ra);
    close_run(&rb);
    a.trained = b.trained = b.heads.train = true;
    open_run(&ra, &a);
    open_run(&rb, &b);
    forward(&ra);
    forward(&rb);
    for (int i = 0; i < T; i++)
        dlp[i] = -1 / (float)rb.trained;
    write_rows(&rb, "dlp", dlp);
    MUST(lf_exec_run(ra.ex, 0, LF_BWD, 0, LF_FIRST, &err));
    MUST(lf_exec_run(rb.ex, 0, LF_BWD, 0, LF_FIRST, &err));
    float *ga = grads(&ra, &na), *gb = grads(&rb, &nb);
    tap_ok(na == nb && na > 0, "%s: %zu gradients", name, na);
    tap_mem(gb, ga, na * 4, "dlp = -1 / tokens gives the gradients of the loss, bit for bit");
    free(ga);
    free(gb);
    close_run(&ra);
    close_run(&rb);
}

/* ---- three heads at once ---- */

/* F = sum a lp^2 + b entropy^2 + c score^2 over rows, and its derivatives. */
static double objective(struct run *r, bool backward)
{
    float lp[T], h[T], s[T], dlp[T], dh[T], ds[T];
    double f = 0;
    forward(r);
    read_rows(r, "lp", lp);
    read_rows(r, "entropy", h);
    read_rows(r, "score", s);
    for (int i = 0; i < T; i++) {
        double a = 0.02 * (1 + i % 3), b = 0.03 * (1 - i % 5), c = i % 7 == 0 ? 0.1 : 0;
        f += a * (double)lp[i] * (double)lp[i] + b * (double)h[i] * (double)h[i] +
             c * (double)s[i] * (double)s[i];
        dlp[i] = (float)(2 * a) * lp[i];
        dh[i] = (float)(2 * b) * h[i];
        ds[i] = (float)(2 * c) * s[i];
    }
    if (!backward)
        return f;
    write_rows(r, "dlp", dlp);
    write_rows(r, "dentropy", dh);
    write_rows(r, "dscore", ds);
    MUST(lf_exec_run(r->ex, 0, LF_BWD, 0, LF_FIRST, &err));
    return f;
}

/* Every weight along the gradient by h. */
static void shift(struct run *r, const float *grad, double h)
{
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        struct lf_pview w, g;
        if (lf_pstore_view(r->ps, i, LF_P_GRAD, &g) != 1 ||
            lf_pstore_view(r->ps, i, LF_P_MASTER, &w) != 1)
            continue;
        for (size_t k = 0; k < w.bytes / 4; k++)
            ((float *)w.data)[k] += (float)(h * (double)grad[at + k]);
        at += w.bytes / 4;
    }
    lf_pstore_touch(r->ps);
}

static const struct lf_decoder_heads all_heads = {
    .train = true, .logp = true, .entropy = true, .score = true, .inv_temperature = 1 / 0.7};

static void test_differences(const struct opts *base, const char *name)
{
    struct opts o = *base;
    struct run r;
    size_t n;
    o.trained = true;
    o.heads = all_heads;
    open_run(&r, &o);
    objective(&r, true);
    float *g = grads(&r, &n);
    double norm = 0;
    for (size_t i = 0; i < n; i++)
        norm += (double)g[i] * (double)g[i];
    const double h = 2e-3 / sqrt(norm);
    shift(&r, g, h);
    double up = objective(&r, false);
    shift(&r, g, -2 * h);
    double down = objective(&r, false);
    double slope = (up - down) / (2 * h);
    tap_ok(norm > 1e-6 && fabs(slope / norm - 1) < 2e-3,
           "%s: slope along the gradient %.6g, its square %.6g", name, slope, norm);
    free(g);
    close_run(&r);
}

static void gradients_of(const struct opts *o, float **g, size_t *n)
{
    struct run r;
    open_run(&r, o);
    objective(&r, true);
    *g = grads(&r, n);
    close_run(&r);
}

static void test_forms(void)
{
    struct opts o = {.trained = true, .heads = all_heads}, p = o;
    float *a, *b;
    size_t na, nb;
    gradients_of(&o, &a, &na);
    p.poison = true;
    gradients_of(&p, &b, &nb);
    tap_mem(b, a, na * 4, "a poisoned run has the same gradients");
    free(b);
    p.recompute = LF_RECOMPUTE_FULL;
    gradients_of(&p, &b, &nb);
    tap_mem(b, a, na * 4, "so has one with recomputation");
    free(b);
    p = o;
    p.compute = LF_BF16;
    gradients_of(&p, &b, &nb);
    double num = 0, den = 0;
    for (size_t i = 0; i < na; i++) {
        num += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        den += (double)a[i] * (double)a[i];
    }
    tap_ok(na == nb && num > 0 && num < 0.01 * den, "bf16 has nearly the same (%.3g of their size)",
           sqrt(num / den));
    free(b);
    /* The second micro-batch adds. */
    struct run r;
    open_run(&r, &o);
    objective(&r, true);
    MUST(lf_exec_run(r.ex, 0, LF_FWD, 0, LF_ACCUM, &err));
    MUST(lf_exec_run(r.ex, 0, LF_BWD, 0, LF_ACCUM, &err));
    b = grads(&r, &nb);
    bool twice = true;
    for (size_t i = 0; i < na; i++)
        twice =
            twice && fabs((double)b[i] - 2 * (double)a[i]) <= 1e-5 * (1e-3 + fabs((double)a[i]));
    tap_ok(twice, "a second micro-batch adds its gradients");
    close_run(&r);
    free(a);
    free(b);
}

/* Without a trained weight behind a head nothing is computed for it. */
static void test_frozen(void)
{
    const struct opts o = {.heads = all_heads};
    lf_model_config c;
    model(&c, &o);
    lf_decoder *d = lf_decoder_create(&c, T, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    MUST(lf_decoder_declare(d, ps, &err));
    const struct lf_param_desc score = {.name = "score.weight", .ndim = 2, .dims = {1, c.hidden}};
    MUST(lf_pstore_add(ps, &score, &err));
    lf_pstore_freeze(ps, "", true);
    lf_pstore_freeze(ps, "score.weight", false);
    const struct lf_decoder_rows rows = {.rows = T, .n_docs = DOCS};
    lf_plan *p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 1}, &err);
    lf_graph *g = lf_decoder_heads_graph(d, ps, "heads", &rows, &o.heads, &err);
    MUST(lf_plan_add(p, g, &(struct lf_chain_opts){.train = true}, &err));
    char *text = lf_plan_text(p, 0, &err);
    tap_ok(text && strstr(text, "linear_dw") && !strstr(text, "logp_bwd") &&
               !strstr(text, "linear_dx"),
           "with only score.weight trained, its gradient is all that is computed");
    free(text);
    lf_graph_destroy(g);
    lf_plan_destroy(p);
    lf_pstore_freeze(ps, "", true);
    p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 1}, &err);
    g = lf_decoder_heads_graph(d, ps, "heads", &rows, &o.heads, &err);
    tap_rc(lf_plan_add(p, g, &(struct lf_chain_opts){.train = true}, &err), LF_EINVAL, &err,
           "frozen", "nothing trained at all");
    lf_graph_destroy(g);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void test_refused(void)
{
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_param_desc w = {.name = "w", .ndim = 2, .dims = {8, 8}};
    MUST(lf_pstore_add(ps, &w, &err));
    for (int i = 0; i < 4; i++) {
        lf_graph *g = lf_graph_create(ps, "g", &err);
        lf_val x = lf_embed(g, lf_input(g, "tokens", LF_I32, 4, 1), LF_NONE, lf_param(g, "w"),
                            LF_NONE, 1, 0);
        lf_val y = lf_linear(g, x, lf_param(g, "w"), LF_NONE),
               target = lf_input(g, "targets", LF_I32, 4, 1);
        static const char *const words[] = {"pinned", "an input dy already", "temperature",
                                            "9 real columns"};
        if (i == 1) {
            lf_pin_f32(g, y);
            lf_input(g, "dy", LF_F32, 4, 8);
        }
        if (i < 2)
            lf_output_grad(g, y, "y", "dy");
        else
            lf_logp(g, x, lf_param(g, "w"), LF_NONE, target,
                    &(struct lf_logp_opts){.inv_temperature = i == 2 ? -1.0f : 1.0f,
                                           .v_real = i == 3 ? 9 : 0});
        tap_rc(lf_graph_check(g, &err), LF_EINVAL, &err, words[i], words[i]);
        lf_graph_destroy(g);
    }
    lf_pstore_destroy(ps);
}

int main(void)
{
    static const struct opts plain = {.set = {NULL}},
                             tied = {.set = {"tied_head=yes", "logit_softcap=4"}},
                             unit = {.set = {"norm_head=yes", "tied_head=yes"}};
    struct opts bf16 = plain;
    bf16.compute = LF_BF16;
    TAP(3, test_same_bits(&plain, "plain"));
    TAP(3, test_same_bits(&tied, "tied head, soft cap"));
    TAP(3, test_same_bits(&unit, "normalised tied head"));
    TAP(3, test_same_bits(&bf16, "bf16"));
    TAP(1, test_differences(&plain, "plain"));
    TAP(1, test_differences(&tied, "tied head, soft cap"));
    TAP(1, test_differences(&unit, "normalised tied head"));
    TAP(4, test_forms());
    TAP(2, test_frozen());
    TAP(4, test_refused());
    return tap_done();
}
