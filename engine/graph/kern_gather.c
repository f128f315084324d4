/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a rank's rows of queries over keys and values that the ranks of the context axis
 * gather (layout.h), some heads of keys at a time. A row of what moves is the heads' keys, then
 * their values. It comes in the order of ranks and is put in that of rows, so that documents are
 * whole again. Backwards the same, and what this rank's queries add to the gradients goes to the
 * ranks that have the rows, in f32. Where rows are in order and see those of a window alone, what
 * comes are the last rows of the ranks before, and what goes back are the gradients of these; where
 * they are in turns, both are of the two ranks beside, and stand where those of all rows would.
 */
#include "engine/graph/priv.h"

/* What the kernels of both directions name alike. */
struct keys {
    const void *k, *v;
    int64_t ldk, ldv, d, e; /* row distances; channels of a key and of a value */
    int64_t own, all;       /* rows of this rank, and the most that are there of all */
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
                     .all = f->own.keys ? f->own.n + a->reach : f->rows,
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
                          .all = b->own.keys ? b->own.n + a->reach : b->rows,
                          .groups = b->groups,
                          .type = b->x_type};
    k.per = (a->backward ? b->heads : f->heads) / k.groups;
    k.width = a->each * (k.d + k.e);
    k.size = lf_dtype_size((enum lf_dtype)k.type);
    return k;
}

int64_t lf_spread_heads(const struct lf_k_attn_spread *a, int64_t given)
{
    const struct keys k = keys_of(a);
    const int64_t one = 2 * k.all * (k.d + k.e) * (int64_t)k.size,
                  most = !a->reach && one * k.groups >= LF_CONTEXT_AHEAD ? (k.groups + 1) / 2
                                                                         : k.groups;
    if (given > 0)
        return given < k.groups ? given : k.groups;
    const int64_t n = one > 0 ? LF_CONTEXT_ROOM / one : most;
    return n < 1 ? 1 : n < most ? n : most;
}

/* Where things lie in the workspace: rows of keys by rank and in order; backwards gradients of all
 * rows, in order and by rank. Of a window: rows for others, keys in order, and bytes for and from
 * each rank of the axis. */
struct space {
    size_t by_rank, ordered, grads, sent, counts, work;
};

static size_t rounded(size_t n)
{
    return (n + 63) / 64 * 64;
}

static struct space space_of(const struct lf_k_attn_spread *a, const struct keys *k)
{
    const size_t n = (size_t)(k->all * k->width), bytes = rounded(n * k->size),
                 grads = a->backward ? rounded(n * sizeof(float)) : 0,
                 ranks = (size_t)(a->group.n * a->group.step), /* of the axis */
        counts = a->reach ? rounded(2 * ranks * sizeof(size_t)) : 0;
    struct space s = {.ordered = bytes};
    s.grads = s.ordered + bytes;
    s.sent = s.grads + grads;
    s.counts = s.sent + grads;
    s.work = s.counts + counts;
    return s;
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

/* Rows of keys that are there. */
static int64_t there(const struct lf_k_attn_spread *a)
{
    return a->backward ? a->bwd.own.keys : a->fwd.own.keys;
}

/* Copies columns of rows from one distance to another. */
static int copy(const struct lf_kernels *k, lf_queue *q, const struct lf_k_act_fwd *of)
{
    struct lf_k_act_fwd c = *of;
    c.act = LF_ACT_NONE;
    return k->act_fwd.run(q, &c);
}

/* ---- rows that a window reaches ---- */

/* How many rows of a rank the one `further` places behind it needs. */
static int64_t needed(const struct lf_k_attn_spread *a, const struct keys *k, int further)
{
    const int64_t n = a->reach - (further - 1) * k->own;
    return n <= 0 ? 0 : n < k->own ? n : k->own;
}

/* Bytes for the ranks behind this one, and from those before it, in counts of all ranks of the
 * axis; `row` of each row. */
struct counts {
    size_t *behind, *before;
    int64_t rows_behind, rows_before;
};

static struct counts count_rows(const struct lf_k_attn_spread *a, const struct keys *k, size_t row)
{
    const struct space w = space_of(a, k);
    const struct lf_rank_group *g = &a->group;
    const size_t ranks = (size_t)a->with->context_ranks;
    struct counts c = {.behind = to(a->work, (int64_t)w.counts, 1)};
    c.before = c.behind + ranks;
    for (size_t r = 0; r < 2 * ranks; r++)
        c.behind[r] = 0;
    for (int i = 0; i < g->n; i++) {
        const size_t r = (size_t)(g->first + i * g->step);
        const int64_t n = i == g->place  ? 0
                          : i > g->place ? needed(a, k, i - g->place)
                                         : needed(a, k, g->place - i);
        *(i > g->place ? &c.rows_behind : &c.rows_before) += n;
        (i > g->place ? c.behind : c.before)[r] = (size_t)n * row;
    }
    return c;
}

/* The last rows of this rank's, which stand behind those of the ranks before it in order. */
static int near(const struct lf_k_attn_spread *a, const struct keys *k, size_t row)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const struct counts c = count_rows(a, k, row);
    char *ordered = (char *)a->work + w.ordered, *sent = (char *)a->work + w.by_rank,
         *end = ordered + (size_t)(c.rows_before + k->own) * row;
    int rc = 0;
    for (int r = 0; r < x->context_ranks && rc == 0; r++) {
        if (c.behind[r])
            rc = x->move(x->user, sent, end - c.behind[r], c.behind[r], &x->err);
        sent += c.behind[r];
    }
    return rc != 0 ? rc
                   : x->context_parts(x->user, ordered, c.before, (char *)a->work + w.by_rank,
                                      c.behind, &x->err);
}

