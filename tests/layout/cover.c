/* SPDX-License-Identifier: Apache-2.0
 *
 * Covering arrays, greedily: see cover.h.
 */
#include "tests/layout/cover.h"

#include <stdlib.h>
#include <string.h>

enum { UNSET = COVER_ANY, TRIES = 30, ROW = 40 };
enum mark { OPEN, COVERED, REFUSED, ABSENT }; /* ABSENT: not of the values that are fixed */

/* What has become of each pair. */
struct table {
    const struct cover *c;
    uint8_t *mark; /* [switch][value][switch][value], both orders */
};

static uint8_t *at(const struct table *t, int a, int va, int b, int vb)
{
    return &t->mark[((a * COVER_VALUES + va) * COVER_SWITCHES + b) * COVER_VALUES + vb];
}

static void set(const struct table *t, int a, int va, int b, int vb, enum mark m)
{
    *at(t, a, va, b, vb) = *at(t, b, vb, a, va) = (uint8_t)m;
}

/* How many open pairs value v of switch s would cover in a row; -1: it may not stand there. */
static int gain(const struct table *t, const uint8_t *row, int s, int v)
{
    int n = 0;
    for (int o = 0; o < t->c->n; o++) {
        if (o == s || row[o] == UNSET)
            continue;
        const enum mark m = (enum mark) * at(t, s, v, o, row[o]);
        if (m == REFUSED || m == ABSENT)
            return -1;
        n += m == OPEN;
    }
    return n;
}

/* How many open pairs value v of switch s has with any value of switches that are not set. */
static int outlook(const struct table *t, const uint8_t *row, int s, int v)
{
    int n = 0;
    for (int o = 0; o < t->c->n; o++)
        for (int w = 0; w < t->c->values[o] && o != s && row[o] == UNSET; w++)
            n += *at(t, s, v, o, w) == OPEN;
    return n;
}

static int cost(const struct table *t, int s, int v)
{
    return t->c->cost[s][v] ? t->c->cost[s][v] : 1;
}

static double row_cost(const struct table *t, const uint8_t *row)
{
    double all = 1;
    for (int s = 0; s < t->c->n; s++)
        all *= cost(t, s, row[s]);
    return all;
}

/* Sets the other switches, beginning with number `first`. false: one of them has no value that may
 * stand there. */
static bool complete(const struct table *t, uint8_t *row, int first)
{
    for (int k = 0; k < t->c->n; k++) {
        const int s = (first + k) % t->c->n;
        int best = 0, most = -1;
        for (int i = 0; i < t->c->values[s] && row[s] == UNSET; i++) {
            const int v = (i + first) % t->c->values[s], g = gain(t, row, s, v),
                      score = g < 0 ? -1 : 1000 * g + outlook(t, row, s, v);
            if (score > most || (score == most && score >= 0 && cost(t, s, v) < cost(t, s, best))) {
                most = score;
                best = v;
            }
        }
        if (row[s] == UNSET && most < 0)
            return false;
        if (row[s] == UNSET)
            row[s] = (uint8_t)best;
    }
    return true;
}

static int worth(const struct table *t, const uint8_t *row)
{
    int n = 0;
    for (int a = 0; a < t->c->n; a++)
        for (int b = a + 1; b < t->c->n; b++)
            n += *at(t, a, row[a], b, row[b]) == OPEN;
    return n;
}

/* Of some rows with this pair the one with most new pairs for what it costs: that of ROW for a row,
 * and of one for each time that it is dearer. */
static bool make_row(const struct table *t, const struct cover_pair *p, uint8_t *out)
{
    double most = 0;
    for (int k = 0; k < TRIES; k++) {
        uint8_t row[COVER_SWITCHES];
        memset(row, UNSET, sizeof row);
        row[p->a] = p->va;
        row[p->b] = p->vb;
        if (!complete(t, row, (p->a + 7 * k) % t->c->n))
            continue;
        const double w = worth(t, row) / (ROW + row_cost(t, row));
        if (w <= most)
            continue;
        most = w;
        memcpy(out, row, sizeof row);
    }
    return most > 0;
}

