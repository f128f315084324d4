/* SPDX-License-Identifier: Apache-2.0
 *
 * The scan and its backward (kernels/scan.h has the formulas). The backward is three kernels:
 * states, U and T from the first chunk to the last; R and gradients of states from the last to the
 * first; then every chunk by itself. Chunk i of document d is number cu[d] / 64 + d + i.
 */
#include "kernels/cuda/dev.h"
#include "kernels/cuda/scan_args.h"

enum { CHUNK = LF_SCAN_CHUNK, COLS = LF_SCAN_COLS, TRI = LF_SCAN_TRI };
/* Shared memory has room for two blocks at most, so registers need not be saved for more. */
enum { PER_SM = 2 };
/* Sums of 64 decays not below FADED are 8,192 at most and lack 2^-11 at most. */
#define FADED (-128.0f)
#define LACK  1024.0f

/* Shared memory of a block. */
struct scan_mem {
    float *q, *k;   /* [64][dk + 1] */
    float *g;       /* [64] or [64][dk]: G as f32 sums */
    uint16_t *lack; /* what each of them lacks, times LACK, as f16 */
    float *beta;    /* [64] */
    float *p;       /* [64][65]: P, and above the diagonal A without beta (scan_ag) */
    float *u, *w;   /* [64][32] */
    float *s;       /* [dk][32] */
    int dk, width;  /* width: channels of a decay */
};

LF_DEV struct scan_mem scan_lay(float *at, const struct lf_scan_in *in)
{
    struct scan_mem m;
    m.dk = (int)in->dk;
    m.width = in->per_channel ? m.dk : 1;
    m.q = at;
    m.k = m.q + CHUNK * (m.dk + 1);
    m.g = m.k + CHUNK * (m.dk + 1);
    m.lack = (uint16_t *)(m.g + CHUNK * m.width);
    m.beta = m.g + CHUNK * m.width + CHUNK / 2 * m.width;
    m.p = m.beta + CHUNK;
    m.u = m.p + CHUNK * TRI;
    m.w = m.u + CHUNK * COLS;
    m.s = m.w + CHUNK * COLS;
    return m;
}

/* A_ij without beta, j < i. */
LF_DEV float *scan_ag(const struct scan_mem *m, int i, int j)
{
    return m->p + j * TRI + i;
}

LF_DEV float scan_g(const struct scan_mem *m, int i, int c)
{
    return m->g[m->width > 1 ? i * m->width + c : i];
}

/* e^(G_i - G_j) of channel c. */
LF_DEV float scan_decay(const struct scan_mem *m, int i, int j, int c)
{
    const int a = m->width > 1 ? i * m->width + c : i, b = m->width > 1 ? j * m->width + c : j;
    const float rest = (lf_f16_f(m->lack[a]) - lf_f16_f(m->lack[b])) * (1.0f / LACK);
    return expf((m->g[a] - m->g[b]) + rest);
}

/* A warp: a row of q or k as products take it. */
LF_DEV void scan_row(float *to, const void *x, int64_t at, const struct lf_scan_in *in, float scale)
{
    const int lane = (int)threadIdx.x % 32, dk = (int)in->dk;
    float sum = 0.0f;
    for (int c = lane; c < dk && in->unit_eps > 0.0f; c += 32) {
        const float v = lf_load(x, at + c, in->x_type);
        sum = fmaf(v, v, sum);
    }
    if (in->unit_eps > 0.0f)
        scale = scale / sqrtf(lf_warp_sum(sum) + in->unit_eps);
    for (int c = lane; c < dk; c += 32)
        to[c] = lf_load(x, at + c, in->x_type) * scale;
}

/* The decay of channel c in row r of the call; e^FADED is 0. */
LF_DEV float scan_step(const struct lf_scan_in *in, int64_t r, int64_t h, int width, int c)
{
    const float g = in->g[r * in->ldg + h * width + c];
    return g < FADED ? FADED : g;
}

/* G of channel c over rows [0, n) of a chunk that begins at row `row` of the call; the decays of
 * rows below i0 stand in m->g. Two floats are carried, of which the second is kept shorter. */
LF_DEV void scan_sums(const struct scan_mem *m, const struct lf_scan_in *in, int64_t row, int64_t h,
                      int c, int i0, int n)
{
    float sum = 0.0f, lack = 0.0f;
    for (int i = 0; i < n; i++) {
        const int at = i * m->width + c;
        const float g = i < i0 ? m->g[at] : scan_step(in, row + i, h, m->width, c), high = sum + g,
                    part = high - sum, low = lack + ((sum - (high - part)) + (g - part));
        sum = high + low;
        lack = low - (sum - high);
        m->g[at] = sum;
        m->lack[at] = lf_f_f16(lack * LACK);
    }
}

