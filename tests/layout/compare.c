/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have shown against what one rank has.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/layout/rig.h"

/* Do ranks round to bf16 what one rank has not rounded? Ranks of context that have the same head of
 * keys round their addends of its gradient. */
static bool rounds_otherwise(const struct rig_case *k)
{
    const int64_t kv = k->c.model.kv_heads;
    return k->layout.tensor > 1 || k->layout.context > kv;
}

static struct rig_bounds bounds_f32(void)
{
    return (struct rig_bounds){.grad = 1e-5,
                               .loss = 1e-5,
                               .routes = 1e-5,
                               .norm = 1e-5,
                               .change = 1e-3,
                               .balance = 1e-3,
                               .noise = 1e-3};
}

static struct rig_bounds bounds_bf16(const struct rig_case *k)
{
    /* After the first step some weights round to the other neighbour in bf16, and then a row may go
     * to another expert, whose load may cross the mean by it; where ranks divide matrices, in the
     * first step too. A of an adapter has small gradients, since B begins with zeros. */
    const bool divided = rounds_otherwise(k);
    const double more = (k->c.model.experts ? 5 : 1) * (divided ? 2 : 1),
                 /* Such rows make others in layers behind, as roundings do: of 16 seeds of a model
                  * with four layers and norms behind products, ranks and one rank were as far from
                  * f32 (2.5e-4 and 2.1e-4 of the loss), and 2.3e-4 from each other, at most 5.7e-4,
                  * with no sign of their own; of two layers half of it is allowed. */
        depth = (double)k->c.model.layers / 2;
    /* Ranks that have the same head of keys each round their addend of the gradient of A. */
    const bool shared = k->layout.tensor > k->c.model.kv_heads;
    /* The load of routers counts rows: 8 sequences of 16 tokens to 2 of 4 experts each are 64 rows
     * for an expert, and one that goes to another expert moves the largest by up to 1/64. */
    const double one_row = 2e-2;
    /* There are more of them where more is rounded otherwise: with eight ranks, with adapters, and
     * with both, of which routes_test has a row (2.2e-3 of the loss and 0.22 of a gradient here,
     * and with one rank's choices within the bounds of models without experts). */
    const int many = (k->layout.tensor > 4) + k->adapted, both = many == 2 && k->c.model.experts;
    const double routes = (both ? 32e-2 : many ? 16e-2 : 8e-2) * depth * depth;
    return (struct rig_bounds){.grad = !divided             ? 1e-5
                                       : k->c.model.experts ? routes
                                                            : 2e-2,
                               .loss = (both ? 2 : 1) * more * (divided ? 2e-4 * depth : 1e-4),
                               .routes = divided ? one_row : more * 1e-4,
                               .rows = divided ? 1 : 0,
                               .norm = more * (divided ? 2e-3 : 1e-3),
                               .change = more * (!divided     ? 3e-2
                                                 : k->adapted ? (shared ? 15e-2 : 12e-2)
                                                              : 6e-2),
                               .balance = 1,
                               .noise = 2e-2,
                               .slack = 3};
}

struct rig_bounds rig_bounds(const struct rig_case *k)
{
    struct rig_bounds b = k->c.compute == LF_F32 ? bounds_f32() : bounds_bf16(k);
    b.lr = k->c.lr;
    b.eps = (double)k->c.adam.eps;
    b.clip = k->c.clip;
    return b;
}

bool rig_needs_exact(const struct rig_case *k)
{
    return k->c.compute != LF_F32 && rounds_otherwise(k);
}

/* ---- words ---- */

static const char *const names[] = {"run",     "loss",  "grad",     "norm",  "change", "apart",
                                    "missing", "scale", "replicas", "moved", "bits"};

const char *rig_names(unsigned seen, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (seen & 1u << i)
            at += (size_t)snprintf(text + at, cap - at, "%s%s", at ? " " : "", names[i]);
    return text;
}

struct report {
    unsigned seen;
    char *text;
    size_t cap;
};

static void found(struct report *r, enum rig_check what, const char *of, double got, double most)
{
    const size_t at = strlen(r->text);
    char name[32];
    if (r->seen & what)
        return;
    r->seen |= what;
    snprintf(r->text + at, r->cap - at, "%s%s: %s %.3g (at most %.3g)", at ? "; " : "",
             rig_names(what, name, sizeof name), of, got, most);
}

/* ---- tensors ---- */

static double apart(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        const double d = (double)a[e] - (double)b[e];
        sum += d * d;
    }
    return sqrt(sum);
}

static double norm(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t e = 0; e < n; e++)
        sum += (double)x[e] * (double)x[e];
    return sqrt(sum);
}

