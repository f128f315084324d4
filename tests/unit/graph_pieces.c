/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of a rank that divides matrices on the emulated GPU. Its pieces, recorded and replayed,
 * have the bits of calls that are queued one by one, in any order of the emulator, with several
 * buckets of gradients that are summed early; the host waits nowhere. Waits between the streams
 * that are left out, and borders of pieces, are seen.
 *
 * The other rank of each axis has what this one has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/graph/exec_priv.h"
#include "engine/model/decoder.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"

enum { R = 16, V = 32, STEPS = 4, MICRO = 3, BUCKET = 1024 };

static lf_err err = LF_ERR_INIT;
static struct lf_cu cu;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if (call)                                                                                  \
            tap_bail("%s: %s", #call, err.text);                                                   \
    } while (0)

/* ---- what the other rank gives, on the second stream ---- */

struct rank {
    lf_decoder *d;
    lf_pstore *ps;
    lf_plan *p;
    lf_back *b;
    lf_exec *ex;
};

static int later(const struct rank *k, float *y, const float *x, size_t n, float alpha)
{
    const struct lf_k_axpby a = {.n = (int64_t)n,
                                 .a = x,
                                 .y = y,
                                 .alpha = alpha,
                                 .a_type = LF_F32,
                                 .b_type = LF_F32,
                                 .y_type = LF_F32};
    return k->b->kernels->axpby.run(k->b->comm_queue, &a);
}

static int twice(void *user, float *data, size_t n, lf_err *e)
{
    (void)e;
    return later(user, data, data, n, 2);
}

static int gather(void *user, void *all, size_t bytes, lf_err *e)
{
    (void)e;
    return later(user, all, (const float *)all + bytes / 4, bytes / 4, 1); /* this is rank 1 */
}

static int scatter(void *user, float *out, const float *data, size_t n, lf_err *e)
{
    (void)e;
    return later(user, out, data + n, n, 2);
}

static int add(void *user, double *sums, size_t n, lf_err *e)
{
    (void)user, (void)sums, (void)n, (void)e;
    return 0;
}

/* ---- a rank ---- */

static lf_decoder *decoder(void)
{
    static const char *const set[][2] = {{"layers", "2"},        {"hidden", "16"}, {"heads", "2"},
                                         {"kv_heads", "1"},      {"ffn", "16"},    {"vocab", "32"},
                                         {"max_positions", "16"}};
    lf_model_config c;
    lf_model_config_defaults(&c);
    MUST(lf_model_config_family(&c, "llama", "test", &err));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        MUST(lf_model_config_set(&c, set[i][0], set[i][1], "test", &err));
    MUST(lf_model_config_finish(&c, &err));
    return lf_decoder_create(&c, R, &err);
}

static void make_plan(struct rank *k)
{
    const struct lf_decoder_rows dims = {.rows = R, .n_docs = 1};
    const struct lf_plan_opts o = {
        .threads = 1, .compute = LF_F32, .target = lf_target_find("sm_90")};
    const struct lf_adamw_opts adamw = {
        .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .moments = LF_F32, .masters = LF_F32};
    const struct lf_plan_ranks ranks = {.ranks = 2, .bucket_bytes = BUCKET};
    lf_graph *g = lf_decoder_loss_graph(k->d, k->ps, "train", &dims, true, &err);
    k->p = g ? lf_plan_create(k->ps, &o, &err) : NULL;
    if (!k->p || lf_plan_add(k->p, g, &(struct lf_chain_opts){.train = true}, &err))
        tap_bail("%s", err.text);
    MUST(lf_plan_optimizer(k->p, &adamw, &err));
    MUST(lf_plan_data_parallel(k->p, &ranks, &err));
    MUST(lf_plan_finish(k->p, &err));
    lf_graph_destroy(g);
}

