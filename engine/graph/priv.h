/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that only the files of engine/graph share: tensors, nodes, the op table and the
 * passes.
 *
 * Life of a graph, in order (each pass has its file):
 *   build (graph.c, build.c)     nodes appended by model code; SSA: a tensor is written by one node
 *   differentiate (autodiff.c)   backward nodes appended; nodes [0, n_fwd) are the forward from
 *                                here on
 *   precision (precision.c)      every float activation gets its storage type; shared casts appear
 *   fp8 (fp8.c)                  products of marked weights read 8-bit copies; shared quantising
 *                                nodes appear
 *   fuse (fuse.c)                epilogues of the target
 *   recompute (recompute.c)      forward nodes are repeated inside the backward; this comes after
 *                                fusing, so that a repeated node has the rounding points of the
 *                                first one and no bit changes
 *   prune (fuse.c)               results that nothing reads are not computed
 *   split (split.c)              the backward pass in two segments
 *   alias (alias.c)              in place where an op allows it and nothing reads the operand later
 *   place (plan_place.c, place.c)  offsets from liveness
 *   bind, run (exec*.c)
 *
 * Storage. A tensor is a root, or a view of columns of a root. Views come from lf_slice, from
 * gradients of slices, and from the alias pass, which makes an op's result share the place of an
 * operand.
 */
#ifndef LF_GRAPH_PRIV_H
#define LF_GRAPH_PRIV_H

#include "engine/base/mem.h"
#include "engine/graph/adapter.h"
#include "engine/graph/graph.h"
#include "engine/graph/layout.h"
#include "engine/graph/ops.h"
#include "engine/graph/plan.h"

enum { LF_MAX_IN = 16, LF_MAX_OUT = 7 };

struct lf_attr {
    float eps, w_offset, scale, softcap, p;
    int32_t heads, groups, rot, window, pos_offset;
    /* dora: first row of the member in A of its group; pos_offset is its first row in the weight.
     * tp_own: the group of the store. rope: the first channel that turns. heads_linear: rows of
     * the weight of a head; pos_offset is the first head's first one, inverse: transposed */
    int32_t at;
    uint32_t site;
    int64_t page_tokens, v_real, max_doc;
    /* of a graph with local shapes: the first of the columns, and all of them, of what dropout
     * decides about; the first of the heads of attention; of a join the columns of each rank but
     * the last */
    int32_t col0, cols, head0;
    /* attention where ranks divide the rows: which of the rank's sinks the first head has, and how
     * many there are; sinks 0: as many as heads */
    int32_t sink0, sinks;
    /* the first row of this rank's part of the vocabulary; all of its rows (embedding, join), all
     * real ones (loss); v_all 0: w is not divided. v_real of an embedding: known of its kernel */
    int64_t v0, v_all;
    uint8_t act; /* enum lf_act */
    bool layer, interleaved, inverse, causal;
    int32_t experts, k, top_groups, moe_layers; /* of a mixture of experts; groups: of experts */
    float aux;                                  /* coefficient of the load-balancing loss */
    bool sigmoid, renorm;
    int32_t head; /* xent: 0, or which of the further heads */
    bool entropy; /* logp: the row's entropy is wanted */
    bool blocks;  /* fp8: scales of blocks, not of tensors */
    /* tp_enter, tp_leave, tp_rows: ranks divide rows; tp_own: the graph has local shapes. inverse:
     * what enters is the same on all ranks, as a gradient is; nothing is summed */
    bool sequence;
    /* linear, moe_linear, embed, dora: a partial sum; another rank adds the bias, the position */
    bool no_bias;
    /* attention: ranks of the context axis do not divide the rows; tp_leave: no ranks do */
    bool whole;
    bool no_record;          /* moe_stats: another node tells what is known of the step */
    bool each;               /* norm: the heads have parameters of their own */
    bool affine;             /* norm: nothing is normalised */
    bool squares;            /* dora_norm: of the lengths, which ranks add up */
    bool delta, per_channel; /* scan */
    float low, high;         /* scan_gate: where the step is cut */
    float strength;          /* scan_gate: what sigmoid(b) is multiplied by */
    float limit, up_offset;  /* glu: where values are cut, what is added to up */
    int64_t pairs;           /* expert_return: rows that come back; turn_rows: of the result */
    int64_t capacity;        /* of each expert, pairs of a micro-batch; 0: all have room */
};

struct lf_node {
    uint8_t op;
    bool clone;    /* repeated by recompute */
    int32_t block; /* recompute block, -1 outside */
    int32_t in[LF_MAX_IN], out[LF_MAX_OUT];
    struct lf_attr a;
};

struct lf_tensor {
    const char *name;           /* in the graph's arena */
    uint8_t dtype, role, pkind; /* enum lf_dtype, lf_role; lf_pkind of params */
    bool fixed;                 /* the op decides the dtype; precision does not change it */
    bool pinned;                /* stays f32 (lf_pin_f32) */
    bool dense_only;            /* some node needs row distance == cols */
    bool is_output;
    bool grad_f32;          /* its gradient stays f32 in every precision */
    uint8_t place[LF_AXES]; /* enum lf_place */
    /* an activation that goes from one graph to another, or its gradient, coming or going */
    bool cut;
    bool whole; /* an input of which every rank of the context axis has all rows; lf_tp_spread */
    /* a view that a forward node writes: its root consists of such parts, and nothing else reads
     * it */
    bool part;
    int64_t rows, cols;
    int32_t parent; /* view: the tensor it is a part of, else 0 */
    int64_t col;    /* first column in parent */
    int32_t group;  /* of the store, PARAM and GRAD; else -1 */
    int32_t table;  /* constants and states: index in the plan; else -1 */
    void (*fill)(void *dst, const void *ctx);
    const void *ctx;
    int32_t producer; /* node, -1 for sources */
    const char *out_name;
    /* placement */
    int32_t root;
    int64_t root_col;
    /* of a root: node of first write and last read, over everything that shares it */
    int32_t first, last;
    size_t off; /* of a root: bytes in its memory area */
    /* lives from one segment into another, so that each slot has it for itself */
    bool saved;
};