/* The first step of AdamW, without decay, is a function of the gradient alone. */
static double first_step(double g, const struct rig_bounds *b)
{
    return b->lr * g / (fabs(g) + b->eps);
}

/* A run, and what its first gradients are multiplied with before the first step. */
struct side {
    const struct rig_seen *s;
    double clipped;
    double typical[RIG_KINDS]; /* element of a kind, over all tensors */
};

/* Of an element, over all tensors. */
static double typical(const struct rig_seen *s, enum rig_kind kind)
{
    double sum = 0, n = 0;
    for (int i = 0; i < s->n; i++) {
        const struct rig_tensor *t = &s->t[i];
        if (!t->v[kind])
            continue;
        const double d =
            kind == RIG_AFTER ? apart(t->v[kind], t->v[RIG_BEFORE], t->n) : norm(t->v[kind], t->n);
        sum += d * d;
        n += (double)t->n;
    }
    return n > 0 ? sqrt(sum / n) : 0;
}

static struct side side_of(const struct rig_seen *s, const struct rig_bounds *b)
{
    double sum = 0;
    for (int i = 0; s && i < s->n; i++)
        if (s->t[i].v[RIG_GRAD])
            sum += pow(norm(s->t[i].v[RIG_GRAD], s->t[i].n), 2);
    struct side of = {s, sum > 0 ? fmin(s->norm[0], b->clip) / sqrt(sum) : 0, {0}};
    for (int kind = RIG_GRAD; s && kind <= RIG_V; kind++)
        of.typical[kind] = typical(s, (enum rig_kind)kind);
    return of;
}

/* How far the weights of tensor i are apart, less what follows in the first step from gradients
 * that were compared already: near zero that step is their sign, and a rounding makes the other
 * one of it. */
static double apart_since(const struct side *one, const struct side *other, int i,
                          const struct rig_bounds *b)
{
    const struct rig_tensor *x = &one->s->t[i], *y = &other->s->t[i];
    const float *gx = x->v[RIG_GRAD], *gy = y->v[RIG_GRAD];
    double sum = 0;
    if (!gx || !gy)
        return apart(x->v[RIG_AFTER], y->v[RIG_AFTER], x->n);
    for (int64_t e = 0; e < x->n; e++) {
        const double d = (double)x->v[RIG_AFTER][e] - (double)y->v[RIG_AFTER][e] +
                         first_step(one->clipped * (double)gx[e], b) -
                         first_step(other->clipped * (double)gy[e], b);
        sum += d * d;
    }
    return sqrt(sum);
}

/* How far a tensor is from one rank's, relative to its norm or change; NaN where it has one. What
 * ranks measure of weights, such as magnitudes, begins apart by a rounding, and may stay so. A
 * number that all elements of a value share has a gradient whose terms may cancel to any small
 * part of them: it is measured by the typical element, too. */
static double distance(const struct side *one, const struct side *other, int i, enum rig_kind kind,
                       const struct rig_bounds *b)
{
    const struct rig_tensor *x = &one->s->t[i], *y = &other->s->t[i];
    const float *before = x->v[RIG_BEFORE], *v = x->v[kind];
    const bool changes = kind == RIG_AFTER;
    const double noise = (x->n > 1 ? b->noise * sqrt((double)x->n) : 1) * one->typical[kind],
                 size = (changes ? apart(v, before, x->n) : norm(v, x->n)) + noise;
    const double began = changes && y->v[RIG_BEFORE] ? apart(before, y->v[RIG_BEFORE], x->n) : 0,
                 d = (changes ? apart_since(one, other, i, b) : apart(v, y->v[kind], x->n)) - began;
    return size > 0 ? d / size : d;
}

/* A bound of gradients is one of the root mean square of roundings. Of one element it is the only
 * one, which is at most three times as large in all but 0.3 % of draws. */
static double most(enum rig_kind kind, const struct rig_tensor *x, const struct rig_bounds *b)
{
    return kind == RIG_GRAD                 ? b->grad * (x->n > 1 ? 1 : 3)
           : strstr(x->name, "router.bias") ? b->balance
                                            : b->change;
}

/* `most`, or as much more as what rounding makes of one rank permits. */
static double limit_of(const struct rig_bounds *b, double most, double rounding)
{
    const double more = b->exact ? b->slack * rounding : 0;
    return more > most ? more : most;
}

/* Do the ranks together have the tensors that one rank has? */
static bool same_names(const struct rig_seen *one, const struct rig_seen *s)
{
    bool same = one->n == s->n;
    for (int i = 0; same && i < one->n; i++)
        same = strcmp(one->t[i].name, s->t[i].name) == 0;
    return same;
}

