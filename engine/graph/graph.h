/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph builder. Model code reads like the mathematics:
 *
 *     lf_graph *g = lf_graph_create(ps, "train", rows, &opts, &err);
 *     lf_val tok = lf_input(g, "tokens", LF_I32, rows, 1);
 *     lf_val x = lf_embed(g, tok, pos, lf_param(g, "embed.weight"), LF_NONE, 1.0f);
 *     for (l ...) {
 *         lf_block_begin(g, l);
 *         lf_val h = lf_norm(g, x, lf_paramf(g, "layers.%d.attn_norm.weight", l), LF_NONE, &rms);
 *         lf_val qkv = lf_linear(g, h, lf_paramf(g, "layers.%d.attn.qkv.weight", l), LF_NONE);
 *         ...
 *         x = lf_add(g, x, lf_linear(g, o, lf_paramf(g, "layers.%d.attn.o.weight", l), LF_NONE));
 *         lf_block_end(g);
 *     }
 *     lf_xent(g, x, head, LF_NONE, target, &xent);
 *     if (lf_graph_check(g, &err)) ...            one check at the end: the first wrong node names
 *                                                 its op and tensors
 *
 * Tensors are matrices [rows, cols]; rows are packed tokens unless said otherwise. A column slice
 * is a view: no copy is made. The builder computes nothing and takes no memory for tensors. lf_plan
 * (engine/graph/plan.h) differentiates, chooses precision, fuses, orders and places; lf_exec
 * (engine/graph/exec.h) runs.
 *
 * Errors are sticky: after the first wrong call every later one returns LF_NONE at once. All
 * strings are copied. Values are handles into their graph and are not released.
 */
#ifndef LF_GRAPH_GRAPH_H
#define LF_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/graph/pstore.h"
#include "kernels/kernels.h"

typedef struct lf_graph lf_graph;

/* Handle of one tensor; {0} means none. */
typedef struct lf_val {
    int32_t id;
} lf_val;
#define LF_NONE ((lf_val){0})

enum lf_tensor_role {
    LF_ROLE_ACT = 0, /* written by a node; outputs are activations that are kept */
    LF_ROLE_PARAM,
    LF_ROLE_CONST,
    LF_ROLE_INPUT,
    LF_ROLE_GRAD,
    LF_ROLE_STATE
};

/* name ("train", "valid", "decode8") is used in messages and in --plan. The store outlives the
 * graph. */
lf_graph *lf_graph_create(lf_pstore *ps, const char *name, lf_err *err);
void lf_graph_destroy(lf_graph *g);
/* Returns 0, or the first failure of any builder call. */
int lf_graph_check(const lf_graph *g, lf_err *err);

/* ---- sources ---- */

/* An input that the host writes before each run (lf_exec_write). dtype i32, i64 or f32. A second
 * call with the same name gives the same input. */
lf_val lf_input(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols);
/* Declares the input that says where the rows of ranks are, in a layout whose attention needs it
 * (LF_CONTEXT_BLOCKS of layout.h); rows are those of this rank. */
void lf_context_input(lf_graph *g, int64_t rows);
/* Rows that no ranks divide (layout.h), such as those of pictures: between (true) and (false)
 * inputs are of all rows on each rank of the context axis, attention stays within a rank, and sums
 * over the tensor axis are of all rows. */
void lf_whole_rows(lf_graph *g, bool whole);
/* v, of which each rank of the tensor axis has all rows: where these ranks divide the rows of what
 * it is added to, each takes its own. */
