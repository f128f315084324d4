/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan over documents, and over the new rows of sequences. A thread draws blocks of heads that
 * share a key head; of sequences it draws key heads with all heads that they serve, because the
 * rows of k that a slot keeps are shared by them.
 */
#include "config.h"

#include "kernels/cpu/scan.h"

LF_CPU_DECLARE(scan_fwd)

static bool scan_ok(const struct lf_scan_in *a)
{
    const int64_t width = a->per_channel ? a->heads * a->dk : a->heads;
    return a->rows >= 0 && a->rows < INT32_MAX && a->heads > 0 && a->groups > 0 &&
           a->heads % a->groups == 0 && a->dk > 0 && a->dv > 0 && a->dk <= LF_SCAN_MOST_D &&
           a->dv <= LF_SCAN_MOST_D && a->n_docs >= 0 && a->ldq >= a->groups * a->dk &&
           a->ldk >= a->groups * a->dk && a->ldv >= a->heads * a->dv &&
           (a->ldg == 0 || a->ldg >= width) && a->unit_eps >= 0.0f && lf_is_float(a->x_type);
}

int LF_SYM(scan_fwd_check)(const struct lf_k_scan_fwd *a)
{
    return scan_ok(&a->in) && a->ldo >= a->in.heads * a->in.dv ? LF_K_OK : LF_K_EINVAL;
}

size_t LF_SYM(scan_fwd_work)(const struct lf_k_scan_fwd *a, int threads)
{
    const struct scan_shape z = scan_shape_of(&a->in);
    return (size_t)threads * scan_chunk_floats(&z, false) * sizeof(float);
}

/* O of the rows, which are those from `row` on in the call. */
static void rows_out(struct scan_chunk *c, const struct lf_k_scan_fwd *a,
                     const struct scan_shape *z, int64_t row, int64_t h, int64_t i0, int64_t i1)
{
    const struct lf_scan_in *in = z->in;
    const uint8_t t = in->x_type;
    if (c->has_s) /* without e^G where that is a row's alone; the next products give it */
        scan_product((struct scan_mm){i1 - i0, z->dvp, z->dkp, (c->qp ? c->qp : c->q) + i0 * z->lk,
                                      z->lk, c->s, z->lv, c->o + i0 * z->lv, z->lv},
                     false, ATTN_ZERO, NULL);
    for (int64_t i = i0, e; i < i1; i = e) {
        const int64_t k = scan_up(i + 1);
        e = k < i1 ? k : i1;
        scan_product((struct scan_mm){e - i, z->dvp, k, c->p + i * SCAN_LA, SCAN_LA, c->u, z->lv,
                                      c->o + i * z->lv, z->lv},
                     false,
                     !c->has_s ? ATTN_ZERO
                     : c->qp   ? ATTN_ADD
                               : ATTN_SCALE,
                     c->eg ? c->eg + i : NULL);
    }
    const lf_v skip = lf_v_set1(in->skip ? in->skip[h] : 0.0f);
    for (int64_t i = i0; i < i1; i++) {
        const int64_t from = (row + i) * in->ldv + h * in->dv, to = (row + i) * a->ldo + h * in->dv;
        LF_EACH_VEC(x, n, in->dv)
        {
            lf_v o = lf_v_load(c->o + i * z->lv + x);
            if (in->skip)
                o = lf_v_fma(skip, lf_get(in->v, from + x, t, n), o);
            lf_put(a->o, to + x, t, n, o);
        }
    }
}

/* Copies n rows of `width` floats between a slot and a chunk. */
static void rows_copy(float *to, int64_t ldto, const float *from, int64_t ldfrom, int64_t n,
                      int64_t width)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * ldto, from + i * ldfrom, (size_t)width * 4);
}

/* Where a slot keeps the parts of a head. */
struct slot {
    float *s, *u, *g, *k;
};
static struct slot slot_of(const struct lf_k_scan_fwd *a, const struct scan_shape *z, int64_t seq,
                           int64_t h)
{
    const struct lf_scan_in *in = &a->in;
    const bool open = in->mode == LF_INVARIANT;
    const int64_t head = lf_scan_head_floats(in, open), j = h / (in->heads / in->groups);
    float *base = a->state + seq * lf_scan_slot(in);
    struct slot s = {.s = base + h * head};
    s.u = s.s + z->dkp * z->dvp;
    s.g = s.u + SCAN_C * z->dvp;
    s.k = base + in->heads * head + j * SCAN_C * z->dkp;
    return s;
}

/* The n rows of the open chunk. */
static void slot_get(struct scan_chunk *c, const struct scan_shape *z, struct slot s, int64_t n)
{
    const bool channel = z->in->per_channel;
    rows_copy(c->u, z->lv, s.u, z->dvp, n, z->dvp);
    rows_copy(c->g, channel ? z->lk : 1, s.g, channel ? z->dkp : 1, n, channel ? z->dkp : 1);
}

/* n rows are left open. state: the call has changed S. keys: nobody else reads the rows of k from
 * now on. */
static void slot_put(const struct scan_chunk *c, const struct scan_shape *z, struct slot s,
                     int64_t n, bool state, bool keys)
{
    const bool channel = z->in->per_channel;
    if (state)
        rows_copy(s.s, z->dvp, c->s, z->lv, z->dkp, z->dvp);
    if (n == 0)
        return;
    rows_copy(s.u, z->dvp, c->u, z->lv, n, z->dvp);
    rows_copy(s.g, channel ? z->dkp : 1, c->g, channel ? z->lk : 1, n, channel ? z->dkp : 1);
    if (keys)
        rows_copy(s.k, z->dkp, c->k, z->lk, n, z->dkp);
}

