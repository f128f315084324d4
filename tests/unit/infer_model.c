/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation and scoring with real models: what a request gives must not depend, in one bit, on
 * slots, rows of a step, pages, neighbours, order or threads, and its log-probabilities must be the
 * bits of a forward pass over the whole sequence. Models are small and hot, so that a wrong
 * position, page or mask changes the numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/infer/runner.h"
#include "tests/tap/tap.h"
#include "tests/unit/infer_ckpt.h"

enum { N_JOBS = 10, MAX_NEW = 20, MAX_SEQ = 256 };

static int32_t prompts[N_JOBS][MAX_SEQ];

struct got {
    int32_t tokens[N_JOBS][MAX_NEW];
    float logprobs[N_JOBS][MAX_NEW];
    size_t len[N_JOBS];
};

static int sink(void *arg, const lf_gen_result *r, lf_err *err)
{
    (void)err;
    struct got *g = arg;
    size_t i = (size_t)strtoul(r->job->id, NULL, 10);
    memcpy(g->tokens[i], r->tokens, r->n * sizeof *r->tokens);
    memcpy(g->logprobs[i], r->logprobs, r->n * sizeof *r->logprobs);
    g->len[i] = r->n;
    return 0;
}

static void make_jobs(lf_gen_job *jobs, int64_t vocab)
{
    static const size_t lengths[N_JOBS] = {1, 5, 63, 64, 65, 150, 129, 150, 2, 200};
    static const char *const ids[N_JOBS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    for (uint64_t j = 0; j < N_JOBS; j++) {
        for (uint64_t i = 0; i < lengths[j]; i++)
            prompts[j][i] = (int32_t)(lf_rng_u32(77, (uint32_t)j, i) % (uint32_t)vocab);
        jobs[j] = (lf_gen_job){.id = ids[j],
                               .prompt = prompts[j],
                               .n_prompt = lengths[j],
                               .params = LF_SAMPLE_DEFAULTS,
                               .max_tokens = (int64_t)(MAX_NEW - j),
                               .seed = lf_sample_seed(3, ids[j], 0)};
        jobs[j].params.temperature = j % 3 == 0 ? 0 : 0.8;
        jobs[j].params.top_p = j % 2 ? 0.9 : 1;
    }
    /* 7 is a second sample of 5: the same prompt, whose full pages they share */
    jobs[7].prompt = jobs[5].prompt;
    jobs[7].sample = 1;
    jobs[5].params.temperature = jobs[7].params.temperature = 1;
    /* 9 ends at the end of the context */
    jobs[9].max_tokens = MAX_NEW;
}

struct setting {
    int threads;
    int64_t slots, max_rows, page, kv;
    bool reversed;
    bool guesses; /* a head of the model drafts */
    bool fast;
};

static const char *adapter; /* of every runner; NULL: none */

static lf_runner *open_runner(const char *dir, const struct setting *s, bool bf16)
{
    lf_err err = LF_ERR_INIT;
    lf_runner *r = NULL;
    struct lf_runner_opts o = {.adapter = adapter,
                               .threads = s->threads,
                               .fast = s->fast,
                               .compute = bf16 ? LF_BF16 : LF_F32,
                               .max_context = 216,
                               .slots = s->slots,
                               .max_rows = s->max_rows,
                               .kv_tokens = s->kv,
                               .page_tokens = s->page,
                               .speculative = s->guesses,
                               .score_rows = 300,
                               .score_docs = 4};
    if (lf_runner_open(&r, dir, &o, &err))
        tap_bail("runner: %s", err.text);
    return r;
}

static struct lf_gen_stats generate(lf_runner *r, const lf_gen_job *jobs, const struct setting *s,
                                    struct got *out)
{
    struct lf_gen_stats stats;
    lf_err err = LF_ERR_INIT;
    lf_gen_model m;
    lf_gen_job order[N_JOBS];
    for (size_t i = 0; i < N_JOBS; i++)
        order[i] = jobs[s->reversed ? N_JOBS - 1 - i : i];
    memset(out, 0, sizeof *out);
    if (lf_runner_gen_model(r, &m, &err) ||
        lf_gen_run(&m,
                   &(struct lf_gen_work){.jobs = order, .n_jobs = N_JOBS, .sink = sink, .arg = out},
                   &stats, &err))
        tap_bail("generate: %s", err.text);
    return stats;
}

static bool same_got(const struct got *a, const struct got *b, const char *what)
{
    for (size_t j = 0; j < N_JOBS; j++)
        for (size_t i = 0; i < a->len[j] || i < b->len[j]; i++)
            if (a->len[j] != b->len[j] || a->tokens[j][i] != b->tokens[j][i] ||
                memcmp(&a->logprobs[j][i], &b->logprobs[j][i], sizeof(float)) != 0) {
                tap_diag("%s: job %zu token %zu: %d %.9g, not %d %.9g", what, j, i,
                         (int)b->tokens[j][i], (double)b->logprobs[j][i], (int)a->tokens[j][i],
                         (double)a->logprobs[j][i]);
                return false;
            }
    return true;
}

/* Each whole sequence at once, two of them in a batch beside each other: -loss of every output
 * token is its logprob. */
static bool scores_equal(lf_runner *r, const lf_gen_job *jobs, const struct got *g, bool *greedy)
{
    lf_err err = LF_ERR_INIT;
    lf_score_model m;
    if (lf_runner_score_model(r, &m, &err))
        tap_bail("score: %s", err.text);
    size_t rows = (size_t)m.rows;
    int32_t *token = calloc(rows, 4), *target = calloc(rows, 4), *pos = calloc(rows, 4),
            *argmax = calloc(rows, 4);
    float *loss = calloc(rows, 4);
    bool same = true;
    if (!token || !target || !pos || !argmax || !loss)
        tap_bail("no memory");
    *greedy = true;
    for (size_t j = 0; j < N_JOBS; j++) {
        size_t n = jobs[j].n_prompt + g->len[j] - 1,
               before = j % 3; /* a small neighbour in front */
        int32_t cu[5] = {0, (int32_t)before, (int32_t)(before + n), (int32_t)(before + n),
                         (int32_t)(before + n)};
        for (size_t i = 0; i < rows; i++) {
            token[i] = pos[i] = 0;
            target[i] = -1;
        }
        for (size_t i = 0; i < before; i++)
            pos[i] = (int32_t)i;
        for (size_t i = 0; i < n; i++) {
            size_t p = jobs[j].n_prompt;
            token[before + i] = i < p ? jobs[j].prompt[i] : g->tokens[j][i - p];
            target[before + i] = i + 1 < p ? -1 : g->tokens[j][i + 1 - p];
            pos[before + i] = (int32_t)i;
        }
        const struct lf_score_rows in = {
            .token = token, .target = target, .position = pos, .cu_seqlens = cu, .n_docs = 4};
        if (m.forward(m.ctx, &in, loss, argmax, &err))
            tap_bail("forward: %s", err.text);
        for (size_t i = 0; i < g->len[j]; i++) {
            size_t row = before + jobs[j].n_prompt - 1 + i;
            float lp = 0 - loss[row]; /* not -loss: a certain token has 0, not -0 */
            if (memcmp(&lp, &g->logprobs[j][i], sizeof lp) != 0) {
                tap_diag("job %zu token %zu: generated %.9g, scored %.9g", j, i,
                         (double)g->logprobs[j][i], (double)lp);
                same = false;
                break;
            }
            if (jobs[j].params.temperature <= 0)
                *greedy = *greedy && argmax[row] == g->tokens[j][i];
        }
    }
    free(token);
    free(target);
    free(pos);
    free(argmax);
    free(loss);
    return same;
}

/* prefix: prompts see each other, so a step must hold the longest. */
static void test_model(const char *name, const char *dir, int64_t vocab, bool bf16, bool prefix)
{
    static const struct setting settings[] = {
        {1, 1, 1, 64, 0, false, false, false},   {1, 2, 3, 64, 0, false, false, false},
        {2, 3, 64, 64, 0, true, false, false},   {3, 4, 17, 128, 0, false, false, false},
        {2, 5, 64, 64, 700, true, false, false}, {1, 5, 33, 192, 0, false, false, false},
        {2, 10, 64, 64, 0, false, false, false},
    };
    lf_gen_job jobs[N_JOBS];
    struct got *ref = calloc(1, sizeof *ref), *got = calloc(1, sizeof *got);
    const char *dtype = bf16 ? "bf16" : "f32";
    bool greedy;
    if (!ref || !got)
        tap_bail("no memory");
    make_jobs(jobs, vocab);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct setting mine = settings[i], *s = &mine;
        mine.max_rows += prefix ? 200 : 0;
        lf_runner *r = open_runner(dir, s, bf16);
        generate(r, jobs, s, i ? got : ref);
        if (i > 0)
            tap_ok(same_got(ref, got, name),
                   "%s %s: %lld slots, %lld rows, pages of %lld, %d threads%s: the same bits", name,
                   dtype, (long long)s->slots, (long long)s->max_rows, (long long)s->page,
                   s->threads, s->reversed ? ", reversed" : "");
        if (i == 0 || i == 3) {
            tap_ok(scores_equal(r, jobs, i ? got : ref, &greedy),
                   "%s %s: log-probabilities are those of a forward pass", name, dtype);
            tap_ok(greedy, "%s %s: a greedy token is the argmax of the forward pass", name, dtype);
            generate(r, jobs, s, got); /* generation after scoring: they share memory */
            tap_ok(same_got(ref, got, name), "%s %s: and again", name, dtype);
        }
        lf_runner_close(r);
    }
    tap_i64((int64_t)ref->len[9], 16, "a sequence stops where the context ends");
    tap_ok(memcmp(ref->tokens[5], ref->tokens[7], sizeof(int32_t) * 5) != 0,
           "%s %s: two samples of a prompt differ", name, dtype);
    bool varied = false;
    for (size_t j = 0; j < N_JOBS; j++)
        for (size_t i = 1; i < ref->len[j]; i++)
            varied = varied || ref->tokens[j][i] != ref->tokens[j][0];
    tap_ok(varied, "%s %s: tokens vary", name, dtype);
    free(ref);
    free(got);
}

