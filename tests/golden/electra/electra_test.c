/* SPDX-License-Identifier: Apache-2.0
 *
 * ELECTRA's joint objective: ElectraForMaskedLM and ElectraForPreTraining of transformers on one
 * embedding (make_electra.py), imported and trained on texts with given draws, against f64: both
 * losses and every gradient of the first plus 50 times the second. Without the draws, or with
 * another weight, they are others. The pass that words are drawn from says what the one that is
 * trained says, and words come as often as it says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/convert/convert.h"
#include "engine/model/electra.h"
#include "engine/model/weights.h"
#include "engine/store/safetensors.h"
#include "engine/train/electra.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { DOCS = 4, LENGTH = 17, ROWS = DOCS * LENGTH, VOCAB = 40, SAID = 16 };
#define WEIGHT 50.0

struct wanted {
    family f[2]; /* discriminator, generator */
    int32_t read[ROWS], drawn[ROWS], types[ROWS], targets[ROWS], positions[ROWS], cu[DOCS + 1];
    int64_t hidden;
    double loss[2];
};

struct got {
    double loss[2], worst; /* error of a gradient */
    float lp[ROWS];
    char where[96];
};

struct run {
    lf_decoder *dec;
    lf_electra *e;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain, reads, says;
};

static char *path_of(const char *dir, const char *name)
{
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *s = malloc(n);
    if (!s)
        tap_bail("no memory");
    snprintf(s, n, "%s/%s", dir, name);
    return s;
}

static void read_ids(const lf_st *s, const char *name, int32_t *out)
{
    lf_err err = LF_ERR_INIT;
    int64_t ids[ROWS];
    const lf_st_entry *e = lf_st_find(s, name);
    if (!e || e->elems != ROWS || lf_st_read(s, e, 0, ROWS, ids, &err))
        tap_bail("%s: %s", name, err.text);
    for (int64_t i = 0; i < ROWS; i++)
        out[i] = (int32_t)ids[i];
}

static void read_text(struct wanted *w, const lf_st *s)
{
    lf_err err = LF_ERR_INIT;
    const lf_st_entry *loss = lf_st_find(s, "loss");
    if (!loss || lf_st_read(s, loss, 0, 2, w->loss, &err))
        tap_bail("loss: %s", err.text);
    read_ids(s, "input_ids", w->read);
    read_ids(s, "drawn_ids", w->drawn);
    read_ids(s, "token_type_ids", w->types);
    read_ids(s, "labels", w->targets);
    for (int32_t i = 0; i < ROWS; i++) {
        w->targets[i] = w->targets[i] < 0 ? -1 : w->targets[i];
        w->hidden += w->targets[i] >= 0;
        w->positions[i] = i % LENGTH;
    }
    for (int32_t d = 0; d <= DOCS; d++)
        w->cu[d] = d * LENGTH;
}

static void open_part(struct wanted *w, int k, const char *name)
{
    lf_err err = LF_ERR_INIT;
    lf_st *s = NULL;
    family *f = &w->f[k];
    const char *src = getenv("LF_SRCDIR");
    char *root = path_of(src ? src : ".", "tests/golden/electra"), *expected;
    *f = (family){
        .name = strdup(name), .dir = path_of(root, name), .tmp = path_of(tap_tmpdir(), name)};
    expected = path_of(f->dir, "expected.safetensors");
    if (mkdir(f->tmp, 0777) || lf_st_open(&s, expected, &err))
        tap_bail("%s", err.text);
    f->set[FAMILY_WEIGHTS] = family_import(f, f->dir, "checkpoint");
    char *grads = family_write_grads(f, s);
    f->set[FAMILY_GRADS] = family_import(f, grads, "gradients");
    if (lf_weights_config(&f->config, f->set[FAMILY_WEIGHTS], &err))
        tap_bail("%s", err.text);
    family_quiet(&f->config);
    if (k == 0)
        read_text(w, s);
    lf_st_close(s);
    free(grads);
    free(expected);
    free(root);
}

