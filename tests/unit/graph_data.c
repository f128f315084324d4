/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-parallel layout of a plan: buckets cover every gradient once, from the last group to the
 * first; two executors that sum them step as one that saw both micro-batches; a plan for ranks does
 * not run without a sum. On the emulated GPU sums that run beside the backward pass give the bits
 * of sums after it, in every order of the emulator.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/exec_priv.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

/* What a rank's sum needs here: the gradients of all ranks before any was summed. */
struct sum {
    float *all[3];
    const float *base; /* of this rank's gradients */
    int ranks, calls;
    const float *last; /* where the last call began */
    int ascending;     /* calls that began behind it */
};

static int reduce(void *user, float *grads, size_t n, lf_err *e)
{
    struct sum *s = user;
    (void)e;
    s->ascending += s->last && grads > s->last;
    s->last = grads;
    s->calls++;
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)(grads - s->base) + i;
        float x = s->all[0][at];
        for (int r = 1; r < s->ranks; r++)
            x += s->all[r][at];
        grads[i] = x;
    }
    return 0;
}

static int fails(void *user, float *grads, size_t n, lf_err *e)
{
    (void)user;
    (void)grads;
    (void)n;
    return lf_fail(e, LF_ECOMM, "rank 1 is gone");
}

static void record(struct gu *u, int trained)
{
    struct lf_step_record rec = {.lr = 0.01f,
                                 .bias_corr1 = 0.1f,
                                 .bias_corr2 = 0.05f,
                                 .clip_norm = 0.5f,
                                 .loss_scale = 1,
                                 .inv_tokens = 1.0f / (float)trained};
    lf_exec_record_write(u->ex, &rec, &err);
}

static int optimize(struct gu *u)
{
    return lf_exec_run(u->ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err);
}

static float *weights(const struct gu *u, size_t *n)
{
    void *data;
    size_t bytes;
    lf_pstore_block(u->ps, LF_P_MASTER, false, &data, &bytes);
    float *w = malloc(bytes);
    memcpy(w, data, bytes);
    *n = bytes / 4;
    return w;
}

static void test_ranks(const struct gu_model *m, int ranks, const char *name)
{
    struct gu one, u[3];
    struct gu_batch b[3];
    struct gu_opts o = gu_f32;
    struct sum s = {.ranks = ranks};
    int trained = 0;
    size_t n, bytes;
    void *grads;
    o.optimizer = true;
    gu_open(&one, m, &o);
    o.dp_ranks = ranks;
    for (int r = 0; r < ranks; r++) {
        gu_batch_make(&b[r], m, m->rows, (uint32_t)r);
        trained += b[r].trained;
        gu_open(&u[r], m, &o);
    }
    record(&one, trained);
    for (int r = 0; r < ranks; r++) {
        gu_feed(&one, one.train, 0, &b[r]);
        gu_fwd_bwd(&one, 0, r == 0 ? LF_FIRST : LF_ACCUM);
        record(&u[r], trained);
        gu_feed(&u[r], u[r].train, 0, &b[r]);
        gu_fwd_bwd(&u[r], 0, LF_FIRST);
        lf_pstore_block(u[r].ps, LF_P_GRAD, false, &grads, &bytes);
        s.all[r] = malloc(bytes);
        memcpy(s.all[r], grads, bytes);
    }
    tap_rc(optimize(&u[0]), LF_EINVAL, &err, "nothing sums",
           "a plan for ranks does not run without a sum");
    lf_exec_set_comm(u[0].ex, &(struct lf_exec_comm){.reduce = fails}, NULL);
    float *before = weights(&u[0], &n);
    tap_rc(optimize(&u[0]), LF_ECOMM, &err, "rank 1 is gone",
           "a sum that fails is the step's failure");
    float *after = weights(&u[0], &n);
    tap_mem(after, before, n * 4, "and the weights stay");
    free(before);
    free(after);
    tap_rc(optimize(&one), 0, &err, NULL, "one rank");
    struct lf_step_record ref = gu_result(&one), first = {0};
    float *want = weights(&one, &n), *rank0 = NULL;
    for (int r = 0; r < ranks; r++) {
        lf_pstore_block(u[r].ps, LF_P_GRAD, false, &grads, &bytes);
        s.base = grads;
        s.calls = 0;
        s.last = NULL;
        lf_exec_set_comm(u[r].ex, &(struct lf_exec_comm){.reduce = reduce}, &s);
        tap_rc(optimize(&u[r]), 0, &err, NULL, name);
        struct lf_step_record rec = gu_result(&u[r]);
        float *w = weights(&u[r], &n);
        tap_f64(gu_rel_diff(w, want, n), 0, 2e-6,
                "the weights of one rank that saw every micro-batch");
        tap_f64((double)rec.grad_norm, (double)ref.grad_norm, 1e-5 * (double)ref.grad_norm,
                "and its gradient norm");
        if (r == 0) {
            rank0 = w;
            first = rec;
        } else {
            tap_mem(w, rank0, n * 4, "every rank has the same bits");
            tap_mem(&rec.grad_norm, &first.grad_norm, sizeof rec.grad_norm, "and the same norm");
            free(w);
        }
    }
    struct lf_plan_comm pc;
    lf_plan_comm(u[0].p, &pc);
    tap_i64(pc.messages, s.calls, "a message per bucket, as planned");
    tap_ok(s.calls > 3 && s.ascending == 0, "%d buckets, from the end to the start", s.calls);
    /* Short sums go whole to every other rank, long ones in parts, and rank 0's are the longest. */
    double sent = 0;
    for (size_t i = 0; i < u[0].p->n_buckets; i++) {
        const size_t len = u[0].p->bucket[i].n, part = (len + (size_t)ranks - 1) / (size_t)ranks;
        sent += len * 4 <= 16384 ? (double)len * 4 * (ranks - 1)
                                 : (double)(len - part) * 4 + (double)part * 4 * (ranks - 1);
    }
    tap_f64(pc.sent_bytes, sent, 0, "bytes that a rank sends");
    for (int r = 0; r < ranks; r++) {
        free(s.all[r]);
        gu_close(&u[r]);
    }
    free(want);
    free(rank0);
    gu_close(&one);
}

