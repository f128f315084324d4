/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention where ranks divide rows: c ranks, each a thread with some rows of queries, keys and
 * values, have the bits of one rank that has all of them, forwards and backwards, with every mask
 * and position. A graph that does not exchange rows for heads is refused.
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

enum { R = 48, MANY = 240, LONG = 960, H = 8, D = 16, MAX_RANKS = 8, MAX_COLS = 3 * H * D };

struct kind {
    const char *name;
    int groups;
    int32_t window;
    float softcap, dropout;
    bool alibi, sinks, prefix, both; /* both: the window is of both sides */
    bool many;                       /* MANY rows in the place of R */
    bool turns;                      /* LONG rows, of which each rank has two runs */
};

struct world {
    const struct kind *k;
    int n;
    struct lf_layout how; /* keys are gathered, or heads exchanged */
    pthread_barrier_t barrier;
    const void *part[MAX_RANKS];
    const size_t *to[MAX_RANKS];
    float y[LONG * H * D], dx[LONG * MAX_COLS];
    float sinks[MAX_RANKS][H]; /* gradients */
    bool exchanged[MAX_RANKS]; /* as much as planned */
    double bytes[MAX_RANKS];   /* sent */
    double most[MAX_RANKS];    /* that any rank sends, as each rank plans it */
};

struct rank {
    struct world *w;
    int r;
    double bytes;
    int64_t calls;
    /* a gather that goes on: its parts, and this rank's as it was when it began */
    char *all, own[LONG * MAX_COLS * 4];
    size_t part;
};

static int swap(void *user, void *out, const void *in, size_t bytes, lf_err *err)
{
    struct rank *k = user;
    (void)err;
    k->w->part[k->r] = in;
    pthread_barrier_wait(&k->w->barrier);
    for (int r = 0; r < k->w->n; r++)
        memcpy((char *)out + (size_t)r * bytes, (const char *)k->w->part[r] + (size_t)k->r * bytes,
               bytes);
    pthread_barrier_wait(&k->w->barrier);
    k->calls++;
    k->bytes += (double)bytes * (k->w->n - 1);
    return 0;
}

static int gather(void *user, void *all, size_t bytes, lf_err *err)
{
    struct rank *k = user;
    (void)err;
    k->w->part[k->r] = all;
    pthread_barrier_wait(&k->w->barrier);
    for (int r = 0; r < k->w->n; r++)
        if (r != k->r)
            memcpy((char *)all + (size_t)r * bytes, (const char *)k->w->part[r] + (size_t)r * bytes,
                   bytes);
    pthread_barrier_wait(&k->w->barrier);
    k->calls++;
    k->bytes += (double)bytes * (k->w->n - 1);
    return 0;
}

/* What others will read of this rank is what there was, and what comes is late. */
static int begin(void *user, struct lf_exec_req *q, void *all, size_t bytes, lf_err *err)
{
    struct rank *k = user;
    if (k->all || bytes > sizeof k->own)
        tap_bail("rank %d: a gather while another one goes on, or of %zu bytes", k->r, bytes);
    (void)err;
    q->p = k;
    k->all = all;
    k->part = bytes;
    memcpy(k->own, k->all + (size_t)k->r * bytes, bytes);
    memset(k->all, 0xff, (size_t)k->w->n * bytes);
    return 0;
}

static int finish(void *user, struct lf_exec_req *q, lf_err *err)
{
    struct rank *k = user;
    char *all = k->all;
    memcpy(all + (size_t)k->r * k->part, k->own, k->part);
    q->p = NULL;
    k->all = NULL;
    return gather(k, all, k->part, err);
}

static int among(void *user, void *out, const void *in, size_t bytes, const struct lf_rank_group *g,
                 lf_err *err)
{
    struct rank *k = user;
    (void)err;
    k->w->part[k->r] = in;
    pthread_barrier_wait(&k->w->barrier);
    for (int i = 0; i < g->n; i++)
        memcpy((char *)out + (size_t)i * bytes,
               (const char *)k->w->part[g->first + i * g->step] + (size_t)g->place * bytes, bytes);
    pthread_barrier_wait(&k->w->barrier);
    k->calls++;
    k->bytes += (double)bytes * (g->n - 1);
    return 0;
}

