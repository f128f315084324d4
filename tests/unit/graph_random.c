/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs with shared subexpressions, slices, shared weights and pinned values, from fixed
 * seeds: however a graph is planned (bytes reused and poisoned, every tensor apart, recomputed, in
 * two types), loss and gradients are the same bits; and the gradient is the one that differences of
 * the loss show.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "tests/tap/tap.h"

enum { ROWS = 24, COLS = 16, VOCAB = 29, POOL = 64, GRAPHS = 14 };

static lf_err err = LF_ERR_INIT;

struct dice {
    uint32_t seed;
    uint64_t at;
};

static uint32_t roll(struct dice *d, uint32_t n)
{
    return lf_rng_u32(d->seed, 77, d->at++) % n;
}

static void add(lf_pstore *ps, int64_t r, int64_t c, const char *what, int i)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", what, i);
    const struct lf_param_desc p = {.name = name,
                                    .ndim = c ? 2 : 1,
                                    .dims = {r, c},
                                    .init = LF_INIT_NORMAL,
                                    .init_std = c ? 1.0f / sqrtf((float)c) : 0.5f};
    if (lf_pstore_add(ps, &p, &err) < 0)
        tap_bail("%s", err.text);
}

static lf_pstore *store(void)
{
    lf_pstore *ps = lf_pstore_create(&err);
    add(ps, VOCAB, COLS, "embed", 0);
    add(ps, VOCAB, COLS, "head", 0);
    for (int i = 0; i < 4; i++) {
        add(ps, COLS, COLS, "square", i);
        add(ps, 2 * COLS, COLS, "wide", i);
        add(ps, COLS, 0, "vector", i);
        add(ps, 2 * COLS, 0, "long", i);
        add(ps, 1, 0, "scalar", i);
        add(ps, COLS, 9, "taps", i);
        add(ps, COLS, 0, "center", i);
    }
    add(ps, 1, 0, "given", 0);
    add(ps, 1, 0, "given", 1);
    lf_pstore_freeze(ps, "given", true);
    return ps;
}

static void rope_fill(void *dst, const void *ctx)
{
    float *t = dst;
    for (int i = 0; i < 64 * COLS / 4; i++)
        t[i] = (float)(ctx ? sin(i * 0.37) : cos(i * 0.37));
}

/* A sparse matrix from `from` rows to ROWS: row r has r % 3 entries. A constant is filled with one
 * array of it, or of its transpose. */
struct sparse {
    int from;
    bool transposed;
    char array; /* s, i, w */
};
static const struct sparse sparse_of[2][6] = {{{ROWS, false, 's'},
                                               {ROWS, false, 'i'},
                                               {ROWS, false, 'w'},
                                               {ROWS, true, 's'},
                                               {ROWS, true, 'i'},
                                               {ROWS, true, 'w'}},
                                              {{VOCAB, false, 's'},
                                               {VOCAB, false, 'i'},
                                               {VOCAB, false, 'w'},
                                               {VOCAB, true, 's'},
                                               {VOCAB, true, 'i'},
                                               {VOCAB, true, 'w'}}};
enum { ENTRIES = ROWS };

static void sparse_fill(void *dst, const void *ctx)
{
    const struct sparse *m = ctx;
    int32_t *ints = dst, k = 0;
    float *floats = dst;
    const int rows = m->transposed ? m->from : ROWS, cols = m->transposed ? ROWS : m->from;
    for (int r = 0; r < rows; r++) {
        if (m->array == 's')
            ints[r] = k;
        for (int c = 0; c < cols; c++) {
            const int to = m->transposed ? c : r, of = m->transposed ? r : c;
            for (int e = 0; e < to % 3; e++) {
                if ((to * 5 + 3 * e) % m->from != of)
                    continue;
                if (m->array == 'i')
                    ints[k] = c;
                if (m->array == 'w')
                    floats[k] = 0.75f - 0.5f * (float)e;
                k++;
            }
        }
    }
    if (m->array == 's')
        ints[rows] = k;
}

