/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of windows and merges: which row goes where follows from sizes alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/vision_priv.h"

int64_t lf_window_of(const lf_vision_config *c, int64_t stage)
{
    const int64_t side = c->grid >> stage;
    return c->cosine && side < c->window ? side : c->window;
}

struct lf_windows lf_windows_of(const lf_vision_config *c, const struct lf_vision_rows *r,
                                int64_t l)
{
    const int64_t s = lf_vision_stage_at(c, l);
    const struct lf_vision_stage t = lf_vision_stage_of(c, s);
    struct lf_windows w = {.window = lf_window_of(c, s)};
    /* a window that is as large as the picture was made to be here has nowhere to go */
    const bool whole = (c->cosine ? c->grid >> s : t.side) <= w.window;
    w.shift = (l - t.first) % 2 && !whole ? c->window / 2 : 0;
    const int64_t each = (t.side + w.window - 1) / w.window, parts = each + (w.shift > 0);
    w.padded = each * w.window;
    w.rows = lf_vision_pictures(c, r) * w.padded * w.padded;
    w.docs = lf_vision_pictures(c, r) * parts * parts;
    w.max_doc = w.window * w.window;
    w.plain = each == 1 && w.padded == t.side && w.rows == lf_vision_stage_rows(c, r, s);
    return w;
}

/* ---- what a table is of ---- */

enum part { START, INDEX, WEIGHT, BACK_START, BACK_INDEX, BACK_WEIGHT, CU, CELLS };
enum kind { WINDOWS, MERGE, NUMBERS, DISTANCES };

struct table {
    int kind, part; /* enum kind, enum part */
    int64_t pictures, side, rows;
    int64_t window, shift, padded; /* of windows */
    int64_t half;                  /* MERGE: cells of a side behind it */
    int64_t trained;               /* DISTANCES */
};

struct entry {
    struct entry *next;
    struct table t;
};
struct lf_vision_tables {
    struct entry *first;
};

struct lf_vision_tables *lf_vision_tables_create(lf_err *err)
{
    return lf_calloc(1, sizeof(struct lf_vision_tables), err);
}

void lf_vision_tables_destroy(struct lf_vision_tables *t)
{
    struct entry *e = t ? t->first : NULL;
    while (e) {
        struct entry *next = e->next;
        free(e);
        e = next;
    }
    free(t);
}

/* ---- what is in it ---- */

/* Where cells of a source go. */
struct walk {
    const struct table *t;
    void *dst;
    int64_t row, entries; /* rows of the result and entries so far */
};

/* The next row of the result is cell (y, x) of a picture, or zeros beyond its side. */
static void see(struct walk *w, int64_t picture, int64_t y, int64_t x)
{
    const struct table *t = w->t;
    /* cells that are read, without those that a convolution steps over */
    const int64_t span = t->kind == MERGE && 2 * t->half < t->side ? 2 * t->half : t->side;
    const bool there = y < span && x < span;
    int32_t *ints = w->dst;
    if (t->part == START)
        ints[w->row] = (int32_t)w->entries;
    if (there && t->part == INDEX)
        ints[w->entries] = (int32_t)((picture * t->side + y) * t->side + x);
    if (there && t->part == BACK_INDEX)
        ints[(picture * span + y) * span + x] = (int32_t)w->row;
    w->entries += there;
    w->row++;
}

/* Part a of a side: of windows in a row, the last of which is cut at the shift. */
struct run {
    int64_t at, n;
};
static struct run run_of(const struct table *t, int64_t a)
{
    const int64_t last = t->padded / t->window - 1, cut = t->window - t->shift;
    if (!t->shift || a < last)
        return (struct run){a * t->window, t->window};
    return a == last ? (struct run){a * t->window, cut}
                     : (struct run){last * t->window + cut, t->shift};
}