/* Rows [i0, n) of a chunk; into u 32 columns, from v0 on, of x [R, H dv]. */
LF_DEV void scan_load(const struct scan_mem *m, const struct lf_scan_in *in, const void *x,
                      int64_t ldx, int64_t row, int64_t h, int64_t v0, int i0, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t j = h / (in->heads / in->groups), v = v0 + lane;
    for (int i = i0 + warp; i < n; i += 8) {
        const int64_t r = row + i;
        scan_row(m->q + i * (m->dk + 1), in->q, r * in->ldq + j * in->dk, in, in->scale);
        scan_row(m->k + i * (m->dk + 1), in->k, r * in->ldk + j * in->dk, in, 1.0f);
        if (x)
            m->u[i * COLS + lane] =
                v < in->dv ? lf_load(x, r * ldx + h * in->dv + v, in->x_type) : 0.0f;
        if (lane == 0)
            m->beta[i] = in->beta ? in->beta[r * in->ldbeta + h] : 1.0f;
    }
    for (int c = (int)threadIdx.x; c < m->width; c += LF_SCAN_THREADS)
        scan_sums(m, in, row, h, c, i0, n);
    __syncthreads();
}

/* (x_i . k_j) Gam_ij. */
LF_DEV float scan_pair(const struct scan_mem *m, const float *x, int i, int j)
{
    const float *a = x + i * (m->dk + 1), *b = m->k + j * (m->dk + 1);
    float sum = 0.0f;
    if (m->width == 1) {
        for (int c = 0; c < m->dk; c++)
            sum = fmaf(a[c], b[c], sum);
        return sum * scan_decay(m, i, j, 0);
    }
    for (int c = 0; c < m->dk; c++)
        sum = fmaf(a[c] * scan_decay(m, i, j, c), b[c], sum);
    return sum;
}

LF_DEV void scan_scores(const struct scan_mem *m, bool delta, int i0, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = i0 + warp; i < n; i += 8)
        for (int j = lane; j <= i; j += 32) {
            m->p[i * TRI + j] = scan_pair(m, m->q, i, j);
            if (j < i)
                *scan_ag(m, i, j) = delta ? scan_pair(m, m->k, i, j) : 0.0f;
        }
    __syncthreads();
}

/* This lane's column of e^G x_i S. */
LF_DEV float scan_through(const struct scan_mem *m, const float *x, int i)
{
    const int lane = (int)threadIdx.x % 32;
    const float *a = x + i * (m->dk + 1);
    float sum = 0.0f;
    for (int c = 0; c < m->dk; c++)
        sum = fmaf(m->width > 1 ? a[c] * expf(scan_g(m, i, c)) : a[c], m->s[c * COLS + lane], sum);
    return m->width > 1 ? sum : sum * expf(m->g[i]);
}

/* U of rows [i0, n) in u, from V there. T goes to t + row ld where it is wanted. */
LF_DEV void scan_solve(const struct scan_mem *m, bool delta, bool has_s, float *t, int64_t ld,
                       int i0, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = i0 + warp; i < n; i += 8) {
        float v = m->u[i * COLS + lane];
        if (delta && has_s)
            v = v - scan_through(m, m->k, i);
        if (t)
            t[i * ld] = v;
        m->u[i * COLS + lane] = m->beta[i] * v;
    }
    __syncthreads();
    for (int j = 0; j + 1 < n && delta; j++) {
        const float u = m->u[j * COLS + lane];
        for (int i = warp; i < n; i += 8)
            if (i > j && i >= i0)
                m->u[i * COLS + lane] =
                    fmaf(-(m->beta[i] * *scan_ag(m, i, j)), u, m->u[i * COLS + lane]);
        __syncthreads();
    }
}

LF_DEV void scan_fold(const struct scan_mem *m, bool has_s, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int c = warp; c < m->dk; c += 8) {
        float sum = has_s ? m->s[c * COLS + lane] * expf(scan_g(m, n - 1, c)) : 0.0f;
        for (int j = 0; j < n; j++)
            sum = fmaf(m->k[j * (m->dk + 1) + c] * scan_decay(m, n - 1, j, c),
                       m->u[j * COLS + lane], sum);
        m->s[c * COLS + lane] = sum;
    }
    __syncthreads();
}

/* The rows of a block: [row, row + n), after `before` of earlier calls. seq -1: they give zeros. */
struct scan_span {
    int64_t row, n, before, seq;
};
LF_DEV struct scan_span scan_span_of(const struct lf_k_scan_fwd *a, int64_t at)
{
    const struct lf_scan_in *in = &a->in;
    struct scan_span s;
    if (!a->state) {
        s.row = in->cu_seqlens[at] < in->rows ? in->cu_seqlens[at] : in->rows;
        s.n = (at < in->n_docs && in->cu_seqlens[at + 1] < in->rows ? in->cu_seqlens[at + 1]
                                                                    : in->rows) -
              s.row;
        s.before = 0;
        s.seq = at < in->n_docs ? at : -1;
        return s;
    }
    s.row = at;
    s.seq = a->seq[at];
    s.before = a->pos[at];
    s.n = 0;
    if (at > 0 && a->seq[at - 1] == s.seq)
        return s;
    for (s.n = 1; at + s.n < in->rows && a->seq[at + s.n] == s.seq;)
        s.n++;
    return s;
}

