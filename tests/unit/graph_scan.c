/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs with a convolution, decays and a scan of each kind: the gradient is the one that
 * differences of the loss show; bytes reused, recomputation and poison change no bit; rows that
 * come in several runs of another graph, over states, have the bits of the whole documents; two
 * ranks that divide heads have half of the channels and one rank's gradients; wrong operands are
 * refused by name.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/graph/exec.h"
#include "engine/graph/priv.h"
#include "tests/tap/tap.h"

enum { ROWS = 100, DOCS = 3, C = 12, V = 23, H = 4, G = 2, TAPS = 4, PART = 7 };
static const int32_t cu[DOCS + 1] = {0, 17, 90, 97};

static _Thread_local lf_err err = LF_ERR_INIT; /* ranks are threads */

struct kind {
    const char *name;
    int dk, dv;
    bool delta, channel, fixed;
};
static const struct kind kinds[] = {{"ssd", 5, 3, false, false, false},
                                    {"lightning", 4, 6, false, false, true},
                                    {"delta", 6, 5, true, false, false},
                                    {"delta, channels", 3, 4, true, true, false},
                                    {"lightning, channels", 3, 4, false, true, true}};

struct sizes {
    int groups, q, v, mixed, gates; /* columns: of q, of v, of what is convolved, of a and b */
};

static struct sizes sizes_of(const struct kind *k)
{
    const int groups = k->channel ? H : G;
    return (struct sizes){groups, groups * k->dk, H * k->dv, 2 * groups * k->dk + H * k->dv,
                          H * (k->channel ? k->dk : 1)};
}

static void add(lf_pstore *ps, const char *name, int64_t r, int64_t c, const char *group,
                int64_t parts, enum lf_shard_rule rule)
{
    const struct lf_param_desc p = {.name = name,
                                    .group = group,
                                    .ndim = c ? 2 : 1,
                                    .dims = {r, c},
                                    .init = LF_INIT_NORMAL,
                                    .init_std = c > TAPS ? 1.0f / sqrtf((float)c) : 0.4f,
                                    .shard = rule,
                                    .shard_parts = parts};
    if (lf_pstore_add(ps, &p, &err) < 0)
        tap_bail("%s", err.text);
}

static lf_pstore *store(const struct kind *k, int ranks, int rank)
{
    const struct sizes z = sizes_of(k);
    const int n[] = {z.q, z.q, z.v}, parts[] = {z.groups, z.groups, H};
    lf_pstore *ps = lf_pstore_create(&err);
    const struct lf_layout layout = {.tensor = ranks, .tensor_rank = rank};
    if (ranks > 1 && lf_pstore_set_layout(ps, &layout, &err))
        tap_bail("%s", err.text);
    add(ps, "embed", V, C, NULL, 0, LF_SHARD_NONE);
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 3; i++) {
            static const char *const what[] = {"in", "conv", "conv_bias"};
            char name[32];
            snprintf(name, sizeof name, "%s.%d", what[kind], i);
            add(ps, name, n[i],
                kind == 0   ? C
                : kind == 1 ? TAPS
                            : 0,
                what[kind], parts[i], LF_SHARD_ROWS);
        }
    add(ps, "a", z.gates, C, NULL, H, LF_SHARD_ROWS);
    add(ps, "b", H, C, NULL, H, LF_SHARD_ROWS);
    add(ps, "a_log", H, 0, NULL, H, LF_SHARD_ROWS);
    add(ps, "dt_bias", z.gates, 0, NULL, H, LF_SHARD_ROWS);
    add(ps, "skip", H, 0, NULL, H, LF_SHARD_ROWS);
    add(ps, "norm", z.v, 0, NULL, H, LF_SHARD_ROWS);
    add(ps, "norm_bias", z.v, 0, NULL, H, LF_SHARD_ROWS);
    add(ps, "out", C, z.v, NULL, H, LF_SHARD_COLS);
    add(ps, "head", V, C, NULL, 0, LF_SHARD_NONE);
    return ps;
}