/* As among, with parts of their own size. */
static int parts(void *user, void *out, const size_t *from, const void *in, const size_t *to,
                 lf_err *err)
{
    struct rank *k = user;
    struct world *w = k->w;
    char *at = out;
    (void)err;
    w->part[k->r] = in;
    w->to[k->r] = to;
    pthread_barrier_wait(&w->barrier);
    for (int r = 0; r < w->n; r++) {
        size_t before = 0;
        for (int i = 0; i < k->r; i++)
            before += w->to[r][i];
        if (w->to[r][k->r] != from[r])
            tap_bail("rank %d sends %zu bytes to rank %d, which waits for %zu", r, w->to[r][k->r],
                     k->r, from[r]);
        memcpy(at, (const char *)w->part[r] + before, from[r]);
        at += from[r];
        k->bytes += r == k->r ? 0 : (double)to[r];
    }
    pthread_barrier_wait(&w->barrier);
    k->calls++;
    return 0;
}

/* Lengths that no number of ranks divides; some end within a rank's rows. */
static const int32_t few[] = {0, 7, 29, 30, R}, far[] = {0, 17, 142, 143, MANY},
                     long_ones[] = {0, 17, 642, 643, LONG}, prefixes[] = {3, 1, 0, 9};
enum { DOCS = sizeof few / sizeof *few - 1 };

static int64_t rows_of(const struct kind *k)
{
    return k->turns ? LONG : k->many ? MANY : R;
}
static const int32_t *ends_of(const struct kind *k)
{
    return k->turns ? long_ones : k->many ? far : few;
}

static int64_t cols_of(const struct kind *k)
{
    return (H + 2 * k->groups) * D;
}

static float drawn(uint32_t what, int64_t i)
{
    return (float)lf_rng_u32(5, what, (uint64_t)i) / 4294967296.0f - 0.5f;
}

static void slopes(void *dst, const void *ctx)
{
    float *s = dst;
    (void)ctx;
    for (int h = 0; h < H; h++)
        s[h] = 0.5f / (float)(h + 1);
}

static lf_graph *make(const struct kind *k, lf_pstore *ps, int64_t rows, lf_err *err)
{
    lf_graph *g = lf_graph_create(ps, "rows", err);
    if (!g)
        tap_bail("%s", err->text);
    const int64_t q = H * D, kv = k->groups * D;
    lf_context_input(g, rows);
    const lf_val x = lf_cut_in(g, "x", rows, cols_of(k), "dx"),
                 cu = lf_input(g, "cu_seqlens", LF_I32, DOCS + 1, 1),
                 alibi = k->alibi ? lf_const(g, "slopes", LF_F32, 1, H, slopes, NULL) : LF_NONE;
    struct lf_attn_opts o = {.heads = H,
                             .groups = k->groups,
                             .scale = 0.25f,
                             .softcap = k->softcap,
                             .window = k->window,
                             .causal = true,
                             .max_doc = rows_of(k),
                             .dropout = k->dropout,
                             .site = "attn"};
    if (k->dropout > 0) {
        o.sample = lf_input(g, "samples", LF_I64, rows, 1);
        o.position = lf_input(g, "offsets", LF_I32, rows, 1);
    }
    if (k->prefix)
        o.prefix = lf_input(g, "prefix", LF_I32, DOCS, 1);
    if (k->both)
        o.runs = lf_input(g, "runs", LF_I32, rows, 2);
    if (k->sinks)
        o.sinks = lf_param(g, "sinks");
    lf_cut_out(g,
               lf_attention(g, lf_slice(g, x, 0, q), lf_slice(g, x, q, kv),
                            lf_slice(g, x, q + kv, kv), cu, alibi, &o),
               "y", "dy");
    return g;
}

static lf_pstore *store(const struct lf_layout *l, lf_err *err)
{
    lf_pstore *ps = lf_pstore_create(err);
    const struct lf_param_desc sinks = {
        .name = "sinks", .ndim = 1, .dims = {H}, .init = LF_INIT_NORMAL, .init_std = 1};
    if (!ps || lf_pstore_set_layout(ps, l, err) || lf_pstore_add(ps, &sinks, err) < 0)
        tap_bail("%s", err->text);
    return ps;
}

