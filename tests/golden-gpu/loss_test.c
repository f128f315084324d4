/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss curves of the CPU and of CUDA from the same weights and tokens. f32 (no TF32): every step within 1e-4; bf16: the mean of the
 * last quarter within the spread of the CPU's between seeds. Two CUDA runs give the same bits, and so does one that is stopped half way
 * and goes on in a new executor from masters and moments.
 *
 * With LF_REQUIRE_GPU=1 on GPU 0: 200 steps of 4,096 tokens of two models of about a million weights. Otherwise on the emulator: 5 steps of
 * 64 tokens of the smallest ones, which shows that the whole path works.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "tests/golden-gpu/device.h"
#include "tests/tap/tap.h"

enum { MAX_STEPS = 200, SEEDS = 3, MAX_ROWS = 1024, KINDS = 3 };
static const enum lf_pkind kinds[KINDS] = {LF_P_MASTER, LF_P_M, LF_P_V};

struct size {
    const char *ini; /* INI-llama.ini and so on, below LF_SRCDIR/tests/golden-gpu */
    int steps, docs, length, micro; /* micro-batches of a step, documents and tokens of one */
    float lr;
};

/* One training from step `from` to `to`. */
struct job {
    bool cuda;
    enum lf_dtype compute;
    uint64_t seed;
    int from, to;
    const char *begin; /* masters and moments to begin with; NULL: initial ones */
    double loss[MAX_STEPS];
    char *end; /* masters and moments at the end; free() */
    size_t bytes;
};

struct rig {
    lf_decoder *dec;
    lf_pstore *ps;
    lf_plan *plan;
    lf_back *back;
    lf_exec *ex;
    int chain;
};

static lf_err err = LF_ERR_INIT;
#define MUST(x)                                                                                                        \
    do                                                                                                                 \
        if ((x) < 0)                                                                                                   \
            tap_bail("%s: %s", #x, err.text);                                                                          \
    while (0)

static void open_rig(struct rig *r, const lf_model_config *c, const struct size *z, const struct job *j)
{
    const struct lf_target *target = j->cuda ? golden_cuda_target() : lf_target_host();
    const struct lf_plan_opts po = {.target = target, .threads = 1, .compute = j->compute, .mode = LF_FAST};
    const struct lf_decoder_rows rows = {.rows = (int64_t)z->docs * z->length, .n_docs = z->docs, .max_doc = z->length};
    *r = (struct rig){0};
    MUST((r->dec = lf_decoder_create(c, z->length, &err)) ? 0 : -1);
    MUST((r->ps = lf_pstore_create(&err)) ? lf_decoder_declare(r->dec, r->ps, &err) : -1);
    MUST((r->plan = lf_plan_create(r->ps, &po, &err)) ? 0 : -1);
    lf_graph *g = lf_decoder_loss_graph(r->dec, r->ps, "train", &rows, true, &err);
    MUST(g ? r->chain = lf_plan_add(r->plan, g, &(struct lf_chain_opts){.train = true}, &err) : -1);
    lf_graph_destroy(g);
    MUST(lf_plan_optimizer(r->plan, &(struct lf_adamw_opts){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f}, &err));
    MUST(lf_plan_finish(r->plan, &err));
    r->back = j->cuda ? golden_cuda_back(&err) : lf_back_cpu_create(target->isa, 1, &err);
    MUST(r->back ? 0 : -1);
    MUST((r->ex = lf_exec_create(r->plan, r->back, NULL, &err)) ? lf_pstore_init(r->ps, j->seed, &err) : -1);
}

static void close_rig(struct rig *r)
{
    lf_exec_destroy(r->ex);
    lf_back_destroy(r->back);
    lf_plan_destroy(r->plan);
    lf_pstore_destroy(r->ps);
    lf_decoder_destroy(r->dec);
}

/* Masters and moments of every tensor, one after another: out of the store, or into it. */
static size_t state(const struct rig *r, char *out, const char *in)
{
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(r->ps); i++)
        for (int k = 0; k < KINDS; k++) {
            struct lf_pview v;
            if (lf_pstore_view(r->ps, i, kinds[k], &v) != 1)
                tap_bail("a tensor has no masters or moments");
            if (out)
                MUST(lf_pstore_read(r->ps, i, kinds[k], out + at, v.bytes, &err));
            if (in && kinds[k] == LF_P_MASTER)
                MUST(lf_pstore_write(r->ps, i, LF_F32, in + at, &err));
            else if (in)
                MUST(lf_pstore_write_kind(r->ps, i, kinds[k], LF_F32, in + at, &err));
            at += v.bytes;
        }
    return at;
}

