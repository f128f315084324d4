/* SPDX-License-Identifier: Apache-2.0
 *
 * longrope: the angles of a document follow from its own length, whatever lies beside it and
 * however long a context may be: packed documents, generation and scoring against transformers
 * (make_longrope.py). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/infer/runner.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { CONTEXT = 64, ORIGINAL = 16, TEXTS = 5, LONGEST = 32 };

static void *need(void *p)
{
    if (!p)
        tap_bail("no memory");
    return p;
}

/* ---- packed documents ---- */

/* g's document d becomes n tokens of document `from` of f, from its beginning. */
static void copy_doc(family *g, const family *f, int64_t d, int64_t from, int64_t n)
{
    const int32_t at = g->cu_seqlens[d];
    for (int64_t t = 0; t < n; t++) {
        g->tokens[at + t] = f->tokens[from * f->length + t % f->length];
        g->positions[at + t] = (int32_t)t;
    }
    g->cu_seqlens[d + 1] = at + (int32_t)n;
}

static double doc_error(const family *f, int64_t d, const float *got)
{
    double worst = 0, most = 0;
    for (int64_t i = 0; i < f->length * f->vocab; i++) {
        const double want = f->logits[d * f->length * f->vocab + i];
        worst = tap_worse(worst, fabs((double)got[i] - want));
        most = tap_worse(most, fabs(want));
    }
    return worst / most;
}

/* The golden documents on both sides of one of the other kind, in a model that may read CONTEXT
 * tokens. */
static void test_packed(family *f)
{
    lf_err err = LF_ERR_INIT;
    rig r;
    family g = *f;
    const int64_t other = f->length > ORIGINAL ? 10 : 24;
    g.docs = 3;
    g.rows = 2 * f->length + other;
    g.length = CONTEXT;
    g.tokens = need(calloc((size_t)g.rows, 4));
    g.positions = need(calloc((size_t)g.rows, 4));
    g.cu_seqlens = need(calloc((size_t)g.docs + 1, 4));
    copy_doc(&g, f, 0, 0, f->length);
    copy_doc(&g, f, 1, 1, other);
    copy_doc(&g, f, 2, 1, f->length);
    float *out = need(calloc((size_t)(g.rows * g.vocab), sizeof *out));
    if (rig_open(&r, &g, &f->config, LF_F32, LF_INVARIANT, false, &err))
        tap_bail("%s: %s", f->name, err.text);
    family_load(f, r.ps);
    rig_logits(&r, &g, NULL, out);
    const double a = doc_error(f, 0, out), b = doc_error(f, 1, out + g.cu_seqlens[2] * g.vocab);
    tap_ok(a <= FAMILY_F32 && b <= FAMILY_F32,
           "%s: documents of %lld tokens beside one of %lld: relative errors %.2g, %.2g", f->name,
           (long long)f->length, (long long)other, a, b);
    rig_close(&r);
    free(out);
    free(g.tokens);
    free(g.positions);
    free(g.cu_seqlens);
}

/* ---- generation and scoring ---- */

struct text {
    int32_t tokens[LONGEST]; /* the prompt, then what follows it */
    double logprobs[LONGEST];
    size_t n_prompt, n;
};

static void read_texts(struct text *t, json_t *list)
{
    if (json_array_size(list) != TEXTS)
        tap_bail("longrope.json does not hold %d texts", TEXTS);
    for (size_t i = 0; i < TEXTS; i++) {
        json_t *o = json_array_get(list, i), *p = json_object_get(o, "prompt"),
               *k = json_object_get(o, "tokens"), *l = json_object_get(o, "logprobs");
        t[i] = (struct text){.n_prompt = json_array_size(p),
                             .n = json_array_size(p) + json_array_size(k)};
        for (size_t a = 0; a < t[i].n; a++)
            t[i].tokens[a] = (int32_t)json_integer_value(
                a < t[i].n_prompt ? json_array_get(p, a) : json_array_get(k, a - t[i].n_prompt));
        for (size_t a = 0; a < json_array_size(l); a++)
            t[i].logprobs[a] = json_number_value(json_array_get(l, a));
    }
}

static lf_runner *open_runner(const family *f, int64_t slots, int64_t rows, bool switching)
{
    lf_err err = LF_ERR_INIT;
    lf_runner *r = NULL;
    char dir[4096];
    const struct lf_runner_opts o = {.threads = 1,
                                     .compute = LF_F32,
                                     .max_context = CONTEXT,
                                     .slots = slots,
                                     .max_rows = rows,
                                     .page_tokens = 64,
                                     .switching = switching,
                                     .score_rows = 100,
                                     .score_docs = 4};
    snprintf(dir, sizeof dir, "%s/checkpoint", f->tmp);
    if (lf_runner_open(&r, dir, &o, &err))
        tap_bail("%s: %s", dir, err.text);
    return r;
}

struct compared {
    const struct text *texts;
    double worst;
    bool same;
};

