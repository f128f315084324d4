/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing texts for the graph of values, and picking each one's last row. */
#include "engine/post/rm_score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/graph/exec.h"
#include "engine/model/classes.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"
#include "engine/post/label_loss.h"
#include "engine/post/tower_score.h"

struct lf_rm_scorer {
    struct lf_rm_scorer_opts o;
    const lf_decoder *dec;
    int64_t vocab;
    int chain;
    int32_t *token, *position; /* [rows] */
    int32_t *cu;               /* [docs + 1] */
    float *score;              /* [rows, inner], of classes [pictures, inner] */
    float *second;             /* the same of a second head; NULL: there is none */
    bool second_head;
    int32_t *targets;       /* [rows], with answers; else NULL */
    int32_t *source;        /* tokens [rows], positions [rows], cu [docs + 1] of an encoder-decoder
                               with answers; else NULL */
    int64_t sources;        /* rows of the batch at hand */
    int32_t *types;         /* [rows], of pairs of texts; else NULL */
    int64_t inner, width;   /* numbers of a row and of a text */
    int64_t used, texts;    /* of the batch at hand */
    const lf_rm_text *text; /* [texts] of it */
    struct lf_decoder_media media;
    const lf_pictures *from;
    lf_seen *seen;           /* NULL: texts have no pictures */
    lf_tower_scorer *towers; /* of a model with two towers, which does all; else NULL */
};

void lf_rm_scorer_destroy(lf_rm_scorer *s)
{
    if (!s)
        return;
    lf_seen_destroy(s->seen);
    lf_tower_scorer_destroy(s->towers);
    free(s->token);
    free(s->position);
    free(s->cu);
    free(s->score);
    free(s->second);
    free(s->types);
    free(s->targets);
    free(s->source);
    free(s);
}

static bool tells_classes(const lf_rm_scorer *s)
{
    return lf_model_classifies(lf_decoder_config(s->dec));
}

/* Numbers that the graph gives: of each row, or of each picture. */
static int64_t numbers(const lf_rm_scorer *s)
{
    return s->inner * (tells_classes(s) ? s->media.vision.images - 1 : s->o.rows);
}

static bool of_sources(const lf_rm_scorer *s)
{
    return s->o.reading.answers && lf_model_is_seq2seq(lf_decoder_config(s->dec));
}

static int buffers(lf_rm_scorer *s, lf_err *err)
{
    const size_t rows = (size_t)s->o.rows;
    s->token = lf_calloc(rows, sizeof *s->token, err);
    s->position = lf_calloc(rows, sizeof *s->position, err);
    s->cu = lf_calloc((size_t)s->o.docs + 1, sizeof *s->cu, err);
    s->score = lf_calloc((size_t)numbers(s), sizeof *s->score, err);
    if (s->second_head && !(s->second = lf_calloc((size_t)numbers(s), sizeof *s->second, err)))
        return LF_ENOMEM;
    if (s->o.reading.pairs && lf_decoder_config(s->dec)->token_types > 1 &&
        !(s->types = lf_calloc(rows, sizeof *s->types, err)))
        return LF_ENOMEM;
    if (s->o.reading.answers && !(s->targets = lf_calloc(rows, sizeof *s->targets, err)))
        return LF_ENOMEM;
    if (of_sources(s) &&
        !(s->source = lf_calloc(2 * rows + (size_t)s->o.docs + 1, sizeof *s->source, err)))
        return LF_ENOMEM;
    if (!s->token || !s->position || !s->cu || !s->score)
        return LF_ENOMEM;
    return s->o.patches
               ? lf_seen_create(&s->seen, lf_decoder_config(s->dec), &s->media, s->o.rows, err)
               : 0;
}

static int add_chain(lf_rm_scorer *s, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                     lf_err *err)
{
    const struct lf_decoder_rows r = {.rows = s->o.rows,
                                      .n_docs = s->o.docs,
                                      .max_doc = s->o.max_context,
                                      .media = s->o.patches ? &s->media : NULL,
                                      .source_rows = of_sources(s) ? s->o.rows : 0,
                                      .max_source = s->o.max_context};
    const bool embed = s->o.reading.embed, answers = s->o.reading.answers;
    lf_graph *g =
        tells_classes(s)
            ? lf_classes_graph(d, ps, "score",
                               &(struct lf_classes_rows){s->media, s->media.vision.images - 1},
                               false, err)
            : lf_decoder_heads_graph(d, ps, "score", &r,
                                     &(struct lf_decoder_heads){.score = !embed && !answers,
                                                                .hidden = embed,
                                                                .logp = answers,
                                                                .inv_temperature = 1},
                                     err);
    if (!g)
        return LF_EINVAL;
    s->chain = lf_plan_add(plan, g, &(struct lf_chain_opts){.eras = s->o.eras, .whole = true}, err);
    lf_graph_destroy(g);
    return s->chain < 0 ? s->chain : 0;
}

