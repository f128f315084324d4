/* SPDX-License-Identifier: Apache-2.0
 *
 * First fit decreasing over several axes. Sequences are the leaves of a tree whose nodes know the
 * most room below them on each axis, so a branch without room on some axis is never entered. A node
 * may promise room that no single leaf has on all axes; then the search goes on behind it. Ties, of
 * documents with the same share, go by the order of documents.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/text/corpus/pack_priv.h"

enum { AXES = LF_PACK_AXES + 1 };
#define NONE UINT32_MAX

struct weight {
    uint32_t v[AXES];
};

struct piece {
    uint64_t doc;
    double share;
    struct weight w;
    uint32_t bin;
};

struct ffd {
    struct weight full, *room; /* room [2 n_leaves]: leaf i is node n_leaves + i */
    uint32_t *n;               /* [n_leaves] documents of a sequence */
    uint32_t n_leaves, n_bins;
    struct piece *pieces;
    size_t n_pieces;
};

/* ---- documents ---- */

static int by_share(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->share > y->share || x->share < y->share)
        return x->share > y->share ? -1 : 1;
    return x->doc < y->doc ? -1 : x->doc > y->doc;
}

/* false: no sequence holds it. */
static bool weigh(struct piece *out, const lf_pack *p, const struct lf_pack_docs *docs,
                  const struct weight *full, uint64_t doc)
{
    uint64_t w[AXES] = {p->len(p->user, doc)};
    docs->weigh(p->user, doc, w + 1);
    *out = (struct piece){.doc = doc, .bin = NONE};
    for (int a = 0; a < AXES; a++) {
        if (w[a] > full->v[a])
            return false;
        out->w.v[a] = (uint32_t)w[a];
        double share = full->v[a] ? (double)w[a] / full->v[a] : 0;
        out->share = share > out->share ? share : out->share;
    }
    return w[0] > 0;
}

static int sorted_pieces(const lf_pack *p, struct ffd *f, const struct lf_pack_docs *docs,
                         lf_err *err)
{
    size_t cap = 0;
    for (uint64_t d = 0; d < p->n_docs; d++) {
        int rc = lf_grow(&f->pieces, &cap, f->n_pieces, sizeof *f->pieces, err);
        if (rc < 0)
            return rc;
        f->n_pieces += weigh(&f->pieces[f->n_pieces], p, docs, &f->full, d);
    }
    if (f->n_pieces >= NONE)
        return lf_fail(err, LF_EINVAL, "too many documents to pack by first fit (2^32)");
    if (f->n_pieces)
        qsort(f->pieces, f->n_pieces, sizeof *f->pieces, by_share);
    return 0;
}

/* ---- sequences ---- */

static bool holds(const struct weight *room, const struct weight *w)
{
    for (int a = 0; a < AXES; a++)
        if (room->v[a] < w->v[a])
            return false;
    return true;
}

/* The first leaf below `node` that holds w. */
static uint32_t find(const struct ffd *f, uint32_t node, const struct weight *w)
{
    if (!holds(&f->room[node], w))
        return NONE;
    if (node >= f->n_leaves)
        return node - f->n_leaves;
    uint32_t left = find(f, 2 * node, w);
    return left != NONE ? left : find(f, 2 * node + 1, w);
}

static void set_room(struct ffd *f, uint32_t bin, const struct weight *room)
{
    uint32_t node = f->n_leaves + bin;
    f->room[node] = *room;
    while (node > 1) {
        const struct weight *a = &f->room[node & ~1u], *b = &f->room[node | 1u];
        node /= 2;
        for (int k = 0; k < AXES; k++)
            f->room[node].v[k] = a->v[k] > b->v[k] ? a->v[k] : b->v[k];
    }
}

/* Twice as many leaves, with the room that they had; new ones have none until they are opened. */
static int more_leaves(struct ffd *f, lf_err *err)
{
    const uint32_t n = f->n_leaves ? 2 * f->n_leaves : 64, had = f->n_leaves;
    struct weight *old = f->room;
    if (had > NONE / 4)
        return lf_fail(err, LF_EINVAL, "too many sequences to pack by first fit (2^31)");
    int rc = lf_realloc(&f->n, n, sizeof *f->n, err);
    if (rc < 0)
        return rc;
    if (!(f->room = lf_calloc(2 * (size_t)n, sizeof *f->room, err))) {
        f->room = old;
        return LF_ENOMEM;
    }
    f->n_leaves = n;
    for (uint32_t i = 0; i < had; i++)
        set_room(f, i, &old[had + i]);
    free(old);
    return 0;
}

static int place(const lf_pack *p, struct ffd *f, struct piece *x, lf_err *err)
{
    uint32_t bin = f->n_leaves ? find(f, 1, &x->w) : NONE;
    if (bin == NONE) {
        int rc = f->n_bins == f->n_leaves ? more_leaves(f, err) : 0;
        if (rc < 0)
            return rc;
        bin = f->n_bins++;
        f->n[bin] = 0;
        set_room(f, bin, &f->full);
    }
    struct weight room = f->room[f->n_leaves + bin];
    for (int a = 0; a < AXES; a++)
        room.v[a] -= x->w.v[a];
    /* One segment is kept back for the padding. */
    if (++f->n[bin] >= p->max_segs - 1)
        room.v[0] = 0;
    x->bin = bin;
    set_room(f, bin, &room);
    return 0;
}

/* The pieces by sequences, in each in the order in which they came. */
static int flatten(lf_pack *p, const struct ffd *f, lf_err *err)
{
    p->items = lf_malloc(f->n_pieces + 1, sizeof *p->items, err);
    p->first_item = lf_calloc((size_t)f->n_bins + 1, sizeof *p->first_item, err);
    uint64_t *at = lf_malloc((size_t)f->n_bins + 1, sizeof *at, err);
    if (!p->items || !p->first_item || !at) {
        free(at);
        return LF_ENOMEM;
    }
    for (uint32_t b = 0; b < f->n_bins; b++)
        p->first_item[b + 1] = p->first_item[b] + f->n[b];
    memcpy(at, p->first_item, ((size_t)f->n_bins + 1) * sizeof *at);
    for (size_t i = 0; i < f->n_pieces; i++)
        p->items[at[f->pieces[i].bin]++] =
            (struct lf_pack_item){.doc = f->pieces[i].doc, .len = f->pieces[i].w.v[0]};
    p->n = f->n_bins;
    free(at);
    return 0;
}

int lf_pack_build_ffd(lf_pack *p, const struct lf_pack_docs *docs, lf_err *err)
{
    struct ffd f = {.full = {{p->T}}};
    memcpy(f.full.v + 1, docs->most, sizeof docs->most);
    int rc = sorted_pieces(p, &f, docs, err);
    for (size_t i = 0; i < f.n_pieces && rc == 0; i++)
        rc = place(p, &f, &f.pieces[i], err);
    if (rc == 0)
        rc = flatten(p, &f, err);
    free(f.room);
    free(f.n);
    free(f.pieces);
    return rc;
}