static void close_wanted(struct wanted *w)
{
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < FAMILY_SETS; i++)
            lf_ckpt_close(w->f[k].set[i]);
        free(w->f[k].name);
        free(w->f[k].dir);
        free(w->f[k].tmp);
    }
}

/* The description of the discriminator says the sizes of the generator. */
static void describe(struct wanted *w)
{
    lf_model_config *c = &w->f[0].config;
    const lf_model_config *g = &w->f[1].config;
    c->generator_layers = g->layers;
    c->generator_hidden = g->hidden;
    c->generator_heads = g->heads;
    c->generator_ffn = g->ffn;
}

/* Tensor `name` of either file: those that both have are the discriminator's. */
static bool tensor_of(const struct wanted *w, int set, const char *name, float *v, int64_t n,
                      int64_t cols)
{
    const size_t skip = strlen(LF_ELECTRA_STACK);
    const bool own = strncmp(name, LF_ELECTRA_STACK, skip) == 0;
    return family_tensor(&w->f[own], set, own ? name + skip : name, v, n, cols);
}

static int add(const struct run *r, lf_graph *g, const struct lf_chain_opts *o)
{
    lf_err err = LF_ERR_INIT;
    const int chain = g ? lf_plan_add(r->plan, g, o, &err) : -1;
    if (chain < 0)
        tap_bail("no chain: %s", err.text);
    lf_graph_destroy(g);
    return chain;
}

static void load(const struct run *r, const struct wanted *w)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const int64_t n = family_elements(d);
        float *v = calloc((size_t)n, sizeof *v);
        if (!v || !tensor_of(w, FAMILY_WEIGHTS, d->name, v, n, family_columns(d)) ||
            lf_pstore_write(r->ps, i, LF_F32, v, &err))
            tap_bail("the files lack %s %s", d->name, err.text);
        free(v);
    }
}

static void open_run(struct run *r, const struct wanted *w, enum lf_recompute recompute)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_plan_opts po = {.threads = 1, .compute = LF_F32, .mode = LF_INVARIANT};
    const struct lf_decoder_rows rows = {.rows = ROWS, .n_docs = DOCS, .max_doc = LENGTH};
    *r = (struct run){0};
    if (!(r->dec = lf_decoder_create(&w->f[0].config, LENGTH, &err)) ||
        !(r->e = lf_electra_create(r->dec, LENGTH, &err)) || !(r->ps = lf_pstore_create(&err)) ||
        lf_decoder_declare(r->dec, r->ps, &err) || lf_electra_declare(r->e, r->ps, &err) ||
        !(r->plan = lf_plan_create(r->ps, &po, &err)))
        tap_bail("%s", err.text);
    r->chain = add(r, lf_electra_graph(r->e, r->ps, "train", &rows, true, &err),
                   &(struct lf_chain_opts){.train = true, .eras = 1, .recompute = recompute});
    r->reads = add(r, lf_electra_read_graph(r->e, r->ps, "read", &rows, true, &err),
                   &(struct lf_chain_opts){.eras = 2});
    r->says = add(r, lf_electra_say_graph(r->e, r->ps, "say", SAID, &err),
                  &(struct lf_chain_opts){.eras = 2});
    if (lf_plan_finish(r->plan, &err) ||
        !(r->back = lf_back_cpu_create(lf_target_host()->isa, 1, &err)) ||
        !(r->ex = lf_exec_create(r->plan, r->back, &(struct lf_exec_opts){0}, &err)))
        tap_bail("%s", err.text);
    load(r, w);
}

static void close_run(struct run *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_electra_destroy(r->e);
    lf_decoder_destroy(r->dec);
}

static void put(const struct run *r, int chain, const char *name, const void *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_write(r->ex, chain, 0, name, v, (size_t)n * 4, &err))
        tap_bail("%s: %s", name, err.text);
}

static void feed(const struct run *r, const struct wanted *w, int chain, const int32_t *tokens)
{
    put(r, chain, "tokens", tokens, ROWS);
    put(r, chain, "positions", w->positions, ROWS);
    put(r, chain, "types", w->types, ROWS);
    put(r, chain, "cu_seqlens", w->cu, DOCS + 1);
}

