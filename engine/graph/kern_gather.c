/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a rank's rows of queries over keys and values that the ranks of the context axis
 * gather (layout.h), some heads of keys at a time. A row of what moves is the heads' keys, then
 * their values. It comes in the order of ranks and is put in that of rows, so that documents are
 * whole again. Backwards the same, and what this rank's queries add to the gradients goes to the
 * ranks that have the rows, in f32.
 */
#include "engine/graph/priv.h"

/* What the kernels of both directions name alike. */
struct keys {
    const void *k, *v;
    int64_t ldk, ldv, d, e; /* row distances; channels of a key and of a value */
    int64_t own, all;       /* rows of this rank, and of all */
    int64_t groups, per;    /* heads of keys; of queries for each */
    int64_t width;          /* columns of what moves at a time */
    size_t size;            /* bytes of an element */
    uint8_t type;
};

/* n heads of keys from `first` on. */
struct heads {
    int64_t first, n;
};

static struct keys keys_of(const struct lf_k_attn_spread *a)
{
    const struct lf_k_attn_fwd *f = &a->fwd;
    const struct lf_k_attn_bwd *b = &a->bwd;
    struct keys k = {.k = f->k,
                     .v = f->v,
                     .ldk = f->ldk,
                     .ldv = f->ldv,
                     .d = f->d,
                     .e = f->d_value,
                     .own = f->own.n,
                     .all = f->rows,
                     .groups = f->groups,
                     .type = f->x_type};
    if (a->backward)
        k = (struct keys){.k = b->k,
                          .v = b->v,
                          .ldk = b->ldk,
                          .ldv = b->ldv,
                          .d = b->d,
                          .e = b->d_value,
                          .own = b->own.n,
                          .all = b->rows,
                          .groups = b->groups,
                          .type = b->x_type};
    k.per = (a->backward ? b->heads : f->heads) / k.groups;
    k.width = a->each * (k.d + k.e);
    k.size = lf_dtype_size((enum lf_dtype)k.type);
    return k;
}

int64_t lf_spread_heads(const struct lf_k_attn_spread *a, int64_t given)
{
    const int64_t groups = a->backward ? a->bwd.groups : a->fwd.groups,
                  rows = a->backward ? a->bwd.rows : a->fwd.rows,
                  cols = a->backward ? a->bwd.d + a->bwd.d_value : a->fwd.d + a->fwd.d_value;
    const uint8_t type = a->backward ? a->bwd.x_type : a->fwd.x_type;
    const int64_t one = 2 * rows * cols * (int64_t)lf_dtype_size((enum lf_dtype)type);
    int64_t n = given > 0 ? given : one > 0 ? LF_CONTEXT_ROOM / one : groups;
    n = n < 1 ? 1 : n;
    return n < groups ? n : groups;
}

/* Where things lie in the workspace: rows of keys by rank and in order; backwards gradients of all
 * rows, in order and by rank. */
struct space {
    size_t by_rank, ordered, grads, sent, work;
};

static size_t rounded(size_t n)
{
    return (n + 63) / 64 * 64;
}

static struct space space_of(const struct lf_k_attn_spread *a, const struct keys *k)
{
    const size_t n = (size_t)(k->all * k->width), bytes = rounded(n * k->size),
                 grads = a->backward ? rounded(n * sizeof(float)) : 0;
    return (struct space){0, bytes, 2 * bytes, 2 * bytes + grads, 2 * bytes + 2 * grads};
}

/* ---- some heads of a call ---- */

static const void *from(const void *p, int64_t elements, size_t size)
{
    return (const char *)p + (size_t)elements * size;
}
static void *to(void *p, int64_t elements, size_t size)
{
    return (char *)p + (size_t)elements * size;
}