static void slopes(void *dst, const void *ctx)
{
    for (int i = 0; i < sizes_of(ctx).gates; i++)
        ((float *)dst)[i] = -0.1f * (float)(i + 1);
}

/* The mixer. sequences > 0: over states. */
static lf_val mixer(lf_graph *g, const struct kind *k, lf_val x, int rows, int sequences)
{
    const struct sizes z = sizes_of(k);
    const struct lf_scan_opts o = {.heads = H,
                                   .groups = z.groups,
                                   .scale = k->delta ? 0.5f : 1.0f,
                                   .unit_eps = k->delta ? 1e-6f : 0,
                                   .delta = k->delta,
                                   .per_channel = k->channel};
    const struct lf_scan_gate_opts go = {.heads = H, .low = 0, .high = INFINITY, .strength = 1.6f};
    struct lf_slots conv = {LF_NONE, LF_NONE, LF_NONE}, scan = conv;
    lf_val starts = LF_NONE;
    x = lf_tp_enter(g, x);
    if (sequences) {
        conv.seq = scan.seq = lf_input(g, "seq", LF_I32, rows, 1);
        conv.pos = scan.pos = lf_input(g, "pos", LF_I32, rows, 1);
        conv.state = lf_state(g, "conv_state", LF_F32, sequences, (TAPS - 1) * z.mixed);
        scan.state = lf_scan_state(g, "scan_state", sequences, k->dk, k->dv, &o, LF_INVARIANT);
    } else {
        starts = lf_input(g, "cu", LF_I32, DOCS + 1, 1);
    }
    const lf_val y =
        lf_conv(g, lf_linear(g, x, lf_param(g, "in"), LF_NONE), lf_param(g, "conv"),
                lf_param(g, "conv_bias"), starts, LF_ACT_SILU, sequences ? &conv : NULL);
    struct lf_scan_in_vals in = {.q = lf_slice(g, y, 0, z.q),
                                 .k = lf_slice(g, y, z.q, z.q),
                                 .v = lf_slice(g, y, 2 * z.q, z.v)};
    if (k->fixed) {
        in.g = lf_const(g, "slopes", LF_F32, 1, z.gates, slopes, k);
    } else {
        const lf_val a = lf_linear(g, x, lf_param(g, "a"), LF_NONE),
                     b = k->delta ? lf_linear(g, x, lf_param(g, "b"), LF_NONE) : LF_NONE;
        const struct lf_scan_gates gates =
            lf_scan_gate(g, a, b, lf_param(g, "a_log"), lf_param(g, "dt_bias"), &go);
        in.g = gates.g;
        in.beta = gates.beta;
    }
    if (!k->delta)
        in.skip = lf_param(g, "skip");
    /* of short rows, which a smaller eps would magnify together with their rounding */
    const struct lf_norm_opts no = {.eps = 0.1f, .layer = k->fixed, .heads = G, .each = true};
    const lf_val o_ =
        lf_norm(g, lf_scan(g, &in, starts, &o, sequences ? &scan : NULL), lf_param(g, "norm"),
                k->fixed ? lf_param(g, "norm_bias") : LF_NONE, &no);
    return lf_tp_leave(g, lf_linear(g, o_, lf_param(g, "out"), LF_NONE));
}

static lf_graph *build(lf_pstore *ps, const struct kind *k, int rows, int sequences)
{
    lf_graph *g = lf_graph_create(ps, sequences ? "decode" : "train", &err);
    lf_val x = lf_embed(g, lf_input(g, "tokens", LF_I32, rows, 1), LF_NONE, lf_param(g, "embed"),
                        LF_NONE, 1.0f, 0);
    lf_block_begin(g, 0);
    x = lf_add(g, x, mixer(g, k, x, rows, sequences));
    lf_block_end(g);
    if (sequences) {
        lf_pin_f32(g, x = lf_linear(g, x, lf_param(g, "head"), LF_NONE));
        lf_output(g, x, "logits");
    } else {
        const struct lf_xent_opts xo = {.want_loss = true};
        lf_xent(g, x, lf_param(g, "head"), LF_NONE, lf_input(g, "targets", LF_I32, rows, 1), &xo);
    }
    return g;
}

