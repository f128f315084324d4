/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig's runs: inputs of every chunk, what crosses between them, and the order of a pipeline.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "tests/tap/tap.h"
#include "tests/unit/chunk_rig.h"

static const int32_t all_docs[RIG_DOCS + 1] = {0, 11, 30, 37},
                                         few_docs[RIG_DOCS + 1] = {0, 11, 30, 30};

/* ---- inputs ---- */

/* Returns whether there is such an input. */
static bool feed(const struct rig_part *p, int slot, const char *name, const void *src,
                 size_t bytes)
{
    lf_err err = LF_ERR_INIT;
    const int rc = lf_exec_write(p->on->ex, p->chain, slot, name, src, bytes, &err);
    if (rc != 0 && rc != LF_ENOENT)
        tap_bail("%s", err.text);
    return rc == 0;
}

/* Tokens and targets of rows further on. */
static void feed_mtp(const struct rig_part *p, int slot, const int32_t *cu, const int32_t *tokens,
                     const int32_t *targets)
{
    for (int k = 1; k <= LF_MORE_HEADS; k++) {
        int32_t ahead[RIG_ROWS];
        char name[32];
        lf_decoder_ahead(tokens, cu, RIG_DOCS, RIG_ROWS, k, 0, ahead);
        snprintf(name, sizeof name, "mtp.%d.tokens", k);
        feed(p, slot, name, ahead, sizeof ahead);
        lf_decoder_ahead(targets, cu, RIG_DOCS, RIG_ROWS, k, -1, ahead);
        snprintf(name, sizeof name, "mtp.%d.targets", k);
        feed(p, slot, name, ahead, sizeof ahead);
    }
}

/* What the encoder of an encoder-decoder reads. */
static void feed_source(const struct rig_part *p, int slot, int m)
{
    static const int32_t cu[RIG_DOCS + 1] = {0, 9, 17, 35};
    int32_t tokens[RIG_SOURCES], positions[RIG_SOURCES], offsets[RIG_SOURCES];
    int64_t samples[RIG_SOURCES];
    for (int r = 0; r < RIG_SOURCES; r++) {
        int d = 0;
        while (d < RIG_DOCS - 1 && r >= cu[d + 1])
            d++;
        tokens[r] = (int32_t)(lf_rng_f64(5, 4, (uint64_t)(m * RIG_SOURCES + r)) * RIG_VOCAB);
        positions[r] = r < cu[RIG_DOCS] ? r - cu[d] : 0;
        offsets[r] = r;
        samples[r] = m * 100 + d;
    }
    feed(p, slot, "source_tokens", tokens, sizeof tokens);
    feed(p, slot, "source_positions", positions, sizeof positions);
    feed(p, slot, "source_cu_seqlens", cu, sizeof cu);
    feed(p, slot, "source_offsets", offsets, sizeof offsets);
    feed(p, slot, "source_samples", samples, sizeof samples);
}