/* Rows [i0, n) of the chunk that begins at row `at` of a span, for the heads of a block. Rows
 * before i0 were in earlier calls. */
static void run_chunk(const struct lf_k_scan_fwd *a, const struct scan_span *s,
                      struct scan_block block, struct scan_chunk *c, int64_t at, int64_t i0)
{
    const struct scan_shape z = scan_shape_of(&a->in);
    const int64_t n = s->n - at < SCAN_C ? s->n - at : SCAN_C, left = n % SCAN_C, row = s->row + at,
                  per = a->in.heads / a->in.groups;
    const bool fast = a->state && a->in.mode != LF_INVARIANT, last = at + n == s->n,
               folds = a->state ? fast || !left : !last;
    if (i0)
        rows_copy(c->k, z.lk, slot_of(a, &z, s->seq, block.head).k, z.dkp, i0, z.dkp);
    LF_SYM(scan_keys)(c, &z, row, block.key, i0, n);
    for (int64_t x = 0; x < block.n; x++) {
        const int64_t h = block.head + x;
        const struct slot slot = a->state ? slot_of(a, &z, s->seq, h) : (struct slot){0};
        c->s = c->ss + x * z.dkp * z.lv;
        if (i0)
            slot_get(c, &z, slot, i0);
        LF_SYM(scan_load)(c, &z, row, h, i0, n);
        LF_SYM(scan_scores)(c, &z, i0, n);
        LF_SYM(scan_solve)(c, &z, i0, n);
        rows_out(c, a, &z, row, h, i0, n);
        if (folds)
            LF_SYM(scan_fold)(c, &z, n);
        if (a->state && last)
            slot_put(c, &z, slot, fast ? 0 : left, folds || at > 0, h % per == per - 1);
    }
    c->has_s = c->has_s || folds;
}

/* The heads of a block over the rows of a span, of whose first chunk some rows may have been in
 * earlier calls. */
static void run_block(lf_queue *q, const struct lf_k_scan_fwd *a, const struct scan_span *s,
                      struct scan_block block, struct scan_chunk *c)
{
    const struct scan_shape z = scan_shape_of(&a->in);
    const bool fast = a->state && a->in.mode != LF_INVARIANT;
    const int64_t open = fast ? 0 : s->before % SCAN_C;
    c->has_s = fast ? s->before > 0 : s->before >= SCAN_C;
    c->state_only = false;
    for (int64_t x = 0; x < block.n && a->state && c->has_s; x++)
        rows_copy(c->ss + x * z.dkp * z.lv, z.lv, slot_of(a, &z, s->seq, block.head + x).s, z.dvp,
                  z.dkp, z.dvp);
    for (int64_t at = -open, i0 = open; at < s->n; at += SCAN_C, i0 = 0) {
        lf_border(q);
        run_chunk(a, s, block, c, at, i0);
    }
}

static void zero_rows(const struct lf_k_scan_fwd *a, const struct scan_span *s)
{
    const uint8_t t = a->in.x_type;
    for (int64_t r = s->row; r < s->row + s->n; r++)
        memset(lf_at_w(a->o, r * a->ldo, t), 0,
               (size_t)(a->in.heads * a->in.dv) * lf_dtype_size((enum lf_dtype)t));
}

struct fwd {
    lf_queue *q;
    const struct lf_k_scan_fwd *a;
    struct scan_shape z;
    int64_t next;
};

/* Takes blocks, or all those of a key head; those of each document one after the other. */
static void run_blocks(void *arg, int member)
{
    struct fwd *w = arg;
    const struct lf_k_scan_fwd *a = w->a;
    const struct lf_scan_in *in = &a->in;
    const struct scan_rows rows = {in->rows, in->n_docs, in->cu_seqlens, a->state ? a->seq : NULL,
                                   a->pos};
    const int64_t per = a->state ? scan_blocks(in) : 1, tasks = in->groups * scan_blocks(in) / per;
    struct scan_chunk c;
    float *mem = a->work;
    LF_SYM(scan_chunk_lay)
    (&c, &w->z, mem + (size_t)member * scan_chunk_floats(&w->z, false), false);
    struct scan_span s = {0};
    int64_t n = 0, mine = lf_take(&w->next);
    for (; scan_next(&rows, &s); n += tasks)
        for (; mine < n + tasks; mine = lf_take(&w->next)) {
            if (s.seq < 0 && mine == n)
                zero_rows(a, &s);
            for (int64_t i = (mine - n) * per; i < (mine - n + 1) * per && s.seq >= 0; i++)
                run_block(w->q, a, &s, scan_block_of(in, i), &c);
        }
}

int LF_SYM(scan_fwd)(lf_queue *q, const struct lf_k_scan_fwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const int team = lf_team(q, in->rows * in->heads * in->dk * 64);
    struct fwd w = {.q = q, .a = a, .z = scan_shape_of(in)};
    if (in->rows == 0)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(scan_fwd_work)(a, team))
        return LF_K_EINVAL;
    lf_team_call(q, team, run_blocks, &w);
    return LF_K_OK;
}
