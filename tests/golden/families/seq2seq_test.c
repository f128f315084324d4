/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoder-decoders beyond what families_test.c holds all families to: recomputation changes no bit,
 * a padding document may be empty on either axis, a source that is encoded once and targets over a
 * paged cache have the bits of packed documents, buckets of distances are those of transformers,
 * and what such a model is not divided by is refused by name. And log-probabilities of answers, by
 * decoders. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/layout.h"
#include "engine/post/rm_score.h"
#include "tests/golden/families/buckets.inc"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { PAGE = 64, PAD = 4, SOURCE_PAD = 3 };

struct machine {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain[2];
};

static lf_err err;

static void need(bool good, const char *what)
{
    if (!good)
        tap_bail("%s: %s", what, err.text);
}

static void begin(struct machine *m, const family *f)
{
    const struct lf_plan_opts po = {.threads = 2, .compute = LF_F32, .mode = LF_INVARIANT};
    *m = (struct machine){.dec = lf_decoder_create(&f->config, f->length, &err)};
    m->ps = lf_pstore_create(&err);
    need(m->dec && m->ps && !lf_decoder_declare(m->dec, m->ps, &err), "declare");
    m->plan = lf_plan_create(m->ps, &po, &err);
    need(m->plan, "plan");
}

static void add(struct machine *m, int i, lf_graph *g, const struct lf_chain_opts *o)
{
    need(g, "graph");
    m->chain[i] = lf_plan_add(m->plan, g, o, &err);
    lf_graph_destroy(g);
    need(m->chain[i] >= 0, "add");
}

static void finish(struct machine *m, const family *f)
{
    need(!lf_plan_finish(m->plan, &err), "finish");
    m->back = lf_back_cpu_create(lf_target_host()->isa, 2, &err);
    m->ex = m->back ? lf_exec_create(m->plan, m->back, NULL, &err) : NULL;
    need(m->ex, "exec");
    need(!family_load(f, m->ps), "weights");
}

static void end(struct machine *m)
{
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->back);
    lf_plan_destroy(m->plan);
    lf_pstore_destroy(m->ps);
    lf_decoder_destroy(m->dec);
}

static void put(const struct machine *m, int chain, const char *name, const int32_t *v, int64_t n)
{
    need(!lf_exec_write(m->ex, m->chain[chain], 0, name, v, (size_t)n * 4, &err), name);
}

static void run(const struct machine *m, int chain, enum lf_segment seg)
{
    need(!lf_exec_run(m->ex, m->chain[chain], seg, 0, LF_FIRST, &err), "run");
}

/* v [n] and zeros behind it. */
static int32_t *longer(const int32_t *v, int64_t n, int64_t more, int32_t fill)
{
    int32_t *w = malloc((size_t)(n + more) * 4);
    if (!w)
        tap_bail("no memory");
    memcpy(w, v, (size_t)n * 4);
    for (int64_t i = 0; i < more; i++)
        w[n + i] = fill;
    return w;
}

/* Gradients of a step, one after the other; with `pads`, of rows with two documents of padding:
 * one has no source, and the other no target. */
static float *gradients(const family *f, enum lf_recompute recompute, bool pads, int64_t *n)
{
    struct machine m;
    const int64_t more = pads ? PAD : 0, source_more = pads ? SOURCE_PAD : 0,
                  docs = f->docs + (pads ? 2 : 0);
    const struct lf_decoder_rows rows = {
        .rows = f->rows + more, .n_docs = docs, .source_rows = f->source_rows + source_more};
    begin(&m, f);
    add(&m, 0, lf_decoder_loss_graph(m.dec, m.ps, "train", &rows, true, &err),
        &(struct lf_chain_opts){.train = true, .recompute = recompute});
    finish(&m, f);
    const struct {
        const char *name;
        const int32_t *v;
        int64_t n, more;
        int32_t fill;
    } in[] = {{"tokens", f->tokens, f->rows, more, 0},
              {"positions", f->positions, f->rows, more, 0},
              {"targets", f->targets, f->rows, more, -1},
              {"source_tokens", f->source_tokens, f->source_rows, source_more, 0},
              {"source_positions", f->source_positions, f->source_rows, source_more, 0}};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        int32_t *v = longer(in[i].v, in[i].n, in[i].more, in[i].fill);
        put(&m, 0, in[i].name, v, in[i].n + in[i].more);
        free(v);
    }
    int32_t *cu = longer(f->cu_seqlens, f->docs + 1, 2, (int32_t)(f->rows + more)),
            *source = longer(f->source_cu, f->docs + 1, 2, (int32_t)f->source_rows);
    source[f->docs + 2] += SOURCE_PAD;
    put(&m, 0, "cu_seqlens", cu, docs + 1);
    put(&m, 0, "source_cu_seqlens", source, docs + 1);
    free(cu);
    free(source);
    const struct lf_step_record rec = {.loss_scale = 1,
                                       .inv_tokens = 1.0f / (float)(f->docs * (f->length - 1))};
    need(!lf_exec_record_write(m.ex, &rec, &err), "record");
    run(&m, 0, LF_FWD);
    run(&m, 0, LF_BWD);
    *n = 0;
    for (int i = 0; i < lf_pstore_count(m.ps); i++)
        *n += lf_pstore_desc(m.ps, i)->frozen ? 0 : family_elements(lf_pstore_desc(m.ps, i));
    float *g = malloc((size_t)*n * sizeof *g);
    int64_t at = 0;
    for (int i = 0; i < lf_pstore_count(m.ps) && g; i++) {
        const int64_t e = family_elements(lf_pstore_desc(m.ps, i));
        if (lf_pstore_desc(m.ps, i)->frozen)
            continue;
        need(!lf_pstore_read(m.ps, i, LF_P_GRAD, g + at, (size_t)e * 4, &err), "gradient");
        at += e;
    }
    end(&m);
    return g;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double e = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        e += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)a[i] * (double)a[i];
    }
    return sqrt(e / all);
}