/* What the slot has of a head, and takes back: S and, of the open chunk, U; G and k of it are left
 * to scan_keep, because other blocks read them. */
LF_DEV void scan_get(const struct scan_mem *m, const struct lf_cu_scan_fwd *f, int64_t seq,
                     int64_t h, int64_t v, bool has_s, int open)
{
    const struct lf_scan_in *in = &f->k.in;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const float *base = f->k.state + seq * f->slot, *s = base + h * f->head,
                *u = s + f->dkp * f->dvp, *g = u + CHUNK * f->dvp,
                *k = base + in->heads * f->head + h / (in->heads / in->groups) * (CHUNK * f->dkp);
    for (int c = warp; c < m->dk && has_s; c += 8)
        m->s[c * COLS + lane] = v < in->dv ? s[c * f->dvp + v] : 0.0f;
    for (int i = warp; i < open; i += 8) {
        m->u[i * COLS + lane] = v < in->dv ? u[i * f->dvp + v] : 0.0f;
        for (int c = lane; c < m->dk; c += 32)
            m->k[i * (m->dk + 1) + c] = k[i * f->dkp + c];
        for (int c = lane; c < m->width; c += 32)
            m->g[i * m->width + c] = g[m->width > 1 ? i * f->dkp + c : i];
    }
    __syncthreads();
}
LF_DEV void scan_put(const struct scan_mem *m, const struct lf_cu_scan_fwd *f, int64_t seq,
                     int64_t h, int64_t v, bool has_s, int open)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float *s = f->k.state + seq * f->slot + h * f->head, *u = s + f->dkp * f->dvp;
    if (v >= f->k.in.dv)
        return;
    for (int c = warp; c < m->dk && has_s; c += 8)
        s[c * f->dvp + v] = m->s[c * COLS + lane];
    for (int i = warp; i < open; i += 8)
        u[i * f->dvp + v] = m->u[i * COLS + lane];
}

/* x: documents and the padding, or rows of which the first of a sequence's counts; y: heads; z: 32
 * columns. */
LF_KERNEL_PER_SM(scan_fwd, struct lf_cu_scan_fwd, LF_SCAN_THREADS, PER_SM)
{
    LF_SHARED(float, smem);
    const struct lf_scan_in *in = &a->k.in;
    const struct scan_mem m = scan_lay(smem, in);
    const struct scan_span s = scan_span_of(&a->k, blockIdx.x);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t h = blockIdx.y, v0 = (int64_t)blockIdx.z * COLS, v = v0 + lane;
    const bool fast = a->k.state && !a->open;
    const int open = a->k.state && !fast ? (int)(s.before % CHUNK) : 0;
    bool has_s = fast ? s.before > 0 : s.before >= CHUNK;
    int left = 0;
    for (int64_t r = s.row + warp; s.seq < 0 && a->k.o && r < s.row + s.n; r += 8)
        if (v < in->dv)
            lf_store(a->k.o, r * a->k.ldo + h * in->dv + v, in->x_type, 0.0f);
    if (s.seq < 0 || s.n == 0)
        return;
    if (a->k.state && s.before)
        scan_get(&m, a, s.seq, h, v, has_s, open);
    for (int64_t at = -open; at < s.n; at += CHUNK) {
        const int i0 = at < 0 ? open : 0, n = (int)(s.n - at < CHUNK ? s.n - at : CHUNK);
        const int64_t row = s.row + at, to = (row * in->heads + h) * in->dv + v,
                      ld = in->heads * in->dv;
        if (a->states && has_s) {
            float *save = a->states +
                          ((s.row / CHUNK + s.seq + at / CHUNK) * in->heads + h) * in->dk * in->dv;
            for (int c = warp; c < m.dk && v < in->dv; c += 8)
                save[c * in->dv + v] = m.s[c * COLS + lane];
        }
        scan_load(&m, in, in->v, in->ldv, row, h, v0, i0, n);
        scan_scores(&m, in->delta, i0, n);
        scan_solve(&m, in->delta, has_s, a->t && v < in->dv ? a->t + to : NULL, ld, i0, n);
        for (int i = i0 + warp; i < n && v < in->dv; i += 8) {
            if (!a->k.o) {
                a->u[to + i * ld] = m.u[i * COLS + lane];
                continue;
            }
            float o = has_s ? scan_through(&m, m.q, i) : 0.0f;
            for (int j = 0; j <= i; j++)
                o = fmaf(m.p[i * TRI + j], m.u[j * COLS + lane], o);
            if (in->skip)
                o = fmaf(in->skip[h],
                         lf_load(in->v, (row + i) * in->ldv + h * in->dv + v, in->x_type), o);
            lf_store(a->k.o, (row + i) * a->k.ldo + h * in->dv + v, in->x_type, o);
        }
        __syncthreads();
        left = n % CHUNK;
        if (a->k.state ? fast || !left : at + n < s.n) {
            scan_fold(&m, has_s, n);
            has_s = true;
        }
    }
    if (a->k.state)
        scan_put(&m, a, s.seq, h, v, has_s, fast ? 0 : left);
}

