/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product's driver: how C is cut into tasks, who packs what, and in which order tiles
 * are computed. The numeric contract (K tree) is in gemm_int.h; nothing here may change the chain
 * of an element.
 *
 * Order. Rows are cut into super-blocks, K into groups of chunks, so that packed A of one
 * (super-block, group) fits its share of L3; all threads pack it together. Then tasks (column block
 * x row block) are taken by whichever thread is free: it packs its column block of B, one chunk at
 * a time, into its own L2-sized buffer and runs down its row panels. Small M is the same path:
 * packed A is tiny, and a task streams its columns of B once.
 *
 * Partial sums between chunks live in C, or in f32 scratch when C is bf16 or when the residual may
 * be C itself.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_onednn.h"
#include "kernels/cpu/gemm_units.h"

LF_CPU_DECLARE(gemm)

enum {
    ROWS_MAX = 1536,      /* rows of a super-block */
    SCRATCH_COLS = 4096,  /* columns at a time when scratch is needed */
    A_BUDGET = 16 << 20,  /* bytes of packed A */
    FEW_ROWS = 2 * LF_MR, /* up to here reading B is what takes the time */
    STREAM_PANELS = 24,
    THREAD_TASKS = 4, /* that a thread should find, so that one which is slower takes fewer */
    TASK_PANELS = 4,  /* of columns, which a task should have nevertheless */
    ALIGN = 64
};
/* Bytes of packed B per thread. Processors with AVX-512 have an L2 of 1 MiB and more, most others
 * one of 256 or 512 KiB. */
enum { B_BUDGET = (LF_AVX512 ? 512 : 128) << 10 };

struct cut {
    enum lf_unit unit;
    int epu; /* elements per unit */
    int64_t units, chunk, chunks;
    int64_t rows, cols;  /* of a super-block */
    int64_t group;       /* chunks per group */
    int64_t b_panels;    /* panels of B packed at a time */
    int64_t task_panels; /* most panels of columns in a task */
    size_t a_bytes, b_bytes, tile_bytes, scratch_bytes;
};

LF_INLINE int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
LF_INLINE int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
LF_INLINE size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static bool plain_store(const struct lf_k_gemm *g)
{
    return g->c_type == LF_F32 && !g->bias && !g->pre && g->act == LF_ACT_NONE && !g->residual;
}

static struct cut cut_of(const struct lf_k_gemm *g)
{
    struct cut c = {.unit = lf_unit_of(g->ab_type)};
    c.epu = c.unit == LF_UNIT_PAIR ? 2 : 1;
    c.units = lf_units(g->k, c.unit);
    c.chunk = lf_k_chunk(c.units);
    c.chunks = div_up(c.units, c.chunk);
    const bool scratch = c.chunks > 1 && (g->c_type != LF_F32 || g->residual);
    int64_t supers = max64(1, div_up(g->m, ROWS_MAX));
    c.rows = div_up(div_up(g->m, supers), LF_MR) * LF_MR;
    c.cols = scratch ? min64(g->n, SCRATCH_COLS) : g->n;
    int64_t panel_bytes = min64(c.chunk, c.units) * 4;
    c.group = min64(max64(1, A_BUDGET / max64(1, c.rows * panel_bytes)), max64(1, c.chunks));
    const bool few = g->m <= FEW_ROWS; /* B streams through: one panel at a time, long tasks */
    int64_t fit = max64(1, B_BUDGET / (LF_NR * panel_bytes));
    c.b_panels = min64(few ? 1 : fit, div_up(g->n, LF_NR));
    c.task_panels = min64(few ? STREAM_PANELS : fit, div_up(g->n, LF_NR));
    c.a_bytes = aligned((size_t)(min64(c.rows, g->m) * panel_bytes * c.group));
    c.b_bytes = aligned((size_t)(c.b_panels * LF_NR * panel_bytes));
    c.tile_bytes = aligned(LF_MR * LF_NR * sizeof(float));
    c.scratch_bytes = scratch ? aligned((size_t)(min64(c.rows, g->m) * c.cols) * sizeof(float)) : 0;
    return c;
}

