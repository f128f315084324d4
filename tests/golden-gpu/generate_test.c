/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation on CUDA with golden models: tokens and log-probabilities against the CPU's, the bits
 * of a forward pass over the whole sequence in every compute type, and the same bits whatever
 * stands beside a sequence, with steps that are captured and replayed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/post/pg_model.h"
#include "tests/cuda/emu/run.h"
#include "tests/golden-gpu/device.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

enum { JOBS = 5, MAX_NEW = 6, MAX_SEQ = 160 };

struct setting {
    bool cuda;
    enum lf_dtype compute;
    double temperature;
    int64_t slots, step_rows, page;
    bool reversed, half; /* half: tokens of the second half of the vocabulary are not drawn */
    bool alone;          /* no job needs the host between two tokens */
    bool waits;          /* each step is read before the next one */
    const struct got
        *ends; /* NULL, or what ends: jobs of odd number with the third token that they had there */
};

struct model {
    lf_pg_model *m;
    lf_back *back;
};

struct got {
    int32_t tokens[JOBS][MAX_NEW];
    float logprobs[JOBS][MAX_NEW];
    size_t n[JOBS];
    int64_t drawn; /* of them by the model, without their logits */
    int64_t steps, ahead;
};

/* Prompts of one model. */
struct prompts {
    int32_t tokens[JOBS][MAX_SEQ];
    size_t n[JOBS];
    int64_t context, rows; /* rows: of all sequences, and some padding */
};