/* With a head that drafts each job has the bits that it has without, whichever of them may be
 * guessed, and wherever a guess that was right ends a text. */
static void test_guesses(const char *name, const char *dir, int64_t vocab, bool bf16,
                         struct lf_gen_stats *all)
{
    static const struct setting settings[] = {
        {1, 1, 1, 64, 0, false, true, false},
        {1, 3, 17, 128, 700, true, true, false},
        {2, 10, 64, 64, 0, false, true, false},
    };
    static const struct setting plain = {1, 3, 16, 64, 0, false, false, false};
    lf_gen_job jobs[N_JOBS];
    struct got *ref = calloc(1, sizeof *ref), *got = calloc(1, sizeof *got);
    int64_t drafted = 0;
    bool once = true;
    if (!ref || !got)
        tap_bail("no memory");
    make_jobs(jobs, vocab);
    jobs[3].params.repetition_penalty = 1.3; /* greedy, and not guessed */
    lf_runner *r = open_runner(dir, &plain, bf16);
    const struct lf_gen_stats none = generate(r, jobs, &plain, ref);
    const int32_t end[2] = {ref->tokens[0][9], ref->tokens[6][8]};
    for (int i = 0; i < 2; i++) { /* a text ends where it is drawn first */
        jobs[i ? 6 : 0].end = &end[i];
        jobs[i ? 6 : 0].n_end = 1;
    }
    const struct lf_gen_stats ends = generate(r, jobs, &plain, ref);
    const int64_t tokens = (int64_t)(ref->len[0] + ref->len[6] + ref->len[9]);
    lf_runner_close(r);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct setting *s = &settings[i];
        r = open_runner(dir, s, bf16);
        const struct lf_gen_stats st = generate(r, jobs, s, got);
        tap_ok(same_got(ref, got, name) && st.new_tokens == ends.new_tokens,
               "%s %s: guessed, %lld slots, %lld rows: the same bits", name, bf16 ? "bf16" : "f32",
               (long long)s->slots, (long long)s->max_rows);
        drafted += st.drafted;
        once = once && st.drafted + st.accepted <= tokens; /* one behind each that was drawn */
        all->drafted += st.drafted;
        all->accepted += st.accepted;
        lf_runner_close(r);
    }
    tap_ok(none.drafted == 0 && drafted > 0 && once,
           "%lld guesses, none of a request that samples or has a penalty, and none twice",
           (long long)drafted);
    free(ref);
    free(got);
}