/* One document: all cells of a part of a window. */
static void walk_part(struct walk *w, int64_t picture, struct run y, struct run x)
{
    const struct table *t = w->t;
    int32_t *ints = w->dst;
    for (int64_t i = y.at; i < y.at + y.n; i++)
        for (int64_t j = x.at; j < x.at + x.n; j++) {
            if (t->part == CELLS)
                ints[w->row] = -(int32_t)(i % t->window * (2 * t->window - 1) + j % t->window);
            see(w, picture, (i + t->shift) % t->padded, (j + t->shift) % t->padded);
        }
}

static void walk_windows(struct walk *w)
{
    const struct table *t = w->t;
    const int64_t parts = t->padded / t->window + (t->shift > 0);
    int64_t doc = 0;
    for (int64_t p = 0; p < t->pictures; p++)
        for (int64_t a = 0; a < parts; a++)
            for (int64_t b = 0; b < parts; b++) {
                if (t->part == CU)
                    ((int32_t *)w->dst)[doc++] = (int32_t)w->row;
                walk_part(w, p, run_of(t, a), run_of(t, b));
            }
    if (t->part == CU)
        ((int32_t *)w->dst)[doc] = (int32_t)w->row;
}

static void walk_merge(struct walk *w)
{
    const struct table *t = w->t;
    for (int64_t p = 0; p < t->pictures; p++)
        for (int64_t y = 0; y < t->half; y++)
            for (int64_t x = 0; x < t->half; x++)
                for (int64_t k = 0; k < 4; k++)
                    see(w, p, 2 * y + k % 2, 2 * x + k / 2);
}

/* Rows of the source that are read have one entry each; those behind the last picture none. */
static void fill_back_start(const struct table *t, int32_t *start)
{
    const int64_t span = t->kind == MERGE && 2 * t->half < t->side ? 2 * t->half : t->side;
    int32_t n = 0;
    for (int64_t r = 0; r <= t->rows; r++) {
        start[r] = n;
        n += r / (t->side * t->side) < t->pictures && r / t->side % t->side < span &&
             r % t->side < span;
    }
}

static void fill_distances(const struct table *t, float *out)
{
    const int64_t n = 2 * t->window - 1;
    const float by = t->trained      ? (float)(t->trained - 1)
                     : t->window > 1 ? (float)(t->window - 1)
                                     : 1;
    for (int64_t i = 0; i < n * n; i++)
        for (int k = 0; k < 2; k++) {
            const int64_t d = (k ? i % n : i / n) - (t->window - 1);
            const float u = (float)d / by * 8, size = log2f(fabsf(u) + 1) / (float)log2(8);
            out[2 * i + k] = u < 0 ? -size : size;
        }
}

static void fill(void *dst, const void *ctx)
{
    const struct table *t = ctx;
    struct walk w = {.t = t, .dst = dst};
    if (t->kind == DISTANCES) {
        fill_distances(t, dst);
    } else if (t->kind == NUMBERS) {
        for (int64_t i = 0; i < t->rows; i++)
            ((int32_t *)dst)[i] = (int32_t)i;
    } else if (t->part == BACK_START) {
        fill_back_start(t, dst);
    } else if (t->part == WEIGHT || t->part == BACK_WEIGHT) {
        for (int64_t i = 0; i < t->rows; i++)
            ((float *)dst)[i] = 1;
    } else {
        if (t->kind == MERGE)
            walk_merge(&w);
        else
            walk_windows(&w);
        if (t->part == START)
            ((int32_t *)dst)[w.row] = (int32_t)w.entries;
    }
}

/* ---- constants ---- */

static const struct table *keep(struct lf_vision_tables *all, const struct table *t)
{
    struct entry *e = all->first;
    while (e && memcmp(&e->t, t, sizeof *t) != 0)
        e = e->next;
    if (!e && (e = lf_calloc(1, sizeof *e, NULL))) {
        e->t = *t;
        e->next = all->first;
        all->first = e;
    }
    return e ? &e->t : NULL;
}

