/* SPDX-License-Identifier: Apache-2.0
 *
 * The paged cache gives the bits of attn_fwd: documents are fed in random pieces, in random batches with random
 * neighbours, over shuffled pages whose unwritten slots hold NaN; each row's output equals, bit for bit, the row of one
 * attn_fwd over the whole documents. A document with a prefix begins with all of it. The last rows of each document are decoded one at a time.
 */
#include "config.h"

#include "tests/op/attn_ref.h"

enum { MAX_ROWS = 256, MAX_PAGES = 4 };

struct feed {
    const struct lf_kernels *k;
    const struct attn_case *c;
    uint8_t type;
    int64_t ldq, ldk, page;
    size_t size;
    struct op_buf q, kk, v, whole, out, kp, vp, bq, bk, bv, bo;
    int32_t table[12 * MAX_PAGES], done[12];
    uint64_t seed;
    int64_t draw;
    float alibi[8];
    int32_t prefix[12]; /* of the case, within its document: a cache has no end of its own */
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
                              .n_docs = c->n_docs,
                              .q = f->q.p,
                              .k = f->kk.p,
                              .v = f->v.p,
                              .o = f->whole.p,
                              .ldq = f->ldq,
                              .ldk = f->ldk,
                              .ldv = f->ldk,
                              .ldo = f->ldq,
                              .cu_seqlens = c->cu,
                              .prefix = c->open ? c->prefix : NULL,
                              .alibi = c->alibi ? f->alibi : NULL,
                              .scale = (float)attn_ref_scale(c),
                              .softcap = (float)c->softcap,
                              .window = c->window,
                              .causal = true,
                              .x_type = f->type};
    a.work_bytes = f->k->attn_fwd.work(&a, 2);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = lf_cpu_queue_create(2);
    bool ok = f->k->attn_fwd.run(q, &a) == 0;
    lf_cpu_queue_destroy(q);
    op_free(&work);
    return ok;
}

static void feed_open(struct feed *f, const struct lf_kernels *k, const struct attn_case *c, uint8_t type,
                      uint64_t seed)
{
    *f = (struct feed){.k = k, .c = c, .type = type, .seed = seed, .size = lf_dtype_size((enum lf_dtype)type)};
    for (int64_t d = 0; d < c->n_docs; d++)
        f->prefix[d] = c->prefix[d] < c->cu[d + 1] - c->cu[d] ? c->prefix[d] : c->cu[d + 1] - c->cu[d];
    f->ldq = c->heads * c->d;
    f->ldk = c->groups * c->d;
    f->page = seed % 2 ? 64 : 128;
    f->q = op_random(c->rows * f->ldq, type, 1, 2.0);
    f->kk = op_random(c->rows * f->ldk, type, 2, 2.0);
    f->v = op_random(c->rows * f->ldk, type, 3, 1.0);
    f->whole = op_alloc(f->q.bytes);
    f->out = op_alloc(f->q.bytes);
    f->bq = op_alloc((size_t)(MAX_ROWS * f->ldq) * f->size);
    f->bo = op_alloc(f->bq.bytes);
    f->bk = op_alloc((size_t)(MAX_ROWS * f->ldk) * f->size);
    f->bv = op_alloc(f->bk.bytes);
    const int64_t pages = c->n_docs * MAX_PAGES, cells = pages * f->page * f->ldk;
    f->kp = op_alloc((size_t)cells * f->size);
    f->vp = op_alloc((size_t)cells * f->size);
    memset(f->kp.p, 0xff, f->kp.bytes); /* NaN in both types */
    memset(f->vp.p, 0xff, f->vp.bytes);
    for (int64_t i = 0; i < pages; i++)
        f->table[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        int64_t j = pick(f, i + 1);
        int32_t t = f->table[i];
        f->table[i] = f->table[j];
        f->table[j] = t;
    }
    for (int64_t h = 0; h < c->heads; h++)
        f->alibi[h] = (float)attn_ref_slope(c, h);
}

static void feed_close(struct feed *f)
{
    struct op_buf *b[] = {&f->q, &f->kk, &f->v, &f->whole, &f->out, &f->kp, &f->vp, &f->bq, &f->bk, &f->bv, &f->bo};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
}

