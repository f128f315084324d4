/* SPDX-License-Identifier: Apache-2.0
 *
 * The unigram language model over pieces (Kudo 2018, section 3.2). A text's probability is the sum
 * over its segmentations of the product of their pieces' p.
 *
 *   E  expected number of times each piece is used: forward and backward sums over the lattice of
 *      every word
 *   M  log p = psi(expected) - psi(sum), psi the digamma function: a sparse prior takes from rare
 *      pieces; a piece expected less than half a time is dropped
 *   prune  for each piece, what the likelihood of the best segmentations loses when its second best
 *          way to be written
 *      takes its place; the pieces that matter least go, a quarter at most in a round
 *
 * Expected counts are rounded to 2^-20 and added as integers, so their sum does not depend on
 * threads or order.
 */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/vocab/train_sp_priv.h"

#define SEEDS      1000000
#define EM_ROUNDS  2
#define KEEP_SHARE 0.75
#define ROOM_SHARE                                                                                 \
    1.1 /* pruning stops at this many times the room; the last cut is by probability */
#define ONE         1048576.0
#define MAX_THREADS 16 /* each has a count of every piece */
#define NO_PIECE    UINT32_MAX

/* Pieces by text: a tree in a hash table, (node, character) -> node. */
typedef struct tree {
    uint64_t *keys; /* node << 32 | character, + 1; 0 free */
    uint32_t *to;
    size_t mask, n_edges;
    uint32_t *piece; /* of a node, NO_PIECE none */
    size_t n_nodes, cap_nodes;
} tree;

typedef struct model {
    const lf_sp_train_args *a;
    const lf_sp_words *w;
    lf_sp_cand *v;
    size_t n;
    tree t;
    int threads;
} model;

/* One word's lattice; edges in order of their begin, then end. */
typedef struct edge {
    uint32_t begin, end, piece;
} edge;
typedef struct lattice {
    edge *e;
    size_t n, cap;
    double *alpha, *beta;
    uint32_t *back; /* edge into a position on the best way */
    size_t room;
} lattice;

/* ---- tree ---- */

static inline size_t slot(const tree *t, uint64_t key)
{
    size_t k = (size_t)((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> 20) & t->mask;
    while (t->keys[k] && t->keys[k] != key)
        k = (k + 1) & t->mask;
    return k;
}

static inline uint64_t edge_key(uint32_t node, uint32_t c)
{
    return ((uint64_t)node << 32 | c) + 1;
}

static int tree_grow(tree *t, lf_err *err)
{
    tree old = *t;
    size_t slots = t->keys ? (t->mask + 1) * 2 : 1 << 16;
    t->keys = lf_calloc(slots, sizeof(*t->keys), err);
    t->to = lf_malloc(slots, sizeof(*t->to), err);
    t->mask = slots - 1;
    if (!t->keys || !t->to) {
        free(t->keys);
        free(t->to);
        *t = old;
        return LF_ENOMEM;
    }
    for (size_t i = 0; old.keys && i <= old.mask; i++)
        if (old.keys[i]) {
            size_t k = slot(t, old.keys[i]);
            t->keys[k] = old.keys[i];
            t->to[k] = old.to[i];
        }
    free(old.keys);
    free(old.to);
    return 0;
}

static void tree_fini(tree *t)
{
    free(t->keys);
    free(t->to);
    free(t->piece);
    *t = (tree){0};
}

static int new_node(tree *t, lf_err *err)
{
    int rc = lf_grow(&t->piece, &t->cap_nodes, t->n_nodes, sizeof(*t->piece), err);
    if (rc == 0)
        t->piece[t->n_nodes++] = NO_PIECE;
    return rc;
}

static int tree_add(tree *t, const uint32_t *sym, size_t len, uint32_t piece, lf_err *err)
{
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        int rc = !t->keys || t->n_edges * 2 > t->mask ? tree_grow(t, err) : 0;
        if (rc != 0)
            return rc;
        uint64_t key = edge_key(node, sym[i]);
        size_t k = slot(t, key);
        if (!t->keys[k]) {
            if ((rc = new_node(t, err)) != 0)
                return rc;
            t->keys[k] = key;
            t->to[k] = (uint32_t)(t->n_nodes - 1);
            t->n_edges++;
        }
        node = t->to[k];
    }
    t->piece[node] = piece;
    return 0;
}

