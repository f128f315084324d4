/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder cut into chunks, in one process. */
#include "tests/unit/chunk_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/graph/priv.h"
#include "tests/tap/tap.h"

static const int32_t cu[RIG_DOCS + 1] = {0, 11, 30, 37};

struct rank {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

/* What has arrived for a micro-batch and a chunk; NULL: not yet, or nothing crosses. */
struct box {
    char *x, *dx, *load, *total;
    bool forward, backward; /* something has */
};

struct item {
    char what; /* F, B, W, or 0 at the end */
    int m;
};

struct part {
    struct rank *on;
    int chain, slots;
    struct item list[3 * RIG_MICRO + 1];
    size_t next; /* of the list */
};

struct rig {
    const struct rig_model *m;
    const struct rig_way *w;
    struct rig_result *r;
    struct rank rank[RIG_CHUNKS];
    struct lf_decoder_chunk chunk[RIG_CHUNKS];
    struct part part[RIG_CHUNKS];
    struct box box[RIG_CHUNKS][RIG_MICRO];
    int n, micro, ranks;
};

void rig_configure(const struct rig_model *m, lf_model_config *c)
{
    static const char *const base[] = {"layers=4", "hidden=32", "heads=4",          "kv_heads=2",
                                       "ffn=48",   "vocab=48",  "max_positions=64", "init_std=0.3"};
    const size_t n = sizeof base / sizeof *base;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(c);
    if (lf_model_config_family(c, "llama", "test", &err))
        tap_bail("%s", err.text);
    for (size_t i = 0; i < n + RIG_SET; i++) {
        const char *set = i < n ? base[i] : m->set[i - n];
        char key[48];
        if (!set)
            break;
        const char *eq = strchr(set, '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - set), set);
        if (lf_model_config_set(c, key, eq + 1, "test", &err))
            tap_bail("%s: %s", m->name, err.text);
    }
    if (lf_model_config_finish(c, &err))
        tap_bail("%s: %s", m->name, err.text);
}

int rig_cut(const struct rig_way *w, int frozen, struct lf_decoder_chunk out[RIG_CHUNKS])
{
    const int n = w->n ? w->n : 1;
    for (int k = 0; k < n; k++)
        out[k] = (struct lf_decoder_chunk){.begin = k ? w->end[k - 1] : 0,
                                           .end = w->n ? w->end[k] : RIG_LAYERS,
                                           .first = k == 0,
                                           .last = k == n - 1,
                                           .frozen_before = k <= frozen && frozen > 0};
    return n;
}

/* ---- planning ---- */

static void adapt(const struct rig_model *m, struct rank *k)
{
    lf_err err = LF_ERR_INIT;
    struct lf_adapter_config a = {
        .rank = abs(m->lora), .alpha = 6, .dora = m->lora < 0, .dropout = m->lora_dropout};
    if (m->targets) {
        a.n_targets = 1;
        snprintf(a.target[0], sizeof a.target[0], "%s", m->targets);
    }
    if (m->lora && lf_decoder_adapt(k->d, k->ps, &a, &err))
        tap_bail("%s", err.text);
    if (m->freeze)
        lf_pstore_freeze_matching(k->ps, m->freeze, true);
}

static bool trains(const struct rig *g)
{
    return g->m->head != RIG_SCORING && g->m->head != RIG_LOGITS;
}

static lf_graph *graph_of(const struct rig *g, struct rank *k, int i, lf_err *err)
{
    const struct lf_decoder_rows rows = {.rows = RIG_ROWS,
                                         .n_docs = RIG_DOCS,
                                         .noise = g->m->noise,
                                         .chunk = g->w->n ? &g->chunk[i] : NULL};
    const struct lf_decoder_heads heads = {.train = true,
                                           .dropout = true,
                                           .logp = g->m->head == RIG_LOGP,
                                           .entropy = g->m->head == RIG_LOGP,
                                           .score = g->m->head == RIG_SCORE};
    char name[16];
    snprintf(name, sizeof name, "chunk%d", i);
    switch (g->m->head) {
    case RIG_LOSS:
        return lf_decoder_loss_graph(k->d, k->ps, name, &rows, true, err);
    case RIG_SCORING:
        return lf_decoder_score_graph(k->d, k->ps, name, &rows, err);
    case RIG_LOGITS:
        return lf_decoder_logits_graph(k->d, k->ps, name, &rows, err);
    default:
        return lf_decoder_heads_graph(k->d, k->ps, name, &rows, &heads, err);
    }
}

/* Tensors that begin as zeros, such as B of adapters, would hide what they multiply. */
static void warm(lf_pstore *ps)
{
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        int64_t n = 1;
        for (int k = 0; k < d->ndim; k++)
            n *= d->dims[k];
        if (!d->adapter || d->init != LF_INIT_ZERO)
            continue;
        float *x = lf_calloc((size_t)n, sizeof *x, &err);
        for (int64_t e = 0; x && e < n; e++)
            x[e] = 0.3f * (float)lf_rng_normal(4, lf_name_site(d->name), (uint64_t)e);
        if (!x || lf_pstore_write(ps, i, LF_F32, x, &err))
            tap_bail("%s", err.text);
        free(x);
    }
}

/* The store of some chunks. */
static bool declare(const struct rig *g, struct rank *k, int i, int n, lf_err *err)
{
    lf_model_config c;
    rig_configure(g->m, &c);
    const struct lf_fp8_layers marks = {.attention = true, .mlp = true, .edges = g->w->fp8_edges};
    k->d = lf_decoder_create(&c, 48, err);
    k->ps = lf_pstore_create(err);
    if (!k->d || !k->ps || lf_decoder_declare_chunks(k->d, k->ps, &g->chunk[i], n, err))
        return false;
    adapt(g->m, k);
    return !g->w->fp8 || !lf_decoder_mark_fp8(k->d, k->ps, &marks, err);
}

static bool add_chunk(struct rig *g, struct rank *k, int i, lf_err *err)
{
    const struct rig_way *w = g->w;
    struct part *p = &g->part[i];
    const bool train = trains(g) && i >= g->r->frozen;
    p->on = k;
    p->slots = w->in_flight ? g->n - i + w->split : 1;
    const struct lf_chain_opts o = {.train = train,
                                    .split = w->split && train,
                                    .recompute = w->recompute,
                                    .slots = p->slots,
                                    .chunk = w->n && !w->plain ? i + 1 : 0};
    lf_graph *graph = graph_of(g, k, i, err);
    p->chain = graph ? lf_plan_add(k->p, graph, &o, err) : -1;
    lf_graph_destroy(graph);
    return p->chain >= 0;
}

/* The plan of chunks [i, i + n). */
static bool plan_rank(struct rig *g, struct rank *k, int i, int n, lf_err *err)
{
    const struct rig_way *w = g->w;
    const struct lf_plan_opts o = {
        .threads = 1, .compute = w->compute, .fp8 = w->fp8, .no_reuse = w->no_reuse};
    k->p = lf_plan_create(k->ps, &o, err);
    k->b = lf_back_cpu_create(lf_target_host()->isa, 1, err);
    bool good = k->p && k->b;
    for (int c = i; c < i + n && good; c++)
        good = add_chunk(g, k, c, err);
    const struct lf_plan_ranks two = {.ranks = 2, .bucket_bytes = 4096, .zero = w->zero};
    const struct lf_adamw_opts adamw = {
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .moments = LF_F32, .masters = LF_F32};
    if (good && w->zero)
        good = !lf_plan_optimizer(k->p, &adamw, err) && !lf_plan_data_parallel(k->p, &two, err);
    return good && !lf_plan_finish(k->p, err);
}

static bool bind_rank(struct rig *g, struct rank *k, lf_err *err)
{
    const struct lf_step_record rec = {
        .seed = 3, .loss_scale = 1, .inv_tokens = 1.0f / 30, .inv_batches = 1.0f / (float)g->micro};
    k->ex = lf_exec_create(k->p, k->b, &(struct lf_exec_opts){.poison = true}, err);
    if (!k->ex || lf_pstore_init(k->ps, 11, err))
        return false;
    warm(k->ps);
    return !lf_exec_adapter_start(k->ex, err) && !lf_exec_record_write(k->ex, &rec, err);
}

static void close_rank(struct rank *k)
{
    lf_exec_destroy(k->ex);
    lf_plan_destroy(k->p);
    lf_back_destroy(k->b);
    lf_pstore_destroy(k->ps);
    lf_decoder_destroy(k->d);
}

/* Has chunk i nothing to train? */
static bool frozen(const struct rig *g, int i)
{
    lf_err err = LF_ERR_INIT;
    struct rank k = {0};
    const bool yes = declare(g, &k, i, 1, &err) && lf_pstore_elements_trained(k.ps) == 0;
    close_rank(&k);
    return yes;
}

static bool open_ranks(struct rig *g, lf_err *err)
{
    const int each = g->w->together ? g->n : 1;
    bool good = true;
    while (g->r->frozen < g->n - 1 && frozen(g, g->r->frozen))
        g->r->frozen++;
    rig_cut(g->w, g->r->frozen, g->chunk);
    for (int i = 0; i < g->n && good; i += each) {
        struct rank *k = &g->rank[g->ranks++];
        good = declare(g, k, i, each, err) && plan_rank(g, k, i, each, err) && bind_rank(g, k, err);
    }
    return good;
}

/* ---- inputs ---- */

/* Returns whether there is such an input. */
static bool feed(const struct part *p, int slot, const char *name, const void *src, size_t bytes)
{
    lf_err err = LF_ERR_INIT;
    const int rc = lf_exec_write(p->on->ex, p->chain, slot, name, src, bytes, &err);
    if (rc != 0 && rc != LF_ENOENT)
        tap_bail("%s", err.text);
    return rc == 0;
}

static void feed_batch(struct rig *g, int i, int slot, int m)
{
    static float noise[RIG_ROWS * 32];
    const struct part *p = &g->part[i];
    const uint32_t batch = (uint32_t)m;
    int32_t tokens[RIG_ROWS], positions[RIG_ROWS], targets[RIG_ROWS], offsets[RIG_ROWS],
        turns[RIG_ROWS], blocks[RIG_ROWS], prefix[RIG_DOCS] = {0};
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
        turns[r] = lf_decoder_table_row(p->on->d, positions[r], cu[d + 1] - cu[d] > 16);
    }
    for (int e = 0; e < RIG_ROWS * 32; e++)
        noise[e] = (float)lf_rng_normal(5, 3, (uint64_t)(m * RIG_ROWS * 32 + e));
    lf_decoder_prefixes(targets, cu, RIG_DOCS, prefix);
    if (lf_decoder_config(p->on->d)->position == LF_POS_ROPE2D)
        lf_decoder_turns(cu, RIG_DOCS, prefix, RIG_ROWS, turns, blocks);
    g->r->tokens[i] = feed(p, slot, "tokens", tokens, sizeof tokens);
    g->r->targets[i] = feed(p, slot, "targets", targets, sizeof targets);
    feed(p, slot, "positions", positions, sizeof positions);
    feed(p, slot, "cu_seqlens", cu, sizeof cu);
    feed(p, slot, "prefix", prefix, sizeof prefix);
    feed(p, slot, "offsets", offsets, sizeof offsets);
    feed(p, slot, "samples", samples, sizeof samples);
    feed(p, slot, "turns", turns, sizeof turns);
    feed(p, slot, "blocks", blocks, sizeof blocks);
    feed(p, slot, "noise", noise, sizeof noise);
}