static int compare(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct compared *c = arg;
    const struct text *t = &c->texts[r->job->request];
    c->same = c->same && r->n == t->n - t->n_prompt;
    for (size_t i = 0; i < r->n && c->same; i++) {
        c->same = r->tokens[i] == t->tokens[t->n_prompt + i];
        c->worst = tap_worse(c->worst, fabs((double)r->logprobs[i] - t->logprobs[i]));
    }
    return 0;
}

static void test_generation(const family *f, const struct text *texts, bool switching,
                            int64_t slots, int64_t rows)
{
    lf_err err = LF_ERR_INIT;
    lf_gen_model m;
    lf_gen_job jobs[TEXTS];
    struct compared c = {.texts = texts, .same = true};
    lf_runner *r = open_runner(f, slots, rows, switching);
    for (size_t i = 0; i < TEXTS; i++) {
        jobs[i] = (lf_gen_job){.id = "t",
                               .request = i,
                               .prompt = texts[i].tokens,
                               .n_prompt = texts[i].n_prompt,
                               .params = LF_SAMPLE_DEFAULTS,
                               .max_tokens = (int64_t)(texts[i].n - texts[i].n_prompt)};
        jobs[i].params.temperature = 0;
    }
    if (lf_runner_gen_model(r, &m, &err) ||
        lf_gen_run(&m,
                   &(struct lf_gen_work){.jobs = jobs, .n_jobs = TEXTS, .sink = compare, .arg = &c},
                   NULL, &err))
        tap_bail("generate: %s", err.text);
    tap_ok(
        c.same && c.worst <= 1e-4,
        "%s, %lld at a time, %lld rows: the tokens of transformers, log-probabilities within %.2g",
        switching ? "transformers' rule" : "by the length", (long long)slots, (long long)rows,
        c.worst);
    lf_runner_close(r);
}

static int compare_score(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    double *ll = arg;
    for (size_t i = r->job->prompt_first; i < r->job->n_prompt; i++)
        ll[r->job->request] += (double)r->prompt_logprobs[i];
    return 0;
}

/* The same texts scored as a whole: by packed documents and by the cache. */
static void test_scores(const family *f, const struct text *texts, bool switching)
{
    lf_err err = LF_ERR_INIT;
    lf_gen_model m;
    lf_score_model s;
    lf_score_item items[TEXTS];
    lf_score out[TEXTS];
    lf_gen_job jobs[TEXTS];
    double ll[TEXTS] = {0}, packed = 0, cached = 0;
    lf_runner *r = open_runner(f, 2, 7, switching);
    for (size_t i = 0; i < TEXTS; i++) {
        items[i] =
            (lf_score_item){.tokens = texts[i].tokens, .n = texts[i].n, .first = texts[i].n_prompt};
        jobs[i] = (lf_gen_job){.id = "s",
                               .request = i,
                               .prompt = texts[i].tokens,
                               .n_prompt = texts[i].n,
                               .params = LF_SAMPLE_DEFAULTS,
                               .prompt_logprobs = true,
                               .prompt_first = texts[i].n_prompt};
    }
    if (lf_runner_score_model(r, &s, &err) || lf_score_run(&s, items, TEXTS, out, NULL, &err) ||
        lf_runner_gen_model(r, &m, &err) ||
        lf_gen_run(
            &m,
            &(struct lf_gen_work){.jobs = jobs, .n_jobs = TEXTS, .sink = compare_score, .arg = ll},
            NULL, &err))
        tap_bail("score: %s", err.text);
    for (size_t i = 0; i < TEXTS; i++) {
        double want = 0;
        for (size_t k = 0; k < texts[i].n - texts[i].n_prompt; k++)
            want += texts[i].logprobs[k];
        packed = tap_worse(packed, fabs(out[i].ll - want));
        cached = tap_worse(cached, fabs(ll[i] - want));
    }
    tap_ok(packed <= 1e-4 && cached <= 1e-4,
           "texts scored%s: packed within %.2g, over the cache within %.2g",
           switching ? " beside transformers' rule" : "", packed, cached);
    lf_runner_close(r);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    const char *src = getenv("LF_SRCDIR");
    struct text by_switch[TEXTS], by_length[TEXTS];
    snprintf(path, sizeof path, "%s/tests/golden/families/longrope.json", src ? src : ".");
    json_t *o = lf_json_load_file(path, 1 << 20, &err);
    if (!o)
        tap_bail("%s", err.text);
    read_texts(by_switch, json_object_get(o, "switch"));
    read_texts(by_length, json_object_get(o, "length"));
    json_decref(o);
    family *f = family_open("phi3-long");
    TAP(1, test_packed(f));
    family_close(f);
    f = family_open("phi3-short");
    TAP(1, test_packed(f));
    static const int64_t sizes[][2] = {{1, 64}, {3, 5}, {5, 40}};
    for (size_t i = 0; i < 3; i++) {
        TAP(1, test_generation(f, by_length, false, sizes[i][0], sizes[i][1]));
        TAP(1, test_generation(f, by_switch, true, sizes[i][0], sizes[i][1]));
    }
    TAP(1, test_scores(f, by_length, false));
    TAP(1, test_scores(f, by_length, true));
    family_close(f);
    return tap_done();
}