static void need(int rc, const lf_err *err)
{
    if (rc)
        tap_bail("%s", err->text);
}

/* What row r of all sees behind it, and which rows see it from before it. */
static void run_of(int32_t r, int32_t window, int32_t run[2])
{
    const int32_t *ends = few;
    int d = 0;
    while (r >= ends[d + 1])
        d++;
    const int32_t at = r - ends[d], n = ends[d + 1] - ends[d];
    run[0] = at < window ? 0 : at - window + 1;
    run[1] = n - at < window ? n : at + window;
}

/* Which of all rows a rank has, and the blocks of all ranks. */
static void find_rows(const struct rank *k, const struct lf_layout *l, int32_t *own,
                      int32_t *blocks)
{
    const struct lf_context_parts p = lf_context_parts(l);
    const struct lf_context_rows of = {.cu_seqlens = ends_of(k->w->k),
                                       .n_docs = DOCS,
                                       .rows = rows_of(k->w->k),
                                       .ranks = p.rows,
                                       .causal = true,
                                       .in_order = l->context_in_order,
                                       .in_turns = l->context_in_turns};
    const int64_t rows = rows_of(k->w->k) / k->w->n;
    lf_err err = LF_ERR_INIT;
    if (l->context_gather)
        need(lf_context_deal(&of, blocks, &err), &err);
    for (int64_t i = 0; i < rows; i++)
        own[i] =
            (int32_t)lf_context_row(l, rows, l->context_gather ? blocks : NULL, k->r * rows + i);
}

static void write_inputs(lf_exec *ex, const struct rank *rank, const int32_t *own, int64_t rows)
{
    const struct kind *k = rank->w->k;
    float x[LONG * MAX_COLS], dy[LONG * H * D];
    int64_t samples[LONG];
    int32_t offsets[LONG], runs[LONG][2];
    lf_err err = LF_ERR_INIT;
    const int64_t cols = cols_of(k);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = 4 * drawn(1, own[i / cols] * cols + i % cols);
    for (int64_t i = 0; i < rows * H * D; i++)
        dy[i] = drawn(2, own[i / (H * D)] * H * D + i % (H * D));
    for (int64_t i = 0; i < rows; i++) {
        samples[i] = 7;
        offsets[i] = own[i];
        if (k->both)
            run_of(offsets[i], k->window, runs[i]);
    }
    need(lf_exec_write(ex, 0, 0, "x", x, (size_t)(rows * cols) * sizeof *x, &err), &err);
    need(lf_exec_write(ex, 0, 0, "dy", dy, (size_t)(rows * H * D) * sizeof *dy, &err), &err);
    need(lf_exec_write(ex, 0, 0, "cu_seqlens", ends_of(k), sizeof few, &err), &err);
    if (k->dropout > 0) {
        need(lf_exec_write(ex, 0, 0, "samples", samples, (size_t)rows * sizeof *samples, &err),
             &err);
        need(lf_exec_write(ex, 0, 0, "offsets", offsets, (size_t)rows * sizeof *offsets, &err),
             &err);
    }
    if (k->prefix)
        need(lf_exec_write(ex, 0, 0, "prefix", prefixes, sizeof prefixes, &err), &err);
    if (k->both)
        need(lf_exec_write(ex, 0, 0, "runs", runs, (size_t)rows * sizeof *runs, &err), &err);
}

/* Rows of this rank go where they stand among all. */
static void read_rows(lf_exec *ex, const char *name, float *all, const int32_t *own, int64_t rows,
                      int64_t cols)
{
    float some[LONG * MAX_COLS];
    lf_err err = LF_ERR_INIT;
    need(lf_exec_read(ex, 0, 0, name, some, (size_t)(rows * cols) * sizeof *some, &err), &err);
    for (int64_t i = 0; i < rows; i++)
        memcpy(all + own[i] * cols, some + i * cols, (size_t)cols * sizeof *some);
}

