/* SPDX-License-Identifier: Apache-2.0
 *
 * Our side of the CPU table: a training step or greedy decode of a model of models/, random
 * weights, one JSON line.
 *
 *     model_bench train  MODEL.ini B T f32|bf16 fast|invariant STEPS THREADS [none|selective|full]
 *     model_bench decode MODEL.ini B NEW f32|bf16 fast|invariant STEPS THREADS [BEFORE]
 *
 * train: forward, backward, clipping, AdamW on one micro-batch of B packed documents of T tokens.
 * Of an encoder of texts (mask = both) three tokens in 20 are said; T of an encoder-decoder is
 * SOURCE+TARGET, tokens of both sides; of a model that tells classes of pictures T is the patches
 * of a picture, a square, and B pictures are one micro-batch. Shares are told of decoders alone.
 * decode: a 16-token prompt in each of B sequences, then NEW - 1 greedy steps over the paged cache,
 * argmax on the host; BEFORE tokens stand in the cache already, of whatever it holds. With latent
 * attention the cache is of latents in fast numerics, as in generation. In front of each timed step
 * the FMA peak (train) or the read bandwidth (decode) of the machine is measured in the same
 * process, so that shares hold when its speed drifts. The bytes of a decoding step are the weights
 * that multiply a token, the keys and values, or latents, of BEFORE and half of the positions that
 * are fed (B times), and the states of scans and convolutions.
 *
 * With LF_BENCH_TURNS in the environment each timed step of train, and each pass of decode, waits
 * for a line of the input and answers with its seconds by the clock (the median step of a pass) and
 * of CPU, so that another program can take turns with it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/base/sys.h"
#include "engine/graph/exec.h"
#include "engine/graph/profile.h"
#include "engine/model/classes.h"
#include "engine/model/decoder.h"
#include "engine/post/class_train.h"
#include "kernels/bench/bench.h"

enum { PROMPT = 16, MAX_STEPS = 64, PAGE = 64 };
#define READ_BYTES ((size_t)512 << 20)

struct bench {
    lf_model_config c;
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    lf_profile
        *profile; /* with LF_BENCH_PROFILE in the environment: of every step, told at the end */
    int64_t B, T, source, before;
    int steps, threads;
    enum lf_dtype compute;
    enum lf_numeric mode;
    bool turns;
    double seconds[MAX_STEPS], ceiling[MAX_STEPS];
};

static lf_err err = LF_ERR_INIT;

static void need(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "model_bench: %s\n", err.text);
        exit(1);
    }
}

/* Waits for a turn; false at the end of the input. */
static bool turn(const struct bench *b)
{
    int c = '\n';
    while (b->turns && (c = getchar()) != '\n' && c != EOF)
        ;
    return c != EOF;
}
static void took(const struct bench *b, double seconds, double cpu)
{
    if (b->turns)
        printf("%.6f %.6f\n", seconds, cpu);
    fflush(stdout);
}

static void bind(struct bench *b)
{
    need(lf_plan_finish(b->plan, &err));
    b->back = lf_back_cpu_create(lf_target_host()->isa, b->threads, &err);
    if (getenv("LF_BENCH_PROFILE"))
        need((b->profile = lf_profile_create(&err)) ? 0 : -1);
    b->ex = b->back ? lf_exec_create(b->plan, b->back,
                                     &(struct lf_exec_opts){.profile = b->profile}, &err)
                    : NULL;
    need(b->ex ? 0 : -1);
    need(lf_pstore_init(b->ps, 1, &err));
}

static void open_model(struct bench *b, const char *ini, int64_t positions)
{
    need(lf_model_config_load(&b->c, ini, &err));
    b->dec = lf_decoder_create(&b->c, positions, &err);
    b->ps = b->dec ? lf_pstore_create(&err) : NULL;
    need(b->ps ? lf_decoder_declare(b->dec, b->ps, &err) : -1);
    struct lf_plan_opts po = {.threads = b->threads, .compute = b->compute, .mode = b->mode};
    b->plan = lf_plan_create(b->ps, &po, &err);
    need(b->plan ? 0 : -1);
}

static void write_i32(struct bench *b, int chain, const char *name, const int32_t *v, int64_t n)
{
    need(lf_exec_write(b->ex, chain, 0, name, v, (size_t)n * 4, &err));
}

/* ---- what a training step is fed ---- */