/* An output whose gradient the host writes. */
struct lf_seed {
    int32_t value, grad; /* tensors; grad is an input */
};

/* An input that another graph made, whose gradient goes back to it. */
struct lf_cut {
    int32_t value;
    const char *grad_name;
};

struct lf_graph {
    lf_arena *arena;
    lf_pstore *ps;
    const char *name;
    struct lf_tensor *t; /* t[0] is "none" */
    size_t n_t, cap_t;
    struct lf_node *n;
    size_t n_n, cap_n;
    size_t n_fwd; /* forward nodes; == n_n before differentiation */
    size_t n_bwd; /* of a plan: from here on, the segment that makes gradients of weights alone */
    /* [n_n] of a split backward pass: the places here of the nodes in the order before; NULL: it is
     * not split */
    int32_t *order;
    int32_t block;
    int32_t xent; /* last node of a loss, -1 none */
    struct lf_seed *seed;
    size_t n_seed, cap_seed;
    struct lf_cut *cut;
    size_t n_cut, cap_cut;
    int32_t moe_total; /* input with the balance of all layers of the model; 0: they are here */
    const char *moe_total_name;
    bool whole; /* lf_whole_rows: of what is declared now */
    lf_err err; /* sticky */
};

/* ---- graph.c ---- */
int lf_graph_fail(lf_graph *g, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes a root tensor, whose name may be a format. Returns its id, or 0 with the sticky error
 * set. */
int32_t lf_tensor_new(lf_graph *g, enum lf_dtype dtype, enum lf_tensor_role role, int64_t rows,
                      int64_t cols, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
int32_t lf_tensor_view(lf_graph *g, int32_t parent, int64_t col, int64_t cols);
/* An input, constant or state by name, made at its first call. */
lf_val lf_graph_source(lf_graph *g, enum lf_tensor_role role, const char *name, enum lf_dtype dtype,
                       int64_t rows, int64_t cols);
/* Appends a node with these inputs; the shape rule of the op makes the outputs. Returns the index
 * of the node, or -1. */
int32_t lf_node_new(lf_graph *g, enum lf_op op, const int32_t *in, size_t n_in,
                    const struct lf_attr *a);
/* As lf_node_new, for builders. Returns the first output of the node, or LF_NONE when g has failed
 * or an input is not of g. */
lf_val lf_graph_op(lf_graph *g, enum lf_op op, const int32_t *in, size_t n_in,
                   const struct lf_attr *a);
/* Appends a node whose outputs exist already. */
int32_t lf_node_raw(lf_graph *g, enum lf_op op, int32_t block);
/* Return the one tensor of this graph that stands for the gradient, or for the bf16 copy, of a
 * group. */
int32_t lf_graph_grad(lf_graph *g, int32_t param);
int32_t lf_graph_copy(lf_graph *g, int32_t param);
/* The same for any kind, with this type and shape. */
int32_t lf_graph_derived(lf_graph *g, int32_t param, enum lf_tensor_role role, int kind,
                         enum lf_dtype dtype, int64_t rows, int64_t cols);
int32_t lf_root_of(const lf_graph *g, int32_t t);
int64_t lf_ld_of(const lf_graph *g, int32_t t);
/* Is it a linear op of any precision? Their slots are the same. */
static inline bool lf_is_linear(uint8_t op)
{
    return op == LF_OP_LINEAR || op == LF_OP_LINEAR_FP8;
}
static inline bool lf_is_float(uint8_t dt)
{
    return dt == LF_F32 || dt == LF_BF16 || dt == LF_F16;
}

/* ---- the op table (ops*.c) ---- */
struct lf_ad;
struct lf_bind;
struct lf_op_row {
    const char *name;
    /* dtypes, one letter per slot: c compute type, x any float, f f32, i i32, l i64, w weight in
     * the compute type, m f32 weight, g f32 gradient, s state in the compute type, q 8-bit float;
     * for outputs o is the compute type, or f32 where the tensor is pinned. */
    const char *in_types, *out_types;
    int (*shape)(lf_graph *g, struct lf_node *n); /* checks inputs, makes outputs; sticky error */
    /* appends backward nodes; NULL: nothing flows through */
    int (*vjp)(struct lf_ad *ad, int32_t node);
    const char *saves; /* the forward values that the vjp reads, for people */
    /* {out, in} pairs that may share their place, in order of preference; {-1, -1} ends */
    signed char alias[4][2];
    uint8_t flags;
    /* class of the result: "row" (a row depends on that row alone), "rows" (reduces over rows),
     * "exact" */
    const char *numeric;
    double (*flops)(const lf_graph *g, const struct lf_node *n, bool full); /* NULL: none counted */
    int kernel;                                                             /* enum lf_kernel_id */
    int (*emit)(const struct lf_bind *b, const struct lf_node *n, void *args);
};
enum {
    LF_OPF_CHEAP = 1,  /* selective recomputation repeats it */
    LF_OPF_DENSE = 2,  /* its operands of float type need row distance == cols */
    LF_OPF_SIDE = 4,   /* has an effect beside its outputs and is never pruned */
    LF_OPF_SAMELD = 8, /* outputs 0 and 1 share a row distance; so do inputs 0 and 1 */
    LF_OPF_RNG = 16,   /* draws random numbers: attr.site */
    LF_OPF_TOKENS = 32 /* a row of its activations is a token, and its kernel takes fewer rows */
};
extern const struct lf_op_row lf_op_table[LF_OP_COUNT];

#define LF_KERNEL_ENUM(name) LF_KID_##name,
enum lf_kernel_id {
    LF_KERNEL_LIST(LF_KERNEL_ENUM) LF_KID_exchange,
    LF_KID_experts,
    LF_KID_attn_spread,
    LF_KID_COUNT
};
/* What the nodes of a layout do instead of a kernel: they sum over the ranks of the tensor axis,
 * and exchange rows for heads over those of the context axis. */
struct lf_exchange {
    int (*sum)(void *user, float *data, size_t n, lf_err *err); /* n floats, in place */
    int (*gather)(void *user, void *all, size_t bytes, lf_err *err);
    int (*scatter)(void *user, float *out, const float *data, size_t n, lf_err *err);
    /* memory of the backend, in the order of its calls */
    int (*move)(void *user, void *to, const void *from, size_t bytes, lf_err *err);
    int (*clear)(void *user, void *data, size_t bytes, lf_err *err);
    /* The ranks of the context axis: each gives every one `bytes` bytes, in the order of the ranks,
     * and gets as many of each; the other is gather of these. */
    int (*context_swap)(void *user, void *out, const void *in, size_t bytes, lf_err *err);
    int (*context_gather)(void *user, void *all, size_t bytes, lf_err *err);
    /* As context_swap among some of them. */
    int (*context_among)(void *user, void *out, const void *in, size_t bytes,
                         const struct lf_rank_group *g, lf_err *err);
    /* The same where parts differ: to[r] bytes for rank r of the axis, from[r] of it. */
    int (*context_parts)(void *user, void *out, const size_t *from, const void *in,
                         const size_t *to, lf_err *err);
    /* context_gather that goes on until context_finish, one at a time; or NULL. */
    int (*context_begin)(void *user, void *all, size_t bytes, lf_err *err);
    int (*context_finish)(void *user, lf_err *err);
    void *user;
    int rank, context_rank, context_ranks;
    struct lf_experts *experts; /* experts.h */
    lf_err err;                 /* why one failed */
};
enum lf_exchange_what {
    LF_EX_SUM = 0, /* out = the sum of in, all n floats */
    LF_EX_SCATTER, /* out = this rank's n of the sum of in, which has those of all ranks */
    LF_EX_GATHER,  /* out = in of all ranks, n elements of each */
    LF_EX_ROWS,    /* out = this rank's n elements of in */
    LF_EX_JOIN,    /* out = in of all ranks side by side */
    LF_EX_OWN,     /* out = this rank's rows of in, which has all n elements; f32 */
    LF_EX_OWN_BWD, /* out (+)= these rows, zeros elsewhere */
    LF_EX_HEADS,   /* from here on of the context axis (kern_context.c) */
    LF_EX_HEADS_BACK,
    LF_EX_CONTEXT_WHOLE /* out = in of all ranks, n elements of each */
};
/* Where the rows of a micro-batch are that ranks have: n blocks of `block` rows, those of rank 0,
 * then those of rank 1, begin at rows first[0 ... n - 1]. A rank has `own` rows, so that its last
 * block may be shorter. first NULL: in order. */
struct lf_row_blocks {
    const int32_t *first;
    int64_t n, block, own;
};
struct lf_k_exchange {
    struct lf_exchange *with; /* NULL while planning */
    const void *in;
    void *out; /* of a sum: may be in */
    size_t n;
    /* of a join: rows, columns of out, and those of each rank in it but the last, which has the
     * rest */
    int64_t rows, cols, each;
    struct lf_rank_group among; /* of the context axis, those that take part */
    bool apart;                 /* not all of them do */
    /* of heads: a rank's rows, the columns of all its heads, those that go to one rank; the row
     * distance of the side that has rows; how many heads there are */
    int64_t ld, heads;
    int ranks;
    uint8_t what, in_type;
    /* of the rows that are a rank's own: their elements, and the group that has as many rows */
    int64_t width;
    const struct lf_pstore *ps;
    int32_t group;
    bool accumulate;
    struct lf_row_blocks blocks; /* of what is whole: where the rows of ranks go, or none */
    void *work;
    size_t work_bytes;
};
/* kern_context.c */
int lf_exchange_context(const struct lf_kernels *k, lf_queue *q, const struct lf_k_exchange *a);
size_t lf_exchange_context_work(const struct lf_k_exchange *a);
/* Moves blocks of rows of `bytes` bytes from the order of ranks to that of rows, or back. */
int lf_context_order(struct lf_exchange *w, const struct lf_row_blocks *b, void *out,
                     const void *in, size_t bytes, bool back);
/* Gives every rank of a group `bytes` bytes of each, which it has in place; `copies` is room for as
 * much as all. And context_swap among a group. */
int lf_context_collect(struct lf_exchange *w, const struct lf_rank_group *g, void *all,
                       size_t bytes, void *copies);
int lf_context_trade(struct lf_exchange *w, const struct lf_rank_group *g, void *out,
                     const void *in, size_t bytes);
/* kern_gather.c: attention of this rank's queries over keys and values of all ranks. fwd or bwd
 * says what of, with this rank's keys and values, of as many rows as its queries (own.n). With
 * own.keys rows are in order, and those that come are the `reach` rows before this rank's; with
 * `turns` they are those before each of its two runs. */
struct lf_k_attn_spread {
    struct lf_exchange *with; /* NULL while planning */
    struct lf_k_attn_fwd fwd;
    struct lf_k_attn_bwd bwd;
    bool backward;
    struct lf_row_blocks blocks;
    int64_t each;               /* heads of keys that come at a time */
    struct lf_rank_group group; /* the ranks that gather */
    int64_t reach;              /* of a window: rows that come of other ranks, not of all */
    bool turns;                 /* then: before each of two runs of this rank's (layout.h) */
    void *work;
    size_t work_bytes;
};
int lf_spread_call(const struct lf_kernels *k, lf_queue *q, const void *args);
int lf_spread_check(const struct lf_kernels *k, const void *args);
size_t lf_spread_work(const struct lf_kernels *k, const void *args, int threads);
/* How many heads of keys come at a time; given 0: as layout.h says of context_groups. */
int64_t lf_spread_heads(const struct lf_k_attn_spread *a, int64_t given);
/* What a call moves, as communicators count it. */
void lf_spread_moved(const struct lf_k_attn_spread *a, int64_t *messages, double *bytes);
/* What nodes do where ranks divide experts (experts.h). */
enum lf_experts_what { LF_EXPERTS_COUNT, LF_EXPERTS_SEND, LF_EXPERTS_RETURN };
struct lf_k_experts {
    struct lf_exchange *with; /* NULL while planning */
    const void *in;           /* of a send: rows, or one for each pair where row_of is NULL */
    void *out;
    const int32_t *row_of; /* [pairs]; of a count, folded alone */
    int32_t *counts;       /* [ranks, experts]; folded: [ranks + 1, experts] */
    int32_t *seen; /* counts in memory of the host, where it does not see those; else NULL */
    /* of a count: [experts + 1], those of the pairs; of a send: [experts / ranks + 1], those of the
     * room, or NULL */
    int32_t *offsets;
    int64_t pairs, room, width; /* rows of this rank, rows that it takes at once, their columns */
    int64_t lo, hi;             /* of a count, folded: this rank sends pairs of rows [lo, hi) */
    int32_t experts;            /* of all ranks */
    int ranks;
    bool folded; /* lf_layout */
    uint8_t what, type;
    void *work;
    size_t work_bytes;
};
/* Uniform access to the table of kernels (kern_table.c). */
struct lf_kernel_row {
    const char *name;
    size_t args_bytes;
    int (*call)(const struct lf_kernels *k, lf_queue *q, const void *args);
    /* LF_K_EINVAL also when the kernel is missing */
    int (*check)(const struct lf_kernels *k, const void *args);
    size_t (*work)(const struct lf_kernels *k, const void *args, int threads);
};
extern const struct lf_kernel_row lf_kernel_table[LF_KID_COUNT];
/* Offsets in an argument struct of the pointer to the workspace and of its byte count; 0: it has no
 * workspace. */
struct lf_kernel_work {
    size_t at, bytes_at;
};
extern const struct lf_kernel_work lf_kernel_work[LF_KID_COUNT];
/* Sets the workspace of args to `bytes` bytes at work. */
void lf_kernel_set_work(int kernel, void *args, void *work, size_t bytes);

/* What emit functions use. While planning, where only shapes matter, addresses are placeholders
 * other than NULL. */
struct lf_bind {
    const lf_graph *g;
    int numeric;
    void *(*ptr)(const struct lf_bind *b, int32_t t); /* NULL for t == 0 */
    struct lf_step_record *rec;
    const void *(*packed)(const struct lf_bind *b, int32_t param); /* panels of a weight or NULL */
    const bool *accumulate;                  /* per node: gradients of this node add */
    bool acc;                                /* of the node being bound */
    const struct lf_opt_tensor *opt_tensors; /* those of AdamW, then those that are balanced */
    int64_t n_opt_tensors, n_balanced;
    const struct lf_opt_tensor *own_tensors; /* what AdamW updates on this rank */
    int64_t n_own_tensors;
    int64_t n_counted; /* of them, in this rank's part of the norm */
    double *sums;      /* lf_k_grad_norm; NULL: the norm is of opt_tensors */
    int64_t n_sums;
    const struct lf_adamw_opts *adamw;
    /* activations of rows_all rows count as having rows_live rows; 0: no change (exec_rows.c) */
    int64_t rows_all, rows_live;
    struct lf_exchange *exchange;
    const struct lf_k_ranks *with; /* those of the tensor axis */
    void *user;
};
int lf_emit_grad_norm(const struct lf_bind *b, const struct lf_node *n, void *args);
int lf_emit_adamw(const struct lf_bind *b, const struct lf_node *n, void *args);

#define LF_FLOPS(op) double lf_flops_##op(const lf_graph *g, const struct lf_node *n, bool full)
LF_FLOPS(linear);
LF_FLOPS(linear_dx);
LF_FLOPS(linear_dw);
LF_FLOPS(attn);
LF_FLOPS(attn_bwd);
LF_FLOPS(xent);
LF_FLOPS(logp);
LF_FLOPS(logp_bwd);
LF_FLOPS(heads_linear);
LF_FLOPS(moe_linear);
LF_FLOPS(moe_linear_dx);
LF_FLOPS(moe_linear_dw);
LF_FLOPS(dora_norm);
LF_FLOPS(scan);
LF_FLOPS(scan_bwd);
LF_FLOPS(linear_dw_fp8);
/* Returns the bytes that a node moves if every operand moves once. A paged cache counts as a whole,
 * which is an upper bound. */
double lf_node_traffic(const lf_graph *g, const struct lf_node *n);

/* ---- autodiff.c ---- */
struct lf_ad {
    lf_graph *g;
    int32_t *grad; /* per tensor: its gradient so far; 0: none */
    int32_t *uses; /* per tensor: forward nodes that will contribute to its gradient */
    bool *needs;   /* per tensor: a trained parameter lies upstream */
    size_t n;      /* tensors when differentiation began */
    int32_t block; /* of the node whose vjp runs */
};
int lf_autodiff(lf_graph *g, lf_err *err);
/* For vjps. lf_ad_grad_of returns the gradient of an output, 0 when there is none. lf_ad_slot
 * returns the tensor for the next contribution to the gradient of t. lf_ad_contribute says that d
 * is that contribution: a slot, or any tensor with the shape of t. lf_ad_wants tells whether t
 * needs a gradient. */
int32_t lf_ad_grad_of(struct lf_ad *ad, int32_t t);
int32_t lf_ad_slot(struct lf_ad *ad, int32_t t);
void lf_ad_contribute(struct lf_ad *ad, int32_t t, int32_t d);
bool lf_ad_wants(const struct lf_ad *ad, int32_t t);
/* cut.c: is the graph one of several that are a model together? */
bool lf_graph_is_cut(const lf_graph *g);
/* The gradients by inputs of lf_cut_in become outputs. */
int lf_cut_gradients(struct lf_ad *ad);

/* ---- layout*.c ---- */
struct lf_param;
struct lf_pgroup;
/* Elements that are summed at once over ranks that share a box. */
enum { LF_TENSOR_SCRATCH = 65536 };
enum { LF_PL_UNSET = 255 }; /* no node has written the value so far */
/* Computes the places of the outputs of a node on an axis from those of its inputs. An error names
 * op and tensors. */
int lf_place_node(lf_graph *g, const struct lf_node *n, enum lf_axis axis);
/* Sets the places of what no node writes. */
void lf_place_sources(lf_graph *g, enum lf_axis axis);
/* Has each rank of the tensor axis all rows of t, of which it takes its own where these are divided
 * in what t is added to? Places of the axis are known. */
bool lf_place_spreads(const lf_graph *g, int32_t t);
/* Gives the graph the local shapes of the store's layout, before differentiation. */
int lf_layout_localise(lf_graph *g, lf_err *err);
/* layout_context.c. How many of so many heads each of the context's ranks computes. */
int64_t lf_context_own(int64_t heads, int ranks);
/* Makes the operands and attributes of attention those of this rank's heads over all rows; or with
 * context_gather those of LF_OP_CP_ATTN, and then blocks is LF_CONTEXT_BLOCKS, or 0. */
int lf_context_enter(lf_graph *g, int32_t in[], struct lf_attr *a, int32_t blocks);
/* Makes the operands of moe_stats those of all rows, so that every rank knows the balance of all;
 * what is added up over ranks counts this rank's rows, in a node of its own. */
int lf_context_stats(lf_graph *g, int32_t in[], const struct lf_attr *a, int32_t blocks);
/* Gives moe_keep the choices of all rows, and where this rank's are. */
int lf_context_keep(lf_graph *g, int32_t in[], int32_t blocks);
/* What attention made, of this rank's rows and all heads; 0: it failed. */
int32_t lf_context_leave(lf_graph *g, int32_t o, int32_t heads);
/* Finds over which axes the gradients of the store's groups are summed, after differentiation, and
 * removes the nodes that compute nothing. */
int lf_layout_check(lf_graph *g, lf_err *err);
/* Elements of a logical tensor. */
int64_t lf_logical(const struct lf_param_desc *d);
/* Sets the box of a tensor and its place. */
/* Successive rows of n for each of `ranks`: multiples of a power of two, as large as leaves some
 * for the last rank. 0: there are too few. */
int64_t lf_vocabulary_rows(int64_t n, int64_t ranks);
int lf_box_find(const lf_pstore *ps, const struct lf_param_desc *d, struct lf_box *box,
                lf_err *err);
/* A box as runs of successive elements of the logical tensor: element e of the flattened box is
 * number base + e / run * period + e % run. run = 0: the box is the tensor. */
struct lf_box_runs {
    int64_t base, run, period;
};
void lf_box_runs(const struct lf_param *p, struct lf_box_runs *r);
/* Elements of the largest box of a tensor. */
int64_t lf_box_most(const lf_pstore *ps, const struct lf_param *p);
/* How many different boxes the tensor and the expert axis make of a tensor, and the number of this
 * rank's; 1: every rank has all of it. */
int64_t lf_box_count(const lf_pstore *ps, const struct lf_param *p);
int64_t lf_box_number(const lf_pstore *ps, const struct lf_param *p);
/* Is this rank the first of those that have its box? It counts the box in the norm, and writes
 * it. */
bool lf_box_owner(const lf_pstore *ps, const struct lf_param *p);
/* The number in the logical tensor of element e of the flattened box. */
int64_t lf_box_element(const struct lf_param *p, int64_t e);
/* How many elements of the flattened box from e on, before `end`, are successive in the logical
 * tensor. */
int64_t lf_box_run(const struct lf_param *p, int64_t e, int64_t end);
/* Which rows of a group this rank has of its k-th member: *n rows from *first of all rows on. */
void lf_box_rows(const lf_pstore *ps, const struct lf_pgroup *g, int32_t k, int64_t *first,
                 int64_t *n);

/* ---- passes ---- */
int lf_precision(lf_graph *g, enum lf_dtype compute, lf_err *err);
int lf_fp8_pass(lf_graph *g, enum lf_fp8 fp8, lf_err *err);
int lf_fuse(lf_graph *g, uint32_t patterns, lf_err *err);
int lf_recompute(lf_graph *g, enum lf_recompute how, lf_err *err);
void lf_prune(lf_graph *g);
int lf_split(lf_graph *g, lf_err *err);
/* Counts the reads of each tensor, without those of its views, in counts[n_t]. */
void lf_count_reads(const lf_graph *g, int32_t *counts);
/* A list of nodes that a pass writes to replace those of a graph. */
struct lf_nodes {
    struct lf_node *n;
    size_t count, cap;
};
/* Appends *n and returns it, valid until the next push. NULL when g has failed, also for lack of
 * memory. */
struct lf_node *lf_nodes_push(lf_graph *g, struct lf_nodes *out, const struct lf_node *n);
/* Ends the pass: the nodes of out become those of g, the first n_fwd of them its forward. When g
 * has failed, it frees out and returns the failure. */
int lf_nodes_take(lf_graph *g, struct lf_nodes *out, size_t n_fwd, lf_err *err);
/* Removes LF_OP_NONE nodes and corrects n_fwd and producers. */
void lf_compact(lf_graph *g);

/* ---- place.c ---- */
struct lf_interval {
    int32_t first, last; /* node numbers, inclusive */
    size_t bytes;        /* rounded up to the alignment by the caller */
    size_t off;          /* out */
};
/* Finds offsets for the intervals, so that two that overlap in time do not overlap in bytes.
 * *height becomes the bytes needed, *lower the largest live set. */
int lf_place_intervals(struct lf_interval *iv, size_t n, size_t *height, size_t *lower,
                       lf_err *err);
int lf_alias(lf_graph *g, lf_err *err);
void lf_liveness(lf_graph *g);
/* Finds which tensors cross from one segment into another, given their first and last nodes. */
void lf_mark_saved(lf_graph *g);

/* ---- pstore.c ---- */
/* Kinds of a group that only plans and executors see: its matrix in e4m3, the transpose of it, and
 * their scales. With one scale for a tensor LF_P_QTS is never needed. */
enum { LF_P_Q = LF_P_KINDS, LF_P_QT, LF_P_QS, LF_P_QTS, LF_P_ALL };
struct lf_pgroup {
    const char *name;
    int32_t first, count; /* params */
    int32_t ndim;
    int64_t rows, cols;         /* of this rank's boxes; vectors: rows 1, cols n */
    int64_t all_rows, all_cols; /* of the logical tensors; of experts, those that this rank has */
    uint8_t place;              /* on the tensor axis: enum lf_place */
    bool experts;               /* this rank has those of some experts alone */
    bool sum[LF_AXES];          /* gradients are summed over the axis: as lf_layout_check found */
    bool frozen, balanced;
    bool elsewhere; /* every member has it set */
    bool fp8;       /* every member has fp8 set */
    bool need[LF_P_ALL];
    bool host[LF_P_ALL]; /* this kind lies in host_data of the store */
    bool master_read;    /* graphs read the master, not the optimizer alone */
    /* of a kind with `part`, memory has elements [own0, own1) alone (plan_shard.c); else they are
     * all */
    bool part[LF_P_ALL];
    int64_t own0, own1;
    /* of a kind with `window`, all elements are in memory only while a chain needs them
     * (plan_window.c), at bytes from the start of the block of the group's unit */
    bool window[LF_P_KINDS];
    size_t at[LF_P_KINDS];
    int32_t unit; /* of the plan, -1: ranks do not divide the group */
    size_t pos;   /* its first element in the unit */
    size_t off[LF_P_ALL];
    bool need_pack;
    size_t pack_off, pack_bytes;
    uint8_t pack_type;
};
struct lf_param {
    struct lf_param_desc d; /* strings owned by the arena */
    int32_t group;
    struct lf_box box;
    int64_t offset; /* elements from the group's start */
    int64_t n;      /* elements of the box */
    bool tied;      /* another rank of the pipeline axis has it, too */
    bool lent;      /* and owns it */
    /* several have it, and this is its place among all such tensors, in elements; -1: not so */
    int64_t spread_at;
};
struct lf_padapter {
    int32_t group;
    uint32_t members; /* bits; 0: the group as a whole */
    /* [member]: the one that stands first among those that share its A, after which that is
     * named */
    uint8_t first[LF_ADAPTER_MEMBERS];
    int32_t reads; /* the group whose A it reads: this one, or of experts another */
    struct lf_adapter_desc d;
};
struct lf_back;
struct lf_pstore {
    lf_arena *arena;
    struct lf_layout layout;
    bool part;      /* of a model */
    int64_t spread; /* elements of all tensors that several pipeline stages have, on any rank */
    struct lf_param *p;
    size_t n_p, cap_p;
    int32_t *slot; /* [n_slots] by name */
    size_t n_slots;
    struct lf_pgroup *g;
    size_t n_g, cap_g;
    struct lf_padapter *ad;
    size_t n_ad, cap_ad;
    size_t bytes[LF_P_ALL], pack_bytes;
    char *data[LF_P_ALL], *pack;
    size_t host_bytes[LF_P_ALL]; /* of the host's memory */
    char *host_data[LF_P_ALL];
    struct lf_back *back;            /* NULL: not bound */
    enum lf_dtype copy_type;         /* of LF_P_COPY: the plan's compute type, or bf16 */
    enum lf_dtype moment_type;       /* of LF_P_M, LF_P_V: as the plan's optimizer keeps them */
    enum lf_fp8_scaling fp8_scaling; /* of LF_P_Q */
    uint64_t version;                /* of the weights */
    uint64_t copy_version;           /* the copies were made from */
    uint64_t pack_version;           /* the panels were made from */
};
/* adapter.c: measures the rows of an adapter's group, whose weights of this type lie at w as a
 * whole, in memory of the backend. Where ranks have parts of rows, they add up with `with`. */
int lf_adapter_measure(lf_pstore *ps, const struct lf_padapter *a, const char *w,
                       enum lf_dtype type, struct lf_exchange *with, lf_err *err);
int32_t lf_pstore_group(const lf_pstore *ps, const char *name); /* index or -1 */
void lf_pstore_layout(lf_pstore *ps, size_t align);
/* The address of a group, or of a tensor, of this kind; NULL: the plan has none, or it is not
 * bound. */
void *lf_pgroup_data(const lf_pstore *ps, const struct lf_pgroup *g, int kind);
void *lf_pstore_data(const lf_pstore *ps, const struct lf_param *p, enum lf_pkind kind);
/* The gradients of a group that this rank has, in elements. */
size_t lf_pgroup_grads(const struct lf_pgroup *g);
/* Kinds and panels lie one after another: lf_pstore_bytes bytes from memory on, and
 * lf_pstore_host_bytes bytes of the host's memory from host on. */
size_t lf_pstore_bytes(const lf_pstore *ps);
size_t lf_pstore_host_bytes(const lf_pstore *ps);
int lf_pstore_bind(lf_pstore *ps, struct lf_back *b, char *memory, char *host, lf_err *err);
void lf_pstore_unbind(lf_pstore *ps);
/* Fills the call that makes the 8-bit copies of a group from its master, or from its copy where it
 * has no master. Addresses are NULL before memory is bound. false: the group has no 8-bit
 * copies. */
bool lf_store_quantise(const lf_pstore *ps, const struct lf_pgroup *g, struct lf_k_quantise *out);

/* Nodes [first, last] of a chain, which run once for each round of rows that go to other ranks'
 * experts (experts.h). Of a backward pass with more than one round: nodes [again, again_last] made
 * what they read, and run before them, with this workspace; again = -1: there are none. */
struct lf_region {
    int32_t first, last, again, again_last;
    int32_t
        reader; /* a return at the end may be late: the node that waits for it (late.c); else 0 */
    size_t work_off, work_bytes;
};
/* ---- plan.c ---- */
struct lf_chain {
    lf_graph *g; /* owned copy, after all passes */
    struct lf_chain_opts o;
    size_t *work_off, *work_bytes; /* per node; offset in the arena of the chain's slot 0 */
    bool *first_writer;            /* per node: it writes its gradients first in this chain */
    size_t input_off, input_bytes; /* inputs of one slot; slots follow each other */
    /* with saved tensors apart: first these, slot after slot, then the transients */
    size_t saved_bytes;
    size_t arena_off, arena_bytes; /* the place of the whole chain in the arena */
    size_t rest_off, rest_bytes;   /* of the transients, from arena_off on */
    size_t saved_live; /* most bytes live across the boundary between segments, all slots */
    size_t live_max;   /* largest live set, all slots */
    size_t rest_live;  /* transients in it, where saved tensors are apart */
    size_t work_max;   /* largest workspace of a node */
    struct lf_window *window;
    size_t n_windows;
    struct lf_event *event; /* in the order in which they happen */
    size_t n_events;
    struct lf_region *region; /* in the order of their nodes */
    size_t n_regions;
};
struct lf_table { /* constants and states, shared by name */
    const char *name;
    uint8_t dtype;
    bool state;
    int64_t rows, cols;
    size_t off, bytes;
    void (*fill)(void *dst, const void *ctx);
    const void *ctx;
};
/* What lives in the arena while a chain runs: all elements of a kind of a unit. Weights are
 * gathered from node `begin` on and complete at `first`; nodes [first, last] read them. Gradients
 * are written by nodes [first, last], summed from then on, and no longer needed at `end`. Numbers
 * of nodes lie in [0, n_n]. */
struct lf_window {
    size_t unit;
    uint8_t kind;
    int32_t begin, first, last, end;
    bool fill;  /* gradients: some of them no node of the chain writes */
    size_t off; /* in the chain's place in the arena */
};
/* What happens before a node of a chain, in this order where it happens before the same node. */
enum lf_event_what {
    LF_EV_SUMMED,     /* the sum of a window of gradients is there */
    LF_EV_SUM,        /* it begins */
    LF_EV_FILL,       /* a window of gradients becomes 0 */
    LF_EV_GATHER_NOW, /* the gathering of weights that are read at once begins */
    LF_EV_GATHERED,
    LF_EV_GATHER,     /* that of weights that are read later */
    LF_EV_LAST_SUMMED /* LF_EV_SUMMED behind the last node */
};
struct lf_event {
    int32_t node;
    uint8_t what; /* enum lf_event_what */
    size_t window;
};
struct lf_bucket { /* a range of the gradients */
    size_t off, n; /* off: bytes from the start of the gradients; n: floats */
    bool experts;  /* summed over the ranks with the same experts alone */
    size_t *count; /* [ranks] floats that each rank owns; NULL: all ranks need the sum */
};
/* Consecutive groups of the store that ranks divide as if they were one tensor (plan_shard.c). */
struct lf_unit {
    size_t first, end;        /* groups */
    size_t n;                 /* elements, with the gaps between groups */
    bool experts;             /* of some experts: the ranks are those that have the same */
    size_t *cut;              /* [ranks + 1] rank r has elements [cut[r], cut[r + 1]) */
    size_t bytes[LF_P_KINDS]; /* of the block that a window of this kind holds; 0: it has none */
    /* [ranks] how much of that block is each rank's, one after the other, with the gaps behind
     * groups: in bytes, of gradients in floats */
    size_t *part[LF_P_KINDS];
    size_t own[LF_P_KINDS]; /* offset of this rank's part in the store's block of the kind */
    /* what chains with `whole` read of it lies at `whole` in the arena */
    bool held[LF_P_KINDS];
    size_t whole[LF_P_KINDS];
};
struct lf_gather { /* a range of a kind's block that ranks give each other after a step */
    uint8_t kind;
    size_t first, last; /* groups of the store */
    size_t off, bytes;
    bool experts; /* among the ranks with the same */
    size_t *part; /* [ranks] bytes of each rank, one after the other */
};
struct lf_plan {
    lf_arena *arena;
    lf_pstore *ps;
    struct lf_plan_opts o;
    const struct lf_kernels *k; /* for workspace sizes */
    struct lf_k_ranks with;     /* for those, the ranks of the tensor axis */
    bool work_exact;            /* k is the target's own table */
    struct lf_chain *c;
    size_t n_c, cap_c;
    struct lf_table *tab;
    size_t n_tab, cap_tab;
    bool has_opt, finished;
    struct lf_plan_ranks ranks;
    struct lf_bucket *bucket; /* [n_buckets] */
    size_t n_buckets;
    bool sharded;         /* the optimizer's state is, and what follows is set */
    bool windowed;        /* so are gradients, and with zero = 3 weights */
    struct lf_unit *unit; /* [n_units] */
    size_t n_units;
    size_t whole_bytes; /* at the start of the arena: what chains with `whole` read */
    uint32_t whole_eras;
    size_t start_bytes;       /* of the arena that lf_exec_adapter_start needs */
    struct lf_gather *gather; /* [n_gather] */
    size_t n_gather, cap_gather;
    size_t own_tab_off; /* the optimizer's table of this rank's part, [n_opt_tensors] */
    /* where gradients are summed for their owners alone: f64 sums of the blocks of the norm */
    size_t sums_off, n_sums;
    /* on GPUs, where such sums are made: [ranks - 1][sum_stride] floats of other ranks */
    size_t scratch_off, sum_stride;
    struct lf_adamw_opts adamw;
    size_t n_opt_tensors, n_balanced;
    size_t opt_work, refresh_work; /* workspaces of the optimizer and of making copies */
    size_t rec_off, opt_tab_off, const_bytes, input_bytes, state_bytes, arena_bytes;
    struct lf_plan_bytes bytes;
};
/* How many ranks of the data axis sum a gradient, and which of them this one is: all, or those with
 * the same experts. */
static inline int lf_plan_sum_ranks(const lf_plan *p, bool experts)
{
    const struct lf_layout *l = &p->ps->layout;
    return experts ? p->ranks.ranks * (l->folded ? l->tensor : 1) / l->expert : p->ranks.ranks;
}
/* Of the rank with number `rank` on the data axis, and this one's place on the tensor axis. */
static inline int lf_plan_sum_rank_of(const lf_plan *p, bool experts, int rank)
{
    const struct lf_layout *l = &p->ps->layout;
    return !experts    ? rank
           : l->folded ? (rank * l->tensor + l->tensor_rank) / l->expert
                       : rank / l->expert;
}
static inline int lf_plan_sum_rank(const lf_plan *p, bool experts)
{
    return lf_plan_sum_rank_of(p, experts, p->ranks.rank);
}
/* Are saved tensors apart from transients? Else the backward pass follows its forward pass at
 * once. */
static inline bool lf_chain_apart(const struct lf_chain *c)
{
    return c->o.slots > 1 || c->o.chunk > 0;
}
/* Are two chains chunks that are there together, so that they share their transients? */
static inline bool lf_chains_share(const struct lf_chain *a, const struct lf_chain *b)
{
    return a->o.chunk > 0 && b->o.chunk > 0 && a->o.eras == b->o.eras;
}
size_t lf_align_up(size_t x, size_t align);
/* plan.c: fills bytes of the plan from its parts. */
void lf_plan_count_bytes(lf_plan *p);
size_t lf_tensor_bytes(const struct lf_tensor *t);
/* plan_place.c: the workspace of every node, with the kernel's own check of its arguments; the
 * arena of a chain; the arena of all chains. */
int lf_plan_workspaces(lf_plan *p, struct lf_chain *c, lf_err *err);
int lf_plan_place_chain(lf_plan *p, struct lf_chain *c, lf_err *err);
int lf_plan_place_arena(lf_plan *p, lf_err *err);
/* plan_chunk.c: checks the options of a chain that is split or a chunk; before placement, settles
 * what chunks have together. */
int lf_plan_check_chunk(const lf_graph *g, const struct lf_chain_opts *o, lf_err *err);
int lf_plan_chunks(lf_plan *p, lf_err *err);
/* Sets *saved and *live to the most bytes across segments, and at any time, of a chain, or of all
 * chunks that are there with it. */
void lf_plan_live(const lf_plan *p, const struct lf_chain *c, size_t *saved, size_t *live);
/* plan_data.c: finds the ranges that are summed over ranks, after the layout of the store. */
int lf_plan_buckets(lf_plan *p, lf_err *err);
/* Adds a sum of n elements of `each` bytes that all of `ranks` get, as `rank` counts it. */
void lf_moved_add_sum(const lf_plan *p, struct lf_plan_moved *m, size_t n, size_t each, int ranks,
                      int rank);
/* plan_tensor.c: sets what is moved among the ranks of the tensor axis. */
void lf_plan_count_tensor(const lf_plan *p, struct lf_plan_comm *out);
/* plan_experts.c: sets what is moved among the ranks that divide experts. */
void lf_plan_count_experts(const lf_plan *p, struct lf_plan_comm *out);
/* plan_shard.c: divides units among the ranks, with zero, and lays the store out anew. */
int lf_plan_shard(lf_plan *p, lf_err *err);
/* Sets what of a bucket is whose: the bucket of a unit. */
int lf_plan_count_bucket(lf_plan *p, struct lf_bucket *b, const struct lf_unit *u, lf_err *err);
/* Are gradients summed for their owners alone, and is the norm? Not so on GPUs with zero = 1 among
 * all ranks: NCCL sums everything there, and has the bits of a run without zero. */
bool lf_plan_sums_parts(const lf_plan *p);
/* The most floats of a unit's gradients that are one rank's. */
size_t lf_plan_largest_part(const lf_plan *p);
/* Where the elements from cut[r] on begin in the block of a window. */
size_t lf_unit_cut(const lf_plan *p, const struct lf_unit *u, int kind, int r);
/* Offset of this rank's gradients of unit i in the store, in bytes, and their number of floats. */
size_t lf_plan_own_grads(const lf_plan *p, size_t i, size_t *n);
/* plan_window.c: finds the windows of a chain and what happens when. */
int lf_plan_windows(lf_plan *p, struct lf_chain *c, lf_err *err);
/* plan_whole.c: lays out what chains with `whole` read, and what the start of magnitudes needs. */
void lf_plan_whole(lf_plan *p);
/* The window that holds a kind of a group while a node runs; NULL: the store holds it. */
const struct lf_window *lf_chain_window(const struct lf_chain *c, const struct lf_pgroup *g,
                                        int kind, size_t node);
int64_t lf_plan_norm_blocks(const lf_plan *p); /* of all trained tensors */
/* Does this rank count its elements of a tensor in the norm? Where ranks divide experts and not the
 * optimizer's state, the first of the ranks of the data axis that have a box does. */
bool lf_plan_counts(const lf_plan *p, const struct lf_param *q);
/* The elements of a parameter that are this rank's: [*first, *first + *n). */
void lf_param_own(const lf_pstore *ps, const struct lf_param *p, int64_t *first, int64_t *n);
/* Sets ready[i] for every bucket i: the number of nodes of the chain that run before the gradients
 * of buckets 0 .. i are complete; at least those of the forward pass. */
void lf_plan_bucket_ready(const lf_plan *p, const struct lf_chain *c, size_t *ready);
/* Writes "op (in, in) -> out" to buf, for messages. */
const char *lf_node_text(const lf_graph *g, const struct lf_node *n, char *buf, size_t cap);
int32_t lf_plan_table(const lf_plan *p, const char *name); /* index or -1 */
uint64_t lf_plan_hash(const lf_plan *p);
/* "f32", "bf16", "fp16" */
const char *lf_compute_name(enum lf_dtype compute);
/* The name of the plan's compute type, or "fp8-tensor", "fp8-block". */
const char *lf_plan_compute(const lf_plan *p);
/* Returns the bind that the nodes of a chain use while planning. */
struct lf_bind lf_plan_shapes(const lf_plan *p, const struct lf_chain *c);
/* ops_scan.c: floats of a slot of a scan's state with these heads, in the mode that its state has
 * in g. */
int64_t lf_scan_own_slot(const lf_graph *g, const struct lf_node *n, const struct lf_attr *own);

#endif