static void read_results(struct rank *k, lf_exec *ex, const lf_pstore *ps, const int32_t *own)
{
    struct world *w = k->w;
    struct lf_pview v;
    read_rows(ex, "dx", w->dx, own, rows_of(w->k) / w->n, cols_of(w->k));
    if (w->k->sinks && lf_pstore_view(ps, 0, LF_P_GRAD, &v) == 1)
        memcpy(w->sinks[k->r], v.data, sizeof w->sinks[0]);
}

static void *rank_main(void *arg)
{
    struct rank *k = arg;
    struct world *w = k->w;
    const int64_t rows = rows_of(w->k) / w->n;
    const struct lf_plan_opts po = {.target = lf_target_host(), .threads = 1};
    const struct lf_adamw_opts adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f};
    const struct lf_chain_opts o = {.train = true, .slots = 1, .eras = 1};
    const struct lf_exec_comm comm = {.context_swap = swap,
                                      .context_gather = gather,
                                      .context_among = among,
                                      .context_parts = parts,
                                      .context_begin = begin,
                                      .finish = finish};
    const struct lf_step_record rec = {.seed = 3, .loss_scale = 1, .inv_tokens = 1};
    lf_err err = LF_ERR_INIT;
    struct lf_layout l = w->how;
    int32_t own[LONG], blocks[LONG];
    l.context = w->n;
    l.context_rank = k->r;
    lf_pstore *ps = store(&l, &err);
    lf_graph *g = make(w->k, ps, rows, &err);
    lf_plan *p = lf_plan_create(ps, &po, &err);
    need(!p || lf_plan_add(p, g, &o, &err) < 0, &err);
    if (w->k->sinks)
        need(lf_plan_optimizer(p, &adamw, &err), &err);
    need(lf_plan_finish(p, &err), &err);
    lf_back *b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    lf_exec *ex = b ? lf_exec_create(p, b, &(struct lf_exec_opts){.poison = true}, &err) : NULL;
    need(!ex, &err);
    lf_exec_set_comm(ex, &comm, k);
    need(lf_pstore_init(ps, 11, &err), &err);
    need(lf_exec_record_write(ex, &rec, &err), &err);
    find_rows(k, &l, own, blocks);
    write_inputs(ex, k, own, rows);
    if (l.context_gather)
        need(lf_exec_write(ex, 0, 0, LF_CONTEXT_BLOCKS, blocks,
                           (size_t)lf_context_blocks(&l, rows) * sizeof *blocks, &err),
             &err);
    need(lf_exec_run(ex, 0, LF_FWD, 0, LF_FIRST, &err), &err);
    read_rows(ex, "y", w->y, own, rows, (int64_t)H * D);
    need(lf_exec_run(ex, 0, LF_BWD, 0, LF_FIRST, &err), &err);
    read_results(k, ex, ps, own);
    const struct lf_plan_moved m = lf_plan_pass_axis(p, LF_AXIS_CONTEXT, 0, true);
    w->exchanged[k->r] = m.messages == k->calls && !(m.bytes < k->bytes) && !(m.bytes > k->bytes);
    w->bytes[k->r] = k->bytes;
    struct lf_plan_comm c;
    need(lf_plan_comm(p, &c), &err);
    w->most[k->r] = c.context_most;
    lf_exec_destroy(ex);
    lf_back_destroy(b);
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_pstore_destroy(ps);
    return NULL;
}

static struct world *launch(const struct kind *k, int n, struct lf_layout how)
{
    pthread_t thread[MAX_RANKS];
    struct rank *rank = calloc(MAX_RANKS, sizeof *rank);
    struct world *w = calloc(1, sizeof *w);
    if (!w || !rank)
        tap_bail("out of memory");
    w->k = k;
    w->n = n;
    w->how = how;
    pthread_barrier_init(&w->barrier, NULL, (unsigned)n);
    for (int r = 0; r < n; r++) {
        rank[r].w = w;
        rank[r].r = r;
        if (pthread_create(&thread[r], NULL, rank_main, &rank[r]))
            tap_bail("no thread");
    }
    for (int r = 0; r < n; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&w->barrier);
    free(rank);
    return w;
}

static double largest_of(const float *x, const float *y, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)y[i];
        most = tap_worse(most, fabs((double)d));
    }
    return most;
}