static lf_val mixed(lf_graph *g, lf_val x, bool param)
{
    static const char *const names[2][6] = {{"ms", "mi", "mw", "ts", "ti", "tw"},
                                            {"pms", "pmi", "pmw", "pts", "pti", "ptw"}};
    const struct sparse *of = sparse_of[param];
    lf_val v[6];
    for (int k = 0; k < 6; k++) {
        const int rows = k == 0 ? ROWS + 1 : k == 3 ? of->from + 1 : ENTRIES;
        v[k] = lf_const(g, names[param][k], k % 3 == 2 ? LF_F32 : LF_I32, rows, 1, sparse_fill,
                        &of[k]);
    }
    if (param) /* rows of a parameter become rows of data where data says so */
        v[0] = lf_input(g, "mix", LF_I32, ROWS + 1, 1);
    return lf_mix_rows(g, x, &(struct lf_mix){v[0], v[1], v[2], v[3], v[4], v[5]});
}

/* Two heads of keys that share some channels, and values of another width. */
static lf_val heads(lf_graph *g, lf_val x, struct dice *d)
{
    enum { H = 2, OWN = 2, SHARED = 8 };
    const struct lf_attn_opts o = {
        .heads = H, .groups = H, .scale = 0.4f, .causal = true, .max_doc = ROWS};
    const lf_val w = lf_linear(g, x, lf_paramf(g, "wide%u", roll(d, 4)), LF_NONE),
                 v = lf_linear(g, x, lf_paramf(g, "square%u", roll(d, 4)), LF_NONE),
                 own = lf_slice(g, w, 0, H * OWN), shared = lf_slice(g, w, H * OWN, SHARED),
                 q = lf_slice(g, w, H * OWN + SHARED, H * (OWN + SHARED)),
                 k = lf_heads_join(g, own, shared, H);
    return lf_attention(g, q, k, v, lf_input(g, "documents", LF_I32, 3, 1), LF_NONE, &o);
}

/* Two streams that take in what coefficients of the row make of one, and four made of three. */
static lf_val streams(lf_graph *g, lf_val x, struct dice *d)
{
    enum { HALF = COLS / 2 };
    const struct lf_altup_opts two = {.from = 2, .to = 2, .offset = 0.5f},
                               four = {.from = 3, .to = 4, .first = 1, .read = 2, .offset = 1};
    const lf_val all = lf_linear(g, x, lf_paramf(g, "wide%u", roll(d, 4)), LF_NONE),
                 w = lf_act(g, lf_slice(g, all, 0, 4), LF_ACT_TANH),
                 one = lf_slice(g, all, 4, HALF), like = lf_slice(g, all, 4 + HALF, HALF),
                 rest = lf_slice(g, all, 4 + COLS, COLS - 4),
                 y = lf_altup_mix(g, lf_heads_join(g, one, lf_gauss_topk(g, one, 0.3f), 1), w,
                                  &two);
    return lf_add(g, lf_match_rms(g, y, like, 2, 1e-5f), lf_altup_mix(g, rest, LF_NONE, &four));
}

struct pool {
    lf_val v[POOL];
    bool slice[POOL], used[POOL];
    int n;
};

static void put(struct pool *p, lf_val v, bool slice)
{
    if (p->n < POOL) {
        p->v[p->n] = v;
        p->slice[p->n] = slice;
        p->n++;
    }
}

static lf_val take(struct pool *p, struct dice *d)
{
    int i = roll(d, 3) ? p->n - 1 - (int)roll(d, (uint32_t)(p->n < 3 ? p->n : 3))
                       : (int)roll(d, (uint32_t)p->n);
    p->used[i] = true;
    return p->v[i];
}