static int make_tree(model *m, lf_err *err)
{
    tree_fini(&m->t);
    int rc = new_node(&m->t, err);
    for (size_t i = 0; i < m->n && rc == 0; i++)
        rc = tree_add(&m->t, m->w->words.sym + m->v[i].at, m->v[i].len, (uint32_t)i, err);
    return rc;
}

/* ---- lattice ---- */

static void lattice_fini(lattice *l)
{
    free(l->e);
    free(l->alpha);
    free(l->beta);
    free(l->back);
}

/* Every way to begin a piece at every position; `not` is a piece that may not be used. */
static int build(lattice *l, const model *m, const uint32_t *sym, size_t n, uint32_t not,
                 lf_err *err)
{
    int rc = 0;
    if (n + 1 > l->room) {
        l->room = 2 * (n + 1);
        rc = lf_realloc(&l->alpha, l->room, sizeof(*l->alpha), err);
        if (rc == 0)
            rc = lf_realloc(&l->beta, l->room, sizeof(*l->beta), err);
        if (rc == 0)
            rc = lf_realloc(&l->back, l->room, sizeof(*l->back), err);
    }
    l->n = 0;
    for (size_t b = 0; b < n && rc == 0; b++) {
        uint32_t node = 0;
        for (size_t k = b; k < n && k < b + m->a->max_piece && rc == 0; k++) {
            uint64_t key = edge_key(node, sym[k]);
            size_t s = slot(&m->t, key);
            if (!m->t.keys[s])
                break;
            node = m->t.to[s];
            uint32_t p = m->t.piece[node];
            if (p == NO_PIECE || p == not )
                continue;
            rc = lf_grow(&l->e, &l->cap, l->n, sizeof(*l->e), err);
            if (rc == 0)
                l->e[l->n++] = (edge){(uint32_t)b, (uint32_t)(k + 1), p};
        }
    }
    return rc;
}

static inline double log_add(double x, double y)
{
    double hi = x > y ? x : y, lo = x > y ? y : x;
    return lo == -HUGE_VAL ? hi : hi + log1p(exp(lo - hi));
}

/* Add the word's expected uses, times its count, to expected[]. Returns log p of the word. */
static double forward_backward(lattice *l, const model *m, size_t n, uint64_t count,
                               int64_t *expected)
{
    for (size_t i = 0; i <= n; i++)
        l->alpha[i] = l->beta[i] = -HUGE_VAL;
    l->alpha[0] = l->beta[n] = 0;
    for (size_t i = 0; i < l->n; i++)
        l->alpha[l->e[i].end] =
            log_add(l->alpha[l->e[i].end], l->alpha[l->e[i].begin] + m->v[l->e[i].piece].score);
    for (size_t i = l->n; i-- > 0;)
        l->beta[l->e[i].begin] =
            log_add(l->beta[l->e[i].begin], l->beta[l->e[i].end] + m->v[l->e[i].piece].score);
    double z = l->alpha[n];
    for (size_t i = 0; i < l->n; i++) {
        const edge *e = &l->e[i];
        double p = exp(l->alpha[e->begin] + m->v[e->piece].score + l->beta[e->end] - z);
        expected[e->piece] += llround(p * (double)count * ONE);
    }
    return z;
}

/* Best way through: l->back, and its log p in l->alpha[n]. Of equal ones the one whose last piece
 * begins first. */
static void best_way(lattice *l, const model *m, size_t n)
{
    for (size_t i = 0; i <= n; i++)
        l->alpha[i] = -HUGE_VAL;
    l->alpha[0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        const edge *e = &l->e[i];
        double s = l->alpha[e->begin] + m->v[e->piece].score;
        if (s > l->alpha[e->end]) {
            l->alpha[e->end] = s;
            l->back[e->end] = (uint32_t)i;
        }
    }
}