/* ---- latents in the cache ---- */

/* The largest difference of log-probabilities of the same tokens, as long as texts are the same;
 * *greedy: those that are not drawn are the same to their ends. */
static double apart(const lf_gen_job *jobs, const struct got *a, const struct got *b, bool *greedy)
{
    double most = 0;
    *greedy = true;
    for (size_t j = 0; j < N_JOBS; j++) {
        size_t i = 0;
        for (; i < a->len[j] && i < b->len[j] && a->tokens[j][i] == b->tokens[j][i]; i++)
            most = tap_worse(most, fabs((double)a->logprobs[j][i] - (double)b->logprobs[j][i]));
        if (jobs[j].params.temperature <= 0)
            *greedy = *greedy && i == a->len[j] && i == b->len[j];
    }
    return most;
}

static int64_t cache_bytes(const lf_model_config *c, bool fast, bool bf16)
{
    lf_err err = LF_ERR_INIT;
    const struct lf_runner_opts o = {.threads = 1,
                                     .fast = fast,
                                     .compute = bf16 ? LF_BF16 : LF_F32,
                                     .max_context = 216,
                                     .slots = 3,
                                     .max_rows = 4,
                                     .page_tokens = 64};
    json_t *j = lf_runner_plan(c, &o, &err);
    if (!j)
        tap_bail("plan: %s", err.text);
    const int64_t n = json_integer_value(json_object_get(json_object_get(j, "bytes"), "state"));
    json_decref(j);
    return n;
}