size_t LF_SYM(gemm_work)(const struct lf_k_gemm *g, int threads)
{
    struct cut c = cut_of(g);
    size_t other = lf_onednn_wants(g) ? lf_onednn_work(g, threads) : 0;
    size_t own = ALIGN + c.a_bytes + c.scratch_bytes + (size_t)threads * (c.b_bytes + c.tile_bytes);
    return other ? other : own;
}

size_t LF_SYM(gemm_work_most)(const struct lf_k_gemm *g, int threads)
{
    const int64_t units = lf_units(g->k, lf_unit_of(g->ab_type)),
                  chunks = div_up(units, LF_K_CHUNK_MAX) + 1;
    const int64_t panel = LF_K_CHUNK_MAX * 4, b = max64(B_BUDGET, LF_NR * panel),
                  rows = min64(g->m, ROWS_MAX + LF_MR);
    const int64_t a = min64(rows * (units + 16 * chunks) * 4, max64(A_BUDGET, rows * panel));
    const size_t scratch =
        g->c_type == LF_F32 && !g->residual
            ? 0
            : aligned((size_t)(rows * min64(g->n, SCRATCH_COLS)) * sizeof(float));
    return ALIGN + aligned((size_t)a) + scratch +
           (size_t)threads * (aligned((size_t)b) + aligned(LF_MR * LF_NR * sizeof(float)));
}

int LF_SYM(gemm_check)(const struct lf_k_gemm *g)
{
    bool types = (g->ab_type == LF_F32 || g->ab_type == LF_BF16) &&
                 (g->c_type == LF_F32 || g->c_type == LF_BF16) &&
                 (!g->bias || g->bias_type == LF_F32 || g->bias_type == LF_BF16) &&
                 g->act <= LF_ACT_RELU;
    bool sizes = g->m >= 0 && g->n > 0 && g->k > 0 && g->lda >= (g->ta ? g->m : g->k) &&
                 g->ldc >= g->n && (g->b_packed || g->ldb >= (g->tb ? g->k : g->n)) &&
                 (!g->pre || g->ldpre >= g->n) && (!g->residual || g->ldres >= g->n);
    return types && sizes && (!g->accumulate || plain_store(g)) ? LF_K_OK : LF_K_EINVAL;
}

/* How a (rows x cols) block is cut into tasks of `cp` panels of columns and `rp` panels of rows.
 * The estimate counts multiply-adds of whole rounds of all threads, plus what packing B again for
 * each row block costs (about 8 panels' rows). */
static void choose_tasks(int64_t row_panels, int64_t col_panels, int64_t cp_max, int threads,
                         int64_t *cp, int64_t *rp)
{
    const int64_t pack_cost = 1;
    double best = 0;
    if (threads > 1)
        cp_max = min64(cp_max, max64(TASK_PANELS, col_panels / (THREAD_TASKS * threads)));
    *cp = min64(cp_max, col_panels);
    *rp = row_panels;
    if (threads == 1)
        return;
    for (int64_t r = 1; r <= 8 * threads; r *= 2) {
        int64_t rows = div_up(row_panels, r), row_blocks = div_up(row_panels, rows);
        for (int64_t c = min64(cp_max, col_panels); c >= 1; c--) {
            int64_t tasks = div_up(col_panels, c) * row_blocks, rounds = div_up(tasks, threads);
            double cost = (double)(rounds * c) * (double)(rows + pack_cost) + (double)rounds * 0.25;
            if (best == 0 || cost < best * 0.995) {
                best = cost;
                *cp = c;
                *rp = rows;
            }
        }
        if (rows <= 4)
            break;
    }
}

struct job {
    lf_queue *q;
    const struct lf_k_gemm *g;
    struct cut c;
    struct lf_operand a, b;
    uint32_t *pa; /* packed A of the current super-block and group */
    float *scratch;
    unsigned char *private; /* per thread: packed B, tile */
    int64_t m0, m1, n0, n1; /* current super-block */
    int64_t g0, g1;         /* current chunks */
    int64_t cp, rp;         /* panels per task */
    int64_t next;           /* task */
};