/* Keys and decays of the open chunk, for the last row of each sequence. x: rows, y: heads. */
LF_KERNEL_PER_SM(scan_keep, struct lf_cu_scan_fwd, LF_SCAN_THREADS, 4)
{
    const struct lf_scan_in *in = &a->k.in;
    const int64_t r = blockIdx.x, h = blockIdx.y, seq = a->k.seq[r], per = in->heads / in->groups;
    const int warp = (int)threadIdx.x / 32, width = in->per_channel ? (int)in->dk : 1,
              n = (int)((a->k.pos[r] + 1) % CHUNK);
    if (seq < 0 || n == 0 || (r + 1 < in->rows && a->k.seq[r + 1] == seq))
        return;
    int have = 1;
    while (have < n && r - have >= 0 && a->k.seq[r - have] == seq)
        have++;
    float *base = a->k.state + seq * a->slot,
          *g = base + h * a->head + a->dkp * a->dvp + CHUNK * a->dvp,
          *k = base + in->heads * a->head + h / per * (CHUNK * a->dkp);
    const int i0 = n - have;
    const int64_t row = r - (n - 1);
    for (int e = (int)threadIdx.x; e < have * width; e += LF_SCAN_THREADS) {
        const int i = i0 + e / width, c = e % width;
        g[width > 1 ? i * a->dkp + c : i] = scan_step(in, row + i, h, width, c);
    }
    for (int i = i0 + warp; i < n && h % per == 0; i += 8)
        scan_row(k + i * a->dkp, in->k, (row + i) * in->ldk + h / per * in->dk, in, 1.0f);
}

/* R, and the gradients of states behind chunks. x: documents, y: heads, z: 32 columns. */
LF_KERNEL_PER_SM(scan_back, struct lf_cu_scan_bwd, LF_SCAN_THREADS, PER_SM)
{
    LF_SHARED(float, smem);
    const struct lf_scan_in *in = &a->k.in;
    const struct scan_mem m = scan_lay(smem, in); /* u: dO, w: R, s: dS+ */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t h = blockIdx.y, v0 = (int64_t)blockIdx.z * COLS, v = v0 + lane, d = blockIdx.x,
                  first = in->cu_seqlens[d],
                  end = in->cu_seqlens[d + 1] < in->rows ? in->cu_seqlens[d + 1] : in->rows,
                  chunks = (end - first + CHUNK - 1) / CHUNK;
    bool has = false;
    for (int64_t i64 = chunks - 1; i64 >= 0; i64--) {
        const int64_t row = first + i64 * CHUNK, slot = first / CHUNK + d + i64;
        const int n = (int)(end - row < CHUNK ? end - row : CHUNK);
        scan_load(&m, in, a->k.d_o, a->k.lddo, row, h, v0, 0, n);
        scan_scores(&m, in->delta, 0, n);
        float *save = a->dstates + (slot * in->heads + h) * in->dk * in->dv;
        for (int c = warp; c < m.dk && has && v < in->dv; c += 8)
            save[c * in->dv + v] = m.s[c * COLS + lane];
        for (int j = warp; j < n; j += 8) {
            float sum = 0.0f;
            for (int i = j; i < n; i++)
                sum = fmaf(m.p[i * TRI + j], m.u[i * COLS + lane], sum);
            for (int c = 0; c < m.dk && has; c++)
                sum = fmaf(m.k[j * (m.dk + 1) + c] * scan_decay(&m, n - 1, j, c),
                           m.s[c * COLS + lane], sum);
            m.w[j * COLS + lane] = sum;
        }
        __syncthreads();
        for (int i = n - 1; i > 0 && in->delta; i--) {
            const float r = m.w[i * COLS + lane];
            for (int j = warp; j < i; j += 8)
                m.w[j * COLS + lane] =
                    fmaf(-(m.beta[i] * *scan_ag(&m, i, j)), r, m.w[j * COLS + lane]);
            __syncthreads();
        }
        for (int i = warp; i < n && v < in->dv; i += 8)
            a->r[((row + i) * in->heads + h) * in->dv + v] = m.w[i * COLS + lane];
        for (int c = warp; c < m.dk && i64; c += 8) {
            float sum = has ? m.s[c * COLS + lane] * expf(scan_g(&m, n - 1, c)) : 0.0f;
            for (int i = 0; i < n; i++) {
                const float e = expf(scan_g(&m, i, c));
                sum = fmaf(m.q[i * (m.dk + 1) + c] * e, m.u[i * COLS + lane], sum);
                if (in->delta)
                    sum =
                        fmaf(-(m.k[i * (m.dk + 1) + c] * e * m.beta[i]), m.w[i * COLS + lane], sum);
            }
            m.s[c * COLS + lane] = sum;
        }
        has = true;
        __syncthreads();
    }
}