static void random_op(lf_graph *g, struct pool *p, struct dice *d, lf_val pos, lf_val sample,
                      bool pins)
{
    const struct lf_norm_opts no = {.eps = 1e-5f, .layer = roll(d, 2)};
    lf_val x = take(p, d), y = LF_NONE;
    switch (roll(d, 14)) {
    case 0:
    case 1:
        y = lf_linear(g, x, lf_paramf(g, "square%u", roll(d, 4)),
                      roll(d, 2) ? lf_paramf(g, "vector%u", roll(d, 4)) : LF_NONE);
        break;
    case 2: {
        const struct lf_norm_opts groups = {
            .eps = 1e-5f, .layer = no.layer, .heads = 2, .each = true};
        y = lf_norm(g, x, lf_paramf(g, "vector%u", roll(d, 4)), LF_NONE,
                    roll(d, 2) ? &groups : &no);
        break;
    }
    case 3:
        if (!roll(d, 3)) {
            const uint32_t pair = roll(d, 2);
            y = lf_xielu(g, x,
                         &(struct lf_xielu_vals){lf_paramf(g, "scalar%u", pair),
                                                 lf_paramf(g, "scalar%u", pair + 2),
                                                 lf_param(g, "given0"), lf_param(g, "given1")});
            break;
        }
        y = lf_act(g, lf_linear(g, x, lf_paramf(g, "square%u", roll(d, 4)), LF_NONE),
                   roll(d, 2)   ? LF_ACT_GELU
                   : roll(d, 2) ? LF_ACT_SILU
                                : LF_ACT_SIGMOID);
        break;
    case 4:
    case 5:
        y = lf_add(g, x, take(p, d));
        break;
    case 6: {
        const uint32_t which = roll(d, 4); /* every other one has a bias */
        y = !roll(d, 3)  ? lf_turn_rows(g, lf_turn_rows(g, x, roll(d, 2) ? 8 : 9, 0), COLS, ROWS)
            : roll(d, 2) ? lf_scale(g, x, 0.5f)
                         : lf_dwconv(g, x, lf_paramf(g, "taps%u", which),
                                     which % 2 ? lf_paramf(g, "center%u", which) : LF_NONE, 2);
        break;
    }
    case 7: {
        lf_val w =
            lf_linear(g, x, lf_paramf(g, "wide%u", roll(d, 4)), lf_paramf(g, "long%u", roll(d, 4)));
        lf_val a = lf_slice(g, w, 0, COLS), b = lf_slice(g, w, COLS, COLS);
        if (roll(d, 2)) {
            y = lf_glu(g, a, b, roll(d, 2) ? LF_ACT_SILU : LF_ACT_SIGMOID);
        } else {
            put(p, a, true);
            y = b;
        }
        break;
    }
    case 8: {
        const struct lf_rope_opts ro = {.heads = 2, .rot = COLS / 2};
        y = lf_rope(g, x, pos, lf_const(g, "cos", LF_F32, 64, COLS / 4, rope_fill, NULL),
                    lf_const(g, "sin", LF_F32, 64, COLS / 4, rope_fill, "s"), &ro);
        break;
    }
    case 9:
        y = lf_col_gate(g, x, lf_paramf(g, "vector%u", roll(d, 4)));
        break;
    case 10:
        y = mixed(g, x, false);
        break;
    case 11:
        y = lf_add(g, x, mixed(g, lf_param(g, "embed0"), true));
        break;
    case 12:
        y = roll(d, 2) ? heads(g, x, d) : streams(g, x, d);
        break;
    default:
        y = lf_dropout(g, x, 0.25f, "drop", sample, pos);
        break;
    }
    if (pins && !roll(d, 6) && y.id && !g->t[y.id].parent)
        lf_pin_f32(g, y);
    put(p, y, y.id && g->t[y.id].parent);
}