static lf_err err = LF_ERR_INIT;
static bool penalised; /* every job */
#define MUST(x)                                                                                    \
    do                                                                                             \
        if ((x) < 0)                                                                               \
            tap_bail("%s: %s", #x, err.text);                                                      \
    while (0)

static struct model open_model(const family *f, const lf_model_config *c, const struct prompts *p,
                               const struct setting *s)
{
    struct model r = {0};
    const struct lf_pg_model_spec spec = {.name = "actor",
                                          .context = p->context,
                                          .rows = p->rows,
                                          .logp = true,
                                          .temperature = s->temperature,
                                          .compute = s->compute,
                                          .threads = 1,
                                          .device = s->cuda ? LF_DEVICE_CUDA : LF_DEVICE_CPU,
                                          .slots = s->slots,
                                          .step_rows = s->step_rows,
                                          .page_tokens = s->page};
    MUST(lf_pg_model_create(&r.m, c, &spec, &err));
    r.back = s->cuda ? golden_cuda_back(&err) : lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    const long allocations = lf_emu_stats()->allocations;
    MUST(r.back ? lf_pg_model_bind(r.m, r.back, &err) : -1);
    if (s->cuda && !golden_on_gpu() && lf_emu_stats()->allocations != allocations + 1)
        tap_bail("memory of the device beside the plan's");
    family_load(f, lf_pg_model_store(r.m));
    return r;
}

static void close_model(struct model *r)
{
    lf_pg_model_destroy(r->m);
    lf_back_destroy(r->back);
}

static void make_prompts(struct prompts *p, const size_t lengths[JOBS], int64_t context,
                         int64_t vocab)
{
    *p = (struct prompts){.context = context, .rows = JOBS * MAX_NEW + 3};
    for (uint32_t j = 0; j < JOBS; j++) {
        p->n[j] = lengths[j];
        p->rows += (int64_t)lengths[j];
        for (size_t i = 0; i < lengths[j]; i++)
            p->tokens[j][i] =
                (int32_t)(lf_rng_u32(71, j / 2 * 2, i) % (uint32_t)vocab); /* pairs begin alike */
    }
}

static int take(void *arg, const lf_gen_result *r, lf_err *e)
{
    struct got *g = arg;
    const size_t i = r->job->request;
    (void)e;
    memcpy(g->tokens[i], r->tokens, r->n * sizeof *r->tokens);
    memcpy(g->logprobs[i], r->logprobs, r->n * sizeof *r->logprobs);
    g->n[i] = r->n;
    return 0;
}

/* Every kind of draw: as the model says, greedy, cut by rank and mass, bent by what was said and by
 * a bias; the last one reports an alternative, for which the host wants the logits. */
static void ask_for(lf_gen_job *j, size_t i, bool alone)
{
    static const int32_t biased[] = {3, 5};
    static const double bias[] = {2, -1.5};
    if (i == 1)
        j->params.temperature = 0;
    if (i == 2) {
        j->params.top_k = 9;
        j->params.top_p = 0.9;
    }
    if (i == 3 && !alone) {
        j->params = (lf_sample_params){0.8, 1, 0.01, 1.2, 0.3, 0.1, 0};
        j->limits = (lf_sample_limits){.bias_ids = biased, .bias = bias, .n_bias = 2};
        j->end = biased; /* forbidden at first */
        j->n_end = 1;
        j->min_tokens = 3;
    }
    j->top_logprobs = i == 4 && !alone;
    if (penalised)
        j->params.repetition_penalty = 1.4;
}

static void generate(const struct model *r, const struct prompts *p, const struct setting *s,
                     struct got *out)
{
    static const char *const ids[JOBS] = {"0", "1", "2", "3", "4"};
    lf_gen_job jobs[JOBS];
    lf_gen_model gm;
    memset(out, 0, sizeof *out);
    for (size_t k = 0; k < JOBS; k++) {
        const size_t j = s->reversed ? JOBS - 1 - k : k;
        jobs[k] = (lf_gen_job){.id = ids[j],
                               .request = j,
                               .prompt = p->tokens[j],
                               .n_prompt = p->n[j],
                               .params = LF_SAMPLE_DEFAULTS,
                               .max_tokens = (int64_t)(MAX_NEW - j % 2),
                               .seed = lf_sample_seed(3, ids[j], 0)};
        ask_for(&jobs[k], j, s->alone);
        if (s->ends && j % 2) {
            jobs[k].end = &s->ends->tokens[j][2];
            jobs[k].n_end = 1;
        }
    }
    struct lf_gen_stats stats;
    MUST(lf_pg_model_gen(r->m, &gm, &err));
    gm.vocab /= s->half ? 2 : 1;
    if (s->waits)
        gm.begin = NULL;
    MUST(lf_gen_run(&gm,
                    &(struct lf_gen_work){.jobs = jobs, .n_jobs = JOBS, .sink = take, .arg = out},
                    &stats, &err));
    out->drawn = stats.model_draws;
    out->steps = stats.steps;
    out->ahead = stats.ahead;
}

/* Log-probabilities of what was generated, by the packed segment: all sequences beside each
 * other. */
static void score(const struct model *r, const struct prompts *p, const struct got *g,
                  float lp[JOBS][MAX_NEW])
{
    static const uint32_t order[JOBS] = {2, 0, 4, 1, 3};
    int32_t seq[JOBS][MAX_SEQ];
    struct lf_pg_doc doc[JOBS];
    for (size_t j = 0; j < JOBS; j++) {
        memcpy(seq[j], p->tokens[j], p->n[j] * sizeof **seq);
        memcpy(seq[j] + p->n[j], g->tokens[j], g->n[j] * sizeof **seq);
        doc[j] = (struct lf_pg_doc){.tokens = seq[j], .n = p->n[j] + g->n[j], .trained = p->n[j]};
    }
    MUST(lf_pg_forward(r->m, doc, order, JOBS, LF_FIRST, &err));
    for (size_t j = 0; j < JOBS; j++)
        memcpy(lp[j], lf_pg_lp(r->m) + doc[j].row + p->n[j] - 1, g->n[j] * sizeof(float));
}

static bool same_tokens(const struct got *a, const struct got *b)
{
    return memcmp(a->n, b->n, sizeof a->n) == 0 &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0;
}

static bool same_bits(const struct got *g, float lp[JOBS][MAX_NEW])
{
    for (size_t j = 0; j < JOBS; j++)
        if (memcmp(g->logprobs[j], lp[j], g->n[j] * sizeof(float)) != 0)
            return false;
    return true;
}

static double furthest(const struct got *g, float lp[JOBS][MAX_NEW])
{
    double worst = 0;
    for (size_t j = 0; j < JOBS; j++)
        for (size_t i = 0; i < g->n[j]; i++)
            worst = tap_worse(worst, fabs((double)g->logprobs[j][i] - (double)lp[j][i]));
    return worst;
}

/* Generation, then its sequences through the packed segment, then generation again: captured by
 * now, and after something else used the memory that the segments share. The CPU's
 * log-probabilities of the same sequences are in f32.
 */
static void test_bits(const char *name, const family *f, const lf_model_config *c,
                      const struct prompts *p, const struct setting *s, double tol, struct got *got)
{
    static const char *const types[] = {"f32", "bf16", "fp16"};
    const struct setting on_cpu = {false, LF_F32, s->temperature, 2,     16,  64,
                                   false, false,  false,          false, NULL};
    struct got again;
    float lp[JOBS][MAX_NEW] = {{0}}, want[JOBS][MAX_NEW] = {{0}};
    struct model r = open_model(f, c, p, s);
    generate(&r, p, s, got);
    score(&r, p, got, lp);
    tap_ok(same_bits(got, lp), "%s, %s: log-probabilities have the bits of the forward pass", name,
           types[s->compute]);
    generate(&r, p, s, &again);
    tap_ok(memcmp(got, &again, sizeof again) == 0, "%s, %s: and again", name, types[s->compute]);
    close_model(&r);
    r = open_model(f, c, p, &on_cpu);
    score(&r, p, got, want);
    tap_ok(furthest(got, want) < tol && furthest(got, want) > 0,
           "%s, %s: %.2g from the CPU's in f32", name, types[s->compute], furthest(got, want));
    close_model(&r);
}

/* Fewer tokens than the model has logits, before and after all of them: what was recorded does not
 * stay. */
static void test_half(const char *name, const family *f, const lf_model_config *c,
                      const struct prompts *p, const struct setting *s)
{
    struct setting whole = *s, half = *s;
    struct got got[3], want;
    int64_t beyond[2] = {0};
    half.half = true;
    struct model r = open_model(f, c, p, s);
    for (int i = 0; i < 3; i++)
        generate(&r, p, i == 1 ? &half : &whole, &got[i]);
    close_model(&r);
    half.cuda = false;
    r = open_model(f, c, p, &half);
    generate(&r, p, &half, &want);
    close_model(&r);
    for (size_t j = 0; j < JOBS; j++)
        for (size_t k = 0; k < MAX_NEW; k++)
            for (int i = 0; i < 2; i++)
                beyond[i] += got[i].tokens[j][k] >= c->vocab / 2;
    tap_ok(same_tokens(&want, &got[1]) && got[1].drawn > 0,
           "%s: half of the vocabulary, the CPU's tokens", name);
    tap_ok(beyond[0] > 0 && beyond[1] == 0, "%s: %lld of the other half before, none then", name,
           (long long)beyond[0]);
    tap_ok(memcmp(&got[0], &got[2], sizeof got[0]) == 0, "%s: and all again", name);
}

static bool same_answers(const struct got *a, const struct got *b)
{
    return same_tokens(a, b) && memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0;
}

/* The host reads a step behind, and the GPU hardly ever waits for it: the same answers, also of
 * sequences that end with a token which the host sees a step later. */
static void test_ahead(const char *name, const family *f, const lf_model_config *c,
                       const struct prompts *p)
{
    struct setting s[2] = {{.cuda = true,
                            .compute = LF_F32,
                            .temperature = 1,
                            .slots = 3,
                            .step_rows = 8,
                            .page = 64,
                            .alone = true}};
    struct got got[3], want[3];
    for (int waits = 0; waits < 2; waits++) {
        struct model r = open_model(f, c, p, &s[0]);
        s[1] = s[0];
        s[0].waits = s[1].waits = waits;
        s[1].ends = &got[0];
        struct got *to = waits ? want : got;
        generate(&r, p, &s[0], &to[0]);
        const long idle = lf_emu_stats()->idle;
        generate(&r, p, &s[1], &to[1]);
        const long stalls = lf_emu_stats()->idle - idle;
        tap_ok(golden_on_gpu() || (waits ? stalls * 2 > to[1].steps : stalls * 5 < to[1].steps),
               "%s: %ld of %lld steps %s, the GPU waits for the host", name, stalls,
               (long long)to[1].steps, waits ? "one after the other" : "ahead");
        s[1].slots = 2;
        close_model(&r);
        r = open_model(f, c, p, &s[1]);
        generate(&r, p, &s[1], &to[2]);
        close_model(&r);
    }
    tap_ok(same_answers(&got[0], &want[0]) && got[0].ahead > 0 && want[0].ahead == 0,
           "%s: ahead or not, the same answers", name);
    tap_ok(same_answers(&got[1], &want[1]) && got[1].n[1] < got[0].n[1],
           "%s: and of what ends earlier", name);
    tap_ok(same_answers(&got[1], &got[2]), "%s: beside others too", name);
    s[1].cuda = false;
    struct model r = open_model(f, c, p, &s[1]);
    generate(&r, p, &s[1], &want[2]);
    close_model(&r);
    tap_ok(same_tokens(&got[1], &want[2]), "%s: the CPU's tokens", name);
}

/* What a sequence has said stays where its tokens are drawn: a list goes there once for each. */
static void test_lists(const char *name, const family *f, const lf_model_config *c,
                       const struct prompts *p)
{
    struct setting s = {.cuda = true,
                        .compute = LF_F32,
                        .temperature = 1,
                        .slots = 3,
                        .step_rows = 8,
                        .page = 64,
                        .alone = true,
                        .waits = true};
    struct got got[2], want;
    long copies[2];
    struct model r = open_model(f, c, p, &s);
    for (int i = 0; i < 2; i++) {
        penalised = i;
        const long before = lf_emu_stats()->copies;
        generate(&r, p, &s, &got[i]);
        copies[i] = lf_emu_stats()->copies - before;
    }
    close_model(&r);
    s.cuda = false;
    r = open_model(f, c, p, &s);
    generate(&r, p, &s, &want);
    close_model(&r);
    penalised = false;
    tap_ok(same_tokens(&got[1], &want) && !same_tokens(&got[0], &want) && got[1].drawn > 0,
           "%s: penalties, the CPU's tokens", name);
    tap_ok(golden_on_gpu() || (got[0].steps == got[1].steps && copies[1] > copies[0] &&
                               copies[1] <= copies[0] + JOBS),
           "%s: %ld lists for %d sequences in %lld steps", name, copies[1] - copies[0], JOBS,
           (long long)got[1].steps);
}

/* Generation and the forward pass by the instructions that any GPU has; unasked, those of compute
 * capability 9.0 are used (LF_GEMM_CUDA). */
static void test_mma(const family *f, const lf_model_config *c, const struct prompts *p,
                     const struct setting *bf16, const struct setting *f16)
{
    struct got got;
    setenv("LF_GEMM_CUDA", "mma", 1);
    struct model r = open_model(f, c, p, bf16);
    tap_str(r.back->ops->products(r.back, LF_INVARIANT), "own", "LF_GEMM_CUDA=mma");
    close_model(&r);
    test_bits("llama by mma", f, c, p, bf16, 0.1, &got);
    test_bits("llama by mma", f, c, p, f16, 0.02, &got);
    unsetenv("LF_GEMM_CUDA");
    /* The forward pass by attn_fwd_wgmma.cu, generation by attn_paged.cu. */
    if (golden_cuda_target()->sm != 90) {
        tap_skip(3, "attention by wgmma: not on this GPU");
        return;
    }
    setenv("LF_ATTN", "wgmma", 1);
    TAP(3, test_bits("llama, attention by wgmma", f, c, p, bf16, 0.1, &got));
    unsetenv("LF_ATTN");
}

static void test_model(const char *name, const family *f, const lf_model_config *c,
                       const struct prompts *p, bool all)
{
    const struct setting cpu = {false, LF_F32, 1, 2, 16, 64, false, false, false, false, NULL},
                         hot = {true, LF_F32, 0.7, 3, 8, 64, false, false, false, false, NULL};
    const struct setting others[] = {
        {true, LF_F32, 1, 2, 3, 64, false, false, false, false, NULL},
        {true, LF_F32, 1, 5, 48, 128, true, false, false, false, NULL}};
    const struct setting first = {true, LF_F32, 1, 3, 8, 64, false, false, false, false, NULL};
    struct got want, got, other;
    struct model r = open_model(f, c, p, &cpu);
    generate(&r, p, &cpu, &want);
    close_model(&r);
    lf_emu_reset();
    test_bits(name, f, c, p, &first, 1e-5, &got);
    tap_ok(same_tokens(&want, &got), "%s: the CPU's tokens, f32", name);
    tap_i64(want.drawn, 0, "on the CPU the host draws");
    tap_i64(got.drawn, (int64_t)(got.n[0] + got.n[1] + got.n[2] + got.n[3]),
            "on the GPU all but the job with alternatives");
    tap_ok(golden_on_gpu() || (lf_emu_stats()->captures > 1 &&
                               lf_emu_stats()->graph_launches > 2 * lf_emu_stats()->captures),
           "%s: steps are captured and replayed (%ld, %ld)", name, lf_emu_stats()->captures,
           lf_emu_stats()->graph_launches);
    for (size_t i = 0; i < 1 + (size_t)all; i++) {
        r = open_model(f, c, p, &others[i]);
        generate(&r, p, &others[i], &other);
        tap_ok(same_answers(&got, &other) && got.drawn == other.drawn,
               "%s: %lld sequences, %lld rows, pages of %lld: the same bits", name,
               (long long)others[i].slots, (long long)others[i].step_rows,
               (long long)others[i].page);
        close_model(&r);
    }
    test_half(name, f, c, p, &first);
    test_ahead(name, f, c, p);
    test_lists(name, f, c, p);
    if (!all)
        return;
    const struct setting bf16 = {true, LF_BF16, 1, 4, 16, 64, false, false, false, false, NULL},
                         f16 = {true, LF_F16, 1, 2, 33, 64, true, false, false, false, NULL};
    test_bits(name, f, c, p, &bf16, 0.1, &other);
    test_bits(name, f, c, p, &f16, 0.02, &other);
    if (golden_cuda_target()->sm == 90)
        test_mma(f, c, p, &bf16, &f16);
    float lp[JOBS][MAX_NEW] = {{0}};
    test_bits(name, f, c, p, &hot, 1e-5, &other);
    r = open_model(f, c, p, &first);
    score(&r, p, &other, lp);
    tap_ok(!same_bits(&other, lp), "%s: (at another temperature they are others)", name);
    close_model(&r);
}

int main(void)
{
    static const size_t short_ones[JOBS] = {1, 3, 9, 2, 17}, long_ones[JOBS] = {67, 5, 130, 1, 2};
    struct prompts p;
    family *llama = family_open("llama"), *gpt2 = family_open("gpt2");
    lf_model_config c = llama->config;
    c.max_positions = MAX_SEQ; /* rotary positions have no table to outgrow */
    make_prompts(&p, long_ones, 138, c.vocab / 2);
    TAP(40, test_model("llama", llama, &c, &p, true));
    make_prompts(&p, short_ones, 24, gpt2->config.vocab / 2);
    TAP(19, test_model("gpt2", gpt2, &gpt2->config, &p, false));
    family_close(llama);
    family_close(gpt2);
    return tap_done();
}