static void feed_batch(struct rig *g, int i, int slot, int m)
{
    float noise[RIG_ROWS * 32];
    const struct rig_part *p = &g->part[i];
    const int32_t *cu = g->w->few ? few_docs : all_docs;
    const uint32_t batch = (uint32_t)m;
    int32_t tokens[RIG_ROWS], positions[RIG_ROWS], targets[RIG_ROWS], offsets[RIG_ROWS],
        turns[RIG_ROWS], blocks[RIG_ROWS], types[RIG_ROWS], runs[RIG_ROWS][2] = {{0}},
                                                            prefix[RIG_DOCS] = {0};
    int64_t samples[RIG_ROWS];
    for (int r = 0; r < RIG_ROWS; r++) {
        const uint64_t at = (uint64_t)(m * RIG_ROWS + r);
        int d = 0;
        while (d < RIG_DOCS - 1 && r >= cu[d + 1])
            d++;
        tokens[r] = (int32_t)(lf_rng_f64(5, 1, at) * RIG_VOCAB);
        targets[r] = r >= cu[RIG_DOCS] || r - cu[d] < 3 || (r + m) % 5 == 4
                         ? -1
                         : (int32_t)(lf_rng_f64(5, 2, at) * RIG_VOCAB);
        positions[r] = r < cu[RIG_DOCS] ? r - cu[d] : 0;
        offsets[r] = r;
        samples[r] = (int64_t)batch * 100 + d;
        types[r] = lf_decoder_config(p->on->d)->token_types > 1 && positions[r] > 4;
        for (int k = 0; k < 2 && r < cu[RIG_DOCS]; k++) { /* windows of both sides */
            const int w = (int)lf_decoder_config(p->on->d)->sliding_window, n = cu[d + 1] - cu[d],
                      end = k ? positions[r] + w : positions[r] - w + 1;
            runs[r][k] = end < 0 ? 0 : end < n ? end : n;
        }
        turns[r] = lf_decoder_table_row(p->on->d, positions[r], cu[d + 1] - cu[d] > 16);
    }
    for (int e = 0; e < RIG_ROWS * 32; e++)
        noise[e] = (float)lf_rng_normal(5, 3, (uint64_t)(m * RIG_ROWS * 32 + e));
    lf_decoder_prefixes(targets, cu, RIG_DOCS, false, prefix);
    if (lf_decoder_config(p->on->d)->position == LF_POS_ROPE2D)
        lf_decoder_turns(cu, RIG_DOCS, prefix, RIG_ROWS, turns, blocks);
    g->r->tokens[i] = feed(p, slot, "tokens", tokens, sizeof tokens);
    g->r->targets[i] = feed(p, slot, "targets", targets, sizeof targets);
    feed_mtp(p, slot, cu, tokens, targets);
    if (g->w->few && lf_exec_live_rows(p->on->ex, p->chain, RIG_ROWS, cu[RIG_DOCS]) != 32)
        tap_bail("chunk %d computes all rows", i);
    feed(p, slot, "positions", positions, sizeof positions);
    feed(p, slot, "cu_seqlens", cu, sizeof all_docs);
    feed(p, slot, "prefix", prefix, sizeof prefix);
    feed(p, slot, "offsets", offsets, sizeof offsets);
    feed(p, slot, "samples", samples, sizeof samples);
    feed(p, slot, "types", types, sizeof types);
    feed(p, slot, "runs", runs, sizeof runs);
    feed(p, slot, "turns", turns, sizeof turns);
    feed(p, slot, "blocks", blocks, sizeof blocks);
    feed(p, slot, "noise", noise, sizeof noise);
    feed_source(p, slot, m);
}

/* ---- what crosses ---- */

/* What crosses under that name, or NULL: nothing does. The caller frees it. */
static char *take_cut(const struct rig_part *p, int slot, const char *name, size_t want)
{
    lf_err err = LF_ERR_INIT;
    size_t bytes = 0;
    const struct lf_back *b = p->on->b;
    const void *at = lf_exec_cut(p->on->ex, p->chain, slot, name, true, &bytes);
    char *data = at ? lf_calloc(bytes, 1, &err) : NULL;
    if (at && (!data || bytes != want))
        tap_bail("%s has %zu bytes, not %zu", name, bytes, want);
    if (at && b->ops->copy_out(p->on->b, data, at, bytes, &err))
        tap_bail("%s", err.text);
    return data;
}

/* An output, or NULL where the chunk has none of that name. The caller frees it. */
static char *take(const struct rig_part *p, int slot, const char *name, size_t bytes)
{
    lf_err err = LF_ERR_INIT;
    char *data = lf_calloc(bytes, 1, &err);
    const int rc =
        data ? lf_exec_read(p->on->ex, p->chain, slot, name, data, bytes, &err) : LF_ENOMEM;
    if (rc != 0 && rc != LF_ENOENT)
        tap_bail("%s", err.text);
    if (rc == 0)
        return data;
    free(data);
    return NULL;
}