/* With fast numerics the cache of a model with latent attention keeps latents. Texts are near those
 * of the expanded form, and no other thing changes their bits; the cache has the bytes that it is
 * for. */
static void test_latents(const char *name, const char *dir, const lf_model_config *c, bool guesses)
{
    static const struct setting settings[] = {
        {1, 3, 16, 64, 0, false, false, false}, {1, 1, 1, 64, 0, false, false, true},
        {2, 3, 64, 64, 0, true, false, true},   {3, 4, 17, 128, 0, false, false, true},
        {2, 5, 64, 64, 700, true, false, true}, {2, 10, 64, 192, 0, false, false, true},
    };
    lf_gen_job jobs[N_JOBS];
    struct got *expanded = calloc(1, sizeof *expanded), *ref = calloc(1, sizeof *ref),
               *got = calloc(1, sizeof *got);
    bool same = true, greedy;
    if (!expanded || !ref || !got)
        tap_bail("no memory");
    make_jobs(jobs, c->vocab);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct setting s = settings[i];
        s.guesses = guesses && i > 1;
        lf_runner *r = open_runner(dir, &s, false);
        generate(r, jobs, &s, i == 0 ? expanded : i == 1 ? ref : got);
        same = same && (i < 2 || same_got(ref, got, name));
        lf_runner_close(r);
    }
    const double off = apart(jobs, expanded, ref, &greedy);
    tap_ok(greedy && off > 0 && off < 1e-3,
           "%s: greedy texts of latents are those of keys, log-probabilities %.1e apart", name,
           off);
    tap_ok(same, "%s: and have the same bits in any batch, pages, pieces and threads%s", name,
           guesses ? ", guessed or not" : "");
    const int64_t cells = 3 * 4 * 64, layers = c->layers,
                  wide = c->heads * (c->nope_dim + c->rope_dim + c->v_dim),
                  latent = c->kv_lora + c->rope_dim;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const int64_t size = bf16 ? 2 : 4;
        tap_ok(cache_bytes(c, false, bf16) == cells * layers * wide * size &&
                   cache_bytes(c, true, bf16) == cells * layers * latent * size,
               "%s: a token of the cache has %lld bytes a layer in place of %lld", name,
               (long long)(latent * size), (long long)(wide * size));
    }
    free(expanded);
    free(ref);
    free(got);
}

/* The test can fail: other weights give other bits. */
static void test_can_fail(const char *a, const char *b, int64_t vocab)
{
    lf_gen_job jobs[N_JOBS];
    struct got *x = calloc(1, sizeof *x), *y = calloc(1, sizeof *y);
    const struct setting s = {1, 4, 16, 64, 0, false, false, false};
    bool greedy;
    if (!x || !y)
        tap_bail("no memory");
    make_jobs(jobs, vocab);
    lf_runner *ra = open_runner(a, &s, false), *rb = open_runner(b, &s, false);
    generate(ra, jobs, &s, x);
    generate(rb, jobs, &s, y);
    tap_ok(!same_got(x, y, "expected"),
           "without its window the model gives other tokens or log-probabilities");
    tap_ok(!scores_equal(rb, jobs, x, &greedy),
           "and its scores are not those of the other's generation");
    lf_runner_close(ra);
    lf_runner_close(rb);
    free(x);
    free(y);
}