/* Every trained tensor lies in exactly one bucket. */
static void test_cover(const char *freeze)
{
    struct gu u;
    struct gu_opts o = gu_bf16;
    o.optimizer = true;
    o.dp_ranks = 2;
    o.freeze = freeze;
    gu_open(&u, &gu_gpt2, &o);
    void *base;
    size_t bytes;
    int bad = 0, seen = 0;
    lf_pstore_block(u.ps, LF_P_GRAD, false, &base, &bytes);
    for (int i = 0; i < lf_pstore_count(u.ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(u.ps, i, LF_P_GRAD, &v) != 1)
            continue;
        size_t from = (size_t)((char *)v.data - (char *)base);
        int in = 0;
        for (size_t k = 0; k < u.p->n_buckets; k++) {
            const struct lf_bucket *b = &u.p->bucket[k];
            in += from >= b->off && from + v.bytes <= b->off + b->n * 4;
            bad += from < b->off && from + v.bytes > b->off;
        }
        bad += in != 1;
        seen++;
    }
    tap_ok(bad == 0 && seen > 5, "%d gradients, each in one bucket%s", seen,
           freeze ? ", some tensors frozen" : "");
    gu_close(&u);
}

/* ---- sharded state ---- */

/* The parts of all ranks: every element of every trained tensor is one rank's, cut at whole blocks,
 * and what they keep together is what one rank keeps without. */
static void test_parts(int ranks, const char *freeze)
{
    struct gu u;
    struct gu_opts o = gu_bf16;
    struct gu_model m = gu_gpt2;
    int64_t next[64] = {0};
    int bad = 0, parts = 0, n = 0;
    size_t moments = 0, masters = 0, whole_moments = 0;
    o.optimizer = true;
    o.dp_ranks = ranks;
    o.freeze = freeze;
    m.vocab = 5000; /* a tensor of several blocks */
    for (int r = 0; r < ranks; r++) {
        o.dp_rank = r;
        o.zero = 1;
        gu_open(&u, &m, &o);
        n = lf_pstore_count(u.ps);
        for (int i = 0; i < n; i++) {
            struct lf_pview v;
            if (lf_pstore_view(u.ps, i, LF_P_M, &v) != 1)
                continue;
            bad += v.count && (v.first != next[i] || v.first % LF_NORM_BLOCK ||
                               v.bytes != (size_t)v.count * 4);
            next[i] += v.count;
            parts += v.count && v.count < u.ps->p[i].n;
            whole_moments += r == 0 ? (size_t)u.ps->p[i].n * 4 : 0;
            moments += v.bytes;
            if (lf_pstore_sharded(u.ps, i, LF_P_MASTER) &&
                lf_pstore_view(u.ps, i, LF_P_MASTER, &v) == 1)
                masters += v.bytes;
        }
        for (int i = 0; i < n && r + 1 == ranks; i++) {
            struct lf_pview v;
            bad += lf_pstore_view(u.ps, i, LF_P_M, &v) == 1 && next[i] != u.ps->p[i].n;
        }
        gu_close(&u);
    }
    tap_ok(bad == 0 && moments == whole_moments && masters > 0 && parts > 0,
           "%d ranks%s%s: each element is one rank's; %d tensors are cut", ranks,
           freeze ? ", frozen: " : "", freeze ? freeze : "", parts);
}

/* ---- sums beside the backward pass ---- */

static struct lf_cu cu;

static lf_back *open_cuda(int threads, lf_err *e)
{
    return lf_back_cuda_create(&(struct lf_cuda_opts){.threads = threads, .driver = &cu}, e);
}

