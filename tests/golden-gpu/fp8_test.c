/* SPDX-License-Identifier: Apache-2.0
 *
 * Loss curves of 8-bit products against bf16, from the same weights and batches: bytes of this
 * program's own sources. The CPU computes what a GPU would but for the order of sums. In make check
 * 120 steps on the CPU, and five on the emulated GPU against the CPU; with LF_REQUIRE_GPU=1 2,000
 * steps of 12 seeds on GPU 0. LF_FP8_STEPS and LF_FP8_SEEDS set the numbers.
 *
 * Bounds: 0.01 nat above bf16 in the mean of the last quarter of 2,000 steps is what is asked of
 * fp8; earlier the curves fall faster than that a step, and 0.02 allows for a lag of a few.
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

/* A text that nobody edits for a short run, since how far two runs end apart is luck, which another
 * text changes; the sources of the engine for a long one, whose mean it is not. */
static size_t read_text(unsigned char *text, bool much)
{
    char path[4096];
    glob_t files = {0};
    size_t n = 0;
    if (glob(source(path, sizeof path, much ? "engine/*/*.c" : "LICENSE"), 0, NULL, &files))
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

/* Mean of n differences, and its standard error (0: of one). */
static double mean_of(const double *d, int n, double *error)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += d[i] / n;
    for (int i = 0; i < n; i++)
        squares += (d[i] - sum) * (d[i] - sum);
    *error = n > 1 ? sqrt(squares / (n - 1) / n) : 0;
    return sum;
}

static double *runs(bool cuda, enum lf_fp8 fp8, const char *name, const struct size *z, int seeds,
                    double *first)
{
    double *last = malloc((size_t)seeds * sizeof *last);
    lf_model_config c;
    if (!last)
        tap_bail("no memory");
    load(&c, "tests/golden-gpu/fp8-llama.ini");
    for (int seed = 1; seed <= seeds; seed++) {
        struct job j = {
            .cuda = cuda, .compute = LF_BF16, .fp8 = fp8, .seed = (uint64_t)seed, .to = z->steps};
        last[seed - 1] = run(&j, &c, z);
        *first = j.loss[0];
        tap_diag("%s, seed %d: loss %.4f at first, %.5f in the last quarter of %d steps", name,
                 seed, *first, last[seed - 1], z->steps);
    }
    return last;
}

/* Two runs from the same weights, one of which rounds otherwise, end some 0.02 nat apart whatever
 * it is that rounds: so a mean of several, which may be above the bound by twice its own error. */
static void test_text(bool cuda, int steps, int seeds)
{
    static const char *const names[] = {"bf16", "fp8, scales of tensors", "fp8, scales of blocks"};
    static unsigned char text[TEXT];
    const struct size z = {
        "fp8", steps, 4, 64, 1, 1e-3f, true, text, read_text(text, steps >= LONG)};
    const double bound = steps < LONG ? 0.02 : 0.01;
    double first = 0, lowest = 0, *base = runs(cuda, LF_FP8_OFF, names[0], &z, seeds, &first);
    for (int i = 0; i < seeds; i++)
        lowest = i == 0 || base[i] < lowest ? base[i] : lowest;
    for (int fp8 = LF_FP8_TENSORS; fp8 <= LF_FP8_BLOCKS; fp8++) {
        if (cuda && fp8 == LF_FP8_BLOCKS && golden_cuda_target()->sm != 90) {
            tap_skip(1, "scales of blocks are for sm_90");
            continue;
        }
        double error, *d = runs(cuda, (enum lf_fp8)fp8, names[fp8], &z, seeds, &first);
        bool moved = false;
        for (int i = 0; i < seeds; i++) {
            d[i] -= base[i];
            moved = moved || d[i] < 0 || d[i] > 0;
        }
        const double mean = mean_of(d, seeds, &error);
        tap_ok(mean <= bound + 2 * error && moved,
               "%s: %+.5f (%.5f) nat from bf16, mean of %d and its error, at most %.2f", names[fp8],
               mean, error, seeds, bound);
        free(d);
    }
    free(base);
    tap_ok(lowest < first - 1, "and there was something to learn");
}

static void test_emulated(void)
{
    const struct size z = {"micro", 5, 2, 16, 2, 1e-2f, false, NULL, 0};
    struct job cpu = {.compute = LF_BF16, .fp8 = LF_FP8_TENSORS, .seed = 1, .to = z.steps}, a = cpu,
               b, half;
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
        worst = tap_worse(worst, fabs(cpu.loss[s] - a.loss[s]));
    tap_ok(worst < 5e-3 && memcmp(cpu.end, a.end, a.bytes) != 0,
           "CUDA and the CPU in fp8: losses at most %.2g apart", worst);
    tap_ok(curve_same_bits(&a, &b, 2), "stopped after two steps and gone on, the same bits");
    free(cpu.end), free(a.end), free(b.end), free(half.end);
}

int main(void)
{
    const char *want = getenv("LF_FP8_STEPS"), *many = getenv("LF_FP8_SEEDS");
    const bool gpu = golden_on_gpu();
    const int steps = want  ? atoi(want)
                      : gpu ? LONG
                            : 120,
              seeds = many  ? atoi(many)
                      : gpu ? 12
                            : 1;
    if (steps < 4 || steps > MAX_STEPS)
        tap_bail("LF_FP8_STEPS=%s: 4 to %d", want, (int)MAX_STEPS);
    if (seeds < 1)
        tap_bail("LF_FP8_SEEDS=%s: 1 or more", many);
    if (!golden_has_blaslt())
        tap_skip_all("no cuBLASLt was found (LF_CUBLASLT names it)");
    TAP(3, test_text(gpu, steps, seeds));
    if (!gpu)
        TAP(2, test_emulated());
    return tap_done();
}
