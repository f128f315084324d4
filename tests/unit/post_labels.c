/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses on labels: derivatives against finite differences, values, how parts add up, the best span
 * against all of them. Measures against published values and against other formulas for the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/rng.h"
#include "engine/post/label_loss.h"
#include "engine/post/label_metrics.h"
#include "tests/tap/tap.h"

enum { ROWS = 5, N = 3, ALL = ROWS * N };

static const double y_of[LF_LABEL_KINDS][ROWS] = {[LF_LABEL_ONE] = {2},
                                                  [LF_LABEL_ANY] = {0, 1, 1},
                                                  [LF_LABEL_NUMBERS] = {0.5, -1, 2},
                                                  [LF_LABEL_TOKENS] = {-100, 0, 2, 1, -1},
                                                  [LF_LABEL_SPAN] = {1, 3}};

static double drawn(uint64_t i)
{
    return (double)lf_rng_u32(7, 1, i) / 4294967296.0 * 4 - 2;
}

static struct lf_label_loss example(enum lf_label_kind kind, const float *z, float *d)
{
    const bool each = kind == LF_LABEL_TOKENS || kind == LF_LABEL_SPAN;
    return (struct lf_label_loss){.kind = kind,
                                  .n = kind == LF_LABEL_SPAN ? 2 : N,
                                  .rows = each ? ROWS : 1,
                                  .z = z,
                                  .y = y_of[kind],
                                  .d = d,
                                  .scale = 0.25};
}

/* The loss alone. */
static double loss_at(enum lf_label_kind kind, const float *z)
{
    double sums[LF_LABEL_SUMS] = {0};
    const struct lf_label_loss l = example(kind, z, NULL);
    lf_label_add(&l, sums);
    return sums[LF_LABEL_LOSS];
}

static void slopes(enum lf_label_kind kind, const char *name)
{
    float z[ALL], d[ALL] = {0};
    double sums[LF_LABEL_SUMS] = {0}, worst = 0, most = 0;
    for (int i = 0; i < ALL; i++)
        z[i] = (float)drawn((uint64_t)i);
    const struct lf_label_loss l = example(kind, z, d);
    lf_label_add(&l, sums);
    const int64_t n = l.rows * l.n;
    for (int64_t i = 0; i < n; i++) {
        const float was = z[i];
        z[i] = was + 0x1p-8f;
        const double up = loss_at(kind, z);
        z[i] = was - 0x1p-8f;
        const double down = loss_at(kind, z);
        z[i] = was;
        worst = tap_worse(worst, fabs(0.25 * (up - down) / 0x1p-7 - (double)d[i]));
        most = tap_worse(most, fabs((double)d[i]));
    }
    tap_ok(worst < 3e-6 && most > 0.01, "%s: derivatives are the slopes (%.2g of %.2g)", name,
           worst, most);
    for (int64_t i = n; i < ALL; i++)
        most = fabs((double)d[i]) > 0 ? (double)INFINITY : most;
    tap_ok(isfinite(most), "%s: and none beside", name);
}

static void values(void)
{
    const float z[] = {0.5f, -1, 2, 1, 0, 0.25f};
    double s[LF_LABEL_SUMS] = {0}, m[LF_LABEL_METRICS];
    struct lf_label_loss l = {
        .kind = LF_LABEL_ONE, .n = 2, .rows = 1, .z = z, .y = (const double[]){1}};
    lf_label_add(&l, s);
    tap_f64(s[LF_LABEL_LOSS], log(1 + exp(1.5)), 1e-12, "of two classes it is the logistic loss");
    l.y = (const double[]){0};
    lf_label_add(&l, s);
    l.z = z + 4;
    l.y = (const double[]){1};
    lf_label_add(&l, s);
    lf_label_means(LF_LABEL_ONE, 2, s, m);
    tap_f64(m[1], 2. / 3, 1e-12, "two of three are right");
    tap_f64(m[2], 2. / 3, 1e-12, "F1 of the second class");
    tap_f64(m[3], 0.5, 1e-12, "Matthews");
    lf_label_means(LF_LABEL_ONE, 3, s, m);
    tap_ok(isnan(m[2]) && isnan(m[3]), "F1 of three classes is none");

    memset(s, 0, sizeof s);
    l = (struct lf_label_loss){
        .kind = LF_LABEL_NUMBERS, .n = 2, .rows = 1, .z = z, .y = (const double[]){1.5, 1}};
    lf_label_add(&l, s);
    lf_label_means(LF_LABEL_NUMBERS, 2, s, m);
    tap_f64(m[0], (1 + 4) / 2., 1e-12, "the mean of squares");

    memset(s, 0, sizeof s);
    l = (struct lf_label_loss){
        .kind = LF_LABEL_SPAN, .n = 2, .rows = 3, .z = z, .y = (const double[]){0, 1}};
    lf_label_add(&l, s);
    lf_label_means(LF_LABEL_SPAN, 2, s, m);
    tap_f64(m[1], 0, 0, "an answer that is not the right one");
    tap_f64(m[2], 2. / 3, 1e-12, "but has a token of it: F1");
}

