/* SPDX-License-Identifier: Apache-2.0
 *
 * The paged cache gives the bits of attn_fwd: documents are fed in random pieces, in random batches
 * with random neighbours, over shuffled pages whose unwritten slots hold NaN; each row's output
 * equals, bit for bit, the row of one attn_fwd over the whole documents. A document with a prefix
 * begins with all of it, and no batch ends in a run. The last rows of each document are decoded one
 * at a time.
 *
 * What a row must not see may be infinite or NaN, and how many rows a step has changes nothing.
 */
#include "config.h"

#include "tests/op/attn_ref.h"

enum { MAX_ROWS = 256, MAX_PAGES = 4 };

/* What the kernels read beside tensors. */
struct feed_given {
    int32_t table[12 * MAX_PAGES];
    int32_t seq[MAX_ROWS],
        pos[MAX_ROWS];  /* of a batch: for each row its document (or -1) and position */
    int32_t prefix[12]; /* of the case, within its document: a cache has no end of its own */
    int32_t runs[2 * MAX_ROWS];
};

struct feed {
    const struct lf_kernels *k;
    const struct attn_case *c;
    uint8_t type;
    int64_t ldq, ldk, ldv, ldo, page;
    size_t size;
    struct op_buf q, kk, v, whole, out, kp, vp, bq, bk, bv, bo;
    struct attn_given given;
    struct op_buf mem;
    struct feed_given *at;
    int32_t done[12];
    uint64_t seed;
    int64_t draw;
};

static int64_t pick(struct feed *f, int64_t n)
{
    return (int64_t)((op_rand(f->seed, f->draw++) + 1) / 2 * (double)n) % n;
}

static void *at(const struct op_buf *b, int64_t i, size_t size)
{
    return (char *)b->p + (size_t)i * size;
}

static bool whole_documents(struct feed *f)
{
    const struct attn_case *c = f->c;
    struct lf_k_attn_fwd a = {.rows = c->rows,
                              .heads = c->heads,
                              .groups = c->groups,
                              .d = c->d,
                              .d_value = attn_ref_e(c),
                              .n_docs = c->n_docs,
                              .q = f->q.p,
                              .k = f->kk.p,
                              .v = f->v.p,
                              .o = f->whole.p,
                              .ldq = f->ldq,
                              .ldk = f->ldk,
                              .ldv = f->ldv,
                              .ldo = f->ldo,
                              .cu_seqlens = f->given.cu,
                              .prefix = f->given.prefix,
                              .runs = f->given.runs,
                              .alibi = f->given.alibi,
                              .sinks = f->given.sinks,
                              .scale = (float)attn_ref_scale(c),
                              .softcap = (float)c->softcap,
                              .window = c->window,
                              .causal = true,
                              .x_type = f->type};
    a.work_bytes = f->k->attn_fwd.work(&a, 2);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(2);
    bool ok = f->k->attn_fwd.run(q, &a) == 0;
    op_queue_destroy(q);
    op_free(&work);
    return ok;
}

static void feed_open(struct feed *f, const struct lf_kernels *k, const struct attn_case *c,
                      uint8_t type, uint64_t seed)
{
    *f = (struct feed){
        .k = k, .c = c, .type = type, .seed = seed, .size = lf_dtype_size((enum lf_dtype)type)};
    f->given = attn_give(c);
    f->mem = op_alloc(sizeof *f->at);
    f->at = f->mem.p;
    for (int64_t d = 0; d < c->n_docs; d++)
        f->at->prefix[d] =
            c->prefix[d] < c->cu[d + 1] - c->cu[d] ? c->prefix[d] : c->cu[d + 1] - c->cu[d];
    f->ldq = c->heads * c->d;
    f->ldk = c->groups * c->d;
    f->ldv = c->groups * attn_ref_e(c);
    f->ldo = c->heads * attn_ref_e(c);
    f->page = seed % 2 ? 64 : 128;
    f->q = op_random(c->rows * f->ldq, type, 1, 2.0);
    f->kk = op_random(c->rows * f->ldk, type, 2, 2.0);
    f->v = op_random(c->rows * f->ldv, type, 3, 1.0);
    f->whole = op_alloc((size_t)(c->rows * f->ldo) * f->size);
    f->out = op_alloc(f->whole.bytes);
    f->bq = op_alloc((size_t)(MAX_ROWS * f->ldq) * f->size);
    f->bo = op_alloc((size_t)(MAX_ROWS * f->ldo) * f->size);
    f->bk = op_alloc((size_t)(MAX_ROWS * f->ldk) * f->size);
    f->bv = op_alloc((size_t)(MAX_ROWS * f->ldv) * f->size);
    const int64_t pages = c->n_docs * MAX_PAGES, cells = pages * f->page;
    f->kp = op_alloc((size_t)(cells * f->ldk) * f->size);
    f->vp = op_alloc((size_t)(cells * f->ldv) * f->size);
    memset(f->kp.p, 0xff, f->kp.bytes); /* NaN in every type */
    memset(f->vp.p, 0xff, f->vp.bytes);
    for (int64_t i = 0; i < pages; i++)
        f->at->table[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        int64_t j = pick(f, i + 1);
        int32_t t = f->at->table[i];
        f->at->table[i] = f->at->table[j];
        f->at->table[j] = t;
    }
}