static void open_rank(struct rank *k, bool sequence)
{
    static const struct lf_exec_comm comm = {.reduce = twice,
                                             .tensor_sum = twice,
                                             .tensor_scatter = scatter,
                                             .tensor_add = add,
                                             .tensor_gather = gather,
                                             .early = true};
    const struct lf_layout l = {.tensor = 2, .tensor_rank = 1, .sequence = sequence};
    *k = (struct rank){.d = decoder(), .ps = lf_pstore_create(&err)};
    if (!k->d || !k->ps)
        tap_bail("%s", err.text);
    MUST(lf_pstore_set_layout(k->ps, &l, &err));
    MUST(lf_decoder_declare(k->d, k->ps, &err));
    make_plan(k);
    k->b = lf_back_cuda_create(&(struct lf_cuda_opts){.threads = 1, .driver = &cu}, &err);
    k->ex = k->b ? lf_exec_create(k->p, k->b, NULL, &err) : NULL;
    if (!k->ex)
        tap_bail("%s", err.text);
    lf_exec_set_comm(k->ex, &comm, k);
    MUST(lf_pstore_init(k->ps, 11, &err));
}

static void close_rank(struct rank *k)
{
    lf_exec_destroy(k->ex);
    lf_back_destroy(k->b);
    lf_plan_destroy(k->p);
    lf_pstore_destroy(k->ps);
    lf_decoder_destroy(k->d);
}

static void feed(struct rank *k, int which)
{
    static const int32_t cu_seqlens[] = {0, R};
    int32_t token[R], target[R], position[R];
    for (int i = 0; i < R; i++) {
        token[i] = (int32_t)(lf_rng_f64(5, (uint64_t)which, (uint64_t)i) * V);
        target[i] = i % 5 == 4 ? -1 : (int32_t)(lf_rng_f64(6, (uint64_t)which, (uint64_t)i) * V);
        position[i] = i;
    }
    MUST(lf_exec_write(k->ex, 0, 0, "tokens", token, sizeof token, &err));
    MUST(lf_exec_write(k->ex, 0, 0, "targets", target, sizeof target, &err));
    MUST(lf_exec_write(k->ex, 0, 0, "positions", position, sizeof position, &err));
    MUST(lf_exec_write(k->ex, 0, 0, "cu_seqlens", cu_seqlens, sizeof cu_seqlens, &err));
}

/* Several backward passes of each kind in a step: the first, one that adds, and the last. */
static void step(struct rank *k, int s)
{
    const struct lf_step_record rec = {.step = (uint64_t)s,
                                       .lr = 0.01f,
                                       .bias_corr1 = 0.1f,
                                       .bias_corr2 = 0.01f,
                                       .clip_norm = 0.5f,
                                       .loss_scale = 1,
                                       .inv_tokens = 1.0f / 30,
                                       .inv_batches = 1};
    MUST(lf_exec_record_write(k->ex, &rec, &err));
    for (int m = 0; m < MICRO; m++) {
        const enum lf_variant v = m == 0 ? LF_FIRST : LF_ACCUM;
        feed(k, MICRO * s + m);
        MUST(lf_exec_run(k->ex, 0, LF_FWD, 0, v, &err));
        MUST(lf_exec_run(k->ex, 0, m + 1 < MICRO ? LF_BWD : LF_BWD_LAST, 0, v, &err));
    }
    MUST(lf_exec_run(k->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err));
}

/* What a rank ends with. */
struct end {
    double loss;
    float norm;
    void *weights;
    size_t bytes;
    /* of the last step */
    long captures, replays, waits, allocations;
};

struct mode {
    const char *order; /* of the emulator */
    bool plain, sequence;
    void (*tamper)(struct rank *k);
};