static struct lf_k_attn_fwd some_fwd(const struct lf_k_attn_spread *a, const struct keys *k,
                                     struct heads h, void *base)
{
    const struct space w = space_of(a, k);
    const int64_t q0 = h.first * k->per, cols = h.n * (k->d + k->e);
    struct lf_k_attn_fwd f = a->fwd;
    f.heads = h.n * k->per;
    f.groups = h.n;
    f.q = from(f.q, q0 * k->d, k->size);
    f.o = to(f.o, q0 * k->e, k->size);
    f.lse = f.lse ? f.lse + q0 * k->own : NULL;
    f.k = from(base, (int64_t)w.ordered, 1);
    f.v = from(f.k, h.n * k->d, k->size);
    f.ldk = f.ldv = cols;
    f.alibi = f.alibi ? f.alibi + q0 : NULL;
    f.sinks = f.sinks ? f.sinks + q0 : NULL;
    f.drop.head0 += (int32_t)q0;
    f.work = to(base, (int64_t)w.work, 1);
    f.work_bytes = a->work_bytes > w.work ? a->work_bytes - w.work : 0;
    return f;
}

static struct lf_k_attn_bwd some_bwd(const struct lf_k_attn_spread *a, const struct keys *k,
                                     struct heads h, void *base)
{
    const struct space w = space_of(a, k);
    const int64_t q0 = h.first * k->per, cols = h.n * (k->d + k->e);
    struct lf_k_attn_bwd b = a->bwd;
    b.heads = h.n * k->per;
    b.groups = h.n;
    b.q = from(b.q, q0 * k->d, k->size);
    b.o = from(b.o, q0 * k->e, k->size);
    b.d_o = from(b.d_o, q0 * k->e, k->size);
    b.dq = to(b.dq, q0 * k->d, k->size);
    b.lse += q0 * k->own;
    b.k = from(base, (int64_t)w.ordered, 1);
    b.v = from(b.k, h.n * k->d, k->size);
    b.dk = to(base, (int64_t)w.grads, 1);
    b.dv = to(b.dk, h.n * k->d, sizeof(float));
    b.ldk = b.ldv = b.lddk = b.lddv = cols;
    b.alibi = b.alibi ? b.alibi + q0 : NULL;
    b.drop.head0 += (int32_t)q0;
    b.work = to(base, (int64_t)w.work, 1);
    b.work_bytes = a->work_bytes > w.work ? a->work_bytes - w.work : 0;
    return b;
}

/* ---- what moves ---- */

/* Copies columns of rows from one distance to another. */
static int copy(const struct lf_kernels *k, lf_queue *q, const struct lf_k_act_fwd *of)
{
    struct lf_k_act_fwd c = *of;
    c.act = LF_ACT_NONE;
    return k->act_fwd.run(q, &c);
}

/* Keys and values of these heads, of all rows, in order. */
static int gather(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                  const struct keys *k, struct heads h)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const int64_t cols = h.n * (k->d + k->e);
    const size_t row = (size_t)cols * k->size, part = (size_t)k->own * row;
    char *by_rank = (char *)a->work + w.by_rank, *own = by_rank + (size_t)a->group.place * part,
         *ordered = (char *)a->work + w.ordered;
    const struct lf_k_act_fwd keys = {.rows = k->own,
                                      .c = h.n * k->d,
                                      .ldx = k->ldk,
                                      .ldy = cols,
                                      .x = from(k->k, h.first * k->d, k->size),
                                      .y = own,
                                      .x_type = k->type},
                              values = {.rows = k->own,
                                        .c = h.n * k->e,
                                        .ldx = k->ldv,
                                        .ldy = cols,
                                        .x = from(k->v, h.first * k->e, k->size),
                                        .y = to(own, h.n * k->d, k->size),
                                        .x_type = k->type};
    int rc = copy(kernels, q, &keys);
    if (rc == 0)
        rc = copy(kernels, q, &values);
    if (rc == 0)
        rc = lf_context_collect(x, &a->group, by_rank, part, ordered);
    if (rc == 0)
        rc = lf_context_order(x, &a->blocks, ordered, by_rank, row, false);
    return rc;
}

