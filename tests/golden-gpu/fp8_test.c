/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss curves of 8-bit products against bf16, from the same weights and batches: bytes of this program's own sources.
 * The CPU computes what a GPU would but for the order of sums. In make check 120 steps on the CPU, and five on the
 * emulated GPU against the CPU; with LF_REQUIRE_GPU=1 2,000 steps of 4 seeds on GPU 0. LF_FP8_STEPS and LF_FP8_SEEDS
 * set the numbers.
 *
 * Bounds: 0.01 nat in the mean of the last quarter of 2,000 steps is what is asked of fp8; earlier the curves fall
 * faster than that a step, and 0.02 allows for a lag of a few.
 */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden-gpu/curve.h"

enum { TEXT = 1 << 20, LONG = 2000 };

static lf_err err = LF_ERR_INIT;

static const char *source(char *path, size_t cap, const char *name)
{
    const char *src = getenv("LF_SRCDIR");
    snprintf(path, cap, "%s/%s", src ? src : ".", name);
    return path;
}

static size_t read_text(unsigned char *text)
{
    char path[4096];
    glob_t files = {0};
    size_t n = 0;
    if (glob(source(path, sizeof path, "engine/*/*.c"), 0, NULL, &files))
        tap_bail("%s: nothing to read", path);
    for (size_t i = 0; i < files.gl_pathc && n < TEXT; i++) {
        FILE *f = fopen(files.gl_pathv[i], "rb");
        n += f ? fread(text + n, 1, TEXT - n, f) : 0;
        if (f)
            fclose(f);
    }
    globfree(&files);
    return n;
}

static void load(lf_model_config *c, const char *ini)
{
    char path[4096];
    if (lf_model_config_load(c, source(path, sizeof path, ini), &err))
        tap_bail("%s", err.text);
}

static double run(struct job *j, const lf_model_config *c, const struct size *z)
{
    curve_train(j, c, z);
    free(j->end);
    return curve_last_quarter(j);
}

/* The mean over `seeds` of the last quarter's loss: what rounding does to one run is as large as what fp8 costs. */
static void test_text(bool cuda, int steps, int seeds)
{
    static const char *const names[] = {"bf16", "fp8, scales of tensors", "fp8, scales of blocks"};
    static unsigned char text[TEXT];
    const struct size z = {"fp8", steps, 4, 64, 1, 1e-3f, true, text, read_text(text)};
    const double bound = steps < LONG ? 0.02 : 0.01;
    lf_model_config c;
    double last[3] = {0}, first = 0;
    load(&c, "tests/golden-gpu/fp8-llama.ini");
    for (int fp8 = LF_FP8_OFF; fp8 <= LF_FP8_BLOCKS; fp8++) {
        if (cuda && fp8 == LF_FP8_BLOCKS && golden_cuda_target()->sm != 90) {
            tap_skip(1, "scales of blocks are for sm_90");
            continue;
        }
        for (int seed = 1; seed <= seeds; seed++) {
            struct job j = {
                .cuda = cuda, .compute = LF_BF16, .fp8 = (enum lf_fp8)fp8, .seed = (uint64_t)seed, .to = steps};
            const double one = run(&j, &c, &z);
            last[fp8] += one / seeds;
            first = j.loss[0];
            tap_diag("%s, seed %d: loss %.4f at first, %.5f in the last quarter of %d steps", names[fp8], seed, first,
                     one, steps);
        }
        if (fp8)
            tap_ok(fabs(last[fp8] - last[0]) <= bound && memcmp(&last[fp8], &last[0], sizeof last[0]) != 0,
                   "%s: %+.5f nat from bf16 (mean of %d), at most %.2f", names[fp8], last[fp8] - last[0], seeds, bound);
    }
    tap_ok(last[0] < first - 1, "and there was something to learn");
}

static void test_emulated(void)
{
    const struct size z = {"micro", 5, 2, 16, 2, 1e-2f, false, NULL, 0};
    struct job cpu = {.compute = LF_BF16, .fp8 = LF_FP8_TENSORS, .seed = 1, .to = z.steps}, a = cpu, b, half;
    lf_model_config c;
    double worst = 0;
    load(&c, "tests/golden-gpu/micro-llama.ini");
    a.cuda = true;
    half = b = a;
    half.to = 2;
    curve_train(&cpu, &c, &z);
    curve_train(&a, &c, &z);
    curve_train(&half, &c, &z);
    b.from = 2;
    b.begin = half.end;
    curve_train(&b, &c, &z);
    for (int s = 0; s < z.steps; s++)
        worst = fmax(worst, fabs(cpu.loss[s] - a.loss[s]));
    tap_ok(worst < 5e-3 && memcmp(cpu.end, a.end, a.bytes) != 0, "CUDA and the CPU in fp8: losses at most %.2g apart",
           worst);
    tap_ok(curve_same_bits(&a, &b, 2), "stopped after two steps and gone on, the same bits");
    free(cpu.end), free(a.end), free(b.end), free(half.end);
}

int main(void)
{
    const char *want = getenv("LF_FP8_STEPS"), *many = getenv("LF_FP8_SEEDS");
    const bool gpu = golden_on_gpu();
    const int steps = want ? atoi(want) : gpu ? LONG : 120, seeds = many ? atoi(many) : gpu ? 4 : 1;
    if (steps < 4 || steps > MAX_STEPS)
        tap_bail("LF_FP8_STEPS=%s: 4 to %d", want, (int)MAX_STEPS);
    if (seeds < 1)
        tap_bail("LF_FP8_SEEDS=%s: 1 or more", many);
    if (!golden_has_blaslt())
        tap_skip_all("no cuBLASLt was found (LOONG_CUBLASLT names it)");
    test_text(gpu, steps, seeds);
    if (!gpu)
        test_emulated();
    return tap_done();
}
