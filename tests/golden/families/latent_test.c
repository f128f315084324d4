/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with latent attention over the paged cache, which keeps keys and values in invariant
 * numerics and latents in fast ones: every log-probability of the golden documents against the
 * logits of the reference, read in pieces, several documents in a step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/infer/runner.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { DOCS = 8 };

static lf_runner *open_runner(const family *f, bool fast, int64_t slots, int64_t rows)
{
    lf_err err = LF_ERR_INIT;
    lf_runner *r = NULL;
    char dir[4096];
    const struct lf_runner_opts o = {.threads = 2,
                                     .fast = fast,
                                     .compute = LF_F32,
                                     .max_context = f->length,
                                     .slots = slots,
                                     .max_rows = rows,
                                     .page_tokens = 64};
    snprintf(dir, sizeof dir, "%s/checkpoint", f->tmp);
    if (lf_runner_open(&r, dir, &o, &err))
        tap_bail("%s: %s", dir, err.text);
    return r;
}

/* log p of the token behind `row`, from the reference's logits. */
static double reference(const family *f, int64_t row)
{
    const double *z = f->logits + row * f->vocab;
    double most = z[0], sum = 0;
    for (int64_t i = 1; i < f->vocab; i++)
        most = tap_worse(most, z[i]);
    for (int64_t i = 0; i < f->vocab; i++)
        sum += exp(z[i] - most);
    return z[f->tokens[row + 1]] - most - log(sum);
}

struct compared {
    const family *f;
    double worst, shifted; /* the largest differences: to the reference, and to its next row */
    size_t n;
    double sum; /* of what was got */
};

static int compare(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct compared *c = arg;
    const int64_t first = (int64_t)r->job->request * c->f->length;
    for (size_t i = 1; i < r->job->n_prompt; i++) {
        const double got = (double)r->prompt_logprobs[i];
        c->worst = tap_worse(c->worst, fabs(got - reference(c->f, first + (int64_t)i - 1)));
        c->shifted = tap_worse(c->shifted, fabs(got - reference(c->f, first + (int64_t)i)));
        c->sum += got;
        c->n++;
    }
    return 0;
}

static struct compared read_all(const family *f, bool fast, int64_t slots, int64_t rows)
{
    lf_err err = LF_ERR_INIT;
    lf_gen_model m;
    lf_gen_job jobs[DOCS];
    struct compared c = {.f = f};
    if (f->docs > DOCS)
        tap_bail("%s has more than %d documents", f->name, DOCS);
    lf_runner *r = open_runner(f, fast, slots, rows);
    for (int64_t d = 0; d < f->docs; d++)
        jobs[d] = (lf_gen_job){.id = "d",
                               .request = (size_t)d,
                               .prompt = f->tokens + d * f->length,
                               .n_prompt = (size_t)f->length - 1,
                               .params = LF_SAMPLE_DEFAULTS,
                               .prompt_logprobs = true,
                               .prompt_first = 1};
    if (lf_runner_gen_model(r, &m, &err) ||
        lf_gen_run(&m,
                   &(struct lf_gen_work){
                       .jobs = jobs, .n_jobs = (size_t)f->docs, .sink = compare, .arg = &c},
                   NULL, &err))
        tap_bail("%s: %s", f->name, err.text);
    lf_runner_close(r);
    return c;
}

static void test_family(const char *name)
{
    family *f = family_open(name);
    const struct compared expanded = read_all(f, false, 1, 64), whole = read_all(f, true, 1, 64),
                          pieces = read_all(f, true, 3, 5);
    tap_ok(expanded.n >= 20 && expanded.worst < 1e-4 && expanded.shifted > 1e-2,
           "%s: keys and values in the cache: %zu log-probabilities within %.1e", name, expanded.n,
           expanded.worst);
    tap_ok(whole.n == expanded.n && whole.worst < 1e-4 && pieces.n == whole.n &&
               pieces.worst < 1e-4,
           "%s: latents in the cache: within %.1e, in pieces within %.1e", name, whole.worst,
           pieces.worst);
    tap_ok(fabs(whole.sum - expanded.sum) > 0 &&
               (lf_model_recurs(&f->config) || !(fabs(whole.sum - pieces.sum) > 0)),
           "%s: which is another order of sums, and but for scans the same in pieces", name);
    family_close(f);
}

int main(void)
{
    static const char *const names[] = {"deepseek-v2", "deepseek-v3", "glm4.7-flash",
                                        "kimi-linear", "mistral4",    "youtu"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TAP(3, test_family(names[i]));
    return tap_done();
}