static void go(const struct run *r, int chain, enum lf_segment seg)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(r->ex, chain, seg, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
}

static void take(const struct run *r, int chain, const char *name, float *v, int64_t n)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_read(r->ex, chain, 0, name, v, (size_t)n * 4, &err))
        tap_bail("%s: %s", name, err.text);
}

/* |got - want| / |want|; of a gradient of zeros |got|. */
static double error_of(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t e = 0; e < n; e++) {
        diff += ((double)got[e] - (double)want[e]) * ((double)got[e] - (double)want[e]);
        norm += (double)want[e] * (double)want[e];
    }
    return sqrt(norm > 0 ? diff / norm : diff);
}

static void compare_grads(const struct run *r, const struct wanted *w, struct got *g)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(r->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(r->ps, i);
        const int64_t n = family_elements(d);
        float *is = calloc((size_t)n, sizeof *is), *want = calloc((size_t)n, sizeof *want);
        if (!is || !want || lf_pstore_read(r->ps, i, LF_P_GRAD, is, (size_t)n * 4, &err) ||
            !tensor_of(w, FAMILY_GRADS, d->name, want, n, family_columns(d)))
            tap_bail("gradient of %s: %s", d->name, err.text);
        const double x = error_of(is, want, n);
        /* a bias of keys moves no probability: what is left of it is rounding */
        if (!(x <= g->worst) && !strstr(d->name, ".attn.k.bias")) {
            g->worst = x;
            snprintf(g->where, sizeof g->where, "%s", d->name);
        }
        free(is);
        free(want);
    }
}

/* A step whose discriminator reads these tokens, by this weight of its loss. */
static struct got train(const struct wanted *w, enum lf_recompute recompute, const int32_t *drawn,
                        double weight)
{
    struct run r;
    struct got g = {0};
    float score[ROWS], slope[ROWS];
    lf_err err = LF_ERR_INIT;
    const struct lf_step_record rec = {.loss_scale = 1, .inv_tokens = 1};
    open_run(&r, w, recompute);
    feed(&r, w, r.chain, drawn);
    put(&r, r.chain, "hidden_tokens", w->read, ROWS);
    put(&r, r.chain, "targets", w->targets, ROWS);
    if (lf_exec_record_write(r.ex, &rec, &err))
        tap_bail("%s", err.text);
    go(&r, r.chain, LF_FWD);
    take(&r, r.chain, "lp", g.lp, ROWS);
    take(&r, r.chain, "score", score, ROWS);
    for (int i = 0; i < ROWS; i++) {
        const int32_t was = w->targets[i] < 0 ? w->read[i] : w->targets[i];
        double d;
        g.loss[0] -= w->targets[i] < 0 ? 0 : (double)g.lp[i] / (double)w->hidden;
        g.loss[1] += lf_electra_loss((double)score[i], w->drawn[i] != was, &d) / ROWS;
        score[i] = (float)(weight * d / ROWS);
        slope[i] = (float)(w->targets[i] < 0 ? 0 : -1 / (double)w->hidden);
    }
    put(&r, r.chain, "dlp", slope, ROWS);
    put(&r, r.chain, "dscore", score, ROWS);
    go(&r, r.chain, LF_BWD);
    compare_grads(&r, w, &g);
    close_run(&r);
    return g;
}

/* ---- points ---- */

static void test_numbers(const struct wanted *w)
{
    const struct got g = train(w, LF_RECOMPUTE_NONE, w->drawn, WEIGHT),
                     again = train(w, LF_RECOMPUTE_FULL, w->drawn, WEIGHT),
                     masked = train(w, LF_RECOMPUTE_NONE, w->read, WEIGHT),
                     less = train(w, LF_RECOMPUTE_NONE, w->drawn, 49);
    tap_f64(g.loss[0], w->loss[0], 1e-5, "the loss of the generator is that of the reference");
    tap_f64(g.loss[1], w->loss[1], 1e-5, "and that of the discriminator");
    tap_ok(g.worst <= FAMILY_F32, "every gradient is within 1e-5");
    tap_diag("losses %.1e %.1e, gradients %.1e (%s)", fabs(g.loss[0] - w->loss[0]),
             fabs(g.loss[1] - w->loss[1]), g.worst, g.where);
    tap_ok(again.worst == g.worst && again.loss[1] == g.loss[1], "recomputed, too");
    tap_ok(masked.loss[0] == g.loss[0] && fabs(masked.loss[1] - w->loss[1]) > 1e-3,
           "what the generator reads in place of the draws is another loss of the discriminator");
    tap_ok(less.worst > 1e-3, "another weight of it is another gradient (%.1e)", less.worst);
}

