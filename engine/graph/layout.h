/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts: how ranks divide the tensors of a model, and which sums that makes necessary (Shoeybi et
 * al. 2019 for the division of matrices, arXiv 1909.08053).
 *
 * Model code writes mathematics over whole tensors. Names, options, checkpoints and converters know
 * whole ("logical") tensors too. A rank of a layout holds a **box** of each, and its plan has local
 * shapes: before differentiation a pass (layout.c) gives every value of the graph a **place** on
 * each axis and the local shape that follows from it. After differentiation a check
 * (layout_check.c) computes the places of the gradients. It derives from them over which axes the
 * gradient of each parameter is summed, and refuses a graph where something does not add up. So no
 * rank decides while it runs whether ranks exchange something.
 *
 * Places of a value on an axis of n ranks:
 *
 *     LF_PL_SAME     every rank has the value; its gradient is the same on all
 *     LF_PL_COPY     every rank has the value; its gradient is the sum over the ranks
 *     LF_PL_ROWS     a rank has some of the rows
 *     LF_PL_COLS     a rank has some of the columns (of each member of a group)
 *     LF_PL_PARTIAL  the value is the sum over the ranks
 *     LF_PL_EXPERTS  a rank has what belongs to its experts: of a parameter, or rows
 *
 * Two nodes change the place on the tensor axis. lf_tp_enter (SAME -> COPY) computes nothing, and
 * its backward sums over the ranks. lf_tp_leave (PARTIAL -> SAME) sums over the ranks, and its
 * backward is the identity. Sums and what they add up are f32 in every precision, but for what
 * experts give. A third one is for what is not differentiated: lf_tp_join (COLS -> SAME) gathers
 * the columns, such as logits of a divided vocabulary.
 *
 * With `sequence` (Korthikanti et al. 2022, arXiv 2205.05198) a rank has its rows of what stands
 * between a leave and the next enter: lf_tp_enter (ROWS -> COPY) gathers rows, and its backward
 * sums and leaves each rank its rows; lf_tp_leave (PARTIAL -> ROWS) is the other way round. What a
 * norm does to a row is then done once, and gradients of its weights are summed over the ranks.
 * Every rank chooses the experts of all rows (lf_tp_whole), since experts take rows of all ranks.
 *
 * Ranks of the context axis (Jacobs et al. 2023, arXiv 2309.14509) divide the rows of a micro-batch
 * from its beginning to its end: a graph is written over as many rows as one of them has, in the
 * order of the ranks, and each row brings its own position and target. Only attention reads other
 * rows. The pass turns rows of all heads (ROWS) into heads of all rows (COLS) before it and back
 * behind it, with one all-to-all for each operand, and again backwards. So a rank computes whole
 * documents of some heads, with the bits of one rank alone, and every mask and position is what it
 * was. Parameters are the same on all ranks (SAME), and every gradient is a sum over rows. Where
 * heads of keys are fewer than ranks, successive ranks compute with the same ones, and their
 * gradients are added up in the order of the ranks. The heads are those that a rank of the tensor
 * axis has, where both axes are there.
 *
 * With `context_gather` (Grattafiori et al. 2024, arXiv 2407.21783, section 3.3.2) a rank computes
 * attention of its own rows of queries, for all heads, over keys and values of all rows, which the
 * ranks gather before each call, a few heads of keys at a time, and again in the backward pass. So
 * heads need not divide by the ranks. Its rows are blocks of the micro-batch, as many for each,
 * dealt by the keys that they see (lf_context_deal); an input (LF_CONTEXT_BLOCKS) names them to the
 * kernels. All else that reads rows goes by what a row brings. Results and gradients of queries
 * have one rank's bits. What queries add to the gradients of keys and values goes back in f32 to
 * the ranks that have these rows, which add it up in the order of the ranks.
 *
 * Where every layer has a window, rows are in order (`context_in_order`): each row has about as
 * much work, and a window reaches rows of the ranks before alone. So these give what it reaches,
 * a tile of keys more (LF_ATTN_TILE), and get back what is added to its gradients.
 *
 * Where some layers have windows, and others see whole documents, each rank has two runs of
 * successive rows (`context_in_turns`): of 2 c runs, run r and run 2 c - 1 - r, so that a long
 * document leaves each rank the same work. Layers with windows get what these reach before either
 * run, of the ranks beside; the others gather keys of all rows.
 *
 * Pictures are not divided on this axis: each rank encodes all of them (SAME, lf_whole_rows), puts
 * features into its own rows of tokens, and has from these an addend of the features' gradients
 * (PARTIAL), which stays one down to the parameters of the encoder.
 * With `sequence` the sums of their encoder are of all rows, and each rank adds its rows of the
 * features to the stream (lf_tp_spread), whose gradients it gathers.
 *
 * Both go together (Fang and Zhao 2024, arXiv 2405.07719, have a ring in the place of gathering):
 * with `context_heads` successive ranks, which share a node, exchange heads, and gather keys of
 * these heads among the groups of such ranks.
 *
 * A norm over heads or channels that ranks divide (lf_norm_opts.divided) sums the squares of each
 * row over the ranks, and backwards the products of gradient and value that its mean needs: [R, 1]
 * each. A layer norm sums the row before that, since squares are those of what its mean is taken
 * from, and backwards the gradients in the same sum as the products: [R, 2]. Where several ranks
 * have the same heads all count them as often, which leaves the means what they are.
 *
 * Ranks of the expert axis are successive ranks of the data and the context axis together: they
 * have rows of their own, and divide the experts of each layer (Shazeer et al. 2017, arXiv
 * 1701.06538; Lepikhin et al. 2020, arXiv 2006.16668). A row goes to the ranks of the experts that
 * it chose and comes back (experts.h). So the gradient of an expert's weight has the rows of all of
 * these ranks, and what is left to sum is that of those ranks with the same experts.
 *
 * With `folded` the ranks of the tensor axis are among those of the expert axis, too: an expert is
 * whole on its rank (SAME on the tensor axis). Each of them knows the choices of all rows and sends
 * its rows alone, so what comes back is an addend (PARTIAL) that is zero for the rows of others.
 */
