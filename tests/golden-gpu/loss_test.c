/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss curves of the CPU and of CUDA from the same weights and tokens. f32 (no TF32): every step
 * within 1e-4; bf16: the mean of the last quarter within the spread of the CPU's between seeds, and
 * in few steps every one within 2e-3. Two CUDA runs give the same bits, and so does one that is
 * stopped half way and goes on in a new executor from masters and moments.
 *
 * With LF_REQUIRE_GPU=1 on GPU 0: 200 steps of 4,096 tokens of two models of about a million
 * weights. Otherwise on the emulator: 5 steps of 64 tokens of the smallest ones, which shows that
 * the whole path works.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden-gpu/curve.h"

enum { SEEDS = 3, FEW = 10 /* steps in which curves do not yet part */ };
static lf_err err = LF_ERR_INIT;

/* The largest distance of two curves. */
static double apart(const struct job *a, const struct job *b)
{
    double worst = 0;
    for (int s = 0; s < a->to; s++)
        worst = tap_worse(worst, fabs(a->loss[s] - b->loss[s]));
    return worst;
}

static void test_f32(const char *name, const lf_model_config *c, const struct size *z)
{
    struct job cpu = {.seed = 1, .to = z->steps}, gpu = {.cuda = true, .seed = 1, .to = z->steps};
    struct size faster = *z;
    struct job other = gpu;
    faster.lr *= 1.01f;
    curve_train(&cpu, c, z);
    curve_train(&gpu, c, z);
    curve_train(&other, c, &faster);
    tap_ok(apart(&cpu, &gpu) <= 1e-4,
           "%s, f32: %d steps, CPU %.6f, CUDA %.6f at the end, at most %.2g apart", name, z->steps,
           cpu.loss[z->steps - 1], gpu.loss[z->steps - 1], apart(&cpu, &gpu));
    tap_ok(apart(&cpu, &other) > 1e-4, "%s, f32: (with a learning rate a hundredth larger %.2g)",
           name, apart(&cpu, &other));
    tap_ok(memcmp(cpu.end, gpu.end, cpu.bytes) != 0 &&
               gpu.loss[z->steps - 1] < gpu.loss[0] - (z->steps > 50 ? 0.5 : 0),
           "%s, f32: two different programs, and they learn: %.4f at first", name, gpu.loss[0]);
    free(cpu.end);
    free(gpu.end);
    free(other.end);
}

static void test_bits(const char *name, const lf_model_config *c, const struct size *z,
                      enum lf_dtype compute)
{
    const char *type = compute == LF_BF16 ? "bf16" : "f32";
    const int half = z->steps / 2;
    struct job a = {.cuda = true, .compute = compute, .seed = 2, .to = z->steps}, b = a;
    struct job front = {.cuda = true, .compute = compute, .seed = 2, .to = half};
    curve_train(&a, c, z);
    curve_train(&b, c, z);
    tap_ok(curve_same_bits(&a, &b, 0),
           "%s, %s: two CUDA runs, the same bits of losses, weights and moments", name, type);
    curve_train(&front, c, z);
    struct job back = {.cuda = true,
                       .compute = compute,
                       .seed = 2,
                       .from = half,
                       .to = z->steps,
                       .begin = front.end};
    curve_train(&back, c, z);
    tap_ok(curve_same_bits(&a, &back, half),
           "%s, %s: stopped after %d steps and gone on, the same bits", name, type, half);
    struct job other = {
        .cuda = true, .compute = compute, .seed = 2, .from = half, .to = z->steps, .begin = a.end};
    curve_train(&other, c, z);
    tap_ok(!curve_same_bits(&a, &other, half), "%s, %s: (from other weights they differ)", name,
           type);
    free(a.end), free(b.end), free(front.end), free(back.end), free(other.end);
}

static void test_bf16(const char *name, const lf_model_config *c, const struct size *z)
{
    static struct job cpu[SEEDS];
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < SEEDS; i++) {
        cpu[i] = (struct job){.compute = LF_BF16, .seed = (uint64_t)i + 1, .to = z->steps};
        curve_train(&cpu[i], c, z);
        least = fmin(least, curve_last_quarter(&cpu[i]));
        most = tap_worse(most, curve_last_quarter(&cpu[i]));
        free(cpu[i].end);
    }
    struct job gpu = {.cuda = true, .compute = LF_BF16, .seed = 1, .to = z->steps};
    curve_train(&gpu, c, z);
    const double theirs = curve_last_quarter(&cpu[0]), ours = curve_last_quarter(&gpu);
    tap_ok(fabs(ours - theirs) <= most - least && most > least,
           "%s, bf16: last quarter CPU %.5f, CUDA %.5f; seeds spread by %.2g", name, theirs, ours,
           most - least);
    if (z->steps <= FEW)
        tap_ok(apart(&cpu[0], &gpu) <= 2e-3 && apart(&cpu[1], &gpu) > 2e-3,
               "%s, bf16: in %d steps at most %.2g apart (another seed: %.2g)", name, z->steps,
               apart(&cpu[0], &gpu), apart(&cpu[1], &gpu));
    free(gpu.end);
}

int main(int argc, char **argv)
{
    static const char *const families[] = {"llama", "gpt2"};
    const char *src = getenv("LF_SRCDIR");
    const bool gpu = golden_on_gpu();
    const struct size z = gpu ? (struct size){"small", 200, 4, 256, 4, 1e-3f, false, NULL, 0}
                              : (struct size){"micro", 5, 2, 16, 2, 1e-2f, false, NULL, 0};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        lf_model_config c;
        char path[4096];
        if (argc > 1 && strcmp(argv[1], families[i]) != 0)
            continue;
        snprintf(path, sizeof path, "%s/tests/golden-gpu/%s-%s.ini", src ? src : ".", z.ini,
                 families[i]);
        if (lf_model_config_load(&c, path, &err))
            tap_bail("%s", err.text);
        TAP(3, test_f32(families[i], &c, &z));
        TAP(z.steps <= FEW ? 2 : 1, test_bf16(families[i], &c, &z));
        TAP(3, test_bits(families[i], &c, &z, LF_F32));
        TAP(3, test_bits(families[i], &c, &z, LF_BF16));
    }
    return tap_done();
}