static void feed_close(struct feed *f)
{
    struct op_buf *b[] = {&f->q,  &f->kk, &f->v,  &f->whole, &f->out, &f->kp,       &f->vp,
                          &f->bq, &f->bk, &f->bv, &f->bo,    &f->mem, &f->given.mem};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
}

/* One batch of f->at->seq and pos. */
static bool run_batch(struct feed *f, int64_t rows, int threads)
{
    const struct attn_case *c = f->c;
    const int32_t *seq = f->at->seq, *pos = f->at->pos;
    for (int64_t r = 0; r < rows; r++) {
        int64_t src = seq[r] < 0 ? 0 : c->cu[seq[r]] + pos[r];
        f->at->runs[2 * r] = INT32_MIN;
        f->at->runs[2 * r + 1] = INT32_MAX;
        if (seq[r] >= 0)
            attn_ref_run(c, seq[r], pos[r], f->at->runs + 2 * r);
        memcpy(at(&f->bq, r * f->ldq, f->size), at(&f->q, src * f->ldq, f->size),
               (size_t)f->ldq * f->size);
        memcpy(at(&f->bk, r * f->ldk, f->size), at(&f->kk, src * f->ldk, f->size),
               (size_t)f->ldk * f->size);
        memcpy(at(&f->bv, r * f->ldv, f->size), at(&f->v, src * f->ldv, f->size),
               (size_t)f->ldv * f->size);
    }
    struct lf_k_kv_write w = {.rows = rows,
                              .groups = c->groups,
                              .d = c->d,
                              .d_value = attn_ref_e(c),
                              .page_tokens = f->page,
                              .max_pages = MAX_PAGES,
                              .k = f->bk.p,
                              .v = f->bv.p,
                              .ldk = f->ldk,
                              .ldv = f->ldv,
                              .k_pages = f->kp.p,
                              .v_pages = f->vp.p,
                              .seq = seq,
                              .pos = pos,
                              .table = f->at->table,
                              .x_type = f->type};
    struct lf_k_attn_paged a = {.rows = rows,
                                .heads = c->heads,
                                .groups = c->groups,
                                .d = c->d,
                                .d_value = attn_ref_e(c),
                                .page_tokens = f->page,
                                .max_pages = MAX_PAGES,
                                .q = f->bq.p,
                                .k_pages = f->kp.p,
                                .v_pages = f->vp.p,
                                .o = f->bo.p,
                                .ldq = f->ldq,
                                .ldo = f->ldo,
                                .seq = seq,
                                .pos = pos,
                                .table = f->at->table,
                                .prefix = c->open ? f->at->prefix : NULL,
                                .runs = attn_ref_runs(c) ? f->at->runs : NULL,
                                .alibi = f->given.alibi,
                                .sinks = f->given.sinks,
                                .scale = (float)attn_ref_scale(c),
                                .softcap = (float)c->softcap,
                                .window = c->window,
                                .x_type = f->type};
    a.work_bytes = f->k->attn_paged.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(threads);
    bool ok = f->k->kv_write.check(&w) == 0 && f->k->kv_write.run(q, &w) == 0 &&
              f->k->attn_paged.check(&a) == 0 && f->k->attn_paged.run(q, &a) == 0 &&
              op_guards_intact(&work) && op_guards_intact(&f->bo) && op_guards_intact(&f->kp) &&
              op_guards_intact(&f->vp);
    op_queue_destroy(q);
    op_free(&work);
    for (int64_t r = 0; r < rows; r++) {
        if (seq[r] >= 0)
            memcpy(at(&f->out, (c->cu[seq[r]] + pos[r]) * f->ldo, f->size),
                   at(&f->bo, r * f->ldo, f->size), (size_t)f->ldo * f->size);
        for (int64_t i = 0; seq[r] < 0 && i < f->ldo; i++)
            ok = ok && op_get(f->bo.p, r * f->ldo + i, f->type) == 0;
    }
    return ok;
}