/* Shared memory of scan_grads: first that of scan_lay, whose triangles are dA and dP. */
struct grad_mem {
    float *d_o, *u, *r; /* [64][ld] */
    float *s, *ds;      /* [dk][ld] */
    float *dbeta, *dg;  /* [64] */
    float *read;        /* [64] k . dk through S+ */
    float *tail;        /* [dk] */
    int cols, ld;       /* columns at a time; LF_SCAN_LD of them */
};

/* The columns of a chunk from v0 on: rows of dO, U, R, and S before it, dS+ behind it. */
LF_DEV void grad_load(const struct grad_mem *x, const struct lf_cu_scan_bwd *a, int64_t row,
                      int64_t h, int64_t slot, int64_t v0, int n, bool has_s, bool has_ds)
{
    const struct lf_scan_in *in = &a->k.in;
    const int w = (int)threadIdx.x % x->cols, i0 = (int)threadIdx.x / x->cols,
              step = LF_SCAN_THREADS / x->cols;
    const int64_t v = v0 + w;
    const bool in_v = v < in->dv;
    for (int i = i0; i < n; i += step) {
        const int64_t at = ((row + i) * in->heads + h) * in->dv + v;
        x->d_o[i * x->ld + w] =
            in_v ? lf_load(a->k.d_o, (row + i) * a->k.lddo + h * in->dv + v, in->x_type) : 0.0f;
        x->u[i * x->ld + w] = in_v ? a->u[at] : 0.0f;
        x->r[i * x->ld + w] = in_v ? a->r[at] : 0.0f;
    }
    const int64_t base = (slot * in->heads + h) * in->dk * in->dv + v;
    for (int c = i0; c < (int)in->dk; c += step) {
        x->s[c * x->ld + w] = in_v && has_s ? a->states[base + c * in->dv] : 0.0f;
        x->ds[c * x->ld + w] = in_v && has_ds ? a->dstates[base + c * in->dv] : 0.0f;
    }
    __syncthreads();
}

/* What these columns add: to dP, R . U, dbeta, the products with states; dv of them. */
LF_DEV void grad_columns(const struct scan_mem *m, const struct grad_mem *x,
                         const struct lf_cu_scan_bwd *a, int64_t row, int64_t h, int64_t v0, int n)
{
    const struct lf_scan_in *in = &a->k.in;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t v = v0 + lane;
    const bool first = v0 == 0, in_v = lane < x->cols && v < in->dv;
    const float skip = in->skip ? in->skip[h] : 0.0f;
    for (int i = warp; i < n; i += 8) {
        const float *d_o = x->d_o + i * x->ld, *r = x->r + i * x->ld;
        for (int j = lane; j <= i; j += 32) {
            float p = first ? 0.0f : m->p[i * TRI + j],
                  ru = first || j == i ? 0.0f : *scan_ag(m, i, j);
            for (int c = 0; c < x->cols; c++) {
                p = fmaf(d_o[c], x->u[j * x->ld + c], p);
                ru = fmaf(r[c], x->u[j * x->ld + c], ru);
            }
            m->p[i * TRI + j] = p;
            if (j < i)
                *scan_ag(m, i, j) = ru;
        }
        const int64_t at = ((row + i) * in->heads + h) * in->dk;
        for (int c = lane; c < m->dk; c += 32) {
            float dq = first ? 0.0f : a->dq[at + c], dkr = first ? 0.0f : a->dkr[at + c],
                  dkc = first ? 0.0f : a->dkc[at + c];
            for (int w = 0; w < x->cols; w++) {
                dq = fmaf(d_o[w], x->s[c * x->ld + w], dq);
                if (in->delta)
                    dkr = fmaf(-(m->beta[i] * r[w]), x->s[c * x->ld + w], dkr);
                dkc = fmaf(x->u[i * x->ld + w], x->ds[c * x->ld + w], dkc);
            }
            a->dq[at + c] = dq;
            a->dkr[at + c] = dkr;
            a->dkc[at + c] = dkc;
        }
        const float t = in_v ? a->t[((row + i) * in->heads + h) * in->dv + v] : 0.0f,
                    sum = lf_warp_sum(in_v ? r[lane] * t : 0.0f);
        if (lane == 0)
            x->dbeta[i] = first ? sum : x->dbeta[i] + sum;
        if (in_v)
            lf_store(a->k.dv, (row + i) * a->k.lddv + h * in->dv + v, in->x_type,
                     fmaf(skip, d_o[lane], m->beta[i] * r[lane]));
    }
    for (int c = (int)threadIdx.x; c < m->dk; c += LF_SCAN_THREADS) {
        float sum = first ? 0.0f : x->tail[c];
        for (int w = 0; w < x->cols; w++)
            sum = fmaf(x->s[c * x->ld + w], x->ds[c * x->ld + w], sum);
        x->tail[c] = sum;
    }
    __syncthreads();
}