/* settings: "key=value" with a space between them. */
static void load_config(lf_model_config *c, const char *file, const char *settings)
{
    lf_err err = LF_ERR_INIT;
    char path[4096], key[64], value[64];
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, sizeof path, "%s/models/%s.ini", src ? src : ".", file);
    if (lf_model_config_load(c, path, &err))
        tap_bail("%s", err.text);
    for (const char *p = settings; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        if (sscanf(p, "%63[^=]=%63s", key, value) != 2 ||
            lf_model_config_set(c, key, value, "test", &err))
            tap_bail("%s %s", p, err.text);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s", err.text);
}

static void test_prefix_too_long(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_gen_job jobs[N_JOBS];
    lf_gen_model m;
    const struct setting s = {1, 1, 16, 64, 0, false, false, false};
    lf_runner *r = open_runner(dir, &s, false);
    make_jobs(jobs, 512);
    tap_rc(lf_runner_gen_model(r, &m, &err), 0, &err, NULL,
           "a prefix model with 16 rows in a step");
    tap_rc(lf_gen_check(&m, NULL, jobs, N_JOBS, &err), LF_EINVAL, &err, "raise step_rows",
           "refuses a longer prompt by name");
    lf_runner_close(r);
}

/* The runner with an adapter is the model it was merged into, and nothing of the above depends on
 * it. */
static void test_adapter(const char *dir, const lf_model_config *c)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config ac = {
        .rank = 3, .alpha = 3, .dora = true, .n_targets = 3, .target = {"q", "gate_up", "o"}};
    char path[4096], other[4096], ours[4096];
    uint64_t seed = 8, second = 9;
    struct got with, without;
    lf_gen_job jobs[N_JOBS];
    lf_runner *r = NULL;
    const struct setting s = {1, 3, 16, 64, 0, false, false, false};
    snprintf(path, sizeof path, "%s/adapter", tap_tmpdir());
    snprintf(other, sizeof other, "%s/other", tap_tmpdir());
    if (infer_ckpt_write_adapter(path, c, &ac, dir, infer_ckpt_hot, &seed, &err) ||
        infer_ckpt_write(other, c, infer_ckpt_hot, &second, &err))
        tap_bail("adapter: %s", err.text);
    make_jobs(jobs, c->vocab);
    generate(r = open_runner(dir, &s, false), jobs, &s, &without);
    lf_runner_close(r);
    adapter = path;
    generate(r = open_runner(dir, &s, false), jobs, &s, &with);
    snprintf(ours, sizeof ours, "%s", lf_runner_identity(r));
    lf_runner_close(r);
    tap_ok(memcmp(&with, &without, sizeof with) != 0, "an adapter speaks");
    test_model("adapter", dir, c->vocab, false, false);
    adapter = NULL;
    struct lf_runner_opts o = {
        .adapter = path, .threads = 1, .slots = 1, .max_rows = 4, .page_tokens = 64};
    tap_rc(lf_runner_open(&r, other, &o, &err), LF_EINVAL, &err, "other weights",
           "that of other weights is refused");
    o.adapter = dir;
    tap_rc(lf_runner_open(&r, dir, &o, &err), LF_ENOENT, &err, "not an adapter",
           "and so is a whole model in its place");
    o.adapter = NULL;
    tap_ok(lf_runner_open(&r, dir, &o, &err) == 0 && strcmp(lf_runner_identity(r), ours) != 0,
           "results name the adapter");
    lf_runner_close(r);
}

static void test_errors(const char *dir)
{
    lf_err err = LF_ERR_INIT;
    lf_runner *r = NULL;
    struct lf_runner_opts o = {
        .threads = 1, .slots = 1, .max_rows = 4, .page_tokens = 64, .max_context = 4096};
    tap_rc(lf_runner_open(&r, dir, &o, &err), LF_EINVAL, &err, "256 positions",
           "a context beyond the model's is refused");
    o.max_context = 0;
    o.page_tokens = 48;
    tap_rc(lf_runner_open(&r, dir, &o, &err), LF_EINVAL, &err, "multiple of",
           "so is a page that is no multiple of the tile");
    o.page_tokens = 64;
    o.speculative = true;
    tap_rc(lf_runner_open(&r, dir, &o, &err), LF_EINVAL, &err, "mtp_layers",
           "a model without a head that drafts");
    tap_rc(lf_runner_open(&r, "/nonexistent/checkpoint", &o, &err), LF_ENOENT, &err,
           "/nonexistent/checkpoint", "and a missing checkpoint");
}