static void test_case(const struct lf_kernels *k, const struct attn_case *c, uint8_t type,
                      uint64_t seed)
{
    struct feed f;
    int64_t left = c->cu[c->n_docs];
    feed_open(&f, k, c, type, seed);
    int32_t *seq = f.at->seq, *pos = f.at->pos;
    bool ok = whole_documents(&f);
    for (int batch = 0; left > 0 && ok; batch++) {
        int64_t rows = 0;
        for (int64_t s = 0; s < c->n_docs; s++) {
            int64_t d = (s + batch) % c->n_docs, rest = c->cu[d + 1] - c->cu[d] - f.done[d];
            int64_t n = rest > 6   ? 1 + pick(&f, rest > 90 ? 90 : rest - 5)
                        : rest > 0 ? pick(&f, 2)
                                   : 0;
            if (c->open && f.done[d] == 0 &&
                n < c->prefix[d]) /* a prefix is written before any of it is read */
                n = c->prefix[d] < rest ? c->prefix[d] : rest;
            int32_t run[2] = {0, 0}; /* nor is a run cut */
            if (n > 0)
                attn_ref_run(c, d, f.done[d] + n - 1, run);
            n = run[1] > f.done[d] + n ? run[1] - f.done[d] : n;
            for (int64_t i = 0; i < n && rows < MAX_ROWS - 1; i++, rows++, left--) {
                seq[rows] = (int32_t)d;
                pos[rows] = f.done[d]++;
            }
            if (pick(&f, 3) == 0 && rows < MAX_ROWS - 1) {
                seq[rows] = -1;
                pos[rows++] = 0;
            }
        }
        ok = run_batch(&f, rows, 1 + batch % 3);
    }
    size_t bytes = (size_t)(c->cu[c->n_docs] * f.ldo) * f.size;
    tap_ok(ok && memcmp(f.out.p, f.whole.p, bytes) == 0,
           "the cache gives the bits of the whole document: %s, %s, %s, feed %d", c->name,
           k->family,
           type == LF_BF16  ? "bf16"
           : type == LF_F16 ? "f16"
                            : "f32",
           (int)seed);
    ((unsigned char *)f.out.p)[bytes / 2] ^= 1;
    tap_ok(memcmp(f.out.p, f.whole.p, bytes) != 0, "one flipped bit is found");
    feed_close(&f);
}

/* ---- what a row must not see ---- */

enum {
    FIRST = 70,
    SECOND = 5,
    ROWS = FIRST + SECOND,
    HEADS = 4,
    GROUPS = 2,
    CH = 32,
    BAD = 20,
    PAGE = 64
};

struct unseen {
    struct op_buf mem, q, k, v, kp, vp, o;
    struct unseen_given {
        int32_t seq[MAX_ROWS], pos[MAX_ROWS], table[2 * 3];
    } * at;
    int64_t heads, groups;
};

static bool run_unseen(const struct lf_kernels *k, struct unseen *u, int type, int window,
                       int64_t from, int64_t rows)
{
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)type),
                  qat = from * u->heads * CH * size, kat = from * u->groups * CH * size;
    lf_queue *qu = op_queue_create(1);
    struct lf_k_kv_write w = {.rows = rows,
                              .groups = u->groups,
                              .d = CH,
                              .d_value = CH,
                              .page_tokens = PAGE,
                              .max_pages = 3,
                              .k = (char *)u->k.p + kat,
                              .v = (char *)u->v.p + kat,
                              .ldk = u->groups * CH,
                              .ldv = u->groups * CH,
                              .k_pages = u->kp.p,
                              .v_pages = u->vp.p,
                              .seq = u->at->seq + from,
                              .pos = u->at->pos + from,
                              .table = u->at->table,
                              .x_type = (uint8_t)type};
    struct lf_k_attn_paged a = {.rows = rows,
                                .heads = u->heads,
                                .groups = u->groups,
                                .d = CH,
                                .d_value = CH,
                                .page_tokens = PAGE,
                                .max_pages = 3,
                                .q = (char *)u->q.p + qat,
                                .k_pages = u->kp.p,
                                .v_pages = u->vp.p,
                                .o = (char *)u->o.p + qat,
                                .ldq = u->heads * CH,
                                .ldo = u->heads * CH,
                                .seq = u->at->seq + from,
                                .pos = u->at->pos + from,
                                .table = u->at->table,
                                .scale = 0.2f,
                                .window = window,
                                .x_type = (uint8_t)type};
    a.work_bytes = k->attn_paged.work(&a, 1);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    const bool ok = k->kv_write.run(qu, &w) == 0 && k->attn_paged.run(qu, &a) == 0;
    op_queue_destroy(qu);
    op_free(&work);
    return ok;
}