/* The decays of what went through states; with one decay for the head what dg gets by them, in
 * x->dg of rows that read S, in x->read of rows that S+ is made of. */
LF_DEV void grad_decays(const struct scan_mem *m, const struct grad_mem *x,
                        const struct lf_cu_scan_bwd *a, int64_t at0, int64_t ld, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = warp; i < n; i += 8) {
        float reads = 0.0f, read = 0.0f;
        for (int c = lane; c < m->dk; c += 32) {
            const int64_t at = at0 + i * ld + c;
            const float e = expf(scan_g(m, i, c)), q = m->q[i * (m->dk + 1) + c],
                        k = m->k[i * (m->dk + 1) + c], dq = a->dq[at] * e, dkr = a->dkr[at] * e,
                        dkc = a->dkc[at] * scan_decay(m, n - 1, i, c);
            a->dq[at] = dq;
            a->dkr[at] = dkr;
            a->dkc[at] = dkc;
            reads = fmaf(q, dq, fmaf(k, dkr, reads));
            read = fmaf(k, dkc, read);
        }
        reads = lf_warp_sum(reads);
        read = lf_warp_sum(read);
        if (lane == 0) {
            x->dg[i] = reads;
            x->read[i] = read;
        }
    }
    for (int c = (int)threadIdx.x; c < m->dk; c += LF_SCAN_THREADS)
        x->tail[c] = x->tail[c] * expf(scan_g(m, n - 1, c));
    __syncthreads();
}

/* dbeta, and dA without beta in place of R . U. */
LF_DEV void grad_beta(const struct scan_mem *m, const struct grad_mem *x,
                      const struct lf_cu_scan_bwd *a, int64_t row, int64_t h, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = warp; i < n; i += 8) {
        float sum = 0.0f;
        for (int j = lane; j < i && a->k.in.delta; j += 32) {
            const float ru = *scan_ag(m, i, j);
            sum = fmaf(ru, scan_pair(m, m->k, i, j), sum);
            *scan_ag(m, i, j) = -(m->beta[i] * ru);
        }
        sum = x->dbeta[i] - lf_warp_sum(sum);
        if (lane == 0 && a->k.dbeta)
            a->k.dbeta[(row + i) * a->k.lddbeta + h] = sum;
    }
    __syncthreads();
}

/* The products within the chunk for row i, channel c. In place of dkc, which joins dkr, stands dG
 * by them, without the diagonal, which has no decay. */
LF_DEV void grad_pairs(const struct scan_mem *m, const struct lf_cu_scan_bwd *a, int64_t at, int i,
                       int c, int n)
{
    const int ld = m->dk + 1;
    const bool delta = a->k.in.delta;
    const float own = m->p[i * TRI + i], q = m->q[i * ld + c], k = m->k[i * ld + c];
    float dq = 0.0f, dkr = 0.0f, dkc = 0.0f;
    for (int j = 0; j < i; j++) {
        const float w = m->k[j * ld + c] * scan_decay(m, i, j, c);
        dq = fmaf(m->p[i * TRI + j], w, dq);
        if (delta)
            dkr = fmaf(*scan_ag(m, i, j), w, dkr);
    }
    for (int j = i + 1; j < n; j++) {
        const float e = scan_decay(m, j, i, c);
        dkc = fmaf(m->p[j * TRI + i], m->q[j * ld + c] * e, dkc);
        if (delta)
            dkc = fmaf(*scan_ag(m, j, i), m->k[j * ld + c] * e, dkc);
    }
    a->dq[at] = fmaf(own, k, a->dq[at] + dq);
    a->dkr[at] = fmaf(own, q, (a->dkr[at] + dkr) + (a->dkc[at] + dkc));
    a->dkc[at] = fmaf(q, dq, k * (dkr - dkc));
}

/* dg with one decay for the head. A pair (i, j) of the triangles has the decays of rows j + 1 to i,
 * so dg of row t gets the products of pairs with j < t <= i: sums over dG would take most of it
 * away again, and leave their rounding where a row fades fast and has next to none of it. */
