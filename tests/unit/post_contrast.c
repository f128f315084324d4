/* SPDX-License-Identifier: Apache-2.0
 *
 * The contrastive loss: values by hand, derivatives against finite differences, groups, and that
 * questions without answers are refused. Texts of a row: where they end.
 */
#include <math.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/post/contrast_loss.h"
#include "engine/train/texts.h"
#include "tests/tap/tap.h"

enum { N = 9, WIDTH = 4, ALL = N * WIDTH, QUESTIONS = 4 };

/* The second question has a wrong answer. */
static const double role[N] = {0, 1, 0, 1, 2, 0, 1, 0, 1};

static struct lf_contrast example(const double *x, bool both, size_t group)
{
    return (struct lf_contrast){.temperature = 0.5,
                                .both = both,
                                .group = group,
                                .width = WIDTH,
                                .n = N,
                                .x = x,
                                .role = role};
}

static void draw(double *x)
{
    for (int i = 0; i < ALL; i++)
        x[i] = (double)lf_rng_u32(5, 9, (uint64_t)i) / 4294967296.0 * 4 - 2;
}

static double run(const struct lf_contrast *c, double loss[QUESTIONS], double *d)
{
    lf_err err = LF_ERR_INIT;
    double cosine[QUESTIONS], sum = 0;
    bool right[QUESTIONS];
    if (lf_contrast_loss(c, &(struct lf_contrast_out){loss, cosine, right, d}, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < QUESTIONS; i++)
        sum += loss[i];
    return sum;
}

static double cosine_of(const double *a, const double *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int k = 0; k < WIDTH; k++) {
        ab += a[k] * b[k];
        aa += a[k] * a[k];
        bb += b[k] * b[k];
    }
    return ab / sqrt(aa * bb);
}

/* By the formula of the header, of all questions of [first, last). */
static double by_hand(const double *x, int question, int first, int last, bool back)
{
    static const int of[QUESTIONS + 1] = {0, 2, 5, 7, 9};
    const int a = of[question] + back, p = of[question] + !back;
    double sum = 0;
    for (int j = of[first]; j < of[last]; j++)
        if ((role[j] < 0.5) == back)
            sum += exp(cosine_of(x + a * WIDTH, x + j * WIDTH) / 0.5);
    return log(sum) - cosine_of(x + a * WIDTH, x + p * WIDTH) / 0.5;
}

static void values(void)
{
    double x[ALL], loss[QUESTIONS], off = 0;
    draw(x);
    struct lf_contrast c = example(x, false, 0);
    tap_i64((int64_t)lf_contrast_questions(&c), QUESTIONS, "questions");
    (void)run(&c, loss, NULL);
    for (int i = 0; i < QUESTIONS; i++)
        off = tap_worse(off, fabs(loss[i] - by_hand(x, i, 0, QUESTIONS, false)));
    tap_ok(off < 1e-12, "each answer among all answers (%.2g)", off);
    c.both = true;
    (void)run(&c, loss, NULL);
    off = 0;
    for (int i = 0; i < QUESTIONS; i++)
        off = tap_worse(off, fabs(loss[i] - 0.5 * by_hand(x, i, 0, QUESTIONS, false) -
                                  0.5 * by_hand(x, i, 0, QUESTIONS, true)));
    tap_ok(off < 1e-12, "and each question among all questions (%.2g)", off);
    c = example(x, false, 3);
    (void)run(&c, loss, NULL);
    off = fabs(loss[3]);
    for (int i = 0; i < 3; i++)
        off = tap_worse(off, fabs(loss[i] - by_hand(x, i, 0, 3, false)));
    tap_ok(off < 1e-12, "groups of three: the last one is alone (%.2g)", off);
}

static void slopes(bool both)
{
    const double h = 1e-6;
    double x[ALL], d[ALL], loss[QUESTIONS], worst = 0, most = 0;
    draw(x);
    const struct lf_contrast c = example(x, both, 0);
    (void)run(&c, loss, d);
    for (int i = 0; i < ALL; i++) {
        const double was = x[i];
        x[i] = was + h;
        const double up = run(&c, loss, NULL);
        x[i] = was - h;
        const double down = run(&c, loss, NULL);
        x[i] = was;
        worst = tap_worse(worst, fabs((up - down) / (2 * h) - d[i]));
        most = tap_worse(most, fabs(d[i]));
    }
    tap_ok(worst < 1e-7 && most > 0.1, "derivatives are the slopes of the loss (%.2g of %.2g)",
           worst, most);
}

/* Enough for several threads: a third of the questions have a wrong answer. */
static void threads(size_t group)
{
    enum { MANY = 240, TEXTS = 2 * MANY + MANY / 3, WIDE = 33 };
    static double x[TEXTS * WIDE], of[TEXTS], d[2][TEXTS * WIDE], loss[2][MANY], cosine[2][MANY];
    static bool right[2][MANY];
    lf_err err = LF_ERR_INIT;
    size_t n = 0;
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < (i % 3 == 0 ? 3 : 2); k++)
            of[n++] = k;
    for (int i = 0; i < TEXTS * WIDE; i++)
        x[i] = (double)lf_rng_u32(6, 9, (uint64_t)i) / 4294967296.0 * 4 - 2;
    struct lf_contrast c = {.temperature = 0.1,
                            .both = true,
                            .group = group,
                            .width = WIDE,
                            .n = n,
                            .x = x,
                            .role = of};
    for (int k = 0; k < 2; k++) {
        c.threads = k ? 3 : 1;
        if (lf_contrast_loss(&c, &(struct lf_contrast_out){loss[k], cosine[k], right[k], d[k]},
                             &err))
            tap_bail("%s", err.text);
    }
    double most = 0;
    for (int i = 0; i < MANY; i++)
        most = tap_worse(most, loss[0][i]);
    tap_ok(most > 1 && memcmp(d[0], d[1], sizeof *d) == 0 &&
               memcmp(loss[0], loss[1], sizeof *loss) == 0 &&
               memcmp(cosine[0], cosine[1], sizeof *cosine) == 0 &&
               memcmp(right[0], right[1], sizeof *right) == 0,
           "three threads, the same bits");
}