static bool same_sinks(const struct world *one, const struct world *w)
{
    float sum[H] = {0};
    for (int r = 0; r < w->n; r++)
        for (int h = 0; h < H; h++)
            sum[h] += w->sinks[r][h];
    return largest_of(sum, one->sinks[0], H) < 1e-5;
}

static void test_kind(const struct kind *k)
{
    static const int ranks[] = {2, 4, 8};
    struct world *one = launch(k, 1, (struct lf_layout){0});
    for (int i = 0; i < 3; i++) {
        struct world *w = launch(k, ranks[i], (struct lf_layout){0});
        const bool shared = ranks[i] > k->groups; /* gradients of keys are sums over ranks */
        const bool y = memcmp(one->y, w->y, sizeof w->y) == 0,
                   dx = shared ? largest_of(one->dx, w->dx, R * MAX_COLS) < 1e-5
                               : memcmp(one->dx, w->dx, sizeof w->dx) == 0;
        bool moved = true;
        for (int r = 0; r < ranks[i]; r++)
            moved = moved && w->exchanged[r];
        tap_ok(y && dx, "%s, %d groups, %d ranks: one rank's bits%s", k->name, k->groups, ranks[i],
               shared ? ", and gradients of keys within 1e-5" : ", forwards and backwards");
        tap_ok(moved && same_sinks(one, w), "what moves is planned%s",
               k->sinks ? ", and gradients of sinks add up" : "");
        free(w);
    }
    free(one);
}

/* Columns of queries, and of keys and values, of dx. */
static bool same_queries(const struct world *one, const struct world *w)
{
    const int64_t cols = cols_of(w->k);
    bool same = true;
    for (int64_t r = 0; r < rows_of(w->k); r++)
        same = same && memcmp(one->dx + r * cols, w->dx + r * cols, H * D * sizeof(float)) == 0;
    return same;
}

/* Ranks that gather keys: any number that divides the rows, heads or not, and some heads at a
 * time; and neighbours that exchange heads before. */
static void test_gather(const struct kind *k)
{
    static const struct {
        int ranks, at_a_time, heads; /* of keys; ranks that exchange heads */
    } how[] = {{2, 0, 0}, {3, 1, 0}, {8, 3, 0}, {4, 0, 2}, {8, 1, 4}};
    struct world *one = launch(k, 1, (struct lf_layout){0});
    for (int i = 0; i < 5; i++) {
        const struct lf_layout l = {.context_gather = true,
                                    .context_groups = how[i].at_a_time,
                                    .context_heads = how[i].heads};
        struct world *w = launch(k, how[i].ranks, l);
        const bool y = memcmp(one->y, w->y, sizeof w->y) == 0, dq = same_queries(one, w);
        const double dx = largest_of(one->dx, w->dx, (size_t)(rows_of(k) * cols_of(k)));
        bool moved = true;
        for (int r = 0; r < how[i].ranks; r++)
            moved = moved && w->exchanged[r];
        tap_ok(y && dq && dx < 1e-5,
               "%s, %d groups, %d ranks that gather keys%s: one rank's bits of results and of the "
               "gradient of queries, that of keys within %g",
               k->name, k->groups, how[i].ranks,
               how[i].heads ? ", some of which exchange heads" : "", dx);
        tap_ok(moved && same_sinks(one, w), "what moves is planned%s",
               k->sinks ? ", and gradients of sinks add up" : "");
        free(w);
    }
    free(one);
}

static double sent(const struct world *w)
{
    double n = 0;
    for (int r = 0; r < w->n; r++)
        n += w->bytes[r];
    return n;
}

/* Do all ranks plan the same, what the one that sends most has sent? */
static bool most_planned(const struct world *w)
{
    double most = 0;
    bool same = true;
    for (int r = 0; r < w->n; r++)
        most = w->bytes[r] > most ? w->bytes[r] : most;
    for (int r = 0; r < w->n; r++)
        same = same && !(w->most[r] < most) && !(w->most[r] > most);
    return same && most > 0;
}