static void test_gradients(const family *f)
{
    int64_t n = 0;
    float *plain = gradients(f, LF_RECOMPUTE_NONE, false, &n),
          *some = gradients(f, LF_RECOMPUTE_SELECTIVE, false, &n),
          *full = gradients(f, LF_RECOMPUTE_FULL, false, &n),
          *padded = gradients(f, LF_RECOMPUTE_NONE, true, &n);
    tap_ok(memcmp(plain, some, (size_t)n * 4) == 0 && memcmp(plain, full, (size_t)n * 4) == 0,
           "%s: recomputation changes no bit of %lld gradients", f->name, (long long)n);
    const double e = distance(plain, padded, n);
    tap_ok(e < 1e-6, "%s: padding without a source, and without a target, moves gradients by %.1e",
           f->name, e);
    free(plain);
    free(some);
    free(full);
    free(padded);
}

/* ---- over a cache ---- */

/* Logits of packed documents, and of the same read over a cache in steps of `rows`. */
static void packed(const family *f, float *out)
{
    struct machine m;
    const struct lf_decoder_rows rows = {
        .rows = f->rows, .n_docs = f->docs, .source_rows = f->source_rows};
    begin(&m, f);
    add(&m, 0, lf_decoder_logits_graph(m.dec, m.ps, "logits", &rows, &err),
        &(struct lf_chain_opts){0});
    finish(&m, f);
    put(&m, 0, "tokens", f->tokens, f->rows);
    put(&m, 0, "positions", f->positions, f->rows);
    put(&m, 0, "cu_seqlens", f->cu_seqlens, f->docs + 1);
    put(&m, 0, "source_tokens", f->source_tokens, f->source_rows);
    put(&m, 0, "source_positions", f->source_positions, f->source_rows);
    put(&m, 0, "source_cu_seqlens", f->source_cu, f->docs + 1);
    run(&m, 0, LF_FWD);
    need(!lf_exec_read(m.ex, m.chain[0], 0, "logits", out, (size_t)(f->rows * f->vocab) * 4, &err),
         "logits");
    end(&m);
}