enum { LARGE = 1100, LARGE_W = 3 };

static double large(const double *x, double *loss, double *d)
{
    static double of[2 * LARGE], cosine[LARGE];
    static bool right[LARGE];
    lf_err err = LF_ERR_INIT;
    double sum = 0;
    for (int i = 0; i < 2 * LARGE; i++)
        of[i] = i % 2;
    const struct lf_contrast c = {.temperature = 0.5,
                                  .both = true,
                                  .width = LARGE_W,
                                  .n = 2 * (size_t)LARGE,
                                  .x = x,
                                  .role = of,
                                  .threads = 2};
    if (lf_contrast_loss(&c, &(struct lf_contrast_out){loss, cosine, right, d}, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < LARGE; i++)
        sum += loss[i];
    return sum;
}

/* Half the loss of text a with its partner among all texts j of the other kind. */
static double half_loss(double (*unit)[LARGE_W], int a)
{
    double sum = 0, own = 0;
    for (int j = 1 - a % 2; j < 2 * LARGE; j += 2) {
        double dot = 0;
        for (int k = 0; k < LARGE_W; k++)
            dot += unit[a][k] * unit[j][k];
        sum += exp(2 * dot);
        own = j / 2 == a / 2 ? 2 * dot : own;
    }
    return (log(sum) - own) / 2;
}

/* A million cosines, which no single block of questions holds: losses by their formula, and
 * derivatives by texts of the first, a middle and the last block as slopes. */
static void blocks(void)
{
    static double x[2 * LARGE * LARGE_W], d[2 * LARGE * LARGE_W], loss[LARGE], moved[LARGE];
    static double unit[2 * LARGE][LARGE_W];
    static const int at[] = {1, LARGE * LARGE_W + 2, 2 * LARGE * LARGE_W - 1};
    const double h = 1e-4;
    double off = 0, worst = 0, most = 0;
    for (int i = 0; i < 2 * LARGE * LARGE_W; i++)
        x[i] = (double)lf_rng_u32(7, 9, (uint64_t)i) / 4294967296.0 * 4 - 2;
    for (int i = 0; i < 2 * LARGE; i++) {
        const double *v = x + i * LARGE_W;
        for (int k = 0; k < LARGE_W; k++)
            unit[i][k] = v[k] / sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    }
    (void)large(x, loss, d);
    for (int i = 0; i < LARGE; i++)
        off = tap_worse(off, fabs(loss[i] - half_loss(unit, 2 * i) - half_loss(unit, 2 * i + 1)));
    tap_ok(off < 1e-11, "each among a thousand (%.2g)", off);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const double was = x[at[i]];
        x[at[i]] = was + h;
        const double up = large(x, moved, NULL);
        x[at[i]] = was - h;
        const double down = large(x, moved, NULL);
        x[at[i]] = was;
        worst = tap_worse(worst, fabs((up - down) / (2 * h) - d[at[i]]));
        most = tap_worse(most, fabs(d[at[i]]));
    }
    tap_ok(worst < 1e-5 * most, "derivatives of all blocks are slopes (%.2g of %.2g)", worst, most);
}

static void refused(void)
{
    static const double alone[N] = {0, 1, 0, 0, 1, 0, 1, 0, 1};
    lf_err err = LF_ERR_INIT;
    double x[ALL], loss[N], cosine[N];
    bool right[N];
    draw(x);
    struct lf_contrast c = example(x, false, 0);
    const struct lf_contrast_out out = {loss, cosine, right, NULL};
    c.role = alone;
    tap_rc(lf_contrast_loss(&c, &out, &err), LF_EINVAL, &err, "question 1 has no answer",
           "a question without an answer");
    c.role = role;
    memset(x + 3 * WIDTH, 0, WIDTH * sizeof *x);
    tap_rc(lf_contrast_loss(&c, &out, &err), LF_ENUMERIC, &err, "text 3 has no length",
           "a vector of zeros");
}

static void texts(void)
{
    int32_t tokens[] = {5, 9, 6, 7, 9, 8, 0, 0}, of[] = {0, 6, 8}, cu[6], place[8];
    static const int32_t want_cu[] = {0, 2, 5, 6, 8, 8}, want_place[] = {0, 1, 0, 1, 2, 0, 0, 1};
    int64_t docs[] = {3, -1};
    lf_err err = LF_ERR_INIT;
    const lf_loader_batch b = {
        .B = 1, .T = 8, .tokens = tokens, .cu_seqlens = of, .n_segs = 2, .seg_doc = docs};
    tap_rc(lf_texts_split(&b, 9, 5, cu, place, &err), 0, &err, NULL, "three texts and padding");
    tap_ok(memcmp(cu, want_cu, sizeof want_cu) == 0 &&
               memcmp(place, want_place, sizeof want_place) == 0,
           "end behind each separator, and the last with the document");
    tap_rc(lf_texts_split(&b, 9, 3, cu, place, &err), LF_EINVAL, &err, "raise max_docs",
           "more texts than there is room for");
}

int main(void)
{
    TAP(4, values());
    TAP(1, slopes(false));
    TAP(1, slopes(true));
    TAP(1, threads(0));
    TAP(1, threads(100));
    TAP(2, blocks());
    TAP(2, refused());
    TAP(3, texts());
    return tap_done();
}