/* The first open pair from *p on. */
static bool next_open(const struct table *t, struct cover_pair *p)
{
    for (; p->a < t->c->n; p->a++, p->b = (uint8_t)(p->a + 1))
        for (; p->b < t->c->n; p->b++, p->va = 0)
            for (; p->va < t->c->values[p->a]; p->va++, p->vb = 0)
                for (; p->vb < t->c->values[p->b]; p->vb++)
                    if (*at(t, p->a, p->va, p->b, p->vb) == OPEN)
                        return true;
    return false;
}

static bool keep_row(const struct table *t, struct cover_rows *r, const uint8_t *row)
{
    void *v = realloc(r->v, (r->n + 1) * sizeof r->v[0]);
    if (!v)
        return false;
    r->v = v;
    memcpy(r->v[r->n++], row, sizeof r->v[0]);
    for (int a = 0; a < t->c->n; a++)
        for (int b = a + 1; b < t->c->n; b++) {
            r->covered += *at(t, a, row[a], b, row[b]) == OPEN;
            set(t, a, row[a], b, row[b], COVERED);
        }
    return true;
}

static bool is_fixed(const struct cover *c, int s, int v)
{
    return c->fixed && c->fixed[s] == v;
}

/* Not among the fixed values, or refused with one of them. */
static bool absent(const struct cover *c, int s, int v)
{
    bool with = false;
    for (size_t i = 0; i < c->n_refused && !with; i++) {
        const struct cover_pair *q = &c->refused[i];
        with = (q->a == s && q->va == v && is_fixed(c, q->b, q->vb)) ||
               (q->b == s && q->vb == v && is_fixed(c, q->a, q->va));
    }
    return with || (c->fixed && c->fixed[s] != COVER_ANY && c->fixed[s] != v);
}

/* Marks what may not be covered, and counts pairs. */
static void prepare(const struct table *t, struct cover_rows *out)
{
    const struct cover *c = t->c;
    for (int a = 0; a < c->n; a++)
        for (int b = a + 1; b < c->n; b++)
            for (int va = 0; va < c->values[a]; va++)
                for (int vb = 0; vb < c->values[b]; vb++)
                    if (absent(c, a, va) || absent(c, b, vb))
                        set(t, a, va, b, vb, ABSENT);
                    else if (cover_wants(c, a))
                        out->total++;
                    else
                        set(t, a, va, b, vb, COVERED);
    for (size_t i = 0; i < c->n_refused; i++) {
        const struct cover_pair *q = &c->refused[i];
        const enum mark m = (enum mark) * at(t, q->a, q->va, q->b, q->vb);
        if (m == ABSENT || m == REFUSED)
            continue;
        out->refused += m == OPEN;
        set(t, q->a, q->va, q->b, q->vb, REFUSED);
    }
}

bool cover_make(const struct cover *c, struct cover_rows *out)
{
    struct table t = {c, calloc(COVER_SWITCHES * COVER_VALUES, COVER_SWITCHES * COVER_VALUES)};
    struct cover_pair p = {.b = 1};
    uint8_t row[COVER_SWITCHES];
    bool good = t.mark != NULL;
    *out = (struct cover_rows){0};
    if (good)
        prepare(&t, out);
    while (good && next_open(&t, &p)) {
        if (make_row(&t, &p, row)) {
            good = keep_row(&t, out, row);
        } else { /* no row may hold it */
            out->left = p;
            p.vb++;
        }
    }
    free(t.mark);
    return good;
}

void cover_fini(struct cover_rows *r)
{
    free(r->v);
    *r = (struct cover_rows){0};
}

bool cover_is_refused(const struct cover *c, const uint8_t *row)
{
    for (size_t i = 0; i < c->n_refused; i++)
        if (row[c->refused[i].a] == c->refused[i].va && row[c->refused[i].b] == c->refused[i].vb)
            return true;
    return false;
}