/* Sums of two halves are those of the whole. */
static void parts(void)
{
    double whole[LF_LABEL_SUMS] = {0}, part[2][LF_LABEL_SUMS] = {{0}}, off = 0;
    for (uint64_t i = 0; i < 20; i++) {
        float z[N];
        const double y = (double)(i % N);
        for (int k = 0; k < N; k++)
            z[k] = (float)drawn(100 + i * N + (uint64_t)k);
        const struct lf_label_loss l = {.kind = LF_LABEL_ONE, .n = N, .rows = 1, .z = z, .y = &y};
        lf_label_add(&l, whole);
        lf_label_add(&l, part[i % 2]);
    }
    for (int i = 0; i < LF_LABEL_SUMS; i++)
        off = tap_worse(off, fabs(whole[i] - part[0][i] - part[1][i]));
    tap_ok(off < 1e-9 && whole[LF_LABEL_TEXTS] > 19.5, "sums add up");
}

static void spans(void)
{
    int wrong = 0;
    for (uint64_t draw = 0; draw < 50; draw++) {
        float z[2 * ROWS];
        double most = -INFINITY;
        int64_t i = -1, j = -1, b = 0, e = 0;
        for (int k = 0; k < 2 * ROWS; k++)
            z[k] = (float)drawn(1000 + draw * 100 + (uint64_t)k);
        for (int64_t from = 0; from < ROWS; from++)
            for (int64_t to = from; to < ROWS; to++)
                if ((double)z[2 * from] + (double)z[2 * to + 1] > most) {
                    most = (double)z[2 * from] + (double)z[2 * to + 1];
                    b = from;
                    e = to;
                }
        lf_label_best_span(z, ROWS, &i, &j);
        wrong += i != b || j != e;
    }
    tap_i64(wrong, 0, "the best of all spans is found");
}

/* Counts of scikit-learn's examples. */
static void published(void)
{
    lf_err err = LF_ERR_INIT;
    const double four[] = {0, 1, 1, 2}; /* is [1 1 1 0], said [1 0 1 1] */
    tap_f64(lf_label_matthews(four, 2), -1. / 3, 1e-12, "Matthews of four texts");
    const double three[] = {2, 0, 0, 1, 0, 1, 0, 2, 0}; /* [0 1 2 0 1 2], [0 2 1 0 0 1] */
    tap_f64(lf_label_macro_f1(three, 3), 0.8 / 3, 1e-12, "macro F1 of three classes");
    tap_f64(lf_label_accuracy(three, 3), 1. / 3, 1e-12, "their accuracy");
    const double x[] = {1, 2, 3, 4, 5}, y[] = {5, 6, 7, 8, 7};
    double rank = 0;
    tap_rc(lf_label_spearman(&rank, x, y, 5, &err), 0, &err, NULL, "Spearman");
    tap_f64(rank, 0.8207826816681233, 1e-12, "of numbers with a tie");
    tap_f64(lf_label_pearson(x, y, 5), 0.8320502943378437, 1e-12, "Pearson of the same");
    tap_ok(isnan(lf_label_pearson(x, (const double[]){2, 2, 2, 2, 2}, 5)),
           "of one number there is no correlation");
    tap_f64(lf_label_f1(0, 0, 0), 0, 0, "F1 of nothing");
}