/* A prompt of FIRST rows, all but the last in one step with the rows of a second sequence, the last
 * one decoded alone; bad: key and value at BAD are NaN, the value after them is infinite. Pages
 * hold NaN where nothing was written. */
static void fill_unseen(const struct lf_kernels *k, struct unseen *u, int type, int window,
                        bool bad)
{
    *u = (struct unseen){.heads = HEADS,
                         .groups = GROUPS,
                         .mem = op_alloc(sizeof *u->at),
                         .q = op_random(ROWS * HEADS * CH, type, 1, 2.0),
                         .k = op_random(ROWS * GROUPS * CH, type, 2, 2.0),
                         .v = op_random(ROWS * GROUPS * CH, type, 3, 1.0)};
    u->at = u->mem.p;
    u->o = op_alloc(u->q.bytes);
    u->kp = op_alloc((size_t)(6 * PAGE) * (u->k.bytes / ROWS));
    u->vp = op_alloc(u->kp.bytes);
    memset(u->kp.p, 0xff, u->kp.bytes);
    memset(u->vp.p, 0xff, u->vp.bytes);
    for (int i = 0; i < ROWS; i++) { /* the second sequence in front, the decoded row at the end */
        u->at->seq[i] = i < SECOND;
        u->at->pos[i] = i < SECOND ? i : i - SECOND;
    }
    for (int i = 0; i < 6; i++)
        u->at->table[i] = (5 * i + 2) % 6;
    for (int64_t i = 0; bad && i < GROUPS * CH; i++) {
        op_set(u->k.p, (SECOND + BAD) * GROUPS * CH + i, type, NAN);
        op_set(u->v.p, (SECOND + BAD) * GROUPS * CH + i, type, NAN);
        op_set(u->v.p, (SECOND + BAD + 1) * GROUPS * CH + i, type, INFINITY);
    }
    if (!run_unseen(k, u, type, window, 0, ROWS - 1) ||
        !run_unseen(k, u, type, window, ROWS - 1, 1))
        tap_bail("attention over the cache fails on %s", k->family);
}

static void free_unseen(struct unseen *u)
{
    struct op_buf *b[] = {&u->mem, &u->q, &u->k, &u->v, &u->kp, &u->vp, &u->o};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
}

static bool any_finite(const struct unseen *u, int row, int type)
{
    for (int64_t i = 0; i < HEADS * CH; i++)
        if (isfinite(op_get(u->o.p, row * HEADS * CH + i, type)))
            return true;
    return false;
}

/* Infinite and NaN keys and values of the cache reach the rows that see them and change no bit of
 * the others: rows before them, rows whose window has passed them, other sequences. */
static void test_unseen(const struct lf_kernels *k, int type, int window)
{
    struct unseen clean, bad;
    int wrong = 0, reached = 0, seen = 0;
    fill_unseen(k, &clean, type, window, false);
    fill_unseen(k, &bad, type, window, true);
    const size_t bytes = clean.o.bytes / ROWS;
    for (int r = 0; r < ROWS; r++) {
        const int pos = bad.at->pos[r];
        const bool sees = bad.at->seq[r] == 0 && pos >= BAD && (!window || pos - BAD - 1 < window);
        seen += sees;
        reached += sees && !any_finite(&bad, r, type);
        wrong += !sees && memcmp((char *)clean.o.p + (size_t)r * bytes,
                                 (char *)bad.o.p + (size_t)r * bytes, bytes) != 0;
    }
    const char *name = type == LF_BF16 ? "bf16" : type == LF_F16 ? "f16" : "f32";
    tap_ok(wrong == 0,
           "what a row does not see changes no bit of it: %s, %s, window %d (%d of %d rows differ)",
           k->family, name, window, wrong, ROWS - seen);
    tap_ok(reached == seen && seen > 10, "and reaches all of the %d rows that see it", seen);
    free_unseen(&clean);
    free_unseen(&bad);
}