static lf_graph *build(lf_pstore *ps, uint32_t seed, bool pins)
{
    struct dice d = {.seed = seed};
    struct pool p = {.n = 0};
    lf_graph *g = lf_graph_create(ps, "random", &err);
    lf_val pos = lf_input(g, "positions", LF_I32, ROWS, 1),
           sample = lf_input(g, "samples", LF_I64, ROWS, 1);
    put(&p,
        lf_embed(g, lf_input(g, "tokens", LF_I32, ROWS, 1), LF_NONE, lf_param(g, "embed0"), LF_NONE,
                 1.0f, 0),
        false);
    for (int block = 0; block < 4; block++) {
        lf_block_begin(g, block);
        for (int i = 0; i < 5; i++)
            random_op(g, &p, &d, pos, sample, pins);
        lf_block_end(g);
    }
    lf_val x = p.v[p.n - 1];
    for (int i = 0; i + 1 < p.n; i++)
        if (!p.used[i])
            x = lf_add(g, x, p.v[i]);
    const struct lf_norm_opts no = {.eps = 1e-5f};
    x = lf_norm(g, x, lf_param(g, "vector0"), LF_NONE, &no);
    const struct lf_xent_opts xo = {.want_loss = true};
    lf_xent(g, x, lf_param(g, "head0"), LF_NONE, lf_input(g, "targets", LF_I32, ROWS, 1), &xo);
    return g;
}

struct result {
    struct lf_step_record rec;
    float *grad;
    double slope; /* of the loss along the gradient, by differences; compared with |grad| */
    double norm;
    struct lf_plan_bytes bytes;
};

