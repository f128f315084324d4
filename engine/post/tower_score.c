/* SPDX-License-Identifier: Apache-2.0
 *
 * See tower_score.h. */
#include "engine/post/tower_score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/graph/exec.h"
#include "engine/model/dual.h"

enum { IMAGE, TEXT, SIDES };

struct lf_tower_scorer {
    struct lf_rm_scorer_opts o;
    const lf_decoder *d;
    lf_pstore *ps;
    struct lf_dual_rows r[SIDES];
    int chain[SIDES];          /* below 0: there is none */
    int64_t width;             /* D */
    lf_dual_sight *sight;      /* of texts */
    struct lf_dual_text *text; /* [pairs] */
    lf_seen *seen;             /* of pictures */
    const lf_pictures *from;
    int32_t none[1]; /* tokens beside them, which nothing reads */
    float *v;        /* [pairs, D] of a batch */
    double *unit;    /* [D] one of them of length 1 */
    double *class;   /* [classes, D] of length 1; NULL: vectors are given */
    int64_t classes;
};

void lf_tower_scorer_destroy(lf_tower_scorer *s)
{
    if (!s)
        return;
    lf_dual_sight_destroy(s->sight);
    lf_seen_destroy(s->seen);
    free(s->text);
    free(s->v);
    free(s->unit);
    free(s->class);
    free(s);
}

static int add_chain(lf_tower_scorer *s, lf_plan *plan, int k, lf_err *err)
{
    static const char *const names[] = {"pictures", "texts"};
    lf_graph *g = lf_dual_graph(s->d, s->ps, names[k], &s->r[k], false, err);
    if (!g)
        return LF_EINVAL;
    s->chain[k] =
        lf_plan_add(plan, g, &(struct lf_chain_opts){.eras = s->o.eras, .whole = true}, err);
    lf_graph_destroy(g);
    return s->chain[k] < 0 ? s->chain[k] : 0;
}

static int buffers(lf_tower_scorer *s, lf_err *err)
{
    const lf_model_config *c = lf_decoder_config(s->d);
    const int64_t pictures = s->o.patches ? s->r[IMAGE].pairs : 0, texts = s->r[TEXT].pairs,
                  most = pictures > texts ? pictures : texts;
    s->sight = lf_dual_sight_create(c, &s->r[TEXT], err);
    s->text = lf_calloc((size_t)texts, sizeof *s->text, err);
    s->v = lf_calloc((size_t)(most * s->width), sizeof *s->v, err);
    s->unit = lf_calloc((size_t)s->width, sizeof *s->unit, err);
    if (!s->sight || !s->text || !s->v || !s->unit)
        return LF_ENOMEM;
    return s->o.patches ? lf_seen_create(&s->seen, c, &s->r[IMAGE].media, 1, err) : 0;
}

