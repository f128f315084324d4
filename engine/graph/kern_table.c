/* SPDX-License-Identifier: Apache-2.0
 *
 * Uniform access to the typed table of kernels: one row per kernel with its argument size, where
 * its workspace is named and functions that restore the types. A kernel that a backend lacks is
 * refused by check.
 */
#include <string.h>

#include "engine/graph/experts.h"

#define ACCESS(name)                                                                               \
    static int call_##name(const struct lf_kernels *k, lf_queue *q, const void *args)              \
    {                                                                                              \
        return k->name.run(q, args);                                                               \
    }                                                                                              \
    static int check_##name(const struct lf_kernels *k, const void *args)                          \
    {                                                                                              \
        return k->name.run && k->name.check ? k->name.check(args) : LF_K_EINVAL;                   \
    }                                                                                              \
    static size_t work_##name(const struct lf_kernels *k, const void *args, int threads)           \
    {                                                                                              \
        return k->name.work ? k->name.work(args, threads) : 0;                                     \
    }
LF_KERNEL_LIST(ACCESS)

/* ---- what ranks of the tensor axis do with each other ---- */

/* Operands of sums in bf16 are converted first. */
static const float *as_f32(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a,
                           float *to, size_t n)
{
    const struct lf_k_axpby copy = {.n = (int64_t)n,
                                    .a = a->in,
                                    .y = to,
                                    .alpha = 1,
                                    .a_type = a->in_type,
                                    .b_type = a->in_type};
    return a->in == to ? to : k->axpby.run(q, &copy) ? NULL : to;
}

/* Each rank gives as many bytes as the one with the most columns. */
static int join(const struct lf_k_exchange *a)
{
    struct lf_exchange *w = a->with;
    const size_t size = lf_dtype_size((enum lf_dtype)a->in_type), each = (size_t)a->each * size,
                 line = (size_t)a->cols * size, part = (size_t)a->rows * each,
                 last = line - (size_t)(a->ranks - 1) * each;
    const char *from = a->work;
    const size_t mine = w->rank < a->ranks - 1 ? each : last;
    int rc = w->move(w->user, (char *)a->work + (size_t)w->rank * part, a->in,
                     (size_t)a->rows * mine, &w->err);
    if (rc == 0)
        rc = w->gather ? w->gather(w->user, a->work, part, &w->err) : LF_K_EINVAL;
    for (int r = 0; r < a->ranks && rc == 0; r++) {
        const size_t own = r < a->ranks - 1 ? each : last;
        for (int64_t i = 0; i < a->rows && rc == 0; i++)
            rc = w->move(w->user, (char *)a->out + (size_t)i * line + (size_t)r * each,
                         from + (size_t)r * part + (size_t)i * own, own, &w->err);
    }
    return rc;
}

/* The rows of a group's members, between what every rank has whole and this rank's. */
static int move_own(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a)
{
    const struct lf_pgroup *g = &a->ps->g[a->group];
    const bool back = a->what == LF_EX_OWN_BWD;
    struct lf_exchange *w = a->with;
    int64_t at = 0, first, n;
    int rc = 0;
    if (back && !a->accumulate)
        rc = w->clear(w->user, a->out, a->n * sizeof(float), &w->err);
    for (int32_t i = 0; i < g->count && rc == 0; i++, at += n * a->width) {
        lf_box_rows(a->ps, g, i, &first, &n);
        const float *in = (const float *)a->in + (back ? at : first * a->width);
        float *out = (float *)a->out + (back ? first * a->width : at);
        const struct lf_k_axpby add = {
            .n = n * a->width, .a = in, .b = out, .y = out, .alpha = 1, .beta = 1};
        if (back && a->accumulate)
            rc = k->axpby.run(q, &add);
        else
            rc = w->move(w->user, out, in, (size_t)(n * a->width) * sizeof *out, &w->err);
    }
    return rc;
}