struct machine {
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

static void run(struct machine *m, enum lf_segment seg)
{
    if (lf_exec_run(m->ex, 0, seg, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
}

static double loss(struct machine *m)
{
    struct lf_step_record rec = {.seed = 5, .loss_scale = 1, .inv_tokens = 1.0f / ROWS};
    lf_exec_record_write(m->ex, &rec, &err);
    run(m, LF_FWD);
    lf_exec_record_read(m->ex, &rec, &err);
    return rec.loss_sum / ROWS;
}

/* Move every weight along grad by h. */
static void shift(struct machine *m, const float *grad, double h)
{
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        struct lf_pview w;
        if (lf_pstore_view(m->ps, i, LF_P_GRAD, &w) != 1 ||
            lf_pstore_view(m->ps, i, LF_P_MASTER, &w) != 1)
            continue;
        float *x = w.data;
        for (size_t e = 0; e < w.bytes / 4; e++)
            x[e] = (float)((double)x[e] + h * (double)grad[at + e]);
        at += w.bytes / 4;
    }
    lf_pstore_touch(m->ps);
}

static struct result solve(uint32_t seed, struct lf_plan_opts po, enum lf_recompute how,
                           bool poison, bool differences)
{
    struct machine m = {.ps = store()};
    struct result r = {.slope = 0};
    int32_t token[ROWS], target[ROWS], pos[ROWS];
    int64_t sample[ROWS];
    for (int i = 0; i < ROWS; i++) {
        token[i] = (int32_t)(lf_rng_u32(seed, 1, (uint64_t)i) % VOCAB);
        target[i] = (int32_t)(lf_rng_u32(seed, 2, (uint64_t)i) % VOCAB);
        pos[i] = i;
        sample[i] = 9;
    }
    m.p = lf_plan_create(m.ps, &po, &err);
    lf_graph *g = build(m.ps, seed, po.compute == LF_BF16);
    if (lf_plan_add(m.p, g, &(struct lf_chain_opts){.train = true, .recompute = how}, &err) ||
        lf_plan_finish(m.p, &err))
        tap_bail("seed %u: %s", seed, err.text);
    lf_graph_destroy(g);
    lf_plan_bytes(m.p, &r.bytes);
    m.b = lf_back_cpu_create(lf_target_host()->isa, 2, &err);
    m.ex = lf_exec_create(m.p, m.b, &(struct lf_exec_opts){.poison = poison}, &err);
    if (!m.ex || lf_pstore_init(m.ps, 1, &err))
        tap_bail("seed %u: %s", seed, err.text);
    lf_exec_write(m.ex, 0, 0, "tokens", token, sizeof token, &err);
    lf_exec_write(m.ex, 0, 0, "targets", target, sizeof target, &err);
    lf_exec_write(m.ex, 0, 0, "positions", pos, sizeof pos, &err);
    lf_exec_write(m.ex, 0, 0, "samples", sample, sizeof sample, &err);
    int32_t start[ROWS + 1];
    sparse_fill(start, &sparse_of[1][0]);
    const int32_t documents[3] = {0, ROWS / 3, ROWS - 1};
    lf_exec_write(m.ex, 0, 0, "mix", start, sizeof start, NULL); /* where the graph has it */
    lf_exec_write(m.ex, 0, 0, "documents", documents, sizeof documents, NULL);
    loss(&m);
    lf_exec_record_read(m.ex, &r.rec, &err);
    run(&m, LF_BWD);
    r.grad = calloc((size_t)lf_pstore_elements(m.ps), 4);
    size_t at = 0;
    for (int i = 0; i < lf_pstore_count(m.ps); i++) {
        struct lf_pview w;
        if (lf_pstore_view(m.ps, i, LF_P_GRAD, &w) != 1)
            continue;
        memcpy(r.grad + at, w.data, w.bytes);
        at += w.bytes / 4;
    }
    for (size_t e = 0; e < at; e++)
        r.norm += (double)r.grad[e] * (double)r.grad[e];
    r.norm = sqrt(r.norm);
    for (double h = 0.01; differences && h > 0.0005; h /= 2) {
        double l[2];
        for (int s = 0; s < 2; s++) {
            shift(&m, r.grad, s == 0 ? h / r.norm : -2 * h / r.norm);
            l[s] = loss(&m);
        }
        shift(&m, r.grad, h / r.norm);
        double slope = (l[0] - l[1]) / (2 * h);
        if (fabs(slope - r.norm) < fabs(r.slope - r.norm))
            r.slope = slope;
    }
    lf_exec_destroy(m.ex);
    lf_back_destroy(m.b);
    lf_plan_destroy(m.p);
    lf_pstore_destroy(m.ps);
    return r;
}

static void one_seed(uint32_t seed, enum lf_dtype compute)
{
    const struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT};
    struct lf_plan_opts apart = po;
    apart.no_reuse = true;
    const char *type = compute == LF_BF16 ? "bf16" : "f32";
    size_t bytes = 0;
    lf_pstore *ps = store();
    bytes = (size_t)lf_pstore_elements(ps) * 4;
    lf_pstore_destroy(ps);
    struct result ref = solve(seed, apart, LF_RECOMPUTE_NONE, false, compute == LF_F32), r;
    if (compute == LF_F32)
        tap_f64(ref.slope / ref.norm, 1.0, 2e-3, "gradient agrees with differences of the loss");
    for (int v = 0; v < 4; v++) {
        r = solve(seed, po, v == 3 ? LF_RECOMPUTE_SELECTIVE : (enum lf_recompute)v, v != 3, false);
        tap_ok(isfinite(r.rec.loss_sum) && memcmp(&r.rec, &ref.rec, sizeof r.rec) == 0 &&
                   memcmp(r.grad, ref.grad, bytes) == 0 &&
                   (double)r.bytes.arena <= 1.05 * (double)r.bytes.largest_live,
               "seed %u %s plan %d: same bits (loss %.4f), arena %zu of %zu live", seed, type, v,
               r.rec.loss_sum / ROWS, r.bytes.arena, r.bytes.largest_live);
        free(r.grad);
    }
    free(ref.grad);
}

int main(void)
{
    for (uint32_t seed = 1; seed <= GRAPHS; seed++) {
        TAP(5, one_seed(seed, LF_F32));
        TAP(4, one_seed(seed, LF_BF16));
    }
    return tap_done();
}