/* ---- what crosses ---- */

/* What crosses under that name, or NULL: nothing does. The caller frees it. */
static char *take_cut(const struct part *p, int slot, const char *name, size_t want)
{
    lf_err err = LF_ERR_INIT;
    size_t bytes = 0;
    const void *at = lf_exec_cut(p->on->ex, p->chain, slot, name, true, &bytes);
    char *data = at ? lf_calloc(bytes, 1, &err) : NULL;
    if (at && (!data || bytes != want))
        tap_bail("%s has %zu bytes, not %zu", name, bytes, want);
    if (at)
        memcpy(data, at, bytes);
    return data;
}

/* An output, or NULL where the chunk has none of that name. The caller frees it. */
static char *take(const struct part *p, int slot, const char *name, size_t bytes)
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

static size_t stream_bytes(const struct rig *g)
{
    return (size_t)RIG_ROWS * 32 * (g->w->compute == LF_F32 ? 4 : 2);
}

static size_t load_bytes(const struct part *p)
{
    return 2 * sizeof(float) * (size_t)lf_decoder_config(p->on->d)->experts;
}

/* Writes what has come; a box is as good as its name: the chunk must have such an input. */
static void give(const struct part *p, int slot, const char *name, char **from, size_t bytes)
{
    if (*from && !feed(p, slot, name, *from, bytes))
        tap_bail("%s comes, and the chunk has no such input", name);
    free(*from);
    *from = NULL;
}