int lf_tower_scorer_plan(lf_tower_scorer **out, lf_plan *plan, lf_pstore *ps, const lf_decoder *d,
                         const struct lf_rm_scorer_opts *o, lf_err *err)
{
    const lf_model_config *c = lf_decoder_config(d);
    const int64_t texts = o->rows / c->max_positions;
    lf_tower_scorer *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return LF_ENOMEM;
    s->o = *o;
    s->d = d;
    s->ps = ps;
    s->width = c->dual.dim;
    s->r[TEXT] = lf_dual_bounds(c, 1, 1);
    s->r[TEXT].pairs = texts > 1 ? texts : 1;
    s->r[TEXT].no_pictures = true;
    int rc = add_chain(s, plan, TEXT, err);
    if (rc == 0 && o->patches) {
        s->r[IMAGE] = lf_dual_bounds(c, o->patches, o->tiles);
        s->r[IMAGE].no_texts = true;
        rc = add_chain(s, plan, IMAGE, err);
    }
    if (rc == 0)
        rc = buffers(s, err);
    if (rc != 0) {
        lf_tower_scorer_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int normalise(double *x, int64_t n, const char *what, int64_t number, lf_err *err)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * x[c];
    if (!(sum > 0) || !isfinite(sum))
        return lf_fail(err, LF_ENUMERIC, "the vector of %s %lld has no length or is not finite",
                       what, (long long)number);
    for (int64_t c = 0; c < n; c++)
        x[c] /= sqrt(sum);
    return 0;
}

int lf_tower_scorer_classes(lf_tower_scorer *s, const float *w, int64_t n, lf_err *err)
{
    int rc = 0;
    free(s->class);
    s->class = NULL;
    s->classes = 0;
    if (!w)
        return 0;
    if (!(s->class = lf_calloc((size_t)(n * s->width), sizeof *s->class, err)))
        return LF_ENOMEM;
    s->classes = n;
    for (int64_t i = 0; i < n * s->width; i++)
        s->class[i] = (double)w[i];
    for (int64_t k = 0; k < n && rc == 0; k++)
        rc = normalise(s->class + k * s->width, s->width, "class", k, err);
    return rc;
}

int64_t lf_tower_scorer_width(const lf_tower_scorer *s)
{
    return s->class ? s->classes : s->width;
}

void lf_tower_scorer_see(lf_tower_scorer *s, const lf_pictures *from)
{
    s->from = from;
}

static struct lf_pictures_size size_of(const lf_tower_scorer *s, const lf_rm_text *t)
{
    return t->sees && s->from ? lf_pictures_size(s->from, t->doc) : (struct lf_pictures_size){0};
}

static int check(const lf_tower_scorer *s, const lf_rm_text *t, size_t i, lf_err *err)
{
    const struct lf_pictures_size p = size_of(s, t);
    if (!t->sees)
        return 0;
    if (!s->seen)
        return lf_fail(err, LF_EINVAL, "text %zu has a picture: give max_patches", i);
    if (p.tiles != 1)
        return lf_fail(err, LF_EINVAL,
                       "text %zu has %lld pictures, tiles counted: a vector is made of one", i,
                       (long long)p.tiles);
    return p.patches > s->r[IMAGE].media.vision.patches
               ? lf_fail(err, LF_EINVAL,
                         "the picture of text %zu is %lld patches; there is room for %lld: raise "
                         "max_patches",
                         i, (long long)p.patches, (long long)s->r[IMAGE].media.vision.patches)
               : 0;
}

/* As many pictures, or texts, in a row as fit. */
static size_t take(const lf_tower_scorer *s, const lf_rm_text *t, size_t n)
{
    const int k = t->sees ? IMAGE : TEXT;
    int64_t patches = 0;
    size_t i = 0;
    for (; i < n && t[i].sees == t->sees && (int64_t)i < s->r[k].pairs; i++) {
        patches += size_of(s, &t[i]).patches;
        if (k == IMAGE && patches > s->r[k].media.vision.patches)
            break;
    }
    return i;
}

static int write_pictures(lf_tower_scorer *s, lf_exec *ex, const lf_rm_text *t, size_t n,
                          lf_err *err)
{
    int rc = 0;
    lf_seen_begin(s->seen, s->from);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = lf_seen_add(s->seen, t[i].doc, s->none, 0, err);
    return rc != 0 ? rc : lf_seen_write(s->seen, ex, s->chain[IMAGE], NULL, err);
}

static int write_texts(lf_tower_scorer *s, lf_exec *ex, const lf_rm_text *t, size_t n, lf_err *err)
{
    for (size_t i = 0; i < n; i++)
        s->text[i] = (struct lf_dual_text){t[i].tokens, (int64_t)t[i].n};
    const int rc = lf_dual_sight_texts(s->sight, s->text, (int64_t)n, err);
    return rc != 0 ? rc : lf_dual_sight_write(s->sight, ex, s->chain[TEXT], 0, err);
}

/* What is given of one vector. */
static int give(const lf_tower_scorer *s, const double number[2], const float *v, size_t i,
                float *out, lf_err *err)
{
    double *unit = s->unit;
    for (int64_t c = 0; c < s->width; c++)
        unit[c] = (double)v[c];
    const int rc = normalise(unit, s->width, "text", (int64_t)i, err);
    for (int64_t c = 0; c < s->width && rc == 0 && !s->class; c++)
        out[c] = s->o.reading.unit ? (float)unit[c] : v[c];
    for (int64_t k = 0; k < s->classes && rc == 0; k++) {
        double cos = 0;
        for (int64_t c = 0; c < s->width; c++)
            cos += unit[c] * s->class[k * s->width + c];
        out[k] = (float)(exp(number[0]) * cos + number[1]);
    }
    return rc;
}

int lf_tower_scorer_run(lf_tower_scorer *s, lf_exec *ex, const lf_rm_text *texts, size_t n,
                        float *out, bool (*stop)(void), lf_err *err)
{
    static const char *const names[] = {"image", "text"};
    double number[2];
    int rc = lf_dual_numbers(s->ps, number, NULL, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check(s, &texts[i], i, err);
    for (size_t at = 0, k; at < n && rc == 0; at += k) {
        if (stop && stop())
            return lf_fail(err, LF_EINTR, "stopped after %zu of %zu texts", at, n);
        const int side = texts[at].sees ? IMAGE : TEXT;
        k = take(s, texts + at, n - at);
        rc = side == IMAGE ? write_pictures(s, ex, texts + at, k, err)
                           : write_texts(s, ex, texts + at, k, err);
        if (rc == 0)
            rc = lf_exec_run(ex, s->chain[side], LF_FWD, 0, LF_FIRST, err);
        if (rc == 0)
            rc = lf_exec_read(ex, s->chain[side], 0, names[side], s->v,
                              (size_t)(s->r[side].pairs * s->width) * sizeof *s->v, err);
        for (size_t i = 0; i < k && rc == 0; i++)
            rc = give(s, number, s->v + i * (size_t)s->width, at + i,
                      out + (at + i) * (size_t)lf_tower_scorer_width(s), err);
    }
    return rc;
}