/* What came of ranks behind is added to this rank's last rows. *sum: where these begin. */
static int add_near(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                    const struct keys *k, int64_t cols, float **sum)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const struct counts c = count_rows(a, k, (size_t)cols * sizeof(float));
    float *grads = to(a->work, (int64_t)w.grads, 1), *came = to(a->work, (int64_t)w.sent, 1);
    float *end = grads + (c.rows_before + k->own) * cols;
    int rc = x->context_parts(x->user, came, c.behind, grads, c.before, &x->err);
    for (int r = 0; r < x->context_ranks && rc == 0; r++) {
        const int64_t n = (int64_t)(c.behind[r] / sizeof(float));
        const struct lf_k_axpby add = {.n = n,
                                       .a = end - n,
                                       .b = came,
                                       .y = end - n,
                                       .alpha = 1,
                                       .beta = 1,
                                       .a_type = LF_F32,
                                       .b_type = LF_F32,
                                       .y_type = LF_F32};
        rc = n ? kernels->axpby.run(q, &add) : 0;
        came += n;
    }
    *sum = end - k->own * cols;
    return rc;
}

/* ---- rows that a window reaches before two runs ---- */

/* Rank p of c has runs p and 2 c - 1 - p, of `rows` rows each. So what comes before the first one
 * is of rank p - 1, before the second one of rank p + 1, and the last rank's runs follow each
 * other. What each side gets are the last rows of a run. */
struct turn {
    bool there;         /* is there such a rank? */
    size_t rank;        /* of the axis */
    int64_t come, goes; /* first rows of what it gives, and of what it gets */
};
struct turns {
    int64_t rows, run[2]; /* first rows of this rank's runs */
    struct turn side[2];  /* the rank before, the rank behind */
};

static struct turns turns_of(const struct lf_k_attn_spread *a, const struct keys *k)
{
    const struct lf_rank_group *g = &a->group;
    const int64_t rows = k->own / 2, p = g->place, last = 2 * (int64_t)g->n - 1 - p;
    struct turns t = {.rows = rows, .run = {p * rows, last * rows}};
    for (int i = 0; i < 2; i++) {
        const int64_t place = i ? p + 1 : p - 1;
        t.side[i] = (struct turn){.there = place >= 0 && place < g->n,
                                  .rank = (size_t)(g->first + place * g->step),
                                  .come = t.run[i] - a->reach,
                                  .goes = t.run[!i] + rows - a->reach};
    }
    return t;
}

/* Bytes of each rank of the axis: as many go to both sides as come from there. */
static size_t *count_turns(const struct lf_k_attn_spread *a, const struct keys *k,
                           const struct turns *t, size_t row)
{
    size_t *bytes = to(a->work, (int64_t)space_of(a, k).counts, 1);
    for (int r = 0; r < a->with->context_ranks; r++)
        bytes[r] = 0;
    for (int i = 0; i < 2; i++)
        if (t->side[i].there)
            bytes[t->side[i].rank] = (size_t)a->reach * row;
    return bytes;
}

/* The backward pass multiplies zeros with keys behind the last row of a run, to a tile's end. */
static int clear_behind(const struct lf_k_attn_spread *a, const struct keys *k,
                        const struct turns *t, size_t row)
{
    struct lf_exchange *x = a->with;
    char *ordered = (char *)a->work + space_of(a, k).ordered;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        const int64_t end = t->run[i] + t->rows, left = k->all - end,
                      n = left < LF_ATTN_TILE - 1 ? left : LF_ATTN_TILE - 1;
        if (n > 0 && end != t->run[!i])
            rc = x->clear(x->user, ordered + (size_t)end * row, (size_t)n * row, &x->err);
    }
    return rc;
}