static size_t row_bytes(const struct rig *g, int all)
{
    const size_t rows = (size_t)all / (g->w->sequence ? 2 : 1);
    return rows * 32 * (g->w->compute == LF_F32 ? 4 : 2);
}

static size_t stream_bytes(const struct rig *g)
{
    return row_bytes(g, RIG_ROWS);
}

static size_t load_bytes(const struct rig_part *p)
{
    return 2 * sizeof(float) * (size_t)lf_decoder_config(p->on->d)->experts;
}

/* Writes what has come to the input that the chunk must have for it. */
static void give(const struct rig_part *p, int slot, const char *name, char **from)
{
    lf_err err = LF_ERR_INIT;
    size_t bytes = 0;
    void *to = *from ? lf_exec_cut(p->on->ex, p->chain, slot, name, false, &bytes) : NULL;
    if (*from && !to)
        tap_bail("%s comes, and the chunk has no such input", name);
    if (to && p->on->b->ops->copy_in(p->on->b, to, *from, bytes, &err))
        tap_bail("%s", err.text);
    free(*from);
    *from = NULL;
}

/* Where slots are there for it, what goes on is taken when the other chunk wants it. */
static bool late(const struct rig *g)
{
    return g->w->split && g->w->in_flight;
}

/* From chunk i to the next one. */
static void take_forward(struct rig *g, int i, int m)
{
    const struct rig_part *p = &g->part[i];
    struct rig_box *to = &g->box[i + 1][m];
    to->x = take_cut(p, m % p->slots, "x", stream_bytes(g));
    to->source = take_cut(p, m % p->slots, "source", row_bytes(g, RIG_SOURCES));
    to->load = take_cut(p, m % p->slots, "load", load_bytes(p));
    if (!to->x)
        tap_bail("chunk %d gives no x", i);
}

/* And to the one before. */
static void take_backward(struct rig *g, int i, int m)
{
    const struct rig_part *p = &g->part[i];
    struct rig_box *to = &g->box[i - 1][m];
    to->dx = take_cut(p, m % p->slots, "dx", stream_bytes(g));
    to->dsource = take_cut(p, m % p->slots, "dsource", row_bytes(g, RIG_SOURCES));
    to->total = take_cut(p, m % p->slots, "load_total", load_bytes(p));
    if (!to->dx != (i <= g->r->frozen))
        tap_bail("chunk %d: dx", i);
}

/* Adds up an output of [R, cols] and writes the gradient of some loss by it. */
static void sum_output(struct rig *g, const struct rig_part *p, int slot, const char *name,
                       const char *grad, int at)
{
    const int cols = g->m->head == RIG_LOGITS ? RIG_ROWS : 1; /* vocab = 48 too */
    float d[RIG_ROWS * RIG_ROWS];
    const size_t bytes = sizeof(float) * RIG_ROWS * (size_t)cols;
    float *y = (float *)(void *)take(p, slot, name, bytes);
    for (int e = 0; y && e < RIG_ROWS * cols; e++) {
        g->r->out[at] += (double)y[e] * (1 + sin(e));
        d[e] = 0.03f * sinf(3 * y[e] + (float)e);
    }
    if (y && grad)
        feed(p, slot, grad, d, bytes);
    free(y);
}

static void run(const struct rig_part *p, enum lf_segment seg, int m)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(p->on->ex, p->chain, seg, m % p->slots, m ? LF_ACCUM : LF_FIRST, &err))
        tap_bail("%s", err.text);
}

