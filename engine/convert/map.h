/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping rows say, as data, how the tensors of a foreign checkpoint correspond to ours. One table
 * per family serves both directions. A row has a pattern of outside names, a kind, names of our
 * tensors, and `when`:
 *
 *     {"transformer.h.{L}.attn.c_attn.{P}", LF_MAP_STACK_T,
 *      "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL}
 *
 * {L} stands for every layer of the decoder, an encoder or the taps of one, {E} for every
 * expert, {P} for weight and bias, {N} for how many layers the decoder has, {M} for every head of
 * mtp_layers, counted from 0, and {H} for the layer of ours that it is, {N} + {M}. Of an encoder
 * of pictures with stages {S} stands for the stage of layer {L}, {T} for the one after it and {B}
 * for the number of the layer within its stage. Rows are
 * expanded over the tensors that our model declares (lf_decoder_declare). A row whose tensors are
 * not declared (no biases, a dense layer) stands for nothing, so one table covers all variants of a
 * family.
 * `when` ("kv_heads=1 position!=alibi") distinguishes variants with the same tensors of ours: it
 * compares keys of [model] (engine/model/config.h) in their canonical text. "mixer=f" is about the
 * letter of layer {L}, where the layers of a model have other names by what they mix.
 *
 * In the kinds our tensors are matrices [out, in]; a bias is a column:
 *
 *     COPY      the tensor itself
 *     STACK     several under each other: rows of the first, then of the second, ... (q;k;v,
 *               gate;up), in groups and blocks as below
 *     STACK_T   the same, and each block is transposed (GPT-2's Conv1D has [in, out]); vectors are
 *               as in STACK
 *     DEPTHWISE the stack [rows, in] as [rows, 1, in] (a convolution over time of each channel)
 *     EXPERT    one outside tensor per expert ({E}): block {E} of ours
 *     CELLS     ours is [out, k C] of k patches side by side, k the square of projector.merge; the
 *               outside tensor has the k numbers of a channel beside each other (unfold of PyTorch)
 *     VECTOR    ours is [1, n], the outside tensor [n]
 *     LEAD      ours is [m, n] or [n], the outside tensor [1, m, n] or [1, n]
 *     SCALAR    ours is [1], the outside tensor has no dimension
 *     INNER     ours is [n], the outside tensor [1, 1, n, 1]
 *     CONV      ours is [C, 3 P P], the outside tensor a convolution [C, 3, P, P]
 *     MERGE     ours is [C, 4 D] of 2 x 2 patches side by side, column by column, the outside
 *               tensor a convolution [C, D, 2, 2]
 *     PLANE     ours is [C, K K], the outside tensor a depthwise convolution [C, 1, K, K]
 *     CONV_T    ours is [C, 6 P P], the outside tensor one over two frames [C, 3, 2, P, P]
 *     PIXELS    ours has a row for each number of a patch, by colour, row, column; the outside
 *               tensor has them by row, column, colour
 *     TIED      a second copy of our tensor: read and compared, never stored. Where a file has no
 *               other one, it stands for that of the row of kind COPY
 *     IGNORED   no weight, but where another row names it; `ours` says why it can be left out
 *     LEFT_OUT  all tensors that begin with `outside`: weights of what we have not, such as the
 *               heads of multi-token prediction. The model is whole without them, whoever imports
 *               it is told, and an export has none; `ours` says what they are
 *
 * Two counts may stand before the names of a stack: "blocks=B groups=G a b c". With blocks all
 * tensors are B matrices behind each other: ours [B, r, in] or [B, r], the outside tensor
 * [B, R, in] or [B, R], where R is the sum of all r; STACK_T makes that [B, in, R]. Without, they
 * are one matrix or vector. The R rows of a block come in G groups (without groups: 1), each of
 * which has the next r/G rows of each of ours: with n = r/G of tensor k, and m the sum of the n of
 * the tensors before it,
 *
 *     row g R/G + m + j of the outside block is row g n + j of that block of tensor k, 0 <= j < n
 *
 * (STACK_T: column g R/G + m + j). Counts are products, "kv_heads*head_dim", of numbers, keys of
 * [model], in layer {L}, and names of tensors of ours, which stand for their rows r. Layouts:
 *
 *     groups=kv_heads q k v             the H/G query heads, key head and value head of each of G
 *                                       groups: [head][q,k,v] for G = H (NeoX, BLOOM), q;k;v for
 *                                       G = 1 (Falcon 7B, StarCoder)
 *     groups=kv_heads*head_dim q k v    for G = H the oldest of Megatron: [head][head_dim][q,k,v]
 *     blocks=experts gate up            all experts in one tensor, halves gate and up (Qwen3-VL)
 *     blocks=experts groups=expert_ffn gate up
 *                                       the same, gate and up by turns (gpt-oss)
 *
 * lf_map_build and lf_map_bind check three rules: exactly one expanded row names every outside
 * tensor; the rows cover every tensor of ours exactly once; every shape is the one that follows
 * from ours. Otherwise nothing is converted, and the message names the tensors.
 */
#ifndef LF_CONVERT_MAP_H
#define LF_CONVERT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/mem.h"
#include "engine/model/config.h"
#include "engine/store/tensors.h"

enum lf_map_kind {
    LF_MAP_COPY = 1,
    LF_MAP_STACK,
    LF_MAP_STACK_T,
    LF_MAP_DEPTHWISE,
    LF_MAP_EXPERT,
    LF_MAP_CELLS,
    LF_MAP_VECTOR,
    LF_MAP_LEAD,
    LF_MAP_SCALAR,
    LF_MAP_INNER,
    LF_MAP_CONV,
    LF_MAP_CONV_T,
    LF_MAP_MERGE,
    LF_MAP_PLANE,
    LF_MAP_PIXELS,
    LF_MAP_TIED,
    LF_MAP_IGNORED,
    LF_MAP_LEFT_OUT
};

struct lf_map_row {
    const char *outside;
    enum lf_map_kind kind;
    /* counts and names separated by blanks; IGNORED, LEFT_OUT: the reason */
    const char *ours;
    const char *when; /* NULL: always; conditions separated by blanks */
};

#define LF_MAP_MAX_PARTS 6 /* tensors of ours in one outside tensor */
#define LF_MAP_MAX_DIMS  5
#define LF_MAP_TABLES    3 /* of one model: decoder, encoder of pictures, projector */
#define LF_MAP_NAMES     8

/* The form of a file: the tables of a model, and how names that begin with `rows` begin in the
 * file. The longest beginning counts, and names that none is for stay as they are. */
struct lf_map_name {
    const char *rows, *file;
};
struct lf_map_form {
    const struct lf_map_row *tables[LF_MAP_TABLES]; /* each ended by outside == NULL */
    size_t n_tables;
    struct lf_map_name names[LF_MAP_NAMES];
    size_t n_names;
    bool heads_are_layers; /* {L} stands for the layers of heads of mtp_layers too */
    /* How tensors of the file begin that are of no part of the model, and that a checkpoint keeps
     * for an export; ended by NULL. NULL: there are none */
    const char *const *kept;
};
/* Is the row of heads of mtp_layers, by {M} or {H}? */
bool lf_map_of_head(const struct lf_map_row *row);
/* Does a file's tensor of this name belong to those? */
bool lf_map_keeps(const struct lf_map_form *form, const char *name);

/* A tensor of ours, as declared. */
struct lf_map_ours {
    const char *name;
    int ndim;
    int64_t shape[LF_MAP_MAX_DIMS];
};

/* An outside tensor that the rows name. */
struct lf_map_item {
    const char *name;
    enum lf_map_kind kind;
    const struct lf_map_row *row;
    int ndim; /* expected shape; IGNORED, LEFT_OUT: -1, any */
    int64_t shape[LF_MAP_MAX_DIMS];
    int n_ours, ours[LF_MAP_MAX_PARTS];
    int64_t blocks, groups; /* of a stack; blocks 0: it is one matrix or vector */
    int64_t expert;
    /* index in the bound source; -1: missing (allowed for TIED and IGNORED, always of LEFT_OUT) */
    int source;
    int64_t left; /* LEFT_OUT: how many tensors of the bound source begin with its name */
};

/* Row at + t step + j of a tensor is row src_at + t src_step + j of tensor src, or column where src
 * is turned, for 0 <= t < times and 0 <= j < n. */
struct lf_map_seg {
    int64_t at, n;
    int src;
    int64_t src_at;
    int64_t times, step, src_step;
};

/* Matrices behind each other, each of which is transposed by itself; n 0: nothing is. */
struct lf_map_blocks {
    int64_t n, rows;   /* of this tensor: how many, and rows of each */
    int64_t src_width; /* elements of a row of the sources */
    bool cut_columns;  /* segments are columns of this tensor and rows of the sources (export) */
};

/* The parts of a tensor, sorted by `at`: they cover each row once. With blocks the segments are
 * those of each block, and a source has as many blocks. In a tensor of ours step = n. */
struct lf_map_parts {
    struct lf_map_seg *segs;
    size_t n, cap;
    int64_t width; /* elements of a row of this tensor */
    struct lf_map_blocks blocks;
};

typedef struct lf_map {
    struct lf_map_ours *ours;
    size_t n_ours;
    struct lf_map_item *items; /* sorted by name */
    size_t n_items, cap_items;
    struct lf_map_parts *of_ours; /* [n_ours], src: index of items */
    /* [n_items], src: index of ours; empty for IGNORED, one segment for TIED */
    struct lf_map_parts *of_item;
    lf_arena *arena; /* names */
} lf_map;

/* Expands the tables of a form for a model. LF_EINVAL: the rows cover a tensor twice or not at all,
 * or tensors do not divide as the counts of a row say; the message names them. */
int lf_map_build(lf_map *out, const struct lf_map_form *form, const lf_model_config *c,
                 lf_err *err);
void lf_map_fini(lf_map *m);

/* Finds every item in s; what the form keeps is passed over. canon (may be NULL) gives the name
 * that the rows use for a tensor of s. LF_EINVAL: tensors are missing, have no row, or have another
 * shape; the message names them. */
int lf_map_bind(lf_map *m, const lf_st *s, const struct lf_map_form *form,
                void (*canon)(char *out, size_t cap, const char *name), lf_err *err);

const struct lf_map_item *lf_map_find(const lf_map *m, const char *name); /* NULL: none */

/* Does `when` hold? */
bool lf_map_when(const char *when, const lf_model_config *c);

#endif