/* A constant of n rows. Without memory there is none, which the op that reads it refuses. */
static lf_val constant(const struct lf_table_place *at, const struct table *t, int64_t n)
{
    static const char *const kinds[] = {"windows", "merge", "numbers", "distances"},
                             *const parts[] = {"start",      "index",       "weight", "back.start",
                                               "back.index", "back.weight", "cu",     "cells"};
    const struct table *kept = keep(at->tables, t);
    char name[200];
    snprintf(name, sizeof name, "%s%s.%lldx%lld.%lld.%lld.%lld.%s", at->prefix, kinds[t->kind],
             (long long)t->pictures, (long long)t->side, (long long)t->window,
             (long long)t->shift + t->trained, (long long)n, parts[t->part]);
    const bool reals = t->kind == DISTANCES || t->part == WEIGHT || t->part == BACK_WEIGHT;
    return kept ? lf_const(at->g, name, reals ? LF_F32 : LF_I32, n, t->kind == DISTANCES ? 2 : 1,
                           fill, kept)
                : LF_NONE;
}

/* A matrix of `rows` rows from `from` rows. */
static struct lf_mix matrix(const struct lf_table_place *at, struct table t, int64_t rows,
                            int64_t from, int64_t entries)
{
    const int64_t n[] = {rows + 1, entries, entries, from + 1, entries, entries},
                  count[] = {0, 0, entries, from, 0, entries};
    lf_val v[6];
    for (int k = 0; k < 6; k++) {
        t.part = START + k;
        t.rows = count[k];
        v[k] = constant(at, &t, n[k]);
    }
    return (struct lf_mix){v[0], v[1], v[2], v[3], v[4], v[5]};
}

static struct table windows(const struct lf_table_place *at, int64_t l, struct lf_windows *w)
{
    const int64_t s = lf_vision_stage_at(at->c, l);
    *w = lf_windows_of(at->c, at->r, l);
    struct table t;
    memset(&t, 0, sizeof t);
    t.kind = WINDOWS;
    t.pictures = lf_vision_pictures(at->c, at->r);
    t.side = lf_vision_stage_of(at->c, s).side;
    t.window = w->window;
    t.shift = w->shift;
    t.padded = w->padded;
    return t;
}

struct lf_mix lf_table_windows(const struct lf_table_place *at, int64_t l)
{
    struct lf_windows w;
    const struct table t = windows(at, l, &w);
    const int64_t from = lf_vision_stage_rows(at->c, at->r, lf_vision_stage_at(at->c, l));
    return matrix(at, t, w.rows, from, t.pictures * t.side * t.side);
}

lf_val lf_table_cu(const struct lf_table_place *at, int64_t l)
{
    struct lf_windows w;
    struct table t = windows(at, l, &w);
    t.part = CU;
    return constant(at, &t, w.docs + 1);
}

lf_val lf_table_cells(const struct lf_table_place *at, int64_t l)
{
    struct lf_windows w;
    struct table t = windows(at, l, &w);
    t.part = CELLS;
    return constant(at, &t, w.rows);
}

struct lf_mix lf_table_merge(const struct lf_table_place *at, int64_t s)
{
    struct table t;
    memset(&t, 0, sizeof t);
    t.kind = MERGE;
    t.pictures = lf_vision_pictures(at->c, at->r);
    t.side = lf_vision_stage_of(at->c, s).side;
    t.half = lf_vision_stage_of(at->c, s + 1).side;
    const int64_t span = 2 * t.half < t.side ? 2 * t.half : t.side;
    return matrix(at, t, 4 * t.pictures * t.half * t.half, lf_vision_stage_rows(at->c, at->r, s),
                  t.pictures * span * span);
}

lf_val lf_table_numbers(const struct lf_table_place *at, int64_t n)
{
    struct table t;
    memset(&t, 0, sizeof t);
    t.kind = NUMBERS;
    t.rows = n;
    return constant(at, &t, n);
}

lf_val lf_table_distances(const struct lf_table_place *at, int64_t stage)
{
    struct table t;
    memset(&t, 0, sizeof t);
    t.kind = DISTANCES;
    t.window = lf_window_of(at->c, stage);
    t.trained = at->c->trained_windows.n ? (int64_t)at->c->trained_windows.v[stage] : 0;
    return constant(at, &t, (2 * t.window - 1) * (2 * t.window - 1));
}
