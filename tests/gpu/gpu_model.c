/* SPDX-License-Identifier: Apache-2.0
 *
 * Our side of `make bench-gpu`: optimizer steps or greedy decoding of a model of models/ with
 * random weights in bf16 on GPU 0, one JSON line on standard output, where the time goes
 * (engine/graph/profile.h) on standard error.
 *
 *     gpu_model info
 *     gpu_model train  MODEL.ini SEQUENCES LENGTH [STEPS]
 *     gpu_model decode MODEL.ini BATCH NEW        [STEPS]
 *
 * STEPS (10, decoding 3) is an upper bound: at least 3 are timed, then no more once they took 25
 * seconds. train: forward and backward of micro-batches of SEQUENCES documents of LENGTH tokens
 * until 131,072 tokens (LF_GPU_TOKENS) are summed, clipping, AdamW; f32 masters, moments and
 * gradients, fast kernels, captured segments. What does not fit is made to: fewer sequences, then
 * recomputation; the line says which. decode: engine/infer/gen.h as stages use it, greedy, behind
 * prompts of 16 tokens, invariant kernels; a step is what NEW - 1 further tokens take by one.
 * share: causal FLOPs without recomputation over the peak of bf16 products, or bytes of the weights
 * over the rate of copies within the device. overhead: what the median step has beside its kernels,
 * which further steps time one by one (decode: beside those of the graph, so that drawing tokens is
 * in it). A step of decoding is a difference of two times; where noise makes it less than nothing,
 * what follows from it is null: too short to tell. LF_GPU_EMULATED=1: on the emulator, to see that
 * it works; its times mean nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/back/nvml.h"
#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/graph/exec.h"
#include "engine/graph/profile.h"
#include "engine/infer/paged.h"
#include "engine/model/decoder.h"
#include "kernels/bench/bench.h"
#include "tests/cuda/emu/run.h"

enum {
    PROMPT = 16,
    MAX_STEPS = 64,
    WARM = 3,
    MAX_BATCH = 1024,
    MAX_NEW = 4096,
    FEWEST = 3,
    NOISE = 1 << 20
};
#define LONG_S 25.0 /* steps are not repeated further once they took so long together */
static const char *const recompute_names[] = {"none", "selective", "full"};

struct bench {
    lf_model_config c;
    const struct lf_target *target;
    struct lf_gpus gpu;
    lf_back *back;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_exec *ex;
    int chain, steps;
    int64_t B, T, micro;
    enum lf_recompute recompute;
    bool emulated;
    double seconds[MAX_STEPS];
    int32_t *tok, *tgt, *pos, *cu;
};

static lf_err err = LF_ERR_INIT;

static void need(int rc)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "gpu_model: %s\n", err.text);
    exit(1);
}

static void open_gpu(struct bench *b)
{
    static struct lf_cu emulator;
    struct lf_cuda_opts o = {.threads = lf_ncpu()};
    const char *e = getenv("LF_GPU_EMULATED");
    b->emulated = e && *e == '1';
    if (b->emulated) {
        lf_emu_driver(&emulator);
        o.driver = &emulator;
    } else {
        lf_gpus_look(&b->gpu);
        if (!b->gpu.n)
            need(lf_fail(&err, LF_EDEVICE, "no GPU: %s", b->gpu.why));
    }
    b->target = b->emulated ? lf_target_find("sm_90") : lf_target_device(LF_DEVICE_CUDA);
    b->back = lf_back_cuda_create(&o, &err);
    need(b->back ? 0 : -1);
}

static void close_model(struct bench *b)
{
    lf_exec_destroy(b->ex);
    lf_plan_destroy(b->plan);
    lf_pstore_destroy(b->ps);
    lf_decoder_destroy(b->dec);
    b->ex = NULL;
    b->plan = NULL;
    b->ps = NULL;
    b->dec = NULL;
}

static void open_plan(struct bench *b, int64_t positions, enum lf_numeric mode)
{
    const struct lf_plan_opts po = {
        .target = b->target, .threads = lf_ncpu(), .compute = LF_BF16, .mode = mode};
    b->dec = lf_decoder_create(&b->c, positions, &err);
    b->ps = b->dec ? lf_pstore_create(&err) : NULL;
    need(b->ps ? lf_decoder_declare(b->dec, b->ps, &err) : -1);
    b->plan = lf_plan_create(b->ps, &po, &err);
    need(b->plan ? 0 : -1);
}