/* B texts of `each` tokens, whose inputs have names that begin with `prefix`. */
struct texts {
    const char *prefix;
    int64_t each;
    int32_t *tokens, *positions, *cu;
};

struct feed {
    int chain;
    struct texts text, source; /* each = 0: there are none */
    int32_t *targets;
    lf_classes_sight *sight; /* NULL: no pictures are told */
    float *pixels, *score, *slope;
};

static void *room(int64_t n, size_t size)
{
    void *p = calloc((size_t)n, size);
    need(p ? 0 : -1);
    return p;
}

static int32_t random_token(const struct bench *b, uint32_t site, int64_t i)
{
    return (int32_t)(lf_rng_u32(1, site, (uint64_t)i) % (uint32_t)b->c.vocab);
}

static struct texts make_texts(const struct bench *b, const char *prefix, int64_t each, int site)
{
    const int64_t rows = b->B * each;
    struct texts t = {.prefix = prefix,
                      .each = each,
                      .tokens = room(rows, 4),
                      .positions = room(rows, 4),
                      .cu = room(b->B + 1, 4)};
    for (int64_t i = 0; i < rows; i++) {
        t.tokens[i] = random_token(b, (uint32_t)site, i);
        t.positions[i] = (int32_t)(i % each);
    }
    for (int64_t d = 0; d <= b->B; d++)
        t.cu[d] = (int32_t)(d * each);
    return t;
}