static void cached(const family *f, int64_t step, float *out)
{
    struct machine m;
    const int64_t docs = f->docs;
    const struct lf_decoder_paged p = {.rows = docs * step,
                                       .n_seq = docs,
                                       .max_pages = 1,
                                       .n_pages = docs,
                                       .page_tokens = PAGE,
                                       .n_select = docs * step,
                                       .cache = LF_F32,
                                       .mode = LF_INVARIANT,
                                       .source_rows = f->source_rows + 2,
                                       .n_source_pages = docs + 1,
                                       .max_source_pages = 1};
    int32_t *seq = calloc((size_t)(p.source_rows + p.rows), 4), table[8], other[8];
    int32_t *tokens = calloc((size_t)p.rows, 4), *positions = calloc((size_t)p.rows, 4),
            *last = calloc((size_t)p.rows, 4), *select = calloc((size_t)p.rows, 4);
    float *z = malloc((size_t)(p.rows * f->vocab) * 4);
    if (!seq || !tokens || !positions || !last || !select || !z || docs > 8)
        tap_bail("no memory");
    begin(&m, f);
    add(&m, 0, lf_decoder_source_graph(m.dec, m.ps, "source", &p, &err),
        &(struct lf_chain_opts){.eras = 1});
    add(&m, 1, lf_decoder_paged_graph(m.dec, m.ps, "step", &p, &err),
        &(struct lf_chain_opts){.eras = 2});
    finish(&m, f);
    for (int64_t d = 0; d < docs; d++) {
        table[d] = (int32_t)(docs - d); /* a page is free */
        other[d] = (int32_t)d;
        for (int64_t i = f->source_cu[d]; i < f->source_cu[d + 1]; i++)
            seq[i] = (int32_t)d;
    }
    for (int64_t i = f->source_rows; i < p.source_rows; i++)
        seq[i] = -1;
    int32_t *source = longer(f->source_tokens, f->source_rows, 2, 0),
            *places = longer(f->source_positions, f->source_rows, 2, 0);
    put(&m, 0, "source_tokens", source, p.source_rows);
    put(&m, 0, "source_positions", places, p.source_rows);
    put(&m, 0, "source_seq", seq, p.source_rows);
    put(&m, 0, "source_cu_seqlens", f->source_cu, docs + 1);
    put(&m, 0, "source_table", table, docs);
    run(&m, 0, LF_FWD);
    for (int64_t at = 0; at < f->length; at += step) {
        for (int64_t d = 0, r = 0; d < docs; d++)
            for (int64_t i = 0; i < step; i++, r++) {
                const bool there = at + i < f->length;
                seq[r] = there ? (int32_t)d : -1;
                positions[r] = there ? (int32_t)(at + i) : 0;
                tokens[r] = there ? f->tokens[d * f->length + at + i] : 0;
                last[r] = there ? f->source_cu[d + 1] - f->source_cu[d] - 1 : -1;
                select[r] = (int32_t)r;
            }
        put(&m, 1, "tokens", tokens, p.rows);
        put(&m, 1, "positions", positions, p.rows);
        put(&m, 1, "seq", seq, p.rows);
        put(&m, 1, "table", other, docs);
        put(&m, 1, "source_last", last, p.rows);
        put(&m, 1, "source_table", table, docs);
        put(&m, 1, "select", select, p.rows);
        run(&m, 1, LF_FWD);
        need(!lf_exec_read(m.ex, m.chain[1], 0, "logits", z, (size_t)(p.rows * f->vocab) * 4, &err),
             "logits");
        for (int64_t r = 0; r < p.rows; r++)
            if (seq[r] >= 0)
                memcpy(out + (r / step * f->length + positions[r]) * f->vocab, z + r * f->vocab,
                       (size_t)f->vocab * 4);
    }
    end(&m);
    free(source);
    free(places);
    free(seq);
    free(tokens);
    free(positions);
    free(last);
    free(select);
    free(z);
}

static void test_cache(const family *f)
{
    const size_t n = (size_t)(f->rows * f->vocab);
    float *whole = calloc(n, 4), *one = calloc(n, 4), *some = calloc(n, 4);
    if (!whole || !one || !some)
        tap_bail("no memory");
    packed(f, whole);
    cached(f, 1, one);
    cached(f, 5, some);
    tap_ok(
        family_error(f, whole, NULL) <= FAMILY_F32 && memcmp(whole, one, n * 4) == 0 &&
            memcmp(whole, some, n * 4) == 0,
        "%s: over a cache, token by token and by fives, logits have the bits of packed documents",
        f->name);
    free(whole);
    free(one);
    free(some);
}

/* ---- what is refused ---- */