/* Rows in order, or in turns, of which ranks give each other what windows reach. */
static void test_windows(const struct kind *k)
{
    static const struct how {
        int ranks, at_a_time, heads;
    } ordered[] = {{2, 0, 0}, {3, 1, 0}, {8, 3, 0}, {8, 0, 2}},
      turns[] = {{2, 0, 0}, {3, 1, 0}, {4, 3, 0}, {8, 0, 2}};
    const struct how *how = k->turns ? turns : ordered;
    struct world *one = launch(k, 1, (struct lf_layout){0});
    for (int i = 0; i < 4; i++) {
        const struct lf_layout l = {.context_gather = true,
                                    .context_in_order = !k->turns,
                                    .context_in_turns = k->turns,
                                    .context_groups = how[i].at_a_time,
                                    .context_heads = how[i].heads};
        struct lf_layout dealt = l;
        dealt.context_in_order = dealt.context_in_turns = false;
        struct world *w = launch(k, how[i].ranks, l), *all = launch(k, how[i].ranks, dealt);
        const bool y = memcmp(one->y, w->y, sizeof w->y) == 0, dq = same_queries(one, w);
        const double dx = largest_of(one->dx, w->dx, (size_t)(rows_of(k) * cols_of(k)));
        bool moved = true;
        for (int r = 0; r < how[i].ranks; r++)
            moved = moved && w->exchanged[r];
        tap_ok(y && dq && dx < 1e-5,
               "%s, %d ranks%s, rows that windows reach: one rank's bits of results and of the "
               "gradient of queries, that of keys within %g",
               k->name, how[i].ranks, how[i].heads ? ", pairs of which exchange heads" : "", dx);
        tap_ok(moved && same_sinks(one, w) && sent(w) < 0.6 * sent(all),
               "what moves is planned, %.0f bytes in the place of %.0f", sent(w), sent(all));
        tap_ok(most_planned(w) && most_planned(all),
               "and what the rank sends that sends most: %.0f bytes, the first one %.0f",
               w->most[0], w->bytes[0]);
        free(w);
        free(all);
    }
    free(one);
}

/* Without the nodes that exchange, the check says no. */
static void test_refused(void)
{
    const struct kind k = {.name = "causal", .groups = 4};
    lf_err err = LF_ERR_INIT, says = LF_ERR_INIT;
    lf_pstore *ps = store(&(struct lf_layout){.context = 2}, &err);
    lf_graph *g = make(&k, ps, R / 2, &err);
    g->n_fwd = g->n_n;
    need(lf_autodiff(g, &err), &err);
    tap_ok(lf_layout_check(g, &says) == LF_EINVAL &&
               strstr(says.text, "attention does not add up on the context axis"),
           "attention over a rank's rows alone is refused: %s", says.text);
    lf_graph_destroy(g);
    lf_pstore_destroy(ps);
}

static void test_heads(void)
{
    const struct kind k = {.name = "causal", .groups = 8};
    const struct lf_plan_opts po = {.target = lf_target_host(), .threads = 1};
    const struct lf_chain_opts o = {.train = true, .slots = 1, .eras = 1};
    lf_err err = LF_ERR_INIT;
    lf_pstore *ps = store(&(struct lf_layout){.context = 3}, &err);
    lf_graph *g = make(&k, ps, R / 3, &err);
    lf_plan *p = lf_plan_create(ps, &po, &err);
    need(!p, &err);
    tap_ok(lf_plan_add(p, g, &o, &err) == LF_EINVAL && strstr(err.text, "context = 3"),
           "heads that ranks cannot divide are refused: %s", err.text);
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_pstore_destroy(ps);
}

/* Each block has one rank; ranks have as many; work, counted key by key, is even where there are
 * blocks enough. */