/* A second rank with the same gradients, on the stream for sums. */
static int twice(void *user, float *grads, size_t n, lf_err *e)
{
    const lf_back *b = user;
    lf_queue q = *b->queue;
    const struct lf_k_axpby a = {.n = (int64_t)n,
                                 .a = grads,
                                 .y = grads,
                                 .alpha = 2,
                                 .a_type = LF_F32,
                                 .b_type = LF_F32,
                                 .y_type = LF_F32};
    q.stream = b->comm_stream;
    return b->kernels->axpby.run(&q, &a) ? lf_fail(e, LF_EDEVICE, "a sum") : 0;
}

/* Three steps of two micro-batches, and before the last one a backward pass that is given up. */
static float *steps_of(bool early, const char *order, struct lf_step_record *rec)
{
    struct gu u;
    struct gu_batch b;
    struct gu_opts o = gu_f32;
    struct gu_model m = gu_llama;
    size_t n = 0;
    m.layers = 1;
    m.rows = 16;
    setenv("LF_EMU_ORDER", order, 1);
    lf_emu_reset();
    o.optimizer = true;
    o.dp_ranks = 2;
    o.plan.threads = 1;
    o.plan.target = lf_target_find("sm_90");
    o.open_back = open_cuda;
    gu_open(&u, &m, &o);
    lf_exec_set_comm(u.ex, &(struct lf_exec_comm){.reduce = twice, .early = early}, u.b);
    for (int k = 0; k < 4; k++) {
        gu_batch_make(&b, &m, m.rows, (uint32_t)k);
        record(&u, 2 * b.trained);
        gu_feed(&u, u.train, 0, &b);
        gu_fwd_bwd(&u, 0, LF_FIRST);
        gu_feed(&u, u.train, 0, &b);
        if (lf_exec_run(u.ex, u.train, LF_FWD, 0, LF_ACCUM, &err) ||
            lf_exec_run(u.ex, u.train, LF_BWD_LAST, 0, LF_ACCUM, &err) || (k != 2 && optimize(&u)))
            tap_bail("%s", err.text);
    }
    *rec = gu_result(&u);
    float *w = calloc((size_t)lf_pstore_elements(u.ps), sizeof *w);
    for (int i = 0; i < lf_pstore_count(u.ps); i++) {
        struct lf_pview v;
        if (lf_pstore_view(u.ps, i, LF_P_MASTER, &v) != 1 ||
            lf_pstore_read(u.ps, i, LF_P_MASTER, w + n, v.bytes, &err))
            tap_bail("%s", err.text);
        n += v.bytes / sizeof(float);
    }
    if (early) {
        const size_t *ready = u.ex->chain[u.train].ready, last = u.p->n_buckets - 1;
        const lf_graph *g = u.p->c[u.train].g;
        tap_ok(u.p->n_buckets > 3 && ready[0] < ready[last] && ready[last] <= g->n_n &&
                   ready[0] <= g->n_fwd + (g->n_n - g->n_fwd) / 2,
               "%zu buckets, the second there after %zu of %zu nodes of the backward pass",
               u.p->n_buckets, ready[1] - g->n_fwd, g->n_n - g->n_fwd);
    }
    gu_close(&u);
    return w;
}

static void test_early(void)
{
    static const char *const orders[] = {"0", "1", "7"};
    struct lf_step_record want, got;
    float *w = steps_of(false, "0", &want);
    tap_ok(want.grad_norm > 0 && !want.skip, "sums after the backward pass");
    for (int i = 0; i < 3; i++) {
        float *e = steps_of(true, orders[i], &got);
        tap_ok(memcmp(e, w, 1000 * sizeof *w) == 0 && memcmp(&want, &got, sizeof got) == 0,
               "beside it: the same bits, order %s of the emulator", orders[i]);
        free(e);
    }
    free(w);
    unsetenv("LF_EMU_ORDER");
}

int main(void)
{
    char text[300];
    lf_emu_driver(&cu);
    TAP(7, test_early());
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    TAP(15, test_ranks(&gu_llama, 2, "two ranks"));
    TAP(20, test_ranks(&gu_gpt2, 3, "three ranks"));
    TAP(1, test_cover(NULL));
    TAP(1, test_cover("layers.0"));
    for (int ranks = 2; ranks <= 5; ranks++)
        TAP(1, test_parts(ranks, NULL));
    TAP(1, test_parts(3, "layers.0"));
    struct gu u;
    struct gu_opts o = gu_f32;
    o.optimizer = true;
    o.dp_ranks = 1;
    gu_open(&u, &gu_llama, &o);
    struct lf_plan_comm pc;
    lf_plan_comm(u.p, &pc);
    tap_ok(pc.ranks == 1 && pc.messages == 0 && pc.sent_bytes == 0, "one rank sends nothing");
    tap_rc(
        lf_plan_data_parallel(u.p, &(struct lf_plan_ranks){.ranks = 2, .bucket_bytes = 1024}, &err),
        LF_EINVAL, &err, "too late", "after the plan is finished it is too late");
    gu_close(&u);
    return tap_done();
}