LF_INLINE int64_t chunk_units(const struct cut *c, int64_t i)
{
    return min64(c->chunk, c->units - i * c->chunk);
}

/* Word offset of (chunk, panel of rows) in packed A. */
LF_INLINE int64_t a_offset(const struct job *j, int64_t chunk, int64_t panel)
{
    int64_t rows = j->m1 - j->m0;
    return (chunk - j->g0) * j->c.chunk * rows + panel * LF_MR * chunk_units(&j->c, chunk);
}

static void pack_a(const struct job *j, int64_t chunk, int64_t p0, int64_t p1)
{
    int64_t l0 = j->m0 + p0 * LF_MR, l1 = min64(j->m0 + p1 * LF_MR, j->m1);
    int64_t k0 = chunk * j->c.chunk * j->c.epu,
            kn = min64(j->g->k - k0, chunk_units(&j->c, chunk) * j->c.epu);
    LF_SYM(pack)(j->pa + a_offset(j, chunk, p0), &j->a, l0, l1 - l0, LF_MR, true, k0, kn);
}

/* Few rows take the caller's bf16 panels as they are; for many it pays to widen them once. */
LF_INLINE bool widen_in_micro(const struct job *j)
{
    return j->g->b_packed && j->c.unit == LF_UNIT_BF16_AS_F32 && j->g->m <= FEW_ROWS;
}

/* Panels [p0, p1) of B for one chunk: packed into buf, or found (or widened) in what the caller
 * packed. */
static const void *get_b(const struct job *j, int64_t chunk, int64_t p0, int64_t p1, uint32_t *buf)
{
    const struct lf_k_gemm *g = j->g;
    int64_t units = chunk_units(&j->c, chunk), panels = div_up(g->n, LF_NR),
            k0 = chunk * j->c.chunk;
    int64_t at = (k0 * panels + p0 * units) * LF_NR;
    if (g->b_packed && j->c.unit != LF_UNIT_BF16_AS_F32)
        return (const uint32_t *)g->b_packed + at;
    if (g->b_packed) {
        const uint16_t *src = (const uint16_t *)g->b_packed + at;
        if (widen_in_micro(j))
            return src;
        for (int64_t i = 0; i < (p1 - p0) * units * LF_NR; i += LF_VL)
            lf_v_store((float *)buf + i, lf_v_load_bf16(src + i));
        return buf;
    }
    int64_t l0 = p0 * LF_NR, lanes = min64(p1 * LF_NR, g->n) - l0;
    int64_t kn = min64(g->k - k0 * j->c.epu, units * j->c.epu);
    if (g->m <= FEW_ROWS)
        LF_SYM(stream_in)(&j->b, l0, lanes, k0 * j->c.epu, kn);
    LF_SYM(pack)(buf, &j->b, l0, lanes, LF_NR, false, k0 * j->c.epu, kn);
    return buf;
}

/* tile (+)= part, and part = tile: m rows, n columns. */
static void tile_add(float *t, const float *part, int64_t ld, int m, int n)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < n; v += LF_VL) {
            int w = n - v < LF_VL ? n - v : LF_VL;
            lf_v_store(t + i * LF_NR + v,
                       lf_v_load_n(part + i * ld + v, w) + lf_v_load(t + i * LF_NR + v));
        }
}

static void tile_put(float *part, int64_t ld, const float *t, int m, int n)
{
    for (int i = 0; i < m; i++)
        for (int v = 0; v < n; v += LF_VL)
            lf_v_store_n(part + i * ld + v, lf_v_load(t + i * LF_NR + v),
                         n - v < LF_VL ? n - v : LF_VL);
}

/* Where the partial sums of C(row, col) live, NULL when a single chunk goes straight to bf16. */
LF_INLINE float *part_of(const struct job *j, int64_t row, int64_t col, int64_t *ld)
{
    *ld = j->scratch ? j->c.cols : j->g->ldc;
    if (j->scratch)
        return j->scratch + (row - j->m0) * *ld + (col - j->n0);
    return j->g->c_type == LF_F32 ? (float *)j->g->c + row * *ld + col : NULL;
}