/* This rank's rows, which are in `by_rank`, to their places among all, and those that windows
 * reach, which go and come through the same bytes. */
static int near_turns(const struct lf_k_attn_spread *a, const struct keys *k, size_t row)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const struct turns t = turns_of(a, k);
    const size_t *bytes = count_turns(a, k, &t, row), part = (size_t)a->reach * row;
    char *own = (char *)a->work + w.by_rank, *ordered = (char *)a->work + w.ordered, *sent = own,
         *came = own + 2 * part;
    int rc = clear_behind(a, k, &t, row);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = x->move(x->user, ordered + (size_t)t.run[i] * row, own + (size_t)(i * t.rows) * row,
                     (size_t)t.rows * row, &x->err);
    for (int i = 0; i < 2 && rc == 0; i++)
        if (t.side[i].there) {
            rc = x->move(x->user, sent, ordered + (size_t)t.side[i].goes * row, part, &x->err);
            sent += part;
        }
    if (rc == 0)
        rc = x->context_parts(x->user, came, bytes, own, bytes, &x->err);
    for (int i = 0; i < 2 && rc == 0; i++)
        if (t.side[i].there) {
            rc = x->move(x->user, ordered + (size_t)t.side[i].come * row, came, part, &x->err);
            came += part;
        }
    return rc;
}

/* What came of both sides is added to this rank's rows. *sum: these, one run behind the other. */
static int add_turns(const struct lf_kernels *kernels, lf_queue *q,
                     const struct lf_k_attn_spread *a, const struct keys *k, int64_t cols,
                     float **sum)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const struct turns t = turns_of(a, k);
    const size_t row = (size_t)cols * sizeof(float), *bytes = count_turns(a, k, &t, row);
    const int64_t part = a->reach * cols;
    float *grads = to(a->work, (int64_t)w.grads, 1), *sent = to(a->work, (int64_t)w.sent, 1),
          *came = sent + 2 * part, *own = to(a->work, (int64_t)w.by_rank, 1);
    int rc = 0, n = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        if (t.side[i].there)
            rc = x->move(x->user, sent + n++ * part, grads + t.side[i].come * cols,
                         (size_t)a->reach * row, &x->err);
    if (rc == 0)
        rc = x->context_parts(x->user, came, bytes, sent, bytes, &x->err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        float *mine = grads + t.side[i].goes * cols;
        const struct lf_k_axpby add = {.n = part,
                                       .a = mine,
                                       .b = came,
                                       .y = mine,
                                       .alpha = 1,
                                       .beta = 1,
                                       .a_type = LF_F32,
                                       .b_type = LF_F32,
                                       .y_type = LF_F32};
        if (!t.side[i].there)
            continue;
        rc = kernels->axpby.run(q, &add);
        came += part;
    }
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = x->move(x->user, own + i * t.rows * cols, grads + t.run[i] * cols,
                     (size_t)t.rows * row, &x->err);
    *sum = own;
    return rc;
}

/* ---- rows of all ---- */

/* Does a gather go on beside what computes? Then it has `by_rank` alone. */
static bool ahead(const struct lf_k_attn_spread *a)
{
    const struct lf_exchange *x = a->with;
    return !a->reach && x->context_begin && a->group.n == x->context_ranks;
}

/* This rank's keys and values of these heads to their place, and begins to gather those of all. */
static int begin(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                 const struct keys *k, struct heads h)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const int64_t cols = h.n * (k->d + k->e);
    const size_t row = (size_t)cols * k->size, part = (size_t)k->own * row;
    char *by_rank = (char *)a->work + w.by_rank, *ordered = (char *)a->work + w.ordered,
         *own = a->turns   ? by_rank
                : a->reach ? ordered + (size_t)(there(a) - k->own) * row
                           : by_rank + (size_t)a->group.place * part;
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
    return rc != 0 || !ahead(a) ? rc : x->context_begin(x->user, by_rank, part, &x->err);
}

/* Waits for keys and values of these heads: of all rows, in order, or of those that are there. */
static int end(const struct lf_k_attn_spread *a, const struct keys *k, struct heads h)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const size_t row = (size_t)(h.n * (k->d + k->e)) * k->size;
    char *by_rank = (char *)a->work + w.by_rank, *ordered = (char *)a->work + w.ordered;
    if (a->reach)
        return (a->turns ? near_turns : near)(a, k, row);
    const int rc = ahead(a)
                       ? x->context_finish(x->user, &x->err)
                       : lf_context_collect(x, &a->group, by_rank, (size_t)k->own * row, ordered);
    return rc != 0 ? rc : lf_context_order(x, &a->blocks, ordered, by_rank, row, false);
}

