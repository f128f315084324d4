/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation and greedy generation against transformers in f64 with the definitions of
 * lm-evaluation-harness (tests/golden/eval/make_eval.py): every log-likelihood and log-probability
 * within 1e-5 relative (absolute below 1: a log-probability near 0 is the difference of two f32 of
 * order 10), every token, flag and accuracy equal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/infer/runner.h"
#include "engine/infer/tasks.h"
#include "tests/golden/golden.h"
#include "tests/tap/tap.h"
#include "tests/unit/infer_ckpt.h"

static const double TOLERANCE = 1e-5;

static void path_of(char *out, size_t cap, const char *name)
{
    const char *src = getenv("LF_SRCDIR");
    snprintf(out, cap, "%s/tests/golden/eval/%s", src ? src : ".", name);
}

static void from_golden(void *arg, const struct lf_param_desc *d, float *dst, int64_t rows,
                        int64_t cols)
{
    const golden *g = arg;
    if (!golden_tensor(g, "weights", d->name, dst, rows, cols))
        tap_bail("no weight %s", d->name);
}

static lf_runner *open_model(const char *family)
{
    char dir[4096];
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    lf_runner *r = NULL;
    golden *g = golden_open(family);
    golden_config(family, &c);
    snprintf(dir, sizeof dir, "%s/%s", tap_tmpdir(), family);
    struct lf_runner_opts o = {.threads = 2,
                               .max_context = 48,
                               .slots = 3,
                               .max_rows = 16,
                               .page_tokens = 64,
                               .score_rows = 200,
                               .score_docs = 16};
    if (infer_ckpt_write(dir, &c, from_golden, g, &err) || lf_runner_open(&r, dir, &o, &err))
        tap_bail("%s: %s", family, err.text);
    golden_close(g);
    return r;
}

/* Samples of the three tasks as JSON objects, in an array; results. */
static void measure(lf_runner *r, const lf_tokenizer *tok, json_t **samples, json_t **results)
{
    static const struct {
        const char *file;
        enum lf_task_kind kind;
    } tasks[] = {{"pages.jsonl", LF_TASK_ROLLING},
                 {"choice.jsonl", LF_TASK_CHOICE},
                 {"words.jsonl", LF_TASK_LAST_WORD}};
    lf_err err = LF_ERR_INIT;
    lf_score_model m;
    char path[4096];
    lf_buf lines;
    lf_buf_init(&lines);
    int rc = lf_runner_score_model(r, &m, &err);
    const struct lf_eval_models models = {.score = &m};
    lf_tasks *t =
        rc ? NULL : lf_tasks_create(tok, (int32_t)lf_tokenizer_eos(tok), m.max_context, &err);
    for (size_t i = 0; t && rc == 0 && i < 3; i++) {
        path_of(path, sizeof path, tasks[i].file);
        rc = lf_tasks_add_file(t, tasks[i].kind, path, 0, &err);
    }
    if (!t || rc || lf_tasks_score(t, &models, 0, lf_tasks_n_docs(t), &lines, NULL, &err))
        tap_bail("tasks: %s", err.text);
    snprintf(path, sizeof path, "%s/samples.jsonl", tap_tmpdir());
    if (lf_io_replace(path, lines.data, lines.len, 0600, &err) ||
        !(*results = lf_tasks_results(t, path, &(struct lf_eval_opts){100000}, NULL, &err)))
        tap_bail("results: %s", err.text);
    *samples = json_array();
    for (char *at = lines.data, *end; at < lines.data + lines.len; at = end + 1) {
        end = strchr(at, '\n');
        json_array_append_new(*samples, lf_json_load_text(at, (size_t)(end - at), "sample", &err));
    }
    lf_tasks_destroy(t);
    lf_buf_fini(&lines);
}

/* Are all members of want in got, numbers within the tolerance? The worst error so far is kept. */
static bool agrees(json_t *got, json_t *want, const char *what, double *worst)
{
    const char *key;
    json_t *v;
    size_t i;
    bool same = true;
    if (json_is_object(want)) {
        json_object_foreach(want, key, v)
        {
            char name[128];
            snprintf(name, sizeof name, "%s,none", key);
            json_t *g = json_object_get(got, key);
            same = agrees(g ? g : json_object_get(got, name), v, key, worst) && same;
        }
        return same;
    }
    if (json_is_array(want)) {
        if (json_array_size(got) != json_array_size(want)) {
            tap_diag("%s: %zu values, not %zu", what, json_array_size(got), json_array_size(want));
            return false;
        }
        json_array_foreach(want, i, v) same =
            agrees(json_array_get(got, i), v, what, worst) && same;
        return same;
    }
    double e = fabs(json_number_value(got) - json_number_value(want)) /
               fmax(fabs(json_number_value(want)), 1);
    *worst = tap_worse(*worst, e);
    if (!json_is_number(got) || !(e <= TOLERANCE)) {
        tap_diag("%s: %.9g, reference %.9g", what, json_number_value(got), json_number_value(want));
        return false;
    }
    return true;
}