/* One batch: for each row its document (or -1) and position. */
static bool run_batch(struct feed *f, int64_t rows, const int32_t *seq, const int32_t *pos, int threads)
{
    const struct attn_case *c = f->c;
    for (int64_t r = 0; r < rows; r++) {
        int64_t src = seq[r] < 0 ? 0 : c->cu[seq[r]] + pos[r];
        memcpy(at(&f->bq, r * f->ldq, f->size), at(&f->q, src * f->ldq, f->size), (size_t)f->ldq * f->size);
        memcpy(at(&f->bk, r * f->ldk, f->size), at(&f->kk, src * f->ldk, f->size), (size_t)f->ldk * f->size);
        memcpy(at(&f->bv, r * f->ldk, f->size), at(&f->v, src * f->ldk, f->size), (size_t)f->ldk * f->size);
    }
    struct lf_k_kv_write w = {.rows = rows,
                              .groups = c->groups,
                              .d = c->d,
                              .page_tokens = f->page,
                              .max_pages = MAX_PAGES,
                              .k = f->bk.p,
                              .v = f->bv.p,
                              .ldk = f->ldk,
                              .ldv = f->ldk,
                              .k_pages = f->kp.p,
                              .v_pages = f->vp.p,
                              .seq = seq,
                              .pos = pos,
                              .table = f->table,
                              .x_type = f->type};
    struct lf_k_attn_paged a = {.rows = rows,
                                .heads = c->heads,
                                .groups = c->groups,
                                .d = c->d,
                                .page_tokens = f->page,
                                .max_pages = MAX_PAGES,
                                .q = f->bq.p,
                                .k_pages = f->kp.p,
                                .v_pages = f->vp.p,
                                .o = f->bo.p,
                                .ldq = f->ldq,
                                .ldo = f->ldq,
                                .seq = seq,
                                .pos = pos,
                                .table = f->table,
                                .prefix = c->open ? f->prefix : NULL,
                                .alibi = c->alibi ? f->alibi : NULL,
                                .scale = (float)attn_ref_scale(c),
                                .softcap = (float)c->softcap,
                                .window = c->window,
                                .x_type = f->type};
    a.work_bytes = f->k->attn_paged.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = lf_cpu_queue_create(threads);
    bool ok = f->k->kv_write.check(&w) == 0 && f->k->kv_write.run(q, &w) == 0 && f->k->attn_paged.check(&a) == 0 &&
              f->k->attn_paged.run(q, &a) == 0 && op_guards_intact(&work) && op_guards_intact(&f->bo) &&
              op_guards_intact(&f->kp);
    lf_cpu_queue_destroy(q);
    op_free(&work);
    for (int64_t r = 0; r < rows; r++) {
        if (seq[r] >= 0)
            memcpy(at(&f->out, (c->cu[seq[r]] + pos[r]) * f->ldq, f->size), at(&f->bo, r * f->ldq, f->size),
                   (size_t)f->ldq * f->size);
        for (int64_t i = 0; seq[r] < 0 && i < f->ldq; i++)
            ok = ok && op_get(f->bo.p, r * f->ldq + i, f->type) == 0;
    }
    return ok;
}

static void test_case(const struct lf_kernels *k, const struct attn_case *c, uint8_t type, uint64_t seed)
{
    struct feed f;
    int32_t seq[MAX_ROWS], pos[MAX_ROWS];
    int64_t left = c->cu[c->n_docs];
    feed_open(&f, k, c, type, seed);
    bool ok = whole_documents(&f);
    for (int batch = 0; left > 0 && ok; batch++) {
        int64_t rows = 0;
        for (int64_t s = 0; s < c->n_docs; s++) {
            int64_t d = (s + batch) % c->n_docs, rest = c->cu[d + 1] - c->cu[d] - f.done[d];
            int64_t n = rest > 6 ? 1 + pick(&f, rest > 90 ? 90 : rest - 5) : rest > 0 ? pick(&f, 2) : 0;
            if (c->open && f.done[d] == 0 && n < c->prefix[d]) /* a prefix is written before any of it is read */
                n = c->prefix[d] < rest ? c->prefix[d] : rest;
            for (int64_t i = 0; i < n && rows < MAX_ROWS - 1; i++, rows++, left--) {
                seq[rows] = (int32_t)d;
                pos[rows] = f.done[d]++;
            }
            if (pick(&f, 3) == 0 && rows < MAX_ROWS - 1) {
                seq[rows] = -1;
                pos[rows++] = 0;
            }
        }
        ok = run_batch(&f, rows, seq, pos, 1 + batch % 3);
    }
    size_t bytes = (size_t)(c->cu[c->n_docs] * f.ldq) * f.size;
    tap_ok(ok && memcmp(f.out.p, f.whole.p, bytes) == 0,
           "the cache gives the bits of the whole document: %s, %s, %s, feed %d", c->name, k->family,
           type == LF_BF16 ? "bf16" : "f32", (int)seed);
    ((unsigned char *)f.out.p)[bytes / 2] ^= 1;
    tap_ok(memcmp(f.out.p, f.whole.p, bytes) != 0, "one flipped bit is found");
    feed_close(&f);
}

int main(void)
{
    for (int isa = 0; isa <= LF_ISA_AVX512BF16; isa++)
        for (int n = 0; n < ATTN_CASES; n++)
            for (int type = LF_F32; type <= LF_BF16; type++)
                for (uint64_t seed = 1; seed <= 3; seed++)
                    if (lf_cpu_kernels((enum lf_isa)isa) && attn_cases[n].causal && attn_cases[n].drop == 0 &&
                        attn_cases[n].cu[attn_cases[n].n_docs] > 0)
                        test_case(lf_cpu_kernels((enum lf_isa)isa), &attn_cases[n], (uint8_t)type, seed);
    return tap_done();
}
