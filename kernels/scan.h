/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of state-space and linear-attention mixers; a part of kernels.h, which
 * includes it. Rows are packed documents: document i has the rows cu_seqlens[i] up to, but without,
 * cu_seqlens[i + 1]. Nothing passes from one document to the next. Rows behind the last document
 * are padding: results and gradients of theirs are 0.
 *
 * While generating, a call has rows of several sequences and continues them. Row r is position
 * pos[r] of sequence seq[r]; the rows of a sequence stand together, in ascending order of position,
 * and every earlier position was in an earlier call. Rows with seq < 0 give 0. What a sequence
 * leaves for the next call is its slot of `state`, which a row of position 0 does not read. */
#ifndef LF_KERNELS_SCAN_H
#define LF_KERNELS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- causal depthwise convolution ---- */

/* y[t, c] = act(bias[c] + sum over j < K of w[c, j] x[t - K + 1 + j, c])
 *
 * Rows before the document count as zeros. Sums are f32 and ascend in j, so a row has the same bits
 * in a document and in a call that generates. act is LF_ACT_NONE or LF_ACT_SILU. (Mamba: Gu and Dao
 * 2023, section 3.4; the same filter stands in Gated DeltaNet and KDA.)
 *
 * With state, the call generates and cu_seqlens is not read: state [sequences, K - 1, C] of x_type
 * has the last K - 1 rows of x of each sequence, the oldest first. */
enum { LF_CONV_MOST_TAPS = 8 };
struct lf_k_conv_fwd {
    int64_t rows, c, taps, n_docs, ldx, ldy;
    const void *x;
    const float *w;    /* [C, K] */
    const float *bias; /* [C] or NULL */
    void *y;
    const int32_t *cu_seqlens;
    void *state; /* or NULL */
    const int32_t *seq, *pos;
    uint8_t act, x_type;
};
/* With a[t, c] the argument of act, which is formed again, and da = dy act'(a):
 *     dx[t, c] = sum over j of w[c, j] da[t + K - 1 - j, c]
 *     dw[c, j] (+)= sum over t of da[t, c] x[t-K+1+j, c]; dbias[c] (+)= sum over t of da[t, c]
 * Rows of other documents are left out. dx, dw, dbias may be NULL; none is x or dy. */
struct lf_k_conv_bwd {
    int64_t rows, c, taps, n_docs, ldx, lddy, lddx;
    const void *x, *dy;
    const float *w, *bias;
    void *dx;
    float *dw, *dbias;
    const int32_t *cu_seqlens;
    bool accumulate; /* of dw, dbias */
    uint8_t act, x_type;
};

/* ---- decays ---- */

/* The decay of the state and how strongly a row writes, from what the projections give. With W
 * channels for each of H heads (1, or a decay for each channel):
 *     s[t, h, c]  = softplus(a[t, h, c] + bias[h, c]), cut to [low, high]
 *     g[t, h, c]  = -exp(a_log[h]) s[t, h, c]
 *     beta[t, h]  = strength sigmoid(b[t, h]) where b is given, else s[t, h, 0] (W is 1)
 * g is the logarithm of the decay and never above 0; g and beta are f32, [R, H W] and [R, H].
 * low = 0 and high = INFINITY cut nothing; where s is cut no gradient flows.
 * (b NULL: Mamba-2, Dao and Gu 2024, whose step dt is beta. Else Gated DeltaNet, Yang et al. 2024;
 * with W > 1 Kimi Delta Attention, 2025. strength is 1, or 2, with which a state may change its
 * sign along a key: Grazzi et al. 2024.) */
struct lf_k_scan_gate_fwd {
    int64_t rows, heads, width, lda, ldb;
    const void *a, *b;
    const float *a_log, *bias; /* [H], [H W] */
    float *g, *beta;           /* rows without a gap; beta NULL: not wanted */
    float low, high, strength;
    uint8_t x_type;
};
/* da, db from dg and dbeta (NULL: zeros), and
 *     dbias (+)= sum over t of da;  da_log[h] (+)= sum over t and c of dg g. */
struct lf_k_scan_gate_bwd {
    int64_t rows, heads, width, lda, ldb, ldda, lddb;
    const void *a, *b;
    const float *a_log, *bias, *dg, *dbeta;
    void *da, *db;         /* or NULL */
    float *da_log, *dbias; /* or NULL */
    float low, high, strength;
    bool accumulate; /* of da_log, dbias */
    uint8_t x_type;
};

/* ---- the scan ---- */