/* Adds up an output of [R, cols] and writes the gradient of some loss by it. */
static void sum_output(struct rig *g, const struct part *p, int slot, const char *name,
                       const char *grad, int at)
{
    const int cols = g->m->head == RIG_LOGITS ? RIG_ROWS : 1; /* vocab = 48 too */
    static float d[RIG_ROWS * RIG_ROWS];
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

static void run(const struct part *p, enum lf_segment seg, int m)
{
    lf_err err = LF_ERR_INIT;
    if (lf_exec_run(p->on->ex, p->chain, seg, m % p->slots, m ? LF_ACCUM : LF_FIRST, &err))
        tap_bail("%s", err.text);
}

static void forward(struct rig *g, int i, int m)
{
    const struct part *p = &g->part[i];
    const int slot = m % p->slots;
    struct box *here = &g->box[i][m], *next = &g->box[i + 1][m];
    feed_batch(g, i, slot, m);
    if (g->w->spoil == 3 && m && here->x)
        memset(here->x, 0, stream_bytes(g));
    give(p, slot, "x", &here->x, stream_bytes(g));
    give(p, slot, "load", &here->load, load_bytes(p));
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
    next->x = take_cut(p, slot, "x", stream_bytes(g));
    next->load = take_cut(p, slot, "load", load_bytes(p));
    if (!next->x)
        tap_bail("chunk %d gives no x", i);
    next->forward = true;
}

static void backward(struct rig *g, int i, int m)
{
    const struct part *p = &g->part[i];
    const int slot = m % p->slots;
    struct box *here = &g->box[i][m];
    if (i < g->r->frozen || !trains(g))
        return;
    if (g->w->spoil == 1 && here->dx)
        memset(here->dx, 0, stream_bytes(g));
    if (g->w->spoil == 2 && here->total)
        memset(here->total, 0, load_bytes(p));
    give(p, slot, "dx", &here->dx, stream_bytes(g));
    give(p, slot, "load_total", &here->total, load_bytes(p));
    run(p, g->w->split && !g->w->joined ? LF_BWD_INPUT : LF_BWD, m);
    if (i == 0)
        return;
    struct box *before = &g->box[i - 1][m];
    before->dx = take_cut(p, slot, "dx", stream_bytes(g));
    before->total = take_cut(p, slot, "load_total", load_bytes(p));
    if (!before->dx != (i <= g->r->frozen))
        tap_bail("chunk %d: dx", i);
    before->backward = true;
}

/* ---- the order ---- */

/* Of chunk i: forward passes ahead, then one of each in turn, then the rest. */
static void make_list(struct rig *g, int i)
{
    const int ahead = g->w->in_flight ? g->n - 1 - i : 0, late = g->w->in_flight ? 1 : 0;
    struct item *to = g->part[i].list;
    int f = 0, w = 0;
    while (f < ahead && f < g->micro)
        *to++ = (struct item){'F', f++};
    for (int b = 0; b < g->micro; b++) {
        if (f < g->micro)
            *to++ = (struct item){'F', f++};
        *to++ = (struct item){'B', b};
        if (g->w->split && b >= late)
            *to++ = (struct item){'W', w++};
    }
    while (g->w->split && w < g->micro)
        *to++ = (struct item){'W', w++};
}

static bool ready(const struct rig *g, int i, struct item it)
{
    const struct box *b = &g->box[i][it.m];
    return it.what == 'W'   ? true
           : it.what == 'F' ? i == 0 || b->forward
                            : i == g->n - 1 || b->backward || i < g->r->frozen || !trains(g);
}

static void run_all(struct rig *g)
{
    for (int i = 0; i < g->n; i++)
        make_list(g, i);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < g->n; i++) {
            const struct item it = g->part[i].list[g->part[i].next];
            if (!it.what || !ready(g, i, it))
                continue;
            if (it.what == 'F')
                forward(g, i, it.m);
            else if (it.what == 'B')
                backward(g, i, it.m);
            else if (i >= g->r->frozen && trains(g) && !g->w->joined)
                run(&g->part[i], LF_BWD_WEIGHT, it.m);
            g->part[i].next++;
            moved = true;
        }
    }
    for (int i = 0; i < g->n; i++)
        if (g->part[i].list[g->part[i].next].what)
            tap_bail("chunk %d waits for ever", i);
}

