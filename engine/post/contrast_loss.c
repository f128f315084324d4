/* SPDX-License-Identifier: Apache-2.0
 *
 * See contrast_loss.h. */
#include "engine/post/contrast_loss.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/mem.h"

struct work {
    const struct lf_contrast *c;
    double *unit;     /* [n, width] vectors of length 1 */
    double *length;   /* [n] */
    double *slope;    /* [n, width] derivatives by unit; NULL: none are asked for */
    double *score;    /* [n] */
    size_t *question; /* [questions + 1] their texts; then n */
};

size_t lf_contrast_questions(const struct lf_contrast *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->role[i] < 0.5;
    return n;
}

static int normalise(struct work *w, lf_err *err)
{
    const struct lf_contrast *c = w->c;
    size_t q = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double *x = c->x + i * (size_t)c->width;
        double sum = 0;
        for (int64_t k = 0; k < c->width; k++)
            sum += x[k] * x[k];
        if (!(sum > 0) || !isfinite(sum))
            return lf_fail(err, LF_ENUMERIC, "the vector of text %zu has %s", i,
                           isfinite(sum) ? "no length" : "a number that is not finite");
        w->length[i] = sqrt(sum);
        for (int64_t k = 0; k < c->width; k++)
            w->unit[i * (size_t)c->width + (size_t)k] = x[k] / w->length[i];
        if (c->role[i] < 0.5)
            w->question[q++] = i;
    }
    w->question[q] = c->n;
    for (size_t i = 0; i < q; i++)
        if (w->question[i + 1] < w->question[i] + 2)
            return lf_fail(err, LF_EINVAL, "question %zu has no answer", i);
    return c->n && w->question[0] ? lf_fail(err, LF_EINVAL, "the first text is no question") : 0;
}

static double dot(const struct work *w, size_t a, size_t b)
{
    const size_t n = (size_t)w->c->width;
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += w->unit[a * n + k] * w->unit[b * n + k];
    return sum;
}

static void add_slope(struct work *w, size_t to, size_t by, double factor)
{
    const size_t n = (size_t)w->c->width;
    for (size_t k = 0; k < n; k++)
        w->slope[to * n + k] += factor * w->unit[by * n + k];
}

/* Texts of a group. */
struct range {
    size_t from, end;
};

/* -log of the share of text `right` among the texts of [from, end) that are candidates, for text
 * `of`. questions: they are the candidates, else all others are. */
static double among(struct work *w, size_t of, size_t right, const struct range *r, bool questions,
                    bool *best)
{
    const size_t from = r->from, end = r->end;
    const double weight = w->c->both ? 0.5 : 1;
    const struct lf_contrast *c = w->c;
    double most = -INFINITY, sum = 0;
    for (size_t j = from; j < end; j++) {
        if ((c->role[j] < 0.5) != questions)
            continue;
        w->score[j] = dot(w, of, j) / c->temperature;
        most = fmax(most, w->score[j]);
    }
    for (size_t j = from; j < end; j++)
        if ((c->role[j] < 0.5) == questions)
            sum += exp(w->score[j] - most);
    if (best)
        *best = !(w->score[right] < most);
    for (size_t j = from; w->slope && j < end; j++) {
        if ((c->role[j] < 0.5) != questions)
            continue;
        const double d = weight * (exp(w->score[j] - most) / sum - (j == right)) / c->temperature;
        add_slope(w, of, j, d);
        add_slope(w, j, of, d);
    }
    return most + log(sum) - w->score[right];
}

/* From derivatives by x / |x| to those by x. */
static void unscale(const struct work *w, double *d)
{
    const size_t n = (size_t)w->c->width;
    for (size_t i = 0; i < w->c->n; i++) {
        double along = 0;
        for (size_t k = 0; k < n; k++)
            along += w->slope[i * n + k] * w->unit[i * n + k];
        for (size_t k = 0; k < n; k++)
            d[i * n + k] = (w->slope[i * n + k] - along * w->unit[i * n + k]) / w->length[i];
    }
}

static void all_questions(struct work *w, const struct lf_contrast_out *out, size_t questions)
{
    const struct lf_contrast *c = w->c;
    const double weight = c->both ? 0.5 : 1;
    for (size_t i = 0; i < questions; i++) {
        const size_t group = c->group ? c->group : questions, first = i / group * group,
                     last = first + group < questions ? first + group : questions,
                     a = w->question[i];
        const struct range r = {w->question[first], w->question[last]};
        out->loss[i] = weight * among(w, a, a + 1, &r, false, &out->right[i]);
        out->cosine[i] = dot(w, a, a + 1);
        if (c->both)
            out->loss[i] += weight * among(w, a + 1, a, &r, true, NULL);
    }
}

int lf_contrast_loss(const struct lf_contrast *c, const struct lf_contrast_out *out, lf_err *err)
{
    const size_t all = c->n * (size_t)c->width + 1, questions = lf_contrast_questions(c);
    struct work w = {.c = c,
                     .unit = lf_calloc(all, sizeof *w.unit, err),
                     .length = lf_calloc(c->n + 1, sizeof *w.length, err),
                     .slope = out->d ? lf_calloc(all, sizeof *w.slope, err) : NULL,
                     .score = lf_calloc(c->n + 1, sizeof *w.score, err),
                     .question = lf_calloc(questions + 1, sizeof *w.question, err)};
    int rc = w.unit && w.length && w.score && w.question && (w.slope || !out->d) ? 0 : LF_ENOMEM;
    if (rc == 0)
        rc = normalise(&w, err);
    if (rc == 0)
        all_questions(&w, out, questions);
    if (rc == 0 && out->d)
        unscale(&w, out->d);
    free(w.unit);
    free(w.length);
    free(w.slope);
    free(w.score);
    free(w.question);
    return rc;
}