struct machine {
    int ranks, rank; /* of the tensor axis; 0: one */
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

static void start(struct machine *m, const struct kind *k, struct lf_plan_opts po,
                  enum lf_recompute how, bool poison)
{
    m->ps = store(k, m->ranks, m->rank);
    m->p = lf_plan_create(m->ps, &po, &err);
    lf_graph *train = build(m->ps, k, ROWS, 0), *decode = build(m->ps, k, PART, DOCS);
    if (lf_plan_add(m->p, train, &(struct lf_chain_opts){.train = true, .recompute = how}, &err) ||
        lf_plan_add(m->p, decode, &(struct lf_chain_opts){0}, &err) != 1 ||
        lf_plan_finish(m->p, &err))
        tap_bail("%s: %s", k->name, err.text);
    lf_graph_destroy(train);
    lf_graph_destroy(decode);
    m->b = lf_back_cpu_create(lf_target_host()->isa, 2, &err);
    m->ex = lf_exec_create(m->p, m->b, &(struct lf_exec_opts){.poison = poison}, &err);
    if (!m->ex || lf_pstore_init(m->ps, 3, &err))
        tap_bail("%s: %s", k->name, err.text);
}

static void stop(struct machine *m)
{
    lf_exec_destroy(m->ex);
    lf_back_destroy(m->b);
    lf_plan_destroy(m->p);
    lf_pstore_destroy(m->ps);
}

static int32_t token(int r)
{
    return (int32_t)(lf_rng_u32(5, 1, (uint64_t)r) % V);
}

static double loss(struct machine *m, struct lf_step_record *rec)
{
    int32_t tokens[ROWS], targets[ROWS];
    for (int r = 0; r < ROWS; r++) {
        tokens[r] = token(r);
        targets[r] = r < cu[DOCS] ? token(r + 1000) : -1;
    }
    *rec = (struct lf_step_record){.seed = 5, .loss_scale = 1, .inv_tokens = 1.0f / ROWS};
    lf_exec_record_write(m->ex, rec, &err);
    if (lf_exec_write(m->ex, 0, 0, "tokens", tokens, sizeof tokens, &err) ||
        lf_exec_write(m->ex, 0, 0, "targets", targets, sizeof targets, &err) ||
        lf_exec_write(m->ex, 0, 0, "cu", cu, sizeof cu, &err) ||
        lf_exec_run(m->ex, 0, LF_FWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    lf_exec_record_read(m->ex, rec, &err);
    return rec->loss_sum / ROWS;
}

static float *gradient(struct machine *m, size_t *n)
{
    float *grad = calloc((size_t)lf_pstore_elements(m->ps), 4);
    *n = 0;
    if (lf_exec_run(m->ex, 0, LF_BWD, 0, LF_FIRST, &err))
        tap_bail("%s", err.text);
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        struct lf_pview w;
        if (lf_pstore_view(m->ps, i, LF_P_GRAD, &w) != 1)
            continue;
        memcpy(grad + *n, w.data, w.bytes);
        *n += w.bytes / 4;
    }
    return grad;
}

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

static double slope(struct machine *m, const float *grad, double norm)
{
    struct lf_step_record rec;
    double best = 0, l[2];
    for (double h = 0.02; h > 0.001; h /= 2) {
        for (int s = 0; s < 2; s++) {
            shift(m, grad, s == 0 ? h / norm : -2 * h / norm);
            l[s] = loss(m, &rec);
        }
        shift(m, grad, h / norm);
        const double now = (l[0] - l[1]) / (2 * h);
        best = fabs(now - norm) < fabs(best - norm) ? now : best;
    }
    return best;
}

static void test_plans(const struct kind *k, enum lf_dtype compute)
{
    struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT}, apart = po;
    struct machine m = {0};
    struct lf_step_record rec, ref;
    size_t n, n_ref;
    apart.no_reuse = true;
    start(&m, k, apart, LF_RECOMPUTE_NONE, false);
    loss(&m, &ref);
    float *want = gradient(&m, &n_ref);
    double norm = 0;
    for (size_t e = 0; e < n_ref; e++)
        norm += (double)want[e] * (double)want[e];
    norm = sqrt(norm);
    if (compute == LF_F32)
        tap_f64(slope(&m, want, norm) / norm, 1.0, 2e-3,
                "the gradient agrees with differences of the loss");
    stop(&m);
    for (int v = 0; v < 3; v++) {
        start(&m, k, po, (enum lf_recompute)v, true);
        loss(&m, &rec);
        float *got = gradient(&m, &n);
        tap_ok(isfinite(rec.loss_sum) && norm > 1e-3 && n == n_ref &&
                   memcmp(&rec, &ref, sizeof rec) == 0 && memcmp(got, want, n * 4) == 0,
               "%s, %s, recompute %d: the same bits (loss %.4f)", k->name,
               compute == LF_BF16 ? "bf16" : "f32", v, rec.loss_sum / ROWS);
        free(got);
        stop(&m);
    }
    free(want);
}

/* Documents as sequences, some rows of each in a run; losses of rows against the whole. */
static void test_decode(const struct kind *k, enum lf_dtype compute)
{
    const struct lf_plan_opts po = {.threads = 2, .compute = compute, .mode = LF_INVARIANT};
    struct machine m = {0};
    struct lf_step_record rec;
    float whole[ROWS], logits[PART * V];
    int at[DOCS] = {0}, left = cu[DOCS], worst = 0;
    double far = 0;
    start(&m, k, po, LF_RECOMPUTE_NONE, true);
    loss(&m, &rec);
    if (lf_exec_read(m.ex, 0, 0, "loss", whole, sizeof whole, &err))
        tap_bail("%s", err.text);
    for (int turn = 0; left > 0; turn++) {
        int32_t tokens[PART] = {0}, seq[PART], pos[PART] = {0};
        int n = 0, from[PART];
        for (int d = 0; d < DOCS; d++)
            for (int i = 0; i < 1 + (turn + d) % 3 && n < PART && at[d] < cu[d + 1] - cu[d]; i++) {
                seq[n] = d;
                pos[n] = at[d]++;
                tokens[n] = token(cu[d] + pos[n]);
                from[n] = cu[d] + pos[n];
                n++;
            }
        for (int i = n; i < PART; i++)
            seq[i] = -1;
        if (lf_exec_write(m.ex, 1, 0, "tokens", tokens, sizeof tokens, &err) ||
            lf_exec_write(m.ex, 1, 0, "seq", seq, sizeof seq, &err) ||
            lf_exec_write(m.ex, 1, 0, "pos", pos, sizeof pos, &err) ||
            lf_exec_run(m.ex, 1, LF_FWD, 0, LF_FIRST, &err) ||
            lf_exec_read(m.ex, 1, 0, "logits", logits, sizeof logits, &err))
            tap_bail("%s", err.text);
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int c = 0; c < V; c++)
                sum += exp((double)logits[i * V + c]);
            const double l = log(sum) - (double)logits[i * V + token(from[i] + 1000)];
            const double e = fabs(l - (double)whole[from[i]]);
            worst = e > far ? from[i] : worst;
            far = e > far ? e : far;
        }
        left -= n;
    }
    /* losses are sums of exponentials in two ways; the kernels' tests compare bits */
    tap_ok(far < 2e-6, "%s, %s: rows over states give the losses of documents (row %d: %.2g)",
           k->name, compute == LF_BF16 ? "bf16" : "f32", worst, far);
    stop(&m);
}