/* A tile of one chunk's sums: onto the partial sums, or on to C. */
static void finish_tile(const struct job *j, int64_t ch, float *tile, int64_t row, int64_t col,
                        int m, int n)
{
    int64_t ld;
    float *part = part_of(j, row, col, &ld);
    if (ch > 0 || j->g->accumulate)
        tile_add(tile, part, ld, m, n);
    if (ch == j->c.chunks - 1)
        LF_SYM(epilogue)(j->g, tile, row, col, m, n);
    else
        tile_put(part, ld, tile, m, n);
}

/* One chunk of column panels [p0, p1), packed at b, by row panels [r0, r1) of the current
 * super-block. */
static void run_block(const struct job *j, int64_t ch, const void *b, int64_t p0, int64_t p1,
                      int64_t r0, int64_t r1, float *tile)
{
    const struct lf_k_gemm *g = j->g;
    const bool simple = plain_store(g), add = ch > 0 || g->accumulate, last = ch == j->c.chunks - 1;
    const int64_t units = chunk_units(&j->c, ch);
#if LF_BF16_DOT
    lf_micro *const *micro = j->c.unit == LF_UNIT_PAIR ? LF_SYM(micro_pair) : LF_SYM(micro_f32);
#else
    lf_micro *const *micro = widen_in_micro(j) ? LF_SYM(micro_wide) : LF_SYM(micro_f32);
#endif
    const int64_t b_bytes = widen_in_micro(j) ? 2 : 4;
    for (int64_t r = r0; r < r1; r++) {
        lf_border(j->q);
        const int64_t row = j->m0 + r * LF_MR;
        const int m = (int)min64(LF_MR, j->m1 - row);
        const uint32_t *a = j->pa + a_offset(j, ch, r);
        for (int64_t p = p0; p < p1; p++) {
            const int64_t col = p * LF_NR;
            const int n = (int)min64(LF_NR, g->n - col);
            const void *next =
                p == p0 ? a + m * units : NULL; /* the next row panel follows in memory */
            const void *bp = (const char *)b + (p - p0) * units * LF_NR * b_bytes;
            int64_t ld;
            float *part = part_of(j, row, col, &ld);
            if (n == LF_NR && part && (!last || simple)) {
                micro[m](units, a, bp, part, ld, add, next);
                continue;
            }
            micro[m](units, a, bp, tile, LF_NR, false, next);
            finish_tile(j, ch, tile, row, col, m, n);
        }
    }
}

/* One chunk of one column panel for a single narrow row panel, straight from unpacked weights. */
static void run_stream(const struct job *j, int64_t ch, int64_t p, float *tile)
{
    const int64_t l0 = p * LF_NR, k0 = ch * j->c.chunk * j->c.epu,
                  kn = min64(j->g->k - k0, chunk_units(&j->c, ch) * j->c.epu);
    const int n = (int)min64(LF_NR, j->g->n - l0), m = (int)(j->m1 - j->m0);
    LF_SYM(stream_in)(&j->b, l0, n, k0, kn);
    LF_SYM(stream_tile)(&j->b, m, j->pa + a_offset(j, ch, 0), l0, n, k0, kn, tile);
    finish_tile(j, ch, tile, j->m0, l0, m, n);
}

/* Column panels [p0, p1) by row panels [r0, r1): all chunks of the group. */
static void run_task(const struct job *j, int64_t p0, int64_t p1, int64_t r0, int64_t r1,
                     uint32_t *buf, float *tile)
{
    if (j->m1 - j->m0 <= LF_STREAM_ROWS && !j->g->b_packed && j->b.k_fast) {
        for (int64_t p = p0; p < p1; p++) {
            lf_border(j->q);
            for (int64_t ch = j->g0; ch < j->g1; ch++)
                run_stream(j, ch, p, tile);
        }
        return;
    }
    for (int64_t p = p0; p < p1; p += j->c.b_panels)
        for (int64_t ch = j->g0; ch < j->g1; ch++) {
            int64_t end = min64(p + j->c.b_panels, p1);
            run_block(j, ch, get_b(j, ch, p, end, buf), p, end, r0, r1, tile);
        }
}