lf_val lf_tp_spread(lf_graph *g, lf_val v);
/* One in the compute type of the plan, which activations have. */
lf_val lf_input_act(lf_graph *g, const char *name, int64_t rows, int64_t cols);
/* A group or a single tensor of the store: matrices are [sum of rows, cols], vectors [1, n]. */
lf_val lf_param(lf_graph *g, const char *name);
lf_val lf_paramf(lf_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A constant table, filled once when memory is bound: fill(dst, ctx) writes rows * cols elements in
 * host memory. Graphs of one plan that use the same name share it. ctx must live until
 * lf_exec_create returns. */
lf_val lf_const(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols,
                void (*fill)(void *dst, const void *ctx), const void *ctx);
/* A state that outlives runs, such as KV pages. Graphs of a plan share it by name. It is zero at
 * first. */
lf_val lf_state(lf_graph *g, const char *name, enum lf_dtype dtype, int64_t rows, int64_t cols);

/* ---- structure ---- */

/* Columns [first, first + cols) of v; no copy. */
lf_val lf_slice(lf_graph *g, lf_val v, int64_t first, int64_t cols);
/* Nodes between begin and end are one recompute block (a layer); blocks do not nest. */
void lf_block_begin(lf_graph *g, int index);
void lf_block_end(lf_graph *g);
/* Keeps v until the end of the run under a name for lf_exec_read. It has the compute type; call
 * lf_pin_f32 before where f32 is needed in every precision (logits). v is a whole activation, not a
 * slice. */
void lf_output(lf_graph *g, lf_val v, const char *name);
/* An output whose gradient comes from the host. Between LF_FWD and LF_BWD the host reads v,
 * computes a loss of it, and writes the gradient of that loss by v to the input `grad_name`, f32
 * of the same shape. A graph that is differentiated may have such outputs beside lf_xent or in
 * its place; in another graph the input is not read. v is f32, by its op or because it is
 * pinned. */
void lf_output_grad(lf_graph *g, lf_val v, const char *name, const char *grad_name);
/* Where a model is cut into several graphs (pipeline chunks: Huang et al. 2019, GPipe). Activations
 * go from one graph to the next and their gradients come back, both in the compute type, so the
 * graphs together have the bits of the whole one. lf_cut_out ends a graph: v is its output `name`,
 * and the gradient by v is read from the input grad_name when the graph is differentiated.
 * lf_cut_in begins the next graph: its input `name` [rows, cols] takes what that output gave, and
 * the gradient by it is output grad_name. With grad_name NULL nothing comes back, because the graph
 * is not differentiated or nothing is trained before the cut. In a layout that divides rows
 * (layout.h, sequence) a rank has its rows of all of these. */
lf_val lf_cut_in(lf_graph *g, const char *name, int64_t rows, int64_t cols, const char *grad_name);
void lf_cut_out(lf_graph *g, lf_val v, const char *name, const char *grad_name);
/* The same for f32 sums, which have no gradient: those of lf_moe_stats. */
void lf_cut_out_sums(lf_graph *g, lf_val v, const char *name);
/* Keeps the value f32 in every precision. One cast serves all bf16 nodes that read it. Only inputs
 * and values of nodes such as linear, embedding or norm may be pinned; the node then writes f32
 * itself where its kernel can.
 */
void lf_pin_f32(lf_graph *g, lf_val v);
/* Where layouts that divide matrices have their sums (layout.h). With one rank all return x.
 * lf_tp_enter stands before a linear whose rows ranks divide; lf_tp_leave stands behind the linear
 * whose columns they divide, before anything that is not linear. lf_tp_whole stands before what
 * every rank computes of all rows, such as a small head; it sums nothing. */
lf_val lf_tp_enter(lf_graph *g, lf_val x);
lf_val lf_tp_leave(lf_graph *g, lf_val x);
lf_val lf_tp_whole(lf_graph *g, lf_val x);
/* Where no gradient comes back: all columns of what a linear with a divided vocabulary gives. */
lf_val lf_tp_join(lf_graph *g, lf_val x);

/* ---- operations ---- */

/* y = scale * wte[token] + wpe[position + pos_offset]. wpe may be LF_NONE, and then position too;
 *   or wte may. */
lf_val lf_embed(lf_graph *g, lf_val token, lf_val position, lf_val wte, lf_val wpe, float scale,
                int32_t pos_offset);

/* y = scale * wte[token], token < all; those from rows > 0 on, where wte ends, read row 0 */
lf_val lf_embed_some(lf_graph *g, lf_val token, lf_val wte, float scale, int64_t rows, int64_t all);

/* y = x w^T + bias. w [N, K] has the rows of all members of a group; bias [1, N] or LF_NONE. */
lf_val lf_linear(lf_graph *g, lf_val x, lf_val w, lf_val bias);

struct lf_norm_opts {
    float eps;
    float w_offset; /* (w + w_offset); 0 for all but Gemma */
    bool layer;     /* LayerNorm (b allowed), else RMSNorm */
    bool affine;    /* with layer: x w + b alone */
    /* > 1: normalises each of `heads` equal parts of the row (QK-norm); w and b have cols / heads
     */
    int heads;
    bool each; /* w and b have cols: the parts have parameters of their own */
    /* A norm of the whole row, where a layout may leave each rank some columns of x, and of w and b
     * as many: the ranks add up what the norm and backwards dx need of the row */
    bool divided;
};
/* w LF_NONE: nothing multiplies what is normalised */
lf_val lf_norm(lf_graph *g, lf_val x, lf_val w, lf_val b, const struct lf_norm_opts *o);

/* y[r] = w[r] / max(|w[r]|, 1e-12) of a parameter. The result is a weight for lf_linear (forward)
 * and lf_xent (trained). */
lf_val lf_unit_rows(lf_graph *g, lf_val w);

struct lf_rope_opts {
    int heads, rot; /* channels first ... first + rot - 1 of each head turn; rot is even */
    int first;
    bool interleaved;
    lf_val position2; /* i32 [R, 1], or LF_NONE: turns the heads of odd number instead */
    /* i32 [rot / 2, 1], or LF_NONE: position is i32 [R, 3], and pair i turns by its column
     * axis[i] */
    lf_val axis;
};
/* cos, sin: f32 [max_pos, rot / 2] constants. */
lf_val lf_rope(lf_graph *g, lf_val x, lf_val position, lf_val cos_table, lf_val sin_table,
               const struct lf_rope_opts *o);

/* y[t][h] = [x[t][h] | z[t]]: heads of channels of their own, x [R, H*A], and of those that all
 * share, z [R, B]. The result is [R, H*(A+B)]. */
lf_val lf_heads_join(lf_graph *g, lf_val x, lf_val z, int heads);

/* A product of its own for each head: W_h is rows [first + h rows, first + (h + 1) rows) of w, a
 * parameter, such as a member of a group. y[t][h] = x[t][h] W_h^T, [R, H rows]; transposed:
 * x[t][h] W_h, [R, H K]. Channels of a head beyond those that its product takes stay behind its
 * result as they are. It has no gradient, and no kernel on GPUs. */
struct lf_heads_linear_opts {
    int heads;
    int32_t first, rows;
    bool transposed;
};
lf_val lf_heads_linear(lf_graph *g, lf_val x, lf_val w, const struct lf_heads_linear_opts *o);

struct lf_attn_opts {
    int heads, groups; /* query heads, key/value heads */
    float scale, softcap;
    int32_t window; /* 0: none; see kernels.h */
    bool causal;
    /* length of the longest document; for FLOP counts and plans of libraries */
    int64_t max_doc;
    float dropout;           /* of the probabilities; 0: none, and the rest is not read */
    const char *site;        /* name of the random decision, as for lf_dropout */
    lf_val sample, position; /* i64, i32 [R, 1] inputs */
    /* i32 [n_docs, 1] (paged: [n_seq, 1]) input or LF_NONE: every position of the document sees the
     * keys below it */
    lf_val prefix;
    lf_val runs;  /* i32 [R, 2] input or LF_NONE: rows that see what is behind them (kernels.h) */
    lf_val sinks; /* a parameter [1, H] or LF_NONE: scores that weigh nothing (kernels.h) */
    /* f32 values [2 n - 1, H] or LF_NONE: what is added to scores by distance (struct
     * lf_k_attn_bias). They have a gradient. CPUs only */
    lf_val bias;
    lf_val place; /* i32 [R, 1] or LF_NONE: where rows are instead, for the bias */
    /* i32 input [n_docs + 1, 1] or LF_NONE: q has rows of an axis of its own, whose documents are
     * these, and each sees all keys of the document of its number: cross attention. CPUs only */
    lf_val cu_queries;
};
/* q [R, H*D], k [R, G*D] and v [R, G*E], usually views of one qkv matrix with E = D; cu_seqlens is
 * an i32 [n_docs + 1, 1] input, alibi an f32 [1, H] constant or LF_NONE. The result is [R, H*E]. */
lf_val lf_attention(lf_graph *g, lf_val q, lf_val k, lf_val v, lf_val cu_seqlens, lf_val alibi,
                    const struct lf_attn_opts *o);

/* The places of the rows of a step in the cache of a layer. */
struct lf_kv_cache {
    /* states [n_pages * page_tokens, G*D] and [..., G*E] of the compute type */
    lf_val k_pages, v_pages;
    lf_val seq, pos; /* i32 [R, 1] */
    lf_val table;    /* i32 [n_seq, max_pages] */
    int64_t page_tokens;
    /* > 0: k_pages [n_pages * page_tokens, latent + rest] is all that there is, of one group. Its
     * rows are the keys, their first `latent` channels the values too. lf_kv_write stores k
     * [R, latent] and, behind it, v [R, rest]. CPUs only */
    int64_t latent;
};
/* Stores k and v in the cache. lf_attention_paged of the same graph comes after it. */
void lf_kv_write(lf_graph *g, lf_val k, lf_val v, const struct lf_kv_cache *c, int groups);
lf_val lf_attention_paged(lf_graph *g, lf_val q, const struct lf_kv_cache *c, lf_val alibi,
                          const struct lf_attn_opts *o);

lf_val lf_act(lf_graph *g, lf_val x, enum lf_act act);
lf_val lf_glu(lf_graph *g, lf_val gate, lf_val up, enum lf_act act); /* act(gate) * up */
/* The same of values that are cut and moved: act(min(gate, limit)) * (up within [-limit, limit] +
 * up_offset); limit 0: nothing is cut. */
struct lf_glu_opts {
    enum lf_act act;
    float limit, up_offset;
};
lf_val lf_glu_cut(lf_graph *g, lf_val gate, lf_val up, const struct lf_glu_opts *o);
lf_val lf_add(lf_graph *g, lf_val a, lf_val b);
lf_val lf_scale(lf_graph *g, lf_val x, float alpha); /* alpha * x */
/* p == 0 returns x and makes no node. name identifies the random decision ("layers.3.attn.resid"),
 * from which its RNG site follows. sample i64 [R, 1] and position i32 [R, 1] are inputs. */
lf_val lf_dropout(lf_graph *g, lf_val x, float p, const char *name, lf_val sample, lf_val position);
/* y[r] = x[index[r]], index i32 [R', 1]; forward only (sampling heads). */
lf_val lf_gather_rows(lf_graph *g, lf_val x, lf_val index);
/* A sparse matrix as compressed rows (kernels.h, mix_rows), and its transpose, whose rows are those
 * of what it multiplies: start i32 [rows + 1, 1], index i32 [entries, 1], weight f32 [entries, 1],
 * each an input or a constant. Entries behind start[rows] are not read, so `entries` may be a
 * bound. Without a transpose nothing flows back. */
struct lf_mix {
    lf_val start, index, weight;
    lf_val back_start, back_index, back_weight;
};
/* A matrix [rows, from] as the inputs NAME.start, .index, .weight, .back.start, .back.index and
 * .back.weight; entries: their bound. */
struct lf_mix lf_mix_input(lf_graph *g, const char *name, int64_t rows, int64_t from,
                           int64_t entries);
/* The same of what all ranks of the context axis have (lf_whole_rows) into the rows of this one. */
struct lf_mix lf_mix_input_own(lf_graph *g, const char *name, int64_t rows, int64_t from,
                               int64_t entries);
/* Rows of x, an activation or a parameter, mixed: [rows of m, columns of x]. */
lf_val lf_mix_rows(lf_graph *g, lf_val x, const struct lf_mix *m);
/* Rows k r .. k r + k - 1 of x [R, C] beside each other: [R / k, k C]. */
lf_val lf_fold_rows(lf_graph *g, lf_val x, int k);
/* Layer scale: gain[c] x[r, c]; gain is a parameter vector, or one number that is frozen. */
lf_val lf_col_gate(lf_graph *g, lf_val x, lf_val gain);
/* exp(min(s[h], most)) x[r, c] for the columns c of head h; s is a parameter of `heads` numbers.
 * CPUs only. */
lf_val lf_head_gate(lf_graph *g, lf_val x, lf_val s, int heads, float most);

/* ---- streams of a row (kernels/altup.h has the formulas) ---- */

struct lf_altup_opts {
    int from, to; /* streams of x, and of the result */
    int first;    /* streams of the result before it are 0 */
    int read;     /* streams of x that count; 0: all */
    float offset; /* added to each coefficient */
};
/* The streams of x [R, from * C] mixed by coefficients w [R, to * from] of each row: [R, to * C]. w
 * LF_NONE: each coefficient is the offset. */
lf_val lf_altup_mix(lf_graph *g, lf_val x, lf_val w, const struct lf_altup_opts *o);
/* Each of `parts` parts of a row of x with the root mean square of that row of `like` [R, C]; means
 * of squares below eps count as eps. */
lf_val lf_match_rms(lf_graph *g, lf_val x, lf_val like, int parts, float eps);
/* max(x - mean - k std, 0) with mean and standard deviation of the row */
lf_val lf_gauss_topk(lf_graph *g, lf_val x, float k);

/* ---- scans (kernels/scan.h has formulas, kinds of mixers and their sources) ---- */

/* xIELU (kernels.h), whose numbers are parameters of one element. beta and eps get no gradient. */
struct lf_xielu_vals {
    lf_val positive, negative, beta, eps;
};
lf_val lf_xielu(lf_graph *g, lf_val x, const struct lf_xielu_vals *p);

/* Depthwise convolution of x [R, C] over squares of side x side rows (kernels/dwconv.h), one
 * behind the other. w [C, K K] and bias [1, C] (or LF_NONE) are parameters. */
lf_val lf_dwconv(lf_graph *g, lf_val x, lf_val w, lf_val bias, int64_t side);

/* Matrices of `each` rows of x [R, C], one behind the other, each transposed: [R / each C, each],
 * or up to `rows` with zeros. Rows behind the last whole one are left out. */
lf_val lf_turn_rows(lf_graph *g, lf_val x, int64_t each, int64_t rows);

/* Where rows of sequences are continued: i32 inputs [R, 1] and a state. */
struct lf_slots {
    lf_val state, seq, pos;
};
/* Causal depthwise convolution of x [R, C] over documents, or with slots (else NULL) over
 * sequences, whose state of the compute type is [sequences, (K - 1) C]. w [C, K] and bias [1, C]
 * (or LF_NONE) are parameters; act is LF_ACT_NONE or LF_ACT_SILU. */
lf_val lf_conv(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val cu_seqlens, enum lf_act act,
               const struct lf_slots *slots);

struct lf_scan_gate_opts {
    int heads;
    float low, high, strength; /* where the step is cut (0, INFINITY: nowhere); of sigmoid(b) */
};
struct lf_scan_gates {
    lf_val g, beta; /* f32 [R, H W], [R, H] */
};
/* Decays from a [R, H W], and strengths of writing from b [R, H]; b LF_NONE (W = 1): they are the
 * steps. a_log [1, H] and bias [1, H W] are parameters. */
struct lf_scan_gates lf_scan_gate(lf_graph *g, lf_val a, lf_val b, lf_val a_log, lf_val bias,
                                  const struct lf_scan_gate_opts *o);

struct lf_scan_opts {
    int heads, groups; /* heads of v; key heads */
    float scale, unit_eps;
    bool delta, per_channel;
};
struct lf_scan_in_vals {
    lf_val q, k, v; /* [R, G Dk], [R, G Dk], [R, H Dv] */
    lf_val g, beta; /* of lf_scan_gate; g may be a constant f32 [1, H], and beta LF_NONE */
    lf_val skip;    /* a parameter [1, H], or LF_NONE */
};
/* The scan over documents, or with slots (else NULL) over sequences. Their state comes from
 * lf_scan_state. The result is [R, H Dv]. */
lf_val lf_scan(lf_graph *g, const struct lf_scan_in_vals *in, lf_val cu_seqlens,
               const struct lf_scan_opts *o, const struct lf_slots *slots);
/* The f32 state of that many sequences, for this shape and numeric mode. */
lf_val lf_scan_state(lf_graph *g, const char *name, int64_t sequences, int64_t dk, int64_t dv,
                     const struct lf_scan_opts *o, enum lf_numeric mode);

/* ---- mixture of experts: R rows, E experts, k of them for each row, M = R k pairs ---- */

struct lf_route_opts {
    int k;
    int groups, top_groups; /* 1: every expert can be chosen (kernels.h, moe_route) */
    bool sigmoid, renorm;
    float scale;
    /* > 0: aux * the load-balancing loss of the graph's lf_moe_stats is part of the loss in the
     * backward pass */
    float aux;
    int layers; /* of lf_moe_stats in the graph */
    /* > 0: an expert takes so many times the mean number of its pairs, rounded up, of a micro-batch
     * (kernels.h, moe_keep); what it drops adds nothing to the row, and has no gradient. The rows
     * of a micro-batch are those of all ranks that divide it, with padding, so all layouts drop the
     * same. The balance counts choices, dropped or not. 0: nothing is dropped */
    double capacity_factor;
};
struct lf_routes {
    lf_val ids, weights, scores, entropy; /* i32 [R, k], f32 [R, k], [R, E], [R, 1] */
    lf_val row_of, place, offsets;        /* i32 [M, 1], [R, k], [E + 1, 1]: order by expert */
    lf_val sent, counts;                  /* of lf_moe_send, where ranks divide the experts */
    int64_t capacity;                     /* pairs of each expert; 0: all are taken */
};
/* Chooses experts for the rows. logits [R, E] of a linear node are pinned to f32. bias [1, E] or
 * LF_NONE affects the choice only. */
struct lf_routes lf_moe_route(lf_graph *g, lf_val logits, lf_val bias,
                              const struct lf_route_opts *o);
/* Sums the balance of a run, in training graphs. The sums go to the step record, and to the
 * balancing of bias (a parameter with a balance_rate) after the step. Returns the sums so far,
 * which the next layer takes as prev. layers is the number of layers in the last call, else 0. */
lf_val lf_moe_stats(lf_graph *g, const struct lf_routes *r, lf_val bias, lf_val cu_seqlens,
                    lf_val prev, int layers);
/* Of a graph that has some layers of a model: the backward pass takes the sums of all layers from
 * the input total [2, E]. With name it gives them on, as an output. NULL: no graph before this one
 * needs them. */
void lf_moe_total(lf_graph *g, lf_val total, const char *name);
/* [R, C] -> [M, C] in expert order */
lf_val lf_moe_permute(lf_graph *g, lf_val x, const struct lf_routes *r);
/* The rows that this rank's experts get, and back: lf_moe_permute, and nothing. Where ranks divide
 * the experts (layout.h), rows of all of them, [room, C], and back to [M, C]. From one to the other
 * r->offsets are those of this rank's experts. */
lf_val lf_moe_send(lf_graph *g, lf_val x, struct lf_routes *r);
lf_val lf_moe_return(lf_graph *g, lf_val y, const struct lf_routes *r);
/* [M, K] -> [M, N]; w [E N, K]; bias, a parameter [E, N], or LF_NONE */
lf_val lf_moe_linear(lf_graph *g, lf_val x, lf_val w, lf_val bias, const struct lf_routes *r);
/* [M, C] -> [R, C], weighted; without weights what a row's experts gave is added up */
lf_val lf_moe_combine(lf_graph *g, lf_val x, const struct lf_routes *r);
/* weights [R, k] of routes, each times the number of its expert; gain is a parameter [1, E] */
lf_val lf_moe_gain(lf_graph *g, lf_val weights, lf_val ids, lf_val gain);
/* y[r] = sigmoid(gate[r]) * x[r]. gate [R, 1] comes from a linear node and is pinned to f32. */
lf_val lf_row_gate(lf_graph *g, lf_val x, lf_val gate);

struct lf_xent_opts {
    int64_t v_real; /* 0: all of w's rows */
    float softcap;
    /* per-row results as outputs "loss", "lse" (f32), "argmax" (i32), [R, 1] */
    bool want_loss, want_lse, want_argmax;
    /* output "entropy" (f32 [R, 1]): that of the row's softmax in nats, 0 where the target is -1 */
    bool want_entropy;
    /* k >= 1: the loss of the k-th head beyond the first, with a weight and sums of its own in the
     * step record (kernels.h, more_inv), and without outputs */
    int head;
};
/* The loss: cross entropy of logits = x w^T + bias with target i32 [R, 1] (-1: not trained). Sums
 * go to the step record. In a graph that is differentiated the same node forms dX and dW; elsewhere
 * it computes the forward alone. A graph has one such node, and behind it one for each further
 * head. */
void lf_xent(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val target,
             const struct lf_xent_opts *o);

struct lf_logp_opts {
    int64_t v_real; /* 0: all of w's rows */
    float softcap;
    float inv_temperature; /* 1 / T: logits are multiplied by it after the soft cap; 0: 1 */
    bool want_entropy;
};
struct lf_logps {
    lf_val logp, entropy; /* f32 [R, 1]; 0 where the target is -1 */
};
/* log p of target i32 [R, 1] (-1: none) under softmax(inv_temperature * softcap(x w^T + bias)), and
 * on demand the entropy of the row in nats. Losses that the host computes use it together with
 * lf_output_grad. Logits are held for a block of rows only, and the backward forms them again. logp
 * has the bits of -loss of lf_xent. */
struct lf_logps lf_logp(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val target,
                        const struct lf_logp_opts *o);

#endif