static void test_deal(int64_t n, bool in_order, bool in_turns)
{
    enum { N = 4 * 4099, RANKS = 4 };
    const int32_t cu[] = {0, 37, 38, (int32_t)n / 3, (int32_t)n / 2, (int32_t)n};
    const struct lf_context_rows of = {cu, 5, n, RANKS, true, in_order, in_turns};
    const struct lf_layout l = {.context = RANKS, .context_gather = true};
    const int64_t block = lf_context_block(n / RANKS);
    static int32_t first[N];
    static bool seen[N];
    bool all = true, ordered = true;
    double work[RANKS] = {0}, sum = 0, most = 0;
    lf_err err = LF_ERR_INIT;
    memset(seen, 0, sizeof seen);
    need(lf_context_deal(&of, first, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        const int32_t at = (int32_t)lf_context_row(&l, n / RANKS, first, i);
        int d = 0;
        ordered = ordered && at == i;
        while (at >= cu[d + 1])
            d++;
        all = all && at >= 0 && at < n && !seen[at];
        seen[at] = true;
        work[i / (n / RANKS)] += at - cu[d] + 1;
    }
    for (int r = 0; r < RANKS; r++) {
        sum += work[r];
        most = work[r] > most ? work[r] : most;
    }
    tap_ok(all && ordered == in_order, "blocks of %lld rows: each row is one rank's",
           (long long)block);
    tap_ok(in_order || most * RANKS <= (in_turns ? 1.6 : 1.03) * sum,
           "the most work is %.3f of the mean", most * RANKS / sum);
}

/* Of one document each rank has the same work, but for what a row sees of its own run. */
static void test_turns(void)
{
    enum { N = 4096, RANKS = 4 };
    const int32_t cu[] = {0, N};
    const struct lf_context_rows of = {
        .cu_seqlens = cu, .n_docs = 1, .rows = N, .ranks = RANKS, .causal = true, .in_turns = true};
    const struct lf_layout l = {.context = RANKS, .context_gather = true};
    int32_t first[N];
    int64_t work[RANKS] = {0};
    lf_err err = LF_ERR_INIT;
    need(lf_context_deal(&of, first, &err), &err);
    for (int64_t i = 0; i < N; i++)
        work[i / (N / RANKS)] += lf_context_row(&l, N / RANKS, first, i) + 1;
    bool same = true;
    for (int r = 1; r < RANKS; r++)
        same = same && work[r] == work[0];
    tap_ok(same && lf_context_pairs(N / RANKS) && !lf_context_pairs(4099),
           "two runs of a document are the same work for each rank");
}

static void test_block(void)
{
    tap_ok(lf_context_block(4096) == 512 && lf_context_block(100) == 10 &&
               lf_context_block(33) == 3 && lf_context_block(4099) == 512 &&
               lf_context_block(3) == 1,
           "blocks leave several to deal, and divide the rows but where these are many");
}

int main(void)
{
    static const struct kind kinds[] = {
        {.name = "causal", .groups = 8},
        {.name = "few heads of keys, window, soft cap", .groups = 2, .window = 9, .softcap = 3},
        {.name = "dropout, sinks", .groups = 8, .dropout = 0.2f, .sinks = true},
        {.name = "ALiBi", .groups = 4, .alibi = true},
        {.name = "prefix", .groups = 4, .prefix = true},
        {.name = "window of both sides", .groups = 4, .window = 5, .both = true}};
    static const struct kind windows[] = {
        {.name = "window", .groups = 8, .window = 9, .many = true},
        {.name = "window, few heads of keys, dropout, sinks",
         .groups = 4,
         .window = 20,
         .dropout = 0.2f,
         .sinks = true,
         .many = true},
        {.name = "chunks, ALiBi", .groups = 4, .window = -13, .alibi = true, .many = true},
        {.name = "window, in turns", .groups = 8, .window = 9, .turns = true},
        {.name = "window, few heads of keys, dropout, sinks, in turns",
         .groups = 4,
         .window = 20,
         .dropout = 0.2f,
         .sinks = true,
         .turns = true},
        {.name = "chunks, ALiBi, in turns",
         .groups = 4,
         .window = -13,
         .alibi = true,
         .turns = true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        TAP(6, test_kind(&kinds[i]));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        TAP(10, test_gather(&kinds[i]));
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        TAP(12, test_windows(&windows[i]));
    TAP(2, test_deal(2048, false, false));
    TAP(2, test_deal(4 * 4099, false, false));
    TAP(2, test_deal(4 * 4099, true, false));
    TAP(2, test_deal(4096, false, true));
    TAP(1, test_turns());
    TAP(1, test_block());
    TAP(1, test_refused());
    TAP(1, test_heads());
    return tap_done();
}