/* Tokens with something to learn: mostly a fixed function of the one before. */
static void feed(const struct rig *r, const lf_model_config *c, const struct size *z, uint64_t seed, int64_t batch)
{
    static int32_t tok[MAX_ROWS], tgt[MAX_ROWS], pos[MAX_ROWS], cu[64];
    const int32_t rows = z->docs * z->length, V = (int32_t)c->vocab;
    for (int32_t i = 0; i < rows; i++) {
        const uint32_t u = lf_rng_u32(seed, 9, (uint64_t)(batch * rows + i));
        tok[i] = i % z->length == 0 || u % 4 == 0 ? (int32_t)(u / 4 % (uint32_t)V) : (tok[i - 1] * 5 + 3) % V;
        pos[i] = i % z->length;
    }
    for (int32_t i = 0; i < rows; i++)
        tgt[i] = pos[i] + 1 < z->length ? tok[i + 1] : -1;
    for (int d = 0; d <= z->docs; d++)
        cu[d] = d * z->length;
    MUST(lf_exec_write(r->ex, r->chain, 0, "tokens", tok, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "targets", tgt, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "positions", pos, (size_t)rows * 4, &err));
    MUST(lf_exec_write(r->ex, r->chain, 0, "cu_seqlens", cu, (size_t)(z->docs + 1) * 4, &err));
}