#ifndef LF_GRAPH_LAYOUT_H
#define LF_GRAPH_LAYOUT_H

#include "engine/graph/pstore.h"

enum lf_axis { LF_AXIS_DATA = 0, LF_AXIS_TENSOR, LF_AXIS_CONTEXT, LF_AXIS_EXPERT, LF_AXES };

enum lf_place { LF_PL_SAME = 0, LF_PL_COPY, LF_PL_ROWS, LF_PL_COLS, LF_PL_PARTIAL, LF_PL_EXPERTS };
const char *lf_axis_name(enum lf_axis axis);
/* "same", "copy", "rows", "columns", "partial", "experts" */
const char *lf_place_name(enum lf_place place);

/* The coordinates of a rank. Zero stands for one rank. */
struct lf_layout {
    int tensor;      /* ranks that divide matrices by rows and columns */
    int tensor_rank; /* [0, tensor) */
    bool sequence; /* rows are divided between the products; their number is a multiple of tensor */
    int context;   /* ranks that divide the rows of a micro-batch */
    int context_rank;    /* [0, context) */
    bool context_gather; /* keys and values of all ranks come to the queries of each */
    /* with it: so many successive ranks exchange heads first, and are as one that has the rows of
     * all of them and some heads; 0: 1 */
    int context_heads;
    /* with context_gather: rows of ranks are as they come, and where a row sees those of a window
     * alone the ranks behind get what this reaches */
    bool context_in_order;
    bool context_in_turns; /* or each has two runs of them, of whose windows the same holds */
    /* heads of keys that come at a time; 0: as many as LF_CONTEXT_ROOM holds, and half of all where
     * these take LF_CONTEXT_AHEAD, so that those of the next come while the others compute */
    int context_groups;
    int expert;      /* ranks of the data and the context axis that divide the experts; a divisor of
                   their number */
    int expert_rank; /* [0, expert) */
    bool folded;     /* ranks of the tensor axis are among these */
    /* Rows of other ranks that a rank takes at once, in rows of its own; 0: LF_EXPERT_ROOM. What is
     * more comes in further rounds. */
    double expert_room;
};
#define LF_EXPERT_ROOM 2.0

/* Rows of the context axis with context_gather. A rank has blocks of lf_context_block(own rows):
 * a divisor of them, at most LF_CONTEXT_BLOCK, and small enough that there are several to deal.
 * Where they are many and have no such divisor it is LF_CONTEXT_BLOCK, and the last block of each
 * rank is shorter. */
enum { LF_CONTEXT_BLOCK = 512, LF_CONTEXT_ROOM = 64 << 20, LF_CONTEXT_AHEAD = 8 << 20 };
int64_t lf_context_block(int64_t own_rows);
/* A micro-batch; rows is a multiple of ranks. causal: a row sees those before it, else its whole
 * document. in_order: the first rows are those of rank 0, and so on. in_turns: two runs are each
 * rank's, for which its rows must be lf_context_pairs. */
struct lf_context_rows {
    const int32_t *cu_seqlens; /* [n_docs + 1] */
    int64_t n_docs, rows;
    int ranks;
    bool causal, in_order, in_turns;
};
/* Are so many rows of a rank two runs of whole blocks? */
bool lf_context_pairs(int64_t own_rows);
/* Sets first[] to the first rows of the blocks of rank 0, in ascending order, of rank 1 and so on.
 * Shorter blocks are the last rows of all where blocks are dealt. A function of the arguments
 * alone, so every rank finds the same. LF_ENOMEM. */