int main(void)
{
    static const struct {
        const char *name, *file, *settings;
        bool f32_only; /* what bf16 adds is seen in the others */
    } models[] = {
        {"llama", "tiny-llama", NULL, false},
        {"gpt2", "tiny-gpt2", NULL, false},
        {"qwen3", "tiny-qwen3", NULL, false},
        {"window", "tiny-llama", "sliding_window=40", false},
        {"moe", "tiny-moe", NULL, false},
        {"softcap", "tiny-llama", "logit_softcap=5", false},
        {"wide", "tiny-llama", "vocab=5000", false}, /* draws are shared out to threads */
        {"prefix", "tiny-llama", "mask=prefix position=rope2d block=alpha kv_heads=4", true},
        {"sandwich", "tiny-llama",
         "block=sandwich sliding_window=40 layer_mixers=wf* window_kv_heads=4 window_head_dim=8 "
         "rope_local_theta=100 logn_length=60 "
         "norm_head=yes embed_dim=32",
         true},
        {"latent", "tiny-llama",
         "kv_heads=4 head_dim=16 kv_lora=20 q_lora=12 nope_dim=10 rope_dim=6 v_dim=12 "
         "query_growth=0.3 rope_original_positions=20",
         true},
        {"chunks", "tiny-moe",
         "layer_mixers=hf* attn_chunk=24 layer_positions=rn* qk_unit_norm=yes nope_growth=0.3 "
         "nope_growth_length=20 experts_per_token=1 router_score=sigmoid router_on_input=yes",
         false},
        /* prompts of 63, 64, 65 and more tokens end before, at and behind a chunk */
        {"ssd", "tiny-llama",
         "layer_mixers=sf* scan_heads=6 scan_groups=2 scan_key_dim=5 scan_value_dim=12 scan_conv=4 "
         "scan_conv_bias=yes scan_gate=silu scan_norm=after_gate scan_norm_parts=2",
         false},
        {"delta", "tiny-llama",
         "layer_mixers=gf* scan_heads=4 scan_groups=2 scan_key_dim=8 scan_value_dim=6 scan_conv=4 "
         "scan_gate=silu scan_norm=before_gate scan_strength=1.6 attn_gate=yes qk_norm=yes "
         "block=out_attention",
         true},
        {"kda", "tiny-llama",
         "layer_mixers=kf* layer_positions=n* scan_heads=3 scan_key_dim=8 scan_value_dim=6 "
         "scan_conv=4 scan_rank=5 scan_gate=sigmoid scan_norm=before_gate",
         true},
        {"lightning", "tiny-llama",
         "layer_mixers=lf* scan_heads=4 scan_key_dim=8 scan_value_dim=8 scan_gate=sigmoid "
         "scan_norm=before_gate scan_norm_parts=1",
         true},
        {"both", "tiny-llama",
         "layer_mixers=b* scan_heads=4 scan_groups=1 scan_key_dim=5 scan_value_dim=8 scan_conv=3 "
         "scan_gate=silu scan_scales=0.5,2,0.7,1.5,0.9 attn_in_scale=0.8 scan_out_scale=1.3 "
         "mlp_gate_scale=1.3 mlp_out_scale=0.8",
         true},
        {"alone", "tiny-llama",
         "heads=0 kv_heads=0 head_dim=0 ffn=0 layer_mixers=s* layer_mlps=n* scan_heads=4 "
         "scan_key_dim=6 "
         "scan_value_dim=16 scan_conv=4 scan_gate=silu scan_norm=after_gate scan_norm_parts=1",
         true},
        {"plain-moe", "tiny-llama",
         "layer_mixers=fn* layer_mlps=nm* mlp=plain activation=relu2 experts=4 experts_per_token=2 "
         "expert_ffn=24 expert_latent=20 shared_ffn=12",
         true},
        {"short", "tiny-llama", "layer_mixers=cf* scan_conv=3 scan_bias=yes scan_conv_bias=yes",
         true},
        {"sinks", "tiny-moe",
         "attn_sinks=yes sliding_window=40 layer_mixers=wf* expert_bias=yes router_linear_bias=yes "
         "activation=gelu_quick glu_limit=2 glu_up_offset=1",
         false},
        {"shared", "tiny-llama",
         "layers=4 sliding_window=40 layer_mixers=wf* rope_local_theta=100 window_head_dim=8 "
         "rope_scaling=proportional rope_fraction=0.3 qk_norm=yes v_norm=yes kv_shared_layers=2 "
         "kv_shared_ffn=48 per_layer_dim=6 layer_gain=yes block=sandwich",
         true},
        {"shared beside chunks", "tiny-llama",
         "layers=3 layer_mixers=fhf attn_chunk=8 kv_shared_layers=1", true},
        {"streams", "tiny-llama",
         "layers=3 altup_streams=3 laurel_rank=6 per_layer_dim=6 per_layer_vocab=50 "
         "gate_sparsity=0.6,0,0.3 kv_shared_layers=1 qk_norm=yes v_norm=yes block=sandwich",
         true},
        {"side by side", "tiny-moe",
         "layer_mlps=b* router_norm=yes expert_gain=yes keys_as_values=yes qk_norm=yes v_norm=yes "
         "block=sandwich",
         true},
    };
    uint64_t seed = 5;
    char dirs[sizeof models / sizeof *models][4096];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c;
        load_config(&c, models[i].file, models[i].settings);
        snprintf(dirs[i], sizeof dirs[i], "%s/%s", tap_tmpdir(), models[i].name);
        if (infer_ckpt_write(dirs[i], &c, infer_ckpt_hot, &seed, &err))
            tap_bail("checkpoint: %s", err.text);
        TAP(15, test_model(models[i].name, dirs[i], c.vocab, false, c.mask == LF_MASK_PREFIX));
        if (!models[i].f32_only)
            TAP(15, test_model(models[i].name, dirs[i], c.vocab, true, false));
        if (c.kv_lora)
            TAP(4, test_latents(models[i].name, dirs[i], &c, false));
    }
    lf_model_config llama;
    load_config(&llama, models[0].file, models[0].settings);
    TAP(19, test_adapter(dirs[0], &llama));
    size_t prefix = 0, window = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        prefix = strcmp(models[i].name, "prefix") == 0 ? i : prefix;
        window = strcmp(models[i].name, "window") == 0 ? i : window;
    }
    static const char *const guessing[] = {
        "vocab=8 mtp_layers=1",
        "vocab=8 mtp_layers=2 mtp_join=hidden_embed tied_head=yes sliding_window=40 "
        "layer_mixers=fw*",
        "vocab=8 mtp_layers=1 mtp_mlp=dense mtp_norm=final experts=4 experts_per_token=2",
        "vocab=8 mtp_layers=1 kv_heads=4 head_dim=16 kv_lora=20 nope_dim=10 rope_dim=6 v_dim=12 "
        "experts=4 experts_per_token=2 layer_mlps=d,m* logit_softcap=5"};
    struct lf_gen_stats guessed = {0};
    for (size_t i = 0; i < sizeof guessing / sizeof *guessing; i++) {
        lf_err err = LF_ERR_INIT;
        lf_model_config c;
        char dir[4096], name[32];
        snprintf(name, sizeof name, "guesses %zu", i + 1);
        snprintf(dir, sizeof dir, "%s/guesses-%zu", tap_tmpdir(), i + 1);
        load_config(&c, "tiny-llama", guessing[i]);
        if (infer_ckpt_write(dir, &c, infer_ckpt_hot, &seed, &err))
            tap_bail("checkpoint: %s", err.text);
        TAP(4, test_guesses(name, dir, c.vocab, false, &guessed));
        if (i == 0)
            TAP(4, test_guesses(name, dir, c.vocab, true, &guessed));
        if (c.kv_lora)
            TAP(4, test_latents(name, dir, &c, true));
    }
    tap_ok(guessed.accepted > 0 && guessed.accepted < guessed.drafted,
           "%lld of %lld guesses are right", (long long)guessed.accepted,
           (long long)guessed.drafted);
    TAP(2, test_can_fail(dirs[window], dirs[0], 512));
    TAP(2, test_prefix_too_long(dirs[prefix]));
    TAP(4, test_errors(dirs[0]));
    return tap_done();
}