LF_DEV void grad_head(const struct scan_mem *m, const struct grad_mem *x,
                      const struct lf_cu_scan_bwd *a, float *dg, int n)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int i = warp; i < n; i += 8)
        for (int j = lane; j < i; j += 32) {
            float w = m->p[i * TRI + j] * scan_pair(m, m->q, i, j);
            if (a->k.in.delta)
                w = fmaf(*scan_ag(m, i, j), scan_pair(m, m->k, i, j), w);
            m->p[i * TRI + j] = w;
        }
    __syncthreads();
    for (int t = warp; t < n; t += 8) {
        float sum = 0.0f;
        for (int i = t + lane; i < n; i += 32) {
            for (int j = 0; j < t; j++)
                sum = sum + m->p[i * TRI + j];
            sum = sum + x->dg[i];
        }
        for (int j = lane; j < t; j += 32)
            sum = sum + x->read[j];
        for (int c = lane; c < m->dk; c += 32)
            sum = sum + x->tail[c];
        sum = lf_warp_sum(sum);
        if (lane == 0)
            dg[t * a->k.lddg] = sum;
    }
}

/* dg of channel c by states, as in grad_decays: readers up from the last row, what is read down. */
LF_DEV void grad_channel(const struct scan_mem *m, const struct lf_cu_scan_bwd *a, float tail,
                         int64_t at, int64_t ld, float *dg, int c, int n)
{
    for (int i = 0; i < n; i++, at += ld) {
        dg[i * a->k.lddg + c] = tail;
        tail = fmaf(m->k[i * (m->dk + 1) + c], a->dkc[at + c], tail);
    }
    tail = 0.0f;
    for (int i = n - 1; i >= 0; i--) {
        at -= ld;
        tail = fmaf(m->q[i * (m->dk + 1) + c], a->dq[at + c], tail);
        tail = fmaf(m->k[i * (m->dk + 1) + c], a->dkr[at + c], tail);
        dg[i * a->k.lddg + c] = dg[i * a->k.lddg + c] + tail;
    }
}

/* A chunk by itself, `cols` columns of the values at a time. */
LF_DEV void grads_of(const struct lf_cu_scan_bwd *a, float *smem, int cols)
{
    const struct lf_scan_in *in = &a->k.in;
    const struct scan_mem m = scan_lay(smem, in);
    struct grad_mem x;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t h = blockIdx.y, slot = blockIdx.x;
    int64_t lo = 0, hi = in->n_docs - 1;
    x.cols = cols;
    x.ld = LF_SCAN_LD(cols);
    x.d_o = m.u; /* behind the triangles */
    x.u = x.d_o + CHUNK * x.ld;
    x.r = x.u + CHUNK * x.ld;
    x.s = x.r + CHUNK * x.ld;
    x.ds = x.s + m.dk * x.ld;
    x.dbeta = x.ds + m.dk * x.ld;
    x.dg = x.dbeta + CHUNK;
    x.read = x.dg + CHUNK;
    x.tail = x.read + CHUNK;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (in->cu_seqlens[mid] / CHUNK + mid <= slot)
            lo = mid;
        else
            hi = mid - 1;
    }
    const int64_t first = in->cu_seqlens[lo], chunk = slot - first / CHUNK - lo,
                  end = in->cu_seqlens[lo + 1] < in->rows ? in->cu_seqlens[lo + 1] : in->rows,
                  row = first + chunk * CHUNK, ld = in->heads * in->dk,
                  at0 = (row * in->heads + h) * in->dk;
    if (row >= end)
        return;
    const int n = (int)(end - row < CHUNK ? end - row : CHUNK);
    scan_load(&m, in, NULL, 0, row, h, 0, 0, n);
    for (int64_t v0 = 0; v0 < in->dv; v0 += cols) {
        grad_load(&x, a, row, h, slot, v0, n, chunk > 0, row + n < end);
        grad_columns(&m, &x, a, row, h, v0, n);
    }
    grad_decays(&m, &x, a, at0, ld, n);
    grad_beta(&m, &x, a, row, h, n);
    float *dg = a->k.dg ? a->k.dg + row * a->k.lddg + h * m.width : NULL;
    for (int c = (int)threadIdx.x; c < m.dk && dg && m.width > 1; c += LF_SCAN_THREADS)
        grad_channel(&m, a, x.tail[c], at0, ld, dg, c, n);
    __syncthreads();
    for (int i = warp; i < n; i += 8)
        for (int c = lane; c < m.dk; c += 32)
            grad_pairs(&m, a, at0 + i * ld + c, i, c, n);
    __syncthreads();
    if (dg && m.width == 1)
        grad_head(&m, &x, a, dg, n);
    for (int c = (int)threadIdx.x; c < m.dk && dg && m.width > 1; c += LF_SCAN_THREADS) {
        float sum = 0.0f;
        for (int i = n - 1; i >= 0; i--) {
            sum = sum + a->dkc[at0 + i * ld + c];
            dg[i * a->k.lddg + c] = dg[i * a->k.lddg + c] + sum;
        }
    }
}