/* ---- sums over all words ---- */

/* expected[]: of all words, in units of 2^-20; or with `best`, uses in the best segmentations. */
static int count_uses(const model *m, bool best, int64_t *sum, lf_err *err)
{
    const lf_merge_words *w = &m->w->words;
    int failed = 0;
    memset(sum, 0, m->n * sizeof(*sum));
#pragma omp parallel num_threads(m->threads)
    {
        lattice l = {0};
        int64_t *mine = calloc(m->n, sizeof(*mine));
        int rc = mine ? 0 : LF_ENOMEM;
#pragma omp for schedule(dynamic, 1024)
        for (size_t i = 0; i < w->n; i++) {
            size_t n = w->len[i];
            if (rc == 0)
                rc = build(&l, m, w->sym + w->start[i], n, NO_PIECE, NULL);
            if (rc == 0 && !best)
                forward_backward(&l, m, n, w->count[i], mine);
            if (rc != 0 || !best)
                continue;
            best_way(&l, m, n);
            for (size_t at = n; at > 0; at = l.e[l.back[at]].begin)
                mine[l.e[l.back[at]].piece] += (int64_t)w->count[i];
        }
#pragma omp critical
        {
            failed = rc != 0 ? rc : failed;
            for (size_t i = 0; mine && i < m->n; i++)
                sum[i] += mine[i];
        }
        free(mine);
        lattice_fini(&l);
    }
    return failed ? lf_fail(err, failed, "no memory to train on %zu words", w->n) : 0;
}

/* The derivative of log gamma: recurrence up to 7, then the asymptotic series. */
static double digamma(double x)
{
    double r = 0;
    for (; x < 7; x++)
        r -= 1 / x;
    double y = x - 0.5, s = 1 / (y * y);
    return r + log(y) + s * (1.0 / 24 - s * (7.0 / 960 - s * (31.0 / 8064 - s * (127.0 / 30720))));
}

static int em_round(model *m, int64_t *uses, lf_err *err)
{
    int rc = count_uses(m, false, uses, err);
    size_t k = 0;
    double sum = 0;
    for (size_t i = 0; i < m->n && rc == 0; i++) {
        double expected = (double)uses[i] / ONE;
        if (m->v[i].len > 1 && expected < 0.5)
            continue;
        m->v[k] = m->v[i];
        m->v[k].score = expected > 0.5 ? expected : 0.5; /* single characters stay */
        sum += m->v[k++].score;
    }
    if (rc != 0)
        return rc;
    m->n = k;
    for (size_t i = 0; i < k; i++)
        m->v[i].score = digamma(m->v[i].score) - digamma(sum);
    return make_tree(m, err);
}

/* ---- pruning ---- */

typedef struct ranked {
    double value; /* a loss (HUGE_VAL: always kept) or a score */
    uint32_t piece;
} ranked;

/* Greatest first, equal ones as they stand. */
static int by_value(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    if (a->value != b->value)
        return a->value < b->value ? 1 : -1;
    return (a->piece > b->piece) - (a->piece < b->piece);
}

/* What is lost without piece i: its share of all uses times the fall of log p when its second best
 * segmentation takes over its uses. Negative: nothing. */
static int loss_of(double *out, const model *m, lattice *l, uint32_t i, const int64_t *uses,
                   double all, lf_err *err)
{
    const lf_sp_cand *c = &m->v[i];
    *out = HUGE_VAL;
    if (c->len == 1)
        return 0;
    int rc = build(l, m, m->w->words.sym + c->at, c->len, i, err);
    if (rc != 0)
        return rc;
    best_way(l, m, c->len);
    *out = -1;
    if (uses[i] == 0 || l->alpha[c->len] > c->score)
        return 0;
    size_t parts = 0;
    double f = (double)uses[i], alternative = 0;
    for (size_t at = c->len; at > 0; at = l->e[l->back[at]].begin, parts++)
        alternative += log((double)uses[l->e[l->back[at]].piece] + f);
    alternative -= (double)parts * log(all + f * ((double)parts - 1));
    double v = f / all * (log(f) - log(all) - alternative);
    *out = v > 0 ? v : 0;
    return 0;
}