/* ---- two ranks ---- */

struct team {
    const struct kind *k;
    pthread_barrier_t barrier;
    float *data[2];
    const float *want; /* one rank's gradient */
    double norm;
};
struct member {
    struct team *team;
    int rank;
    double loss, worst;
    char name[32]; /* of the worst gradient */
    bool half;
};

static int sum_two(void *user, float *data, size_t n, lf_err *e)
{
    const struct member *m = user;
    struct team *t = m->team;
    float sum[ROWS * C];
    (void)e;
    if (n > ROWS * C)
        tap_bail("a sum of %zu", n);
    t->data[m->rank] = data;
    pthread_barrier_wait(&t->barrier);
    for (size_t i = 0; i < n; i++)
        sum[i] = t->data[0][i] + t->data[1][i];
    pthread_barrier_wait(&t->barrier);
    memcpy(data, sum, n * sizeof *sum);
    return 0;
}

static bool halves(const lf_plan *p, const struct kind *k)
{
    bool half = true;
    for (size_t c = 0; c < 2; c++)
        for (size_t i = 0; i < p->c[c].g->n_n; i++) {
            const lf_graph *g = p->c[c].g;
            const struct lf_node *n = &g->n[i];
            if (n->op == LF_OP_SCAN || n->op == LF_OP_SCAN_BWD)
                half = half && n->a.heads == H / 2 &&
                       g->t[n->in[SCAN_V]].cols == sizes_of(k).v / 2 &&
                       g->t[n->in[SCAN_G]].cols == sizes_of(k).gates / 2;
        }
    return half;
}