/* log p of the target by the logits of the pass that words are drawn from. */
static void test_passes(const struct wanted *w)
{
    struct run r;
    const int64_t E = w->f[0].config.embed_dim;
    float *hidden = calloc((size_t)(ROWS * E), 4), logits[SAID * VOCAB];
    const struct got g = train(w, LF_RECOMPUTE_NONE, w->drawn, WEIGHT);
    double worst = 0;
    open_run(&r, w, LF_RECOMPUTE_NONE);
    if (!hidden || w->f[0].config.vocab != VOCAB)
        tap_bail("no memory, or another vocabulary");
    feed(&r, w, r.reads, w->read);
    go(&r, r.reads, LF_FWD);
    take(&r, r.reads, "hidden", hidden, ROWS * E);
    for (int64_t first = 0; first + SAID <= ROWS; first += SAID) {
        put(&r, r.says, "hidden", hidden + first * E, SAID * E);
        go(&r, r.says, LF_FWD);
        take(&r, r.says, "logits", logits, SAID * VOCAB);
        for (int64_t i = 0; i < SAID; i++) {
            const int32_t t = w->targets[first + i];
            double most = -INFINITY, sum = 0;
            for (int k = 0; k < VOCAB; k++)
                most = tap_worse(most, (double)logits[i * VOCAB + k]);
            for (int k = 0; k < VOCAB; k++)
                sum += exp((double)logits[i * VOCAB + k] - most);
            if (t >= 0)
                worst = tap_worse(worst, fabs((double)logits[i * VOCAB + t] - most - log(sum) -
                                              (double)g.lp[first + i]));
        }
    }
    tap_ok(worst < 1e-5, "words are drawn from what is trained (log p within %.1e)", worst);
    close_run(&r);
    free(hidden);
}

static void test_draws(void)
{
    const float logits[4] = {0, logf(2), -INFINITY, logf(5)}; /* 1/8, 2/8, 0, 5/8 */
    int n[4] = {0}, same = 0;
    for (int i = 0; i < 40000; i++) {
        const double u = lf_electra_chance(3, false, i / 64, i % 64);
        n[lf_electra_draw(logits, 4, u)]++;
        same += u == lf_electra_chance(3, true, i / 64, i % 64);
    }
    tap_ok(abs(n[0] - 5000) < 270 && abs(n[1] - 10000) < 350 && n[2] == 0,
           "words come as often as the softmax says (%d %d %d of 40000)", n[0], n[1], n[2]);
    tap_ok(same == 0 && lf_electra_draw(logits, 4, 0) == 0 &&
               lf_electra_draw(logits, 4, 0.124) == 0 && lf_electra_draw(logits, 4, 0.126) == 1 &&
               lf_electra_draw(logits, 4, 0.9999999) == 3,
           "each where its share begins; a validation has other draws");
}

static void test_refusals(const struct wanted *w)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c = w->f[0].config;
    c.generator_layers = 0;
    lf_decoder *d = lf_decoder_create(&c, LENGTH, &err);
    tap_ok(d && !lf_electra_create(d, LENGTH, &err) && strstr(err.text, "generator_layers"),
           "a model without a generator is refused");
    lf_decoder_destroy(d);
}

static void all(void)
{
    static struct wanted w;
    open_part(&w, 0, "discriminator");
    open_part(&w, 1, "generator");
    describe(&w);
    test_numbers(&w);
    test_passes(&w);
    test_draws();
    test_refusals(&w);
    close_wanted(&w);
}

int main(void)
{
    TAP(10, all());
    return tap_done();
}