/* ---- results ---- */

static void collect(struct rig *g, const struct rank *k, int chunk)
{
    struct rig_result *r = g->r;
    lf_err err = LF_ERR_INIT;
    struct lf_step_record rec;
    if (lf_exec_record_read(k->ex, &rec, &err))
        tap_bail("%s", err.text);
    r->rec.loss_sum += rec.loss_sum;
    r->rec.tokens += rec.tokens;
    r->rec.correct += rec.correct;
    r->rec.router_aux += rec.router_aux;
    r->rec.router_entropy += rec.router_entropy;
    r->rec.router_load += rec.router_load;
    r->rec.router_seen += rec.router_seen;
    for (int i = 0; i < lf_pstore_count(k->ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(k->ps, i, LF_P_GRAD, &v) != 1)
            continue;
        struct rig_tensor *t = &r->t[r->n_t++];
        snprintf(t->name, sizeof t->name, "%s", v.name);
        t->chunk = chunk;
        t->n = v.count;
        t->grad = lf_calloc((size_t)v.count, sizeof *t->grad, &err);
        memcpy(t->grad, v.data, v.bytes);
    }
}

const struct rig_tensor *rig_find(const struct rig_result *r, const char *name, bool last)
{
    const struct rig_tensor *found = NULL;
    for (int i = 0; i < r->n_t; i++)
        if (strcmp(r->t[i].name, name) == 0 && (last || !found))
            found = &r->t[i];
    return found;
}

void rig_run(const struct rig_model *m, const struct rig_way *w, struct rig_result *r)
{
    static struct rig g; /* large */
    lf_err err = LF_ERR_INIT;
    memset(r, 0, sizeof *r);
    memset(&g, 0, sizeof g);
    g.m = m;
    g.w = w;
    g.r = r;
    g.micro = w->micro ? w->micro : 1;
    g.n = rig_cut(w, 0, g.chunk);
    const bool good = open_ranks(&g, &err);
    if (good)
        run_all(&g);
    else
        snprintf(r->error, sizeof r->error, "%s", err.text);
    for (int i = 0; i < g.n && good; i++)
        lf_plan_cost(g.part[i].on->p, g.part[i].chain, &r->cost[i]);
    r->hash = good ? lf_plan_hash(g.rank[0].p) : 0;
    for (int i = 0; i < g.ranks; i++) {
        if (good) {
            collect(&g, &g.rank[i], i);
            lf_plan_bytes(g.rank[i].p, &r->bytes[i]);
        }
        close_rank(&g.rank[i]);
    }
}

void rig_forget(struct rig_result *r)
{
    for (int i = 0; i < r->n_t; i++)
        free(r->t[i].grad);
    r->n_t = 0;
}