static void forward(struct rig *g, int i, int m)
{
    const struct rig_part *p = &g->part[i];
    const int slot = m % p->slots;
    struct rig_box *here = &g->box[i][m];
    feed_batch(g, i, slot, m);
    if (late(g) && i > 0)
        take_forward(g, i - 1, m);
    if (g->w->spoil == 3 && m && here->x)
        memset(here->x, 0, stream_bytes(g));
    give(p, slot, "x", &here->x);
    give(p, slot, "source", &here->source);
    give(p, slot, "load", &here->load);
    run(p, LF_FWD, m);
    if (i == g->n - 1) {
        sum_output(g, p, slot, "lp", "dlp", 0);
        sum_output(g, p, slot, "entropy", "dentropy", 1);
        sum_output(g, p, slot, "score", "dscore", 2);
        sum_output(g, p, slot, "loss", NULL, 3);
        sum_output(g, p, slot, "lse", NULL, 4);
        sum_output(g, p, slot, "logits", NULL, 5);
        return;
    }
    if (!late(g))
        take_forward(g, i, m);
    g->box[i + 1][m].forward = true;
}

static void backward(struct rig *g, int i, int m)
{
    const struct rig_part *p = &g->part[i];
    const int slot = m % p->slots;
    struct rig_box *here = &g->box[i][m];
    if (i < g->r->frozen || !rig_trains(g))
        return;
    if (late(g) && i < g->n - 1)
        take_backward(g, i + 1, m);
    if (g->w->spoil == 1 && here->dx)
        memset(here->dx, 0, stream_bytes(g));
    if (g->w->spoil == 2 && here->total)
        memset(here->total, 0, load_bytes(p));
    give(p, slot, "dx", &here->dx);
    give(p, slot, "dsource", &here->dsource);
    give(p, slot, "load_total", &here->total);
    run(p,
        g->w->split && !g->w->joined        ? LF_BWD_INPUT
        : g->w->reduce && m == g->micro - 1 ? LF_BWD_LAST
                                            : LF_BWD,
        m);
    if (i == 0)
        return;
    if (!late(g))
        take_backward(g, i, m);
    g->box[i - 1][m].backward = true;
}

/* ---- the order ---- */

/* Of chunk i: forward passes ahead, then one of each in turn, then the rest. */
static void make_list(struct rig *g, int i)
{
    const int ahead = g->w->in_flight ? g->n - 1 - i : 0, late = g->w->in_flight ? 1 : 0;
    struct rig_item *to = g->part[i].list;
    int f = 0, w = 0;
    while (f < ahead && f < g->micro)
        *to++ = (struct rig_item){'F', f++};
    for (int b = 0; b < g->micro; b++) {
        if (f < g->micro)
            *to++ = (struct rig_item){'F', f++};
        *to++ = (struct rig_item){'B', b};
        if (g->w->split && b >= late)
            *to++ = (struct rig_item){'W', w++};
    }
    while (g->w->split && w < g->micro)
        *to++ = (struct rig_item){'W', w++};
}

static bool ready(const struct rig *g, int i, struct rig_item it)
{
    const struct rig_box *b = &g->box[i][it.m];
    return it.what == 'W'   ? true
           : it.what == 'F' ? i == 0 || b->forward
                            : i == g->n - 1 || b->backward || i < g->r->frozen || !rig_trains(g);
}

void rig_run_all(struct rig *g)
{
    for (int i = 0; i < g->n; i++)
        make_list(g, i);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < g->n; i++) {
            const struct rig_item it = g->part[i].list[g->part[i].next];
            if (!it.what || !ready(g, i, it))
                continue;
            if (it.what == 'F')
                forward(g, i, it.m);
            else if (it.what == 'B')
                backward(g, i, it.m);
            else if (i >= g->r->frozen && rig_trains(g) && !g->w->joined)
                run(&g->part[i], LF_BWD_WEIGHT, it.m);
            g->part[i].next++;
            moved = true;
        }
    }
    for (int i = 0; i < g->n; i++)
        if (g->part[i].list[g->part[i].next].what)
            tap_bail("chunk %d waits for ever", i);
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < g->ranks && g->w->reduce; i++)
        if (lf_exec_run(g->rank[i].ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err))
            tap_bail("%s", err.text);
}