/* Of `one` and another run: the latter's, and those of one rank in f32. */
struct sides {
    struct side one, other, exact;
};

static void compare_kind(struct report *r, const struct sides *s, enum rig_kind kind,
                         const struct rig_bounds *b)
{
    for (int i = 0; i < s->one.s->n; i++) {
        const struct rig_tensor *x = &s->one.s->t[i], *y = &s->other.s->t[i];
        if (!x->v[kind] != !y->v[kind])
            found(r, RIG_SAW_MISSING, x->name, 1, 0);
        if (!x->v[kind] || !y->v[kind])
            continue;
        const double d = distance(&s->one, &s->other, i, kind, b),
                     rounding = b->exact ? distance(&s->one, &s->exact, i, kind, b) : 0,
                     limit = limit_of(b, most(kind, x, b), rounding);
        if (!(d <= limit))
            found(r, kind == RIG_GRAD ? RIG_SAW_GRAD : RIG_SAW_CHANGE, x->name, d, limit);
    }
}

/* The rounding of what ranks measure of weights. */
static const double BEGIN = 1e-6;

static void compare_begin(struct report *r, const struct rig_seen *one, const struct rig_seen *s)
{
    for (int i = 0; i < one->n; i++) {
        const struct rig_tensor *x = &one->t[i], *y = &s->t[i];
        const float *v = x->v[RIG_BEFORE], *w = y->v[RIG_BEFORE];
        const double d = v && w ? apart(v, w, x->n) : 0, size = v && w ? norm(v, x->n) : 0;
        if (!(d <= BEGIN * (size > 0 ? size : 1)))
            found(r, RIG_SAW_CHANGE, x->name, d, BEGIN * (size > 0 ? size : 1));
    }
}

static double relative(double one, double x)
{
    return fabs(x - one) / (fabs(one) + 1e-30);
}

/* Accuracy counts rows, of which there may be none, so it is compared in rows; NaN where there is
 * no such number. */
static void compare_accuracy(struct report *r, const struct rig_seen *one, const struct rig_seen *s,
                             const struct rig_bounds *b)
{
    const double rows = one->told[0] * one->trained, got = s->told[0] * s->trained,
                 rounding = b->exact ? fabs(b->exact->told[0] * b->exact->trained - rows) : 0,
                 limit = limit_of(b, b->loss * (rows + 1) + b->rows, rounding) + 1e-6;
    if (!(isnan(rows) && isnan(got)) && !(fabs(got - rows) <= limit))
        found(r, RIG_SAW_LOSS, "rows of the accuracy", fabs(got - rows), limit);
}

/* What else is told of step 1 beside its loss; NaN where there is no such number. */
static void compare_told(struct report *r, const double *one, const double *s,
                         const struct rig_bounds *b)
{
    static const char *const of[RIG_TOLD] = {[1] = "entropy", "z",
                                             "routers' aux",  "routers' entropy",
                                             "routers' load", "dropped by experts"};
    for (int i = 1; i < RIG_TOLD; i++) {
        const double most = i < RIG_TOLD_ROUTES ? b->loss : b->routes,
                     limit = limit_of(b, most, b->exact ? relative(one[i], b->exact->told[i]) : 0);
        if (!(isnan(one[i]) && isnan(s[i])) && !(relative(one[i], s[i]) <= limit))
            found(r, RIG_SAW_LOSS, of[i], relative(one[i], s[i]), limit);
    }
}

/* One number of each step of runs, and how far it may be from one rank's. */
struct numbers {
    const double *one, *s, *exact; /* exact may be NULL */
    double most;
};

static void compare_numbers(struct report *r, enum rig_check what, const struct numbers *n,
                            int from, const struct rig_bounds *b)
{
    for (int k = from; k < RIG_STEPS; k++) {
        const double d = relative(n->one[k], n->s[k]),
                     limit = limit_of(b, n->most, n->exact ? relative(n->one[k], n->exact[k]) : 0);
        const bool both = isnan(n->s[k]) && isnan(n->one[k]);
        char of[32];
        snprintf(of, sizeof of, "step %d", k + 1);
        if (!both && !(d <= limit))
            found(r, what, of, d, limit);
    }
}

static const char *const axes[RIG_AXES] = {"data", "tensor", "pipeline", "context", "expert"};

static void compare_moved(struct report *r, const struct rig_moved *m, const char *axis)
{
    char of[40];
    snprintf(of, sizeof of, "calls on the %s axis", axis);
    if (m->calls != m->planned_calls)
        found(r, RIG_SAW_MOVED, of, (double)m->calls, (double)m->planned_calls);
    snprintf(of, sizeof of, "bytes on the %s axis", axis);
    if ((double)m->bytes != m->planned_bytes)
        found(r, RIG_SAW_MOVED, of, (double)m->bytes, m->planned_bytes);
}