/* In the place of the own rows of what `grads` has of all. */
static int add_all(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                   const struct keys *k, int64_t cols, float **sum)
{
    struct lf_exchange *x = a->with;
    const struct space w = space_of(a, k);
    const int64_t n = k->own * cols;
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
    *sum = grads;
    return rc;
}

/* What all ranks' queries add to the gradients of this rank's rows, in the order of the ranks. */
static int add_up(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                  const struct keys *k, struct heads h)
{
    const struct space w = space_of(a, k);
    const int64_t cols = h.n * (k->d + k->e);
    float *grads = NULL, *sent = to(a->work, (int64_t)w.sent, 1);
    int rc = (a->turns ? add_turns : a->reach ? add_near : add_all)(kernels, q, a, k, cols, &grads);
    const struct lf_k_axpby round = {.n = k->own * cols,
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

/* Attention of some heads, whose keys and values are there. */
static int compute(const struct lf_kernels *kernels, lf_queue *q, const struct lf_k_attn_spread *a,
                   const struct keys *k, struct heads h)
{
    if (!a->backward) {
        const struct lf_k_attn_fwd f = some_fwd(a, k, h, a->work);
        return kernels->attn_fwd.run(q, &f);
    }
    const struct lf_k_attn_bwd b = some_bwd(a, k, h, a->work);
    const int rc = kernels->attn_bwd.run(q, &b);
    return rc != 0 ? rc : add_up(kernels, q, a, k, h);
}

static struct heads behind(const struct lf_k_attn_spread *a, const struct keys *k, struct heads h)
{
    const int64_t first = h.first + h.n, left = k->groups - first;
    return (struct heads){first, left < a->each ? left : a->each};
}

/* Keys of the next heads come while these compute, where a gather can go on. */
int lf_spread_call(const struct lf_kernels *kernels, lf_queue *q, const void *args)
{
    const struct lf_k_attn_spread *a = args;
    const struct keys k = keys_of(a);
    const bool able = a->reach ? a->with->context_parts != NULL
                               : a->with->context_gather && a->with->context_swap,
               beside = able && ahead(a);
    struct heads h = behind(a, &k, (struct heads){0}), next;
    int rc = able ? begin(kernels, q, a, &k, h) : LF_K_EINVAL;
    for (; h.n > 0 && rc == 0; h = next) {
        next = behind(a, &k, h);
        rc = end(a, &k, h);
        if (rc == 0 && next.n > 0 && beside)
            rc = begin(kernels, q, a, &k, next);
        const bool goes = rc == 0 && next.n > 0 && beside;
        if (rc == 0)
            rc = compute(kernels, q, a, &k, h);
        if (rc == 0 && next.n > 0 && !beside)
            rc = begin(kernels, q, a, &k, next);
        if (rc != 0 && goes) /* nothing is written behind a failure */
            a->with->context_finish(a->with->user, NULL);
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
    static const int32_t some = 0; /* while planning nobody knows which rows these are */
    const struct lf_k_attn_spread *a = args;
    const struct keys k = keys_of(a);
    const struct space w = space_of(a, &k);
    /* of a window as many as any rank has */
    struct lf_k_attn_own own = a->backward ? a->bwd.own : a->fwd.own;
    own.first = &some;
    own.keys = a->reach && !a->turns ? k.all : 0;
    if (a->backward) {
        struct lf_k_attn_bwd b = a->bwd;
        b.heads = a->each * k.per;
        b.groups = a->each;
        b.own = own;
        return w.work + kernels->attn_bwd.work(&b, threads);
    }
    struct lf_k_attn_fwd f = a->fwd;
    f.heads = a->each * k.per;
    f.groups = a->each;
    f.own = own;
    return w.work + kernels->attn_fwd.work(&f, threads);
}

void lf_spread_moved(const struct lf_k_attn_spread *a, int64_t *messages, double *bytes)
{
    const struct keys k = keys_of(a);
    const double cols = (double)(k.groups * (k.d + k.e));
    double rows = (double)k.own * (a->group.n - 1), back = rows;
    if (a->turns) { /* for those beside, and of gradients back to them */
        const struct turns t = turns_of(a, &k);
        rows = back = (double)(a->reach * (t.side[0].there + t.side[1].there));
    } else if (a->reach) { /* for those behind, and of gradients to those before */
        rows = back = 0;
        for (int i = 1; i < a->group.n; i++) {
            rows += a->group.place + i < a->group.n ? (double)needed(a, &k, i) : 0;
            back += a->group.place - i >= 0 ? (double)needed(a, &k, i) : 0;
        }
    }
    *messages = (k.groups + a->each - 1) / a->each * (a->backward ? 2 : 1);
    *bytes = cols * (rows * (double)k.size + (a->backward ? back * sizeof(float) : 0));
}