static void plan_training(struct bench *b)
{
    const struct lf_decoder_rows rows = {.rows = b->B * b->T, .n_docs = b->B, .max_doc = b->T};
    open_plan(b, b->T, LF_FAST);
    lf_graph *g = lf_decoder_loss_graph(b->dec, b->ps, "train", &rows, true, &err);
    b->chain =
        g ? lf_plan_add(b->plan, g,
                        &(struct lf_chain_opts){.train = true, .recompute = b->recompute}, &err)
          : -1;
    lf_graph_destroy(g);
    need(b->chain);
    need(lf_plan_optimizer(
        b->plan,
        &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        &err));
    need(lf_plan_finish(b->plan, &err));
}

static bool fits(const struct bench *b)
{
    struct lf_plan_bytes by;
    need(lf_plan_bytes(b->plan, &by));
    return b->emulated || by.total + b->target->device_reserved <= b->gpu.memory;
}

/* The first of: all sequences, fewer, one; then the same with recomputation. */
static void fit_training(struct bench *b)
{
    const int64_t most = b->B;
    for (int how = LF_RECOMPUTE_NONE; how <= LF_RECOMPUTE_FULL; how++)
        for (b->B = most; b->B >= 1; b->B /= 2) {
            b->recompute = (enum lf_recompute)how;
            plan_training(b);
            if (fits(b))
                return;
            close_model(b);
        }
    need(lf_fail(&err, LF_ENOMEM, "one sequence of %lld tokens does not fit into %.0f GiB",
                 (long long)b->T, (double)b->gpu.memory / (1 << 30)));
}

static void *numbers(int64_t n)
{
    void *p = lf_calloc((size_t)n, sizeof(int32_t), &err);
    need(p ? 0 : -1);
    return p;
}

static void batch(struct bench *b)
{
    const int64_t R = b->B * b->T;
    b->tok = numbers(R);
    b->tgt = numbers(R);
    b->pos = numbers(R);
    b->cu = numbers(b->B + 1);
    for (int64_t i = 0; i < R; i++) {
        b->tok[i] = (int32_t)(lf_rng_u32(1, 1, (uint64_t)i) % (uint32_t)b->c.vocab);
        b->tgt[i] = (int32_t)(lf_rng_u32(1, 2, (uint64_t)i) % (uint32_t)b->c.vocab);
        b->pos[i] = (int32_t)(i % b->T);
    }
    for (int64_t d = 0; d <= b->B; d++)
        b->cu[d] = (int32_t)(d * b->T);
}

static void write_i32(struct bench *b, const char *name, const int32_t *v, int64_t n)
{
    need(lf_exec_write(b->ex, b->chain, 0, name, v, (size_t)n * sizeof *v, &err));
}

/* One optimizer step as the loop of engine/train does it: inputs of every micro-batch, and one
 * result read at its end. */