/* ---- a row in a small step ---- */

/* The last rows of a document in a step of their own, among rows that belong to no sequence: the
 * bits that they have in a step of many. On a GPU blocks share out the tiles of a small step, here
 * two blocks three tiles. */
static void test_small_step(const struct lf_kernels *k, int type)
{
    enum { LENGTH = 150, AGAIN = 3, SMALL = 32, H = 12, G = 6 };
    struct unseen u = {.heads = H,
                       .groups = G,
                       .mem = op_alloc(sizeof *u.at),
                       .q = op_random((LENGTH + SMALL) * H * CH, type, 1, 2.0),
                       .k = op_random((LENGTH + SMALL) * G * CH, type, 2, 2.0),
                       .v = op_random((LENGTH + SMALL) * G * CH, type, 3, 1.0)};
    const size_t bytes = u.q.bytes / (LENGTH + SMALL), cell = u.k.bytes / (LENGTH + SMALL);
    bool same = true;
    u.at = u.mem.p;
    u.o = op_alloc(u.q.bytes);
    u.kp = op_alloc(6 * PAGE * cell);
    u.vp = op_alloc(u.kp.bytes);
    memset(u.kp.p, 0xff, u.kp.bytes);
    memset(u.vp.p, 0xff, u.vp.bytes);
    for (int i = 0; i < 6; i++)
        u.at->table[i] = 5 - i;
    for (int i = 0; i < LENGTH; i++) {
        u.at->seq[i] = 1;
        u.at->pos[i] = i;
    }
    for (int i = 0; i < SMALL; i++) { /* the last rows once more, backwards */
        const int row = LENGTH - 1 - i, to = LENGTH + i;
        u.at->seq[to] = i < AGAIN ? 1 : -1;
        u.at->pos[to] = i < AGAIN ? row : 0;
        memcpy(at(&u.q, to, bytes), at(&u.q, row, bytes), bytes);
        memcpy(at(&u.k, to, cell), at(&u.k, row, cell), cell);
        memcpy(at(&u.v, to, cell), at(&u.v, row, cell), cell);
    }
    if (!run_unseen(k, &u, type, 0, 0, LENGTH) || !run_unseen(k, &u, type, 0, LENGTH, SMALL))
        tap_bail("attention over the cache fails on %s", k->family);
    for (int i = 0; i < AGAIN; i++)
        same = same &&
               memcmp(at(&u.o, LENGTH + i, bytes), at(&u.o, LENGTH - 1 - i, bytes), bytes) == 0;
    tap_ok(same && memcmp(at(&u.o, 0, bytes), at(&u.o, 1, bytes), bytes) != 0,
           "a row has its bits in a small step too: %s, %s", k->family,
           type == LF_BF16  ? "bf16"
           : type == LF_F16 ? "f16"
                            : "f32");
    free_unseen(&u);
}

/* The emulator is slow: there one feed of each case, pages of 64 and of 128 in turn, and f16, which
 * goes the ways of bf16, in every third case. */
static bool taken(int n, int type, uint64_t seed)
{
    return OP_BACKENDS > 1 ||
           (seed == (uint64_t)(1 + (n + type) % 2) && (type != LF_F16 || n % 3 == 2));
}

int main(void)
{
    static const int windows[] = {
        0, 16, FIRST - BAD - 1}; /* the last row sees both bad keys, none, the second alone */
    for (int i = 0; i < OP_BACKENDS; i++)
        for (int n = 0; n < ATTN_CASES; n++)
            for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
                for (uint64_t seed = 1; seed <= 3; seed++)
                    if (op_kernels(i) && taken(n, type, seed) && attn_cases[n].causal &&
                        attn_cases[n].drop == 0 && attn_cases[n].cu[attn_cases[n].n_docs] > 0)
                        TAP(2, test_case(op_kernels(i), &attn_cases[n], (uint8_t)type, seed));
    for (int i = 0; i < OP_BACKENDS; i++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
            for (int w = 0; w < 3 && op_kernels(i); w++)
                TAP(2, test_unseen(op_kernels(i), type, windows[w]));
    for (int i = 0; i < OP_BACKENDS; i++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
            if (op_kernels(i))
                TAP(1, test_small_step(op_kernels(i), type));
    return tap_done();
}