/* Compares what this rank has of each gradient with one rank's. */
static void compare(struct member *self, const lf_pstore *ps)
{
    size_t at = 0;
    for (size_t i = 0; i < ps->n_p; i++) {
        const struct lf_param *p = &ps->p[i];
        struct lf_pview v;
        double diff = 0, norm = 0;
        if (lf_pstore_view(ps, (int)i, LF_P_GRAD, &v) != 1)
            continue;
        for (int64_t e = 0; e < p->n; e++) {
            const double is = (double)((const float *)v.data)[e],
                         was = (double)self->team->want[at + (size_t)lf_box_element(p, e)];
            diff += (is - was) * (is - was);
            norm += was * was;
        }
        at += (size_t)(p->d.dims[0] * (p->d.ndim > 1 ? p->d.dims[1] : 1));
        const double error = sqrt(diff) / fmax(sqrt(norm), 1e-4 * self->team->norm);
        if (!(error <= self->worst)) {
            self->worst = error;
            snprintf(self->name, sizeof self->name, "%s", p->d.name);
        }
    }
}

static void *member_main(void *arg)
{
    struct member *self = arg;
    const struct lf_plan_opts po = {.threads = 2, .compute = LF_F32, .mode = LF_INVARIANT};
    const struct lf_exec_comm comm = {.tensor_sum = sum_two};
    struct machine m = {.ranks = 2, .rank = self->rank};
    struct lf_step_record rec;
    size_t n;
    start(&m, self->team->k, po, LF_RECOMPUTE_NONE, true);
    lf_exec_set_comm(m.ex, &comm, self);
    self->half = halves(m.p, self->team->k);
    self->loss = loss(&m, &rec);
    free(gradient(&m, &n));
    compare(self, m.ps);
    stop(&m);
    return NULL;
}

static void test_ranks(const struct kind *k)
{
    const struct lf_plan_opts po = {.threads = 2, .compute = LF_F32, .mode = LF_INVARIANT};
    struct machine m = {0};
    struct lf_step_record rec;
    size_t n;
    start(&m, k, po, LF_RECOMPUTE_NONE, true);
    const double alone = loss(&m, &rec);
    float *want = gradient(&m, &n);
    stop(&m);
    struct team t = {.k = k, .want = want};
    struct member rank[2] = {{.team = &t}, {.team = &t, .rank = 1}};
    pthread_t thread[2];
    for (size_t e = 0; e < n; e++)
        t.norm += (double)want[e] * (double)want[e];
    t.norm = sqrt(t.norm);
    pthread_barrier_init(&t.barrier, NULL, 2);
    for (int r = 0; r < 2; r++)
        if (pthread_create(&thread[r], NULL, member_main, &rank[r]))
            tap_bail("no thread");
    for (int r = 0; r < 2; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&t.barrier);
    free(want);
    for (int r = 0; r < 2; r++)
        tap_ok(rank[r].half && rank[r].worst < 2e-5 && fabs(rank[r].loss - alone) < 1e-6 * alone,
               "%s: rank %d of two has half of the heads, and one rank's gradients: %.2g, %s",
               k->name, r, rank[r].worst, rank[r].name);
}