/* Each of H heads carries a state S [Dk, Dv], f32, zeros before a document. Key head
 * j = h / (H / G) serves head h. With decay e^g, one number for a head or, per_channel, one for
 * each row of S:
 *     S <- e^g S
 *     u  = beta (v - S^T k) with delta, else beta v
 *     S <- S + k u^T
 *     o  = S^T q + skip v
 * where q and k are x scale and x, or with unit_eps > 0 of length one: x / sqrt(x . x + unit_eps).
 *
 *                    q  k  v   delta  per_channel  beta          g
 *   Mamba-2 (SSD)    C  B  x   no     no           dt            scan_gate (Dao and Gu 2024)
 *   lightning        q  k  v   no     no           NULL (1)      fixed, ldg = 0 (Qin et al. 2024)
 *   Gated DeltaNet   q  k  v   yes    no           sigmoid       scan_gate (Yang et al. 2024)
 *   KDA              q  k  v   yes    yes          sigmoid       scan_gate (Kimi Linear 2025)
 *
 * It is computed in chunks of LF_SCAN_CHUNK rows, counted from the beginning of the document. With
 * G the sum of g over the rows of the chunk up to a row, S the state before the chunk, and
 * Gam_ij = e^(G_i - G_j) (inside the product over channels where decays are per channel):
 *     A_ij = beta_i (k_i . k_j) Gam_ij for j < i;  P_ij = (q_i . k_j) Gam_ij for j <= i
 *     (I + A) U = beta (V - (e^G K) S), by forward substitution; without delta U = beta V
 *     O = (e^G Q) S + P U;   S <- e^(G_n) S + (e^(G_n - G) K)^T U
 * No exponent is positive. G is two floats, so its differences have all digits however fast other
 * rows fade; on CPUs decays per channel are products of decays of blocks of 16 rows, and no
 * difference is taken. All of the rest is f32; a row depends on rows of its document up to itself.
 */
enum { LF_SCAN_CHUNK = 64, LF_SCAN_MOST_D = 256 };
struct lf_scan_in {
    int64_t rows, heads, groups, dk, dv, n_docs;
    int64_t ldq, ldk, ldv, ldg, ldbeta;
    const void *q, *k, *v; /* [R, G Dk], [R, G Dk], [R, H Dv], x_type */
    const float *g;        /* [R, H] or [R, H Dk], <= 0; ldg = 0: the first row is that of all */
    const float *beta;     /* [R, H] or NULL */
    const float *skip;     /* [H] or NULL */
    const int32_t *cu_seqlens;
    float scale, unit_eps;
    bool delta, per_channel;
    uint8_t x_type, mode;
};
/* o [R, H Dv]. With state, the call generates. A slot has lf_scan_slot floats. In mode LF_INVARIANT
 * it holds S before the open chunk and what later rows need of the chunk's rows, so the bits are
 * those of one call over the whole document. In mode LF_FAST S takes in the rows at the end of each
 * call, and a row costs one pass over S. */
struct lf_k_scan_fwd {
    struct lf_scan_in in;
    void *o;
    int64_t ldo;
    float *state; /* or NULL */
    const int32_t *seq, *pos;
    void *work;
    size_t work_bytes;
};
/* The gradients from d_o. S at the beginning of chunks is formed again. They overwrite, but for
 * dskip. dg has the shape of g and is NULL where that is fixed; dg, dbeta and dskip may be NULL.
 *
 * With dS+ the gradient of the state behind the chunk, K+ = e^G K, Q+ = e^G Q, Kd = e^(G_n - G) K:
 *     dU = P^T dO + Kd dS+;      (I + A)^T R = dU;      T = V - K+ S
 *     dV = beta R;               dbeta_i = R_i . T_i - sum over j of (R_i . U_j) A_ij / beta_i
 *     dP_ij = dO_i . U_j (j <= i);                      dA_ij = -R_i . U_j (j < i)
 *     dQ+ = dO S^T;   dK+ = -dV S^T;   dKd = U dS+^T;   dS = e^(G_n) dS+ + Q+^T dO - K+^T dV
 * from which dQ, dK follow by the products above, and with dK = dKr + dKc, the parts of rows that
 * read (A's row, K+) and that are read (column, Kd):
 *     dG = Q dQ + K dKr - K dKc; dG_n += sum of Kd dKd + e^(G_n) S dS+; dg_i = sum of dG_j, j >= i
 * Heads that share a key head are added in an order that the shape fixes. */
struct lf_k_scan_bwd {
    struct lf_scan_in in;
    const void *d_o;
    void *dq, *dk, *dv;
    float *dg, *dbeta, *dskip;
    int64_t lddo, lddq, lddk, lddv, lddg, lddbeta;
    bool accumulate; /* of dskip */
    void *work;
    size_t work_bytes;
};

/* Floats of a sequence's slot: for each head S [Dk, Dv] and, with `open`, u [64, Dv] and g [64] or
 * [64, Dk]; for each key head, with `open`, k [64, Dk]. Dk and Dv are rounded up to 16. */
static inline int64_t lf_scan_pad(int64_t d)
{
    return (d + 15) / 16 * 16;
}
static inline int64_t lf_scan_head_floats(const struct lf_scan_in *a, bool open)
{
    const int64_t k = lf_scan_pad(a->dk), v = lf_scan_pad(a->dv);
    return k * v + (open ? LF_SCAN_CHUNK * (v + (a->per_channel ? k : 1)) : 0);
}
static inline int64_t lf_scan_slot(const struct lf_scan_in *a)
{
    const bool open = a->mode != 0; /* LF_INVARIANT */
    return a->heads * lf_scan_head_floats(a, open) +
           (open ? a->groups * LF_SCAN_CHUNK * lf_scan_pad(a->dk) : 0);
}

#endif