static void step(struct bench *b, int n)
{
    const int64_t R = b->B * b->T;
    struct lf_step_record rec = {.step = (uint64_t)n,
                                 .lr = 1e-4f,
                                 .bias_corr1 = 0.5f,
                                 .bias_corr2 = 0.5f,
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = (float)(1 / (double)(R * b->micro))};
    need(lf_exec_record_write(b->ex, &rec, &err));
    for (int64_t m = 0; m < b->micro; m++) {
        const enum lf_variant v = m ? LF_ACCUM : LF_FIRST;
        write_i32(b, "tokens", b->tok, R);
        write_i32(b, "targets", b->tgt, R);
        write_i32(b, "positions", b->pos, R);
        write_i32(b, "cu_seqlens", b->cu, b->B + 1);
        need(lf_exec_run(b->ex, b->chain, LF_FWD, 0, v, &err));
        need(lf_exec_run(b->ex, b->chain, LF_BWD, 0, v, &err));
    }
    need(lf_exec_run(b->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
    need(lf_exec_record_read(b->ex, &rec, &err));
    if (!isfinite(rec.loss_sum) || rec.skip)
        need(lf_fail(&err, LF_ENUMERIC, "the loss is not finite"));
}

static double timed_step(struct bench *b, int n)
{
    double t0 = lf_now_s();
    step(b, n);
    return lf_now_s() - t0;
}

static bool all_given(void *user, const struct lf_param_desc *d)
{
    (void)user;
    (void)d;
    return true;
}

static int64_t elements(const struct lf_param_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->dims[i];
    return n;
}

/* Weights as they would be drawn, but a million normal numbers over and over: 7 billion take
 * seconds instead of a minute. */
static void init(struct bench *b)
{
    static float noise[NOISE];
    int64_t most = 0;
    need(lf_pstore_init_rest(b->ps, 1, all_given, NULL, &err));
    for (int i = 0; i < NOISE; i++)
        noise[i] = (float)lf_rng_normal(3, 1, (uint64_t)i);
    for (int i = 0; i < lf_pstore_count(b->ps); i++) {
        const int64_t n = elements(lf_pstore_desc(b->ps, i));
        most = n > most ? n : most;
    }
    float *w = lf_malloc((size_t)most, sizeof *w, &err);
    need(w ? 0 : -1);
    for (int i = 0; i < lf_pstore_count(b->ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(b->ps, i);
        const int64_t n = elements(d);
#pragma omp parallel for schedule(static)
        for (int64_t e = 0; e < n; e++)
            w[e] = d->init == LF_INIT_NORMAL ? d->init_std * noise[(e + 7919 * i) % NOISE]
                   : d->init == LF_INIT_ONE  ? 1.0f
                                             : 0.0f;
        need(lf_pstore_write(b->ps, i, LF_F32, w, &err));
    }
    free(w);
}

static void bind(struct bench *b, lf_profile *p)
{
    b->ex = lf_exec_create(b->plan, b->back, &(struct lf_exec_opts){.profile = p}, &err);
    need(b->ex ? 0 : -1);
    init(b);
}

/* Seconds that the kernels of phase `name` took, each time. */
static double kernel_seconds(const lf_profile *p, const char *name)
{
    json_t *j = lf_profile_json(p, &err), *f;
    double s = 0;
    size_t i;
    need(j ? 0 : -1);
    json_array_foreach(json_object_get(j, "phases"), i,
                       f) if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0) s =
        json_number_value(json_object_get(f, "kernel_seconds")) /
        json_number_value(json_object_get(f, "count"));
    json_decref(j);
    return s;
}

static void show(const lf_profile *p)
{
    lf_buf text;
    lf_buf_init(&text);
    need(lf_profile_text(p, &text, &err));
    fputs(text.data, stderr);
    lf_buf_fini(&text);
}

/* Whether to time one more step: `done` of at most `most` took `spent` seconds. */
static bool go_on(int done, int most, double spent)
{
    return done < most && (done < FEWEST || spent < LONG_S);
}

static double train(struct bench *b, double tokens)
{
    double spent = 0;
    int n;
    fit_training(b);
    b->micro = (int64_t)(tokens / (double)(b->B * b->T));
    b->micro = b->micro < 1 ? 1 : b->micro;
    batch(b);
    bind(b, NULL);
    for (n = 0; n < WARM && (n < 1 || spent < LONG_S / 3); n++)
        spent += timed_step(b, n);
    spent = 0;
    for (n = 0; go_on(n, b->steps, spent); n++)
        spent += b->seconds[n] = timed_step(b, n);
    b->steps = n;
    /* The same again, node after node. */
    lf_profile *p = lf_profile_create(&err);
    need(p ? 0 : -1);
    lf_exec_destroy(b->ex);
    bind(b, p);
    for (int s = 0; s < (spent < LONG_S ? 3 : 2); s++) {
        struct lf_profile_mark m = lf_profile_begin(p);
        step(b, s);
        lf_profile_end(p, LF_LANE_STEP, s ? "step" : "first step", m);
    }
    double k = kernel_seconds(p, "step");
    show(p);
    lf_exec_destroy(b->ex);
    b->ex = NULL;
    lf_profile_destroy(p);
    return k;
}

static int ignore(void *user, const lf_gen_result *r, lf_err *e)
{
    (void)e;
    *(int64_t *)user += (int64_t)r->n;
    return 0;
}

/* B greedy sequences of `n_new` tokens behind their prompts, as a stage generates them; seconds. */
static double generate(struct bench *b, const lf_gen_model *m, int64_t n_new)
{
    static int32_t prompt[MAX_BATCH][PROMPT];
    static lf_gen_job job[MAX_BATCH];
    struct lf_gen_stats stats;
    int64_t tokens = 0;
    for (uint32_t i = 0; i < (uint32_t)b->B; i++) {
        for (uint32_t t = 0; t < PROMPT; t++)
            prompt[i][t] = (int32_t)(lf_rng_u32(2, i, t) % (uint32_t)b->c.vocab);
        job[i] = (lf_gen_job){.id = "bench",
                              .prompt = prompt[i],
                              .n_prompt = PROMPT,
                              .params = LF_SAMPLE_DEFAULTS,
                              .max_tokens = n_new};
        job[i].params.temperature = 0;
    }
    need(lf_gen_run(
        m,
        &(struct lf_gen_work){.jobs = job, .n_jobs = (size_t)b->B, .sink = ignore, .arg = &tokens},
        &stats, &err));
    if (tokens != b->B * n_new || stats.model_draws != tokens)
        need(lf_fail(&err, LF_EINVAL, "%lld tokens, %lld of them drawn on the device",
                     (long long)tokens, (long long)stats.model_draws));
    return stats.seconds;
}

/* Seconds of a step that decodes one token of each sequence: what tokens behind the first take. */
static double decode_once(struct bench *b, const lf_gen_model *m)
{
    const double first = generate(b, m, 1);
    return (generate(b, m, b->T) - first) / (double)(b->T - 1);
}

static lf_paged *plan_decoding(struct bench *b, struct lf_profile *p)
{
    const struct lf_paged_opts o = {
        .context = PROMPT + b->T, .slots = b->B, .page_tokens = 64, .cache = LF_BF16, .profile = p};
    lf_paged *g = NULL;
    open_plan(b, PROMPT + b->T, LF_INVARIANT);
    need(lf_paged_plan(&g, b->plan, b->ps, b->dec, &o, &err));
    need(lf_plan_finish(b->plan, &err));
    if (!fits(b))
        need(lf_fail(&err, LF_ENOMEM, "the model and its cache do not fit into %.0f GiB",
                     (double)b->gpu.memory / (1 << 30)));
    return g;
}

static lf_gen_model start_decoding(struct bench *b, lf_paged **g, lf_profile *p)
{
    lf_gen_model m;
    *g = plan_decoding(b, p);
    bind(b, p);
    need(lf_paged_bind(*g, b->ex, b->back, &err));
    lf_paged_model(*g, &m);
    return m;
}

static double decode(struct bench *b)
{
    lf_paged *g;
    lf_gen_model m = start_decoding(b, &g, NULL);
    decode_once(b, &m);
    const double t0 = lf_now_s();
    int n;
    for (n = 0; go_on(n, b->steps, lf_now_s() - t0); n++)
        b->seconds[n] = decode_once(b, &m);
    b->steps = n;
    lf_paged_destroy(g);
    close_model(b);
    lf_profile *p = lf_profile_create(&err);
    need(p ? 0 : -1);
    m = start_decoding(b, &g, p);
    generate(b, &m, b->T);
    double k = kernel_seconds(p, "generation step");
    show(p);
    lf_paged_destroy(g);
    lf_exec_destroy(b->ex);
    b->ex = NULL;
    lf_profile_destroy(p);
    return k;
}

static void tell(struct bench *b, const char *what, const char *model, double kernels)
{
    const bool training = strcmp(what, "train") == 0;
    struct lf_plan_bytes by;
    struct lf_back_peak peak;
    char text[6][BENCH_NUMBER];
    double med = bench_median(b->seconds, b->steps);
    need(lf_plan_bytes(b->plan, &by));
    need(b->back->ops->probe(b->back, LF_PEAK_ALL, &peak, &err));
    double tokens = training ? (double)(b->B * b->T * b->micro) : (double)b->B;
    double work = training ? lf_model_train_flops_per_token(&b->c, b->T, true) * tokens
                           : 2.0 * (double)lf_model_matmul_params(&b->c);
    double ceiling = training ? peak.bf16_flops : peak.bytes_per_s;
    printf(
        "{\"ours\":\"%s\",\"device\":\"%s\",\"what\":\"%s\",\"model\":\"%s\",\"B\":%lld,\"T\":%lld,"
        "\"micro\":%lld,\"recompute\":\"%s\",",
        training ? "fast" : "invariant", b->back->device, what, model, (long long)b->B,
        (long long)b->T, (long long)b->micro, recompute_names[b->recompute]);
    printf("\"median_s\":%s,\"tokens_per_s\":%s,\"share\":%s,\"rate\":%s,\"ceiling\":%.4g,"
           "\"overhead\":%s,"
           "\"kernels_s\":%s,\"plan_bytes\":%zu}\n",
           bench_number(text[0], 6, med > 0 ? med : (double)NAN),
           bench_number(text[1], 6, bench_per(tokens, med)),
           bench_number(text[2], 4, bench_per(work, med) / ceiling),
           bench_number(text[3], 4, bench_per(work, med)), ceiling,
           bench_number(text[4], 4, 1 - bench_per(kernels, med)), bench_number(text[5], 6, kernels),
           by.total);
}

static int info(struct bench *b)
{
    struct lf_back_peak p;
    need(b->back->ops->probe(b->back, LF_PEAK_ALL, &p, &err));
    printf("%s, %.1f GiB: peak %.0f TFLOP/s bf16, %.0f f32; copies at %.0f GB/s; products: %s\n",
           b->back->device, (double)b->gpu.memory / (1 << 30), p.bf16_flops * 1e-12,
           p.f32_flops * 1e-12, p.bytes_per_s * 1e-9, b->back->ops->products(b->back, LF_FAST));
    lf_nvml *nvml = lf_nvml_open(b->back, 1);
    struct lf_gpu_use use;
    if (lf_nvml_sample(nvml, &use))
        printf("NVML of %s: busy %.0f %%, %.1f GiB in use, %.1f W\n", b->back->uuid, 100 * use.util,
               use.memory / (1 << 30), use.power_w);
    else
        printf("NVML says nothing of %s\n", b->back->uuid ? b->back->uuid : "this GPU");
    lf_nvml_close(nvml);
    lf_back_destroy(b->back);
    return 0;
}

int main(int argc, char **argv)
{
    const bool asked = argc == 2 && strcmp(argv[1], "info") == 0,
               training = argc > 1 && strcmp(argv[1], "train") == 0;
    const char *t = getenv("LF_GPU_TOKENS");
    struct bench b = {0};
    if (!asked && (argc < 5 || (!training && strcmp(argv[1], "decode") != 0))) {
        fprintf(stderr,
                "usage: gpu_model info | train|decode MODEL.ini SEQUENCES LENGTH [STEPS]\n");
        return 2;
    }
    if (!asked) {
        b.B = strtol(argv[3], NULL, 10);
        b.T = strtol(argv[4], NULL, 10);
        b.steps = argc > 5 ? (int)strtol(argv[5], NULL, 10) : training ? 10 : 3;
        if (b.B < 1 || (!training && b.B > MAX_BATCH) || b.T < 2 ||
            b.T > (training ? 1 << 20 : MAX_NEW) || b.steps < 1 || b.steps > MAX_STEPS)
            return 2;
        need(lf_model_config_load(&b.c, argv[2], &err));
        const int64_t positions = training ? b.T : PROMPT + b.T;
        if (b.c.max_positions <
            positions) /* a longer table of positions costs nothing that counts */
            b.c.max_positions = positions;
    }
    open_gpu(&b);
    if (asked)
        return info(&b);
    double kernels = training ? train(&b, t ? strtod(t, NULL) : 131072) : decode(&b);
    tell(&b, argv[1], argv[2], kernels);
    close_model(&b);
    lf_back_destroy(b.back);
    free(b.tok), free(b.tgt), free(b.pos), free(b.cu);
    return 0;
}