/* The states of a rank in a plan whose activations are bf16. */
static void test_rank_states(const struct kind *k)
{
    const struct lf_plan_opts po = {.threads = 2, .compute = LF_BF16, .mode = LF_INVARIANT};
    struct machine m = {.ranks = 2, .rank = 1};
    int right = 0;
    start(&m, k, po, LF_RECOMPUTE_NONE, true);
    const lf_graph *g = m.p->c[1].g;
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        right += n->op == LF_OP_CONV && g->t[n->in[CONV_STATE]].dtype == LF_BF16;
        right += n->op == LF_OP_SCAN && g->t[n->in[SCAN_STATE]].dtype == LF_F32;
    }
    tap_ok(right == 2, "%s: the scan's state is f32 on a rank too, the convolution's is bf16",
           k->name);
    stop(&m);
}

/* FLOPs of the chunk form, counted by hand: for each row and head products with S [dk, dv] and
 * halves of the 65 rows that a row of a whole chunk sees, of dk + dv channels. */
static void test_cost(const struct kind *k, double fwd)
{
    struct machine m = {0};
    double sum[2] = {0};
    start(&m, k, (struct lf_plan_opts){.threads = 2, .mode = LF_INVARIANT}, LF_RECOMPUTE_NONE,
          true);
    const lf_graph *g = m.p->c[0].g;
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node *n = &g->n[i];
        if (n->op == LF_OP_SCAN || n->op == LF_OP_SCAN_BWD)
            sum[n->op == LF_OP_SCAN_BWD] += lf_op_table[n->op].flops(g, n, false);
    }
    tap_f64(sum[0], fwd, 0.5, "FLOPs of a scan");
    tap_f64(sum[1], 2 * fwd, 0.5, "and of its backward");
    stop(&m);
}

static void test_refusals(void)
{
    lf_pstore *ps = store(&kinds[0], 1, 0);
    lf_graph *g = lf_graph_create(ps, "wrong", &err);
    lf_val x = lf_embed(g, lf_input(g, "tokens", LF_I32, ROWS, 1), LF_NONE, lf_param(g, "embed"),
                        LF_NONE, 1.0f, 0);
    lf_conv(g, x, lf_param(g, "conv"), LF_NONE, lf_input(g, "cu", LF_I32, 3, 1), LF_ACT_NONE, NULL);
    tap_ok(lf_graph_check(g, &err) == LF_EINVAL && strstr(err.text, "conv") &&
               strstr(err.text, "[C, K]"),
           "%s", err.text);
    lf_graph_destroy(g);
    err = (lf_err)LF_ERR_INIT;
    g = lf_graph_create(ps, "wrong", &err);
    x = lf_embed(g, lf_input(g, "tokens", LF_I32, ROWS, 1), LF_NONE, lf_param(g, "embed"), LF_NONE,
                 1.0f, 0);
    lf_scan(g, &(struct lf_scan_in_vals){.q = x, .k = x, .v = x, .g = x},
            lf_input(g, "cu", LF_I32, 3, 1), &(struct lf_scan_opts){.heads = 5, .groups = 2}, NULL);
    tap_ok(lf_graph_check(g, &err) == LF_EINVAL && strstr(err.text, "heads"), "%s", err.text);
    lf_graph_destroy(g);
    lf_pstore_destroy(ps);
    err = (lf_err)LF_ERR_INIT;
}

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        TAP(4, test_plans(&kinds[i], LF_F32));
        TAP(3, test_plans(&kinds[i], LF_BF16));
        TAP(1, test_decode(&kinds[i], LF_F32));
        TAP(1, test_decode(&kinds[i], LF_BF16));
        TAP(2, test_ranks(&kinds[i]));
    }
    TAP(2, test_cost(&kinds[0], 2.0 * ROWS * H * (2 * 5 * 3 + 32.5 * (5 + 3))));
    TAP(2, test_cost(&kinds[2], 2.0 * ROWS * H * (3 * 6 * 5 + 2 * 32.5 * (6 + 5))));
    TAP(1, test_rank_states(&kinds[0]));
    TAP(2, test_refusals());
    return tap_done();
}
