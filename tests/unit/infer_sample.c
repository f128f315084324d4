/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling against values computed by hand in double precision, and its independence of everything
 * but seed and index.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/base/rng.h"
#include "engine/infer/sample.h"
#include "tests/tap/tap.h"

static const float logits[5] = {2.0f, 1.0f, 0.5f, 0.0f, -1.0f};

/* A draw that nothing bends makes no list; top-k of the whole vocabulary bends nothing but does. */
static void draw(lf_sampler *s, const lf_sample_params *p)
{
    lf_sample_params all = *p;
    const int32_t *ids;
    const double *probs;
    lf_sampler_draw(s, p, logits, 1, 0);
    if (lf_sampler_kept(s, &ids, &probs) > 0)
        return;
    all.top_k = 5;
    lf_sampler_draw(s, &all, logits, 1, 0);
}

static void kept_is(lf_sampler *s, const lf_sample_params *p, const double *want, size_t n,
                    const char *name)
{
    const int32_t *ids;
    const double *probs;
    draw(s, p);
    tap_i64((int64_t)lf_sampler_kept(s, &ids, &probs), (int64_t)n, name);
    for (size_t i = 0; i < n; i++) {
        tap_i64(ids[i], (int64_t)i, name);
        tap_f64(probs[i], want[i], 1e-6, name);
    }
}

static void test_cuts(lf_sampler *s)
{
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    lf_sampler_begin(s, NULL, 0);
    kept_is(s, &p, (double[]){.563021, .207124, .125627, .076197, .028031}, 5, "plain softmax");
    p.top_p = 0.8;
    kept_is(s, &p, (double[]){.628532, .231224, .140244}, 3, "top-p 0.8 keeps three");
    p.top_p = 0.01;
    kept_is(s, &p, (double[]){1}, 1, "top-p keeps at least one");
    p.top_p = 1;
    p.min_p = 0.2;
    kept_is(s, &p, (double[]){.628532, .231224, .140244}, 3, "min-p 0.2 keeps three");
    p.min_p = 0;
    p.top_k = 3;
    kept_is(s, &p, (double[]){.628532, .231224, .140244}, 3, "top-k 3");
    p.top_p = 0.85; /* of the three: .6285 + .2312 = .8598 >= .85 */
    kept_is(s, &p, (double[]){.731059, .268941}, 2, "top-p within top-k renormalises first");
    p.min_p = 0.5; /* p1 / p0 = e^-1 < 0.5 */
    kept_is(s, &p, (double[]){1}, 1, "min-p after top-k and top-p");
    p = (lf_sample_params)LF_SAMPLE_DEFAULTS;
    p.temperature = 0.7;
    kept_is(s, &p, (double[]){.700198, .167803, .082147, .040214, .009637}, 5, "temperature 0.7");
}

static void test_ties(lf_sampler *s)
{
    const float tied[5] = {1, 3, 3, 3, 0};
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    const int32_t *ids;
    const double *probs;
    p.top_k = 2;
    lf_sampler_begin(s, NULL, 0);
    lf_sampler_draw(s, &p, tied, 1, 0);
    tap_i64((int64_t)lf_sampler_kept(s, &ids, &probs), 3, "ties with the k-th are kept");
    tap_ok(ids[0] == 1 && ids[1] == 2 && ids[2] == 3, "equal logits come out by id");
    p.temperature = 0;
    tap_i64(lf_sampler_draw(s, &p, tied, 1, 0), 1, "greedy takes the lowest id on ties");
    int32_t top[3];
    tap_i64((int64_t)lf_top_logits(tied, 5, 3, top), 3, "three largest");
    tap_ok(top[0] == 1 && top[1] == 2 && top[2] == 3, "largest logits by id on ties");
    const float broken[5] = {NAN, NAN, -INFINITY, NAN, NAN};
    tap_i64(lf_sampler_draw(s, &p, broken, 1, 0), -1, "no finite logit: nothing is drawn (greedy)");
    p.temperature = 1;
    tap_i64(lf_sampler_draw(s, &p, broken, 1, 0), -1, "no finite logit: nothing is drawn");
}

static void test_penalties(lf_sampler *s)
{
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    const int32_t all[] = {0, 1, 2, 3, 4, 4, 4}, *ids;
    const double *probs;
    p.repetition_penalty = 1.2;
    lf_sampler_begin(s, all, 7);
    lf_sampler_draw(s, &p, logits, 1, 0);
    lf_sampler_kept(s, &ids, &probs);
    /* 1.666667 .833333 .416667 0 -1.2: the ratio of the last two is e^-1.2, whatever the number of
     * repetitions */
    tap_f64(probs[4] / probs[3], exp(-1.2), 1e-9,
            "repetition penalty multiplies negative logits once");
    tap_f64(probs[1] / probs[0], exp(1.0 / 1.2 - 2.0 / 1.2), 1e-9, "and divides positive ones");
    p.repetition_penalty = 1;
    p.presence_penalty = 0.5;
    p.frequency_penalty = 0.25;
    lf_sampler_begin(s, all, 7);
    lf_sampler_accept(s, 0);
    lf_sampler_accept(s, 0);
    lf_sampler_draw(s, &p, logits, 1, 0);
    lf_sampler_kept(s, &ids, &probs);
    tap_f64(probs[0] / probs[1], exp(2.0 - 0.5 - 2 * 0.25 - 1.0), 1e-9,
            "presence and frequency count the output only");
    int32_t none[] = {0, 1};
    p = (lf_sample_params){0, 1, 0, 1, 0, 0, 0};
    lf_sampler_forbid(s, none, 2);
    tap_i64(lf_sampler_draw(s, &p, logits, 1, 0), 2, "forbidden tokens are not drawn");
    lf_sampler_allow_all(s);
    tap_i64(lf_sampler_draw(s, &p, logits, 1, 0), 0, "and are free again");
}

