/* SPDX-License-Identifier: Apache-2.0
 *
 * See contrast_loss.h. */
#include "engine/post/contrast_loss.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* Texts whose cosines with a text are summed at once, each in the order of its channels. */
#define TILE 32
/* Numbers of a block of questions by candidates, of which there are two with `both`: 4 MiB each,
 * which no plan has to know. */
#define BLOCK_NUMBERS ((size_t)1 << 19)
/* Below so many products a second thread would not pay. */
#define ALONE 2e6

/* Questions [first, last) are a group, [from, to) of them the block at work. */
struct block {
    size_t first, last, from, to;
};

struct work {
    const struct lf_contrast *c;
    double *unit;     /* [n, width] vectors of length 1 */
    double *length;   /* [n] */
    double *slope;    /* [n, width] derivatives by unit; NULL: none are asked for */
    size_t *question; /* [questions + 1] their texts; then n */
    size_t *of;       /* [n] the number of a text's question */
    size_t *answer;   /* [n - questions] the texts that are none: answers and wrong ones */
    /* Of question i of the block and each answer of its group: the cosine of both, then the
     * derivative of the loss by the score; the same of its answer and each question. */
    double *by_answer, *by_question;
    double *tile; /* [threads, width, TILE] */
    struct block b;
    const struct lf_contrast_out *out;
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
        else
            w->answer[i - q] = i;
        w->of[i] = q - 1;
    }
    w->question[q] = c->n;
    for (size_t i = 0; i < q; i++)
        if (w->question[i + 1] < w->question[i] + 2)
            return lf_fail(err, LF_EINVAL, "question %zu has no answer", i);
    return c->n && w->question[0] ? lf_fail(err, LF_EINVAL, "the first text is no question") : 0;
}

/* The answers of questions [first, last) are those of w->answer from here to that of `last`. */
static size_t answers_before(const struct work *w, size_t question)
{
    return w->question[question] - question;
}

/* ---- threads ---- */

struct shared {
    struct work *w;
    void (*piece)(struct work *w, size_t i, size_t member);
    size_t n, next, members;
};

static void *take_pieces(void *arg)
{
    struct shared *s = arg;
    const size_t member = __atomic_fetch_add(&s->members, 1, __ATOMIC_RELAXED);
    for (size_t i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->n;)
        s->piece(s->w, i, member);
    return NULL;
}

/* Calls piece for each i < n, whose numbers of products are `work` together. No two pieces write
 * the same number, and each is computed in one order, so threads change no bit. */
static void deal(struct work *w, size_t n, double work,
                 void (*piece)(struct work *w, size_t i, size_t member))
{
    struct shared s = {.w = w, .piece = piece, .n = n};
    pthread_t thread[LF_CONTRAST_THREADS];
    const size_t most = work < ALONE || w->c->threads < 1 ? 1 : (size_t)w->c->threads;
    size_t started = 0;
    while (started + 1 < most && started + 1 < n && started + 1 < LF_CONTRAST_THREADS &&
           pthread_create(&thread[started], NULL, take_pieces, &s) == 0)
        started++;
    (void)take_pieces(&s);
    while (started > 0)
        pthread_join(thread[--started], NULL);
}

/* ---- cosines ---- */

/* Cosines of the texts of a tile with those of the block. by_questions: the tile has questions, and
 * the texts of the block are answers; else the other way round. */
static void tile_cosines(struct work *w, size_t at, bool by_questions, size_t member)
{
    const struct block *b = &w->b;
    const size_t width = (size_t)w->c->width;
    const size_t *list =
        by_questions ? w->question + b->first : w->answer + answers_before(w, b->first);
    const size_t n = by_questions ? b->last - b->first
                                  : answers_before(w, b->last) - answers_before(w, b->first),
                 count = n - at < TILE ? n - at : TILE;
    double *tile = w->tile + member * width * TILE,
           *rows = by_questions ? w->by_question : w->by_answer;
    for (size_t x = 0; x < TILE; x++)
        for (size_t k = 0; k < width; k++)
            tile[k * TILE + x] = x < count ? w->unit[list[at + x] * width + k] : 0;
    for (size_t i = b->from; i < b->to; i++) {
        const double *u = w->unit + (w->question[i] + by_questions) * width;
        double sum[TILE] = {0};
        for (size_t k = 0; k < width; k++)
            for (size_t x = 0; x < TILE; x++)
                sum[x] += u[k] * tile[k * TILE + x];
        memcpy(rows + (i - b->from) * n + at, sum, count * sizeof *sum);
    }
}

static size_t tiles_of(size_t n)
{
    return (n + TILE - 1) / TILE;
}

static void some_cosines(struct work *w, size_t i, size_t member)
{
    const size_t answers = tiles_of(answers_before(w, w->b.last) - answers_before(w, w->b.first));
    if (i < answers)
        tile_cosines(w, i * TILE, false, member);
    else
        tile_cosines(w, (i - answers) * TILE, true, member);
}

/* ---- losses ---- */

/* -log of the share of candidate `right` among n, by their cosines; which become the derivatives by
 * scores. */
static double among(const struct work *w, double *x, size_t n, size_t right, bool *best)
{
    const double weight = w->c->both ? 0.5 : 1;
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) {
        x[j] /= w->c->temperature;
        most = fmax(most, x[j]);
    }
    for (size_t j = 0; j < n; j++)
        sum += exp(x[j] - most);
    if (best)
        *best = !(x[right] < most);
    const double loss = most + log(sum) - x[right];
    for (size_t j = 0; w->slope && j < n; j++)
        x[j] = weight * (exp(x[j] - most) / sum - (j == right)) / w->c->temperature;
    return loss;
}