int lf_context_deal(const struct lf_context_rows *d, int32_t *first, lf_err *err);
/* How many blocks the rows of all ranks of the axis are, of which a rank has so many. */
int64_t lf_context_blocks(const struct lf_layout *l, int64_t own_rows);
/* Where row `at` of the rows of all ranks, one rank after the other, stands in the micro-batch;
 * `first` is of lf_context_deal, or NULL without context_gather. */
int64_t lf_context_row(const struct lf_layout *l, int64_t own_rows, const int32_t *first,
                       int64_t at);
/* The input that has them: i32 [rows / block, 1]. */
#define LF_CONTEXT_BLOCKS "context.blocks"
/* Ranks first, first + step, ... of an axis, n of them; this one is number `place` of these. */
struct lf_rank_group {
    int first, step, n, place;
};
/* On the context axis `heads` successive ranks exchange heads, and there are `rows` such groups,
 * among which rows are dealt and keys are gathered; where this rank is in both. */
struct lf_context_parts {
    int heads, rows, head, row;
};
static inline struct lf_context_parts lf_context_parts(const struct lf_layout *l)
{
    const int all = l->context > 1 ? l->context : 1, heads = !l->context_gather ? all
                                                             : l->context_heads > 1
                                                                 ? l->context_heads
                                                                 : 1;
    return (struct lf_context_parts){heads, all / heads, l->context_rank % heads,
                                     l->context_rank / heads};
}

/* Sets the layout of a store before its first tensor is declared. A box is a range of one dimension
 * of the logical tensor, by lf_param_desc.shard. LF_EINVAL: bad coordinates, or the store has
 * tensors. Boxes that cannot be are refused by lf_pstore_add: LF_EINVAL. */
int lf_pstore_set_layout(lf_pstore *ps, const struct lf_layout *l, lf_err *err);
const struct lf_layout *lf_pstore_layout_of(const lf_pstore *ps);

/* The part of a logical tensor that this rank has: elements lo[k] <= index k < hi[k], for the
 * dimensions of its description; [0, 1) behind them. `replicas` successive ranks of the tensor axis
 * have this same box, and this one is number `replica` of them. */
struct lf_box {
    int64_t lo[3], hi[3];
    int replicas, replica;
};
void lf_pstore_box(const lf_pstore *ps, int i, struct lf_box *box);
/* Is the box less than the tensor? Then *lo and *hi are its bounds, borrowed from the store. */
bool lf_pstore_divided(const lf_pstore *ps, int i, const int64_t **lo, const int64_t **hi);

/* Is the tensor divided by experts, so that ranks of the data axis with other experts lack it? */
bool lf_pstore_experts(const lf_pstore *ps, int i);

/* Says that a store has some layers of a model alone, so that a file of the whole model has tensors
 * that it lacks. */
void lf_pstore_part(lf_pstore *ps);
bool lf_pstore_has_part(const lf_pstore *ps);
/* Says that a rank of another pipeline stage has tensor i too, as a tied embedding: both update it
 * with the sum of both gradients, and the owner alone counts it in the norm and writes it. Before
 * the plan is finished. */
void lf_pstore_tie(lf_pstore *ps, int i, bool owner);
/* Says that ranks of several pipeline stages have tensor i, as a small table that all layers of a
 * stack share: the gradient is summed over all of them, and one is the owner as above. Every rank
 * of the pipeline axis says how many elements (of a rank of the tensor axis) all such tensors of
 * the model have, those that it lacks too; `at` is where this one begins among these. */
void lf_pstore_spread_all(lf_pstore *ps, int64_t elements);
void lf_pstore_spread(lf_pstore *ps, int i, bool owner, int64_t at);
/* Bytes of the gradients that both have of tied tensors; 0: there is none, or it is frozen. */
size_t lf_pstore_tied_bytes(const lf_pstore *ps);

/* What this rank writes of a kind of tensor i where the ranks of all axes write one file together:
 * elements [flat[0], flat[1]) of the row-major flattened box, none where flat[0] = flat[1]. Of the
 * ranks that have the same box the first on the tensor axis writes it, and it is `owner` of it.
 *
 * With zero each rank of the data axis has elements of its own (lf_pstore_own), and flat is these.
 * With `shared` every rank of the data axis has all elements of the box, and flat is all of them.
 * The caller then decides which of those ranks writes which (lf_ckpt_cut of engine/store/ckpt.h
 * takes the box for that). Where groups of ranks keep the same parts (lf_plan_ranks), one group
 * writes. So each element of the logical tensor is written once. */
struct lf_pstore_share {
    struct lf_box box;
    int64_t flat[2];
    bool owner, shared;
    bool experts; /* of the ranks of the data axis (folded: and of the tensor axis), those with the
                     same experts are meant */
};
/* In the finished plan, bound or not; flat is empty where the plan has no such kind. A tensor that
 * is `elsewhere` counts as one that every rank has. */
void lf_pstore_written(const lf_pstore *ps, int i, enum lf_pkind kind, struct lf_pstore_share *out);

#endif