unsigned rig_compare(const struct rig_seen *one, const struct rig_seen *s,
                     const struct rig_bounds *b, char *text, size_t cap)
{
    struct report r = {.text = text, .cap = cap};
    text[0] = '\0';
    const struct rig_seen *x = b->exact;
    const struct sides sides = {
        .one = side_of(one, b), .other = side_of(s, b), .exact = side_of(x, b)};
    const struct numbers loss = {one->loss, s->loss, x ? x->loss : NULL, b->loss},
                         norms = {one->norm, s->norm, x ? x->norm : NULL, b->norm},
                         scale = {one->scale, s->scale, NULL, 0};
    if (!same_names(one, s)) { /* nothing else can be compared */
        found(&r, RIG_SAW_MISSING, "tensors", s->n, one->n);
        return r.seen;
    }
    compare_numbers(&r, RIG_SAW_LOSS, &loss, s->from, b);
    if (!s->from) {
        compare_accuracy(&r, one, s, b);
        compare_told(&r, one->told, s->told, b);
    }
    if (!s->from) {
        compare_begin(&r, one, s);
        compare_kind(&r, &sides, RIG_GRAD, b);
    }
    compare_numbers(&r, RIG_SAW_NORM, &norms, s->from, b);
    for (int kind = RIG_AFTER; kind <= RIG_V; kind++)
        compare_kind(&r, &sides, (enum rig_kind)kind, b);
    compare_numbers(&r, RIG_SAW_SCALE, &scale, s->from, b);
    if (s->apart[0])
        found(&r, RIG_SAW_APART, s->apart, 1, 0);
    if (s->missing[0])
        found(&r, RIG_SAW_MISSING, s->missing, 1, 0);
    for (int i = 0; i < RIG_AXES; i++)
        compare_moved(&r, &s->moved[i], axes[i]);
    if (s->replicas)
        found(&r, RIG_SAW_REPLICAS, "different weights", 1, 0);
    return r.seen;
}

static bool same_tensor(const struct rig_tensor *a, const struct rig_tensor *b, int from, int to)
{
    for (int k = from; k < to; k++)
        if (!a->v[k] != !b->v[k] ||
            (a->v[k] && memcmp(a->v[k], b->v[k], (size_t)a->n * sizeof(float)) != 0))
            return false;
    return true;
}

static bool same_tensors(const struct rig_seen *a, const struct rig_seen *b, int from, int to,
                         char *text, size_t cap)
{
    if (!same_names(a, b))
        snprintf(text, cap, "%d and %d tensors", a->n, b->n);
    for (int i = 0; i < a->n && !text[0]; i++)
        if (!same_tensor(&a->t[i], &b->t[i], from, to))
            snprintf(text, cap, "%s", a->t[i].name);
    return !text[0];
}

bool rig_begins_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap)
{
    text[0] = '\0';
    return same_tensors(a, b, RIG_BEFORE, RIG_GRAD, text, cap);
}

bool rig_ends_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap)
{
    text[0] = '\0';
    return same_tensors(a, b, RIG_AFTER, RIG_KINDS, text, cap);
}

bool rig_equal(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap)
{
    const bool numbers = memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
                         memcmp(a->norm, b->norm, sizeof a->norm) == 0;
    snprintf(text, cap, "%s", numbers ? "" : "loss or norm");
    return same_tensors(a, b, 0, RIG_KINDS, text, cap);
}

bool rig_loss_alike(const struct rig_seen *a, const struct rig_seen *b, char *text, size_t cap)
{
    const bool loss = memcmp(&a->loss[0], &b->loss[0], sizeof a->loss[0]) == 0;
    snprintf(text, cap, "%s", !same_names(a, b) ? "tensors" : loss ? "" : "loss");
    return !text[0];
}

static bool is_table_of_stack(const char *name)
{
    return strcmp(name, "relative.weight") == 0 || strcmp(name, "encoder.relative.weight") == 0;
}

bool rig_steps_alike(const struct rig_seen *a, const struct rig_seen *b, const char *but,
                     char *text, size_t cap)
{
    (void)rig_loss_alike(a, b, text, cap);
    for (int i = 0; i < a->n && !text[0]; i++)
        if (!(but && strcmp(a->t[i].name, but) == 0) && !is_table_of_stack(a->t[i].name) &&
            !same_tensor(&a->t[i], &b->t[i], RIG_GRAD, RIG_GRAD + 1))
            snprintf(text, cap, "first gradient of %s", a->t[i].name);
    return !text[0];
}
