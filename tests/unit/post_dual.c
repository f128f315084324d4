/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses over pictures and texts: values by their formulas, derivatives against finite differences,
 * groups, several blocks, threads that change no bit, and vectors that are none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/post/dual_loss.h"
#include "tests/tap/tap.h"

enum { N = 5, WIDTH = 3, MANY = 800 };

struct numbers {
    double x[2][MANY * WIDTH], d[2][MANY * WIDTH], loss[MANY], by[2][MANY];
    bool right[2][MANY];
};

static void fill(struct numbers *q, int n)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n * WIDTH; i++)
            q->x[k][i] = (double)lf_rng_normal(7, (uint32_t)k, (uint64_t)i);
}

static struct lf_dual_loss of(const struct numbers *q, enum lf_dual_kind kind, size_t n)
{
    return (struct lf_dual_loss){.kind = kind,
                                 .width = WIDTH,
                                 .n = n,
                                 .image = q->x[0],
                                 .text = q->x[1],
                                 .scale = 1.25,
                                 .bias = kind == LF_DUAL_SIGLIP ? -0.75 : 0};
}

/* The sum of all losses. */
static double run(const struct lf_dual_loss *d, struct numbers *q, bool slopes)
{
    lf_err err = LF_ERR_INIT;
    double sum = 0;
    memset(q->d, 0, sizeof q->d);
    if (lf_dual_loss(d,
                     &(struct lf_dual_out){.loss = q->loss,
                                           .right = {q->right[0], q->right[1]},
                                           .dimage = slopes ? q->d[0] : NULL,
                                           .dtext = q->d[1],
                                           .dscale = q->by[0],
                                           .dbias = q->by[1]},
                     &err) != 0)
        tap_bail("%s", err.text);
    for (size_t i = 0; i < d->n; i++)
        sum += q->loss[i];
    return sum;
}

/* The number of picture i and text j, by its formula. */
static double z_of(const struct lf_dual_loss *d, size_t i, size_t j)
{
    const double *a = d->image + i * WIDTH, *b = d->text + j * WIDTH;
    double ab = 0, aa = 0, bb = 0;
    for (int c = 0; c < WIDTH; c++) {
        ab += a[c] * b[c];
        aa += a[c] * a[c];
        bb += b[c] * b[c];
    }
    return exp(d->scale) * ab / sqrt(aa * bb) + d->bias;
}

/* L_i as dual_loss.h has it, among pairs [first, last). */
static double by_formula(const struct lf_dual_loss *d, size_t i, size_t first, size_t last)
{
    double row = 0, column = 0, loss = 0;
    for (size_t j = first; j < last; j++) {
        row += exp(z_of(d, i, j));
        column += exp(z_of(d, j, i));
        loss += log(1 + exp(i == j ? -z_of(d, i, j) : z_of(d, i, j)));
    }
    return d->kind == LF_DUAL_SIGLIP ? loss : (log(row) + log(column)) / 2 - z_of(d, i, i);
}

static void test_values(struct numbers *q, enum lf_dual_kind kind)
{
    struct lf_dual_loss d = of(q, kind, N);
    double worst = 0;
    run(&d, q, false);
    for (size_t i = 0; i < N; i++)
        worst = tap_worse(worst, fabs(q->loss[i] - by_formula(&d, i, 0, N)));
    tap_ok(worst < 1e-12, "losses are those of the formula: %.2g", worst);
    d.group = 2;
    run(&d, q, false);
    worst = 0;
    for (size_t i = 0; i < N; i++)
        worst = tap_worse(
            worst,
            fabs(q->loss[i] - by_formula(&d, i, i / 2 * 2, i / 2 * 2 + 2 < N ? i / 2 * 2 + 2 : N)));
    tap_ok(worst < 1e-12, "in groups of two: %.2g", worst);
}

static void test_slopes(struct numbers *q, enum lf_dual_kind kind)
{
    const double e = 1e-5;
    struct lf_dual_loss d = of(q, kind, N);
    struct numbers *other = malloc(sizeof *other);
    double worst = 0, by[2] = {0};
    if (!other)
        tap_bail("no memory");
    run(&d, q, true);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N * WIDTH; i++) {
            const double is = q->x[k][i];
            q->x[k][i] = is + e;
            const double up = run(&d, other, false);
            q->x[k][i] = is - e;
            const double down = run(&d, other, false);
            q->x[k][i] = is;
            worst = tap_worse(worst, fabs((up - down) / (2 * e) - q->d[k][i]));
        }
    tap_ok(worst < 1e-8, "derivatives by vectors are differences: %.2g", worst);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 2; k++)
            by[k] += q->by[k][i];
    struct lf_dual_loss up = d, down = d;
    up.scale += e;
    down.scale -= e;
    const double s = fabs((run(&up, other, false) - run(&down, other, false)) / (2 * e) - by[0]);
    up = down = d;
    up.bias += e;
    down.bias -= e;
    const double b = fabs((run(&up, other, false) - run(&down, other, false)) / (2 * e) - by[1]);
    tap_ok(s < 1e-8 && b < 1e-8, "and those by scale and bias: %.2g, %.2g", s, b);
    free(other);
}

/* More rows of z than a block holds. */
static void test_blocks(struct numbers *q, enum lf_dual_kind kind)
{
    struct lf_dual_loss d = of(q, kind, MANY);
    struct numbers *other = malloc(sizeof *other);
    double worst = 0;
    size_t right = 0;
    if (!other)
        tap_bail("no memory");
    run(&d, q, true);
    for (size_t i = 0; i < MANY; i += 37)
        worst = tap_worse(worst, fabs(q->loss[i] / by_formula(&d, i, 0, MANY) - 1));
    for (size_t i = 0; i < MANY; i += 37) {
        size_t best = 0, by_text = 0;
        for (size_t j = 1; j < MANY; j++) {
            best = z_of(&d, i, j) > z_of(&d, i, best) ? j : best;
            by_text = z_of(&d, j, i) > z_of(&d, by_text, i) ? j : by_text;
        }
        right += q->right[0][i] == (best == i) && q->right[1][i] == (by_text == i);
    }
    tap_ok(worst < 1e-12 && right == (MANY + 36) / 37, "in several blocks: %.2g, %zu are right",
           worst, right);
    d.threads = 3;
    run(&d, other, true);
    tap_ok(memcmp(q->loss, other->loss, sizeof q->loss) == 0 &&
               memcmp(q->d, other->d, sizeof q->d) == 0 &&
               memcmp(q->by, other->by, sizeof q->by) == 0,
           "threads change no bit");
    free(other);
}

static void test_nothing(struct numbers *q)
{
    struct lf_dual_loss d = of(q, LF_DUAL_CLIP, N);
    lf_err err = LF_ERR_INIT;
    memset(q->x[1] + 3 * WIDTH, 0, WIDTH * sizeof **q->x);
    tap_rc(lf_dual_loss(&d,
                        &(struct lf_dual_out){.loss = q->loss, .right = {q->right[0], q->right[1]}},
                        &err),
           LF_ENUMERIC, &err, "text 3 has no length", "a vector that is none");
}

int main(void)
{
    struct numbers *q = calloc(1, sizeof *q);
    if (!q)
        tap_bail("no memory");
    fill(q, MANY);
    for (int k = LF_DUAL_CLIP; k <= LF_DUAL_SIGLIP; k++) {
        test_values(q, (enum lf_dual_kind)k);
        test_slopes(q, (enum lf_dual_kind)k);
        test_blocks(q, (enum lf_dual_kind)k);
    }
    test_nothing(q);
    free(q);
    return tap_done();
}