/* x: chunks, y: heads. */
LF_KERNEL_PER_SM(scan_grads, struct lf_cu_scan_bwd, LF_SCAN_THREADS, PER_SM)
{
    LF_SHARED(float, smem);
    grads_of(a, smem, COLS);
}
/* The same where 32 columns do not fit. */
LF_KERNEL_PER_SM(scan_grads_few, struct lf_cu_scan_bwd, LF_SCAN_THREADS, PER_SM)
{
    LF_SHARED(float, smem);
    grads_of(a, smem, LF_SCAN_FEW);
}

/* The heads of a key head added in order, then back to the row before it was scaled; zeros for
 * padding. x: rows, y: key heads; the first warp has q, the second k, the others padding's zeros.
 * */
LF_KERNEL(scan_join, struct lf_cu_scan_bwd, 64)
{
    const struct lf_scan_in *in = &a->k.in;
    const int lane = (int)threadIdx.x % 32, of_k = (int)threadIdx.x / 32;
    const int64_t r = blockIdx.x, j = blockIdx.y, per = in->heads / in->groups,
                  width = in->per_channel ? in->dk : 1;
    const int64_t at = r * (of_k ? in->ldk : in->ldq) + j * in->dk,
                  to = r * (of_k ? a->k.lddk : a->k.lddq) + j * in->dk;
    const void *x = of_k ? in->k : in->q;
    void *d = of_k ? a->k.dk : a->k.dq;
    const float *from = (of_k ? a->dkr : a->dq) + (r * in->heads + j * per) * in->dk;
    const bool real = r < in->cu_seqlens[in->n_docs];
    float dot = 0.0f, sum[LF_SCAN_CUDA_D / 32], square = 0.0f, by = of_k ? 1.0f : in->scale;
    for (int m = 0; m < LF_SCAN_CUDA_D / 32; m++) {
        const int64_t c = lane + 32 * m;
        sum[m] = 0.0f;
        for (int64_t h = 0; h < per && c < in->dk && real; h++)
            sum[m] = sum[m] + from[h * in->dk + c];
        if (c < in->dk) {
            const float v = lf_load(x, at + c, in->x_type);
            square = fmaf(v, v, square);
            dot = fmaf(v, sum[m], dot);
        }
    }
    const bool unit = in->unit_eps > 0.0f;
    const float inv = unit ? 1.0f / sqrtf(lf_warp_sum(square) + in->unit_eps) : 1.0f,
                along = unit ? lf_warp_sum(dot) * inv * inv : 0.0f;
    by = by * inv;
    for (int m = 0; m < LF_SCAN_CUDA_D / 32; m++) {
        const int64_t c = lane + 32 * m;
        if (c >= in->dk)
            continue;
        const float v = real ? (sum[m] - along * lf_load(x, at + c, in->x_type)) * by : 0.0f;
        lf_store(d, to + c, in->x_type, v);
    }
    for (int64_t h = j * per; h < (j + 1) * per && !real && of_k; h++) {
        for (int64_t c = lane; c < in->dv; c += 32)
            lf_store(a->k.dv, r * a->k.lddv + h * in->dv + c, in->x_type, 0.0f);
        for (int64_t c = lane; c < width && a->k.dg; c += 32)
            a->k.dg[r * a->k.lddg + h * width + c] = 0.0f;
        if (lane == 0 && a->k.dbeta)
            a->k.dbeta[r * a->k.lddbeta + h] = 0.0f;
    }
}

/* A block for a head: the sum over rows of dO v. */
LF_KERNEL(scan_skip, struct lf_cu_scan_bwd, LF_SCAN_THREADS)
{
    LF_SHARED(float, scratch);
    const struct lf_scan_in *in = &a->k.in;
    const int64_t h = blockIdx.x, end = in->cu_seqlens[in->n_docs],
                  all = (end < in->rows ? end : in->rows) * in->dv;
    float sum = 0.0f;
    for (int64_t e = threadIdx.x; e < all; e += LF_SCAN_THREADS) {
        const int64_t r = e / in->dv, v = h * in->dv + e % in->dv;
        sum = fmaf(lf_load(a->k.d_o, r * a->k.lddo + v, in->x_type),
                   lf_load(in->v, r * in->ldv + v, in->x_type), sum);
    }
    sum = lf_block_sum(sum, scratch);
    if (threadIdx.x == 0)
        a->k.dskip[h] = a->k.accumulate ? a->k.dskip[h] + sum : sum;
}