static void test_scores(const char *family, lf_runner *r, const lf_tokenizer *tok, json_t *want)
{
    static const char *const kinds[] = {"rolling", "choice", "last_word"};
    json_t *samples, *results;
    size_t at = 0;
    measure(r, tok, &samples, &results);
    for (size_t k = 0; k < 3; k++) {
        json_t *docs = json_object_get(want, kinds[k]);
        double worst = 0;
        bool same = true;
        for (size_t i = 0; i < json_array_size(docs); i++)
            same =
                agrees(json_array_get(samples, at++), json_array_get(docs, i), kinds[k], &worst) &&
                same;
        tap_ok(same, "%s: %s: %zu documents, worst relative error %.2g", family, kinds[k],
               json_array_size(docs), worst);
    }
    double worst = 0;
    tap_i64((int64_t)at, (int64_t)json_array_size(samples), "a sample for every document");
    /* Perplexities per word exponentiate sums of hundreds: compare their logarithms' size of
     * error. */
    json_t *all = json_object_get(results, "results"), *ref = json_object_get(want, "results");
    tap_ok(agrees(json_object_get(all, "choice"), json_object_get(ref, "choice"), "choice", &worst),
           "%s: accuracies and standard errors", family);
    static const struct {
        const char *task, *metric;
    } perplexities[] = {{"pages", "word_perplexity"},
                        {"pages", "byte_perplexity"},
                        {"pages", "token_perplexity"},
                        {"words", "perplexity"}};
    for (size_t i = 0; i < 4; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s,none", perplexities[i].metric);
        double g =
            json_number_value(json_object_get(json_object_get(all, perplexities[i].task), key));
        double w = json_number_value(
            json_object_get(json_object_get(ref, perplexities[i].task), perplexities[i].metric));
        worst = tap_worse(worst, fabs(log(g) - log(w)) / log(w));
    }
    tap_ok(worst <= TOLERANCE, "%s: perplexities, worst relative error of the logarithm %.2g",
           family, worst);
    json_decref(samples);
    json_decref(results);
}

static int keep_result(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    json_t *tokens = json_array(), *logprobs = json_array();
    for (size_t i = 0; i < r->n; i++) {
        json_array_append_new(tokens, json_integer(r->tokens[i]));
        json_array_append_new(logprobs, json_real((double)r->logprobs[i]));
    }
    return json_array_append_new(arg,
                                 json_pack("{s:o,s:o}", "tokens", tokens, "logprobs", logprobs));
}

static void test_generation(const char *family, lf_runner *r, json_t *want)
{
    enum { MAX_JOBS = 8 };
    static int32_t prompts[MAX_JOBS][64];
    lf_gen_job jobs[MAX_JOBS];
    lf_err err = LF_ERR_INIT;
    lf_gen_model m;
    size_t n = json_array_size(want);
    json_t *got = json_array();
    double worst = 0;
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_array_get(want, i), *p = json_object_get(o, "prompt");
        for (size_t k = 0; k < json_array_size(p); k++)
            prompts[i][k] = (int32_t)json_integer_value(json_array_get(p, k));
        jobs[i] =
            (lf_gen_job){.id = "g",
                         .prompt = prompts[i],
                         .n_prompt = json_array_size(p),
                         .params = LF_SAMPLE_DEFAULTS,
                         .max_tokens = (int64_t)json_array_size(json_object_get(o, "tokens"))};
        jobs[i].params.temperature = 0;
    }
    if (lf_runner_gen_model(r, &m, &err) ||
        lf_gen_run(
            &m, &(struct lf_gen_work){.jobs = jobs, .n_jobs = n, .sink = keep_result, .arg = got},
            NULL, &err))
        tap_bail("generate: %s", err.text);
    for (size_t i = 0; i < n; i++) {
        json_t *g = json_array_get(got, i), *w = json_array_get(want, i);
        same = json_equal(json_object_get(g, "tokens"), json_object_get(w, "tokens")) && same;
        same = agrees(json_object_get(g, "logprobs"), json_object_get(w, "logprobs"), "logprobs",
                      &worst) &&
               same;
    }
    tap_ok(n > 2 && same,
           "%s: %zu greedy continuations, worst relative error of a log-probability %.2g", family,
           n, worst);
    json_decref(got);
}

int main(void)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    const char *family;
    json_t *want;
    path_of(path, sizeof path, "tokenizer.json");
    lf_tokenizer *tok = lf_tokenizer_load(path, &err);
    path_of(path, sizeof path, "eval.json");
    json_t *all = tok ? lf_json_load_file(path, (size_t)16 << 20, &err) : NULL;
    if (!all)
        tap_bail("%s", err.text);
    json_t *families = json_object_get(all, "families");
    tap_ok(json_object_size(families) >= 4, "%zu families", json_object_size(families));
    json_object_foreach(families, family, want)
    {
        lf_runner *r = open_model(family);
        TAP(6, test_scores(family, r, tok, want));
        TAP(1, test_generation(family, r, json_object_get(want, "generate")));
        lf_runner_close(r);
    }
    /* The comparison can fail. */
    json_t *two = json_real(2), *near = json_real(2.0001);
    double worst = 0;
    tap_ok(!agrees(near, two, "expected", &worst), "an error of 5e-5 is noticed");
    json_decref(two);
    json_decref(near);
    json_decref(all);
    lf_tokenizer_destroy(tok);
    return tap_done();
}