/* What all ranks' queries add to the gradients of this rank's rows, in the order of the ranks. */
static int add_up(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                  const struct keys *k, struct heads h)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const int64_t cols = h.n * (k->d + k->e), n = k->own * cols;
    float *grads = to(a->work, (int64_t)w.grads, 1), *sent = to(a->work, (int64_t)w.sent, 1);
    int rc = lf_context_order(x, &a->blocks, sent, grads, (size_t)cols * sizeof(float), true);
    if (rc == 0)
        rc = lf_context_trade(x, &a->group, grads, sent, (size_t)n * sizeof(float));
    for (int r = 1; r < a->group.n && rc == 0; r++) {
        const struct lf_k_axpby add = {.n = n,
                                       .a = grads,
                                       .b = grads + r * n,
                                       .y = grads,
                                       .alpha = 1,
                                       .beta = 1,
                                       .a_type = LF_F32,
                                       .b_type = LF_F32,
                                       .y_type = LF_F32};
        rc = kernels->axpby.run(q, &add);
    }
    const struct lf_k_axpby round = {.n = n,
                                     .a = grads,
                                     .y = sent,
                                     .alpha = 1,
                                     .a_type = LF_F32,
                                     .b_type = LF_F32,
                                     .y_type = k->type};
    if (rc == 0 && k->type != LF_F32)
        rc = kernels->axpby.run(q, &round);
    const void *sum = k->type == LF_F32 ? grads : sent;
    const struct lf_k_act_fwd dk = {.rows = k->own,
                                    .c = h.n * k->d,
                                    .ldx = cols,
                                    .ldy = a->bwd.lddk,
                                    .x = sum,
                                    .y = to(a->bwd.dk, h.first * k->d, k->size),
                                    .x_type = k->type},
                              dv = {.rows = k->own,
                                    .c = h.n * k->e,
                                    .ldx = cols,
                                    .ldy = a->bwd.lddv,
                                    .x = from(sum, h.n * k->d, k->size),
                                    .y = to(a->bwd.dv, h.first * k->e, k->size),
                                    .x_type = k->type};
    if (rc == 0)
        rc = copy(kernels, q, &dk);
    return rc != 0 ? rc : copy(kernels, q, &dv);
}

int lf_spread_call(const struct lf_kernels *kernels, lf_queue *q, const void *args)
{
    const struct lf_k_attn_spread *a = args;
    const struct keys k = keys_of(a);
    struct heads h = {0};
    int rc = a->with->context_gather && a->with->context_swap ? 0 : LF_K_EINVAL;
    for (; h.first < k.groups && rc == 0; h.first += h.n) {
        h.n = k.groups - h.first < a->each ? k.groups - h.first : a->each;
        rc = gather(kernels, q, a, &k, h);
        if (rc == 0 && a->backward) {
            const struct lf_k_attn_bwd b = some_bwd(a, &k, h, a->work);
            rc = kernels->attn_bwd.run(q, &b);
        } else if (rc == 0) {
            const struct lf_k_attn_fwd f = some_fwd(a, &k, h, a->work);
            rc = kernels->attn_fwd.run(q, &f);
        }
        if (rc == 0 && a->backward)
            rc = add_up(kernels, q, a, &k, h);
    }
    return rc;
}

int lf_spread_check(const struct lf_kernels *kernels, const void *args)
{
    const struct lf_k_attn_spread *a = args;
    const bool there = kernels->attn_fwd.run && kernels->attn_bwd.run && kernels->act_fwd.run &&
                       kernels->axpby.run && a->each > 0;
    if (!there)
        return LF_K_EINVAL;
    return a->backward ? kernels->attn_bwd.check(&a->bwd) : kernels->attn_fwd.check(&a->fwd);
}

size_t lf_spread_work(const struct lf_kernels *kernels, const void *args, int threads)
{
    const struct lf_k_attn_spread *a = args;
    const struct keys k = keys_of(a);
    const struct space w = space_of(a, &k);
    if (a->backward) {
        struct lf_k_attn_bwd b = a->bwd;
        b.heads = a->each * k.per;
        b.groups = a->each;
        return w.work + kernels->attn_bwd.work(&b, threads);
    }
    struct lf_k_attn_fwd f = a->fwd;
    f.heads = a->each * k.per;
    f.groups = a->each;
    return w.work + kernels->attn_fwd.work(&f, threads);
}

void lf_spread_moved(const struct lf_k_attn_spread *a, int64_t *messages, double *bytes)
{
    const struct keys k = keys_of(a);
    const double rows = (double)k.own * (a->group.n - 1) * (double)(k.groups * (k.d + k.e));
    *messages = (k.groups + a->each - 1) / a->each * (a->backward ? 2 : 1);
    *bytes = rows * (double)(k.size + (a->backward ? sizeof(float) : 0));
}