/* Probabilities of all five tokens after a draw, by id. */
static void probs_of(lf_sampler *s, const lf_sample_params *p, double *out)
{
    const int32_t *ids;
    const double *probs;
    draw(s, p);
    for (int i = 0; i < 5; i++)
        out[i] = 0;
    for (size_t i = 0, n = lf_sampler_kept(s, &ids, &probs); i < n; i++)
        out[ids[i]] = probs[i];
}

static void test_limits(lf_sampler *s)
{
    static const int32_t ids[] = {4, 1}, allowed[] = {0, 3, 4}, first[] = {2}, pair[] = {3, 0},
                         said[] = {1, 3};
    static const int32_t *const bad[] = {first, pair};
    static const double bias[] = {3, -100};
    static const size_t bad_len[] = {1, 2};
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    double v[5];
    /* e^2 e^-99 e^.5 e^0 e^2 */
    lf_sampler_begin(s, NULL, 0);
    lf_sampler_limit(s, &(lf_sample_limits){.bias_ids = ids, .bias = bias, .n_bias = 2});
    probs_of(s, &p, v);
    tap_f64(v[4], v[0], 1e-12, "a bias is added to the logit");
    tap_f64(v[1], 0, 0, "-100 forbids: masses end 51 bits below the largest");
    tap_f64(v[0], exp(2) / (2 * exp(2) + exp(.5) + 1), 1e-6, "the rest is as it was");
    p.repetition_penalty = 2;
    lf_sampler_begin(s, ids, 1);
    lf_sampler_limit(s, &(lf_sample_limits){.bias_ids = ids, .bias = bias, .n_bias = 1});
    probs_of(s, &p, v);
    tap_f64(v[4] / v[1], 1, 1e-12, "the bias comes before the penalty: (-1 + 3) / 2");
    p.repetition_penalty = 1;
    lf_sampler_begin(s, NULL, 0);
    lf_sampler_limit(s, &(lf_sample_limits){.allowed = allowed, .n_allowed = 3});
    lf_sampler_forbid(s, allowed, 1);
    probs_of(s, &p, v);
    tap_ok(v[0] == 0 && v[1] == 0 && v[2] == 0 && v[3] > 0 && v[4] > 0,
           "what is allowed and not forbidden");
    lf_sampler_allow_all(s);
    probs_of(s, &p, v);
    tap_f64(v[0], exp(2) / (exp(2) + 1 + exp(-1)), 1e-6, "allowed tokens stay allowed");
    lf_sampler_begin(s, NULL, 0);
    probs_of(s, &p, v);
    tap_f64(v[1], .207124, 1e-6, "a new sequence has no limits");
    lf_sampler_limit(s, &(lf_sample_limits){.bad = bad, .bad_len = bad_len, .n_bad = 2});
    lf_sampler_forbid_bad(s, said, 1);
    probs_of(s, &p, v);
    tap_ok(v[2] == 0 && v[0] > 0,
           "a bad word of one token is forbidden, of two only where it would be completed");
    lf_sampler_allow_all(s);
    lf_sampler_forbid_bad(s, said, 2);
    probs_of(s, &p, v);
    tap_ok(v[2] == 0 && v[0] == 0, "... which is here");
}

static void test_reference(lf_sampler *s)
{
    /* repetition 1.2 on all: 1.666667 .833333 .416667 0 -1.2 */
    static const double l[] = {2 / 1.2, 1 / 1.2, .5 / 1.2, 0, -1.2};
    static const int32_t all[] = {0, 1, 2, 3, 4};
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    double v[5], sum = 0;
    p.repetition_penalty = 1.2;
    lf_sampler_begin(s, all, 5);
    probs_of(s, &p, v);
    for (int i = 0; i < 5; i++)
        sum += exp(l[i]);
    for (int i = 0; i < 5; i++)
        tap_f64(v[i], exp(l[i]) / sum, 1e-6, "repetition penalty 1.2 on all");
    /* penalties, then temperature, then top-k, top-p, min-p: presence .5 on token 0, T .5 -> 3 2 1
     * 0 -2 */
    p = (lf_sample_params){.5, .95, .1, 1, .5, 0, 4};
    lf_sampler_begin(s, NULL, 0);
    lf_sampler_accept(s, 0);
    probs_of(s, &p, v);
    tap_f64(v[0], 1 / (1 + exp(-1) + exp(-2)), 1e-6, "the order of operations");
    tap_f64(v[3], 0, 0, "... top-k 4, then top-p .95 of the four, min-p .1 of the most likely");
}