static void one_loss(struct work *w, size_t at, size_t member)
{
    const struct block *b = &w->b;
    const size_t i = b->from + at, questions = b->last - b->first,
                 before = answers_before(w, b->first), n = answers_before(w, b->last) - before,
                 right = answers_before(w, i) - before;
    const double weight = w->c->both ? 0.5 : 1;
    double *x = w->by_answer + at * n;
    (void)member;
    w->out->cosine[i] = x[right];
    w->out->loss[i] = weight * among(w, x, n, right, &w->out->right[i]);
    if (w->c->both)
        w->out->loss[i] +=
            weight * among(w, w->by_question + at * questions, questions, i - b->first, NULL);
}

/* ---- derivatives ---- */

static void add_slope(struct work *w, size_t to, size_t by, double factor)
{
    const size_t n = (size_t)w->c->width;
    for (size_t k = 0; k < n; k++)
        w->slope[to * n + k] += factor * w->unit[by * n + k];
}

/* What the losses of the block say of one text of its group. */
static void one_slope(struct work *w, size_t at, size_t member)
{
    const struct block *b = &w->b;
    const size_t text = w->question[b->first] + at, of = w->of[text],
                 before = answers_before(w, b->first), n = answers_before(w, b->last) - before,
                 questions = b->last - b->first;
    const bool asks = text == w->question[of];
    (void)member;
    for (size_t i = b->from; i < b->to; i++) {
        const size_t a = w->question[i], p = a + 1;
        const double *x = w->by_answer + (i - b->from) * n,
                     *y = w->by_question + (i - b->from) * questions;
        if (!asks)
            add_slope(w, text, a, x[text - of - 1 - before]);
        for (size_t j = 0; text == a && j < n; j++)
            add_slope(w, text, w->answer[before + j], x[j]);
        if (w->c->both && asks)
            add_slope(w, text, p, y[of - b->first]);
        for (size_t j = 0; w->c->both && text == p && j < questions; j++)
            add_slope(w, text, w->question[b->first + j], y[j]);
    }
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

static size_t block_rows(size_t n)
{
    const size_t rows = BLOCK_NUMBERS / (n ? n : 1);
    return rows < 16 ? 16 : rows;
}

static void one_group(struct work *w, size_t first, size_t last)
{
    const size_t n = answers_before(w, last) - answers_before(w, first), questions = last - first,
                 texts = w->question[last] - w->question[first],
                 most = block_rows(n > questions ? n : questions);
    for (size_t from = first; from < last; from += most) {
        const size_t to = from + most < last ? from + most : last;
        const double pairs = (double)(to - from) * (double)texts,
                     work = pairs * (double)w->c->width;
        w->b = (struct block){first, last, from, to};
        deal(w, tiles_of(n) + (w->c->both ? tiles_of(questions) : 0), work, some_cosines);
        deal(w, to - from, 16 * pairs, one_loss);
        if (w->slope)
            deal(w, texts, 2 * work, one_slope);
    }
}

/* The largest block that a group of these questions needs: rows of answers, of questions. */
static void block_numbers(const struct work *w, size_t questions, size_t group, size_t most[2])
{
    most[0] = most[1] = 0;
    for (size_t first = 0; first < questions; first += group) {
        const size_t last = first + group < questions ? first + group : questions,
                     n = answers_before(w, last) - answers_before(w, first), asked = last - first,
                     bound = block_rows(n > asked ? n : asked),
                     rows = bound < asked ? bound : asked;
        most[0] = rows * n > most[0] ? rows * n : most[0];
        most[1] = rows * asked > most[1] ? rows * asked : most[1];
    }
}

static int all_groups(struct work *w, size_t questions, lf_err *err)
{
    const size_t group = w->c->group ? w->c->group
                         : questions ? questions
                                     : 1,
                 threads = w->c->threads > 1 ? (size_t)w->c->threads : 1;
    size_t most[2];
    block_numbers(w, questions, group, most);
    w->by_answer = lf_calloc(most[0] + 1, sizeof *w->by_answer, err);
    w->by_question = lf_calloc(w->c->both ? most[1] + 1 : 1, sizeof *w->by_question, err);
    w->tile = lf_calloc(threads * (size_t)w->c->width * TILE + 1, sizeof *w->tile, err);
    if (!w->by_answer || !w->by_question || !w->tile)
        return LF_ENOMEM;
    for (size_t first = 0; first < questions; first += group)
        one_group(w, first, first + group < questions ? first + group : questions);
    return 0;
}

int lf_contrast_loss(const struct lf_contrast *c, const struct lf_contrast_out *out, lf_err *err)
{
    const size_t all = c->n * (size_t)c->width + 1, questions = lf_contrast_questions(c);
    struct work w = {.c = c,
                     .unit = lf_calloc(all, sizeof *w.unit, err),
                     .length = lf_calloc(c->n + 1, sizeof *w.length, err),
                     .slope = out->d ? lf_calloc(all, sizeof *w.slope, err) : NULL,
                     .question = lf_calloc(questions + 1, sizeof *w.question, err),
                     .of = lf_calloc(c->n + 1, sizeof *w.of, err),
                     .answer = lf_calloc(c->n + 1, sizeof *w.answer, err),
                     .out = out};
    int rc = w.unit && w.length && w.question && w.of && w.answer && (w.slope || !out->d)
                 ? 0
                 : LF_ENOMEM;
    if (rc == 0)
        rc = normalise(&w, err);
    if (rc == 0)
        rc = all_groups(&w, questions, err);
    if (rc == 0 && out->d)
        unscale(&w, out->d);
    free(w.unit);
    free(w.length);
    free(w.slope);
    free(w.question);
    free(w.of);
    free(w.answer);
    free(w.by_answer);
    free(w.by_question);
    free(w.tile);
    return rc;
}