static double step(const struct rig *r, const lf_model_config *c, const struct size *z, uint64_t seed, int s)
{
    const double trained = (double)(z->docs * (z->length - 1) * z->micro);
    struct lf_step_record rec = {.step = (uint64_t)s,
                                 .lr = z->lr * (s < 10 ? (float)(s + 1) / 10 : 1),
                                 .bias_corr1 = (float)(1 - pow(0.9, s + 1)),
                                 .bias_corr2 = (float)(1 - pow(0.95, s + 1)),
                                 .clip_norm = 1,
                                 .loss_scale = 1,
                                 .inv_tokens = (float)(1 / trained)};
    MUST(lf_exec_record_write(r->ex, &rec, &err));
    for (int m = 0; m < z->micro; m++) {
        feed(r, c, z, seed, (int64_t)s * z->micro + m);
        MUST(lf_exec_run(r->ex, r->chain, LF_FWD, 0, m ? LF_ACCUM : LF_FIRST, &err));
        MUST(lf_exec_run(r->ex, r->chain, LF_BWD, 0, m ? LF_ACCUM : LF_FIRST, &err));
    }
    MUST(lf_exec_run(r->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
    MUST(lf_exec_record_read(r->ex, &rec, &err));
    if (rec.skip || (double)rec.tokens != trained)
        tap_bail("step %d: skipped, or %lld trained tokens instead of %.0f", s, (long long)rec.tokens, trained);
    return rec.loss_sum / trained;
}

static void train(struct job *j, const lf_model_config *c, const struct size *z)
{
    struct rig r;
    open_rig(&r, c, z, j);
    if (j->begin)
        state(&r, NULL, j->begin);
    for (int s = j->from; s < j->to; s++)
        j->loss[s] = step(&r, c, z, j->seed, s);
    j->bytes = state(&r, NULL, NULL);
    if (!(j->end = malloc(j->bytes)))
        tap_bail("no memory");
    state(&r, j->end, NULL);
    close_rig(&r);
}

static double last_quarter(const struct job *j)
{
    const int n = j->to / 4 > 0 ? j->to / 4 : 1;
    double sum = 0;
    for (int s = j->to - n; s < j->to; s++)
        sum += j->loss[s];
    return sum / n;
}

static bool same_bits(const struct job *a, const struct job *b, int from)
{
    return a->bytes == b->bytes && memcmp(a->end, b->end, a->bytes) == 0 &&
           memcmp(a->loss + from, b->loss + from, (size_t)(a->to - from) * sizeof a->loss[0]) == 0;
}

static void test_f32(const char *name, const lf_model_config *c, const struct size *z)
{
    struct job cpu = {.seed = 1, .to = z->steps}, gpu = {.cuda = true, .seed = 1, .to = z->steps};
    double worst = 0;
    train(&cpu, c, z);
    train(&gpu, c, z);
    for (int s = 0; s < z->steps; s++)
        worst = fmax(worst, fabs(cpu.loss[s] - gpu.loss[s]));
    tap_ok(worst <= 1e-4, "%s, f32: %d steps, CPU %.6f, CUDA %.6f at the end, at most %.2g apart", name, z->steps, cpu.loss[z->steps - 1],
           gpu.loss[z->steps - 1], worst);
    tap_ok(memcmp(cpu.end, gpu.end, cpu.bytes) != 0 && gpu.loss[z->steps - 1] < gpu.loss[0] - (z->steps > 50 ? 0.5 : 0),
           "%s, f32: two different programs, and they learn: %.4f at first", name, gpu.loss[0]);
    free(cpu.end);
    free(gpu.end);
}

static void test_bits(const char *name, const lf_model_config *c, const struct size *z, enum lf_dtype compute)
{
    const char *type = compute == LF_BF16 ? "bf16" : "f32";
    const int half = z->steps / 2;
    struct job a = {.cuda = true, .compute = compute, .seed = 2, .to = z->steps}, b = a;
    struct job front = {.cuda = true, .compute = compute, .seed = 2, .to = half};
    train(&a, c, z);
    train(&b, c, z);
    tap_ok(same_bits(&a, &b, 0), "%s, %s: two CUDA runs, the same bits of losses, weights and moments", name, type);
    train(&front, c, z);
    struct job back = {.cuda = true, .compute = compute, .seed = 2, .from = half, .to = z->steps, .begin = front.end};
    train(&back, c, z);
    tap_ok(same_bits(&a, &back, half), "%s, %s: stopped after %d steps and gone on, the same bits", name, type, half);
    struct job other = {.cuda = true, .compute = compute, .seed = 2, .from = half, .to = z->steps, .begin = a.end};
    train(&other, c, z);
    tap_ok(!same_bits(&a, &other, half), "%s, %s: (from other weights they differ)", name, type);
    free(a.end), free(b.end), free(front.end), free(back.end), free(other.end);
}

static void test_bf16(const char *name, const lf_model_config *c, const struct size *z)
{
    double least = INFINITY, most = -INFINITY, ours = 0, theirs = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job cpu = {.compute = LF_BF16, .seed = seed, .to = z->steps};
        train(&cpu, c, z);
        const double q = last_quarter(&cpu);
        theirs = seed == 1 ? q : theirs;
        least = fmin(least, q);
        most = fmax(most, q);
        free(cpu.end);
    }
    struct job gpu = {.cuda = true, .compute = LF_BF16, .seed = 1, .to = z->steps};
    train(&gpu, c, z);
    ours = last_quarter(&gpu);
    tap_ok(fabs(ours - theirs) <= most - least && most > least, "%s, bf16: last quarter CPU %.5f, CUDA %.5f; seeds spread by %.2g", name,
           theirs, ours, most - least);
    free(gpu.end);
}

int main(int argc, char **argv)
{
    static const char *const families[] = {"llama", "gpt2"};
    const char *src = getenv("LF_SRCDIR");
    const bool gpu = golden_on_gpu();
    const struct size z = gpu ? (struct size){"small", 200, 4, 256, 4, 1e-3f} : (struct size){"micro", 5, 2, 16, 2, 1e-2f};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        lf_model_config c;
        char path[4096];
        if (argc > 1 && strcmp(argv[1], families[i]) != 0)
            continue;
        snprintf(path, sizeof path, "%s/tests/golden-gpu/%s-%s.ini", src ? src : ".", z.ini, families[i]);
        MUST(lf_model_config_load(&c, path, &err));
        test_f32(families[i], &c, &z);
        test_bf16(families[i], &c, &z);
        test_bits(families[i], &c, &z, LF_F32);
        if (gpu)
            test_bits(families[i], &c, &z, LF_BF16);
    }
    return tap_done();
}