static struct end train(struct mode m)
{
    struct rank k;
    struct end e = {0};
    struct lf_step_record rec;
    struct lf_emu_stats before = {0};
    void *data;
    setenv("LF_EMU_ORDER", m.order, 1);
    setenv("LF_CUDA_GRAPHS", m.plain ? "0" : "1", 1);
    lf_emu_reset();
    open_rank(&k, m.sequence);
    const struct lf_back_ops *good = k.b->ops;
    if (m.tamper)
        m.tamper(&k);
    for (int s = 0; s < STEPS; s++) {
        before = *lf_emu_stats();
        step(&k, s);
    }
    const struct lf_emu_stats *now = lf_emu_stats();
    e.captures = now->captures - before.captures;
    e.replays = now->graph_launches - before.graph_launches;
    e.waits = now->waits - before.waits;
    e.allocations = now->allocations - before.allocations;
    MUST(lf_exec_record_read(k.ex, &rec, &err));
    k.b->ops = good;
    e.loss = rec.loss_sum;
    e.norm = rec.grad_norm;
    lf_pstore_block(k.ps, LF_P_MASTER, false, &data, &e.bytes);
    e.weights = malloc(e.bytes);
    if (!e.weights || k.b->ops->copy_out(k.b, e.weights, data, e.bytes, &err))
        tap_bail("%s", err.text);
    close_rank(&k);
    return e;
}

static bool same(const struct end *a, const struct end *b)
{
    return a->bytes == b->bytes && memcmp(a->weights, b->weights, a->bytes) == 0 &&
           memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
           memcmp(&a->norm, &b->norm, sizeof a->norm) == 0;
}

/* ---- tests ---- */

static void test_same(bool sequence)
{
    struct end want = train((struct mode){.order = "0", .plain = true, .sequence = sequence});
    static const char *const orders[] = {"0", "1", "7"};
    tap_ok(want.replays == 0 && want.loss > 0, "calls that are queued one by one");
    for (size_t i = 0; i < 3; i++) {
        struct end e = train((struct mode){.order = orders[i], .sequence = sequence});
        tap_ok(same(&e, &want), "recorded pieces, order %s%s: the same bits", orders[i],
               sequence ? ", rows divided" : "");
        tap_ok(e.captures == 0 && e.replays > MICRO * 8 && e.waits == 0 && e.allocations == 0,
               "a step of %ld replays records nothing, waits for nothing and allocates nothing",
               e.replays);
        free(e.weights);
    }
    free(want.weights);
}

static int nothing(lf_back *b, lf_err *e)
{
    (void)b, (void)e;
    return 0;
}

static struct lf_back_ops bad;

static void no_begin(struct rank *k)
{
    bad = *k->b->ops;
    bad.comm_begin = nothing;
    k->b->ops = &bad;
}

static void no_end(struct rank *k)
{
    bad = *k->b->ops;
    bad.comm_end = nothing;
    k->b->ops = &bad;
}

/* Buckets that become complete within a piece. */
static void no_edges(struct rank *k)
{
    struct lf_bound *bc = &k->ex->chain[0];
    int n = 0;
    for (size_t i = 0; i < k->p->n_buckets; i++)
        if (bc->edge[bc->ready[i]] == LF_EDGE && bc->ready[i] < k->p->c[0].g->n_n) {
            bc->edge[bc->ready[i]] = 0;
            n++;
        }
    tap_diag("%d edges of %zu buckets", n, k->p->n_buckets);
}

static void test_fault(const char *order, void (*tamper)(struct rank *k), const char *what)
{
    struct end want = train((struct mode){.order = order}),
               got = train((struct mode){.order = order, .tamper = tamper});
    tap_ok(!same(&want, &got), "seen: %s", what);
    free(want.weights);
    free(got.weights);
}

int main(void)
{
    lf_emu_driver(&cu);
    TAP(7, test_same(false));
    TAP(7, test_same(true));
    TAP(1, test_fault("1", no_begin, "an exchange that waits for no computation"));
    TAP(1, test_fault("0", no_end, "a computation that waits for no exchange"));
    TAP(1, test_fault("0", no_edges, "a piece that goes on over the end of a run"));
    return tap_done();
}