static void declare_in(const family *f, const struct lf_layout *of, const char *says)
{
    lf_decoder *d = lf_decoder_create(&f->config, f->length, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    lf_err why = LF_ERR_INIT;
    need(d && ps && !lf_pstore_set_layout(ps, of, &err), "layout");
    tap_rc(lf_decoder_declare(d, ps, &why), LF_ENOTSUP, &why, says, "ranks that divide rows");
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

static void test_refused(const family *f)
{
    const struct lf_decoder_rows rows = {.rows = 8, .n_docs = 1},
                                 whole = {.rows = 8, .n_docs = 1, .source_rows = 8};
    const struct lf_plan_opts po = {
        .target = lf_target_find("sm_90"), .threads = 1, .compute = LF_BF16};
    declare_in(f, &(struct lf_layout){.context = 2}, "take context = 1");
    lf_err why = LF_ERR_INIT;
    lf_decoder *d = lf_decoder_create(&f->config, f->length, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    need(d && ps, "create");
    need(!lf_decoder_declare(d, ps, &err), "declare");
    tap_ok(!lf_decoder_loss_graph(d, ps, "train", &rows, true, &why), "a graph without sources");
    tap_rc(why.rc, LF_ENOTSUP, &why, "this model is an encoder-decoder", "is refused by name");
    why = (lf_err)LF_ERR_INIT;
    lf_plan *p = lf_plan_create(ps, &po, &why);
    lf_graph *g = lf_decoder_logits_graph(d, ps, "logits", &whole, &err);
    need(p && g, "plan");
    tap_ok(lf_plan_add(p, g, &(struct lf_chain_opts){0}, &why) == LF_ENOTSUP &&
               strstr(why.text, "sm_90 has no kernel for attention"),
           "GPUs: %s", why.text);
    lf_graph_destroy(g);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

/* ---- buckets ---- */

static void test_buckets(void)
{
    int wrong = 0, seen = 0;
    for (size_t i = 0; i < sizeof bucket_rows / sizeof *bucket_rows; i++) {
        const struct bucket_row *b = &bucket_rows[i];
        lf_model_config c;
        lf_model_config_defaults(&c);
        c.mask = b->both ? LF_MASK_BOTH : LF_MASK_CAUSAL;
        c.relative_buckets = b->buckets;
        c.relative_distance = b->distance;
        for (int k = 0; k < BUCKET_REACH * 2 + 1; k++, seen++)
            wrong += lf_model_relative_bucket(&c, k - BUCKET_REACH) != b->of[k];
    }
    tap_ok(wrong == 0 && seen > 1000, "%d buckets of distances are those of transformers", seen);
}

/* ---- how likely answers are ---- */

/* log p(token) by the reference, at a row. */
static double likely(const family *f, int64_t row, int32_t token)
{
    const double *z = f->logits + row * f->vocab;
    double sum = 0;
    for (int64_t v = 0; v < f->vocab; v++)
        sum += exp(z[v] - z[token]);
    return -log(sum);
}

enum { TEXT_MOST = 200 };
struct answer {
    int32_t tokens[TEXT_MOST];
    char said[TEXT_MOST];
    size_t n;
    double want;
};

/* Document d as lf-score has it: the prompt is of one token or more, and some tokens stand unsaid
 * behind the first that is said. */
static void make_answer(const family *f, int64_t d, struct answer *a)
{
    *a = (struct answer){.n = (size_t)f->length};
    memcpy(a->tokens, f->tokens + d * f->length, a->n * sizeof *a->tokens);
    for (int64_t i = 1 + d % 3; i < f->length; i++) {
        a->said[i] = i % 3 != 1;
        a->want += a->said[i] ? likely(f, d * f->length + i - 1, a->tokens[i]) : 0;
    }
}

/* lf_rm_score of decoders against the logits of transformers, whatever shares a batch. What it
 * says of encoder-decoders is held against their generation by tests/stage/seq2seq.sh. */
static void test_answers(const char *name)
{
    static struct answer a[8];
    family *f = family_open(name);
    lf_rm_text text[8];
    float got[8];
    char checkpoint[4096];
    const size_t n = (size_t)f->docs;
    double worst = 0;
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", f->tmp);
    if (n > 8 || f->length > TEXT_MOST)
        tap_bail("%s: %zu documents of %lld tokens", name, n, (long long)f->length);
    for (size_t d = 0; d < n; d++) {
        make_answer(f, (int64_t)d, &a[d]);
        text[d] = (lf_rm_text){.tokens = a[d].tokens, .n = a[d].n, .said = a[d].said};
    }
    for (int64_t at_once = 1; at_once <= 3; at_once++) {
        lf_rm *r = NULL;
        const struct lf_rm_opts o = {.threads = 2,
                                     .max_context = f->length,
                                     .rows = at_once * f->length + 1,
                                     .docs = 8,
                                     .reading = {.answers = true, .end = -1}};
        need(!lf_rm_open(&r, checkpoint, &o, &err) && !lf_rm_score(r, text, n, got, NULL, &err),
             name);
        for (size_t d = 0; d < n; d++)
            worst = tap_worse(worst, fabs((double)got[d] - a[d].want) / fabs(a[d].want));
        lf_rm_close(r);
    }
    tap_ok(n > 1 && worst < 1e-5,
           "%s: log-probabilities of %zu answers by transformers, off by %.2g", name, n, worst);
    family_close(f);
}

int main(void)
{
    static const char *const names[] = {"t5", "umt5", "bart"};
    TAP(1, test_buckets());
    TAP(1, test_answers("qwen3"));
    TAP(1, test_answers("gpt2"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        family *f = family_open(names[i]);
        TAP(2, test_gradients(f));
        TAP(1, test_cache(f));
        if (i == 0)
            TAP(4, test_refused(f));
        family_close(f);
    }
    return tap_done();
}