static int call_exchange(const struct lf_kernels *k, lf_queue *q, const void *args)
{
    const struct lf_k_exchange *a = args;
    struct lf_exchange *w = a->with;
    const size_t bytes = a->n * lf_dtype_size((enum lf_dtype)a->in_type),
                 all = a->n * (size_t)a->ranks;
    const float *in;
    int rc;
    if (a->what >= LF_EX_HEADS)
        return lf_exchange_context(k, q, a);
    switch (a->what) {
    case LF_EX_OWN:
    case LF_EX_OWN_BWD:
        return move_own(k, q, a);
    case LF_EX_ROWS:
        return w->move(w->user, a->out, (const char *)a->in + (size_t)w->rank * bytes, bytes,
                       &w->err);
    case LF_EX_GATHER:
        rc = w->move(w->user, (char *)a->out + (size_t)w->rank * bytes, a->in, bytes, &w->err);
        return rc != 0 ? rc : w->gather ? w->gather(w->user, a->out, bytes, &w->err) : LF_K_EINVAL;
    case LF_EX_JOIN:
        return join(a);
    case LF_EX_SCATTER:
        in = a->in_type == LF_F32 ? a->in : as_f32(k, q, a, a->work, all);
        return in && w->scatter ? w->scatter(w->user, a->out, in, a->n, &w->err) : LF_K_EINVAL;
    default:
        in = as_f32(k, q, a, a->out, a->n);
        return in && w->sum ? w->sum(w->user, a->out, a->n, &w->err) : LF_K_EINVAL;
    }
}
static int check_exchange(const struct lf_kernels *k, const void *args)
{
    const struct lf_k_exchange *a = args;
    return k->axpby.run && k->act_fwd.run && a->in && a->out ? LF_K_OK : LF_K_EINVAL;
}
static size_t work_exchange(const struct lf_kernels *k, const void *args, int threads)
{
    const struct lf_k_exchange *a = args;
    (void)k, (void)threads;
    if (a->what >= LF_EX_HEADS)
        return lf_exchange_context_work(a);
    if (a->what == LF_EX_JOIN)
        return (size_t)(a->rows * a->each * a->ranks) * lf_dtype_size((enum lf_dtype)a->in_type);
    return a->what == LF_EX_SCATTER && a->in_type != LF_F32
               ? a->n * (size_t)a->ranks * sizeof(float)
               : 0;
}

#define ROW(name)                                                                                  \
    [LF_KID_##name] = {#name, sizeof(struct lf_k_##name), call_##name, check_##name, work_##name},
const struct lf_kernel_row lf_kernel_table[LF_KID_COUNT] = {
    LF_KERNEL_LIST(ROW)[LF_KID_exchange] = {"exchange", sizeof(struct lf_k_exchange), call_exchange,
                                            check_exchange, work_exchange},
    [LF_KID_experts] = {"experts", sizeof(struct lf_k_experts), lf_experts_call, lf_experts_check,
                        lf_experts_work},
    [LF_KID_attn_spread] = {"attn_spread", sizeof(struct lf_k_attn_spread), lf_spread_call,
                            lf_spread_check, lf_spread_work}};

#define WORKS(name)                                                                                \
    [LF_KID_##name] = {offsetof(struct lf_k_##name, work), offsetof(struct lf_k_##name, work_bytes)}
const struct lf_kernel_work lf_kernel_work[LF_KID_COUNT] = {
    WORKS(gemm),
    WORKS(colsum),
    WORKS(linear_xent),
    WORKS(embed_bwd),
    WORKS(norm_bwd),
    WORKS(xielu_bwd),
    WORKS(attn_fwd),
    WORKS(attn_bwd),
    WORKS(attn_paged),
    WORKS(scan_fwd),
    WORKS(scan_bwd),
    WORKS(grad_norm),
    WORKS(grouped_gemm),
    WORKS(gemm_heads),
    WORKS(quantise),
    WORKS(exchange),
    WORKS(experts),
    WORKS(attn_spread),
    [LF_KID_gemm_fp8] = {offsetof(struct lf_k_gemm_fp8, gemm.work),
                         offsetof(struct lf_k_gemm_fp8, gemm.work_bytes)},
};

void lf_kernel_set_work(int kernel, void *args, void *work, size_t bytes)
{
    const struct lf_kernel_work *w = &lf_kernel_work[kernel];
    if (!w->at) {
        if (bytes)
            LF_BUG("kernel %s asks for workspace but has no place to name it",
                   lf_kernel_table[kernel].name);
        return;
    }
    memcpy((char *)args + w->at, &work, sizeof work);
    memcpy((char *)args + w->bytes_at, &bytes, sizeof bytes);
}