static int check_output(const lf_model_config *c, const struct lf_rm_reading *r, lf_err *err)
{
    if (lf_model_classifies(c))
        return r->labels && !r->embed
                   ? 0
                   : lf_fail(err, LF_EINVAL,
                             "this model tells classes of pictures ([model] classes.labels): "
                             "lf-score gives them with give = scores");
    if (r->answers)
        return c->output == LF_OUTPUT_TOKENS
                   ? lf_model_need_next(c, err)
                   : lf_fail(err, LF_EINVAL,
                             "log-probabilities are of a model that predicts tokens, and this one "
                             "gives scores or labels ([model] output)");
    if (r->embed || c->output == LF_OUTPUT_SCORE || (lf_model_is_dual(c) && r->labels))
        return 0;
    if (c->output == LF_OUTPUT_TOKENS)
        return lf_fail(
            err, LF_EINVAL,
            "this model predicts tokens; a score needs [model] output = score, as lf-rm makes it");
    if (!r->labels)
        return lf_fail(err, LF_EINVAL,
                       "this model gives labels ([model] output = labels), and a score is asked "
                       "for; lf-score tells labels of texts");
    return c->labels_of == LF_LABELS_OF_TOKEN
               ? lf_fail(err, LF_ENOTSUP,
                         "this model gives labels of each token ([model] labels_of = token), and "
                         "one answer for a text is asked for")
               : 0;
}

int64_t lf_rm_scorer_width(const lf_rm_scorer *s)
{
    return s->towers ? lf_tower_scorer_width(s->towers) : s->width;
}

int lf_rm_scorer_classes(lf_rm_scorer *s, const float *w, int64_t n, lf_err *err)
{
    return s->towers ? lf_tower_scorer_classes(s->towers, w, n, err)
                     : lf_fail(err, LF_EINVAL,
                               "classes are described to a model that has towers of pictures and "
                               "texts ([model] dual.dim), which this one has not");
}