static int prune(model *m, size_t target, int64_t *uses, lf_err *err)
{
    ranked *v = lf_malloc(m->n, sizeof(*v), err);
    lf_sp_cand *left = lf_malloc(m->n, sizeof(*left), err);
    lattice l = {0};
    int rc = v && left ? count_uses(m, true, uses, err) : LF_ENOMEM;
    double all = 0;
    for (size_t i = 0; i < m->n && rc == 0; i++)
        all += (double)uses[i];
    size_t n = 0;
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        v[n].piece = i;
        rc = loss_of(&v[n].value, m, &l, i, uses, all, err);
        n += v[n].value >= 0;
    }
    if (rc == 0) {
        size_t size = (size_t)(KEEP_SHARE * (double)m->n);
        size = size > target ? size : target;
        qsort(v, n, sizeof(*v), by_value);
        n = n < size ? n : size;
        for (size_t i = 0; i < n; i++)
            left[i] = m->v[v[i].piece];
        memcpy(m->v, left, n * sizeof(*left));
        m->n = n;
        rc = make_tree(m, err);
    }
    lattice_fini(&l);
    free(left);
    free(v);
    return rc;
}

/* ---- the whole ---- */

/* Single characters and the likeliest others, at most room, by falling score. */
static int finish(lf_sp_vocab *out, const model *m, size_t room, lf_err *err)
{
    lf_buf text;
    size_t others = room - m->w->n_chars;
    ranked *v = lf_malloc(m->n, sizeof(*v), err);
    int rc = v ? 0 : LF_ENOMEM;
    lf_buf_init(&text);
    for (size_t i = 0; i < m->n && v; i++)
        v[i] = (ranked){m->v[i].score, (uint32_t)i};
    if (v)
        qsort(v, m->n, sizeof(*v), by_value);
    for (size_t i = 0; i < m->n && rc == 0; i++) {
        const lf_sp_cand *c = &m->v[v[i].piece];
        if (c->len > 1 && others == 0)
            continue;
        others -= c->len > 1;
        lf_buf_clear(&text);
        lf_sp_text(&text, m->w, c->at, c->len);
        rc = lf_buf_check(&text, err);
        if (rc == 0)
            rc = lf_sp_vocab_add(out, text.data, (float)c->score, LF_SPM_NORMAL, err);
    }
    free(v);
    lf_buf_fini(&text);
    return rc;
}

int lf_sp_unigram(lf_sp_vocab *out, const lf_sp_train_args *a, const lf_sp_words *w, size_t room,
                  lf_bpe_progress_fn fn, void *arg, lf_err *err)
{
    model m = {.a = a, .w = w, .threads = a->threads < MAX_THREADS ? a->threads : MAX_THREADS};
    size_t target = (size_t)(ROOM_SHARE * (double)room);
    int rc = lf_sp_seed(&m.v, &m.n, w, a->max_piece, SEEDS, err);
    int64_t *uses = rc == 0 ? lf_malloc(m.n, sizeof(*uses), err) : NULL;
    double sum = 0;
    for (size_t i = 0; i < m.n && uses; i++)
        sum += (double)m.v[i].count * m.v[i].len;
    for (size_t i = 0; i < m.n && uses; i++)
        m.v[i].score = log((double)m.v[i].count * m.v[i].len / sum);
    if (rc == 0)
        rc = uses ? make_tree(&m, err) : LF_ENOMEM;
    size_t seeds = m.n;
    while (rc == 0) {
        for (int i = 0; i < EM_ROUNDS && rc == 0; i++)
            rc = em_round(&m, uses, err);
        if (rc != 0 || m.n <= target)
            break;
        rc = prune(&m, target, uses, err);
        if (rc == 0 && fn && fn(arg, seeds - m.n, seeds - target) != 0)
            rc = lf_fail(err, LF_EINTR, "training was stopped");
    }
    if (rc == 0)
        rc = finish(out, &m, room, err);
    tree_fini(&m.t);
    free(uses);
    free(m.v);
    return rc;
}