/* Matthews of several classes is the correlation of one-hot rows, summed over classes. */
static void one_hot(void)
{
    enum { TEXTS = 60, CLASSES = 4 };
    double m[CLASSES * CLASSES] = {0}, cov[3] = {0};
    int is[TEXTS], said[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        is[i] = (int)(lf_rng_u32(3, 2, (uint64_t)i) % CLASSES);
        said[i] = lf_rng_u32(3, 4, (uint64_t)i) % 3
                      ? is[i]
                      : (int)(lf_rng_u32(3, 5, (uint64_t)i) % CLASSES);
        m[is[i] * CLASSES + said[i]] += 1;
    }
    for (int k = 0; k < CLASSES; k++) {
        double a = 0, b = 0;
        for (int i = 0; i < TEXTS; i++) {
            a += (is[i] == k) / (double)TEXTS;
            b += (said[i] == k) / (double)TEXTS;
        }
        for (int i = 0; i < TEXTS; i++) {
            const double u = (is[i] == k) - a, v = (said[i] == k) - b;
            cov[0] += u * v;
            cov[1] += u * u;
            cov[2] += v * v;
        }
    }
    tap_f64(lf_label_matthews(m, CLASSES), cov[0] / sqrt(cov[1] * cov[2]), 1e-12,
            "Matthews of four classes is a correlation");
}

static double *numbers(json_t *list, size_t *n)
{
    *n = json_array_size(list);
    double *v = calloc(*n + 1, sizeof *v);
    if (!v)
        tap_bail("no memory");
    for (size_t i = 0; i < *n; i++)
        v[i] = json_number_value(json_array_get(list, i));
    return v;
}

/* Everything that a task says is measured, and the same. */
static void one_task(json_t *task)
{
    lf_err err = LF_ERR_INIT;
    const char *name = json_string_value(json_object_get(task, "name")), *key;
    const int64_t classes = json_integer_value(json_object_get(task, "classes"));
    size_t n, said;
    double *right = numbers(json_object_get(task, "right"), &n),
           *told = numbers(json_object_get(task, "told"), &said), off = 0, rank = NAN;
    json_t *want = json_object_get(task, "measures"), *got, *v;
    if (classes) {
        double *m = calloc((size_t)(classes * classes), sizeof *m);
        for (size_t i = 0; m && i < n; i++)
            m[(int64_t)right[i] * classes + (int64_t)told[i]] += 1;
        got = m ? lf_label_measures(m, classes) : NULL;
        free(m);
    } else {
        (void)lf_label_spearman(&rank, right, told, n, &err);
        got =
            json_pack("{s:f, s:f}", "pearson", lf_label_pearson(right, told, n), "spearman", rank);
    }
    json_object_foreach(want, key, v)
    {
        const json_t *is = json_object_get(got, key);
        const double d = is ? json_number_value(is) - json_number_value(v) : (double)INFINITY;
        off = tap_worse(off, isnan(d) ? (double)INFINITY : fabs(d));
    }
    tap_ok(n == said && json_object_size(got) == json_object_size(want) && off < 1e-12,
           "%s: %zu measures of %zu texts, off by %.2g", name, json_object_size(want), n, off);
    json_decref(got);
    free(right);
    free(told);
}

/* Tasks as in GLUE, measured by other formulas: see tests/golden/labels/make_glue.py. */
static void glue(void)
{
    lf_err err = LF_ERR_INIT;
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/labels/glue.json", getenv("LF_SRCDIR"));
    json_t *tasks = lf_json_load_file(path, 1 << 20, &err), *task;
    size_t i;
    if (!tasks)
        tap_bail("%s", err.text);
    json_array_foreach(tasks, i, task) one_task(task);
    json_decref(tasks);
}

int main(void)
{
    TAP(2, slopes(LF_LABEL_ONE, "one"));
    TAP(2, slopes(LF_LABEL_ANY, "any"));
    TAP(2, slopes(LF_LABEL_NUMBERS, "numbers"));
    TAP(2, slopes(LF_LABEL_TOKENS, "tokens"));
    TAP(2, slopes(LF_LABEL_SPAN, "span"));
    TAP(8, values());
    TAP(1, parts());
    TAP(1, spans());
    TAP(8, published());
    TAP(1, one_hot());
    TAP(6, glue());
    return tap_done();
}