static void test_law(lf_sampler *s)
{
    /* Frequencies of 20,000 draws: a chi-square of 4 degrees of freedom above 30 has probability
     * 5e-6. */
    enum { N = 20000 };
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    int hits[5] = {0};
    const double want[5] = {.563021, .207124, .125627, .076197, .028031};
    lf_sampler_begin(s, NULL, 0);
    for (uint64_t i = 0; i < N; i++)
        hits[lf_sampler_draw(s, &p, logits, 42, i)]++;
    double chi2 = 0;
    for (int i = 0; i < 5; i++)
        chi2 += (hits[i] - N * want[i]) * (hits[i] - N * want[i]) / (N * want[i]);
    tap_ok(chi2 < 30, "draws follow the softmax: chi-square %.1f", chi2);
    int again = lf_sampler_draw(s, &p, logits, 42, 7);
    lf_sampler_draw(s, &p, logits, 43, 7);
    tap_i64(lf_sampler_draw(s, &p, logits, 42, 7), again, "a draw depends on seed and index only");
    tap_ok(lf_sample_seed(1, "a", 0) != lf_sample_seed(1, "a", 1) &&
               lf_sample_seed(1, "a", 0) != lf_sample_seed(1, "b", 0) &&
               lf_sample_seed(1, "a", 0) != lf_sample_seed(2, "a", 0),
           "sequences have seeds of their own");
}

/* Draws that nothing bends are the inverse of the distribution function, token by token, over a
 * vocabulary that is no multiple of anything and has tokens of no mass at both ends. */
static void test_raw(void)
{
    enum { V = 1000, N = 4000 };
    static float z[V];
    const double t[] = {1, 0.7, 2.5};
    lf_sampler *s = lf_sampler_create(V, NULL);
    lf_sample_params p = LF_SAMPLE_DEFAULTS;
    for (int i = 0; i < V; i++)
        z[i] = i < 3 || i > V - 30 || i % 7 == 0
                   ? -INFINITY
                   : (float)(12 * lf_rng_f64(5, 6, (uint64_t)i) - 900);
    lf_sampler_begin(s, NULL, 0);
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
        double cum[V], total = 0;
        int wrong = 0, seen = 0;
        p.temperature = t[k];
        for (int i = 0; i < V; i++)
            cum[i] = total += exp(((double)z[i] + 890) / t[k]);
        for (uint64_t i = 0; i < N; i++) {
            double u = total * lf_rng_f64(9, LF_SITE_SAMPLE, i);
            int32_t got = lf_sampler_draw(s, &p, z, 9, i);
            wrong += got < 0 || u > cum[got] * (1 + 1e-10) ||
                     (got > 0 && u < cum[got - 1] * (1 - 1e-10)) || !isfinite(z[got]);
            seen += got > 900;
        }
        tap_ok(wrong == 0, "temperature %g: %d of %d draws are not where the mass passes u", t[k],
               wrong, N);
        tap_ok(seen > 0, "... also in the last block");
    }
    p.temperature = 1;
    int32_t first = lf_sampler_draw(s, &p, z, 9, 0);
    lf_sampler_forbid(s, &first, 1);
    tap_ok(lf_sampler_draw(s, &p, z, 9, 0) != first, "what is forbidden is not drawn");
    lf_sampler_allow_all(s);
    tap_i64(lf_sampler_draw(s, &p, z, 9, 0), first, "and is free again");
    lf_sampler_destroy(s);
}

static void test_bad(void)
{
    static const struct {
        lf_sample_params p;
        const char *text;
    } rows[] = {
        {{-1, 1, 0, 1, 0, 0, 0}, "temperature"},    {{1, 0, 0, 1, 0, 0, 0}, "top_p"},
        {{1, 1, NAN, 1, 0, 0, 0}, "min_p"},         {{1, 1, 0, 0, 0, 0, 0}, "repetition_penalty"},
        {{1, 1, 0, 1, INFINITY, 0, 0}, "presence"}, {{1, 1, 0, 1, 0, 0, -1}, "top_k"}};
    lf_err err = LF_ERR_INIT;
    lf_sample_params ok = LF_SAMPLE_DEFAULTS;
    tap_rc(lf_sample_check(&ok, &err), 0, &err, NULL, "defaults are legal");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tap_rc(lf_sample_check(&rows[i].p, &err), LF_EINVAL, &err, rows[i].text, rows[i].text);
}

int main(void)
{
    lf_sampler *s = lf_sampler_create(5, NULL);
    if (!s)
        tap_bail("no memory");
    TAP(54, test_cuts(s));
    TAP(7, test_ties(s));
    TAP(5, test_penalties(s));
    TAP(9, test_limits(s));
    TAP(7, test_reference(s));
    TAP(3, test_law(s));
    TAP(8, test_raw());
    TAP(7, test_bad());
    lf_sampler_destroy(s);
    return tap_done();
}