int lf_rm_scorer_plan(lf_rm_scorer **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                      const struct lf_rm_scorer_opts *o, lf_err *err)
{
    if (check_output(lf_decoder_config(d), &o->reading, err) != 0)
        return LF_EINVAL;
    if (o->max_context < 1 || o->docs < 1)
        return lf_fail(err, LF_EINVAL,
                       "scoring %lld texts of %lld tokens at once: both must be at least 1",
                       (long long)o->docs, (long long)o->max_context);
    lf_rm_scorer *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    s->o = *o;
    if (s->o.rows < o->max_context)
        s->o.rows = o->max_context;
    s->dec = d;
    s->vocab = lf_decoder_config(d)->vocab;
    s->inner = s->width = o->reading.answers ? 1 : lf_model_scores(lf_decoder_config(d));
    s->second_head = lf_decoder_config(d)->classes.read == LF_CLASS_BOTH;
    if (lf_model_classifies(lf_decoder_config(d))) {
        s->inner = s->width = lf_decoder_config(d)->classes.labels;
        if (!o->patches) {
            free(s);
            return lf_fail(err, LF_EINVAL,
                           "this model tells classes of pictures: give max_patches");
        }
    }
    if (o->reading.embed)
        s->inner = s->width = lf_model_top_width(lf_decoder_config(d));
    if (o->reading.pool == LF_RM_AUTO)
        s->o.reading.pool = lf_decoder_config(d)->mask == LF_MASK_BOTH ? LF_RM_MEAN : LF_RM_LAST;
    if (o->patches)
        s->media = lf_sight_bounds(lf_decoder_config(d), o->patches, o->tiles, s->o.rows);
    int rc = 0;
    if (lf_model_is_dual(lf_decoder_config(d)))
        rc = lf_tower_scorer_plan(&s->towers, plan, ps, d, &s->o, err);
    else if ((rc = add_chain(s, plan, ps, d, err)) == 0)
        rc = buffers(s, err);
    if (rc != 0) {
        lf_rm_scorer_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void lf_rm_scorer_see(lf_rm_scorer *s, const lf_pictures *from)
{
    s->from = from;
    if (s->towers)
        lf_tower_scorer_see(s->towers, from);
}

static struct lf_pictures_size pictures_of(const lf_rm_scorer *s, const lf_rm_text *t)
{
    return t->sees && s->from ? lf_pictures_size(s->from, t->doc) : (struct lf_pictures_size){0};
}

static int check_pictures(const lf_rm_scorer *s, const lf_rm_text *t, size_t i, lf_err *err)
{
    const struct lf_pictures_size p = pictures_of(s, t);
    if (!s->seen && t->sees)
        return lf_fail(err, LF_EINVAL, "text %zu has pictures, and this scorer takes none", i);
    if (s->seen && (p.patches > s->media.vision.patches || p.tiles >= s->media.vision.images))
        return lf_fail(err, LF_EINVAL,
                       "the pictures of text %zu are %lld patches in %lld tiles; there is room for "
                       "%lld in %lld: raise max_patches",
                       i, (long long)p.patches, (long long)p.tiles,
                       (long long)s->media.vision.patches, (long long)s->media.vision.images - 1);
    return 0;
}

/* The first token that is said; n: none is. */
static size_t first_said(const lf_rm_text *t)
{
    const char *at = memchr(t->said, 1, t->n);
    return at ? (size_t)(at - t->said) : t->n;
}

/* Rows of its source, with the end that is added. */
static size_t source_rows(const lf_rm_scorer *s, const lf_rm_text *t)
{
    const size_t first = first_said(t);
    const int64_t end = s->o.reading.end;
    return first + (end >= 0 && first > 0 && t->tokens[first - 1] != end);
}

static int check_said(const lf_rm_scorer *s, const lf_rm_text *t, size_t i, lf_err *err)
{
    const size_t first = first_said(t);
    if (first == 0 || first == t->n)
        return lf_fail(err, LF_EINVAL, "text %zu has %s", i,
                       first ? "no answer" : "nothing before its answer");
    if (!of_sources(s))
        return 0;
    if (memchr(t->said + first, 0, t->n - first))
        return lf_fail(err, LF_ENOTSUP,
                       "text %zu goes on behind an answer, and an encoder-decoder says one", i);
    return source_rows(s, t) <= (size_t)s->o.max_context
               ? 0
               : lf_fail(err, LF_EINVAL, "text %zu has a source of %zu tokens; %lld can be read", i,
                         source_rows(s, t), (long long)s->o.max_context);
}

static int check_text(const lf_rm_scorer *s, const lf_rm_text *t, size_t i, lf_err *err)
{
    if (t->n < 1 || t->n > (size_t)s->o.max_context)
        return lf_fail(err, LF_EINVAL, "text %zu has %zu tokens; between 1 and %lld can be scored",
                       i, t->n, (long long)s->o.max_context);
    if (tells_classes(s) && pictures_of(s, t).tiles != 1)
        return lf_fail(err, LF_EINVAL,
                       "text %zu has %lld pictures, tiles counted: a class is told of one", i,
                       (long long)pictures_of(s, t).tiles);
    for (size_t k = 0; k < t->n && !tells_classes(s); k++)
        if (t->tokens[k] < 0 || t->tokens[k] >= s->vocab)
            return lf_fail(err, LF_EINVAL,
                           "text %zu: token %d is outside the model's vocabulary of %lld", i,
                           (int)t->tokens[k], (long long)s->vocab);
    const int rc = s->targets ? check_said(s, t, i, err) : 0;
    return rc != 0 ? rc : check_pictures(s, t, i, err);
}

/* Adds the pictures of a text to a batch that has so many. false: there is no room. */
static bool add_pictures(const lf_rm_scorer *s, const lf_rm_text *t, struct lf_pictures_size *all)
{
    const struct lf_pictures_size p = pictures_of(s, t);
    if (s->seen && (all->patches + p.patches > s->media.vision.patches ||
                    all->tiles + p.tiles >= s->media.vision.images))
        return false;
    all->patches += p.patches;
    all->tiles += p.tiles;
    return true;
}

/* A text as the decoder of an encoder-decoder says it, and its source. */
static void add_pair(lf_rm_scorer *s, const lf_rm_text *t)
{
    const size_t first = first_said(t), n = source_rows(s, t), at = (size_t)s->used;
    const lf_model_config *c = lf_decoder_config(s->dec);
    for (size_t k = 0; k < t->n - first; k++) {
        s->token[at + k] = k == 0 ? (int32_t)c->decoder_start : t->tokens[first + k - 1];
        s->targets[at + k] = t->tokens[first + k];
        s->position[at + k] = (int32_t)k;
    }
    for (size_t k = 0; k < n; k++) {
        s->source[s->sources + (int64_t)k] = k < first ? t->tokens[k] : (int32_t)s->o.reading.end;
        s->source[s->o.rows + s->sources + (int64_t)k] = (int32_t)k;
    }
    s->sources += (int64_t)n;
    s->source[2 * s->o.rows + s->texts + 1] = (int32_t)s->sources;
    s->used += (int64_t)(t->n - first);
}

/* A text as it stands; each row says the token behind it. */
static void add_plain(lf_rm_scorer *s, const lf_rm_text *t)
{
    for (size_t k = 0; k < t->n; k++) {
        const int64_t r = s->used + (int64_t)k;
        s->token[r] = t->tokens[k];
        s->position[r] = (int32_t)k;
        if (s->targets)
            s->targets[r] = k + 1 < t->n && t->said[k + 1] ? t->tokens[k + 1] : -1;
    }
    s->used += (int64_t)t->n;
}

/* As many whole texts as fit. What is left of the rows is one token each, in no text: boundaries
 * that repeat close it off. */
static void fill(lf_rm_scorer *s, const lf_rm_text *texts, size_t n)
{
    struct lf_pictures_size seen = {0};
    s->used = s->texts = s->sources = 0;
    s->text = texts;
    for (size_t i = 0; i < n && s->texts < s->o.docs && s->used + (int64_t)texts[i].n <= s->o.rows;
         i++) {
        if (s->source && s->sources + (int64_t)source_rows(s, &texts[i]) > s->o.rows)
            break;
        if (!add_pictures(s, &texts[i], &seen))
            break;
        if (s->source)
            add_pair(s, &texts[i]);
        else
            add_plain(s, &texts[i]);
        s->cu[++s->texts] = (int32_t)s->used;
    }
    for (int64_t r = s->used; r < s->o.rows; r++) {
        s->token[r] = s->position[r] = 0;
        if (s->targets)
            s->targets[r] = -1;
    }
    for (int64_t d = s->texts + 1; d <= s->o.docs; d++)
        s->cu[d] = (int32_t)s->used;
    for (int64_t r = s->sources; s->source && r < s->o.rows; r++)
        s->source[r] = s->source[s->o.rows + r] = 0;
    for (int64_t d = s->texts + 1; s->source && d <= s->o.docs; d++)
        s->source[2 * s->o.rows + d] = (int32_t)s->sources;
}

static int write_sources(lf_rm_scorer *s, lf_exec *ex, lf_err *err)
{
    const size_t rows = (size_t)s->o.rows, bytes = rows * sizeof *s->source;
    int rc = lf_exec_write(ex, s->chain, 0, "source_tokens", s->source, bytes, err);
    if (rc == 0)
        rc = lf_exec_write(ex, s->chain, 0, "source_positions", s->source + rows, bytes, err);
    return rc != 0 ? rc
                   : lf_exec_write(ex, s->chain, 0, "source_cu_seqlens", s->source + 2 * rows,
                                   ((size_t)s->o.docs + 1) * sizeof *s->source, err);
}

/* Tokens, and the pictures of the batch. */
static int write_tokens(lf_rm_scorer *s, lf_exec *ex, lf_err *err)
{
    int rc = 0;
    if (!s->seen)
        return lf_exec_write(ex, s->chain, 0, "tokens", s->token,
                             (size_t)s->o.rows * sizeof *s->token, err);
    lf_seen_begin(s->seen, s->from);
    for (int64_t d = 0; d < s->texts && rc == 0; d++)
        if (s->text[d].sees)
            rc = lf_seen_add(s->seen, s->text[d].doc, s->token, s->cu[d], err);
    const struct lf_seen_rows r = {.tokens = s->token, .positions = s->position};
    return rc != 0 ? rc : lf_seen_write(s->seen, ex, s->chain, &r, err);
}

/* Of pictures, in the order of their texts. */
static int forward_classes(lf_rm_scorer *s, lf_exec *ex, lf_err *err)
{
    const size_t n = (size_t)numbers(s);
    int rc = write_tokens(s, ex, err);
    if (rc == 0)
        rc = lf_exec_run(ex, s->chain, LF_FWD, 0, LF_FIRST, err);
    if (rc == 0)
        rc = lf_exec_read(ex, s->chain, 0, "score", s->score, n * sizeof *s->score, err);
    if (rc != 0 || !s->second)
        return rc;
    rc = lf_exec_read(ex, s->chain, 0, "distilled", s->second, n * sizeof *s->second, err);
    for (size_t i = 0; i < n; i++)
        s->score[i] = (s->score[i] + s->second[i]) / 2;
    return rc;
}

static int forward(lf_rm_scorer *s, lf_exec *ex, lf_err *err)
{
    if (tells_classes(s))
        return forward_classes(s, ex, err);
    const size_t rows = (size_t)s->o.rows;
    int rc = write_tokens(s, ex, err);
    if (rc == 0)
        rc = lf_exec_write(ex, s->chain, 0, "positions", s->position, rows * sizeof *s->position,
                           err);
    if (rc == 0)
        rc = lf_exec_write(ex, s->chain, 0, "cu_seqlens", s->cu,
                           ((size_t)s->o.docs + 1) * sizeof *s->cu, err);
    if (rc == 0 && s->source)
        rc = write_sources(s, ex, err);
    /* every graph of heads has targets; scores and vectors read none */
    if (rc == 0 && s->targets)
        rc = lf_exec_write(ex, s->chain, 0, "targets", s->targets, rows * sizeof *s->targets, err);
    if (s->types)
        lf_decoder_second(s->token, s->cu, s->texts, s->o.reading.separator, s->types);
    if (rc == 0)
        rc = lf_decoder_write_turns(s->dec, ex, s->chain,
                                    &(struct lf_decoder_docs){.cu_seqlens = s->cu,
                                                              .n = s->o.docs,
                                                              .rows = s->o.rows,
                                                              .pictures = s->seen != NULL,
                                                              .types = s->types},
                                    err);
    if (rc == 0)
        rc = lf_exec_run(ex, s->chain, LF_FWD, 0, LF_FIRST, err);
    return rc != 0 ? rc
                   : lf_exec_read(ex, s->chain, 0,
                                  s->o.reading.embed     ? "hidden"
                                  : s->o.reading.answers ? "lp"
                                                         : "score",
                                  s->score, rows * (size_t)s->inner * sizeof *s->score, err);
}

/* The vector of rows [first, end): their first or last one, or their mean, in f64. */
static void pool(const lf_rm_scorer *s, int64_t first, int64_t end, float *out)
{
    const struct lf_rm_reading *r = &s->o.reading;
    const int64_t from = r->pool == LF_RM_LAST ? end - 1 : first,
                  to = r->pool == LF_RM_FIRST ? first + 1 : end;
    double length = 0;
    for (int64_t c = 0; c < s->width; c++) {
        double sum = 0;
        for (int64_t row = from; row < to; row++)
            sum += (double)s->score[row * s->inner + c];
        out[c] = (float)(sum / (double)(to - from));
        length += (double)out[c] * (double)out[c];
    }
    for (int64_t c = 0; c < s->width && r->unit && length > 0; c++)
        out[c] = (float)((double)out[c] / sqrt(length));
}

/* What is read of text d of the batch. */
static void read_text(const lf_rm_scorer *s, int64_t d, float *out)
{
    const lf_model_config *c = lf_decoder_config(s->dec);
    const int64_t first = s->cu[d], end = s->cu[d + 1];
    if (tells_classes(s)) {
        memcpy(out, s->score + d * s->inner, (size_t)s->width * sizeof *out);
    } else if (s->o.reading.answers) {
        double sum = 0;
        for (int64_t r = first; r < end; r++)
            sum += s->targets[r] < 0 ? 0 : (double)s->score[r];
        out[0] = (float)sum;
    } else if (s->o.reading.embed) {
        pool(s, first, end, out);
    } else if (c->output == LF_OUTPUT_LABELS && c->labels_of == LF_LABELS_OF_SPAN) {
        int64_t i = 0, j = 0;
        lf_label_best_span(s->score + first * s->inner, end - first, &i, &j);
        out[0] = (float)i;
        out[1] = (float)j;
    } else {
        memcpy(out, s->score + lf_model_label_at(c, first, end) * s->inner,
               (size_t)s->width * sizeof *out);
    }
}

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

int lf_rm_scorer_run(lf_rm_scorer *s, lf_exec *ex, const lf_rm_text *texts, size_t n, float *score,
                     bool (*stop)(void), lf_err *err)
{
    int rc = 0;
    if (s->towers)
        return lf_tower_scorer_run(s->towers, ex, texts, n, score, stop, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check_text(s, &texts[i], i, err);
    for (size_t at = 0; at < n && rc == 0; at += (size_t)s->texts) {
        if (stop && stop())
            return lf_fail(err, LF_EINTR, "stopped after scoring %zu of %zu texts", at, n);
        fill(s, texts + at, n - at);
        rc = forward(s, ex, err);
        for (int64_t d = 0; d < s->texts && rc == 0; d++) {
            float *to = score + (at + (size_t)d) * (size_t)s->width;
            read_text(s, d, to);
            if (!all_finite(to, s->width))
                rc = lf_fail(
                    err, LF_ENUMERIC,
                    "the score of text %zu is not finite; the weights are damaged or diverged",
                    at + (size_t)d);
        }
    }
    return rc;
}