enum { PACK_PANELS = 8 }; /* row panels that one piece packs */

static void pack_pieces(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct job *j = arg;
    const int64_t rows = div_up(j->m1 - j->m0, LF_MR), chunks = j->g1 - j->g0;
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t p0 = i / chunks * PACK_PANELS;
        pack_a(j, j->g0 + i % chunks, p0, min64(p0 + PACK_PANELS, rows));
    }
}

/* Takes tasks until there are none. */
static void run_tasks(void *arg, int member)
{
    struct job *j = arg;
    const int64_t rows = div_up(j->m1 - j->m0, LF_MR);
    unsigned char *mine = j->private + (size_t)member * (j->c.b_bytes + j->c.tile_bytes);
    const int64_t col0 = j->n0 / LF_NR, col1 = div_up(j->n1, LF_NR);
    const int64_t col_blocks = div_up(col1 - col0, j->cp), row_blocks = div_up(rows, j->rp);
    for (int64_t t = lf_take(&j->next); t < col_blocks * row_blocks; t = lf_take(&j->next)) {
        const int64_t p0 = col0 + t % col_blocks * j->cp, r0 = t / col_blocks * j->rp;
        run_task(j, p0, min64(p0 + j->cp, col1), r0, min64(r0 + j->rp, rows),
                 (uint32_t *)(void *)mine, (float *)(void *)(mine + j->c.b_bytes));
    }
}

/* One super-block and one group of chunks. */
static void run_group(struct job *j, int threads)
{
    const int64_t rows = div_up(j->m1 - j->m0, LF_MR);
    lf_deal(j->q, threads, div_up(rows, PACK_PANELS) * (j->g1 - j->g0), 1, pack_pieces, j);
    j->next = 0;
    lf_team_call(j->q, threads, run_tasks, j);
}

static void run_supers(struct job *j, int threads)
{
    const struct lf_k_gemm *g = j->g;
    for (j->n0 = 0; j->n0 < g->n; j->n0 = j->n1) {
        j->n1 = min64(j->n0 + j->c.cols, g->n);
        for (j->m0 = 0; j->m0 < g->m; j->m0 = j->m1) {
            j->m1 = min64(j->m0 + j->c.rows, g->m);
            choose_tasks(div_up(j->m1 - j->m0, LF_MR), div_up(j->n1 - j->n0, LF_NR),
                         j->c.task_panels, threads, &j->cp, &j->rp);
            for (j->g0 = 0; j->g0 < j->c.chunks; j->g0 = j->g1) {
                j->g1 = min64(j->g0 + j->c.group, j->c.chunks);
                run_group(j, threads);
            }
        }
    }
}

int LF_SYM(gemm)(lf_queue *q, const struct lf_k_gemm *g)
{
    if (LF_SYM(gemm_check)(g))
        return LF_K_EINVAL;
    if (g->m == 0)
        return LF_K_OK;
    if (lf_onednn_wants(g))
        return lf_onednn_gemm(q, g);
    if (g->work_bytes < LF_SYM(gemm_work)(g, q->threads))
        return LF_K_EINVAL;
    struct job j = {.q = q, .g = g, .c = cut_of(g)};
    j.a = (struct lf_operand){.p = g->a, .ld = g->lda, .k_fast = !g->ta, .unit = j.c.unit};
    j.b = (struct lf_operand){.p = g->b, .ld = g->ldb, .k_fast = g->tb, .unit = j.c.unit};
    unsigned char *w = (unsigned char *)g->work + (ALIGN - (uintptr_t)g->work % ALIGN) % ALIGN;
    j.pa = (uint32_t *)(void *)w;
    w += j.c.a_bytes;
    j.scratch = j.c.scratch_bytes ? (float *)(void *)w : NULL;
    w += j.c.scratch_bytes;
    j.private = w;
    run_supers(&j, q->threads);
    return LF_K_OK;
}
