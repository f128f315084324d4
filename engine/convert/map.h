/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping rows say, as data, how the tensors of a foreign checkpoint correspond to ours. One table
 * per family serves both directions. A row has a pattern of outside names, a kind, names of our
 * tensors, and `when`:
 *
 *     {"transformer.h.{L}.attn.c_attn.{P}", LF_MAP_STACK_T,
 *      "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL}
 *
 * {L} stands for every layer of the decoder, the encoder of pictures or its taps, {E} for every
 * expert, {P} for weight and bias. Rows are expanded over
 * the tensors that our model declares (lf_decoder_declare). A row whose tensors are not declared
 * (no biases, a dense layer) stands for nothing, so one table covers all variants of a family.
 * `when` ("kv_heads=1 position!=alibi") distinguishes variants with the same tensors of ours: it
 * compares keys of [model] (engine/model/config.h) in their canonical text.
 *
 * In the kinds our tensors are matrices [out, in]; a bias is a column, and experts [E, out, in] are
 * E blocks of rows:
 *
 *     COPY      the tensor itself
 *     TURNED    its transpose (GPT-2's Conv1D has [in, out]); vectors do not change
 *     STACK     several under each other: rows of the first, then of the second, ... (q;k;v,
 *               gate;up)
 *     STACK_T   the transpose of that stack
 *     GROUPS    q, k, v by groups of heads: rows of group g are its H/G query heads, its key head,
 *               its value head, of head_dim rows each. G = H: [head][q,k,v] (NeoX, BLOOM); G = 1:
 *               the stack q;k;v (Falcon 7B, StarCoder)
 *     GROUPS_3  the oldest Megatron layout of the same for G = H: rows [head][head_dim][q,k,v]
 *     EXPERT    one outside tensor per expert ({E}): block {E} of ours
 *     EXPERTS   the stack of several, expert by expert: [E, out of all, in]
 *     EXPERTS_T the transpose of each expert of that: [E, in, out of all]
 *     CELLS     ours is [out, k C] of k patches side by side, k the square of projector.merge; the
 *               outside tensor has the k numbers of a channel beside each other (unfold of PyTorch)
 *     VECTOR    ours is [1, n], the outside tensor [n]
 *     LEAD      ours is [m, n], the outside tensor [1, m, n]
 *     CONV      ours is [C, 3 P P], the outside tensor a convolution [C, 3, P, P]
 *     CONV_T    ours is [C, 6 P P], the outside tensor one over two frames [C, 3, 2, P, P]
 *     TIED      a second copy of our tensor: read and compared, never stored
 *     IGNORED   no weight; `ours` says why it can be left out
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
    LF_MAP_TURNED,
    LF_MAP_STACK,
    LF_MAP_STACK_T,
    LF_MAP_GROUPS,
    LF_MAP_GROUPS_3,
    LF_MAP_EXPERT,
    LF_MAP_EXPERTS,
    LF_MAP_EXPERTS_T,
    LF_MAP_CELLS,
    LF_MAP_VECTOR,
    LF_MAP_LEAD,
    LF_MAP_CONV,
    LF_MAP_CONV_T,
    LF_MAP_TIED,
    LF_MAP_IGNORED
};

struct lf_map_row {
    const char *outside;
    enum lf_map_kind kind;
    const char *ours; /* names separated by blanks; IGNORED: the reason */
    const char *when; /* NULL: always; conditions separated by blanks */
};

#define LF_MAP_MAX_PARTS 4 /* tensors of ours in one outside tensor */
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
};

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
    int ndim; /* expected shape; IGNORED: -1, any */
    int64_t shape[LF_MAP_MAX_DIMS];
    int64_t width; /* elements of one of its rows, which segments count */
    int n_ours, ours[LF_MAP_MAX_PARTS];
    int64_t expert;
    /* index in the bound source; -1: missing (allowed for TIED and IGNORED) */
    int source;
};

/* Rows [at, at + n) of a tensor are rows [src_at, src_at + n) of tensor src, or columns where src
 * is turned. */
struct lf_map_seg {
    int64_t at, n;
    int src;
    int64_t src_at;
};

/* Matrices behind each other, each of which is turned by itself; n 0: the tensor is one matrix. */
struct lf_map_blocks {
    int64_t n, rows, width; /* of one block of this tensor */
    int64_t src_width;      /* elements of a row of the sources */
};

/* The parts of a tensor, sorted by `at`, without gaps. turned: the sources are transposed (import),
 * or the segments are columns of this tensor (export). With blocks the segments are those of each
 * block, and a source has as many blocks, each as large as its segment. */
struct lf_map_parts {
    struct lf_map_seg *segs;
    size_t n, cap;
    bool turned;
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

/* Expands the tables of a form for a model. LF_EINVAL: the rows cover a tensor twice or not at all;
 * the message names it. */
int lf_map_build(lf_map *out, const struct lf_map_form *form, const lf_model_config *c,
                 lf_err *err);
void lf_map_fini(lf_map *m);

/* Finds every item in s. canon (may be NULL) gives the name that the rows use for a tensor of s.
 * LF_EINVAL: tensors are missing, have no row, or have another shape; the message names them. */
int lf_map_bind(lf_map *m, const lf_st *s, void (*canon)(char *out, size_t cap, const char *name),
                lf_err *err);

const struct lf_map_item *lf_map_find(const lf_map *m, const char *name); /* NULL: none */

/* Does `when` hold? */
bool lf_map_when(const char *when, const lf_model_config *c);

#endif