static void write_texts(struct bench *b, int chain, const struct texts *t)
{
    const struct {
        const char *name;
        const int32_t *v;
        int64_t n;
    } all[] = {{"tokens", t->tokens, b->B * t->each},
               {"positions", t->positions, b->B * t->each},
               {"cu_seqlens", t->cu, b->B + 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", t->prefix, all[i].name);
        write_i32(b, chain, name, all[i].v, all[i].n);
    }
}

static lf_graph *text_graph(const struct bench *b, struct feed *f)
{
    const int64_t rows = b->B * b->T;
    const bool hides = b->c.mask == LF_MASK_BOTH;
    f->text = make_texts(b, "", b->T, 1);
    if (b->source)
        f->source = make_texts(b, "source_", b->source, 3);
    f->targets = room(rows, 4);
    for (int64_t i = 0; i < rows; i++)
        f->targets[i] =
            hides && lf_rng_u32(1, 4, (uint64_t)i) % 20 >= 3 ? -1 : random_token(b, 2, i);
    const struct lf_decoder_rows r = {.rows = rows,
                                      .n_docs = b->B,
                                      .max_doc = b->T,
                                      .source_rows = b->B * b->source,
                                      .max_source = b->source};
    return lf_decoder_loss_graph(b->dec, b->ps, "train", &r, true, &err);
}

static lf_graph *picture_graph(const struct bench *b, struct feed *f)
{
    const int64_t patches = b->B * b->T, numbers = patches * b->c.vision.patch_dim,
                  scores = b->B * b->c.classes.labels;
    const struct lf_classes_rows r = lf_classes_bounds(&b->c, patches, b->B);
    const int32_t side = (int32_t)sqrt((double)b->T);
    need(side * (int64_t)side == b->T
             ? 0
             : lf_fail(&err, LF_EINVAL, "%lld patches are no square", (long long)b->T));
    struct lf_sight_tile *tile = room(b->B, sizeof *tile);
    for (int64_t i = 0; i < b->B; i++)
        tile[i] = (struct lf_sight_tile){side, side};
    const struct lf_sight_batch batch = {.n_tiles = (int32_t)b->B, .tile = tile, .merge = 1};
    f->sight = lf_classes_sight_create(&b->c, &r, &err);
    need(f->sight ? lf_classes_sight_fill(f->sight, &batch, &err) : -1);
    free(tile);
    f->pixels = room(numbers, sizeof *f->pixels);
    f->score = room(scores, sizeof *f->score);
    f->slope = room(scores, sizeof *f->slope);
    for (int64_t i = 0; i < numbers; i++)
        f->pixels[i] = 2 * lf_u01(lf_rng_u32(1, 1, (uint64_t)i)) - 1;
    return lf_classes_graph(b->dec, b->ps, "train", &r, true, &err);
}

static void free_feed(struct feed *f)
{
    struct texts *const texts[] = {&f->text, &f->source};
    for (int i = 0; i < 2; i++)
        free(texts[i]->tokens), free(texts[i]->positions), free(texts[i]->cu);
    lf_classes_sight_destroy(f->sight);
    free(f->targets), free(f->pixels), free(f->score), free(f->slope);
}

static void write_feed(struct bench *b, const struct feed *f)
{
    if (f->sight) {
        need(lf_classes_sight_write(f->sight, b->ex, f->chain, 0, &err));
        need(lf_exec_write(b->ex, f->chain, 0, "vision.pixels", f->pixels,
                           (size_t)(b->B * b->T * b->c.vision.patch_dim) * sizeof(float), &err));
        return;
    }
    const struct lf_decoder_docs docs = {.cu_seqlens = f->text.cu, .n = b->B, .rows = b->B * b->T};
    write_texts(b, f->chain, &f->text);
    write_i32(b, f->chain, "targets", f->targets, b->B * b->T);
    need(lf_decoder_write_turns(b->dec, b->ex, f->chain, &docs, &err));
    if (b->source)
        write_texts(b, f->chain, &f->source);
}

/* The classes of pictures are told on the host, between the passes. Returns the loss. */
static double tell_classes(struct bench *b, const struct feed *f)
{
    const int64_t n = b->c.classes.labels;
    const size_t bytes = (size_t)(b->B * n) * sizeof(float);
    double *share = room(n, sizeof *share), loss = 0;
    need(lf_exec_read(b->ex, f->chain, 0, "score", f->score, bytes, &err));
    for (int64_t i = 0; i < b->B; i++) {
        share[i % n] = 1;
        loss += lf_class_loss(f->score + i * n, share, n, 1 / (double)b->B, f->slope + i * n);
        share[i % n] = 0;
    }
    free(share);
    need(lf_exec_write(b->ex, f->chain, 0, "dscore", f->slope, bytes, &err));
    return loss;
}

static int64_t trained(const struct bench *b, const struct feed *f)
{
    int64_t n = f->sight ? b->B : 0;
    for (int64_t i = 0; !f->sight && i < b->B * b->T; i++)
        n += f->targets[i] >= 0;
    return n;
}

static void train(struct bench *b, enum lf_recompute recompute)
{
    struct feed f = {0};
    lf_graph *g = lf_model_classifies(&b->c) ? picture_graph(b, &f) : text_graph(b, &f);
    const int chain = f.chain =
        g ? lf_plan_add(b->plan, g, &(struct lf_chain_opts){.train = true, .recompute = recompute},
                        &err)
          : -1;
    need(chain);
    need(lf_plan_optimizer(
        b->plan,
        &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
        &err));
    bind(b);
    const float inv = f.sight ? 1 : 1 / (float)trained(b, &f);
    for (int s = -2; s < b->steps && (s < 0 || turn(b)); s++) {
        struct lf_step_record rec = {.step = (uint64_t)(s + 2),
                                     .lr = 1e-4f,
                                     .bias_corr1 = 0.5f,
                                     .bias_corr2 = 0.5f,
                                     .clip_norm = 1,
                                     .loss_scale = 1,
                                     .inv_tokens = inv};
        double peak =
            s >= 0 ? lf_cpu_fma_peak(lf_target_host()->isa, b->threads, b->compute == LF_BF16) : 0;
        double t0 = lf_now_s(), c0 = bench_cpu(), told = 0;
        write_feed(b, &f);
        need(lf_exec_record_write(b->ex, &rec, &err));
        need(lf_exec_run(b->ex, chain, LF_FWD, 0, LF_FIRST, &err));
        if (f.sight)
            told = tell_classes(b, &f);
        need(lf_exec_run(b->ex, chain, LF_BWD, 0, LF_FIRST, &err));
        need(lf_exec_run(b->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
        need(lf_exec_record_read(b->ex, &rec, &err));
        if (s >= 0) {
            b->seconds[s] = lf_now_s() - t0;
            b->ceiling[s] = peak;
            took(b, b->seconds[s], bench_cpu() - c0);
        } else if (!isfinite(rec.loss_sum + told)) {
            fprintf(stderr, "model_bench: the loss is not finite\n");
            exit(1);
        }
    }
    free_feed(&f);
}

/* Pages of a sequence. */
static int64_t pages_of(const struct bench *b)
{
    return (b->before + PROMPT + b->T + PAGE - 1) / PAGE;
}

static bool keeps_latents(const struct bench *b)
{
    return lf_decoder_keeps_latents(b->dec, b->ps, b->mode);
}

/* Bytes of a decoding step. */
struct decode_bytes {
    double weights, cache, state;
};
static struct decode_bytes decode_bytes_of(const struct bench *b, double states)
{
    const int64_t size = b->compute == LF_BF16 ? 2 : 4;
    int64_t token = 0;
    for (int64_t l = 0; l < b->c.layers; l++)
        if (lf_model_layer_attends(&b->c, l) && keeps_latents(b))
            token += b->c.kv_lora + b->c.rope_dim;
        else if (lf_model_layer_attends(&b->c, l))
            token += lf_model_layer_kv_heads(&b->c, l) *
                     (lf_model_layer_head_dim(&b->c, l) + lf_model_layer_value_dim(&b->c, l));
    return (struct decode_bytes){
        .weights = (double)(lf_model_matmul_params(&b->c) * size),
        .cache = (double)(b->B * token * size * (2 * b->before + PROMPT + b->T)) / 2,
        .state = states - (double)(b->B * pages_of(b) * PAGE * token * size)};
}

static int argmax(const float *z, int64_t n)
{
    int best = 0;
    for (int64_t i = 1; i < n; i++)
        if (z[i] > z[best])
            best = (int)i;
    return best;
}

/* One pass over positions BEFORE .. BEFORE + PROMPT + NEW: prompts go row by row through the same
 * bucket, only the later steps are timed. */
static void decode_once(struct bench *b, int chain, double *step_s, double *last)
{
    int64_t B = b->B, pages = pages_of(b);
    int32_t *tok = calloc((size_t)B, 4), *pos = calloc((size_t)B, 4), *seq = calloc((size_t)B, 4);
    int32_t *table = calloc((size_t)(B * pages), 4);
    need(tok && pos && seq && table ? 0 : -1);
    for (int32_t i = 0; i < B; i++)
        seq[i] = i;
    for (int32_t i = 0; i < B * pages; i++)
        table[i] = i;
    int n = 0;
    for (int32_t p = 0; p < PROMPT + b->T - 1; p++) {
        double t0 = lf_now_s();
        for (int64_t i = 0; i < B; i++) {
            pos[i] = (int32_t)b->before + p;
            if (p < PROMPT)
                tok[i] = (int32_t)(lf_rng_u32(2, (uint32_t)i, (uint64_t)p) % (uint32_t)b->c.vocab);
        }
        write_i32(b, chain, "tokens", tok, B);
        write_i32(b, chain, "positions", pos, B);
        write_i32(b, chain, "seq", seq, B);
        write_i32(b, chain, "select", seq, B);
        if (lf_model_attends(&b->c))
            write_i32(b, chain, "table", table, B * pages);
        need(lf_exec_run(b->ex, chain, LF_FWD, 0, LF_FIRST, &err));
        const float *z = lf_exec_host_ptr(b->ex, chain, 0, "logits");
        for (int64_t i = 0; i < B; i++)
            tok[i] = argmax(z + i * b->c.vocab, b->c.vocab);
        if (p >= PROMPT)
            step_s[n++] = lf_now_s() - t0;
    }
    *last = bench_median(step_s, n);
    free(tok), free(pos), free(seq), free(table);
}

static void decode(struct bench *b)
{
    int64_t pages = pages_of(b);
    struct lf_decoder_paged p = {.rows = b->B,
                                 .n_seq = b->B,
                                 .max_pages = pages,
                                 .n_pages = b->B * pages,
                                 .page_tokens = PAGE,
                                 .n_select = b->B,
                                 .cache = b->compute,
                                 .mode = b->mode,
                                 .latent = keeps_latents(b)};
    lf_graph *g = lf_decoder_paged_graph(b->dec, b->ps, "decode", &p, &err);
    int chain = g ? lf_plan_add(b->plan, g, &(struct lf_chain_opts){.packed = true}, &err) : -1;
    need(chain);
    bind(b);
    double *one = calloc((size_t)b->T + PROMPT, sizeof *one);
    void *block = lf_pages_alloc(READ_BYTES, &err);
    need(one && block ? 0 : -1);
    memset(block, 1, READ_BYTES);
    for (int s = -1; s < b->steps && (s < 0 || turn(b)); s++) {
        double bw = lf_cpu_read_rate(block, READ_BYTES, b->threads), c0 = bench_cpu(), m;
        decode_once(b, chain, one, &m);
        if (s >= 0) {
            b->seconds[s] = m;
            b->ceiling[s] = bw;
            took(b, m, bench_cpu() - c0);
        }
    }
    lf_pages_free(block, READ_BYTES);
    free(one);
}

/* "T", or "SOURCE+T". */
static void read_lengths(struct bench *b, const char *text)
{
    char *end;
    b->T = strtol(text, &end, 10);
    if (*end == '+') {
        b->source = b->T;
        b->T = strtol(end + 1, NULL, 10);
    }
}

/* Are the FLOPs of a step those of a decoder? */
static bool counts_flops(const struct bench *b)
{
    return !lf_model_classifies(&b->c) && !b->source && b->c.mask != LF_MASK_BOTH;
}

int main(int argc, char **argv)
{
    if (argc < 9) {
        fprintf(stderr, "usage: model_bench train|decode MODEL.ini B [SOURCE+]T f32|bf16 "
                        "fast|invariant STEPS THREADS [none|selective|full|BEFORE]\n");
        return 2;
    }
    struct bench b = {.B = strtol(argv[3], NULL, 10),
                      .compute = strcmp(argv[5], "bf16") ? LF_F32 : LF_BF16,
                      .mode = strcmp(argv[6], "fast") ? LF_INVARIANT : LF_FAST,
                      .turns = getenv("LF_BENCH_TURNS") != NULL,
                      .steps = (int)strtol(argv[7], NULL, 10),
                      .threads = (int)strtol(argv[8], NULL, 10)};
    bool training = strcmp(argv[1], "train") == 0;
    read_lengths(&b, argv[4]);
    b.before = argc > 9 && !training ? strtol(argv[9], NULL, 10) : 0;
    if (b.B < 1 || b.T < 2 || (b.source && !training) || b.steps < 1 || b.steps > MAX_STEPS ||
        b.threads < 1 || b.before < 0)
        return 2;
    const int64_t longest = b.source > b.T ? b.source : b.T;
    open_model(&b, argv[2], training ? longest : b.before + PROMPT + b.T);
    enum lf_recompute rc = argc > 9 && !strcmp(argv[9], "full")        ? LF_RECOMPUTE_FULL
                           : argc > 9 && !strcmp(argv[9], "selective") ? LF_RECOMPUTE_SELECTIVE
                                                                       : LF_RECOMPUTE_NONE;
    if (training)
        train(&b, rc);
    else
        decode(&b);
    struct lf_plan_bytes by;
    lf_plan_bytes(b.plan, &by);
    double med = bench_median(b.seconds, b.steps), ceiling = bench_median(b.ceiling, b.steps),
           share;
    const struct decode_bytes read = decode_bytes_of(&b, training ? 0 : (double)by.state);
    if (training && !counts_flops(&b))
        share = 0;
    else if (training)
        share =
            lf_model_train_flops_per_token(&b.c, b.T, true) * (double)(b.B * b.T) / med / ceiling;
    else
        share = (read.weights + read.cache + read.state) / med / ceiling;
    printf("{\"ours\":\"%s\",\"what\":\"%s\",\"model\":\"%s\",\"B\":%lld,\"T\":%lld,\"precision\":"
           "\"%s\",\"kernels\":\"%s\",\"median_s\":%.6f,\"tokens_per_s\":%.2f,"
           "\"ceiling\":%.4g,\"share\":%.4f,\"plan_bytes\":%zu,\"rss\":%lld,"
           "\"weights\":%.0f,\"cache\":%.0f,\"state\":%.0f}\n",
           argv[6], argv[1], argv[2], (long long)b.B, (long long)b.T, argv[5],
           lf_cpu_isa_name(lf_target_host()->isa), med, (double)(training ? b.B * b.T : b.B) / med,
           ceiling, share, by.total, (long long)lf_rss_peak_bytes(), read.weights,
           training ? 0 : read.cache, training ? 0 : read.state);
    if (b.profile) {
        lf_buf text;
        lf_buf_init(&text);
        need(lf_profile_text(b.profile, &text, &err));
        fputs(text.data, stderr);
        lf_buf_fini(&text);
    }
    lf_exec_destroy(b.ex);
    lf_profile_destroy(b.profile);
    lf_back_destroy(b.back);
    lf_plan_destroy(b.plan);
    lf_pstore_destroy(b.ps);
    lf_decoder_destroy(b.dec);
    return 0;
}
