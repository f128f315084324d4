/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters of linear layers: trained tensors beside frozen ones (Hu et al. 2021, LoRA;
 * Kalajdzievski 2023, rank-stabilised scale; Liu et al. 2024, DoRA).
 *
 *     y = x W^T + bias + scale * (dropout(x) A^T) B^T
 *
 * W [N, K] is frozen; A [r, K] and B [N, r] are trained.
 *
 * With a magnitude (DoRA) the rows of V = W + scale * B A give directions only; the lengths m [N]
 * are trained:
 *
 *     y = x V'^T + bias,   V'[n] = m[n] V[n] / |V[n]|,   |V[n]| a constant to the backward pass
 *
 * m starts as the lengths of the rows of W (lf_exec_adapter_start). As in PEFT, dropout applies
 * to the part that the magnitude changes: with x' = dropout(x) and s = m / |V|, y = x W^T + bias +
 * (s - 1) x' W^T + s scale (x' A^T) B^T.
 *
 * Matrices of experts [E, N, K] have A [E, r, K] and B [E, N, r], an adapter of each expert without
 * magnitudes or dropout, as PEFT has them of stacked parameters. Who has an expert has its adapter.
 *
 * B starts at zero, so an adapted model starts as its base. A is uniform in +-1/sqrt(K), which is
 * Kaiming's rule with a = sqrt(5). Adapters are never merged in memory, so training and generation
 * read the same matrices in the same order and their bits agree.
 *
 * Where ranks divide W by columns (layout.h), they divide A too, and add up the squares of |V[n]|.
 * Where they divide W by rows, they divide B and m of each member; B and m of a whole group of
 * several members stay whole on every rank, which takes its rows of them.
 *
 * An adapter is attached to a group of the store, such as q, k, v of one layer. It belongs to the
 * group as a whole, with one A for all rows, as in programs where q, k, v are one module; or to
 * some of its members, each with A and B of its own; or to sets of its members, each set with one
 * A, as in programs where a part of the group is a module. Its tensors are ordinary tensors of the
 * store whose description has `adapter` set:
 *
 *     whole group "layers.0.attn.qkv.weight":   layers.0.attn.qkv.lora_A [r, K],
 *                                               layers.0.attn.qkv.lora_B [N, r]
 *     member "layers.0.attn.q.weight" of it:    layers.0.attn.q.lora_A [r, K],
 *                                               layers.0.attn.q.lora_B [N_q, r]
 *     set of q and v:                           layers.0.attn.q.lora_A [r, K],
 *                                               layers.0.attn.q.lora_B [N_q, r],
 *                                               layers.0.attn.v.lora_B [N_v, r]
 *
 * and with a magnitude layers.0.attn.qkv.lora_magnitude [N], layers.0.attn.q.lora_magnitude [N_q].
 */
#ifndef LF_GRAPH_ADAPTER_H
#define LF_GRAPH_ADAPTER_H

#include "engine/graph/graph.h"

struct lf_adapter_desc {
    int64_t rank;
    float scale;    /* alpha / r, or alpha / sqrt(r) */
    bool magnitude; /* DoRA */
};

#define LF_ADAPTER_MEMBERS 32 /* of a group, at most */

/* Declares the tensors of an adapter of `group`, which must hold matrices, or be one tensor of
 * matrices of experts. Bit k of sets[i] puts the k-th member into set i, whose members share one A;
 * n_sets 0 means one adapter for all rows. The group itself does not change; callers usually freeze
 * it before. LF_ENOENT: there is no such group. LF_EINVAL: the group has no matrices [out, in] or
 * no such member, a set is empty, a member is in two, experts have magnitudes, or rank < 1.
 * LF_EEXIST: the group has an adapter. */
int lf_pstore_adapt(lf_pstore *ps, const char *group, const uint32_t *sets, int n_sets,
                    const struct lf_adapter_desc *d, lf_err *err);
/* The same for experts whose A is that of `like`, a group of the same experts that has an adapter
 * and reads the same rows: gate and up as one parameter. LF_EINVAL: it is not so. */
int lf_pstore_adapt_like(lf_pstore *ps, const char *group, const char *like, lf_err *err);
/* Index of the tensor after which the lora_A is named that the adapter of tensor i reads: i itself,
 * or another one of its set. -1: the tensor has none of its own. */
int lf_pstore_adapter_first(const lf_pstore *ps, int i);
/* Trains a tensor of the model, which is a group of its own, as a whole beside the adapters and
 * keeps it with them (PEFT's modules_to_save). `adapter` and `whole` of its description are set,
 * and it is no longer frozen. LF_ENOENT: there is no such tensor. */
int lf_pstore_adapt_whole(lf_pstore *ps, const char *name, lf_err *err);
/* Has the group of this name an adapter? */
bool lf_pstore_adapted(const lf_pstore *ps, const char *group);

struct lf_adapter_drop {
    float p;                 /* dropout of the input of A; 0: none, and the rest is not read */
    lf_val sample, position; /* i64, i32 [R, 1] inputs */
};
/* lf_linear with the adapter of w's group, or plain lf_linear where the group has none. drop NULL:
 * no dropout. The mask is drawn once per group. */
lf_val lf_linear_adapted(lf_graph *g, lf_val x, lf_val w, lf_val bias,
                         const struct lf_adapter_drop *drop);
/* lf_moe_linear with the adapters of its experts, or plain where they have none. */
lf_val lf_moe_linear_adapted(lf_graph *g, lf_val x, lf_val w, lf_val bias,
                             const struct lf_routes *r);

#endif
