/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of Megatron-LM in its "torch" (legacy) form, read as one set of tensors (tensors.h)
 * with Megatron's names.
 *
 *     DIR/latest_checkpointed_iteration.txt         "release" or the number of an iteration
 *     DIR/release | iter_NNNNNNN/mp_rank_TT[_PPP]/model_optim_rng.pt
 *
 * Each file is one of torch.save (torch_file.h): {"args": Namespace, "checkpoint_version",
 * "iteration", "model": {...} or "model0", "model1", ... (virtual pipeline stages), optimizer,
 * random states}. Only args and the model are read.
 *
 * The files of T tensor-parallel ranks are merged. How depends on the kind of the tensor
 * (megatron_ckpt_kinds.c):
 *   column      the rows of rank 0, 1, ... in order (fc1 without gate, embeddings, head)
 *   gate/up     a rank has [gate; up]: first the gates of all ranks, then the ups (fc1 with
 *               args.swiglu)
 *   row         the columns of rank 0, 1, ... in order (attention output, fc2)
 *   qkv         the rows of rank 0, 1, ... in order, each in groups [q ... q, k, v] x head_dim.
 *               checkpoint_version 0 has [3, heads, head_dim] and 1.0 has [heads, head_dim, 3]
 *               instead; both are regrouped, so that every version looks like 2.0
 *   replicated  the tensor of rank 0, which all ranks must share (norms, biases of row layers,
 *               positions, router)
 * A tensor of no known kind is an error where T > 1.
 *
 * The files of P pipeline stages are merged by numbering layers anew. Without virtual stages a
 * stage has as many layers as its file holds, so a short first stage works. With V virtual stages
 * of n layers, chunk v of stage p begins at layer v * P * n + p * n. The last stage may hold the
 * head as a copy of tied embeddings; the copy is compared and becomes an alias of them.
 */
#ifndef LF_STORE_MEGATRON_CKPT_H
#define LF_STORE_MEGATRON_CKPT_H

#include <jansson.h>

#include "engine/store/tensors.h"

#define LF_MEGATRON_CKPT_TRACKER "latest_checkpointed_iteration.txt"

typedef struct lf_megatron_ckpt_options {
    /* rows of embeddings and head to keep; further rows are Megatron's padding. 0: keep all */
    int64_t vocab_size;
} lf_megatron_ckpt_options;

/* Opens DIR, or the directory of one iteration. args (may be NULL) becomes an object that the
 * caller owns. It holds the training arguments that are numbers, texts or lists, enumerations as
 * their value, and dtypes by name; others are left out. It also holds "iteration" and
 * "checkpoint_version" of the file, and "tensor_model_parallel_size" and
 * "pipeline_model_parallel_size" as found. o may be NULL. LF_ENOENT: there is no tracker file and
 * no rank. LF_EFORMAT, LF_ENOTSUP: a rank or stage is missing, shapes do not fit, replicas differ,
 * or the checkpoint has expert parallelism or the newer distributed form; the message names file
 * and tensor. */
int lf_megatron_ckpt_open(lf_st **out, json_t **args, const char *dir,
                          const lf_megatron_ckpt_options *o, lf_err *err);

#endif
